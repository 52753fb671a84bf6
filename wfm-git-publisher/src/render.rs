//! What each device shall run, as typed documents: a pure function of the fleet, the device and the locks.

mod artifacts;
mod charts;
mod dependencies;
mod documents;
mod images;
mod locked;
mod problems;
mod profiles;
mod whole;

use std::collections::{BTreeMap, BTreeSet};

use repo_model::desired::Desired;
use repo_model::envelope::{DevicePolicy, EnvelopeDeployment, ValueFrom};
use repo_model::margo::{ApplicationDeployment, DeviceCapabilities, Parameter, ProfileType};
use repo_model::problem::{Problem, Problems};
use repo_model::{DeploymentId, DeploymentName, DeviceId, KeyText};

use self::documents::Written;
use crate::fleet::{Choice, Deployment, Device, Fleet, Place, Profile, Retired, shown_source, shown_value};

pub use artifacts::{Artifact, ArtifactKind, Locks, Resolved};
pub use charts::{has_charts, undeclared};
pub use documents::Documents;
pub(crate) use images::are_known as images_are_known;
pub use locked::with_published;
pub use problems::merged;
pub(crate) use profiles::asks;
pub use profiles::{Fit, choose, fit};
pub use whole::problems_of;

/// What is known of a device beyond the fleet's files.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts<'a> {
    /// The verified tip of its `desired`; absent if it has none.
    pub parent: Option<&'a Desired>,
    /// What it has and can run.
    pub capabilities: Capabilities<'a>,
    /// Deployments of which it gets nothing else yet: a rollout holds them back. None if absent.
    pub held: Option<&'a BTreeSet<DeploymentName>>,
    /// The deployments that are asked about; all if absent.
    pub only: Option<&'a BTreeSet<DeploymentName>>,
}

impl Facts<'_> {
    fn holds(&self, deployment: &DeploymentName) -> bool {
        self.held.is_some_and(|held| held.contains(deployment))
    }

    /// Whether it is about what is to be published.
    fn is_asked(&self) -> bool {
        !matches!(self.capabilities, Capabilities::Unasked)
    }
}

/// What is known of what a device has and can run.
#[derive(Debug, Clone, Copy, Default)]
pub enum Capabilities<'a> {
    /// Nobody asked: whatever could fit does.
    #[default]
    Unasked,
    /// The device pushed no `status` that can be believed yet, or one without capabilities.
    Unreported,
    /// What it verifiably says can't be read, and why.
    Unreadable(&'a str),
    Reported(&'a DeviceCapabilities),
}

/// What one device shall run, before it has a serial.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    pub device: DeviceId,
    /// Who may sign its reports, in the order of its file.
    pub status_keys: Vec<KeyText>,
    pub policy: DevicePolicy,
    /// How it is taken out of service; absent while it is in it.
    pub retired: Option<Retired>,
    /// What it shall run, by the UUIDs of Margo's documents.
    pub deployments: BTreeMap<DeploymentId, RenderedDeployment>,
    /// Deployments of which stays whatever it has.
    pub left: BTreeMap<DeploymentName, Left>,
    /// Deployments that would go, and stay because a rollout holds them back, or something that waits for them.
    pub stay: BTreeSet<DeploymentName>,
    /// Those of either kind that would be others on a device with other capabilities.
    pub by_capabilities: BTreeSet<DeploymentName>,
}

/// A deployment that is meant for a device and can't be rendered, or that something else there still waits for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Left {
    /// Why it can't be as it is meant.
    pub problems: Problems,
    /// Whether it shall be suspended, which also what stays can be; absent if the fleet doesn't say.
    pub suspended: Option<bool>,
}

/// One deployment on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedDeployment {
    pub document: ApplicationDeployment,
    /// What goes with it; a component without a lock is in `unresolved`.
    pub envelope: EnvelopeDeployment,
    /// Tags whose meaning isn't known yet; with any of them this can't be published.
    pub unresolved: BTreeSet<Artifact>,
    /// Whether it can't be published yet, because a rollout holds it back, or something that it waits for.
    pub held: bool,
}

impl RenderedDeployment {
    /// Whether it can't be published yet.
    fn is_pending(&self) -> bool {
        self.held || !self.unresolved.is_empty()
    }
}

impl Rendered {
    /// Everything that is wrong with what is meant for the device.
    pub fn problems(&self) -> Problems {
        Problems(self.left.values().flat_map(|left| left.problems.iter().cloned()).collect())
    }

