//! Joins the files of a fleet by the names that they give each other.
//!
//! Whatever doesn't lead anywhere breaks the one deployment or device that it stands in, never its neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use repo_model::margo::ProfileType;
use repo_model::problem::{Mend, Problem, Problems, Severity};
use repo_model::value::ParamValue;
use repo_model::yaml::{Plain, nearest, resolve};
use repo_model::{ApplicationId, DeploymentName, DeviceId, KeyText};

use super::application::{Application, Rule};
use super::deployment::{Choice, Override, Written};
use super::file::{Decoded, Role, SourceFile, decode};
use super::listed::{NONE, listed};
use super::place::Place;
use super::schema::Breach;
use super::selector::Selector;
use super::values::{Given, Setting, Values};
use super::{Broken, Deployment, Device, Group, Settings, Subject, cycles, doubts};
use crate::parallel;

type Applications = BTreeMap<(ApplicationId, String), Arc<Application>>;

/// The files of a fleet, each read on its own.
#[derive(Debug, Default)]
pub(super) struct Parts {
    applications: Vec<Application>,
    devices: Vec<(Arc<Device>, Place)>,
    deployments: Vec<Written>,
    broken: Broken,
}

/// How many files one thread reads before it takes others.
const CHUNK: usize = 64;

type Joined = (BTreeMap<DeviceId, Arc<Device>>, BTreeMap<DeploymentName, Arc<Deployment>>, Broken);

impl Parts {
    /// Reads the files. `devices`: those whose files were read before.
    pub(super) fn read(
        files: &[&SourceFile],
        devices: Vec<Arc<Device>>,
        threads: usize,
        problems: &mut Problems,
    ) -> Self {
        let placed = |device: Arc<Device>| {
            let place = Place::of_file(&device.file);
            (device, place)
        };
        let mut parts = Self { devices: devices.into_iter().map(placed).collect(), ..Self::default() };
        let read = parallel::map(files.chunks(CHUNK).collect(), threads, |files| {
            let mut problems = Problems::default();
            (Self::read_some(files, &mut problems), problems)
        });
        for (some, found) in read {
            parts.applications.extend(some.applications);
            parts.devices.extend(some.devices);
            parts.deployments.extend(some.deployments);
            parts.broken.extend(some.broken);
            problems.extend(found);
        }
        parts
    }

    fn read_some(files: &[&SourceFile], problems: &mut Problems) -> Self {
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
                Some(Role::Settings | Role::Signers | Role::Token | Role::Rollout | Role::Allowance | Role::Secret) => {
                }
                // A link in the place of a folder, for instance: what would be below it can't be known.
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
            Decoded::Good((device, place)) => self.devices.push((Arc::new(device), place)),
            Decoded::Broken(id) => {
                self.broken.files.insert(file.path.clone(), Subject::Device(DeviceId::clone(&id)));
                self.broken.devices.insert(id);
            }
            Decoded::Unidentified => _ = self.broken.unidentified.insert(file.path.clone()),
        }
    }

    fn add_deployment(&mut self, file: &SourceFile, problems: &mut Problems) {
        match decode(file, problems, Written::read) {
            Decoded::Good(written) => self.deployments.push(written),
            Decoded::Broken(id) => {
                self.broken.files.insert(file.path.clone(), Subject::Deployment(DeploymentName::clone(&id)));
                self.broken.deployments.insert(id);
            }
            Decoded::Unidentified => _ = self.broken.unidentified.insert(file.path.clone()),
        }
    }

    /// Looks up the applications, devices and deployments that files name, and tells of those that are nowhere.
    pub(super) fn join(self, settings: Option<&Settings>, problems: &mut Problems) -> Joined {
        let mut broken = self.broken;
        let devices = self.devices.iter().map(|(device, _)| (device.file.clone(), Subject::Device(device.id.clone())));
        let deployments = self.deployments.iter();
        let deployments = deployments.map(|one| (one.place.file.clone(), Subject::Deployment(one.id.clone())));
        let files: Vec<_> = devices.chain(deployments).collect();
        // Two packages with one id and version can't both have the path that both must have.
        let applications = self.applications.into_iter().map(|one| (one.key(), Arc::new(one))).collect();
        let devices = join_devices(self.devices, &mut broken, problems);
        if let Some(settings) = settings {
            Check { applications: &applications, devices: &devices, broken: &broken, settings: None }
                .settings(settings, problems);
        }
        let check = Names { applications: &applications, devices: &devices, settings };
        let deployments = join_deployments(self.deployments, &check, &mut broken, problems);
        problems.extend(doubts::find(settings, &devices, &broken, &deployments));
        broken.files.extend(files.into_iter().filter(|(_, subject)| match subject {
            Subject::Device(id) => broken.devices.contains(id),
            Subject::Deployment(name) => broken.deployments.contains(name),
        }));
        (devices, deployments, broken)
    }
}

