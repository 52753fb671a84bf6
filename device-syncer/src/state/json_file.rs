//! Small JSON files of a home, each read and replaced as a whole, by this program alone.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use repo_git::durable;
use repo_model::json;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::Home;

/// A file can't be read or written, or the home can't be locked for that.
#[derive(Debug, thiserror::Error)]
#[error("can't {doing} `{}`", path.display())]
pub struct FileError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

pub(super) fn failed<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FileError + 'a {
    move |source| FileError { doing, path: path.to_owned(), source }
}

/// Reads a file; the default where there is none. The inner error says what in its content isn't as it was written.
pub(super) fn read<T: DeserializeOwned + Default>(path: &Path) -> Result<Result<T, String>, FileError> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Ok(T::default())),
        bytes => Ok(serde_json::from_slice(&bytes.map_err(failed("read", path))?).map_err(|error| error.to_string())),
    }
}

/// Reads a file that nothing has to wait for; `None` where there is none. One that can't be read is none either, and is
/// logged with this text.
pub(super) fn read_or_log<T: DeserializeOwned>(path: &Path, text: &str) -> Option<T> {
    match fs::read(path).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?)) {
        Ok(content) => Some(content),
        Err(error) => {
            if error.kind() != ErrorKind::NotFound {
                tracing::warn!(%error, "{text}");
            }
            None
        }
    }
}

/// Replaces a file in one step that outlives a power cut.
pub(super) fn write(path: &Path, content: &impl Serialize) -> Result<(), FileError> {
    durable::replace_file(path, &json::to_bytes(content), 0o600).map_err(failed("write", path))
}

/// Until the result is dropped, nobody else changes such a file of this home: two persons who write at the same time do so
/// one after the other.
pub(super) fn lock(home: &Home) -> Result<File, FileError> {
    let dir = File::open(home.root()).map_err(failed("open", home.root()))?;
    flock(&dir, FlockOperation::LockExclusive).map_err(|error| failed("lock", home.root())(error.into()))?;
    Ok(dir)
}
