//! Work on one deployment, in a thread of its own: fetches all its components, then applies them in order; or restores, or
//! removes. Each step is durable in the device state before its effect, and reported on `status` after it.

mod removal;
mod restart;
mod restore;

use std::collections::BTreeMap;

use jiff::Timestamp;
use repo_model::margo::{ProfileType, State};
use repo_model::{DeploymentId, Digest, ErrorCode, error_chain};

use crate::decision::backoff;
use crate::decision::component::Component;
use crate::decision::deployment::DesiredDeployment;
use crate::decision::device_state::{Attempt, DeviceState, FailedInput};
use crate::decision::failure::{Failure, shown};
use crate::decision::fetched::Fetched;
use crate::decision::hold::HoldByPerson;
use crate::decision::plan::Removal;
use crate::decision::restart::RestartCause;
use crate::runtimes::{Cancel, RuntimeError, Runtimes, Source};
use crate::state::shared::{Shared, Transaction};
use crate::state::store::StoreError;

/// After so many attempts that weren't healthy in time, an input is given up.
const MAX_TIMEOUTS: u32 = 3;

/// Why a failure isn't final that would be.
const EXCUSE: &str = "tried again until all is removed that isn't wanted any more, which may be in its way";

/// What one job does.
#[derive(Debug)]
pub(super) enum Work {
    /// Applies what of a deployment isn't as wanted; `from_here` where nothing may be fetched for it now.
    Deployment { wanted: DesiredDeployment, applies: Vec<Apply>, from_here: bool },
    /// Fetches what a deployment needs that waits to be changed.
    Fetch { wanted: DesiredDeployment, inputs: Vec<Component> },
    /// Restores what was applied and doesn't run.
    Restore { wanted: DesiredDeployment, input: Box<Component>, reason: String },
    /// Restarts what runs of a deployment, as it is.
    Restart { wanted: DesiredDeployment, parts: Vec<Restart> },
    /// Removes what is wanted, and with which the device goes down.
    TakeDown { wanted: DesiredDeployment, inputs: Vec<Component> },
    /// Removes what is no longer wanted, of one deployment; `stays` is what of it is.
    Removal { removals: Vec<Removal>, stays: Option<DesiredDeployment> },
    /// Restores what was applied, of which only the runtime knows more: another input is wanted by now, or the accepted state is
    /// lost.
    Lost(Box<Component>),
}

#[derive(Debug)]
pub(super) struct Apply {
    pub(super) input: Box<Component>,
    /// What runs it until now, if its type changed: that is removed before.
    pub(super) replaces: Option<ProfileType>,
}

/// One component that is restarted, and who asks for it.
#[derive(Debug)]
pub(super) struct Restart {
    pub(super) input: Box<Component>,
    pub(super) cause: RestartCause,
}

impl Work {
    /// What it works on, by the names under which the runtimes know it.
    pub(super) fn projects(&self) -> Vec<&str> {
        match self {
            Self::Deployment { applies, .. } => applies.iter().map(|one| one.input.project.as_str()).collect(),
            Self::Fetch { inputs, .. } | Self::TakeDown { inputs, .. } => {
                inputs.iter().map(|input| input.project.as_str()).collect()
            }
            Self::Restore { input, .. } | Self::Lost(input) => vec![&input.project],
            Self::Restart { parts, .. } => parts.iter().map(|one| one.input.project.as_str()).collect(),
            Self::Removal { removals, .. } => removals.iter().map(|one| one.project.as_str()).collect(),
        }
    }

    /// What of it isn't tried again by who tries each once. What is put back first says nothing of what is wanted.
    pub(super) fn tries(&self) -> Vec<&str> {
        if matches!(self, Self::Lost(_)) { Vec::new() } else { self.projects() }
    }

    /// The deployment that it may fetch something for.
    pub(super) fn fetches_for(&self) -> Option<DeploymentId> {
        match self {
            Self::Deployment { wanted, .. } | Self::Fetch { wanted, .. } => Some(wanted.id),
            Self::Restore { .. }
            | Self::Restart { .. }
            | Self::TakeDown { .. }
            | Self::Removal { .. }
            | Self::Lost(_) => None,
        }
    }

