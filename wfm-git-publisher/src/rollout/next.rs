//! What happens next with a rollout: the first row that fits. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use repo_model::{DeploymentName, DeviceId};
use serde::{Deserialize, Serialize};

use super::changes::back;
use super::facts::Facts;
use super::members::{Members, is_reverted, judge, judge_before};
use super::record::{End, Phase, Record, Release, Stop, waves_of};
use super::state::{DeviceState, Judged};
use super::waves::{Busy, Fill, fill, gate_ahead, hasten, in_the_way, ordered};
use crate::fleet::{Fleet, Promoted, RolloutWords, counted, rollout_path};

/// What is decided about a rollout; each is one commit of `control.git`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Start,
    Join,
    Supersede,
    /// Members for whom the fleet means again what they had go back.
    Back,
    /// Too many failed; with the stop's number.
    Stop(u32),
    /// A person lifted this stop.
    Resume(u32),
    /// Devices of this wave may have the change.
    Release(u32),
    Finish,
}

impl fmt::Display for Decision {
    /// As the trailer of its commit says it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("start"),
            Self::Join => f.write_str("join"),
            Self::Supersede => f.write_str("supersede"),
            Self::Back => f.write_str("back"),
            Self::Stop(stop) => write!(f, "stop {stop}"),
            Self::Resume(stop) => write!(f, "resume {stop}"),
            Self::Release(wave) => write!(f, "release {wave}"),
            Self::Finish => f.write_str("finish"),
        }
    }
}

/// A decision, why it was made, and the record as it is then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    pub decision: Decision,
    pub reason: String,
    pub record: Record,
}

/// What a rollout waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    pub rollout: u32,
    pub why: Why,
    /// For whom, and how they are.
    pub devices: BTreeMap<DeviceId, String>,
    /// When it may go on without anybody saying anything, at the earliest.
    pub again: Option<Timestamp>,
}

/// Why a rollout waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Why {
    /// A person paused it.
    Paused,
    /// What persons said of it can't be read.
    WordsUnreadable,
    /// Files of these deployments can't be read.
    DeploymentsUnreadable(BTreeSet<DeploymentName>),
    /// It stopped, and a person has to say that it goes on; with the stop's number.
    Stopped(u32),
    /// Devices of the newest wave are being updated.
    Updating,
    /// Too few of the newest wave are updated.
    TooFewUpdated { updated: usize, needed: usize },
    /// A person has to agree to this wave.
    Approval(u32),
    /// The budget has no room.
    Budget,
    /// None of the next wave can come now.
    NobodyReady(u32),
}

impl fmt::Display for Waiting {
    /// One sentence for a person, with what to do where somebody has to do something.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.rollout;
        match &self.why {
            Why::Paused => write!(f, "is paused: `rollout pause {number} --end` goes on"),
            Why::WordsUnreadable => write!(f, "waits, because {} can't be read", rollout_path(number)),
            Why::DeploymentsUnreadable(names) => {
                let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
                write!(f, "waits, because deployment {} can't be read", names.join(", "))
            }
            Why::Stopped(stop) => {
                write!(f, "is stopped: `rollout resume {number}` accepts what failed and lifts stop {stop}")
            }
            Why::Updating => write!(f, "waits for {}", counted(self.devices.len())),
            Why::TooFewUpdated { updated, needed } => write!(
                f,
                "waits, because {updated} of the newest wave are updated and {needed} have to be; {}",
                promote(number)
            ),
            Why::Approval(wave) => write!(f, "waits for a person: `rollout approve {number}` agrees to wave {wave}"),
            Why::Budget => write!(f, "waits, because `disruptionBudget` leaves no room"),
            Why::NobodyReady(wave) => {
                write!(f, "waits, because none of wave {wave} can be updated now; {}", promote(number))
            }
        }
    }
}

/// What a person can say where evidence lets nothing come.
fn promote(number: u32) -> String {
    format!(
        "`rollout promote {number} DEVICE` lets it come to that device, and `rollout promote {number}` to everybody at once, in spite of \
         waves and failures"
    )
}

/// What happens next.
#[derive(Debug)]
pub(super) enum Next {
    Decide(Box<Decided>),
    Wait(Waiting),
}

