//! Joins the files of a fleet by the names that they give each other.
//!
//! Whatever doesn't lead anywhere breaks the one deployment or device that it stands in, never its neighbours.

use std::collections::BTreeMap;
use std::sync::Arc;

use repo_model::margo::description::DeploymentProfile;
use repo_model::margo::{ProfileType, Source};
use repo_model::problem::{Problem, Problems};
use repo_model::{ApplicationId, DeploymentName, DeviceId};

use super::deployment::{Placed, Written};
use super::file::{Decoded, Role, SourceFile, decode};
use super::schema::{self, Breach};
use super::selector::{Place, Selector};
use super::{Application, Broken, Deployment, Device, Override, Setting};

type Applications = BTreeMap<(ApplicationId, String), Arc<Application>>;

/// The files of a fleet, each read on its own.
#[derive(Debug, Default)]
pub(super) struct Parts {
    applications: Vec<Application>,
    devices: Vec<(Device, Place)>,
    deployments: Vec<(String, Written)>,
    broken: Broken,
}

type Joined = (BTreeMap<DeviceId, Device>, BTreeMap<DeploymentName, Arc<Deployment>>, Broken);

impl Parts {
    pub(super) fn read(files: &[&SourceFile], problems: &mut Problems) -> Self {
        let mut parts = Self::default();
        for file in files {
            match Role::of(&file.path) {
                Some(Role::Application) => parts.applications.extend(Application::read(file, problems)),
                Some(Role::Device) => parts.add_device(file, problems),
                Some(Role::Deployment) => parts.add_deployment(file, problems),
                Some(Role::Misnamed) => {
                    problems.push(
                        Problem::error(&file.path, "is not read, because it doesn't end in `.yaml`").hint("rename it"),
                    );
                    parts.broken.unidentified.insert(file.path.clone());
                }
                Some(Role::Settings) => {}
                // A link in the place of a folder, for instance: what would be below it can't be told.
                None => {
                    file.bytes(problems);
                    parts.broken.unidentified.insert(file.path.clone());
                }
            }
        }
        parts
    }

    fn add_device(&mut self, file: &SourceFile, problems: &mut Problems) {
        match decode(file, problems, |reader| Device::read(&file.path, reader)) {
            Decoded::Good(device) => self.devices.push(device),
            Decoded::Broken(id) => _ = self.broken.devices.insert(id),
            Decoded::Unidentified => _ = self.broken.unidentified.insert(file.path.clone()),
        }
    }

    fn add_deployment(&mut self, file: &SourceFile, problems: &mut Problems) {
        match decode(file, problems, Written::read) {
            Decoded::Good(written) => self.deployments.push((file.path.clone(), written)),
            Decoded::Broken(id) => _ = self.broken.deployments.insert(id),
            Decoded::Unidentified => _ = self.broken.unidentified.insert(file.path.clone()),
        }
    }

    /// Looks up every name.
    pub(super) fn join(self, problems: &mut Problems) -> Joined {
        let mut broken = self.broken;
        // Two packages with one id and version can't both have the path that both must have.
        let applications = self.applications.into_iter().map(|one| (one.key(), Arc::new(one))).collect();
        let devices = join_devices(self.devices, &mut broken, problems);
        let deployments = join_deployments(self.deployments, &applications, &devices, &mut broken, problems);
        (devices, deployments, broken)
    }
}

fn join_devices(all: Vec<(Device, Place)>, broken: &mut Broken, problems: &mut Problems) -> BTreeMap<DeviceId, Device> {
    let mut devices = BTreeMap::new();
    let mut repositories: BTreeMap<String, (DeviceId, String)> = BTreeMap::new();
    for (device, place) in all {
        let repository = device.id.repository_name().to_lowercase();
        if let Some((other, file)) = repositories.get(&repository) {
            let what =
                if *other == device.id { "the same id as" } else { "an id that makes the same repository name as" };
            problems.push(place.problem(&device.file, format!("has {what} `{other}` in {file}")));
            broken.devices.extend([device.id, other.clone()]);
            continue;
        }
        repositories.insert(repository, (device.id.clone(), device.file.clone()));
        devices.insert(device.id.clone(), device);
    }
    devices.retain(|id, _| !broken.devices.contains(id));
    devices
}

