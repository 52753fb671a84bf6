//! Calling devices to come for a change, so that a publish of all is no herd.

use std::time::{Duration, Instant};

/// How many devices a second are called to come.
const CALLS_PER_SECOND: u32 = 300;

/// A queue of devices that were called, emptied at a steady rate.
#[derive(Debug)]
pub(crate) struct Calls {
    free_at: Instant,
}

impl Calls {
    pub(crate) fn new() -> Self {
        Self { free_at: Instant::now() }
    }

    /// How far behind the queue is with one more in it.
    pub(crate) fn call(&mut self, now: Instant) -> Duration {
        let backlog = self.free_at.saturating_duration_since(now);
        self.free_at = now + backlog + Duration::from_secs(1) / CALLS_PER_SECOND;
        backlog
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_herd_is_called_at_a_steady_rate_and_one_alone_at_once() {
        let now = Instant::now();
        let mut calls = Calls { free_at: now };
        assert_eq!(calls.call(now), Duration::ZERO);
        let last = (0..3 * CALLS_PER_SECOND).map(|_| calls.call(now)).last().unwrap();
        assert!(last > Duration::from_millis(2900) && last < Duration::from_millis(3100), "{last:?}");
        assert_eq!(calls.call(now + Duration::from_secs(60)), Duration::ZERO);
    }
}
