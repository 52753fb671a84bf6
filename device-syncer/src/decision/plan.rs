//! The decision: what is wanted against what is, as data. Nothing here acts.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::envelope::DriftPolicy;
use repo_model::margo::ProfileType;
use repo_model::{ComponentName, DeploymentId, DeploymentName, Digest, ErrorCode, IntoMap, IntoSet, sort_few};
use serde::Serialize;

use crate::decision::approval::ChangeSet;
use crate::decision::component::Component;
use crate::decision::deployment::{DesiredComponent, DesiredDeployment, Requirements, in_order};
use crate::decision::device_state::{AppliedComponent, DeviceState, Inputs};
use crate::decision::failure::Failure;
use crate::decision::fetched::{self, Fetched};
use crate::decision::gates::{Change, Gates, Subject};
use crate::decision::hook::HookChange;
use crate::decision::observation::{Condition, Observed};
use crate::decision::restart::RestartCause;

/// Everything that one pass would do, removals first.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Plan {
    /// What we own and is no longer wanted, in reverse order of its application.
    pub removals: Vec<Removal>,
    /// What would go, and stays for as long as a gate is closed, or its runtime doesn't answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldRemoval>,
    pub deployments: Vec<Planned>,
    /// What each deployment's change comes to, of those that are wanted, and of those that go.
    #[serde(skip)]
    pub changes: BTreeMap<DeploymentId, ChangeSet>,
    /// The deployments that go as a whole though no person has seen it, where the site limits that.
    #[serde(skip)]
    pub unseen: BTreeSet<DeploymentId>,
    /// What the site's hook has to allow, and nothing else holds back.
    #[serde(skip)]
    pub asks: BTreeMap<DeploymentId, HookChange>,
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
    /// What `status` reports it under; `None` if its labels don't tell both.
    pub fn component(&self) -> Option<(DeploymentId, &ComponentName)> {
        Some((self.deployment?, self.component.as_ref()?))
    }
}

/// Something of ours that would go, and stays for now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldRemoval {
    #[serde(flatten)]
    pub removal: Removal,
    pub why: Failure,
    /// What of it doesn't run, and is put back while it stays.
    #[serde(rename = "putBack", skip_serializing_if = "Option::is_none")]
    pub put_back: Option<PutBack>,
    /// Whether its deployment began, which is brought to its end.
    #[serde(skip)]
    pub has_begun: bool,
}

impl HeldRemoval {
    /// Why it waits, where a gate is closed. Of what a runtime that doesn't answer has, nothing is known.
    pub fn gate(&self) -> Option<&Failure> {
        Some(&self.why).filter(|why| why.code != ErrorCode::RuntimeUnavailable)
    }
}

/// What happens to a wanted deployment.
#[derive(Debug, Clone, Serialize)]
pub struct Planned {
    /// Margo's `deploymentId`.
    pub id: DeploymentId,
    /// The operator's id of it.
    pub name: DeploymentName,
    /// Whether it is changed with what is here, and nothing is fetched for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub from_here: bool,
    /// What becomes of what is fetched for it at this moment.
    #[serde(skip)]
    pub fetching: Fetching,
    /// Whether nothing of it is put back, whatever is said of drift: it is held or suspended.
    #[serde(skip)]
    pub is_held: bool,
    pub components: Vec<PlannedComponent>,
}

/// What becomes of fetching that is at work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fetching {
    /// It goes on to the end of its deployment.
    #[default]
    GoesOn,
    /// It ends with the component that is being fetched.
    EndsWithComponent,
    /// What is fetched ahead ends at once.
    Ends,
}

/// What happens to a component.
#[derive(Debug, Clone, Serialize)]
pub struct PlannedComponent {
    pub name: ComponentName,
    /// The name under which the runtime knows it.
    pub project: String,
    pub action: Action,
    /// Whether what it needs is fetched while it waits.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ahead: bool,
    /// What of it was applied and doesn't run, though another input is wanted by now: that is put back first.
    #[serde(rename = "putBack", skip_serializing_if = "Option::is_none")]
    pub put_back: Option<PutBack>,
    /// What of it isn't as it should be, though it runs as wanted: to do anything wouldn't help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
    /// Whether it is of what began, or is put back, so that it is brought to its end without asking anybody again.
    #[serde(skip)]
    pub has_begun: bool,
    /// Whether a gate is closed for it, where its runtime doesn't answer.
    #[serde(skip)]
    pub is_closed: bool,
}

