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

/// Whether a device that is on would have been heard of by now: it may say nothing for `patience`, and one that its windows let say
/// nothing for as long again from when they open.
pub(crate) fn is_overdue(
    windows: Option<&WindowsPolicy>,
    silent: Duration,
    patience: Duration,
    now: Timestamp,
) -> bool {
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
