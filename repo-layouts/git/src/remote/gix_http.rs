//! Our agent under gix's HTTP transport, which shares out one conversation as a `GET` and some `POST`s.
//!
//! A `POST` goes out when its answer is first read: only then is its body complete.

use std::any::Any;
use std::io::{self, BufRead, BufReader, Cursor, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gix::protocol::transport::Protocol;
use gix_transport::client::blocking_io::http::{GetResponse, Http, PostBodyDataKind, PostResponse, Transport};
use repo_http::{Body, HttpError, Problem, Url};

use super::RemoteError;
use super::allowance::Allowance;
use super::https::{Https, MAX_REFS};

/// One conversation, and why it broke off.
#[derive(Clone)]
pub(super) struct Conversation {
    host: Arc<Https>,
    until: Instant,
    /// How many bytes the host may still say.
    pub(super) left: Allowance,
    failure: Arc<Mutex<Option<HttpError>>>,
}

/// One `POST`: written until somebody reads.
enum Post {
    Writing(Vec<u8>),
    Sent,
}

impl Conversation {
    pub(super) fn new(host: Arc<Https>, limit: Duration) -> Self {
        Self { host, until: Instant::now() + limit, left: Allowance::new(MAX_REFS), failure: Arc::default() }
    }

    pub(super) fn transport(&self, url: gix::Url) -> Transport<Self> {
        Transport::new_http(self.clone(), url, Protocol::V2, false)
    }

    /// What the agent said was wrong, if it was the agent.
    pub(super) fn failure(&self) -> Option<HttpError> {
        lock(&self.failure).take()
    }

    fn send(&self, url: &str, headers: &[(String, String)], body: Option<&[u8]>) -> io::Result<(Headers, Reader)> {
        let left = self.until.saturating_duration_since(Instant::now());
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let url = Url::parse(url).map_err(io::Error::other)?;
        let response = self.host.send(&url, &headers, body, None, left).map_err(|error| self.fail(error))?;
        let text = format!("content-type: {}\n", response.content_type());
        let body = Watched { body: response.body, conversation: self.clone() };
        Ok((Headers::Here(Cursor::new(text.into_bytes())), Box::new(BufReader::new(body))))
    }

    fn fail(&self, error: RemoteError) -> io::Error {
        match error {
            RemoteError::Http(error) => {
                let text = error.to_string();
                *lock(&self.failure) = Some(error);
                io::Error::other(text)
            }
            error => io::Error::other(error),
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Headers of ours that gix writes in its own way.
fn owned(headers: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<(String, String)> {
    let pairs = headers.into_iter().filter_map(|line| {
        let (name, value) = line.as_ref().split_once(':')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    });
    pairs.filter(|(name, _)| !name.eq_ignore_ascii_case("user-agent")).collect()
}

impl Http for Conversation {
    type Headers = Headers;
    type ResponseBody = Answer;
    type PostBody = Written;

    fn get(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::Result<GetResponse<Headers, Answer>> {
        let (headers, body) = self.send(url, &owned(headers), None).map_err(gix::Error::from_error)?;
        Ok(GetResponse { headers, body: Answer::Here(body) })
    }

    fn post(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _body: PostBodyDataKind,
    ) -> gix::Result<PostResponse<Headers, Answer, Written>> {
        let post = Arc::new(Mutex::new(Post::Writing(Vec::new())));
        let answer = Arc::new(Mutex::new(None));
        let pending = Pending {
            conversation: self.clone(),
            url: url.to_owned(),
            headers: owned(headers),
            post: Arc::clone(&post),
            body: Arc::clone(&answer),
        };
        Ok(PostResponse { post_body: Written(post), headers: Headers::Pending(pending), body: Answer::Pending(answer) })
    }

    fn configure(&mut self, _config: &dyn Any) -> gix::Result {
        Ok(())
    }
}

/// A `POST` that goes out when its headers are read.
pub(super) struct Pending {
    conversation: Conversation,
    url: String,
    headers: Vec<(String, String)>,
    post: Arc<Mutex<Post>>,
    body: Arc<Mutex<Option<Reader>>>,
}

impl Pending {
    fn send(&self) -> io::Result<Headers> {
        let Post::Writing(request) = std::mem::replace(&mut *lock(&self.post), Post::Sent) else {
            return Err(io::Error::other("the request was sent before"));
        };
        let (headers, body) = self.conversation.send(&self.url, &self.headers, Some(&request))?;
        *lock(&self.body) = Some(body);
        Ok(headers)
    }
}

/// The body of a request.
pub(super) struct Written(Arc<Mutex<Post>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *lock(&self.0) {
            Post::Writing(request) => request.write(bytes),
            Post::Sent => Err(io::Error::other("the request was sent before")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Header lines of an answer.
pub(super) enum Headers {
    Pending(Pending),
    Here(Cursor<Vec<u8>>),
}

impl BufRead for Headers {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if let Self::Pending(pending) = self {
            *self = pending.send()?;
        }
        match self {
            Self::Here(text) => text.fill_buf(),
            Self::Pending(_) => Ok(&[]),
        }
    }

    fn consume(&mut self, count: usize) {
        if let Self::Here(text) = self {
            text.consume(count);
        }
    }
}

impl Read for Headers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        read_buffered(self, buffer)
    }
}

type Reader = Box<BufReader<Watched>>;

/// The body of an answer.
pub(super) enum Answer {
    Pending(Arc<Mutex<Option<Reader>>>),
    Here(Reader),
}

impl BufRead for Answer {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if let Self::Pending(answer) = self {
            let here = lock(answer).take();
            match here {
                Some(reader) => *self = Self::Here(reader),
                None => return Err(io::Error::other("the answer's headers weren't read")),
            }
        }
        match self {
            Self::Here(reader) => reader.fill_buf(),
            Self::Pending(_) => Ok(&[]),
        }
    }

    fn consume(&mut self, count: usize) {
        if let Self::Here(reader) = self {
            reader.consume(count);
        }
    }
}

impl Read for Answer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        read_buffered(self, buffer)
    }
}

fn read_buffered(from: &mut impl BufRead, buffer: &mut [u8]) -> io::Result<usize> {
    let count = from.fill_buf()?.read(buffer)?;
    from.consume(count);
    Ok(count)
}

/// Keeps the agent's word for what goes wrong while an answer is read, and ends one that says too much.
pub(super) struct Watched {
    body: Body,
    conversation: Conversation,
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.body.read(buffer).map_err(|error| {
            let kind = error.kind();
            match error.downcast::<HttpError>() {
                Ok(http) => io::Error::new(kind, self.conversation.fail(http.into())),
                Err(error) => error,
            }
        });
        let count = read?;
        if self.conversation.left.spend(count) {
            return Ok(count);
        }
        let url = self.conversation.host.url.to_string();
        let too_large = HttpError { url, problem: Problem::TooLarge { limit: MAX_REFS }, source: None };
        Err(self.conversation.fail(too_large.into()))
    }
}