    /// The deployment of which it may put something back.
    pub(super) fn deployment(&self) -> Option<DeploymentId> {
        match self {
            Self::Restore { wanted, .. } => Some(wanted.id),
            Self::Lost(input) => Some(input.deployment),
            _ => self.fetches_for(),
        }
    }

    /// The operator's id of what it works on, or what the device calls it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Deployment { wanted, .. }
            | Self::Fetch { wanted, .. }
            | Self::Restore { wanted, .. }
            | Self::TakeDown { wanted, .. }
            | Self::Restart { wanted, .. } => wanted.name.to_string(),
            Self::Lost(input) => input.deployment_name.to_string(),
            Self::Removal { removals, .. } => removals.first().map_or_else(String::new, |one| {
                one.name.as_ref().map_or_else(|| one.project.clone(), ToString::to_string)
            }),
        }
    }

    /// Whether the desired state in force wants something else by now.
    pub(super) fn is_outdated(&self, wanted: &[DesiredDeployment]) -> bool {
        let mut all = wanted.iter().flat_map(|one| &one.components);
        let is_wanted =
            |input: &Component| all.clone().any(|one| one.input.as_ref().is_ok_and(|now| is_same(now, input)));
        match self {
            Self::Deployment { applies, .. } => !applies.iter().all(|one| is_wanted(&one.input)),
            Self::Fetch { inputs, .. } | Self::TakeDown { inputs, .. } => !inputs.iter().all(is_wanted),
            Self::Restore { input, .. } => !is_wanted(input),
            Self::Restart { parts, .. } => !parts.iter().all(|one| is_wanted(&one.input)),
            Self::Removal { removals, .. } => all.any(|one| removals.iter().any(|gone| gone.project == one.project)),
            Self::Lost(_) => false,
        }
    }

    /// Whether a person holds what it works on.
    pub(super) fn is_held_by(&self, hold: &HoldByPerson) -> bool {
        match self {
            Self::Deployment { wanted, .. }
            | Self::Fetch { wanted, .. }
            | Self::Restore { wanted, .. }
            | Self::TakeDown { wanted, .. }
            | Self::Restart { wanted, .. } => hold.is_of(Some(wanted.id), Some(&wanted.name)),
            Self::Removal { removals, .. } => removals.iter().any(|one| hold.is_of(one.deployment, one.name.as_ref())),
            Self::Lost(input) => hold.is_of(Some(input.deployment), Some(&input.deployment_name)),
        }
    }

    /// Whether it would be applied beside what is on trial of another deployment, and one of them took the device down.
    pub(super) fn waits_for_trials(&self, device_state: &DeviceState) -> bool {
        let Self::Deployment { wanted, .. } = self else { return false };
        self.is_suspect(device_state) && device_state.is_tried_beside(wanted)
    }

    /// Whether it, or a neighbour that was at work beside it, took the device down.
    pub(super) fn is_suspect(&self, device_state: &DeviceState) -> bool {
        let attempts = |project: &str| device_state.attempts.get(project);
        let is_taken_down = matches!(self, Self::TakeDown { .. });
        !is_taken_down && self.projects().into_iter().filter_map(attempts).any(|attempt| attempt.suspect)
    }
}

fn is_same(a: &Component, b: &Component) -> bool {
    (&a.project, a.input_digest) == (&b.project, b.input_digest)
}

/// What a job works with.
pub(super) struct Job<'a, H: Runtimes + ?Sized> {
    pub(super) runtimes: &'a H,
    pub(super) state: &'a Shared,
    /// Whether to end what it does at this moment: its work is outdated, a person says so, or the program ends.
    pub(super) cancel: Cancel<'a>,
    /// Whether to take no further step, and to end what is fetched: one of those, or a gate has closed.
    pub(super) halt: &'a dyn Fn() -> bool,
    /// Whether the desired state in force wants something else by now.
    pub(super) is_outdated: &'a dyn Fn() -> bool,
    /// Whether the next component may be fetched, where that was so when this began.
    pub(super) may_fetch: &'a dyn Fn() -> bool,
    /// Whether the site lets the first effect on a deployment happen now.
    pub(super) may_change: &'a dyn Fn(DeploymentId) -> bool,
    /// Told which project it has done with, before the rest of its work: what is said of that is durable before the state is free.
    pub(super) done: &'a dyn Fn(&str),
}