fn join_devices(
    all: Vec<(Arc<Device>, Place)>,
    broken: &mut Broken,
    problems: &mut Problems,
) -> BTreeMap<DeviceId, Arc<Device>> {
    let mut devices = BTreeMap::new();
    let mut repositories: BTreeMap<String, (DeviceId, String)> = BTreeMap::new();
    let mut keys: BTreeMap<(&str, KeyText), (DeviceId, String)> = BTreeMap::new();
    for (device, place) in all {
        let repository = device.id.repository_name().to_lowercase();
        if let Some((other, file)) = repositories.get(&repository) {
            let what =
                if *other == device.id { "the same id as" } else { "an id that makes the same repository name as" };
            problems.push(place.problem(format!("has {what} `{other}` in {file}")));
            broken.devices.extend([device.id.clone(), other.clone()]);
            continue;
        }
        repositories.insert(repository, (device.id.clone(), device.file.clone()));
        let status_keys = device.status_keys.iter().map(|key| ("status", key));
        for (kind, key) in status_keys.chain(device.ssh_keys.iter().map(|key| ("SSH", key))) {
            let owner = keys.insert((kind, key.clone()), (device.id.clone(), device.file.clone()));
            if let Some((other, file)) = owner {
                let problem = place.problem(format!("has the {kind} key of `{other}` in {file}: {key}"));
                problems.push(problem.hint("no two devices may have one key: let each join with its own"));
                broken.devices.extend([device.id.clone(), other]);
            }
        }
        devices.insert(device.id.clone(), device);
    }
    devices.retain(|id, _| !broken.devices.contains(id));
    devices
}

/// What names are looked up in.
struct Names<'a> {
    applications: &'a Applications,
    devices: &'a BTreeMap<DeviceId, Arc<Device>>,
    settings: Option<&'a Settings>,
}

fn join_deployments(
    all: Vec<Written>,
    names: &Names<'_>,
    broken: &mut Broken,
    problems: &mut Problems,
) -> BTreeMap<DeploymentName, Arc<Deployment>> {
    let mut deployments: BTreeMap<DeploymentName, Arc<Deployment>> = BTreeMap::new();
    let mut files: BTreeMap<DeploymentName, String> = BTreeMap::new();
    let known: BTreeSet<_> = all.iter().map(|written| written.id.clone()).collect();
    for written in all {
        let place = written.place.clone();
        if let Some(other) = files.insert(written.id.clone(), place.file.clone()) {
            let problem = place.problem(format!("`{}` is the id in {other} too", written.id));
            problems.push(problem.hint("give each deployment its own id, or remove one of the two"));
            broken.deployments.insert(written.id);
            continue;
        }
        let id = written.id.clone();
        let Names { applications, devices, settings } = *names;
        let depends = check_depends_on(&written, &known, broken, problems);
        let check = Check { applications, devices, broken, settings };
        match check.deployment(written, problems).filter(|_| depends) {
            Some(deployment) => _ = deployments.insert(id, Arc::new(deployment)),
            None => _ = broken.deployments.insert(id),
        }
    }
    broken.deployments.extend(cycles::find(&deployments, problems));
    deployments.retain(|id, _| !broken.deployments.contains(id));
    deployments
}

