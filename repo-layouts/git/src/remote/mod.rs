//! Repositories elsewhere: what they advertise, fetching from them within limits, pushing to them with an exact lease.
//!
//! Repositories on this machine are reached through stock `git upload-pack` and `git receive-pack` with a clean
//! environment. Others are reached by smart HTTP over an agent that the caller makes ([`Remote::https`]), over a kept SSH
//! session of this program's own (`Remote::ssh`, by libssh2, feature `ssh`: devices), or by the machine's own `ssh` with its
//! configuration ([`Remote::ssh_program`]: the publisher). A poll is one `ls-refs` on what is kept: over HTTPS on the
//! connection, once the host has shown that it speaks protocol version 2; over `ssh` in a channel of the session.

mod advertisement;
mod allowance;
mod bundle;
mod connection;
mod deadline;
mod fetch;
mod fetch_limits;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod gix_http;
mod https;
mod incoming;
mod measure;
mod pktline;
mod process;
mod push;
mod push_update;
mod receive_pack;
mod said;
#[cfg(feature = "ssh")]
pub mod ssh;
mod ssh_program;
mod wait;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use bundle::BundleError;
pub use fetch_limits::{FetchError, FetchLimits, Fetched};
pub use push_update::{PushError, PushResult, PushUpdate};
pub use receive_pack::refusal;
pub use ssh_program::{InvalidSshAddress, SshAddress, SshProblem, SshProgram, SshProgramError};
pub use wait::Waited;

use repo_http::{Agent, Credentials, HttpError, Url};

use self::connection::Connection;
use self::https::Https;
use self::ssh_program::SshProgramRemote;
use crate::{Cause, CommitId};

/// A repository that is reached through Git's own protocol.
#[derive(Debug, Clone)]
pub struct Remote {
    way: Way,
    timeout: Duration,
}

#[derive(Debug, Clone)]
enum Way {
    /// By stock Git on this machine.
    Local(PathBuf),
    /// By smart HTTP. Copies share what is known of the host.
    Https(Arc<Https>),
    /// By SSH. Copies share what is known of the host.
    #[cfg(feature = "ssh")]
    Ssh(Arc<ssh::Host>),
    /// By the machine's own `ssh`.
    SshProgram(Arc<SshProgramRemote>),
}

