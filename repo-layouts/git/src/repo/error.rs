//! Why a repository, or something in it, can't be used.

use std::path::PathBuf;

use gix::ObjectId;

use crate::Cause;

/// A repository could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no Git repository at this path.
    #[error("`{}` is not a Git repository", path.display())]
    NotARepository {
        path: PathBuf,
        /// What a Git repository has and this path lacks.
        #[source]
        source: Cause,
    },
    /// The repository uses a feature that this program does not support.
    #[error("repository `{}` {what}, which is not supported", path.display())]
    Unsupported {
        path: PathBuf,
        /// The feature, as a verb phrase.
        what: &'static str,
    },
    /// The repository could not be made.
    #[error("cannot make repository `{}`", path.display())]
    Create {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// Something could not be read from a repository.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The text can't name a ref.
    #[error("`{name}` is not a valid ref name")]
    InvalidName { name: String },
    /// A ref is there and can't be read (an empty file after a power cut, for instance).
    #[error("ref `{name}` is damaged")]
    Ref {
        name: String,
        #[source]
        source: Cause,
    },
    /// An object is not in the repository.
    #[error("object {id} is missing")]
    Missing { id: String },
    /// An object is there and can't be read, or its bytes have another hash.
    #[error("object {id} is damaged")]
    Corrupt {
        id: String,
        #[source]
        source: Cause,
    },
    /// The object is of another kind than asked for.
    #[error("object {id} is a {found}, not a {wanted}")]
    Kind {
        id: String,
        /// The kind that was needed.
        wanted: &'static str,
        found: String,
    },
    /// The object is larger than the caller takes.
    #[error("object {id} has {size} bytes, more than the {limit} allowed")]
    TooLarge { id: String, size: u64, limit: u64 },
}

impl ReadError {
    /// Whether something is gone or isn't what it was when it was written.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Ref { .. } | Self::Missing { .. } | Self::Corrupt { .. })
    }
}

pub(super) fn corrupt(id: ObjectId, source: impl Into<Cause>) -> ReadError {
    ReadError::Corrupt { id: id.to_string(), source: source.into() }
}
