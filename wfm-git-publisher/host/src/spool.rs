//! Answers that don't fit into memory: on the disk, in files without names, until their clients have taken them. So a
//! client that takes its answer slowly holds up a file and no process.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, ReadBuf};

use crate::answer::Refusal;
use crate::lock::lock;

/// What is kept in memory of one answer.
const IN_MEMORY: usize = 1 << 20;

/// How much is read at once.
const CHUNK: usize = 64 << 10;

/// An account that has more than one answer here has this part of the room at most.
const SHARE: u64 = 4;

/// The room on the disk for all answers.
#[derive(Debug)]
pub(crate) struct Spools {
    dir: PathBuf,
    /// Bytes of all answers together.
    room: u64,
    used: Mutex<HashMap<String, Used>>,
}

/// The room that the answers of one account take.
#[derive(Debug, Default)]
struct Used {
    bytes: u64,
    answers: usize,
}

/// An answer that is here in full.
#[derive(Debug)]
pub(crate) struct Spool {
    head: Bytes,
    /// What didn't fit into memory, and how many bytes of it weren't read yet.
    rest: Option<(Place, File)>,
    left: u64,
}

/// The room that one answer takes, until dropped.
#[derive(Debug)]
struct Place {
    spools: Arc<Spools>,
    account: String,
    bytes: u64,
}

impl Spools {
    pub(crate) fn new(dir: PathBuf, room: u64) -> Arc<Self> {
        Arc::new(Self { dir, room, used: Mutex::default() })
    }

    /// Keeps all that is written here for an account.
    pub(crate) async fn keep(
        self: &Arc<Self>,
        account: &str,
        from: &mut (impl AsyncRead + Unpin),
    ) -> Result<Spool, Refusal> {
        let mut head = Vec::with_capacity(CHUNK);
        from.take(IN_MEMORY as u64).read_to_end(&mut head).await.map_err(|error| refusal(&error))?;
        let rest = if head.len() == IN_MEMORY { self.keep_rest(account, from).await? } else { None };
        let left = rest.as_ref().map_or(0, |(place, _)| place.bytes);
        Ok(Spool { head: head.into(), rest, left })
    }

    async fn keep_rest(
        self: &Arc<Self>,
        account: &str,
        from: &mut (impl AsyncRead + Unpin),
    ) -> Result<Option<(Place, File)>, Refusal> {
        let mut chunk = vec![0; CHUNK];
        let mut kept: Option<(Place, File)> = None;
        loop {
            let count = from.read(&mut chunk).await.map_err(|error| refusal(&error))?;
            if count == 0 {
                break;
            }
            let (place, file) = match &mut kept {
                Some(kept) => kept,
                None => {
                    let place = self.place(account);
                    let file = tempfile::tempfile_in(&self.dir).map_err(|error| refusal(&error))?;
                    kept.insert((place, File::from_std(file)))
                }
            };
            place.grow(count as u64)?;
            file.write_all(&chunk[..count]).await.map_err(|error| refusal(&error))?;
        }
        if let Some((_, file)) = &mut kept {
            // What is written in the background tells only now that it failed.
            file.flush().await.map_err(|error| refusal(&error))?;
            file.rewind().await.map_err(|error| refusal(&error))?;
        }
        Ok(kept)
    }

    fn place(self: &Arc<Self>, account: &str) -> Place {
        lock(&self.used).entry(account.to_owned()).or_default().answers += 1;
        Place { spools: Arc::clone(self), account: account.to_owned(), bytes: 0 }
    }
}

impl Place {
    fn grow(&mut self, bytes: u64) -> Result<(), Refusal> {
        let mut used = lock(&self.spools.used);
        let all: u64 = used.values().map(|used| used.bytes).sum();
        let own = used.entry(self.account.clone()).or_default();
        if all + bytes > self.spools.room {
            tracing::warn!(account = self.account, "there is no room for an answer: `spoolBytes` are taken");
            return Err(Refusal::Busy);
        }
        if own.answers > 1 && own.bytes + bytes > self.spools.room / SHARE {
            return Err(Refusal::TooMany);
        }
        own.bytes += bytes;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut used = lock(&self.spools.used);
        let Some(own) = used.get_mut(&self.account) else { return };
        (own.bytes, own.answers) = (own.bytes - self.bytes, own.answers - 1);
        if own.answers == 0 {
            used.remove(&self.account);
        }
    }
}

