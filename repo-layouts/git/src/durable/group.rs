//! Group commit: the syncs of threads that work side by side are put together.
//!
//! A thread in a [`Group`] still waits until what it wrote is on the disk; only who makes it so is shared. A round begins once the
//! one before is over and half of the threads wait for it: so each is for many, and there are others that work meanwhile. Who is
//! held up elsewhere is waited for for a moment only. A round of few files syncs each of them, a round of many syncs their whole
//! file system once.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::syncfs;

/// How long a round waits for half of the threads.
const PATIENCE: Duration = Duration::from_millis(10);

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
    patience: Duration,
    state: Mutex<State>,
    /// Where the thread that leads the next round waits until it can begin.
    next: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How many threads work in the group.
    threads: usize,
    is_syncing: bool,
    /// How many threads wait for the next round.
    waiting: usize,
    /// What it syncs.
    files: Vec<File>,
    /// Where they hear what came of it.
    round: Arc<Round>,
}

/// What came of a round.
type Round = OnceLock<Result<(), (io::ErrorKind, String)>>;

impl State {
    fn is_half(&self) -> bool {
        self.waiting >= self.threads.div_ceil(2)
    }
}

impl Group {
    /// A group for what lies on the file system of this directory. Up to `few` files are synced one by one, because a
    /// whole file system may have more to write than what is ours.
    pub fn new(dir: &Path, few: usize) -> io::Result<Arc<Self>> {
        let volume = File::open(dir)?;
        let device = volume.metadata()?.dev();
        Ok(Arc::new(Self { volume, device, few, patience: PATIENCE, state: Mutex::default(), next: Condvar::new() }))
    }

    /// Does `work`; whatever it syncs in this thread is synced by the group.
    pub fn within<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        self.state().threads += 1;
        let _member = Member { group: self, before: GROUP.replace(Some(Arc::clone(self))) };
        work()
    }

    /// Joins the next round, and leads it if it is the first that does.
    fn sync(&self, files: Vec<File>) -> io::Result<()> {
        let mut state = self.state();
        state.files.extend(files);
        state.waiting += 1;
        let round = Arc::clone(&state.round);
        if state.waiting > 1 {
            let is_half = state.is_half();
            drop(state);
            if is_half {
                self.next.notify_one();
            }
        } else {
            let since = Instant::now();
            while state.is_syncing || !state.is_half() && since.elapsed() < self.patience {
                let woken = self.next.wait_timeout(state, self.patience);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
            }
            let next = State { threads: state.threads, is_syncing: true, ..State::default() };
            let files = std::mem::replace(&mut *state, next).files;
            drop(state);
            let done = self.sync_now(&files);
            self.state().is_syncing = false;
            self.next.notify_one();
            let _ = round.set(done.map_err(|error| (error.kind(), error.to_string())));
        }
        let done = round.wait().clone();
        done.map_err(|(kind, message)| io::Error::new(kind, message))
    }

    fn sync_now(&self, files: &[File]) -> io::Result<()> {
        if files.len() > self.few { Ok(syncfs(&self.volume)?) } else { sync_each(files) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that works in a group, until it is dropped.
struct Member<'a> {
    group: &'a Group,
    before: Option<Arc<Group>>,
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        GROUP.set(self.before.take());
        self.group.state().threads -= 1;
        // With it gone, those who wait may be half.
        self.group.next.notify_one();
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
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn everyone_in_a_group_comes_back() {
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
            assert!(state.threads == 0 && state.waiting == 0 && state.files.is_empty(), "{state:?}");
        }
    }

    #[test]
    fn a_round_waits_for_half_of_those_who_work_and_for_a_moment_only() {
        let dir = tempfile::tempdir().unwrap();
        let mut group = Group::new(dir.path(), 10).unwrap();
        for (patience, is_for_half) in [(Duration::from_secs(3600), true), (PATIENCE, false)] {
            Arc::get_mut(&mut group).unwrap().patience = patience;
            let (go, work) = mpsc::channel::<()>();
            let (work, done) = (Mutex::new(work), AtomicUsize::new(0));
            let is_done = |count| {
                let mut looks = std::iter::repeat_with(|| done.load(Ordering::SeqCst)).take(500);
                looks.any(|found| {
                    std::thread::sleep(Duration::from_millis(10));
                    found == count
                })
            };
            std::thread::scope(|scope| {
                for _ in 0..5 {
                    scope.spawn(|| {
                        group.within(|| {
                            let _ = work.lock().unwrap().recv();
                            sync(vec![File::open(dir.path()).unwrap()]).unwrap();
                            done.fetch_add(1, Ordering::SeqCst);
                        });
                    });
                }
                while group.state().threads < 5 {
                    std::thread::yield_now();
                }
                (0..2).for_each(|_| go.send(()).unwrap());
                if is_for_half {
                    std::thread::sleep(Duration::from_millis(100));
                    assert_eq!(done.load(Ordering::SeqCst), 0, "two of five wait");
                } else {
                    assert!(is_done(2));
                }
                go.send(()).unwrap();
                assert!(is_done(3));
                drop(go);
            });
            assert_eq!(done.into_inner(), 5, "one is half of the two that were left");
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
        assert!(GROUP.with_borrow(Option::is_none) && group.state().threads == 0);
    }
}
