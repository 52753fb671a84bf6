//! How long a proof of freshness counts, and when it is renewed.

use jiff::Timestamp;
use repo_model::freshness::LIFE;

/// How long a proof of freshness counts, in seconds; it is renewed at half of that.
pub const FRESH_FOR: i64 = LIFE.as_secs();

/// How far a clock may be set back before proofs of freshness are made anew for that, in seconds.
const SET_BACK: i64 = 60 * 60;

/// Whether a proof of freshness that is renewed then is one now: a clock that was ahead made those that are renewed later
/// than any can be, and no device believes them.
pub(super) fn is_fresh(renew_at: i64, now: Timestamp) -> bool {
    (1..=FRESH_FOR / 2 + SET_BACK).contains(&renew_at.saturating_sub(now.as_second()))
}

/// Whether something that was signed then can have been, by this clock.
pub(super) fn can_be_now(issued: Timestamp, now: Timestamp) -> bool {
    issued.as_second().saturating_sub(now.as_second()) <= SET_BACK
}
