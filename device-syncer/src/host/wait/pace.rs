//! How long a wait lasts, and when the next one may begin: learnt from how those before it ended.

use std::time::{Duration, Instant};

use crate::decision::backoff;

/// The first waits, and the shortest: what is broken off sooner wasn't cut for being idle.
const SHORTEST: Duration = Duration::from_secs(5);

/// The longest wait: whoever waits can't tell silence from a path that is gone.
const LONGEST: Duration = Duration::from_secs(40);

/// After so many waits that came back, a path that cut a longer one is tried with a longer one again.
const STEADY: u32 = 20;

/// A wait that ends sooner, with nothing, isn't one.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How many calls are followed at once, and how often another one is after that.
const CALLS: u32 = 10;
const CALL: Duration = Duration::from_secs(5);

/// What was learnt of waits on the path to this host.
#[derive(Debug)]
pub(super) struct Pace {
    /// How long the next wait lasts.
    length: Duration,
    /// The length of the last wait that came back; half of it, and `SHORTEST` at least, once a wait of that length was
    /// cut.
    good: Duration,
    /// Waits of this length in a row that came back.
    steady: u32,
    /// A wait was cut for being idle.
    cut: bool,
    /// Waits in a row that brought nothing.
    vain: u32,
    /// No wait begins before; absent until one brought nothing.
    resumes: Option<Instant>,
    /// When all calls are used up again that may be followed at once.
    calls: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { length: SHORTEST, good: SHORTEST, steady: 0, cut: false, vain: 0, resumes: None, calls: None }
    }
}

impl Pace {
    /// How long the next wait lasts at most.
    pub(super) fn length(&self) -> Duration {
        self.length
    }

    /// How long a wait may last that begins now, or when one may begin.
    pub(super) fn may_wait(&self, now: Instant) -> Result<Duration, Instant> {
        self.resumes.filter(|resumes| *resumes > now).map_or(Ok(self.length), Err)
    }

    /// A wait came back with nothing after this time; false if it didn't wait at all. Waits grow twofold, as long as
    /// none was cut.
    pub(super) fn came_back(&mut self, lasted: Duration) -> bool {
        if lasted < AT_ONCE {
            return false;
        }
        (self.vain, self.good, self.steady) = (0, self.length, self.steady + 1);
        let longer = match self.cut {
            false => self.length * 2,
            true if self.steady >= STEADY => self.length * 5 / 4,
            true => self.length,
        };
        self.grow(longer.min(LONGEST));
        true
    }

    /// A wait broke off after this time; false if that says nothing of how long one may last.
    pub(super) fn was_cut(&mut self, lasted: Duration) -> bool {
        if lasted < SHORTEST {
            return false;
        }
        self.cut = true;
        self.good = if self.length > self.good { self.good } else { (self.length / 2).max(SHORTEST) };
        self.grow(self.good);
        true
    }

    fn grow(&mut self, length: Duration) {
        if length != self.length {
            (self.length, self.steady) = (length, 0);
        }
    }

    /// A wait brought nothing but work; returns when the next one may begin.
    pub(super) fn vain(&mut self, now: Instant, jitter: f64) -> Instant {
        self.vain = self.vain.saturating_add(1);
        let resumes = now + backoff::wait(self.vain, jitter);
        self.resumes = Some(resumes);
        resumes
    }

    /// The host calls; returns when that is followed. Several in a row are at once, so that many quick changes arrive as
    /// they are made, and a host that calls all the time isn't asked in a circle.
    pub(super) fn called(&mut self, now: Instant) -> Instant {
        let used_up = self.calls.map_or(now, |calls| calls.max(now)) + CALL;
        self.calls = Some(used_up);
        now + used_up.saturating_duration_since(now + CALL * CALLS)
    }

    /// What a call was about was there.
    pub(super) fn was_right(&mut self) {
        self.vain = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Waits on a path that ends what is idle for this long, and how long each was to last, in seconds.
    fn waits(pace: &mut Pace, path: Duration, count: usize) -> Vec<u64> {
        let wait = |_| {
            let length = pace.length();
            let is_good = if length < path { pace.came_back(length) } else { pace.was_cut(path) };
            assert!(is_good);
            length.as_secs()
        };
        (0..count).map(wait).collect()
    }

    #[test]
    fn waits_grow_for_as_long_as_they_come_back() {
        let mut pace = Pace::default();
        assert_eq!(waits(&mut pace, 3600 * SECOND, 6), [5, 10, 20, 40, 40, 40]);
        assert!(LONGEST <= 45 * SECOND, "with the grace for an answer, a path that is gone is noticed within a minute");
    }

    #[test]
    fn a_path_that_ends_idle_connections_is_learnt_and_now_and_then_tried_again() {
        let mut pace = Pace::default();
        assert_eq!(waits(&mut pace, 30 * SECOND, 6), [5, 10, 20, 40, 20, 20]);
        let more = waits(&mut pace, 30 * SECOND, 200);
        let cut = more.iter().filter(|length| **length >= 30).count();
        assert!((1..=10).contains(&cut) && more.iter().all(|length| (20..40).contains(length)), "{more:?}");
        // The path changes.
        assert!(waits(&mut pace, 7 * SECOND, 6).ends_with(&[6, 6]));
        assert!(waits(&mut pace, 3600 * SECOND, 300).ends_with(&[40]));
    }

    #[test]
    fn what_brings_nothing_has_a_back_off_that_ends_with_what_does() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert!(!pace.was_cut(SECOND) && !pace.came_back(SECOND / 2));
        let pauses: Vec<_> = (0..8).map(|_| (pace.vain(now, 1.0) - now).as_secs()).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(pace.may_wait(now), Err(now + 300 * SECOND));
        pace.was_right();
        assert_eq!(pace.vain(now, 1.0), now + 5 * SECOND);
        assert_eq!(pace.may_wait(now + 5 * SECOND), Ok(SHORTEST));
    }

    #[test]
    fn a_host_that_calls_all_the_time_is_followed_some_times_at_once_and_then_now_and_then() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let follow: Vec<_> = (0..CALLS + 3).map(|_| (pace.called(now) - now).as_secs()).collect();
        assert_eq!(follow, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 10, 15]);
        let later = now + 3600 * SECOND;
        assert_eq!(pace.called(later), later);
    }
}
