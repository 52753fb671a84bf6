//! `deployments/**/*.yaml`: an application, the devices that get it, and the values it gets there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use repo_model::envelope::{DeploymentPolicy, MAX_SERIAL};
use repo_model::margo::deployment::namespace;
use repo_model::problem::Problem;
use repo_model::yaml::{Field, Reader};
use repo_model::{ApplicationId, DeploymentName};

use super::Fleet;
use super::application::{Application, Profile};
use super::device::Device;
use super::file::refuse_unbuilt;
use super::place::{Place, placed};
use super::policy::{Policy, Seconds, approval, drift, drift_ignore, on_failure, seconds};
use super::rollout_policy::{self, RolloutRule};
use super::selector::{Selector, selects};
use super::values::{Values, values};
use super::windows;

/// A deployment whose names all lead somewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct Deployment {
    /// The operator's id, from which each device's Margo id is derived.
    pub id: DeploymentName,
    /// Where its `id` is written.
    pub place: Place,
    /// Its package, shared by all deployments of it; what `others` don't say for some devices.
    pub application: Arc<Application>,
    /// Which profile of it is used.
    pub profile: Choice,
    /// The devices that get it, unless `exclude` names them.
    pub targets: Vec<Selector>,
    /// The devices that do not get it, although `targets` names them.
    pub exclude: Vec<Selector>,
    /// Values for every device, over those of groups and the fleet.
    pub parameters: Values,
    /// What is otherwise for some of them, in order: the later wins.
    pub overrides: Vec<Override>,
    /// The same deployment in the versions that overrides name, each with the number of its override, from 0.
    pub others: Vec<(usize, Self)>,
    /// Whether devices are told to leave what they have of it as it is.
    pub suspended: bool,
    /// The deployments that are installed before it on each device.
    pub depends_on: Vec<(DeploymentName, Place)>,
    /// What it says itself of how devices behave, above all that they, their groups and the fleet say; no intervals.
    pub policy: Policy,
    /// The number of the newest restart that is asked for on all devices, and where it is written.
    pub restart: Option<(u64, Place)>,
    /// How its changes reach devices; as the fleet says where it says nothing. What it says is for all versions: `others` say
    /// nothing.
    pub rollout: Option<RolloutRule>,
    /// Where its charts go in Kubernetes; its id unless something else is said.
    pub namespace: String,
    /// What `fleet.yaml` says for several and doesn't fit here, by its place: wrong only where it counts.
    pub misfits: BTreeMap<Place, Problem>,
}

/// Which profile of the application is used.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// The one at this index among the application's.
    Named(usize),
    /// The first that fits the device, and from then on the same for as long as it does.
    Auto(Place),
}

impl Deployment {
    /// Whether one of `targets` selects the device and none of `exclude` does; nothing is for one that is retired.
    pub fn is_for(&self, device: &Device) -> bool {
        device.retired.is_none() && self.target(device).is_some() && self.exclusion(device).is_none()
    }

    /// The deployment in the version that the device gets.
    pub fn on(&self, device: &Device) -> &Self {
        let by = self.version_by(device).map(|(index, _)| index);
        self.others.iter().find(|(index, _)| Some(*index) == by).map_or(self, |(_, other)| other)
    }

    /// The override that gives the device another version, by its number from 0, and where that is written: the last one
    /// that means the device and names a version.
    pub fn version_by(&self, device: &Device) -> Option<(usize, &Place)> {
        let named = self.overrides.iter().enumerate().rev();
        let mut named = named.filter_map(|(index, one)| Some((index, one, &one.version.as_ref()?.1)));
        named.find(|(_, one, _)| one.when.selects(device)).map(|(index, _, place)| (index, place))
    }

    /// The deployment in each version that some device may get.
    pub fn versions(&self) -> impl Iterator<Item = &Self> {
        [self].into_iter().chain(self.others.iter().map(|(_, other)| other))
    }

