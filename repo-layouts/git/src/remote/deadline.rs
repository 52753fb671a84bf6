//! The end of the time that one conversation has.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Raises a flag, and does what else is to be done, when the time is up. Dropped before, it does nothing.
#[derive(Debug)]
pub(super) struct Deadline {
    /// Raised when the time is up; long computations look at it.
    pub(super) expired: Arc<AtomicBool>,
    /// Raised with it if it was silence that took too long.
    silent: Arc<AtomicBool>,
    watch: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

/// When a byte went either way last. Copies share it.
#[derive(Debug, Clone)]
pub(super) struct Activity(Arc<Mutex<Instant>>);

impl Activity {
    pub(super) fn now() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(super) fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn last(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deadline {
    pub(super) fn after(limit: Duration, at_end: impl FnOnce() + Send + 'static) -> Self {
        Self::watching(limit, None, at_end)
    }

    /// After `limit`, or when no byte went either way for as long as `silence` says.
    pub(super) fn watching(
        limit: Duration,
        silence: Option<(Duration, Activity)>,
        at_end: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (expired, silent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (stop, stopped) = mpsc::channel();
        let (raised, hushed) = (Arc::clone(&expired), Arc::clone(&silent));
        let begin = Instant::now();
        let watcher = thread::spawn(move || {
            loop {
                let left = limit.saturating_sub(begin.elapsed());
                let heard = silence.as_ref().map(|(longest, last)| longest.saturating_sub(last.last().elapsed()));
                if left.is_zero() || heard.is_some_and(|heard| heard.is_zero()) {
                    hushed.store(!left.is_zero(), Ordering::SeqCst);
                    raised.store(true, Ordering::SeqCst);
                    return at_end();
                }
                if stopped.recv_timeout(heard.map_or(left, |heard| heard.min(left))) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        Self { expired, silent, watch: Some((stop, watcher)) }
    }

    pub(super) fn has_passed(&self) -> bool {
        self.expired.load(Ordering::SeqCst)
    }

    /// Whether it passed because of silence.
    pub(super) fn was_silent(&self) -> bool {
        self.silent.load(Ordering::SeqCst)
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