/// What is done with a component.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// It runs as wanted.
    Keep,
    /// It is installed, or updated.
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
        /// What of it doesn't run, in the runtime's words.
        reason: String,
        /// What the runtime gets.
        #[serde(skip)]
        input: Box<Component>,
    },
    /// It runs as wanted, and its running containers are restarted as they are.
    Restart {
        cause: RestartCause,
        /// What the runtime gets.
        #[serde(skip)]
        input: Box<Component>,
    },
    /// The device goes down with it: what runs of it is removed, and it is given up or tried alone. A release stays.
    TakeDown {
        /// What is said of it from then on.
        why: Failure,
        /// What the runtime has.
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
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Apply { .. } | Self::Restore { .. } | Self::Restart { .. } | Self::TakeDown { .. })
    }
}

/// Why a component is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Nothing of it exists.
    New,
    /// Its input digest isn't the applied one any more.
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
    /// Makes actual equal desired, as far as gates are open: removals first, then deployments in order, components as
    /// listed.
    ///
    /// `wanted` is `None` before the first desired state was accepted: then nothing is known to be unwanted. Runtimes in
    /// `unreachable` don't answer: what is theirs is left alone.
    pub fn make(
        wanted: Option<&[DesiredDeployment]>,
        device_state: &DeviceState,
        observed: &[Observed],
        unreachable: &BTreeSet<ProfileType>,
        gates: &Gates,
    ) -> Self {
        let Some(wanted) = wanted else { return Self::default() };
        let observed = observed.iter().map(|found| ((found.kind, found.project.as_str()), found)).into_map();
        let actual = Actual { device_state, observed, unreachable };
        let removals = removals(wanted, &actual);
        let changes = changes(wanted, &removals);
        let mut plan = Self::default();
        for deployment in wanted {
            let (planned, asks) = planned(deployment, &changes[&deployment.id], &actual, gates);
            plan.asks.extend(asks.map(|change| (deployment.id, change)));
            plan.deployments.push(planned);
        }
        plan.changes = changes;
        let (going, limit) = (going(&removals, wanted), gates.removals.as_ref());
        let recent = limit.map(|limit| &limit.recent);
        let gates = gates.with_going(going.clone(), actual.deployments(recent), &plan.changes);
        for removal in removals {
            let (why, asks) = stays(&removal, wanted, &plan.changes, unreachable, &gates);
            if let Some(id) = removal.deployment.filter(|_| asks) {
                plan.asks.entry(id).or_insert(HookChange::Remove);
            }
            match why {
                Some(why) => {
                    let put_back = stays_as_it_is(&removal, wanted, &actual, &gates);
                    let of = wanted.iter().find(|one| Some(one.id) == removal.deployment);
                    let has_begun = of.is_some_and(|of| is_finished(update(of, &actual)));
                    plan.held.push(HeldRemoval { removal, why, put_back, has_begun });
                }
                None => plan.removals.push(removal),
            }
        }
        if limit.is_some() {
            let goes = plan.removals.iter().filter_map(|removal| removal.deployment);
            let unseen = goes.filter(|id| going.contains(id) && !gates.lets_go(*id, &plan.changes));
            plan.unseen = unseen.into_set();
        }
        plan
    }

    /// Whether there were some of these, and none of them is left to be removed.
    pub fn has_removed(&self, deployments: &BTreeSet<DeploymentId>) -> bool {
        let held = self.held.iter().map(|held| &held.removal);
        let mut left = self.removals.iter().chain(held).filter_map(|removal| removal.deployment);
        !deployments.is_empty() && !left.any(|id| deployments.contains(&id))
    }

    /// Whether anything of ours is still there that isn't wanted any more, whatever keeps it.
    pub fn has_removals(&self) -> bool {
        !self.removals.is_empty() || !self.held.is_empty()
    }

    /// Whether applying it would change nothing on the device.
    pub fn is_in_sync(&self) -> bool {
        let is_put_back = self.put_back().next().is_some();
        self.removals.is_empty() && !is_put_back && !self.components().any(|component| component.action.is_done())
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

    /// What happens to a deployment that is wanted.
    pub fn planned(&self, of: DeploymentId) -> Option<&Planned> {
        self.deployments.iter().find(|one| one.id == of)
    }

    /// What a gate is closed for and nobody can see now, under the names under which the runtimes know it.
    pub fn closed_unseen(&self) -> impl Iterator<Item = &str> {
        self.components().filter(|component| component.is_closed).map(|component| component.project.as_str())
    }

    /// What waits, under the names under which the runtimes know it.
    pub fn waiting(&self) -> impl Iterator<Item = &str> {
        let waits = self.components().filter(|component| matches!(component.action, Action::Wait(_)));
        let stays = self.held.iter().map(|held| held.removal.project.as_str());
        waits.map(|component| component.project.as_str()).chain(stays)
    }

    /// What was applied and doesn't run, where something else is wanted by now.
    pub(crate) fn put_back(&self) -> impl Iterator<Item = &PutBack> {
        let parts = self.components().filter_map(|component| component.put_back.as_ref());
        parts.chain(self.held.iter().filter_map(|held| held.put_back.as_ref()))
    }

    fn components(&self) -> impl Iterator<Item = &PlannedComponent> {
        self.deployments.iter().flat_map(|deployment| &deployment.components)
    }
}

