//! What each device shall run, as typed documents: a pure function of the fleet, the device and the locks.

mod dependencies;
mod problems;
mod profiles;

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use repo_model::desired::Desired;
use repo_model::envelope::{DeploymentPolicy, DevicePolicy, EnvelopeDeployment, Lock, ValueFrom, ValueTarget};
use repo_model::margo::deployment::Dialect;
use repo_model::margo::{ApplicationDeployment, Component, DeviceCapabilities, Parameter, Source, Target};
use repo_model::problem::{Problem, Problems};
use repo_model::value::ParamValue;
use repo_model::{ComponentName, DeploymentId, DeploymentName, DeviceId, KeyText};

use crate::fleet::schema::{self, Breach};
use crate::fleet::{Choice, Deployment, Device, Fleet, Layers, Names, Place, Profile, Setting, shown_value};

pub use problems::merged;

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

/// What is known of a device beyond the fleet's files.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts<'a> {
    /// What its `desired` holds.
    pub parent: Option<&'a Desired>,
    /// What it has and can run.
    pub capabilities: Capabilities<'a>,
}

/// What is known of what a device has and can run.
#[derive(Debug, Clone, Copy, Default)]
pub enum Capabilities<'a> {
    /// Nobody asked: whatever could fit does.
    #[default]
    Unasked,
    /// The device said nothing yet.
    Unreported,
    /// What it verifiably says.
    Reported(&'a DeviceCapabilities),
}

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
    /// Deployments that are meant for it and can't be rendered, and why; whatever it has of them stays.
    pub left: BTreeMap<DeploymentName, Problems>,
    /// Those of either kind that would be others on a device with other capabilities.
    pub by_capabilities: BTreeSet<DeploymentName>,
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

impl Rendered {
    /// Everything that is wrong with what is meant for the device.
    pub fn problems(&self) -> Problems {
        Problems(self.left.values().flat_map(|problems| problems.0.iter().cloned()).collect())
    }
}

/// Renders one device of the fleet.
pub fn render(fleet: &Fleet, device: &Device, facts: Facts<'_>, locks: &Locks) -> Rendered {
    let mut rendered = Rendered {
        device: device.id.clone(),
        status_keys: device.status_keys.clone(),
        policy: device.policy_in(fleet),
        deployments: BTreeMap::new(),
        left: BTreeMap::new(),
        by_capabilities: BTreeSet::new(),
    };
    for deployment in fleet.deployments.values().filter(|deployment| deployment.is_for(device)) {
        let id = DeploymentId::derive(fleet.id, &deployment.id, &device.id);
        if profiles::asks(deployment) {
            rendered.by_capabilities.insert(deployment.id.clone());
        }
        match (Work { fleet, device, deployment, id, facts, locks }.render()) {
            Ok(one) => _ = rendered.deployments.insert(id, one),
            Err(problems) => _ = rendered.left.insert(deployment.id.clone(), problems),
        }
    }
    dependencies::check(fleet, device, facts, &mut rendered);
    rendered
}

/// The tags that enrolled devices need and that have no lock yet. `facts` tells what is known of a device.
pub fn unresolved<'a>(fleet: &Fleet, facts: &dyn Fn(&DeviceId) -> Facts<'a>, locks: &Locks) -> BTreeSet<Artifact> {
    let enrolled: Vec<_> = fleet.devices.values().filter(|device| device.is_enrolled()).collect();
    let mut needed = BTreeSet::new();
    for deployment in fleet.deployments.values() {
        let mut devices = enrolled.iter().filter(|device| deployment.is_for(device));
        let profiles: Vec<_> = match &deployment.profile {
            // The same for all of them.
            Choice::Named(_) => devices.next().map(|_| deployment.profiles().collect()).unwrap_or_default(),
            Choice::Auto(_) => devices
                .filter_map(|device| {
                    let id = DeploymentId::derive(fleet.id, &deployment.id, &device.id);
                    profiles::choose(deployment, id, facts(&device.id)).ok()
                })
                .collect(),
        };
        needed.extend(profiles.iter().flat_map(|profile| profile.description.components.iter().filter_map(artifact)));
    }
    needed.retain(|artifact| !locks.contains_key(artifact));
    needed
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

/// One deployment on its way to one device.
struct Work<'a> {
    fleet: &'a Fleet,
    device: &'a Device,
    deployment: &'a Deployment,
    id: DeploymentId,
    facts: Facts<'a>,
    locks: &'a Locks,
}

