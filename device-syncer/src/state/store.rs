//! Keeps the device state in the device's clone: one pack and one move of `refs/syncer/state` per change.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use repo_git::repo::{
    CommitSpec, Expected, OpenError, Pack, Person, Prepared, RefMove, RenewError, Repo, RepoLock, TreeSource, set_aside,
};
use repo_git::{Cause, Commit, CommitId, ReadError, SigningKey};
use repo_model::message::{Epoch, Message};
use repo_model::{Branch, DeviceId, FileTree, error_chain};

use crate::config::Home;
use crate::decision::device_state::{Accepted, DeviceState, STATE, STATUS};
use crate::decision::message;
use crate::state::layout::limits;
use crate::state::loaded::{Loaded, OnStatus, damaged, state_tree};
use crate::state::view::View;

/// How long another process of this device may hold the clone.
const PATIENCE: Duration = Duration::from_secs(10);

/// How much of the history of `status` is kept that the host has, in bytes, unpacked: packed, with the index, it may be as
/// much, because most of it is signatures and digests.
const HISTORY: u64 = 3 << 19;

/// How long a clone that was made anew isn't made anew again: a disk that damages each is no better the next time.
const REBUILD_PAUSE: Duration = Duration::from_secs(60);

/// The clone, open for writing.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    pub repo: Repo,
    /// The content of `refs/syncer/state`, which each transaction replaces.
    pub device_state: DeviceState,
    lock: RepoLock,
    key: SigningKey,
    /// The key that signs from the adoption of that commit on, and with it.
    next_key: Option<(CommitId, SigningKey)>,
    person: Person,
    state: Option<CommitId>,
    status: Option<CommitId>,
    /// The tip of `status` says what this device reported last. It doesn't where another installation speaks in its
    /// name.
    reported: bool,
    /// How many commits of its epoch the device made on `status`, as far as it knows.
    epoch: usize,
    /// The accepted commit is a parent of the state, or there is none.
    is_rooted: bool,
    /// Something that was met may be damage.
    suspect: Arc<AtomicBool>,
    /// When the clone was last made anew by this process.
    rebuilt: Option<Instant>,
}

/// What `HEAD` of the clone names.
const DEFAULT_BRANCH: &str = Branch::Desired.as_str();

/// The message of a state's commit.
const STATE_MESSAGE: &str = "state\n";

/// What a clone is done to that can't be opened.
const OPEN: &str = "open";

