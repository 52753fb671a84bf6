//! What one commit's tree holds that another one's doesn't. Directories that are the same aren't read.

use std::collections::BTreeMap;
use std::fmt;

use gix::ObjectId;
use gix::objs::tree::{EntryKind as Mode, EntryMode};
use gix::objs::{Kind, TreeRefIter};

use super::error::corrupt;
use super::tree::{too_much, unreadable};
use super::{Repo, TreeError, TreeLimits};
use crate::CommitId;

/// What stands at a path: an object with its mode. Equal ones are the same file, link or submodule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    object: ObjectId,
    mode: EntryMode,
}

/// What stood at a path, and what stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    pub old: Option<Held>,
    pub new: Option<Held>,
}

/// Changes by their paths, in bytes: two names that aren't UTF-8 may look alike.
pub type Changes = BTreeMap<Vec<u8>, Change>;

type Entries = BTreeMap<Vec<u8>, Held>;

impl Repo {
    /// What differs between two commits' trees, whatever it is; `None` is the empty tree. Of `limits`, `files` bounds what
    /// is met and `depth` how deep.
    pub fn changes(&self, old: Option<CommitId>, new: CommitId, limits: &TreeLimits) -> Result<Changes, TreeError> {
        let root = |commit| self.commit(commit).map(|commit| commit.tree.0).map_err(|source| unreadable("", source));
        let mut walk = Walk { repo: self, limits, met: 0, changes: Changes::new() };
        walk.compare(old.map(root).transpose()?, Some(root(new)?), &[], 0)?;
        Ok(walk.changes)
    }
}

struct Walk<'a> {
    repo: &'a Repo,
    limits: &'a TreeLimits,
    met: usize,
    changes: Changes,
}

impl Walk<'_> {
    fn compare(
        &mut self,
        old: Option<ObjectId>,
        new: Option<ObjectId>,
        path: &[u8],
        depth: usize,
    ) -> Result<(), TreeError> {
        if old == new {
            return Ok(());
        }
        if depth > self.limits.depth {
            return Err(too_much(self.limits.depth as u64, "nested directories", &shown(path)));
        }
        let (old, mut new) = (self.entries(old, path)?, self.entries(new, path)?);
        let mut both: Vec<_> = old.into_iter().map(|(name, old)| (new.remove(&name), name, Some(old))).collect();
        both.extend(new.into_iter().map(|(name, new)| (Some(new), name, None)));
        for (new, name, old) in both.into_iter().filter(|(new, _, old)| new != old) {
            let path = [path, if path.is_empty() { b"" } else { b"/" }, &name].concat();
            self.met += 1;
            if self.met > self.limits.files {
                return Err(too_much(self.limits.files as u64, "changes", &shown(&path)));
            }
            let directory = |held: Option<Held>| held.filter(Held::is_directory).map(|held| held.object);
            let file = |held: Option<Held>| held.filter(|held| !held.is_directory());
            self.compare(directory(old), directory(new), &path, depth + 1)?;
            let change = Change { old: file(old), new: file(new) };
            if change.old != change.new {
                self.changes.insert(path, change);
            }
        }
        Ok(())
    }

    fn entries(&self, tree: Option<ObjectId>, path: &[u8]) -> Result<Entries, TreeError> {
        let Some(tree) = tree else { return Ok(Entries::new()) };
        let data = self.repo.needed(self.repo.object_of(tree, Kind::Tree));
        let data = data.map_err(|source| unreadable(&shown(path), source))?;
        let mut entries = Entries::new();
        for entry in TreeRefIter::from_bytes(&data, tree.kind()) {
            let entry = entry.map_err(|source| unreadable(&shown(path), corrupt(tree, source)))?;
            let held = Held { object: entry.oid.to_owned(), mode: entry.mode };
            if entries.insert(entry.filename.to_vec(), held).is_some() {
                return Err(TreeError::BadName { path: format!("{}/{}", shown(path), entry.filename) });
            }
        }
        Ok(entries)
    }
}

impl Held {
    fn is_directory(&self) -> bool {
        self.mode.kind() == Mode::Tree
    }

    /// The blob of a file, executable or not; `None` for a link or a submodule.
    pub fn blob(&self) -> Option<crate::BlobId> {
        matches!(self.mode.kind(), Mode::Blob | Mode::BlobExecutable).then_some(crate::BlobId(self.object))
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:o} {}", self.mode.value(), self.object)
    }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
