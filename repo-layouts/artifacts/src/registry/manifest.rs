//! Manifests as registries keep them (OCI image specification, and Docker's, which says the same here).

use repo_model::Digest;
use serde::{Deserialize, Serialize};

use super::{RegistryError, invalid};
use crate::reference::Kind;
use crate::{ARTIFACT_TYPE, CHART_PROVENANCE_TYPE, LAYER_TYPE, Reference};

/// Media type of a manifest.
pub(super) const OCI_IMAGE: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_IMAGE: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// Media types of manifests that are asked for: OCI's, and Docker's, under which some registries keep the same. An index
/// is asked for so that it isn't taken for nothing.
pub(super) const MANIFESTS: &[&str] = &[OCI_IMAGE, DOCKER_IMAGE, OCI_INDEX];

/// Media types of what an image's tag may mean: one image, or an index of those for several platforms.
pub(super) const IMAGES: &[&str] = &[OCI_INDEX, DOCKER_LIST, OCI_IMAGE, DOCKER_IMAGE];

/// Media type and bytes of the empty config blob (OCI image specification, *Guidelines for Artifact Usage*).
pub(super) const EMPTY: (&str, &[u8]) = ("application/vnd.oci.empty.v1+json", b"{}");

/// A manifest, or an index of several. The order of its keys is in the digests of what was pushed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    schema_version: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    /// An index has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    config: Option<Descriptor>,
    /// An index has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    layers: Option<Vec<Descriptor>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    artifact_type: Option<String>,
}

/// What a manifest says of a blob.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) media_type: String,
    pub(super) digest: String,
    /// In bytes, as the manifest says.
    pub(super) size: i64,
}

/// An image's manifest, or an index of several, as far as its size is told there.
#[derive(Debug, Deserialize)]
pub(super) struct Sized {
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
    #[serde(default)]
    manifests: Vec<Entry>,
}

/// An image of an index.
#[derive(Debug, Deserialize)]
struct Entry {
    digest: String,
    platform: Option<Platform>,
}

#[derive(Debug, Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

impl Sized {
    /// What each of its layers has, in bytes; a size below 0 counts as none.
    pub(super) fn sizes(&self) -> Vec<u64> {
        self.layers.iter().map(|layer| u64::try_from(layer.size).unwrap_or_default()).collect()
    }

    /// The digest of its configuration, where it names one.
    pub(super) fn configuration(&self) -> Option<Digest> {
        self.config.as_ref()?.digest.parse().ok()
    }

    /// The digest of the manifest for Linux on an architecture; `None` in an image's own manifest.
    pub(super) fn for_platform(&self, architecture: &str) -> Option<&str> {
        let fits = |one: &Platform| one.os == "linux" && one.architecture == architecture;
        self.manifests.iter().find(|one| one.platform.as_ref().is_some_and(fits)).map(|one| one.digest.as_str())
    }

    pub(super) fn is_index(&self) -> bool {
        !self.manifests.is_empty()
    }
}

impl Manifest {
    /// The manifest of a compose archive.
    pub(super) fn of_archive(content: Digest, size: usize) -> Self {
        let descriptor = |media_type: &str, digest: Digest, size: usize| Descriptor {
            media_type: media_type.to_owned(),
            digest: digest.to_string(),
            size: size as i64,
        };
        Self {
            schema_version: 2,
            media_type: Some(OCI_IMAGE.to_owned()),
            config: Some(descriptor(EMPTY.0, Digest::of(EMPTY.1), EMPTY.1.len())),
            layers: Some(vec![descriptor(LAYER_TYPE, content, size)]),
            artifact_type: Some(ARTIFACT_TYPE.to_owned()),
        }
    }
}

/// The layer of a manifest that holds the archive. A chart may have its provenance file beside it.
pub(super) fn layer(reference: &Reference, manifest: Manifest) -> Result<Descriptor, RegistryError> {
    let (Some(config), Some(layers)) = (manifest.config, manifest.layers) else {
        return Err(invalid(reference, "it is an index of several artefacts".to_owned()));
    };
    let (expected, layer_type) = (reference.kind().artifact_type(), reference.kind().layer_type());
    let found = match reference.kind() {
        Kind::Compose => manifest.artifact_type.as_deref().unwrap_or(&config.media_type),
        Kind::Chart | Kind::Image | Kind::Package => &config.media_type,
    };
    if found != expected {
        return Err(invalid(reference, format!("it is of type `{found}`, expected `{expected}`")));
    }
    let beside = |layer: &Descriptor| reference.kind() == Kind::Chart && layer.media_type == CHART_PROVENANCE_TYPE;
    let mut layers = layers.into_iter().filter(|layer| !beside(layer));
    match (layers.next(), layers.next()) {
        (Some(layer), None) if layer.media_type == layer_type => Ok(layer),
        _ => Err(invalid(reference, format!("expected one layer of type `{layer_type}`"))),
    }
}
