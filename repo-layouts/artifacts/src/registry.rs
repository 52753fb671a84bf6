//! Talks to OCI registries: what a tag means, the bytes behind it, and how they get there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::errors::{DigestError, OciDistributionError, OciErrorCode};
use oci_client::manifest::{
    IMAGE_MANIFEST_LIST_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE,
    OciDescriptor, OciImageManifest, OciManifest,
};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, RegistryOperation};
use repo_http::{Credential, Credentials, Url};
use repo_model::Digest;
use repo_model::envelope::Lock;
use tokio::io::AsyncWrite;

use crate::chart::repository;
use crate::reference::Kind;
use crate::{ARTIFACT_TYPE, CHART_PROVENANCE_TYPE, ChartReference, ImageReference, LAYER_TYPE, Reference, download};

/// Media type and bytes of the empty config blob (OCI image specification, *Guidelines for Artifact Usage*).
const EMPTY: (&str, &[u8]) = ("application/vnd.oci.empty.v1+json", b"{}");

/// Media types of manifests that are asked for: OCI's, and Docker's, under which some registries keep the same. An index
/// is asked for so that it isn't taken for nothing.
const MANIFESTS: &[&str] = &[OCI_IMAGE_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE];

/// Media types of what an image's tag may mean: one image, or an index of those for several platforms.
const IMAGES: &[&str] =
    &[OCI_IMAGE_INDEX_MEDIA_TYPE, IMAGE_MANIFEST_LIST_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE];

/// How registries are reached.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Registries (`host[:port]`) that are asked without TLS, like those on loopback; all others are asked with it.
    pub plain_http: BTreeSet<String>,
    /// More certificate authorities, in PEM.
    pub extra_roots: Vec<Vec<u8>>,
    /// Accounts, by `host[:port]`; their secrets are read again for each operation.
    pub accounts: BTreeMap<String, Credentials>,
    /// What stands between here and hosts of archives by URL.
    pub proxy: Option<repo_http::Proxy>,
    /// The time that certificates of those hosts are judged by; `None`: the machine's.
    pub clock: Option<repo_http::Clock>,
    /// Largest layer, in bytes.
    pub max_layer: usize,
    /// Limit of one operation.
    pub timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            plain_http: BTreeSet::new(),
            extra_roots: Vec::new(),
            accounts: BTreeMap::new(),
            proxy: None,
            clock: None,
            max_layer: 64 << 20,
            timeout: Duration::from_secs(300),
        }
    }
}

