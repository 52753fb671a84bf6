//! One difference at a time, old → new, in words that an operator knows from the fleet's files.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::desired::Desired;
use repo_model::envelope::{ComponentLock, DeploymentPolicy, DevicePolicy, EnvelopeDeployment, OnFailure, ValueFrom};
use repo_model::margo::{ApplicationDeployment, Component, Parameter, ProfileType, Source};
use repo_model::{ComponentName, FileTree, KeyText, text};
use serde::Serialize;
use serde_json::Value;

use super::trust_files;
use crate::fleet::{shown_source, shown_value};
use crate::render::{Rendered, RenderedDeployment};

/// Something that has another value than before.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    /// What it is: `greeting`, `component hello`, `policy poll`.
    pub what: String,
    /// What it was; absent if it wasn't there.
    pub old: Option<String>,
    /// What it will be; absent if it goes.
    pub new: Option<String>,
}

impl Difference {
    pub(super) fn between(what: impl Into<String>, old: Option<String>, new: Option<String>) -> Option<Self> {
        (old != new).then(|| Self { what: what.into(), old, new })
    }
}

/// What is different in a deployment; everything if it is new.
pub(super) fn of_deployment(
    wanted: &RenderedDeployment,
    present: Option<(&ApplicationDeployment, &EnvelopeDeployment)>,
) -> Vec<Difference> {
    let empty = EnvelopeDeployment {
        policy: DeploymentPolicy::default(),
        profile: None,
        required_resources: None,
        locks: BTreeMap::new(),
        values_from: BTreeMap::new(),
        id: wanted.envelope.id.clone(),
    };
    let (old, old_envelope) = present.map_or((None, &empty), |(document, envelope)| (Some(document), envelope));
    let none = BTreeMap::new();
    let old_parameters = old.map_or(&none, |old| &old.parameters);
    let mut all = of_application(old, &wanted.document);
    all.extend(of_components(old.map_or(&[], |old| &old.components), &wanted.document.components));
    let old_constraints = old.and_then(|old| old.device_constraints.as_ref());
    all.extend(of_requirements("deviceConstraints", old_constraints, wanted.document.device_constraints.as_ref()));
    all.extend(of_parameters(
        &shown_parameters(old_parameters, &old_envelope.values_from),
        &shown_parameters(&wanted.document.parameters, &wanted.envelope.values_from),
    ));
    all.extend(of_policy(old_envelope, &wanted.envelope));
    if wanted.unresolved.is_empty() {
        all.extend(of_locks(&old_envelope.locks, &wanted.envelope.locks));
    }
    if all.is_empty() && old.is_some_and(|old| !old.same_meaning(&wanted.document)) {
        all.extend(Difference::between("document", Some("as published".to_owned()), Some("rendered anew".to_owned())));
    }
    all
}

/// A difference as one line.
pub fn difference_text(difference: &Difference) -> String {
    let Difference { what, old, new } = difference;
    let [what, old, new] = [Some(what), old.as_ref(), new.as_ref()].map(|part| part.map(|part| text::line(part)));
    let what = what.unwrap_or_default();
    match (old, new) {
        (Some(old), Some(new)) => format!("{what}: {old} → {new}"),
        (None, Some(new)) => format!("{what}: {new}"),
        (Some(old), None) => format!("{what}: {old} → (none)"),
        (None, None) => what,
    }
}

fn of_application(old: Option<&ApplicationDeployment>, new: &ApplicationDeployment) -> Vec<Difference> {
    let id = |document: &ApplicationDeployment| document.application_id.to_string();
    let kind = |document: &ApplicationDeployment| document.profile_type.to_string();
    let moved = |old: &ApplicationDeployment| {
        Difference::between("namespace", Some(old.namespace.clone()), Some(new.namespace.clone()))
    };
    let all = [
        Difference::between("application", old.map(id), Some(id(new))),
        old.and_then(|old| Difference::between("type", Some(kind(old)), Some(kind(new)))),
        old.filter(|_| new.profile_type == ProfileType::Helm).and_then(moved),
    ];
    all.into_iter().flatten().collect()
}

pub(super) fn of_components(old: &[Component], new: &[Component]) -> Vec<Difference> {
    let shown = |all: &[Component]| -> BTreeMap<String, String> {
        all.iter().map(|one| (format!("component {}", one.name), shown_component(one))).collect()
    };
    let mut all = of_maps(&shown(old), &shown(new));
    let names = |all: &[Component]| all.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", ");
    if all.is_empty() && names(old) != names(new) {
        all.extend(Difference::between("order of components", Some(names(old)), Some(names(new))));
    }
    all
}

