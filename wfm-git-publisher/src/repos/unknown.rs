//! What keys that count no more signed on devices' `desired` and no ledger knows, and which of it devices adopted: what a thief
//! may have done, for a person to look at.

use std::collections::BTreeSet;

use jiff::Timestamp;
use repo_git::{CommitId, ReadError, Repo};
use repo_model::branch::{HEADS, epoch_of};
use repo_model::message::Message;
use repo_model::{Branch, DeviceId, Digest, KeyText, Trailer};

use super::control::Control;
use super::control_error::ControlError;
use super::device::DeviceRepoError;
use super::rosters::{Rosters, key_text};
use super::{DESIRED, Home};

/// A state of a device that the ledger doesn't know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    pub device: DeviceId,
    pub commit: CommitId,
    /// Absent where the commit isn't here, and only the device says that it adopted it.
    pub signed: Option<SignedState>,
    /// Whether the device says that it adopted it.
    pub adopted: bool,
}

/// What a commit says that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedState {
    /// By the clock of who signed.
    pub time: Timestamp,
    pub serial: Option<u64>,
    pub key: KeyText,
}

/// That can't be found out.
#[derive(Debug, thiserror::Error)]
pub enum UnknownError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("cannot look through the history of device {device}")]
    Device {
        device: DeviceId,
        #[source]
        source: Box<DeviceRepoError>,
    },
}

/// What keys of publishers before the newest roster signed, from the first commit of a line that says it is of `since` or
/// later, and a ledger that they signed doesn't know; and what devices adopted since then that isn't here.
pub fn unknown(home: &Home, rosters: &Rosters, since: Timestamp) -> Result<Vec<Unknown>, UnknownError> {
    let count: BTreeSet<_> = rosters.newest.roster.publishers.iter().map(|one| one.key.clone()).collect();
    let ended: BTreeSet<_> = rosters.publishers.difference(&count).cloned().collect();
    let known = Control::envelopes_by(home, &ended)?;
    let mut all = Vec::new();
    for device in Control::read(home)?.0.devices() {
        let failed = |source| UnknownError::Device { device: device.clone(), source: Box::new(source) };
        let path = home.device(device);
        if !path.exists() {
            continue;
        }
        let repo = Repo::open(&path).map_err(|error| failed(error.into()))?;
        let line = Line { repo: &repo, since: since.as_second() };
        let found = line.unknown(device, &ended, &known).map_err(|error| failed(error.into()))?;
        all.extend(found);
    }
    Ok(all)
}

struct Line<'a> {
    repo: &'a Repo,
    /// In Unix seconds.
    since: i64,
}

impl Line<'_> {
    fn unknown(
        &self,
        device: &DeviceId,
        ended: &BTreeSet<KeyText>,
        known: &BTreeSet<Digest>,
    ) -> Result<Vec<Unknown>, ReadError> {
        let (adopted, lately) = self.adopted()?;
        let history = match self.repo.tip(DESIRED)? {
            Some(tip) => self.repo.history(tip, None, usize::MAX)?,
            None => Vec::new(),
        };
        let (mut found, mut is_since) = (Vec::new(), false);
        // Oldest first: what comes after something of then isn't older, whatever date it has.
        for id in history.iter().rev() {
            let commit = self.repo.commit(*id)?;
            is_since |= commit.commit_time >= self.since;
            let Some(key) = commit.signer().ok().and_then(key_text).filter(|key| ended.contains(key)) else { continue };
            let message = Message::parse(&commit.message);
            let envelope = message.get(Trailer::EnvelopeDigest).and_then(|text| text.parse::<Digest>().ok());
            if !is_since || envelope.is_some_and(|envelope| known.contains(&envelope)) {
                continue;
            }
            let time = Timestamp::from_second(commit.commit_time).unwrap_or(Timestamp::MAX);
            let serial = message.get(Trailer::Serial).and_then(|text| text.parse().ok());
            let signed = Some(SignedState { time, serial, key });
            found.push(Unknown { device: device.clone(), commit: *id, signed, adopted: adopted.contains(id) });
        }
        let here: BTreeSet<_> = history.into_iter().collect();
        let elsewhere = lately.difference(&here);
        let of = |commit: &CommitId| Unknown { device: device.clone(), commit: *commit, signed: None, adopted: true };
        found.extend(elsewhere.map(of));
        Ok(found)
    }

    /// What the device says in all its epochs that it adopted, and what of that it says since then.
    fn adopted(&self) -> Result<(BTreeSet<CommitId>, BTreeSet<CommitId>), ReadError> {
        let (mut ever, mut lately) = (BTreeSet::new(), BTreeSet::new());
        let is_told = |name: &str| name == Branch::Status.ref_name() || epoch_of(name).is_some();
        for (_, tip) in self.repo.references(HEADS)?.into_iter().filter(|(name, _)| is_told(name)) {
            let mut is_since = false;
            for id in self.repo.history(tip, None, usize::MAX)?.into_iter().rev() {
                let commit = self.repo.commit(id)?;
                is_since |= commit.commit_time >= self.since;
                let message = Message::parse(&commit.message);
                let Some(named) = message.get(Trailer::DesiredCommit).and_then(|text| text.parse().ok()) else {
                    continue;
                };
                ever.insert(named);
                if is_since {
                    lately.insert(named);
                }
            }
        }
        Ok((ever, lately))
    }
}
