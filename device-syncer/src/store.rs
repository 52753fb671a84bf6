//! Keeps the memory in the device's clone: one pack and one move of `refs/syncer/state` per change.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use repo_git::repo::{Ancestry, CommitSpec, Expected, Person, RefMove, Repo, RepoLock, TreeLimits, TreeSource};
use repo_git::{Cause, CommitId, ReadError, SigningKey, durable};
use repo_model::desired::Desired;
use repo_model::message::Message;
use repo_model::{DeviceId, FileTree};

use crate::config::Home;
use crate::memory::{Accepted, Memory, MemoryError, STATE, STATUS};
use crate::message;

/// How long another process of this device may hold the clone.
const PATIENCE: Duration = Duration::from_secs(10);

/// How much of the history of `status` is kept that the host has, in bytes, unpacked: packed, with the index, it may be as
/// much, because most of it is signatures and digests.
const HISTORY: u64 = 3 << 19;

/// The clone, open for writing.
#[derive(Debug)]
pub struct Store {
    /// The clone itself.
    pub repo: Repo,
    /// The state in force.
    pub memory: Memory,
    lock: RepoLock,
    key: SigningKey,
    person: Person,
    state: Option<CommitId>,
    status: Option<CommitId>,
    /// The tip of `status` says what this device said last. It doesn't where another installation speaks in its name.
    told: bool,
}

/// The directory of the state's tree with what this device said last, where the tip of `status` says something else.
const TOLD: &str = "told/";

/// What a clone holds.
struct Loaded {
    state: Option<CommitId>,
    status: Option<CommitId>,
    memory: Memory,
    told: bool,
}

/// The clone can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Opening, locking or recovering it failed.
    #[error("can't {doing} the clone `{}`", path.display())]
    Open {
        /// What was being done.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: Cause,
    },
    /// Reading or writing the memory failed; what was in force still is.
    #[error("can't {doing} the device's memory")]
    Memory {
        /// What was being done.
        doing: &'static str,
        /// Why.
        source: Cause,
    },
}

fn failed<E: Into<Cause>>(doing: &'static str) -> impl FnOnce(E) -> StoreError {
    move |source| StoreError::Memory { doing, source: source.into() }
}

impl Store {
    /// Opens the clone, makes it if it is missing, clears what a killed process left behind and repairs the local
    /// `status`. A clone that can't be read any more is set aside and begun anew: what runs is found again by its
    /// markers, the history of `status` on the host.
    pub fn open(home: &Home, device: &DeviceId, key: SigningKey) -> Result<Self, StoreError> {
        let path = home.repository();
        let open = |doing, source: Cause| StoreError::Open { doing, path: path.clone(), source };
        let repo = Repo::create(&path, "desired").map_err(|error| open("open", error.into()))?;
        let lock = repo.try_lock(PATIENCE).map_err(|error| open("lock", error.into()))?;
        let recovery = repo.recover(&lock).map_err(|error| open("recover", error.into()))?;
        for damaged in &recovery.damaged {
            tracing::error!(reference = damaged.name, reason = %damaged.reason, "damaged after an unclean stop");
        }
        let person = Person::new(device.as_str(), format!("{}@device.invalid", device.repository_name()));
        let memory = Memory::default();
        let mut store = Self { repo, memory, lock, key, person, state: None, status: None, told: true };
        match store.load() {
            Ok(()) if recovery.damaged.is_empty() => Ok(store),
            Ok(()) => store.restart(home),
            Err(error) => {
                tracing::error!(error = repo_model::error_chain(&error), "the memory can't be read");
                store.restart(home)
            }
        }
    }

    /// Sets the damaged clone aside (one is kept for a person to look at) and begins a new one.
    fn restart(self, home: &Home) -> Result<Self, StoreError> {
        let path = home.repository();
        let aside = path.with_extension("damaged");
        let open = |doing, source: Cause| StoreError::Open { doing, path: path.clone(), source };
        tracing::error!(path = %aside.display(), "the clone is damaged; it is set aside and made anew");
        if fs::symlink_metadata(&aside).is_ok() {
            durable::remove_dir_all(&aside).map_err(|error| open("clear", error.into()))?;
        }
        durable::rename(&path, &aside).map_err(|error| open("set aside", error.into()))?;
        let repo = Repo::create(&path, "desired").map_err(|error| open("make", error.into()))?;
        let lock = repo.try_lock(PATIENCE).map_err(|error| open("lock", error.into()))?;
        Ok(Self { repo, lock, memory: Memory::default(), state: None, status: None, told: true, ..self })
    }

