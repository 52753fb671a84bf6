//! How long to wait after a transient failure: jittered, exponential, capped.

use std::time::Duration;

use jiff::Timestamp;

/// The first wait.
pub const FIRST: Duration = Duration::from_secs(5);

/// The longest wait.
pub const LONGEST: Duration = Duration::from_secs(300);

/// The first wait for a host that doesn't let this device in, at most: a person has to do something there.
const FIRST_REFUSED: Duration = Duration::from_secs(120);

/// The longest wait for such a host.
const LONGEST_REFUSED: Duration = Duration::from_secs(900);

/// The wait after `failures` failures in a row, spread by `jitter` in `0.0..1.0` over the upper half of the interval.
pub fn wait(failures: u32, jitter: f64) -> Duration {
    doubled(FIRST, LONGEST, failures, jitter)
}

/// The wait after a host refused this device's key so many times in a row: 1 to 15 minutes, because each try is an alarm
/// in its log, and some hosts lock out whole sites for a few of them.
pub fn refused(times: u32, jitter: f64) -> Duration {
    doubled(FIRST_REFUSED, LONGEST_REFUSED, times, jitter)
}

fn doubled(first: Duration, longest: Duration, times: u32, jitter: f64) -> Duration {
    let doubled = first.saturating_mul(1 << times.saturating_sub(1).min(16));
    doubled.min(longest).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
}

/// A jitter from the noise of a clock's last digits.
pub fn jitter(now: Timestamp) -> f64 {
    f64::from(now.subsec_nanosecond().unsigned_abs() % 1_000_000) / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_comes_from_the_clock() {
        for (moment, expected) in [("00:00:00Z", 0.0), ("00:00:00.0005Z", 0.5), ("00:00:00.123999999Z", 0.999999)] {
            let now: Timestamp = format!("2026-01-01T{moment}").parse().unwrap();
            assert_eq!(jitter(now), expected);
        }
    }

    #[test]
    fn it_doubles_to_the_cap_within_its_spread() {
        for (failures, seconds) in [(1, 5.0), (2, 10.0), (3, 20.0), (6, 160.0), (7, 300.0), (1000, 300.0)] {
            assert_eq!(wait(failures, 1.0).as_secs_f64(), seconds);
            assert_eq!(wait(failures, 0.0).as_secs_f64(), seconds / 2.0);
        }
    }

    #[test]
    fn a_host_that_refuses_the_key_is_left_alone_for_1_to_15_minutes() {
        for (times, shortest, longest) in [(1, 60, 120), (2, 120, 240), (3, 240, 480), (4, 450, 900), (1000, 450, 900)]
        {
            let seconds = |jitter| refused(times, jitter).as_secs();
            assert_eq!((seconds(0.0), seconds(1.0)), (shortest, longest));
        }
    }
}
