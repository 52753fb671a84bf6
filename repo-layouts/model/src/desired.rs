//! The tree of `desired`: how it is put together, and what a reader checks before it believes one.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::envelope::{ENVELOPE, Envelope, FEATURES, LAYOUT, MAX_JUMP, MAX_SERIAL};
use crate::margo::deployment::ApplicationDeployment;
use crate::margo::manifest::{MANIFEST, StateManifest};
use crate::message::{Message, Trailer};
use crate::roster::{Signer, Trust};
use crate::{Branch, DeploymentId, DeviceId, Digest, ErrorCode, FileTree, FleetId, IntoMap, KeyText, bundle, json};

/// Where an ApplicationDeployment lies in the tree.
pub fn deployment_path(id: DeploymentId) -> String {
    format!("deployments/{id}.yaml")
}

/// A complete desired state, ready to be committed.
#[derive(Debug, Clone)]
pub struct Assembled {
    pub tree: FileTree,
    /// The tree of `bundle`; empty if there are no deployments.
    pub bundle: FileTree,
    pub envelope: Envelope,
    /// SHA-256 of the envelope's bytes.
    pub envelope_digest: Digest,
    /// SHA-256 of the manifest's bytes.
    pub manifest_digest: Digest,
}

/// Puts a desired state together: manifest, bundle and digests follow from the documents' exact bytes.
///
/// `envelope.files` is filled in; everything else of it is taken as given.
pub fn assemble(mut envelope: Envelope, documents: &BTreeMap<DeploymentId, Vec<u8>>, trust: &FileTree) -> Assembled {
    let bundled = documents.iter().map(|(id, bytes)| (format!("{id}.yaml"), bytes.clone())).into_map();
    let archive = (!bundled.is_empty()).then(|| bundle::archive(&bundled));
    let manifest =
        StateManifest::new(envelope.manifest_version, documents, archive.as_deref().unwrap_or_default()).to_bytes();
    let manifest_digest = Digest::of(&manifest);
    let mut tree = trust.clone();
    tree.extend(documents.iter().map(|(id, bytes)| (deployment_path(*id), bytes.clone())));
    tree.insert(MANIFEST.to_owned(), manifest);
    envelope.files = tree.iter().map(|(path, bytes)| (path.clone(), Digest::of(bytes))).into_map();
    let bytes = json::to_bytes(&envelope);
    let envelope_digest = Digest::of(&bytes);
    tree.insert(ENVELOPE.to_owned(), bytes);
    let bundle = archive.map(|archive| (bundle::BUNDLE.to_owned(), archive)).into_map();
    Assembled { tree, bundle, envelope, envelope_digest, manifest_digest }
}

/// A desired state whose documents agree with each other. Who signed it is another question: see [`accept`].
#[derive(Debug, Clone)]
pub struct Desired {
    /// What Margo's documents have no key for.
    pub envelope: Envelope,
    /// SHA-256 of its bytes.
    pub envelope_digest: Digest,
    /// SHA-256 of the manifest's bytes.
    pub manifest_digest: Digest,
    /// The ApplicationDeployments with their exact bytes.
    pub deployments: BTreeMap<DeploymentId, Document>,
}

/// An ApplicationDeployment and the bytes it was read from.
#[derive(Debug, Clone)]
pub struct Document {
    pub deployment: ApplicationDeployment,
    pub bytes: Vec<u8>,
}

/// Why a desired state isn't believed; what runs keeps running.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// An [`ErrorCode`], or the [`Reason`](crate::report::Reason) `ProofRefused`; the condition that says so has it as its
    /// reason, in PascalCase.
    pub code: &'static str,
    /// What is wrong, where, and what was expected.
    pub message: String,
}

