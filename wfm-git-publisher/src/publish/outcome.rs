//! What came of a plan or a pass, device by device.

use std::collections::{BTreeMap, BTreeSet};

use repo_git::CommitId;
use repo_model::DeviceId;
use repo_model::problem::Problems;
use wfm_git_host::accounts::{AccountError, AccountName};

use super::error::{ClockError, DeviceError, PublishError};
use super::locks::ResolveError;
use super::rollout_progress::RolloutProgress;
use super::tips::Tips;
use crate::fleet::Fleet;
use crate::mirror::{Each, MirrorError, Mirrored};
use crate::plan::{Blocked, Shown};

/// What came of each device, or why nothing.
pub(super) type Results = BTreeMap<DeviceId, Result<Done, DeviceError>>;

/// What a plan shows, and what is wrong in the fleet.
#[derive(Debug)]
pub struct Planned {
    /// The fleet commit; zeros of files that are no commit yet.
    pub commit: CommitId,
    pub fleet: Fleet,
    /// What is wrong in the fleet.
    pub problems: Problems,
    /// Files of unknown identity, which keep everything from being removed.
    pub unidentified: Vec<String>,
    /// One for each device, those that left the fleet at the end.
    pub devices: Vec<Shown>,
    /// Why the clock must be wrong, so that nothing would be published.
    pub clock: Option<ClockError>,
    /// What would be decided about rollouts, and what they wait for; absent where there are none.
    pub rollouts: Option<RolloutProgress>,
    /// Devices that can't be compared, and why.
    pub failed: Vec<(DeviceId, DeviceError)>,
    /// Why those who have to agree didn't, so that nothing would be published.
    pub not_covered: Option<PublishError>,
}

/// What a pass that publishes did, over all its rounds.
#[derive(Debug)]
pub struct Outcome {
    /// The fleet commit that was published.
    pub commit: CommitId,
    /// What is wrong in the fleet.
    pub problems: Problems,
    /// Files of unknown identity, which kept everything from being removed.
    pub unidentified: Vec<String>,
    /// Tags whose meaning couldn't be found out.
    pub unresolved: Vec<ResolveError>,
    /// What of each device's deployments can't be published, also where everything else was.
    pub blocked: BTreeMap<DeviceId, Vec<Blocked>>,
    /// What is wrong in files of the fleet, whether or not any device has anything of it.
    pub(super) invalid: Vec<Blocked>,
    /// What was done for each device, or why not.
    pub devices: BTreeMap<DeviceId, Result<Done, DeviceError>>,
    /// What became of each device at the other host, where there is one.
    pub remote: Each<Mirrored>,
    /// Devices that left the fleet since the pass before, and the account that ended with that.
    pub left: Vec<(DeviceId, Option<AccountName>)>,
    /// Devices that left the fleet once, and are back since the pass before.
    pub returned: Vec<DeviceId>,
    /// All devices that left the fleet; absent if that isn't known.
    pub(super) gone: Option<BTreeSet<DeviceId>>,
    /// Devices that are retired since the pass before, and nothing more is published for.
    pub retired: Vec<DeviceId>,
    /// Devices that are cut off with this pass or were before, whatever they still say.
    pub(super) cut_off: BTreeSet<DeviceId>,
    /// Accounts of devices that left the fleet or are retired, which can't be ended.
    pub accounts: Vec<(DeviceId, AccountError)>,
    /// Where the branches of each device stand, as far as the pass knows: a `status` that came meanwhile isn't in it.
    pub(super) tips: BTreeMap<DeviceId, Tips>,
    /// Devices for which something can't be published yet, because the meaning of a tag isn't known, or a rollout holds it
    /// back.
    pub(super) awaiting: BTreeSet<DeviceId>,
    /// What is decided about rollouts, and what they wait for; absent where there are none.
    pub rollouts: Option<RolloutProgress>,
    /// Where the heartbeats stood of the devices that rollouts wait for.
    pub(super) heartbeats: BTreeMap<DeviceId, Option<CommitId>>,
}

