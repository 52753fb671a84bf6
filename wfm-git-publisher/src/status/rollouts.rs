//! How the rollouts stand: what `control.git` remembers, and what each released device is by its verified branches.

use std::collections::BTreeMap;

use jiff::Timestamp;
use repo_model::DeviceId;
use serde::{Deserialize, Serialize};

use crate::fleet::{Fleet, RolloutWords};
use crate::parallel;
use crate::publish::Findings;
use crate::repos::{Control, ControlError, DeviceRepo, Home, Judge, Looks, Rollouts, Rosters};
use crate::rollout::{
    Case, DeviceState, Evidence, Meaning, Record, Released, RolloutState, Waits, Why, approval_ahead, meaning_of,
};

/// A rollout as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    #[serde(flatten)]
    pub state: RolloutState,
    /// The number of its last wave.
    pub last_wave: u32,
    /// How many devices it is for; 0 once it ended.
    pub members: usize,
    /// The devices that were released, by what they are, and those that aren't.
    pub devices: BTreeMap<DeviceId, DeviceRow>,
    /// What it waited for at the last look; absent where it ended, and before a look.
    #[serde(default)]
    pub waiting: Option<Waits>,
    /// The wave that a person has to agree to next; absent where no `approve` is ahead.
    #[serde(default)]
    pub approval: Option<u32>,
}

/// A device of a rollout as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRow {
    /// With which it was released, or the one that is meant for it; 0 where its change came to it before the first one.
    pub wave: u32,
    /// When it was released; absent if it wasn't.
    pub released: Option<Timestamp>,
    /// Absent before it is released.
    pub state: Option<DeviceState>,
    /// Why it is that, for a person.
    pub why: String,
}

/// All that is remembered.
pub fn rollouts(home: &Home) -> Result<Rollouts, ControlError> {
    let (ledger, _) = Control::read(home)?;
    Ok(ledger.rollouts)
}

/// What each of these waited for at the last look, by its number; nothing of those that were never looked at.
/// A moment that passed says nothing any more.
pub fn waiting(home: &Home, rollouts: &Rollouts, now: Timestamp) -> BTreeMap<u32, Waits> {
    let all = Findings::read(home).waiting;
    let open = all.iter().filter(|one| rollouts.open.contains_key(&one.rollout)).map(Waits::from);
    open.map(|one| (one.rollout, Waits { again: one.again.filter(|again| *again > now), ..one })).collect()
}

/// The wave of a rollout that a person has to agree to next: the one that it waited for at the last look, or else the first
/// one ahead; `None` if no `approve` is ahead.
pub fn approval(home: &Home, fleet: &Fleet, record: &Record) -> Option<u32> {
    let waiting = Findings::read(home).waiting.into_iter().find(|one| one.rollout == record.number());
    match waiting.map(|one| one.why) {
        Some(Why::Approval(wave)) => Some(wave),
        _ => approval_ahead(record, fleet),
    }
}

/// One rollout, with each of its devices; `None` if it isn't remembered.
pub fn rollout(
    home: &Home,
    fleet: &Fleet,
    number: u32,
    threads: usize,
    now: Timestamp,
) -> Result<Option<RolloutStatus>, ControlError> {
    let (ledger, rosters) = Control::read(home)?;
    if let Some(record) = ledger.rollouts.open.get(&number) {
        let looks = Looks::read(home);
        let at = At { home, fleet, rosters: &rosters, looks: &looks, now };
        let released = record.released();
        let row = |device: &DeviceId| (device.clone(), at.row(record, device, released.get(device).copied()));
        let members = record.members.keys().filter(|device| fleet.devices.contains_key(*device));
        let devices: BTreeMap<_, _> = parallel::map(members.collect(), threads, row).into_iter().collect();
        let (state, last_wave) = (record.state.clone(), record.last_wave());
        let (waiting, approval) = (waiting(home, &ledger.rollouts, now).remove(&number), approval(home, fleet, record));
        return Ok(Some(RolloutStatus { state, last_wave, members: devices.len(), devices, waiting, approval }));
    }
    Ok(ledger.rollouts.ended.get(&number).map(|state| {
        let record = Record { state: state.clone(), members: BTreeMap::new() };
        let left = state.end.iter().flat_map(|end| &end.left);
        let row = |(device, how): (&DeviceId, &String)| {
            let how_released = record.released_with(device);
            let wave = how_released.map_or(0, |how| how.wave);
            let row = DeviceRow { wave, released: how_released.map(|how| how.at), state: None, why: how.clone() };
            (device.clone(), row)
        };
        RolloutStatus {
            state: state.clone(),
            last_wave: record.last_wave(),
            members: 0,
            devices: left.map(row).collect(),
            waiting: None,
            approval: None,
        }
    }))
}

/// What persons said of a rollout; nothing where that isn't there or can't be read.
pub fn rollout_words(fleet: &Fleet, number: u32) -> RolloutWords {
    fleet.rollouts.get(&number).cloned().flatten().unwrap_or_default()
}

/// What a device is judged by.
struct At<'a> {
    home: &'a Home,
    fleet: &'a Fleet,
    rosters: &'a Rosters,
    looks: &'a Looks,
    now: Timestamp,
}

impl At<'_> {
    fn row(&self, record: &Record, device: &DeviceId, released: Option<Released>) -> DeviceRow {
        let Some(member) = record.members.get(device) else {
            return DeviceRow { wave: 0, released: None, state: None, why: String::new() };
        };
        let Some(how) = released else {
            return DeviceRow { wave: member.wave, released: None, state: None, why: "not released yet".to_owned() };
        };
        let row = |state, why: String| DeviceRow { wave: how.wave, released: Some(how.at), state: Some(state), why };
        let (has, evidence) = match self.evidence(record, device) {
            Ok(found) => found,
            Err(why) => return row(DeviceState::Blocked, why),
        };
        if has != member.want {
            return row(DeviceState::Blocked, "its `desired` hasn't the change".to_owned());
        }
        let judged = Case {
            policy: &record.state.policy,
            report_seconds: self.fleet.report_seconds(device),
            released: how,
            want: member.want.as_ref(),
            evidence: &evidence,
            now: self.now,
        }
        .judge();
        row(judged.state, judged.why)
    }

    /// What its `desired` has of the rollout's deployments, and what it says; or why that can't be read.
    fn evidence(&self, record: &Record, device: &DeviceId) -> Result<(Option<Meaning>, Evidence), String> {
        let read = |error: &dyn std::error::Error| error.to_string();
        let repo = DeviceRepo::open(self.home, self.rosters.fleet(), device).map_err(|error| read(&error))?;
        let repo = repo.ok_or("it has no repository")?;
        let tip = repo.desired(&self.rosters.publishers).map_err(|error| read(&error))?;
        let has = tip.as_ref().and_then(|tip| meaning_of(&tip.desired, &record.state.deployments));
        let enrolled = self.fleet.devices.get(device).map_or(&[][..], |device| &device.status_keys);
        let judge = Judge { enrolled, publishers: &self.rosters.publishers, looks: self.looks, now: self.now };
        let evidence = repo.evidence(tip.as_ref(), &record.state.deployments, judge);
        Ok((has, evidence))
    }
}
