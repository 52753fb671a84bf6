//! Windows, of the fleet and of the site: when changes may be made on this device.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use repo_model::desired::Desired;
use repo_model::windows::{Opening, Overrun, Part, Rules, Spread, WindowsPolicy, meet};
use repo_model::{DeploymentId, IntoMap};

/// What one side says: `gates.windows` of `device.yaml`, or `windows` of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    /// By whose wall clock they begin.
    pub zone: TimeZone,
    /// When changes may be made.
    pub apply: Rules,
    /// When none are, because the device is known to be down. In one of the fleet's, of which the host knows, it isn't talked to.
    pub downtime: Rules,
    /// When what changes need is fetched, ahead of them; when they are made without.
    pub fetch: Option<Rules>,
    /// When the host is talked to.
    pub talk: Rules,
    /// How long before they close nothing begins any more.
    pub last_start: SignedDuration,
    /// How far what began goes on after they closed.
    pub overrun: Overrun,
}

/// Windows of the fleet, or the name of a zone that this device doesn't know.
pub type FleetWindows = Result<Windows, String>;

/// The windows that are in force on a device.
#[derive(Debug, Clone, Default)]
pub struct AllWindows {
    pub site: Option<Windows>,
    /// Of the fleet, for the whole device.
    pub fleet: Option<FleetWindows>,
    /// Of the fleet, for single deployments: in the place of those for the whole device.
    pub own: BTreeMap<DeploymentId, FleetWindows>,
}

/// Those that count for one deployment, or for whatever has none of its own.
#[derive(Debug, Clone, Copy)]
pub struct Counting<'a> {
    pub site: Option<&'a Windows>,
    pub fleet: Option<&'a FleetWindows>,
}

/// What they say of the moment of a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Openings {
    pub downtime: Opening,
    pub apply: Opening,
    /// When what changes need is fetched ahead of them; `None` where nobody says it, so that it is fetched when they are made.
    pub fetch: Option<Opening>,
    /// Why no window is believed to be open, if it is so.
    pub doubt: Option<Doubt>,
    pub whose: Whose,
    /// How far what began goes on after they closed: the stricter word of both sides.
    pub overrun: Overrun,
}

/// Why windows can't be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// The device's clock shows less than a time that was proven.
    ClockIsBehind,
    /// Nothing says that the device's clock is right.
    ClockIsUnsynchronised,
    /// Whether the device's clock is right can't be asked.
    ClockIsUnasked,
    /// The fleet's windows are meant by a clock that this device doesn't know.
    UnknownZone(String),
}

/// What the kernel says of the clock that it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelClock {
    Synchronised,
    Unsynchronised,
    /// It may not be asked here.
    Unasked,
}

/// Whose windows keep something closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Whose {
    #[default]
    Nobodys,
    Sites,
    Fleets,
    Both,
}

/// Where nobody has windows: nothing waits.
impl Default for Openings {
    fn default() -> Self {
        let (open, overrun) = (Opening::Open(None), Overrun::default());
        Self { downtime: open, apply: open, fetch: None, doubt: None, whose: Whose::Nobodys, overrun }
    }
}

impl Windows {
    /// Windows of the fleet, with the zone that is looked up by its name.
    fn of_fleet(policy: &WindowsPolicy, zone: impl Fn(&str) -> Option<TimeZone>) -> FleetWindows {
        let last_start = policy.last_start();
        let WindowsPolicy { zone: name, apply, downtime, fetch, talk, overrun, .. } = policy.clone();
        let Some(zone) = zone(&name) else { return Err(name) };
        Ok(Self { zone, apply, downtime: Rules::denied(downtime), fetch, talk, last_start, overrun })
    }
}

impl AllWindows {
    /// Those of the site beside those of the state in force; `zone` looks one up by its name.
    pub fn new(site: Option<Windows>, desired: Option<&Desired>, zone: impl Fn(&str) -> Option<TimeZone>) -> Self {
        let Some(desired) = desired else { return Self { site, ..Self::default() } };
        let of_fleet = |policy: &WindowsPolicy| Windows::of_fleet(policy, &zone);
        let own = desired.envelope.deployments.iter();
        let own = own.filter_map(|(id, one)| Some((*id, of_fleet(one.policy.windows.as_ref()?)))).into_map();
        Self { site, fleet: desired.envelope.policy.windows.as_ref().map(of_fleet), own }
    }

