//! Restarts: what the fleet and persons at the device ask for, what began of it, and what is left of that. Pure.
//!
//! What is asked for stays asked for, and the device keeps what it has begun: so it is level-triggered, and a crash between two
//! containers loses neither of them. A container is known to be done by the moment of its start, which is another one then; so
//! none is restarted a second time, unless the crash came while the engine was at it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The restarts that are asked for of a deployment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestartsAsked {
    /// The number of the newest one that the fleet asks for; 0 where it never did.
    pub number: u64,
    /// When a person at the device asked for one, for as long as it isn't done.
    pub here: Option<Timestamp>,
}

/// Who asks for a restart that is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartCause {
    /// One that began isn't at its end.
    Unfinished,
    /// The fleet, by this number.
    Fleet(u64),
    /// A person at the device, at this moment.
    Person(Timestamp),
}

/// What began of a component, in `restarts.json` of the device state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restarts {
    /// The highest number of the fleet's that was begun, or that it had when it was installed.
    #[serde(default)]
    pub number: u64,
    /// The highest of these that is at its end, which the heartbeat says.
    #[serde(default)]
    pub done: u64,
    /// When the newest one was asked for that a person at the device wanted and that was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub here: Option<Timestamp>,
    /// The ids of the containers that are still to be restarted, with the moment of their start before that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left: BTreeMap<String, String>,
}

/// A container of what was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    pub container: String,
    /// The moment of its last start, as the engine says it.
    pub at: String,
    /// Whether it runs; one that came to its end is left at that.
    pub runs: bool,
}

impl std::fmt::Display for RestartCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unfinished => f.write_str("a restart that began is brought to its end"),
            Self::Fleet(number) => write!(f, "restart {number} of the fleet"),
            Self::Person(at) => write!(f, "a person at the device asked for a restart at {at:.0}"),
        }
    }
}

impl Restarts {
    /// Who asks for one that is to be done; a person only where they may.
    pub fn due(&self, asked: RestartsAsked, may_here: bool) -> Option<RestartCause> {
        let here = asked.here.filter(|at| may_here && self.here != Some(*at));
        if !self.left.is_empty() {
            Some(RestartCause::Unfinished)
        } else if let Some(at) = here {
            Some(RestartCause::Person(at))
        } else {
            (asked.number > self.number).then_some(RestartCause::Fleet(asked.number))
        }
    }
}
