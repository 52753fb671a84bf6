//! Talks to OCI registries: what a tag means, the bytes behind it, and how they get there.

mod challenge;
mod manifest;
mod session;
mod tokens;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use repo_http::{Agent, Credentials, Timeouts, Url};
use repo_model::Digest;
use repo_model::envelope::Lock;

use crate::chart::repository;
use crate::{ChartReference, ImageReference, Reference, download};
use manifest::{Descriptor, EMPTY, IMAGES, MANIFESTS, Manifest, OCI_IMAGE};
use session::Session;
use tokens::{Purpose, Tokens};

/// How registries are reached.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Registries (`host[:port]`) that are asked without TLS and without the proxy, like those on loopback; all others
    /// are asked with it.
    pub plain_http: BTreeSet<String>,
    /// More certificate authorities, in PEM.
    pub extra_roots: Vec<Vec<u8>>,
    /// Accounts, by `host[:port]`; their secrets are read again for each operation.
    pub accounts: BTreeMap<String, Credentials>,
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
        /// The artefact.
        artifact: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The registry answered, and has no such artefact.
    #[error("`{artifact}` doesn't exist in its registry")]
    NotFound {
        /// The artefact.
        artifact: String,
    },
    /// It is there, and isn't what it should be.
    #[error("`{artifact}` is not a {kind}: {reason}")]
    Invalid {
        /// The artefact.
        artifact: String,
        /// What it should be: `compose archive`, `chart` or `chart repository`.
        kind: &'static str,
        /// The rule it breaks.
        reason: String,
    },
    /// It is there with other bytes than those that are locked.
    #[error("the {part} of `{artifact}` is {found}, locked is {locked}")]
    Changed {
        /// The artefact.
        artifact: String,
        /// Manifest or layer.
        part: &'static str,
        /// What the lock says.
        locked: String,
        /// What the registry says.
        found: String,
    },
}

/// A client for all registries; one per process is enough, and remembers their tokens while those last.
#[derive(Debug)]
pub struct Registry {
    settings: Settings,
    tokens: Tokens,
}

impl Registry {
    /// Sets the client up; nothing is asked yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, tokens: Tokens::default() }
    }

    /// What the tag means now.
    pub fn resolve(&self, reference: &Reference) -> Result<Lock, RegistryError> {
        if let Some(url) = reference.url() {
            return download::resolve(&self.settings, url);
        }
        self.resolve_tag(reference)
    }

    /// What the chart's tag means now, or its version in a chart repository.
    pub fn resolve_chart(&self, reference: &ChartReference) -> Result<Lock, RegistryError> {
        match reference {
            ChartReference::Oci(reference) => self.resolve_tag(reference),
            ChartReference::Repository(entry) => repository::resolve(&self.settings, entry),
        }
    }

    /// The digest of the manifest or index that the image's tag means now.
    pub fn resolve_image(&self, image: &ImageReference) -> Result<Digest, RegistryError> {
        let reference = image.reference();
        let body = self.session(reference, Purpose::Pull)?.manifest(reference.tag(), IMAGES)?;
        Ok(Digest::of(&body))
    }

    fn resolve_tag(&self, reference: &Reference) -> Result<Lock, RegistryError> {
        let (manifest, layer) = layer_of(&self.session(reference, Purpose::Pull)?, None)?;
        Ok(Lock { manifest, content: digest_of(reference, &layer)? })
    }

    /// The layer's bytes, verified; with a lock the artefact is asked for by its digest, whatever the tag says now.
    pub fn pull(&self, reference: &Reference, lock: Option<&Lock>) -> Result<Vec<u8>, RegistryError> {
        if let Some(url) = reference.url() {
            return download::pull(&self.settings, url, lock);
        }
        self.pull_layer(reference, lock)
    }

    /// The chart's `.tgz`, verified; with a lock in a registry it is asked for by its digest, in a chart repository no
    /// other bytes are taken.
    pub fn pull_chart(&self, reference: &ChartReference, lock: Option<&Lock>) -> Result<Vec<u8>, RegistryError> {
        match reference {
            ChartReference::Oci(reference) => self.pull_layer(reference, lock),
            ChartReference::Repository(entry) => repository::pull(&self.settings, entry, lock),
        }
    }

    fn pull_layer(&self, reference: &Reference, lock: Option<&Lock>) -> Result<Vec<u8>, RegistryError> {
        let session = self.session(reference, Purpose::Pull)?;
        let (_, layer) = layer_of(&session, lock)?;
        let content = digest_of(reference, &layer)?;
        if let Some(lock) = lock {
            same(reference, "layer", lock.content, content)?;
        }
        let limit = self.settings.max_layer;
        if usize::try_from(layer.size).is_ok_and(|size| size > limit) {
            return Err(invalid(reference, format!("its layer has more than {limit} bytes")));
        }
        session.blob(content, limit)
    }

    /// What is at an address, up to `limit` bytes: a key or a signature, for instance.
    pub fn fetch(&self, url: &Url, limit: usize) -> Result<Vec<u8>, RegistryError> {
        download::download(&self.settings, url, "small file", limit)
    }

    /// Stores an archive under the reference's tag.
    pub fn push(&self, reference: &Reference, layer: Vec<u8>) -> Result<Lock, RegistryError> {
        if reference.url().is_some() {
            return Err(invalid(reference, "an archive by URL is stored by whoever has the URL's host".to_owned()));
        }
        let content = Digest::of(&layer);
        let manifest = Manifest::of_archive(content, layer.len());
        let body = serde_json::to_vec(&manifest).map_err(|error| unavailable(reference, error))?;
        let session = self.session(reference, Purpose::Push)?;
        session.push_blob(Digest::of(EMPTY.1), EMPTY.1)?;
        session.push_blob(content, &layer)?;
        session.push_manifest(reference.tag(), OCI_IMAGE, &body)?;
        Ok(Lock { manifest: Digest::of(&body), content })
    }

    fn session<'a>(&'a self, reference: &'a Reference, purpose: Purpose) -> Result<Session<'a>, RegistryError> {
        Session::open(&self.settings, &self.tokens, reference, purpose)
    }
}

/// Digest and checked layer of the manifest that is locked, or that the tag means.
fn layer_of(session: &Session<'_>, lock: Option<&Lock>) -> Result<(Digest, Descriptor), RegistryError> {
    let reference = session.reference();
    let wanted = lock.map_or_else(|| reference.tag().to_owned(), |lock| lock.manifest.to_string());
    let body = session.manifest(&wanted, MANIFESTS)?;
    let manifest = serde_json::from_slice(&body).map_err(|error| invalid(reference, error.to_string()))?;
    Ok((Digest::of(&body), manifest::layer(reference, manifest)?))
}

fn digest_of(reference: &Reference, layer: &Descriptor) -> Result<Digest, RegistryError> {
    layer.digest.parse().map_err(|error: repo_model::digest::InvalidDigest| invalid(reference, error.to_string()))
}

fn same(reference: &Reference, part: &'static str, locked: Digest, found: Digest) -> Result<(), RegistryError> {
    if locked == found {
        return Ok(());
    }
    let (locked, found) = (locked.to_string(), found.to_string());
    Err(RegistryError::Changed { artifact: reference.to_string(), part, locked, found })
}

fn invalid(reference: &Reference, reason: String) -> RegistryError {
    RegistryError::Invalid { artifact: reference.to_string(), kind: reference.kind().name(), reason }
}

fn unavailable(reference: &Reference, source: impl Into<repo_http::Cause>) -> RegistryError {
    RegistryError::Unavailable { artifact: reference.to_string(), source: source.into() }
}
