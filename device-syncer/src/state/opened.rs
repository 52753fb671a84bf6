//! What the site's hook let through and wasn't told the end of yet: `hook.json`, so that it is told after a crash as well.

use std::collections::BTreeMap;
use std::io;

use repo_git::durable;
use repo_model::{DeploymentId, Digest, json};
use serde::{Deserialize, Serialize};

use crate::config::Home;
use crate::state::json_file;

/// What the hook let through, by deployment.
pub type Opened = BTreeMap<DeploymentId, OpenedChange>;

/// A change that the hook let through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenedChange {
    /// The operator's id of the deployment.
    pub deployment: String,
    /// Names all of the change, as `set` of what the hook was asked does.
    pub set: Digest,
}

/// Reads `hook.json`; nothing where it is missing. What can't be read is logged: a hook that waits for an end won't
/// hear of it.
pub fn read(home: &Home) -> Opened {
    let text = "what the site's hook let through can't be read, so it isn't told the end of that";
    json_file::read_or_log(&home.opened(), text).unwrap_or_default()
}

/// Replaces `hook.json` by these changes.
pub fn write(home: &Home, opened: &Opened) -> io::Result<()> {
    durable::replace_file(&home.opened(), &json::to_bytes(opened), 0o600)
}
