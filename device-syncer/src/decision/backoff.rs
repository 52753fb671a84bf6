//! How long to wait after a transient failure: jittered, exponential, capped.

use std::time::Duration;

use jiff::Timestamp;

/// The most that is waited after the first failure.
pub const FIRST: Duration = Duration::from_secs(5);

/// The most that is ever waited.
pub const LONGEST: Duration = Duration::from_secs(300);

/// The wait after `failures` failures in a row, spread by `jitter` in `0.0..1.0` over the upper half of the interval.
pub fn wait(failures: u32, jitter: f64) -> Duration {
    let doubled = FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(LONGEST).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
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
}
