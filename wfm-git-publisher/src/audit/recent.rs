//! What the newest commits of a device's repository say, without judging all that was before them.

use std::collections::BTreeSet;

use repo_git::{Commit, CommitId};
use repo_model::report::Status;
use repo_model::{Branch, DeviceId, FileTree, desired};

use super::commit::Told;
use super::desired::Published;
use super::record::Record;
use super::timeline::Event;
use crate::repos::{DeviceRepo, Step};

/// The most commits of a branch that are told of at once.
const MOST: usize = 10_000;

/// What was told since some moment.
#[derive(Debug, Default)]
pub struct Recent {
    pub record: Record,
    /// The last commits before that, by which it is known what is new.
    old: BTreeSet<CommitId>,
}

impl Recent {
    /// Reads the lines behind commits of `desired` and `status` that are believed, and vouch for what they come after, back to the
    /// first one that `is_old`. What can't be read is left out.
    pub fn read(
        repo: &DeviceRepo,
        device: &DeviceId,
        [published, told]: [Option<CommitId>; 2],
        is_old: impl Fn(&Step) -> bool,
    ) -> Self {
        let mut recent = Self::default();
        for (commit, files) in recent.line(repo, published, &is_old) {
            if let Ok(desired) = desired::read(&files) {
                let published = Published::of(commit.id, &desired, &files);
                recent.record.publish(&Told::of(Branch::Desired, &commit, &files), &published);
            }
        }
        for (commit, files) in recent.line(repo, told, &is_old) {
            let told = Told::of(Branch::Status, &commit, &files);
            if let Ok(status) = Status::read(device, &told.message, &files, None) {
                recent.record.report(&told, &status, None);
            }
        }
        recent
    }

    /// All that happened, in the order of [`Record::timeline`].
    pub fn events(&self) -> impl Iterator<Item = Event<'_>> {
        self.record.timeline().into_iter().filter(|event| !self.old.contains(&event.commit))
    }

    /// The commits behind one, the oldest first, with their files.
    fn line(
        &mut self,
        repo: &DeviceRepo,
        tip: Option<CommitId>,
        is_old: impl Fn(&Step) -> bool,
    ) -> Vec<(Commit, FileTree)> {
        let mut commits = Vec::new();
        for step in tip.into_iter().flat_map(|tip| repo.line(tip)).map_while(Result::ok).take(MOST) {
            commits.push(step.commit);
            if is_old(&step) {
                self.old.insert(step.commit);
                break;
            }
        }
        commits.into_iter().rev().filter_map(|id| Some((repo.commit(id).ok()?, repo.files(id).ok()?))).collect()
    }
}
