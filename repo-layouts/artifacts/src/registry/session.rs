//! One operation at a registry: its requests, who makes them, and where they may lead (OCI distribution specification).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use repo_http::{Agent, Cause, Credential, HttpError, Method, Phase, Problem, Request, Response, Timeouts, Url};
use repo_model::{Digest, text};
use serde::Deserialize;

use super::challenge::{self, Challenge};
use super::tokens::{Purpose, Tokens};
use super::{RegistryError, Settings, invalid, same, unavailable};
use crate::Reference;
use crate::reference::is_local;

/// The largest manifest, in bytes; registries take none that is larger (distribution specification, *Pushing Manifests*).
pub(super) const LARGEST_MANIFEST: u64 = 4 << 20;

/// How much is read of a refusal, or of a token service's answer.
const LARGEST_WORD: u64 = 64 << 10;

/// The most characters that are shown of what a registry says.
const SHOWN: usize = 300;

/// How long it counts that a registry wants no token.
const WITHOUT_TOKEN: Duration = Duration::from_secs(60);

/// Redirects that are followed.
const REDIRECTS: usize = 5;

/// Compressed answers would hide the bytes that the digest is of.
const AS_IT_IS: (&str, &str) = ("Accept-Encoding", "identity");

/// What a registry says in an error that means: there is no such thing.
const MISSING: [&str; 4] = ["BLOB_UNKNOWN", "MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_FOUND"];

/// A conversation with one registry about one repository.
pub(super) struct Session<'a> {
    settings: &'a Settings,
    tokens: &'a Tokens,
    reference: &'a Reference,
    purpose: Purpose,
    agent: Agent,
    /// Hosts that may be asked without TLS: those of the settings, and this registry if it is on this machine.
    plain_http: BTreeSet<String>,
    /// `https://host[:port]/v2/`.
    base: Url,
    end: Instant,
}

/// One request of a session.
struct Asked<'a> {
    method: Method,
    url: &'a Url,
    headers: &'a [(&'a str, &'a str)],
    body: Option<&'a [u8]>,
}

impl<'a> Session<'a> {
    /// Gets ready; nothing is asked yet.
    pub(super) fn open(
        settings: &'a Settings,
        tokens: &'a Tokens,
        reference: &'a Reference,
        purpose: Purpose,
    ) -> Result<Self, RegistryError> {
        let mut plain_http = settings.plain_http.clone();
        plain_http.extend(reference.is_loopback().then(|| reference.host().to_owned()));
        let scheme = if plain_http.contains(reference.host()) { "http" } else { "https" };
        // The registry by this name speaks at another one.
        let host = if reference.host() == "docker.io" { "index.docker.io" } else { reference.host() };
        let base = Url::of_registry(&format!("{scheme}://{host}/v2/"), &plain_http);
        let base = base.map_err(|error| unavailable(reference, error))?;
        let agent = settings.agent(plain_http.clone()).map_err(|error| unavailable(reference, error))?;
        let end = Instant::now() + settings.timeouts.total;
        Ok(Self { settings, tokens, reference, purpose, agent, plain_http, base, end })
    }

