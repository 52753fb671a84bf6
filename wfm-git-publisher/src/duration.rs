//! Durations as people write them in a fleet and in the publisher's settings: `15s`, `5m`, `1h30m`.

use repo_model::envelope::INTERVAL_SECONDS;
use repo_model::yaml::Field;

/// Reads a duration of 1 s to 24 h, in seconds.
pub(crate) fn read(field: Field<'_>) -> Option<u64> {
    let text = field.clone().string()?;
    match parse_duration(&text) {
        Some(seconds) if INTERVAL_SECONDS.contains(&seconds) => Some(seconds),
        Some(_) => field.fail(format!("`{text}` is out of range: 1s to 24h")),
        None => field.fail_hint(format!("`{text}` is not a duration"), "write it like 15s, 5m or 1h30m"),
    }
}

/// `1h30m`, `5m`, `15s`: each unit at most once, largest first.
pub(crate) fn parse_duration(text: &str) -> Option<u64> {
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