    /// The number of the newest restart that is asked for on the device, and where it is written: the highest of its own and of those
    /// in overrides that mean the device.
    pub fn restart_on(&self, device: &Device) -> Option<&(u64, Place)> {
        let overrides = self.overrides.iter().filter(|one| one.restart.is_some() && one.when.selects(device));
        // Of the same number the deployment's own word counts.
        overrides.filter_map(|one| one.restart.as_ref()).chain(&self.restart).max_by_key(|(number, _)| *number)
    }

    /// The highest number of a restart that is written in its file; 0 where there is none.
    pub fn highest_restart(&self) -> u64 {
        let overrides = self.overrides.iter().filter_map(|one| one.restart.as_ref());
        overrides.chain(&self.restart).map(|(number, _)| *number).max().unwrap_or(0)
    }

    /// Where it is written that it waits for another one; its own place if that isn't written.
    pub(crate) fn waits_at(&self, other: &DeploymentName) -> &Place {
        self.depends_on.iter().find(|(id, _)| id == other).map_or(&self.place, |(_, place)| place)
    }

    /// The target that means the device.
    pub fn target(&self, device: &Device) -> Option<&Selector> {
        selects(&self.targets, device)
    }

    /// The exclusion that means the device.
    pub fn exclusion(&self, device: &Device) -> Option<&Selector> {
        selects(&self.exclude, device)
    }

    /// How the device behaves towards it.
    pub fn policy_on(&self, fleet: &Fleet, device: &Device) -> DeploymentPolicy {
        let said: Vec<_> = self.policies(fleet, device).map(|(_, policy)| policy).collect();
        let depends_on: BTreeSet<_> = self.depends_on.iter().map(|(id, _)| id.clone()).collect();
        DeploymentPolicy {
            suspended: self.suspended,
            depends_on: depends_on.into_iter().collect(),
            on_failure: said.iter().find_map(|one| Some(one.on_failure.as_ref()?.0)).unwrap_or_default(),
            stabilise_seconds: said.iter().find_map(|one| one.stabilise.as_ref()).map(|Seconds(seconds, _)| *seconds),
            drift: said.iter().find_map(|one| Some(one.drift.as_ref()?.0)).unwrap_or_default(),
            drift_ignore: said.iter().find_map(|one| Some(one.drift_ignore.clone()?.0)).unwrap_or_default(),
            windows: self.policy.windows.as_ref().map(|one| one.policy.clone()),
            approval: self.policy.approval.as_ref().map(|one| one.0),
            restart: self.restart_on(device).map_or(0, |(number, _)| *number),
        }
    }

    /// Every policy that is about it on a device, and whose it is, the strongest first: its own over the device's.
    pub fn policies<'a>(&'a self, fleet: &'a Fleet, device: &'a Device) -> impl Iterator<Item = (String, &'a Policy)> {
        [("the deployment".to_owned(), &self.policy)].into_iter().chain(device.policies(fleet))
    }

    /// The profiles that may be used on some device.
    pub fn profiles(&self) -> impl Iterator<Item = &Profile> {
        let all = self.application.profiles.as_slice();
        let may = match self.profile {
            Choice::Named(index) => all.get(index..=index),
            Choice::Auto(_) => Some(all),
        };
        may.unwrap_or_default().iter().filter(|profile| profile.is_deployable())
    }
}

/// What is otherwise on some devices; a later override counts over an earlier one.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    pub when: Selector,
    /// Values over the deployment's own.
    pub parameters: Values,
    /// Another version of its application, and where that is written.
    pub version: Option<(String, Place)>,
    /// The number of the newest restart that is asked for there, and where it is written.
    pub restart: Option<(u64, Place)>,
}

