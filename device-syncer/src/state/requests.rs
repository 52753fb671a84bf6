//! What a person at the device asked for: small files that the next pass picks up, so that no port or socket is needed.

use std::fs;
use std::io;
use std::path::PathBuf;

use repo_git::{CommitId, durable};

use crate::config::Home;

/// Requests that wait for the next pass.
#[derive(Debug, Default)]
pub struct Requests {
    /// Try again what was given up: everything (empty), or one deployment by the operator's id.
    pub retry: Option<String>,
    /// Accept this commit although its history was rewritten.
    pub accept_history: Option<CommitId>,
}

const RETRY: &str = "request-retry";
const ACCEPT_HISTORY: &str = "request-accept-history";

/// Where requests appear.
pub fn places(home: &Home) -> Vec<PathBuf> {
    [RETRY, ACCEPT_HISTORY].iter().map(|name| home.root().join(name)).collect()
}

impl Requests {
    /// Reads what waits.
    pub fn read(home: &Home) -> Self {
        let read = |name: &str| fs::read_to_string(home.root().join(name)).ok().map(|text| text.trim().to_owned());
        Self { retry: read(RETRY), accept_history: read(ACCEPT_HISTORY).and_then(|text| text.parse().ok()) }
    }

    /// Asks for a retry.
    pub fn ask_retry(home: &Home, deployment: Option<&str>) -> io::Result<()> {
        durable::replace_file(&home.root().join(RETRY), deployment.unwrap_or_default().as_bytes(), 0o600)
    }

    /// Asks for a history to be accepted.
    pub fn ask_accept_history(home: &Home, commit: CommitId) -> io::Result<()> {
        durable::replace_file(&home.root().join(ACCEPT_HISTORY), commit.to_string().as_bytes(), 0o600)
    }

    /// Takes the request for a retry back.
    pub fn retry_is_done(home: &Home) {
        remove(home, RETRY);
    }

    /// Takes the request for a history back.
    pub fn history_is_accepted(home: &Home) {
        remove(home, ACCEPT_HISTORY);
    }
}

/// One that can't be removed is done once more, which does no harm.
fn remove(home: &Home, name: &str) {
    if let Err(error) = durable::remove_file(&home.root().join(name)) {
        tracing::warn!(request = name, %error, "can't remove a request that is done");
    }
}