impl<H: Runtimes + ?Sized> Job<'_, H> {
    /// Does the work; failures of single steps end up in the report. Returns whether anything was tried.
    pub(super) fn run(&self, work: &Work) -> Result<bool, StoreError> {
        match work {
            Work::Deployment { wanted, applies, from_here } => self.deployment(wanted, applies, *from_here),
            Work::Fetch { wanted, inputs } => self.fetch_ahead(wanted, inputs),
            Work::Restore { wanted, input, reason } => self.restore(wanted, input, reason),
            Work::Restart { wanted, parts } => self.restart_all(wanted, parts),
            Work::TakeDown { wanted, inputs } => self.take_all_down(wanted, inputs),
            Work::Removal { removals, stays } => self.remove_all(removals, stays.as_ref()),
            Work::Lost(component) => Ok(self.restore_lost(component)),
        }
    }

    /// Begins a transaction that speaks of this deployment.
    fn begin(&self, wanted: &DesiredDeployment) -> Transaction<'_> {
        let mut change = self.state.begin();
        change.report.arrange(wanted);
        change
    }

    /// Applies components in their order; one that isn't good holds those behind it.
    fn deployment(&self, wanted: &DesiredDeployment, applies: &[Apply], from_here: bool) -> Result<bool, StoreError> {
        let Some(mut fetched) = self.prefetch(wanted, applies, from_here)? else { return Ok(false) };
        if !fetched.is_empty() && !(self.may_change)(wanted.id) {
            return Ok(false);
        }
        let mut acted = false;
        let mut change = self.begin(wanted);
        for (place, Apply { input, replaces }) in applies.iter().enumerate() {
            let mut done = false;
            if let Some(ready) = fetched.remove(&input.project)
                && !(self.halt)()
            {
                acted = true;
                (change, done) = match replaces {
                    Some(kind) => self.replace(change, wanted, input, *kind)?,
                    None => (change, true),
                };
                if done {
                    (change, done) = self.apply(change, wanted, input, &ready)?;
                }
            }
            if done {
                (self.done)(&input.project);
            } else {
                if !(self.halt)() && wanted.rolled_back.is_none() {
                    for behind in &applies[place + 1..] {
                        let text = format!("waits for component `{}`, which is listed before it", input.component);
                        change.wait(&behind.input, text);
                    }
                }
                break;
            }
        }
        change.commit()?;
        Ok(acted)
    }

    /// Fetches and checks all that will be applied, before anything of it is changed; `None` if any of it can't be had.
    fn prefetch(
        &self,
        wanted: &DesiredDeployment,
        applies: &[Apply],
        from_here: bool,
    ) -> Result<Option<BTreeMap<String, H::Ready>>, StoreError> {
        let (mut fetched, mut failures) = (BTreeMap::new(), Vec::new());
        for Apply { input, .. } in applies {
            if (self.halt)() {
                break;
            }
            let from = if from_here || !(self.may_fetch)() { Source::Here } else { Source::Anywhere };
            match self.runtimes.prefetch(input, from, self.halt) {
                Ok(ready) => drop(fetched.insert(input.project.clone(), ready)),
                // The next pass says what it waits for.
                Err(RuntimeError::NotHere { what }) => {
                    tracing::info!(project = input.project, what, "not here, and not to be fetched now");
                    self.state.lock().fetched.get_or_insert_default().insert(input.input_digest, Fetched::Missing);
                    return Ok(None);
                }
                Err(error) => failures.push((input, error)),
            }
        }
        let Some((first, _)) = failures.first() else { return Ok(Some(fetched)) };
        let mut change = self.begin(wanted);
        for (input, error) in &failures {
            change.failed(wanted, input, error, State::Pending, false);
        }
        let is_ready = |one: &&Apply| fetched.contains_key(&one.input.project);
        for Apply { input, .. } in applies.iter().filter(|_| wanted.rolled_back.is_none()).filter(is_ready) {
            change.wait(input, format!("waits for component `{}`, which can't be fetched", first.component));
        }
        change.commit()?;
        Ok(None)
    }

    /// One apply: the attempt, the locks of images and `installing` are durable before the first effect; `installed`
    /// becomes so with the next component's `installing`, or at the end.
    fn apply<'a>(
        &'a self,
        mut change: Transaction<'a>,
        wanted: &DesiredDeployment,
        input: &Component,
        ready: &H::Ready,
    ) -> Result<(Transaction<'a>, bool), StoreError> {
        change.next.lock_images(input, self.runtimes.first_use(ready));
        let may_begin;
        (change, may_begin) = self.begin_attempt(change, wanted, input, None)?;
        if !may_begin {
            return Ok((change, false));
        }
        let was_excused = change.is_excused(wanted);
        drop(change);
        tracing::info!(project = input.project, digest = %input.input_digest, "applying");
        let result = self.runtimes.apply(ready, &self.cancel);
        let mut change = self.begin(wanted);
        change.close_attempt(input);
        let done = result.is_ok();
        match result {
            Ok(()) => self.succeeded(&mut change, wanted, input),
            Err(error) => {
                // What is to go may have held a port when this began, and may be gone by now.
                let is_excused = was_excused || change.is_excused(wanted);
                change.failed(wanted, input, &error, State::Installing, is_excused);
                change.commit()?;
            }
        }
        Ok((change, done))
    }

    /// Notes that this runs, and says so unless something else is wanted by now: then it isn't what is to be installed.
    fn succeeded(&self, change: &mut Transaction<'_>, wanted: &DesiredDeployment, input: &Component) {
        if (self.is_outdated)() {
            change.ran(wanted, input);
        } else {
            change.succeeded(wanted, input);
        }
    }

    /// Notes the attempt, and what is applied meanwhile, and makes that durable. Returns false if it may not begin. An input that
    /// took the device down too often is taken down.
    fn begin_attempt<'a>(
        &'a self,
        mut change: Transaction<'a>,
        wanted: &DesiredDeployment,
        input: &Component,
        applied: Option<Digest>,
    ) -> Result<(Transaction<'a>, bool), StoreError> {
        if (self.halt)() {
            return Ok((change, false));
        }
        match change.next.why_taken_down(input) {
            None => {
                change.begin_attempt(wanted, input, applied)?;
                Ok((change, true))
            }
            Some(why) => {
                drop(change);
                Ok((self.take_down(wanted, input, why)?, false))
            }
        }
    }

    /// Takes down whatever of these the device still goes down with. Returns whether it did anything.
    fn take_all_down(&self, wanted: &DesiredDeployment, inputs: &[Component]) -> Result<bool, StoreError> {
        let mut acted = false;
        for input in inputs {
            let why = self.state.view().device_state.why_taken_down(input);
            if let Some(why) = why.filter(|_| !(self.halt)()) {
                drop(self.take_down(wanted, input, why)?);
                acted = true;
            }
        }
        Ok(acted)
    }

    /// Removes what runs of an input, because the engine would start it at each boot, before this program. Only then it is given up,
    /// or waits for its turn.
    fn take_down<'a>(
        &'a self,
        wanted: &DesiredDeployment,
        input: &Component,
        why: Failure,
    ) -> Result<Transaction<'a>, StoreError> {
        tracing::warn!(project = input.project, why = why.message, "taking down");
        let removed = match input.profile_type() {
            ProfileType::Compose => self.remove_containers(input),
            // Removing a release may take its data along.
            ProfileType::Helm | ProfileType::Custom => Ok(()),
        };
        let mut change = self.begin(wanted);
        match removed {
            Ok(()) if why.code == ErrorCode::Queued => change.await_turn(wanted, input, why),
            Ok(()) => change.give_up(wanted, input, why),
            Err(error) => change.failed(wanted, input, &error, State::Installing, false),
        }
        change.commit()?;
        Ok(change)
    }
}