/// What was done for one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// Its `desired` has a new commit.
    Published {
        serial: u64,
        /// The new tip of `desired`.
        commit: CommitId,
        /// When its proof of freshness is renewed, in Unix seconds.
        renew_at: i64,
    },
    /// Nothing but its proof of freshness was renewed.
    Renewed {
        /// When it is renewed again, in Unix seconds.
        renew_at: i64,
    },
    /// Everything means what its tip means.
    Unchanged {
        /// When its proof of freshness is renewed, in Unix seconds.
        renew_at: i64,
    },
    /// No key of it is known, so there is nothing to publish.
    NotEnrolled,
    /// It is retired, and nothing more is published for it.
    Retired,
    /// The pass was stopped before this device.
    Stopped,
}

impl Done {
    /// When its proof of freshness is renewed, in Unix seconds.
    pub fn renew_at(&self) -> Option<i64> {
        match self {
            Self::Published { renew_at, .. } | Self::Renewed { renew_at } | Self::Unchanged { renew_at } => {
                Some(*renew_at)
            }
            Self::NotEnrolled | Self::Retired | Self::Stopped => None,
        }
    }
}

impl Planned {
    /// Whether `publish` would end with an error, as far as that is known without any registry.
    pub fn is_refused(&self) -> bool {
        let is_blocked = |shown: &Shown| shown.blocked().iter().any(|one| one.code.is_error());
        self.problems.has_errors()
            || !self.failed.is_empty()
            || self.clock.is_some()
            || self.not_covered.is_some()
            || self.devices.iter().any(is_blocked)
    }
}

impl Outcome {
    /// The outcome before anything is done for a device.
    pub(super) fn of(commit: CommitId, problems: Problems, unidentified: Vec<String>) -> Self {
        Self {
            commit,
            problems,
            unidentified,
            invalid: Vec::new(),
            unresolved: Vec::new(),
            blocked: BTreeMap::new(),
            devices: BTreeMap::new(),
            remote: BTreeMap::new(),
            left: Vec::new(),
            returned: Vec::new(),
            gone: None,
            retired: Vec::new(),
            cut_off: BTreeSet::new(),
            accounts: Vec::new(),
            tips: BTreeMap::new(),
            awaiting: BTreeSet::new(),
            rollouts: None,
            heartbeats: BTreeMap::new(),
        }
    }

    /// The devices for which another pass over the same commit would find nothing to do by that commit.
    pub(super) fn covered(&self) -> impl Iterator<Item = DeviceId> {
        let done = self
            .devices
            .iter()
            .filter(|(_, result)| result.as_ref().is_ok_and(|done| !matches!(done, Done::NotEnrolled | Done::Stopped)));
        let there = |device: &DeviceId| self.remote.get(device).is_none_or(Result::is_ok);
        done.map(|(device, _)| device).filter(move |one| there(one) && !self.awaiting.contains(one)).cloned()
    }

    /// Whether every device has what the fleet says.
    pub fn is_complete(&self) -> bool {
        !self.problems.has_errors() && self.accounts.is_empty() && self.is_final()
    }

    /// Whether another pass over the same commit would do the same: nothing failed that may go well the next time.
    pub fn is_final(&self) -> bool {
        self.unresolved.is_empty()
            && self.devices.values().all(|result| result.as_ref().is_ok_and(|done| *done != Done::Stopped))
            && self.remote.values().all(Result::is_ok)
    }

    /// The results of another pass over some devices; what was published stays published.
    pub(super) fn add(&mut self, results: Results) {
        for (device, result) in results {
            let before = self.devices.remove(&device);
            let is_less = matches!(result, Ok(Done::Unchanged { .. } | Done::Renewed { .. }));
            let kept = before.filter(|before| is_less && matches!(before, Ok(Done::Published { .. })));
            self.devices.insert(device, kept.unwrap_or(result));
        }
    }

    /// The devices where another publisher was quicker: they get another round.
    pub(super) fn raced(&self) -> BTreeSet<DeviceId> {
        let raced = self.remote.iter().filter(|(_, result)| matches!(result, Err(MirrorError::Raced { .. })));
        raced.map(|(device, _)| device.clone()).collect()
    }

    /// How many devices have new branches at the other host.
    pub fn pushed(&self) -> usize {
        self.remote.values().filter(|result| matches!(result, Ok(Mirrored::Pushed(_)))).count()
    }

    /// How many devices got a new `desired` commit.
    pub fn published(&self) -> usize {
        self.devices.values().filter(|result| matches!(result, Ok(Done::Published { .. }))).count()
    }
}