/// What is, as far as it can be observed.
struct Actual<'a> {
    device_state: &'a DeviceState,
    observed: BTreeMap<(ProfileType, &'a str), &'a Observed>,
    unreachable: &'a BTreeSet<ProfileType>,
}

impl Actual<'_> {
    /// How many deployments are here, as far as that is known, or were until lately.
    fn deployments(&self, recent: Option<&BTreeSet<DeploymentId>>) -> usize {
        let seen = self.observed.values().filter_map(|found| found.deployment);
        let all = self.device_state.deployments.keys().copied().chain(seen);
        all.chain(recent.into_iter().flatten().copied()).into_set().len()
    }

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

    /// What is done about drift of a component of which this is said: what has to come back whatever is said is healed.
    fn drift_of(&self, project: &str, said: DriftPolicy) -> DriftPolicy {
        if self.device_state.is_put_back_anyway(project) { DriftPolicy::Heal } else { said }
    }
}

/// What is done with a deployment, and whether the site's hook has the last word on something of it.
fn planned(
    wanted: &DesiredDeployment,
    set: &ChangeSet,
    actual: &Actual<'_>,
    gates: &Gates,
) -> (Planned, Option<HookChange>) {
    let components = |drift| components(wanted, set, actual, gates, drift);
    let update = update(wanted, actual);
    let is_update = |part: &PlannedComponent| {
        matches!(
            change(&part.action, actual, update),
            Some(Change::Apply | Change::Renew | Change::Finish | Change::RollBack)
        )
    };
    let (parts, asks) = components(wanted.drift.max(gates.drift));
    // A newer set is applied as a whole, whatever drifted before.
    let (components, asks) = if parts.iter().any(is_update) { components(DriftPolicy::Heal) } else { (parts, asks) };
    let subject = subject(wanted, set, DriftPolicy::Heal);
    let mut changes = components.iter().filter_map(|part| change(&part.action, actual, update));
    let from_here =
        changes.any(is_fetched_apart) && gates.fetches_ahead(subject) && gates.closed(Change::Fetch, subject).is_some();
    let fetching = match gates.closed(Change::FetchOn, subject) {
        None => Fetching::GoesOn,
        Some(why) if why.code == ErrorCode::WaitingWindow => Fetching::EndsWithComponent,
        Some(_) => Fetching::Ends,
    };
    let is_held = gates.closed(Change::Restore, subject).is_some();
    let mut planned = Planned { id: wanted.id, name: wanted.name.clone(), from_here, fetching, is_held, components };
    let asks = if asks { Some(HookChange::Apply) } else { restart(&mut planned, wanted, set, actual, gates) };
    (planned, asks)
}

