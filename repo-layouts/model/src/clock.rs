//! How far clocks are believed.

use jiff::SignedDuration;

/// The furthest that the clocks of publisher and device may be apart before one of them must be wrong.
pub const SKEW: SignedDuration = SignedDuration::from_hours(24);
