//! What the host asks of the publisher, which alone knows fleets.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use repo_model::DeviceId;
use repo_model::enrolment::{Approved, Claim, EnrolmentError};
use repo_model::roster::RosterStep;
use serde::{Deserialize, Serialize};

use crate::judge::DevicePolicy;

/// Why the publisher can't answer, for the host's log.
pub type Reason = Box<dyn Error + Send + Sync>;

/// The publisher whose repositories are hosted. Each method but `pushed` may wait for the disk.
pub trait Publisher: Debug + Send + Sync + 'static {
    /// Whether the publisher's home is there.
    fn is_ready(&self) -> bool;

    /// What the device may push; `None` if nothing is published for it that names a key.
    fn device_policy(&self, device: &DeviceId) -> Result<Option<DevicePolicy>, PolicyError>;

    /// Lets a device in again that proved the key of this claim, with the secret of which the claim has the digest. The same
    /// again changes nothing.
    fn readmit(&self, claim: &Claim) -> Result<Approved, ReadmitError>;

    /// The device that may ask for a new key with this claim, whose both keys were proven: the published state lists the old one,
    /// and no person ended its account.
    fn may_rekey(&self, claim: &Claim) -> Result<DeviceId, ReadmitError>;

    /// Sets the damaged repository of a device aside, and rebuilds it from what of it can be read.
    fn rebuild(&self, repository: &Path) -> Result<(), Reason>;

    /// Hears that branches moved in the repository of a device, by its own push or one of its site's.
    fn pushed(&self, device: DeviceId);

    /// How the fleet does, for the metrics.
    fn figures(&self) -> Result<FleetFigures, Reason>;

    /// What an auditor begins with.
    fn audit_index(&self) -> Result<AuditIndex, Reason>;

    /// The rosters after this version, the oldest first.
    fn rosters_after(&self, version: u64) -> Result<Vec<RosterStep>, Reason>;
}

/// What an auditor begins with: which repositories there are, and what their commits are checked by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditIndex {
    /// [`AuditIndex::LAYOUT`], or a newer one that an older auditor can't read.
    pub layout: u64,
    /// All devices that have a repository, also those that left the fleet.
    pub devices: Vec<DeviceId>,
    /// The text of the fleet's first roster, `trust/1.json`.
    pub roster: String,
    /// The publisher's file for stock Git and ssh-keygen.
    pub allowed_signers: String,
    /// Whether the fleet repository is here, too.
    #[serde(default)]
    pub fleet: bool,
}

impl AuditIndex {
    pub const LAYOUT: u64 = 1;
}

/// A device isn't let in again, or gets no new key.
#[derive(Debug, thiserror::Error)]
pub enum ReadmitError {
    /// It is no device of this fleet, or may not.
    #[error(transparent)]
    Refused(#[from] EnrolmentError),
    /// That can't be known or kept now.
    #[error("cannot let a device in again")]
    Failed(#[source] Reason),
}

/// The publisher can't say what a device may push.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The device's repository can't be read or verified. Other devices may push.
    #[error("cannot read what the device shall run")]
    Unverified(#[source] Reason),
    /// What the publisher knows of all devices can't be read.
    #[error("cannot read the publisher's ledger")]
    Unreadable(#[source] Reason),
}

/// How the fleet does. Names and counts, so that the host need not know what they mean; all names are always there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetFigures {
    /// How many devices are in which state.
    pub devices: BTreeMap<&'static str, i64>,
    /// How many deployments are in which state, by what devices in service said last.
    pub deployments: BTreeMap<&'static str, i64>,
    /// Seconds since the oldest publish that a device which is heard of doesn't have; 0 if all of these have theirs.
    pub publish_lag: i64,
    /// How many deployments, or devices, can't be published for which reason.
    pub blocked: BTreeMap<&'static str, i64>,
    /// Seconds since the first of them could not be published; 0 if there is none.
    pub blocked_for: i64,
    /// How many rollouts that didn't end are in which state.
    pub rollouts: BTreeMap<&'static str, i64>,
    /// How many devices of these were released, and how many still wait.
    pub rollout_devices: BTreeMap<&'static str, i64>,
}

/// Where the host finds what it serves, and keeps what it needs.
#[derive(Debug, Clone)]
pub struct Places {
    /// Holds `fleet.git`, `control.git` and `devices/`.
    pub root: PathBuf,
    /// The directory with the files of the accounts.
    pub accounts: PathBuf,
    /// The fleet's own certificate authority.
    pub ca: PathBuf,
    /// The host keys of SSH, and what goes with them.
    pub ssh: PathBuf,
    /// Devices that wait to be enrolled.
    pub enrolments: PathBuf,
    /// Hooks and temporary files, which are made anew at each start.
    pub index: PathBuf,
}