/// Restarts what runs as wanted, once nothing else is to be done with the deployment. Returns what the site's hook has the
/// last word on.
fn restart(
    planned: &mut Planned,
    wanted: &DesiredDeployment,
    set: &ChangeSet,
    actual: &Actual<'_>,
    gates: &Gates,
) -> Option<HookChange> {
    if !planned.components.iter().all(|part| matches!(part.action, Action::Keep | Action::Fail(_))) {
        return None;
    }
    let subject = subject(wanted, set, DriftPolicy::Heal);
    let may_here = gates.closed(Change::RestartHere, subject).is_none();
    let mut asks = None;
    for (part, one) in planned.components.iter_mut().zip(&wanted.components) {
        let Ok(input) = &one.input else { continue };
        if !matches!(part.action, Action::Keep) || input.profile_type() != ProfileType::Compose {
            continue;
        }
        let Some(cause) = actual.device_state.restart_due(&one.project, wanted.restarts, may_here) else { continue };
        if gates.refuses_restarts && matches!(cause, RestartCause::Fleet(_)) {
            continue;
        }
        let closed = gates.closed(cause.change(), subject);
        if gates.asks_hook(cause.change(), subject) {
            asks = Some(HookChange::Restart);
        }
        part.has_begun = is_finished(cause.change());
        part.action = match closed {
            Some(why) => Action::Wait(Failure { message: format!("{cause}: {}", why.message), ..why }),
            None => Action::Restart { cause, input: Box::new(input.clone()) },
        };
    }
    asks
}

fn components(
    wanted: &DesiredDeployment,
    set: &ChangeSet,
    actual: &Actual<'_>,
    gates: &Gates,
    drift: DriftPolicy,
) -> (Vec<PlannedComponent>, bool) {
    let subject = subject(wanted, set, drift);
    let update = update(wanted, actual);
    let may_fetch = gates.fetches_ahead(subject) && gates.closed(Change::Fetch, subject).is_none();
    let subject_of = |project: &str| Subject { drift: actual.drift_of(project, drift), ..subject };
    let mut asks = false;
    // With whether what it needs is fetched while it waits.
    let mut gated = |action: Action, project: &str| {
        let subject = subject_of(project);
        let change = change(&action, actual, update);
        let possible = required(action, wanted, actual);
        let Some(change) = change else { return (possible, false) };
        let needs = match &possible {
            Action::Apply { input, .. } if is_fetched_apart(change) => Some(input.input_digest),
            _ => None,
        };
        let asks_hook = gates.asks_hook(change, subject);
        match gates.closed(change, subject) {
            Some(why) if !asks_hook => {
                let Some(input) = needs.filter(|_| may_fetch) else { return (Action::Wait(why), false) };
                let known = gates.fetched.get(&input);
                (Action::Wait(with_failure(why, known)), known != Some(&Fetched::Here))
            }
            by_hook if possible.is_done() => {
                if let Some(why) = needs.and_then(|input| gates.lacks(input, subject)) {
                    return (Action::Wait(why), false);
                }
                asks |= asks_hook;
                (by_hook.map_or(possible, Action::Wait), false)
            }
            _ => (possible, false),
        }
    };
    let (is_rolled_back, said_of_drift) = (wanted.rolled_back.is_some(), wanted.drift);
    let said = |action: Action| match action {
        Action::Fail(failure) => Action::Fail(actual.device_state.explained(wanted, wanted.final_failure(failure))),
        other => other,
    };
    let component = |wanted: &DesiredComponent| {
        let action = action(wanted, actual);
        let unseen = matches!(action, Action::Unknown).then(|| unseen(wanted, actual, update));
        let has_begun = change(&action, actual, update).or(unseen).is_some_and(is_finished);
        let is_closed = unseen.is_some_and(|change| gates.closed(change, subject_of(&wanted.project)).is_some());
        let (action, ahead) = gated(action, &wanted.project);
        let action = said(action);
        let kept = wanted.input.as_ref().ok().filter(|_| matches!(action, Action::Keep));
        let degraded = kept.and_then(|input| actual.found(input)).and_then(Observed::trouble);
        // What failed isn't put back before what ran well.
        let put_back = if is_rolled_back {
            None
        } else {
            actual.put_back(&wanted.project, wanted.input.as_ref().ok(), said_of_drift, (subject, gates))
        };
        let (name, project) = (wanted.name.clone(), wanted.project.clone());
        PlannedComponent { name, project, action, ahead, put_back, degraded, has_begun, is_closed }
    };
    let components = wanted.components.iter().map(component).collect();
    (components, asks)
}

