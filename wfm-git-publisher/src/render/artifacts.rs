//! What components are made of, and the bytes that each of it is locked to.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};

use repo_artifacts::{Chart, Images};
use repo_model::Digest;
use repo_model::envelope::Lock;
use repo_model::margo::{Component, ProfileType, Source};
use serde::{Deserialize, Serialize};

/// What a component is made of, and where that is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Artifact {
    pub kind: ArtifactKind,
    /// `oci://host/path`, the URL of an archive or a chart repository, or an image's name.
    pub repository: String,
    /// The tag or version; empty for an archive by URL and for an image.
    pub revision: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ArtifactKind {
    #[default]
    Archive,
    /// A compose archive by URL, with a signature by the key at this URL beside it.
    SignedArchive(String),
    /// A chart in a registry.
    Chart,
    /// The chart of this name in a chart repository.
    NamedChart(String),
    /// The images of a compose archive that is locked already.
    Contents {
        manifest: Digest,
        /// Digest of the archive itself.
        content: Digest,
    },
    /// An image of the compose archive with this digest: in another archive the same name may mean other bytes.
    Image(Digest),
}

impl Artifact {
    /// What a component of a profile of this type is made of.
    pub fn of(profile: ProfileType, component: &Component) -> Self {
        let (kind, repository, revision) = match &component.source {
            Source::Oci { repository, revision } if profile == ProfileType::Helm => {
                (ArtifactKind::Chart, repository, revision.as_str())
            }
            Source::Oci { repository, revision } => (ArtifactKind::Archive, repository, revision.as_str()),
            Source::HelmRepo { repository, revision } => {
                (ArtifactKind::NamedChart(component.name.to_string()), repository, revision.as_str())
            }
            Source::Https { package_location, key_location } => {
                let signed = key_location.clone().map(ArtifactKind::SignedArchive);
                (signed.unwrap_or_default(), package_location, "")
            }
        };
        Self { kind, repository: repository.clone(), revision: revision.to_owned() }
    }

    /// The images of this archive, which is locked.
    pub(super) fn contents(self, Lock { manifest, content }: Lock) -> Self {
        Self { kind: ArtifactKind::Contents { manifest, content }, ..self }
    }

    /// An image of the archive with this digest.
    pub(super) fn image(archive: Digest, name: &str) -> Self {
        Self { kind: ArtifactKind::Image(archive), repository: name.to_owned(), revision: String::new() }
    }

    /// Whether it is about images.
    pub(super) fn is_about_images(&self) -> bool {
        matches!(self.kind, ArtifactKind::Contents { .. } | ArtifactKind::Image(_))
    }
}

impl fmt::Display for Artifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, repository, revision } = self;
        match kind {
            ArtifactKind::Archive if revision.is_empty() => f.write_str(repository),
            ArtifactKind::Archive => write!(f, "{repository}:{revision}"),
            ArtifactKind::SignedArchive(key) => write!(f, "{repository}, signed by {key}"),
            ArtifactKind::Chart => write!(f, "chart {repository}:{revision}"),
            ArtifactKind::NamedChart(name) => write!(f, "chart {name}:{revision} of {repository}"),
            ArtifactKind::Contents { .. } if revision.is_empty() => write!(f, "the images of {repository}"),
            ArtifactKind::Contents { .. } => write!(f, "the images of {repository}:{revision}"),
            ArtifactKind::Image(_) => write!(f, "image {repository}"),
        }
    }
}

/// What an artefact turned out to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The digests that every device of the fleet checks.
    pub lock: Lock,
    /// What it says of itself, if it is a chart.
    pub chart: Option<Chart>,
    /// The images that it names, if it is a compose archive; absent if nobody looked.
    pub images: Option<Images>,
    /// The fingerprint of the vendor's key that signed it.
    pub signer: Option<String>,
}

impl From<Lock> for Resolved {
    /// What names no images.
    fn from(lock: Lock) -> Self {
        Self { lock, chart: None, images: Some(Images::default()), signer: None }
    }
}

/// What each artefact meant when it was first resolved, for the whole fleet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Locks {
    all: BTreeMap<Artifact, Lock>,
    images: BTreeMap<Digest, Images>,
}

impl Locks {
    /// Locks of which none is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// The images that the archive with this digest names, if that is known.
    pub fn images(&self, content: Digest) -> Option<&Images> {
        self.images.get(&content)
    }

    /// Learns which images an archive names.
    pub fn learn(&mut self, content: Digest, images: Images) {
        self.images.insert(content, images);
    }
}

impl Deref for Locks {
    type Target = BTreeMap<Artifact, Lock>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl DerefMut for Locks {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.all
    }
}

impl FromIterator<(Artifact, Lock)> for Locks {
    fn from_iter<T: IntoIterator<Item = (Artifact, Lock)>>(all: T) -> Self {
        Self { all: all.into_iter().collect(), images: BTreeMap::new() }
    }
}
