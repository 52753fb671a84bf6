//! All that one look comes to: what is decided about each rollout, and what is held.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use repo_model::{DeploymentName, DeviceId};

use super::changes::{Refused, find, gated};
use super::facts::Facts;
use super::members::{Meant, Members, at_once, is_in_it, is_lost, meant, published_now};
use super::next::{Decided, Decision, Next, Situation, Waiting, Why, next, shown, states};
use super::record::{End, Phase, Record};
use super::state::{DeviceState, Judged, after};
use super::waves::Busy;

/// What one look comes to.
#[derive(Debug, Default)]
pub struct Look {
    /// What is decided, in this order: each is committed before anything of it is done.
    pub decided: Vec<Decided>,
    /// The unfinished rollouts, as they are then.
    pub records: BTreeMap<u32, Record>,
    /// What isn't published, whether it differs or not. Whatever isn't in it may be.
    pub held: BTreeMap<DeviceId, BTreeMap<DeploymentName, HeldBy>>,
    /// What the tip of a member has to hold, and doesn't: it was lost, restored, or somebody else wrote it. Nothing is
    /// published for it, because absence removes.
    pub lost: BTreeMap<DeviceId, BTreeSet<DeploymentName>>,
    /// What each released member of each unfinished rollout was at this look, and each that isn't released and is in the middle
    /// of what it had.
    pub states: BTreeMap<u32, BTreeMap<DeviceId, Judged>>,
    pub waiting: Vec<Waiting>,
    /// What those wait for from now on that released somebody at this look.
    pub following: Vec<Waiting>,
    pub refused: Vec<Refused>,
    /// The earliest moment at which time alone may change something.
    pub again: Option<Timestamp>,
}

/// What holds a deployment back on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldBy {
    /// Absent where a guard refuses that there is one.
    pub rollout: Option<u32>,
    /// The wave that is meant for the device.
    pub wave: Option<u32>,
}

/// Looks at all unfinished rollouts, and at what differs. Nothing is done yet.
pub fn look(records: &BTreeMap<u32, Record>, facts: &Facts<'_>, now: Timestamp) -> Look {
    let mut look = Look { records: records.clone(), ..Look::default() };
    let gated = gated(records, facts);
    let changes = find(records, &gated, facts, now);
    for (record, count) in changes.joined {
        let reason = format!("{count} of its devices differ by now, or are new to it");
        look.decide(Decided { decision: Decision::Join, reason, record });
    }
    for record in changes.started {
        let number = record.number();
        let superseded: Vec<_> =
            record.state.supersedes.iter().filter_map(|old| look.records.get(old)).cloned().collect();
        look.decide(Decided { decision: Decision::Start, reason: start_reason(&record), record });
        for mut record in superseded {
            record.state.state = Phase::Superseded;
            record.state.end = Some(End { at: now, left: BTreeMap::new() });
            record.members.clear();
            let reason = format!("{number} comes in its place");
            look.decide(Decided { decision: Decision::Supersede, reason, record });
        }
    }
    look.refused = changes.refused;
    look.states = look.records.iter().map(|(number, record)| (*number, states(record, facts, now))).collect();
    let numbers: Vec<_> = look.records.keys().copied().collect();
    numbers.into_iter().for_each(|number| look.go_on(number, facts, now));
    look.again = look.waiting.iter().filter_map(|waiting| waiting.again).min();
    look.hold(&gated, facts);
    look
}

fn start_reason(record: &Record) -> String {
    let names: Vec<_> = record.state.deployments.iter().take(5).map(ToString::to_string).collect();
    let more = record.state.deployments.len() - names.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let devices = record.changed().count();
    format!("{}{more} on {devices} devices", names.join(", "))
}

/// How many decisions are made about one rollout at one look, at most: it goes back, is resumed, stops, and releases.
const MOST: usize = 8;

impl Look {
    fn decide(&mut self, decided: Decided) {
        let record = &decided.record;
        if record.state.state.is_finished() {
            self.records.remove(&record.number());
        } else {
            self.records.insert(record.number(), record.clone());
        }
        self.decided.push(decided);
    }

    /// Decides about a rollout until it waits, or somebody is released, which shows at the next look only.
    fn go_on(&mut self, number: u32, facts: &Facts<'_>, now: Timestamp) {
        for _ in 0..MOST {
            let Some(record) = self.records.get(&number) else { return };
            let (busy, none) = (self.busy(facts), BTreeMap::new());
            let known = self.states.get(&number).unwrap_or(&none);
            match next(&Situation { record, facts, busy: &busy, states: known, now }) {
                Next::Wait(waiting) => return self.waiting.push(waiting),
                Next::Decide(decided) => {
                    let decision = decided.decision;
                    self.decide(*decided);
                    match decision {
                        Decision::Release(_) => return self.follow(number, now),
                        Decision::Finish => return,
                        _ => {}
                    }
                    if let (Decision::Back, Some(record)) = (decision, self.records.get(&number)) {
                        self.states.insert(number, states(record, facts, now));
                    }
                }
            }
        }
    }

