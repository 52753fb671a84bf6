//! What believed commits say, for people: who changed what, what ran since when, and what went wrong.

use std::collections::BTreeMap;

use jiff::Timestamp;
use repo_git::CommitId;
use repo_model::margo::State;
use repo_model::message::{self, Wave};
use repo_model::report::{ClosedGate, Condition, Status};
use repo_model::{ComponentName, DeploymentId, Digest, KeyText, Trailer};
use serde::Serialize;

use super::commit::Told;
use super::desired::{Package, Published};

/// What one repository's history says, the oldest first. Times are by the clocks of who signed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub changes: Vec<Change>,
    pub runs: Vec<Run>,
    /// What the components were made of that ran.
    pub components: Vec<RunComponent>,
    /// The states that the device said that it accepted.
    pub adoptions: Vec<Adoption>,
    pub transitions: Vec<Transition>,
    /// Conditions when they were new.
    pub conditions: Vec<Seen<Condition>>,
    /// Gates when they were found closed.
    pub gates: Vec<Seen<ClosedGate>>,
    /// Of each commit of `status` that is told of here: its place in the line, and the highest serial that was answered by then.
    #[serde(skip)]
    pub(super) places: BTreeMap<CommitId, (usize, u64)>,
    #[serde(skip)]
    before: Before,
}

/// What the last report said.
#[derive(Debug, Clone, Default, PartialEq)]
struct Before {
    /// The commit of `desired` that it has.
    adopted: Option<String>,
    /// The highest serial that it answered.
    serial: u64,
    /// By type and reason, which of `conditions` they are.
    conditions: BTreeMap<(String, String), Vec<usize>>,
    /// Which of `gates` they are.
    gates: BTreeMap<(Option<DeploymentId>, String, Timestamp), Vec<usize>>,
    /// What operators call deployments.
    names: BTreeMap<DeploymentId, String>,
    /// Which of `runs` goes on.
    running: BTreeMap<DeploymentId, usize>,
    /// Which of `components` does.
    running_components: BTreeMap<(DeploymentId, ComponentName), usize>,
}

/// A state that was published.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    pub time: Timestamp,
    pub commit: CommitId,
    pub subject: String,
    pub serial: u64,
    /// The author of the commit, who is the operator where one alone had part in it: by the publisher's word.
    pub author: String,
    /// The publisher's key that signed it.
    pub publisher_key: Option<KeyText>,
    /// The commit of the fleet repository, if it is said.
    pub fleet_commit: Option<String>,
    /// The operator's key that the publisher verified, or `unverified`.
    pub operator_key: Option<String>,
    /// Why no commit of the fleet caused it, if none did.
    pub cause: Option<String>,
    /// What a restored host goes on from.
    pub continues: Option<String>,
    /// Whether the device is retired by it, or was already.
    pub retired: bool,
    /// Each deployment that changed: the word, what operators call it, and the versions that it has now.
    pub deployments: Vec<(String, String, String)>,
    /// The waves that released any of it; none for what needed no rollout.
    pub rollouts: Vec<Wave>,
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

/// A component in one version, from when the device said that it was installed to when it said something else.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunComponent {
    pub deployment: String,
    pub component: ComponentName,
    pub package: Package,
    /// The images that the device locked, because the publisher didn't: as they are named, and what that meant.
    pub images: BTreeMap<String, Digest>,
    pub since: Timestamp,
    /// Absent while it goes on, as far as the device said.
    pub until: Option<Timestamp>,
}

/// A state that the device said that it accepted.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Adoption {
    pub time: Timestamp,
    pub commit: CommitId,
    pub serial: u64,
    /// Its commit on `desired`.
    pub desired: String,
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
    /// When a report didn't say it any more; absent while it goes on, as far as the device said.
    pub ended: Option<Ended>,
    #[serde(flatten)]
    pub what: T,
}

/// The end of something that reports said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Ended {
    pub time: Timestamp,
    pub commit: CommitId,
}

impl Record {
    /// Adds a believed commit of `desired`.
    pub(super) fn publish(&mut self, told: &Told<'_>, published: &Published) {
        for (id, (name, _)) in &published.deployments {
            self.before.names.insert(*id, name.clone());
        }
        let deployments = told.message.deployment_changes();
        let deployments = deployments.map(|one| (one.word.to_owned(), one.name.to_owned(), published.versions(one.id)));
        let said = |key: Trailer| told.message.get(key).map(str::to_owned);
        self.changes.push(Change {
            time: time(told),
            commit: told.id,
            subject: told.message.subject().to_owned(),
            serial: published.named.serial,
            author: told.author.clone(),
            publisher_key: told.signer.as_ref().ok().cloned(),
            fleet_commit: said(Trailer::FleetCommit),
            operator_key: said(Trailer::OperatorKey),
            cause: said(Trailer::Cause),
            continues: said(Trailer::Continues),
            retired: published.retired,
            deployments: deployments.collect(),
            rollouts: told.message.waves().collect(),
        });
    }

    /// Adds a believed commit of `status`, and the state that it answers.
    pub(super) fn report(&mut self, told: &Told<'_>, status: &Status, answers: Option<&Published>) {
        for step in told.message.transitions() {
            self.step(told, &step, answers);
        }
        self.end(time(told), status);
        self.lock(status);
        let at = Ended { time: time(told), commit: told.id };
        self.adopt(at, status);
        let Before { conditions, gates, .. } = &mut self.before;
        let key = |one: &Condition| (one.kind.clone(), one.reason.clone());
        see(&mut self.conditions, conditions, &status.syncer.conditions, key, at);
        let key = |gate: &ClosedGate| (gate.deployment, gate.code.clone(), gate.since);
        see(&mut self.gates, gates, &status.syncer.gates, key, at);
    }

