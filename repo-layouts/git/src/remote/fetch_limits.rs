//! What a fetch may take, what it brings, and why it fails.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::RemoteError;
use crate::{Cause, CommitId, ReadError};

/// What one fetch may take.
#[derive(Debug, Clone, Copy)]
pub struct FetchLimits {
    /// Bytes of the pack on the wire.
    pub bytes: u64,
    /// The most objects in the pack.
    pub objects: u32,
    /// Bytes of one object, unpacked. A chain of deltas may hold four times as much in all, and resolving it takes so
    /// much memory.
    pub object_bytes: u64,
    /// Bytes that reading each object of the pack by itself takes, with all that it is a delta of.
    pub resolved_bytes: u64,
    /// Time of the whole conversation, and of what is made of it here.
    pub timeout: Duration,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            objects: 100_000,
            object_bytes: 16 << 20,
            resolved_bytes: 32 << 30,
            timeout: Duration::from_secs(60),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetched {
    pub objects: u32,
    /// Bytes of the pack on the wire.
    pub bytes: u64,
}

/// A fetch failed; the repository is as it was.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The remote can't be reached, is too slow or breaks the protocol.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The pack has more objects than allowed.
    #[error("the pack has {found} objects, more than the {limit} allowed")]
    TooManyObjects { found: u32, limit: u32 },
    /// The pack has more bytes than allowed.
    #[error("the pack is larger than the {limit} bytes allowed")]
    TooManyBytes { limit: u64 },
    /// An object is larger than allowed.
    #[error("the pack has an object larger than the {limit} bytes allowed")]
    ObjectTooLarge { limit: u64 },
    /// The pack has too many deltas of deltas.
    #[error("the pack has a chain of more than the {limit} deltas allowed")]
    TooManyDeltas { limit: u64 },
    /// The pack is small, and what its deltas stand for is not.
    #[error("the deltas of the pack come to more than the {limit} bytes allowed")]
    TooMuchToResolve { limit: u64 },
    /// The pack is damaged or incomplete.
    #[error("the pack is damaged")]
    Corrupt(#[source] Cause),
    /// The remote doesn't have a wanted commit, or didn't send it. Ask for its refs again.
    #[error("the remote did not send commit {0}")]
    NotSent(CommitId),
    /// The pack can't be kept.
    #[error("cannot store the fetched objects in `{}`", path.display())]
    Store {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// What the repository already holds can't be read.
    #[error("cannot read the repository to fetch into")]
    Read(#[from] ReadError),
}
