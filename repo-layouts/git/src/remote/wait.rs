//! Waiting at a host that offers it, instead of asking again and again.

use std::time::Duration;

use repo_http::Timeouts;
use repo_model::header::JITTER;

use super::{Remote, RemoteError, Way};
use crate::CommitId;

/// How much later than asked for an answer may come.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// Stands for "no such branch".
const NOTHING: &str = "0000000000000000000000000000000000000000";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// A branch moved; the host asks to come at a random time within this, so that not all devices come at once.
    Moved {
        /// The host asks for it; at most a minute, whatever that says.
        jitter: Duration,
    },
    /// Nothing moved for as long as was asked for, or as the host lets anyone wait.
    Nothing,
    /// The host doesn't offer it, or not any more.
    Unsupported,
}

impl Waited {
    /// A branch moved; the host says `jitter` in milliseconds.
    pub(super) fn moved(jitter: u64) -> Self {
        Self::Moved { jitter: Duration::from_millis(jitter).min(Duration::from_secs(60)) }
    }
}

/// The commit as a request has it; zeros where there is none.
fn text(id: Option<CommitId>) -> String {
    id.map_or(NOTHING.to_owned(), |id| id.to_string())
}

impl Remote {
    /// The longest wait that the host offers, by what it said last; `None` for one that doesn't.
    pub fn waits(&self) -> Option<Duration> {
        match &self.way {
            Way::Local(_) | Way::SshProgram(_) => None,
            Way::Https(host) => host.waits(),
            #[cfg(feature = "ssh")]
            Way::Ssh(host) => host.waits(),
        }
    }

    /// Ends every request to the host that is under way, in whatever thread.
    pub fn interrupt(&self) {
        match &self.way {
            Way::Local(_) | Way::SshProgram(_) => {}
            Way::Https(host) => host.agent.interrupt(),
            #[cfg(feature = "ssh")]
            Way::Ssh(host) => host.interrupt(),
        }
    }

    /// Waits until `desired`, `freshness` or, if it says where that stands, `site` isn't where it is said to be, for
    /// `at_most`, or for as long as the host allows. A host that doesn't know `site` waits for the others. A host that stays silent for 10 s more has gone, or the way there.
    pub fn wait(
        &self,
        desired: Option<CommitId>,
        freshness: Option<CommitId>,
        site: Option<Option<CommitId>>,
        at_most: Duration,
    ) -> Result<Waited, RemoteError> {
        let host = match &self.way {
            Way::Local(_) | Way::SshProgram(_) => return Ok(Waited::Unsupported),
            Way::Https(host) => host,
            #[cfg(feature = "ssh")]
            Way::Ssh(host) => return host.wait(&text(desired), &text(freshness), site.map(text).as_deref(), at_most),
        };
        let Some(longest) = host.waits() else { return Ok(Waited::Unsupported) };
        let site = site.map(|site| format!("&site={}", text(site))).unwrap_or_default();
        let url = host.url.below(&format!("wait?desired={}&freshness={}{site}", text(desired), text(freshness)));
        let at_most = longest.min(at_most);
        let (limit, timeouts) = (at_most + GRACE, host.agent.timeouts());
        let timeouts = Timeouts { answer: limit, stall: limit, total: timeouts.connect + limit, ..timeouts };
        // RFC 7240, 4.3. Seconds are enough.
        let prefer = format!("wait={}", at_most.as_secs().max(1));
        match host.send_with(&url, &[("Prefer", &prefer)], None, Some("application/json"), timeouts) {
            Ok(response) if response.status == 200 => {
                let jitter = response.header(JITTER).and_then(|value| value.parse().ok()).unwrap_or(0);
                response.body.bytes(4096)?;
                Ok(Waited::moved(jitter))
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