    fn adopt(&mut self, at: Ended, status: &Status) {
        let Ended { time, commit } = at;
        let adopted = status.adopted();
        let before = std::mem::replace(&mut self.before.adopted, adopted.map(|adopted| adopted.commit.clone()));
        if let Some(adopted) = adopted.filter(|adopted| before.as_ref() != Some(&adopted.commit)) {
            self.before.serial = self.before.serial.max(adopted.serial);
            let (serial, desired) = (adopted.serial, adopted.commit.clone());
            self.adoptions.push(Adoption { time, commit, serial, desired });
        }
        self.places.insert(commit, (self.places.len(), self.before.serial));
    }

    fn step(&mut self, told: &Told<'_>, step: &message::Transition<'_>, answers: Option<&Published>) {
        let (id, time, deployment) = (step.deployment, time(told), self.name(step.deployment));
        let is_installed = step.to == State::Installed.as_str();
        if step.is_whole() {
            if let Some(run) = self.before.running.remove(&id).and_then(|index| self.runs.get_mut(index)) {
                run.until = Some(time);
            }
            if let Some(published) = answers.filter(|_| is_installed) {
                let versions = published.versions(id);
                self.before.running.insert(id, self.runs.len());
                let (serial, desired) = (published.named.serial, published.named.commit.clone());
                let deployment = deployment.clone();
                let (since, until) = (time, None);
                self.runs.push(Run { deployment, deployment_id: id, versions, serial, desired, since, until });
            }
        } else if let Ok(component) = step.component.parse::<ComponentName>() {
            let key = (id, component.clone());
            let index = self.before.running_components.remove(&key);
            if let Some(run) = index.and_then(|index| self.components.get_mut(index)) {
                run.until = Some(time);
            }
            let package = answers.filter(|_| is_installed).and_then(|published| published.package(id, &component));
            if let Some(package) = package.cloned() {
                self.before.running_components.insert(key, self.components.len());
                let (deployment, images, since, until) = (deployment.clone(), BTreeMap::new(), time, None);
                self.components.push(RunComponent { deployment, component, package, images, since, until });
            }
        }
        self.transitions.push(Transition {
            time,
            commit: told.id,
            deployment,
            component: step.component.to_owned(),
            from: step.from.to_owned(),
            to: step.to.to_owned(),
            code: step.code.map(str::to_owned),
        });
    }

    /// What isn't installed any more has ended, also where no transition says so: a new installation tells none.
    fn end(&mut self, time: Timestamp, status: &Status) {
        let documents = &status.deployments;
        let is_installed = |state: State| state == State::Installed;
        self.before.running.retain(|id, index| {
            let goes_on = documents.get(id).is_some_and(|document| is_installed(document.status.state));
            if let Some(run) = self.runs.get_mut(*index).filter(|_| !goes_on) {
                run.until = Some(time);
            }
            goes_on
        });
        self.before.running_components.retain(|(id, name), index| {
            let component =
                documents.get(id).and_then(|document| document.components.iter().find(|one| one.name == *name));
            let goes_on = component.is_some_and(|component| is_installed(component.state));
            if let Some(run) = self.components.get_mut(*index).filter(|_| !goes_on) {
                run.until = Some(time);
            }
            goes_on
        });
    }

    /// Adds the images that the device says that it locked for what runs.
    fn lock(&mut self, status: &Status) {
        for ((id, name), index) in &self.before.running_components {
            let locked = status.images.get(id).and_then(|components| components.get(name));
            if let (Some(run), Some(locked)) = (self.components.get_mut(*index), locked) {
                run.images.extend(locked.values().map(|locked| (locked.image.clone(), locked.digest)));
            }
        }
    }

    /// What operators call a deployment; Margo's id if no state that was published says so.
    pub fn name(&self, id: DeploymentId) -> String {
        self.before.names.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    /// Only what is of this time.
    pub fn between(mut self, from: Timestamp, to: Timestamp) -> Self {
        let is_in = |time: Timestamp| (from..to).contains(&time);
        self.changes.retain(|one| is_in(one.time));
        self.adoptions.retain(|one| is_in(one.time));
        self.transitions.retain(|one| is_in(one.time));
        self.conditions.retain(|one| is_in(one.time));
        self.gates.retain(|one| is_in(one.time));
        let ran = |since: Timestamp, until: Option<Timestamp>| since < to && until.is_none_or(|until| until > from);
        self.runs.retain(|one| ran(one.since, one.until));
        self.components.retain(|one| ran(one.since, one.until));
        self
    }
}

/// Adds what is said now and wasn't before, and ends what isn't said any more. `open` are the places of what was said before.
fn see<T: Clone, K: Ord>(
    seen: &mut Vec<Seen<T>>,
    open: &mut BTreeMap<K, Vec<usize>>,
    now: &[T],
    key: impl Fn(&T) -> K,
    at: Ended,
) {
    let before = std::mem::take(open);
    for what in now {
        let key = key(what);
        let known = before.get(&key);
        let places = open.entry(key).or_insert_with(|| known.cloned().unwrap_or_default());
        if known.is_none() {
            places.push(seen.len());
            seen.push(Seen { time: at.time, commit: at.commit, ended: None, what: what.clone() });
        }
    }
    for place in before.into_iter().filter(|(key, _)| !open.contains_key(key)).flat_map(|(_, places)| places) {
        seen[place].ended = Some(at);
    }
}

fn time(told: &Told<'_>) -> Timestamp {
    Timestamp::from_second(told.time).unwrap_or(Timestamp::UNIX_EPOCH)
}
