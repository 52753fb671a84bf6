//! Talks to OCI registries: what a tag means, the bytes behind it, and how they get there.

mod challenge;
mod layers;
mod manifest;
mod package;
mod session;
mod tokens;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use repo_http::{Credential, CredentialError, Credentials, Url};
use repo_model::Digest;
use repo_model::envelope::Lock;
use repo_model::error_chain;

use crate::chart::repository;
use crate::{ChartReference, ImageReference, Mirrors, Reference, RegistryError, Settings, download};
pub use layers::ImageLayers;
pub use package::{PackagePart, PackageReference, PulledPackage};

use manifest::{Descriptor, EMPTY, IMAGES, MANIFESTS, Manifest, OCI_IMAGE, Sized};
use session::Session;
use tokens::{Purpose, Tokens};

/// How much of an image's configuration is read, in bytes: those of images with hundreds of layers have some ten thousand.
const LARGEST_CONFIGURATION: usize = 4 << 20;

/// A client for all registries; one per process is enough, and remembers their tokens while those last.
#[derive(Debug)]
pub struct Registry {
    /// Without its mirrors, which may be others later.
    settings: Settings,
    tokens: Tokens,
    mirrors: Mutex<Arc<Mirrors>>,
}

impl Registry {
    /// Sets the client up; nothing is asked yet.
    pub fn new(mut settings: Settings) -> Self {
        let mirrors = Mutex::new(Arc::new(std::mem::take(&mut settings.mirrors)));
        Self { settings, tokens: Tokens::default(), mirrors }
    }

    /// From now on these are the mirrors, in place of those before.
    pub fn follow_mirrors(&self, mirrors: Mirrors) {
        *self.mirrors.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(mirrors);
    }

    fn mirrors(&self) -> Arc<Mirrors> {
        Arc::clone(&self.mirrors.lock().unwrap_or_else(PoisonError::into_inner))
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
        self.first(reference, self.mirrors().authorities(reference), |place| {
            let body = self.session(place, Purpose::Pull)?.manifest(place.tag(), IMAGES)?;
            Ok(Digest::of(&body))
        })
    }

    /// The names, without tag and digest, under which an image is asked for by its digest: those at the mirrors of its
    /// registry, and its own, unless only mirrors are asked.
    pub fn names_of(&self, image: &ImageReference) -> Vec<String> {
        let reference = image.reference();
        let name = |place: &Reference| match place == reference {
            true => image.name().to_owned(),
            false => format!("{}/{}", place.host(), place.path()),
        };
        self.mirrors().places(reference).iter().map(name).collect()
    }

    /// Whether what an image's tag means is asked at mirrors, which stand in its registry's place.
    pub fn mirrors_stand_for(&self, image: &ImageReference) -> bool {
        self.mirrors().authorities(image.reference()) != [image.reference().clone()]
    }

    /// The layers of an image in its registry: of the digest in its name, or of what its tag means now. Of an index the image
    /// for Linux on `architecture`, as Go calls it; `None` if it has none.
    pub fn image_layers(
        &self,
        image: &ImageReference,
        architecture: &str,
    ) -> Result<Option<ImageLayers>, RegistryError> {
        let reference = image.reference();
        let places = match image.digest() {
            Some(_) => self.mirrors().places(reference),
            None => self.mirrors().authorities(reference),
        };
        self.first(reference, places, |place| self.layers_at(place, image.digest(), architecture))
    }

    fn layers_at(
        &self,
        reference: &Reference,
        digest: Option<Digest>,
        architecture: &str,
    ) -> Result<Option<ImageLayers>, RegistryError> {
        let session = self.session(reference, Purpose::Pull)?;
        let read = |wanted: &str| -> Result<Sized, RegistryError> {
            let body = session.manifest(wanted, IMAGES)?;
            serde_json::from_slice(&body).map_err(|error| invalid(reference, error.to_string()))
        };
        let mut found = read(&digest.map_or_else(|| reference.tag().to_owned(), |digest| digest.to_string()))?;
        if found.is_index() {
            let Some(digest) = found.for_platform(architecture) else { return Ok(None) };
            let digest: Digest = digest.parse().map_err(|_| invalid(reference, format!("`{digest}` is no digest")))?;
            found = read(&digest.to_string())?;
        }
        let configuration = found.configuration().and_then(|digest| {
            let read = session.blob(digest, LARGEST_CONFIGURATION);
            let read = read.inspect_err(|error| {
                tracing::debug!(image = %reference, error = error_chain(error), "its configuration can't be had");
            });
            serde_json::from_slice(&read.ok()?).ok()
        });
        Ok(Some(ImageLayers::new(found.sizes(), configuration)))
    }

    fn resolve_tag(&self, reference: &Reference) -> Result<Lock, RegistryError> {
        self.first(reference, self.mirrors().authorities(reference), |place| self.resolve_at(place, None))
    }

    /// Where an artefact is asked for by its digest, in this order: at the mirrors of its registry, and at that itself,
    /// unless only mirrors are asked.
    pub fn places(&self, reference: &Reference) -> Vec<Reference> {
        self.mirrors().places(reference)
    }

    /// The account that the settings have for a registry (`host[:port]`), as its file says now.
    pub fn account(&self, host: &str) -> Result<Credential, CredentialError> {
        self.settings.accounts.get(host).map_or(Ok(Credential::None), Credentials::get)
    }

    /// What is at just this place: of what is locked, or of what the tag means there.
    pub fn resolve_at(&self, place: &Reference, lock: Option<&Lock>) -> Result<Lock, RegistryError> {
        let (manifest, layer) = layer_of(&self.session(place, Purpose::Pull)?, lock)?;
        Ok(Lock { manifest, content: digest_of(place, &layer)? })
    }

    /// The first answer at one of these places. What a mirror has otherwise than it should be is passed over like one that
    /// is away: only a registry itself can say that something is wrong for good.
    fn first<T>(
        &self,
        reference: &Reference,
        places: Vec<Reference>,
        ask: impl Fn(&Reference) -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let mut tried = Vec::new();
        for place in places {
            match ask(&place) {
                Err(error) if place != *reference => {
                    let error = error_chain(&error);
                    tracing::warn!(artifact = %reference, error, "a mirror is passed over");
                    tried.push(error);
                }
                Err(error @ RegistryError::Unavailable { .. }) if !tried.is_empty() => tried.push(error_chain(&error)),
                answer => return answer,
            }
        }
        Err(RegistryError::Nowhere { artifact: reference.to_string(), tried: tried.join("; ") })
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
        let mirrors = self.mirrors();
        let places = if lock.is_some() { mirrors.places(reference) } else { mirrors.authorities(reference) };
        self.first(reference, places, |place| self.pull_at(place, lock))
    }

    fn pull_at(&self, reference: &Reference, lock: Option<&Lock>) -> Result<Vec<u8>, RegistryError> {
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
