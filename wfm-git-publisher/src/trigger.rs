//! A hint that the fleet repository may have changed. It may be late, early or missing: a poll is the truth.

use std::path::Path;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc::Sender;

/// Watches for as long as it lives.
#[derive(Debug)]
pub struct Trigger {
    _watcher: RecommendedWatcher,
}

/// The repository can't be watched; the poll still sees every change.
#[derive(Debug, thiserror::Error)]
#[error("cannot watch the fleet repository")]
pub struct TriggerError(#[from] notify::Error);

impl Trigger {
    /// Watches the refs of a Git directory, and tells `hints` when one may have moved.
    ///
    /// Branches that are moved by `git` come as a rename to the ref; `HEAD` and `packed-refs` lie beside them.
    pub fn watch(git_dir: &Path, hints: Sender<()>) -> Result<Self, TriggerError> {
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let wanted = |event: &notify::Event| {
                !matches!(event.kind, EventKind::Access(_))
                    && event.paths.iter().any(|path| path.extension().is_none_or(|ending| ending != "lock"))
            };
            if event.as_ref().is_ok_and(wanted) {
                // A full channel holds a hint already.
                let _ = hints.try_send(());
            }
        })?;
        watcher.watch(git_dir, RecursiveMode::NonRecursive)?;
        let refs = git_dir.join("refs");
        if refs.is_dir() {
            watcher.watch(&refs, RecursiveMode::Recursive)?;
        }
        Ok(Self { _watcher: watcher })
    }
}