/// A rollout as it stands at a look.
pub(super) struct Situation<'a> {
    pub(super) record: &'a Record,
    pub(super) facts: &'a Facts<'a>,
    pub(super) busy: &'a Busy,
    /// What each released member is, and each that is in the middle of what it had.
    pub(super) states: &'a BTreeMap<DeviceId, Judged>,
    pub(super) now: Timestamp,
}

/// What each released member of a rollout is, and each that isn't and is in the middle of what it had.
pub fn states(record: &Record, facts: &Facts<'_>, now: Timestamp) -> BTreeMap<DeviceId, Judged> {
    let members = Members::of(record, facts);
    let released = members
        .released
        .iter()
        .map(|(device, (member, how))| ((*device).clone(), judge(record, facts, device, (member, *how), now)));
    let changing = members.changing.iter().filter_map(|(device, (member, since))| {
        Some(((*device).clone(), judge_before(record, facts, device, (member, *since), now)?))
    });
    released.chain(changing).collect()
}

/// The wave that a person has to agree to next, as far as the record and the fleet alone tell; `None` if no `approve` is ahead.
pub fn approval_ahead(record: &Record, fleet: &Fleet) -> Option<u32> {
    let members = Members::of(record, &Facts::unlooked(fleet));
    gate_ahead(record, &members, members.newest_wave().unwrap_or(0))
}

static NOTHING_SAID: RolloutWords = RolloutWords { paused: false, approved: 0, resumed: 0, promoted: Promoted::No };

/// Whether words may be hidden in what can't be read: a link in the place of their folder, or a file that is named wrong.
fn hides_words(facts: &Facts<'_>) -> bool {
    facts.fleet.broken.unidentified.iter().any(|path| path.split('/').next() == Some("rollouts"))
}

/// The first row that fits.
pub(super) fn next(situation: &Situation<'_>) -> Next {
    let Situation { record, facts, .. } = *situation;
    if let Some((changed, count)) = back(record, facts, situation.now) {
        let reason = format!("the fleet means again what {} had", counted(count));
        return decided(Decision::Back, reason, changed);
    }
    let words = match facts.fleet.rollouts.get(&record.number()) {
        None if hides_words(facts) => return situation.wait(Why::WordsUnreadable, []),
        None => &NOTHING_SAID,
        Some(None) => return situation.wait(Why::WordsUnreadable, []),
        Some(Some(words)) => words,
    };
    if words.paused {
        return situation.wait(Why::Paused, []);
    }
    let keeps = |name: &&DeploymentName| facts.fleet.broken.deployments.contains(*name);
    let unreadable: BTreeSet<_> = record.state.deployments.iter().filter(keeps).cloned().collect();
    if !unreadable.is_empty() {
        return situation.wait(Why::DeploymentsUnreadable(unreadable), []);
    }
    let members = Members::of(record, facts);
    situation.by_words(words, &members).unwrap_or_else(|| situation.by_evidence(words, &members))
}

fn decided(decision: Decision, reason: String, record: Record) -> Next {
    Next::Decide(Box::new(Decided { decision, reason, record }))
}

