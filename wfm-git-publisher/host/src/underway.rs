//! The request that a connection answers: while it only waits, it needs no HTTP around it.

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

/// What is being answered, kept apart from the HTTP that asked for it.
#[derive(Default)]
pub(crate) struct Underway(Mutex<Option<Asked>>);

struct Asked {
    answer: Pin<Box<dyn Future<Output = Response<Body>> + Send>>,
    /// What makes a new HTTP ask for the same, which is done once.
    again: Option<Vec<u8>>,
}

impl Underway {
    /// The answer to a request; to the one that is being answered already, if it is asked again.
    pub(crate) fn ask(
        self: &Arc<Self>,
        host: &Host,
        peer: &Arc<Peer>,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Body>, Infallible>> + use<> {
        lock(&self.0).get_or_insert_with(|| {
            peer.waits(false);
            let again = again(&request);
            Asked { answer: Box::pin(http::answer(host.clone(), Arc::clone(peer), request)), again }
        });
        let underway = Arc::clone(self);
        std::future::poll_fn(move |context| underway.poll(context).map(Ok))
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Response<Body>> {
        let mut asked = lock(&self.0);
        let Some(Asked { answer, .. }) = asked.as_mut() else { return Poll::Pending };
        let response = ready!(answer.as_mut().poll(context));
        *asked = None;
        Poll::Ready(response)
    }

    /// Whether it may wait without HTTP.
    pub(crate) fn may_rest(&self) -> bool {
        lock(&self.0).as_ref().is_some_and(|asked| asked.again.is_some())
    }

    /// What makes a new HTTP ask for it. From then on it may not rest.
    pub(crate) fn again(&self) -> Vec<u8> {
        lock(&self.0).as_mut().and_then(|asked| asked.again.take()).unwrap_or_default()
    }

    /// Waits until there is an answer, or the other end says something: its first byte.
    pub(crate) async fn rest(&self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<u8>> {
        let mut byte = [0];
        tokio::select! {
            response = std::future::poll_fn(|context| self.poll(context)) => {
                let answer = Box::pin(std::future::ready(response));
                *lock(&self.0) = Some(Asked { answer, again: None });
                Ok(None)
            }
            read = stream.read_exact(&mut byte) => read.map(|_| Some(byte[0])),
        }
    }
}

/// The head of a request as far as it concerns the connection; none if it has a body, too. What waits is a `GET`.
fn again(request: &Request<Body>) -> Option<Vec<u8>> {
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