/// Whether everything that a deployment waits for is in the fleet.
fn check_depends_on(
    written: &Written,
    known: &BTreeSet<DeploymentName>,
    broken: &Broken,
    problems: &mut Problems,
) -> bool {
    let missing = written.depends_on.iter().filter(|(id, _)| !known.contains(id) && !broken.keeps(id));
    let missing: Vec<_> = missing
        .map(|(id, place)| place.problem(format!("there is no deployment `{id}`")).hint("correct the id, or add it"))
        .collect();
    let good = missing.is_empty();
    problems.extend(missing);
    good
}

/// What one deployment's names are looked up in.
struct Check<'a> {
    applications: &'a Applications,
    devices: &'a BTreeMap<DeviceId, Arc<Device>>,
    broken: &'a Broken,
    settings: Option<&'a Settings>,
}

impl Check<'_> {
    /// Checks what `fleet.yaml` says of devices and applications. What is wrong there is wrong for nobody else.
    fn settings(&self, settings: &Settings, problems: &mut Problems) {
        for group in &settings.groups {
            self.selector(&group.when, problems);
        }
        self.shared(&settings.defaults, None, problems);
        for Group { applications, parameters, .. } in &settings.groups {
            let is_there = |id: &ApplicationId| self.applications.keys().any(|(other, _)| other == id);
            let missing: Vec<_> = applications.iter().flatten().filter(|(id, _)| !is_there(id)).collect();
            if missing.is_empty() {
                self.shared(parameters, applications.as_ref(), problems);
            }
            for (id, place) in missing {
                let known: BTreeSet<_> = self.applications.keys().map(|(id, _)| id).collect();
                let problem = place.problem(format!("there is no usable package `{id}` in this fleet"));
                problems.push(problem.hint(format!("there is {}", listed(known.into_iter()))));
            }
        }
    }

    /// Whether any package has the parameters, of these applications where some are named.
    fn shared(&self, values: &Values, only: Option<&BTreeMap<ApplicationId, Place>>, problems: &mut Problems) {
        let meant =
            self.applications.values().filter(|one| only.is_none_or(|ids| ids.contains_key(&one.description.id)));
        let known: BTreeSet<_> = meant.flat_map(|one| one.description.parameters.keys()).collect();
        let whose = match only {
            Some(ids) => format!("no package of {}", listed(ids.keys())),
            None => "no package in this fleet".to_owned(),
        };
        for (name, given) in values.iter().filter(|(name, _)| !known.contains(name)) {
            let problem = given.place.problem(format!("{whose} has a parameter `{name}`"));
            problems.push(problem.hint("correct the name, or leave it out"));
        }
    }

    fn deployment(&self, written: Written, problems: &mut Problems) -> Option<Deployment> {
        let before = problems.errors().count();
        let when = written.overrides.iter().map(|one| &one.when);
        for selector in written.targets.iter().chain(&written.exclude).chain(when) {
            self.selector(selector, problems);
        }
        let (id, version) = &written.application;
        let place = &written.application_place;
        let application = self.application(id, version, place, problems)?;
        let profile = choose(&application, written.profile.as_ref(), place, problems)?;
        let others = self.others(&written, problems);
        let id = written.id.to_string();
        let mut deployment = Deployment {
            id: written.id,
            place: written.place,
            application,
            profile,
            targets: written.targets,
            exclude: written.exclude,
            parameters: written.parameters,
            overrides: written.overrides,
            others: Vec::new(),
            suspended: written.suspended,
            depends_on: written.depends_on,
            policy: written.policy,
            restart: written.restart,
            rollout: written.rollout,
            namespace: written.namespace.unwrap_or(id),
            misfits: BTreeMap::new(),
        };
        deployment.others = others
            .into_iter()
            .map(|(index, application, profile)| {
                let mut other = Deployment { application, profile, rollout: None, ..deployment.clone() };
                other.misfits = self.values(&other, Some(index), problems);
                (index, other)
            })
            .collect();
        deployment.misfits = self.values(&deployment, None, problems);
        names(&deployment, problems);
        (problems.errors().count() == before).then_some(deployment)
    }

    fn selector(&self, selector: &Selector, problems: &mut Problems) {
        for (id, place) in selector.named() {
            if !self.devices.contains_key(id) && !self.broken.devices.contains(id) {
                let problem = place.problem(format!("there is no device `{id}`"));
                problems.push(problem.hint("correct the id, or add the device with `device add`"));
            }
        }
    }

    /// The packages and profiles of the versions that overrides name, each with the number of its override.
    fn others(&self, written: &Written, problems: &mut Problems) -> Vec<(usize, Arc<Application>, Choice)> {
        let (id, _) = &written.application;
        let named = written.overrides.iter().enumerate();
        let named = named.filter_map(|(index, one)| Some((index, one.version.as_ref()?)));
        let found = named.filter_map(|(index, (version, place))| {
            let application = self.application(id, version, place, problems)?;
            let profile = choose(&application, written.profile.as_ref(), place, problems)?;
            Some((index, application, profile))
        });
        found.collect()
    }

    fn application(
        &self,
        id: &ApplicationId,
        version: &str,
        place: &Place,
        problems: &mut Problems,
    ) -> Option<Arc<Application>> {
        if let Some(application) = self.applications.get(&(id.clone(), version.to_owned())) {
            return Some(Arc::clone(application));
        }
        let versions: Vec<_> = self.applications.keys().filter(|(other, _)| other == id).map(|(_, v)| v).collect();
        let problem = place.problem(format!("there is no usable package `{id}` in version {version}"));
        problems.push(match versions.as_slice() {
            [] => problem.hint(format!("add applications/{id}/{version}/margo.yaml, or correct what is wrong in it")),
            versions => problem.hint(format!("there is {}", listed(versions.iter()))),
        });
        None
    }

    /// Checks every value that some device could get against the package's rule for it, in the deployment's version or in
    /// that of an override. What is wrong in what is said for this version is reported at once; what is wrong in values
    /// that it shares, with other deployments or versions, wherever it counts.
    fn values(
        &self,
        deployment: &Deployment,
        version: Option<usize>,
        problems: &mut Problems,
    ) -> BTreeMap<Place, Problem> {
        let about = &deployment.application.description.id;
        let groups = self.settings.iter().flat_map(|settings| &settings.groups);
        let groups = groups.filter(|group| group.is_about(about)).map(|group| &group.parameters);
        let shared = self.settings.iter().map(|settings| &settings.defaults).chain(groups);
        let said = deployment.overrides.iter().enumerate();
        let is_own = |index: usize, one: &Override| match version {
            Some(version) => index == version,
            None => one.version.is_none(),
        };
        let (own, others): (Vec<_>, Vec<_>) = said.partition(|(index, one)| is_own(*index, one));
        let (mut own, mut others) = (parameters(own), parameters(others));
        if version.is_none() { &mut own } else { &mut others }.push(&deployment.parameters);
        let check = |(name, given): (&String, &Given)| {
            let is_used = deployment.profiles().any(|profile| profile.parameters.contains_key(name));
            let problem = if is_used { check_value(&deployment.application, name, given) } else { None };
            problem.map(|problem| (given.place.clone(), problem))
        };
        problems.extend(own.into_iter().flatten().filter_map(check).map(|(_, problem)| problem));
        let shared = shared.flatten().chain(others.into_iter().flatten());
        let (wrong, doubts): (Vec<_>, Vec<_>) =
            shared.filter_map(check).partition(|(_, problem)| problem.severity == Severity::Error);
        problems.extend(doubts.into_iter().map(|(_, problem)| problem));
        wrong.into_iter().collect()
    }
}

