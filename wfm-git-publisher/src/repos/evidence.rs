//! What a device verifiably says of the deployments of a rollout, from its branches alone.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use repo_git::{Commit, CommitId, TreeLimits};
use repo_model::desired::Desired;
use repo_model::margo::State;
use repo_model::message::Message;
use repo_model::report::doubt::TIME_AHEAD;
use repo_model::report::{
    self, Adopted, Condition, ConditionType, CurrentState, Health, Heartbeat, MAX_CHAIN, Named, SYNCER,
};
use repo_model::{ComponentName, DeploymentId, DeploymentName, Digest, KeyText, Trailer};
use serde::Deserialize;

use super::device::{DeviceRepo, Tip};
use super::heard::Heard;
use super::looks::Looks;
use super::report::{Checked, Status};
use crate::fleet::talks_again;
use crate::rollout::{Adoption, Beat, Component, Evidence, Meaning, Report, meaning_of};

/// The largest `syncer.json` of an older commit that is read, in bytes.
const MAX_SYNCER: u64 = 1 << 20;

/// By whom and when a device's word is judged.
#[derive(Debug, Clone, Copy)]
pub struct Judge<'a> {
    /// The fleet's keys for the device, for as long as no `desired` lists any.
    pub enrolled: &'a [KeyText],
    pub publishers: &'a BTreeSet<KeyText>,
    /// When devices could be heard.
    pub looks: &'a Looks,
    pub now: Timestamp,
}

/// The state that a device adopted, for the deployments of a rollout.
struct Held<'a> {
    desired: &'a Desired,
    /// The rollout's deployments by what the device calls them; those too which aren't in that state.
    names: BTreeMap<DeploymentId, &'a DeploymentName>,
    /// What its components are applied for, as far as that is known outside the device.
    named: Option<&'a Named>,
}

impl DeviceRepo {
    /// What the device verifiably says of these deployments; nothing of what can't be read.
    pub fn evidence(&self, tip: Option<&Tip>, deployments: &BTreeSet<DeploymentName>, judge: Judge<'_>) -> Evidence {
        let reports = self.newest_reports(tip, judge.enrolled, judge.publishers, judge.now);
        let status = reports.status.verified();
        let adopted = status.and_then(|status| status.report.adopted());
        let names =
            deployments.iter().map(|name| (DeploymentId::derive(self.fleet, name, &self.device), name)).collect();
        let older = adopted.zip(tip).and_then(|(adopted, tip)| self.older(tip, adopted, judge.publishers));
        let desired = adopted.zip(tip).and_then(|(adopted, tip)| match &older {
            Some(older) => Some(&older.desired),
            None => (adopted.commit == tip.commit.to_string()).then_some(&tip.desired),
        });
        let named = status.and_then(|status| status.named.as_ref());
        let held = desired.map(|desired| Held { desired, names, named });
        Evidence {
            silent_for: if reports.are_absent() { 0 } else { self.silent_for(tip, judge) },
            status: status.map(|status| self.report_of(status, adopted, held.as_ref(), judge.publishers)),
            heartbeat: match &reports.heartbeat {
                Checked::Absent => Beat::Absent,
                Checked::Unverified(_) => Beat::Unbelieved,
                Checked::Verified(heartbeat) => beat(heartbeat, held.as_ref()),
            },
        }
    }

    /// What was adopted, if that isn't the tip.
    fn older(&self, tip: &Tip, adopted: &Adopted, publishers: &BTreeSet<KeyText>) -> Option<Tip> {
        let commit: CommitId = adopted.commit.parse().ok()?;
        if commit == tip.commit {
            return None;
        }
        self.desired_at(commit, publishers).ok()
    }

