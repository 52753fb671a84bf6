//! What one of a device's branches said, commit by commit from its tip back.

use repo_git::{CommitId, ReadError};
use repo_model::message::{Epoch, Message};

use super::device::DeviceRepo;

/// A commit of a branch, without its files.
#[derive(Debug, Clone)]
pub struct Step {
    pub commit: CommitId,
    /// When it was made, in Unix seconds, by the clock of who made it.
    pub time: i64,
    pub message: Message,
}

impl DeviceRepo {
    /// The first-parent line of a commit, itself included, the newest first; on `status` across its epochs. Who signed the first
    /// commit vouches for all behind it, which it names. What can't be read is the last item.
    pub fn line(&self, tip: CommitId) -> impl Iterator<Item = Result<Step, ReadError>> {
        let mut next = Some(tip);
        std::iter::from_fn(move || {
            let commit = match self.repo.commit(next.take()?) {
                Ok(commit) => commit,
                Err(error) => return Some(Err(error)),
            };
            let message = Message::parse(&commit.message);
            let before = || Epoch::of(&message).map(|epoch| epoch.previous);
            next = commit.parents.first().copied().or_else(before);
            Some(Ok(Step { commit: commit.id, time: commit.commit_time, message }))
        })
    }
}
