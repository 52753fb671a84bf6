//! The writer's lock of one repository.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::Repo;

/// Its name in the Git directory. The file stays; only the kernel's lock on it counts.
pub(super) const LOCK_FILE: &str = "writer.lock";

/// Names the process group of a stock Git that writes under the lock; empty when there is none. It helps after a kill
/// only, so it isn't synced.
pub(super) const WRITER_FILE: &str = "writer.group";

/// Held by the one process that writes; given up when dropped, and by the kernel when the process dies.
#[derive(Debug)]
pub struct RepoLock {
    pub(super) path: PathBuf,
    _file: File,
}

impl RepoLock {
    /// Notes the process group of a stock Git, before it is given anything to write. If it is killed, what it leaves
    /// behind is cleared at once, and not when it is too old for anybody to be alive.
    pub fn note_writer(&self, group: u32) -> io::Result<()> {
        File::create(self.path.join(WRITER_FILE))?.write_all(group.to_string().as_bytes())
    }

    /// It ended by itself, and left nothing.
    pub fn forget_writer(&self) -> io::Result<()> {
        File::create(self.path.join(WRITER_FILE)).map(drop)
    }
}

/// The lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process kept it for the whole waiting time.
    #[error("repository `{}` is being written by another process", path.display())]
    Busy { path: PathBuf },
    /// The lock file could not be used.
    #[error("cannot lock `{}`", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Repo {
    /// Waits for the writer's lock, for as long as another process holds it.
    pub fn lock(&self) -> Result<RepoLock, LockError> {
        let lock = RepoLock::file(&self.path)?;
        lock.flock(FlockOperation::LockExclusive)?;
        Ok(lock)
    }

    /// Waits for the writer's lock, at most `wait` long (zero: one try).
    pub fn try_lock(&self, wait: Duration) -> Result<RepoLock, LockError> {
        RepoLock::take(&self.path, wait)
    }
}

impl RepoLock {
    /// Waits for the lock of the repository at `path`, at most `wait` long.
    pub(super) fn take(path: &Path, wait: Duration) -> Result<Self, LockError> {
        let lock = Self::file(path)?;
        let start = Instant::now();
        loop {
            match lock.flock(FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(lock),
                Err(LockError::Busy { .. }) if start.elapsed() < wait => sleep(Duration::from_millis(10)),
                Err(error) => return Err(error),
            }
        }
    }

    fn file(path: &Path) -> Result<Self, LockError> {
        let file = path.join(LOCK_FILE);
        match OpenOptions::new().write(true).create(true).truncate(false).open(&file) {
            Ok(opened) => Ok(Self { path: path.to_owned(), _file: opened }),
            Err(source) => Err(LockError::Io { path: file, source }),
        }
    }

    fn flock(&self, operation: FlockOperation) -> Result<(), LockError> {
        loop {
            match flock(&self._file, operation) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return Err(LockError::Busy { path: self.path.clone() }),
                Err(error) => return Err(LockError::Io { path: self.path.join(LOCK_FILE), source: error.into() }),
            }
        }
    }
}
