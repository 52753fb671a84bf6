//! The body of an answer, read as it comes.

use std::io::{self, Read};

use crate::{HttpError, Problem, Timeouts, Url};

/// The body of an answer. An error while it is read is an [`HttpError`] inside the `io::Error`.
pub struct Body {
    pub(crate) reader: ureq::BodyReader<'static>,
    pub(crate) url: Url,
    pub(crate) timeouts: Timeouts,
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Body").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Body {
    /// All of it, at most `limit` bytes.
    pub fn bytes(mut self, limit: u64) -> Result<Vec<u8>, HttpError> {
        let mut bytes = Vec::new();
        let mut chunk = [0; 16 << 10];
        loop {
            match self.reader.read(&mut chunk) {
                Ok(0) => return Ok(bytes),
                Ok(count) if (bytes.len() + count) as u64 > limit => {
                    return Err(HttpError::new(&self.url, Problem::TooLarge { limit }, None));
                }
                Ok(count) => bytes.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(HttpError::of_reading(&self.url, error, &self.timeouts)),
            }
        }
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            kind => io::Error::new(kind, HttpError::of_reading(&self.url, error, &self.timeouts)),
        })
    }
}
