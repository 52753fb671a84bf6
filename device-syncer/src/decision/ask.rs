//! What the fleet asks this device for: which number is to be done, and whether the site lets it. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use repo_model::DeploymentName;
use repo_model::ask::{Answer, Ask, AskedWord, LIFE, MOST, stands};
use repo_model::desired::Desired;
use serde::{Deserialize, Serialize};

use super::approval::KnownNames;
use super::pattern::Pattern;

/// What the site lets the fleet ask for: the section `remote` of `device.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Remote {
    /// Restarts of what runs (`restart` of a deployment).
    pub restart: bool,
    pub retry: bool,
    pub sync: bool,
    /// The deployments whose logs may leave the device, by the operator's ids.
    pub logs: Vec<Pattern>,
    pub diagnostics: bool,
}

impl Default for Remote {
    fn default() -> Self {
        Self { restart: true, retry: true, sync: true, logs: Vec::new(), diagnostics: false }
    }
}

impl Remote {
    /// Whether what the containers of a deployment print may leave the device. All names under which it is known here have to
    /// be among those that the site lists.
    pub fn gives_logs<'a>(&self, mut names: impl Iterator<Item = &'a DeploymentName>) -> bool {
        names.all(|name| self.logs.iter().any(|pattern| pattern.means(name.as_str())))
    }
}

/// The newest number that is done with, or was begun: `asked.json` of the device state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub number: u64,
    /// When it was begun; absent for the one that stood there when this device began to follow numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

impl Asked {
    /// Where a device begins that knows no number: nothing is done for one that nobody waits for any more.
    pub fn first(desired: &Desired) -> Self {
        Self { number: desired.envelope.policy.ask.as_ref().map_or(0, |ask| ask.number), at: None }
    }

    /// Whether it is to be answered: it is higher, or it was begun and a crash came before the answer.
    pub fn is_due(self, ask: &Ask, is_answered: bool, now: Timestamp) -> bool {
        let was_begun = self.at.is_some_and(|at| stands(at, now));
        ask.number > self.number || ask.number == self.number && was_begun && !is_answered
    }
}

/// What a device does for a number that is due and allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    Logs(DeploymentName),
    Diagnostics,
    /// Of one deployment, or of all.
    Retry(Option<DeploymentName>),
    Sync,
}

/// Why nothing is done for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undone {
    Refused(String),
    Failed(String),
}

/// What is to be done for it, if the site lets that; `answers` are those that stand.
pub fn task(
    ask: &Ask,
    remote: &Remote,
    (desired, known): (&Desired, &KnownNames),
    answers: &BTreeMap<u64, Answer>,
) -> Result<Task, Undone> {
    let refused = |text: String| Err(Undone::Refused(text));
    let Some(word) = AskedWord::parse(&ask.what) else {
        return refused(format!("this syncer doesn't know `{}`", ask.what));
    };
    let deployment = ask.deployment.as_ref();
    let is_allowed = match word {
        AskedWord::Logs => deployment.is_none_or(|name| remote.gives_logs(known.with(name, desired))),
        AskedWord::Diagnostics => remote.diagnostics,
        AskedWord::Retry => remote.retry,
        AskedWord::Sync => remote.sync,
    };
    if !is_allowed {
        return refused(format!("the site doesn't allow it: `remote: {word}` in the device's device.yaml"));
    }
    let given = answers.values().filter(|one| !one.is_refusal() && one.number != ask.number);
    let times: Vec<_> = given.map(|one| one.time).collect();
    if let Some(oldest) = times.iter().min().filter(|_| times.len() >= MOST) {
        let again = oldest.checked_add(LIFE).unwrap_or(*oldest);
        return refused(format!("{MOST} answers were given within 24 hours; ask again after {again:.0}"));
    }
    let is_wanted = |name: &DeploymentName| desired.envelope.deployments.values().any(|one| one.id == *name);
    if let Some(name) = deployment.filter(|name| !is_wanted(name)) {
        return Err(Undone::Failed(format!("no deployment `{name}` is wanted here")));
    }
    Ok(match (word, deployment) {
        (AskedWord::Logs, Some(name)) => Task::Logs(name.clone()),
        (AskedWord::Logs, None) => return refused("it names no deployment".to_owned()),
        (AskedWord::Diagnostics, _) => Task::Diagnostics,
        (AskedWord::Retry, name) => Task::Retry(name.cloned()),
        (AskedWord::Sync, _) => Task::Sync,
    })
}
