//! How a commit of the fleet came to one device, and what the device said of it. Pure: the lines of its branches are given.

use std::collections::{BTreeMap, HashSet};

use repo_git::{CommitId, ReadError};
use repo_model::margo::State;
use repo_model::message::Message;
use repo_model::report::ConditionType;
use repo_model::{DeploymentId, Trailer};

use super::{Arrival, Commits, MAX_TOLD, Moment, TraceState};
use crate::repos::Step;
use crate::status::DeviceStatus;

/// The states of a device that are of a commit of the fleet, or of one that contains it.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// The newest first.
    states: Vec<Step>,
    /// Which of them brought the last of what came with the commit.
    place: usize,
    /// What it changed, by the operators' ids.
    deployments: BTreeMap<DeploymentId, String>,
}

/// What the device says of these states.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Which of them it accepted; absent if it is none with all of the commit.
    adopted: Option<usize>,
    /// The commits of `status` that answer that state or the ones before it which have all of the commit, the newest first. Empty
    /// where that can't be read.
    steps: Vec<Step>,
}

/// How far the commit came by the device's word.
#[derive(Debug, PartialEq)]
pub(super) struct Word {
    pub(super) state: TraceState,
    pub(super) why: Option<String>,
    pub(super) accepted: Option<Moment>,
    pub(super) installed: Option<Moment>,
    pub(super) failed: Option<Moment>,
}

/// How far a deployment came.
enum Part {
    Done(Option<Moment>),
    Failed(Option<Moment>, String),
    Open(String),
}

impl Course {
    /// Reads `desired` back to the first state without the commit.
    pub(super) fn read(
        line: impl Iterator<Item = Result<Step, ReadError>>,
        commits: &Commits,
    ) -> Result<Self, ReadError> {
        let mut course = Self::default();
        for step in line {
            let step = step?;
            if !fleet_commit(&step.message).is_some_and(|commit| commits.with.contains(&commit)) {
                break;
            }
            course.states.push(step);
        }
        course.find(commits);
        Ok(course)
    }

    /// Finds what came with the commit: with the first state, and, where something of that was held back, with later ones.
    fn find(&mut self, commits: &Commits) {
        let Some((_, base)) = self.first() else { return };
        let came = commits.came_by(base);
        self.place = self.states.len() - 1;
        for (place, step) in self.states.iter().enumerate().rev() {
            // What the device or the publisher caused isn't the commit's.
            if place + 1 < self.states.len() && step.message.get(Trailer::Cause).is_some() {
                continue;
            }
            for change in step.message.deployment_changes().filter(|change| came(change.fleet_commit)) {
                self.place = place;
                self.deployments.insert(change.id, change.name.to_owned());
            }
        }
    }

    /// When the first state with the commit was published, and which commit of the fleet it is of.
    pub(super) fn first(&self) -> Option<(i64, CommitId)> {
        let first = self.states.last()?;
        Some((first.time, fleet_commit(&first.message)?))
    }

    /// The state with which the device got the last of it; `is_of_it` says whether a rollout is of the commit.
    pub(super) fn arrival(&self, is_of_it: impl Fn(u32) -> bool) -> Option<Arrival> {
        let state = self.states.get(self.place)?;
        let waves = self.states[self.place..].iter().rev().flat_map(|step| step.message.waves());
        Some(Arrival {
            moment: Moment::of(state),
            serial: state.message.number(Trailer::Serial),
            fleet_commit: fleet_commit(&state.message)?,
            deployments: self.deployments.values().cloned().collect(),
            waves: waves.filter(|wave| is_of_it(wave.rollout)).collect(),
        })
    }

    /// What a device says of it that has it in its `desired`.
    pub(super) fn word(&self, told: &Told, status: &DeviceStatus) -> Word {
        let nothing = Word { state: TraceState::Published, why: None, accepted: None, installed: None, failed: None };
        let Some(adopted) = told.adopted else {
            let stalled = status.conditions.iter().find(|one| one.kind == ConditionType::Stalled.as_str());
            return match stalled {
                Some(one) => {
                    let why = Some(format!("{} {}: {}", one.kind, one.reason, one.message));
                    Word { state: TraceState::Failed, why, ..nothing }
                }
                None => Word { why: remark(status), ..nothing },
            };
        };
        let accepted = told.accepted();
        let (mut installed, mut failed, mut open) = (accepted, Vec::new(), Vec::new());
        for (id, name) in &self.deployments {
            match self.part(*id, adopted, told, status) {
                Part::Done(at) => installed = installed.zip(at).map(|(one, other)| one.max(other)),
                Part::Failed(at, why) => failed.push((at, format!("{name}: {why}"))),
                Part::Open(why) => open.push(format!("{name}: {why}")),
            }
        }
        let word = Word { accepted, ..nothing };
        if let Some((at, why)) = failed.into_iter().next() {
            return Word { state: TraceState::Failed, why: Some(why), failed: at, ..word };
        }
        match open.is_empty() {
            true => Word { state: TraceState::Installed, why: remark(status), installed, ..word },
            false => Word { state: TraceState::Accepted, why: Some(open.join("; ")), ..word },
        }
    }

