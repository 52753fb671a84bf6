//! Which profile of an application a device gets.

use std::collections::BTreeSet;

use repo_model::DeploymentId;
use repo_model::problem::Problem;

use super::{Capabilities, Facts};
use crate::fleet::{Choice, Deployment, Profile};

/// Whether it depends on the device's capabilities what it gets.
pub(super) fn asks(deployment: &Deployment) -> bool {
    let has_requirements = |profile: &Profile| !profile.description.requirements.is_empty();
    matches!(deployment.profile, Choice::Auto(_)) || deployment.profiles().any(has_requirements)
}

/// The profile for a device: the one that the operator names, unless the device says that it doesn't fit; with `auto`
/// the one that the device has, for as long as it fits, else the first that does.
///
/// # Errors
/// An error where a named profile doesn't fit; a warning where none does, or where that can't be told yet.
pub fn choose<'a>(deployment: &'a Deployment, id: DeploymentId, facts: Facts<'_>) -> Result<&'a Profile, Problem> {
    let place = match &deployment.profile {
        Choice::Auto(place) => place,
        Choice::Named(index) => {
            let profile = deployment.application.profiles.get(*index);
            let profile = profile.ok_or_else(|| deployment.place.problem("has no profile"))?;
            return match fit(profile, facts.capabilities) {
                Fit::No(lacks) => {
                    let problem = format!("the profile `{}` doesn't fit: {}", profile.description.id, lacks.join("; "));
                    let hint = "choose other targets, or write `profile: auto` if another profile may fit";
                    Err(deployment.place.problem(problem).hint(hint))
                }
                Fit::Yes | Fit::Unknown => Ok(profile),
            };
        }
    };
    let fits = |profile: &&Profile| !matches!(fit(profile, facts.capabilities), Fit::No(_));
    // Which types of profiles it runs is for the device to say.
    let kinds: BTreeSet<_> = deployment.profiles().map(|profile| profile.description.kind).collect();
    let untold = matches!(facts.capabilities, Capabilities::Unreported) && kinds.len() > 1;
    if let Some(profile) = present(deployment, id, facts).filter(fits) {
        return Ok(profile);
    }
    let mut against = Vec::new();
    for profile in deployment.profiles() {
        match fit(profile, facts.capabilities) {
            Fit::Yes if !untold => return Ok(profile),
            Fit::Yes | Fit::Unknown => {
                let problem = place.problem("waits until the device reports its capabilities, because a profile asks");
                return Err(problem.warning());
            }
            Fit::No(lacks) => against.push(format!("`{}`: {}", profile.description.id, lacks.join("; "))),
        }
    }
    Err(place.problem(format!("no profile fits ({})", against.join(". "))).warning())
}

/// Whether a device can run a profile.
enum Fit {
    Yes,
    No(Vec<String>),
    Unknown,
}

fn fit(profile: &Profile, capabilities: Capabilities<'_>) -> Fit {
    match capabilities {
        Capabilities::Unasked => Fit::Yes,
        Capabilities::Unreported if profile.description.requirements.is_empty() => Fit::Yes,
        Capabilities::Unreported => Fit::Unknown,
        Capabilities::Reported(device) => match profile.description.unmet(device) {
            lacks if lacks.is_empty() => Fit::Yes,
            lacks => Fit::No(lacks),
        },
    }
}

/// The profile that the device has now: by its id where `auto` chose it, else by its components.
fn present<'a>(deployment: &'a Deployment, id: DeploymentId, facts: Facts<'_>) -> Option<&'a Profile> {
    let parent = facts.parent?;
    let chosen = parent.envelope.deployments.get(&id)?.profile.as_deref();
    let components = &parent.deployments.get(&id)?.deployment.components;
    deployment.profiles().find(|profile| match chosen {
        Some(chosen) => profile.description.id == chosen,
        None => profile.description.components == *components,
    })
}