/// Where a component is from, and how it is applied.
pub fn shown_component(component: &Component) -> String {
    let mut text = match &component.source {
        Source::Oci { repository, revision } | Source::HelmRepo { repository, revision } => {
            format!("{repository}:{revision}")
        }
        Source::Https { package_location, .. } => package_location.clone(),
    };
    if !component.wait {
        text.push_str(", not waited for");
    }
    if let Some(timeout) = component.timeout {
        text.push_str(&format!(", timeout {} s", timeout.as_secs()));
    }
    for name in component.extensions.keys() {
        text.push_str(&format!(", {name}"));
    }
    text
}

fn of_policy(old: &EnvelopeDeployment, new: &EnvelopeDeployment) -> Vec<Difference> {
    let after = |policy: &DeploymentPolicy| {
        let names = policy.depends_on.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
        (!names.is_empty()).then_some(names)
    };
    let all = [
        Difference::between("profile", old.profile.clone(), new.profile.clone()),
        of_requirements("requiredResources", old.required_resources.as_ref(), new.required_resources.as_ref()),
        Difference::between("after", after(&old.policy), after(&new.policy)),
        of_suspension(&old.policy, &new.policy),
        Difference::between("on failure", of_failure(&old.policy), of_failure(&new.policy)),
        Difference::between("drift", of_drift(&old.policy), of_drift(&new.policy)),
        Difference::between("drift ignored", of_ignored(&old.policy), of_ignored(&new.policy)),
        Difference::between("windows", shown(&old.policy.windows), shown(&new.policy.windows)),
        Difference::between("approval", shown(&old.policy.approval), shown(&new.policy.approval)),
        Difference::between("stabilise", seconds(old.policy.stabilise_seconds), seconds(new.policy.stabilise_seconds)),
        Difference::between("restart", of_restart(&old.policy), of_restart(&new.policy)),
    ];
    all.into_iter().flatten().collect()
}

fn of_failure(policy: &DeploymentPolicy) -> Option<String> {
    Some(policy.on_failure).filter(|what| *what != OnFailure::Hold).map(|what| what.to_string())
}

fn of_drift(policy: &DeploymentPolicy) -> Option<String> {
    Some(policy.drift).filter(|drift| !drift.is_heal()).map(|drift| drift.to_string())
}

