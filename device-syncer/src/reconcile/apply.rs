//! Applies a plan, step by step: each is durable in the device state before its effect, and reported on `status` after it.

mod restore;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use repo_model::margo::{ProfileType, State};
use repo_model::{DeploymentName, Digest, ErrorCode, error_chain};

use crate::decision::backoff;
use crate::decision::component::Component;
use crate::decision::deployment::DesiredDeployment;
use crate::decision::device_state::{AppliedComponent, Attempt, DeviceState, FailedInput};
use crate::decision::failure::{Failure, shown};
use crate::decision::message::Identity;
use crate::decision::plan::{Action, Plan, Planned, PlannedComponent, Removal};
use crate::decision::status::Report;
use crate::reconcile::restores::Restores;
use crate::reconcile::retries::Retries;
use crate::runtimes::{RuntimeError, Runtimes};
use crate::state::record::record;
use crate::state::store::{Store, StoreError};

/// After so many attempts that took the device down with them, an input is given up.
const MAX_LOST: u32 = 3;

/// After so many attempts that weren't healthy in time, an input is given up.
const MAX_TIMEOUTS: u32 = 3;

/// How long a removal may take, besides the time that containers have for stopping.
const REMOVAL: Duration = Duration::from_secs(120);

/// What became of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Something was tried.
    pub acted: bool,
    /// Everything is as wanted now.
    pub up_to_date: bool,
}

/// Applies one plan.
pub struct Actor<'a, H: Runtimes + ?Sized> {
    /// The device state, written before and after each effect.
    pub store: &'a mut Store,
    pub runtimes: &'a H,
    pub identity: &'a Identity,
    /// What may not be tried yet.
    pub retries: &'a mut Retries,
    pub restores: &'a mut Restores,
    /// Tells this boot from the ones before.
    pub boot_id: &'a str,
    pub now: &'a dyn Fn() -> Timestamp,
    /// Whether to stop: a newer revision, or the end of the program.
    pub cancel: &'a dyn Fn() -> bool,
    /// Called after each commit: pushes `status`, as far as the host can be reached. Nothing waits for that.
    pub push: &'a dyn Fn(&Store),
    /// The device state as it will be with the next commit.
    pub next: DeviceState,
    /// The states as they will be with the next commit.
    pub report: Report,
}

impl<H: Runtimes + ?Sized> std::fmt::Debug for Actor<'_, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Actor").field("identity", self.identity).finish_non_exhaustive()
    }
}

