//! What a device says of itself, believed only as far as its signatures reach and as far as it can be so.

use std::collections::BTreeSet;

use jiff::Timestamp;
use repo_git::{Ancestry, Commit, CommitId, TreeLimits};
use repo_model::desired::Desired;
use repo_model::message::{Epoch, Message};
use repo_model::report::doubt::{REPORT_INVALID, SIGNATURE_INVALID};
use repo_model::report::{self, Beside, Doubt, Heartbeat, Link, MAX_CHAIN, Named, SYNCER, SeenList};
use repo_model::site::{SITE, SiteList};
use repo_model::{Branch, KeyText, Trailer, error_chain};
use serde::Deserialize;
use uuid::Uuid;

use super::device::{DeviceRepo, DeviceRepoError, Tip};
use super::rosters::key_text;

/// The largest `syncer.json` of an older commit that is read, in bytes.
const MAX_SYNCER: u64 = 1 << 20;

/// A report of a device, if it can be believed.
#[derive(Debug, Clone, PartialEq)]
pub enum Checked<T> {
    /// The device pushed none yet.
    Absent,
    /// An allowed key signed it.
    Verified(T),
    /// It can't be believed, and why.
    Unverified(Doubt),
}

/// What a device reports on both of its branches.
#[derive(Debug, Clone, PartialEq)]
pub struct Reports {
    pub status: Checked<Status>,
    pub heartbeat: Checked<Heartbeat>,
}

impl Reports {
    /// Whether the device never reported anything here.
    pub(super) fn are_absent(&self) -> bool {
        matches!((&self.status, &self.heartbeat), (Checked::Absent, Checked::Absent))
    }
}

/// What a verified `status` says.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub commit: CommitId,
    /// When the device made it, in Unix seconds, by its own clock.
    pub time: i64,
    /// Its documents, and what is doubtful about them although the signature is good.
    pub report: report::Status,
    /// What the commit says that it answers, if that is in this repository.
    pub(super) named: Option<Named>,
}

impl<T> Checked<T> {
    /// The value, if it can be believed.
    pub fn verified(&self) -> Option<&T> {
        match self {
            Self::Verified(value) => Some(value),
            _ => None,
        }
    }

    fn of(read: Result<Option<T>, Doubt>) -> Self {
        match read {
            Ok(Some(value)) => Self::Verified(value),
            Ok(None) => Self::Absent,
            Err(reason) => Self::Unverified(reason),
        }
    }
}

impl DeviceRepo {
    /// What the device verifiably says on `status`; anything else is as good as nothing.
    pub fn verified_status(
        &self,
        tip: Option<&Tip>,
        enrolled: &[KeyText],
        publishers: &BTreeSet<KeyText>,
    ) -> Option<Status> {
        let current = current_keys(tip, enrolled);
        self.status(tip, &current, publishers, &mut BTreeSet::new()).ok()?
    }

    /// Reads both branches, as they are at this moment. `enrolled` are the fleet's keys for the device, for as long as no
    /// `desired` lists any.
    pub fn reports(
        &self,
        tip: Option<&Tip>,
        enrolled: &[KeyText],
        publishers: &BTreeSet<KeyText>,
        now: Timestamp,
    ) -> Reports {
        let mut reports = self.newest_reports(tip, enrolled, publishers, now);
        if let Checked::Verified(status) = &mut reports.status {
            let time = Timestamp::from_second(status.time).unwrap_or(Timestamp::MAX);
            status.report.doubts.extend(report::time_ahead("the commit of `status`", time, now));
            status.report.doubts.extend(self.chain(status.commit));
        }
        reports
    }

    /// The same, whatever is doubtful about the order of the commits before.
    pub(super) fn newest_reports(
        &self,
        tip: Option<&Tip>,
        enrolled: &[KeyText],
        publishers: &BTreeSet<KeyText>,
        now: Timestamp,
    ) -> Reports {
        let current = current_keys(tip, enrolled);
        let mut judged = current.clone();
        let status = Checked::of(self.status(tip, &current, publishers, &mut judged));
        let heartbeat = Checked::of(self.heartbeat(&judged, status.verified(), now));
        Reports { status, heartbeat }
    }

    /// The tip of `status`, judged by the `desired` commit that it names. The keys that it was judged by are added to
    /// `judged`.
    fn status(
        &self,
        tip: Option<&Tip>,
        current: &BTreeSet<KeyText>,
        publishers: &BTreeSet<KeyText>,
        judged: &mut BTreeSet<KeyText>,
    ) -> Result<Option<Status>, Doubt> {
        let Some((commit, message)) = self.report(Branch::Status.as_str())? else { return Ok(None) };
        let named = message.get(Trailer::DesiredCommit).and_then(|id| id.parse().ok());
        let (keys, named) = match self.named(named, tip, publishers).map_err(|error| unreadable(&error))? {
            Some((keys, named)) => (keys, Some(named)),
            None => (current.clone(), None),
        };
        check_signer(&commit, &keys)?;
        judged.extend(keys);
        let files = self.files(commit.id).map_err(|error| unreadable(&error))?;
        let report = report::Status::read(&self.device, &message, &files, named.as_ref())?;
        Ok(Some(Status { commit: commit.id, time: commit.commit_time, report, named }))
    }