impl Work<'_> {
    fn render(&self) -> Result<RenderedDeployment, Problems> {
        let Self { deployment, device, .. } = self;
        let description = &deployment.application.description;
        let profile = profiles::choose(deployment, self.id, self.facts)?;
        let (parameters, values_from) = self.parameters(profile)?;
        let (locked, unresolved) = lock(&profile.description.components, self.locks);
        let document = ApplicationDeployment {
            dialect: Dialect::RC3,
            id: self.id,
            application_id: description.id.clone(),
            name: deployment.id.to_string(),
            namespace: deployment.id.to_string(),
            device_id: Some(device.id.to_string()),
            labels: BTreeMap::new(),
            profile_type: profile.description.kind,
            components: profile.description.components.clone(),
            device_constraints: profile.description.device_constraints.clone(),
            parameters,
            profile_extensions: profile.description.extensions.clone(),
            extensions: description.extensions.clone(),
        };
        let depends_on: BTreeSet<_> = deployment.depends_on.iter().map(|(id, _)| id.clone()).collect();
        let policy = DeploymentPolicy { suspended: deployment.suspended, depends_on: depends_on.into_iter().collect() };
        let id = deployment.id.clone();
        let chosen = matches!(deployment.profile, Choice::Auto(_)).then(|| profile.description.id.clone());
        let envelope = EnvelopeDeployment { id, policy, profile: chosen, locks: locked, values_from };
        Ok(RenderedDeployment { document, envelope, unresolved })
    }

    /// The values that the document carries, and those that stay on the device.
    fn parameters(&self, profile: &Profile) -> Result<Parameters, Problems> {
        let (mut literal, mut from_device, mut problems) = (BTreeMap::new(), BTreeMap::new(), Problems::default());
        let layers = self.fleet.layers(self.deployment, self.device);
        let names = LazyCell::new(|| Names::of(self.fleet, self.device, self.deployment));
        for (name, targets) in &profile.parameters {
            match self.value(name, &layers, &names) {
                Ok(Some(Value::Literal(value))) => {
                    literal.insert(name.clone(), Parameter { value, targets: targets.clone() });
                }
                Ok(Some(Value::DeviceFile(device_file))) => {
                    let targets = targets.iter().cloned();
                    let targets = targets.map(|Target { pointer, components }| ValueTarget { pointer, components });
                    from_device.insert(name.clone(), ValueFrom { device_file, targets: targets.collect() });
                }
                // Without value and default it is left out.
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            problems.extend(self.changed_immutables(&literal, &from_device));
        }
        if problems.is_empty() { Ok((literal, from_device)) } else { Err(problems) }
    }

    fn value(
        &self,
        name: &str,
        layers: &Layers<'_>,
        names: &LazyCell<Names, impl FnOnce() -> Names>,
    ) -> Result<Option<Value>, Problem> {
        let application = &self.deployment.application;
        let rule = application.rules.get(name);
        let Some((_, given)) = layers.of(name).next() else {
            let default = application.description.parameters.get(name).and_then(|one| one.default.clone());
            let is_required = rule.is_some_and(|rule| rule.schema.allow_empty == Some(false));
            return match default {
                None if is_required => {
                    let problem = self.deployment.place.problem(format!("`{name}` has no value"));
                    Err(problem.hint("give it one under `parameters`: the package requires it"))
                }
                default => Ok(default.map(Value::Literal)),
            };
        };
        match &given.setting {
            Setting::Literal(value) => Ok(Some(Value::Literal(value.clone()))),
            Setting::DeviceFile(name) => Ok(Some(Value::DeviceFile(name.clone()))),
            Setting::Template(template) => {
                let value = template.fill(names)?;
                match rule.map_or(Ok(()), |rule| schema::check(&rule.schema, &value)) {
                    Err(Breach::Wrong(message)) => {
                        let text = format!("makes {}, which {message}", shown_value(&value));
                        let rule = rule.map(|rule| rule.schema.name.as_str()).unwrap_or_default();
                        Err(given.place.problem(text).hint(format!("its rule is `{rule}`")))
                    }
                    _ => Ok(Some(Value::Literal(value))),
                }
            }
        }
    }

    /// What can't change once it is on the device, and would.
    fn changed_immutables(
        &self,
        literal: &BTreeMap<String, Parameter>,
        from_device: &BTreeMap<String, ValueFrom>,
    ) -> Vec<Problem> {
        let Some(parent) = self.facts.parent else { return Vec::new() };
        let (Some(document), Some(envelope)) =
            (parent.deployments.get(&self.id), parent.envelope.deployments.get(&self.id))
        else {
            return Vec::new();
        };
        let application = &self.deployment.application;
        if document.deployment.application_id != application.description.id {
            return Vec::new();
        }
        let shown = |literal: Option<&Parameter>, from: Option<&ValueFrom>| match (literal, from) {
            (Some(parameter), _) => Some(shown_value(&parameter.value)),
            (None, from) => from.map(|from| format!("file {} of the device", from.device_file)),
        };
        let immutable = application.rules.iter().filter(|(_, rule)| rule.immutable);
        let changed = immutable.filter_map(|(name, _)| {
            let old = shown(document.deployment.parameters.get(name), envelope.values_from.get(name))?;
            let new = shown(literal.get(name), from_device.get(name));
            let (new, is_same) = (new.as_deref().unwrap_or("nothing"), new.as_ref() == Some(&old));
            let text = format!("can't change once it is installed: it is {old}, and would be {new}");
            (!is_same).then(|| self.place_of(name).problem(text).hint(IMMUTABLE))
        });
        changed.collect()
    }

    /// Where the value of a parameter stands.
    fn place_of(&self, name: &str) -> &Place {
        let given = self.fleet.layers(self.deployment, self.device).of(name).next().map(|(_, given)| &given.place);
        let default = || self.deployment.application.default_place(name);
        given.or_else(default).unwrap_or(&self.deployment.place)
    }
}

const IMMUTABLE: &str = "put the old value back, or install anew: remove this deployment and add it under another id";

/// The values that the document carries, and those that stay on the device.
type Parameters = (BTreeMap<String, Parameter>, BTreeMap<String, ValueFrom>);

/// A value as it goes to the device.
enum Value {
    Literal(ParamValue),
    DeviceFile(String),
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
