//! The input and output of a session, which sshd's helper handed over.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Both directions of a session: pipes or sockets, of which the other ends are sshd's.
#[derive(Debug)]
pub(super) struct Channel {
    input: AsyncFd<OwnedFd>,
    output: AsyncFd<OwnedFd>,
}

impl Channel {
    /// Takes them over; an error if they are files, which nobody can wait for.
    #[expect(deprecated, reason = "what replaces it is unsafe, for types that give their descriptor away; these don't")]
    pub(super) fn new(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        for descriptor in [&input, &output] {
            fcntl_setfl(descriptor, fcntl_getfl(descriptor)? | OFlags::NONBLOCK)?;
        }
        Ok(Self { input: AsyncFd::new(input)?, output: AsyncFd::new(output)? })
    }
}

impl AsyncRead for Channel {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.input.poll_read_ready(context))?;
            let unfilled = buffer.initialize_unfilled();
            match ready.try_io(|input| Ok(rustix::io::retry_on_intr(|| rustix::io::read(input, &mut *unfilled))?)) {
                Ok(read) => {
                    buffer.advance(read?);
                    return Poll::Ready(Ok(()));
                }
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Channel {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.output.poll_write_ready(context))?;
            match ready.try_io(|output| Ok(rustix::io::retry_on_intr(|| rustix::io::write(output, bytes))?)) {
                Ok(written) => return Poll::Ready(written),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