    fn load(&mut self) -> Result<(), StoreError> {
        let loaded = Loaded::read(&self.repo)?;
        (self.state, self.memory, self.told) = (loaded.state, loaded.memory, loaded.told);
        self.move_status(loaded.status)
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

    /// The tip of the local `status`.
    pub fn status_tip(&self) -> Option<CommitId> {
        self.status
    }

    /// Whether `old` is `new` or in its history, as far as that is at hand.
    pub fn descends(&self, new: CommitId, old: CommitId) -> bool {
        matches!(self.repo.is_ancestor(old, new), Ok(Ancestry::Yes))
    }

    /// Puts `next` in force: one pack with the `status` commit (if its tree changed) and the state commit, then the
    /// move of the state, then that of `status`. Nothing is written if nothing changed. Returns whether `status` moved.
    pub fn commit(&mut self, next: Memory, message: &Message, time: i64) -> Result<bool, StoreError> {
        if next == self.memory {
            return Ok(false);
        }
        let says_more = next.status != self.memory.status;
        let (mut batch, mut status, mut told) = (self.repo.batch(), self.status, self.told);
        if says_more {
            let parents = self.status.into_iter().collect();
            let spec = self.spec(TreeSource::Files(&next.status), parents, time, message.to_string());
            status = Some(batch.commit(&spec, Some(&self.key)).map_err(failed("write"))?);
            told = true;
        }
        let state = self.state_commit(&mut batch, &next, status, told, time)?;
        batch.store().map_err(failed("write"))?;
        self.put_in_force(state)?;
        (self.memory, self.told) = (next, told);
        self.move_status(status)?;
        Ok(says_more)
    }

    fn spec<'a>(&self, tree: TreeSource<'a>, parents: Vec<CommitId>, time: i64, message: String) -> CommitSpec<'a> {
        CommitSpec { tree, parents, author: self.person.clone(), committer: self.person.clone(), time, message }
    }

    fn state_commit(
        &self,
        batch: &mut repo_git::Batch<'_>,
        next: &Memory,
        status: Option<CommitId>,
        told: bool,
        time: i64,
    ) -> Result<CommitId, StoreError> {
        let accepted = match &next.accepted {
            Some(accepted) => Some(accepted.commit.parse::<CommitId>().map_err(failed("write"))?),
            None => None,
        };
        let mut tree = next.to_tree();
        if !told {
            tree.extend(next.status.iter().map(|(path, bytes)| (format!("{TOLD}{path}"), bytes.clone())));
        }
        let parents = accepted.into_iter().chain(status).collect();
        let spec = self.spec(TreeSource::Files(&tree), parents, time, "state\n".to_owned());
        batch.commit(&spec, None).map_err(failed("write"))
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
    /// one, or a clone that was lost. Only a device that has said nothing yet takes over what that tip says. Onto nothing,
    /// for a host that lost what isn't here any more either, they are a history of their own.
    ///
    /// `status` never goes back to an older state: what was said of one that is older than `onto`'s is told by the first
    /// commit that isn't. Where there is none yet, `None` is returned and nothing changes.
    pub fn replant(&mut self, onto: Option<CommitId>, time: i64) -> Result<Option<usize>, StoreError> {
        let theirs: HashSet<_> = self.history(onto)?.into_iter().collect();
        let mut unpushed = self.history(self.status)?;
        unpushed.truncate(unpushed.iter().position(|id| theirs.contains(id)).unwrap_or(unpushed.len()));
        let read = |id| self.repo.commit(id).map_err(failed("read"));
        let floor = onto.map(read).transpose()?.map_or(0, |onto| message::serial(&onto.message));
        let (mut batch, mut tip, mut carried) = (self.repo.batch(), onto, Vec::new());
        for id in unpushed.iter().rev() {
            let old = read(*id)?;
            if (1..floor).contains(&message::serial(&old.message)) {
                carried.extend(message::states(&old.message));
                continue;
            }
            let message = message::carrying(old.message, &std::mem::take(&mut carried));
            let parents = tip.into_iter().collect();
            let spec = self.spec(TreeSource::Existing(old.tree), parents, old.commit_time, message);
            tip = Some(batch.commit(&spec, Some(&self.key)).map_err(failed("write"))?);
        }
        if !unpushed.is_empty() && tip == onto {
            return Ok(None);
        }
        let mut next = self.memory.clone();
        let said = onto.map(|onto| self.repo.files(onto, &limits())).transpose().map_err(failed("read"))?;
        let said = said.unwrap_or_default();
        if self.status.is_none() {
            next.status = said.clone();
        }
        let told = if unpushed.is_empty() { next.status == said } else { self.told };
        let state = self.state_commit(&mut batch, &next, tip, told, time)?;
        batch.store().map_err(failed("write"))?;
        self.put_in_force(state)?;
        (self.memory, self.told) = (next, told);
        self.move_status(tip)?;
        Ok(Some(unpushed.len()))
    }

    /// Whether something that this installation said is in the history of a tip of `status`.
    pub fn has_said_before(&self, tip: CommitId) -> Result<bool, ReadError> {
        let Some(status) = self.status else { return Ok(false) };
        let theirs: HashSet<_> = self.repo.history(tip, None, usize::MAX)?.into_iter().collect();
        Ok(self.repo.history(status, None, usize::MAX)?.iter().any(|id| theirs.contains(id)))
    }

    fn history(&self, tip: Option<CommitId>) -> Result<Vec<CommitId>, StoreError> {
        let history = |tip| self.repo.history(tip, None, usize::MAX).map_err(failed("read"));
        tip.map_or(Ok(Vec::new()), history)
    }

    /// A signed, parentless commit with these files, for `heartbeat`.
    pub fn parentless(&self, files: &FileTree, message: &Message, time: i64) -> Result<CommitId, StoreError> {
        let mut batch = self.repo.batch();
        let spec = self.spec(TreeSource::Files(files), Vec::new(), time, message.to_string());
        let id = batch.commit(&spec, Some(&self.key)).map_err(failed("write"))?;
        batch.store().map_err(failed("write"))?;
        Ok(id)
    }

    /// Whether the beginning of `status` is here.
    pub fn has_whole_status(&self) -> Result<bool, StoreError> {
        let Some(oldest) = self.history(self.status)?.pop() else { return Ok(true) };
        Ok(self.repo.commit(oldest).map_err(failed("read"))?.parents.is_empty())
    }

    /// Keeps the clone's packs bounded, and what of its history the host has: of `desired` there is the accepted state
    /// alone, of `status` what comes to [`HISTORY`] and all that isn't behind `told`, where the host's stands.
    pub fn consolidate(&self, packs: usize, told: Option<CommitId>) -> Result<(), StoreError> {
        if self.repo.consolidate_to(&self.lock, packs, || self.ends(told)).map_err(failed("consolidate"))? {
            tracing::debug!("consolidated the clone");
        }
        Ok(())
    }
}

