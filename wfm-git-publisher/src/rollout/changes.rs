//! What begins, joins or goes back: the differences of a look against the rollouts that there are.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use repo_model::{DeploymentName, DeviceId};

use super::facts::{Facts, Proposal, Standing};
use super::meaning::Meaning;
use super::members::{Meant, Members, both, is_lost, is_reverted, judge, judge_before, meant, once_there};
use super::record::{Member, Order, Phase, Record, Release, RolloutState, Stop};
use super::state::DeviceState;
use super::waves::plan;
use crate::fleet::{RolloutPolicy, RolloutRule};

/// The most devices that join a rollout; more of them supersede it.
const MAX_JOIN: usize = 10;

/// The most devices to which a change goes at once where nobody wrote how it does.
pub const MAX_AT_ONCE: usize = 10;

/// What somebody waits for: which deployments of each device differ, and are held unless they are released.
pub(super) type Gated = BTreeMap<DeviceId, BTreeSet<DeploymentName>>;

/// What becomes of the differences that no rollout releases.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Rollouts that a few devices join, as they are then; with how many join.
    pub(super) joined: Vec<(Record, usize)>,
    /// Rollouts that begin, before anybody is released.
    pub(super) started: Vec<Record>,
    /// What a guard refuses, and why.
    pub(super) refused: Vec<Refused>,
}

/// A change that a guard refuses as a whole: it is held, and no rollout begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub deployments: BTreeSet<DeploymentName>,
    pub devices: BTreeSet<DeviceId>,
    pub why: String,
}

/// Finds the differences that a rollout has to release.
pub(super) fn gated(records: &BTreeMap<u32, Record>, facts: &Facts<'_>) -> Gated {
    let unfinished: BTreeMap<&DeploymentName, &Record> =
        records.values().flat_map(|record| record.state.deployments.iter().map(move |name| (name, record))).collect();
    let is_bad = |record: &&Record| record.open_stop().is_some() && !is_reverted(record, facts);
    let bad: BTreeSet<_> = records.values().filter(is_bad).map(Record::number).collect();
    let is_gated = |name: &DeploymentName, is_bare: bool| match (unfinished.get(name), facts.fleet.rollout_rule(name)) {
        (_, Some(RolloutRule::AtOnce)) => false,
        // Nothing runs there; but what stopped elsewhere doesn't come.
        (Some(record), _) if is_bare => bad.contains(&record.number()),
        (None, _) => !is_bare,
        (Some(_), _) => true,
    };
    let of = |(device, standing): (&DeviceId, &Standing)| {
        let Standing::Compared { deployments, is_bare } = standing else { return None };
        let open = deployments.iter().filter(|(name, one)| one.is_open() && is_gated(name, *is_bare));
        let open: BTreeSet<_> = open.map(|(name, _)| name.clone()).collect();
        (!open.is_empty()).then(|| (device.clone(), open))
    };
    facts.devices.iter().filter_map(of).collect()
}

/// The devices of a rollout's deployments that are no members, or for which the fleet means something else by now.
fn odd<'a>(record: &Record, gated: &'a Gated, facts: &Facts<'_>) -> BTreeSet<&'a DeviceId> {
    let released = record.released();
    let is_odd = |device: &DeviceId| match record.members.get(device) {
        None => true,
        Some(member) => {
            let (standing, is_released) = (facts.standing(device), released.contains_key(device));
            let is_lost = !is_released && is_lost(record, member, standing, facts);
            !is_lost && meant(record, member, standing, is_released) == Meant::Other
        }
    };
    let ours = gated.iter().filter(|(_, names)| !names.is_disjoint(&record.state.deployments));
    ours.map(|(device, _)| device).filter(|device| is_odd(device)).collect()
}

/// What becomes of them.
pub(super) fn find(records: &BTreeMap<u32, Record>, gated: &Gated, facts: &Facts<'_>, now: Timestamp) -> Changes {
    let mut changes = Changes::default();
    let mut superseded = BTreeSet::new();
    for record in records.values() {
        let odd = odd(record, gated, facts);
        let is_bare = |device: &&DeviceId| matches!(facts.standing(device), Standing::Compared { is_bare: true, .. });
        let running = odd.iter().filter(|device| !is_bare(device)).count();
        let members = record.members.keys().filter(|device| facts.has(device)).count();
        let is_few = running <= MAX_JOIN && running * 10 <= members;
        match (odd.is_empty(), is_few) {
            (true, _) => {}
            (false, true) => match join(record, &odd, facts, now) {
                Ok(joined) => changes.joined.push((joined, odd.len())),
                Err(refused) => changes.refused.push(refused),
            },
            (false, false) => _ = superseded.insert(record.number()),
        }
    }
    let superseded: BTreeMap<_, _> = records.iter().filter(|(number, _)| superseded.contains(number)).collect();
    let busy: BTreeSet<_> = records
        .values()
        .filter(|record| !superseded.contains_key(&record.number()))
        .flat_map(|record| &record.state.deployments)
        .collect();
    let mut number = facts.next_number;
    for group in groups(gated, &superseded, &busy, facts) {
        match start(number, &group, &superseded, gated, facts, now) {
            None => {}
            Some(Ok(record)) => {
                number += 1;
                changes.started.push(record);
            }
            Some(Err(refused)) => changes.refused.push(refused),
        }
    }
    changes
}

