//! What passes found that somebody has to do something about: what can't be published, since when and what to do,
//! which devices left the fleet, and what rollouts wait for.
//!
//! Kept in the home, because `status`, `plan`, `why-not` and `/metrics` are other processes. Written under the home's
//! lock, and only where something changed. Losing it costs the moments since when: a pass finds the rest again.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;

use jiff::Timestamp;
use repo_model::{DeploymentName, DeviceId, error_chain};
use serde::{Deserialize, Serialize};
use wfm_git_host::accounts::AccountName;

use super::error::{ClockError, DeviceError, PublishError};
use super::fleet_at;
use super::hints::innermost_hint;
use super::locks::{NewKey, ResolveError};
use super::outcome::{Done, Outcome};
use crate::fleet::{Fleet, Reading, SETTINGS};
use crate::mirror::MirrorError;
use crate::plan::{Blocked, Code};
use crate::render::Artifact;
use crate::repos::{Home, HomeError, Rosters};
use crate::rollout::Waiting;

/// What passes found: `findings.json` in the home, written by every pass that publishes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Findings {
    /// What the last pass could not publish.
    #[serde(default)]
    pub blocked: Vec<Blocked>,
    /// Devices that something was published for, and that the fleet has no more.
    #[serde(default)]
    pub gone: BTreeMap<DeviceId, Gone>,
    /// What rollouts waited for at the last look, with the moments of the look that found it so first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
    /// Members of each rollout that aren't released, and of which the last look held nothing back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped_out: BTreeMap<u32, BTreeSet<DeviceId>>,
    /// Devices that are retired and that nothing more is published for, and when a pass found them so first; also those
    /// whose files are gone since.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub retired: BTreeMap<DeviceId, Timestamp>,
}

/// A device that left the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gone {
    /// When a pass found it first.
    pub since: Timestamp,
    /// Its account, once that was ended for this.
    pub ended_account: Option<AccountName>,
}

/// What makes it the same thing that is blocked, in the order of [`Findings::blocked`].
type Key = (Option<DeviceId>, Option<DeploymentName>, Code);

