//! Judges `desired`, commit by commit from the oldest on: what a device checks, and what only an auditor can.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use repo_git::CommitId;
use repo_model::desired::{Desired, Document, Reader, accept};
use repo_model::envelope::ComponentLock;
use repo_model::margo::manifest::{MANIFEST, StateManifest};
use repo_model::margo::{Component, ProfileType, Source};
use repo_model::message::Trailer;
use repo_model::report::Named;
use repo_model::roster::{Trust, check_own};
use repo_model::{ComponentName, DeploymentId, DeviceId, Digest, FileTree, KeyText};
use serde::Serialize;

use super::commit::Told;
use super::finding::{
    BEGINS_LATE, CHANGE_UNTOLD, Found, ROSTER_UNPROVEN, SERIAL_ROLLBACK, SIGNATURE_INVALID, TRAILER_MISMATCH,
};
use crate::repos::roster_signer;

/// What a believed commit of `desired` says, as far as other branches are judged by it.
#[derive(Debug, Clone)]
pub(super) struct Published {
    pub(super) commit: CommitId,
    /// Whether the device is retired, after which no proof of freshness is to be expected.
    pub(super) retired: bool,
    /// The keys that may sign `status` and `heartbeat`.
    pub(super) keys: Vec<KeyText>,
    pub(super) named: Named,
    /// The digest of the archive on `bundle`; absent if there are no deployments.
    pub(super) bundle: Option<Digest>,
    /// What operators call each deployment, and what its components are made of.
    pub(super) deployments: BTreeMap<DeploymentId, (String, Packages)>,
}

/// What each component of a deployment is made of.
pub(super) type Packages = BTreeMap<ComponentName, Package>;

/// What a component is made of, as it was published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Package {
    /// Which runtime applies it: `helm` for a chart, `compose` for an archive.
    pub profile: ProfileType,
    /// Where it is from: `oci://…`, the URL of an archive, or that of a chart repository and the chart's name.
    pub location: String,
    /// Absent for an archive by URL.
    pub revision: Option<String>,
    /// Its digests, and the images that the publisher locked.
    #[serde(flatten)]
    pub lock: ComponentLock,
}

impl Published {
    pub(super) fn of(commit: CommitId, desired: &Desired, files: &FileTree) -> Self {
        let manifest = files.get(MANIFEST).and_then(|bytes| StateManifest::parse(bytes).ok());
        Self {
            commit,
            retired: desired.envelope.device.retired,
            keys: desired.envelope.device.status_keys.clone(),
            named: Named::of(commit, desired),
            deployments: desired
                .deployments
                .iter()
                .map(|(id, document)| (*id, packages(*id, document, desired)))
                .collect(),
            bundle: manifest.and_then(|manifest| manifest.bundle).map(|bundle| bundle.digest),
        }
    }
}

impl Published {
    /// The revisions of a deployment's components, each once; `https` for an archive by URL.
    pub(super) fn versions(&self, id: DeploymentId) -> String {
        let packages = self.deployments.get(&id).into_iter().flat_map(|(_, packages)| packages.values());
        let revisions: BTreeSet<_> = packages.map(|package| package.revision.as_deref().unwrap_or("https")).collect();
        revisions.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// What a component is made of.
    pub(super) fn package(&self, id: DeploymentId, component: &ComponentName) -> Option<&Package> {
        self.deployments.get(&id)?.1.get(component)
    }
}

/// Where the judge stands: what a device that took every commit so far would never go below.
#[derive(Debug)]
pub(super) struct DesiredJudge<'a> {
    device: &'a DeviceId,
    pub(super) trust: Trust,
    /// The highest serial, with its envelope's digest.
    pub(super) serial: (u64, Option<Digest>),
    /// The highest `manifestVersion`, with its manifest's digest.
    pub(super) manifest: (u64, Option<Digest>),
    /// The documents of the commit before; absent if it was refused.
    before: Option<BTreeMap<DeploymentId, Digest>>,
    /// Whether there is a commit before.
    has_begun: bool,
    /// Serials from and to which this history lost states, by what `Continues` says.
    pub(super) lost: Vec<(u64, u64)>,
}

impl<'a> DesiredJudge<'a> {
    /// Begins before the first commit, with the roster that is trusted.
    pub(super) fn new(device: &'a DeviceId, trust: Trust) -> Self {
        let (serial, manifest) = ((0, None), (0, None));
        let (before, lost) = (Some(BTreeMap::new()), Vec::new());
        Self { device, trust, serial, manifest, before, has_begun: false, lost }
    }

    /// Goes on behind commits that were judged before.
    pub(super) fn after(self, serial: (u64, Digest), manifest: (u64, Digest), documents: &Desired) -> Self {
        Self {
            serial: (serial.0, Some(serial.1)),
            manifest: (manifest.0, Some(manifest.1)),
            before: Some(digests(documents)),
            has_begun: true,
            ..self
        }
    }