fn join(record: &Record, odd: &BTreeSet<&DeviceId>, facts: &Facts<'_>, now: Timestamp) -> Result<Record, Refused> {
    let mut joined = record.clone();
    let last = record.last_wave();
    for device in odd {
        let Standing::Compared { deployments, .. } = facts.standing(device) else { continue };
        let (_, want) = both(deployments, &record.state.deployments);
        let had = once_there(deployments, &record.state.deployments, facts.fleet);
        joined.take_back(device);
        let since = in_the_middle(record, device, facts, now);
        let before = had_before(record, device).filter(|before| *before != had);
        let member = Member { had, want, wave: last, order: Order::Last, back: false, since, before };
        joined.members.insert((*device).clone(), member);
    }
    // For all others the fleet means at this commit what the record says, too.
    joined.state.fleet_commit.clone_from(&facts.fleet_commit);
    joined.state.operator_key.clone_from(&facts.operator_key);
    joined.state.allowed.extend(facts.allowed.iter().cloned());
    ask(&joined, odd.iter().map(|device| (*device).clone()).collect(), facts)?;
    Ok(joined)
}

/// Asks the guards about all members.
fn ask(record: &Record, devices: BTreeSet<DeviceId>, facts: &Facts<'_>) -> Result<(), Refused> {
    let removals = |device: &DeviceId| match facts.standing(device) {
        Standing::Compared { deployments, .. } => {
            let ours = deployments.iter().filter(|(name, _)| record.state.deployments.contains(*name));
            ours.filter(|(_, one)| one.want.is_none() && one.had.is_some() && one.blocked.is_none()).count()
        }
        _ => record.members.get(device).map_or(0, |member| usize::from(member.want.is_none())),
    };
    let all: BTreeSet<_> = record.members.keys().cloned().collect();
    let removals = all.iter().map(removals).sum();
    let proposal = Proposal { deployments: &record.state.deployments, devices: all, removals };
    match (facts.refused)(&proposal) {
        Some(why) => Err(Refused { deployments: record.state.deployments.clone(), devices, why }),
        None => Ok(()),
    }
}

/// The deployments that go together in one rollout each: all that the fleet's policy is for, each one that has its own, and
/// what waits for another one, replaces it, or was in one rollout that is superseded.
fn groups(
    gated: &Gated,
    superseded: &BTreeMap<&u32, &Record>,
    busy: &BTreeSet<&DeploymentName>,
    facts: &Facts<'_>,
) -> Vec<BTreeSet<DeploymentName>> {
    let differing: BTreeSet<_> = gated.values().flatten().filter(|name| !busy.contains(name)).cloned().collect();
    let has_own = |name: &DeploymentName| {
        facts.fleet.deployments.get(name).is_some_and(|deployment| deployment.rollout.is_some())
    };
    let of_fleet: BTreeSet<_> = differing.iter().filter(|name| !has_own(name)).cloned().collect();
    let own = differing.iter().filter(|name| has_own(name)).map(|name| BTreeSet::from([name.clone()]));
    let waiting = differing.iter().flat_map(|name| {
        let depends_on = facts.fleet.deployments.get(name).into_iter().flat_map(|one| &one.depends_on);
        depends_on.map(move |(other, _)| BTreeSet::from([name.clone(), other.clone()]))
    });
    let replacing = facts.replaces.iter().map(|(new, old)| BTreeSet::from([new.clone(), old.clone()]));
    let before = superseded.values().map(|record| record.state.deployments.clone());
    let parts = own.chain([of_fleet]).chain(waiting).chain(replacing).chain(before);
    let parts = parts.map(|part| part.intersection(&differing).cloned().collect::<BTreeSet<_>>());
    let mut groups: Vec<BTreeSet<DeploymentName>> = Vec::new();
    for mut part in parts.filter(|part| !part.is_empty()) {
        let (touching, others): (Vec<_>, Vec<_>) = groups.into_iter().partition(|group| !group.is_disjoint(&part));
        touching.into_iter().for_each(|group| part.extend(group));
        groups = others;
        groups.push(part);
    }
    groups.sort();
    groups
}

