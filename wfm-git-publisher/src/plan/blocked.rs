//! What can't be published, and why: the words for it, and what a plan shows of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use repo_model::problem::{Problem, Problems};
use repo_model::{DeploymentName, DeviceId, ErrorCode};
use serde::{Deserialize, Serialize};

use super::{DevicePlan, Guarded};
use crate::fleet::{Broken, Subject};
use crate::render::Artifact;
use crate::words::words;

/// The longest message that is kept, in characters.
const MAX_MESSAGE: usize = 1000;

/// Something that can't be published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Blocked {
    /// The device; absent where it is about no single one: nothing can be published for any, or something is wrong in the fleet's files.
    pub device: Option<DeviceId>,
    /// The deployment; absent where it is everything that is new for the device, or about no single deployment.
    pub deployment: Option<DeploymentName>,
    pub code: Code,
    /// When a pass met it first; absent if none did yet.
    pub since: Option<Timestamp>,
    /// Why, for people; it may quote strangers.
    pub message: String,
    /// What to do about it; absent where nothing can be done.
    pub hint: Option<String>,
    /// The archive, chart or image that can't be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<String>,
}

words! {
    /// Why something can't be published; `docs/codes.md` has what to do.
    Code {
        ArtifactUnavailable ErrorCode::ArtifactUnavailable.as_str(), "An archive, a chart or an image can't be had.";
        KeyChanged "key-changed", "A vendor's key is another one than before.";
        RemovalsGuarded "removals-guarded", "A guard of fleet.yaml: too much would go.";
        ReplacementGuarded "replacement-guarded", "A deployment would take the place of another one.";
        NotKept "not-kept", "What a rollout holds back can't stay as it was.";
        SyncerTooOld "syncer-too-old", "The device's syncer doesn't know what it must not ignore.";
        FleetInvalid "fleet-invalid", "Something in the fleet's files is wrong.";
        NotEligible "not-eligible", "No profile fits the device, or it didn't say yet what it has.";
        RepositoryUnusable "repository-unusable", "The device's repository can't be used or believed.";
        SerialRefused "serial-refused", "The device can't get another serial.";
        NotPushed "not-pushed", "What is published here isn't at the host that devices talk to.";
        ClockWrong "clock-wrong", "This machine's clock must be wrong.";
        NotCovered "not-covered", "Those who have to agree to what changed in the fleet didn't.";
        KeyNotAllowed "key-not-allowed", "Devices don't believe the publisher's key.";
        AccountNotEnded "account-not-ended", "The account of a device that left can't be ended.";
        PassFailed "pass-failed", "The pass failed for another reason.";
    }
}

/// The word for what is doubtful in the fleet's files, and keeps nothing from being published.
pub const FLEET_DOUBTFUL: &str = "fleet-doubtful";

impl Code {
    pub fn of_guard(guarded: &Guarded) -> Self {
        match guarded {
            Guarded::Removals { .. } | Guarded::FleetRemovals { .. } => Self::RemovalsGuarded,
            Guarded::Replaced { .. } => Self::ReplacementGuarded,
            Guarded::NotKept(_) => Self::NotKept,
            Guarded::TooOld { .. } => Self::SyncerTooOld,
        }
    }

    /// Whether all that is new for the device waits for it, whatever else it is about.
    pub fn is_of_all(self) -> bool {
        matches!(self, Self::NotKept | Self::SyncerTooOld)
    }

    /// Whether somebody has to correct something; else it may come right by itself.
    pub fn is_error(self) -> bool {
        self != Self::NotEligible
    }
}

