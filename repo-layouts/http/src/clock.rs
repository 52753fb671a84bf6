//! The time that certificates, keys and proofs are judged by.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// The machine's clock, where it is plausible: not before a moment that is known to be over. Where it isn't, as at 1970
/// with an empty battery, the later of it and the floor counts, so that a host's certificate can still be judged. A
/// plausible clock knows no floor: one that was raised too far would let every certificate expire. Copies share the
/// floor.
#[derive(Clone)]
pub struct Clock {
    machine: fn() -> SystemTime,
    /// A clock before this is wrong; since 1970.
    earliest: Duration,
    /// Seconds since 1970; 0 where none was set.
    floor: Arc<AtomicU64>,
}

impl Default for Clock {
    fn default() -> Self {
        Self::of(SystemTime::now)
    }
}

impl Clock {
    /// A clock over another one than the machine's, which is always plausible.
    pub fn of(machine: fn() -> SystemTime) -> Self {
        Self { machine, earliest: Duration::ZERO, floor: Arc::default() }
    }

    /// The same clock, which isn't plausible before this moment, in seconds since 1970.
    pub fn plausible_from(self, seconds: u64) -> Self {
        Self { earliest: Duration::from_secs(seconds), ..self }
    }

    /// The earliest that it is while the machine's clock isn't plausible, in seconds since 1970.
    pub fn set_floor(&self, seconds: u64) {
        self.floor.store(seconds, Ordering::Relaxed);
    }

    /// Whether the machine's clock alone counts.
    pub fn is_plausible(&self) -> bool {
        self.machine() >= self.earliest
    }

    /// The present moment, since 1970: the machine's clock, or the floor where that isn't plausible and shows less.
    pub fn now(&self) -> Duration {
        let machine = self.machine();
        let floor = Duration::from_secs(self.floor.load(Ordering::Relaxed));
        if machine >= self.earliest { machine } else { machine.max(floor) }
    }

    fn machine(&self) -> Duration {
        (self.machine)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock").field("earliest", &self.earliest).field("floor", &self.floor).finish_non_exhaustive()
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.now()))
    }
}