    /// Says what a rollout waits for that released somebody now.
    fn follow(&mut self, number: u32, now: Timestamp) {
        let Some(record) = self.records.get(&number) else { return };
        let known = self.states.get(&number).into_iter().flatten();
        let updating = known.filter(|(_, judged)| judged.state == DeviceState::Updating);
        let again = updating.clone().filter_map(|(_, judged)| judged.again);
        let baked = after(now, record.state.policy.bake);
        let released = record.state.waves.last().into_iter().flat_map(|release| &release.devices);
        let released = released.map(|device| (device.clone(), shown(&published_now())));
        let following = Waiting {
            rollout: number,
            why: Why::Updating,
            again: again.chain(baked).min(),
            devices: updating.map(|(device, judged)| (device.clone(), shown(judged))).chain(released).collect(),
        };
        self.following.push(following);
    }

    /// Who is between its release and `updated`, in whatever rollout; also where the release is of before it became a member. Not
    /// who left the fleet, or got something else at once: of those nothing would ever say that they are `updated`.
    fn busy(&self, facts: &Facts<'_>) -> Busy {
        let mut busy = Busy::new();
        for (number, record) in &self.records {
            let none = BTreeMap::new();
            let states = self.states.get(number).unwrap_or(&none);
            let released = record.released().into_keys();
            // Whoever is released at this look has no state yet.
            let new = released.filter(|device| !states.contains_key(*device) && is_in_it(record, facts, device));
            let new = new.map(|device| (device, published_now()));
            let known = states.iter().map(|(device, judged)| (device, judged.clone()));
            for (device, judged) in known.chain(new).filter(|(_, judged)| judged.state != DeviceState::Updated) {
                let again = judged.again;
                let of_all = busy.entry(device.clone()).or_insert(judged);
                of_all.again = [of_all.again, again].into_iter().flatten().min();
            }
        }
        busy
    }

    /// What is held after all decisions.
    fn hold(&mut self, gated: &super::changes::Gated, facts: &Facts<'_>) {
        for record in self.records.values() {
            let (members, number) = (Members::of(record, facts), record.number());
            for (device, member) in &members.held {
                let by = HeldBy { rollout: Some(number), wave: Some(member.wave) };
                let at_once = at_once(record, member, facts.standing(device), facts);
                let names = record.state.deployments.iter().filter(|name| !at_once.contains(*name));
                self.held.entry((*device).clone()).or_default().extend(names.map(|name| (name.clone(), by)));
            }
            let lost = record.members.iter().filter(|(device, member)| {
                members.held.contains_key(device) && is_lost(record, member, facts.standing(device), facts)
            });
            for (device, _) in lost {
                self.lost.entry(device.clone()).or_default().extend(record.state.deployments.iter().cloned());
            }
        }
        for (device, names) in gated {
            // What is for a single device goes at once, or for few where nobody wrote how.
            let at_once = |name: &DeploymentName| self.is_of_nobody(name);
            let held = names.iter().filter(|name| !at_once(name) && !self.releases(device, name, facts));
            let held: Vec<_> = held.cloned().collect();
            let entry = self.held.entry(device.clone()).or_default();
            held.into_iter().for_each(|name| _ = entry.entry(name).or_insert(HeldBy { rollout: None, wave: None }));
        }
        self.held.retain(|_, names| !names.is_empty());
    }

    /// Whether no rollout is about a deployment, and no guard refused one.
    fn is_of_nobody(&self, name: &DeploymentName) -> bool {
        let refused = self.refused.iter().any(|refused| refused.deployments.contains(name));
        !refused && self.records.values().all(|record| !record.state.deployments.contains(name))
    }

    /// Whether a rollout releases what the fleet means of a deployment for a device.
    fn releases(&self, device: &DeviceId, name: &DeploymentName, facts: &Facts<'_>) -> bool {
        self.records.values().filter(|record| record.state.deployments.contains(name)).any(|record| {
            let member = record.members.get(device).filter(|_| record.released_with(device).is_some());
            member.is_some_and(|member| meant(record, member, facts.standing(device), true) != Meant::Other)
        })
    }
}