/// A file as it was read, before its names were looked up.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) id: DeploymentName,
    pub(super) place: Place,
    pub(super) application: (ApplicationId, String),
    pub(super) application_place: Place,
    pub(super) profile: Option<(String, Place)>,
    pub(super) targets: Vec<Selector>,
    pub(super) exclude: Vec<Selector>,
    pub(super) parameters: Values,
    pub(super) overrides: Vec<Override>,
    pub(super) suspended: bool,
    pub(super) depends_on: Vec<(DeploymentName, Place)>,
    pub(super) policy: Policy,
    pub(super) restart: Option<(u64, Place)>,
    pub(super) rollout: Option<RolloutRule>,
    pub(super) namespace: Option<String>,
}

const UNBUILT: &[&str] = &["policy", "replaces"];

impl Written {
    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let id = reader.required("id", placed);
        let application = reader.required("application", |field| {
            let place = Place::of(&field);
            Some((field.mapping(application)?, place))
        });
        let targets = reader.required("targets", |field| {
            let targets = Selector::read_list(field.clone())?;
            if targets.is_empty() {
                let problem = field.problem("names no device: this is deployed nowhere").warning();
                field.report(problem.hint("`{matchLabels: {}}` means every device"));
            }
            Some(targets)
        });
        let exclude = reader.optional("exclude", Selector::read_list).unwrap_or_default();
        let profile = reader.optional("profile", |field| {
            let place = Place::of(&field);
            Some((field.string()?, place))
        });
        let parameters = reader.optional("parameters", values).unwrap_or_default();
        let overrides = reader.optional("overrides", |field| field.list(read_override)).unwrap_or_default();
        let suspended = reader.optional("suspended", Field::bool).unwrap_or_default();
        let depends_on = reader.optional("dependsOn", |field| field.list(placed)).unwrap_or_default();
        let policy = Policy {
            on_failure: reader.optional("onFailure", on_failure),
            stabilise: reader.optional("stabilise", seconds),
            drift: reader.optional("drift", drift),
            drift_ignore: reader.optional("driftIgnore", drift_ignore),
            windows: reader.optional("windows", windows::of_deployment),
            approval: reader.optional("approval", approval),
            ..Policy::default()
        };
        let restart = reader.optional("restart", restart);
        let rollout = reader.optional("rollout", rollout_policy::read);
        let namespace = reader.optional("namespace", namespace);
        refuse_unbuilt(reader, UNBUILT);
        let ((id, place), (application, application_place)) = id.zip(application)?;
        Some(Self {
            id,
            place,
            application,
            application_place,
            profile,
            targets: targets?,
            exclude,
            parameters,
            overrides,
            suspended,
            depends_on,
            policy,
            restart,
            rollout,
            namespace,
        })
    }
}

fn restart(field: Field<'_>) -> Option<(u64, Place)> {
    let place = Place::of(&field);
    match field.clone().integer()? {
        number @ 1..=MAX_SERIAL => Some((number, place)),
        _ => field.fail_hint("must be a whole number from 1", "raise it by one for each restart"),
    }
}

fn application(reader: &mut Reader<'_>) -> Option<(ApplicationId, String)> {
    let id = reader.required("id", Field::parse);
    let version = reader.required("version", Field::string);
    Some((id?, version?))
}

fn read_override(field: Field<'_>) -> Option<Override> {
    field.mapping(|reader| {
        let when = reader.required("when", Selector::read);
        if !["parameters", "application", "restart"].into_iter().any(|key| reader.has(key)) {
            let hint = "give it `parameters`, `application: {version: …}` or `restart`";
            return reader.field().fail_hint("says nothing that is otherwise on these devices", hint);
        }
        let parameters = reader.optional("parameters", values);
        let version = reader.optional("application", |field| {
            let place = Place::of(&field);
            Some((field.mapping(|reader| reader.required("version", Field::string))?, place))
        });
        let restart = reader.optional("restart", restart);
        let is_read = parameters.is_some() || version.is_some() || restart.is_some();
        is_read.then_some(Override { when: when?, parameters: parameters.unwrap_or_default(), version, restart })
    })
}
