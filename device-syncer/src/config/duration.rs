//! Durations as a person writes them.

use std::time::Duration;

/// `15s`, `5m`, `1h`, `1h30m`.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let span: jiff::SignedDuration = text.parse().ok()?;
    Duration::try_from(span).ok()
}
