//! `ssh-auth` and `ssh-serve`, as sshd calls them: they ask the running host, read none of its files, and start within a
//! few milliseconds.

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::hello::{Hello, KNOWN};
use super::short::short;

pub use super::hello::Serve;

/// The first argument of this program when sshd asks whether a key is somebody's; then the socket, and the key's algorithm
/// and base64.
pub const AUTH: &str = "ssh-auth";

/// The first argument of this program in the place of a client's command; then the socket, and the key.
pub const SERVE: &str = "ssh-serve";

/// How long a host that is being started anew is waited for, so that no key is refused meanwhile.
const RESTART: Duration = Duration::from_secs(5);

/// How long the host may take to say whether it knows a key.
const ANSWER: Duration = Duration::from_secs(10);

/// The line for sshd if the key is somebody's: it may run `program` as `ssh-serve`, and nothing else.
pub fn auth(program: &str, socket: &str, algorithm: &str, base64: &str) -> io::Result<Option<String>> {
    let key = format!("{algorithm} {base64}");
    let mut stream = connect(Path::new(socket))?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(&line(&Hello::Auth { key: key.clone() })?)?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    // Neither a path nor a key has a character that would end these words: the host checks its paths, and has this key.
    Ok((answer[0] == KNOWN).then(|| format!("restrict,command=\"{program} {SERVE} {socket} '{key}'\" {key}\n")))
}

/// Gives standard input and output to the host, and waits until it has served them; the exit status.
pub fn serve(socket: &str, serve: Serve) -> io::Result<u8> {
    let mut stream = connect(Path::new(socket))?;
    let (input, output) = (io::stdin(), io::stdout());
    let descriptors = [input.as_fd(), output.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let line = line(&Hello::Serve(serve))?;
    let sent = sendmsg(&stream, &[IoSlice::new(&line)], &mut control, SendFlags::NOSIGNAL)?;
    stream.write_all(line.get(sent..).unwrap_or_default())?;
    let mut status = [0];
    stream.read_exact(&mut status)?;
    Ok(status[0])
}

fn line(hello: &Hello) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(hello)?;
    line.push(b'\n');
    Ok(line)
}

/// Connects to the host; to one that is about to be there, too.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let begin = Instant::now();
    loop {
        let connected = short(socket).and_then(|(path, _dir)| UnixStream::connect(path));
        match connected {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
                    && begin.elapsed() < RESTART =>
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            connected => return connected,
        }
    }
}
