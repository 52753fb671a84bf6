//! Bodies of requests: read within limits of bytes and time, unpacked, and out of memory when they are large.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT};
use flate2::write::GzDecoder;
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::answer::Refusal;
use crate::limits::Limits;

/// How much of a body that is too large is still read, and for how long: a client that sends hears an answer only if the
/// connection isn't closed under it.
const HEARD_OUT: (usize, Duration) = (1 << 20, Duration::from_secs(2));

/// What is kept in memory of one body.
const IN_MEMORY: usize = 256 << 10;

/// A body that is here in full.
#[derive(Debug)]
pub(crate) struct Spool {
    /// The beginning: all of it, or as much as is kept in memory.
    pub(crate) head: Vec<u8>,
    /// The rest, if there is any, from the beginning of the file.
    pub(crate) rest: Option<File>,
}

impl Spool {
    /// The whole body, read from its file if it is large.
    pub(crate) fn into_memory(mut self) -> io::Result<Vec<u8>> {
        if let Some(mut rest) = self.rest {
            rest.read_to_end(&mut self.head)?;
        }
        Ok(self.head)
    }
}

/// Takes bytes up to a limit: the first ones into memory, the rest into a file.
struct Sink<'a> {
    dir: &'a Path,
    spool: Spool,
    length: u64,
    limit: u64,
}

/// How a body is packed.
enum Decoder<'a> {
    Plain(Sink<'a>),
    Gzip(Box<GzDecoder<Sink<'a>>>),
}

/// Reads a body of at most `limit` bytes, packed and unpacked. What doesn't fit into memory goes to a file in `dir` that
/// has no name.
pub(crate) async fn read(headers: &HeaderMap, mut body: Body, limit: u64, dir: &Path) -> Result<Spool, Refusal> {
    let read = read_within(headers, &mut body, limit, dir).await;
    // Who waits to be asked for the body sends nothing before that.
    if matches!(read, Err(Refusal::TooLarge(_))) && !headers.contains_key(EXPECT) {
        // The answer goes out meanwhile.
        tokio::spawn(timeout(HEARD_OUT.1, hear_out(body)));
    }
    read
}

/// Reads on and keeps nothing.
async fn hear_out(mut body: Body) {
    let mut left = HEARD_OUT.0;
    while let Some(Ok(frame)) = body.frame().await {
        match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

async fn read_within(headers: &HeaderMap, body: &mut Body, limit: u64, dir: &Path) -> Result<Spool, Refusal> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(Refusal::TooLarge(limit));
    }
    let sink = Sink { dir, spool: Spool { head: Vec::new(), rest: None }, length: 0, limit };
    let decoder = match headers.get(CONTENT_ENCODING).map(|value| value.as_bytes()) {
        None | Some(b"identity") => Decoder::Plain(sink),
        Some(b"gzip" | b"x-gzip") => Decoder::Gzip(Box::new(GzDecoder::new(sink))),
        Some(_) => return Err(Refusal::BadRequest("only gzip is understood as an encoding".to_owned())),
    };
    timeout(Limits::TOTAL, fill(decoder, body)).await.map_err(|_| Refusal::Timeout)?
}

async fn fill(mut decoder: Decoder<'_>, body: &mut Body) -> Result<Spool, Refusal> {
    loop {
        let frame = timeout(Limits::STALL, body.frame()).await.map_err(|_| Refusal::Timeout)?;
        match frame {
            None => return decoder.finish(),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => decoder.take(&bytes)?,
                Err(_trailers) => {}
            },
            Some(Err(_)) => return Err(Refusal::BadRequest("the request broke off".to_owned())),
        }
    }
}

impl Decoder<'_> {
    fn take(&mut self, bytes: &Bytes) -> Result<(), Refusal> {
        let (written, limit) = match self {
            Self::Plain(sink) => (sink.write_all(bytes), sink.limit),
            Self::Gzip(gzip) => (gzip.write_all(bytes), gzip.get_ref().limit),
        };
        written.map_err(|error| refusal(&error, limit))
    }

    fn finish(self) -> Result<Spool, Refusal> {
        let sink = match self {
            Self::Plain(sink) => sink,
            Self::Gzip(gzip) => {
                let limit = gzip.get_ref().limit;
                gzip.finish().map_err(|error| refusal(&error, limit))?
            }
        };
        sink.finish().map_err(|error| refusal(&error, 0))
    }
}

/// Which error of the sink it was.
fn refusal(error: &io::Error, limit: u64) -> Refusal {
    match error.kind() {
        io::ErrorKind::FileTooLarge => Refusal::TooLarge(limit),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            Refusal::BadRequest("the request is no good gzip".to_owned())
        }
        _ => {
            tracing::error!(%error, "a request can't be kept");
            Refusal::Internal
        }
    }
}

impl Sink<'_> {
    fn finish(mut self) -> io::Result<Spool> {
        if let Some(file) = &mut self.spool.rest {
            file.seek(SeekFrom::Start(0))?;
        }
        Ok(self.spool)
    }
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.length += bytes.len() as u64;
        if self.length > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if self.spool.rest.is_none() && self.spool.head.len() + bytes.len() <= IN_MEMORY {
            self.spool.head.extend(bytes);
            return Ok(bytes.len());
        }
        if self.spool.rest.is_none() {
            self.spool.rest = Some(tempfile::tempfile_in(self.dir)?);
        }
        if let Some(file) = &mut self.spool.rest {
            file.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn take(body: Vec<u8>, encoding: Option<&'static str>, limit: u64) -> Result<Vec<u8>, Refusal> {
        let mut headers = HeaderMap::new();
        if let Some(encoding) = encoding {
            headers.insert(CONTENT_ENCODING, axum::http::HeaderValue::from_static(encoding));
        }
        let dir = tempfile::tempdir().unwrap();
        let spool = read(&headers, Body::from(body), limit, dir.path()).await?;
        Ok(spool.into_memory().unwrap())
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn bodies_arrive_whole_however_large_and_packed() {
        for length in [0, 10, IN_MEMORY, IN_MEMORY + 1, 3 * IN_MEMORY] {
            let bytes: Vec<u8> = (0..length).map(|n| u8::try_from(n % 251).unwrap()).collect();
            assert_eq!(take(bytes.clone(), None, 1 << 20).await.unwrap(), bytes);
            assert_eq!(take(gzip(&bytes), Some("gzip"), 1 << 20).await.unwrap(), bytes);
        }
    }

    #[tokio::test]
    async fn what_is_too_large_is_refused_however_small_it_is_packed() {
        let bomb = gzip(&vec![0; 10 << 20]);
        assert!(bomb.len() < 20_000);
        assert_eq!(take(bomb, Some("gzip"), 1 << 20).await, Err(Refusal::TooLarge(1 << 20)));
        assert_eq!(take(vec![0; 11], None, 10).await, Err(Refusal::TooLarge(10)));
    }

    #[tokio::test]
    async fn what_is_no_gzip_is_refused() {
        assert!(matches!(take(vec![1; 100], Some("gzip"), 1000).await, Err(Refusal::BadRequest(_))));
        let cut = gzip(b"hello").split_off(4);
        assert!(matches!(take(cut, Some("gzip"), 1000).await, Err(Refusal::BadRequest(_))));
        assert!(matches!(take(vec![], Some("br"), 1000).await, Err(Refusal::BadRequest(_))));
    }
}
