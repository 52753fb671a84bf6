//! Windows: when something may be done, by the wall clock of a place.
//!
//! A span begins where the wall clock shows its start, and lasts for its length, which is time that passes: also over a
//! change of the clock. A start that the clock leaps over in spring begins where it leaps; one that comes twice in autumn
//! counts the first time.

mod policy;
mod start;

use std::iter::Peekable;

use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, SpanRelativeTo, Timestamp};
use serde::{Deserialize, Deserializer};
use sha2::{Digest as _, Sha256};

pub use self::policy::{Overrun, WindowsPolicy};
pub use self::start::{InvalidStart, Start};
use crate::DeviceId;

/// The longest span.
const MAX_LENGTH: SignedDuration = SignedDuration::from_hours(7 * 24);

/// How far ahead an opening is searched for. What doesn't open until then never does, as far as anybody plans.
pub const HORIZON: SignedDuration = SignedDuration::from_hours(400 * 24);

/// The latest that a device begins after its window opened.
const MAX_DELAY: SignedDuration = SignedDuration::from_mins(10);

/// A time that comes again, by the wall clock of the zone that the rules are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    pub start: Start,
    /// At least a minute, and at most 7 days.
    #[serde(deserialize_with = "length")]
    pub length: SignedDuration,
}

/// When one thing may be done: in any of `allow`, or always where there is none, and never in any of `deny`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    #[serde(deserialize_with = "not_empty")]
    pub allow: Vec<Span>,
    pub deny: Vec<Span>,
}

/// What rules say of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// It may be done, up to this moment; `None` if that is further away than [`HORIZON`].
    Open(Option<Timestamp>),
    /// It may be done from this moment on.
    Closed(Timestamp),
    /// It may not be done, however long somebody waits.
    NeverOpens,
}

impl Opening {
    /// When what is closed opens by itself, if it does.
    pub fn opens(self) -> Option<Timestamp> {
        match self {
            Self::Closed(opens) => Some(opens),
            Self::Open(_) | Self::NeverOpens => None,
        }
    }
}

/// How much later than others a device begins, so that not all of them do at once: the same share of each window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread(u32);

impl Spread {
    /// A device's own share, from a digest of its id: the same at each window.
    pub fn of(device: &DeviceId) -> Self {
        let digest = Sha256::digest(device.as_str());
        Self(u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
    }

    /// The longest delay that a device may have.
    pub const LATEST: Self = Self(u32::MAX);

    /// No delay, for spans that aren't spread over devices.
    pub const NONE: Self = Self(0);

    /// At most 10 minutes and a tenth of the window.
    fn delay(self, length: SignedDuration) -> SignedDuration {
        let most = MAX_DELAY.min(length / 10).as_secs();
        SignedDuration::from_secs((most * i64::from(self.0)) >> 32)
    }
}

impl Rules {
    /// Nothing may be done in these.
    pub fn denied(deny: Vec<Span>) -> Self {
        Self { allow: Vec::new(), deny }
    }

    /// Whether something may be done at any time.
    pub fn is_always(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// What they say of `now` in a zone.
    pub fn at(&self, now: Timestamp, zone: &TimeZone, spread: Spread) -> Opening {
        meet(&[Part { rules: self, zone, spread }], SignedDuration::ZERO, now)
    }
}

/// Rules that count beside others: something may be done when all of them let it.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    pub rules: &'a Rules,
    /// By whose wall clock they are meant.
    pub zone: &'a TimeZone,
    /// Of what they allow; what they deny is denied from its start.
    pub spread: Spread,
}

/// What several rules say together of `now`: it has to be in a span that each of them allows, in none that any denies, and
/// not so shortly before the end of that as `last_start`.
pub fn meet(parts: &[Part<'_>], last_start: SignedDuration, now: Timestamp) -> Opening {
    let end = now.saturating_add(HORIZON).unwrap_or(Timestamp::MAX);
    let denies = parts.iter().flat_map(|part| part.rules.deny.iter().map(|span| (span, part.zone)));
    let mut deny: Vec<_> = denies.map(|(span, zone)| span.times(now, end, zone, Spread::NONE).peekable()).collect();
    let restricted = parts.iter().filter(|part| !part.rules.allow.is_empty());
    let mut allow: Vec<Vec<_>> = restricted
        .map(|Part { rules, zone, spread }| {
            rules.allow.iter().map(|span| span.times(now, end, zone, *spread).peekable()).collect()
        })
        .collect();
    let mut moment = now;
    while moment < end {
        let denied = deny.iter_mut().filter_map(|times| covered(times, moment)).max();
        let next = match denied {
            Some(end) => Some(end),
            None => {
                let shut = allow.iter_mut().find_map(|spans| {
                    let is_open = spans.iter_mut().any(|times| covered(times, moment).is_some());
                    (!is_open).then(|| spans.iter_mut().filter_map(|times| times.peek().map(|(start, _)| *start)).min())
                });
                match shut {
                    Some(next) => next,
                    None => {
                        let until = stays_open(&mut allow, &mut deny, moment, end);
                        match until.unwrap_or(end) {
                            sure if sure.duration_since(moment) < last_start => Some(sure),
                            _ if moment > now => return Opening::Closed(moment),
                            _ => return Opening::Open(until),
                        }
                    }
                }
            }
        };
        let Some(next) = next else { break };
        moment = next;
    }
    Opening::NeverOpens
}

/// Until when it may be done from a moment on at which it may; `None` if that is beyond the horizon.
fn stays_open<I: Iterator<Item = (Timestamp, Timestamp)>>(
    allow: &mut [Vec<Peekable<I>>],
    deny: &mut [Peekable<impl Iterator<Item = (Timestamp, Timestamp)>>],
    moment: Timestamp,
    end: Timestamp,
) -> Option<Timestamp> {
    let denied = deny.iter_mut().filter_map(|times| times.peek().map(|(start, _)| *start)).min();
    let denied = denied.filter(|start| *start < end);
    let mut until = moment;
    // What ends after `until` is kept: it counts for who goes on from there.
    while until < end && denied.is_none_or(|start| until < start) {
        let allowed = allow.iter_mut().map(|spans| spans.iter_mut().filter_map(|times| covered(times, until)).max());
        match allowed.map(|allowed| allowed.unwrap_or(until)).min() {
            Some(further) if further > until => until = further,
            Some(_) => return Some(until),
            None => return denied,
        }
    }
    denied.into_iter().chain([until]).min().filter(|until| *until < end)
}

/// As people write it: `0 2 * * 6 for 4h`.
impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} for {:#}", self.start, self.length)
    }
}

