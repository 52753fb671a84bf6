//! `windows`: when devices may be changed, as operators write it.

use std::time::Duration;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use repo_model::windows::{Overrun, Rules, Span, WindowsPolicy, parse_length};
use repo_model::yaml::{Field, Reader};

use super::place::Place;
use crate::duration;

/// Windows, and where they are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    pub policy: WindowsPolicy,
    pub place: Place,
}

/// Reads `windows` of the fleet, a group, a device or a deployment.
pub(super) fn read(field: Field<'_>) -> Option<Windows> {
    let (place, whole) = (Place::of(&field), field.clone());
    let (policy, zone) = field.mapping(|reader: &mut Reader<'_>| {
        let zone = reader.required("zone", zone);
        let apply = reader.optional("apply", rules);
        let downtime = reader.optional("downtime", spans);
        let fetch = reader.optional("fetch", rules);
        let talk = reader.optional("talk", rules);
        let last_start = reader.optional("lastStart", duration::read);
        let words: Vec<_> = Overrun::TABLE.iter().map(|(word, _)| (word.as_str(), *word)).collect();
        let overrun = reader.optional("overrun", |field| field.choice(&words));
        let (name, zone) = zone?;
        let policy = WindowsPolicy {
            zone: name,
            apply: apply.unwrap_or_default(),
            downtime: downtime.unwrap_or_default(),
            fetch,
            talk: talk.unwrap_or_default(),
            last_start_seconds: last_start.and_then(|seconds| seconds.try_into().ok()),
            overrun: overrun.unwrap_or_default(),
        };
        Some((policy, zone))
    })?;
    if !policy.ever_opens(&zone) {
        let text = "there is a time from which on nothing may be changed, fetched, or said to the host, for 400 days";
        return whole.fail_hint(
            text,
            "allow more or longer, deny less, or write `suspended: true` if nothing shall be changed",
        );
    }
    Some(Windows { policy, place })
}

/// Reads those of a deployment: it is the device that talks to its host.
pub(super) fn of_deployment(field: Field<'_>) -> Option<Windows> {
    let windows = read(field.clone())?;
    match windows.policy.talk.is_always() {
        true => Some(windows),
        false => field
            .fail("has `talk`, which is for whole devices: it stands in `policy` of the fleet, a group or a device"),
    }
}

/// A zone by its name. It is looked up among those that this program brings along, so that a fleet is judged alike everywhere.
fn zone(field: Field<'_>) -> Option<(String, TimeZone)> {
    let name = field.clone().string()?;
    match known_zone(&name) {
        Some(zone) => Some((name, zone)),
        None => field.fail(format!("`{name}` is no time zone such as Europe/Vienna")),
    }
}

fn known_zone(name: &str) -> Option<TimeZone> {
    TimeZoneDatabase::bundled().get(name).ok()
}

/// For how long a device may say nothing at most, whatever its windows let it.
const MONTH: Duration = Duration::from_hours(31 * 24);

/// Whether a device that came to be heard so long ago says nothing: it may for `patience`, and one that its windows let say nothing
/// for as long again from when they open.
pub(crate) fn is_silent(windows: Option<&WindowsPolicy>, silent: Duration, patience: Duration, now: Timestamp) -> bool {
    silent > MONTH || is_overdue(windows, silent, patience, now)
}

/// Whether a device that is on would have been heard of by now.
fn is_overdue(windows: Option<&WindowsPolicy>, silent: Duration, patience: Duration, now: Timestamp) -> bool {
    let Some(late) = silent.checked_sub(patience).filter(|late| !late.is_zero()) else { return false };
    let due = now.checked_sub(late).unwrap_or(Timestamp::MIN);
    let opens = windows.and_then(|windows| talks_again(windows, due));
    opens.is_none_or(|opens| {
        now.duration_since(opens) > SignedDuration::try_from(patience).unwrap_or(SignedDuration::MAX)
    })
}

/// When a device with these windows talks to its host again, of a moment at which it doesn't.
pub(crate) fn talks_again(policy: &WindowsPolicy, now: Timestamp) -> Option<Timestamp> {
    policy.talks_again(&known_zone(&policy.zone)?, now)
}

fn rules(field: Field<'_>) -> Option<Rules> {
    field.mapping(|reader| {
        let allow = reader.optional("allow", |field| {
            let spans = spans(field.clone())?;
            if spans.is_empty() {
                return field.fail_hint("is empty, so nothing would ever be allowed", "leave it out, or write when");
            }
            Some(spans)
        });
        let deny = reader.optional("deny", spans);
        Some(Rules { allow: allow.unwrap_or_default(), deny: deny.unwrap_or_default() })
    })
}

fn spans(field: Field<'_>) -> Option<Vec<Span>> {
    field.list(|field| {
        field.mapping(|reader| {
            let start = reader.required("start", Field::parse);
            let length = reader.required("length", |field| {
                let text = field.clone().string()?;
                parse_length(&text).map_or_else(|error| field.fail(error), Some)
            });
            Some(Span { start: start?, length: length? })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_counts_as_silence_in_which_it_may_talk() {
        let now = "2027-03-10T12:30:00Z".parse().expect("a moment");
        let (hour, day) = (Duration::from_hours(1), Duration::from_hours(24));
        let is = |windows: Option<&WindowsPolicy>, heard, most| is_silent(windows, heard, most, now);
        assert!(!is(None, Duration::from_secs(3000), hour) && is(None, Duration::from_secs(5000), hour));
        assert!(!is(None, Duration::ZERO, hour));
        let talks = |start: &str| {
            let text = format!(r#"{{"zone":"UTC","talk":{{"allow":[{{"start":"{start}","lengthSeconds":3600}}]}}}}"#);
            serde_json::from_str::<WindowsPolicy>(&text).expect("windows")
        };
        // One hour of each day, which began half an hour ago.
        let daily = talks("0 12 * * *");
        assert!(!is(Some(&daily), day, 2 * hour));
        assert!(is(Some(&daily), 3 * day, 2 * hour));
        // It is down, and has been so for half an hour of two.
        let down = r#"{"zone":"UTC","downtime":[{"start":"0 12 * * *","lengthSeconds":7200}]}"#;
        let down = serde_json::from_str::<WindowsPolicy>(down).expect("windows");
        assert!(!is(Some(&down), Duration::from_secs(5000), hour) && is(Some(&down), 3 * hour, hour));
        // One hour of the year.
        let yearly = talks("0 12 1 7 *");
        assert!(!is(Some(&yearly), 20 * day, hour), "it may not");
        assert!(is(Some(&yearly), 32 * day, hour), "nobody may be away for so long");
    }
}
