//! The site's windows: when changes may be made on this device.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use repo_model::windows::{Opening, Rules, Spread};

/// What `gates.windows` of `device.yaml` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    /// By whose wall clock they begin.
    pub zone: TimeZone,
    /// When changes may be made.
    pub apply: Rules,
    /// When none are, because the device is known to be down.
    pub downtime: Rules,
}

/// What they say of the moment of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Openings {
    pub downtime: Opening,
    pub apply: Opening,
    /// Whether the device's clock shows less than a time that was proven: then nothing of it is believed.
    pub clock_is_behind: bool,
}

/// Of a site without windows: nothing waits.
impl Default for Openings {
    fn default() -> Self {
        Self { downtime: Opening::Open(None), apply: Opening::Open(None), clock_is_behind: false }
    }
}

impl Windows {
    /// What they say of `now`, by a clock that may be behind.
    pub fn at(&self, now: Timestamp, clock_is_behind: bool, spread: Spread) -> Openings {
        let downtime = self.downtime.at(now, &self.zone, Spread::NONE);
        Openings { downtime, apply: self.apply.at(now, &self.zone, spread), clock_is_behind }
    }

    /// When changes may be made from `now` on, the next `count` times: from when, and until when if that is known.
    pub fn next(&self, now: Timestamp, spread: Spread, count: usize) -> Vec<(Timestamp, Option<Timestamp>)> {
        let deny = [self.apply.deny.as_slice(), &self.downtime.deny].concat();
        let both = Rules { allow: self.apply.allow.clone(), deny };
        let (mut moment, mut times) = (now, Vec::new());
        while times.len() < count {
            match both.at(moment, &self.zone, spread) {
                Opening::Closed(opens) => moment = opens,
                Opening::NeverOpens => break,
                Opening::Open(until) => {
                    times.push((moment, until));
                    let Some(until) = until else { break };
                    moment = until;
                }
            }
        }
        times
    }
}
