//! The devices that are up to date, so that one that nothing changed for isn't opened again.
//!
//! What is done for a device is a function of what the fleet says of it, of the locks and rosters, of where its branches
//! stand, and of the ledger. For each device that had nothing left to do, a file in the index says what all that was; it
//! is believed for as long as all of it is the same. Losing it costs time and nothing else.
//!
//! It holds three things, each measured by an unchanged publish of 2,000 devices with 8 deployments each (36 ms of CPU with
//! all of them): what each device depended on (2,230 ms without any of it), how the last pass left the fleet (190 ms
//! without), and what tells that nobody touched the branches since (66 ms without).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use jiff::Timestamp;
use repo_git::repo::{BranchStamps, stamped_branches};
use repo_git::{CommitId, SigningKey};
use repo_model::problem::Problems;
use repo_model::{DeploymentName, DeviceId, Digest};
use serde::{Deserialize, Serialize};

use super::freshness::{FRESH_FOR, is_fresh};
use super::options::Options;
use super::outcome::{Done, Outcome};
use super::rollout_progress::RolloutProgress;
use super::tips::{BRANCHES, Tips, heartbeat, tips};
use crate::fleet::{Deployment, Device, Fleet, Settings};
use crate::parallel;
use crate::render::{Locks, artifacts};
use crate::repos::{Control, Entry, EntryState, FleetRepo, Home, HomeError, Rosters};

/// The devices that have nothing left to do.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct UpToDateIndex {
    /// The program that found it so.
    program: String,
    /// The last pass over all devices, if another one would do nothing that it didn't.
    pass: Option<LastPass>,
    devices: BTreeMap<DeviceId, UpToDate>,
}

/// A pass over all devices after which nothing failed that may go well the next time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct LastPass {
    commit: CommitId,
    /// Where the ledger's branch stood; absent if there was none.
    control: Option<CommitId>,
    /// The fingerprint of the publisher's key.
    key: String,
    /// The moment from which on there is something to do, in Unix seconds.
    until: i64,
    /// Whether every device that is enrolled is up to date, and there is nothing to warn of.
    is_complete: bool,
    /// The devices that have no key, and nothing published.
    not_enrolled: BTreeSet<DeviceId>,
    /// The devices that are retired and get nothing more, with where their branches stood.
    #[serde(default)]
    retired: BTreeMap<DeviceId, Option<Tips>>,
    /// The other devices that aren't up to date, for example because a file is broken.
    blocked: BTreeMap<DeviceId, Left>,
    /// What rollouts wait for; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rollouts: Option<Resting>,
}

/// How rollouts were left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Resting {
    progress: RolloutProgress,
    /// Where the heartbeats stood of the devices that they wait for.
    heartbeats: BTreeMap<DeviceId, Option<CommitId>>,
}

/// How a device was left that isn't up to date.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Left {
    /// Where its branches stood; absent if they couldn't be read.
    tips: Option<Tips>,
    /// When its proof of freshness is renewed, in Unix seconds.
    renew_at: i64,
}

/// What a device had when there was nothing left to do for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct UpToDate {
    /// What the fleet said of it.
    pub(super) inputs: Digest,
    /// What rollouts held back then; it is up to date but for that.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) held: BTreeSet<DeploymentName>,
    /// What the fleet said when the device had all of it, if that is what its tip still is; absent where nothing is held back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) had: Option<Digest>,
    pub(super) tips: Tips,
    /// What tells that nobody touched them since; absent until a pass that has nothing to do finds it.
    #[serde(default)]
    pub(super) stamps: Option<BranchStamps>,
    pub(super) serial: u64,
    /// The highest number of a rollout that its tip names; 0 if it names none.
    #[serde(default)]
    pub(super) rollout: u32,
    pub(super) envelope: Digest,
    pub(super) manifest: Digest,
    /// How many deployments it has.
    pub(super) deployments: usize,
    /// When its proof of freshness is renewed, in Unix seconds.
    pub(super) renew_at: i64,
}