/// Begins a rollout. `None` where it goes at once, because it is for a single device, or for few and nobody wrote how; an
/// error where a guard refuses it.
fn start(
    number: u32,
    group: &BTreeSet<DeploymentName>,
    superseded: &BTreeMap<&u32, &Record>,
    gated: &Gated,
    facts: &Facts<'_>,
    now: Timestamp,
) -> Option<Result<Record, Refused>> {
    let before: Vec<_> =
        superseded.values().filter(|record| !record.state.deployments.is_disjoint(group)).copied().collect();
    let devices = gated.iter().filter(|(_, names)| !names.is_disjoint(group)).map(|(device, _)| device);
    let devices: BTreeSet<_> = devices.cloned().collect();
    let is_written = group.iter().any(|name| facts.fleet.rollout_rule(name).is_some());
    if devices.len() <= (if is_written { 1 } else { MAX_AT_ONCE }) && before.is_empty() {
        return None;
    }
    let since = |device: &DeviceId| before.iter().filter_map(|record| in_the_middle(record, device, facts, now)).min();
    let middle: BTreeMap<_, _> = devices.iter().filter_map(|device| Some((device.clone(), since(device)?))).collect();
    let order = |device: &DeviceId| if middle.contains_key(device) { Order::First } else { Order::Normal };
    let still = before.iter().flat_map(|record| in_the_middle_still(record, group, facts, now));
    let still: BTreeMap<_, _> = still.filter(|(device, _)| !devices.contains(device)).collect();
    let ordered: BTreeMap<_, _> = devices.iter().map(|device| (device.clone(), order(device))).collect();
    let policy = policy_of(group, facts);
    let mut waves = plan(number, &policy, facts.fleet, &ordered);
    let member = |(device, order): (&DeviceId, &Order)| {
        let Standing::Compared { deployments, .. } = facts.standing(device) else { return None };
        let (had, want) = both(deployments, group);
        let (wave, since) = (waves.remove(device)?, middle.get(device).copied());
        // What several mean together tells nothing of other ones.
        let same = before.iter().filter(|record| record.state.deployments == *group);
        let before = same.filter_map(|record| had_before(record, device)).find(|before| *before != had);
        Some((device.clone(), Member { had, want, wave, order: *order, back: false, since, before }))
    };
    let members = ordered.iter().filter_map(member);
    let members = members.chain(still.iter().map(|(device, (member, _))| (device.clone(), member.clone()))).collect();
    let stop = before.iter().find_map(|record| standstill(record, facts));
    let stops = stop.map(|reason| Stop { at: now, reason, failed: BTreeMap::new(), resumed: None });
    let state = RolloutState {
        rollout: number,
        state: if stops.is_some() { Phase::Stopped } else { Phase::Running },
        fleet_commit: facts.fleet_commit.clone(),
        operator_key: facts.operator_key.clone(),
        deployments: group.clone(),
        policy,
        supersedes: before.iter().map(|record| record.number()).collect(),
        allowed: facts.allowed.clone(),
        waves: before_the_first(still.iter().map(|(device, (_, at))| (device, *at))),
        stops: stops.into_iter().collect(),
        end: None,
    };
    let record = Record { state, members };
    Some(ask(&record, devices, facts).map(|()| record))
}

/// Those in the middle of a change for whom the fleet means still just what they have, with when they got it. They keep their
/// place in the budget of the rollout that comes in the place of theirs, and prove nothing of its own change.
fn in_the_middle_still(
    record: &Record,
    group: &BTreeSet<DeploymentName>,
    facts: &Facts<'_>,
    now: Timestamp,
) -> BTreeMap<DeviceId, (Member, Timestamp)> {
    let meaning = |device: &DeviceId, has: &Option<Meaning>| match facts.standing(device) {
        Standing::Compared { deployments, .. } => {
            let (has, want) = both(deployments, group);
            (has == want).then_some(want)
        }
        Standing::Complete | Standing::AsHeld if record.state.deployments == *group => Some(has.clone()),
        _ => None,
    };
    let stays = |device: &DeviceId, has: &Option<Meaning>, at: Timestamp| {
        let (had, want) = (meaning(device, has)?, meaning(device, has)?);
        let before = had_before(record, device).filter(|_| record.state.deployments == *group);
        let member = Member { had, want, wave: 0, order: Order::First, back: true, since: None, before };
        Some((device.clone(), (member, at)))
    };
    let members = Members::of(record, facts);
    let released = members.released.iter().filter_map(|(device, (member, how))| {
        let is_updated = judge(record, facts, device, (member, *how), now).state == DeviceState::Updated;
        stays(device, &member.want, how.at).filter(|_| !is_updated)
    });
    let changing = members.changing.iter().filter_map(|(device, (member, since))| {
        judge_before(record, facts, device, (member, *since), now)?;
        stays(device, &member.had, *since)
    });
    released.chain(changing).collect()
}