    /// Judges the next commit. What it says is believed if there is something in the first place.
    pub(super) fn judge(&mut self, told: &Told<'_>) -> (Option<Published>, Vec<Found>) {
        let first = !std::mem::replace(&mut self.has_begun, true);
        let before = self.before.take();
        let mut found = told.common(self.trust.roster.fleet, self.device);
        let signer = match &told.signer {
            Ok(signer) => signer,
            Err(why) => {
                found.push(told.found(&SIGNATURE_INVALID, why));
                return (None, found);
            }
        };
        // Its own date is all that there is: who holds the key can write any.
        let now = Timestamp::from_second(told.time).unwrap_or(Timestamp::MIN);
        let reader = Reader {
            fleet: self.trust.roster.fleet,
            device: self.device,
            trust: &self.trust,
            serial: self.serial,
            manifest_version: self.manifest,
            roster: (self.trust.roster.version, self.trust.digest),
            now,
        };
        let (desired, trust) = match accept(told.files, &told.message, signer, &reader, &roster_signer) {
            Ok(accepted) => accepted,
            Err(refusal) => {
                let refused = Found::refusal(told.branch, told.id, &refusal);
                if !found.iter().any(|one| one.kind == refused.kind) {
                    found.push(refused);
                }
                return (None, found);
            }
        };
        let serial = desired.envelope.serial;
        if serial == self.serial.0 {
            found.push(told.found(&SERIAL_ROLLBACK, format!("serial {serial} is there twice")));
        }
        let continues = told.message.get(Trailer::Continues).and_then(|text| text.split(' ').nth(1)?.parse().ok());
        if first && serial > 1 && continues.is_none() {
            found.push(told.found(&BEGINS_LATE, format!("history begins with serial {serial}")));
        }
        self.lost.extend(continues.map(|newest: u64| (self.serial.0 + 1, newest.min(serial))));
        found.extend(wrong_trailers(told, &desired));
        let new = self.trust.roster.version + 1..=trust.roster.version;
        if let Err(error) = check_own(told.files, new, trust.roster.fleet, &roster_signer) {
            found.push(told.found(&ROSTER_UNPROVEN, error.to_string()));
        }
        let documents = digests(&desired);
        found.extend(before.map(|before| wrong_changes(told, &before, &documents)).unwrap_or_default());
        self.trust = trust;
        self.serial = (serial, Some(desired.envelope_digest));
        self.manifest = (desired.envelope.manifest_version, Some(desired.manifest_digest));
        self.before = Some(documents);
        (Some(Published::of(told.id, &desired, told.files)), found)
    }
}

/// What a deployment is called, and what it is made of.
fn packages(id: DeploymentId, document: &Document, desired: &Desired) -> (String, Packages) {
    let described = desired.envelope.deployments.get(&id);
    let package = |component: &Component| {
        let lock = described?.locks.get(&component.name)?.clone();
        let (location, revision) = match &component.source {
            Source::Oci { repository, revision } => (repository.clone(), Some(revision)),
            Source::HelmRepo { repository, revision } => {
                (format!("{}/{}", repository.trim_end_matches('/'), component.name), Some(revision))
            }
            Source::Https { package_location, .. } => (package_location.clone(), None),
        };
        let revision = revision.cloned();
        Some((component.name.clone(), Package { profile: document.deployment.profile_type, location, revision, lock }))
    };
    let packages = document.deployment.components.iter().filter_map(package).collect();
    (described.map_or_else(|| id.to_string(), |described| described.id.to_string()), packages)
}

fn digests(desired: &Desired) -> BTreeMap<DeploymentId, Digest> {
    desired.deployments.iter().map(|(id, document)| (*id, Digest::of(&document.bytes))).collect()
}

/// The trailers that no device requires, where they stand.
fn wrong_trailers(told: &Told<'_>, desired: &Desired) -> Vec<Found> {
    let expected = [
        (Trailer::ManifestVersion, desired.envelope.manifest_version.to_string()),
        (Trailer::ManifestDigest, desired.manifest_digest.to_string()),
    ];
    let wrong = expected.into_iter().filter_map(|(key, value)| {
        let said: Vec<_> = told.message.all(key).collect();
        (!said.is_empty() && said != [value.as_str()]).then(|| {
            told.found(
                &TRAILER_MISMATCH,
                format!("the trailer `{key}` is `{}`, and the tree says `{value}`", said.join(" ")),
            )
        })
    });
    wrong.collect()
}

/// What the trailers `Deployment` say of each deployment, against what differs from the commit before.
fn wrong_changes(
    told: &Told<'_>,
    before: &BTreeMap<DeploymentId, Digest>,
    now: &BTreeMap<DeploymentId, Digest>,
) -> Vec<Found> {
    let mut found = Vec::new();
    let mut said = BTreeSet::new();
    for trailer in told.message.all(Trailer::Deployment) {
        let words: Vec<_> = trailer.split(' ').collect();
        let id = words.get(2).and_then(|id| id.parse::<DeploymentId>().ok());
        let expected = id.map(|id| (before.contains_key(&id), now.contains_key(&id)));
        let is_right = match words.first() {
            Some(&"add") => expected == Some((false, true)),
            Some(&"remove") => expected == Some((true, false)),
            Some(&"change") => expected == Some((true, true)),
            // A word of a newer publisher says what is to be known elsewhere.
            _ => id.is_some(),
        };
        if !is_right {
            found.push(told.found(&TRAILER_MISMATCH, format!("`{trailer}` isn't what differs from the commit before")));
        }
        said.extend(id);
    }
    let ids: BTreeSet<_> = before.keys().chain(now.keys()).collect();
    let untold = ids.into_iter().filter(|id| before.get(*id) != now.get(*id) && !said.contains(*id));
    found.extend(
        untold.map(|id| told.found(&CHANGE_UNTOLD, format!("deployment {id} changed, and no trailer says so"))),
    );
    found
}
