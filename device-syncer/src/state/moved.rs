//! `moved.json`: where a person said that the host is, in place of what the join file says.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use jiff::Timestamp;
use repo_git::durable;
use repo_model::join::Join;
use repo_model::json;
use serde::{Deserialize, Serialize};

/// A host that a person named by `set-host`. It counts for the join file that it was said of: a newer one, which comes from
/// the operator, has the last word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Moved {
    /// The URL in the join file when it was said.
    pub from: String,
    /// Where the device's repository is now.
    pub url: String,
    /// PEM of the authority there, where it isn't that of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    pub since: Timestamp,
}

impl Moved {
    /// What the join file comes to with it.
    pub fn put_into(self, join: &mut Join) {
        if self.from != join.url {
            return;
        }
        join.url = self.url;
        if self.ca.is_some() {
            join.ca = self.ca;
        }
    }
}

/// What the file says, if there is one.
pub fn read(path: &Path) -> io::Result<Option<Moved>> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        bytes => serde_json::from_slice(&bytes?).map(Some).map_err(Into::into),
    }
}

/// Writes it; without anything, the join file counts again.
pub fn write(path: &Path, moved: Option<&Moved>) -> io::Result<()> {
    match moved {
        Some(moved) => durable::replace_file(path, &json::to_bytes(moved), 0o600),
        None => durable::remove_file(path).map(drop),
    }
}