    /// For how many seconds the device said nothing while it could be heard.
    fn silent_for(&self, tip: Option<&Tip>, judge: Judge<'_>) -> u64 {
        let Some(moved) = Heard::of(self.repo.path()).last() else { return 0 };
        let windows = tip.and_then(|tip| tip.desired.envelope.policy.windows.as_ref());
        let may_talk = |moment: i64| {
            let again = windows.zip(Timestamp::from_second(moment).ok()).and_then(|(one, at)| talks_again(one, at));
            again.is_none()
        };
        judge.looks.silence(moved, judge.now.as_second(), &may_talk)
    }

    fn report_of(
        &self,
        status: &Status,
        adopted: Option<&Adopted>,
        held: Option<&Held<'_>>,
        publishers: &BTreeSet<KeyText>,
    ) -> Report {
        let conditions = &status.report.syncer.conditions;
        let components = held.map(|held| held.components(&status.report)).unwrap_or_default();
        let runtime_unavailable = is_unavailable(conditions);
        let moved = held.map_or(status.time, |held| self.last_change(status, held, publishers));
        let is_done = held.is_some() && !runtime_unavailable && components.iter().all(Component::is_done);
        let stalled = conditions.iter().find(|one| one.kind == ConditionType::Stalled.as_str());
        let moved_here = Heard::of(self.repo.path()).status;
        Report {
            stalled: stalled.map(|condition| condition.reason.clone()),
            runtime_unavailable,
            adopted: adopted
                .zip(held)
                .map(|(adopted, held)| Adoption { serial: adopted.serial, meaning: held.meaning() }),
            components,
            done_since: is_done.then_some(moved),
            moved,
            moved_here: moved_here.and_then(|at| Timestamp::from_second(at).ok()),
        }
    }

    /// When what the device says of these deployments was another last, in Unix seconds by its own clock: a transition of one
    /// of them, the adoption of another state of them, or a runtime that answered again. What is as it is for longer than
    /// can be seen is so since the oldest commit that is looked at.
    fn last_change(&self, status: &Status, held: &Held<'_>, publishers: &BTreeSet<KeyText>) -> i64 {
        let mut time = status.time;
        let Ok(newest) = self.repo.commit(status.commit) else { return time };
        let (mut commit, mut message) = (newest.clone(), Message::parse(&newest.message));
        for _ in 0..MAX_CHAIN {
            time = commit.commit_time;
            let Some(parent) = commit.parents.first().and_then(|parent| self.repo.commit(*parent).ok()) else { break };
            let before = Message::parse(&parent.message);
            let adopts = message.get(Trailer::DesiredCommit) != before.get(Trailer::DesiredCommit)
                && self.meant(&before, held, publishers) != Some(held.meaning());
            if held.has_transition(&message) || adopts || self.was_unavailable(&parent) {
                break;
            }
            (commit, message) = (parent, before);
        }
        time
    }

    /// What the deployments meant in the state that an older commit of `status` answers; `None` if that isn't known.
    fn meant(&self, message: &Message, held: &Held<'_>, publishers: &BTreeSet<KeyText>) -> Option<Option<Meaning>> {
        let commit = message.get(Trailer::DesiredCommit)?.parse().ok()?;
        let tip = self.desired_at(commit, publishers).ok()?;
        Some(held.meaning_in(&tip.desired))
    }

    /// Whether a runtime didn't answer by an older commit of `status`; also if that can't be read.
    fn was_unavailable(&self, commit: &Commit) -> bool {
        #[derive(Deserialize)]
        struct Conditions {
            #[serde(default)]
            conditions: Vec<Condition>,
        }
        let entries = self.repo.list(commit.id, &TreeLimits::default()).unwrap_or_default();
        let entry = entries.into_iter().find(|entry| entry.path == SYNCER);
        let bytes = entry.and_then(|entry| self.repo.blob(entry.blob, MAX_SYNCER).ok());
        let read = bytes.and_then(|bytes| serde_json::from_slice::<Conditions>(&bytes).ok());
        read.is_none_or(|read| is_unavailable(&read.conditions))
    }
}

