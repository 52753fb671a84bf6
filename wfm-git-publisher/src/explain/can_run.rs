//! Whether a device can run a package, and if not, why not: rule by rule, by the render's own functions.

use std::collections::BTreeMap;

use repo_model::desired::Desired;
use repo_model::margo::State;
use repo_model::{DeploymentId, DeploymentName, DeviceId};
use serde::{Deserialize, Serialize};

use crate::fleet::{Application, Device, Fleet};
use crate::render::{Capabilities, Facts, Fit, fit};

/// What is known of a device, for whoever wants to put something on it.
#[derive(Debug)]
pub struct KnownOfDevice<'a> {
    pub device: &'a Device,
    pub facts: Facts<'a>,
    /// What it verifiably reports of its deployments.
    pub states: BTreeMap<DeploymentId, State>,
    /// Why nothing is known from its repository; absent if it can be used and believed.
    pub trouble: Option<String>,
}

/// Whether a device can run a version of an application.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanRun {
    pub device: DeviceId,
    pub application: String,
    pub version: String,
    pub answer: Answer,
    /// The profile that it has of this version, else the first one that fits.
    pub profile: Option<String>,
    /// Why not, or why that isn't known, for the device as a whole.
    pub reasons: Vec<String>,
    /// Each profile that the device can't run, in the vendor's order.
    pub against: Vec<ProfileFit>,
    /// What it has of the application, in any version.
    pub deployed: Vec<Deployed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// It has this version, and says that it is installed.
    Runs,
    Yes,
    No,
    /// It has to say first what it has.
    Unknown,
}

/// A profile that doesn't fit a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileFit {
    pub profile: String,
    /// Everything that the device lacks for it.
    pub reasons: Vec<String>,
}

/// A deployment of the application that is published for a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deployed {
    /// The operator's id.
    pub deployment: DeploymentName,
    /// Which of the fleet's versions it is, by its components; absent if it is none of them.
    pub version: Option<String>,
    /// Margo's state as the device reports it; absent if it said nothing of it yet.
    pub state: Option<State>,
    /// The profile that it has; absent like the version.
    pub profile: Option<String>,
}

impl Answer {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        }
    }
}

/// Judges one package; `all` are the fleet's packages, from the oldest version to the newest.
pub fn can_run(fleet: &Fleet, all: &[Application], application: &Application, known: &KnownOfDevice<'_>) -> CanRun {
    let deployed = known.facts.parent.map_or_else(Vec::new, |parent| deployed(fleet, all, application, parent, known));
    let version = &application.description.version;
    let has = |one: &&Deployed| one.version.as_ref() == Some(version);
    let (fitting, against) = profiles(application, known);
    let reasons: Vec<_> = trouble(known).into_iter().collect();
    let present = deployed.iter().find(has).and_then(|one| one.profile.clone());
    let profile = present.filter(|id| fitting.contains(&id.as_str())).or_else(|| Some((*fitting.first()?).to_owned()));
    let runs = deployed.iter().filter(has).any(|one| one.state == Some(State::Installed));
    let answer = match known.facts.capabilities {
        _ if known.device.retired.is_some() => Answer::No,
        Capabilities::Reported(_) if profile.is_some() && runs => Answer::Runs,
        Capabilities::Reported(_) if profile.is_some() => Answer::Yes,
        Capabilities::Reported(_) => Answer::No,
        _ if application.deployable().next().is_none() => Answer::No,
        _ => Answer::Unknown,
    };
    CanRun {
        device: known.device.id.clone(),
        application: application.description.id.to_string(),
        version: version.clone(),
        answer,
        profile: profile.filter(|_| matches!(answer, Answer::Runs | Answer::Yes)),
        reasons,
        against,
        deployed,
    }
}

/// What keeps a device from getting anything, or from being judged.
fn trouble(known: &KnownOfDevice<'_>) -> Option<String> {
    if known.device.retired.is_some() {
        return Some("it is retired".to_owned());
    }
    if let Some(trouble) = &known.trouble {
        return Some(format!("its repository can't be used: {trouble}"));
    }
    match known.facts.capabilities {
        Capabilities::Reported(_) => None,
        Capabilities::Unreadable(why) => Some(format!("it reports capabilities that can't be read: {why}")),
        Capabilities::Unreported | Capabilities::Unasked if !known.device.is_enrolled() => {
            Some("it isn't enrolled, and so reported no capabilities".to_owned())
        }
        Capabilities::Unreported | Capabilities::Unasked => Some("it hasn't reported its capabilities".to_owned()),
    }
}

/// The profiles that fit, by their ids; and those that don't. A device that said nothing is never taken for one that fits,
/// also where a profile asks for nothing: which types of profiles it runs, only it can say.
fn profiles<'a>(application: &'a Application, known: &KnownOfDevice<'_>) -> (Vec<&'a str>, Vec<ProfileFit>) {
    let (mut fitting, mut against) = (Vec::new(), Vec::new());
    for profile in &application.profiles {
        let id = profile.description.id.as_str();
        let mut no = |reasons| against.push(ProfileFit { profile: id.to_owned(), reasons });
        match (known.facts.capabilities, fit(profile, known.facts.capabilities)) {
            _ if !profile.is_deployable() => {
                no(vec!["it is of type `custom`, which no device of this fleet runs".to_owned()]);
            }
            (Capabilities::Reported(_), Fit::Yes) => fitting.push(id),
            (_, Fit::No(lacks)) => no(lacks),
            (_, Fit::Yes | Fit::Unknown) => {}
        }
    }
    (fitting, against)
}

/// What is published for the device of this application.
fn deployed(
    fleet: &Fleet,
    all: &[Application],
    application: &Application,
    parent: &Desired,
    known: &KnownOfDevice<'_>,
) -> Vec<Deployed> {
    let ours = parent.deployments.iter().filter(|(_, one)| one.deployment.application_id == application.description.id);
    let ours = ours.filter_map(|(id, document)| Some((id, document, parent.envelope.deployments.get(id)?)));
    let found = ours.map(|(id, document, envelope)| {
        let versions = all.iter().filter(|one| one.description.id == application.description.id).rev();
        // Where two versions have the same components, the fleet's own deployment tells which is meant.
        let meant = fleet.deployments.get(&envelope.id).map(|deployment| &*deployment.on(known.device).application);
        let meant = meant.filter(|one| one.description.id == application.description.id);
        let mut matching = meant.into_iter().chain(versions).filter_map(|one| {
            let chosen = envelope.profile.as_ref();
            let fits = |profile: &&crate::fleet::Profile| {
                let described = &profile.description;
                described.components == document.deployment.components
                    && chosen.is_none_or(|chosen| described.id == *chosen)
            };
            Some((one, one.profiles.iter().find(fits)?))
        });
        let matched = matching.next();
        Deployed {
            deployment: envelope.id.clone(),
            version: matched.map(|(one, _)| one.description.version.clone()),
            state: known.states.get(id).copied(),
            profile: matched.map(|(_, profile)| profile.description.id.clone()),
        }
    });
    found.collect()
}
