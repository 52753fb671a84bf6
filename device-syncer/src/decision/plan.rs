//! The decision: what is wanted against what is, as data. Nothing here acts.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::margo::ProfileType;
use repo_model::{ComponentName, DeploymentId, DeploymentName, Digest, ErrorCode};
use serde::Serialize;

use crate::decision::component::Component;
use crate::decision::deployment::{DesiredComponent, DesiredDeployment, Requirements, in_order};
use crate::decision::device_state::{AppliedComponent, DeviceState, Inputs};
use crate::decision::failure::Failure;
use crate::decision::observation::{Condition, Observed};

/// Everything that one pass would do, removals first.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Plan {
    /// What we own and is no longer wanted, in reverse order of its application.
    pub removals: Vec<Removal>,
    /// What would go, and stays for as long as the operator says so, or its runtime doesn't answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<Removal>,
    pub deployments: Vec<Planned>,
}

/// Something of ours that goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Removal {
    /// The deployment that it belongs to, if its labels still tell.
    pub deployment: Option<DeploymentId>,
    /// The operator's id of that deployment, if it is remembered.
    pub name: Option<DeploymentName>,
    /// The component, if its labels still tell.
    pub component: Option<ComponentName>,
    #[serde(rename = "type")]
    pub kind: ProfileType,
    /// The name under which the runtime knows it.
    pub project: String,
}

impl Removal {
    /// Whose status speaks of it.
    pub fn component(&self) -> Option<(DeploymentId, &ComponentName)> {
        Some((self.deployment?, self.component.as_ref()?))
    }
}

/// What happens to a wanted deployment.
#[derive(Debug, Clone, Serialize)]
pub struct Planned {
    /// Margo's `deploymentId`.
    pub id: DeploymentId,
    /// The operator's id of it.
    pub name: DeploymentName,
    pub components: Vec<PlannedComponent>,
}

/// What happens to a component.
#[derive(Debug, Clone, Serialize)]
pub struct PlannedComponent {
    pub name: ComponentName,
    /// The name under which the runtime knows it.
    pub project: String,
    /// What would be done.
    pub action: Action,
    /// What of it isn't as it should be, though it runs as wanted: to do anything wouldn't help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
}

/// What is done with a component.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// It runs as wanted.
    Keep,
    /// It is applied.
    Apply {
        reason: Reason,
        /// What runs it until now, if its type changed: that is removed before.
        #[serde(skip_serializing_if = "Option::is_none")]
        replaces: Option<ProfileType>,
        /// What the runtime gets.
        #[serde(skip)]
        input: Box<Component>,
    },
    /// It was applied, and what of it doesn't run any more is restored; nothing else of it is touched.
    Restore {
        /// What doesn't run.
        reason: String,
        /// What the runtime gets.
        #[serde(skip)]
        input: Box<Component>,
    },
    /// It is left alone, because this input can't succeed here.
    Fail(Failure),
    /// It would be applied, and waits for a gate to open.
    Wait(Failure),
    /// It is left alone, because its runtime doesn't answer: nothing is known of it.
    Unknown,
}

impl Action {
    /// Whether it changes anything on the device.
    fn is_done(&self) -> bool {
        matches!(self, Self::Apply { .. } | Self::Restore { .. })
    }
}

/// Why a component is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Nothing of it exists.
    New,
    /// Its inputs changed.
    Changed,
    /// It runs under another type.
    Retyped,
    /// It was applied, and at least one of its parts is gone.
    Missing,
    /// It was applied, and somebody changed a part of it.
    Edited,
    /// An apply began and didn't complete.
    HalfMade,
}

impl Plan {
    /// Makes actual equal desired: removals first, then deployments in order, components as listed.
    ///
    /// `wanted` is `None` before the first desired state was accepted: then nothing is known to be unwanted. Runtimes in
    /// `unreachable` don't answer: what is theirs is left alone.
    pub fn make(
        wanted: Option<&[DesiredDeployment]>,
        device_state: &DeviceState,
        observed: &[Observed],
        unreachable: &BTreeSet<ProfileType>,
    ) -> Self {
        let Some(wanted) = wanted else { return Self::default() };
        let observed = observed.iter().map(|found| ((found.kind, found.project.as_str()), found)).collect();
        let actual = Actual { device_state, observed, unreachable };
        let deployments = wanted.iter().map(|deployment| planned(deployment, &actual)).collect();
        let is_suspended = |id: DeploymentId| wanted.iter().any(|one| one.id == id && one.suspended);
        let stays = |gone: &Removal| unreachable.contains(&gone.kind) || gone.deployment.is_some_and(is_suspended);
        let all = removals(wanted, &actual).into_iter();
        let (held, removals) = all.partition(stays);
        Self { removals, held, deployments }
    }