    pub(super) fn reference(&self) -> &'a Reference {
        self.reference
    }

    /// The bytes of the manifest with this tag or digest; of a digest no other ones.
    pub(super) fn manifest(&self, wanted: &str, accepted: &[&str]) -> Result<Vec<u8>, RegistryError> {
        let url = self.url("manifests", wanted);
        let response = self.get(&url, &[("Accept", &accepted.join(", "))])?;
        if response.status != 200 {
            return Err(self.refused(&url, response));
        }
        let said = digest_header(&response);
        let body = self.read(response, "manifest", LARGEST_MANIFEST)?;
        let found = Digest::of(&body);
        // By a tag, only the registry itself says what it should be.
        for expected in wanted.parse().into_iter().chain(said) {
            same(self.reference, "manifest", expected, found)?;
        }
        Ok(body)
    }

    /// The bytes of a blob with this digest, at most `limit`.
    pub(super) fn blob(&self, digest: Digest, limit: usize) -> Result<Vec<u8>, RegistryError> {
        let url = self.url("blobs", &digest.to_string());
        let response = self.get(&url, &[])?;
        if !is_success(response.status) {
            return Err(self.refused(&url, response));
        }
        let bytes = self.read(response, "layer", limit as u64)?;
        same(self.reference, "layer", digest, Digest::of(&bytes))?;
        Ok(bytes)
    }

    /// Stores a blob, unless it is there.
    pub(super) fn push_blob(&self, digest: Digest, bytes: &[u8]) -> Result<(), RegistryError> {
        let blob = self.url("blobs", &digest.to_string());
        let asked = Asked { method: Method::Head, url: &blob, headers: &[], body: None };
        if self.ask(&asked)?.status == 200 {
            return Ok(());
        }
        let uploads = self.url("blobs", "uploads/");
        let begun = self.ask(&Asked { method: Method::Post, url: &uploads, headers: &[], body: Some(b"") })?;
        if begun.status != 202 {
            return Err(self.refused(&uploads, begun));
        }
        let place = self.elsewhere(&uploads, begun.header("location").unwrap_or_default())?;
        drain(begun);
        let separator = if place.as_str().contains('?') { '&' } else { '?' };
        let place = format!("{}{separator}digest={digest}", place.as_str());
        let place = Url::of_registry(&place, &self.plain_http).map_err(|error| self.unavailable(error))?;
        self.put(&place, "application/octet-stream", bytes)
    }

    /// Stores a manifest under a tag.
    pub(super) fn push_manifest(&self, tag: &str, media_type: &str, body: &[u8]) -> Result<(), RegistryError> {
        self.put(&self.url("manifests", tag), media_type, body)
    }

    fn put(&self, url: &Url, media_type: &str, body: &[u8]) -> Result<(), RegistryError> {
        let headers = [("Content-Type", media_type)];
        let stored = self.ask(&Asked { method: Method::Put, url, headers: &headers, body: Some(body) })?;
        if stored.status != 201 {
            return Err(self.refused(url, stored));
        }
        let found = digest_header(&stored);
        drain(stored);
        found.map_or(Ok(()), |found| same(self.reference, "content", Digest::of(body), found))
    }

    fn url(&self, what: &str, which: &str) -> Url {
        self.base.below(&format!("{}/{what}/{which}", self.reference.path()))
    }

    /// What answers a `GET`, followed where it leads. What the registry accepts is shown nowhere else, and not at itself
    /// any more once it led away.
    fn get(&self, url: &Url, headers: &[(&str, &str)]) -> Result<Response, RegistryError> {
        let (mut url, mut is_away) = (url.clone(), false);
        for _ in 0..=REDIRECTS {
            let asked = Asked { method: Method::Get, url: &url, headers, body: None };
            let response = if is_away { self.ask_as(&asked, &Credential::None)? } else { self.ask(&asked)? };
            if !matches!(response.status, 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            let next = self.elsewhere(&url, response.header("location").unwrap_or_default())?;
            drain(response);
            is_away |= !next.has_origin_of(&self.base);
            url = next;
        }
        let to = "too many others".to_owned();
        Err(self.unavailable(HttpError { url: url.to_string(), problem: Problem::Redirect { to }, source: None }))
    }

    /// Where a registry may lead: to `https`, or to where plain HTTP is allowed, and to this machine or link only if the
    /// registry is here itself.
    fn elsewhere(&self, from: &Url, location: &str) -> Result<Url, RegistryError> {
        let may = |to: &Url| to.has_origin_of(&self.base) || self.reference.is_loopback() || !is_local(to.authority());
        from.leads_to(location, &self.plain_http).filter(may).ok_or_else(|| {
            let to = shown(location.split('?').next().unwrap_or_default());
            self.unavailable(HttpError { url: from.to_string(), problem: Problem::Redirect { to }, source: None })
        })
    }

    /// What answers, whatever its status. A token that isn't accepted any more is asked for anew, once.
    fn ask(&self, asked: &Asked<'_>) -> Result<Response, RegistryError> {
        if !asked.url.has_origin_of(&self.base) {
            return self.ask_as(asked, &Credential::None);
        }
        let account = self.account()?;
        let known = self.tokens.get(self.reference, self.purpose, &account);
        let is_known = known.is_some();
        let credential = known.map_or_else(|| self.authorise(&account), Ok)?;
        let response = self.ask_as(asked, &credential)?;
        if response.status != 401 || !is_known {
            return Ok(response);
        }
        drain(response);
        self.tokens.forget(self.reference, self.purpose);
        self.ask_as(asked, &self.authorise(&account)?)
    }

    fn ask_as(&self, asked: &Asked<'_>, credential: &Credential) -> Result<Response, RegistryError> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let problem = Problem::Slow { phase: Phase::Total, limit: self.settings.timeouts.total };
            return Err(self.unavailable(HttpError { url: asked.url.to_string(), problem, source: None }));
        }
        // In whole seconds, because it is reported.
        let total = Duration::from_secs(left.as_secs() + 1).min(self.settings.timeouts.total);
        let headers = [&[AS_IT_IS], asked.headers].concat();
        let request = Request {
            method: Some(asked.method),
            body: asked.body,
            headers: &headers,
            credential,
            timeouts: Some(Timeouts { total, ..self.settings.timeouts }),
            repeatable: matches!(asked.method, Method::Get | Method::Head),
            ..Request::get(asked.url)
        };
        self.agent.answer(&request).map_err(|error| self.unavailable(error))
    }

    /// Whose account it is here, as its file says now.
    fn account(&self) -> Result<Credential, RegistryError> {
        match self.settings.accounts.get(self.reference.host()) {
            Some(account) => account.get().map_err(|error| self.unavailable(error)),
            None => Ok(Credential::None),
        }
    }

    /// Finds out what the registry wants to be shown, and remembers it.
    fn authorise(&self, account: &Credential) -> Result<Credential, RegistryError> {
        if matches!(account, Credential::Bearer(_)) {
            return Ok(account.clone());
        }
        let asked = Asked { method: Method::Get, url: &self.base, headers: &[], body: None };
        let response = self.ask_as(&asked, &Credential::None)?;
        let challenge = Challenge::of(response.headers("www-authenticate"));
        drain(response);
        let accepted = match challenge {
            Challenge::None => (Credential::None, WITHOUT_TOKEN),
            Challenge::Basic => (account.clone(), WITHOUT_TOKEN),
            Challenge::Bearer { realm, service } => self.token(&realm, service.as_deref(), account)?,
        };
        self.tokens.put(self.reference, self.purpose, account.clone(), accepted.clone());
        Ok(accepted.0)
    }

    /// A token of the service that the registry names, which sees the account and leads nowhere else.
    fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        account: &Credential,
    ) -> Result<(Credential, Duration), RegistryError> {
        let realm = self.elsewhere(&self.base, realm)?;
        let mut query = format!("scope={}", challenge::query_value(&self.purpose.scope(self.reference)));
        query += &service.map(|name| format!("&service={}", challenge::query_value(name))).unwrap_or_default();
        let separator = if realm.as_str().contains('?') { '&' } else { '?' };
        let url = Url::of_registry(&format!("{}{separator}{query}", realm.as_str()), &self.plain_http);
        let url = url.map_err(|error| self.unavailable(error))?;
        let asked = Asked { method: Method::Get, url: &url, headers: &[], body: None };
        let response = self.ask_as(&asked, account)?;
        if response.status != 200 {
            return Err(self.unavailable(refusal(&url, response).0));
        }
        let answer = response.body.bytes(LARGEST_WORD).map_err(|error| self.unavailable(error))?;
        let (token, life) = challenge::token(&answer).map_err(|error| self.unavailable(error))?;
        Ok((Credential::Bearer(token), life))
    }

    /// All of an answer, at most `limit` bytes of this part.
    fn read(&self, response: Response, part: &str, limit: u64) -> Result<Vec<u8>, RegistryError> {
        response.body.bytes(limit).map_err(|error| match error.problem {
            Problem::TooLarge { limit } => invalid(self.reference, format!("its {part} has more than {limit} bytes")),
            _ => self.unavailable(error),
        })
    }

    /// The error that an answer is.
    fn refused(&self, url: &Url, response: Response) -> RegistryError {
        let (error, codes) = refusal(url, response);
        let is_missing = match (error.status(), codes) {
            (Some(401), _) => false,
            (Some(400..=499), Some(codes)) => codes.iter().any(|code| MISSING.contains(&code.as_str())),
            (status, _) => status == Some(404),
        };
        match is_missing {
            true => RegistryError::NotFound { artifact: self.reference.to_string() },
            false => self.unavailable(error),
        }
    }

    fn unavailable(&self, source: impl Into<Cause>) -> RegistryError {
        unavailable(self.reference, source)
    }
}

