//! The time that certificates are judged by.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// The machine's clock, but never before the newest moment that the caller has proof of: a device whose clock went back
/// to 1970 can still tell that its host's certificate is valid. Copies share the floor.
#[derive(Clone)]
pub struct Clock {
    /// Seconds since 1970.
    floor: Arc<AtomicU64>,
    machine: fn() -> SystemTime,
}

impl Default for Clock {
    fn default() -> Self {
        Self::of(SystemTime::now)
    }
}

impl Clock {
    /// A clock over another one than the machine's.
    pub fn of(machine: fn() -> SystemTime) -> Self {
        Self { floor: Arc::default(), machine }
    }

    /// Time is never before this moment, in seconds since 1970, from now on.
    pub fn raise_floor(&self, seconds: u64) {
        self.floor.fetch_max(seconds, Ordering::Relaxed);
    }

    fn now(&self) -> Duration {
        let machine = (self.machine)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        machine.max(Duration::from_secs(self.floor.load(Ordering::Relaxed)))
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock").field("floor", &self.floor).finish_non_exhaustive()
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.now()))
    }
}
