//! Whether an ssh-agent answers at all. libssh2 asks one without any limit of time, so it is asked here first.
//!
//! Numbers and forms are those of draft-ietf-sshm-ssh-agent, section 3.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// `SSH_AGENTC_REQUEST_IDENTITIES`
const LIST: u8 = 11;

/// `SSH_AGENT_IDENTITIES_ANSWER`
const LISTED: u8 = 12;

/// `SSH_AGENTC_SIGN_REQUEST`
const SIGN: u8 = 13;

/// `SSH_AGENT_RSA_SHA2_256`
const SHA2: u32 = 2;

/// What is signed to see whether the agent signs. Whatever else such keys sign begins with a length or with `SSHSIG`.
const SIGNED: &[u8] = b"margo-gitops: does this agent sign?";

/// Asks an agent for its keys; an error if it doesn't say within this time that it lists them.
pub(super) fn lists(socket: &Path, within: Duration) -> io::Result<()> {
    match answer(socket, &[LIST], within)? {
        LISTED => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Asks an agent to sign by one of its keys; an error if it says nothing within this time. What it says is libssh2's to
/// judge: it may well refuse to sign what isn't a login.
pub(super) fn signs(socket: &Path, key: &[u8], within: Duration) -> io::Result<()> {
    let mut request = vec![SIGN];
    for text in [key, SIGNED] {
        request.extend(u32::try_from(text.len()).map_err(io::Error::other)?.to_be_bytes());
        request.extend(text);
    }
    request.extend(SHA2.to_be_bytes());
    answer(socket, &request, within).map(drop)
}

/// The kind of an agent's answer.
fn answer(socket: &Path, request: &[u8], within: Duration) -> io::Result<u8> {
    let mut agent = connected(socket)?;
    agent.set_nonblocking(false)?;
    agent.set_write_timeout(Some(within))?;
    agent.set_read_timeout(Some(within))?;
    let length = u32::try_from(request.len()).map_err(io::Error::other)?;
    agent.write_all(&[&length.to_be_bytes(), request].concat())?;
    let mut head = [0; 5];
    agent.read_exact(&mut head)?;
    Ok(head[4])
}

/// Connects without waiting: one that accepts nobody any more has a full queue.
fn connected(socket: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&stream, &SocketAddrUnix::new(socket)?)?;
    Ok(stream.into())
}