impl Refusal {
    pub fn new(code: impl Into<&'static str>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

/// What a device never goes below, and what it pinned.
#[derive(Debug)]
pub struct Reader<'a> {
    pub fleet: FleetId,
    pub device: &'a DeviceId,
    /// The newest roster that it believed.
    pub trust: &'a Trust,
    /// The highest serial accepted, with its envelope's digest if that is known.
    pub serial: (u64, Option<Digest>),
    /// The highest `manifestVersion` accepted, with its manifest's digest if that is known.
    pub manifest_version: (u64, Option<Digest>),
    /// The highest roster version believed, with that roster's digest. Without its clone a device follows the rosters from
    /// the join file again, and may not end before where it was.
    pub roster: (u64, Digest),
    pub now: Timestamp,
}

/// Decides whether a commit on `desired` is believed (`repo-layouts/README.md`, *What a device checks before
/// any effect*), but for its descent. `signed_by` is the key whose signature on the commit verified.
pub fn accept(
    files: &FileTree,
    message: &Message,
    signed_by: &KeyText,
    reader: &Reader<'_>,
    signer: Signer<'_>,
) -> Result<(Desired, Trust), Refusal> {
    let (envelope, envelope_digest) = read_envelope(files)?;
    let trust =
        reader.trust.follow(files, signer).map_err(|error| Refusal::new(ErrorCode::TrustInvalid, error.to_string()))?;
    if !trust.allows(signed_by, reader.now) {
        let version = trust.roster.version;
        let message = format!("the commit is signed by {signed_by}, which roster {version} doesn't allow now");
        return Err(Refusal::new(ErrorCode::SignatureInvalid, message));
    }
    check_identity(&envelope, reader)?;
    check_trailers(message, &envelope, envelope_digest)?;
    check_files(&envelope, files)?;
    let manifest_digest = Digest::of(&files[MANIFEST]);
    check_floor("serial", envelope.serial, envelope_digest, reader.serial)?;
    check_floor("manifestVersion", envelope.manifest_version, manifest_digest, reader.manifest_version)?;
    check_roster_floor(&trust, reader.roster)?;
    let desired = read_documents(envelope, envelope_digest, files, &|_, _| None)?;
    check_locks(&desired)?;
    Ok((desired, trust))
}

/// Reads a tree whose signature was checked elsewhere, or doesn't matter.
pub fn read(files: &FileTree) -> Result<Desired, Refusal> {
    read_knowing(files, &|_, _| None)
}

/// What a document with these bytes says, if the caller knows that because it would write the same.
pub type KnownDocument<'a> = dyn Fn(DeploymentId, &[u8]) -> Option<ApplicationDeployment> + 'a;

/// Reads a tree as [`read`] does, without parsing documents that are known.
pub fn read_knowing(files: &FileTree, known: &KnownDocument<'_>) -> Result<Desired, Refusal> {
    let (envelope, digest) = read_envelope(files)?;
    check_files(&envelope, files)?;
    read_documents(envelope, digest, files, known)
}

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::ManifestInvalid, message)
}

fn read_envelope(files: &FileTree) -> Result<(Envelope, Digest), Refusal> {
    #[derive(serde::Deserialize)]
    struct Head {
        layout: u64,
        #[serde(default)]
        requires: Vec<String>,
    }
    let bytes = files.get(ENVELOPE).ok_or_else(|| invalid(format!("`{ENVELOPE}` is missing")))?;
    let unreadable = |error: serde_json::Error| invalid(format!("`{ENVELOPE}`: {error}"));
    let head: Head = json::read(bytes).map_err(unreadable)?;
    let unknown = head.requires.iter().find(|feature| !FEATURES.iter().any(|known| known.name == feature.as_str()));
    if head.layout == 0 {
        return Err(invalid(format!("`{ENVELOPE}` has layout 0, and layouts begin with 1")));
    }
    if head.layout > LAYOUT {
        let message = format!("`{ENVELOPE}` has layout {}, and this program knows {LAYOUT}: update it", head.layout);
        return Err(Refusal::new(ErrorCode::LayoutTooNew, message));
    }
    if let Some(feature) = unknown {
        let message = format!("`{ENVELOPE}` requires `{feature}`, which this program doesn't know: update it");
        return Err(Refusal::new(ErrorCode::LayoutTooNew, message));
    }
    Ok((serde_json::from_slice(bytes).map_err(unreadable)?, Digest::of(bytes)))
}

fn check_identity(envelope: &Envelope, reader: &Reader<'_>) -> Result<(), Refusal> {
    if envelope.fleet != reader.fleet {
        let message = format!("this is for fleet {}, and this device belongs to {}", envelope.fleet, reader.fleet);
        return Err(Refusal::new(ErrorCode::WrongDevice, message));
    }
    if envelope.device.id != *reader.device {
        let message = format!("this is for device `{}`, and this is `{}`", envelope.device.id, reader.device);
        return Err(Refusal::new(ErrorCode::WrongDevice, message));
    }
    Ok(())
}

fn check_trailers(message: &Message, envelope: &Envelope, digest: Digest) -> Result<(), Refusal> {
    let expected = [
        (Trailer::Kind, Branch::Desired.to_string()),
        (Trailer::Fleet, envelope.fleet.to_string()),
        (Trailer::Device, envelope.device.id.to_string()),
        (Trailer::Serial, envelope.serial.to_string()),
        (Trailer::EnvelopeDigest, digest.to_string()),
    ];
    for (key, value) in expected {
        match message.get(key) {
            Some(found) if found == value => {}
            Some(found) => {
                return Err(invalid(format!("the trailer `{key}` is `{found}`, and the tree says `{value}`")));
            }
            None => return Err(invalid(format!("the trailer `{key}` must stand exactly once"))),
        }
    }
    Ok(())
}

fn check_files(envelope: &Envelope, files: &FileTree) -> Result<(), Refusal> {
    for (path, digest) in &envelope.files {
        let bytes =
            files.get(path).ok_or_else(|| invalid(format!("`{path}` is listed in `{ENVELOPE}` and missing")))?;
        let found = Digest::of(bytes);
        if found != *digest {
            let message = format!("`{path}` is {found}, and `{ENVELOPE}` says {digest}");
            return Err(Refusal::new(ErrorCode::DigestMismatch, message));
        }
    }
    match files.keys().find(|path| *path != ENVELOPE && !envelope.files.contains_key(*path)) {
        Some(path) => Err(invalid(format!("`{path}` is not listed in `{ENVELOPE}`"))),
        None if !envelope.files.contains_key(MANIFEST) => Err(invalid(format!("`{MANIFEST}` is missing"))),
        None => Ok(()),
    }
}