impl Transaction<'_> {
    /// Notes the attempt, and what is applied meanwhile, and makes that durable.
    fn begin_attempt(
        &mut self,
        wanted: &DesiredDeployment,
        input: &Component,
        applied: Option<Digest>,
    ) -> Result<(), StoreError> {
        let attempt = self.next.attempts.entry(input.project.clone()).or_insert(Attempt::new(input.input_digest));
        if applied.is_none() && std::mem::take(&mut attempt.on_trial) {
            attempt.open = 0;
        }
        attempt.begin(&self.state.boot_id);
        self.note(wanted, input, applied);
        if applied.is_none() {
            self.next.note_begun(wanted);
        }
        // What fails each time that it is restored says so once.
        let is_told = |now: State| now == State::Installing || (now == State::Failed && applied.is_some());
        let now = self.report.get(wanted.id, &input.component);
        if wanted.rolled_back.is_none() && now.is_none_or(|now| !is_told(now.state)) {
            self.report.set(wanted.id, &input.component, State::Installing, None);
        }
        self.commit()?;
        Ok(())
    }

    /// Notes that nothing runs of it any more until its turn.
    fn await_turn(&mut self, wanted: &DesiredDeployment, input: &Component, why: Failure) {
        self.note(wanted, input, None);
        let suspect = Attempt { suspect: true, ..Attempt::new(input.input_digest) };
        self.next.attempts.insert(input.project.clone(), suspect);
        self.pend(input, why);
    }

    /// Notes that an attempt came back with an answer.
    fn close_attempt(&mut self, input: &Component) {
        if let Some(attempt) = self.next.attempt(input) {
            attempt.close();
        }
    }

    /// Whether what is to go excuses what fails now. What gates hold doesn't, where something else that ran well can be put back.
    fn is_excused(&self, wanted: &DesiredDeployment) -> bool {
        let good = self.next.good_sets.get(&wanted.id);
        let has_other = good.is_some_and(|good| good.inputs.set != wanted.set());
        self.state.removals_are_left && !(self.state.removals_are_held && has_other)
    }

    /// A failure for now keeps `state` and is tried again later; one for this input is final, unless it is excused by what is
    /// still to be removed.
    fn failed(
        &mut self,
        wanted: &DesiredDeployment,
        input: &Component,
        error: &RuntimeError,
        state: State,
        is_excused: bool,
    ) {
        if matches!(error, RuntimeError::Cancelled) {
            return;
        }
        let mut failure = failure(error);
        tracing::warn!(project = input.project, code = failure.code, error = failure.message, "failed");
        if self.is_down(input.deployment) {
            // It is tried again, and told, when that is over.
            return self.back_off(&input.project);
        }
        if is_excused && !error.is_transient() {
            failure.message = shown(&format!("{EXCUSE}: {}", failure.message));
        }
        if is_excused || self.may_succeed_later(input, error) {
            self.back_off(&input.project);
            let state = if wanted.rolled_back.is_some() { State::Failed } else { state };
            self.explain(input, state, failure);
        } else {
            self.give_up(wanted, input, failure);
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

    fn back_off(&mut self, project: &str) {
        self.state.retries.failed(project, backoff::jitter(Timestamp::now()));
    }

    fn give_up(&mut self, wanted: &DesiredDeployment, input: &Component, failure: Failure) {
        self.state.retries.succeeded(&input.project);
        self.next.attempts.remove(&input.project);
        let bad = FailedInput { input_digest: input.input_digest, failure: failure.clone() };
        self.next.failed_inputs.insert(input.project.clone(), bad);
        self.next.note_ended(wanted);
        let failure = wanted.final_failure(failure);
        self.report.set(input.deployment, &input.component, State::Failed, Some(failure));
    }

    fn explain(&mut self, input: &Component, state: State, failure: Failure) {
        if !self.is_down(input.deployment) {
            self.report.explain(input.deployment, &input.component, state, failure);
        }
    }

    /// Whether a deployment is in a downtime.
    pub(super) fn is_down(&self, deployment: DeploymentId) -> bool {
        self.state.down.contains(&deployment)
    }
}

mod ahead;

/// What a runtime's error means in a status.
fn failure(error: &RuntimeError) -> Failure {
    Failure::new(error.code(), shown(&error_chain(error)))
}

#[cfg(test)]
mod tests;
