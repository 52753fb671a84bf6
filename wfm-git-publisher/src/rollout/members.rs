//! The members of a rollout as they stand at a look.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use repo_model::margo::State;
use repo_model::{DeploymentName, DeviceId, Digest};

use super::evidence::{Evidence, Report};
use super::facts::{Difference, Facts, Standing};
use super::meaning::Meaning;
use super::record::{Member, Record, Released};
use super::state::{Case, DeviceState, Judged, is_silent};
use crate::fleet::{Fleet, RolloutRule};

/// The members who are still in it: not those who left the fleet, and of those who aren't released not those for whom nothing
/// differs any more.
#[derive(Debug)]
pub(super) struct Members<'a> {
    pub(super) held: BTreeMap<&'a DeviceId, &'a Member>,
    pub(super) released: BTreeMap<&'a DeviceId, (&'a Member, Released)>,
    /// Those who aren't released and were in the middle of something else when they became members, whether anything still
    /// differs for them or not; with since when.
    pub(super) changing: BTreeMap<&'a DeviceId, (&'a Member, Timestamp)>,
}

/// What the fleet means for a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meant {
    /// What it shall have by the record.
    Want,
    /// What it had.
    Had,
    /// What it had before a change that this one comes in the place of.
    Before,
    Other,
    /// That isn't known now, so that it counts as the first.
    Unknown,
}

/// What it has of these deployments, and what it shall have.
pub(super) fn both(
    differences: &BTreeMap<DeploymentName, Difference>,
    deployments: &BTreeSet<DeploymentName>,
) -> (Option<Meaning>, Option<Meaning>) {
    let combined = |side: fn(&Difference) -> Option<Digest>| {
        let ours = differences.iter().filter(|(name, _)| deployments.contains(*name));
        Meaning::of(ours.filter_map(|(name, one)| Some((name, side(one)?))))
    };
    (combined(|one| one.had), combined(|one| one.want))
}

/// Why something of these deployments can't be published for a device.
fn blocked<'a>(
    differences: &'a BTreeMap<DeploymentName, Difference>,
    deployments: &BTreeSet<DeploymentName>,
) -> Option<&'a String> {
    let mut ours = differences.iter().filter(|(name, _)| deployments.contains(*name));
    ours.find_map(|(_, one)| one.blocked.as_ref())
}

/// What the fleet means for a member by how it stands.
pub(super) fn meant(record: &Record, member: &Member, standing: &Standing, is_released: bool) -> Meant {
    let Standing::Compared { deployments, .. } = standing else {
        return match standing {
            // Its tip is what the fleet means.
            Standing::Complete if !is_released => Meant::Had,
            Standing::Unknown(_) => Meant::Unknown,
            _ => Meant::Want,
        };
    };
    if blocked(deployments, &record.state.deployments).is_some() {
        return Meant::Unknown;
    }
    let (_, want) = both(deployments, &record.state.deployments);
    let is_before = member.before.as_ref() == Some(&want);
    if is_before && !is_released {
        Meant::Before
    } else if want == member.want {
        Meant::Want
    } else if want == member.had && !member.back {
        Meant::Had
    } else if is_before {
        Meant::Before
    } else {
        Meant::Other
    }
}

/// Whether a released device is still in it: it didn't leave the fleet, and nothing else is meant for it.
pub(super) fn is_in_it(record: &Record, facts: &Facts<'_>, device: &DeviceId) -> bool {
    let member = record.members.get(device).filter(|_| facts.has(device));
    member.is_some_and(|member| meant(record, member, facts.standing(device), true) != Meant::Other)
}

/// Whether the tip of a member who isn't released is neither what it had nor what it shall have: it was lost, restored, or
/// somebody else wrote it.
pub(super) fn is_lost(record: &Record, member: &Member, standing: &Standing, facts: &Facts<'_>) -> bool {
    let Standing::Compared { deployments, .. } = standing else { return false };
    let (has, _) = both(deployments, &record.state.deployments);
    has != member.had && has != member.want && at_once(record, member, standing, facts).is_empty()
}

