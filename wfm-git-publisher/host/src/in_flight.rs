//! The request that a connection is answering. While it only waits, the connection is parked: no HTTP is kept around it.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::http::header::CONNECTION;
use axum::http::{Request, Response, Version};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::accounting::Peer;
use crate::http;
use crate::lock::lock;
use crate::shared::Host;

/// The request that is being answered, kept apart from the HTTP that asked for it; none between two requests.
#[derive(Default)]
pub(crate) struct InFlight(Mutex<Option<Answering>>);

struct Answering {
    answer: Pin<Box<dyn Future<Output = Response<Body>> + Send>>,
    /// The head that makes a new HTTP ask for the same; `None` if the request had a body, and once it was taken.
    head: Option<Vec<u8>>,
}

impl InFlight {
    /// The answer to a request; to the one that is being answered already, if it is asked again.
    pub(crate) fn ask(
        self: &Arc<Self>,
        host: &Host,
        peer: &Arc<Peer>,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Body>, Infallible>> + use<> {
        lock(&self.0).get_or_insert_with(|| {
            peer.set_waiting(false);
            let head = head_of(&request);
            Answering { answer: Box::pin(http::answer(host.clone(), Arc::clone(peer), request)), head }
        });
        let in_flight = Arc::clone(self);
        std::future::poll_fn(move |context| in_flight.poll(context).map(Ok))
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Response<Body>> {
        let mut answering = lock(&self.0);
        let Some(Answering { answer, .. }) = answering.as_mut() else { return Poll::Pending };
        let response = ready!(answer.as_mut().poll(context));
        *answering = None;
        Poll::Ready(response)
    }

    /// Whether its connection may be parked.
    pub(crate) fn may_park(&self) -> bool {
        lock(&self.0).as_ref().is_some_and(|answering| answering.head.is_some())
    }

    /// What makes a new HTTP ask for it. It is given out once: from then on the connection may not be parked.
    pub(crate) fn take_head(&self) -> Vec<u8> {
        lock(&self.0).as_mut().and_then(|answering| answering.head.take()).unwrap_or_default()
    }

    /// Parks the connection until there is an answer, or the other end says something: its first byte.
    pub(crate) async fn park(&self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<u8>> {
        let mut byte = [0];
        tokio::select! {
            response = std::future::poll_fn(|context| self.poll(context)) => {
                let answer = Box::pin(std::future::ready(response));
                *lock(&self.0) = Some(Answering { answer, head: None });
                Ok(None)
            }
            read = stream.read_exact(&mut byte) => read.map(|_| Some(byte[0])),
        }
    }
}

/// The head of a request as far as it concerns the connection; none if it has a body, too. What waits is a `GET`.
fn head_of(request: &Request<Body>) -> Option<Vec<u8>> {
    if !request.body().is_end_stream() {
        return None;
    }
    let version = if request.version() == Version::HTTP_10 { "1.0" } else { "1.1" };
    let mut head = format!("GET / HTTP/{version}\r\n").into_bytes();
    for value in request.headers().get_all(CONNECTION) {
        head.extend([b"connection: ", value.as_bytes(), b"\r\n"].concat());
    }
    head.extend(b"\r\n");
    Some(head)
}