fn check_floor(what: &str, found: u64, digest: Digest, floor: (u64, Option<Digest>)) -> Result<(), Refusal> {
    let refuse = |problem: String| Err(Refusal::new(ErrorCode::SerialRollback, format!("{what} {found} {problem}")));
    match floor {
        _ if found == 0 || found > MAX_SERIAL => refuse(format!("is not 1 to {MAX_SERIAL}")),
        (floor, _) if found < floor => refuse(format!("is below {floor}, which was accepted before")),
        (floor, _) if found - floor > MAX_JUMP => refuse(format!("is more than {MAX_JUMP} above {floor}")),
        (floor, Some(known)) if found == floor && known != digest => {
            refuse(format!("was accepted before with other content ({known}, now {digest})"))
        }
        _ => Ok(()),
    }
}

fn check_roster_floor(trust: &Trust, (version, digest): (u64, Digest)) -> Result<(), Refusal> {
    let found = trust.roster.version;
    if found < version {
        let text = format!("the newest roster is version {found}, and version {version} was believed before");
        return Err(Refusal::new(ErrorCode::TrustInvalid, text));
    }
    if found == version && trust.digest != digest {
        let text = format!("roster {found} has other bytes than when it was believed before");
        return Err(Refusal::new(ErrorCode::TrustInvalid, text));
    }
    Ok(())
}

/// Each component has its lock, and nothing else has one: what runs is named by the envelope alone. Only asked of what is
/// new, because what was accepted once stays readable.
fn check_locks(desired: &Desired) -> Result<(), Refusal> {
    for (id, document) in &desired.deployments {
        let described = &desired.envelope.deployments[id];
        let components = document.deployment.components.iter().map(|component| &component.name);
        if let Some(name) = components.clone().find(|name| !described.locks.contains_key(*name)) {
            return Err(invalid(format!("`{ENVELOPE}`: `deployments.{id}.locks` has no lock for component `{name}`")));
        }
        if let Some(name) = described.locks.keys().find(|name| !components.clone().any(|one| one == *name)) {
            let text = format!("`{ENVELOPE}`: `deployments.{id}.locks` has a lock for `{name}`, which is no component");
            return Err(invalid(text));
        }
    }
    Ok(())
}

fn read_documents(
    envelope: Envelope,
    envelope_digest: Digest,
    files: &FileTree,
    known: &KnownDocument<'_>,
) -> Result<Desired, Refusal> {
    let bytes = &files[MANIFEST];
    let manifest = StateManifest::parse(bytes).map_err(|error| invalid(format!("`{MANIFEST}`: {error}")))?;
    if manifest.manifest_version != envelope.manifest_version {
        let (manifest, envelope) = (manifest.manifest_version, envelope.manifest_version);
        return Err(invalid(format!("`{MANIFEST}` has version {manifest}, and `{ENVELOPE}` says {envelope}")));
    }
    let mut deployments = BTreeMap::new();
    for entry in &manifest.deployments {
        let path = deployment_path(entry.deployment_id);
        let bytes =
            files.get(&path).ok_or_else(|| invalid(format!("`{path}` is listed in `{MANIFEST}` and missing")))?;
        let found = Digest::of(bytes);
        if found != entry.digest {
            let message = format!("`{path}` is {found}, and `{MANIFEST}` says {}", entry.digest);
            return Err(Refusal::new(ErrorCode::DigestMismatch, message));
        }
        let id = entry.deployment_id;
        let document = match known(id, bytes) {
            Some(deployment) => Document { deployment, bytes: bytes.clone() },
            None => read_document(id, bytes)?,
        };
        deployments.insert(id, document);
    }
    let described = envelope.deployments.keys();
    if !described.eq(deployments.keys()) {
        return Err(invalid(format!("`{ENVELOPE}` and `{MANIFEST}` list other deployments")));
    }
    let extra = files
        .keys()
        .find(|path| path.starts_with("deployments/") && !deployments.keys().any(|id| deployment_path(*id) == **path));
    match extra {
        Some(path) => Err(invalid(format!("`{path}` is not listed in `{MANIFEST}`"))),
        None => Ok(Desired { envelope, envelope_digest, manifest_digest: Digest::of(bytes), deployments }),
    }
}

/// Reads the ApplicationDeployment of this id.
pub fn read_document(id: DeploymentId, bytes: &[u8]) -> Result<Document, Refusal> {
    let path = deployment_path(id);
    let (deployment, _) = ApplicationDeployment::read(&path, bytes)
        .map_err(|problems| Refusal::new(ErrorCode::DeploymentInvalid, problems.to_string()))?;
    if deployment.id != id {
        let message = format!("`{path}` has the id {}, and its name says {id}", deployment.id);
        return Err(Refusal::new(ErrorCode::DeploymentInvalid, message));
    }
    Ok(Document { deployment, bytes: bytes.to_owned() })
}
