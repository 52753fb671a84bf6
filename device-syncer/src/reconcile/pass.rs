//! One pass, in order: poll the host, fetch and verify what is new, put it in force, observe what runs, plan, apply,
//! and report.
//!
//! Every pass recomputes from Git and the runtime. Nothing but the device state, the floor and the markers of the runtime
//! lasts from one to the next, and each of them changes in one step: after a kill or a power cut at any instruction the
//! next pass goes on from there, and the one after it does nothing. An unreachable host ends nothing: the device keeps
//! reconciling what it accepted, and what it has to say waits as commits on its local `status`. Only a device that
//! knows nothing at all, because it is new or its clone was lost, first fetches what it reported before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_git::FetchError;
use repo_model::report::{CAPABILITIES, Condition, ConditionType, Reason};

use crate::config::{Device, known_zone};
use crate::decision::device_state::DeviceState;
use crate::decision::failure::is_disk_full;
use crate::decision::health::{self, NotReady};
use crate::decision::heartbeat;
use crate::decision::observation::Observation;
use crate::decision::windows::AllWindows;
use crate::decision::{backoff, conditions};
use crate::host::client::HostClient;
use crate::host::heartbeat::Heartbeat;
use crate::host::refs::{Ask, StatusTip};
use crate::host::status::{StatusBranch, StatusError};
use crate::host::status_push::StatusPush;
use crate::reconcile::accept::{AcceptError, Acceptance, PassInput};
use crate::reconcile::outcome::{Done, HostAnswer, Next, PassOutcome, Progress};
use crate::reconcile::reconciler::Reconciler;
use crate::state::accepted::{self, Unreadable};
use crate::state::floor::{Floor, FloorError};
use crate::state::hold;
use crate::state::last_failure::LastFailure;
use crate::state::requests::Requests;
use crate::state::shared::Shared;
use crate::state::store::{Store, StoreError};

/// A job that began less long ago says soon what it comes to: the heartbeat and the log wait for that.
const SOON: Duration = Duration::from_secs(30);

/// Makes passes for one device.
#[derive(Debug)]
pub struct Syncer {
    /// Who this is, and what it runs with.
    pub device: Device,
    pub host: HostClient,
    pub reconciler: Reconciler,
    /// The `heartbeat` that the host took last.
    pub heartbeat: Heartbeat,
    /// What lasts, and what is at work on it.
    pub(super) state: Shared,
    pub(super) floor: Floor,
    last_failure: LastFailure,
    /// The windows of the state in force, once they were read.
    pub(super) fleet_windows: Option<AllWindows>,
    /// How long the host isn't to be talked to, where a running syncer keeps windows for that.
    pub(super) silent: Option<Duration>,
    /// Pushes `status` between two passes, while jobs are at work.
    status_push: Option<Arc<StatusPush>>,
    /// Security events that the next pass reports.
    events: Vec<Condition>,
    /// What wasn't ready after the pass before.
    not_ready: Vec<NotReady>,
}