/// What is wrong with a value by the package's rule for it; a warning where the rule can't be applied. What a template makes is
/// checked on each device; what stays on the device is checked by no one.
pub fn check_value(application: &Application, name: &str, given: &Given) -> Option<Problem> {
    let rule = application.rules.get(name)?;
    let doubt = |message: String| {
        let hint = format!("its rule is `{}`, {}", rule.schema().name, rule.place());
        given.place.problem(message).hint(hint).warning()
    };
    let value = match &given.setting {
        Setting::Literal(value) => value,
        Setting::Template(_) => return rule.doubt().map(|problem| doubt(problem.message)),
        _ => return None,
    };
    match rule.check(value) {
        Ok(()) => None,
        Err(Breach::Wrong(message)) => {
            let problem = given.place.problem(message).hint(format!("its rule is `{}`", rule.schema().name));
            Some(meant(rule, value).into_iter().fold(problem, Problem::mend))
        }
        Err(Breach::Doubt(message)) => Some(doubt(message)),
    }
}

/// What follows the rule with quotes, or without them, and is the same otherwise.
fn meant(rule: &Rule, value: &ParamValue) -> Option<Mend> {
    let follows = |other: &ParamValue| rule.check(other).is_ok();
    match value {
        ParamValue::String(text) => {
            let plain = match resolve(text) {
                Plain::Integer(value) => ParamValue::Integer(value),
                Plain::Double(value) => ParamValue::Double(value),
                Plain::Boolean(value) => ParamValue::Boolean(value),
                Plain::Null | Plain::HugeInteger | Plain::String => return None,
            };
            (plain.text() == *text && follows(&plain)).then(|| Mend::Unquote(text.clone()))
        }
        ParamValue::Array(_) => None,
        plain => follows(&ParamValue::String(plain.text())).then(|| Mend::Quote(plain.text())),
    }
}