    /// What is wrong with each deployment.
    pub fn wrong(&self) -> BTreeMap<DeploymentName, Problems> {
        let wrong = self.left.iter().filter(|(_, left)| !left.problems.is_empty());
        wrong.map(|(name, left)| (name.clone(), left.problems.clone())).collect()
    }
}

/// Renders one device of the fleet.
pub fn render(fleet: &Fleet, device: &Device, facts: Facts<'_>, locks: &Locks) -> Rendered {
    render_with(Documents::default(), fleet, device, facts, locks)
}

/// The same, with those of the device's documents that were written before anything was known of it.
pub fn render_with<'a>(
    mut documents: Documents<'a>,
    fleet: &'a Fleet,
    device: &'a Device,
    facts: Facts<'a>,
    locks: &'a Locks,
) -> Rendered {
    let mut rendered = Rendered {
        device: device.id.clone(),
        status_keys: device.status_keys.clone(),
        policy: device.policy_in(fleet),
        retired: device.retired,
        deployments: BTreeMap::new(),
        left: BTreeMap::new(),
        stay: BTreeSet::new(),
        by_capabilities: BTreeSet::new(),
    };
    // Whoever retires a device means all of it.
    let facts = Facts { held: facts.held.filter(|_| device.retired.is_none()), ..facts };
    let asked = fleet.deployments.values().filter(|one| facts.only.is_none_or(|only| only.contains(&one.id)));
    for deployment in asked.filter(|one| one.is_for(device)).map(|one| one.on(device)) {
        let id = DeploymentId::derive(fleet.settings.id, &deployment.id, &device.id);
        if profiles::asks(deployment) {
            rendered.by_capabilities.insert(deployment.id.clone());
        }
        match Work::new(fleet, device, deployment, facts, locks).render(documents.take(id)) {
            Ok(one) => _ = rendered.deployments.insert(id, one),
            Err(problems) => {
                let left = Left { problems, suspended: Some(deployment.suspended) };
                rendered.left.insert(deployment.id.clone(), left);
            }
        }
    }
    rendered.stay = held_removals(&rendered, facts);
    dependencies::check(fleet, device, facts, &mut rendered);
    rendered
}

/// What the device has, would lose, and doesn't yet.
fn held_removals(rendered: &Rendered, facts: Facts<'_>) -> BTreeSet<DeploymentName> {
    let present = facts.parent.iter().flat_map(|parent| &parent.envelope.deployments);
    let goes = |(id, one): &(&DeploymentId, &EnvelopeDeployment)| {
        facts.holds(&one.id) && !rendered.deployments.contains_key(*id) && !rendered.left.contains_key(&one.id)
    };
    present.filter(goes).map(|(_, one)| one.id.clone()).collect()
}

/// What a deployment's application is made of, whichever profile and version is used.
pub(crate) fn artifacts(deployment: &Deployment) -> impl Iterator<Item = Artifact> {
    let profiles = deployment.versions().flat_map(|one| one.application.deployable());
    let profiles = profiles.map(|profile| &profile.description);
    profiles.flat_map(|one| one.components.iter().map(|component| Artifact::of(one.kind, component)))
}

