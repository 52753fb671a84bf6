//! What operators say about a device's behaviour, in durations that people read.

use repo_model::yaml::{Field, Reader};

use super::file::refuse_unbuilt;
use super::place::Place;

/// What `fleet.yaml`, a group or a device says about a device's behaviour; an absent key leaves it to whoever is below.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// How often to ask for news.
    pub poll: Option<Seconds>,
    /// How often to report.
    pub report: Option<Seconds>,
}

/// So many seconds, and where they are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seconds(pub u64, pub Place);

/// How often to ask for news when nobody says anything.
pub(super) const POLL: u64 = 15;

/// How often to report then.
pub(super) const REPORT: u64 = 300;

/// Under a second a device would do nothing else; over a day it would look dead.
const RANGE: std::ops::RangeInclusive<u64> = 1..=86_400;

/// Keys that `architecture.md` promises and that later versions understand.
const UNBUILT: &[&str] =
    &["jitter", "period", "windows", "applyWindows", "prefetchWindows", "downtime", "approval", "massRemoval"];

pub(super) fn read(field: Field<'_>) -> Option<Policy> {
    field.mapping(|reader: &mut Reader<'_>| {
        let (poll, report) = (reader.optional("poll", seconds), reader.optional("report", seconds));
        refuse_unbuilt(reader, UNBUILT);
        Some(Policy { poll, report })
    })
}

fn seconds(field: Field<'_>) -> Option<Seconds> {
    let place = Place::of(&field);
    Some(Seconds(duration(field)?, place))
}

/// Reads a duration of 1 s to 24 h, in seconds.
pub fn duration(field: Field<'_>) -> Option<u64> {
    let text = field.clone().string()?;
    match parse_duration(&text) {
        Some(seconds) if RANGE.contains(&seconds) => Some(seconds),
        Some(_) => field.fail(format!("`{text}` is out of range: 1s to 24h")),
        None => field.fail_hint(format!("`{text}` is not a duration"), "write it like 15s, 5m or 1h30m"),
    }
}

/// `1h30m`, `5m`, `15s`: each unit at most once, largest first.
fn parse_duration(text: &str) -> Option<u64> {
    let (mut rest, mut total) = (text, 0u64);
    for (unit, seconds) in [('h', 3600), ('m', 60), ('s', 1)] {
        if let Some((number, after)) = rest.split_once(unit) {
            if number.is_empty() || number.len() > 6 || !number.bytes().all(|c| c.is_ascii_digit()) {
                return None;
            }
            total += number.parse::<u64>().ok()? * seconds;
            rest = after;
        }
    }
    (rest.is_empty() && !text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::parse_duration;

    #[test]
    fn durations_read_as_people_write_them() {
        for (text, seconds) in [("15s", 15), ("5m", 300), ("1h30m", 5400), ("1h", 3600), ("2m5s", 125)] {
            assert_eq!(parse_duration(text), Some(seconds), "{text}");
        }
        for bad in ["", "15", "s", "5s2m", "1.5h", "-1s", "1d", "5 m", "5m5m", "9999999s"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }
}
