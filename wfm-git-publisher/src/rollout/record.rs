//! The record of a rollout in `control.git`: who may have which change, and what was decided.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use repo_model::{DeploymentName, DeviceId};
use serde::{Deserialize, Deserializer, Serialize};

use super::meaning::Meaning;
use crate::fleet::{RolloutPolicy, WaveSpec};

/// A rollout, as `control.git` remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// `state.json`.
    pub state: RolloutState,
    /// `members.json`, which goes at the end.
    pub members: BTreeMap<DeviceId, Member>,
}

/// What is known of a rollout but for its members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutState {
    /// Its number, which no other one of the fleet ever has.
    pub rollout: u32,
    pub state: Phase,
    /// The commit of the fleet that means what members shall have, in 40 hex digits.
    pub fleet_commit: String,
    /// The operator's key whose signature on that commit was verified, or `unverified`.
    pub operator_key: String,
    pub deployments: BTreeSet<DeploymentName>,
    /// The policy that it began with; another one counts for the next rollout.
    pub policy: RolloutPolicy,
    /// The rollouts in the place of which it came.
    #[serde(default)]
    pub supersedes: BTreeSet<u32>,
    /// What a person let pass when it began, such as `removals`.
    #[serde(default)]
    pub allowed: BTreeSet<String>,
    /// What was released, in the order of time.
    #[serde(default)]
    pub waves: Vec<Release>,
    /// How often it stopped: stop 1 is the first of these.
    #[serde(default)]
    pub stops: Vec<Stop>,
    /// How it ended; absent before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
}

/// How a rollout stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Running,
    /// Too much failed, and nobody said that it goes on.
    Stopped,
    Done,
    /// Another one came in its place.
    Superseded,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Done => "done",
            Self::Superseded => "superseded",
        }
    }

    pub fn is_finished(self) -> bool {
        matches!(self, Self::Done | Self::Superseded)
    }
}

/// A device of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// What it had of the rollout's deployments when it became a member; absent: none of them.
    pub had: Option<Meaning>,
    /// What it shall have of them; absent: none of them.
    pub want: Option<Meaning>,
    /// The wave that is meant for it. It may come earlier in the place of one that can't, or be passed over to the last.
    pub wave: u32,
    #[serde(default, skip_serializing_if = "Order::is_normal")]
    pub order: Order,
    /// Whether it goes back to what it had, or stays what it is since the rollout before: it proves nothing of the change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub back: bool,
    /// Since when it has what it had, if it was in the middle of that change when something else was meant for it. It keeps its
    /// place in the budget until it is `updated` with that, or is released; once it is, this counts no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What it had before a change came to it, in the place of which this one comes: if the fleet means that again, it goes back at
    /// once. Absent if nothing came to it, or what it had before isn't known.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub before: Option<Option<Meaning>>,
}

/// What is there, also where it is `null`: it had none of the deployments.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Meaning>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl RolloutState {
    /// The number of the newest wave that was released by evidence; `None` before the first.
    pub fn newest_wave(&self) -> Option<u32> {
        self.own_waves().filter(|release| !release.promoted).map(|release| release.wave).max()
    }

    /// What this rollout released itself, the oldest first.
    pub fn own_waves(&self) -> impl Iterator<Item = &Release> {
        self.waves.iter().filter(|release| release.wave > 0)
    }

    /// The number of the stop that isn't lifted; `None` if there is none.
    pub fn open_stop(&self) -> Option<u32> {
        let is_open = self.stops.last().is_some_and(|stop| stop.resumed.is_none());
        is_open.then(|| u32::try_from(self.stops.len()).unwrap_or(u32::MAX))
    }
}

/// Whether a member comes before or behind the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// It is in the middle of a change that this one comes in place of.
    First,
    #[default]
    Normal,
    /// It joined when the rollout had begun.
    Last,
}

impl Order {
    fn is_normal(&self) -> bool {
        *self == Self::Normal
    }
}