impl<H: Runtimes + ?Sized> Actor<'_, H> {
    /// Does all that the plan says; failures of single steps end up in the report.
    pub fn apply_plan(&mut self, plan: &Plan, wanted: &[DesiredDeployment]) -> Result<Done, StoreError> {
        self.announce(plan, wanted);
        self.commit()?;
        let mut done = Done { acted: self.restore_all(plan, wanted)?, up_to_date: plan.held.is_empty() };
        for removal in &plan.removals {
            let (acted, gone) = self.remove(removal, plan)?;
            done = Done { acted: done.acted | acted, up_to_date: done.up_to_date & gone };
        }
        self.commit()?;
        let mut prepared = self.prefetch(plan)?;
        for (planned, one) in plan.deployments.iter().zip(wanted) {
            match self.awaited(one, wanted) {
                Some(name) if !(self.cancel)() => self.hold_all(planned, &name),
                Some(_) => {}
                None => done.acted |= self.apply_deployment(planned, one, &mut prepared)?,
            }
        }
        self.commit()?;
        done.up_to_date &= self.all_installed(plan);
        Ok(done)
    }

    fn all_installed(&self, plan: &Plan) -> bool {
        let mut wanted = plan.deployments.iter().flat_map(|one| one.components.iter().map(|part| (one.id, &part.name)));
        wanted.all(|(id, name)| self.report.get(id, name).is_some_and(|now| now.state == State::Installed))
    }

    /// Says what is known before the first effect: what goes, what runs, what can't, and what is queued.
    fn announce(&mut self, plan: &Plan, wanted: &[DesiredDeployment]) {
        for removal in &plan.removals {
            let Some((id, name)) = removal.component() else { continue };
            if self.report.get(id, name).is_none_or(|now| now.state != State::Removing) {
                self.report.set(id, name, State::Removing, None);
            }
        }
        self.report.forget_unknown(plan);
        for (planned, wanted) in plan.deployments.iter().zip(wanted) {
            for component in &planned.components {
                match &component.action {
                    Action::Keep => self.keep(wanted, component),
                    Action::Fail(failure) => {
                        self.report.set(planned.id, &component.name, State::Failed, Some(failure.clone()));
                    }
                    Action::Wait(reason) => {
                        self.report.explain(planned.id, &component.name, State::Pending, reason.clone());
                    }
                    Action::Unknown if self.report.get(planned.id, &component.name).is_none() => {
                        let text = "waits for the runtime, which doesn't answer";
                        let failure = Failure::new(ErrorCode::RuntimeUnavailable, text);
                        self.report.set(planned.id, &component.name, State::Pending, Some(failure));
                    }
                    // What is replaced keeps its state until it is removed.
                    Action::Unknown | Action::Restore { .. } | Action::Apply { replaces: Some(_), .. } => {}
                    Action::Apply { input, .. } => self.queue(input),
                }
            }
            self.report.arrange(wanted);
        }
    }

    /// What runs as wanted is installed, also if a killed syncer couldn't say so any more; not so what stops again and again.
    fn keep(&mut self, wanted: &DesiredDeployment, component: &PlannedComponent) {
        if self.restores.is_unsteady(&component.project) {
            self.retries.succeeded(&component.project);
            return;
        }
        let input = wanted.components.iter().find(|wanted| wanted.project == component.project);
        if let Some(Ok(input)) = input.map(|wanted| &wanted.input) {
            self.succeeded(wanted, input);
        }
    }

    /// An apply of the same input that was begun before, or that failed for now, keeps its state.
    fn queue(&mut self, input: &Component) {
        let is_known = self.next.attempt(input).is_some();
        let now = self.report.get(input.deployment, &input.component);
        let begun = is_known && now.is_some_and(|now| now.state == State::Installing);
        let waiting = now.is_some_and(|now| now.state == State::Pending && now.failure.is_some());
        if !begun && !waiting {
            self.pend(input, Failure::new(ErrorCode::Queued, "waits for its turn"));
        }
    }

    /// The first deployment that this one waits for and that isn't installed.
    fn awaited(&self, one: &DesiredDeployment, all: &[DesiredDeployment]) -> Option<DeploymentName> {
        let is_installed = |name: &DeploymentName| {
            let found = all.iter().find(|other| other.name == *name);
            found.is_some_and(|found| {
                let mut parts = found.components.iter().map(|part| self.report.get(found.id, &part.name));
                parts.all(|now| now.is_some_and(|now| now.state == State::Installed))
            })
        };
        one.depends_on.iter().find(|name| !is_installed(name)).cloned()
    }

    fn hold_all(&mut self, planned: &Planned, awaited: &DeploymentName) {
        for component in &planned.components {
            if let Action::Apply { input, .. } = &component.action {
                self.hold(input, format!("waits for deployment `{awaited}`, which isn't installed"));
            }
        }
    }

    /// What failed, or waits for something of its own, says more than that it waits for something else.
    fn hold(&mut self, input: &Component, text: String) {
        let now = self.report.get(input.deployment, &input.component);
        let reason = now.filter(|now| now.state == State::Pending).and_then(|now| now.failure.as_ref());
        let says_more = reason.is_some_and(|reason| reason.code != ErrorCode::Queued);
        if !says_more && self.next.failure(input).is_none() {
            self.pend(input, Failure::new(ErrorCode::WaitingDependency, text));
        }
    }

    fn pend(&mut self, input: &Component, why: Failure) {
        self.report.set(input.deployment, &input.component, State::Pending, Some(why));
    }

    fn explain(&mut self, input: &Component, state: State, failure: Failure) {
        self.report.explain(input.deployment, &input.component, state, failure);
    }

    /// One removal, which was announced. Returns whether it was tried, and whether it is done. What it came to is made
    /// durable with the next step: a removal that is repeated after a crash does nothing.
    fn remove(&mut self, removal: &Removal, plan: &Plan) -> Result<(bool, bool), StoreError> {
        if self.retries.is_waiting(&removal.project) || (self.cancel)() {
            return Ok((false, false));
        }
        self.commit()?;
        tracing::info!(project = removal.project, "removing");
        match self.runtimes.remove(removal.kind, &removal.project, REMOVAL, self.cancel) {
            Ok(()) => {
                self.retries.succeeded(&removal.project);
                self.next.forget(&removal.project);
                self.report_removed(removal, plan);
                Ok((true, true))
            }
            Err(RuntimeError::Cancelled) => Ok((true, false)),
            Err(error) => {
                self.postpone(&removal.project);
                let failure = failure(&error);
                tracing::warn!(project = removal.project, code = failure.code, error = failure.message, "not removed");
                if let Some((id, name)) = removal.component() {
                    self.report.explain(id, name, State::Removing, failure);
                }
                Ok((true, false))
            }
        }
    }

    /// A removed deployment stays as such until the next adoption; a component that left a deployment which stays is
    /// no longer listed.
    fn report_removed(&mut self, removal: &Removal, plan: &Plan) {
        let Some((id, name)) = removal.component() else { return };
        if plan.deployments.iter().any(|planned| planned.id == id) {
            self.report.drop_component(id, name);
        } else {
            self.report.set(id, name, State::Removed, None);
        }
    }

    /// Fetches and checks what will be applied, before anything of it is changed.
    fn prefetch(&mut self, plan: &Plan) -> Result<BTreeMap<String, H::Ready>, StoreError> {
        let mut prepared = BTreeMap::new();
        for input in plan.applies() {
            if self.retries.is_waiting(&input.project) || (self.cancel)() {
                continue;
            }
            match self.runtimes.prefetch(input, self.cancel) {
                Ok(ready) => drop(prepared.insert(input.project.clone(), ready)),
                Err(error) => self.failed(input, &error, State::Pending),
            }
        }
        self.commit()?;
        Ok(prepared)
    }

    /// Applies components in their order; one that isn't good holds those behind it.
    fn apply_deployment(
        &mut self,
        planned: &Planned,
        wanted: &DesiredDeployment,
        prepared: &mut BTreeMap<String, H::Ready>,
    ) -> Result<bool, StoreError> {
        let (mut acted, mut blocked) = (false, None);
        for component in &planned.components {
            match (&component.action, &blocked) {
                (Action::Keep, _) => {}
                (Action::Restore { .. }, _) => {
                    let now = self.report.get(planned.id, &component.name);
                    let is_back = now.is_some_and(|now| now.state == State::Installed);
                    blocked = blocked.or((!is_back).then(|| component.name.clone()));
                }
                (Action::Fail(_) | Action::Wait(_) | Action::Unknown, _) => blocked = Some(component.name.clone()),
                (Action::Apply { input, .. }, Some(before)) if !(self.cancel)() => {
                    self.hold(input, format!("waits for component `{before}`, which is listed before it"));
                }
                (Action::Apply { .. }, Some(_)) => {}
                (Action::Apply { input, replaces, .. }, None) => {
                    let ready = prepared.remove(&input.project);
                    acted |= ready.is_some();
                    let done = match ready {
                        Some(ready) => self.replace(input, *replaces)? && self.apply(wanted, input, &ready)?,
                        None => false,
                    };
                    blocked = (!done).then(|| component.name.clone());
                }
            }
        }
        Ok(acted)
    }

    /// Removes what runs of the component under another type, with a status of its own. Returns whether it is gone.
    fn replace(&mut self, input: &Component, kind: Option<ProfileType>) -> Result<bool, StoreError> {
        let Some(kind) = kind else { return Ok(true) };
        if (self.cancel)() {
            return Ok(false);
        }
        let (id, name) = (input.deployment, &input.component);
        if self.report.get(id, name).is_none_or(|now| now.state != State::Removing) {
            self.report.set(id, name, State::Removing, None);
        }
        self.commit()?;
        tracing::info!(project = input.project, %kind, "removing, because its type changed");
        let gone = match self.runtimes.remove(kind, &input.project, REMOVAL, self.cancel) {
            Ok(()) => {
                self.next.forget(&input.project);
                self.report.set(id, name, State::Removed, None);
                true
            }
            Err(RuntimeError::Cancelled) => false,
            Err(error) => {
                self.failed(input, &error, State::Removing);
                false
            }
        };
        self.commit()?;
        Ok(gone)
    }

    /// One apply: the attempt, the locks of images and `installing` are durable before the first effect; `installed`
    /// becomes so with the next component's `installing`, or at the end.
    fn apply(&mut self, wanted: &DesiredDeployment, input: &Component, ready: &H::Ready) -> Result<bool, StoreError> {
        if (self.cancel)() {
            return Ok(false);
        }
        self.next.lock_images(input, self.runtimes.first_use(ready));
        if !self.begin(wanted, input, None)? {
            return Ok(false);
        }
        tracing::info!(project = input.project, digest = %input.input_digest, "applying");
        let result = self.runtimes.apply(ready, self.cancel);
        if let Some(attempt) = self.next.attempt(input) {
            attempt.open = 0;
        }
        match result {
            Ok(()) => {
                self.succeeded(wanted, input);
                Ok(true)
            }
            Err(RuntimeError::Cancelled) => Ok(false),
            Err(error) => {
                self.failed(input, &error, State::Installing);
                self.commit()?;
                Ok(false)
            }
        }
    }

    /// Notes the attempt, and what is applied meanwhile. Returns false if this input took the device down too often.
    fn begin(
        &mut self,
        wanted: &DesiredDeployment,
        input: &Component,
        applied: Option<Digest>,
    ) -> Result<bool, StoreError> {
        let attempt = self.next.attempts.entry(input.project.clone()).or_insert(Attempt::new(input.input_digest));
        attempt.begin(self.boot_id);
        if attempt.lost >= MAX_LOST {
            let text =
                format!("the device went down during {} attempts to apply this, so it isn't tried again", attempt.lost);
            self.give_up(input, Failure::new(ErrorCode::CrashLoop, text));
            self.commit()?;
            return Ok(false);
        }
        self.note(wanted, input, applied);
        // What fails each time that it is restored says so once.
        let is_told = |now: State| now == State::Installing || (now == State::Failed && applied.is_some());
        if self.report.get(wanted.id, &input.component).is_none_or(|now| !is_told(now.state)) {
            self.report.set(wanted.id, &input.component, State::Installing, None);
        }
        self.commit()?;
        Ok(true)
    }

    fn succeeded(&mut self, wanted: &DesiredDeployment, input: &Component) {
        self.retries.succeeded(&input.project);
        self.next.attempts.remove(&input.project);
        self.note(wanted, input, Some(input.input_digest));
        self.report.set(wanted.id, &input.component, State::Installed, None);
    }

    fn note(&mut self, wanted: &DesiredDeployment, input: &Component, input_digest: Option<Digest>) {
        let component = AppliedComponent {
            name: input.component.clone(),
            project: input.project.clone(),
            kind: input.profile_type(),
            input_digest,
        };
        self.next.note(wanted, component);
    }

    /// A failure for now keeps `state` and is tried again later; one for this input is final.
    fn failed(&mut self, input: &Component, error: &RuntimeError, state: State) {
        if matches!(error, RuntimeError::Cancelled) {
            return;
        }
        let failure = failure(error);
        tracing::warn!(project = input.project, code = failure.code, error = failure.message, "failed");
        if self.may_succeed_later(input, error) {
            self.postpone(&input.project);
            self.explain(input, state, failure);
        } else {
            self.give_up(input, failure);
        }
    }

    /// Health is waited for some times, because it may hang on something else; all other failures say by themselves.
    fn may_succeed_later(&mut self, input: &Component, error: &RuntimeError) -> bool {
        match self.next.attempt(input).filter(|_| error.is_health_timeout()) {
            Some(attempt) => {
                attempt.timeouts += 1;
                attempt.timeouts < MAX_TIMEOUTS
            }
            None => error.is_transient(),
        }
    }

    fn postpone(&mut self, project: &str) {
        self.retries.failed(project, backoff::jitter((self.now)()));
    }

    fn give_up(&mut self, input: &Component, failure: Failure) {
        self.retries.succeeded(&input.project);
        self.next.attempts.remove(&input.project);
        let bad = FailedInput { input_digest: input.input_digest, failure: failure.clone() };
        self.next.failed_inputs.insert(input.project.clone(), bad);
        self.report.set(input.deployment, &input.component, State::Failed, Some(failure));
    }

    /// Makes the device state and the report so far durable, as one commit of `status` if any state changed.
    fn commit(&mut self) -> Result<(), StoreError> {
        if record(self.store, self.next.clone(), &self.report, self.identity, (self.now)())? {
            (self.push)(self.store);
        }
        Ok(())
    }
}

/// What a runtime's error means in a status.
fn failure(error: &RuntimeError) -> Failure {
    Failure::new(error.code(), shown(&error_chain(error)))
}

#[cfg(test)]
mod tests;
