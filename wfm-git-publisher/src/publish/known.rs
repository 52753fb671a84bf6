//! What is known of a device before anything is decided: its verified tip, what it verifiably reports, and the ledger.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use repo_git::CommitId;
use repo_model::margo::State;
use repo_model::report::Adopted;
use repo_model::{DeploymentId, DeploymentName, DeviceId, Digest, Trailer};

use super::error::DeviceError;
use super::message::rollout_number;
use super::pass::Pass;
use super::serial::KnownNumbers;
use super::since::{Partly, Since};
use super::tips::Tips;
use super::up_to_date::{InputDigests, UpToDate};
use crate::fleet::{Allowances, Device, Retired};
use crate::plan::{DevicePlan, features};
use crate::render::{Capabilities, Documents, Facts};
use crate::repos::{Claim, DESIRED, DeviceRepo, DeviceRepoError, Entry, EntryState, Ledger, Status, Tip};

/// What is known of a device.
#[derive(Debug)]
pub(super) enum Known<'a> {
    /// Nothing that it depends on is another than it was when there was nothing left to do, so nothing was read.
    UpToDate(Box<UpToDate>),
    /// It is compared with what its repository says, or what the fleet tells of that.
    Read(Box<KnownDevice<'a>>),
}

/// What its repository and the ledger say of a device.
#[derive(Debug)]
pub(super) struct KnownDevice<'a> {
    /// Absent if there is none yet.
    pub(super) repo: Option<DeviceRepo>,
    /// The verified tip of `desired`.
    pub(super) tip: Option<Tip>,
    status: Option<Status>,
    /// The documents that it shall have by what the fleet says of it, which the tip was read with.
    pub(super) documents: Documents<'a>,
    /// Where `desired` stands, if that isn't the tip: someone else wrote it, and it is replaced.
    pub(super) foreign: Option<CommitId>,
    /// Whether what the device says that it adopted is known, and believed; absent if it says nothing or has no tip.
    pub(super) claim: Option<Claim>,
    /// Whether a person said that the claim is believed.
    by_hand: bool,
    /// Where its branches stood before they were read; absent if that can't be read.
    pub(super) branches: Option<Tips>,
    /// What the ledger says of it, or has to say: the tip may know better.
    pub(super) entry: Option<Entry>,
    /// Whether the ledger has to take `entry` over first.
    pub(super) corrects_ledger: bool,
    /// Whether the tip holds everything of this fleet commit, so that nothing in the fleet can ask for a change.
    pub(super) has_commit: bool,
    /// The moment, in Unix seconds, from which on a change counts that is made by nothing but the device's capabilities;
    /// absent if it counts now.
    pub(super) capabilities_from: Result<Option<i64>, DeviceRepoError>,
    /// What its tip says of it is only this part; absent if it is all.
    pub(super) partly: Option<Partly<'a>>,
    /// What is published upon a tip that wasn't read needs to know of it.
    pub(super) unread: Option<Unread>,
}

/// What is known of a repository that wasn't opened.
#[derive(Debug)]
pub(super) struct Unread {
    /// The files of the tip, all but its envelope.
    pub(super) files: BTreeMap<String, Digest>,
    /// Where `bundle` and `freshness` stand.
    pub(super) tips: [Option<CommitId>; 2],
    /// How many packs there are.
    pub(super) packs: usize,
}

impl<'a> Known<'a> {
    /// Finds out what is known of a device. Of one that is up to date nothing is read but where its branches stand, nor of one that
    /// was, if `since` tells what it has.
    pub(super) fn of(
        pass: &Pass<'a>,
        device: &DeviceId,
        inputs: &InputDigests<'_>,
        since: Option<&Since<'a>>,
        ledger: &Ledger,
    ) -> Result<Self, DeviceError> {
        let branches = pass.up_to_date.tips(pass.home, device);
        let reclaimed = pass.reclaim.contains(device) || pass.reclaim_elsewhere.contains(device);
        let known = pass.fleet.devices.get(device).filter(|_| !reclaimed).zip(branches);
        let up_to_date = known.and_then(|(device, tips)| {
            let found = pass.up_to_date.of(&device.id, &tips, pass.now)?;
            let entry = ledger.entry(&device.id).filter(|entry| found.agrees(entry))?;
            if found.inputs == inputs.of(device) {
                return Some(Self::UpToDate(Box::new(found.clone())));
            }
            Self::told(since?, device, found, entry)
        });
        up_to_date.map_or_else(|| Self::read(pass, device, branches, ledger), Ok)
    }