impl Situation<'_> {
    fn wait<'d>(&self, why: Why, devices: impl IntoIterator<Item = (&'d DeviceId, String)>) -> Next {
        Next::Wait(self.waiting(why, devices))
    }

    fn waiting<'d>(&self, why: Why, devices: impl IntoIterator<Item = (&'d DeviceId, String)>) -> Waiting {
        let devices = devices.into_iter().map(|(device, how)| (device.clone(), how)).collect();
        let is_persons =
            matches!(why, Why::Paused | Why::WordsUnreadable | Why::DeploymentsUnreadable(_) | Why::Stopped(_));
        let again = self.states.values().filter(|_| !is_persons).filter_map(|judged| judged.again).min();
        Waiting { rollout: self.record.number(), why, devices, again }
    }

    /// Waits for room in the budget: for those who have the places, whichever rollout they are of.
    fn wait_for_room(&self, without: &BTreeSet<DeviceId>) -> Next {
        let Self { record, facts, busy, .. } = *self;
        let those: Vec<_> = in_the_way(&record.state.policy, facts.fleet, busy, without).collect();
        let again = those.iter().filter_map(|(_, judged)| judged.again).min();
        let waiting = self.waiting(Why::Budget, those.into_iter().map(|(device, judged)| (device, shown(judged))));
        Next::Wait(Waiting { again: waiting.again.into_iter().chain(again).min(), ..waiting })
    }

    /// Those of the released members, and of those in the middle of what they had, who are in this state, and why.
    fn those(&self, fits: impl Fn(&DeviceId, DeviceState) -> bool) -> Vec<(&DeviceId, String)> {
        let found = self.states.iter().filter(|(device, judged)| fits(device, judged.state));
        found.map(|(device, judged)| (device, shown(judged))).collect()
    }

    /// What a person says goes on, stops or hastens it.
    fn by_words(&self, words: &RolloutWords, members: &Members<'_>) -> Option<Next> {
        let Self { record, facts, now, .. } = *self;
        let is_promoted = words.promoted == Promoted::All;
        let failed = self.failed(members);
        if let Some(stop) = record.open_stop().filter(|stop| is_promoted || words.resumed == *stop) {
            let mut resumed = record.clone();
            resumed.state.state = Phase::Running;
            if let Some(last) = resumed.state.stops.last_mut() {
                last.resumed = Some(now);
                last.failed.extend(failed);
            }
            let word = if is_promoted { "promoted" } else { "resumed" };
            return Some(decided(Decision::Resume(stop), format!("a person {word} it"), resumed));
        }
        let meant = members.held.iter().filter(|(device, _)| words.promoted.includes(device));
        let hastened = ordered(record.number(), meant.map(|(device, member)| (*device, member.order)));
        if !hastened.is_empty() {
            let fill = hasten(record, facts, self.busy, &hastened);
            if !fill.release.is_empty() {
                return Some(self.release(record.last_wave(), fill, true));
            }
            if is_promoted {
                return Some(self.wait_for_room(&fill.no_room));
            }
        }
        if let Some(stop) = record.open_stop() {
            if is_reverted(record, facts) {
                return Some(self.ends_reverted(stop));
            }
            return Some(self.wait(Why::Stopped(stop), failed.iter().map(|(device, how)| (device, how.clone()))));
        }
        let most = record.state.policy.max_failures.rounded_down(members.count_released());
        if !is_promoted && failed.len() > most {
            let reason = format!("{} of {} failed", failed.len(), members.count_released());
            let mut stopped = record.clone();
            stopped.state.state = Phase::Stopped;
            let stop = Stop { at: now, reason: reason.clone(), failed, resumed: None };
            stopped.state.stops.push(stop);
            let number = u32::try_from(stopped.state.stops.len()).unwrap_or(u32::MAX);
            return Some(decided(Decision::Stop(number), reason, stopped));
        }
        None
    }

    /// What stopped and isn't meant any more ends once whoever went back is well: that lifts no stop.
    fn ends_reverted(&self, stop: u32) -> Next {
        let left = self.those(|_, state| state != DeviceState::Updated);
        let updating = self.those(|_, state| state == DeviceState::Updating);
        match (left.is_empty(), updating.is_empty()) {
            (true, _) => self.finish(),
            (false, false) => self.wait(Why::Updating, updating),
            (false, true) => self.wait(Why::Stopped(stop), left),
        }
    }

    /// Who failed and isn't accepted, of those who were well before.
    fn failed(&self, members: &Members<'_>) -> BTreeMap<DeviceId, String> {
        let accepted = self.record.accepted();
        let counts = |device: &DeviceId| {
            let (member, how) = members.released.get(device)?;
            (!member.back && !how.was_failing && !accepted.contains(device)).then_some(())
        };
        let failed = self.states.iter().filter(|(_, judged)| judged.state == DeviceState::Failed);
        failed
            .filter(|(device, _)| counts(device).is_some())
            .map(|(id, judged)| (id.clone(), judged.why.clone()))
            .collect()
    }

    /// What the evidence lets come next.
    fn by_evidence(&self, words: &RolloutWords, members: &Members<'_>) -> Next {
        let Self { record, facts, busy, .. } = *self;
        let updating = self.those(|_, state| state == DeviceState::Updating);
        if members.held.is_empty() && updating.is_empty() {
            return self.finish();
        }
        // Once nobody of a wave is left it proves nothing, and is as if it never was.
        let newest = members.newest_wave();
        let mut without_room = BTreeSet::new();
        if let Some(wave) = newest {
            let rest = fill(record, members, facts, busy, wave);
            if !rest.release.is_empty() {
                return self.release(wave, rest, false);
            }
            without_room = rest.no_room;
            if let Some(waiting) = self.proof(members, wave) {
                return waiting;
            }
        }
        if !without_room.is_empty() {
            return self.wait_for_room(&without_room);
        }
        let after = newest.unwrap_or(0);
        let gate = gate_ahead(record, members, after).filter(|wave| words.approved < *wave);
        for wave in after + 1..=record.last_wave() {
            let fill = fill(record, members, facts, busy, wave);
            if fill.is_full {
                continue;
            }
            if gate == Some(wave) {
                return self.wait(Why::Approval(wave), []);
            }
            if !fill.release.is_empty() {
                return self.release(wave, fill, false);
            }
            if !fill.no_room.is_empty() {
                return self.wait_for_room(&fill.no_room);
            }
            let passed_over = fill.passed_over.iter().map(|(device, why)| (device, why.clone()));
            return self.wait(Why::NobodyReady(wave), passed_over);
        }
        self.wait(Why::Updating, updating)
    }

    /// Whether the newest wave isn't proof enough yet.
    fn proof(&self, members: &Members<'_>, newest: u32) -> Option<Next> {
        let of_wave = members.proving().filter(|(_, how)| how.wave == newest);
        let devices: BTreeSet<_> = of_wave.map(|(device, _)| device).collect();
        let is_in = |device: &DeviceId| devices.contains(device);
        let updating = self.those(|device, state| is_in(device) && state == DeviceState::Updating);
        if !updating.is_empty() {
            return Some(self.wait(Why::Updating, updating));
        }
        let updated = self.those(|device, state| is_in(device) && state == DeviceState::Updated).len();
        let needed = self.record.state.policy.success_threshold.rounded_up(devices.len()).max(1);
        let missing = || self.those(|device, state| is_in(device) && state != DeviceState::Updated);
        // Once nobody is held any more there is nothing to prove.
        let too_few = updated < needed && !members.held.is_empty();
        too_few.then(|| self.wait(Why::TooFewUpdated { updated, needed }, missing()))
    }

    fn release(&self, wave: u32, fill: Fill, promoted: bool) -> Next {
        let Self { record, now, .. } = *self;
        let total = waves_of(&record.state.policy).count() + 1;
        let why = if promoted { "a person promoted it".to_owned() } else { format!("wave {wave} of {total}") };
        let reason = format!("{why}: {}", counted(fill.release.len()));
        let mut released = record.clone();
        released.state.waves.push(Release {
            wave,
            released: now,
            devices: fill.release,
            passed_over: fill.passed_over,
            was_failing: fill.was_failing,
            promoted,
        });
        decided(Decision::Release(wave), reason, released)
    }

    fn finish(&self) -> Next {
        let Self { record, now, .. } = *self;
        let left = self.those(|_, state| state != DeviceState::Updated);
        let left: BTreeMap<_, _> = left.into_iter().map(|(device, how)| (device.clone(), how)).collect();
        let updated = self.states.len() - left.len();
        let mut done = record.clone();
        done.state.state = Phase::Done;
        done.members.clear();
        let reason = match left.len() {
            // It ends as it is, and nobody lifted the stop.
            0 if record.open_stop().is_some() => "reverted".to_owned(),
            0 => format!("{} updated", counted(updated)),
            rest => format!("{} updated, {rest} not", counted(updated)),
        };
        done.state.end = Some(End { at: now, left });
        decided(Decision::Finish, reason, done)
    }
}

/// A state and why, for a person.
pub(super) fn shown(judged: &Judged) -> String {
    if judged.why.is_empty() { judged.state.to_string() } else { format!("{}: {}", judged.state, judged.why) }
}