/// What a device has of these deployments once what goes at once is there.
pub(super) fn once_there(
    differences: &BTreeMap<DeploymentName, Difference>,
    deployments: &BTreeSet<DeploymentName>,
    fleet: &Fleet,
) -> Option<Meaning> {
    let side = |(name, one): (&DeploymentName, &Difference)| {
        let digest = if goes_at_once(name, one, fleet) { one.want } else { one.had };
        Some((name.clone(), digest?))
    };
    let ours = differences.iter().filter(|(name, _)| deployments.contains(*name));
    let there: BTreeMap<_, _> = ours.filter_map(side).collect();
    Meaning::of(there.iter().map(|(name, digest)| (name, *digest)))
}

fn goes_at_once(name: &DeploymentName, one: &Difference, fleet: &Fleet) -> bool {
    one.is_open() && fleet.rollout_rule(name) == Some(&RolloutRule::AtOnce)
}

/// What of a rollout's deployments goes at once to a member that isn't released, because a person says so of something else than what
/// the rollout brings: it joined for that, and by the record has it already. Nothing else of it goes: `rollout: none` alone
/// releases nothing that a rollout holds.
pub(super) fn at_once(
    record: &Record,
    member: &Member,
    standing: &Standing,
    facts: &Facts<'_>,
) -> BTreeSet<DeploymentName> {
    let Standing::Compared { deployments, .. } = standing else { return BTreeSet::new() };
    let ours = &record.state.deployments;
    let (has, _) = both(deployments, ours);
    if has == member.had || once_there(deployments, ours, facts.fleet) != member.had {
        return BTreeSet::new();
    }
    let open = deployments.iter().filter(|(name, one)| ours.contains(*name) && goes_at_once(name, one, facts.fleet));
    open.map(|(name, _)| name.clone()).collect()
}

/// Whether a device has of the rollout's deployments all that is meant for it.
fn has_all(record: &Record, standing: &Standing) -> bool {
    let Standing::Compared { deployments, .. } = standing else { return *standing == Standing::Complete };
    let (has, want) = both(deployments, &record.state.deployments);
    has == want
}

/// Whether the fleet means for every member what it had: nobody waits for the change, and whoever got it goes back. One that has
/// nothing gets what all others have, and one may have something else already.
pub(super) fn is_reverted(record: &Record, facts: &Facts<'_>) -> bool {
    let released = record.released();
    let is_bare = |device| matches!(facts.standing(device), Standing::Compared { is_bare: true, .. });
    let mut members = record.members.iter().filter(|(device, _)| facts.has(device) && !is_bare(device));
    members.all(|(device, member)| {
        let standing = facts.standing(device);
        match meant(record, member, standing, released.contains_key(device)) {
            Meant::Had | Meant::Before => true,
            Meant::Want => member.back,
            Meant::Other => has_all(record, standing),
            Meant::Unknown => false,
        }
    })
}

impl<'a> Members<'a> {
    pub(super) fn of(record: &'a Record, facts: &Facts<'_>) -> Self {
        let mut members = Self { held: BTreeMap::new(), released: BTreeMap::new(), changing: BTreeMap::new() };
        let released = record.released();
        for (device, member) in record.members.iter().filter(|(device, _)| facts.has(device)) {
            let standing = facts.standing(device);
            if let (None, Some(since)) = (released.get(device), member.since) {
                members.changing.insert(device, (member, since));
            }
            match released.get(device) {
                Some(how) if meant(record, member, standing, true) != Meant::Other => {
                    members.released.insert(device, (member, *how));
                }
                None if differs(record, member, standing) => _ = members.held.insert(device, member),
                _ => {}
            }
        }
        members
    }

    /// How many there are; those who go back don't count.
    pub(super) fn count(&self) -> usize {
        self.held.len() + self.count_released()
    }

    /// Who was released with a wave and proves something of the change: not those who go back, nor those whom a person
    /// hastened.
    pub(super) fn proving(&self) -> impl Iterator<Item = (&'a DeviceId, Released)> {
        let proves = |(member, how): &(&Member, Released)| !member.back && !how.promoted;
        self.released.iter().filter(move |(_, one)| proves(one)).map(|(device, (_, how))| (*device, *how))
    }

