//! A host that is reached by smart HTTP (gitprotocol-http).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use repo_http::{Agent, Credentials, HttpError, Request, Response, Timeouts, Url};
use repo_model::IntoMap;
use repo_model::header::{REFS, WAIT};

use super::RemoteError;
use super::advertisement::{Advertisement, LONGEST_WAIT, Refs, ls_refs, read_ls_refs};
use crate::Cause;

/// The most bytes of an advertisement or an answer to `ls-refs`.
pub(super) const MAX_REFS: u64 = 16 << 20;

/// A host, and what is known of it.
#[derive(Debug)]
pub(super) struct Https {
    pub(super) url: Url,
    pub(super) agent: Agent,
    credentials: Credentials,
    known: Mutex<Known>,
}

/// The longest such name that is kept.
const LONGEST_NAME: usize = 64;

#[derive(Debug, Default)]
struct Known {
    /// It speaks protocol version 2, so its refs can be asked for at once.
    v2: bool,
    /// The longest wait that it offers.
    waits: Option<Duration>,
    /// Its last answer to `ls-refs`, if it gave that a name.
    refs: Option<Named>,
}

/// An answer to `ls-refs` with a name.
#[derive(Debug, Clone)]
struct Named {
    name: String,
    request: Vec<u8>,
    refs: Refs,
}

impl Https {
    pub(super) fn new(url: Url, agent: Agent, credentials: Credentials) -> Self {
        Self { url, agent, credentials, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest wait that the host offers.
    pub(super) fn waits(&self) -> Option<Duration> {
        self.known().waits
    }

    /// From now on the host counts as one without waiting, until it says otherwise.
    pub(super) fn no_longer_waits(&self) {
        self.known().waits = None;
    }

    /// One exchange within `limit`; `POST` where there is a body.
    pub(super) fn send(
        &self,
        url: &Url,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
        expects: Option<&'static str>,
        limit: Duration,
    ) -> Result<Response, RemoteError> {
        let timeouts = self.agent.timeouts();
        let timeouts = Timeouts { total: limit, ..timeouts };
        self.send_with(url, headers, body, expects, timeouts)
    }

    pub(super) fn send_with(
        &self,
        url: &Url,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
        expects: Option<&'static str>,
        timeouts: Timeouts,
    ) -> Result<Response, RemoteError> {
        let credential = self.credentials.get().map_err(|error| HttpError::credential(url, error))?;
        // What changes something has exact old values, but is never sent twice all the same.
        let repeatable = expects != Some("application/x-git-receive-pack-result");
        let timeouts = Some(timeouts);
        let credential = &credential;
        let request = Request { body, headers, credential, expects, timeouts, repeatable, ..Request::get(url) };
        let response = self.agent.send(&request)?;
        if let Some(longest) = response.header(WAIT).and_then(|value| value.parse().ok()) {
            self.known().waits = Some(Duration::from_secs(longest).min(LONGEST_WAIT)).filter(|wait| !wait.is_zero());
        }
        Ok(response)
    }

    /// Asks for the service's advertisement.
    pub(super) fn advertisement(
        &self,
        service: &str,
        protocol: &[(&str, &str)],
        expects: &'static str,
        limit: Duration,
    ) -> Result<Vec<u8>, RemoteError> {
        let url = self.url.below(&format!("info/refs?service={service}"));
        Ok(self.send(&url, protocol, None, Some(expects), limit)?.body.bytes(MAX_REFS)?)
    }

    /// The refs with one of these prefixes (none: all). One request where the host is known to speak version 2.
    pub(super) fn refs(&self, prefixes: &[&str], limit: Duration) -> Result<Refs, RemoteError> {
        let known = self.known().v2;
        if known {
            match self.ls_refs(prefixes, limit) {
                Err(error) if is_another_host(&error) => self.known().v2 = false,
                result => return result,
            }
        }
        self.refs_by(&[("Git-Protocol", "version=2")], prefixes, limit)
    }

    /// The same by one request where nothing is known of the host: version 0 tells all refs at once.
    pub(super) fn refs_once(&self, prefixes: &[&str], limit: Duration) -> Result<Refs, RemoteError> {
        self.refs_by(&[], prefixes, limit)
    }

    fn refs_by(&self, version: &[(&str, &str)], prefixes: &[&str], limit: Duration) -> Result<Refs, RemoteError> {
        let expects = "application/x-git-upload-pack-advertisement";
        let bytes = self.advertisement("git-upload-pack", version, expects, limit)?;
        match Advertisement::read(&bytes[..], "git-upload-pack").map_err(|source| self.broken(source))? {
            Advertisement::V2 { .. } => {
                let refs = self.ls_refs(prefixes, limit)?;
                self.known().v2 = true;
                Ok(refs)
            }
            Advertisement::Refs(refs) => Ok(only(refs, prefixes)),
        }
    }

    fn ls_refs(&self, prefixes: &[&str], limit: Duration) -> Result<Refs, RemoteError> {
        let expects = "application/x-git-upload-pack-result";
        let mut headers =
            vec![("Git-Protocol", "version=2"), ("Content-Type", "application/x-git-upload-pack-request")];
        let (url, request) = (self.url.below("git-upload-pack"), ls_refs(prefixes));
        let before = self.known().refs.clone().filter(|before| before.request == request);
        headers.extend(before.iter().map(|before| (REFS, before.name.as_str())));
        let response = self.send(&url, &headers, Some(&request), Some(expects), limit)?;
        if let (204, Some(before)) = (response.status, before) {
            return Ok(before.refs);
        }
        let name = response.header(REFS).filter(|name| name.len() <= LONGEST_NAME).map(str::to_owned);
        let answer = response.body.bytes(MAX_REFS)?;
        // The prefixes are a hint to the other side, which may send more.
        let refs = only(read_ls_refs(&answer[..]).map_err(|source| self.broken(source))?, prefixes);
        self.known().refs = name.map(|name| Named { name, request, refs: refs.clone() });
        Ok(refs)
    }

    pub(super) fn broken(&self, source: Cause) -> RemoteError {
        RemoteError::Protocol { url: self.url.to_string(), detail: String::new(), source }
    }
}

/// Whether the host may have become one that doesn't speak version 2: then the whole handshake shows what is wrong.
fn is_another_host(error: &RemoteError) -> bool {
    match error {
        RemoteError::Http(error) => {
            error.status().is_some_and(|status| status != 401 && status != 429) || error.reason() == "NotTheHost"
        }
        RemoteError::Protocol { .. } => true,
        _ => false,
    }
}

/// Of these refs, those whose names begin with one of the prefixes: a host may send more.
pub(super) fn only(refs: Refs, prefixes: &[&str]) -> Refs {
    let asked = |name: &str| prefixes.is_empty() || prefixes.iter().any(|prefix| name.starts_with(prefix));
    refs.into_iter().filter(|(name, _)| asked(name)).into_map()
}
