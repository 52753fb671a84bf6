//! Connections over a Unix socket, in the place of TCP and TLS.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout as Direction, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with};
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, ShutdownHandle, Transport,
};

/// Connects to one socket, and counts how often.
#[derive(Debug, Clone)]
pub(crate) struct SocketConnector {
    path: PathBuf,
    made: Arc<AtomicU64>,
}

impl SocketConnector {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), made: Arc::default() }
    }

    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// A stream to the socket. Linux lets a connection wait for as long as writing may take while too many others wait.
    fn open(&self, limit: Option<Duration>) -> io::Result<UnixStream> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Direction::Send, limit)?;
        connect(&socket, &SocketAddrUnix::new(&self.path)?)?;
        Ok(socket.into())
    }
}

impl Connector for SocketConnector {
    type Out = SocketTransport;

    fn connect(&self, details: &ConnectionDetails, _: Option<()>) -> Result<Option<SocketTransport>, Error> {
        let stream = self.open(limit_of(details.timeout)).map_err(timed_out(details.timeout))?;
        let stream = Arc::new(Stream(stream));
        (details.register_shutdown)(Arc::downgrade(&stream) as Weak<dyn ShutdownHandle>)?;
        self.made.fetch_add(1, Ordering::Relaxed);
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(SocketTransport { stream, buffers }))
    }
}

/// Finds no address, because none is needed: what it gives is never connected to.
#[derive(Debug)]
pub(crate) struct NoNames;

impl Resolver for NoNames {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut none = self.empty();
        none.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        Ok(none)
    }
}

#[derive(Debug)]
struct Stream(UnixStream);

impl ShutdownHandle for Stream {
    fn shutdown(&self) {
        // It may be closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// A connection to a socket.
#[derive(Debug)]
pub(crate) struct SocketTransport {
    stream: Arc<Stream>,
    buffers: LazyBuffers,
}

impl Transport for SocketTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        self.stream.0.set_write_timeout(limit_of(timeout))?;
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        (&self.stream.0).write_all(output).map_err(timed_out(timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        self.stream.0.set_read_timeout(limit_of(timeout))?;
        let amount = (&self.stream.0).read(self.buffers.input_append_buf()).map_err(timed_out(timeout))?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // Nothing may be there to be read, and no end either.
        recv(&self.stream.0, &mut [0], RecvFlags::DONTWAIT) == Err(Errno::AGAIN)
    }
}

fn limit_of(timeout: NextTimeout) -> Option<Duration> {
    timeout.not_zero().map(|limit| *limit)
}

/// What an error means where this limit was set: a socket whose time is over would block.
fn timed_out(timeout: NextTimeout) -> impl Fn(io::Error) -> Error {
    move |error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(error),
    }
}
