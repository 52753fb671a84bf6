//! The fleet's windows, as an envelope has them.

use std::fmt;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Opening, Part, Rules, Span, Spread, Start, is_length, meet};
use crate::words::words;

/// `policy.windows` of a device or of one of its deployments. What a reader doesn't know of it would be kept wrongly, so
/// nothing else may be in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WindowsPolicy {
    /// By whose wall clock they are meant: a name of the IANA database. Where a device doesn't know it, they are closed.
    pub zone: String,
    /// When changes may be made.
    #[serde(default, skip_serializing_if = "Rules::is_always", with = "rules")]
    pub apply: Rules,
    /// When none are, because the device is known to be down: it talks as little, and fetches nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "spans")]
    pub downtime: Vec<Span>,
    /// When what changes need is fetched: charts, archives and images, ahead of the changes. Without it they are fetched when they
    /// are applied.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "some_rules")]
    pub fetch: Option<Rules>,
    /// When the device talks to its host: it polls, waits and pushes at no other time. Of a deployment it means nothing.
    #[serde(default, skip_serializing_if = "Rules::is_always", with = "rules")]
    pub talk: Rules,
    /// Nothing begins so many seconds before they close; up to the last moment without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_start_seconds: Option<u32>,
    /// What becomes of what is at work when they close.
    #[serde(default, skip_serializing_if = "Overrun::is_deployment")]
    pub overrun: Overrun,
}

words! {
    /// How far what began goes on after its windows closed, from the least strict to the strictest.
    Overrun {
        Deployment "deployment" "To the end of its deployment."
        Component "component" "To the end of its component; the next one waits for a window."
    }
}

impl Overrun {
    fn is_deployment(&self) -> bool {
        *self == Self::Deployment
    }
}

#[expect(clippy::derivable_impls, reason = "the words are made by a macro")]
impl Default for Overrun {
    fn default() -> Self {
        Self::Deployment
    }
}

impl<'de> Deserialize<'de> for Overrun {
    /// A word that isn't known means the least action.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = serde_json::Value::deserialize(deserializer)?;
        Ok(word.as_str().and_then(Self::parse).unwrap_or(Self::Component))
    }
}

/// The first moments of four years, one of them a leap year.
const YEARS: [&str; 4] =
    ["2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"];

impl WindowsPolicy {
    /// When the device talks to its host again, of a moment at which it doesn't.
    pub fn talks_again(&self, zone: &TimeZone, now: Timestamp) -> Option<Timestamp> {
        let rules = [&self.talk, &Rules::denied(self.downtime.clone())];
        let parts = rules.map(|rules| Part { rules, zone, spread: Spread::LATEST });
        meet(&parts, SignedDuration::ZERO, now).opens()
    }

    /// How long before they close nothing begins any more.
    pub fn last_start(&self) -> SignedDuration {
        SignedDuration::from_secs(self.last_start_seconds.unwrap_or_default().into())
    }

    /// Whether changes may be made, what they need be fetched, and the host be talked to, at some time within 400 days on each device, whenever somebody
    /// begins to wait. It is judged from the beginnings of four years, so that the same windows are always judged alike.
    pub fn ever_opens(&self, zone: &TimeZone) -> bool {
        let downtime = Rules::denied(self.downtime.clone());
        let fetch = self.fetch.as_ref().unwrap_or(&self.apply);
        let said = [(&self.apply, self.last_start()), (fetch, self.last_start()), (&self.talk, SignedDuration::ZERO)];
        let opens = |year| {
            said.iter().all(|(rules, last_start)| {
                let parts = [*rules, &downtime].map(|rules| Part { rules, zone, spread: Spread::LATEST });
                meet(&parts, *last_start, year) != Opening::NeverOpens
            })
        };
        YEARS.iter().filter_map(|year| year.parse::<Timestamp>().ok()).all(opens)
    }
}

/// In one line, for people.
impl fmt::Display for WindowsPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |spans: &[Span]| spans.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let Self { zone, apply, downtime, .. } = self;
        write!(f, "{zone}")?;
        if apply.is_always() {
            write!(f, ", at any time")?;
        }
        for (what, spans) in [("in", &apply.allow), ("not in", &apply.deny), ("down in", downtime)] {
            if !spans.is_empty() {
                write!(f, ", {what} {}", listed(spans))?;
            }
        }
        if let Some(fetch) = &self.fetch {
            let any = if fetch.is_always() { ", fetches at any time" } else { "" };
            write!(f, "{any}")?;
            for (what, spans) in [("fetches in", &fetch.allow), ("fetches nothing in", &fetch.deny)] {
                if !spans.is_empty() {
                    write!(f, ", {what} {}", listed(spans))?;
                }
            }
        }
        for (what, spans) in [("talks in", &self.talk.allow), ("never in", &self.talk.deny)] {
            if !spans.is_empty() {
                write!(f, ", {what} {}", listed(spans))?;
            }
        }
        if self.last_start_seconds.is_some() {
            write!(f, ", begun {:#} before the end at the latest", self.last_start())?;
        }
        if self.overrun != Overrun::Deployment {
            write!(f, ", overrun by one {}", self.overrun)?;
        }
        Ok(())
    }
}

/// A span as an envelope has it: without units to be read.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SpanPolicy {
    start: Start,
    /// From a minute to 7 days.
    length_seconds: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesPolicy {
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "spans")]
    allow: Vec<Span>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "spans")]
    deny: Vec<Span>,
}

mod spans {
    use super::*;

    pub(super) fn serialize<S: Serializer>(spans: &[Span], serializer: S) -> Result<S::Ok, S::Error> {
        let written =
            |Span { start, length }: &Span| SpanPolicy { start: start.clone(), length_seconds: length.as_secs() };
        serializer.collect_seq(spans.iter().map(written))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Span>, D::Error> {
        let read = |SpanPolicy { start, length_seconds }| {
            let length = SignedDuration::from_secs(length_seconds);
            let wrong = || serde::de::Error::custom(format!("lengthSeconds {length_seconds} isn't from 60 to 604800"));
            is_length(length).then_some(Span { start, length }).ok_or_else(wrong)
        };
        Vec::<SpanPolicy>::deserialize(deserializer)?.into_iter().map(read).collect()
    }
}

mod rules {
    use super::*;

    pub(super) fn serialize<S: Serializer>(rules: &Rules, serializer: S) -> Result<S::Ok, S::Error> {
        let Rules { allow, deny } = rules.clone();
        RulesPolicy { allow, deny }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rules, D::Error> {
        let RulesPolicy { allow, deny } = RulesPolicy::deserialize(deserializer)?;
        Ok(Rules { allow, deny })
    }
}

mod some_rules {
    use super::*;

    pub(super) fn serialize<S: Serializer>(rules: &Option<Rules>, serializer: S) -> Result<S::Ok, S::Error> {
        match rules {
            Some(rules) => super::rules::serialize(rules, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Rules>, D::Error> {
        super::rules::deserialize(deserializer).map(Some)
    }
}
