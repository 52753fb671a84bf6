//! Durations as a person writes them.

use std::time::Duration;

pub fn parse_duration(text: &str) -> Option<Duration> {
    let span: jiff::SignedDuration = text.parse().ok()?;
    Duration::try_from(span).ok()
}