    /// Those that count for whatever has none of its own.
    pub fn of_device(&self) -> Counting<'_> {
        Counting { site: self.site.as_ref(), fleet: self.fleet.as_ref() }
    }

    /// Those that count for each deployment that has windows of its own.
    pub fn of_deployments(&self) -> impl Iterator<Item = (DeploymentId, Counting<'_>)> {
        self.own.iter().map(|(id, own)| (*id, Counting { site: self.site.as_ref(), fleet: Some(own) }))
    }
}

impl<'a> Counting<'a> {
    /// What they say of `now`, by a clock of which there may be a doubt.
    pub fn at(self, now: Timestamp, clock: Option<&Doubt>, spread: Spread) -> Openings {
        let clock = clock.filter(|_| self.whose() != Whose::Nobodys).cloned();
        let unknown = self.fleet.and_then(|fleet| fleet.as_ref().err());
        let doubt = clock.or_else(|| unknown.map(|zone| Doubt::UnknownZone(zone.clone())));
        let said = |parts: &[Part<'_>]| meet(parts, self.last_start(), now);
        let (apply, downtime) = (said(&self.apply(spread)), said(&self.downtime()));
        let fetch = self.fetch(spread).map(|parts| said(&parts));
        let overrun = self.sides().map(|side| side.overrun).max().unwrap_or_default();
        Openings { downtime, apply, fetch, doubt, whose: self.whose(), overrun }
    }

    /// When changes may be made from `now` on, the next `count` times: from when, and until when if that is known.
    pub fn next(self, now: Timestamp, spread: Spread, count: usize) -> Vec<(Timestamp, Option<Timestamp>)> {
        self.next_of(&[self.apply(spread), self.downtime()].concat(), now, count)
    }

    /// The same of when what changes need is fetched; `None` where that is when they are made.
    pub fn next_fetches(
        self,
        now: Timestamp,
        spread: Spread,
        count: usize,
    ) -> Option<Vec<(Timestamp, Option<Timestamp>)>> {
        let fetch = self.fetch(spread)?;
        Some(self.next_of(&[fetch, self.downtime()].concat(), now, count))
    }

    fn next_of(self, parts: &[Part<'_>], now: Timestamp, count: usize) -> Vec<(Timestamp, Option<Timestamp>)> {
        let (mut moment, mut times) = (now, Vec::new());
        while times.len() < count && !self.is_unknown() {
            match meet(parts, self.last_start(), moment) {
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

    /// When the host may be talked to again, if it may not now. Where windows can't be kept, or leave no time for it, it may:
    /// a device that is never heard again can't be told anything better.
    pub fn silent_until(
        self,
        now: Timestamp,
        clock: impl FnOnce() -> Option<Doubt>,
        spread: Spread,
    ) -> Option<Timestamp> {
        let fleet = self.fleet.and_then(|fleet| fleet.as_ref().ok());
        let talk = self.sides().map(|one| Part { rules: &one.talk, zone: &one.zone, spread });
        let downtime = fleet.map(|one| Part { rules: &one.downtime, zone: &one.zone, spread: Spread::NONE });
        let parts: Vec<_> = talk.chain(downtime).collect();
        if parts.iter().all(|part| part.rules.is_always()) || self.is_unknown() {
            return None;
        }
        meet(&parts, SignedDuration::ZERO, now).opens().filter(|_| clock().is_none())
    }

    pub fn whose(self) -> Whose {
        match (self.site, self.fleet) {
            (None, None) => Whose::Nobodys,
            (Some(_), None) => Whose::Sites,
            (None, Some(_)) => Whose::Fleets,
            (Some(_), Some(_)) => Whose::Both,
        }
    }

    /// Whether the fleet means a clock that this device doesn't know.
    pub fn is_unknown(self) -> bool {
        self.fleet.is_some_and(|fleet| fleet.is_err())
    }

    /// The windows of each side that has some, the site's first.
    pub fn sides(self) -> impl Iterator<Item = &'a Windows> {
        self.site.into_iter().chain(self.fleet.and_then(|fleet| fleet.as_ref().ok()))
    }

    /// How long before they close nothing begins any more, by the stricter side.
    pub fn last_start(self) -> SignedDuration {
        self.sides().map(|side| side.last_start).max().unwrap_or_default()
    }

    fn apply(self, spread: Spread) -> Vec<Part<'a>> {
        self.sides().map(|one| Part { rules: &one.apply, zone: &one.zone, spread }).collect()
    }

    /// A side that says nothing of fetching lets it be done when it lets changes be made: the other one can't open that.
    fn fetch(self, spread: Spread) -> Option<Vec<Part<'a>>> {
        let of = |one: &'a Windows| Part { rules: one.fetch.as_ref().unwrap_or(&one.apply), zone: &one.zone, spread };
        self.sides().any(|one| one.fetch.is_some()).then(|| self.sides().map(of).collect())
    }

    fn downtime(self) -> Vec<Part<'a>> {
        self.sides().map(|one| Part { rules: &one.downtime, zone: &one.zone, spread: Spread::NONE }).collect()
    }
}

impl Doubt {
    /// What there is to be said against a device's clock, if anything.
    pub fn of_clock(is_behind: bool, kernel: KernelClock) -> Option<Self> {
        match kernel {
            _ if is_behind => Some(Self::ClockIsBehind),
            KernelClock::Synchronised => None,
            KernelClock::Unsynchronised => Some(Self::ClockIsUnsynchronised),
            KernelClock::Unasked => Some(Self::ClockIsUnasked),
        }
    }

