//! Where the host is, and how it is known. The join file says it; the newest roster may say it otherwise, and `moved.json` is
//! what a person at the device said in place of both.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use jiff::Timestamp;
use repo_git::durable;
use repo_model::join::Join;
use repo_model::json;
use serde::{Deserialize, Serialize};

use crate::config::Home;
use crate::state::roster;

/// A host that a person named by `set-host`. It counts for as long as join file and roster name the host that they named when it
/// was said: what they say later has the last word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Moved {
    /// The URL by join file and roster when it was said.
    pub from: String,
    /// Where the device's repository is now.
    pub url: String,
    /// PEM of the authority there, where it isn't that of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    pub since: Timestamp,
}

impl Moved {
    /// What the host comes to with it.
    fn put_into(self, join: &mut Join) {
        if self.from != join.url {
            return;
        }
        join.url = self.url;
        if self.ca.is_some() {
            join.ca = self.ca;
        }
    }
}

/// What join file and newest roster say of the host, as the keys of a join file.
pub fn by_roster(home: &Home, join: &Join) -> Join {
    let mut place = join.clone();
    // What a join file pins is read when that is.
    if let Ok(newest) = roster::newest(home, join) {
        place.follow_roster(&newest.roster);
    }
    place
}

/// The same, and what a person at the device says in place of that, if one does.
pub fn with(home: &Home, join: &Join, moved: Option<Moved>) -> Join {
    let mut place = by_roster(home, join);
    moved.into_iter().for_each(|moved| moved.put_into(&mut place));
    place
}

/// The same with what a person said before.
pub fn in_use(home: &Home, join: &Join) -> io::Result<Join> {
    Ok(with(home, join, read(&home.moved())?))
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
