//! Waiting at a host that offers it, instead of asking again and again.

use std::time::Duration;

use repo_http::Timeouts;

use super::{Remote, RemoteError, Way};
use crate::CommitId;

/// How much later than promised an answer may come.
const GRACE: Duration = Duration::from_secs(15);

/// Stands for "no such branch".
const NOTHING: &str = "0000000000000000000000000000000000000000";

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// A branch moved; the host asks to come at a random time within this, so that not all devices come at once.
    Moved {
        /// At most a minute.
        jitter: Duration,
    },
    /// Nothing moved for as long as the host lets anyone wait.
    Nothing,
    /// The host doesn't offer it, or not any more.
    Unsupported,
}

impl Remote {
    /// The longest wait that the host offers, by what it said last; `None` for one that doesn't.
    pub fn waits(&self) -> Option<Duration> {
        match &self.way {
            Way::Local(_) => None,
            Way::Https(host) => host.waits(),
        }
    }

    /// Ends every request to the host that is under way, in whatever thread.
    pub fn interrupt(&self) {
        if let Way::Https(host) = &self.way {
            host.agent.interrupt();
        }
    }

    /// Waits until `desired` or `freshness` isn't where it is said to be, or for as long as the host allows.
    pub fn wait(&self, desired: Option<CommitId>, freshness: Option<CommitId>) -> Result<Waited, RemoteError> {
        let Way::Https(host) = &self.way else { return Ok(Waited::Unsupported) };
        let Some(longest) = host.waits() else { return Ok(Waited::Unsupported) };
        let text = |id: Option<CommitId>| id.map_or(NOTHING.to_owned(), |id| id.to_string());
        let url = host.url.below(&format!("wait?desired={}&freshness={}", text(desired), text(freshness)));
        let limit = longest + GRACE;
        let timeouts = Timeouts { answer: limit, stall: limit, total: limit, ..host.agent.timeouts() };
        match host.send_with(&url, &[], None, Some("application/json"), timeouts) {
            Ok(response) if response.status == 200 => {
                let jitter = response.header("wfm-jitter").and_then(|value| value.parse().ok()).unwrap_or(0);
                response.body.bytes(4096)?;
                Ok(Waited::Moved { jitter: Duration::from_millis(jitter).min(Duration::from_secs(60)) })
            }
            Ok(_) => Ok(Waited::Nothing),
            Err(RemoteError::Http(error)) if matches!(error.status(), Some(404 | 405 | 501)) => {
                host.no_longer_waits();
                Ok(Waited::Unsupported)
            }
            Err(error) => Err(error),
        }
    }
}
