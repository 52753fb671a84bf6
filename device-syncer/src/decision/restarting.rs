//! What began of the restarts that are asked for, and which requests of persons count. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use repo_model::margo::ProfileType;
use repo_model::report::{Condition, ConditionType, Reason};
use repo_model::{DeploymentName, IntoMap};

use super::component::Component;
use super::conditions::condition;
use super::deployment::DesiredDeployment;
use super::device_state::DeviceState;
use super::gates::{Change, Gates, Subject};
use super::restart::{RestartCause, Restarts, RestartsAsked, Started};

/// What a person asked for and couldn't be begun for so long isn't done at a moment that nobody expects.
const REQUEST: SignedDuration = SignedDuration::from_mins(15);

/// A person's request that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestOver {
    pub deployment: DeploymentName,
    pub at: Timestamp,
    /// Why nothing came of it; `None` where it was done.
    pub refused: Option<&'static str>,
}

impl RestartCause {
    /// What gates are asked for it.
    pub fn change(self) -> Change {
        match self {
            Self::Unfinished => Change::Finish,
            Self::Fleet(_) => Change::Restart,
            Self::Person(_) => Change::RestartHere,
        }
    }
}

impl DeviceState {
    /// Who asks for a restart of this, if it is to be done; a person's request counts only where the site holds nothing.
    pub fn restart_due(&self, project: &str, asked: RestartsAsked, may_here: bool) -> Option<RestartCause> {
        static NONE: Restarts = Restarts { number: 0, done: 0, here: None, left: BTreeMap::new() };
        self.restarts.get(project).unwrap_or(&NONE).due(asked, may_here)
    }

    /// What is newly installed begins with what is asked for by then: it has just been started.
    pub fn has_just_started(&mut self, project: &str, asked: RestartsAsked) {
        if asked != RestartsAsked::default() {
            let begins = Restarts { number: asked.number, done: 0, here: asked.here, left: BTreeMap::new() };
            self.restarts.insert(project.to_owned(), begins);
        }
    }

    /// Notes that a restart begins, or goes on, with these containers there. Returns those that are to be restarted, in their
    /// order.
    pub fn begin_restart(&mut self, project: &str, cause: RestartCause, there: &[Started]) -> Vec<String> {
        let restarts = self.restarts.entry(project.to_owned()).or_default();
        match cause {
            RestartCause::Unfinished => {
                restarts.left.retain(|id, at| there.iter().any(|one| one.container == *id && one.at == *at));
            }
            RestartCause::Fleet(number) => restarts.number = number,
            RestartCause::Person(at) => restarts.here = Some(at),
        }
        if cause != RestartCause::Unfinished {
            let running = there.iter().filter(|one| one.runs);
            restarts.left = running.map(|one| (one.container.clone(), one.at.clone())).into_map();
        }
        let left = there.iter().filter(|one| restarts.left.contains_key(&one.container));
        left.map(|one| one.container.clone()).collect()
    }

    /// Notes that nothing of a restart is left to do: it is at its end, or what it was of is made anew.
    pub fn end_restart(&mut self, project: &str) {
        if let Some(restarts) = self.restarts.get_mut(project) {
            restarts.left.clear();
        }
    }

    /// Notes that this runs as a whole: unless a restart goes on, all that began are at their end, and so is what it was installed with.
    pub fn has_restarted(&mut self, project: &str) {
        if let Some(restarts) = self.restarts.get_mut(project).filter(|restarts| restarts.left.is_empty()) {
            restarts.done = restarts.number;
        }
    }

    /// Whether a restart of this began and isn't at its end: what it stopped is no drift.
    pub fn is_restarting(&self, project: &str) -> bool {
        self.restarts.get(project).is_some_and(|restarts| !restarts.left.is_empty())
    }

    fn has_restarted_here(&self, one: &DesiredDeployment, at: Timestamp) -> bool {
        compose_projects(one).all(|project| {
            let restarts = self.restarts.get(project);
            restarts.is_some_and(|restarts| restarts.here == Some(at) && restarts.left.is_empty())
        })
    }
}

/// The restarts that the fleet asks for, where the site doesn't let it.
pub fn refused(wanted: &[DesiredDeployment], state: &DeviceState) -> impl Iterator<Item = Condition> {
    wanted.iter().filter_map(|one| {
        let begun = |project: &str| state.restarts.get(project).map_or(0, |restarts| restarts.number);
        let number = one.restarts.number;
        compose_projects(one).any(|project| number > begun(project)).then(|| {
            let text = format!(
                "restart {number} of `{}` isn't done: the site doesn't allow it (`remote: restart` in the device's device.yaml)",
                one.name
            );
            condition(ConditionType::RequestRefused, Reason::NotAllowed, text)
        })
    })
}

/// Lets what persons at the device asked for count, and returns those requests that are over: done, refused, or too old.
pub fn ask(
    requests: &BTreeMap<DeploymentName, Timestamp>,
    wanted: &mut [DesiredDeployment],
    state: &DeviceState,
    gates: &Gates,
    now: Timestamp,
) -> Vec<RequestOver> {
    let mut over = Vec::new();
    for (deployment, at) in requests {
        let found = wanted.iter_mut().find(|one| one.name == *deployment);
        let refused = match &found {
            None => Some("no deployment of this id is wanted here"),
            Some(one) if compose_projects(one).next().is_none() => Some("charts aren't restarted"),
            Some(one) if state.has_restarted_here(one, *at) => {
                over.push(RequestOver { deployment: deployment.clone(), at: *at, refused: None });
                continue;
            }
            Some(one) if gates.closed(Change::RestartHere, subject(one)).is_some() => {
                Some("the site holds it: `device-syncer release` first")
            }
            Some(_) if now.duration_since(*at).abs() > REQUEST => Some("it couldn't be done within 15 minutes"),
            Some(_) => None,
        };
        match (refused, found) {
            (None, Some(one)) => one.restarts.here = Some(*at),
            _ => over.push(RequestOver { deployment: deployment.clone(), at: *at, refused }),
        }
    }
    over
}

fn subject(one: &DesiredDeployment) -> Subject<'_> {
    let (deployment, name) = (Some(one.id), Some(&one.name));
    Subject { deployment, name, is_suspended: one.suspended, drift: one.drift, change: None }
}

fn compose_projects(one: &DesiredDeployment) -> impl Iterator<Item = &str> {
    let is_compose = |input: &Component| input.profile_type() == ProfileType::Compose;
    one.components
        .iter()
        .filter(move |part| part.input.as_ref().is_ok_and(is_compose))
        .map(|part| part.project.as_str())
}

#[cfg(test)]
mod tests;