/// The clone can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Opening, locking or recovering it failed.
    #[error("can't {doing} the clone `{}`", path.display())]
    Open { doing: &'static str, path: PathBuf, source: Cause },
    /// Reading or writing the device state failed; what was in force still is.
    #[error("can't {doing} the device state")]
    DeviceState { doing: &'static str, source: Cause },
    /// A damaged clone can't be made anew; it is as it was.
    #[error("can't make the damaged clone anew")]
    Renew(#[from] RenewError),
}

impl StoreError {
    fn open(doing: &'static str, path: &Path) -> impl FnOnce(Cause) -> Self {
        let path = path.to_owned();
        move |source| Self::Open { doing, path, source }
    }
}

fn failed<E: Into<Cause>>(doing: &'static str) -> impl FnOnce(E) -> StoreError {
    move |source| StoreError::DeviceState { doing, source: source.into() }
}

impl Store {
    /// Opens the clone, makes it if it is missing, clears what a killed process left behind and repairs the local
    /// `status`. Of a clone that can't be read any more what can be is kept, and the rest fetched anew.
    pub fn open(home: &Home, device: &DeviceId, key: SigningKey) -> Result<Self, StoreError> {
        let path = home.repository();
        Repo::finish_renewal(&path).map_err(|error| StoreError::open("make", &path)(error.into()))?;
        let person = Person::new(device.as_str(), format!("{}@device.invalid", device.repository_name()));
        let (repo, lock) = match take(&path) {
            Err(StoreError::Open { doing: OPEN, source, .. }) => {
                let why = error_chain(&*source);
                tracing::error!(path = %set_aside(&path).display(), why, "the clone is damaged: it is set aside and made anew");
                let noted = DeviceState { damaged: Some(damaged(why)), ..DeviceState::default() };
                let on_status = OnStatus { reported: true, epoch: 0 };
                Repo::renew(&path, DEFAULT_BRANCH, |new| write_state(new, &person, &noted, None, (None, on_status)))?;
                take(&path)?
            }
            taken => taken?,
        };
        let Loaded { state, status, device_state, reported, epoch, is_rooted, damage } = Loaded::read(&repo);
        let suspect = Arc::new(AtomicBool::new(false));
        let mut store = Self {
            path,
            repo,
            device_state,
            lock,
            key,
            next_key: None,
            person,
            state,
            status,
            reported,
            epoch,
            is_rooted,
            suspect,
            rebuilt: None,
        };
        match damage {
            Some(why) => store.rebuild(why)?,
            None => {
                store.move_status(status)?;
                // A `status` that couldn't be read is one that was written anew.
                store.repo.forget_damage();
            }
        }
        Ok(store)
    }

    /// Whether something of the clone may be damaged, by what was met since it was opened or mended.
    pub fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Relaxed) || self.repo.damage().is_some() || self.repo.met_a_hole()
    }

    /// What is in force at this moment.
    pub fn view(&self) -> View {
        let (repo, device_state, suspect) = (self.repo.clone(), self.device_state.clone(), Arc::clone(&self.suspect));
        View { repo, device_state, status: self.status, suspect }
    }

    /// Reads all that the state needs, and makes the clone anew if any of it can't be read, or something else was met that
    /// can't. Returns whether it did.
    pub fn repair(&mut self) -> Result<bool, StoreError> {
        self.suspect.store(false, Ordering::Relaxed);
        if self.rebuilt.is_some_and(|last| last.elapsed() < REBUILD_PAUSE) {
            return Ok(false);
        }
        let met = self.repo.damage();
        let accepted = self.device_state.accepted.as_ref().and_then(Accepted::id).filter(|_| self.is_rooted);
        let below = || self.repo.damage_below(accepted.into_iter().chain(self.status));
        let damage = Loaded::read(&self.repo).damage.or_else(|| below().map(|error| error_chain(&error))).or(met);
        match damage {
            Some(why) => self.rebuild(why).map(|()| true),
            None => {
                // A hole in what the host sent is no damage here.
                self.repo.forget_damage();
                self.move_status(self.status).map(|()| false)
            }
        }
    }

    /// Makes the clone anew with the device state and whatever of the old one can be read. That is set aside; one is kept for a
    /// person to look at.
    fn rebuild(&mut self, why: String) -> Result<(), StoreError> {
        let path = self.path.clone();
        tracing::error!(path = %set_aside(&path).display(), why, "the clone is damaged: what can't be read is set aside");
        let device_state = DeviceState { damaged: Some(damaged(why)), ..self.device_state.clone() };
        Repo::renew(&path, DEFAULT_BRANCH, |new| {
            let accepted = self.device_state.accepted.as_ref().and_then(Accepted::id);
            let tips = accepted.into_iter().chain(self.status);
            let found = self.repo.copy_readable(new, tips).map_err(RenewError::from)?;
            let is_whole = |tip: &CommitId| found.get(tip) == Some(tip);
            let (accepted, status) = (accepted.filter(is_whole), self.status.filter(is_whole));
            let on_status = OnStatus { reported: self.reported && status.is_some(), epoch: self.epoch };
            write_state(new, &self.person, &device_state, accepted, (status, on_status))
        })?;
        (self.repo, self.lock) = take(&path)?;
        let Loaded { state, status, device_state, reported, epoch, is_rooted, damage } = Loaded::read(&self.repo);
        if let Some(why) = damage {
            return Err(failed("read")(why));
        }
        (self.state, self.device_state, self.is_rooted) = (state, device_state, is_rooted);
        (self.reported, self.epoch) = (reported, epoch);
        self.rebuilt = Some(Instant::now());
        self.move_status(status)
    }

    fn holds(&self, commit: CommitId) -> bool {
        self.repo.commit(commit).is_ok()
    }

    /// Makes the local `status` branch agree with the state, which alone decides.
    fn move_status(&mut self, status: Option<CommitId>) -> Result<(), StoreError> {
        let found = self.repo.reference(STATUS).unwrap_or_default();
        if found != status {
            let moves = [RefMove { name: STATUS.to_owned(), expected: Expected::Any, new: status }];
            self.repo.move_refs(&moves).map_err(failed("move `status` of"))?;
        }
        self.status = status;
        Ok(())
    }

    /// From the adoption of this commit on, and with it, this key signs.
    pub fn sign_after(&mut self, adopted: CommitId, key: SigningKey) {
        self.next_key = Some((adopted, key));
    }

    /// This key signs from now on, because the accepted state lists it.
    pub fn sign_with(&mut self, key: SigningKey) {
        self.key = key;
    }

    /// The commit of the device state in force; `None` before the first.
    pub fn state_tip(&self) -> Option<CommitId> {
        self.state
    }

    /// The tip of the local `status`.
    pub fn status_tip(&self) -> Option<CommitId> {
        self.status
    }

    /// Puts `next` in force: one pack with the `status` commit (if its tree changed) and the state commit, then the
    /// move of the state, then that of `status`. Nothing is written if nothing changed. `says` makes the message of what leads
    /// from the state in force to the next one. Returns whether `status` moved.
    pub fn commit(
        &mut self,
        next: DeviceState,
        says: impl FnOnce(&DeviceState, &DeviceState) -> Message,
        time: i64,
    ) -> Result<bool, StoreError> {
        // An accepted commit that was fetched anew becomes a parent of the state again.
        if next == self.device_state && (self.is_rooted || !self.accepted_is_here(&next)) {
            return Ok(false);
        }
        // What says that a state was adopted is signed by a key that it lists.
        let adopted = next.accepted.as_ref().and_then(Accepted::id);
        let next_key = self.next_key.take_if(|(from, _)| adopted == Some(*from));
        if let Some((from, key)) = next_key {
            let old = std::mem::replace(&mut self.key, key);
            return self.put(next, says, time).inspect_err(|_| {
                self.next_key = Some((from, std::mem::replace(&mut self.key, old)));
            });
        }
        self.put(next, says, time)
    }

    fn put(
        &mut self,
        next: DeviceState,
        says: impl FnOnce(&DeviceState, &DeviceState) -> Message,
        time: i64,
    ) -> Result<bool, StoreError> {
        let says_more = next.status != self.device_state.status;
        let (mut batch, mut status) = (self.repo.batch(), self.status);
        let mut on_status = OnStatus { reported: self.reported, epoch: self.epoch };
        if says_more {
            let parents = self.status.into_iter().collect();
            let message = says(&next, &self.device_state).to_string();
            let spec = self.spec(TreeSource::Files(&next.status), parents, time, message);
            status = Some(batch.commit(&spec, Some(&self.key)).map_err(failed("write"))?);
            on_status = OnStatus { reported: true, epoch: self.epoch + 1 };
        }
        let state = self.state_commit(&mut batch, &next, status, on_status, time)?;
        batch.store().map_err(failed("write"))?;
        self.put_in_force(state)?;
        (self.is_rooted, self.device_state) = (self.accepted_is_here(&next), next);
        OnStatus { reported: self.reported, epoch: self.epoch } = on_status;
        self.move_status(status)?;
        Ok(says_more)
    }

    fn spec<'a>(&self, tree: TreeSource<'a>, parents: Vec<CommitId>, time: i64, message: String) -> CommitSpec<'a> {
        CommitSpec { tree, parents, author: self.person.clone(), committer: self.person.clone(), time, message }
    }

    fn state_commit(
        &self,
        batch: &mut repo_git::Batch<'_>,
        next: &DeviceState,
        status: Option<CommitId>,
        on_status: OnStatus,
        time: i64,
    ) -> Result<CommitId, StoreError> {
        let accepted = next.accepted.as_ref().and_then(Accepted::id).filter(|id| self.holds(*id));
        let tree = state_tree(next, on_status);
        let parents = accepted.into_iter().chain(status).collect();
        let spec = self.spec(TreeSource::Files(&tree), parents, time, STATE_MESSAGE.to_owned());
        batch.commit(&spec, None).map_err(failed("write"))
    }

    fn accepted_is_here(&self, device_state: &DeviceState) -> bool {
        device_state.accepted.as_ref().and_then(Accepted::id).is_some_and(|id| self.holds(id))
    }

    fn put_in_force(&mut self, state: CommitId) -> Result<(), StoreError> {
        let expected = self.state.map_or(Expected::Absent, Expected::At);
        let moves = [RefMove { name: STATE.to_owned(), expected, new: Some(state) }];
        self.repo.move_refs(&moves).map_err(failed("move"))?;
        self.state = Some(state);
        Ok(())
    }

    /// Makes the commits of the local `status` that `onto` doesn't have anew on top of it, oldest first, and returns how
    /// many there are. For a tip on the host that this device signed and that isn't in our history: a cloned disk, a new
    /// one, or a clone that was lost. Only a device that has reported nothing yet takes over what that tip says. Onto
    /// nothing, for a host that lost what isn't here any more either, they are a history of their own.
    ///
    /// `status` never goes back to an older state: what was said of one that is older than `onto`'s is reported by the first
    /// commit that isn't. Where there is none yet, `None` is returned and nothing changes.
    pub fn replant(&mut self, onto: Onto, time: i64) -> Result<Option<usize>, StoreError> {
        let theirs: HashSet<_> = self.history(onto.tip())?.into_iter().collect();
        let mut unpushed = self.history(self.status)?;
        unpushed.truncate(unpushed.iter().position(|id| theirs.contains(id)).unwrap_or(unpushed.len()));
        let read = |id| self.repo.commit(id).map_err(failed("read"));
        let told = onto.tip().map(read).transpose()?;
        let floor = told.as_ref().map_or(0, |told| message::serial(&told.message));
        let (mut batch, mut tip, mut carried) = (self.repo.batch(), onto.parent(), Vec::new());
        for id in unpushed.iter().rev() {
            let old = read(*id)?;
            if (1..floor).contains(&message::serial(&old.message)) {
                carried.extend(message::states(&old.message));
                continue;
            }
            let message = message::carrying(old.message, &std::mem::take(&mut carried));
            let message = onto.message(message, tip.is_none());
            let parents = tip.into_iter().collect();
            let spec = self.spec(TreeSource::Existing(old.tree), parents, old.commit_time, message);
            tip = Some(batch.commit(&spec, Some(&self.key)).map_err(failed("write"))?);
        }
        if let (Onto::Epoch(_), Some(told), true) = (onto, &told, unpushed.is_empty()) {
            let message = onto.message(message::beginning(&told.message), true);
            let spec = self.spec(TreeSource::Existing(told.tree), Vec::new(), time, message);
            tip = Some(batch.commit(&spec, Some(&self.key)).map_err(failed("write"))?);
        }
        if !unpushed.is_empty() && tip == onto.parent() {
            return Ok(None);
        }
        let mut next = self.device_state.clone();
        let pushed = onto.tip().map(|onto| self.repo.files(onto, &limits())).transpose().map_err(failed("read"))?;
        let pushed = pushed.unwrap_or_default();
        if self.status.is_none() {
            next.status = pushed.clone();
        }
        let reported = if unpushed.is_empty() { next.status == pushed } else { self.reported };
        let epoch = match onto {
            // Of what this device made before, it knows nothing any more.
            Onto::Tip(_) if self.status.is_none() => theirs.len(),
            _ => unpushed.len().max(1),
        };
        let on_status = OnStatus { reported, epoch };
        let state = self.state_commit(&mut batch, &next, tip, on_status, time)?;
        batch.store().map_err(failed("write"))?;
        self.put_in_force(state)?;
        (self.is_rooted, self.device_state) = (self.accepted_is_here(&next), next);
        (self.reported, self.epoch) = (reported, epoch);
        self.move_status(tip)?;
        Ok(Some(unpushed.len()))
    }

    /// Whether the epoch of `status` has as many commits as one may have.
    pub fn is_epoch_full(&self) -> bool {
        self.epoch >= repo_git::epoch_commits()
    }

    /// The epoch that the local `status` began, if its first commit is here.
    pub fn epoch(&self) -> Result<Option<Epoch<CommitId>>, ReadError> {
        let first = self.oldest()?.filter(|oldest| oldest.parents.is_empty());
        Ok(first.and_then(|first| Epoch::of(&Message::parse(&first.message))))
    }

    /// The oldest commit of the local `status` that is here.
    fn oldest(&self) -> Result<Option<Commit>, ReadError> {
        let Some(status) = self.status else { return Ok(None) };
        let oldest = self.repo.history(status, None, usize::MAX)?.pop();
        oldest.map(|oldest| self.repo.commit(oldest)).transpose()
    }

    /// Whether this installation told anything at the host, as far as that is known here: a commit of it is in the history of a
    /// tip of `status`, it began an epoch, or only the host has all of what it told.
    pub fn has_reported_before(&self, tip: CommitId) -> Result<bool, ReadError> {
        let Some((status, oldest)) = self.status.zip(self.oldest()?) else { return Ok(false) };
        if !oldest.parents.is_empty() || Epoch::<CommitId>::of(&Message::parse(&oldest.message)).is_some() {
            return Ok(true);
        }
        let theirs: HashSet<_> = self.repo.history(tip, None, usize::MAX)?.into_iter().collect();
        Ok(self.repo.history(status, None, usize::MAX)?.iter().any(|id| theirs.contains(id)))
    }

    fn history(&self, tip: Option<CommitId>) -> Result<Vec<CommitId>, StoreError> {
        let history = |tip| self.repo.history(tip, None, usize::MAX).map_err(failed("read"));
        tip.map_or(Ok(Vec::new()), history)
    }

    /// A signed, parentless commit with these files, for `heartbeat`, and the pack that brings it, without those that are at the
    /// host. Nothing is stored.
    pub fn parentless(
        &self,
        files: &FileTree,
        at_host: &FileTree,
        message: &Message,
        time: i64,
    ) -> Result<(CommitId, Pack), StoreError> {
        let mut prepared = Prepared::upon_files(at_host).map_err(failed("make"))?;
        let spec = self.spec(TreeSource::Files(files), Vec::new(), time, message.to_string());
        let id = prepared.commit(&spec, Some(&self.key)).map_err(failed("make"))?;
        Ok((id, prepared.pack().map_err(failed("make"))?))
    }

    /// Whether the beginning of `status` is here.
    pub fn has_whole_status(&self) -> Result<bool, StoreError> {
        Ok(self.oldest().map_err(failed("read"))?.is_none_or(|oldest| oldest.parents.is_empty()))
    }

    /// Keeps the clone's packs bounded, and what of its history the host has: of `desired` there is the accepted state
    /// alone, of `status` what comes to 1.5 MiB unpacked and all that isn't behind `reported`, where the host's stands.
    pub fn consolidate(&self, packs: usize, reported: Option<CommitId>) -> Result<(), StoreError> {
        if self.repo.consolidate_to(&self.lock, packs, || self.ends(reported)).map_err(failed("consolidate"))? {
            tracing::debug!("consolidated the clone");
        }
        Ok(())
    }

    /// Where the history ends that is kept.
    fn ends(&self, reported: Option<CommitId>) -> Result<Vec<CommitId>, ReadError> {
        let mut ends: Vec<_> = self.device_state.accepted.as_ref().and_then(Accepted::id).into_iter().collect();
        if let (Some(tip), Some(reported)) = (self.status, reported)
            && let Some(within) = self.repo.history_within(tip, HISTORY)?
        {
            let history = self.repo.history(tip, None, usize::MAX)?;
            let behind = |commit: &CommitId| *commit == reported || *commit == within;
            // The older of the two; a tip of the host that isn't known here ends nothing.
            ends.extend(history.iter().rev().find(|commit| behind(commit)).filter(|_| history.contains(&reported)));
        }
        let has_parents = |commit: &CommitId| Ok(!self.repo.commit(*commit)?.parents.is_empty());
        ends.into_iter().filter_map(|end| has_parents(&end).map(|so| so.then_some(end)).transpose()).collect()
    }
}

