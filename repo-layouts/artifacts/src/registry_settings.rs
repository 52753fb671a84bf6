//! How registries are reached, and why something can't be had from them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use repo_http::{Agent, Credentials, Timeouts};

use crate::Mirrors;

/// How registries are reached, and the bounds of what they send.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Registries (`host[:port]`) that are asked without TLS and without the proxy, like those on loopback; all others
    /// are asked with it.
    pub plain_http: BTreeSet<String>,
    /// More certificate authorities, in PEM.
    pub extra_roots: Vec<Vec<u8>>,
    /// Accounts, by `host[:port]`; their secrets are read again for each operation.
    pub accounts: BTreeMap<String, Credentials>,
    /// Where else registries' artefacts are. Each mirror is asked as the registry that it is.
    pub mirrors: Mirrors,
    /// What stands between here and registries, and hosts of archives by URL. `None`: what the environment names.
    pub proxy: Option<repo_http::Proxy>,
    /// The time that certificates of those hosts are judged by; `None`: the machine's.
    pub clock: Option<repo_http::Clock>,
    /// Largest layer, in bytes.
    pub max_layer: usize,
    /// How long each step may take; `total` is the limit of one operation with all its requests.
    pub timeouts: Timeouts,
}

impl Default for Settings {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            plain_http: BTreeSet::new(),
            extra_roots: Vec::new(),
            accounts: BTreeMap::new(),
            mirrors: Mirrors::default(),
            proxy: None,
            clock: None,
            max_layer: 64 << 20,
            timeouts: Timeouts { connect: seconds(10), answer: seconds(60), stall: seconds(60), total: seconds(300) },
        }
    }
}

impl Settings {
    /// An agent that may ask these hosts (`host[:port]`) without TLS, and only these.
    pub(crate) fn agent(&self, plain_http: BTreeSet<String>) -> Result<Agent, repo_http::Cause> {
        let authorities = self.extra_roots.iter().map(|pem| String::from_utf8(pem.clone()));
        let settings = repo_http::Settings {
            authorities: authorities.collect::<Result<_, _>>()?,
            public_roots: true,
            proxy: self.proxy.clone(),
            timeouts: self.timeouts,
            clock: self.clock.clone().unwrap_or_default(),
            user_agent: concat!("repo-artifacts-", env!("CARGO_PKG_VERSION")).to_owned(),
            ..repo_http::Settings::default()
        };
        Ok(Agent::for_registries(&settings, plain_http)?)
    }
}

/// Why an artefact can't be had or stored.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The registry can't be reached, or refused: it may answer later.
    #[error("`{artifact}` can't be had from its registry")]
    Unavailable {
        artifact: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No place where it was looked for has it as it should be, and another one, or a later time, may.
    #[error("`{artifact}` can't be had: {tried}")]
    Nowhere {
        artifact: String,
        /// Each place, with what was wrong there.
        tried: String,
    },
    /// The registry answered, and has no such artefact.
    #[error("`{artifact}` doesn't exist in its registry")]
    NotFound { artifact: String },
    /// It is there, and isn't what it should be.
    #[error("`{artifact}` is not a {kind}: {reason}")]
    Invalid {
        artifact: String,
        /// What it should be: `compose archive`, `chart` or `chart repository`.
        kind: &'static str,
        reason: String,
    },
    /// It is there with other bytes than those that are locked.
    #[error("the {part} of `{artifact}` is {found}, locked is {locked}")]
    Changed { artifact: String, part: &'static str, locked: String, found: String },
}
