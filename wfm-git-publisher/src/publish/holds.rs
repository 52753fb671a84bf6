//! What rollouts hold back, and what they let go: for each device, which of its deployments.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::{DeploymentName, DeviceId};

use crate::plan::Guarded;
use crate::rollout::{Look, Record};

/// What rollouts say, by device.
#[derive(Debug, Default)]
pub(super) struct Holds(BTreeMap<DeviceId, Held>);

/// What rollouts say of a device.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Deployments of which it gets nothing else yet.
    pub(super) deployments: BTreeSet<DeploymentName>,
    /// The guard that refuses what all devices would get, and which of the deployments it holds back.
    pub(super) refused: Option<(Guarded, BTreeSet<DeploymentName>)>,
    /// Whether its repository doesn't hold what it had of them when they were held back, because that was lost, restored or
    /// written by somebody else. What can't be kept would go: nothing is published for the device.
    pub(super) is_lost: bool,
    /// Deployments about whose rollouts, as a whole, guards were asked already.
    pub(super) asked: BTreeSet<DeploymentName>,
    /// By which waves it has, or gets, what it shall have.
    pub(super) released: Vec<ReleasedBy>,
}

/// What a device is released by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReleasedBy {
    pub(super) rollout: u32,
    pub(super) wave: u32,
    pub(super) deployments: BTreeSet<DeploymentName>,
    /// The commit of the fleet that means what it gets.
    pub(super) fleet_commit: String,
}

/// What rollouts say where there are none.
pub(super) static NOTHING_HELD: Holds = Holds(BTreeMap::new());

static NOTHING: Held =
    Held { deployments: BTreeSet::new(), refused: None, is_lost: false, asked: BTreeSet::new(), released: Vec::new() };

impl Holds {
    pub(super) fn of(&self, device: &DeviceId) -> &Held {
        self.0.get(device).unwrap_or(&NOTHING)
    }

    fn entry(&mut self, device: &DeviceId) -> &mut Held {
        self.0.entry(device.clone()).or_default()
    }

    /// Holds nothing back, and knows about what guards were asked when these began.
    pub(super) fn asked<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut holds = Self::default();
        for record in records {
            for device in record.members.keys() {
                holds.entry(device).asked.extend(record.state.deployments.iter().cloned());
            }
        }
        holds
    }

    /// What is held back and released by what was decided at this commit of the fleet; `refused` is the guard that refused
    /// something as a whole.
    pub(super) fn of_look(look: &Look, fleet_commit: &str, refused: Option<&Guarded>) -> Self {
        let mut holds = Self::asked(look.records.values());
        for (device, held) in &look.held {
            let one = holds.entry(device);
            one.deployments.extend(held.keys().cloned());
            let of_guard = held.iter().filter(|(_, by)| by.rollout.is_none()).map(|(name, _)| name.clone());
            let of_guard: BTreeSet<_> = of_guard.collect();
            one.refused = refused.filter(|_| !of_guard.is_empty()).map(|guard| (guard.clone(), of_guard));
            one.is_lost = look.lost.contains_key(device);
        }
        for record in look.records.values() {
            for (device, how) in record.released().into_iter().filter(|(_, how)| how.wave > 0) {
                let Some(member) = record.members.get(device) else { continue };
                let commit = if member.back { fleet_commit } else { &record.state.fleet_commit };
                holds.entry(device).released.push(ReleasedBy {
                    rollout: record.number(),
                    wave: how.wave,
                    deployments: record.state.deployments.clone(),
                    fleet_commit: commit.to_owned(),
                });
            }
        }
        holds
    }
}