impl Span {
    /// Each time that it covers from `from` to `to`, in order; what overlaps or touches is one.
    fn times(
        &self,
        from: Timestamp,
        to: Timestamp,
        zone: &TimeZone,
        spread: Spread,
    ) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let (length, delay) = (self.length, spread.delay(self.length));
        // A start of the day before may be later, where a place changed its day.
        let first = from.saturating_sub(length + SignedDuration::from_hours(48)).unwrap_or(Timestamp::MIN);
        let first = zone.to_datetime(first).date();
        let days = std::iter::successors(Some(first), |date: &Date| date.tomorrow().ok());
        let starts = days.filter(|date| self.start.is_on(*date)).flat_map(move |date| {
            let times = self.start.times().map(move |(hour, minute)| date.at(hour, minute, 0, 0));
            times.filter_map(|time| begins(time, zone)).collect::<Vec<_>>()
        });
        let times = starts
            .take_while(move |start| *start < to)
            .filter_map(move |start| Some((start, start.checked_add(length).ok()?)));
        let begun = move |(start, end): (Timestamp, _)| (start.saturating_add(delay).unwrap_or(end), end);
        Merged(times.peekable()).map(begun).skip_while(move |(_, end)| *end <= from)
    }
}

/// When a wall clock shows this, for the first time; where it leaps over it, when it leaps.
fn begins(time: jiff::civil::DateTime, zone: &TimeZone) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(time).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(time).ok(),
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(time).ok(),
        AmbiguousOffset::Gap { before, .. } => {
            let after = before.to_timestamp(time).ok()?.checked_add(SignedDuration::from_secs(1)).ok()?;
            zone.preceding(after).next().map(|transition| transition.timestamp())
        }
    }
}

/// Until when one of these times covers a moment; what ended before goes.
fn covered<I: Iterator<Item = (Timestamp, Timestamp)>>(
    times: &mut Peekable<I>,
    moment: Timestamp,
) -> Option<Timestamp> {
    while times.next_if(|(_, end)| *end <= moment).is_some() {}
    times.peek().filter(|(start, _)| *start <= moment).map(|(_, end)| *end)
}

struct Merged<I: Iterator>(Peekable<I>);

impl<I: Iterator<Item = (Timestamp, Timestamp)>> Iterator for Merged<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let (start, mut end) = self.0.next()?;
        while let Some((_, later)) = self.0.next_if(|(start, _)| *start <= end) {
            end = end.max(later);
        }
        Some((start, end))
    }
}

/// Reads how long a span is: `30m`, `4h`, `7d`.
pub fn parse_length(text: &str) -> Result<SignedDuration, String> {
    let length = text.parse().ok().and_then(|span: jiff::Span| {
        let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
        is_length(length).then_some(length)
    });
    length.ok_or_else(|| format!("length `{text}` isn't from 1m to 7d, such as 30m or 4h"))
}

fn is_length(length: SignedDuration) -> bool {
    (SignedDuration::from_mins(1)..=MAX_LENGTH).contains(&length)
}

fn length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SignedDuration, D::Error> {
    parse_length(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Span>, D::Error> {
    let allow = Vec::deserialize(deserializer)?;
    let problem = "`allow` is empty, so nothing would ever be allowed: leave it out, or write when";
    if allow.is_empty() { Err(serde::de::Error::custom(problem)) } else { Ok(allow) }
}

#[cfg(test)]
mod tests;