/// Why an artefact can't be had or stored.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The client can't be set up.
    #[error("can't set up the registry client")]
    Setup(#[source] io::Error),
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

/// A client for all registries; one per process is enough.
#[derive(Debug)]
pub struct Registry {
    settings: Settings,
}

impl Registry {
    /// Sets the client up; nothing is asked yet.
    pub fn new(settings: Settings) -> Self {
        // Someone else may have installed one already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { settings }
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
        self.block_on(reference, async {
            let (client, auth) = (self.client(reference)?, self.auth(reference)?);
            let pulled = client.pull_manifest_raw(&self::image(reference, reference.tag()), &auth, IMAGES).await;
            pulled.map(|(body, _)| Digest::of(&body)).map_err(|error| failed(reference, error))
        })
    }

    fn resolve_tag(&self, reference: &Reference) -> Result<Lock, RegistryError> {
        self.block_on(reference, async {
            let (manifest, layer) = self.manifest(reference, reference.tag().to_owned()).await?;
            Ok(Lock { manifest, content: digest_of(reference, &layer)? })
        })
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
        self.block_on(reference, async {
            let wanted = lock.map_or_else(|| reference.tag().to_owned(), |lock| lock.manifest.to_string());
            let (manifest, layer) = self.manifest(reference, wanted).await?;
            let content = digest_of(reference, &layer)?;
            if let Some(lock) = lock {
                same(reference, "manifest", lock.manifest, manifest)?;
                same(reference, "layer", lock.content, content)?;
            }
            let bytes = self.blob(reference, &layer).await?;
            same(reference, "layer", content, Digest::of(&bytes))?;
            Ok(bytes)
        })
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
        let manifest = manifest_for(content, layer.len());
        let body = serde_json::to_vec(&manifest).map_err(|error| unavailable(reference, error))?;
        let lock = Lock { manifest: Digest::of(&body), content };
        self.block_on(reference, async {
            let (client, image) = (self.client(reference)?, image(reference, reference.tag()));
            let auth = self.auth(reference)?;
            client.auth(&image, &auth, RegistryOperation::Push).await.map_err(|error| failed(reference, error))?;
            let config = Digest::of(EMPTY.1).to_string();
            client.push_blob(&image, EMPTY.1.to_vec(), &config).await.map_err(|error| failed(reference, error))?;
            let content = content.to_string();
            client.push_blob(&image, layer, &content).await.map_err(|error| failed(reference, error))?;
            let media_type = oci_client::manifest::OciManifest::Image(manifest).content_type().to_owned();
            let media_type = media_type.parse().map_err(|error| unavailable(reference, error))?;
            client.push_manifest_raw(&image, body, media_type).await.map_err(|error| failed(reference, error))
        })?;
        Ok(lock)
    }

    fn block_on<T>(
        &self,
        reference: &Reference,
        work: impl Future<Output = Result<T, RegistryError>>,
    ) -> Result<T, RegistryError> {
        // One for each call: a runtime can't be dropped where another one is at work.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let limit = self.settings.timeout;
        let limited = async { tokio::time::timeout(limit, work).await };
        runtime
            .map_err(RegistryError::Setup)?
            .block_on(limited)
            .unwrap_or_else(|elapsed| Err(unavailable(reference, elapsed)))
    }

    /// Digest and checked layer of the manifest with this tag or digest.
    async fn manifest(&self, reference: &Reference, wanted: String) -> Result<(Digest, OciDescriptor), RegistryError> {
        let (client, image) = (self.client(reference)?, image(reference, &wanted));
        let pulled = client.pull_manifest_raw(&image, &self.auth(reference)?, MANIFESTS).await;
        let (body, _) = pulled.map_err(|error| failed(reference, error))?;
        let found = Digest::of(&body);
        if let Ok(locked) = wanted.parse() {
            same(reference, "manifest", locked, found)?;
        }
        let manifest = serde_json::from_slice(&body).map_err(|error| invalid(reference, error.to_string()))?;
        Ok((found, the_layer(reference, manifest)?))
    }

    async fn blob(&self, reference: &Reference, layer: &OciDescriptor) -> Result<Vec<u8>, RegistryError> {
        let limit = self.settings.max_layer;
        if usize::try_from(layer.size).is_ok_and(|size| size > limit) {
            return Err(invalid(reference, format!("its layer has more than {limit} bytes")));
        }
        let mut bytes = Bounded { bytes: Vec::new(), limit };
        let (client, image) = (self.client(reference)?, image(reference, reference.tag()));
        client.store_auth_if_needed(reference.host(), &self.auth(reference)?).await;
        match client.pull_blob(&image, layer, &mut bytes).await {
            Ok(()) => Ok(bytes.bytes),
            Err(_) if bytes.bytes.len() >= limit => {
                Err(invalid(reference, format!("its layer has more than {limit} bytes")))
            }
            Err(error) => Err(failed(reference, error)),
        }
    }

    fn client(&self, reference: &Reference) -> Result<Client, RegistryError> {
        let root = |pem: &Vec<u8>| Certificate { encoding: CertificateEncoding::Pem, data: pem.clone() };
        let local = reference.is_loopback().then(|| reference.host().to_owned());
        let config = ClientConfig {
            protocol: ClientProtocol::HttpsExcept(self.settings.plain_http.iter().cloned().chain(local).collect()),
            extra_root_certificates: self.settings.extra_roots.iter().map(root).collect(),
            connect_timeout: Some(Duration::from_secs(10)),
            read_timeout: Some(Duration::from_secs(60)),
            platform_resolver: None,
            ..ClientConfig::default()
        };
        Client::try_from(config).map_err(|error| failed(reference, error))
    }

    fn auth(&self, reference: &Reference) -> Result<RegistryAuth, RegistryError> {
        let Some(account) = self.settings.accounts.get(reference.host()) else { return Ok(RegistryAuth::Anonymous) };
        Ok(match account.get().map_err(|error| unavailable(reference, error))? {
            Credential::None => RegistryAuth::Anonymous,
            Credential::Basic { user, secret } => RegistryAuth::Basic(user, secret),
            Credential::Bearer(token) => RegistryAuth::Bearer(token),
        })
    }
}

fn image(reference: &Reference, tag_or_digest: &str) -> oci_client::Reference {
    let (host, path) = (reference.host().to_owned(), reference.path().to_owned());
    if tag_or_digest.starts_with("sha256:") {
        oci_client::Reference::with_digest(host, path, tag_or_digest.to_owned())
    } else {
        oci_client::Reference::with_tag(host, path, tag_or_digest.to_owned())
    }
}

fn manifest_for(content: Digest, size: usize) -> OciImageManifest {
    let descriptor = |media_type: &str, digest: Digest, size: usize| OciDescriptor {
        media_type: media_type.to_owned(),
        digest: digest.to_string(),
        size: size as i64,
        ..OciDescriptor::default()
    };
    OciImageManifest {
        media_type: Some(OCI_IMAGE_MEDIA_TYPE.to_owned()),
        artifact_type: Some(ARTIFACT_TYPE.to_owned()),
        config: descriptor(EMPTY.0, Digest::of(EMPTY.1), EMPTY.1.len()),
        layers: vec![descriptor(LAYER_TYPE, content, size)],
        ..OciImageManifest::default()
    }
}

/// The layer of a manifest that holds the archive. A chart may have its provenance file beside it.
fn the_layer(reference: &Reference, manifest: OciManifest) -> Result<OciDescriptor, RegistryError> {
    let OciManifest::Image(manifest) = manifest else {
        return Err(invalid(reference, "it is an index of several artefacts".to_owned()));
    };
    let (expected, layer_type) = (reference.kind().artifact_type(), reference.kind().layer_type());
    let found = match reference.kind() {
        Kind::Compose => manifest.artifact_type.as_deref().unwrap_or(&manifest.config.media_type),
        Kind::Chart | Kind::Image => &manifest.config.media_type,
    };
    if found != expected {
        return Err(invalid(reference, format!("it is of type `{found}`, expected `{expected}`")));
    }
    let beside = |layer: &OciDescriptor| reference.kind() == Kind::Chart && layer.media_type == CHART_PROVENANCE_TYPE;
    let mut layers = manifest.layers.into_iter().filter(|layer| !beside(layer));
    match (layers.next(), layers.next()) {
        (Some(layer), None) if layer.media_type == layer_type => Ok(layer),
        _ => Err(invalid(reference, format!("expected one layer of type `{layer_type}`"))),
    }
}

fn digest_of(reference: &Reference, layer: &OciDescriptor) -> Result<Digest, RegistryError> {
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

fn unavailable(reference: &Reference, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> RegistryError {
    RegistryError::Unavailable { artifact: reference.to_string(), source: source.into() }
}

fn failed(reference: &Reference, error: OciDistributionError) -> RegistryError {
    use OciErrorCode::{BlobUnknown, ManifestUnknown, NameUnknown, NotFound};
    let missing = match &error {
        OciDistributionError::ImageManifestNotFoundError(_) => true,
        OciDistributionError::RegistryError { envelope, .. } => {
            envelope.errors.iter().any(|e| [BlobUnknown, ManifestUnknown, NameUnknown, NotFound].contains(&e.code))
        }
        OciDistributionError::ServerError { code, .. } => *code == 404,
        _ => false,
    };
    match error {
        _ if missing => RegistryError::NotFound { artifact: reference.to_string() },
        OciDistributionError::DigestError(DigestError::VerificationError { expected: locked, actual: found }) => {
            RegistryError::Changed { artifact: reference.to_string(), part: "content", locked, found }
        }
        OciDistributionError::DigestError(error) => invalid(reference, error.to_string()),
        error => unavailable(reference, error),
    }
}

/// Collects bytes up to a limit, however many are sent.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
}

impl AsyncWrite for Bounded {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, chunk: &[u8]) -> Poll<io::Result<usize>> {
        let room = self.limit - self.bytes.len();
        if room == 0 && !chunk.is_empty() {
            return Poll::Ready(Err(io::ErrorKind::FileTooLarge.into()));
        }
        let taken = chunk.len().min(room);
        self.bytes.extend_from_slice(&chunk[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_stored_as_any_oci_client_looks_for_it() {
        let host = std::env::var("MARGO_TEST_REGISTRY").expect("MARGO_TEST_REGISTRY is set: run `./justw test`");
        let repository = format!("oci://{host}/archives/{}/oci", std::process::id());
        let (registry, reference) =
            (Registry::new(Settings::default()), Reference::parse(&repository, "1.0.0").unwrap());
        let lock = registry.push(&reference, b"archive".to_vec()).unwrap();
        let pulled = registry.block_on(&reference, async {
            let client = registry.client(&reference)?;
            let (image, accepted) = (image(&reference, "1.0.0"), [OCI_IMAGE_MEDIA_TYPE]);
            let pulled = client.pull_manifest_raw(&image, &RegistryAuth::Anonymous, &accepted).await;
            pulled.map_err(|error| failed(&reference, error))
        });
        let (body, _) = pulled.unwrap();
        assert_eq!(Digest::of(&body), lock.manifest);
        let manifest: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(manifest["mediaType"], OCI_IMAGE_MEDIA_TYPE);
        assert_eq!(manifest["artifactType"], ARTIFACT_TYPE);
        assert_eq!(registry.resolve(&reference).unwrap(), lock);
    }
}