/// Devices that were released at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// From 1; 0 for what another rollout had released, in the place of which this one comes, and what isn't `updated` yet, or goes
    /// back to what it had before that one.
    pub wave: u32,
    pub released: Timestamp,
    pub devices: BTreeSet<DeviceId>,
    /// Who would have been next and couldn't, and why; they come with the last wave.
    #[serde(default)]
    pub passed_over: BTreeMap<DeviceId, String>,
    /// Those of `devices` that were failing before: that they fail says nothing of the change.
    #[serde(default)]
    pub was_failing: BTreeSet<DeviceId>,
    /// Whether a person hastened it: it is no wave that the next one waits for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub promoted: bool,
}

/// A stop, because too many failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    pub at: Timestamp,
    pub reason: String,
    /// Who failed, and how. Once it is lifted, these are accepted.
    pub failed: BTreeMap<DeviceId, String>,
    /// When a person lifted it; absent before that.
    pub resumed: Option<Timestamp>,
}

/// The end of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub at: Timestamp,
    /// The devices that were released, or were in the middle of a change before, and aren't `updated`, and how they are; nobody
    /// where another rollout came in its place, which says of each what it is now.
    pub left: BTreeMap<DeviceId, String>,
}

impl Release {
    fn of(&self, device: &DeviceId) -> Released {
        let Self { wave, released, promoted, .. } = *self;
        Released { wave, at: released, was_failing: self.was_failing.contains(device), promoted }
    }
}

/// When and with what a device was released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    pub wave: u32,
    pub at: Timestamp,
    pub was_failing: bool,
    pub promoted: bool,
}

impl Record {
    /// Those whom the change comes to; not who goes back, or stays what it is.
    pub fn changed(&self) -> impl Iterator<Item = &Member> {
        self.members.values().filter(|member| !member.back)
    }

    pub fn number(&self) -> u32 {
        self.state.rollout
    }

    /// The number of the last wave, which is everybody whom no wave of the policy means.
    pub fn last_wave(&self) -> u32 {
        waves_of(&self.state.policy).map(|(wave, _)| wave).last().unwrap_or(0) + 1
    }

    /// Who was released, and when.
    pub fn released(&self) -> BTreeMap<&DeviceId, Released> {
        let all = self.state.waves.iter();
        all.flat_map(|release| release.devices.iter().map(|device| (device, release.of(device)))).collect()
    }

    /// When and with what one device was released; `None` if it wasn't, or is no member.
    pub fn released_with(&self, device: &DeviceId) -> Option<Released> {
        let mut newest = self.state.waves.iter().rev();
        newest.find(|release| release.devices.contains(device)).map(|release| release.of(device))
    }

    /// Who was passed over, and comes with the last wave.
    pub fn passed_over(&self) -> BTreeSet<&DeviceId> {
        self.state.waves.iter().flat_map(|release| release.passed_over.keys()).collect()
    }

    /// The number of the stop that isn't lifted; `None` if there is none.
    pub fn open_stop(&self) -> Option<u32> {
        self.state.open_stop()
    }

    /// Whose failure a person accepted.
    pub fn accepted(&self) -> BTreeSet<&DeviceId> {
        let lifted = self.state.stops.iter().filter(|stop| stop.resumed.is_some());
        lifted.flat_map(|stop| stop.failed.keys()).collect()
    }

    /// Takes a device's release back, because it gets something else.
    pub(super) fn take_back(&mut self, device: &DeviceId) {
        self.state.waves.iter_mut().for_each(|release| _ = release.devices.remove(device));
    }
}

/// The waves of a policy with their numbers from 1, but for the last one.
pub fn waves_of(policy: &RolloutPolicy) -> impl Iterator<Item = (u32, &WaveSpec)> {
    (1..).zip(policy.waves.iter().filter(|spec| !matches!(spec, WaveSpec::Approve(_))))
}

/// Whether a person has to agree before a wave, where `after` was the last one.
pub(super) fn needs_approval(policy: &RolloutPolicy, after: u32, before: u32) -> bool {
    let mut wave = 0;
    policy.waves.iter().any(|spec| match spec {
        WaveSpec::Approve(_) => wave >= after && wave < before,
        _ => {
            wave += 1;
            false
        }
    })
}
