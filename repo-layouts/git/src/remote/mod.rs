//! Repositories elsewhere: what they advertise, fetching from them within limits, pushing to them with an exact lease.
//!
//! Only repositories on this machine are reached so far, through stock `git upload-pack` and `git receive-pack` with a
//! clean environment.

mod connection;
mod fetch;
mod incoming;
mod pktline;
mod process;
mod push;
mod receive_pack;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

pub use fetch::{FetchError, FetchLimits, Fetched};
pub use push::{PushError, PushResult, PushUpdate};

use self::connection::Connection;
use crate::{Cause, CommitId};

/// A repository that is reached through Git's own protocol.
#[derive(Debug, Clone)]
pub struct Remote {
    way: Way,
    timeout: Duration,
}

/// How a remote is reached.
#[derive(Debug, Clone)]
enum Way {
    /// By stock Git on this machine.
    Local(PathBuf),
}

/// A remote can't be talked to.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The URL is of a kind that is not supported.
    #[error("`{url}` is not supported: use a local path or file://")]
    Unsupported {
        /// The URL.
        url: String,
    },
    /// There is no repository, or it can't be reached now.
    #[error("`{url}` can't be reached{}", if detail.is_empty() { String::new() } else { format!(": {detail}") })]
    Unreachable {
        /// The URL.
        url: String,
        /// What the other side said last.
        detail: String,
        /// Why.
        #[source]
        source: Cause,
    },
    /// It took longer than allowed.
    #[error("`{url}` took longer than {} s", limit.as_secs())]
    Timeout {
        /// The URL.
        url: String,
        /// The limit.
        limit: Duration,
    },
    /// It doesn't speak the protocol as it must.
    #[error("`{url}` broke the Git protocol{}", if detail.is_empty() { String::new() } else { format!(": {detail}") })]
    Protocol {
        /// The URL.
        url: String,
        /// What the other side said last.
        detail: String,
        /// Why.
        #[source]
        source: Cause,
    },
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

    /// Limits each conversation but a fetch, which has its own limit; 60 s unless told.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Where it is, for messages.
    pub fn url(&self) -> String {
        let Way::Local(path) = &self.way;
        path.display().to_string()
    }

    /// The refs whose full names begin with one of the prefixes (none: all refs), and `HEAD` where it matches.
    pub fn refs(&self, prefixes: &[&str]) -> Result<BTreeMap<String, CommitId>, RemoteError> {
        let mut connection = Connection::open(self, self.timeout)?;
        connection.refs(prefixes).map_err(|source| connection.failed(self, source.into()))
    }
}