fn of_error(code: Code, error: &(dyn Error + 'static)) -> Blocked {
    let hint = innermost_hint(error);
    Blocked { hint, ..Blocked::new(code, error_chain(error)) }
}

/// Nothing new is published for a device because of this.
pub(super) fn of_device(device: &DeviceId, error: &DeviceError) -> Blocked {
    let code = match error {
        DeviceError::Repo(_) => Code::RepositoryUnusable,
        DeviceError::Serial(_) => Code::SerialRefused,
        DeviceError::Guarded(guarded) => return Blocked::of_guard(device, guarded),
    };
    of_error(code, error).on(device)
}

/// What needs an artefact can't be published.
pub(super) fn of_artifact(error: &ResolveError) -> Blocked {
    let code = if error.source.is::<NewKey>() { Code::KeyChanged } else { Code::ArtifactUnavailable };
    Blocked { artifact: Some(error.artifact.to_string()), ..of_error(code, error) }
}

/// Nothing can be published for any device, because this machine's clock must be wrong.
pub(super) fn of_clock(error: &ClockError) -> Blocked {
    of_error(Code::ClockWrong, error)
}

/// Nothing can be published for any device.
pub(crate) fn of_pass(error: &PublishError) -> Blocked {
    let code = match error {
        PublishError::Clock(_) => Code::ClockWrong,
        PublishError::KeyNotAllowed { .. } => Code::KeyNotAllowed,
        PublishError::NotCovered { .. } => Code::NotCovered,
        PublishError::Fleet(problems) => {
            // What else is wrong keeps no other file from being used.
            let why = problems.errors().find(|problem| problem.file == SETTINGS);
            let why = why.map(|problem| format!(": {problem}")).unwrap_or_default();
            let hint = Some("see `validate`".to_owned());
            return Blocked { hint, ..Blocked::new(Code::FleetInvalid, format!("{error}{why}")) };
        }
        PublishError::OtherFleet { .. } | PublishError::Source(_) => Code::FleetInvalid,
        PublishError::Home(_) | PublishError::Control(_) | PublishError::Key(_) => Code::PassFailed,
    };
    of_error(code, error)
}

/// The fleet that was read, or why nothing can be published of it for any device.
pub(crate) fn usable_fleet(reading: Reading, rosters: &Rosters) -> Result<Fleet, Box<Blocked>> {
    fleet_at::usable(reading, rosters).map(|usable| usable.fleet).map_err(|error| Box::new(of_pass(&error)))
}

fn key(one: &Blocked) -> Key {
    (one.device.clone(), one.deployment.clone(), one.code)
}

impl Findings {
    /// What the last passes left; nothing if that can't be read.
    pub fn read(home: &Home) -> Self {
        let text = fs::read(home.findings()).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Keeps it, if it is something else than before.
    pub(super) fn write(&self, home: &Home) -> Result<(), HomeError> {
        if *self == Self::read(home) {
            return Ok(());
        }
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        home.write(&home.findings(), &text, 0o600)
    }

    /// What is known of a device.
    pub fn of(&self, device: &DeviceId) -> &[Blocked] {
        let begin = self.blocked.partition_point(|one| one.device.as_ref() < Some(device));
        let of_it = self.blocked[begin..].iter().take_while(|one| one.device.as_ref() == Some(device)).count();
        &self.blocked[begin..begin + of_it]
    }

    /// Whether a rollout holds something back for a member that it didn't release, by the last look.
    pub fn is_held(&self, rollout: u32, device: &DeviceId) -> bool {
        self.dropped_out.get(&rollout).is_none_or(|devices| !devices.contains(device))
    }

    /// What isn't about one device.
    pub fn of_all(&self) -> impl Iterator<Item = &Blocked> {
        self.blocked.iter().filter(|one| one.device.is_none())
    }

    /// The same, with why the newest fleet can't be used, which no pass may have met yet.
    pub fn of_all_with(&self, unusable: Option<Blocked>) -> Vec<Blocked> {
        let is_told = |one: &&Blocked| unusable.as_ref().is_none_or(|why| key(why) != key(one));
        let known: Vec<_> = self.of_all().filter(is_told).cloned().collect();
        unusable.map(|why| self.since(why)).into_iter().chain(known).collect()
    }

    /// What is so of every device: not what is wrong with a deployment that none has.
    pub fn of_each(&self) -> impl Iterator<Item = &Blocked> {
        self.of_all().filter(|one| one.deployment.is_none())
    }

    /// What the last pass found about an artefact that a deployment needs, for whichever device it asked.
    pub(super) fn of_artifact(
        &self,
        device: &DeviceId,
        deployment: &DeploymentName,
        artifact: &Artifact,
    ) -> Option<Blocked> {
        let name = Some(artifact.to_string());
        let mut known = self.of(device).iter();
        let own = known.find(|one| one.deployment.as_ref() == Some(deployment) && one.artifact == name);
        let others = || self.blocked.iter().find(|one| one.artifact == name);
        let of_any = |one: &Blocked| Blocked { device: None, deployment: None, ..one.clone() };
        own.cloned().or_else(|| others().map(of_any))
    }

    /// The same since the moment at which a pass found it first.
    pub(super) fn since(&self, found: Blocked) -> Blocked {
        let same = |known: &&Blocked| (&known.deployment, known.code) == (&found.deployment, found.code);
        let known = match &found.device {
            Some(device) => self.of(device).iter().find(same),
            None => self.of_all().find(same),
        };
        Blocked { since: known.and_then(|known| known.since), ..found }
    }

    /// The same, which a pass met now at the latest.
    fn met(&self, found: Blocked, now: Timestamp) -> Blocked {
        let found = self.since(found);
        Blocked { since: found.since.or(Some(now)), ..found }
    }

    /// Takes over what a pass found; what of devices that it left out stays as it was.
    pub(super) fn update(&mut self, outcome: &Outcome, whole: bool, now: Timestamp) {
        let is_looked_at = |device: &DeviceId| {
            outcome.devices.get(device).map_or(whole, |result| !matches!(result, Ok(Done::Stopped)))
        };
        let stays = |one: &&Blocked| one.device.as_ref().is_some_and(|device| !is_looked_at(device));
        let failed =
            |(device, result): (&DeviceId, &Result<Done, DeviceError>)| Some(of_device(device, result.as_ref().err()?));
        let unpushed = outcome.remote.iter().filter_map(|(device, result)| match result {
            Err(MirrorError::Stopped) | Ok(_) => None,
            Err(error) => Some(of_error(Code::NotPushed, error).on(device)),
        });
        let accounts = outcome.accounts.iter();
        let accounts = accounts.map(|(device, error)| of_error(Code::AccountNotEnded, error).on(device));
        let found = outcome.blocked.values().flatten().cloned();
        let found = found.chain(outcome.devices.iter().filter_map(failed)).chain(unpushed).chain(accounts);
        let mut all: BTreeMap<Key, Blocked> = BTreeMap::new();
        for one in self.blocked.iter().filter(stays).cloned().chain(found) {
            all.entry(key(&one)).or_insert_with(|| self.met(one, now));
        }
        // What a device keeps because of it says so there; of what no device has yet nobody else would tell.
        let kept = all.values().filter(|one| one.code == Code::FleetInvalid);
        let kept: BTreeSet<_> = kept.filter_map(|one| one.deployment.clone()).collect();
        for one in outcome.invalid.iter().filter(|one| one.deployment.as_ref().is_none_or(|name| !kept.contains(name)))
        {
            all.entry(key(one)).or_insert_with(|| self.met(one.clone(), now));
        }
        self.blocked = all.into_values().collect();
        let rollouts = outcome.rollouts.iter().flat_map(|one| one.waiting.iter().chain(&one.following));
        // A look that finds nothing new writes nothing, whatever the time is.
        let same = |one: &Waiting, known: &&Waiting| {
            (one.rollout, &one.why, &one.devices) == (known.rollout, &known.why, &known.devices)
        };
        let known = |one: &Waiting| self.waiting.iter().find(|known| same(one, known)).unwrap_or(one).clone();
        let waiting = rollouts.map(known).collect();
        self.waiting = waiting;
        self.dropped_out = outcome.rollouts.iter().flat_map(|one| one.dropped_out.clone()).collect();
    }

    /// Takes over that a pass couldn't even begin; what is known of single devices and deployments stays so.
    pub(super) fn failed(&mut self, error: &PublishError, now: Timestamp) {
        let found = self.met(of_pass(error), now);
        self.blocked.retain(|one| one.device.is_some() || one.deployment.is_some());
        self.blocked.insert(0, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLEET: &str = "6e1f6b6e-6d1c-4d8e-9c1b-3b1f6f9d2a10";

    #[test]
    fn what_stays_keeps_its_moment_and_what_can_not_be_read_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let [first, later] = [1_000, 2_000].map(|second| Timestamp::from_second(second).unwrap());
        let device: DeviceId = "press-01".parse().unwrap();
        let mut findings = Findings::default();
        let error = PublishError::OtherFleet { fleet: FLEET.parse().unwrap(), home: FLEET.parse().unwrap() };
        findings.failed(&error, first);
        findings.failed(&error, later);
        assert_eq!((findings.blocked.len(), findings.blocked[0].since), (1, Some(first)));
        let lost = Blocked::new(Code::FleetInvalid, "").about(&"lost".parse().unwrap());
        findings.blocked.push(lost.clone());
        findings.failed(&error, later);
        assert_eq!(findings.blocked[1..], [lost]);
        findings.write(&home).unwrap();
        assert_eq!(Findings::read(&home), findings);
        let unmet = findings.since(Blocked::new(Code::KeyChanged, "").on(&device));
        assert_eq!((unmet.since, findings.met(unmet, later).since), (None, Some(later)));
        home.write(&home.findings(), b"{", 0o600).unwrap();
        assert_eq!(Findings::read(&home), Findings::default());
    }
}
