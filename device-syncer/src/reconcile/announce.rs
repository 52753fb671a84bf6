//! Reports a plan before anything of it begins: what goes, what runs, what can't, what is queued, and what waits.

use repo_model::margo::State;
use repo_model::{ComponentName, DeploymentId, DeploymentName, Digest, ErrorCode};

use crate::decision::component::Component;
use crate::decision::deployment::{DesiredComponent, DesiredDeployment};
use crate::decision::device_state::AppliedComponent;
use crate::decision::failure::{Failure, shown};
use crate::decision::plan::{Action, Plan, Planned, PlannedComponent};
use crate::decision::status::Reported;
use crate::reconcile::jobs::AtWork;
use crate::state::shared::Transaction;

impl Transaction<'_> {
    /// Notes whether anything is left to be removed. When that has gone, whatever failed meanwhile is tried at once.
    pub(super) fn note_removals(&mut self, plan: &Plan) {
        let was_left = std::mem::replace(&mut self.state.removals_are_left, plan.has_removals());
        self.state.removals_are_held = plan.removals.is_empty() && plan.held.iter().all(|held| held.gate().is_some());
        if was_left && !plan.has_removals() {
            self.state.retries.clear();
        }
    }

    /// Says what is known before the first effect. What is at work says for itself how far it is, but not that it is installed any more
    /// where something else is wanted by now.
    pub(super) fn announce(&mut self, plan: &Plan, wanted: &[DesiredDeployment], at_work: &AtWork) {
        for removal in &plan.removals {
            let Some((id, name)) = removal.component() else { continue };
            if at_work.works_on(&removal.project) && !self.says_installed(id, name) {
                continue;
            }
            if self.report.get(id, name).is_none_or(|now| now.state != State::Removing || now.waits_at_a_gate()) {
                self.report.set(id, name, State::Removing, None);
            }
        }
        for held in &plan.held {
            let Some(((id, name), why)) = held.removal.component().zip(held.gate()) else { continue };
            if at_work.works_on(&held.removal.project) && !self.says_installed(id, name) {
                continue;
            }
            self.report.explain(id, name, State::Removing, why.clone());
        }
        self.report.forget_unknown(plan);
        for (planned, wanted) in plan.deployments.iter().zip(wanted) {
            for (component, of) in planned.components.iter().zip(&wanted.components) {
                let is_kept = matches!(component.action, Action::Keep) || self.is_applied(of);
                let is_outdated = !is_kept && self.says_installed(planned.id, &component.name);
                if at_work.works_on(&component.project) && !is_outdated {
                    continue;
                }
                match &component.action {
                    Action::Keep => self.keep(wanted, component),
                    Action::Fail(failure) => {
                        self.report.set(planned.id, &component.name, State::Failed, Some(failure.clone()));
                    }
                    Action::Wait(_) if wanted.rolled_back.is_some() => self.await_rollback(wanted, component),
                    Action::Wait(reason) => {
                        self.report.explain(planned.id, &component.name, State::Pending, reason.clone());
                    }
                    Action::Unknown => self.await_runtime(wanted, component),
                    Action::Restore { .. } | Action::Restart { .. } | Action::TakeDown { .. } => {}
                    // What is rolled back keeps its state until that is done, and what goes because its type changed until it is gone.
                    Action::Apply { .. } if wanted.rolled_back.is_some() => {}
                    Action::Apply { replaces: Some(_), input, .. } if self.is_going(input) => {}
                    Action::Apply { input, .. } => self.queue(input, at_work),
                }
            }
            self.report.arrange(wanted);
        }
    }

    /// What runs as wanted is installed, also if a killed syncer couldn't say so any more; not so what stops again and again.
    fn keep(&mut self, wanted: &DesiredDeployment, component: &PlannedComponent) {
        if self.state.restores.is_unsteady(&component.project) {
            self.state.retries.succeeded(&component.project);
            return;
        }
        let input = wanted.components.iter().find(|wanted| wanted.project == component.project);
        if let Some(Ok(input)) = input.map(|wanted| &wanted.input) {
            self.succeeded(wanted, input);
        }
    }

    /// What isn't known to run keeps its state, but for `installed`, which is said of the input that is wanted now and of no other.
    fn await_runtime(&mut self, wanted: &DesiredDeployment, component: &PlannedComponent) {
        let of = wanted.components.iter().find(|one| one.project == component.project);
        let is_applied = of.is_some_and(|of| self.is_applied(of));
        let now = self.report.get(wanted.id, &component.name);
        if now.is_none_or(|now| now.state == State::Installed && !is_applied) {
            let why = Failure::new(ErrorCode::RuntimeUnavailable, "waits for the runtime, which doesn't answer");
            self.report.set(wanted.id, &component.name, State::Pending, Some(why));
        }
    }

    /// A set that failed has failed also while the last good one isn't put back yet. What was put back keeps its state.
    fn await_rollback(&mut self, wanted: &DesiredDeployment, component: &PlannedComponent) {
        let said = self.report.get(wanted.id, &component.name).and_then(|now| now.failure.as_ref());
        let ends = [ErrorCode::RolledBack, ErrorCode::RollbackFailed];
        let is_over = said.is_some_and(|why| ends.iter().any(|code| why.code == *code));
        let why = self.next.rollbacks.get(&wanted.id).map(|rollback| &rollback.why).filter(|_| !is_over);
        if let Some(why) = why {
            let text = format!("{}; what ran before isn't put back yet", why.message);
            let why = Failure::new(&why.code, shown(&text));
            self.report.set(wanted.id, &component.name, State::Failed, Some(why));
        }
    }

    /// Whether just the input that is wanted now was applied.
    fn is_applied(&self, wanted: &DesiredComponent) -> bool {
        let applied = self.next.applied_digest(&wanted.project);
        wanted.input.as_ref().is_ok_and(|input| applied == Some(input.input_digest))
    }

    fn says_installed(&self, id: DeploymentId, name: &ComponentName) -> bool {
        self.report.get(id, name).is_some_and(|now| now.state == State::Installed)
    }

    /// Whether what runs of it is being removed, as far as a gate lets it.
    fn is_going(&self, input: &Component) -> bool {
        let now = self.report.get(input.deployment, &input.component);
        now.is_some_and(|now| now.state == State::Removing && !now.waits_at_a_gate())
    }

    /// An apply of the same input that was begun before, or that failed for now, keeps its state.
    fn queue(&mut self, input: &Component, at_work: &AtWork) {
        let is_known = self.next.attempt(input).is_some();
        let now = self.report.get(input.deployment, &input.component);
        let begun = is_known && now.is_some_and(|now| now.state == State::Installing);
        let waiting =
            now.is_some_and(|now| now.state == State::Pending && now.failure.is_some() && !now.waits_at_a_gate());
        if !begun && !waiting {
            self.pend(input, Failure::new(ErrorCode::Queued, at_work.turn()));
        }
    }

    /// The first deployment that this one waits for and that isn't installed, or may still be put back.
    pub(super) fn awaited(&self, one: &DesiredDeployment, all: &[DesiredDeployment]) -> Option<DeploymentName> {
        let is_there = |found: &DesiredDeployment| self.is_installed(found) && !self.next.is_on_trial(found);
        let named = |name: &DeploymentName| all.iter().find(|other| other.name == *name);
        one.depends_on.iter().find(|name| !named(name).is_some_and(is_there)).cloned()
    }

    /// Whether `status` says of every component that it is installed.
    pub(super) fn is_installed(&self, one: &DesiredDeployment) -> bool {
        let mut parts = one.components.iter().map(|part| self.report.get(one.id, &part.name));
        parts.all(|now| now.is_some_and(|now| now.state == State::Installed))
    }

    /// Says of everything that would be applied that it waits for another deployment.
    pub(super) fn wait_for(&mut self, planned: &Planned, awaited: &DeploymentName, all: &[DesiredDeployment]) {
        let found = all.iter().find(|one| one.name == *awaited).and_then(|one| self.report.deployments.get(&one.id));
        let (code, text) = match found.map(Reported::overall) {
            Some(State::Failed) => (ErrorCode::DependencyFailed, "failed"),
            Some(State::Installed) => (ErrorCode::WaitingDependency, "hasn't run well for long enough yet"),
            _ => (ErrorCode::WaitingDependency, "isn't installed"),
        };
        for component in &planned.components {
            if let Action::Apply { input, .. } = &component.action {
                self.wait_because(input, Failure::new(code, format!("waits for deployment `{awaited}`, which {text}")));
            }
        }
    }

    /// What failed, or waits for something of its own, says more than that it waits for something else.
    pub(super) fn wait(&mut self, input: &Component, text: String) {
        self.wait_because(input, Failure::new(ErrorCode::WaitingDependency, text));
    }

    fn wait_because(&mut self, input: &Component, why: Failure) {
        let is_waiting = |reason: &Failure| {
            [ErrorCode::Queued, ErrorCode::WaitingDependency, ErrorCode::DependencyFailed]
                .iter()
                .any(|code| reason.code == *code)
        };
        let now = self.report.get(input.deployment, &input.component);
        let reason = now.filter(|now| now.state == State::Pending).and_then(|now| now.failure.as_ref());
        let says_more = reason.is_some_and(|reason| !is_waiting(reason));
        if !says_more && self.next.failure(input).is_none() {
            self.pend(input, why);
        }
    }

    pub(super) fn pend(&mut self, input: &Component, why: Failure) {
        self.report.set(input.deployment, &input.component, State::Pending, Some(why));
    }

    /// Says that a component runs as it is wanted, or as the last good set has it.
    pub(super) fn succeeded(&mut self, wanted: &DesiredDeployment, input: &Component) {
        self.ran(wanted, input);
        let state = if wanted.rolled_back.is_some() { State::Failed } else { State::Installed };
        self.report.set(wanted.id, &input.component, state, wanted.rolled_back.clone());
    }

    /// Notes that a component runs as a whole, whatever is wanted by now.
    pub(super) fn ran(&mut self, wanted: &DesiredDeployment, input: &Component) {
        self.state.retries.succeeded(&input.project);
        let Self { next, state, .. } = self;
        next.try_out(wanted, input, state.watches.then_some(&state.boot_id));
        next.was_whole(&input.project, &state.boot_id);
        self.note(wanted, input, Some(input.input_digest));
    }

    /// Notes what is on the device; without a digest, that it is about to change.
    pub(super) fn note(&mut self, wanted: &DesiredDeployment, input: &Component, input_digest: Option<Digest>) {
        let component = AppliedComponent {
            name: input.component.clone(),
            project: input.project.clone(),
            kind: input.profile_type(),
            input_digest,
        };
        self.next.note(wanted, component);
    }
}
