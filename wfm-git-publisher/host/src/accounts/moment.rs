//! Moments as the accounts' files have them.

use jiff::Timestamp;

/// The moment in whole seconds.
pub(super) fn whole(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}
