//! One device's repository: its verified tip, and how a new one gets there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use repo_git::repo::{Bare, PACKED_REFS, Pack, Prepared, RenewError, branches};
use repo_git::{
    BatchError, Commit, CommitId, ConsolidateError, Expected, LockError, OpenError, ReadError, RecoverError, RefError,
    RefMove, Repo, RepoLock, SignatureError, TreeError, TreeLimits, WriteError,
};
use repo_model::desired::{self, Desired, KnownDocument, Refusal};
use repo_model::freshness::{FRESHNESS, Freshness};
use repo_model::message::Message;
use repo_model::report::Adopted;
use repo_model::{Branch, DeploymentId, DeploymentName, DeviceId, Digest, FleetId, KeyText, Trailer, branch::ref_name};

use super::moves::Moves;
use super::rosters::key_text;
use super::{DESIRED, Home};

/// Packs in a device's repository before they are made one, at least and at most.
const FEW_PACKS: usize = 20;
const MAX_PACKS: usize = 40;

/// The branches that a publisher moves.
const PUBLISHED: [Branch; 3] = [Branch::Bundle, Branch::Desired, Branch::Freshness];

/// How long another writer, a device's push for instance, may keep the repository.
pub(super) const LOCK_WAIT: std::time::Duration = std::time::Duration::from_secs(10);

/// How many forged commits upon a verified one are searched.
const MAX_FORGED: usize = 100;

/// One device's repository on this host.
#[derive(Debug)]
pub struct DeviceRepo {
    pub(super) repo: Repo,
    pub(super) fleet: FleetId,
    pub(super) device: DeviceId,
}

/// The tip of `desired`, signed by a publisher of this fleet.
#[derive(Debug)]
pub struct Tip {
    pub commit: CommitId,
    pub message: Message,
    pub desired: Desired,
}

/// How far numbers lead beyond what commits needed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lead {
    pub(super) serial: u64,
    pub(super) manifest_version: u64,
}