impl UpToDateIndex {
    /// What the last pass of this very program left; nothing if that isn't known.
    pub(super) fn read(home: &Home) -> Self {
        let text = fs::read(home.up_to_date()).unwrap_or_default();
        let found: Self = serde_json::from_slice(&text).unwrap_or_default();
        let program = program();
        if found.program == program { found } else { Self { program, ..Self::default() } }
    }

    /// Keeps it for the next pass.
    pub(super) fn write(&self, home: &Home) -> Result<(), HomeError> {
        let text = serde_json::to_vec(self).unwrap_or_default();
        if fs::read(home.up_to_date()).is_ok_and(|present| present == text) {
            return Ok(());
        }
        home.write(&home.up_to_date(), &text, 0o600)
    }

    /// Where a device's branches stand, which isn't read where nobody touched them.
    pub(super) fn tips(&self, home: &Home, device: &DeviceId) -> Option<Tips> {
        let is_untouched = |stamps| stamps == BranchStamps::of(&home.device(device), BRANCHES);
        let known = self.devices.get(device).filter(|found| found.stamps.is_some_and(is_untouched));
        known.map(|found| found.tips).or_else(|| tips(home, device))
    }

    /// What the device had, if its branches stand where they stood and it is fresh.
    pub(super) fn of(&self, device: &DeviceId, tips: &Tips, now: Timestamp) -> Option<&UpToDate> {
        self.devices.get(device).filter(|found| found.tips == *tips && is_fresh(found.renew_at, now))
    }

    /// When a proof of freshness was made last, by whatever version of this program.
    pub(super) fn last_proof(home: &Home) -> Option<Timestamp> {
        #[derive(Deserialize)]
        struct Proofs {
            devices: BTreeMap<DeviceId, Proof>,
        }
        #[derive(Deserialize)]
        struct Proof {
            renew_at: i64,
        }
        let found: Proofs = serde_json::from_slice(&fs::read(home.up_to_date()).ok()?).ok()?;
        let renew_at = found.devices.values().map(|found| found.renew_at).max()?;
        Timestamp::from_second(renew_at.saturating_sub(FRESH_FOR / 2)).ok()
    }

    /// Whether the branches of all devices stand where they stood. What tells next time that nobody touched them is kept
    /// where it wasn't known; that costs time only if another pass is at work, or if it can't be written.
    fn check_untouched(&mut self, home: &Home, threads: usize) -> bool {
        // Of the files, whose times are those of this machine.
        let now = Timestamp::now().as_second();
        let Ok(devices) = File::open(home.devices()) else { return false };
        let now_stamped =
            |device: &DeviceId| BranchStamps::below(&devices, Home::device_name(device).as_ref(), BRANCHES);
        let stamps = |(device, known): (&DeviceId, &UpToDate)| match known.stamps {
            Some(stamps) if stamps == now_stamped(device) => Some(known.stamps),
            _ => {
                let found = stamped_branches(&home.device(device), BRANCHES, now).ok();
                found.filter(|(tips, _)| *tips == known.tips).map(|(_, stamps)| stamps)
            }
        };
        let found = parallel::map(self.devices.iter().collect(), threads, stamps);
        let Some(found) = found.into_iter().collect::<Option<Vec<_>>>() else { return false };
        let mut is_new = false;
        for (known, stamps) in self.devices.values_mut().zip(found) {
            is_new |= known.stamps != stamps;
            known.stamps = stamps;
        }
        if let Some(_lock) = is_new.then(|| home.lock(Duration::ZERO).ok()).flatten() {
            let _ = self.write(home);
        }
        true
    }

    /// Takes over what a pass found of these devices.
    pub(super) fn update(&mut self, devices: impl IntoIterator<Item = (DeviceId, Option<UpToDate>)>) {
        self.pass = None;
        for (device, found) in devices {
            match found {
                Some(found) => _ = self.devices.insert(device, found),
                None => _ = self.devices.remove(&device),
            }
        }
    }

