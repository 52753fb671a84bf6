//! When a span begins: the five fields of cron, by the wall clock.

use std::str::FromStr;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

/// `minute hour day month weekday`, each `*`, a number, `a-b`, a list of them, or one with a step (`*/15`, `8-18/2`).
/// Weekdays count from Sunday as 0 or 7. Day and weekday aren't both restricted: cron reads that as either, and people as
/// both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Start {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
}

/// The text isn't when something begins.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no start, five fields of cron such as `0 2 * * 6`: {problem}")]
pub struct InvalidStart {
    text: String,
    problem: String,
}

impl FromStr for Start {
    type Err = InvalidStart;

    fn from_str(text: &str) -> Result<Self, InvalidStart> {
        let invalid = |problem: String| InvalidStart { text: text.to_owned(), problem };
        let fields: Vec<_> = text.split(' ').collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(invalid(format!("it has {} fields, with one space between two", fields.len())));
        };
        if days != "*" && weekdays != "*" {
            return Err(invalid("day and weekday are both restricted".to_owned()));
        }
        let read = |name: &str, field: &str, least: u8, most: u8| {
            let bits = bits(field, least, most);
            bits.ok_or_else(|| invalid(format!("{name} `{field}` isn't from {least} to {most}")))
        };
        let weekdays = read("weekday", weekdays, 0, 7)?;
        let start = Self {
            text: text.to_owned(),
            minutes: read("minute", minutes, 0, 59)?,
            hours: read("hour", hours, 0, 23)?,
            days: read("day", days, 1, 31)?,
            months: read("month", months, 1, 12)?,
            weekdays: weekdays | (weekdays >> 7),
        };
        let longest = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let comes =
            |month: &u8| start.months >> month & 1 == 1 && start.days << (63 - longest[*month as usize - 1]) != 0;
        if !(1..=12).any(|month| comes(&month)) {
            return Err(invalid("no month has such a day".to_owned()));
        }
        Ok(start)
    }
}

impl TryFrom<String> for Start {
    type Error = InvalidStart;

    fn try_from(text: String) -> Result<Self, InvalidStart> {
        text.parse()
    }
}

impl From<Start> for String {
    fn from(start: Start) -> Self {
        start.text
    }
}

impl std::fmt::Display for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Start {
    /// Whether it begins on that day at all.
    pub(super) fn is_on(&self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset();
        has(self.days, date.day()) && has(self.months, date.month()) && has(self.weekdays, weekday)
    }

    /// The hours and minutes at which it begins on such a day, in order.
    pub(super) fn times(&self) -> impl Iterator<Item = (i8, i8)> + '_ {
        let hours = (0..24).filter(|hour| has(self.hours, *hour));
        hours.flat_map(|hour| (0..60).filter(|minute| has(self.minutes, *minute)).map(move |minute| (hour, minute)))
    }
}

fn has(bits: u64, number: i8) -> bool {
    bits >> number & 1 == 1
}

/// The numbers of a field, as bits.
fn bits(field: &str, least: u8, most: u8) -> Option<u64> {
    let number = |text: &str| {
        let is_plain = (1..=2).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
        text.parse::<u8>().ok().filter(|number| is_plain && (least..=most).contains(number))
    };
    let part = |part: &str| {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse::<u8>().ok().filter(|step| (1..=most).contains(step))?),
            None => (part, 1),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (least, most),
            Some((first, last)) => (number(first)?, number(last)?),
            // A step needs a range that it goes through.
            None if part != range => return None,
            None => (number(range)?, number(range)?),
        };
        let numbers = (first..=last).step_by(step.into());
        (first <= last).then(|| numbers.fold(0, |bits, number| bits | 1 << number))
    };
    field.split(',').map(part).try_fold(0, |all, bits| Some(all | bits?))
}