    /// The number of the newest wave of which somebody is left who proves something; `None` if there is nobody.
    pub(super) fn newest_wave(&self) -> Option<u32> {
        self.proving().map(|(_, how)| how.wave).max()
    }

    /// How many are released.
    pub(super) fn count_released(&self) -> usize {
        self.released.values().filter(|(member, _)| !member.back).count()
    }
}

/// Whether the change is still to come for a member who isn't released.
fn differs(record: &Record, member: &Member, standing: &Standing) -> bool {
    let Standing::Compared { deployments, .. } = standing else { return *standing != Standing::Complete };
    let (has, want) = both(deployments, &record.state.deployments);
    match meant(record, member, standing, false) {
        Meant::Unknown => true,
        Meant::Want => has != want,
        Meant::Had | Meant::Before | Meant::Other => false,
    }
}

/// What whoever is released is before its `desired` has the change.
pub(super) fn published_now() -> Judged {
    Judged { state: DeviceState::Updating, why: "is published now".to_owned(), again: None }
}

/// What a released member is.
pub(super) fn judge(
    record: &Record,
    facts: &Facts<'_>,
    device: &DeviceId,
    (member, released): (&Member, Released),
    now: Timestamp,
) -> Judged {
    let plain = |state, why: String| Judged { state, why, again: None };
    if let Some(why) = facts.not_pushed.get(device) {
        return plain(DeviceState::Blocked, why.clone());
    }
    match facts.standing(device) {
        Standing::Unknown(why) => return plain(DeviceState::Blocked, why.clone()),
        Standing::Compared { deployments, .. } => {
            let (has, _) = both(deployments, &record.state.deployments);
            if has != member.want {
                return match blocked(deployments, &record.state.deployments) {
                    Some(why) => plain(DeviceState::Blocked, why.clone()),
                    None => published_now(),
                };
            }
        }
        Standing::Complete | Standing::AsHeld => {}
    }
    let (evidence, policy) = ((facts.evidence)(record, device), &record.state.policy);
    let report_seconds = facts.fleet.report_seconds(device);
    Case { policy, report_seconds, released, want: member.want.as_ref(), evidence: &evidence, now }.judge()
}

/// What a member that isn't released is by what it had, in the middle of which it was; `None` if it is `updated` with that, or got
/// what it shall have in another way.
pub(super) fn judge_before(
    record: &Record,
    facts: &Facts<'_>,
    device: &DeviceId,
    (member, since): (&Member, Timestamp),
    now: Timestamp,
) -> Option<Judged> {
    if let Standing::Compared { deployments, .. } = facts.standing(device) {
        let (has, _) = both(deployments, &record.state.deployments);
        if has == member.want {
            return None;
        }
        if has != member.had {
            let why = "its `desired` isn't what it had".to_owned();
            return Some(Judged { state: DeviceState::Blocked, why, again: None });
        }
    }
    let before = Member { want: member.had.clone(), ..member.clone() };
    let released = Released { wave: 0, at: since, was_failing: false, promoted: false };
    let judged = judge(record, facts, device, (&before, released), now);
    (judged.state != DeviceState::Updated).then_some(judged)
}

/// Why a member can't be released before the last wave; `None` if it can.
pub(super) fn unready(record: &Record, facts: &Facts<'_>, device: &DeviceId, evidence: &Evidence) -> Option<String> {
    match facts.standing(device) {
        Standing::Unknown(why) => return Some(why.clone()),
        Standing::Compared { deployments, .. } => {
            if let Some(why) = blocked(deployments, &record.state.deployments) {
                return Some(why.clone());
            }
        }
        Standing::Complete | Standing::AsHeld => {}
    }
    if facts.is_suspended(device, &record.state.deployments) {
        return Some("is suspended".to_owned());
    }
    if is_silent(evidence, &record.state.policy, facts.fleet.report_seconds(device)) {
        return Some("silent".to_owned());
    }
    evidence.status.as_ref().and_then(|report| report.stalled.clone())
}

/// Whether a member fails before it gets the change.
pub(super) fn is_failing(evidence: &Evidence) -> bool {
    let failed =
        |report: &Report| report.stalled.is_some() || report.components.iter().any(|one| one.state == State::Failed);
    evidence.status.as_ref().is_some_and(failed)
}