    /// How far a deployment of it came, where the device accepted this state. What a newer state changed again counts as that once it
    /// was done.
    fn part(&self, id: DeploymentId, adopted: usize, told: &Told, status: &DeviceStatus) -> Part {
        let wanted = |states: &[Step]| {
            let words = states.iter().flat_map(|step| step.message.deployment_changes());
            words.into_iter().find(|change| change.id == id).map(|change| match change.word {
                "remove" => State::Removed,
                _ => State::Installed,
            })
        };
        let own = wanted(&self.states[self.place..]).unwrap_or(State::Installed);
        let newer = wanted(&self.states[adopted..self.place]);
        let (done, target) = (told.first(id, own), newer.unwrap_or(own));
        if newer.is_some() && done.is_some() {
            return Part::Done(done);
        }
        let row = status.deployments.iter().find(|row| row.deployment_id == id);
        let Some((row, state)) = row.and_then(|row| Some((row, row.state.as_deref()?))) else {
            // What is removed is forgotten at the next adoption.
            return match target {
                State::Removed => Part::Done(told.first(id, target).or(told.accepted())),
                _ => Part::Open("nothing is said of it".to_owned()),
            };
        };
        let why = row.reason.clone().unwrap_or_else(|| state.to_owned());
        match state {
            state if state == target.as_str() => Part::Done(told.first(id, target).or(told.accepted())),
            state if state == State::Failed.as_str() => Part::Failed(told.last(id, State::Failed), why),
            _ => Part::Open(why),
        }
    }
}

impl Told {
    /// Reads `status` back to what answers an older state. `adopted` is the commit of `desired` that the device accepted.
    pub(super) fn read(
        line: impl Iterator<Item = Result<Step, ReadError>>,
        adopted: Option<CommitId>,
        course: &Course,
    ) -> Self {
        let whole = course.states.get(..=course.place).unwrap_or_default();
        let adopted = adopted.and_then(|adopted| whole.iter().position(|state| state.commit == adopted));
        if adopted.is_none() {
            return Self::default();
        }
        let with: HashSet<_> = whole.iter().map(|state| state.commit).collect();
        let mut steps = Vec::new();
        for step in line {
            let Some(step) = step.ok().filter(|_| steps.len() < MAX_TOLD) else {
                // When it began can't be known.
                steps.clear();
                break;
            };
            let answers = step.message.get(Trailer::DesiredCommit).and_then(|commit| commit.parse().ok());
            if !answers.is_some_and(|commit| with.contains(&commit)) {
                break;
            }
            steps.push(step);
        }
        Self { adopted, steps }
    }

    /// When the device said first that it has all of the commit.
    fn accepted(&self) -> Option<Moment> {
        self.steps.last().map(Moment::of)
    }

    /// When a deployment came to this state first.
    fn first(&self, id: DeploymentId, state: State) -> Option<Moment> {
        self.steps.iter().rev().find(|step| leads(step, id, state)).map(Moment::of)
    }

    /// When it came to it last.
    fn last(&self, id: DeploymentId, state: State) -> Option<Moment> {
        self.steps.iter().find(|step| leads(step, id, state)).map(Moment::of)
    }
}

/// Whether a commit of `status` says that the deployment as a whole came to this state.
fn leads(step: &Step, id: DeploymentId, state: State) -> bool {
    step.message.transitions().any(|one| one.deployment == id && one.is_whole() && one.to == state.as_str())
}

/// What else there is to know of a device that goes its way.
fn remark(status: &DeviceStatus) -> Option<String> {
    let doubt = status.doubts.first().map(|doubt| format!("doubtful: {doubt}"));
    doubt.or_else(|| status.blocked.first().map(|one| one.message.clone()))
}

/// The commit of the fleet that a state is of.
fn fleet_commit(message: &Message) -> Option<CommitId> {
    message.get(Trailer::FleetCommit)?.parse().ok()
}