/// Another time there may be room on the disk.
fn refusal(error: &io::Error) -> Refusal {
    tracing::error!(%error, "an answer can't be kept");
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Refusal::Busy,
        _ => Refusal::Internal,
    }
}

impl Spool {
    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// Whether it didn't fit into memory.
    pub(crate) fn is_large(&self) -> bool {
        self.rest.is_some()
    }

    /// The body of an answer: broken off once `gone` is ready. What the request takes up is `held` until it is sent.
    pub(crate) fn into_body<H>(self, gone: impl Future<Output = Refusal> + Send + 'static, held: H) -> Sending<H> {
        Sending { spool: self, chunk: Vec::new(), gone: Box::pin(gone), _held: held }
    }
}

/// An answer that a client is taking.
pub(crate) struct Sending<H> {
    spool: Spool,
    chunk: Vec<u8>,
    gone: Pin<Box<dyn Future<Output = Refusal> + Send>>,
    _held: H,
}

impl<H: Unpin> hyper::body::Body for Sending<H> {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if self.gone.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err("the account is no longer good".into())));
        }
        let Self { spool: Spool { head, rest, left }, chunk, .. } = &mut *self;
        if !head.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(head)))));
        }
        let Some((_, file)) = rest.as_mut().filter(|_| *left > 0) else { return Poll::Ready(None) };
        chunk.resize(CHUNK, 0);
        let mut buffer = ReadBuf::new(chunk);
        Poll::Ready(match ready!(Pin::new(file).poll_read(context, &mut buffer)) {
            Ok(()) if buffer.filled().is_empty() => Some(Err("the rest of an answer is gone".into())),
            Ok(()) => {
                *left = left.saturating_sub(buffer.filled().len() as u64);
                Some(Ok(Frame::data(Bytes::copy_from_slice(buffer.filled()))))
            }
            Err(error) => Some(Err(error.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.spool.head.is_empty() && self.spool.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.spool.head.len() as u64 + self.spool.left)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn keep(spools: &Arc<Spools>, account: &str, length: usize) -> Result<Spool, Refusal> {
        let bytes: Vec<u8> = (0..length).map(|n| u8::try_from(n % 251).unwrap()).collect();
        spools.keep(account, &mut &bytes[..]).await
    }

    #[tokio::test]
    async fn an_answer_comes_back_as_it_was_and_leaves_no_trace() {
        let dir = tempfile::tempdir().unwrap();
        let spools = Spools::new(dir.path().to_owned(), 10 << 20);
        for length in [0, 10, IN_MEMORY - 1, IN_MEMORY, IN_MEMORY + 1, 3 * IN_MEMORY + 7] {
            let spool = keep(&spools, "a", length).await.unwrap();
            let body = spool.into_body(std::future::pending(), ());
            assert_eq!(hyper::body::Body::size_hint(&body).exact(), Some(length as u64));
            let bytes = body.collect().await.unwrap().to_bytes();
            assert!(bytes.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % 251) && bytes.len() == length);
        }
        assert!(lock(&spools.used).is_empty());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn nobody_fills_the_disk_and_one_account_leaves_room_for_others() {
        let dir = tempfile::tempdir().unwrap();
        let spools = Spools::new(dir.path().to_owned(), 8 << 20);
        assert_eq!(keep(&spools, "a", 10 << 20).await.unwrap_err(), Refusal::Busy, "more than there is");
        let first = keep(&spools, "a", 4 << 20).await.unwrap();
        assert_eq!(keep(&spools, "a", 4 << 20).await.unwrap_err(), Refusal::TooMany, "more than its share");
        let second = keep(&spools, "b", 5 << 20).await.unwrap();
        assert_eq!(keep(&spools, "c", 4 << 20).await.unwrap_err(), Refusal::Busy);
        keep(&spools, "c", IN_MEMORY / 2).await.unwrap();
        drop((first, second));
        assert!(lock(&spools.used).is_empty());
        keep(&spools, "c", 8 << 20).await.unwrap();
    }

    #[tokio::test]
    async fn an_answer_ends_as_an_error_when_its_account_does() {
        let spools = Spools::new(std::env::temp_dir(), 10 << 20);
        let body = keep(&spools, "a", 10).await.unwrap().into_body(std::future::ready(Refusal::Unauthorized), ());
        assert!(body.collect().await.is_err());
    }
}
