//! After an unclean stop: clears what it left behind and finds out what it damaged.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::consolidate::{files, has_extension};
use super::lock::{LOCK_FILE, WRITER_FILE};
use super::{EntryKind, ReadError, Repo, RepoLock, TreeError, TreeLimits};
use crate::durable::store::RefLock;
use crate::{BlobId, durable};

/// What recovery did and found.
#[derive(Debug, Default)]
pub struct Recovery {
    /// Lock and temporary files that a killed process left, and that were removed.
    pub removed: Vec<PathBuf>,
    /// Refs whose tip can't be read in full.
    pub damaged: Vec<DamagedRef>,
}

/// A ref that can't be trusted any more: fetch it anew, or rebuild the repository.
#[derive(Debug)]
pub struct DamagedRef {
    /// In full: `refs/heads/desired`.
    pub name: String,
    pub reason: Damage,
}

/// What is wrong with a ref.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// The ref or its commit can't be read.
    #[error(transparent)]
    Commit(ReadError),
    /// The commit's tree or blobs can't be read.
    #[error(transparent)]
    Tree(TreeError),
}

#[derive(Debug, thiserror::Error)]
#[error("cannot clear `{}`", path.display())]
pub struct RecoverError {
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

/// How old a leftover of a stock Git must be: it holds locks for milliseconds, but a push may take its time.
const DEAD_AFTER: Duration = Duration::from_secs(600);

impl Repo {
    /// When a stock Git began to write of which no process is left. One whose number is another's by now counts as alive.
    fn writer_gone(&self) -> Option<SystemTime> {
        let file = self.path.join(WRITER_FILE);
        let group = std::fs::read_to_string(&file).ok()?.trim().parse().ok()?;
        let begun = file.symlink_metadata().ok()?.modified().ok()?;
        (!lives(group).ok()?).then_some(begun)
    }

    /// Removes the leftovers of processes that died (ours at once, stock Git's when it is known to be gone, or they are
    /// too old for it to be alive) and reads every ref's tip: commit, trees and blobs, by hash. For the start of a
    /// program, under the lock.
    pub fn recover(&self, lock: &RepoLock) -> Result<Recovery, RecoverError> {
        Ok(Recovery { removed: self.clear(lock)?, damaged: self.damaged_refs()? })
    }

    /// Only removes the leftovers, and returns which: for who reads what it relies on anyway. Under the lock.
    pub fn clear(&self, lock: &RepoLock) -> Result<Vec<PathBuf>, RecoverError> {
        debug_assert_eq!(lock.path, self.path, "the lock is of another repository");
        let removed = self.remove_leftovers()?;
        // A killed process may have renamed a pack and not synced its name; refs are about to rely on it.
        let synced = durable::store::sync_packs(&self.pack_dir());
        synced.map_err(|source| RecoverError { path: self.pack_dir(), source }).map(|()| removed)
    }

    fn remove_leftovers(&self) -> Result<Vec<PathBuf>, RecoverError> {
        let mut removed = Vec::new();
        for path in self.leftovers().map_err(|source| RecoverError { path: self.path.clone(), source })? {
            let is_dir = path.is_dir();
            let gone = if is_dir { durable::remove_dir_all(&path) } else { durable::remove_file(&path) };
            if gone.map_err(|source| RecoverError { path: path.clone(), source })? {
                removed.push(path);
            }
        }
        Ok(removed)
    }

    fn leftovers(&self) -> io::Result<Vec<PathBuf>> {
        let (root, packs) = (self.git.common_dir(), self.pack_dir());
        let mut leftovers: Vec<PathBuf> = [files(root)?, files(&packs)?].concat();
        leftovers.retain(|path| name(path).starts_with(durable::TEMP_PREFIX));
        let temps: Vec<u64> = leftovers.iter().filter_map(|path| Some(path.symlink_metadata().ok()?.ino())).collect();

        let gone = self.writer_gone();
        let mut foreign = files(root)?;
        files_below(&root.join("refs"), &mut foreign)?;
        foreign.retain(|path| has_extension(path, "lock") && name(path) != LOCK_FILE);
        foreign.extend(files(&root.join("objects"))?.into_iter().filter(|path| is_foreign_temp(path)));
        foreign.extend(files(&packs)?.into_iter().filter(|path| is_foreign_temp(path) || is_half_pack(path)));
        foreign.retain(|path| RefLock::is_ours(path, &temps) || is_dead(path) || is_since(path, gone));
        foreign.extend(gone.map(|_| self.path.join(WRITER_FILE)));
        // Locks first: without its twin a lock of ours would look like a stock Git's.
        foreign.append(&mut leftovers);
        Ok(foreign)
    }

