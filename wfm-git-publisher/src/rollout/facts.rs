//! What a look is told: how each device stands, what the fleet says, and whom to ask for evidence and for guards.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use repo_model::{DeploymentName, DeviceId, Digest};

use super::evidence::Evidence;
use super::record::Record;
use crate::fleet::Fleet;

/// One deployment on one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What the verified tip of its `desired` has; absent: it isn't there.
    pub had: Option<Digest>,
    /// What the fleet means; absent: it shall not be there.
    pub want: Option<Digest>,
    /// Why it can't be published now, whatever is released.
    pub blocked: Option<String>,
}

impl Difference {
    /// Whether it could be published now.
    pub(super) fn is_open(&self) -> bool {
        self.had != self.want && self.blocked.is_none()
    }
}

/// How a device stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Its tip is all that the fleet means.
    Complete,
    /// Nothing changed since it was held. So is a device that nothing is said of.
    AsHeld,
    /// It was compared, before anything is held.
    Compared {
        /// Every deployment that it has or shall have, also where these are the same.
        deployments: BTreeMap<DeploymentName, Difference>,
        /// Whether its tip has no deployment: what comes to it is never held, because nothing runs there.
        is_bare: bool,
    },
    /// It can't be compared, and why.
    Unknown(String),
}

/// What a look is told.
pub struct Facts<'a> {
    pub fleet: &'a Fleet,
    /// The commit of the fleet that is published.
    pub fleet_commit: String,
    /// The operator's key whose signature on it was verified, or `unverified`.
    pub operator_key: String,
    pub devices: BTreeMap<DeviceId, Standing>,
    /// Deployments that come in the place of another one, with that.
    pub replaces: BTreeSet<(DeploymentName, DeploymentName)>,
    /// Devices whose `desired` isn't at the host that they talk to yet, and why.
    pub not_pushed: BTreeMap<DeviceId, String>,
    /// What a member verifiably says. Asked for whoever is released or was when it became a member, and for others only when they
    /// may be next.
    pub evidence: &'a dyn Fn(&Record, &DeviceId) -> Evidence,
    /// Why a guard refuses a change as a whole; `None` if none does.
    pub refused: &'a dyn Fn(&Proposal<'_>) -> Option<String>,
    /// What a person lets pass this time, such as `removals`.
    pub allowed: BTreeSet<String>,
    /// A number that no rollout ever had.
    pub next_number: u32,
}

impl fmt::Debug for Facts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facts").field("devices", &self.devices).finish_non_exhaustive()
    }
}

/// A change as a whole, before it begins.
#[derive(Debug)]
pub struct Proposal<'a> {
    pub deployments: &'a BTreeSet<DeploymentName>,
    /// All members.
    pub devices: BTreeSet<DeviceId>,
    /// How many deployments go, over all of them.
    pub removals: usize,
}

impl<'a> Facts<'a> {
    /// What is known where nobody looks at any device.
    pub(super) fn unlooked(fleet: &'a Fleet) -> Self {
        Self {
            fleet,
            fleet_commit: String::new(),
            operator_key: String::new(),
            devices: BTreeMap::new(),
            replaces: BTreeSet::new(),
            not_pushed: BTreeMap::new(),
            evidence: &|_, _| Evidence::default(),
            refused: &|_| None,
            allowed: BTreeSet::new(),
            next_number: 0,
        }
    }
}

impl Facts<'_> {
    pub(super) fn standing(&self, device: &DeviceId) -> &Standing {
        self.devices.get(device).unwrap_or(&Standing::AsHeld)
    }

    /// Whether the device is in the fleet, as far as that can be read.
    pub(super) fn has(&self, device: &DeviceId) -> bool {
        let broken = &self.fleet.broken;
        match self.fleet.devices.get(device) {
            Some(device) => device.retired.is_none(),
            None => broken.devices.contains(device) || !broken.unidentified.is_empty(),
        }
    }

    /// Whether the device leaves these deployments as they are, because the fleet says so.
    pub(super) fn is_suspended(&self, device: &DeviceId, deployments: &BTreeSet<DeploymentName>) -> bool {
        let one = |name| self.fleet.deployments.get(name).is_some_and(|one| one.suspended);
        self.fleet.devices.get(device).is_some_and(|device| device.suspended) || deployments.iter().any(one)
    }
}
