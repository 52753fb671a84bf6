//! Which profile of an application a device gets.

use std::collections::BTreeSet;

use repo_model::DeploymentId;
use repo_model::problem::Problem;

use super::{Capabilities, Facts};
use crate::fleet::{Choice, Deployment, Place, Profile};

/// Whether it depends on the device's capabilities what it gets.
pub(crate) fn asks(deployment: &Deployment) -> bool {
    let has_requirements = |profile: &Profile| !profile.description.requirements.is_empty();
    matches!(deployment.profile, Choice::Auto(_)) || deployment.profiles().any(has_requirements)
}

/// The profile for a device: the one that the operator names, if it fits; with `auto` the one that the device has, for
/// as long as it fits, else the first that does. What a profile asks for is only known to fit once the device reported
/// its capabilities.
///
/// # Errors
/// An error where a named profile doesn't fit; a warning where none does, or where that isn't known yet.
pub fn choose<'a>(deployment: &'a Deployment, id: DeploymentId, facts: Facts<'_>) -> Result<&'a Profile, Problem> {
    let place = match &deployment.profile {
        Choice::Auto(place) => place,
        Choice::Named(index) => {
            let profile = deployment.application.profiles.get(*index);
            let profile = profile.ok_or_else(|| deployment.place.problem("has no profile"))?;
            return match fit(profile, facts.capabilities) {
                Fit::Yes => Ok(profile),
                Fit::No(lacks) => {
                    let problem = format!("the profile `{}` doesn't fit: {}", profile.description.id, lacks.join("; "));
                    let hint = "choose other targets, or write `profile: auto` if another profile may fit";
                    Err(deployment.place.problem(problem).hint(hint))
                }
                Fit::Unknown => Err(waits(&deployment.place, facts.capabilities)),
            };
        }
    };
    // Which types of profiles it runs is for the device to say.
    let kinds: BTreeSet<_> = deployment.profiles().map(|profile| profile.description.kind).collect();
    let is_known = matches!(facts.capabilities, Capabilities::Reported(_) | Capabilities::Unasked);
    let untold = !is_known && kinds.len() > 1;
    match present(deployment, id, facts).map(|profile| (profile, fit(profile, facts.capabilities))) {
        Some((profile, Fit::Yes)) => return Ok(profile),
        Some((_, Fit::Unknown)) => return Err(waits(place, facts.capabilities)),
        Some((_, Fit::No(_))) | None => {}
    }
    let mut against = Vec::new();
    for profile in deployment.profiles() {
        match fit(profile, facts.capabilities) {
            Fit::Yes if !untold => return Ok(profile),
            Fit::Yes | Fit::Unknown => return Err(waits(place, facts.capabilities)),
            Fit::No(lacks) => against.push(format!("`{}`: {}", profile.description.id, lacks.join("; "))),
        }
    }
    Err(place.problem(format!("no profile fits ({})", against.join(". "))).warning())
}

/// The problem of a deployment that waits for the report of the device.
fn waits(place: &Place, capabilities: Capabilities<'_>) -> Problem {
    let (problem, hint) = match capabilities {
        Capabilities::Unreadable(why) => (
            format!("waits until the device reports capabilities that can be read, because a profile asks: {why}"),
            "update the device's syncer, or correct `capabilities` in its device.yaml",
        ),
        _ => (
            "waits until the device reports its capabilities, because a profile asks".to_owned(),
            "the device does so in its first pass after an accepted publish",
        ),
    };
    place.problem(problem).hint(hint).warning()
}

/// Whether a device can run a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    Yes,
    /// Everything that it lacks, in words.
    No(Vec<String>),
    /// It has to say first what it has.
    Unknown,
}

/// Judges a profile by what is known of a device. What asks for nothing fits a device that reported nothing.
pub fn fit(profile: &Profile, capabilities: Capabilities<'_>) -> Fit {
    match capabilities {
        Capabilities::Unasked => Fit::Yes,
        Capabilities::Unreported | Capabilities::Unreadable(_) => {
            if profile.description.requirements.is_empty() {
                Fit::Yes
            } else {
                Fit::Unknown
            }
        }
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
