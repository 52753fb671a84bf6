//! Who comes with which wave.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::{DeviceId, Digest};

use super::facts::Facts;
use super::members::{Members, is_failing, unready};
use super::record::{Member, Order, Record, needs_approval, waves_of};
use super::state::Judged;
use crate::fleet::{Fleet, RolloutPolicy, WaveSpec};

/// Devices in the order of a rollout, which nobody can choose and each look finds again.
pub(super) fn ordered<'a>(number: u32, devices: impl Iterator<Item = (&'a DeviceId, Order)>) -> Vec<&'a DeviceId> {
    let key = |device: &DeviceId| *Digest::of(format!("{number}\n{device}").as_bytes()).as_bytes();
    let mut all: Vec<_> = devices.map(|(device, order)| (order, key(device), device)).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, _, device)| device).collect()
}

/// The wave that is meant for each device. A wave by labels or ids has those whom no wave before it names; a number takes of
/// the others who are next.
pub(super) fn plan(
    number: u32,
    policy: &RolloutPolicy,
    fleet: &Fleet,
    devices: &BTreeMap<DeviceId, Order>,
) -> BTreeMap<DeviceId, u32> {
    let named = |id: &DeviceId| {
        let device = fleet.devices.get(id)?;
        waves_of(policy).find(|(_, spec)| spec.names(device)).map(|(wave, _)| wave)
    };
    let mut planned: BTreeMap<DeviceId, u32> = devices.keys().filter_map(|id| Some((id.clone(), named(id)?))).collect();
    let others = ordered(number, devices.iter().map(|(id, order)| (id, *order)));
    let mut others: std::collections::VecDeque<_> =
        others.into_iter().filter(|id| !planned.contains_key(*id)).collect();
    let mut last = 1;
    for (wave, spec) in waves_of(policy) {
        last = wave + 1;
        if let WaveSpec::Total(total) = spec {
            let so_far = planned.values().filter(|planned| **planned <= wave).count();
            let need = total.rounded_up(devices.len()).saturating_sub(so_far).min(others.len());
            planned.extend(others.drain(..need).map(|id| (id.clone(), wave)));
        }
    }
    planned.extend(others.into_iter().map(|id| (id.clone(), last)));
    planned
}

/// Who is released with a wave now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fill {
    pub(super) release: BTreeSet<DeviceId>,
    /// Those of `release` who fail already.
    pub(super) was_failing: BTreeSet<DeviceId>,
    /// Who would have been next and can't, and why.
    pub(super) passed_over: BTreeMap<DeviceId, String>,
    /// For whom there is no room in the budget.
    pub(super) no_room: BTreeSet<DeviceId>,
    /// Whether the wave has everybody already, or is nobody's.
    pub(super) is_full: bool,
}

/// The devices that are between a release and `updated`, in whatever rollout, and what they are.
pub(super) type Busy = BTreeMap<DeviceId, Judged>;

/// The group of a device in the budget of a policy; `None` if it has none.
fn group(policy: &RolloutPolicy, fleet: &Fleet, device: &DeviceId) -> Option<Vec<String>> {
    fleet.devices.get(device).and_then(|device| policy.group_of(device))
}

/// How much room the budget of a policy leaves: how many of each group are busy.
struct Room<'a> {
    policy: &'a RolloutPolicy,
    fleet: &'a Fleet,
    busy: &'a Busy,
    taken: BTreeMap<Vec<String>, u32>,
}

impl<'a> Room<'a> {
    fn of(policy: &'a RolloutPolicy, fleet: &'a Fleet, busy: &'a Busy) -> Self {
        let mut room = Self { policy, fleet, busy, taken: BTreeMap::new() };
        let groups = busy.keys().filter_map(|device| group(policy, fleet, device));
        groups.for_each(|group| *room.taken.entry(group).or_default() += 1);
        room
    }

    /// Takes a place for the device; false if there is none.
    fn take(&mut self, device: &DeviceId) -> bool {
        let group = group(self.policy, self.fleet, device);
        let Some((budget, group)) = self.policy.disruption_budget.as_ref().zip(group) else { return true };
        // Whoever is busy has its place.
        if self.busy.contains_key(device) {
            return true;
        }
        let taken = self.taken.entry(group).or_default();
        *taken += 1;
        *taken <= budget.max_unavailable
    }
}

