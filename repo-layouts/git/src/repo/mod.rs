//! One repository: made, opened, read, and written so that a power cut leaves the old state or the new one.
//!
//! The order of a write is always: one pack with all objects, synced ([`Batch`]) → refs, each a synced compare-and-swap
//! ([`Repo::move_refs`]). Who writes holds the [`RepoLock`]; readers need nothing.

mod advertise;
mod bare;
mod batch;
mod branches;
mod changes;
mod commit;
mod consolidate;
mod create;
mod error;
mod history;
mod lineage;
mod lock;
mod open;
mod packed;
mod plain;
mod reach;
mod read;
mod recover;
mod refs;
mod salvage;
mod scratch;
mod shallow;
mod tag;
mod tree;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub use advertise::Ref;
pub use bare::Bare;
pub use batch::{Batch, BatchError, CommitSpec, Pack, Person, Prepared, TreeSource, tree_id};
pub use branches::{BranchStamps, BranchesError, branches, moved_at, stamped_branches};
pub use changes::{Change, Changes, Held};
pub use commit::Commit;
pub use consolidate::ConsolidateError;
pub use error::{OpenError, ReadError};
pub use history::Ancestry;
pub use lineage::Lineage;
pub use lock::{LockError, RepoLock};
pub use packed::PACKED_REFS;
pub(crate) use reach::Reach;
pub use recover::{Damage, DamagedRef, RecoverError, Recovery};
pub use refs::{Expected, RefError, RefMove, WriteError};
use repo_model::error_chain;
pub use salvage::{RenewError, set_aside};
pub use scratch::Scratch;
pub use tag::{MAX_TAG, Tag};
pub use tree::{Entry, EntryKind, TreeError, TreeLimits};

/// A handle on one repository. Cloning is cheap; give each thread its own.
#[derive(Clone)]
pub struct Repo {
    path: PathBuf,
    git: gix::Repository,
    /// Objects of a push that isn't accepted yet.
    quarantine: Option<gix::OdbHandle>,
    met: Arc<Mutex<Met>>,
}

/// What was met and can't be read.
#[derive(Debug, Default)]
struct Met {
    damage: Option<String>,
    hole: bool,
}

impl Repo {
    /// The Git directory: the repository itself when it is bare, else its `.git`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first object or ref that this handle, or a clone of it, met and that isn't what it was when it was written.
    pub fn damage(&self) -> Option<String> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner).damage.clone()
    }

    /// Whether this handle, or a clone of it, met an object that is missing although another one names it: it is lost, or
    /// whoever sent the other one didn't send it. [`damage_below`](Self::damage_below) tells.
    pub fn met_a_hole(&self) -> bool {
        self.met.lock().unwrap_or_else(PoisonError::into_inner).hole
    }

    /// What was met has been dealt with.
    pub fn forget_damage(&self) {
        *self.met.lock().unwrap_or_else(PoisonError::into_inner) = Met::default();
    }

    /// Notes what isn't what it was.
    fn noted<T>(&self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        result.inspect_err(|error| {
            if matches!(error, ReadError::Corrupt { .. } | ReadError::Ref { .. }) {
                let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
                met.damage.get_or_insert_with(|| error_chain(error));
            }
        })
    }

    /// Notes that something is missing which something else names.
    fn needed<T>(&self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        result.inspect_err(|error| {
            if matches!(error, ReadError::Missing { .. }) {
                self.met.lock().unwrap_or_else(PoisonError::into_inner).hole = true;
            }
        })
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
