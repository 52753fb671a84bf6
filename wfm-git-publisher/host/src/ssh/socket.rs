//! The socket of the running host, where sshd's helpers ask it.

use std::fs::Metadata;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use repo_git::durable;
use repo_model::KeyText;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{Duration, sleep, timeout};

use super::channel::Channel;
use super::hello::{Hello, KNOWN, MAX_BYTES, Serve, UNKNOWN};
use super::session;
use super::short::short;
use crate::accounts::Denied;
use crate::limits::Limits;
use crate::paced::Paced;
use crate::shared::Host;
use crate::user::{self, User};

/// The name of the socket beside the host keys, where the settings don't say another place.
pub const SOCKET: &str = "host.sock";

/// How many helpers may be at the socket that didn't say as yet what they want.
const HELPERS: usize = 1000;

/// The input and output of a session.
const DESCRIPTORS: usize = 2;

/// The socket can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("cannot listen on `{}`", path.display())]
    Bind {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// sshd's user can't get there: its processes could ask the host nothing.
    #[error("user `{user}` can't reach the socket `{}`: `{}` is closed to others", socket.display(), dir.display())]
    Closed {
        /// Whom `serve: ssh: user:` names.
        user: String,
        socket: PathBuf,
        /// The directory above it that the user may not enter.
        dir: PathBuf,
    },
    /// A host runs there already.
    #[error("another host listens on `{}`", .0.display())]
    Taken(PathBuf),
}

/// The open socket, which goes when dropped.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// The user as whom sshd lets clients in.
    user: u32,
}

impl Socket {
    /// Opens the socket for processes of this user, of the host's own, and of root.
    pub(crate) fn bind(path: PathBuf, user: u32) -> Result<Self, SocketError> {
        let failed = |source| SocketError::Bind { path: path.clone(), source };
        let (place, _dir) = short(&path).map_err(failed)?;
        if std::os::unix::net::UnixStream::connect(&place).is_ok() {
            return Err(SocketError::Taken(path));
        }
        // What a host left behind that was killed.
        let _ = durable::remove_file(&path);
        let listener = UnixListener::bind(&place).map_err(failed)?;
        // Who may open it decides little: whoever isn't believed is sent away.
        let mode = if user == user::own() { 0o600 } else { 0o666 };
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
        Ok(Self { listener, path, user })
    }

