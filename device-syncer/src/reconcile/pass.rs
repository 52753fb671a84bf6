//! One pass, in order: poll the host, fetch and verify what is new, put it in force, observe what runs, plan, apply,
//! and report.
//!
//! Every pass recomputes from Git and the runtime. Nothing but the device state, the floor and the markers of the runtime
//! lasts from one to the next, and each of them changes in one step: after a kill or a power cut at any instruction the
//! next pass goes on from there, and the one after it does nothing. An unreachable host ends nothing: the device keeps
//! reconciling what it accepted, and what it has to say waits as commits on its local `status`. Only a device that
//! knows nothing at all, because it is new or its clone was lost, first asks what it said before.

use jiff::Timestamp;
use repo_git::{CommitId, FetchError};
use repo_model::report::Condition;

use crate::config::Device;
use crate::decision::conditions;
use crate::decision::device_state::Accepted;
use crate::decision::failure::is_disk_full;
use crate::decision::health::{self, NotReady};
use crate::decision::heartbeat;
use crate::decision::observation::Observation;
use crate::decision::status::Report;
use crate::host::client::HostClient;
use crate::host::heartbeat::Heartbeat;
use crate::host::refs::{Ask, NewerRevision};
use crate::host::status::{StatusBranch, StatusError};
use crate::host::status_push::StatusPush;
use crate::reconcile::accept::{AcceptError, Acceptance, PassInput};
use crate::reconcile::apply::Done;
use crate::reconcile::outcome::{HostAnswer, Next, PassOutcome, Progress};
use crate::reconcile::reconciler::Reconciler;
use crate::state::accepted::{self, Unreadable};
use crate::state::floor::{Floor, FloorError};
use crate::state::last_failure::LastFailure;
use crate::state::record::record;
use crate::state::requests::Requests;
use crate::state::store::{Store, StoreError};

