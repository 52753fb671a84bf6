//! What is another in the fleet since the commit that devices have everything of.
//!
//! What a device that was up to date then has means what that commit says. So nothing has to be read of its repository to tell what
//! would be different, and only those deployments are compared that are others by now. Whoever publishes has it proven, to the
//! byte, by the digest of the envelope.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use repo_git::CommitId;
use repo_model::desired::{Desired, Document, deployment_path};
use repo_model::envelope::{Envelope, EnvelopeDevice, LAYOUT};
use repo_model::margo::manifest::MANIFEST;
use repo_model::message::Message;
use repo_model::{DeploymentName, Digest, json};

use super::up_to_date::{InputDigests, UpToDate};
use crate::fleet::{self, Deployment, Device, Fleet};
use crate::plan::{DevicePlan, Numbers, Target};
use crate::render::{Capabilities, Facts, Locks, asks, render};
use crate::repos::{Entry, FleetRepo, Rosters, Tip};

/// The fleet as it was at that commit.
pub(super) struct Before {
    fleet: Fleet,
    /// The deployments that are others by now, came or went.
    changed: BTreeSet<DeploymentName>,
    /// All others.
    unchanged: BTreeSet<DeploymentName>,
    /// Those of them that are chosen by what a device can.
    asking: Vec<Arc<Deployment>>,
}

/// The same with what it said of each device, as digests.
pub(super) struct Since<'a> {
    before: &'a Before,
    now: &'a Fleet,
    digests: InputDigests<'a>,
    locks: &'a Locks,
    /// The digests of the rosters' files, which every envelope lists.
    files: BTreeMap<String, Digest>,
}

/// Which part of its tip is known of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Partly<'a> {
    /// These deployments, and no other one.
    pub(super) only: &'a BTreeSet<DeploymentName>,
    /// What the fleet said when the device had all of it.
    pub(super) inputs: Digest,
    /// How many it has in all.
    pub(super) present: usize,
    /// The highest number of a rollout that the tip names; 0 if it names none.
    pub(super) rollout: u32,
    /// When its proof of freshness is renewed, in Unix seconds.
    pub(super) renew_at: i64,
}

impl Before {
    /// Reads it. `None` if it can't be read or isn't enough: something else than deployments changed that concerns all devices, or
    /// one of them waits for another, is waited for, or is chosen by what a device can.
    pub(super) fn read(
        source: &FleetRepo,
        commit: CommitId,
        now: &Fleet,
        (rosters, locks): (&Rosters, &Locks),
        threads: usize,
    ) -> Option<Self> {
        let mut entries = source.entries(commit).ok()?;
        entries.retain(|entry| !fleet::is_device(&entry.path));
        // Of a device that was another one then, nothing is said.
        let devices = now.devices.values().cloned().collect();
        let mut fleet = fleet::read_with(&source.read(&entries, threads), devices, threads).fleet?;
        fleet.devices.clear();
        let digests = InputDigests::new(&fleet, rosters, locks);
        let changed = digests.changed(&InputDigests::new(now, rosters, locks))?;
        let all = || fleet.deployments.values().chain(now.deployments.values());
        let waited_for: BTreeSet<_> = all().flat_map(|one| one.depends_on.iter().map(|(name, _)| name)).collect();
        let mut others = all().filter(|one| changed.contains(&one.id));
        let is_enough =
            others.all(|one| one.depends_on.is_empty() && !waited_for.contains(&one.id) && !one.versions().any(asks));
        let unchanged = || now.deployments.values().filter(|one| !changed.contains(&one.id));
        let asking = unchanged().filter(|one| one.versions().any(asks)).cloned().collect();
        let unchanged = unchanged().map(|one| one.id.clone()).collect();
        is_enough.then_some(Self { fleet, changed, unchanged, asking })
    }

    /// Whether it tells all that devices had of these deployments.
    pub(super) fn tells<'n>(&self, mut names: impl Iterator<Item = &'n DeploymentName>) -> bool {
        names.all(|name| self.changed.contains(name))
    }

    /// What devices had then.
    pub(super) fn since<'a>(&'a self, now: &'a Fleet, rosters: &'a Rosters, locks: &'a Locks) -> Since<'a> {
        let digests = InputDigests::new(&self.fleet, rosters, locks);
        let files = rosters.files.iter().map(|(path, bytes)| (path.clone(), Digest::of(bytes))).collect();
        Since { before: self, now, digests, locks, files }
    }
}