/// A pass couldn't be made. What runs keeps running, and the next pass starts from what is durable.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Floor(#[from] FloorError),
    /// What this device reported before can't be fetched into the clone.
    #[error("can't fetch this device's `status`")]
    Status(#[source] FetchError),
    /// The accepted state in the clone can't be read any more.
    #[error(transparent)]
    Accepted(#[from] Unreadable),
}

impl From<StatusError> for PassError {
    fn from(error: StatusError) -> Self {
        match error {
            StatusError::Store(error) => Self::Store(error),
            StatusError::Fetch(error) => Self::Status(error),
        }
    }
}

impl From<AcceptError> for PassError {
    fn from(error: AcceptError) -> Self {
        match error {
            AcceptError::Floor(error) => Self::Floor(error),
            AcceptError::Unreadable(error) => Self::Accepted(error),
        }
    }
}

impl Syncer {
    /// A syncer that has made no pass; the first one reports these security events.
    pub fn new(
        device: Device,
        host: HostClient,
        (store, floor, last_failure): (Store, Floor, LastFailure),
        reconciler: Reconciler,
        events: Vec<Condition>,
    ) -> Self {
        let (heartbeat, not_ready) = (Heartbeat::default(), Vec::new());
        let state = Shared::new(store, device.identity(), device.boot_id.clone());
        let (status_push, fleet_windows, silent) = (None, None, None);
        Self {
            device,
            host,
            reconciler,
            heartbeat,
            state,
            floor,
            last_failure,
            fleet_windows,
            silent,
            status_push,
            events,
            not_ready,
        }
    }

    /// Makes passes until nothing is at work and nothing more can begin. Nothing is tried twice.
    pub fn once(&mut self) -> Result<PassOutcome, PassError> {
        self.reconciler.jobs.try_each_once();
        let (mut ask, mut host) = (Ask::Host, HostAnswer::NotAsked);
        let result = loop {
            let mut outcome = match self.pass(ask) {
                Ok(outcome) => outcome,
                Err(error) => break Err(error),
            };
            if outcome.host == HostAnswer::NotAsked {
                outcome.host = host;
            }
            host = outcome.host;
            if !self.reconciler.jobs.is_any() {
                break Ok(outcome);
            }
            ask = match (self.reconciler.jobs.wait(outcome.poll), host) {
                (false, _) => Ask::Host,
                (true, HostAnswer::Complete | HostAnswer::NotAsked) => Ask::IfMoved,
                (true, HostAnswer::Unreachable | HostAnswer::Unfetched) => Ask::Later(outcome.poll),
            };
        };
        self.end()?;
        result
    }

    /// Ends what is at work, and pushes what that came to as far as the host takes it.
    pub fn end(&mut self) -> Result<(), PassError> {
        self.reconciler.hooks.join();
        let ended = self.reconciler.jobs.end();
        self.end_push();
        Ok(ended?)
    }

    /// Makes actual equal desired, as far as it can be now. What it begins goes on after it.
    pub fn pass(&mut self, ask: Ask) -> Result<PassOutcome, PassError> {
        self.host.connectivity.begin();
        let mut result = self.make_pass(ask);
        match self.repair_after(&result) {
            Ok(false) => {}
            Ok(true) => result = self.make_pass(ask),
            Err(error) => result = Err(error),
        }
        if !matches!(ask, Ask::Later(_)) {
            self.host.connectivity.end();
        }
        self.last_failure.note(result.as_ref().err().map(|error| error as _), Timestamp::now());
        if let Ok(outcome) = &mut result {
            outcome.retry_after = self.host.connectivity.retry_after();
            outcome.problems.extend(self.host.connectivity.problem().map(ToString::to_string));
            let is_explained = !outcome.problems.is_empty() || !outcome.not_ready.is_empty();
            if !outcome.is_up_to_date() && !is_explained && !self.reconciler.jobs.is_any() {
                outcome.problems.push(match self.silent {
                    Some(_) => "windows let nothing be said to the host now".to_owned(),
                    None => "the host hasn't taken the newest `status` yet".to_owned(),
                });
            }
        }
        result
    }

    /// Repairs the clone if the pass met something in it that can't be read. Returns whether it had to be rebuilt.
    fn repair_after(&mut self, result: &Result<PassOutcome, PassError>) -> Result<bool, PassError> {
        let failed = match result {
            Err(PassError::Accepted(_) | PassError::Status(_)) => true,
            Err(PassError::Store(error)) => !is_disk_full(error),
            _ => false,
        };
        let store = &mut self.state.lock().store;
        Ok((failed || store.is_suspect()) && store.repair()?)
    }

    fn make_pass(&mut self, ask: Ask) -> Result<PassOutcome, PassError> {
        // Before anything is asked that may be slow to answer.
        self.reconciler.jobs.end_now(&hold::now(&self.device.home, Timestamp::now()));
        let requests = Requests::read(&self.device.home);
        if requests.sync {
            Requests::host_is_asked(&self.device.home);
        }
        if let Some(retry) = &requests.retry {
            self.forget_failures(retry)?;
            Requests::retry_is_done(&self.device.home);
        }
        self.end_push();
        let is_asked = self.host.is_asked(ask);
        let refs = self.host.remote_refs(ask, &self.device);
        if !self.status_branch().resume(refs.as_ref())? {
            return Ok(PassOutcome::unreachable(is_asked, &self.state.lock().store.device_state));
        }
        let (device, host, view, floor) = (&self.device, &mut self.host, &self.state.view(), &mut self.floor);
        let acceptance = Acceptance { device, host, view, floor };
        let mut pass = acceptance.take(refs, requests.accept_history, &self.events)?;
        if self.silent.is_some() {
            keep_staleness(&mut pass.conditions, &self.state.view().device_state);
        }
        if let Some(desired) = &pass.desired {
            self.fleet_windows = Some(AllWindows::new(None, Some(desired), known_zone));
        }
        self.begin_push(&pass);
        let reconciled = self.reconciler.reconcile(&self.device, &self.state, &pass);
        let pushed = self.end_push();
        if let Some(refs) = &mut pass.refs {
            refs.take_status(pushed);
        }
        let (done, observation) = reconciled?;
        self.events.clear();
        let is_reported = self.report(&mut pass, &observation, done)?;
        let pushed = pass.refs.as_ref().and_then(|refs| refs.status);
        self.state.lock().store.consolidate(self.device.settings.limits.packs, pushed)?;
        if done.at_work {
            self.begin_push(&pass);
        }
        let view = self.state.view();
        if requests.accept_history.is_some_and(|commit| accepted::is_in_force(&view, commit)) {
            Requests::history_is_accepted(&self.device.home);
        }
        let conditions = conditions::all(&view.device_state.status);
        let not_ready = health::not_ready(&observation, &view.device_state, pass.desired.as_ref());
        self.log_not_ready(&not_ready);
        let is_clear = not_ready.is_empty() && !conditions.iter().any(conditions::is_in_the_way);
        let is_left = !done.up_to_date && not_ready.is_empty() && pass.desired.is_some();
        let removals_are_left = is_left && !done.at_work;
        let host = if is_asked { pass.host } else { HostAnswer::NotAsked };
        Ok(PassOutcome {
            progress: Progress::of(done, is_reported && is_clear),
            just_began: done.at_work && self.reconciler.jobs.are_younger_than(SOON),
            host,
            next: Next::after(ask, Some(host)),
            problems: self.problems(&view.device_state.waiting, &conditions, removals_are_left),
            not_ready,
            poll: self.device.poll_interval(pass.desired.as_ref()),
            retry_after: None,
        })
    }

    fn status_branch(&mut self) -> StatusBranch<'_> {
        StatusBranch { host: &mut self.host, state: &self.state, device: &self.device }
    }

    /// From now on `status` is pushed as soon as it says something new; not before a `desired` was believed, nor while this
    /// device waits for one that lists it.
    fn begin_push(&mut self, pass: &PassInput) {
        let is_heard = pass.desired.is_some() && pass.next.waiting.is_none();
        let Some(refs) = pass.refs.as_ref().filter(|_| is_heard) else { return };
        let push = Arc::new(StatusPush::new(self.host.remote().clone(), Some(refs)));
        self.status_push = Some(Arc::clone(&push));
        self.state.listen(Some(Box::new(move |store| push.push(store))));
    }

    /// Ends that; where the host's `status` stands then.
    fn end_push(&mut self) -> StatusTip {
        self.state.listen(None);
        let Some(push) = self.status_push.take() else { return StatusTip::Unknown };
        let pushed = push.end();
        self.host.status_is_at(pushed);
        pushed
    }

    /// Says what wasn't so after the pass before, once; the reason alone may be another one each time.
    fn log_not_ready(&mut self, not_ready: &[NotReady]) {
        let before = std::mem::replace(&mut self.not_ready, not_ready.to_vec());
        let is_same = |a: &NotReady, b: &NotReady| (&a.name, &a.how) == (&b.name, &b.how);
        for new in not_ready.iter().filter(|new| !before.iter().any(|old| is_same(old, new))) {
            tracing::warn!(component = new.name, reason = new.why, "{}", new.how);
        }
        for old in before.iter().filter(|old| !not_ready.iter().any(|now| now.name == old.name)) {
            tracing::info!(component = old.name, "as wanted again");
        }
    }

    /// Why a pass didn't come to all that is wanted, besides the components, and what else is worth knowing.
    fn problems(&self, waiting: &Option<Condition>, conditions: &[Condition], removals_are_left: bool) -> Vec<String> {
        let mut problems: Vec<_> = conditions.iter().chain(waiting).map(conditions::text).collect();
        if removals_are_left {
            problems.push("what isn't wanted any more isn't removed yet: `device-syncer plan` shows it".to_owned());
        }
        problems
            .extend(self.reconciler.jobs.old().iter().map(|name| format!("`{name}` is at work for over 2 minutes")));
        problems
    }

    /// Pushes what the host doesn't know yet; returns whether it knows all of it.
    fn report(&mut self, pass: &mut PassInput, observation: &Observation, done: Done) -> Result<bool, PassError> {
        if pass.next.waiting.is_some() {
            return Ok(false);
        }
        let (Some(refs), Some(desired)) = (&mut pass.refs, &pass.desired) else { return Ok(pass.desired.is_none()) };
        let is_pushed = self.status_branch().push(refs, desired)?;
        let now = Timestamp::now();
        let current = {
            let state = self.state.lock();
            let attempts = |project: &str| state.retries.count(project);
            heartbeat::current_state(&state.store.device_state, observation, &attempts, desired.envelope.serial, now)
        };
        let interval = self.device.report_interval(desired);
        // What begins says soon what it came to.
        let is_soon = done.at_work && self.reconciler.jobs.are_younger_than(SOON);
        if done.acted || heartbeat::is_due(self.heartbeat.pushed(), &current, interval) && !is_soon {
            self.heartbeat.push(&mut self.host, &self.state, &self.device, refs, current)?;
        }
        Ok(is_pushed)
    }

    /// Lets what was given up be tried again: everything, or one deployment by the operator's id.
    fn forget_failures(&mut self, deployment: &str) -> Result<(), PassError> {
        let named = match deployment {
            "" => None,
            _ => {
                let view = self.state.view();
                let desired = accepted::read(&view, &view.device_state)?;
                let capabilities = view.device_state.status.get(CAPABILITIES);
                let wanted = desired.map(|desired| self.reconciler.resolve(&self.device, &desired, capabilities));
                Some(wanted.into_iter().flatten().find(|wanted| wanted.name.as_str() == deployment))
            }
        };
        let mut change = self.state.begin();
        match named {
            None => {
                change.next.failed_inputs.clear();
                change.next.rollbacks.clear();
                change.next.attempts.clear();
                change.next.forget_all_drift();
            }
            Some(Some(wanted)) => change.next.forget_failures(&wanted),
            Some(None) => tracing::warn!(deployment, "no deployment of this id is wanted, so nothing is tried again"),
        }
        change.state.retries.clear();
        change.state.restores.clear();
        change.commit()?;
        Ok(())
    }

    /// How long until a pass is due: something may be tried again that couldn't be at `began`, when the newest one began, or a
    /// gate opens by itself.
    pub fn due(&self, began: Instant) -> Option<Duration> {
        let state = self.state.lock();
        let again = [state.retries.next(began), state.restores.next(began), self.reconciler.gate_opens()];
        again.into_iter().flatten().min()
    }

    /// Backs off what a killed syncer left open more than once during this boot.
    pub fn resume_retries(&mut self) {
        let state = &mut *self.state.lock();
        for (project, attempt) in &state.store.device_state.attempts {
            if attempt.boot_id == state.boot_id && attempt.open > 1 {
                state.retries.resume(project, attempt.open - 1, backoff::jitter(Timestamp::now()));
            }
        }
    }
}

/// No proof of freshness can come while the host isn't talked to: that it is old is told when it was before.
fn keep_staleness(conditions: &mut Vec<Condition>, device_state: &DeviceState) {
    let is_expired = |one: &Condition| one.kind == ConditionType::Stale && one.reason == Reason::Expired;
    let was_told = conditions::all(&device_state.status).iter().any(is_expired);
    conditions.retain(|one| was_told || !is_expired(one));
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn that_a_state_is_old_is_not_told_for_the_first_time_while_no_proof_can_come() {
        let old = conditions::condition(ConditionType::Stale, Reason::Expired, "no fresh proof");
        let other = conditions::condition(ConditionType::Stale, Reason::ProofRefused, "it is refused");
        let kept = |device_state: &DeviceState| {
            let mut found = vec![old.clone(), other.clone()];
            keep_staleness(&mut found, device_state);
            found
        };
        let mut device_state = DeviceState::default();
        assert_eq!(kept(&device_state), std::slice::from_ref(&other));
        conditions::write(&mut device_state, Uuid::nil(), std::slice::from_ref(&old), Vec::new(), None);
        assert_eq!(kept(&device_state), [old.clone(), other.clone()], "it was told before");
    }
}