    fn damaged_refs(&self) -> Result<Vec<DamagedRef>, RecoverError> {
        let fail = |error: ReadError| RecoverError { path: self.path.join("refs"), source: io::Error::other(error) };
        let mut sound = HashSet::new();
        let names = self.ref_names().map_err(fail)?.into_iter();
        Ok(names
            .filter_map(|name| self.check_ref(&name, &mut sound).err().map(|reason| DamagedRef { name, reason }))
            .collect())
    }

    fn check_ref(&self, name: &str, sound: &mut HashSet<BlobId>) -> Result<(), Damage> {
        let Some(id) = self.reference(name).map_err(Damage::Commit)? else { return Ok(()) };
        let commit = self.commit(id).map_err(Damage::Commit)?;
        // More is no tree that somebody meant: a few that name each other many times come to billions.
        let all = TreeLimits { files: 1 << 20, bytes: u64::MAX, depth: 1000, strict: false };
        for entry in self.list_tree(commit.tree, &all).map_err(Damage::Tree)? {
            if entry.kind != EntryKind::Submodule && sound.insert(entry.blob) {
                let damage = |source| Damage::Tree(TreeError::Read { path: entry.path.clone(), source });
                self.blob(entry.blob, u64::MAX).map_err(damage)?;
            }
        }
        Ok(())
    }
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

pub(super) fn files_below(directory: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for path in files(directory)? {
        if path.is_dir() {
            files_below(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// Temporary files and quarantines as stock Git names them.
fn is_foreign_temp(path: &Path) -> bool {
    ["tmp_", "incoming-"].iter().any(|prefix| name(path).starts_with(prefix))
}

/// A pack whose index never came, or what protected the pack of a push that died.
fn is_half_pack(path: &Path) -> bool {
    (has_extension(path, "pack") && !path.with_extension("idx").exists())
        || (has_extension(path, "keep") && std::fs::read(path).is_ok_and(|text| text.starts_with(b"receive-pack ")))
}

/// Older than any process that could still need it: by age, from before this boot, or from the future.
fn is_dead(path: &Path) -> bool {
    let limit = uptime().map_or(DEAD_AFTER, |up| up.min(DEAD_AFTER));
    let modified = path.symlink_metadata().and_then(|meta| meta.modified());
    modified.is_ok_and(|time| time.elapsed().map_or_else(|ahead| ahead.duration() > DEAD_AFTER, |age| age > limit))
}

/// Made since then: by the process that is gone, because nobody else writes under the lock.
fn is_since(path: &Path, begun: Option<SystemTime>) -> bool {
    let modified = path.symlink_metadata().and_then(|meta| meta.modified());
    begun.is_some_and(|begun| modified.is_ok_and(|time| time >= begun))
}

/// Whether any process of a group still runs; one that only waits for its parent to look doesn't.
fn lives(group: u32) -> io::Result<bool> {
    for process in std::fs::read_dir("/proc")? {
        let Ok(stat) = std::fs::read_to_string(process?.path().join("stat")) else { continue };
        // `pid (name) state parent group …`; the name may hold anything (proc_pid_stat(5)).
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let (state, of) = (fields.next(), fields.nth(1).and_then(|text| text.parse::<u32>().ok()));
        if of == Some(group) && !matches!(state, Some("Z" | "X")) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn uptime() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    Duration::try_from_secs_f64(text.split(' ').next()?.parse().ok()?).ok()
}
