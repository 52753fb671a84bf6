//! What charts say of the values that a fleet sets in them.

use std::collections::BTreeMap;

use repo_artifacts::Chart;
use repo_model::envelope::{Lock, ValueFrom};
use repo_model::margo::helm_values::HelmValuesError;
use repo_model::margo::{Component, HelmValues, Parameter, ProfileType};
use repo_model::problem::{Problem, Problems};
use repo_model::value::ParamValue;

use super::{Artifact, Locks};
use crate::fleet::{Application, Deployment, Fleet, Profile, sorted};

/// Whether anything in the fleet is a chart.
pub fn has_charts(fleet: &Fleet) -> bool {
    versions(fleet).any(|deployment| deployment.profiles().any(is_helm))
}

fn versions(fleet: &Fleet) -> impl Iterator<Item = &Deployment> {
    fleet.deployments.values().flat_map(|one| one.versions())
}

fn is_helm(profile: &Profile) -> bool {
    profile.description.kind == ProfileType::Helm
}

/// Warns of pointers that a chart's own values don't know: helm takes them, and mostly nothing comes of it. `charts`
/// tells what is known of a locked chart; of the others nothing is said.
pub fn undeclared(fleet: &Fleet, locks: &Locks, charts: &dyn Fn(&Lock) -> Option<Chart>) -> Problems {
    let mut problems = Problems::default();
    for deployment in versions(fleet) {
        for profile in deployment.profiles().filter(|profile| is_helm(profile)) {
            for component in &profile.description.components {
                let lock = locks.get(&Artifact::of(ProfileType::Helm, component));
                if let Some(chart) = lock.and_then(charts) {
                    problems.extend(of_component(&deployment.application, profile, component, &chart));
                }
            }
        }
    }
    sorted(problems)
}

fn of_component(application: &Application, profile: &Profile, component: &Component, chart: &Chart) -> Vec<Problem> {
    let targets = profile.parameters.iter().flat_map(|(name, targets)| targets.iter().map(move |one| (name, one)));
    let ours = targets.filter(|(_, target)| target.components.contains(&component.name));
    let unknown = ours.filter(|(_, target)| target.path().is_some_and(|path| !chart.declares(&path)));
    let problem = |(name, target): (&String, _)| {
        let place = application.pointer_place(name, target).unwrap_or(&profile.place);
        let text = format!("the chart {} {} has no value `{}`", chart.name, chart.version, target.pointer);
        place.problem(text).hint("compare it with the chart's values.yaml: helm takes any, and ignores most").warning()
    };
    unknown.map(problem).collect()
}

/// The first two values of one component that contradict each other, by the parameters that they belong to.
pub(super) fn contradiction(
    profile: &Profile,
    literal: &BTreeMap<String, Parameter>,
    from_device: &BTreeMap<String, ValueFrom>,
) -> Option<HelmValuesError> {
    let unknown = ParamValue::String(String::new());
    profile.description.components.iter().filter(|_| is_helm(profile)).find_map(|component| {
        let literal = literal.values().flat_map(|one| one.targets.iter().map(|target| (target, &one.value)));
        let literal = literal.map(|(target, value)| (&target.components, target.pointer.as_str(), value));
        let from_device = from_device.values().flat_map(|one| &one.targets);
        let from_device = from_device.map(|target| (&target.components, target.pointer.as_str(), &unknown));
        let ours = literal.chain(from_device).filter(|(components, ..)| components.contains(&component.name));
        HelmValues::new(ours.map(|(_, pointer, value)| (pointer, value))).err()
    })
}
