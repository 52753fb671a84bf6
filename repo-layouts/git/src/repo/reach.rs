//! Which objects commits need.

use std::collections::HashSet;

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use gix::objs::{Kind, TreeRefIter};

use super::error::corrupt;
use super::{ReadError, Repo};
use crate::CommitId;

/// Collects the objects that commits reach, each once, commits of one line before their trees.
pub(crate) struct Reach<'a> {
    repo: &'a Repo,
    shallow: HashSet<ObjectId>,
    seen: HashSet<ObjectId>,
    found: Vec<ObjectId>,
}

impl<'a> Reach<'a> {
    pub(crate) fn new(repo: &'a Repo) -> Result<Self, ReadError> {
        Ok(Self { repo, shallow: repo.shallow()?, seen: HashSet::new(), found: Vec::new() })
    }

    /// Leaves out a commit, what its tree holds, and whatever is only behind it.
    pub(crate) fn leave_out(&mut self, commit: CommitId) -> Result<(), ReadError> {
        let tree = self.repo.commit(commit)?.tree;
        let found = self.found.len();
        self.seen.insert(commit.0);
        self.add_tree(tree.0)?;
        self.found.truncate(found);
        Ok(())
    }

    /// Adds a commit with its tree, and nothing behind it; returns how much is new, unpacked.
    pub(crate) fn add_one(&mut self, commit: CommitId) -> Result<u64, ReadError> {
        let before = self.found.len();
        if self.meet(commit.0) {
            self.add_tree(self.repo.commit(commit)?.tree.0)?;
        }
        self.found[before..].iter().map(|id| Ok(self.repo.header(*id)?.1)).sum()
    }

    /// Adds all that a ref's target needs: a commit with its history, or an annotated tag with what it names.
    pub(crate) fn add(&mut self, tip: ObjectId) -> Result<(), ReadError> {
        let mut open = vec![tip];
        while let Some(id) = open.pop() {
            match self.repo.needed(self.repo.header(id))?.0 {
                Kind::Tree => self.add_tree(id)?,
                _ if !self.meet(id) => {}
                Kind::Commit => self.add_commit(id, &mut open)?,
                Kind::Tag => open.push(self.repo.tag_target(id)?),
                Kind::Blob => {}
            }
        }
        Ok(())
    }

    /// The objects, in the order they were met.
    pub(crate) fn into_found(self) -> Vec<ObjectId> {
        self.found
    }

    fn add_commit(&mut self, id: ObjectId, open: &mut Vec<ObjectId>) -> Result<(), ReadError> {
        let commit = self.repo.commit(CommitId(id))?;
        if !self.shallow.contains(&id) {
            open.extend(commit.parents.iter().map(|parent| parent.0));
        }
        self.add_tree(commit.tree.0)
    }

    fn add_tree(&mut self, root: ObjectId) -> Result<(), ReadError> {
        let mut open = vec![root];
        while let Some(id) = open.pop() {
            if !self.meet(id) {
                continue;
            }
            let data = self.repo.needed(self.repo.object_of(id, Kind::Tree))?;
            for entry in TreeRefIter::from_bytes(&data, id.kind()) {
                let entry = entry.map_err(|source| corrupt(id, source))?;
                match entry.mode.kind() {
                    EntryKind::Tree => open.push(entry.oid.to_owned()),
                    EntryKind::Commit => {}
                    _ => {
                        self.meet(entry.oid.to_owned());
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether the object is met for the first time.
    fn meet(&mut self, id: ObjectId) -> bool {
        let first = self.seen.insert(id);
        if first {
            self.found.push(id);
        }
        first
    }
}