/// Makes passes for one device.
#[derive(Debug)]
pub struct Syncer {
    /// Who this is, and what it runs with.
    pub device: Device,
    /// Its side of the host.
    pub host: HostClient,
    /// What runs components.
    pub reconciler: Reconciler,
    /// What the host was told last of how they are.
    pub heartbeat: Heartbeat,
    pub(super) store: Store,
    pub(super) floor: Floor,
    last_failure: LastFailure,
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
    /// What this device said before can't be put into the clone.
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
        Self { device, host, reconciler, heartbeat, store, floor, last_failure, events, not_ready }
    }

    /// Makes actual equal desired, as far as it can be now.
    pub fn pass(&mut self, ask: Ask, cancel: &dyn Fn() -> bool) -> Result<PassOutcome, PassError> {
        self.host.connectivity.begin();
        let mut result = self.make_pass(ask, cancel);
        match self.repair_after(&result) {
            Ok(false) => {}
            Ok(true) => result = self.make_pass(ask, cancel),
            Err(error) => result = Err(error),
        }
        if !matches!(ask, Ask::Later(_)) {
            self.host.connectivity.end();
        }
        self.last_failure.note(result.as_ref().err().map(|error| error as _), Timestamp::now());
        if let Ok(outcome) = &mut result {
            outcome.retry_after = self.host.connectivity.retry_after();
            outcome.problems.extend(self.host.connectivity.problem().map(ToString::to_string));
            if !outcome.is_up_to_date() && outcome.problems.is_empty() && outcome.not_ready.is_empty() {
                outcome.problems.push("the host hasn't taken the newest `status` yet".to_owned());
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
        Ok((failed || self.store.is_suspect()) && self.store.repair()?)
    }

    fn make_pass(&mut self, ask: Ask, cancel: &dyn Fn() -> bool) -> Result<PassOutcome, PassError> {
        let requests = Requests::read(&self.device.home);
        if let Some(retry) = &requests.retry {
            self.forget_failures(retry)?;
            Requests::retry_is_done(&self.device.home);
        }
        let is_asked = self.host.is_asked(ask);
        let refs = self.host.remote_refs(ask, &self.device);
        if !self.status_branch().resume(refs.as_ref())? {
            return Ok(PassOutcome::unreachable(is_asked, &self.store.device_state));
        }
        let (device, host, store, floor) = (&self.device, &mut self.host, &self.store, &mut self.floor);
        let acceptance = Acceptance { device, host, store, floor };
        let mut pass = acceptance.take(refs, requests.accept_history, &self.events)?;
        if pass.is_adopted {
            self.reconciler.retries.clear();
        }
        let poll = self.device.poll_interval(pass.desired.as_ref());
        let look_after = if let Ask::Later(rest) = ask { poll.max(rest) } else { poll };
        let look_after = look_after.max(self.host.connectivity.retry_after().unwrap_or_default());
        let newer = NewerRevision::new(self.host.remote().clone(), known_tip(&pass), look_after);
        let (done, observation) = self.reconcile(&mut pass, &|| cancel() || newer.poll_if_due())?;
        self.events.clear();
        let is_reported = self.report(&pass, &observation, done.acted)?;
        let pushed = pass.refs.as_ref().and_then(|refs| refs.status);
        self.store.consolidate(self.device.settings.limits.packs, pushed)?;
        if requests.accept_history.is_some_and(|commit| accepted::is_in_force(&self.store, commit)) {
            Requests::history_is_accepted(&self.device.home);
        }
        let conditions = conditions::all(&self.store.device_state.status);
        let not_ready = health::not_ready(&observation, &self.store.device_state, pass.desired.as_ref());
        self.log_not_ready(&not_ready);
        let is_clear = not_ready.is_empty() && !conditions.iter().any(conditions::is_in_the_way);
        let removals_are_left = !done.up_to_date && not_ready.is_empty() && pass.desired.is_some();
        let host = if is_asked { pass.host } else { HostAnswer::NotAsked };
        Ok(PassOutcome {
            progress: Progress::of(done, is_reported && is_clear),
            host,
            next: Next::after(ask, Some((host, newer.is_known()))),
            problems: self.problems(&conditions, removals_are_left),
            not_ready,
            poll,
            retry_after: None,
        })
    }

    fn status_branch(&mut self) -> StatusBranch<'_> {
        StatusBranch { host: &mut self.host, store: &mut self.store, device: &self.device }
    }

    /// Reconciles what is in force, and pushes `status` meanwhile, unless the fleet doesn't list this device.
    fn reconcile(
        &mut self,
        pass: &mut PassInput,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(Done, Observation), StoreError> {
        let pushed_to = pass.refs.as_ref().filter(|_| pass.next.waiting.is_none());
        let status_push = StatusPush::new(self.host.remote().clone(), pushed_to);
        let result = self.reconciler.reconcile(&self.device, &mut self.store, pass, &status_push, cancel);
        let pushed = status_push.end();
        if let Some(refs) = &mut pass.refs {
            refs.status = pushed.or(refs.status);
            self.host.status_is_at(refs.status);
        }
        result
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
    fn problems(&self, conditions: &[Condition], removals_are_left: bool) -> Vec<String> {
        let waiting = &self.store.device_state.waiting;
        let mut problems: Vec<_> = conditions.iter().chain(waiting).map(conditions::text).collect();
        if removals_are_left {
            problems.push("what isn't wanted any more isn't removed yet: `device-syncer plan` shows it".to_owned());
        }
        problems
    }

    /// Pushes what the host doesn't know yet; returns whether it knows all of it.
    fn report(&mut self, pass: &PassInput, observation: &Observation, acted: bool) -> Result<bool, PassError> {
        if pass.next.waiting.is_some() {
            return Ok(false);
        }
        let (Some(refs), Some(desired)) = (&pass.refs, &pass.desired) else { return Ok(pass.desired.is_none()) };
        let is_pushed = self.status_branch().push(refs, desired)?;
        let attempts = |project: &str| self.reconciler.retries.count(project);
        let (serial, now) = (desired.envelope.serial, Timestamp::now());
        let state = heartbeat::current_state(&self.store.device_state, observation, &attempts, serial, now);
        let interval = self.device.report_interval(desired);
        if acted || heartbeat::is_due(self.heartbeat.pushed(), &state, interval) {
            self.heartbeat.push(&mut self.host, &self.store, &self.device, refs, state)?;
        }
        Ok(is_pushed)
    }

    /// Lets what was given up be tried again: everything, or one deployment by the operator's id.
    fn forget_failures(&mut self, deployment: &str) -> Result<(), PassError> {
        let mut next = self.store.device_state.clone();
        if deployment.is_empty() {
            next.failed_inputs.clear();
            next.attempts.clear();
        } else {
            let desired = accepted::read(&self.store, &next)?;
            let wanted = desired.map(|desired| self.reconciler.resolve(&self.device, &desired, &next));
            match wanted.iter().flatten().find(|wanted| wanted.name.as_str() == deployment) {
                Some(wanted) => next.forget_failures(wanted),
                None => tracing::warn!(deployment, "no deployment of this id is wanted, so nothing is tried again"),
            }
        }
        self.reconciler.forget_back_off();
        let report = Report::read(&next.status);
        record(&mut self.store, next, &report, &self.device.identity(), Timestamp::now())?;
        Ok(())
    }

    /// Backs off what a killed syncer left open more than once during this boot.
    pub fn resume_retries(&mut self) {
        self.reconciler.resume_retries(&self.device, &self.store.device_state);
    }
}

/// What the host showed; while it shows nothing, what it is expected to show.
fn known_tip(pass: &PassInput) -> Option<CommitId> {
    let accepted = || pass.next.accepted.as_ref().and_then(Accepted::id);
    pass.refs.as_ref().map_or_else(accepted, |refs| refs.desired)
}
