//! The publisher's ledger, `control.git`: the serials, what tags meant, and every version of the roster.
//!
//! One branch of signed commits; one commit for each batch. It is read whole at the start and kept in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::Timestamp;
use repo_artifacts::Images;
use repo_git::{
    CommitId, CommitSpec, Expected, ReadError, RefMove, Repo, RepoLock, SigningKey, TreeLimits, TreeSource,
};
use repo_model::envelope::Lock;
use repo_model::message::Message;
use repo_model::roster::roster_path;
use repo_model::{Branch, DeviceId, Digest, FileTree, FleetId, KeyText, Trailer, error_chain, json};
use serde::{Deserialize, Serialize};

use super::Home;
use super::archived::{Archived, ArchivedEpochs, EPOCHS, archived_of};
use super::control_error::ControlError;
use super::rollouts::Rollouts;
use super::rosters::{Rosters, key_text};
use super::source::FleetRepo;
use super::trailers::{CONTROL, publisher};
use crate::render::ArtifactKind::{self, Archive, Image, SignedArchive};
use crate::render::{Artifact, Locks, Resolved};
use crate::rollout::{Decided, Record};

const LIMITS: TreeLimits = TreeLimits { files: 1_000_000, bytes: 1 << 30, depth: 8, strict: true };

/// Packs in `control.git` before they are made one.
const MAX_PACKS: usize = 40;

/// The publisher's ledger with its repository, loaded.
#[derive(Debug)]
pub struct Control {
    repo: Repo,
    lock: RepoLock,
    tip: Option<CommitId>,
    tree: FileTree,
    ledger: Ledger,
    changed: bool,
}

/// What the ledger holds, without the repository that it lies in.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<DeviceId, Entry>,
    /// What every artefact that was ever published is.
    pub locks: Locks,
    /// The key that was last found at each `keyLocation`, by its fingerprint.
    pub signers: BTreeMap<String, String>,
    /// What of the fleet was covered last; absent while nobody has to agree to anything.
    pub covered: Option<Covered>,
    pub rollouts: Rollouts,
    /// Epochs of `status` that are in archives.
    pub archived: ArchivedEpochs,
}

/// A `control.git` that was handed out, of which nothing is believed yet.
#[derive(Debug)]
pub struct HandedOut {
    /// Who signed its tip; absent if nobody did by a key of ours.
    pub signer: Option<KeyText>,
    /// The files of the rosters.
    pub trust: FileTree,
    pub archived: ArchivedEpochs,
}

/// The last commit of the fleet to which those agreed who have to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Covered {
    pub commit: CommitId,
    /// Whether it is what a device had, because the ledger was lost. It may be of a fleet where nobody had to agree.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rebuilt: bool,
}

/// Where [`Covered`] is kept.
const COVERED: &str = "covered.json";

impl Ledger {
    /// The devices that anything was ever given out to.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceId> {
        self.entries.keys()
    }

    /// When anything was given out last.
    pub fn newest(&self) -> Option<Timestamp> {
        self.entries.values().map(|entry| entry.time).max()
    }

    /// What of the fleet was covered last, for what comes next in this repository of it: what a device had counts only if it
    /// is of this history at all.
    pub fn base(&self, source: &FleetRepo) -> Option<CommitId> {
        let covered = self.covered.filter(|covered| !covered.rebuilt || source.has(covered.commit));
        covered.map(|covered| covered.commit)
    }

    /// The archived epochs of a device.
    pub fn archived_of(&self, device: &DeviceId) -> impl Iterator<Item = &Archived> {
        archived_of(&self.archived, device)
    }

    /// What was last given out to a device.
    pub fn entry(&self, device: &DeviceId) -> Option<&Entry> {
        self.entries.get(device)
    }
}

/// What was last reserved or published for a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub device: DeviceId,
    /// The highest serial given out.
    pub serial: u64,
    /// The highest `manifestVersion` given out.
    pub manifest_version: u64,
    /// Digest of the envelope that the serial was given to.
    pub envelope: Digest,
    /// Whether the device can have seen it.
    pub state: EntryState,
    pub time: Timestamp,
    /// What was published last, if something newer is reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
}

/// A serial that went out, and the envelope that it was given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    pub serial: u64,
    pub envelope: Digest,
}

