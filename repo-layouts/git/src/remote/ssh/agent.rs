//! Whether an ssh-agent answers at all. libssh2 asks one without any limit of time.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// `SSH_AGENTC_REQUEST_IDENTITIES` behind its length (draft-ietf-sshm-ssh-agent, section 3.5).
const LIST: [u8; 5] = [0, 0, 0, 1, 11];

/// `SSH_AGENT_IDENTITIES_ANSWER`
const LISTED: u8 = 12;

/// Asks an agent for its keys; an error if it doesn't say within this time that it lists them.
pub(super) fn answers(socket: &Path, within: Duration) -> io::Result<()> {
    let mut agent = connected(socket)?;
    agent.set_nonblocking(false)?;
    agent.set_write_timeout(Some(within))?;
    agent.set_read_timeout(Some(within))?;
    agent.write_all(&LIST)?;
    let mut head = [0; LIST.len()];
    agent.read_exact(&mut head)?;
    if head[4] == LISTED { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Connects without waiting: one that accepts nobody any more has a full queue.
fn connected(socket: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&stream, &SocketAddrUnix::new(socket)?)?;
    Ok(stream.into())
}