/// What gates are asked about of a deployment.
fn subject<'a>(wanted: &'a DesiredDeployment, set: &'a ChangeSet, drift: DriftPolicy) -> Subject<'a> {
    let (deployment, name) = (Some(wanted.id), Some(&wanted.name));
    Subject { deployment, name, is_suspended: wanted.suspended, drift, change: Some(set) }
}

/// Why something waits, with why what it needs can't be fetched meanwhile.
fn with_failure(why: Failure, known: Option<&Fetched>) -> Failure {
    match known {
        Some(Fetched::Failed { reason, .. }) => {
            Failure::new(why.code.as_str(), format!("{}{}{reason}", why.message, fetched::FAILED))
        }
        _ => why,
    }
}

/// Whether what this change needs is fetched in windows of its own. What is put back ran here before, and half of a
/// deployment is worse than what is fetched late.
fn is_fetched_apart(change: Change) -> bool {
    matches!(change, Change::Apply | Change::Renew)
}

/// What an apply of a deployment is for gates: what began is brought to its end, and what the site changed itself is told apart.
fn update(wanted: &DesiredDeployment, actual: &Actual<'_>) -> Change {
    match actual.device_state {
        _ if wanted.rolled_back.is_some() => Change::RollBack,
        state if state.has_begun(wanted) => Change::Finish,
        state if state.differs_by_files_only(wanted) => Change::Renew,
        _ => Change::Apply,
    }
}

/// The change that gates are asked for.
fn change(action: &Action, actual: &Actual<'_>, update: Change) -> Option<Change> {
    match action {
        Action::Apply { reason: Reason::Edited, .. } => Some(Change::Revert),
        Action::Apply { replaces: None, input, .. } if actual.was_applied(input) => Some(Change::Restore),
        Action::Apply { .. } => Some(update),
        Action::Restore { .. } | Action::TakeDown { .. } => Some(Change::Restore),
        Action::Restart { cause, .. } => Some(cause.change()),
        Action::Keep | Action::Fail(_) | Action::Wait(_) | Action::Unknown => None,
    }
}

/// The same of what nobody can see now, as the device state tells.
fn unseen(wanted: &DesiredComponent, actual: &Actual<'_>, update: Change) -> Change {
    let applied = actual.device_state.applied_digest(&wanted.project);
    let is_applied = wanted.input.as_ref().is_ok_and(|input| applied == Some(input.input_digest));
    match is_applied {
        true if actual.device_state.is_restarting(&wanted.project) => Change::Finish,
        true => Change::Restore,
        false => update,
    }
}

/// Whether this brings to its end, or back, what began.
fn is_finished(change: Change) -> bool {
    matches!(change, Change::Finish | Change::RollBack)
}

/// What is done, if the device has what is asked for. What was applied before is restored without being judged again.
fn required(action: Action, wanted: &DesiredDeployment, actual: &Actual<'_>) -> Action {
    match &action {
        Action::Apply { input, .. } if !actual.was_applied(input) => match &wanted.requirements {
            Requirements::Met => action,
            Requirements::Unmet(lack) => Action::Fail(lack.clone()),
            Requirements::Unknown => {
                let text = "what this device has isn't known yet, because a runtime doesn't answer";
                Action::Wait(Failure::new(ErrorCode::RuntimeUnavailable, text))
            }
        },
        _ => action,
    }
}

/// The deployments that would go as a whole.
fn going(removals: &[Removal], wanted: &[DesiredDeployment]) -> BTreeSet<DeploymentId> {
    let all = removals.iter().filter_map(|removal| removal.deployment);
    all.filter(|id| !wanted.iter().any(|one| one.id == *id)).into_set()
}

/// What each deployment's change comes to, of those that are wanted, and of those that go.
fn changes(wanted: &[DesiredDeployment], removals: &[Removal]) -> BTreeMap<DeploymentId, ChangeSet> {
    let mut changes: BTreeMap<_, _> = wanted.iter().map(|one| (one.id, ChangeSet::of(one))).into_map();
    for removal in removals {
        if let Some(id) = removal.deployment {
            changes.entry(id).or_insert(ChangeSet::removal(id)).going.insert(removal.project.clone());
        }
    }
    changes
}