    /// Keeps how a pass over the whole fleet left it, if another one would do nothing that this one didn't.
    pub(super) fn note_pass(&mut self, outcome: &Outcome, home: &Home, key: &SigningKey, rosters: &Rosters) {
        self.devices.retain(|device, _| outcome.devices.contains_key(device));
        let Ok(control) = Control::tip(home) else { return };
        // After a decision another look finds what it led to.
        if !outcome.is_final() || outcome.rollouts.as_ref().is_some_and(|rollouts| !rollouts.decided.is_empty()) {
            return;
        }
        let rollouts = outcome.rollouts.clone().filter(|rollouts| !rollouts.unfinished.is_empty());
        let rollouts = rollouts.map(|progress| Resting { progress, heartbeats: outcome.heartbeats.clone() });
        let again = rollouts.iter().filter_map(|resting| resting.progress.again).map(|again| again.as_second());
        let (mut not_enrolled, mut retired, mut blocked) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        for (device, done) in outcome.devices.iter().filter(|(device, _)| !self.devices.contains_key(*device)) {
            let tips = outcome.tips.get(device).copied();
            match done.as_ref().ok().and_then(Done::renew_at) {
                Some(renew_at) => _ = blocked.insert(device.clone(), Left { tips, renew_at }),
                None if matches!(done, Ok(Done::Retired)) => _ = retired.insert(device.clone(), tips),
                None => _ = not_enrolled.insert(device.clone()),
            }
        }
        let text = crate::repos::key_text(key.public());
        let publishers = rosters.newest.roster.publishers.iter().filter(|one| Some(&one.key) == text.as_ref());
        let ends = publishers.filter_map(|one| one.not_after).map(|end| end.as_second());
        let renewals =
            self.devices.values().map(|found| found.renew_at).chain(blocked.values().map(|one| one.renew_at));
        let is_silent = outcome.problems.is_empty() && outcome.unidentified.is_empty();
        self.pass = Some(LastPass {
            commit: outcome.commit,
            control,
            key: key.public().fingerprint(),
            until: ends.chain(renewals).chain(again).min().unwrap_or(i64::MAX),
            is_complete: blocked.is_empty() && is_silent && outcome.is_complete(),
            not_enrolled,
            retired,
            blocked,
            rollouts,
        });
    }

    /// Whether the commit, the ledger, the key and all branches are what the last pass over the whole fleet left, and
    /// nothing has to be renewed.
    fn is_as_left(&mut self, home: &Home, commit: CommitId, now: Timestamp, threads: usize) -> bool {
        let Some(pass) = &self.pass else { return false };
        let same = pass.commit == commit
            && Control::tip(home).is_ok_and(|control| control == pass.control)
            && SigningKey::load(&home.publisher_key()).is_ok_and(|key| key.public().fingerprint() == pass.key)
            && now.as_second() < pass.until
            && self.devices.values().all(|found| is_fresh(found.renew_at, now))
            && pass.blocked.values().all(|left| is_fresh(left.renew_at, now));
        let nowhere = pass.not_enrolled.iter().map(|device| (device, Some([None; 3])));
        let retired = pass.retired.iter().map(|(device, tips)| (device, *tips));
        let others = nowhere.chain(retired).chain(pass.blocked.iter().map(|(device, left)| (device, left.tips)));
        let stands = |(device, before)| tips(home, device) == before;
        let mut heartbeats = pass.rollouts.iter().flat_map(|resting| &resting.heartbeats);
        same && heartbeats.all(|(device, stood)| heartbeat(home, device) == *stood)
            && !parallel::map(others.collect(), threads, stands).contains(&false)
            && self.check_untouched(home, threads)
    }
}

/// The outcome of a pass that has nothing to do and nothing to say, if that is known without one.
pub fn unchanged(home: &Home, source: &FleetRepo, rev: &str, options: &Options<'_>) -> Option<Outcome> {
    if options.devices.is_some() || options.remotes.is_some() || !options.reclaim.is_empty() {
        return None;
    }
    let mut index = UpToDateIndex::read(home);
    let commit = source.resolve(rev).ok()?;
    let is_complete = index.pass.as_ref().is_some_and(|pass| pass.is_complete);
    if !is_complete || !index.is_as_left(home, commit, options.now, options.threads) {
        return None;
    }
    let done = |found: UpToDate| Done::Unchanged { renew_at: found.renew_at };
    let devices = index.devices.into_iter().map(|(device, found)| (device, Ok(done(found))));
    let rollouts = index.pass.as_mut().and_then(|pass| pass.rollouts.take()).map(|resting| resting.progress);
    let others = index.pass.into_iter().flat_map(|pass| {
        let retired = pass.retired.into_keys().map(|device| (device, Ok(Done::Retired)));
        pass.not_enrolled.into_iter().map(|device| (device, Ok(Done::NotEnrolled))).chain(retired)
    });
    let devices = devices.chain(others).collect();
    Some(Outcome { devices, rollouts, ..Outcome::of(commit, Problems::default(), Vec::new()) })
}