/// A remote can't be talked to.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The URL is of a kind that is not supported.
    #[error("`{url}` is not supported here: use a local path, file://, https:// or ssh://")]
    Unsupported { url: String },
    /// There is no repository, or it can't be reached now.
    #[error("`{url}` can't be reached{}", if detail.is_empty() { String::new() } else { format!(": {detail}") })]
    Unreachable {
        url: String,
        /// What the other side said last.
        detail: String,
        #[source]
        source: Cause,
    },
    /// It took longer than allowed.
    #[error("`{url}` took longer than {} s", limit.as_secs())]
    Timeout { url: String, limit: Duration },
    /// The host can't be asked, or doesn't answer as it should.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The host can't be asked over SSH, or doesn't answer as it should.
    #[cfg(feature = "ssh")]
    #[error(transparent)]
    Ssh(#[from] Box<ssh::SshError>),
    /// `ssh` failed, or the host that it leads to refuses.
    #[error(transparent)]
    SshProgram(#[from] Box<SshProgramError>),
    /// It doesn't speak the protocol as it must.
    #[error("`{url}` broke the Git protocol{}", if detail.is_empty() { String::new() } else { format!(": {detail}") })]
    Protocol {
        url: String,
        /// What the other side said last.
        detail: String,
        #[source]
        source: Cause,
    },
}

#[cfg(feature = "ssh")]
impl From<ssh::SshError> for RemoteError {
    fn from(error: ssh::SshError) -> Self {
        Box::new(error).into()
    }
}

impl From<SshProgramError> for RemoteError {
    fn from(error: SshProgramError) -> Self {
        Box::new(error).into()
    }
}

impl Remote {
    /// A remote by local path or `file://` URL. Nothing is contacted yet.
    pub fn open(url: &str) -> Result<Self, RemoteError> {
        let path = match url.split_once("://") {
            Some(("file", path)) => path,
            Some(_) => return Err(RemoteError::Unsupported { url: url.to_owned() }),
            None => url,
        };
        // Not what the other process would make of it.
        let path = std::path::absolute(path).map_err(|source| RemoteError::Unreachable {
            url: url.to_owned(),
            detail: String::new(),
            source: source.into(),
        })?;
        Ok(Self { way: Way::Local(path), timeout: Duration::from_secs(60) })
    }

    /// A remote by `https` URL, asked over `agent` as the one whom `credentials` say. Nothing is contacted yet.
    pub fn https(url: Url, agent: Agent, credentials: Credentials) -> Self {
        let timeout = agent.timeouts().total;
        Self { way: Way::Https(Arc::new(Https::new(url, agent, credentials))), timeout }
    }

    /// A remote by `ssh` URL, asked over `client`, which must be one for the same host. Nothing is contacted yet.
    #[cfg(feature = "ssh")]
    pub fn ssh(url: ssh::Url, client: ssh::Client) -> Self {
        let timeout = client.timeouts().total;
        Self { way: Way::Ssh(Arc::new(ssh::Host::new(url, client))), timeout }
    }

    /// A remote that the machine's own `ssh` leads to. Nothing is contacted yet.
    pub fn ssh_program(address: SshAddress, program: SshProgram) -> Self {
        let timeout = program.timeouts.total;
        Self { way: Way::SshProgram(Arc::new(SshProgramRemote { address, program })), timeout }
    }

    /// How long each conversation but a fetch may take, which has its own limit.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Where it is, for messages.
    pub fn url(&self) -> String {
        match &self.way {
            Way::Local(path) => path.display().to_string(),
            Way::Https(host) => host.url.to_string(),
            #[cfg(feature = "ssh")]
            Way::Ssh(host) => host.url.to_string(),
            Way::SshProgram(ssh) => ssh.address.to_string(),
        }
    }

    /// The refs whose full names begin with one of the prefixes (none: all refs), and `HEAD` where it matches.
    pub fn refs(&self, prefixes: &[&str]) -> Result<BTreeMap<String, CommitId>, RemoteError> {
        match &self.way {
            Way::Https(host) => return host.refs(prefixes, self.timeout),
            #[cfg(feature = "ssh")]
            Way::Ssh(host) => return host.refs(prefixes, self.timeout),
            Way::Local(_) | Way::SshProgram(_) => {}
        }
        let mut connection = Connection::open_process(self, self.timeout)?;
        connection.refs(prefixes).map_err(|source| connection.failed(self, source.into()))
    }

    /// The same by one exchange, for who asks each of many repositories once: whoever asks one again and again is better off
    /// with [`refs`](Self::refs), which asks for less from the second time on.
    pub fn refs_once(&self, prefixes: &[&str]) -> Result<BTreeMap<String, CommitId>, RemoteError> {
        match &self.way {
            Way::Https(host) => host.refs_once(prefixes, self.timeout),
            _ => self.refs(prefixes),
        }
    }
}

impl RemoteError {
    /// How long the host wants to be left alone, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Http(error) => error.retry_after(),
            #[cfg(feature = "ssh")]
            Self::Ssh(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Whether somebody has to do something before this can work again. Anything else may pass by itself.
    pub fn needs_a_person(&self) -> bool {
        match self {
            Self::Http(error) => error.needs_a_person(),
            #[cfg(feature = "ssh")]
            Self::Ssh(error) => error.needs_a_person(),
            Self::SshProgram(error) => error.needs_a_person(),
            Self::Unsupported { .. } => true,
            _ => false,
        }
    }

    /// A stable name of the problem, in PascalCase as the reason of a condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Http(error) => error.reason(),
            #[cfg(feature = "ssh")]
            Self::Ssh(error) => error.reason(),
            Self::SshProgram(error) => error.reason(),
            Self::Unsupported { .. } => "UnsupportedUrl",
            Self::Unreachable { .. } => "HostUnreachable",
            Self::Timeout { .. } => "TotalTimeout",
            Self::Protocol { .. } => "GitProtocolBroken",
        }
    }
}
