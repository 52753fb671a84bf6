//! What a push moves, and what becomes of it.

use repo_model::branch::ref_name;

use super::RemoteError;
use crate::repo::ReadError;
use crate::{Cause, CommitId};

/// One branch to move at the remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushUpdate {
    /// The branch, without `refs/heads/`.
    pub branch: String,
    /// Where it must stand (`None`: it must not exist).
    pub expected: Option<CommitId>,
    /// The commit that it stands at afterwards.
    pub new: CommitId,
    /// Allows that `new` is not a descendant of `expected` (for the replaced refs).
    pub force: bool,
}

impl PushUpdate {
    /// The branch's ref, in full.
    pub fn ref_name(&self) -> String {
        ref_name(&self.branch)
    }
}

/// What became of one update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushResult {
    /// The branch moved, or stood at `new` already.
    Done,
    /// The branch stands elsewhere than expected: fetch and decide again.
    Stale {
        /// What the remote said, or where the branch stands.
        text: String,
    },
    /// The remote, or the fast-forward rule, forbids it.
    Refused { text: String },
}

/// A push failed before any update was judged.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The remote can't be reached, is too slow or breaks the protocol.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The objects to be sent can't be read.
    #[error("cannot read the objects to push")]
    Read(#[from] ReadError),
    /// The remote could not unpack what was sent.
    #[error("the remote could not unpack the push: {text}")]
    Unpack {
        /// The end of what the remote wrote.
        text: String,
    },
    /// The pack can't be made.
    #[error("cannot make the pack")]
    Pack(#[source] Cause),
}