fn parameters(overrides: Vec<(usize, &Override)>) -> Vec<&Values> {
    overrides.into_iter().map(|(_, one)| &one.parameters).collect()
}

/// Whether the package has parameters of the names that the deployment says, and a profile that uses them: in the version
/// of the override that says them, else in any that devices get. A version that has none of what the deployment says for
/// all is told, because it doesn't count there.
fn names(deployment: &Deployment, problems: &mut Problems) {
    let all: Vec<_> = deployment.versions().collect();
    let of_override =
        |index: usize| deployment.others.iter().find(|(other, _)| *other == index).map(|(_, other)| other);
    names_in(&all, &deployment.parameters, problems);
    for (index, one) in deployment.overrides.iter().enumerate() {
        match of_override(index) {
            Some(other) => names_in(&[other], &one.parameters, problems),
            None => names_in(&all, &one.parameters, problems),
        }
    }
    let others = deployment.others.iter().map(|(_, other)| &other.application.description);
    for (name, Given { place, .. }) in &deployment.parameters {
        let lacking = others.clone().filter(|one| !one.parameters.contains_key(name)).map(|one| &one.version);
        let lacking: Vec<_> = lacking.collect::<BTreeSet<_>>().into_iter().collect();
        if all.first().is_some_and(|one| one.application.description.parameters.contains_key(name))
            && !lacking.is_empty()
        {
            let text = format!(
                "counts for nothing on devices with version {}: it has no such parameter",
                listed(lacking.into_iter())
            );
            problems.push(place.problem(text).warning());
        }
    }
}

