//! OCI registries, asked with the settings of this machine; those on loopback without TLS.

use std::path::{Path, PathBuf};

use repo_artifacts::{
    Archive, ArchiveError, InvalidReference, Limits, PackError, Reference, Registry, RegistryError, Settings,
};
use repo_model::Digest;
use repo_model::envelope::Lock;

use crate::render::Artifact;

/// All registries.
#[derive(Debug)]
pub struct Registries {
    settings: Settings,
}

/// An archive can't be found, made or stored.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// It isn't named as it must be.
    #[error("cannot read its name")]
    Reference(#[from] InvalidReference),
    /// Its registry failed.
    #[error("cannot use its registry")]
    Registry(#[from] RegistryError),
    /// The folder can't be packed.
    #[error("cannot pack the folder")]
    Pack(#[from] PackError),
    /// What was packed is no compose archive.
    #[error("`{}` doesn't make a compose archive", path.display())]
    Archive {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: ArchiveError,
    },
}

impl Registries {
    /// Registries with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    /// What the tag means now.
    pub fn resolve(&self, artifact: &Artifact) -> Result<Lock, ArtifactError> {
        let reference = Reference::parse(&artifact.repository, &artifact.revision)?;
        Ok(self.registry().resolve(&reference)?)
    }

    /// Stores an archive under the tag.
    pub fn push(&self, artifact: &Artifact, archive: Vec<u8>) -> Result<Lock, ArtifactError> {
        let reference = Reference::parse(&artifact.repository, &artifact.revision)?;
        Ok(self.registry().push(&reference, archive)?)
    }

    fn registry(&self) -> Registry {
        Registry::new(self.settings.clone())
    }
}

/// Packs a folder with a `compose.yaml` into an archive that a device would accept; the same folder always makes the
/// same bytes.
pub fn pack(folder: &Path, name: &str) -> Result<(Vec<u8>, Digest), ArtifactError> {
    let archive = repo_artifacts::pack(folder, name)?;
    Archive::read(&archive, &Limits::default())
        .map_err(|source| ArtifactError::Archive { path: folder.to_owned(), source })?;
    let digest = Digest::of(&archive);
    Ok((archive, digest))
}
