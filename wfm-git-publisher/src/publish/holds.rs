//! What rollouts hold back, and what they let go: for each device, which of its deployments.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::{DeploymentName, DeviceId};

use crate::plan::Guarded;

/// What rollouts say, by device.
#[derive(Debug, Default)]
pub(super) struct Holds(BTreeMap<DeviceId, Held>);

/// What rollouts say of a device.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Deployments of which it gets nothing else yet.
    pub(super) deployments: BTreeSet<DeploymentName>,
    /// Why nothing else of it is published either: a guard refuses what all devices would get.
    pub(super) refused: Option<Guarded>,
    /// Whether its repository doesn't hold what it had of them when they were held back, because that was lost, restored or
    /// written by somebody else. What can't be kept would go: nothing is published for the device.
    pub(super) is_lost: bool,
    /// Deployments about whose rollouts, as a whole, guards were asked already.
    pub(super) asked: BTreeSet<DeploymentName>,
}

/// What rollouts say where there are none.
pub(super) static NOTHING_HELD: Holds = Holds(BTreeMap::new());

static NOTHING: Held = Held { deployments: BTreeSet::new(), refused: None, is_lost: false, asked: BTreeSet::new() };

impl Holds {
    pub(super) fn of(&self, device: &DeviceId) -> &Held {
        self.0.get(device).unwrap_or(&NOTHING)
    }
}
