//! Locks: within this process, and between processes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use repo_git::durable;

/// Waits until no other process changes what is in this directory, which is made if it isn't there; the lock ends with
/// the file that is returned. For changes that take milliseconds.
pub(crate) fn lock_dir(dir: &Path) -> io::Result<File> {
    durable::create_dir_all(dir, 0o700)?;
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(dir.join(".lock"));
    opened.and_then(|file| file.lock().map(|()| file))
}

/// A lock that is good even after a panic: what it guards is replaced whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