fn join_deployments(
    all: Vec<(String, Written)>,
    applications: &Applications,
    devices: &BTreeMap<DeviceId, Device>,
    broken: &mut Broken,
    problems: &mut Problems,
) -> BTreeMap<DeploymentName, Arc<Deployment>> {
    let mut deployments: BTreeMap<DeploymentName, Arc<Deployment>> = BTreeMap::new();
    let mut files: BTreeMap<DeploymentName, String> = BTreeMap::new();
    for (file, written) in all {
        if let Some(other) = files.insert(written.id.clone(), file.clone()) {
            let problem = written.id_place.problem(&file, format!("`{}` is the id in {other} too", written.id));
            problems.push(problem.hint("give each deployment its own id, or remove one of the two"));
            broken.deployments.insert(written.id);
            continue;
        }
        let id = written.id.clone();
        let check = Check { file: &file, applications, devices, broken };
        match check.deployment(written, problems) {
            Some(deployment) => _ = deployments.insert(id, Arc::new(deployment)),
            None => _ = broken.deployments.insert(id),
        }
    }
    deployments.retain(|id, _| !broken.deployments.contains(id));
    deployments
}

/// What one deployment's names are looked up in.
struct Check<'a> {
    file: &'a str,
    applications: &'a Applications,
    devices: &'a BTreeMap<DeviceId, Device>,
    broken: &'a Broken,
}

impl Check<'_> {
    fn deployment(&self, written: Written, problems: &mut Problems) -> Option<Deployment> {
        let before = problems.errors().count();
        let when = written.overrides.iter().map(|(when, _)| when);
        for selector in written.targets.iter().chain(&written.exclude).chain(when) {
            self.selector(selector, problems);
        }
        let application = self.application(&written, problems)?;
        let profile = self.profile(&application, written.profile.as_ref(), &written.application_place, problems)?;
        for parameters in [&written.parameters].into_iter().chain(written.overrides.iter().map(|(_, p)| p)) {
            self.parameters(&application, &profile, parameters, problems);
        }
        if problems.errors().count() > before {
            return None;
        }
        let bare = |placed: Placed| placed.into_iter().map(|(name, (setting, _))| (name, setting)).collect();
        let place = written.id_place;
        let deployment = Deployment {
            file: self.file.to_owned(),
            id: written.id,
            application,
            profile,
            targets: written.targets,
            exclude: written.exclude,
            parameters: bare(written.parameters),
            overrides: written
                .overrides
                .into_iter()
                .map(|(when, parameters)| Override { when, parameters: bare(parameters) })
                .collect(),
        };
        self.required(&deployment, &place, problems);
        (problems.errors().count() == before).then_some(deployment)
    }

    fn selector(&self, selector: &Selector, problems: &mut Problems) {
        let Selector::Devices(named) = selector else { return };
        for (id, place) in named {
            if !self.devices.contains_key(id) && !self.broken.devices.contains(id) {
                let problem = place.problem(self.file, format!("there is no device `{id}`"));
                problems.push(problem.hint("correct the id, or add the device with `device add`"));
            }
        }
    }

    fn application(&self, written: &Written, problems: &mut Problems) -> Option<Arc<Application>> {
        let (id, version) = &written.application;
        if let Some(application) = self.applications.get(&written.application) {
            return Some(Arc::clone(application));
        }
        let versions: Vec<_> = self.applications.keys().filter(|(other, _)| other == id).map(|(_, v)| v).collect();
        let place = &written.application_place;
        let problem = place.problem(self.file, format!("there is no usable package `{id}` in version {version}"));
        problems.push(match versions.as_slice() {
            [] => problem.hint(format!("add applications/{id}/{version}/margo.yaml, or correct what is wrong in it")),
            versions => problem.hint(format!("there is {}", listed(versions.iter()))),
        });
        None
    }

    /// The profile that is named, or the only one that can be used.
    fn profile(
        &self,
        application: &Application,
        wanted: Option<&(String, Place)>,
        place: &Place,
        problems: &mut Problems,
    ) -> Option<DeploymentProfile> {
        let (place, chosen) = match wanted {
            Some((id, place)) => (place, named_profile(application, id)),
            None => (place, only_profile(application)),
        };
        let checked = chosen.and_then(|profile| self::usable(profile).map(|()| profile));
        match checked {
            Ok(profile) => Some(profile.clone()),
            Err((message, hint)) => {
                problems.push(place.problem(self.file, message).hint(hint));
                None
            }
        }
    }

    fn parameters(
        &self,
        application: &Application,
        profile: &DeploymentProfile,
        given: &Placed,
        problems: &mut Problems,
    ) {
        let known = &application.description.parameters;
        for (name, (setting, place)) in given {
            match known.get(name) {
                None => {
                    let message = format!("{} has no parameter `{name}`", application.description.id);
                    problems.push(place.problem(self.file, message).hint(format!("it has {}", listed(known.keys()))));
                }
                Some(definition) if definition.targets_in(profile).is_empty() => {
                    let message = format!("the profile `{}` doesn't use this parameter", profile.id);
                    problems.push(place.problem(self.file, message).hint("leave it out"));
                }
                Some(_) => self.value(application, (name, setting), place, problems),
            }
        }
    }

    /// Checks a value against the package's rule for it. What stays on the device is checked by no one.
    fn value(
        &self,
        application: &Application,
        (name, setting): (&str, &Setting),
        place: &Place,
        problems: &mut Problems,
    ) {
        let configuration = application.description.configuration.as_ref();
        let Some((_, rule)) = configuration.and_then(|configuration| configuration.rule(name)) else { return };
        let Setting::Literal(value) = setting else { return };
        match schema::check(rule, value) {
            Ok(()) => {}
            Err(Breach::Wrong(message)) => {
                problems.push(place.problem(self.file, message).hint(format!("its rule is `{}`", rule.name)));
            }
            Err(Breach::Doubt(message)) => problems.push(place.problem(self.file, message).warning()),
        }
    }

    /// What must have a value has one on every device that gets the deployment.
    fn required(&self, deployment: &Deployment, place: &Place, problems: &mut Problems) {
        let description = &deployment.application.description;
        for (name, definition) in &description.parameters {
            let rule = description.configuration.as_ref().and_then(|configuration| configuration.rule(name));
            let is_required = rule.is_some_and(|(_, rule)| rule.allow_empty == Some(false));
            if !is_required || definition.default.is_some() || definition.targets_in(&deployment.profile).is_empty() {
                continue;
            }
            let lacks = |device: &&Device| deployment.is_for(device) && deployment.setting(name, device).is_none();
            if let Some(device) = self.devices.values().find(lacks) {
                let problem = place.problem(self.file, format!("`{name}` has no value on `{}`", device.id));
                problems.push(problem.hint("give it one under `parameters`: the package requires it"));
            }
        }
    }
}