/// How far a serial got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryState {
    /// It belongs to this envelope and to no other one, ever.
    Reserved,
    /// It is the tip of the device's repository.
    Published,
}

impl Entry {
    /// What the device can have adopted of what this remembers.
    pub fn last_published(&self) -> Option<Published> {
        match self.state {
            EntryState::Published => Some(Published { serial: self.serial, envelope: self.envelope }),
            EntryState::Reserved => self.published,
        }
    }
}

/// A lock as `control.git` keeps it.
#[derive(Debug, Serialize, Deserialize)]
struct KeptLock {
    #[serde(default, skip_serializing_if = "is_archive")]
    kind: ArtifactKind,
    repository: String,
    revision: String,
    #[serde(flatten)]
    lock: Lock,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signer: Option<String>,
    time: Timestamp,
}

impl KeptLock {
    fn artifact(&self) -> Artifact {
        Artifact { kind: self.kind.clone(), repository: self.repository.clone(), revision: self.revision.clone() }
    }
}

/// The images that a compose archive names, which its bytes say; kept so that nobody has to fetch it again.
#[derive(Debug, Serialize, Deserialize)]
struct KeptImages {
    content: Digest,
    images: Images,
}

fn is_archive(kind: &ArtifactKind) -> bool {
    *kind == ArtifactKind::Archive
}

impl Control {
    /// Makes an empty ledger, for `init`.
    pub fn create(home: &Home) -> Result<Self, ControlError> {
        Self::upon(Repo::create(&home.control(), CONTROL)?, FileTree::new())
    }

    /// A ledger without a commit so far, in which these files are.
    pub(super) fn upon(repo: Repo, tree: FileTree) -> Result<Self, ControlError> {
        let lock = repo.lock()?;
        let ledger = ledger(&tree)?;
        Ok(Self { repo, lock, tip: None, tree, ledger, changed: false })
    }

    /// Loads the ledger for writing. One that is lost or damaged is made anew first, with `key`; what that was is returned.
    pub fn open_or_rebuild(
        home: &Home,
        key: &SigningKey,
        now: Timestamp,
    ) -> Result<(Self, Rosters, Option<String>), ControlError> {
        Repo::finish_renewal(&home.control())?;
        let rebuild = |why: &ControlError| -> Result<_, ControlError> {
            let what = Self::rebuild(home, key, now, why)?;
            let (control, rosters) = Self::open(home)?;
            Ok((control, rosters, what))
        };
        match Self::open(home) {
            Ok((control, rosters)) => match control.tidy() {
                Err(error) if error.is_lost() => {
                    drop(control);
                    rebuild(&error)
                }
                tidied => tidied.map(|()| (control, rosters, None)),
            },
            Err(error) if error.is_lost() => rebuild(&error),
            Err(error) => Err(error),
        }
    }

    /// Keeps the number of packs bounded.
    fn tidy(&self) -> Result<(), ControlError> {
        self.repo.consolidate(&self.lock, MAX_PACKS)?;
        Ok(())
    }

    /// Loads the ledger for writing, after clearing what a crash left behind.
    pub fn open(home: &Home) -> Result<(Self, Rosters), ControlError> {
        home.check_ledger()?;
        Repo::put_right(&home.control(), CONTROL)?;
        let repo = Repo::open(&home.control())?;
        let lock = repo.lock()?;
        repo.clear(&lock)?;
        let Loaded { tip, tree, ledger, rosters } = load(&repo)?;
        Ok((Self { repo, lock, tip, tree, ledger, changed: false }, rosters))
    }

    /// Loads the ledger for reading; a publisher may be at work.
    pub fn read(home: &Home) -> Result<(Ledger, Rosters), ControlError> {
        home.check_ledger()?;
        let Loaded { ledger, rosters, .. } = load(&Repo::open(&home.control())?)?;
        Ok((ledger, rosters))
    }

    /// Where the ledger stands; `None` before its first commit.
    pub fn tip(home: &Home) -> Result<Option<CommitId>, ControlError> {
        home.check_ledger()?;
        Ok(Repo::open(&home.control())?.tip(CONTROL)?)
    }

    /// The rosters as they stand, without the rest of the ledger; a publisher may be at work.
    pub fn read_rosters(home: &Home) -> Result<Rosters, ControlError> {
        let tip = Self::tip(home)?.ok_or_else(|| ControlError::NoRoster(roster_path(1)))?;
        Self::rosters_at(home, tip)
    }

