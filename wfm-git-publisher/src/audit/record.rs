//! What believed commits say, for people: who changed what, what ran since when, and what went wrong.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use repo_git::CommitId;
use repo_model::margo::State;
use repo_model::report::{ClosedGate, Condition, Status};
use repo_model::{DeploymentId, Trailer};
use serde::Serialize;

use super::commit::Told;
use super::desired::Published;

/// What one repository's history says, the oldest first. Times are by the clocks of who signed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub changes: Vec<Change>,
    pub runs: Vec<Run>,
    pub transitions: Vec<Transition>,
    /// Conditions when they were new.
    pub conditions: Vec<Seen<Condition>>,
    /// Gates when they were found closed.
    pub gates: Vec<Seen<ClosedGate>>,
    #[serde(skip)]
    before: Before,
}

/// What the last report said.
#[derive(Debug, Clone, Default, PartialEq)]
struct Before {
    conditions: Vec<Condition>,
    gates: BTreeSet<(Option<DeploymentId>, String, Timestamp)>,
    /// What operators call deployments.
    names: BTreeMap<DeploymentId, String>,
    /// Which of `runs` goes on.
    running: BTreeMap<DeploymentId, usize>,
}

/// A state that was published.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    pub time: Timestamp,
    pub commit: CommitId,
    pub serial: u64,
    /// The author of the commit, who is the operator where one alone had part in it: by the publisher's word.
    pub author: String,
    /// The commit of the fleet repository, if it is said.
    pub fleet_commit: Option<String>,
    /// The operator's key that the publisher verified, or `unverified`.
    pub operator_key: Option<String>,
    /// Why no commit of the fleet caused it, if none did.
    pub cause: Option<String>,
    /// What a restored host goes on from.
    pub continues: Option<String>,
    /// Each deployment that changed: the word, what operators call it, and the versions that it has now.
    pub deployments: Vec<(String, String, String)>,
}

/// A deployment in one version, from when the device said that it was installed to when it said something else.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub deployment: String,
    pub deployment_id: DeploymentId,
    /// The revisions of its components; `https` for an archive by URL.
    pub versions: String,
    /// The serial of the state that it is of, and its commit on `desired`.
    pub serial: u64,
    pub desired: String,
    pub since: Timestamp,
    /// Absent while it goes on, as far as the device said.
    pub until: Option<Timestamp>,
}

/// A change of a state.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Transition {
    pub time: Timestamp,
    pub commit: CommitId,
    pub deployment: String,
    /// `*` is the deployment as a whole.
    pub component: String,
    pub from: String,
    pub to: String,
    /// Why, as an error code.
    pub code: Option<String>,
}

/// Something that a report said, and the one before didn't.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Seen<T> {
    pub time: Timestamp,
    pub commit: CommitId,
    #[serde(flatten)]
    pub what: T,
}

impl Record {
    /// Adds a believed commit of `desired`.
    pub(super) fn publish(&mut self, told: &Told<'_>, published: &Published) {
        for (id, (name, _)) in &published.versions {
            self.before.names.insert(*id, name.clone());
        }
        let deployments = told.message.all(Trailer::Deployment).filter_map(|trailer| {
            let mut words = trailer.split(' ');
            let (kind, name, id) = (words.next()?, words.next()?, words.next()?.parse::<DeploymentId>().ok()?);
            let versions = published.versions.get(&id).map(|(_, versions)| versions.clone()).unwrap_or_default();
            Some((kind.to_owned(), name.to_owned(), versions))
        });
        let said = |key: Trailer| told.message.get(key).map(str::to_owned);
        self.changes.push(Change {
            time: time(told),
            commit: told.id,
            serial: published.named.serial,
            author: told.author.clone(),
            fleet_commit: said(Trailer::FleetCommit),
            operator_key: said(Trailer::OperatorKey),
            cause: said(Trailer::Cause),
            continues: said(Trailer::Continues),
            deployments: deployments.collect(),
        });
    }

    /// Adds a believed commit of `status`, and the state that it answers.
    pub(super) fn report(&mut self, told: &Told<'_>, status: &Status, answers: Option<&Published>) {
        for trailer in told.message.all(Trailer::State) {
            self.step(told, trailer, answers);
        }
        let at = (time(told), told.id);
        let conditions = std::mem::replace(&mut self.before.conditions, status.syncer.conditions.clone());
        let is_new =
            |one: &&Condition| !conditions.iter().any(|old| (&old.kind, &old.reason) == (&one.kind, &one.reason));
        let new = status.syncer.conditions.iter().filter(is_new).cloned();
        self.conditions.extend(new.map(|what| Seen { time: at.0, commit: at.1, what }));
        let key = |gate: &ClosedGate| (gate.deployment, gate.code.clone(), gate.since);
        let now = status.syncer.gates.iter().map(key).collect();
        let gates = std::mem::replace(&mut self.before.gates, now);
        let new = status.syncer.gates.iter().filter(|gate| !gates.contains(&key(gate))).cloned();
        self.gates.extend(new.map(|what| Seen { time: at.0, commit: at.1, what }));
    }

    fn step(&mut self, told: &Told<'_>, trailer: &str, answers: Option<&Published>) {
        let words: Vec<_> = trailer.split(' ').collect();
        let [what, from, ">", to, ref rest @ ..] = words[..] else { return };
        let Some((id, component)) = what.split_once('/') else { return };
        let Ok(id) = id.parse::<DeploymentId>() else { return };
        let (time, deployment) = (time(told), self.name(id));
        if component == "*" {
            if let Some(run) = self.before.running.remove(&id).and_then(|index| self.runs.get_mut(index)) {
                run.until = Some(time);
            }
            if let Some(published) = answers.filter(|_| to == State::Installed.as_str()) {
                let versions = published.versions.get(&id).map(|(_, versions)| versions.clone()).unwrap_or_default();
                self.before.running.insert(id, self.runs.len());
                let (serial, desired) = (published.named.serial, published.named.commit.clone());
                let deployment = deployment.clone();
                let (since, until) = (time, None);
                self.runs.push(Run { deployment, deployment_id: id, versions, serial, desired, since, until });
            }
        }
        let (from, to, component) = (from.to_owned(), to.to_owned(), component.to_owned());
        let code = rest.first().map(|code| (*code).to_owned());
        self.transitions.push(Transition { time, commit: told.id, deployment, component, from, to, code });
    }

    /// What operators call a deployment; Margo's id if no state that was published says so.
    pub fn name(&self, id: DeploymentId) -> String {
        self.before.names.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    /// Only what is of this time.
    pub fn between(mut self, from: Timestamp, to: Timestamp) -> Self {
        let is_in = |time: Timestamp| (from..to).contains(&time);
        self.changes.retain(|one| is_in(one.time));
        self.transitions.retain(|one| is_in(one.time));
        self.conditions.retain(|one| is_in(one.time));
        self.gates.retain(|one| is_in(one.time));
        self.runs.retain(|one| one.since < to && one.until.is_none_or(|until| until > from));
        self
    }
}

fn time(told: &Told<'_>) -> Timestamp {
    Timestamp::from_second(told.time).unwrap_or(Timestamp::UNIX_EPOCH)
}
