//! What persons at the device want restarted: `restart.json`, which `restart` writes, and the syncer takes back.

use std::collections::BTreeMap;

use jiff::Timestamp;
use repo_model::DeploymentName;
use serde::{Deserialize, Serialize};

use crate::config::Home;
use crate::decision::restarting::RequestOver;
use crate::state::json_file::{self, FileError};

/// `restart.json` of the home, written by `restart`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestsFile {
    /// When each was asked for: the same moment is the same restart.
    restarts: BTreeMap<DeploymentName, Timestamp>,
}

/// What is asked for. What can't be read asks for nothing.
pub fn read(home: &Home) -> BTreeMap<DeploymentName, Timestamp> {
    let text = "what was asked to be restarted can't be read, so nothing is";
    json_file::read_or_log::<RequestsFile>(&home.restarts(), text).map(|file| file.restarts).unwrap_or_default()
}

/// Asks for a restart of one more; what can't be read is replaced.
pub fn note(home: &Home, deployment: DeploymentName, now: Timestamp) -> Result<(), FileError> {
    let _lock = json_file::lock(home)?;
    let mut file: RequestsFile = json_file::read(&home.restarts())?.unwrap_or_default();
    file.restarts.insert(deployment, now);
    json_file::write(&home.restarts(), &file)
}

/// Takes back what is over, but nothing that was asked for since.
pub fn take_back(home: &Home, over: &[RequestOver]) -> Result<(), FileError> {
    let _lock = json_file::lock(home)?;
    let mut file: RequestsFile = json_file::read(&home.restarts())?.unwrap_or_default();
    file.restarts.retain(|name, at| !over.iter().any(|one| one.deployment == *name && one.at == *at));
    json_file::write(&home.restarts(), &file)
}
