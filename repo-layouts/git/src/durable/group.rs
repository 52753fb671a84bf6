//! Group commit: the syncs of threads that work side by side are put together.
//!
//! A thread in a [`Group`] still waits until what it wrote is on the disk; only who makes it so is shared. While one
//! round of syncing is under way, whoever comes waits for the next one. A round of few files syncs each of them, a
//! round of many syncs their whole file system once.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::syncfs;

thread_local! {
    static GROUP: RefCell<Option<Arc<Group>>> = const { RefCell::new(None) };
}

/// Threads whose syncs are put together, on one file system.
#[derive(Debug)]
pub struct Group {
    /// Open since before anything was written, so that its sync reports every write that failed (Linux 5.8).
    volume: File,
    device: u64,
    few: usize,
    state: Mutex<State>,
    /// Where the threads of the rounds with even and odd numbers wait.
    over: [Condvar; 2],
}

#[derive(Debug, Default)]
struct State {
    /// What the next round syncs.
    files: Vec<File>,
    /// How many rounds have begun.
    begun: u64,
    /// How many are over; at most one more is under way.
    over: u64,
    /// The rounds that failed; a healthy disk has none.
    failed: Vec<(u64, io::ErrorKind, String)>,
}

impl Group {
    /// A group for what lies on the file system of this directory. Up to `few` files are synced one by one, because a
    /// whole file system may have more to write than what is ours.
    pub fn new(dir: &Path, few: usize) -> io::Result<Arc<Self>> {
        let volume = File::open(dir)?;
        let device = volume.metadata()?.dev();
        Ok(Arc::new(Self { volume, device, few, state: Mutex::default(), over: Default::default() }))
    }

    /// Does `work`; whatever it syncs in this thread is synced by the group.
    pub fn within<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        let before = GROUP.replace(Some(Arc::clone(self)));
        let done = work();
        GROUP.set(before);
        done
    }

    /// Joins the next round, and leads it if nobody else does.
    fn sync(&self, files: Vec<File>) -> io::Result<()> {
        let mut state = self.state();
        state.files.extend(files);
        let mine = state.begun + 1;
        while state.over < mine {
            if state.begun > state.over {
                state = self.over_of(mine).wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.begun += 1;
            let files = std::mem::take(&mut state.files);
            drop(state);
            let done = self.sync_now(&files);
            state = self.state();
            state.over = mine;
            state.failed.extend(done.err().map(|error| (mine, error.kind(), error.to_string())));
            self.over_of(mine).notify_all();
            // Whoever came meanwhile waits for the next round: one of them leads it.
            self.over_of(mine + 1).notify_one();
        }
        match state.failed.iter().find(|(round, ..)| *round == mine) {
            Some((_, kind, message)) => Err(io::Error::new(*kind, message.clone())),
            None => Ok(()),
        }
    }

    fn over_of(&self, round: u64) -> &Condvar {
        &self.over[usize::from(round % 2 == 1)]
    }

    fn sync_now(&self, files: &[File]) -> io::Result<()> {
        if files.len() > self.few { Ok(syncfs(&self.volume)?) } else { sync_each(files) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Syncs files and directories, by the group of this thread if there is one.
pub(super) fn sync(files: Vec<File>) -> io::Result<()> {
    let Some(group) = GROUP.with_borrow(Clone::clone) else { return sync_each(&files) };
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| file.metadata().is_ok_and(|meta| meta.dev() == group.device));
    sync_each(&elsewhere)?;
    if here.is_empty() { Ok(()) } else { group.sync(here) }
}

fn sync_each(files: &[File]) -> io::Result<()> {
    files.iter().try_for_each(File::sync_all)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn everyone_in_a_group_comes_back_and_nobody_syncs_for_others_twice() {
        let dir = tempfile::tempdir().unwrap();
        for few in [0, 3, 1000] {
            let group = Group::new(dir.path(), few).unwrap();
            let done = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for _ in 0..20 {
                    scope.spawn(|| {
                        group.within(|| {
                            for _ in 0..10 {
                                sync(vec![File::open(dir.path()).unwrap()]).unwrap();
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                        });
                    });
                }
            });
            assert_eq!(done.into_inner(), 200);
            let state = group.state();
            assert!(state.begun == state.over && state.over <= 200 && state.files.is_empty(), "{state:?}");
        }
    }

    #[test]
    fn a_round_that_fails_fails_for_all_who_were_in_it_and_for_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let group = Group::new(dir.path(), 10).unwrap();
        // A socket can't be synced.
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(socket));
        assert!(group.sync(vec![file]).is_err());
        assert!(group.sync(vec![File::open(dir.path()).unwrap()]).is_ok());
    }

    #[test]
    fn a_thread_leaves_its_group_when_its_work_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let group = Group::new(dir.path(), 0).unwrap();
        group.within(|| sync(vec![File::open(dir.path()).unwrap()])).unwrap();
        sync(vec![File::open(dir.path()).unwrap()]).unwrap();
        assert_eq!(group.state().over, 1);
    }
}
