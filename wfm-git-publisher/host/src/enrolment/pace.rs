//! How often something may be done: so many a second, and some at once.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How many a second on average, and how many at once after a rest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) per_second: u32,
    pub(super) burst: u32,
}

/// How much of its burst somebody used up, as the time in which it comes back.
#[derive(Debug, Clone, Copy)]
struct Used {
    until: Instant,
}

/// The same pace for each of many, of whom only those are remembered who used any of it.
#[derive(Debug)]
pub(super) struct Paces<K> {
    pace: Pace,
    used: HashMap<K, Used>,
    /// The most that are remembered; anybody else has to wait until one of them is forgotten.
    most: usize,
}

impl<K: Hash + Eq> Paces<K> {
    pub(super) fn new(pace: Pace, most: usize) -> Self {
        Self { pace, used: HashMap::new(), most }
    }

    /// Takes one; where that would be too often, says after which time it isn't.
    pub(super) fn take(&mut self, key: K, now: Instant) -> Result<(), Duration> {
        let each = Duration::from_secs(1) / self.pace.per_second;
        if self.used.len() >= self.most && !self.used.contains_key(&key) {
            self.used.retain(|_, used| used.until > now);
            if self.used.len() >= self.most {
                return Err(each * self.pace.burst);
            }
        }
        let until = self.used.get(&key).map_or(now, |used| used.until.max(now)) + each;
        match (until - now).checked_sub(each * self.pace.burst) {
            Some(late) if late > Duration::ZERO => Err(late),
            _ => {
                self.used.insert(key, Used { until });
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_at_once_and_then_so_many_a_second_for_each() {
        let mut paces = Paces::new(Pace { per_second: 2, burst: 3 }, 10);
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert!((0..3).all(|_| paces.take("a", at(0)).is_ok()));
        assert_eq!(paces.take("a", at(0)), Err(Duration::from_millis(500)));
        assert_eq!(paces.take("b", at(0)), Ok(()));
        assert_eq!(paces.take("a", at(499)), Err(Duration::from_millis(1)));
        assert_eq!(paces.take("a", at(500)), Ok(()));
        assert_eq!(paces.take("a", at(500)), Err(Duration::from_millis(500)));
        // Whoever rests gets no more than the burst.
        assert!((0..3).all(|_| paces.take("a", at(60_000)).is_ok()));
        paces.take("a", at(60_000)).unwrap_err();
    }

    #[test]
    fn no_more_are_remembered_than_may_be_and_those_at_rest_are_forgotten() {
        let mut paces = Paces::new(Pace { per_second: 1, burst: 5 }, 2);
        let start = Instant::now();
        for key in [1, 2] {
            paces.take(key, start).unwrap();
        }
        assert_eq!(paces.take(3, start), Err(Duration::from_secs(5)));
        assert_eq!(paces.take(1, start), Ok(()));
        assert_eq!(paces.take(3, start + Duration::from_secs(1)), Ok(()));
        assert_eq!(paces.used.len(), 2);
    }
}