/// What a registry says when it refuses (distribution specification, *Error Codes*).
#[derive(Deserialize)]
struct Envelope {
    errors: Vec<Word>,
}

#[derive(Deserialize)]
struct Word {
    code: String,
    #[serde(default)]
    message: Option<String>,
}

/// What an answer that is no success says, and the codes in it, if it is a registry's.
fn refusal(url: &Url, response: Response) -> (HttpError, Option<Vec<String>>) {
    let status = response.status;
    let to = response
        .header("location")
        .filter(|_| (300..400).contains(&status))
        .map(|to| shown(to.split('?').next().unwrap_or_default()));
    let is_text = response.content_type() == "text/plain";
    let body = response.body.bytes(LARGEST_WORD).unwrap_or_default();
    let words = serde_json::from_slice::<Envelope>(&body).ok().map(|envelope| envelope.errors);
    let said = match words.as_deref() {
        Some(words) => words.first().map(|one| match one.message.as_deref().unwrap_or_default() {
            "" => one.code.clone(),
            message => format!("{}: {message}", one.code),
        }),
        None => is_text.then(|| String::from_utf8_lossy(&body).into_owned()),
    };
    let problem = match to {
        Some(to) => Problem::Redirect { to },
        None => Problem::Status { status, said: shown(&said.unwrap_or_default()), retry_after: None },
    };
    let codes = words.map(|words| words.into_iter().map(|one| one.code).collect());
    (HttpError { url: url.to_string(), problem, source: None }, codes)
}

/// The first line of what a stranger wrote, visible and cut.
fn shown(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    text::line(&line.chars().take(SHOWN).collect::<String>())
}

/// Reads what nobody needs, so that the connection can be kept.
fn drain(response: Response) {
    let _ = response.body.bytes(LARGEST_WORD);
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// What the registry says that the content's digest is; only SHA-256 counts here.
fn digest_header(response: &Response) -> Option<Digest> {
    response.header("docker-content-digest")?.parse().ok()
}
