//! What each device shall run, as typed documents: a pure function of the fleet, the device and the locks.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::desired::Desired;
use repo_model::envelope::{DeploymentPolicy, DevicePolicy, EnvelopeDeployment, Lock, ValueFrom, ValueTarget};
use repo_model::margo::deployment::Dialect;
use repo_model::margo::{ApplicationDeployment, Component, Parameter, Source, Target};
use repo_model::{ComponentName, DeploymentId, DeviceId, KeyText};

use crate::fleet::{Deployment, Device, Fleet, Setting};

/// A tag in a registry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Artifact {
    /// `oci://host/path`, or the URL of an archive.
    pub repository: String,
    /// The tag; empty for a URL.
    pub revision: String,
}

impl std::fmt::Display for Artifact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.revision.as_str() {
            "" => f.write_str(&self.repository),
            revision => write!(f, "{}:{revision}", self.repository),
        }
    }
}

/// What each tag meant when it was first resolved, for the whole fleet.
pub type Locks = BTreeMap<Artifact, Lock>;

/// What one device shall run, before it has a serial.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// The device.
    pub device: DeviceId,
    /// Who may sign for it.
    pub status_keys: Vec<KeyText>,
    /// How it behaves.
    pub policy: DevicePolicy,
    /// What it runs.
    pub deployments: BTreeMap<DeploymentId, RenderedDeployment>,
}

/// One deployment on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedDeployment {
    /// Margo's document.
    pub document: ApplicationDeployment,
    /// What goes with it; a component without a lock is in `unresolved`.
    pub envelope: EnvelopeDeployment,
    /// Tags whose meaning isn't known yet; with any of them this can't be published.
    pub unresolved: BTreeSet<Artifact>,
}

/// Renders one device of the fleet.
pub fn render(fleet: &Fleet, device: &Device, locks: &Locks) -> Rendered {
    let deployments = fleet.deployments.values().filter(|deployment| deployment.is_for(device));
    let deployments = deployments.map(|deployment| {
        let id = DeploymentId::derive(fleet.id, &deployment.id, &device.id);
        (id, render_deployment(id, deployment, device, locks))
    });
    Rendered {
        device: device.id.clone(),
        status_keys: device.status_keys.clone(),
        policy: device.policy_in(fleet),
        deployments: deployments.collect(),
    }
}

/// The tags that enrolled devices need and that have no lock yet.
pub fn unresolved(fleet: &Fleet, locks: &Locks) -> BTreeSet<Artifact> {
    let enrolled: Vec<_> = fleet.devices.values().filter(|device| device.is_enrolled()).collect();
    let needed = fleet.deployments.values().filter(|one| enrolled.iter().any(|device| one.is_for(device)));
    let artifacts = needed.flat_map(|deployment| deployment.profile.components.iter().filter_map(artifact));
    artifacts.filter(|artifact| !locks.contains_key(artifact)).collect()
}

/// The locks with those added that a device already has, for where the memory of them was lost.
pub fn with_published(mut locks: Locks, desired: &Desired) -> Locks {
    for (id, document) in &desired.deployments {
        let Some(envelope) = desired.envelope.deployments.get(id) else { continue };
        for component in &document.deployment.components {
            if let Some((artifact, lock)) = artifact(component).zip(envelope.locks.get(&component.name)) {
                locks.entry(artifact).or_insert(*lock);
            }
        }
    }
    locks
}

fn artifact(component: &Component) -> Option<Artifact> {
    match &component.source {
        Source::Oci { repository, revision } => {
            Some(Artifact { repository: repository.clone(), revision: revision.clone() })
        }
        Source::Https { package_location, .. } => {
            Some(Artifact { repository: package_location.clone(), revision: String::new() })
        }
        Source::HelmRepo { .. } => None,
    }
}

fn render_deployment(id: DeploymentId, deployment: &Deployment, device: &Device, locks: &Locks) -> RenderedDeployment {
    let (parameters, values_from) = parameters(deployment, device);
    let (locked, unresolved) = lock(&deployment.profile.components, locks);
    let (description, profile) = (&deployment.application.description, &deployment.profile);
    let document = ApplicationDeployment {
        dialect: Dialect::RC3,
        id,
        application_id: description.id.clone(),
        name: deployment.id.to_string(),
        namespace: deployment.id.to_string(),
        device_id: Some(device.id.to_string()),
        labels: BTreeMap::new(),
        profile_type: profile.kind,
        components: profile.components.clone(),
        device_constraints: profile.device_constraints.clone(),
        parameters,
        profile_extensions: profile.extensions.clone(),
        extensions: description.extensions.clone(),
    };
    let id = deployment.id.clone();
    let envelope = EnvelopeDeployment { id, policy: DeploymentPolicy {}, locks: locked, values_from };
    RenderedDeployment { document, envelope, unresolved }
}

fn lock(components: &[Component], locks: &Locks) -> (BTreeMap<ComponentName, Lock>, BTreeSet<Artifact>) {
    let (mut locked, mut unresolved) = (BTreeMap::new(), BTreeSet::new());
    for component in components {
        let Some(artifact) = artifact(component) else { continue };
        match locks.get(&artifact) {
            Some(lock) => _ = locked.insert(component.name.clone(), *lock),
            None => _ = unresolved.insert(artifact),
        }
    }
    (locked, unresolved)
}

/// The values that the document carries, and those that stay on the device.
fn parameters(deployment: &Deployment, device: &Device) -> (BTreeMap<String, Parameter>, BTreeMap<String, ValueFrom>) {
    let (mut literal, mut from_device) = (BTreeMap::new(), BTreeMap::new());
    for (name, definition) in &deployment.application.description.parameters {
        let targets = definition.targets_in(&deployment.profile);
        let default = || definition.default.clone().map(Setting::Literal);
        match deployment.setting(name, device).cloned().or_else(default) {
            _ if targets.is_empty() => {}
            Some(Setting::Literal(value)) => {
                let targets = targets.iter().map(|target| written(target, deployment)).collect();
                literal.insert(name.clone(), Parameter { value, targets });
            }
            Some(Setting::DeviceFile(device_file)) => {
                let targets = targets.iter().map(|target| written(target, deployment));
                let targets = targets.map(|Target { pointer, components }| ValueTarget { pointer, components });
                from_device.insert(name.clone(), ValueFrom { device_file, targets: targets.collect() });
            }
            // Without value and default it is left out.
            None => {}
        }
    }
    (literal, from_device)
}

/// The target in the one spelling that is written: a bare variable for compose.
fn written(target: &Target, deployment: &Deployment) -> Target {
    let pointer = target.place(deployment.profile.kind).to_owned();
    Target { pointer, components: target.components.clone() }
}
