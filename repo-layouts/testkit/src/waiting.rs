//! Waiting for what must come: long enough for machines under load, and without keeping them busy.

use std::time::{Duration, Instant};

/// Waits until something is so, and tells whether it came within this time.
///
/// A look may cost a `git`, a `docker` or a `helm`. So the pause between two is four times what the last one took, and grows
/// with the time that went by, to a quarter of a second.
pub fn comes_within(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    loop {
        let look = Instant::now();
        if is_so() {
            return true;
        }
        let waited = begin.elapsed();
        if waited >= limit {
            return false;
        }
        std::thread::sleep(pause(waited, look.elapsed()));
    }
}

fn pause(waited: Duration, look: Duration) -> Duration {
    (waited / 16).max(4 * look).clamp(Duration::from_millis(5), Duration::from_millis(250))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_takes_a_fifth_of_the_time_at_most_and_four_a_second_are_enough() {
        let millis = Duration::from_millis;
        assert_eq!(pause(millis(1), millis(1)), millis(5));
        assert_eq!(pause(millis(100), millis(20)), millis(80));
        assert_eq!(pause(millis(1600), millis(1)), millis(100));
        assert_eq!(pause(Duration::from_secs(60), millis(1)), millis(250));
    }

    #[test]
    fn what_comes_is_seen_and_what_does_not_is_told() {
        let mut left = 3;
        assert!(comes_within(Duration::from_secs(60), || {
            left -= 1;
            left == 0
        }));
        assert!(!comes_within(Duration::from_millis(20), || false));
    }
}