/// The tags that enrolled devices need and that have no lock yet; images of archives only once these are locked. `facts`
/// tells what is known of a device; one of which nothing is needs none.
pub fn unresolved<'a>(
    fleet: &Fleet,
    facts: &dyn Fn(&DeviceId) -> Option<Facts<'a>>,
    locks: &Locks,
) -> BTreeSet<Artifact> {
    let enrolled: Vec<_> =
        fleet.all_devices().filter(|device| device.is_enrolled() && facts(&device.id).is_some()).collect();
    let mut needed = BTreeSet::new();
    let versions = fleet.deployments.values().flat_map(|one| one.versions().map(move |version| (one, version)));
    for (all, deployment) in versions {
        let gets = |device: &&&Device| all.is_for(device) && std::ptr::eq(all.on(device), deployment);
        let mut devices = enrolled.iter().filter(gets);
        let profiles: Vec<_> = match &deployment.profile {
            // The same for all of them.
            Choice::Named(_) => devices.next().map(|_| deployment.profiles().collect()).unwrap_or_default(),
            Choice::Auto(_) => devices
                .filter_map(|device| {
                    let id = DeploymentId::derive(fleet.settings.id, &deployment.id, &device.id);
                    profiles::choose(deployment, id, facts(&device.id)?).ok()
                })
                .collect(),
        };
        let descriptions = profiles.iter().map(|profile| &profile.description);
        needed.extend(descriptions.flat_map(|one| one.components.iter().map(|part| Artifact::of(one.kind, part))));
    }
    needed.retain(|artifact| !locks.contains_key(artifact));
    needed.extend(images::unresolved(fleet, &enrolled, facts, locks));
    needed
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

impl<'a> Work<'a> {
    fn new(
        fleet: &'a Fleet,
        device: &'a Device,
        deployment: &'a Deployment,
        facts: Facts<'a>,
        locks: &'a Locks,
    ) -> Self {
        let id = DeploymentId::derive(fleet.settings.id, &deployment.id, &device.id);
        Self { fleet, device, deployment, id, facts, locks }
    }

    /// `written` is the document of the profile that the device gets if nothing is known of it; it is written anew where the
    /// device gets another one.
    fn render(&self, written: Option<Written<'a>>) -> Result<RenderedDeployment, Problems> {
        let Self { deployment, .. } = self;
        let profile = profiles::choose(deployment, self.id, self.facts)?;
        let written = written.filter(|one| std::ptr::eq(one.profile, profile));
        let written = written.map_or_else(|| self.write(profile), Ok)?;
        self.check(&written)?;
        let names = images::Named { settings: &self.fleet.settings.images, written: &written };
        let (locks, unresolved) =
            locked::lock(profile.description.kind, &profile.description.components, self.locks, &names);
        let policy = deployment.policy_on(self.fleet, self.device);
        let id = deployment.id.clone();
        let chosen = matches!(deployment.profile, Choice::Auto(_)).then(|| profile.description.id.clone());
        let required_resources = profile.description.required_resources.clone();
        let Written { document, values_from, .. } = written;
        let envelope = EnvelopeDeployment { id, policy, profile: chosen, required_resources, locks, values_from };
        Ok(RenderedDeployment { document, held: self.facts.holds(&envelope.id), envelope, unresolved })
    }

    /// Values that can't be together, or that the device can't get any more.
    fn check(&self, written: &Written<'_>) -> Result<(), Problems> {
        let Written { profile, document, values_from } = written;
        let mut problems = Problems(self.changed_immutables(profile, &document.parameters, values_from));
        problems.extend(charts::contradiction(profile, &document.parameters, values_from).map(|error| {
            let problem = self.deployment.place.problem(error.to_string());
            problem.hint("leave one of the two parameters without a value, or have the package corrected")
        }));
        if let Some((_, place)) =
            self.deployment.restart_on(self.device).filter(|_| document.profile_type == ProfileType::Helm)
        {
            let problem = place.problem("is for compose applications; devices don't restart what a chart made");
            problems.push(problem.hint(format!("leave it out; {OF_CHART}")));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// What can't change once it is on the device, and would. A value where there was none is a change too, unless it
    /// may be that of a new parameter: one that comes with other components, or by the package's own word.
    fn changed_immutables(
        &self,
        profile: &Profile,
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
            // Nobody here can tell whether it is the same one, encrypted anew.
            (None, Some(from)) if from.encrypted().is_some() => Some("an encrypted value".to_owned()),
            (None, from) => from.map(|from| shown_source(&from.source)),
        };
        let immutable = application.rules.iter().filter(|(_, rule)| rule.immutable);
        let same_components = document.deployment.components == profile.description.components;
        let layers = self.fleet.layers(self.deployment, self.device);
        let changed = immutable.filter_map(|(name, _)| {
            let old = shown(document.deployment.parameters.get(name), envelope.values_from.get(name));
            let new = shown(literal.get(name), from_device.get(name));
            if old == new || (old.is_none() && !(same_components && layers.of(name).next().is_some())) {
                return None;
            }
            let [old, new] = [&old, &new].map(|one| one.as_deref().unwrap_or("nothing"));
            let text = format!("can't change once it is installed: it is {old}, and would be {new}");
            Some(self.place_of(name).problem(text).hint(IMMUTABLE))
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

/// What to do in the place of restarting a chart.
pub const OF_CHART: &str =
    "where the chart makes an annotation of its pods from a value, change that value: the pods are made anew";

const IMMUTABLE: &str = "put the old value back, or install anew: remove this deployment and add it under another id";
