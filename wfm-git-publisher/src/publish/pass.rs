//! What the work on every device of a pass needs to know.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use repo_git::{CommitId, CommitSpec, Person, TreeSource};
use repo_model::problem::Problem;
use repo_model::{DeviceId, FileTree};

use super::covered::CoveredCommits;
use super::message::Origin;
use super::since::Before;
use super::up_to_date::UpToDateIndex;
use crate::fleet::Fleet;
use crate::plan::Allowed;
use crate::repos::{Covered, DeviceRepoError, Home, Repaired, Rosters, publisher, repair};

/// What the work on every device of a pass needs to know.
pub(super) struct Pass<'a> {
    pub(super) home: &'a Home,
    pub(super) rosters: &'a Rosters,
    pub(super) fleet: &'a Fleet,
    pub(super) origin: Origin,
    /// Up to which commit of the fleet each device has everything.
    pub(super) covered: &'a CoveredCommits,
    /// What of the fleet is agreed to by those who have to, for the ledger.
    pub(super) agreed: Option<Covered>,
    /// Of devices that have everything of one of these, no other commit can cause a change.
    pub(super) sole_after: &'a BTreeSet<Option<CommitId>>,
    pub(super) allowed: Allowed,
    pub(super) now: Timestamp,
    /// Devices whose foreign tip here, if there is one, is replaced.
    pub(super) reclaim: &'a BTreeSet<DeviceId>,
    /// Devices that had nothing left to do, and what they depended on.
    pub(super) up_to_date: &'a UpToDateIndex,
    /// The fleet as it was when they had; absent where that is of no use.
    pub(super) before: Option<&'a Before>,
    /// Devices that need a new commit, because their tip at the other host is foreign.
    pub(super) reclaim_elsewhere: BTreeSet<DeviceId>,
    /// Devices that can't be heard in this pass, because the other host didn't answer.
    pub(super) unheard: BTreeSet<DeviceId>,
    /// The damaged repositories that were made anew; `None` for a pass that changes nothing.
    pub(super) repaired: Option<Mutex<Vec<(DeviceId, Repaired)>>>,
}

static NONE: BTreeSet<DeviceId> = BTreeSet::new();

/// Nothing is known of how far devices are.
static NOTHING_COVERED: CoveredCommits = CoveredCommits::NONE;

static NO_COMMIT: BTreeSet<Option<CommitId>> = BTreeSet::new();

impl<'a> Pass<'a> {
    /// One that changes nothing: nothing is allowed, and nothing reclaimed.
    pub(super) fn read_only(
        home: &'a Home,
        rosters: &'a Rosters,
        fleet: &'a Fleet,
        origin: Origin,
        now: Timestamp,
        (up_to_date, before): (&'a UpToDateIndex, Option<&'a Before>),
    ) -> Self {
        Self {
            home,
            rosters,
            fleet,
            origin,
            covered: &NOTHING_COVERED,
            agreed: None,
            sole_after: &NO_COMMIT,
            allowed: Allowed::default(),
            now,
            reclaim: &NONE,
            up_to_date,
            before,
            reclaim_elsewhere: BTreeSet::new(),
            unheard: BTreeSet::new(),
            repaired: None,
        }
    }
}

impl Pass<'_> {
    /// Whether it may write: damaged repositories are made anew only then.
    pub(super) fn publishes(&self) -> bool {
        self.repaired.is_some()
    }

    /// Makes a device's damaged repository anew.
    pub(super) fn repair(&self, device: &DeviceId) -> Result<(), DeviceRepoError> {
        let repaired = repair(self.home, device)?;
        if let Some(all) = &self.repaired {
            all.lock().unwrap_or_else(PoisonError::into_inner).push((device.clone(), repaired));
        }
        Ok(())
    }

    /// A warning for each damaged repository that was made anew.
    pub(super) fn repair_warnings(&self) -> impl Iterator<Item = Problem> {
        let all = self.repaired.as_ref().map(|all| all.lock().unwrap_or_else(PoisonError::into_inner).clone());
        let warning = |(device, repaired): (DeviceId, Repaired)| {
            let file = self.fleet.devices.get(&device).map_or_else(|| device.to_string(), |device| device.file.clone());
            Problem::error(file, repaired.to_string()).warning()
        };
        all.unwrap_or_default().into_iter().map(warning)
    }

    /// A commit of this pass, with its time.
    pub(super) fn spec<'t>(
        &self,
        tree: &'t FileTree,
        parents: Vec<CommitId>,
        author: Person,
        message: String,
    ) -> CommitSpec<'t> {
        let time = self.now.as_second();
        CommitSpec { tree: TreeSource::Files(tree), parents, author, committer: publisher(), time, message }
    }
}