type Choice<'a> = Result<&'a DeploymentProfile, (String, String)>;

fn named_profile<'a>(application: &'a Application, id: &str) -> Choice<'a> {
    application.description.profile(id).ok_or_else(|| {
        let ids = listed(application.description.profiles.iter().map(|profile| &profile.id));
        (format!("{} has no profile `{id}`", application.description.id), format!("it has {ids}"))
    })
}

fn only_profile(application: &Application) -> Choice<'_> {
    let profiles = &application.description.profiles;
    let compose: Vec<_> = profiles.iter().filter(|profile| profile.kind == ProfileType::Compose).collect();
    match compose.as_slice() {
        [one] => Ok(one),
        [] => Err((
            format!("{} has no compose profile", application.description.id),
            "helm profiles are not built yet".to_owned(),
        )),
        several => Err((
            format!("{} has more than one compose profile", application.description.id),
            format!("add `profile:` with one of {}", listed(several.iter().map(|profile| &profile.id))),
        )),
    }
}

/// Whether this version can publish the profile.
fn usable(profile: &DeploymentProfile) -> Result<(), (String, String)> {
    if profile.kind == ProfileType::Helm {
        let message = format!("the profile `{}` is a helm profile, which is not built yet", profile.id);
        return Err((message, "choose a compose profile".to_owned()));
    }
    let is_signed = |source: &Source| matches!(source, Source::Https { key_location: Some(_), .. });
    match profile.components.iter().find(|component| is_signed(&component.source)) {
        Some(component) => Err((
            format!("component `{}` has a `keyLocation`, which is not built yet", component.name),
            "leave it out: what is published is locked by its digest".to_owned(),
        )),
        None => Ok(()),
    }
}

fn listed<T: std::fmt::Display>(names: impl Iterator<Item = T>) -> String {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