/// Who has the places in the budget for which these devices wait.
pub(super) fn in_the_way<'a>(
    policy: &'a RolloutPolicy,
    fleet: &'a Fleet,
    busy: &'a Busy,
    without: &BTreeSet<DeviceId>,
) -> impl Iterator<Item = (&'a DeviceId, &'a Judged)> {
    let group = move |device: &DeviceId| group(policy, fleet, device);
    let crowded: BTreeSet<_> = without.iter().filter_map(group).collect();
    busy.iter().filter(move |(device, _)| group(device).is_some_and(|group| crowded.contains(&group)))
}

/// Whom a wave is for.
struct Wanted<'a> {
    /// Who may come with it, in order.
    pool: Vec<&'a DeviceId>,
    /// How many of them it takes.
    need: usize,
}

impl Wanted<'_> {
    /// Whether the wave has everybody already, or is nobody's.
    fn is_full(&self) -> bool {
        self.need == 0 || self.pool.is_empty()
    }
}

fn wanted<'a>(record: &Record, members: &Members<'a>, wave: u32) -> Wanted<'a> {
    let policy = &record.state.policy;
    let is_last = wave >= record.last_wave();
    let passed_over = record.passed_over();
    let spec = waves_of(policy).find(|(number, _)| *number == wave).map(|(_, spec)| spec);
    let by_name: BTreeSet<u32> =
        waves_of(policy).filter(|(_, spec)| !matches!(spec, WaveSpec::Total(_))).map(|(wave, _)| wave).collect();
    let is_next =
        |(id, member): &(&&DeviceId, &&Member)| is_last || !passed_over.contains(**id) && member.order != Order::Last;
    let pool = |fits: &dyn Fn(&Member) -> bool| {
        let all = members.held.iter().filter(is_next).filter(|(_, member)| fits(member));
        ordered(record.number(), all.map(|(id, member)| (*id, member.order)))
    };
    let (pool, need) = match spec {
        _ if is_last => (pool(&|_| true), usize::MAX),
        Some(WaveSpec::Total(total)) => {
            let need = total.rounded_up(members.count()).saturating_sub(members.count_released());
            (pool(&|member| !by_name.contains(&member.wave)), need)
        }
        // Nobody is there whom it names, and nothing is proven yet: the first in order goes ahead.
        _ => match pool(&|member| member.wave == wave) {
            named if named.is_empty() && members.count_released() == 0 => (pool(&|_| true), 1),
            named => (named, usize::MAX),
        },
    };
    Wanted { pool, need }
}

/// The first wave after `after`, which was the last one, to which a person has to agree: not one that has everybody already. `None`
/// if no `approve` is ahead.
pub(super) fn gate_ahead(record: &Record, members: &Members<'_>, after: u32) -> Option<u32> {
    let needs = |wave: &u32| needs_approval(&record.state.policy, after, *wave);
    (after + 1..=record.last_wave()).filter(needs).find(|wave| !wanted(record, members, *wave).is_full())
}

/// Fills a wave: who of those that it is for can come now.
pub(super) fn fill(record: &Record, members: &Members<'_>, facts: &Facts<'_>, busy: &Busy, wave: u32) -> Fill {
    fill_from(record, facts, busy, &wanted(record, members, wave), wave >= record.last_wave())
}

fn fill_from(record: &Record, facts: &Facts<'_>, busy: &Busy, wanted: &Wanted<'_>, is_last: bool) -> Fill {
    let mut fill = Fill { is_full: wanted.is_full(), ..Fill::default() };
    let mut room = Room::of(&record.state.policy, facts.fleet, busy);
    for device in &wanted.pool {
        if fill.release.len() + fill.no_room.len() >= wanted.need {
            break;
        }
        let evidence = (facts.evidence)(record, device);
        let unready = (!is_last).then(|| unready(record, facts, device, &evidence)).flatten();
        match unready {
            Some(why) => _ = fill.passed_over.insert((*device).clone(), why),
            None if !room.take(device) => _ = fill.no_room.insert((*device).clone()),
            None => {
                fill.was_failing.extend(is_failing(&evidence).then(|| (*device).clone()));
                fill.release.insert((*device).clone());
            }
        }
    }
    fill
}

/// Releases those whom a person hastens, as far as there is room.
pub(super) fn hasten(record: &Record, facts: &Facts<'_>, busy: &Busy, devices: &[&DeviceId]) -> Fill {
    fill_from(record, facts, busy, &Wanted { pool: devices.to_vec(), need: usize::MAX }, true)
}
