//! Whether a client said more since an sshd has its connection: sshd reads what comes, so only the kernel knows.

use std::io;
use std::os::fd::AsRawFd;

use tokio::net::TcpStream;
use tokio::time::{Duration, sleep};

/// How long until the kernel is asked again whether a client has the server's version.
const AGAIN: Duration = Duration::from_millis(50);

/// The kernel's `struct tcp_info` up to `tcpi_bytes_received`, since Linux 4.1.
const INFO: usize = 17;

/// A connection, and what had gone over it.
#[derive(Debug)]
pub(super) struct Heard {
    stream: std::net::TcpStream,
    before: Option<Bytes>,
}

/// What went over a connection since it began.
#[derive(Debug, Clone, Copy)]
struct Bytes {
    /// Sent, and acknowledged by the client.
    acknowledged: u64,
    /// Received, read or not.
    received: u64,
}

impl Heard {
    /// Counts from now on, and returns the stream for an sshd.
    pub(super) fn begin(stream: TcpStream) -> io::Result<(Self, std::net::TcpStream)> {
        let stream = stream.into_std()?;
        let before = bytes(&stream);
        Ok((Self { stream: stream.try_clone()?, before }, stream))
    }

    /// Waits until the client has something of the server's, without which few of them go on.
    pub(super) async fn answered(&self) {
        while self.both().is_some_and(|(before, now)| now.acknowledged <= before.acknowledged) {
            sleep(AGAIN).await;
        }
    }

    /// Whether anything came since; yes if the kernel doesn't say.
    pub(super) fn more(&self) -> bool {
        self.both().is_none_or(|(before, now)| now.received > before.received)
    }

    fn both(&self) -> Option<(Bytes, Bytes)> {
        Some((self.before?, bytes(&self.stream)?))
    }
}

#[expect(unsafe_code, reason = "rustix and the standard library don't ask for TCP_INFO")]
fn bytes(stream: &std::net::TcpStream) -> Option<Bytes> {
    let mut info = [0u64; INFO];
    let whole = libc::socklen_t::try_from(size_of_val(&info)).ok()?;
    let mut length = whole;
    // SAFETY: the kernel writes at most `length` bytes, which are there, and says how many it wrote.
    let failed = unsafe {
        let info = info.as_mut_ptr().cast();
        libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info, &raw mut length)
    };
    let [.., acknowledged, received] = info;
    (failed == 0 && length == whole).then_some(Bytes { acknowledged, received })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use tokio::time::timeout;

    use super::*;

    /// A client that said its version, and the connection as an sshd gets it, which has read that.
    async fn said_its_version() -> (std::net::TcpStream, Heard, std::net::TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        client.write_all(b"SSH-2.0-one\r\n").unwrap();
        stream.readable().await.unwrap();
        let (heard, mut stream) = Heard::begin(stream).unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.read_exact(&mut [0; 13]).unwrap();
        (client, heard, stream)
    }

    #[tokio::test]
    async fn what_comes_counts_though_somebody_else_has_read_it() {
        let (mut client, heard, mut stream) = said_its_version().await;
        assert!(!heard.more());
        client.write_all(b"more").unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        assert!(heard.more());
    }

    #[tokio::test]
    async fn a_client_is_answered_once_it_has_what_the_server_says() {
        let (client, heard, mut stream) = said_its_version().await;
        assert!(timeout(AGAIN * 4, heard.answered()).await.is_err());
        stream.write_all(b"SSH-2.0-two\r\n").unwrap();
        timeout(AGAIN * 100, heard.answered()).await.unwrap();
        drop(client);
    }
}