    /// The same for a device that is up to date, to compare it all the same.
    pub(super) fn compared(
        pass: &Pass<'a>,
        id: &DeviceId,
        found: &UpToDate,
        since: Option<&Since<'a>>,
        ledger: &Ledger,
    ) -> Result<Self, DeviceError> {
        let told = pass.fleet.device(id).zip(ledger.entry(id));
        let told = told.and_then(|(device, entry)| Self::told(since?, device, found, entry));
        told.map_or_else(|| Self::read(pass, id, Some(found.tips), ledger), Ok)
    }

    /// A device whose repository isn't read, because the fleet tells what its tip says of the deployments that are others by now.
    fn told(since: &Since<'a>, device: &Device, found: &UpToDate, entry: &Entry) -> Option<Self> {
        let (tip, partly) = since.tip(device, found, entry)?;
        let (tip, partly, branches) = (Some(tip), Some(partly), Some(found.tips));
        Some(Self::Read(Box::new(KnownDevice { tip, partly, branches, ..KnownDevice::nothing(Some(entry)) })))
    }

    /// The same for a device whose branches stood there, up to date or not.
    pub(super) fn read(
        pass: &Pass<'a>,
        device: &DeviceId,
        branches: Option<Tips>,
        ledger: &Ledger,
    ) -> Result<Self, DeviceError> {
        let read = KnownDevice::read(pass, device, ledger.entry(device))?;
        Ok(Self::Read(Box::new(KnownDevice { branches, ..read })))
    }
}

impl<'a> KnownDevice<'a> {
    /// Reads the verified tip of `desired`, and what the device verifiably says that it adopted. A repository that is
    /// damaged is made anew by a pass that publishes.
    pub(super) fn read(pass: &Pass<'a>, device: &DeviceId, entry: Option<&Entry>) -> Result<Self, DeviceError> {
        if pass.publishes() {
            DeviceRepo::put_right(pass.home, device)?;
        }
        let known = Self::read_as_it_is(pass, device, entry);
        let is_damaged = || match &known {
            Ok(known) => known.repo.as_ref().is_some_and(DeviceRepo::is_damaged),
            Err(DeviceError::Repo(error)) => error.is_damage(),
            Err(_) => false,
        };
        if !pass.publishes() || !is_damaged() {
            return known;
        }
        drop(known);
        pass.repair(device)?;
        Self::read_as_it_is(pass, device, entry)
    }

    fn nothing(entry: Option<&Entry>) -> Self {
        Self {
            repo: None,
            tip: None,
            foreign: None,
            status: None,
            documents: Documents::default(),
            claim: None,
            by_hand: false,
            branches: None,
            entry: entry.cloned(),
            corrects_ledger: false,
            has_commit: false,
            capabilities_from: Ok(None),
            partly: None,
            unread: None,
        }
    }

