//! What the host's side of a pass reads: the clone and the device state as they were at one moment, so that the lock of the
//! [state](crate::state::shared) is never held while the network is waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use repo_git::CommitId;
use repo_git::repo::{Ancestry, Repo};

use crate::decision::device_state::DeviceState;

/// The clone, and the device state at one moment.
#[derive(Debug, Clone)]
pub struct View {
    /// Reads and takes objects; what a fetch puts there is in the clone.
    pub repo: Repo,
    /// The state in force when this was made.
    pub device_state: DeviceState,
    /// The tip of the local `status` then.
    pub status: Option<CommitId>,
    /// Set where something that was met may be damage; shared with the store.
    pub(super) suspect: Arc<AtomicBool>,
}

impl View {
    /// Whether a commit is here. What it needs is as well: nothing comes without, and what was damaged is gone.
    pub fn holds(&self, commit: CommitId) -> bool {
        self.repo.commit(commit).is_ok()
    }

    /// Whether `old` is `new` or in its history, as far as that is at hand.
    pub fn descends(&self, new: CommitId, old: CommitId) -> bool {
        matches!(self.repo.is_ancestor(old, new), Ok(Ancestry::Yes))
    }

    /// Notes that something of the clone may be damaged.
    pub fn suspect(&self) {
        self.suspect.store(true, Ordering::Relaxed);
    }

    /// Whether something of the clone may be damaged, by what was met since it was opened or mended.
    pub fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Relaxed) || self.repo.damage().is_some() || self.repo.met_a_hole()
    }
}