impl Blocked {
    /// Something that no pass has met before, about the whole fleet until [`on`](Self::on) or [`about`](Self::about)
    /// say otherwise; a message that is too long is cut.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let message: String = message.into();
        Self {
            device: None,
            deployment: None,
            code,
            since: None,
            message: message.chars().take(MAX_MESSAGE).collect(),
            hint: None,
            artifact: None,
        }
    }

    /// Whether a problem with file and line says the same.
    pub fn is_shown_as_problem(&self) -> bool {
        matches!(self.code, Code::FleetInvalid | Code::NotEligible)
    }

    /// The same on this device.
    pub fn on(self, device: &DeviceId) -> Self {
        Self { device: Some(device.clone()), ..self }
    }

    /// The same of this deployment.
    pub fn about(self, deployment: &DeploymentName) -> Self {
        Self { deployment: Some(deployment.clone()), ..self }
    }

    /// Something isn't published for a device, because a person has to allow it, or it is too old.
    pub fn of_guard(device: &DeviceId, guarded: &Guarded) -> Self {
        let code = Code::of_guard(guarded);
        let blocked = Self { hint: Some(guarded.hint()), ..Self::new(code, guarded.to_string()) };
        match guarded {
            Guarded::Replaced { new: name, .. } | Guarded::NotKept(name) => blocked.on(device).about(name),
            _ => blocked.on(device),
        }
    }

    /// What is wrong in the fleet's files, once for each device and deployment that is written in one of them, and once for all others.
    pub fn of_files(broken: &Broken, problems: &Problems) -> Vec<Self> {
        let mut found: BTreeMap<Option<&Subject>, (&Problem, usize)> = BTreeMap::new();
        for problem in problems.errors() {
            found.entry(broken.files.get(&problem.file)).or_insert((problem, 0)).1 += 1;
        }
        let blocked = found.into_iter().map(|(subject, (problem, count))| {
            let more = if count > 1 { format!(" (and {} more, see `validate`)", count - 1) } else { String::new() };
            let hint = problem.hint.clone().or_else(|| Some("see `validate`".to_owned()));
            let blocked = Self { hint, ..Self::new(Code::FleetInvalid, format!("{problem}{more}")) };
            match subject {
                Some(Subject::Device(device)) => blocked.on(device),
                Some(Subject::Deployment(name)) => blocked.about(name),
                None => blocked,
            }
        });
        blocked.collect()
    }

    /// A device's file can't be used.
    pub fn of_broken_device(device: &DeviceId) -> Self {
        let hint = Some("see `validate`".to_owned());
        Self { hint, ..Self::new(Code::FleetInvalid, "its file can't be used") }.on(device)
    }
}

/// What of a device's plan can't be published, but for its guards. `unresolved` gives what is known of an artefact.
pub fn blocked(
    plan: &DevicePlan,
    broken: &Broken,
    unresolved: &dyn Fn(&DeploymentName, &Artifact) -> Option<Blocked>,
) -> Vec<Blocked> {
    let wrong = plan.wrong.iter().filter_map(|(name, problems)| {
        let (code, problem) = match (problems.errors().next(), problems.warnings().next()) {
            (Some(error), _) => (Code::FleetInvalid, error),
            (None, warning) => (Code::NotEligible, warning?),
        };
        Some(Blocked { hint: problem.hint.clone(), ..Blocked::new(code, problem.to_string()) }.about(name))
    });
    let unusable = plan.kept.iter().filter(|name| broken.keeps(name) && !plan.wrong.contains_key(*name));
    let unusable = unusable.map(|name| {
        let text = if broken.deployments.contains(name) {
            "its file, or its package, can't be used".to_owned()
        } else {
            let files: Vec<_> = broken.unidentified.iter().map(String::as_str).collect();
            format!("it stays, because it can't be told what {} is about", files.join(", "))
        };
        let hint = Some("see `validate`".to_owned());
        Blocked { hint, ..Blocked::new(Code::FleetInvalid, text) }.about(name)
    });
    let awaited = plan.changes.iter().flat_map(|change| {
        let found = change.unresolved.iter().find_map(|artifact| unresolved(&change.name, artifact));
        found.map(|blocked| blocked.about(&change.name))
    });
    wrong.chain(unusable).chain(awaited).map(|blocked| blocked.on(&plan.device)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_codes_word_is_the_same_everywhere() {
        for (code, _) in Code::TABLE {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