/// The same for some of the deployment's versions.
fn names_in(versions: &[&Deployment], values: &Values, problems: &mut Problems) {
    for (name, Given { place, .. }) in values {
        let having: Vec<_> =
            versions.iter().filter(|one| one.application.description.parameters.contains_key(name)).collect();
        let uses = |one: &&&Deployment| one.profiles().any(|profile| profile.parameters.contains_key(name));
        if having.is_empty() {
            let described = versions.iter().map(|one| &one.application.description);
            let known: BTreeSet<_> = described.clone().flat_map(|one| one.parameters.keys()).collect();
            let id = described.map(|one| one.id.as_str()).next().unwrap_or_default();
            let problem = place.problem(format!("{id} has no parameter `{name}`"));
            let near = nearest(name, known.iter().map(|one| one.as_str()));
            let near = near.filter(|(near, is_only)| *is_only && !values.contains_key(*near));
            let mend = near.map(|(near, _)| Mend::Key { was: name.clone(), is: near.to_owned() });
            let problem = problem.hint(format!("it has {}", listed(known.into_iter())));
            problems.push(mend.into_iter().fold(problem, Problem::mend));
        } else if !having.iter().any(uses) {
            let profiles = having.iter().flat_map(|one| one.profiles()).map(|profile| &profile.description.id);
            let profiles = listed(profiles.collect::<BTreeSet<_>>().into_iter());
            problems
                .push(place.problem(format!("the profile {profiles} doesn't use this parameter")).hint("leave it out"));
        }
    }
}

/// The profile that is named, the only one that can be used, or whichever fits.
fn choose(
    application: &Application,
    wanted: Option<&(String, Place)>,
    place: &Place,
    problems: &mut Problems,
) -> Option<Choice> {
    let (place, chosen) = match wanted {
        Some((id, place)) if id == "auto" && application.profile(id).is_none() => {
            (place, some_profile(application).map(|()| Choice::Auto(place.clone())))
        }
        Some((id, place)) => (place, named_profile(application, id).map(Choice::Named)),
        None => (place, only_profile(application).map(Choice::Named)),
    };
    match chosen {
        Ok(choice) => Some(choice),
        Err((message, hint)) => {
            problems.push(place.problem(message).hint(hint));
            None
        }
    }
}

/// What is chosen; or why nothing can be, and what to do.
type Chosen<T> = Result<T, (String, String)>;

fn some_profile(application: &Application) -> Chosen<()> {
    application.deployable().next().map(|_| ()).ok_or_else(|| {
        let message =
            format!("{} has only `custom` profiles, which no device of this fleet runs", application.description.id);
        (message, CUSTOM.to_owned())
    })
}

fn named_profile(application: &Application, id: &str) -> Chosen<usize> {
    let found = application.profiles.iter().position(|profile| profile.description.id == id);
    let index = found.ok_or_else(|| {
        let ids = listed(application.profiles.iter().map(|profile| &profile.description.id));
        (format!("{} has no profile `{id}`", application.description.id), format!("it has {ids}"))
    })?;
    if application.profiles[index].is_deployable() {
        return Ok(index);
    }
    let others = listed(application.deployable().map(|profile| &profile.description.id));
    let message = format!("the profile `{id}` is of type `custom`, which no device of this fleet runs");
    Err((message, if others == NONE { CUSTOM.to_owned() } else { format!("name one of {others}, or `auto`") }))
}

const CUSTOM: &str = "what runs it is between its vendors: have them add a compose or helm profile";

/// The only profile that can be deployed, or else the only one for compose.
fn only_profile(application: &Application) -> Chosen<usize> {
    some_profile(application)?;
    let all = || application.profiles.iter().enumerate().filter(|(_, profile)| profile.is_deployable());
    let compose = || all().filter(|(_, profile)| profile.description.kind == ProfileType::Compose);
    match (all().next(), all().count(), compose().next(), compose().count()) {
        (Some((index, _)), 1, ..) | (_, _, Some((index, _)), 1) => Ok(index),
        _ => Err((
            format!("{} has more than one profile", application.description.id),
            format!("add `profile:` with `auto` or one of {}", listed(all().map(|(_, one)| &one.description.id))),
        )),
    }
}
