//! The connection under a session: bytes between the host and libssh2, counted on their way.
//!
//! libssh2 talks into a pair of sockets in this process, and what it says is carried on from there. So it never meets a
//! full socket in the middle of a packet, the host's first words can be read by others, and what the host sends is counted
//! before anybody keeps it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

/// How much of the host's first words is kept: its greeting and the algorithms that it offers.
const GREETING: usize = 64 << 10;

/// How much may wait to be sent to the host; more isn't asked of libssh2.
pub(super) const ENOUGH: usize = 64 << 10;

/// What waits beyond this is not ours: the host makes libssh2 answer and doesn't take the answers.
const TOO_MUCH: usize = 1 << 20;

/// Wakes the session's thread.
#[derive(Debug)]
pub(super) struct Wake(OwnedFd);

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(super) fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Waits until somebody rings, or for so long.
    pub(super) fn wait(&self, at_most: Duration) {
        wait(&mut [PollFd::new(&self.0, PollFlags::IN)], at_most);
        self.clear();
    }

    fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

fn wait(on: &mut [PollFd<'_>], at_most: Duration) {
    // A signal ends it early, which does no harm: whoever waits looks again.
    let _ = poll(on, Timespec::try_from(at_most).ok().as_ref());
}

/// Bytes between the host and libssh2.
#[derive(Debug)]
pub(super) struct Wire {
    tcp: TcpStream,
    inner: UnixStream,
    /// The end of `inner` that libssh2 reads, to see what it left there.
    outer: UnixStream,
    /// From libssh2, not sent yet.
    up: Vec<u8>,
    /// From the host, not taken by libssh2 yet.
    down: Vec<u8>,
    /// Bytes that the host sent.
    pub(super) received: u64,
    /// When the host last sent something.
    pub(super) heard: Instant,
    /// When anything last went either way.
    pub(super) active: Instant,
    /// The connection has ended, in whichever way.
    pub(super) ended: bool,
    /// The host's first words.
    pub(super) greeting: Vec<u8>,
}

impl Wire {
    /// Both ends: the connection to the host, and what libssh2 takes for it.
    pub(super) fn new(tcp: TcpStream) -> io::Result<(Self, UnixStream)> {
        let (inner, libssh2) = UnixStream::pair()?;
        inner.set_nonblocking(true)?;
        libssh2.set_nonblocking(true)?;
        let outer = libssh2.try_clone()?;
        let now = Instant::now();
        let (up, down, greeting) = (Vec::new(), Vec::new(), Vec::new());
        Ok((
            Self { tcp, inner, outer, up, down, received: 0, heard: now, active: now, ended: false, greeting },
            libssh2,
        ))
    }

    /// Whether libssh2 left something to read that it may take when it is asked once more: where a packet isn't whole yet
    /// it says that it would block before it has read on, and nothing would wake us for what is here already. `before` is
    /// how many bytes it left the last time.
    pub(super) fn is_worth_another_look(&self, before: &mut Option<u64>) -> bool {
        let left = rustix::io::ioctl_fionread(&self.outer).unwrap_or(0);
        left > 0 && before.replace(left) != Some(left)
    }

    /// Whether libssh2 may be given more to send.
    pub(super) fn has_room(&self) -> bool {
        self.up.len() < ENOUGH
    }

    /// Whether something waits until the network takes it.
    pub(super) fn is_sending(&self) -> bool {
        !self.up.is_empty()
    }

    /// Carries what can be carried at once. Tells whether anything came down: from the host, or of what waited for room.
    pub(super) fn pump(&mut self) -> bool {
        self.pump_up();
        self.pump_down()
    }

    fn pump_up(&mut self) {
        let mut buffer = [0; 16 << 10];
        while let Ok(count @ 1..) = self.inner.read(&mut buffer) {
            self.up.extend(&buffer[..count]);
        }
        while !self.up.is_empty() && !self.ended {
            match self.tcp.write(&self.up) {
                Ok(0) => self.ended = true,
                Ok(count) => {
                    self.up.drain(..count);
                    self.active = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // What came before is still read.
                Err(_) => self.up.clear(),
            }
        }
        if self.ended {
            self.up.clear();
        } else if self.up.len() > TOO_MUCH {
            self.end();
        }
    }

    fn pump_down(&mut self) -> bool {
        let (mut buffer, mut came) = ([0; 16 << 10], false);
        loop {
            if self.down.is_empty() && !self.ended {
                match self.tcp.read(&mut buffer) {
                    Ok(0) => self.end(),
                    Ok(count) => self.take(&buffer[..count]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return came,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => self.end(),
                }
                came = true;
            }
            if self.down.is_empty() {
                return came;
            }
            match self.inner.write(&self.down) {
                Ok(count) => {
                    self.down.drain(..count);
                    came = true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return came,
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.received += bytes.len() as u64;
        (self.heard, self.active) = (Instant::now(), Instant::now());
        let room = GREETING.saturating_sub(self.greeting.len()).min(bytes.len());
        self.greeting.extend(&bytes[..room]);
        self.down.extend(bytes);
    }

    fn end(&mut self) {
        self.ended = true;
        self.up.clear();
        // libssh2 reads what there is, and then the end.
        let _ = self.inner.shutdown(std::net::Shutdown::Write);
    }

    /// Waits until something can be carried, somebody rings, or for so long.
    pub(super) fn wait(&self, wake: &Wake, at_most: Duration) {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.down.is_empty());
        flags.set(PollFlags::OUT, !self.up.is_empty());
        let bell = PollFd::new(&wake.0, PollFlags::IN);
        if self.ended || flags.is_empty() {
            wait(&mut [bell], at_most);
        } else {
            wait(&mut [bell, PollFd::new(&self.tcp, flags)], at_most);
        }
        wake.clear();
    }
}

/// A connection that is being made.
pub(super) struct Connecting(OwnedFd);

impl Connecting {
    pub(super) fn begin(to: SocketAddr) -> io::Result<Self> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        match connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Self(socket)),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until it stands or fails, somebody rings, or for so long.
    pub(super) fn wait(&self, wake: &Wake, at_most: Duration) {
        wait(&mut [PollFd::new(&wake.0, PollFlags::IN), PollFd::new(&self.0, PollFlags::OUT)], at_most);
        wake.clear();
    }

    /// `None` while it is being made.
    pub(super) fn stands(&self) -> Option<io::Result<()>> {
        if let Err(error) = sockopt::socket_error(&self.0).and_then(|outcome| outcome) {
            return Some(Err(error.into()));
        }
        match rustix::net::getpeername(&self.0) {
            Ok(_) => Some(Ok(())),
            Err(_) => None,
        }
    }

    pub(super) fn into_stream(self) -> io::Result<TcpStream> {
        let stream = TcpStream::from(self.0);
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What libssh2 would read of it at once.
    fn read_all(libssh2: &mut UnixStream) -> usize {
        let mut buffer = [0; 64 << 10];
        std::iter::from_fn(|| libssh2.read(&mut buffer).ok().filter(|count| *count > 0)).sum()
    }

    #[test]
    fn what_waited_for_room_is_told_as_something_to_read_although_the_host_says_nothing_more() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let tcp = TcpStream::connect(listener.local_addr().expect("its address")).expect("connected");
        let (mut host, _) = listener.accept().expect("accepted");
        tcp.set_nonblocking(true).expect("set");
        let (mut wire, mut libssh2) = Wire::new(tcp).expect("a pair");
        let mut sent = 0;
        while wire.down.is_empty() {
            host.write_all(&[0; 16 << 10]).expect("sent");
            sent += 16 << 10;
            while wire.received < sent {
                wire.pump();
            }
        }
        let read = read_all(&mut libssh2) as u64;
        assert!(read < sent && wire.pump(), "{read} of {sent}");
        assert_eq!(read + read_all(&mut libssh2) as u64, sent);
        assert!(!wire.pump());
    }
}