/// A device's repository can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DeviceRepoError {
    /// It can't be made or opened.
    #[error("cannot open its repository")]
    Open(#[from] OpenError),
    #[error("cannot lock its repository")]
    Lock(#[from] LockError),
    /// A ref or commit can't be read.
    #[error("cannot read its repository")]
    Read(#[from] ReadError),
    /// The files of a commit can't be read.
    #[error("cannot read the files of commit {commit}")]
    Tree {
        commit: CommitId,
        #[source]
        source: TreeError,
    },
    /// The tip of `desired` has no signature that can be checked.
    #[error("the tip {tip} of its `desired` can't be verified, and is left as it is")]
    Unverified {
        tip: CommitId,
        #[source]
        source: SignatureError,
    },
    /// Someone else signed the tip of `desired`.
    #[error(
        "the tip {tip} of its `desired` is signed by {signer}, who is no publisher of this fleet, and is left as it is"
    )]
    Foreign {
        tip: CommitId,
        /// The fingerprint of the key that signed it.
        signer: String,
    },
    /// The tip is signed, but for something else.
    #[error("the tip {tip} of its `desired` is not for this device")]
    Misplaced { tip: CommitId },
    /// The tip's documents contradict each other.
    #[error("the tip {tip} of its `desired` can't be read")]
    Invalid {
        tip: CommitId,
        #[source]
        source: Refusal,
    },
    #[error("cannot store commits in its repository")]
    Store(#[from] BatchError),
    #[error("cannot move a branch of its repository")]
    Move(#[from] RefError),
    /// What a crash left behind can't be cleared.
    #[error("cannot clean its repository up")]
    Recover(#[from] RecoverError),
    /// Its packs can't be put together.
    #[error("cannot consolidate its repository")]
    Consolidate(#[from] ConsolidateError),
    /// It is damaged, and can't be made anew.
    #[error("its repository is damaged, and can't be made anew")]
    Unrepaired {
        #[source]
        source: RenewError,
    },
}

impl DeviceRepo {
    /// Opens the repository; `None` if there is none yet, or only a half-made one that [`create`](Self::create)
    /// completes.
    pub fn open(home: &Home, fleet: FleetId, device: &DeviceId) -> Result<Option<Self>, DeviceRepoError> {
        let path = home.device(device);
        match Repo::open_briefly(&path) {
            Ok(repo) => Ok(Some(Self { repo, fleet, device: device.clone() })),
            Err(OpenError::NotARepository { .. }) if !has_branches(&path) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes anew what one that is there lacks of what all have.
    pub fn put_right(home: &Home, device: &DeviceId) -> Result<(), DeviceRepoError> {
        Ok(Repo::put_right(&home.device(device), DESIRED)?)
    }

    /// Makes the repository, or completes and opens the one that is there.
    pub fn create(home: &Home, fleet: FleetId, device: &DeviceId) -> Result<Self, DeviceRepoError> {
        let repo = Repo::create(&home.device(device), DESIRED)?;
        Ok(Self { repo, fleet, device: device.clone() })
    }

    /// Where a branch stands and how many packs there are, without opening the repository; `None` if that can't be read, or packs are
    /// missing.
    pub fn glance(home: &Home, device: &DeviceId, branch: Branch) -> Option<(Option<CommitId>, usize)> {
        let path = home.device(device);
        let [tip] = branches(&path, [branch.as_str()]).ok()?;
        Some(tip).zip(Bare::count_packs(&path))
    }

    /// Where a branch stands; `None` if there is none.
    pub fn tip(&self, branch: &str) -> Result<Option<CommitId>, DeviceRepoError> {
        Ok(self.repo.tip(branch)?)
    }

    /// The tip of `desired`, which one of `publishers` must have signed for this device.
    pub fn desired(&self, publishers: &BTreeSet<KeyText>) -> Result<Option<Tip>, DeviceRepoError> {
        self.desired_knowing(publishers, &|_, _| None)
    }

    /// The same, without parsing documents that are known.
    pub fn desired_knowing(
        &self,
        publishers: &BTreeSet<KeyText>,
        known: &KnownDocument<'_>,
    ) -> Result<Option<Tip>, DeviceRepoError> {
        self.repo.tip(DESIRED)?.map(|tip| self.verified(tip, publishers, known)).transpose()
    }

    /// A commit of `desired`, verified as its tip is.
    pub fn desired_at(&self, tip: CommitId, publishers: &BTreeSet<KeyText>) -> Result<Tip, DeviceRepoError> {
        self.verified(tip, publishers, &|_, _| None)
    }

    fn verified(
        &self,
        tip: CommitId,
        publishers: &BTreeSet<KeyText>,
        known: &KnownDocument<'_>,
    ) -> Result<Tip, DeviceRepoError> {
        let commit = self.repo.commit(tip)?;
        let signer = commit.signer().map_err(|source| DeviceRepoError::Unverified { tip, source })?;
        if !key_text(signer).is_some_and(|key| publishers.contains(&key)) {
            return Err(DeviceRepoError::Foreign { tip, signer: signer.fingerprint() });
        }
        let message = Message::parse(&commit.message);
        let files = self.files(tip)?;
        let desired =
            desired::read_knowing(&files, known).map_err(|source| DeviceRepoError::Invalid { tip, source })?;
        let envelope = &desired.envelope;
        let ours = message.get(Trailer::Kind) == Some(DESIRED)
            && envelope.fleet == self.fleet
            && envelope.device.id == self.device
            && message.get(Trailer::EnvelopeDigest) == Some(&desired.envelope_digest.to_string());
        if !ours {
            return Err(DeviceRepoError::Misplaced { tip });
        }
        Ok(Tip { commit: tip, message, desired })
    }

    /// The newest commit of `desired` that can be verified: its tip, or what a forged one was put upon. The error is that
    /// of the tip.
    pub fn newest_verified(&self, tip: CommitId, publishers: &BTreeSet<KeyText>) -> Result<Tip, DeviceRepoError> {
        self.desired_at(tip, publishers).or_else(|error| {
            let last = self.last_verified(tip, publishers, MAX_FORGED);
            last.ok().flatten().ok_or(error)
        })
    }

    /// The newest proof of freshness, if one of `publishers` signed it. Anything else is as good as none.
    pub fn freshness(&self, publishers: &BTreeSet<KeyText>) -> Result<Option<Freshness>, DeviceRepoError> {
        let Some(tip) = self.repo.tip(Branch::Freshness.as_str())? else { return Ok(None) };
        let signer = self.repo.commit(tip).ok().and_then(|commit| commit.signer().ok()).and_then(key_text);
        Ok(self.freshness_at(tip).filter(|_| signer.is_some_and(|key| publishers.contains(&key))))
    }

    /// The proof of freshness in a commit, whoever signed it.
    pub fn freshness_at(&self, commit: CommitId) -> Option<Freshness> {
        let files = self.repo.files(commit, &TreeLimits::default()).ok()?;
        files.get(FRESHNESS).and_then(|bytes| serde_json::from_slice(bytes).ok())
    }

    /// The newest commit of `desired` that can be verified, from `tip` back along first parents, at most `max` of them.
    pub fn last_verified(
        &self,
        tip: CommitId,
        publishers: &BTreeSet<KeyText>,
        max: usize,
    ) -> Result<Option<Tip>, DeviceRepoError> {
        let mut next = Some(tip);
        for _ in 0..max {
            let Some(id) = next else { return Ok(None) };
            if let Ok(found) = self.desired_at(id, publishers) {
                return Ok(Some(found));
            }
            next = self.parent(id)?;
        }
        Ok(None)
    }

    /// The first parent of a commit, unless history ends here.
    pub(super) fn parent(&self, id: CommitId) -> Result<Option<CommitId>, DeviceRepoError> {
        Ok(self.repo.history(id, None, 2)?.get(1).copied())
    }

    /// Whether the history from `tip` on knows what a device adopted: a commit with these numbers and this envelope, or a
    /// `Continues` that names it.
    pub fn knows(&self, tip: CommitId, adopted: &Adopted) -> Result<bool, DeviceRepoError> {
        let (wanted, continues) = (adopted.envelope.to_string(), format!("{} {}", adopted.envelope, adopted.serial));
        let mut next = Some(tip);
        while let Some(id) = next {
            let commit = self.repo.commit(id)?;
            let message = Message::parse(&commit.message);
            let (serial, version) = (message.number(Trailer::Serial), message.number(Trailer::ManifestVersion));
            let is_it = message.get(Trailer::EnvelopeDigest) == Some(&wanted)
                && serial == Some(adopted.serial)
                && version.is_none_or(|version| version == adopted.manifest_version);
            let continues_it = message.all(Trailer::Continues).any(|one| one == continues)
                && version.is_none_or(|version| version >= adopted.manifest_version);
            if is_it || continues_it {
                return Ok(true);
            }
            let older = serial.is_none_or(|found| found < adopted.serial);
            next = if older { None } else { self.parent(id)? };
        }
        Ok(false)
    }

    /// How far serial and `manifestVersion` lead, in the history of `tip`, beyond what the commits themselves need.
    pub(super) fn lead(&self, tip: CommitId) -> Result<Lead, DeviceRepoError> {
        let (mut lead, mut above, mut next) = (Lead::default(), None, Some(tip));
        while let Some(id) = next {
            let commit = self.repo.commit(id)?;
            let message = Message::parse(&commit.message);
            let numbers =
                (message.number(Trailer::Serial).unwrap_or(0), message.number(Trailer::ManifestVersion).unwrap_or(0));
            if let Some((serial, version)) = above.replace(numbers) {
                let gap = |above: u64, below: u64| above.saturating_sub(below).saturating_sub(1);
                lead.serial += gap(serial, numbers.0);
                lead.manifest_version += gap(version, numbers.1);
            }
            next = self.parent(id)?;
        }
        Ok(lead)
    }

    pub(crate) fn commit(&self, id: CommitId) -> Result<Commit, ReadError> {
        self.repo.commit(id)
    }

    /// All files of a commit's tree, by their paths, within the limits of what is read.
    pub(crate) fn files(&self, commit: CommitId) -> Result<repo_model::FileTree, DeviceRepoError> {
        let files = self.repo.files(commit, &TreeLimits::default());
        files.map_err(|source| DeviceRepoError::Tree { commit, source })
    }

    /// Begins new commits upon a tip whose files were read.
    pub fn prepare(&self, tip: CommitId) -> Result<Prepared<'static>, DeviceRepoError> {
        let entries = self.repo.list(tip, &TreeLimits::default());
        let entries = entries.map_err(|source| DeviceRepoError::Tree { commit: tip, source })?;
        Ok(Prepared::upon(entries.into_iter().map(|entry| entry.blob)))
    }

    /// Keeps the number of packs bounded.
    pub fn consolidate(&self, lock: &RepoLock) -> Result<(), DeviceRepoError> {
        self.repo.consolidate(lock, max_packs(&self.device))?;
        Ok(())
    }

    /// Waits for the lock of whoever writes this repository, and takes it.
    pub fn lock(&self) -> Result<RepoLock, DeviceRepoError> {
        Ok(self.repo.try_lock(LOCK_WAIT)?)
    }
}

/// Packs in this device's repository before they are made one. It isn't the same number for all, or a publish that all devices
/// get would once do that for all of them.
fn max_packs(device: &DeviceId) -> usize {
    let spread = usize::from(Digest::of(device.as_str().as_bytes()).as_bytes()[0]);
    FEW_PACKS + spread % (MAX_PACKS + 1 - FEW_PACKS)
}

/// Whether a repository that can't be opened was ever more than half made.
fn has_branches(path: &Path) -> bool {
    let heads = std::fs::read_dir(path.join("refs/heads"));
    path.join(PACKED_REFS).exists() || heads.is_ok_and(|mut heads| heads.next().is_some())
}

/// One device's repository on this host, for writing what is made already: it isn't opened for that.
#[derive(Debug)]
pub struct DeviceWriter {
    bare: Bare,
    path: PathBuf,
    device: DeviceId,
    moves: Moves,
    lock: RepoLock,
}

/// A branch that moves from where it stood, or comes to be, at a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BranchMove {
    /// Its name below `refs/heads/`.
    pub branch: &'static str,
    /// Where it has to stand; absent if there must be none.
    pub from: Option<CommitId>,
    pub to: CommitId,
}

/// How many commits are searched for the name of a deployment.
const MAX_NAMED: usize = 50;

/// How many commits are searched for the first that a device lacks.
const MAX_LACKED: usize = 1000;

impl DeviceRepo {
    /// What operators called these deployments, as far as an earlier `desired` says so that the tip doesn't repeat.
    pub fn names_before(
        &self,
        tip: &Tip,
        mut asked: BTreeSet<DeploymentId>,
        publishers: &BTreeSet<KeyText>,
    ) -> BTreeMap<DeploymentId, DeploymentName> {
        asked.retain(|id| !tip.desired.envelope.deployments.contains_key(id));
        let mut names = BTreeMap::new();
        if asked.is_empty() {
            return names;
        }
        for commit in self.repo.history(tip.commit, None, MAX_NAMED).unwrap_or_default().into_iter().skip(1) {
            let Ok(before) = self.desired_at(commit, publishers) else { break };
            let known = before.desired.envelope.deployments;
            names.extend(known.into_iter().filter(|(id, _)| asked.remove(id)).map(|(id, one)| (id, one.id)));
            if asked.is_empty() {
                break;
            }
        }
        names
    }

    /// When the first commit of `desired` after this one was made, in Unix seconds; `None` if there is none, or none that
    /// can be found.
    pub fn published_after(&self, tip: &Tip, adopted: CommitId) -> Option<i64> {
        let first = *self.repo.history(tip.commit, Some(adopted), MAX_LACKED).ok()?.last()?;
        let first = self.repo.commit(first).ok()?;
        first.parents.contains(&adopted).then_some(first.commit_time)
    }
}

impl DeviceWriter {
    /// Makes the repository with these commits and branches in it, all of it at once; `Ok(false)` if there is one, or
    /// these branches stand somewhere.
    pub fn create_with(
        home: &Home,
        device: &DeviceId,
        pack: &Pack,
        moves: &[BranchMove],
    ) -> Result<bool, DeviceRepoError> {
        if moves.iter().any(|one| one.from.is_some()) {
            return Ok(false);
        }
        let branches: Vec<_> = moves.iter().map(|one| (one.branch, one.to)).collect();
        let is_made = Bare::create_with(&home.device(device), DESIRED, pack, &branches)?;
        if is_made {
            home.moves.notify(device);
        }
        Ok(is_made)
    }

    /// Makes the repository if there is none yet, and takes the writer's lock.
    pub fn lock(home: &Home, device: &DeviceId) -> Result<Self, DeviceRepoError> {
        let path = home.device(device);
        let bare = Bare::create(&path, DESIRED)?;
        let lock = bare.try_lock(LOCK_WAIT)?;
        Ok(Self { bare, path, device: device.clone(), moves: home.moves.clone(), lock })
    }

    /// Clears what a crash left behind.
    pub fn clear(&self) -> Result<(), DeviceRepoError> {
        Repo::open_briefly(&self.path)?.clear(&self.lock)?;
        Ok(())
    }

    /// Stores new commits durably, then moves branches, each only from where it stood. A lock file that a killed process left is
    /// cleared once.
    pub fn write(&self, pack: &Pack, moves: &[BranchMove]) -> Result<(), DeviceRepoError> {
        let moves: Vec<_> = moves
            .iter()
            .map(|one| RefMove {
                name: ref_name(one.branch),
                expected: one.from.map_or(Expected::Absent, Expected::At),
                new: Some(one.to),
            })
            .collect();
        let written = match self.bare.store_and_move(pack, &moves) {
            Err(WriteError::Move(RefError::Locked { .. })) => {
                self.clear()?;
                self.bare.store_and_move(pack, &moves)
            }
            written => written,
        };
        // Also after a failure: some may have moved.
        self.moves.notify(&self.device);
        written.map_err(|error| match error {
            WriteError::Store(error) => error.into(),
            WriteError::Move(error) => error.into(),
        })
    }

    /// Keeps the number of packs bounded, which may just have been counted.
    pub fn consolidate(&self, counted: Option<usize>) -> Result<(), DeviceRepoError> {
        let max = max_packs(&self.device);
        if self.bare.is_scattered(max, counted) {
            let repo = Repo::open(&self.path)?;
            repo.consolidate(&self.lock, max)?;
            // What an older version or a stock Git gave files of their own moves together from now on.
            repo.pack_refs(&self.lock, &PUBLISHED.map(Branch::ref_name))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publish_that_all_devices_get_puts_few_of_them_together() {
        let mut devices = BTreeMap::<_, usize>::new();
        for number in 0..1000 {
            *devices.entry(max_packs(&format!("press-{number:05}").parse().unwrap())).or_default() += 1;
        }
        assert!(devices.keys().copied().eq(FEW_PACKS..=MAX_PACKS), "{devices:?}");
        assert!(devices.values().all(|count| *count < 100), "{devices:?}");
    }
}
