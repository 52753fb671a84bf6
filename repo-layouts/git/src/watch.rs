//! Following files, so that who waits for a change learns of it at once.
//!
//! What a [`Watcher`] says is a hint: it may come late, twice or, where the file system tells nothing, never. Whoever
//! follows files looks at them now and then all the same.

use std::fmt;
use std::path::Path;

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// A whole file is there: it was renamed to this path, or is closed after somebody wrote it.
    Written(&'a Path),
    /// Anything else but reading: a file came, went, or is being written.
    Touched(&'a Path),
    /// Anything anywhere: the file system had more to tell than it could.
    Unknown,
}

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct WatchError(#[from] notify::Error);

/// Follows directories for as long as it lives.
pub struct Watcher(RecommendedWatcher);

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}

impl Watcher {
    /// A watcher of nothing as yet. It calls `on_change` on a thread of its own, and waits for it.
    pub fn new(on_change: impl Fn(Change<'_>) + Send + 'static) -> Result<Self, WatchError> {
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| match event {
            Ok(event) if event.need_rescan() => on_change(Change::Unknown),
            Ok(event) => event.paths.iter().filter_map(|path| change_at(path, event.kind)).for_each(&on_change),
            Err(_) => on_change(Change::Unknown),
        })?;
        Ok(Self(watcher))
    }

    /// Follows what lies directly in a directory. Files are followed by their directory, because they are replaced by
    /// renaming.
    pub fn watch(&mut self, dir: &Path) -> Result<(), WatchError> {
        Ok(self.0.watch(dir, RecursiveMode::NonRecursive)?)
    }

    /// Follows what lies at any depth below a directory.
    pub fn watch_below(&mut self, dir: &Path) -> Result<(), WatchError> {
        Ok(self.0.watch(dir, RecursiveMode::Recursive)?)
    }

    /// Follows a directory no more.
    pub fn unwatch(&mut self, dir: &Path) -> Result<(), WatchError> {
        Ok(self.0.unwatch(dir)?)
    }
}

/// The change that an event at this path is; `None` if somebody only read.
fn change_at(path: &Path, kind: EventKind) -> Option<Change<'_>> {
    match kind {
        EventKind::Modify(ModifyKind::Name(RenameMode::To))
        | EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(Change::Written(path)),
        // The latter comes after `From` and `To` of the same renaming.
        EventKind::Access(_) | EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => None,
        _ => Some(Change::Touched(path)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "test data needs no syncing")]
    fn a_file_is_written_when_it_is_whole_and_reading_it_is_no_change() {
        let dir = tempfile::tempdir().unwrap();
        let (changed, changes) = channel::<(bool, PathBuf)>();
        let mut watcher = Watcher::new(move |change| {
            let (is_written, path) = match change {
                Change::Written(path) => (true, path),
                Change::Touched(path) => (false, path),
                Change::Unknown => return,
            };
            let _ = changed.send((is_written, path.to_owned()));
        })
        .unwrap();
        watcher.watch(dir.path()).unwrap();
        let wait_for = |expected: &(bool, PathBuf)| {
            let next = || changes.recv_timeout(Duration::from_secs(60)).expect("it is told");
            while next() != *expected {}
        };
        let (whole, gone) = (dir.path().join("whole"), dir.path().join("gone"));
        std::fs::write(&whole, "1").unwrap();
        wait_for(&(true, whole.clone()));
        std::fs::write(&gone, "2").unwrap();
        std::fs::rename(&gone, &whole).unwrap();
        wait_for(&(true, whole.clone()));
        // What is read in between says nothing, so the next that is told is the removal.
        while changes.recv_timeout(Duration::from_millis(200)).is_ok() {}
        std::fs::read(&whole).unwrap();
        std::fs::remove_file(&whole).unwrap();
        assert_eq!(changes.recv_timeout(Duration::from_secs(60)).unwrap(), (false, whole));
    }
}