impl Store {
    /// Where the history ends that is kept.
    fn ends(&self, told: Option<CommitId>) -> Result<Vec<CommitId>, ReadError> {
        let mut ends: Vec<_> = self.memory.accepted.as_ref().and_then(Accepted::id).into_iter().collect();
        if let (Some(tip), Some(told)) = (self.status, told)
            && let Some(within) = self.repo.history_within(tip, HISTORY)?
        {
            let history = self.repo.history(tip, None, usize::MAX)?;
            let behind = |commit: &CommitId| *commit == told || *commit == within;
            // The older of the two; a tip of the host that isn't known here ends nothing.
            ends.extend(history.iter().rev().find(|commit| behind(commit)).filter(|_| history.contains(&told)));
        }
        let has_parents = |commit: &CommitId| Ok(!self.repo.commit(*commit)?.parents.is_empty());
        ends.into_iter().filter_map(|end| has_parents(&end).map(|so| so.then_some(end)).transpose()).collect()
    }
}

impl Loaded {
    fn read(repo: &Repo) -> Result<Self, StoreError> {
        let state = repo.reference(STATE).map_err(failed("read"))?;
        let Some(id) = state else { return Ok(Self { state, status: None, memory: Memory::default(), told: true }) };
        let tree = repo.files(id, &limits()).map_err(failed("read"))?;
        let mut memory = Memory::of_tree(&tree)?;
        let parents = repo.commit(id).map_err(failed("read"))?.parents;
        let status = parents.get(usize::from(memory.accepted.is_some())).copied();
        let said = tree.into_iter().filter_map(|(path, bytes)| Some((path.strip_prefix(TOLD)?.to_owned(), bytes)));
        memory.status = said.collect();
        let told = memory.status.is_empty();
        if let (true, Some(status)) = (told, status) {
            memory.status = repo.files(status, &limits()).map_err(failed("read"))?;
        }
        Ok(Self { state, status, memory, told })
    }
}

/// Reads the memory in force and the accepted state without the lock, beside a syncer that may be at work.
pub fn peek(path: &Path) -> Result<(Memory, Option<Desired>), StoreError> {
    if !path.exists() {
        return Ok((Memory::default(), None));
    }
    let open = |source: Cause| StoreError::Open { doing: "open", path: path.to_owned(), source };
    let repo = Repo::open(path).map_err(|error| open(error.into()))?;
    let memory = Loaded::read(&repo)?.memory;
    let accepted = memory.accepted.as_ref().and_then(Accepted::id);
    let desired = accepted.and_then(|id| repo_model::desired::read(&repo.files(id, &limits()).ok()?).ok());
    Ok((memory, desired))
}

/// Bounds on the device's own trees, which it wrote itself.
fn limits() -> TreeLimits {
    TreeLimits { files: 100_000, bytes: 256 << 20, ..TreeLimits::default() }
}

#[cfg(test)]
mod tests;

impl From<MemoryError> for StoreError {
    fn from(source: MemoryError) -> Self {
        Self::Memory { doing: "read", source: source.into() }
    }
}