    fn read_as_it_is(pass: &Pass<'a>, device: &DeviceId, entry: Option<&Entry>) -> Result<Self, DeviceError> {
        let publishers = &pass.rosters.publishers;
        let Some(repo) = DeviceRepo::open(pass.home, pass.rosters.fleet(), device)? else {
            return Ok(Self::nothing(entry));
        };
        // Most of what a device has is what it gets again; parsing that, too, makes comparing a fleet half as long again.
        let wanted = pass.fleet.devices.get(device);
        let documents = wanted.map(|device| Documents::of(pass.fleet, device)).unwrap_or_default();
        let by_hand = pass.reclaim.contains(device);
        let known = |id, bytes: &[u8]| documents.find(id, bytes);
        let (tip, foreign) = match repo.desired_knowing(publishers, &known) {
            Err(_) if by_hand => last_verified(&repo, pass)?,
            read => (read?, None),
        };
        let enrolled = pass.fleet.devices.get(device).map_or(&[][..], |device| &device.status_keys);
        let status = repo.verified_status(tip.as_ref(), enrolled, publishers);
        let adopted = status.as_ref().and_then(|status| status.report.adopted());
        let now = pass.now.as_second();
        let claim = tip.as_ref().zip(adopted).map(|(tip, adopted)| match repo.claim(tip, adopted, publishers, now) {
            Ok(Claim::Doubted(_) | Claim::TooFar) if by_hand => Ok(Claim::Unknown),
            claim => claim,
        });
        let claim = claim.transpose()?;
        let corrected = tip.as_ref().and_then(|tip| corrected(device, tip, entry, pass.now));
        let has_commit = tip.as_ref().is_some_and(|tip| {
            let commit = pass.origin.commit;
            tip.message.get(Trailer::FleetCommit) == Some(&commit.to_string())
                || pass.covered.of(device) == Some(commit)
        });
        let capabilities_from = match &tip {
            Some(tip) if has_commit => repo.backs_off_until(tip.commit, now),
            _ => Ok(None),
        };
        Ok(Self {
            repo: Some(repo),
            tip,
            foreign,
            status,
            documents,
            claim,
            by_hand,
            branches: None,
            corrects_ledger: corrected.is_some(),
            entry: corrected.or_else(|| entry.cloned()),
            has_commit,
            capabilities_from,
            partly: None,
            unread: None,
        })
    }

    /// What the device's syncer verifiably says it is.
    pub(super) fn version(&self) -> Option<&str> {
        self.status.as_ref().map(|status| status.report.syncer.version.as_str())
    }

    /// How many deployments the device has.
    pub(super) fn present(&self) -> usize {
        let known = self.tip.as_ref().map_or(0, |tip| tip.desired.deployments.len());
        self.partly.map_or(known, |partly| partly.present)
    }

    /// The highest number of a rollout that its tip names; 0 if it names none.
    pub(super) fn rollout(&self) -> u32 {
        let named = || self.tip.as_ref().map_or(0, |tip| rollout_number(&tip.message));
        self.partly.map_or_else(named, |partly| partly.rollout)
    }

