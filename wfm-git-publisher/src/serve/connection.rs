//! Connections: accepted within limits, encrypted, and ended in good order when the host stops.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Duration, Instant, Sleep, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

use super::accounting::Peer;
use super::limits::Limits;
use super::{Host, http};

/// The most headers of a request.
const HEADERS: usize = 64;

/// Accepts connections until the host stops.
pub(super) async fn accept(host: &Host, listener: TcpListener, tls: Arc<ServerConfig>) {
    loop {
        let accepted = tokio::select! {
            // Both are cancel-safe: a connection that isn't accepted stays in the queue.
            accepted = listener.accept() => accepted,
            () = host.stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, address)) => admit(host, stream, address, Arc::clone(&tls)),
            Err(error) => {
                // Out of file descriptors, most likely: others have to go first.
                tracing::warn!(%error, "a connection can't be accepted");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Serves a connection, unless there are too many; then it is closed without a word, which costs the least.
fn admit(host: &Host, stream: TcpStream, address: SocketAddr, tls: Arc<ServerConfig>) {
    let (limits, accounting, ip) = (&host.limits, &host.accounting, address.ip());
    let place = Arc::clone(&host.connections).try_acquire_owned().ok();
    let counted = accounting.connection(ip, limits.connections_per_address);
    let stranger = accounting.stranger(ip, limits.strangers_per_address);
    let (Some(place), Some(counted), Some(stranger)) = (place, counted, stranger) else {
        host.metrics.refused_connections.inc();
        return;
    };
    let peer = Arc::new(Peer::new(address, stranger));
    let serving = host.clone();
    host.serving.spawn(async move {
        let _held = (place, counted);
        serving.metrics.connections.inc();
        if let Err(error) = serve(&serving, stream, peer, tls).await {
            tracing::debug!(%address, error = super::chain(&*error), "a connection ended");
        }
        serving.metrics.connections.dec();
    });
}

async fn serve(
    host: &Host,
    stream: TcpStream,
    peer: Arc<Peer>,
    tls: Arc<ServerConfig>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    stream.set_nodelay(true)?;
    // What is needed only for a while is put aside: there may be thousands of connections that just wait.
    let stream = Box::pin(timeout(Limits::HEAD, TlsAcceptor::from(tls).accept(stream))).await??;
    let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
        let (host, peer) = (host.clone(), Arc::clone(&peer));
        async move {
            let request = request.map(Body::new);
            Ok::<_, std::convert::Infallible>(http::answer(host, peer, request).await)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Limits::IDLE)
        .max_buf_size(Limits::HEAD_BYTES)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(Paced::new(stream)), service);
    let mut connection = pin!(connection);
    tokio::select! {
        done = &mut connection => return Ok(done?),
        () = host.stop.cancelled() => {}
        () = sleep(Limits::HEAD) => {
            if !peer.is_known() {
                return Err("nobody showed an account in time".into());
            }
            tokio::select! {
                done = &mut connection => return Ok(done?),
                () = host.stop.cancelled() => {}
            }
        }
    }
    connection.as_mut().graceful_shutdown();
    Ok(connection.await?)
}

/// A stream whose other end must go on taking bytes.
struct Paced<T> {
    stream: T,
    /// Set while nothing is taken.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<T> Paced<T> {
    fn new(stream: T) -> Self {
        Self { stream, deadline: None }
    }

    /// What became of an attempt to write; an error if none came through for too long.
    fn pace<R>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + Limits::STALL)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Paced<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Paced<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.pace(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.pace(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(context);
        self.pace(context, closed)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_for_too_long_is_given_up_and_who_is_slow_is_not() {
        let (ours, mut theirs) = tokio::io::duplex(10);
        let mut ours = Paced::new(ours);
        let slow = async {
            let mut byte = [0];
            for _ in 0..50 {
                sleep(Limits::STALL / 2).await;
                theirs.read_exact(&mut byte).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(ours.write_all(&[7; 50]), slow);
        written.unwrap();
        let start = Instant::now();
        let error = ours.write_all(&[7; 50]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(start.elapsed() >= Limits::STALL && start.elapsed() < Limits::STALL * 2);
    }
}
