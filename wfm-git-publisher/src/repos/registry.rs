//! OCI registries, asked with the settings of this machine; those on loopback without TLS.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use repo_artifacts::{
    Archive, ArchiveError, Chart, ChartError, ChartReference, ImageReference, Images, InvalidReference, Limits,
    PackError, PackageReference, PulledPackage, Reference, Registry, RegistryError, Settings, compose,
};
use repo_http::{InvalidUrl, Url};
use repo_model::Digest;
use repo_model::envelope::Lock;

use crate::fleet::{MAX_BYTES, MAX_FILES};
use crate::render::{Artifact, ArtifactKind, Resolved};
use crate::signature::{VendorKey, VendorKeyError, VendorSignatureError};

/// The largest key or signature.
const SMALL: usize = 1 << 20;

/// Every registry and URL that archives, charts and images come from.
#[derive(Debug)]
pub struct Registries {
    registry: Registry,
}

/// An archive can't be found, made or stored.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// It isn't named as it must be.
    #[error("cannot read its name")]
    Reference(#[from] InvalidReference),
    #[error("cannot use its registry")]
    Registry(#[from] RegistryError),
    /// It is no chart that can be installed.
    #[error("it is no chart that can be installed")]
    Chart(#[from] ChartError),
    /// An address that can't be asked.
    #[error("cannot use the address")]
    Url(#[from] InvalidUrl),
    /// The vendor's key can't be used.
    #[error("cannot use the vendor's key at `{url}`")]
    VendorKey {
        url: String,
        #[source]
        source: VendorKeyError,
    },
    /// There is a key and no signature.
    #[error("there is no signature at `{url}`")]
    Unsigned { url: String },
    #[error("the signature at `{url}` isn't accepted")]
    Signature {
        url: String,
        #[source]
        source: VendorSignatureError,
    },
    /// The folder can't be packed.
    #[error("cannot pack the folder")]
    Pack(#[from] PackError),
    /// No device would take it.
    #[error("no device would take what is in `{}`", path.display())]
    Refused {
        path: PathBuf,
        /// Why, each with its file and place.
        reasons: Vec<String>,
    },
    /// What was packed is no compose archive.
    #[error("`{}` doesn't make a compose archive", path.display())]
    Archive {
        path: PathBuf,
        #[source]
        source: ArchiveError,
    },
}

impl Registries {
    pub fn new(settings: Settings) -> Self {
        Self { registry: Registry::new(settings) }
    }

    /// What the artefact is now. It is looked at, so that nothing is locked that no device could use or that its vendor
    /// didn't sign.
    pub fn resolve(&self, artifact: &Artifact) -> Result<Resolved, ArtifactError> {
        let Artifact { kind, repository, revision } = artifact;
        let chart = match kind {
            ArtifactKind::Archive => {
                let archive = Reference::parse(repository, revision)?;
                return self.resolve_images(&archive, self.registry.resolve(&archive)?);
            }
            ArtifactKind::SignedArchive(key) => return self.resolve_signed(&Reference::parse(repository, "")?, key),
            ArtifactKind::Contents { manifest, content } => {
                let lock = Lock { manifest: *manifest, content: *content };
                return self.resolve_images(&Reference::parse(repository, revision)?, lock);
            }
            ArtifactKind::Image(_) => {
                let digest = self.registry.resolve_image(&ImageReference::parse(repository)?)?;
                return Ok(Lock { manifest: digest, content: digest }.into());
            }
            ArtifactKind::Chart => ChartReference::oci(repository, revision)?,
            ArtifactKind::NamedChart(name) => ChartReference::repository(repository, name, revision)?,
        };
        let lock = self.registry.resolve_chart(&chart)?;
        let chart = Chart::read(&self.registry.pull_chart(&chart, Some(&lock))?)?;
        Ok(Resolved { chart: Some(chart), ..lock.into() })
    }

    /// Finds out which images a locked archive names.
    fn resolve_images(&self, archive: &Reference, lock: Lock) -> Result<Resolved, ArtifactError> {
        let bytes = self.registry.pull(archive, Some(&lock))?;
        Ok(Resolved { images: Some(images_of(&bytes)), ..lock.into() })
    }

    fn resolve_signed(&self, archive: &Reference, key: &str) -> Result<Resolved, ArtifactError> {
        let registry = &self.registry;
        let lock = registry.resolve(archive)?;
        let bytes = registry.pull(archive, Some(&lock))?;
        let url = Url::parse(key)?;
        let key = VendorKey::read(&registry.fetch(&url, SMALL)?);
        let key = key.map_err(|source| ArtifactError::VendorKey { url: url.to_string(), source })?;
        let url = signature_url(archive, &key)?;
        let signature = registry.fetch(&url, SMALL).map_err(|error| match error {
            RegistryError::NotFound { .. } => ArtifactError::Unsigned { url: url.to_string() },
            error => error.into(),
        })?;
        let signer = key.verify(&bytes, &signature, Timestamp::now());
        let signer = signer.map_err(|source| ArtifactError::Signature { url: url.to_string(), source })?;
        Ok(Resolved { signer: Some(signer), images: Some(images_of(&bytes)), ..lock.into() })
    }

    /// The files of an application package.
    pub fn pull_package(&self, package: &PackageReference) -> Result<PulledPackage, RegistryError> {
        self.registry.pull_package(package, MAX_FILES, MAX_BYTES)
    }

    /// Stores an archive under the tag.
    pub fn push(&self, artifact: &Artifact, archive: Vec<u8>) -> Result<Lock, ArtifactError> {
        let reference = Reference::parse(&artifact.repository, &artifact.revision)?;
        Ok(self.registry.push(&reference, archive)?)
    }
}

/// The images that an archive names; none of one that no device takes.
fn images_of(archive: &[u8]) -> Images {
    Archive::read(archive, &Limits::default()).map(|archive| Images::of(&archive)).unwrap_or_default()
}

/// The address of an archive's signature: beside it, before what follows a `?`.
fn signature_url(archive: &Reference, key: &VendorKey) -> Result<Url, ArtifactError> {
    let url = archive.url().map(Url::as_str).unwrap_or_default();
    let (path, query) = url.split_at(url.find('?').unwrap_or(url.len()));
    Ok(Url::parse(&format!("{path}{}{query}", key.suffix()))?)
}

/// Packs a folder with a `compose.yaml` into an archive that a device would accept; the same folder always makes the
/// same bytes.
pub fn pack(folder: &Path, name: &str) -> Result<(Vec<u8>, Digest), ArtifactError> {
    let archive = repo_artifacts::pack(folder, name)?;
    let read = Archive::read(&archive, &Limits::default())
        .map_err(|source| ArtifactError::Archive { path: folder.to_owned(), source })?;
    let reasons = compose::refused(&read);
    if !reasons.is_empty() {
        return Err(ArtifactError::Refused { path: folder.to_owned(), reasons });
    }
    let digest = Digest::of(&archive);
    Ok((archive, digest))
}
