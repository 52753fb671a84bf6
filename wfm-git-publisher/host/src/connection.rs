//! Connections: accepted within limits, encrypted, and ended in good order when the host stops.
//!
//! While a request only waits, its connection is a stream and no more: HTTP and its buffers are dropped, and made anew
//! when there is an answer, or the other end says something.

use std::future::{pending, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use repo_model::error_chain;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::accounting::Peer;
use crate::certificate::pin;
use crate::in_flight::InFlight;
use crate::limits::Limits;
use crate::paced::Paced;
use crate::shared::Host;

/// The most headers of a request.
const HEADERS: usize = 64;

/// Accepts connections until the host stops.
pub(crate) async fn accept(host: &Host, listener: TcpListener, tls: Arc<ServerConfig>) {
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
    let Some(admitted) = host.admit(address) else { return };
    let serving = host.clone();
    host.serving.spawn(async move {
        if let Err(error) = serve(&serving, stream, Arc::clone(&admitted.peer), tls).await {
            tracing::debug!(%address, error = error_chain(&*error), "a connection ended");
        }
    });
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

type Stream = Paced<Box<TlsStream<TcpStream>>>;

async fn serve(host: &Host, stream: TcpStream, peer: Arc<Peer>, tls: Arc<ServerConfig>) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    // What is needed only for a while is put aside: there may be thousands of connections that just wait.
    let stream = Box::new(Box::pin(timeout(Limits::HEAD, TlsAcceptor::from(tls).accept(stream))).await??);
    let known_by = Instant::now() + Limits::HEAD;
    if let Some([certificate, ..]) = stream.get_ref().1.peer_certificates() {
        peer.shows(pin(certificate)?);
    }
    let in_flight = Arc::new(InFlight::default());
    let mut stream = Paced::new(stream, host.metrics.traffic(), host.limits.least_bytes_per_second);
    while let Some(parked) = Box::pin(talk(host, &peer, &in_flight, stream, known_by)).await? {
        stream = parked;
        let head = in_flight.take_head();
        if stream.ahead.is_empty() {
            let said = in_flight.park(&mut stream).await?;
            stream.ahead.extend(said);
        }
        stream.ahead.splice(..0, head);
    }
    Ok(())
}

/// Talks HTTP until all is said, or until a request only waits; then the stream is given back, with what else came.
async fn talk(
    host: &Host,
    peer: &Arc<Peer>,
    in_flight: &Arc<InFlight>,
    stream: Stream,
    known_by: Instant,
) -> Result<Option<Stream>, Failure> {
    let stuck = Arc::clone(&stream.stuck);
    let service =
        service_fn(|request: hyper::Request<hyper::body::Incoming>| in_flight.ask(host, peer, request.map(Body::new)));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Limits::IDLE)
        .max_buf_size(Limits::HEAD_BYTES)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // Answers before it have to be out: what isn't written yet would go with the HTTP.
    let may_park = || peer.only_waits() && in_flight.may_park() && !stuck.load(Ordering::Relaxed);
    let said_or_parked = poll_fn(|context| match Pin::new(&mut connection).poll(context) {
        Poll::Pending if may_park() => Poll::Ready(Ok(true)),
        said => said.map_ok(|()| false),
    });
    let is_parked = tokio::select! {
        // A request that is asked again has to be read before the connection is told to end.
        biased;
        parked = said_or_parked => parked?,
        () = host.stop.cancelled() => {
            Pin::new(&mut connection).graceful_shutdown();
            connection.await?;
            return Ok(None);
        }
        () = unknown(peer, known_by) => return Err("nobody showed an account in time".into()),
    };
    if !is_parked {
        return Ok(None);
    }
    let parts = connection.into_parts();
    let mut stream = parts.io.into_inner();
    stream.ahead = parts.read_buf.to_vec();
    Ok(Some(stream))
}

/// Ends if it is too late to show an account, and none was shown.
async fn unknown(peer: &Peer, known_by: Instant) {
    sleep_until(known_by).await;
    if peer.is_known() {
        pending().await
    }
}
