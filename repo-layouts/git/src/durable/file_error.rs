//! The one error of a file or directory that can't be used: which one, and why.

use std::io;
use std::path::{Path, PathBuf};

/// A file or directory can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write `{}`", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl FileError {
    /// For `map_err` behind whatever reads `path`.
    pub fn read(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Read { path: path.to_owned(), source }
    }

    /// For `map_err` behind whatever writes `path`.
    pub fn write(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Write { path: path.to_owned(), source }
    }
}
