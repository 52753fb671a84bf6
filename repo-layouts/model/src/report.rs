//! What a device says of itself: `syncer.json` on `status`, `current-state.json` on `heartbeat`.

mod check;
mod condition;
pub mod doubt;
mod health;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use check::{
    Beside, Heartbeat, Link, MAX_CHAIN, Named, Status, chain, heartbeat, identity, newest_state, time_ahead,
};
pub use condition::{Condition, ConditionType, Reason};
pub use doubt::Doubt;
pub use health::{Drift, Health};

use crate::envelope::is_zero;
use crate::{ComponentName, DeploymentId, Digest};

/// The path of the images that the device locked itself in the tree of `status`; absent if there are none.
pub const IMAGES: &str = "images.json";

/// The path of the syncer's own report in the tree of `status`.
pub const SYNCER: &str = "syncer.json";

/// The path of the DeviceCapabilitiesManifest in the tree of `status`.
pub const CAPABILITIES: &str = "capabilities.json";

/// The path of the file on `heartbeat` that is always there; answers may lie beside it.
pub const CURRENT_STATE: &str = "current-state.json";

/// What the syncer reports of itself and what rarely changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncerReport {
    pub layout: u64,
    pub version: String,
    /// Made at first start on this disk; two of them under one device id are a cloned disk.
    pub instance: Uuid,
    /// The desired state that the device last accepted; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<Adopted>,
    /// What is wrong or worth knowing, sorted by `type`.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// What the device's own site holds back.
    #[serde(default)]
    pub holds: Vec<String>,
    /// The gates that are closed on the device: what is held, and what waits for something else; since 0.3.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<ClosedGate>,
    /// The site's list that counts, whether it has expired or not; absent before the first. Since 0.3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<SeenList>,
}

/// A list of the site's that a device believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenList {
    pub serial: u64,
    /// The commit on `site`, 40 hex digits.
    pub commit: String,
    /// Until when it counts.
    pub expires: Timestamp,
    /// The name that the device's own configuration gives the key that signed it.
    pub key: String,
}

/// A gate that is closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedGate {
    /// Whose changes wait; absent where it is closed for the whole device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentId>,
    /// The error code of what waits, or one of a newer syncer.
    pub code: String,
    /// When the device first found it closed, or when a person closed it.
    pub since: Timestamp,
    /// When it opens by itself; absent where it doesn't, or that isn't known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// One line for a person.
    pub text: String,
    /// Who closed it, where somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The digest of the change that waits, where a person is asked for it and didn't approve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<Digest>,
}

/// An accepted desired state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Adopted {
    pub serial: u64,
    /// The `manifestVersion` of the desired state that was accepted.
    pub manifest_version: u64,
    /// The roster version that it was judged by.
    pub trust: u64,
    /// The commit on `desired`, 40 hex digits.
    pub commit: String,
    /// SHA-256 of that commit's `envelope.json`: what `Continues` names after a restore of the host.
    pub envelope: Digest,
}

/// Everything volatile: replaced at the report interval, never history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurrentState {
    pub layout: u64,
    pub time: Timestamp,
    /// The serial that is adopted; 0 before the first.
    pub serial: u64,
    /// Margo's `deploymentId` to what runs of it.
    pub deployments: BTreeMap<DeploymentId, CurrentDeployment>,
    /// The highest number that the fleet asked something by and that is done with; absent where the syncer answers nothing, which
    /// one before 0.3 never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<u64>,
}

/// What runs of one deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurrentDeployment {
    /// What runs of each component.
    pub components: BTreeMap<ComponentName, CurrentComponent>,
}

/// What runs of one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CurrentComponent {
    /// The input digest that runs; absent if nothing of ours does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_digest: Option<Digest>,
    /// Margo's state of the component.
    pub state: String,
    /// A word of [`Health`], or one of a newer syncer.
    pub health: String,
    /// A word of [`Drift`], or one of a newer syncer.
    pub drift: String,
    /// Why health isn't `healthy` or `starting`, for a person; absent where it is, and in what a syncer before 0.3 says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether it is degraded because something of it ends, and is started again, again and again; a syncer before 0.3 never says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub crash_looping: bool,
    /// Failed attempts at the present input digest.
    pub attempts: u32,
    /// The highest number of a restart of the fleet's that is at its end, or that it was installed with, by the device's own word; 0
    /// where there is none, and in what a syncer before 0.3 says.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restart: u64,
}

/// The images that a device locked, because their publisher didn't: by deployment, component and service.
pub type LockedImages = BTreeMap<DeploymentId, BTreeMap<ComponentName, BTreeMap<String, LockedImage>>>;

/// An image that a device locked when it first used it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockedImage {
    /// As the compose file names it, its variables filled; `***` stands for what must stay on the device.
    pub image: String,
    /// The digest that it was pulled as; its id if it never was pulled.
    pub digest: Digest,
}
