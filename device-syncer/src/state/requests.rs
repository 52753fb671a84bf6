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
    /// Ask the host at once.
    pub sync: bool,
    /// Accept this commit although its history was rewritten.
    pub accept_history: Option<CommitId>,
}

const SYNC: &str = "request-sync";
const RETRY: &str = "request-retry";
const ACCEPT_HISTORY: &str = "request-accept-history";

/// Where what a person says appears: requests, what is held, and what is approved.
pub fn places(home: &Home) -> Vec<PathBuf> {
    let requests = [SYNC, RETRY, ACCEPT_HISTORY].map(|name| home.root().join(name));
    requests.into_iter().chain([home.hold(), home.approvals(), home.approved_removals(), home.restarts()]).collect()
}

impl Requests {
    /// Reads the request files, and leaves them; a history that is no commit is asked for by nobody.
    pub fn read(home: &Home) -> Self {
        let read = |name: &str| fs::read_to_string(home.root().join(name)).ok().map(|text| text.trim().to_owned());
        let accept_history = read(ACCEPT_HISTORY).and_then(|text| text.parse().ok());
        Self { sync: read(SYNC).is_some(), retry: read(RETRY), accept_history }
    }

    /// Asks for a pass that asks the host: that the file comes is what makes it begin.
    pub fn ask_sync(home: &Home) -> io::Result<()> {
        durable::replace_file(&home.root().join(SYNC), b"", 0o600)
    }

    /// Asks to try again what was given up of one deployment, by the operator's id; of all where it is `None`.
    pub fn ask_retry(home: &Home, deployment: Option<&str>) -> io::Result<()> {
        durable::replace_file(&home.root().join(RETRY), deployment.unwrap_or_default().as_bytes(), 0o600)
    }

    /// Asks for a history to be accepted.
    pub fn ask_accept_history(home: &Home, commit: CommitId) -> io::Result<()> {
        durable::replace_file(&home.root().join(ACCEPT_HISTORY), commit.to_string().as_bytes(), 0o600)
    }

    /// Takes the request to ask the host back.
    pub fn host_is_asked(home: &Home) {
        remove(home, SYNC);
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