impl<'a> Since<'a> {
    /// What the tip of a device that was up to date says of the deployments that are others by now. `None` if the fleet doesn't
    /// tell that.
    pub(super) fn tip(&self, device: &Device, found: &UpToDate, entry: &Entry) -> Option<(Tip, Partly<'a>)> {
        let Before { fleet, changed, .. } = self.before;
        let inputs = self.digests.of(device);
        let has_same_secrets = fleet.secrets.all_of(&device.id).eq(self.now.secrets.all_of(&device.id));
        if device.retired.is_some() || !found.is_of(inputs) || !has_same_secrets {
            return None;
        }
        let facts = Facts { capabilities: Capabilities::Unreported, only: Some(changed), ..Facts::default() };
        let had = render(fleet, device, facts, self.locks);
        if !had.left.is_empty() || had.deployments.values().any(|one| !one.unresolved.is_empty()) {
            return None;
        }
        let (mut described, mut deployments) = (BTreeMap::new(), BTreeMap::new());
        for (id, one) in had.deployments {
            described.insert(id, one.envelope);
            deployments.insert(id, Document { bytes: one.document.to_yaml(), deployment: one.document });
        }
        let envelope = Envelope {
            layout: LAYOUT,
            fleet: fleet.settings.id,
            device: EnvelopeDevice { id: device.id.clone(), status_keys: had.status_keys, retired: false },
            serial: found.serial,
            manifest_version: entry.manifest_version,
            files: self.files.clone(),
            policy: had.policy,
            requires: Vec::new(),
            deployments: described,
        };
        let UpToDate { envelope: envelope_digest, manifest: manifest_digest, .. } = *found;
        let desired = Desired { envelope, envelope_digest, manifest_digest, deployments };
        let tip = Tip { commit: found.tips[0]?, message: Message::default(), desired };
        let UpToDate { rollout, deployments: present, renew_at, .. } = *found;
        let partly = Partly { only: changed, inputs, present, rollout, renew_at };
        Some((tip, partly))
    }

    /// Makes a plan of what is another at such a device one of all that it gets, and finds the digests of its tip's files. `None`
    /// unless the digest of the tip's envelope proves them.
    pub(super) fn complete(
        &self,
        device: &Device,
        tip: &Tip,
        plan: &mut DevicePlan,
    ) -> Option<BTreeMap<String, Digest>> {
        // Which profile the device has is said by its repository alone.
        if self.before.asking.iter().any(|one| one.is_for(device)) {
            return None;
        }
        let only = Some(&self.before.unchanged);
        let facts = Facts { capabilities: Capabilities::Unreported, only, ..Facts::default() };
        let (mut documents, mut deployments) = (BTreeMap::new(), BTreeMap::new());
        for (id, one) in render(self.now, device, facts, self.locks).deployments {
            documents.insert(id, one.document.to_yaml());
            deployments.insert(id, one.envelope);
        }
        plan.target.documents.extend(documents.clone());
        plan.target.deployments.extend(deployments.clone());
        let Desired { envelope, envelope_digest, manifest_digest, deployments: changed } = &tip.desired;
        documents.extend(changed.iter().map(|(id, document)| (*id, document.bytes.clone())));
        deployments.extend(envelope.deployments.clone());
        let (policy, status_keys) = (envelope.policy.clone(), envelope.device.status_keys.clone());
        let had = Target { documents, deployments, policy, status_keys, retired: false, new_manifest: false };
        let numbers = Numbers { serial: envelope.serial, manifest_version: envelope.manifest_version };
        let mut files = self.files.clone();
        files.extend(had.documents.iter().map(|(id, bytes)| (deployment_path(*id), Digest::of(bytes))));
        files.insert(MANIFEST.to_owned(), *manifest_digest);
        let had = Envelope { files, ..had.envelope(envelope.fleet, &device.id, numbers) };
        (Digest::of(&json::to_bytes(&had)) == *envelope_digest).then_some(had.files)
    }
}
