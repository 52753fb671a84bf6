//! Checks the way to the host, step by step, for a person who asks what stands between. Nothing is fetched, pushed or
//! renewed.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use repo_git::RemoteError;
use repo_http::{Clock, Url};
use repo_model::error_chain;
use repo_model::join::Join;

use crate::config::{Home, HostSettings};
use crate::host::connection::{ConnectionError, HostConnection};
use crate::host::refs::RemoteRefs;

/// A certificate that ends sooner is reported by `ends_soon`.
const SOON: SignedDuration = SignedDuration::from_hours(14 * 24);

/// The way to the host, in the order in which it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The name has an address.
    Name,
    /// Something takes connections there, or the proxy makes one.
    Connection,
    /// It is the host that is meant, by its certificate or its key.
    Trust,
    /// It knows this device.
    Credentials,
    /// It shows this device's repository.
    Repository,
}

impl Step {
    /// All steps, in the order in which the way is gone.
    pub const ALL: [Self; 5] = [Self::Name, Self::Connection, Self::Trust, Self::Credentials, Self::Repository];

    /// Where a failure with this reason ends the way.
    fn of(reason: &str) -> Self {
        match reason {
            "NameUnknown" => Self::Name,
            "ConnectionRefused" | "NetworkUnreachable" | "ProxyFailed" | "ProxyUnauthorized" | "ConnectTimeout"
            | "ConnectionCut" => Self::Connection,
            "TlsFailed" | "NotTheHost" | "SettingsUnusable" | "SshNoCommonAlgorithm" | "SshKnownHostsUnreadable" => {
                Self::Trust
            }
            _ if reason.starts_with("Certificate") || reason.starts_with("SshHostKey") => Self::Trust,
            "Unauthorized" | "Retired" | "Forbidden" | "CredentialUnreadable" | "ClientCertificateRefused" => {
                Self::Credentials
            }
            _ if reason.starts_with("SshKey") || reason.starts_with("SshAgent") => Self::Credentials,
            _ => Self::Repository,
        }
    }
}

/// What the check found.
#[derive(Debug)]
pub struct HostCheck {
    pub url: String,
    /// Where the way ended, with the reason's name and its words; or what the repository shows.
    pub found: Result<RemoteRefs, (Step, &'static str, String)>,
    /// How long the host took to show its branches, or the way to fail.
    pub took: Duration,
    /// How far this device's clock is before the host's, over HTTPS.
    pub clock: Option<SignedDuration>,
    /// Whether the host's certificate ends within two weeks, or its authority does.
    pub ends_soon: bool,
}

impl HostCheck {
    /// Asks the host once for its branches, and once for its time. No request takes longer than `limit`.
    pub fn run(
        home: &Home,
        join: &Join,
        settings: &HostSettings,
        clock: Clock,
        limit: Duration,
    ) -> Result<Self, ConnectionError> {
        let mut settings = settings.clone();
        for timeout in [&mut settings.timeouts.connect, &mut settings.timeouts.answer, &mut settings.timeouts.total] {
            *timeout = (*timeout).min(limit);
        }
        let (connection, began) = (HostConnection::open(home, join, None, &settings, clock)?, Instant::now());
        let found = RemoteRefs::poll(&connection.remote);
        let took = began.elapsed();
        let theirs = Url::parse(&connection.url).ok().and_then(|url| connection.time_of_host(&url));
        let now = Timestamp::now();
        let failed = |error: RemoteError| (Step::of(error.reason()), error.reason(), error_chain(&error));
        let ends_soon = found.is_ok() && connection.is_trusted_at(now + SOON) == Some(false);
        let clock = theirs.map(|theirs| theirs.duration_since(now));
        Ok(Self { url: connection.url, found: found.map_err(failed), took, clock, ends_soon })
    }
}