    /// The plan as long as the operator wants the device left as it is, and as long as the fleet doesn't list its key.
    pub fn held_back(self, is_suspended: bool, is_unlisted: bool, device_state: &DeviceState) -> Self {
        let plan = if is_suspended { self.suspended() } else { self };
        if is_unlisted { plan.unlisted(device_state) } else { plan }
    }

    /// The plan of a device that was told to leave everything as it is.
    fn suspended(self) -> Self {
        self.waiting(Action::is_done, &Failure::new(ErrorCode::Suspended, "the operator suspended this device"))
    }

    /// The plan of a device that may adopt nothing new: what was applied is restored, and everything else waits.
    fn unlisted(self, device_state: &DeviceState) -> Self {
        let is_new = |action: &Action| match action {
            Action::Apply { input, .. } => device_state.applied_digest(&input.project) != Some(input.input_digest),
            _ => false,
        };
        self.waiting(is_new, &Failure::new(ErrorCode::Queued, "waits until the fleet lists this device's key again"))
    }

    /// Removes nothing, and lets these actions wait.
    fn waiting(mut self, waits: impl Fn(&Action) -> bool, why: &Failure) -> Self {
        self.held.append(&mut self.removals);
        for component in self.deployments.iter_mut().flat_map(|deployment| &mut deployment.components) {
            if waits(&component.action) {
                component.action = Action::Wait(why.clone());
            }
        }
        self
    }

    /// Whether applying it would change nothing on the device.
    pub fn is_in_sync(&self) -> bool {
        self.removals.is_empty() && !self.components().any(|component| component.action.is_done())
    }

    /// Whether nothing is to be done, nothing failed or waits, and what runs is well.
    pub fn is_as_wanted(&self) -> bool {
        let runs_well = |one: &PlannedComponent| matches!(one.action, Action::Keep) && one.degraded.is_none();
        self.removals.is_empty() && self.held.is_empty() && self.components().all(runs_well)
    }

    /// The inputs of everything that would be applied, in order.
    pub fn applies(&self) -> impl Iterator<Item = &Component> {
        self.components().filter_map(|component| match &component.action {
            Action::Apply { input, .. } => Some(input.as_ref()),
            _ => None,
        })
    }

    fn components(&self) -> impl Iterator<Item = &PlannedComponent> {
        self.deployments.iter().flat_map(|deployment| &deployment.components)
    }
}

/// What is, as far as it can be seen.
struct Actual<'a> {
    device_state: &'a DeviceState,
    observed: BTreeMap<(ProfileType, &'a str), &'a Observed>,
    unreachable: &'a BTreeSet<ProfileType>,
}

impl Actual<'_> {
    /// What there is under a component's name and type.
    fn found(&self, input: &Component) -> Option<&Observed> {
        self.observed.get(&(input.profile_type(), input.project.as_str())).copied()
    }

    /// Whether this very input was applied, so that an apply only makes it whole again.
    fn was_applied(&self, input: &Component) -> bool {
        let observed = self.found(input).and_then(|found| found.input_digest);
        [observed, self.device_state.applied_digest(&input.project)].contains(&Some(input.input_digest))
    }

    /// What runs a component, if it isn't this type.
    fn other(&self, kind: ProfileType, project: &str) -> Option<ProfileType> {
        let of_project = self.observed.keys().filter(|(_, found)| *found == project).map(|(kind, _)| *kind);
        of_project.chain(self.device_state.applied_kind(project)).find(|other| *other != kind)
    }
}

fn planned(wanted: &DesiredDeployment, actual: &Actual<'_>) -> Planned {
    let gated = |action| match &action {
        action if action.is_done() && wanted.suspended => {
            Action::Wait(Failure::new(ErrorCode::Suspended, "the operator suspended this deployment"))
        }
        // What was applied before is restored without being judged again.
        Action::Apply { input, .. } if !actual.was_applied(input) => match &wanted.requirements {
            Requirements::Met => action,
            Requirements::Unmet(lack) => Action::Fail(lack.clone()),
            Requirements::Unknown => {
                let text = "what this device has isn't known yet, because a runtime doesn't answer";
                Action::Wait(Failure::new(ErrorCode::RuntimeUnavailable, text))
            }
        },
        _ => action,
    };
    let component = |wanted: &DesiredComponent| {
        let action = gated(action(wanted, actual));
        let kept = wanted.input.as_ref().ok().filter(|_| matches!(action, Action::Keep));
        let degraded = kept.and_then(|input| actual.found(input)).and_then(Observed::trouble);
        PlannedComponent { name: wanted.name.clone(), project: wanted.project.clone(), action, degraded }
    };
    Planned { id: wanted.id, name: wanted.name.clone(), components: wanted.components.iter().map(component).collect() }
}

