//! How commits relate.

use std::collections::{HashSet, VecDeque};

use super::{ReadError, Repo};
use crate::CommitId;

/// Whether one commit is among another's ancestors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ancestry {
    /// It is, or they are the same.
    Yes,
    /// It is not: the whole history is here.
    No,
    /// It was not met, but the history here ends at a shallow boundary or a missing commit.
    Unknown,
}

impl Repo {
    /// Whether `old` is `new` or one of its ancestors.
    pub fn is_ancestor(&self, old: CommitId, new: CommitId) -> Result<Ancestry, ReadError> {
        let shallow = self.shallow()?;
        let (mut queue, mut seen) = (VecDeque::from([new]), HashSet::from([new]));
        let mut verdict = Ancestry::No;
        while let Some(id) = queue.pop_front() {
            if id == old {
                return Ok(Ancestry::Yes);
            }
            match self.commit(id) {
                // A shallow commit names its parents, which is knowledge, but not theirs.
                Ok(commit) if shallow.contains(&id.0) && commit.parents.contains(&old) => return Ok(Ancestry::Yes),
                Ok(commit) if shallow.contains(&id.0) && !commit.parents.is_empty() => verdict = Ancestry::Unknown,
                Ok(commit) => queue.extend(commit.parents.into_iter().filter(|parent| seen.insert(*parent))),
                Err(ReadError::Missing { .. }) => verdict = Ancestry::Unknown,
                Err(error) => return Err(error),
            }
        }
        Ok(verdict)
    }

    /// The first-parent history from `from`, itself included, newest first; ends before `until`, at a shallow boundary,
    /// or after `max` commits.
    pub fn history(&self, from: CommitId, until: Option<CommitId>, max: usize) -> Result<Vec<CommitId>, ReadError> {
        let shallow = self.shallow()?;
        let mut history = Vec::new();
        let mut next = Some(from);
        while let Some(id) = next.filter(|id| Some(*id) != until && history.len() < max) {
            let commit = if id == from { self.commit(id) } else { self.needed(self.commit(id)) }?;
            history.push(id);
            next = commit.parents.first().copied().filter(|_| !shallow.contains(&id.0));
        }
        Ok(history)
    }
}
