//! What is kept of a deployment's sets: the one that ran well, and the one that failed.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::envelope::EnvelopeDeployment;
use repo_model::report::LockedImage;
use repo_model::{ComponentName, Digest};
use serde::{Deserialize, Serialize};

use super::failure::Failure;

/// The set of a deployment that ran well for long enough. It is put together anew from what was signed and the device's own
/// files, so that no value that stays on the device is kept twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoodSet {
    /// The bytes of its ApplicationDeployment.
    pub document: Vec<u8>,
    /// What else is to be known of it.
    pub inputs: GoodInputs,
}

/// `set.json` of a last good set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoodInputs {
    pub set: Digest,
    /// What went with the document.
    pub envelope: EnvelopeDeployment,
    /// What this device locked itself, by component and service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<ComponentName, BTreeMap<String, LockedImage>>,
    /// The input digests of its components, whose images stay.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub inputs: BTreeSet<Digest>,
}

/// What became of a set that failed (`rollbacks.json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollback {
    /// The set that failed.
    pub bad: Digest,
    pub why: Failure,
    pub instead: Instead,
}

/// What is done instead of what failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Instead {
    /// This set is put back.
    LastGood(Digest),
    /// Nothing is, for this reason.
    Nothing(String),
}
