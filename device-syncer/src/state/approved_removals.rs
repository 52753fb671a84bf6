//! The removals that a person at the device approved, beyond what `gates.removals` lets go at once.

use std::collections::BTreeSet;
use std::io;

use jiff::Timestamp;
use repo_git::durable;
use repo_model::{DeploymentId, json};
use serde::{Deserialize, Serialize};

use crate::config::Home;
use crate::state::json_file;

/// `approved-removals.json` of the home, written by `approve --removals`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovedRemovals {
    pub deployments: BTreeSet<DeploymentId>,
    pub by: String,
    pub why: String,
    pub at: Timestamp,
}

/// The deployments that may go. What can't be read approves nothing.
pub fn read(home: &Home) -> BTreeSet<DeploymentId> {
    let text = "what was approved to be removed can't be read, so it isn't approved";
    let read = json_file::read_or_log::<ApprovedRemovals>(&home.approved_removals(), text);
    read.map(|approved| approved.deployments).unwrap_or_default()
}

/// Approves these, and nothing that was approved before.
pub fn write(home: &Home, approved: &ApprovedRemovals) -> io::Result<()> {
    durable::replace_file(&home.approved_removals(), &json::to_bytes(approved), 0o600)
}

/// Forgets what was approved, because it is gone: the same deployments may come again.
pub fn forget(home: &Home) {
    if let Err(error) = durable::remove_file(&home.approved_removals()) {
        tracing::warn!(%error, "can't forget what was approved to be removed");
    }
}
