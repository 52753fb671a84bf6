//! A bare repository that is written without being opened: for thousands of them, one after the other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::branches::{BranchesError, reference};
use super::consolidate::{files, has_extension, loose, packs};
use super::refs::Mover;
use super::{LockError, OpenError, Pack, ReadError, RefMove, Repo, RepoLock, WriteError};

/// A bare repository of ours at a place. What it has is read by [`Repo`].
#[derive(Debug)]
pub struct Bare {
    path: PathBuf,
}

impl Bare {
    /// Makes a bare repository as [`Repo::create`] does, or takes the one that is there.
    pub fn create(path: &Path, head_branch: impl AsRef<str>) -> Result<Self, OpenError> {
        let fail = |source| OpenError::Create { path: path.to_owned(), source };
        let path = std::path::absolute(path).map_err(fail)?;
        Repo::make(&path, head_branch.as_ref()).map(|()| Self { path })
    }

    /// How many packs the bare repository at `path` has; `None` if there are none, or not as many indices of them. Nothing is read
    /// but names.
    pub fn count_packs(path: &Path) -> Option<usize> {
        let files = files(&path.join("objects/pack")).ok()?;
        let count = |extension| files.iter().filter(|path| has_extension(path, extension)).count();
        Some(count("pack")).filter(|packs| *packs > 0 && *packs == count("idx"))
    }

    /// Waits for the writer's lock, at most `wait` long.
    pub fn try_lock(&self, wait: Duration) -> Result<RepoLock, LockError> {
        RepoLock::take(&self.path, wait)
    }

    /// Stores a pack and, once it is durable, moves refs: those that have no files of their own all together, in `packed-refs`, and
    /// others as [`Repo::move_refs`] does. Nothing is stored where none moves because one is locked or stands elsewhere.
    pub fn store_and_move(&self, pack: &Pack, moves: &[RefMove]) -> Result<(), WriteError> {
        let find = |name: &str| match reference(&self.path, name) {
            Err(BranchesError::Open(error)) => Err(ReadError::Ref { name: name.to_owned(), source: error.into() }),
            Err(BranchesError::Read(error)) => Err(error),
            Ok(found) => Ok(found),
        };
        Mover { root: &self.path, common: &self.path, find: &find }.store_and_move(pack, moves)
    }

    /// Whether it has more than so many packs or loose objects, so that it is worth opening for [`Repo::consolidate`]. The packs
    /// needn't be counted again if they just were.
    pub fn is_scattered(&self, max: usize, counted: Option<usize>) -> bool {
        let objects = self.path.join("objects");
        let is_more = |found: std::io::Result<Vec<PathBuf>>| found.map_or(true, |found| found.len() > max);
        counted.is_none_or(|packs| packs > max) && is_more(packs(&objects.join("pack"))) || is_more(loose(&objects))
    }
}
