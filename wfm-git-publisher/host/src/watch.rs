//! Noticing that the branches moved that devices wait for.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use repo_git::repo::PACKED_REFS;
use repo_git::watch::{Change, Watcher};
use repo_model::branch::HEADS;
use tokio::sync::mpsc;

use crate::lock::lock;
use crate::repos::Hosted;

/// Hints that are kept until they are looked at; when there are more, everything is looked at.
const HINTS: usize = 10_000;

/// Notices by the file system that a device's branches moved.
pub(crate) struct RefWatcher {
    watcher: Mutex<Option<Watcher>>,
    watched: Mutex<HashSet<String>>,
    unwatched: Mutex<HashSet<String>>,
    hints: mpsc::Sender<String>,
    overflow: AtomicBool,
}

impl std::fmt::Debug for RefWatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RefWatcher").field("watched", &lock(&self.watched).len()).finish_non_exhaustive()
    }
}

impl RefWatcher {
    /// Follows no repository as yet; `root` is what names of repositories begin at. The names of repositories whose refs may have moved come
    /// out of the receiver.
    pub(crate) fn new(root: &Path) -> (Arc<Self>, mpsc::Receiver<String>) {
        let (hints, hinted) = mpsc::channel(HINTS);
        let this = Arc::new(Self {
            watcher: Mutex::default(),
            watched: Mutex::default(),
            unwatched: Mutex::default(),
            hints,
            overflow: AtomicBool::new(false),
        });
        let (weak, root) = (Arc::downgrade(&this), root.to_owned());
        let made = Watcher::new(move |change| {
            let Some(this) = weak.upgrade() else { return };
            match change {
                Change::Written(path) | Change::Touched(path) => {
                    moved(&root, path).into_iter().for_each(|name| this.hint(name))
                }
                Change::Unknown => this.overflow.store(true, Ordering::Relaxed),
            }
        });
        match made {
            Ok(watcher) => *lock(&this.watcher) = Some(watcher),
            Err(error) => tracing::warn!(%error, "moves of refs are only seen by looking"),
        }
        (this, hinted)
    }

    /// Says that the refs of a repository may have moved.
    pub(crate) fn hint(&self, name: String) {
        if self.hints.try_send(name).is_err() {
            self.overflow.store(true, Ordering::Relaxed);
        }
    }

    /// Watches a repository from now on.
    pub(crate) fn watch(&self, hosted: &Hosted) {
        if !lock(&self.watched).insert(hosted.name.clone()) {
            return;
        }
        let watch = |watcher: &mut Watcher| places(hosted).iter().try_for_each(|place| watcher.watch(place));
        if !matches!(lock(&self.watcher).as_mut().map(watch), Some(Ok(()))) {
            tracing::debug!(repository = hosted.name, "it can't be watched, and is looked at often");
            lock(&self.unwatched).insert(hosted.name.clone());
            // `wait::refresh_moved` may sleep for longer than that.
            self.hint(hosted.name.clone());
        }
    }

    /// The repositories that can't be watched.
    pub(crate) fn unwatched(&self) -> Vec<String> {
        lock(&self.unwatched).iter().cloned().collect()
    }

    /// Whether hints were lost since this was asked last, so that any repository may have moved.
    pub(crate) fn take_overflow(&self) -> bool {
        self.overflow.swap(false, Ordering::Relaxed)
    }

    /// Watches a repository anew: what moved without a hint isn't what is watched, another directory took its place.
    pub(crate) fn watch_again(&self, hosted: &Hosted) {
        if lock(&self.watched).remove(&hosted.name)
            && let Some(watcher) = lock(&self.watcher).as_mut()
        {
            // It fails when what was watched is gone, which is as good.
            places(hosted).iter().for_each(|place| drop(watcher.unwatch(place)));
        }
        self.watch(hosted);
    }
}

/// Where branches are: in files of their own, and in `packed-refs`, which lies in the repository itself.
fn places(hosted: &Hosted) -> [PathBuf; 2] {
    [hosted.path.join(HEADS), hosted.path.clone()]
}

/// The repository whose branch a path is, or where several are. Lock files are none; that a ref's file went is only a hint, too.
fn moved(root: &Path, path: &Path) -> Option<String> {
    let inside = path.strip_prefix(root).ok()?;
    let is_lock = inside.extension().is_some_and(|ending| ending == "lock");
    let has_refs = |part: &OsStr| part == "refs" || part == PACKED_REFS;
    let name: PathBuf = inside.components().take_while(|part| !has_refs(part.as_os_str())).collect();
    (!is_lock && name.as_path() != inside).then(|| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_path_of_branches_is_a_hint() {
        let found = |path: &str| moved(Path::new("/home"), Path::new(path));
        assert_eq!(found("/home/devices/a.git/refs/heads/desired").as_deref(), Some("devices/a.git"));
        assert_eq!(found("/home/devices/a.git/packed-refs").as_deref(), Some("devices/a.git"));
        assert_eq!(found("/home/fleet.git/refs/heads/a/b").as_deref(), Some("fleet.git"));
        for other in ["refs/heads/desired.lock", "packed-refs.lock", "HEAD", "writer.lock", ".tmp-1-2"] {
            assert_eq!(found(&format!("/home/devices/a.git/{other}")), None, "{other}");
        }
        assert_eq!(found("/elsewhere/refs/x"), None);
    }
}
