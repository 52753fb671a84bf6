//! What operators say about a device's behaviour, in durations that people read.

use repo_model::envelope::DevicePolicy;
use repo_model::yaml::{Field, Reader};

use super::file::refuse_unbuilt;

/// What a device does when neither `fleet.yaml` nor its own file says anything.
pub(super) const DEFAULT: DevicePolicy =
    DevicePolicy { poll_seconds: Some(15), report_seconds: Some(300), suspended: false };

/// Under a second a device would do nothing else; over a day it would look dead.
const RANGE: std::ops::RangeInclusive<u64> = 1..=86_400;

/// Keys that `architecture.md` promises and that later versions understand.
const UNBUILT: &[&str] =
    &["jitter", "period", "windows", "applyWindows", "prefetchWindows", "downtime", "approval", "massRemoval"];

pub(super) fn read(field: Field<'_>) -> Option<DevicePolicy> {
    field.mapping(|reader: &mut Reader<'_>| {
        let poll_seconds = reader.optional("poll", duration);
        let report_seconds = reader.optional("report", duration);
        refuse_unbuilt(reader, UNBUILT);
        Some(DevicePolicy { poll_seconds, report_seconds, suspended: false })
    })
}

/// The policy with what it doesn't say taken from `base`.
pub(super) fn over(policy: &DevicePolicy, base: &DevicePolicy) -> DevicePolicy {
    DevicePolicy {
        poll_seconds: policy.poll_seconds.or(base.poll_seconds),
        report_seconds: policy.report_seconds.or(base.report_seconds),
        suspended: policy.suspended || base.suspended,
    }
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
