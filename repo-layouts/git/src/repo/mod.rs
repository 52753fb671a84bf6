//! One repository: made, opened, read, and written so that a power cut leaves the old state or the new one.
//!
//! The order of a write is always: one pack with all objects, synced ([`Batch`]) → refs, each a synced compare-and-swap
//! ([`Repo::move_refs`]). Who writes holds the [`RepoLock`]; readers need nothing.

mod advertise;
mod bare;
mod batch;
mod branches;
mod commit;
mod consolidate;
mod create;
mod history;
mod lock;
mod open;
mod reach;
mod read;
mod recover;
mod refs;
mod shallow;
mod tree;

use std::fmt;
use std::path::{Path, PathBuf};

pub use advertise::Ref;
pub use bare::Bare;
pub use batch::{Batch, BatchError, CommitSpec, Pack, Person, Prepared, TreeSource, tree_id};
pub use branches::{BranchStamps, BranchesError, branches, stamped_branches};
pub use commit::Commit;
pub use consolidate::ConsolidateError;
pub use history::Ancestry;
pub use lock::{LockError, RepoLock};
pub use open::OpenError;
pub(crate) use reach::Reach;
pub use read::ReadError;
pub use recover::{Damage, DamagedRef, RecoverError, Recovery};
pub use refs::{Expected, RefError, RefMove};
pub use tree::{Entry, EntryKind, TreeError, TreeLimits};

/// A handle on one repository. Cloning is cheap; give each thread its own.
#[derive(Clone)]
pub struct Repo {
    path: PathBuf,
    git: gix::Repository,
    /// Objects of a push that isn't accepted yet.
    quarantine: Option<gix::OdbHandle>,
}

impl Repo {
    /// The Git directory: the repository itself when it is bare, else its `.git`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The object database, to be read by gix.
    pub(crate) fn objects(&self) -> gix::OdbHandle {
        self.git.objects.clone()
    }
}

impl fmt::Debug for Repo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Repo").field(&self.path).finish()
    }
}
