//! The writer's lock of one repository.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::Repo;

/// Its name in the Git directory. The file stays; only the kernel's lock on it counts.
pub(super) const LOCK_FILE: &str = "writer.lock";

/// Held by the one process that writes; given up when dropped, and by the kernel when the process dies.
#[derive(Debug)]
pub struct RepoLock {
    pub(super) path: PathBuf,
    _file: File,
}

/// The lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process kept it for the whole waiting time.
    #[error("repository `{}` is being written by another process", path.display())]
    Busy {
        /// The Git directory.
        path: PathBuf,
    },
    /// The lock file could not be used.
    #[error("cannot lock `{}`", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Repo {
    /// Waits for the writer's lock.
    pub fn lock(&self) -> Result<RepoLock, LockError> {
        let lock = self.lock_file()?;
        self.flock(&lock, FlockOperation::LockExclusive)?;
        Ok(lock)
    }

    /// Waits for the writer's lock, at most `wait` long (zero: one try).
    pub fn try_lock(&self, wait: Duration) -> Result<RepoLock, LockError> {
        let lock = self.lock_file()?;
        let start = Instant::now();
        loop {
            match self.flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(lock),
                Err(LockError::Busy { .. }) if start.elapsed() < wait => sleep(Duration::from_millis(10)),
                Err(error) => return Err(error),
            }
        }
    }

    fn lock_file(&self) -> Result<RepoLock, LockError> {
        let file = self.path.join(LOCK_FILE);
        match OpenOptions::new().write(true).create(true).truncate(false).open(&file) {
            Ok(opened) => Ok(RepoLock { path: self.path.clone(), _file: opened }),
            Err(source) => Err(LockError::Io { path: file, source }),
        }
    }

    fn flock(&self, lock: &RepoLock, operation: FlockOperation) -> Result<(), LockError> {
        loop {
            match flock(&lock._file, operation) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return Err(LockError::Busy { path: self.path.clone() }),
                Err(error) => return Err(LockError::Io { path: self.path.join(LOCK_FILE), source: error.into() }),
            }
        }
    }
}
