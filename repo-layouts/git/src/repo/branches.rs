//! Where branches stand, without opening the repository: for thousands of them at once.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use repo_model::Digest;
use repo_model::branch::ref_name;
use rustix::fs::CWD;
use serde::{Deserialize, Serialize};

use super::packed::PACKED_REFS;
use super::plain::plain;
use super::{OpenError, ReadError, Repo};
use crate::CommitId;
use crate::durable::Stamp;

/// Where branches stand can't be read.
#[derive(Debug, thiserror::Error)]
pub enum BranchesError {
    /// The repository can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A branch can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// What another value has as soon as somebody touched some branches, found without reading them: the stamps of their
/// files, and of `packed-refs` where one has no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BranchStamps(Digest);

impl BranchStamps {
    /// Those of branches of the bare repository at `path`.
    pub fn of<const N: usize>(path: &Path, names: [impl AsRef<str>; N]) -> Self {
        Self::below(CWD, path, names)
    }

    /// The same where `path` begins at an open directory: to find thousands by a shorter way takes less time.
    pub fn below<const N: usize>(directory: impl AsFd, path: &Path, names: [impl AsRef<str>; N]) -> Self {
        Self::put_together(&stamps(directory.as_fd(), path, &names))
    }

    /// The same, with when each branch moved here last by its file, in Unix seconds.
    pub fn moved_below<const N: usize>(
        directory: impl AsFd,
        path: &Path,
        names: [impl AsRef<str>; N],
    ) -> (Self, [Option<i64>; N]) {
        let stamps = stamps(directory.as_fd(), path, &names);
        (Self::put_together(&stamps), moved(&stamps))
    }

    fn put_together(stamps: &[Option<Stamp>]) -> Self {
        let bytes: Vec<_> = stamps.iter().map(|stamp| stamp.map_or([0; 32], Stamp::to_bytes)).collect();
        Self(Digest::of(bytes.as_flattened()))
    }
}

fn stamps(directory: BorrowedFd<'_>, path: &Path, names: &[impl AsRef<str>]) -> Vec<Option<Stamp>> {
    let heads = path.join("refs/heads");
    let stamp = |path: &Path| Stamp::below(directory, path);
    let mut stamps: Vec<_> = names.iter().map(|name| stamp(&heads.join(name.as_ref()))).collect();
    if stamps.contains(&None) {
        stamps.push(stamp(&path.join(PACKED_REFS)));
    }
    stamps
}

/// When branches of the bare repository at `path` moved here last, in Unix seconds by this machine's clock: when their files were
/// written. One without a file moved before `packed-refs` was written, and before any that has one; it may as well not exist.
pub fn moved_at<const N: usize>(path: &Path, names: [impl AsRef<str>; N]) -> [Option<i64>; N] {
    moved(&stamps(CWD, path, &names))
}

fn moved<const N: usize>(stamps: &[Option<Stamp>]) -> [Option<i64>; N] {
    let at = |stamp: &Option<Stamp>| stamp.as_ref().map(Stamp::modified);
    let (files, packed) = stamps.split_at(N.min(stamps.len()));
    let before = files.iter().filter_map(at).chain(packed.iter().filter_map(at)).min();
    std::array::from_fn(|n| files.get(n).and_then(at).or(before))
}

/// Where branches stand, as [`branches`], with what tells later that nobody touched them. That is absent where something
/// was touched in the last seconds before this Unix second, or is no plain file with a commit in it.
pub fn stamped_branches<const N: usize>(
    path: &Path,
    names: [impl AsRef<str>; N],
    now: i64,
) -> Result<([Option<CommitId>; N], Option<BranchStamps>), BranchesError> {
    // Before they are read: what is touched in between has another stamp next time.
    let stamps = stamps(CWD, path, &names);
    let (mut found, mut told) = ([None; N], stamps.iter().flatten().all(|stamp| stamp.shows_changes_from(now)));
    let names = names.map(ref_name);
    let said = plain(path, names.each_ref().map(String::as_str));
    for (((tip, name), said), stamp) in found.iter_mut().zip(&names).zip(said).zip(&stamps) {
        told &= stamp.is_none() || matches!(said, Some(Some(_)));
        *tip = said.map_or_else(|| by_git(path, name), Ok)?;
    }
    Ok((found, told.then(|| BranchStamps::put_together(&stamps))))
}

/// Where branches of the bare repository at `path` stand; nowhere if there is no such repository.
pub fn branches<const N: usize>(
    path: &Path,
    names: [impl AsRef<str>; N],
) -> Result<[Option<CommitId>; N], BranchesError> {
    let (mut found, names) = ([None; N], names.map(ref_name));
    let said = plain(path, names.each_ref().map(String::as_str));
    for ((tip, name), said) in found.iter_mut().zip(&names).zip(said) {
        *tip = said.map_or_else(|| by_git(path, name), Ok)?;
    }
    Ok(found)
}

/// Where a ref stands, loose or packed; `None` if it doesn't exist.
pub(super) fn reference(path: &Path, name: &str) -> Result<Option<CommitId>, BranchesError> {
    plain(path, [name])[0].map_or_else(|| by_git(path, name), Ok)
}

fn by_git(path: &Path, name: &str) -> Result<Option<CommitId>, BranchesError> {
    Ok(Repo::open(path)?.reference(name)?)
}