    fn heartbeat(
        &self,
        keys: &BTreeSet<KeyText>,
        status: Option<&Status>,
        now: Timestamp,
    ) -> Result<Option<Heartbeat>, Doubt> {
        let Some((commit, _)) = self.report(Branch::Heartbeat.as_str())? else { return Ok(None) };
        check_signer(&commit, keys)?;
        let files = self.files(commit.id).map_err(|error| unreadable(&error))?;
        let beside = Beside {
            status: status.and_then(|status| Some((status.time, status.report.adopted()?))),
            named: status.and_then(|status| status.named.as_ref()),
            now,
        };
        report::heartbeat(&files, beside).map(Some)
    }

    /// The site's list that the device says it believes, if it is here as well.
    pub fn site_list(&self, seen: &SeenList) -> Option<SiteList> {
        let files = self.files(seen.commit.parse().ok()?).ok()?;
        SiteList::parse(files.get(SITE)?).ok().filter(|list| list.serial == seen.serial && list.device == self.device)
    }

    /// The tip of a branch of the device, if it says that it belongs there.
    fn report(&self, branch: &str) -> Result<Option<(Commit, Message)>, Doubt> {
        let Some(tip) = self.tip(branch).map_err(|error| unreadable(&error))? else { return Ok(None) };
        let commit = self.repo.commit(tip).map_err(|error| unreadable(&error))?;
        let message = Message::parse(&commit.message);
        report::identity(branch, self.fleet, &self.device, &message)?;
        Ok(Some((commit, message)))
    }

    /// The named commit of `desired`, with the keys that it allows; `None` if it is not in the history of the tip.
    fn named(
        &self,
        named: Option<CommitId>,
        tip: Option<&Tip>,
        publishers: &BTreeSet<KeyText>,
    ) -> Result<Option<(BTreeSet<KeyText>, Named)>, DeviceRepoError> {
        let (Some(named), Some(tip)) = (named, tip) else { return Ok(None) };
        let read = |desired: &Desired| {
            (desired.envelope.device.status_keys.iter().cloned().collect(), Named::of(named, desired))
        };
        if named == tip.commit {
            return Ok(Some(read(&tip.desired)));
        }
        match self.repo.is_ancestor(named, tip.commit) {
            Ok(Ancestry::Yes) => Ok(Some(read(&self.desired_at(named, publishers)?.desired))),
            _ => Ok(None),
        }
    }

    /// What is doubtful about the order of the newest commits of `status`, as far as they can be read.
    fn chain(&self, tip: CommitId) -> Vec<Doubt> {
        let steps: Vec<_> = self.line(tip).map_while(Result::ok).take(MAX_CHAIN).collect();
        let serials: Vec<_> = steps.iter().map(|step| step.message.number(Trailer::Serial).unwrap_or(0)).collect();
        let present = report::newest_state(&serials);
        let link = |(commit, serial): (CommitId, u64)| Link { serial, instance: self.instance(commit) };
        report::chain(&steps.iter().map(|step| step.commit).zip(serials).take(present).map(link).collect::<Vec<_>>())
    }

    /// The epoch of `status` that the line with this tip begins; `None` for the first one, and where the line goes on from
    /// `before`.
    pub fn begun_epoch(&self, tip: CommitId, before: CommitId) -> Result<Option<Epoch<CommitId>>, DeviceRepoError> {
        let Some(first) = self.repo.history(tip, Some(before), usize::MAX)?.pop() else { return Ok(None) };
        Ok(Epoch::of(&Message::parse(&self.repo.commit(first)?.message)))
    }

    /// The installation that made a commit of `status`, by its own word.
    fn instance(&self, commit: CommitId) -> Option<Uuid> {
        #[derive(Deserialize)]
        struct Installation {
            instance: Uuid,
        }
        let entries = self.repo.list(commit, &TreeLimits::default()).ok()?;
        let entry = entries.into_iter().find(|entry| entry.path == SYNCER)?;
        let bytes = self.repo.blob(entry.blob, MAX_SYNCER).ok()?;
        serde_json::from_slice::<Installation>(&bytes).ok().map(|found| found.instance)
    }
}

fn unreadable(error: &(dyn std::error::Error + 'static)) -> Doubt {
    Doubt::new(REPORT_INVALID, error_chain(error))
}

fn current_keys(tip: Option<&Tip>, enrolled: &[KeyText]) -> BTreeSet<KeyText> {
    tip.map_or(enrolled, |tip| &tip.desired.envelope.device.status_keys).iter().cloned().collect()
}

fn check_signer(commit: &Commit, keys: &BTreeSet<KeyText>) -> Result<(), Doubt> {
    let invalid = |text: String| Doubt::new(SIGNATURE_INVALID, text);
    let signer = commit.signer().map_err(|error| invalid(error_chain(&error)))?;
    match key_text(signer) {
        Some(key) if keys.contains(&key) => Ok(()),
        _ => Err(invalid(format!("it is signed by {}, which is no key of this device", signer.fingerprint()))),
    }
}
