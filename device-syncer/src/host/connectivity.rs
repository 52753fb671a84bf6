//! Why the host can't be reached, while it can't: kept beside the clone for `status`, because the host can't be told.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use repo_git::{RemoteError, durable};
use repo_model::error_chain;
use repo_model::report::Condition;
use serde::{Deserialize, Serialize};

use crate::decision::conditions::{self, STALLED};

/// It may pass by itself.
pub const UNREACHABLE: &str = "Unreachable";

/// What stands between this device and its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// `Unreachable`, or `Stalled` if somebody has to do something.
    #[serde(rename = "type")]
    pub kind: String,
    /// A stable name.
    pub reason: String,
    /// A text for a person.
    pub message: String,
    /// Since when it is so.
    pub since: Timestamp,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {} (since {:.0})", self.kind, self.reason, self.message, self.since)
    }
}

/// What a failure to talk with the host is called.
pub fn condition(error: &RemoteError) -> Condition {
    let kind = if error.needs_a_person() { STALLED } else { UNREACHABLE };
    conditions::condition(kind, error.reason(), error_chain(error))
}

/// How talking with the host went.
#[derive(Debug)]
pub struct Contact {
    path: PathBuf,
    /// What the file says.
    known: Option<Trouble>,
    /// What this pass met.
    met: Option<Trouble>,
    retry_after: Option<Duration>,
}

impl Contact {
    /// What is known from before.
    pub fn open(path: PathBuf) -> Self {
        let known = read(&path);
        Self { path, known, met: None, retry_after: None }
    }

    /// Talking failed.
    pub fn failed(&mut self, error: &RemoteError, doing: &str, now: Timestamp) {
        let Condition { kind, reason, message } = condition(error);
        let is_known = self.known.as_ref().is_some_and(|known| known.kind == kind && known.reason == reason);
        if is_known {
            tracing::debug!(kind, reason, error = message, "{doing}");
        } else {
            tracing::warn!(kind, reason, error = message, "{doing}");
        }
        self.retry_after = self.retry_after.max(error.retry_after());
        let since = self.known.as_ref().filter(|_| is_known).map_or(now, |known| known.since);
        self.met = Some(Trouble { kind, reason, message, since });
    }

    /// A pass begins.
    pub fn begin(&mut self) {
        (self.met, self.retry_after) = (None, None);
    }

    /// A pass is over: what it met is what `status` shows from now on. Written only if its kind or reason changed.
    pub fn end(&mut self) {
        let name = |trouble: &Option<Trouble>| trouble.as_ref().map(|one| (one.kind.clone(), one.reason.clone()));
        if name(&self.known) != name(&self.met) {
            let written = match &self.met {
                Some(trouble) => durable::replace_file(&self.path, &repo_model::json::to_bytes(trouble), 0o600),
                None => durable::remove_file(&self.path).map(drop),
            };
            match (&self.met, written) {
                (_, Err(error)) => tracing::warn!(%error, "can't keep why the host can't be reached"),
                (None, Ok(())) => tracing::info!("the host is reached again"),
                (Some(_), Ok(())) => {}
            }
        }
        self.known.clone_from(&self.met);
    }

    /// What stands between now.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.known.as_ref()
    }

    /// How long the host wants to be left alone, by what it said in the last pass.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

/// What the file of a home says; one that can't be read says nothing.
pub fn read(path: &Path) -> Option<Trouble> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