fn action(wanted: &DesiredComponent, actual: &Actual<'_>) -> Action {
    let input = match &wanted.input {
        Ok(input) => input,
        Err(failure) => return Action::Fail(failure.clone()),
    };
    let (kind, project) = (input.profile_type(), wanted.project.as_str());
    let replaces = actual.other(kind, project);
    if [Some(kind), replaces].into_iter().flatten().any(|kind| actual.unreachable.contains(&kind)) {
        return Action::Unknown;
    }
    let apply = |reason| Action::Apply { reason, replaces, input: Box::new(input.clone()) };
    match (actual.found(input), actual.device_state.failure(input)) {
        (Some(found), _) if replaces.is_none() && is_in_sync(found, input) => Action::Keep,
        (_, Some(failure)) => Action::Fail(failure.clone()),
        _ if replaces.is_some() => apply(Reason::Retyped),
        (Some(found), None) if is_restored(found, input) => {
            let reason = found.trouble().unwrap_or_default();
            Action::Restore { reason, input: Box::new(input.clone()) }
        }
        (Some(found), None) => apply(reason(found, input.input_digest)),
        (None, None) if actual.device_state.applied_digest(project).is_some() => apply(Reason::Missing),
        (None, None) => apply(Reason::New),
    }
}

fn is_in_sync(found: &Observed, input: &Component) -> bool {
    let is_edited = matches!(found.condition, Condition::Edited(_));
    found.input_digest == Some(input.input_digest) && !found.condition.is_drift() && !is_edited
}

/// Whether single services of what was applied are restored. Helm knows none: it makes the whole release again.
pub(crate) fn is_restored(found: &Observed, input: &Component) -> bool {
    found.kind == ProfileType::Compose && found.input_digest == Some(input.input_digest) && found.condition.is_drift()
}

fn reason(found: &Observed, wanted: Digest) -> Reason {
    match (found.input_digest, &found.condition) {
        (Some(digest), _) if digest != wanted => Reason::Changed,
        (Some(_), Condition::Edited(_)) => Reason::Edited,
        (Some(_), _) => Reason::Missing,
        (None, _) => Reason::HalfMade,
    }
}

/// Everything that was put onto the device and not removed since, in the order of its application.
fn removable(device_state: &DeviceState) -> Vec<Removal> {
    let mut all: Vec<_> = device_state.deployments.iter().map(|(id, applied)| (*id, &applied.inputs)).collect();
    all.sort_by(|(_, a), (_, b)| a.id.cmp(&b.id));
    let all = in_order(all, |(_, inputs)| &inputs.id, |(_, inputs)| &inputs.depends_on);
    let removals = |(id, inputs): (_, &Inputs)| {
        let removal = |component: &AppliedComponent| Removal {
            deployment: Some(id),
            name: Some(inputs.id.clone()),
            component: Some(component.name.clone()),
            kind: component.kind,
            project: component.project.clone(),
        };
        inputs.components.iter().map(removal).collect::<Vec<_>>()
    };
    all.into_iter().flat_map(removals).collect()
}

/// Everything of ours, remembered or observed, that isn't wanted: prune is the difference of two inventories.
fn removals(wanted: &[DesiredDeployment], actual: &Actual<'_>) -> Vec<Removal> {
    let keep: BTreeSet<_> = wanted
        .iter()
        .flat_map(|deployment| &deployment.components)
        .map(|component| component.project.as_str())
        .collect();
    let mut gone = removable(actual.device_state);
    gone.retain(|removal| !keep.contains(removal.project.as_str()));
    gone.reverse();
    let known: BTreeSet<_> = gone.iter().map(|removal| (removal.kind, removal.project.clone())).collect();
    let forgotten = actual
        .observed
        .values()
        .filter(|found| !keep.contains(found.project.as_str()) && !known.contains(&(found.kind, found.project.clone())))
        .map(|found| Removal {
            deployment: found.deployment,
            name: None,
            component: found.component.clone(),
            kind: found.kind,
            project: found.project.clone(),
        });
    gone.extend(forgotten);
    gone
}

#[cfg(test)]
mod tests;
