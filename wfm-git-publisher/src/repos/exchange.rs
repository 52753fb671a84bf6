//! A device's repository here and its counterpart at another host.

use std::collections::BTreeSet;

use repo_git::{Ancestry, CommitId, PushResult, PushUpdate, RefError, RefMove, RepoLock, TreeLimits};
use repo_model::message::Message;
use repo_model::{KeyText, Trailer};

use super::device::{DeviceRepo, DeviceRepoError};
use super::rosters::key_text;
use super::{RemoteRepo, RemoteRepoError};

impl DeviceRepo {
    /// Whether a commit is here.
    pub fn has(&self, commit: CommitId) -> bool {
        self.repo.commit(commit).is_ok()
    }

    /// Whether `old` is in the history of `new`.
    pub fn is_ancestor(&self, old: CommitId, new: CommitId) -> Result<Ancestry, DeviceRepoError> {
        Ok(self.repo.is_ancestor(old, new)?)
    }

    /// Whether one of `publishers` signed a commit for this branch of this device.
    pub fn is_ours(&self, commit: CommitId, kind: &str, publishers: &BTreeSet<KeyText>) -> bool {
        let Ok(commit) = self.repo.commit(commit) else { return false };
        let message = Message::parse(&commit.message);
        let expected =
            [(Trailer::Kind, kind), (Trailer::Fleet, &self.fleet.to_string()), (Trailer::Device, self.device.as_str())];
        expected.iter().all(|(key, value)| message.get(key) == Some(value))
            && commit.signer().ok().and_then(key_text).is_some_and(|key| publishers.contains(&key))
    }

    /// Whether a commit has the same files as the tip of a branch.
    pub fn same_files(&self, commit: CommitId, branch: &str) -> bool {
        let files = |commit| self.repo.files(commit, &TreeLimits::default()).ok();
        let tip = self.repo.tip(branch).ok().flatten().and_then(files);
        tip.is_some() && tip == files(commit)
    }

    /// A commit's subject and author as it says them, in one line of at most `max` characters, without control
    /// characters.
    pub fn described(&self, commit: CommitId, max: usize) -> String {
        let Ok(read) = self.repo.commit(commit) else { return commit.to_string() };
        let text = String::from_utf8_lossy(read.message.as_bytes()).into_owned();
        let subject = text.lines().next().unwrap_or_default();
        let text = format!("{commit} \"{subject}\" by {} <{}>", read.author.name, read.author.email);
        text.chars().filter(|c| !c.is_control()).take(max).collect()
    }

    /// Fetches commits from its counterpart. The caller holds the lock.
    pub fn fetch(&self, from: &RemoteRepo, wants: &[CommitId], haves: &[CommitId]) -> Result<(), RemoteRepoError> {
        from.fetch(&self.repo, wants, haves)
    }

    /// Pushes these branches to its counterpart at the host; the lock is the caller's.
    pub fn push(&self, to: &RemoteRepo, updates: &[PushUpdate]) -> Result<Vec<PushResult>, RemoteRepoError> {
        to.push(&self.repo, updates)
    }

    /// Moves one ref. A lock file that a killed process left is cleared once.
    pub fn move_ref(&self, lock: &RepoLock, one: RefMove) -> Result<(), DeviceRepoError> {
        match self.repo.move_refs(std::slice::from_ref(&one)) {
            Err(RefError::Locked { .. }) => {
                self.repo.clear(lock)?;
                Ok(self.repo.move_refs(&[one])?)
            }
            moved => Ok(moved?),
        }
    }
}
