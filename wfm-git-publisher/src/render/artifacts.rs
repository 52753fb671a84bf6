//! What components are made of, and the bytes that each of it is locked to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use repo_artifacts::Chart;
use repo_model::ComponentName;
use repo_model::desired::Desired;
use repo_model::envelope::Lock;
use repo_model::margo::{Component, ProfileType, Source};
use serde::{Deserialize, Serialize};

/// What a component is made of, and where that is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Artifact {
    /// What it is.
    pub kind: ArtifactKind,
    /// `oci://host/path`, or the URL of an archive or a chart repository.
    pub repository: String,
    /// The tag or version; empty for an archive by URL.
    pub revision: String,
}

/// What an artefact is.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ArtifactKind {
    /// A compose archive.
    #[default]
    Archive,
    /// A compose archive by URL, with a signature by the key at this URL beside it.
    SignedArchive(String),
    /// A chart in a registry.
    Chart,
    /// The chart of this name in a chart repository.
    NamedChart(String),
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
        }
    }
}

/// What an artefact turned out to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// Its bytes.
    pub lock: Lock,
    /// What it says of itself, if it is a chart.
    pub chart: Option<Chart>,
    /// The fingerprint of the vendor's key that signed it.
    pub signer: Option<String>,
}

impl From<Lock> for Resolved {
    fn from(lock: Lock) -> Self {
        Self { lock, chart: None, signer: None }
    }
}

/// What each artefact meant when it was first resolved, for the whole fleet.
pub type Locks = BTreeMap<Artifact, Lock>;

/// The locks with those added that a device already has, for where the memory of them was lost.
pub fn with_published(mut locks: Locks, desired: &Desired) -> Locks {
    for (id, document) in &desired.deployments {
        let Some(envelope) = desired.envelope.deployments.get(id) else { continue };
        for component in &document.deployment.components {
            if let Some(lock) = envelope.locks.get(&component.name) {
                locks.entry(Artifact::of(document.deployment.profile_type, component)).or_insert(*lock);
            }
        }
    }
    locks
}

/// The locks of a profile's components, and what has none yet.
pub(super) fn lock(
    profile: ProfileType,
    components: &[Component],
    locks: &Locks,
) -> (BTreeMap<ComponentName, Lock>, BTreeSet<Artifact>) {
    let (mut locked, mut unresolved) = (BTreeMap::new(), BTreeSet::new());
    for component in components {
        let artifact = Artifact::of(profile, component);
        match locks.get(&artifact) {
            Some(lock) => _ = locked.insert(component.name.clone(), *lock),
            None => _ = unresolved.insert(artifact),
        }
    }
    (locked, unresolved)
}