/// Whether a pass over the whole fleet at this commit would do nothing that the last one didn't, whatever that one had to
/// say. Nothing is asked of the host that devices talk to, where it isn't this one.
pub fn is_as_left(home: &Home, commit: CommitId, now: Timestamp, threads: usize) -> bool {
    UpToDateIndex::read(home).is_as_left(home, commit, now, threads)
}

/// What the fleet says of its devices, as digests.
#[derive(Debug)]
pub(super) struct InputDigests<'a> {
    fleet: &'a Fleet,
    /// Settings, broken files and rosters, which concern every device.
    common: Digest,
    deployments: BTreeMap<&'a DeploymentName, Digest>,
}

impl<'a> InputDigests<'a> {
    pub(super) fn new(fleet: &'a Fleet, rosters: &Rosters, locks: &Locks) -> Self {
        // How a change reaches devices is no part of what they get.
        let settings = Settings { rollout: None, ..fleet.settings.clone() };
        let common = Digest::of(format!("{settings:?} {:?} {:?}", fleet.broken, rosters.files).as_bytes());
        let of = |deployment: &Deployment| {
            let locks: Vec<_> = artifacts(deployment).map(|artifact| (locks.get(&artifact), artifact)).collect();
            let plain = deployment.rollout.is_some().then(|| Deployment { rollout: None, ..deployment.clone() });
            Digest::of(format!("{:?} {locks:?}", plain.as_ref().unwrap_or(deployment)).as_bytes())
        };
        let deployments = fleet.deployments.iter().map(|(name, deployment)| (name, of(deployment))).collect();
        Self { fleet, common, deployments }
    }

    /// The deployments that differ, came or went; `None` if something differs that concerns every device.
    pub(super) fn changed(&self, other: &InputDigests<'_>) -> Option<BTreeSet<DeploymentName>> {
        let names = self.deployments.keys().chain(other.deployments.keys());
        let differ = names.filter(|name| self.deployments.get(*name) != other.deployments.get(*name));
        (self.common == other.common).then(|| differ.map(|name| (*name).clone()).collect())
    }

    /// Everything that a device's desired state is made of, but for what its own repository says.
    pub(super) fn of(&self, device: &Device) -> Digest {
        let mut text = format!("{device:?}").into_bytes();
        text.extend(self.common.as_bytes());
        let meant = self.fleet.deployments.iter().filter(|(_, deployment)| deployment.is_for(device));
        meant.filter_map(|(name, _)| self.deployments.get(name)).for_each(|digest| text.extend(digest.as_bytes()));
        let secrets = self.fleet.secrets.all_of(&device.id);
        secrets.for_each(|secret| text.extend(format!("{secret:?}").into_bytes()));
        Digest::of(&text)
    }
}

impl UpToDate {
    /// Whether its tip is what the fleet said by these inputs.
    pub(super) fn is_of(&self, inputs: Digest) -> bool {
        if self.held.is_empty() { self.inputs == inputs } else { self.had == Some(inputs) }
    }

    /// Whether the ledger says the same of the device.
    pub(super) fn agrees(&self, entry: &Entry) -> bool {
        entry.state == EntryState::Published && entry.serial == self.serial && entry.envelope == self.envelope
    }
}

/// The very program: another version may render something else from the same fleet.
pub(crate) fn program() -> String {
    let identity = fs::metadata("/proc/self/exe").map(|meta| (meta.len(), meta.mtime(), meta.mtime_nsec()));
    format!("{} {identity:?}", env!("CARGO_PKG_VERSION"))
}