    /// The rosters at a commit of the ledger, without the rest of it.
    pub fn rosters_at(home: &Home, tip: CommitId) -> Result<Rosters, ControlError> {
        let repo = Repo::open(&home.control())?;
        let rosters = Rosters::read(&files(&repo, tip, &["trust/"])?)?;
        check_signer(&repo, tip, &rosters)?;
        Ok(rosters)
    }

    /// What the `control.git` at a place says of archived epochs, and by what that can be believed.
    pub fn handed_out(path: &Path) -> Result<HandedOut, ControlError> {
        let repo = Repo::open_briefly(path)?;
        let tip = repo.tip(CONTROL)?.ok_or_else(|| ControlError::NoRoster(roster_path(1)))?;
        let mut trust = files(&repo, tip, &["trust/", EPOCHS])?;
        let archived = archived(&trust)?;
        trust.retain(|path, _| !path.starts_with(EPOCHS));
        let signer = repo.commit(tip)?.signer().ok().and_then(key_text);
        Ok(HandedOut { signer, trust, archived })
    }

    /// The envelopes that commits of the ledger gave out which one of these keys signed.
    pub fn envelopes_by(home: &Home, keys: &BTreeSet<KeyText>) -> Result<BTreeSet<Digest>, ControlError> {
        let repo = Repo::open(&home.control())?;
        let Some(tip) = repo.tip(CONTROL)? else { return Ok(BTreeSet::new()) };
        let mut envelopes = BTreeSet::new();
        for id in repo.history(tip, None, usize::MAX)? {
            let commit = repo.commit(id)?;
            if !commit.signer().ok().and_then(key_text).is_some_and(|key| keys.contains(&key)) {
                continue;
            }
            let changes = repo.changes(commit.parents.first().copied(), id, &LIMITS)?;
            let changes = changes.into_iter().filter(|(path, _)| path.starts_with(b"ledger/"));
            for (path, blob) in changes.filter_map(|(path, change)| Some((path, change.new?.blob()?))) {
                let entry: Entry = serde_json::from_slice(&repo.blob(blob, LIMITS.bytes)?).map_err(|source| {
                    ControlError::File { path: String::from_utf8_lossy(&path).into_owned(), source }
                })?;
                envelopes.insert(entry.envelope);
            }
        }
        Ok(envelopes)
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Remembers entries, until the next [`commit`](Self::commit) only in memory.
    pub fn put(&mut self, entry: Entry) {
        self.changed = true;
        self.tree.insert(ledger_path(&entry.device), json::to_bytes(&entry));
        self.ledger.entries.insert(entry.device.clone(), entry);
    }

    /// Says of what was given out in the future, by a clock that was ahead, that it was now.
    pub fn put_back(&mut self, now: Timestamp, skew: i64) {
        let is_future = |entry: &&Entry| entry.time.as_second() > now.as_second().saturating_add(skew);
        let future: Vec<_> = self.ledger.entries.values().filter(is_future).cloned().collect();
        future.into_iter().for_each(|entry| self.put(Entry { time: now, ..entry }));
    }

    /// Remembers what an artefact is. The first resolution stays.
    pub fn put_lock(&mut self, artifact: &Artifact, resolved: Resolved, time: Timestamp) {
        if self.ledger.locks.contains_key(artifact) {
            return;
        }
        self.changed = true;
        let Resolved { lock, signer, images, .. } = resolved;
        if let Some(images) = images.filter(|_| matches!(artifact.kind, Archive | SignedArchive(_))) {
            self.put_images(lock.content, images);
        }
        let Artifact { kind, repository, revision } = artifact.clone();
        let kept = KeptLock { kind, repository, revision, lock, signer, time };
        let (folder, name) = match &kept.kind {
            Image(archive) => ("images", format!("{archive} {}", kept.repository)),
            _ => ("locks", artifact.to_string()),
        };
        let path = format!("{folder}/{}.json", &Digest::of(name.as_bytes()).hex()[..32]);
        self.tree.insert(path, json::to_bytes(&kept));
        self.ledger.signers.extend(signer_of(&kept));
        self.ledger.locks.insert(artifact.clone(), lock);
    }

    /// Remembers which images the archive with this digest names.
    pub fn put_images(&mut self, content: Digest, images: Images) {
        let kept = KeptImages { content, images };
        self.changed = true;
        self.tree.insert(format!("archives/{}.json", &content.hex()[..32]), json::to_bytes(&kept));
        self.ledger.locks.learn(content, kept.images);
    }

    /// Remembers what of the fleet was covered last.
    pub fn put_covered(&mut self, covered: Option<Covered>) {
        if self.ledger.covered == covered {
            return;
        }
        self.changed = true;
        match &covered {
            Some(covered) => _ = self.tree.insert(COVERED.to_owned(), json::to_bytes(covered)),
            None => _ = self.tree.remove(COVERED),
        }
        self.ledger.covered = covered;
    }

    /// Remembers an epoch that is archived.
    pub fn put_archived(&mut self, archived: Archived) {
        self.changed = true;
        self.tree.insert(archived.path(), json::to_bytes(&archived));
        self.ledger.archived.insert(archived.key(), archived);
    }

    /// Remembers a rollout as it is now.
    pub fn put_rollout(&mut self, record: &Record) {
        self.changed = true;
        self.ledger.rollouts.put(record, &mut self.tree);
    }

    /// Remembers what was decided about a rollout, durably: one commit, before anything of it is done. `commit` is the commit
    /// of the fleet that is published.
    pub fn commit_rollout(
        &mut self,
        decided: &Decided,
        commit: CommitId,
        fleet: FleetId,
        key: &SigningKey,
        now: Timestamp,
    ) -> Result<CommitId, ControlError> {
        self.put_rollout(&decided.record);
        let Decided { decision, reason, record } = decided;
        let number = record.number();
        let message = Self::message(format!("rollout {number}: {decision}"), fleet)
            .trailer(Trailer::FleetCommit, commit)
            .trailer(Trailer::Rollout, number)
            .trailer(Trailer::Decision, decision)
            .trailer(Trailer::Reason, reason);
        self.commit(message, key, now)
    }

    /// Adds files of the roster.
    pub fn put_trust(&mut self, files: &FileTree) {
        self.changed = true;
        self.tree.extend(files.clone());
    }

    /// Whether something was put that isn't committed yet.
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// Commits what was put, durably.
    pub fn commit(&mut self, message: Message, key: &SigningKey, now: Timestamp) -> Result<CommitId, ControlError> {
        let mut batch = self.repo.batch();
        let spec = CommitSpec {
            tree: TreeSource::Files(&self.tree),
            parents: self.tip.into_iter().collect(),
            author: publisher(),
            committer: publisher(),
            time: now.as_second(),
            message: message.to_string(),
        };
        let id = batch.commit(&spec, Some(key))?;
        batch.store()?;
        let expected = self.tip.map_or(Expected::Absent, Expected::At);
        self.repo.move_refs(&[RefMove { name: Branch::Control.ref_name().to_owned(), expected, new: Some(id) }])?;
        self.tip = Some(id);
        self.changed = false;
        // What of its history can't be read is dealt with when it is opened the next time.
        match self.tidy() {
            Err(error) if error.is_lost() => tracing::error!(error = error_chain(&error), "`control.git` is damaged"),
            tidied => tidied?,
        }
        Ok(id)
    }

    /// The head of a message for a commit here.
    pub fn message(subject: impl AsRef<str>, fleet: FleetId) -> Message {
        Message::new(subject).trailer(Trailer::Kind, CONTROL).trailer(Trailer::Fleet, fleet)
    }
}

struct Loaded {
    tip: Option<CommitId>,
    tree: FileTree,
    ledger: Ledger,
    rosters: Rosters,
}

/// Reads everything, and makes sure that a publisher of the fleet wrote it.
fn load(repo: &Repo) -> Result<Loaded, ControlError> {
    let tip = repo.tip(CONTROL)?;
    let tree = tip.map(|tip| repo.files(tip, &LIMITS)).transpose()?.unwrap_or_default();
    let rosters = Rosters::read(&tree)?;
    if let Some(tip) = tip {
        check_signer(repo, tip, &rosters)?;
    }
    Ok(Loaded { ledger: ledger(&tree)?, tip, tree, rosters })
}

/// What the files of the ledger say, but for the rosters.
fn ledger(tree: &FileTree) -> Result<Ledger, ControlError> {
    let entries = read_all(tree, "ledger/", |entry: Entry| (entry.device.clone(), entry))?;
    let kept = read_kept(tree)?;
    // In the order of time, so that the last one counts.
    let signers = kept.values().filter_map(signer_of).collect();
    let locks = locks(&kept, tree)?;
    let covered = tree.get(COVERED).map(|bytes| serde_json::from_slice(bytes)).transpose();
    let covered = covered.map_err(|source| ControlError::File { path: COVERED.to_owned(), source })?;
    let (rollouts, archived) = (Rollouts::read(tree)?, archived(tree)?);
    Ok(Ledger { entries, locks, signers, covered, rollouts, archived })
}

fn archived(tree: &FileTree) -> Result<ArchivedEpochs, ControlError> {
    read_all(tree, EPOCHS, |one: Archived| (one.key(), one))
}

/// The files of the ledger in a damaged repository that can be read, if `publisher` signed what they are in.
pub(super) fn remains(repo: &Repo, publisher: Option<&KeyText>) -> FileTree {
    let Ok(Some(tip)) = repo.tip(CONTROL) else { return FileTree::new() };
    let signer = repo.commit(tip).ok().and_then(|commit| commit.signer().ok()).and_then(key_text);
    if signer.is_none() || signer.as_ref() != publisher {
        return FileTree::new();
    }
    let read = |entry: repo_git::Entry| Some((entry.path, repo.blob(entry.blob, LIMITS.bytes).ok()?));
    repo.list_readable(tip, &LIMITS).into_iter().filter_map(read).collect()
}

/// The `keyLocation` of a signed archive, and the key that was there.
fn signer_of(kept: &KeptLock) -> Option<(String, String)> {
    match (&kept.kind, &kept.signer) {
        (ArtifactKind::SignedArchive(url), Some(signer)) => Some((url.clone(), signer.clone())),
        _ => None,
    }
}

/// The files below some folders.
fn files(repo: &Repo, tip: CommitId, folders: &[&str]) -> Result<FileTree, ControlError> {
    let all = repo.list(tip, &LIMITS)?.into_iter();
    let wanted = all.filter(|entry| folders.iter().any(|folder| entry.path.starts_with(folder)));
    let read = |entry: repo_git::Entry| Ok((entry.path, repo.blob(entry.blob, LIMITS.bytes)?));
    Ok(wanted.map(read).collect::<Result<_, ReadError>>()?)
}

/// What artefacts mean, in the order in which that was found out.
fn read_kept(tree: &FileTree) -> Result<BTreeMap<(Timestamp, Artifact), KeptLock>, ControlError> {
    let read = |folder| read_all(tree, folder, |kept: KeptLock| ((kept.time, kept.artifact()), kept));
    let mut kept = read("locks/")?;
    kept.extend(read("images/")?);
    Ok(kept)
}

fn locks(kept: &BTreeMap<(Timestamp, Artifact), KeptLock>, tree: &FileTree) -> Result<Locks, ControlError> {
    let mut locks: Locks = kept.values().map(|kept| (kept.artifact(), kept.lock)).collect();
    let archives = read_all(tree, "archives/", |kept: KeptImages| (kept.content, kept.images))?;
    archives.into_iter().for_each(|(content, images)| locks.learn(content, images));
    Ok(locks)
}

fn check_signer(repo: &Repo, tip: CommitId, rosters: &Rosters) -> Result<(), ControlError> {
    let signer = repo.commit(tip)?.signer().ok().and_then(key_text);
    if signer.is_some_and(|key| rosters.publishers.contains(&key)) {
        Ok(())
    } else {
        Err(ControlError::Foreign { tip })
    }
}

/// Where a device's entry lies.
fn ledger_path(device: &DeviceId) -> String {
    let name = device.repository_name();
    format!("ledger/{}/{name}.json", &Digest::of(name.as_bytes()).hex()[..2])
}

fn read_all<T, K: Ord, V>(
    tree: &FileTree,
    folder: &str,
    entry: impl Fn(T) -> (K, V),
) -> Result<BTreeMap<K, V>, ControlError>
where
    T: for<'de> Deserialize<'de>,
{
    let files = tree.iter().filter(|(path, _)| path.starts_with(folder));
    files
        .map(|(path, bytes)| {
            let read = serde_json::from_slice(bytes);
            read.map(&entry).map_err(|source| ControlError::File { path: path.clone(), source })
        })
        .collect()
}