    /// Answers helpers until the host stops.
    pub(crate) async fn accept(&self, host: &Host) {
        let helpers = Arc::new(Semaphore::new(HELPERS));
        loop {
            let accepted = tokio::select! {
                // Both are cancel-safe: who isn't accepted stays in the queue.
                accepted = self.listener.accept() => accepted,
                () = host.stop.cancelled() => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a helper of sshd can't be accepted");
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let uid = stream.peer_cred().map(|peer| peer.uid());
            if !uid.as_ref().is_ok_and(|uid| [0, self.user, user::own()].contains(uid)) {
                tracing::warn!(?uid, "a user who is none of sshd's was sent away from the socket");
                continue;
            }
            let Ok(place) = Arc::clone(&helpers).try_acquire_owned() else { continue };
            let serving = host.clone();
            host.serving.spawn(async move {
                let hello = timeout(Limits::HEAD, hello(&stream)).await;
                drop(place);
                match hello {
                    Ok(Ok((hello, descriptors))) => answer(&serving, stream, hello, descriptors).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a helper of sshd said nothing that can be understood"),
                    Err(_) => tracing::debug!("a helper of sshd said nothing"),
                }
            });
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = durable::remove_file(&self.path);
    }
}

/// Reads what a helper says, with the descriptors that come along.
async fn hello(stream: &UnixStream) -> io::Result<(Hello, Vec<OwnedFd>)> {
    let (mut line, mut descriptors) = (Vec::new(), Vec::new());
    loop {
        stream.readable().await?;
        match stream.try_io(Interest::READABLE, || receive(stream, &mut descriptors, MAX_BYTES - line.len())) {
            Ok(bytes) if bytes.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => line.extend(bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        }
        if line.last() == Some(&b'\n') {
            return Ok((serde_json::from_slice(&line)?, descriptors));
        }
        if line.len() >= MAX_BYTES || descriptors.len() > DESCRIPTORS {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

fn receive(stream: &UnixStream, descriptors: &mut Vec<OwnedFd>, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most.min(4096)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            descriptors.extend(came);
        }
    }
    bytes.truncate(received.bytes);
    Ok(bytes)
}

async fn answer(host: &Host, mut stream: UnixStream, hello: Hello, descriptors: Vec<OwnedFd>) {
    let status = match hello {
        Hello::Auth { key } => {
            if is_known(host, &key) {
                KNOWN
            } else {
                UNKNOWN
            }
        }
        Hello::Serve(serve) => {
            let mut gone = [0];
            tokio::select! {
                status = session(host, serve, descriptors) => status,
                // It says nothing more: either it was ended, or the connection was.
                _ = stream.read(&mut gone) => return,
            }
        }
    };
    let _ = timeout(Limits::HEAD, stream.write_all(&[status])).await;
}

fn is_known(host: &Host, key: &str) -> bool {
    let known = key.parse::<KeyText>().map_err(|error| error.to_string());
    let known = known.and_then(|key| match host.accounts.of_ssh_key(&key) {
        // It is told so, and nothing else: sshd would only say that the key is refused.
        Ok(_) | Err(Denied::Retired(_)) => Ok(()),
        Err(denied) => Err(denied.to_string()),
    });
    match known {
        Ok(()) => true,
        Err(reason) => {
            tracing::info!(target: "access", transport = "ssh", action = "ssh-auth", status = 401, reason);
            false
        }
    }
}

/// Serves a session; its exit status.
async fn session(host: &Host, serve: Serve, descriptors: Vec<OwnedFd>) -> u8 {
    let Ok([input, output]) = <[OwnedFd; DESCRIPTORS]>::try_from(descriptors) else { return 1 };
    let channel = match Channel::new(input, output) {
        Ok(channel) => channel,
        Err(error) => {
            tracing::debug!(%error, "what sshd's helper handed over can't be waited for");
            return 1;
        }
    };
    let stream = Paced::new(channel, host.metrics.traffic(), host.limits.least_bytes_per_second);
    session::serve(host, serve.client.as_deref().and_then(address), serve, stream).await
}

/// Where a client is, as `SSH_CONNECTION` says it.
fn address(client: &str) -> Option<SocketAddr> {
    let mut words = client.split(' ');
    let (ip, port) = (words.next()?.parse::<IpAddr>().ok()?, words.next()?.parse().ok()?);
    Some(SocketAddr::new(ip, port))
}

/// Refuses a socket below a directory that sshd's user may not enter. Directories that aren't there yet are made by a service
/// at its start.
pub(super) fn is_open_to(user: &User, socket: &Path) -> Result<(), SocketError> {
    if [0, user::own()].contains(&user.id) {
        return Ok(());
    }
    let may_enter = |meta: &Metadata| meta.mode() & if meta.uid() == user.id { 0o100 } else { 0o011 } != 0;
    let is_closed = |dir: &&Path| std::fs::metadata(dir).is_ok_and(|meta| !may_enter(&meta));
    match socket.ancestors().skip(1).find(is_closed) {
        None => Ok(()),
        Some(dir) => {
            let (user, socket, dir) = (user.name.clone(), socket.to_owned(), dir.to_owned());
            Err(SocketError::Closed { user, socket, dir })
        }
    }
}

/// Where the socket is: what the settings say, or beside the host keys.
pub(crate) fn place(asked: Option<&Path>, keys: &Path) -> PathBuf {
    asked.map_or_else(|| keys.join(SOCKET), Path::to_owned)
}
