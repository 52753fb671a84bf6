//! The end of the time that one conversation has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Raises a flag, and does what else is to be done, when the time is up. Dropped before, it does nothing.
#[derive(Debug)]
pub(super) struct Deadline {
    /// Raised when the time is up; long computations look at it.
    pub(super) expired: Arc<AtomicBool>,
    watch: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl Deadline {
    pub(super) fn after(limit: Duration, at_end: impl FnOnce() + Send + 'static) -> Self {
        let expired = Arc::new(AtomicBool::new(false));
        let (stop, stopped) = mpsc::channel();
        let raised = Arc::clone(&expired);
        let watcher = thread::spawn(move || {
            if stopped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                raised.store(true, Ordering::SeqCst);
                at_end();
            }
        });
        Self { expired, watch: Some((stop, watcher)) }
    }

    pub(super) fn has_passed(&self) -> bool {
        self.expired.load(Ordering::SeqCst)
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let Some((stop, watcher)) = self.watch.take() {
            drop(stop);
            let _ = watcher.join();
        }
    }
}