impl Held<'_> {
    /// What the rollout's deployments mean together.
    fn meaning(&self) -> Option<Meaning> {
        self.meaning_in(self.desired)
    }

    fn meaning_in(&self, desired: &Desired) -> Option<Meaning> {
        meaning_of(desired, self.names.values().copied())
    }

    /// Whether a commit of `status` tells a transition of one of them.
    fn has_transition(&self, message: &Message) -> bool {
        message.transitions().any(|step| self.names.contains_key(&step.deployment))
    }

    /// Every component of them that the state has, and what else the device speaks of.
    fn components(&self, report: &report::Status) -> Vec<Component> {
        self.names.iter().flat_map(|(id, name)| self.components_of(report, *id, name)).collect()
    }

    fn components_of(&self, report: &report::Status, id: DeploymentId, name: &DeploymentName) -> Vec<Component> {
        let said = report.deployments.get(&id).map_or(&[][..], |document| &document.components);
        let document = self.desired.deployments.get(&id).map(|document| &document.deployment);
        let component = |one: &repo_model::ComponentName, wanted, waits_outside| {
            let said = said.iter().find(|said| said.name == *one);
            Component {
                deployment: name.clone(),
                name: one.clone(),
                wanted,
                // What nothing is said of isn't there yet.
                state: said.map_or(State::Pending, |said| said.state),
                code: said.and_then(|said| Some(said.error.as_ref()?.code.as_str().to_owned())),
                waits_outside,
            }
        };
        match document {
            Some(document) => {
                let outside = self.waits_outside(report, id);
                document.components.iter().map(|one| component(&one.name, true, outside)).collect()
            }
            None => said.iter().map(|one| component(&one.name, false, false)).collect(),
        }
    }

    /// Whether a deployment depends on one outside the rollout that isn't installed.
    fn waits_outside(&self, report: &report::Status, id: DeploymentId) -> bool {
        let envelopes = &self.desired.envelope.deployments;
        let depends_on = envelopes.get(&id).map_or(&[][..], |envelope| &envelope.policy.depends_on);
        let is_outside = |other: &&DeploymentName| !self.names.values().any(|name| name == other);
        depends_on.iter().filter(is_outside).any(|other| {
            let other = envelopes.iter().find(|(_, envelope)| envelope.id == *other).map(|(id, _)| id);
            let document = other.and_then(|other| report.deployments.get(other));
            document.is_none_or(|document| document.status.state != State::Installed)
        })
    }

    /// Whether all that the state has of them runs with its input, and well. Where that isn't known here, the device's word counts.
    fn is_healthy(&self, state: &CurrentState) -> bool {
        let all = self.names.keys().filter_map(|id| Some((id, self.desired.deployments.get(id)?)));
        let runs = |id: &DeploymentId, name: &ComponentName| {
            let component = state.deployments.get(id).and_then(|deployment| deployment.components.get(name));
            let has_input = |found| self.input(id, name).is_none_or(|wanted| wanted == found);
            component
                .is_some_and(|one| one.input_digest.is_some_and(has_input) && one.health == Health::Healthy.as_str())
        };
        all.into_iter().all(|(id, document)| document.deployment.components.iter().all(|one| runs(id, &one.name)))
    }

    /// What a component of that state is applied for; `None` where something of it stays on the device.
    fn input(&self, id: &DeploymentId, name: &ComponentName) -> Option<Digest> {
        *self.named?.components.get(id)?.get(name)?
    }
}

fn is_unavailable(conditions: &[Condition]) -> bool {
    conditions.iter().any(|one| one.kind == ConditionType::RuntimeUnavailable.as_str())
}

/// What a verified heartbeat says. One that can't be so isn't believed, but for its time, which is its own clock's.
fn beat(heartbeat: &Heartbeat, held: Option<&Held<'_>>) -> Beat {
    if heartbeat.doubts.iter().any(|doubt| doubt.code != TIME_AHEAD) {
        return Beat::Unbelieved;
    }
    let state = &heartbeat.state;
    let healthy = held.is_some_and(|held| held.is_healthy(state));
    Beat::Seen { time: state.time.as_second(), serial: state.serial, healthy }
}