fn of_ignored(policy: &DeploymentPolicy) -> Option<String> {
    let all: Vec<_> = policy.drift_ignore.iter().map(ToString::to_string).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn of_restart(policy: &DeploymentPolicy) -> Option<String> {
    Some(policy.restart).filter(|number| *number > 0).map(|number| number.to_string())
}

fn shown(value: &Option<impl ToString>) -> Option<String> {
    value.as_ref().map(ToString::to_string)
}

fn seconds(value: Option<u64>) -> Option<String> {
    value.map(|value| format!("{value} s"))
}

pub(super) fn of_suspension(old: &DeploymentPolicy, new: &DeploymentPolicy) -> Option<Difference> {
    Difference::between("suspended", yes(old.suspended), yes(new.suspended))
}

/// What is asked of the device; the order of keys means nothing.
pub(super) fn of_requirements(what: &str, old: Option<&Value>, new: Option<&Value>) -> Option<Difference> {
    let shown = |value: Option<&Value>| value.map(ToString::to_string);
    if old == new { None } else { Difference::between(what, shown(old), shown(new)) }
}

fn yes(is: bool) -> Option<String> {
    is.then(|| "yes".to_owned())
}

/// Names of images aren't in `what`, because parameters may be in them and commits repeat it.
fn of_locks(
    old: &BTreeMap<ComponentName, ComponentLock>,
    new: &BTreeMap<ComponentName, ComponentLock>,
) -> Vec<Difference> {
    let shown = |locks: &BTreeMap<ComponentName, ComponentLock>| -> BTreeMap<String, String> {
        let archives = locks.iter().map(|(name, one)| (format!("archive of {name}"), one.lock.content.to_string()));
        let with_images = locks.iter().filter(|(_, one)| !one.images.is_empty());
        let images = with_images.map(|(name, one)| {
            let all: Vec<_> = one.images.iter().map(|(image, digest)| format!("{image} = {digest}")).collect();
            (format!("images of {name}"), all.join(", "))
        });
        archives.chain(images).collect()
    };
    of_maps(&shown(old), &shown(new))
}

/// Each parameter's value, and its targets as a second part that is only shown where nothing else differs.
fn shown_parameters(
    literal: &BTreeMap<String, Parameter>,
    from_device: &BTreeMap<String, ValueFrom>,
) -> BTreeMap<String, (String, String)> {
    let literal = literal.iter().map(|(name, one)| {
        let targets = one.targets.iter().map(|target| format!("{} in {:?}", target.pointer, target.components));
        (name.clone(), (shown_value(&one.value), targets.collect::<Vec<_>>().join(", ")))
    });
    let from_device = from_device.iter().map(|(name, one)| {
        let targets = one.targets.iter().map(|target| format!("{} in {:?}", target.pointer, target.components));
        (name.clone(), (shown_source(&one.source), targets.collect::<Vec<_>>().join(", ")))
    });
    literal.chain(from_device).collect()
}

fn of_parameters(
    old: &BTreeMap<String, (String, String)>,
    new: &BTreeMap<String, (String, String)>,
) -> Vec<Difference> {
    let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let difference = |name: &&String| match (old.get(*name), new.get(*name)) {
        (Some((old, before)), Some((new, after))) if old == new => {
            Difference::between(format!("{name} (targets)"), Some(before.clone()), Some(after.clone()))
        }
        (old, new) => {
            let value = |one: Option<&(String, String)>| one.map(|(value, _)| value.clone());
            Difference::between(*name, value(old), value(new))
        }
    };
    names.iter().filter_map(difference).collect()
}

pub(super) fn of_maps(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Vec<Difference> {
    let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    names
        .into_iter()
        .filter_map(|name| Difference::between(name, old.get(name).cloned(), new.get(name).cloned()))
        .collect()
}

/// What is different around the deployments.
pub(super) fn of_settings(rendered: &Rendered, trust: &FileTree, parent: &Desired) -> Vec<Difference> {
    let envelope = &parent.envelope;
    let (old, new) = (&envelope.policy, &rendered.policy);
    let mut all: Vec<_> = [
        Difference::between("policy poll", seconds(old.poll_seconds), seconds(new.poll_seconds)),
        Difference::between("policy report", seconds(old.report_seconds), seconds(new.report_seconds)),
        Difference::between("suspended", yes(old.suspended), yes(new.suspended)),
        Difference::between("policy windows", shown(&old.windows), shown(&new.windows)),
        Difference::between("policy approval", shown(&old.approval), shown(&new.approval)),
        Difference::between("ask", shown(&old.ask), shown(&new.ask)),
        Difference::between("retired", yes(envelope.device.retired), yes(rendered.retired.is_some())),
    ]
    .into_iter()
    .flatten()
    .collect();
    let shown = |policy: &DevicePolicy| -> BTreeMap<String, String> {
        policy.site.iter().map(|(key, value)| (format!("policy site {key}"), value.to_string())).collect()
    };
    all.extend(of_maps(&shown(old), &shown(new)));
    let keys = &envelope.device.status_keys;
    if !same_keys(&rendered.status_keys, keys) {
        all.extend(Difference::between("status keys", Some(listed(keys)), Some(listed(&rendered.status_keys))));
    }
    let published = envelope.files.iter().filter(|(path, _)| path.starts_with("trust/"));
    if !published.map(|(path, digest)| (path.as_str(), *digest)).eq(trust_files(trust)) {
        let version = |paths: &mut dyn Iterator<Item = &str>| paths.filter_map(roster_version).max();
        let old = version(&mut envelope.files.keys().map(String::as_str));
        let new = version(&mut trust.keys().map(String::as_str));
        let shown = |version: Option<u64>| version.map(|version| format!("version {version}"));
        let (what, old, new) = ("roster".to_owned(), shown(old), shown(new));
        all.push(Difference { what, old, new });
    }
    all
}

fn roster_version(path: &str) -> Option<u64> {
    path.strip_prefix("trust/")?.strip_suffix(".json")?.parse().ok()
}

fn listed(keys: &[KeyText]) -> String {
    keys.iter().map(KeyText::as_str).collect::<Vec<_>>().join(", ")
}

/// Whether both lists hold the same keys.
pub(super) fn same_keys(a: &[KeyText], b: &[KeyText]) -> bool {
    a.iter().collect::<BTreeSet<_>>() == b.iter().collect::<BTreeSet<_>>()
}