/// What commits of the local `status` are made anew on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onto {
    Nothing,
    /// This commit.
    Tip(CommitId),
    /// Nothing, as an epoch of their own; where there are none, its one commit says what the end of the epoch before says.
    Epoch(Epoch<CommitId>),
}

impl Onto {
    /// What the host has that they come after.
    fn tip(self) -> Option<CommitId> {
        match self {
            Self::Nothing => None,
            Self::Tip(tip) => Some(tip),
            Self::Epoch(epoch) => Some(epoch.previous),
        }
    }

    /// The parent of the first one.
    fn parent(self) -> Option<CommitId> {
        match self {
            Self::Tip(tip) => Some(tip),
            Self::Nothing | Self::Epoch(_) => None,
        }
    }

    /// The message of a commit here.
    fn message(self, message: String, is_first: bool) -> String {
        let read = Message::parse(&message);
        match self {
            Self::Epoch(epoch) if is_first => epoch.begin(&read).to_string(),
            _ if Epoch::<CommitId>::of(&read).is_some() => Epoch::<CommitId>::without(&read).to_string(),
            _ => message,
        }
    }
}

/// Opens and locks the clone, and clears what a killed process left behind.
fn take(path: &Path) -> Result<(Repo, RepoLock), StoreError> {
    let opened = Repo::put_right(path, DEFAULT_BRANCH).and_then(|()| Repo::create(path, DEFAULT_BRANCH));
    let repo = opened.map_err(|error| {
        let doing = if matches!(error, OpenError::Create { .. }) { "make" } else { OPEN };
        StoreError::open(doing, path)(error.into())
    })?;
    let lock = repo.try_lock(PATIENCE).map_err(|error| StoreError::open("lock", path)(error.into()))?;
    repo.clear(&lock).map_err(|error| StoreError::open("recover", path)(error.into()))?;
    Ok((repo, lock))
}

/// Gives a new clone its first state. The commits are those that it holds.
fn write_state(
    repo: &Repo,
    person: &Person,
    device_state: &DeviceState,
    accepted: Option<CommitId>,
    (status, on_status): (Option<CommitId>, OnStatus),
) -> Result<(), StoreError> {
    let tree = state_tree(device_state, on_status);
    let spec = CommitSpec {
        tree: TreeSource::Files(&tree),
        parents: accepted.into_iter().chain(status).collect(),
        author: person.clone(),
        committer: person.clone(),
        time: device_state.damaged.as_ref().map_or(0, |damaged| damaged.since.as_second()),
        message: STATE_MESSAGE.to_owned(),
    };
    let mut batch = repo.batch();
    let state = batch.commit(&spec, None).map_err(failed("write"))?;
    batch.store().map_err(failed("write"))?;
    let moves = [RefMove { name: STATE.to_owned(), expected: Expected::Absent, new: Some(state) }];
    repo.move_refs(&moves).map_err(failed("move"))
}

#[cfg(test)]
mod tests;
