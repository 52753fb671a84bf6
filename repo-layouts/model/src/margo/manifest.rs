//! State Manifest: the complete list of what a device shall run.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};

use crate::problem::Problems;
use crate::yaml::{self, Field, Reader};
use crate::{DeploymentId, Digest};

/// The media type of the bundle.
pub const BUNDLE_MEDIA_TYPE: &str = "application/vnd.margo.bundle.v1+tar+gzip";

/// The path of the State Manifest in the tree of `desired`.
pub const MANIFEST: &str = "manifest.json";

/// The media type of the manifest itself.
pub const MANIFEST_MEDIA_TYPE: &str = "application/vnd.margo.manifest.v1+json";

// The fields of these types stand in the order of RFC 8785, so that plain serde_json writes it; a canonicaliser would
// round integers beyond 2^53.

/// The complete list of what a device shall run (Margo, *State Manifest*).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StateManifest {
    /// All documents in one archive; absent exactly when there are none.
    pub bundle: Option<BundleRef>,
    /// The documents; what isn't listed shall not run.
    pub deployments: Vec<DeploymentRef>,
    /// 1 and rising; more than 2^53−1 is read but never written by a publisher.
    pub manifest_version: u64,
}

/// A reference to the archive of all documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleRef {
    /// Digest of its exact bytes.
    pub digest: Digest,
    /// Always [`BUNDLE_MEDIA_TYPE`].
    pub media_type: MediaType,
    /// Its size: advice, never used for integrity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Where a REST client gets it.
    pub url: String,
}

/// A reference to one ApplicationDeployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentRef {
    pub deployment_id: DeploymentId,
    /// Digest of its exact bytes.
    pub digest: Digest,
    /// Its size: advice, never used for integrity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Where a REST client gets it.
    pub url: String,
}

/// The one media type that a bundle may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MediaType;

impl Serialize for MediaType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(BUNDLE_MEDIA_TYPE)
    }
}

impl StateManifest {
    /// Makes the manifest of these documents and of the archive that holds exactly them; sorted by id.
    pub fn new(manifest_version: u64, documents: &BTreeMap<DeploymentId, Vec<u8>>, bundle: &[u8]) -> Self {
        let bundle = (!documents.is_empty()).then(|| BundleRef::of(bundle));
        let deployments = documents.iter().map(|(id, bytes)| DeploymentRef::of(*id, bytes)).collect();
        Self { bundle, deployments, manifest_version }
    }

    /// Reads a manifest and checks every rule of the specification that needs nothing but the manifest.
    pub fn parse(bytes: &[u8]) -> Result<Self, Problems> {
        yaml::read_json(MANIFEST, bytes, |field| field.mapping(document)).map(|(manifest, _)| manifest)
    }

    /// The bytes that are published: RFC 8785 and a final newline.
    ///
    /// # Panics
    /// Never: there is nothing in it that can't be written.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("plain data serialises");
        bytes.push(b'\n');
        bytes
    }
}

impl BundleRef {
    fn of(bytes: &[u8]) -> Self {
        let digest = Digest::of(bytes);
        let url = format!("/api/v1/bundles/{digest}");
        Self { digest, media_type: MediaType, size_bytes: Some(bytes.len() as u64), url }
    }
}

impl DeploymentRef {
    fn of(deployment_id: DeploymentId, bytes: &[u8]) -> Self {
        let digest = Digest::of(bytes);
        let url = format!("/api/v1/deployments/{deployment_id}/{digest}");
        Self { deployment_id, digest, size_bytes: Some(bytes.len() as u64), url }
    }
}

fn document(reader: &mut Reader<'_>) -> Option<StateManifest> {
    let manifest_version = reader.required("manifestVersion", |field| {
        let version = field.clone().integer()?;
        if version == 0 { field.fail("must be 1 or more") } else { Some(version) }
    });
    let bundle = reader.required("bundle", |field| match field.node().value {
        yaml::Value::Null => Some(None),
        _ => field.mapping(bundle).map(Some),
    });
    let deployments = reader.required("deployments", deployments);
    let manifest = StateManifest { manifest_version: manifest_version?, bundle: bundle?, deployments: deployments? };
    match (&manifest.bundle, manifest.deployments.is_empty()) {
        (None, false) => reader.field().fail("`bundle` is null, but `deployments` is not empty"),
        (Some(_), true) => reader.field().fail("`bundle` must be null, because `deployments` is empty"),
        _ => Some(manifest),
    }
}

fn bundle(reader: &mut Reader<'_>) -> Option<BundleRef> {
    let media_type = reader.required("mediaType", |field| field.choice(&[(BUNDLE_MEDIA_TYPE, MediaType)]));
    let digest: Option<Digest> = reader.required("digest", Field::parse);
    let size_bytes = reader.optional("sizeBytes", Field::integer);
    let url = reader.required("url", |field| url(field, &format!("bundles/{}", digest?)));
    Some(BundleRef { digest: digest?, media_type: media_type?, size_bytes, url: url? })
}

fn deployments(field: Field<'_>) -> Option<Vec<DeploymentRef>> {
    let deployments = field.clone().list(|field| field.mapping(deployment))?;
    let mut seen = BTreeSet::new();
    match deployments.iter().find(|deployment| !seen.insert(deployment.deployment_id)) {
        Some(twice) => field.fail(format!("lists `{}` twice", twice.deployment_id)),
        None => Some(deployments),
    }
}

fn deployment(reader: &mut Reader<'_>) -> Option<DeploymentRef> {
    let id = reader.required("deploymentId", |field| Some((field.clone().parse()?, field.string()?)));
    let digest: Option<Digest> = reader.required("digest", Field::parse);
    let size_bytes = reader.optional("sizeBytes", Field::integer);
    // The URL repeats the id as written, which may be in upper case.
    let place = id.as_ref().zip(digest).map(|((_, text), digest)| format!("deployments/{text}/{digest}"));
    let url = reader.required("url", |field| url(field, &place?));
    Some(DeploymentRef { deployment_id: id?.0, digest: digest?, size_bytes, url: url? })
}

/// `/api/v1/<place>`, or the pre-draft's `/api/v1/clients/<client>/<place>`.
fn url(field: Field<'_>, place: &str) -> Option<String> {
    let text = field.clone().string()?;
    let head = text.strip_prefix("/api/v1/").and_then(|rest| rest.strip_suffix(place));
    let is_client = |client: &str| !client.is_empty() && !client.contains('/');
    let client = head.and_then(|head| head.strip_prefix("clients/")).and_then(|head| head.strip_suffix('/'));
    if head == Some("") || client.is_some_and(is_client) {
        Some(text)
    } else {
        field.fail(format!("is `{text}`, expected `/api/v1/{place}`"))
    }
}