    /// What it means for who waits.
    pub fn message(&self) -> String {
        match self {
            Self::ClockIsBehind => {
                "this device's clock shows less than a time that was proven, so no window is believed to be open"
                    .to_owned()
            }
            Self::ClockIsUnsynchronised => {
                "the kernel doesn't say that this device's clock is synchronised, so no window is \
                believed to be open: have it kept by NTP, or say in device.yaml that it is right (`clock: {rtc: true}`)"
                    .to_owned()
            }
            Self::ClockIsUnasked => {
                "the syncer may not ask the kernel whether this device's clock is synchronised, so no window is \
                believed to be open: let its unit or container call `adjtimex`, or say in device.yaml that the \
                clock is right (`clock: {rtc: true}`)"
                    .to_owned()
            }
            Self::UnknownZone(zone) => {
                format!(
                    "this device doesn't know the time zone `{zone}` of the fleet's windows, so none of them is open"
                )
            }
        }
    }
}

/// For `by …`.
impl std::fmt::Display for Whose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nobodys => "nobody's windows",
            Self::Sites => "`gates.windows` of device.yaml",
            Self::Fleets => "the fleet's windows",
            Self::Both => "the fleet's windows and `gates.windows` of device.yaml together",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_downtime_of_the_fleet_closes_talk_and_one_of_the_sites_does_not() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let policy = r#"{"zone":"UTC","downtime":[{"start":"0 5 * * *","lengthSeconds":3600}]}"#;
        let fleet = Windows::of_fleet(&serde_json::from_str(policy).unwrap(), |_| Some(TimeZone::UTC));
        let site = fleet.clone().unwrap();
        let until = |site: Option<&Windows>, fleet: Option<&FleetWindows>, clock: Option<Doubt>| {
            Counting { site, fleet }.silent_until(at("2026-08-01T05:30:00Z"), || clock, Spread::NONE)
        };
        assert_eq!(until(None, Some(&fleet), None), Some(at("2026-08-01T06:00:00Z")));
        assert_eq!(until(None, Some(&fleet), Some(Doubt::ClockIsUnsynchronised)), None, "it can't be kept");
        assert_eq!(until(Some(&site), None, None), None, "its host would take it for offline");
        let talk = Windows { talk: Rules::denied(site.downtime.deny.clone()), ..site };
        assert_eq!(until(Some(&talk), None, None), Some(at("2026-08-01T06:00:00Z")), "who wants that says so");
    }

    #[test]
    fn a_clock_is_believed_where_nothing_is_against_it_and_only_who_has_windows_needs_one() {
        let (behind, unsynchronised) = (Some(Doubt::ClockIsBehind), Some(Doubt::ClockIsUnsynchronised));
        for (is_behind, kernel, doubt) in [
            (false, KernelClock::Synchronised, None),
            (false, KernelClock::Unsynchronised, unsynchronised.clone()),
            (false, KernelClock::Unasked, Some(Doubt::ClockIsUnasked)),
            (true, KernelClock::Synchronised, behind.clone()),
            (true, KernelClock::Unsynchronised, behind.clone()),
            (true, KernelClock::Unasked, behind),
        ] {
            assert_eq!(Doubt::of_clock(is_behind, kernel), doubt);
        }
        let now = Timestamp::UNIX_EPOCH;
        let nobodys = Counting { site: None, fleet: None };
        assert_eq!(nobodys.at(now, unsynchronised.as_ref(), Spread::NONE), Openings::default());
        let unknown: FleetWindows = Err("Mars/Base".to_owned());
        let fleets = Counting { site: None, fleet: Some(&unknown) };
        assert_eq!(fleets.at(now, unsynchronised.as_ref(), Spread::NONE).doubt, unsynchronised);
        assert_eq!(fleets.at(now, None, Spread::NONE).doubt, Some(Doubt::UnknownZone("Mars/Base".to_owned())));
    }
}