    /// What a person lets go from the state that it has. Of one that was restored the serial may have been another state's.
    pub(super) fn allowed<'f>(
        &self,
        device: &DeviceId,
        allowances: &'f Allowances,
    ) -> Option<&'f BTreeSet<DeploymentName>> {
        let tip = self.tip.as_ref().filter(|_| self.numbers().lost().is_none())?;
        allowances.of(device, tip.desired.envelope.serial)
    }

    /// Whether it is retired in this way, and that is said and done: its tip says it, if it ever had one, and where what
    /// it runs has to be gone before, it verifiably says that it is.
    pub(super) fn is_retired(&self, how: Retired) -> bool {
        let Some(tip) = &self.tip else { return self.foreign.is_none() };
        let (has_empty, status) = (tip.desired.deployments.is_empty(), self.status.as_ref());
        tip.desired.envelope.device.retired
            && match how {
                Retired::KeepWorkloads => true,
                Retired::Now => has_empty,
                Retired::WhenEmpty => has_empty && status.is_some_and(|status| has_nothing(&status.report, tip)),
            }
    }

    /// What is known of the device beyond the fleet's files.
    pub(super) fn facts(&self) -> Facts<'_> {
        let capabilities = match self.status.as_ref().and_then(|status| status.report.capabilities.as_ref()) {
            None => Capabilities::Unreported,
            Some(Ok(found)) => Capabilities::Reported(found),
            Some(Err(why)) => Capabilities::Unreadable(why),
        };
        let (parent, only) = (self.tip.as_ref().map(|tip| &tip.desired), self.partly.map(|partly| partly.only));
        Facts { parent, capabilities, held: None, only }
    }

    /// Whether a plan that is made of this would be the same if all of the tip were known. It may not be, where the device gets what
    /// it may be too old for, or where a tag's meaning isn't known, which its tip may tell.
    pub(super) fn is_enough_for(&self, plan: Option<&DevicePlan>) -> bool {
        if self.partly.is_none() {
            return true;
        }
        let Some((plan, tip)) = plan.zip(self.tip.as_ref()) else { return false };
        let had = features(&tip.desired.envelope.policy, tip.desired.envelope.deployments.values());
        !plan.is_unresolved() && plan.target.features().iter().all(|feature| had.contains(feature))
    }

    /// The state of each deployment that the device verifiably reports.
    pub(super) fn states(&self) -> BTreeMap<DeploymentId, State> {
        let reported = self.status.iter().flat_map(|status| &status.report.deployments);
        reported.map(|(id, document)| (*id, document.status.state)).collect()
    }

    /// How far the device is, by everybody's word.
    pub(super) fn numbers(&self) -> KnownNumbers<'_> {
        let parent = self.tip.as_ref().map(|tip| &tip.desired.envelope);
        KnownNumbers {
            parent: parent.map(|envelope| (envelope.serial, envelope.manifest_version)),
            ledger: self.entry.as_ref(),
            adopted: self.adopted().filter(|_| !matches!(self.claim, Some(Claim::Doubted(_) | Claim::TooFar))),
            adopted_is_known: self.claim == Some(Claim::Known),
            is_certain: self.by_hand || self.claim == Some(Claim::Proven),
        }
    }

    /// What the device verifiably says that it adopted, believed or not.
    pub(super) fn adopted(&self) -> Option<&Adopted> {
        self.status.as_ref().and_then(|status| status.report.adopted())
    }
}

/// Whether a device's report, with nothing doubtful in it, says that it adopted this state and has nothing else any more.
fn has_nothing(report: &repo_model::report::Status, tip: &Tip) -> bool {
    let is_adopted = report.adopted().is_some_and(|adopted| adopted.envelope == tip.desired.envelope_digest);
    let mut states = report.deployments.values().map(|document| document.status.state);
    is_adopted && report.doubts.is_empty() && states.all(|state| state == State::Removed)
}

/// How many commits back the last one of ours is searched for under a foreign tip.
const MAX_BACK: usize = 1000;

/// The last commit of ours under a foreign tip, and that tip.
fn last_verified(repo: &DeviceRepo, pass: &Pass<'_>) -> Result<(Option<Tip>, Option<CommitId>), DeviceError> {
    let publishers = &pass.rosters.publishers;
    let Some(foreign) = repo.tip(DESIRED)? else { return Ok((None, None)) };
    Ok((repo.last_verified(foreign, publishers, MAX_BACK)?, Some(foreign)))
}

/// What the ledger must say of a tip, if it doesn't.
fn corrected(device: &DeviceId, tip: &Tip, entry: Option<&Entry>, now: Timestamp) -> Option<Entry> {
    let envelope = &tip.desired.envelope;
    let known = match entry {
        // The ledger knows better: the device's repository was restored, or a newer serial is reserved.
        Some(entry) if entry.serial > envelope.serial => true,
        Some(entry) => {
            entry.serial == envelope.serial
                && entry.state == EntryState::Published
                && entry.envelope == tip.desired.envelope_digest
        }
        None => false,
    };
    (!known).then(|| Entry {
        device: device.clone(),
        serial: envelope.serial,
        manifest_version: entry.map_or(0, |entry| entry.manifest_version).max(envelope.manifest_version),
        envelope: tip.desired.envelope_digest,
        state: EntryState::Published,
        time: now,
        published: None,
    })
}