/// What no wave of a rollout released: it came before that began, or goes back to what it had before.
fn before_the_first<'a>(released: impl IntoIterator<Item = (&'a DeviceId, Timestamp)>) -> Vec<Release> {
    let mut releases: BTreeMap<Timestamp, BTreeSet<DeviceId>> = BTreeMap::new();
    for (device, at) in released {
        releases.entry(at).or_default().insert(device.clone());
    }
    let release = |(released, devices)| Release {
        wave: 0,
        released,
        devices,
        passed_over: BTreeMap::new(),
        was_failing: BTreeSet::new(),
        promoted: false,
    };
    releases.into_iter().map(release).collect()
}

/// Since when a device of a rollout is in the middle of a change that it has; `None` if it isn't.
fn in_the_middle(record: &Record, device: &DeviceId, facts: &Facts<'_>, now: Timestamp) -> Option<Timestamp> {
    let member = record.members.get(device)?;
    let Some(released) = record.released_with(device) else {
        let since = member.since?;
        return judge_before(record, facts, device, (member, since), now).map(|_| since);
    };
    let Standing::Compared { deployments, .. } = facts.standing(device) else { return None };
    let (has, _) = both(deployments, &record.state.deployments);
    // Who shall go back may have the change still.
    let has_change = has == member.want || member.back && has == member.had;
    let is_updated = || judge(record, facts, device, (member, released), now).state == DeviceState::Updated;
    (has_change && !is_updated()).then_some(released.at)
}

/// What a device had before a change of this rollout, or of one in the place of which it came, reached it; `None` if none did, or
/// that isn't known.
fn had_before(record: &Record, device: &DeviceId) -> Option<Option<Meaning>> {
    let member = record.members.get(device)?;
    let here = || if member.back { &member.want } else { &member.had };
    let released = record.released_with(device).map(|_| here().clone());
    member.before.clone().or(released)
}

/// Why a rollout stands still until a person says something; `None` if it doesn't.
fn standstill(record: &Record, facts: &Facts<'_>) -> Option<String> {
    let number = record.number();
    let paused = match facts.fleet.rollouts.get(&number) {
        Some(Some(words)) => words.paused,
        Some(None) => true,
        None => false,
    };
    let stopped = record.open_stop().map(|_| format!("{number}, in the place of which it comes, was stopped"));
    stopped.or_else(|| paused.then(|| format!("{number}, in the place of which it comes, was paused")))
}

/// The policy of deployments that go together: the fleet's, unless it is a single one that has its own, or the fleet has none.
/// What is built in where nobody wrote one.
fn policy_of(group: &BTreeSet<DeploymentName>, facts: &Facts<'_>) -> RolloutPolicy {
    let own = |name: &DeploymentName| facts.fleet.deployments.get(name).and_then(|one| one.rollout.as_ref());
    let of_fleet = facts.fleet.settings.rollout.as_ref().filter(|_| group.len() > 1);
    let all = of_fleet.into_iter().chain(group.iter().filter_map(own)).chain(&facts.fleet.settings.rollout);
    let mut policies = all.filter_map(|rule| match rule {
        RolloutRule::Waves(policy) => Some(policy),
        RolloutRule::AtOnce => None,
    });
    policies.next().cloned().unwrap_or_default()
}

/// Those for whom the fleet means again what they had, and to whom the change came, or one in the place of which it comes: they go
/// back at once. The record as it is then.
pub(super) fn back(record: &Record, facts: &Facts<'_>, now: Timestamp) -> Option<(Record, usize)> {
    let mut changed = record.clone();
    let (released, mut count, mut others) = (record.released(), 0, BTreeSet::new());
    for (device, member) in changed.members.iter_mut().filter(|(device, _)| facts.has(device)) {
        let (standing, is_released) = (facts.standing(device), released.contains_key(device));
        match meant(record, member, standing, is_released) {
            Meant::Had if is_released => std::mem::swap(&mut member.had, &mut member.want),
            Meant::Before => {
                if is_released {
                    std::mem::swap(&mut member.had, &mut member.want);
                } else {
                    others.insert(device.clone());
                }
                member.want = member.before.clone().flatten();
            }
            _ => continue,
        }
        member.back = true;
        count += 1;
    }
    changed.state.waves.extend(before_the_first(others.iter().map(|device| (device, now))));
    (count > 0).then_some((changed, count))
}
