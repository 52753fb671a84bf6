//! `deployments/**/*.yaml`: an application, the devices that get it, and the values it gets there.

use std::collections::BTreeMap;
use std::sync::Arc;

use repo_model::envelope::{DriftPolicy, OnFailure};
use repo_model::margo::deployment::namespace;
use repo_model::problem::Problem;
use repo_model::yaml::{Field, Reader};
use repo_model::{ApplicationId, DeploymentName};

use super::application::{Application, Profile};
use super::device::Device;
use super::file::refuse_unbuilt;
use super::place::{Place, placed};
use super::policy::{self, Approval};
use super::selector::{Selector, selects};
use super::values::{Values, values};
use super::windows::{self, Windows};
use crate::duration;

/// A deployment whose names all lead somewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct Deployment {
    /// The operator's id, from which each device's Margo id is derived.
    pub id: DeploymentName,
    /// Where its `id` is written.
    pub place: Place,
    /// Its package, shared by all deployments of it.
    pub application: Arc<Application>,
    /// Which profile of it is used.
    pub profile: Choice,
    /// The devices that get it, unless `exclude` names them.
    pub targets: Vec<Selector>,
    /// The devices that do not get it, although `targets` names them.
    pub exclude: Vec<Selector>,
    /// Values for every device, over those of groups and the fleet.
    pub parameters: Values,
    /// Values for some of them, in order: the later wins.
    pub overrides: Vec<Override>,
    /// Whether devices are told to leave what they have of it as it is.
    pub suspended: bool,
    /// The deployments that are installed before it on each device.
    pub depends_on: Vec<(DeploymentName, Place)>,
    /// What devices do where it can't run as it is wanted.
    pub on_failure: OnFailure,
    /// For how many seconds it runs well on a device before that takes it for good, if the operator says so.
    pub stabilise: Option<u64>,
    /// Whether devices put back what doesn't run as it was applied.
    pub drift: DriftPolicy,
    /// When devices may change it, in the place of what the fleet says for them.
    pub windows: Option<Windows>,
    /// Whether a person has to agree to its changes, in the place of what the fleet says for devices.
    pub approval: Option<Approval>,
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
    /// Whether one of `targets` selects the device and none of `exclude` does.
    pub fn is_for(&self, device: &Device) -> bool {
        self.target(device).is_some() && self.exclusion(device).is_none()
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

/// Values for some devices, over the deployment's own; a later override counts over an earlier one.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    pub when: Selector,
    pub parameters: Values,
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
    pub(super) on_failure: OnFailure,
    pub(super) stabilise: Option<u64>,
    pub(super) drift: DriftPolicy,
    pub(super) windows: Option<Windows>,
    pub(super) approval: Option<Approval>,
    pub(super) namespace: Option<String>,
}

const UNBUILT: &[&str] = &["rollout", "policy", "replaces"];

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
        let on_failure = reader.optional("onFailure", on_failure).unwrap_or_default();
        let stabilise = reader.optional("stabilise", duration::read);
        let drift = reader.optional("drift", drift).unwrap_or_default();
        let windows = reader.optional("windows", windows::of_deployment);
        let approval = reader.optional("approval", policy::approval);
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
            on_failure,
            stabilise,
            drift,
            windows,
            approval,
            namespace,
        })
    }
}

fn on_failure(field: Field<'_>) -> Option<OnFailure> {
    let text = field.clone().string()?;
    OnFailure::parse(&text).or_else(|| none_of(&field, &text, OnFailure::TABLE.iter().map(|(word, _)| word.as_str())))
}

fn drift(field: Field<'_>) -> Option<DriftPolicy> {
    let text = field.clone().string()?;
    DriftPolicy::parse(&text)
        .or_else(|| none_of(&field, &text, DriftPolicy::TABLE.iter().map(|(word, _)| word.as_str())))
}

fn none_of<T>(field: &Field<'_>, text: &str, words: impl Iterator<Item = &'static str>) -> Option<T> {
    field.fail(format!("`{text}` is none of `{}`", words.collect::<Vec<_>>().join("`, `")))
}

fn application(reader: &mut Reader<'_>) -> Option<(ApplicationId, String)> {
    let id = reader.required("id", Field::parse);
    let version = reader.required("version", Field::string);
    Some((id?, version?))
}

fn read_override(field: Field<'_>) -> Option<Override> {
    field.mapping(|reader| {
        let when = reader.required("when", Selector::read);
        let parameters = reader.required("parameters", values);
        Some(Override { when: when?, parameters: parameters? })
    })
}