/// Why something that isn't wanted stays for now, if it does; and whether the site's hook has the last word.
fn stays(
    gone: &Removal,
    wanted: &[DesiredDeployment],
    changes: &BTreeMap<DeploymentId, ChangeSet>,
    unreachable: &BTreeSet<ProfileType>,
    gates: &Gates,
) -> (Option<Failure>, bool) {
    let of = wanted.iter().find(|one| Some(one.id) == gone.deployment);
    let name = gone.name.as_ref().or(of.map(|of| &of.name));
    let (is_suspended, change) = (of.is_some_and(|of| of.suspended), gone.deployment.and_then(|id| changes.get(&id)));
    let drift = DriftPolicy::Heal;
    let subject = Subject { deployment: gone.deployment, name, is_suspended, drift, change };
    let no_answer = || Failure::new(ErrorCode::RuntimeUnavailable, "its runtime doesn't answer");
    let is_rolled_back = of.is_some_and(|of| of.rolled_back.is_some());
    let what = if is_rolled_back { Change::RollBack } else { Change::Remove };
    let why = gates.closed(what, subject).or_else(|| unreachable.contains(&gone.kind).then(no_answer));
    (why, !unreachable.contains(&gone.kind) && gates.asks_hook(what, subject))
}

/// What is put back of something that isn't wanted, while it stays.
fn stays_as_it_is(gone: &Removal, wanted: &[DesiredDeployment], actual: &Actual<'_>, gates: &Gates) -> Option<PutBack> {
    let id = gone.deployment?;
    let of = wanted.iter().find(|one| one.id == id);
    if of.is_some_and(|one| one.rolled_back.is_some()) {
        return None;
    }
    let applied = actual.device_state.deployments.get(&id).map(|applied| applied.inputs.drift);
    let drift = of.map(|one| one.drift).or(applied).unwrap_or_default();
    let (name, is_suspended) = (gone.name.as_ref(), of.is_some_and(|one| one.suspended));
    let subject = Subject { deployment: Some(id), name, is_suspended, drift, change: None };
    actual.put_back(&gone.project, None, drift, (subject, gates))
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
    let (found, failure) = (actual.found(input), actual.device_state.failure(input));
    // Also where nothing of it is found: a crash may have come between its removal and the word of that.
    if failure.is_none()
        && replaces.is_none()
        && let Some(why) = actual.device_state.why_taken_down(input)
    {
        return Action::TakeDown { why, input: Box::new(input.clone()) };
    }
    match (found, failure) {
        // It was applied as it is wanted, and was found only then to break the site's policy or to take the device down.
        (Some(_), Some(failure))
            if [ErrorCode::PolicyDenied, ErrorCode::CrashLoop].iter().any(|code| failure.code == *code) =>
        {
            Action::Fail(failure.clone())
        }
        (Some(found), _) if replaces.is_none() && is_in_sync(found, input) => Action::Keep,
        (_, Some(failure)) => Action::Fail(failure.clone()),
        _ if replaces.is_some() => apply(Reason::Retyped),
        (Some(Observed { input_digest, violation: Some(why), .. }), None)
            if *input_digest == Some(input.input_digest) =>
        {
            let text = format!("it isn't put back, because the site doesn't admit it any more: {why}");
            Action::Fail(Failure::new(ErrorCode::PolicyDenied, text))
        }
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
    sort_few(&mut all, |(_, a), (_, b)| a.id.cmp(&b.id));
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
    let keep = wanted
        .iter()
        .flat_map(|deployment| &deployment.components)
        .map(|component| component.project.as_str())
        .into_set();
    let mut gone = removable(actual.device_state);
    gone.retain(|removal| !keep.contains(removal.project.as_str()));
    gone.reverse();
    let known = gone.iter().map(|removal| (removal.kind, removal.project.clone())).into_set();
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

/// What the site's hook is asked.
mod asks;
mod put_back;
pub use put_back::PutBack;
pub(crate) use put_back::applied;

#[cfg(test)]
mod tests;
