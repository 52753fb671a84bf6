//! One pass, in order: poll the host, fetch and verify what is new, put it in force, observe what runs, plan, act,
//! and tell.
//!
//! Every pass recomputes from Git and the runtime. Nothing but the device state, the floor and the markers of the runtime
//! lasts from one to the next, and each of them changes in one step: after a kill or a power cut at any instruction the
//! next pass goes on from there, and the one after it does nothing. An unreachable host ends nothing: the device keeps
//! reconciling what it accepted, and what it has to say waits as commits on its local `status`. Only a device that
//! knows nothing at all, because it is new or its clone was lost, first asks what it said before.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use repo_git::{CommitId, FetchError, TreeError};
use repo_model::desired::Desired;
use repo_model::join::Join;
use repo_model::margo::DeviceCapabilities;
use repo_model::report::{CAPABILITIES, Condition, CurrentState};
use repo_model::{KeyText, envelope, error_chain};
use uuid::Uuid;

use crate::config::{Home, Settings};
use crate::decision::backoff;
use crate::decision::conditions::{self, CAPABILITIES_INVALID, EVENT, RUNTIME, SANDBOX, STALE, UNVERIFIED, condition};
use crate::decision::deployment::DesiredDeployment;
use crate::decision::desired::{DeviceValues, wanted};
use crate::decision::device_state::{Accepted, DeviceState};
use crate::decision::failure::{Failure, is_disk_full};
use crate::decision::health::{self, NotReady};
use crate::decision::message::Identity;
use crate::decision::observation::{self, Observation};
use crate::decision::plan::Plan;
use crate::decision::status::Report;
use crate::host::connection::HostConnection;
use crate::host::connectivity::{self, Connectivity};
use crate::host::verify::{Adoption, Descent};
use crate::host::wait::Shown;
use crate::reconcile::apply::{self, Actor, Done};
use crate::reconcile::lost::{self, lost};
use crate::reconcile::restores::Restores;
use crate::reconcile::retries::Retries;
use crate::reconcile::tell::StatusPush;
use crate::reconcile::update::{FetchOutcome, NewerRevision, RemoteRefs};
use crate::runtimes::capabilities::Probe;
use crate::runtimes::{DeviceRuntimes, RuntimeError};
use crate::state::floor::{Floor, FloorError};
use crate::state::last_failure::LastFailure;
use crate::state::requests::Requests;
use crate::state::store::{Store, StoreError};

/// Everything that a pass works with.
pub struct Syncer {
    /// Where the device's files lie.
    pub home: Home,
    /// The settings.
    pub settings: Settings,
    /// What the device joined with.
    pub join: Join,
    /// The UUID of this installation.
    pub instance: Uuid,
    /// The key under which device files enter digests.
    pub hmac_key: Vec<u8>,
    /// The public half of the device's key.
    pub key: KeyText,
    /// Tells this boot from the ones before.
    pub boot_id: String,
    /// The way to the host.
    pub connection: HostConnection,
    /// How talking with it goes.
    pub connectivity: Connectivity,
    /// Why the last pass failed.
    pub last_failure: LastFailure,
    /// Where its branches stood when it was last asked; forgotten when this device moved one.
    pub refs: Option<RemoteRefs>,
    /// Where `desired` and `freshness` stood when it was last asked.
    pub shown: Option<Shown>,
    /// The clone.
    pub store: Store,
    /// Never below.
    pub floor: Floor,
    /// What runs components.
    pub runtimes: DeviceRuntimes,
    /// What may not be tried yet.
    pub retries: Retries,
    /// What was put back.
    pub restores: Restores,
    /// What the heartbeat says since this process last replaced it.
    pub reported: Option<CurrentState>,
    /// What wasn't as wanted after the pass before.
    pub not_ready: Vec<NotReady>,
    /// What this device has and can run.
    pub probe: Probe,
    /// Security events that the next pass tells.
    pub events: Vec<Condition>,
}

impl std::fmt::Debug for Syncer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Syncer").field("device", &self.join.device).finish_non_exhaustive()
    }
}

/// What a pass came to.
#[derive(Debug)]
pub struct Outcome {
    /// The host was asked.
    pub asked: bool,
    /// The host answered, or would have said if anything had moved.
    pub reached: bool,
    /// What it has could be fetched.
    pub fetched: bool,
    /// Something was tried on the device.
    pub acted: bool,
    /// Everything runs as wanted, and the host knows.
    pub good: bool,
    /// The pass ended early, because the host has something newer.
    pub outdated: bool,
    /// What stands in the way, or is worth knowing, for a person.
    pub problems: Vec<String>,
    /// Components that aren't installed or don't run well.
    pub not_ready: Vec<NotReady>,
    /// How often the host is asked.
    pub poll: Duration,
    /// How long the host wants to be left alone.
    pub retry_after: Option<Duration>,
}

/// A pass couldn't be made. What runs keeps running, and the next pass starts from what is durable.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The clone failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The floor failed.
    #[error(transparent)]
    Floor(#[from] FloorError),
    /// What this device said before can't be put into the clone.
    #[error("can't fetch this device's `status`")]
    Status(#[source] FetchError),
    /// The accepted state in the clone can't be read any more.
    #[error("the accepted state can't be read")]
    Accepted(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A plan couldn't be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The accepted state can't be read.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// The runtime doesn't answer.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// How often the host is asked where nothing else is said.
pub const POLL: Duration = Duration::from_secs(15);

/// The largest value that a device file may hold, in bytes: Linux takes no longer string in an environment.
const MAX_VALUE: u64 = 128 << 10;
/// What to do about a missing sandbox.
const UNCONFINED: &str = "the kernel has no Landlock and this program isn't root, so `docker compose config` reads \
    applications' files with this program's rights: run it as root, or on a kernel with Landlock (Linux 5.13, `lsm=landlock,…`)";

/// What a pass knows of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// It asks.
    Host,
    /// What was known last, because a wait at the host would have ended if that had changed. It asks only if this device
    /// moved something itself.
    IfMoved,
    /// Nothing, because it isn't to ask for so long.
    Later(Duration),
}

/// What one pass goes by.
struct Pass {
    refs: Option<RemoteRefs>,
    /// The host answered.
    reached: bool,
    /// What it has could be fetched.
    fetched: bool,
    /// Device state and desired state to put in force.
    next: DeviceState,
    desired: Option<Desired>,
    /// Whether that state is new.
    adopted: bool,
    conditions: Vec<Condition>,
    /// What there was when all was done.
    observation: Observation,
}

impl Syncer {
    /// Makes actual equal desired, as far as it can be now.
    pub fn pass(&mut self, ask: Ask, cancel: &dyn Fn() -> bool) -> Result<Outcome, PassError> {
        self.connectivity.begin();
        let mut result = self.make_pass(ask, cancel);
        match self.repairs(&result) {
            Ok(false) => {}
            Ok(true) => result = self.make_pass(ask, cancel),
            Err(error) => result = Err(error),
        }
        if !matches!(ask, Ask::Later(_)) {
            self.connectivity.end();
        }
        self.last_failure.note(result.as_ref().err().map(|error| error as _), Timestamp::now());
        if let Ok(outcome) = &mut result {
            outcome.retry_after = self.connectivity.retry_after();
            outcome.problems.extend(self.connectivity.trouble().map(ToString::to_string));
            if !outcome.good && outcome.problems.is_empty() && outcome.not_ready.is_empty() {
                outcome.problems.push("the host hasn't taken the newest `status` yet".to_owned());
            }
        }
        result
    }

    /// Makes the clone anew if the pass met something in it that can't be read. Returns whether it did.
    fn repairs(&mut self, result: &Result<Outcome, PassError>) -> Result<bool, PassError> {
        let failed = match result {
            Err(PassError::Accepted(_) | PassError::Status(_)) => true,
            Err(PassError::Store(error)) => !is_disk_full(error),
            _ => false,
        };
        Ok((failed || self.store.is_suspect()) && self.store.repair()?)
    }

    fn make_pass(&mut self, ask: Ask, cancel: &dyn Fn() -> bool) -> Result<Outcome, PassError> {
        let requests = Requests::read(&self.home);
        if let Some(retry) = &requests.retry {
            self.forget_failures(retry)?;
            Requests::retry_is_done(&self.home);
        }
        let asked = ask == Ask::Host || ask == Ask::IfMoved && self.refs.is_none();
        let refs = self.remote_refs(ask);
        if !self.find_status_again(refs.as_ref())? {
            return Ok(Outcome::unreached(asked, &self.store.device_state));
        }
        let mut pass = self.take(refs, &requests)?;
        let poll = self.poll_interval(pass.desired.as_ref());
        let look_after = if let Ask::Later(rest) = ask { poll.max(rest) } else { poll };
        let newer = NewerRevision::new(self.connection.remote.clone(), self.known_tip(&pass), look_after);
        let done = self.converge(&mut pass, &|| cancel() || newer.is_there())?;
        self.events.clear();
        let pushed = self.tell(&pass, done.acted)?;
        let pushed_before = pass.refs.as_ref().and_then(|refs| refs.status);
        self.store.consolidate(self.settings.limits.packs, pushed_before)?;
        if requests.accept_history.is_some_and(|commit| self.is_in_force(commit)) {
            Requests::history_is_accepted(&self.home);
        }
        let conditions = conditions::all(&self.store.device_state.status);
        let not_ready = health::not_ready(&pass.observation, &self.store.device_state, pass.desired.as_ref());
        self.log_not_ready(&not_ready);
        Ok(Outcome {
            asked,
            reached: pass.reached,
            fetched: pass.fetched,
            acted: done.acted,
            good: done.up_to_date
                && pushed
                && not_ready.is_empty()
                && !conditions.iter().any(conditions::is_in_the_way),
            outdated: newer.was_there(),
            problems: self.problems(&conditions, !done.up_to_date && not_ready.is_empty() && pass.desired.is_some()),
            not_ready,
            poll,
            retry_after: None,
        })
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

    /// Puts together what this pass goes by: the newest state that is believed, and what is to be said of it.
    fn take(&mut self, refs: Option<RemoteRefs>, requests: &Requests) -> Result<Pass, PassError> {
        let next = self.store.device_state.clone();
        let (reached, fetched, conditions) = (refs.is_some(), true, Vec::new());
        let (desired, adopted, observation) = (None, false, Observation::default());
        let mut pass = Pass { reached, fetched, refs, next, desired, adopted, conditions, observation };
        let accepted_history = requests.accept_history.filter(|commit| !self.is_in_force(*commit));
        let news = pass.refs.as_ref().map(|refs| self.fetch_outcome(refs, accepted_history));
        let tip_lists_us = news.as_ref().and_then(FetchOutcome::lists_us);
        match news.unwrap_or(FetchOutcome::Unchanged) {
            FetchOutcome::Adoption(adoption) => self.adopt(&mut pass, *adoption)?,
            FetchOutcome::Refused(condition) => pass.conditions.push(condition),
            FetchOutcome::Unfetched(condition) => {
                pass.conditions.push(condition);
                pass.fetched = false;
            }
            FetchOutcome::Unreachable(error) => {
                self.connectivity.failed(&error, "can't fetch", Timestamp::now());
                pass.reached = false;
            }
            FetchOutcome::Unchanged | FetchOutcome::Unlisted => {}
        }
        if pass.desired.is_none() {
            pass.desired = self.accepted(&pass.next)?;
            pass.conditions.extend(lost(&pass.next, pass.desired.as_ref()));
        }
        pass.conditions.extend(conditions::damaged(&pass.next));
        pass.next.waiting = self.waiting(tip_lists_us, pass.desired.as_ref());
        if let Some(Condition { kind, reason, message }) = &pass.next.waiting
            && pass.next.waiting != self.store.device_state.waiting
        {
            tracing::warn!(kind, reason, "{message}");
        }
        let mut refused = self.refresh(pass.refs.as_ref(), &mut pass.next)?;
        let is_unproven = pass.adopted && pass.next.accepted.as_ref().is_some_and(|one| one.is_stale(self.now()));
        if let (true, None, Some(refs)) = (is_unproven, &refused, &mut pass.refs) {
            self.look_for_proof(refs);
            refused = self.refresh(Some(refs), &mut pass.next)?;
        }
        if let Some(accepted) = &pass.next.accepted {
            if let Some(refusal) = refused {
                pass.conditions.push(condition(STALE, refusal.code, refusal.message));
            } else if accepted.is_stale(self.now()) {
                let text = "no fresh proof that the host shows the newest state";
                pass.conditions.push(condition(STALE, "Expired", text));
            }
            if accepted.unverified {
                let text = "the history since what was accepted before isn't at hand, so its descent wasn't checked";
                pass.conditions.push(condition(UNVERIFIED, "ShallowHistory", text));
            }
        }
        let left_out = self.settings.capabilities.left_out();
        if !left_out.is_empty() {
            pass.conditions.push(condition(CAPABILITIES_INVALID, "LeftOut", left_out.join("; ")));
        }
        if !pass.adopted {
            pass.conditions.extend(conditions::events(&pass.next.status));
        }
        pass.conditions.extend(self.events.iter().cloned());
        Ok(pass)
    }

    /// The floor first: what was accepted once can't be taken back by a crash.
    fn adopt(&mut self, pass: &mut Pass, adoption: Adoption) -> Result<(), PassError> {
        // What a clone that was made anew takes over again is nothing newer.
        if adoption.desired.envelope.serial > self.floor.serial {
            pass.next.damaged = None;
        }
        self.floor = adoption.raise(&self.floor);
        self.floor.raise(&self.home.floor())?;
        let before =
            self.store.device_state.accepted.as_ref().map_or("nothing".to_owned(), |before| before.commit.clone());
        let (serial, commit) = (adoption.desired.envelope.serial, adoption.commit);
        match adoption.descent {
            Descent::Shown | Descent::Unknown => {}
            Descent::Continued => {
                let text =
                    format!("serial {serial} ({commit}) doesn't descend from {before}, and says it continues it");
                pass.conditions.push(condition(EVENT, "HistoryContinued", text));
            }
            Descent::ByHand => {
                let text = format!("a person at the device accepted serial {serial} ({commit}) after {before}");
                pass.conditions.push(condition(EVENT, "HistoryAccepted", text));
            }
        }
        adoption.put_into(&mut pass.next, self.now());
        tracing::info!(serial, %commit, "adopted");
        self.retries.clear();
        pass.adopted = true;
        pass.desired = Some(adoption.desired);
        Ok(())
    }

    /// The state in force, read from the clone again; `None` without one, and where the clone has lost it.
    fn accepted(&self, device_state: &DeviceState) -> Result<Option<Desired>, PassError> {
        let Some(accepted) = &device_state.accepted else { return Ok(None) };
        let broken = |error: Box<dyn std::error::Error + Send + Sync>| PassError::Accepted(error);
        let commit: CommitId = accepted.commit.parse().map_err(|error: repo_git::InvalidId| broken(error.into()))?;
        let files = match self.store.repo.files(commit, &Default::default()) {
            Err(TreeError::Missing { path, .. }) if path.is_empty() && !self.store.holds(commit) => return Ok(None),
            files => files.map_err(|error| broken(error.into()))?,
        };
        repo_model::desired::read(&files).map(Some).map_err(|error| broken(error.into()))
    }

    /// Whether the accepted state is this commit, or has it in its history.
    fn is_in_force(&self, commit: CommitId) -> bool {
        let accepted = self.store.device_state.accepted.as_ref().and_then(Accepted::id);
        accepted.is_some_and(|accepted| self.store.descends(accepted, commit))
    }

    /// What the host showed; while it shows nothing, what it is expected to show.
    fn known_tip(&self, pass: &Pass) -> Option<CommitId> {
        let accepted = || pass.next.accepted.as_ref().and_then(Accepted::id);
        pass.refs.as_ref().map_or_else(accepted, |refs| refs.desired)
    }

    /// Observes, plans and acts.
    fn converge(&mut self, pass: &mut Pass, cancel: &dyn Fn() -> bool) -> Result<Done, PassError> {
        let mut report = Report::read(&pass.next.status);
        self.report_capabilities(&mut pass.next);
        let mut wanted = pass.desired.as_ref().map(|desired| self.wanted(desired, &pass.next));
        if let Some(wanted) = &wanted {
            pass.next.keep_only(wanted);
            pass.next.note_suspended(wanted, is_suspended(pass.desired.as_ref()));
        }
        if pass.adopted {
            report.forget_removed();
        }
        let observation = self.runtimes.observe();
        if let Some(wanted) = &mut wanted {
            pass.next.recover_images(wanted, &observation.found);
            pass.next.with_images(wanted);
        }
        pass.conditions.extend(unreachable(&observation, &conditions::all(&pass.next.status)));
        if self.runtimes.is_unconfined() {
            pass.conditions.push(condition(SANDBOX, "NoLandlockAndNotRoot", UNCONFINED));
        }
        conditions::write(&mut pass.next, self.instance, &pass.conditions);
        let (identity, next) = (self.identity(), pass.next.clone());
        let Some(wanted) = wanted else {
            let acted = lost::restore_applied(&next, &observation.found, &self.runtimes, &mut self.restores, cancel);
            apply::commit(&mut self.store, next, &report, &identity, Timestamp::now())?;
            pass.observation = if acted { self.runtimes.observe() } else { observation };
            return Ok(Done { acted, up_to_date: false });
        };
        let plan = Plan::make(Some(&wanted), &next, &observation.found, &observation.unreachable_types());
        let plan = plan.held_back(is_suspended(pass.desired.as_ref()), next.waiting.is_some(), &next);
        let pushed_to = pass.refs.as_ref().filter(|_| next.waiting.is_none());
        let status_push = StatusPush::new(self.connection.remote.clone(), pushed_to);
        let mut actor = Actor {
            store: &mut self.store,
            runtimes: &self.runtimes,
            identity: &identity,
            retries: &mut self.retries,
            restores: &mut self.restores,
            boot_id: &self.boot_id,
            now: &Timestamp::now,
            cancel,
            push: &|store| status_push.push(store),
            next,
            report,
        };
        let done = actor.apply_plan(&plan, &wanted);
        let pushed = status_push.end().or(pass.refs.as_ref().and_then(|refs| refs.status));
        let done = done?;
        if done.acted && done.up_to_date {
            self.prune_cache(&wanted);
        }
        pass.observation = if done.acted { self.runtimes.observe() } else { observation };
        if let Some(refs) = &mut pass.refs {
            refs.status = pushed;
            if self.refs.as_ref().is_some_and(|known| known.status != refs.status) {
                self.refs = None;
            }
        }
        Ok(done)
    }

    /// Puts what this device has and can run into its `status`, where it isn't known yet.
    fn report_capabilities(&mut self, next: &mut DeviceState) {
        let mut probe = std::mem::take(&mut self.probe);
        self.look(&mut probe, next);
        self.probe = probe;
    }

    /// What was told before stays while the runtimes don't answer.
    fn look(&self, probe: &mut Probe, next: &mut DeviceState) {
        let (types, versions) = (self.runtimes.types(), || self.runtimes.versions());
        let (device, described) = (&self.join.device, &self.settings.capabilities);
        let disk = if probe.is_due() { self.runtimes.data_root() } else { None };
        let disk = disk.unwrap_or_else(|| self.home.root().to_owned());
        if let Some(bytes) = probe.document(device, described, &disk, &types, versions) {
            next.status.insert(CAPABILITIES.to_owned(), bytes.to_vec());
        }
    }

    /// Keeps the archives of what is wanted or runs, and no others.
    fn prune_cache(&self, wanted: &[DesiredDeployment]) {
        let inputs = wanted.iter().flat_map(|wanted| &wanted.components).filter_map(|one| one.input.as_ref().ok());
        let keep = inputs.filter_map(|input| input.lock).map(|lock| lock.content).collect();
        if let Err(error) = self.runtimes.prune_cache(&keep) {
            tracing::warn!(error = error_chain(&error), "can't prune the cache");
        }
    }

    /// Pushes what the host doesn't know yet; returns whether it knows all of it.
    fn tell(&mut self, pass: &Pass, acted: bool) -> Result<bool, PassError> {
        if pass.next.waiting.is_some() {
            return Ok(false);
        }
        let (Some(refs), Some(desired)) = (&pass.refs, &pass.desired) else { return Ok(pass.desired.is_none()) };
        let pushed = self.push_status(refs, desired)?;
        let state = self.current_state(desired, &pass.observation, Timestamp::now());
        if acted || self.is_due(desired, &state) {
            self.beat(refs, state)?;
        }
        Ok(pushed)
    }

    /// How often the host is asked: the site's word, else the fleet's.
    fn poll_interval(&self, desired: Option<&Desired>) -> Duration {
        let fleet = desired.and_then(|desired| desired.envelope.policy.poll_seconds).map(Duration::from_secs);
        self.settings.poll.or(fleet).unwrap_or(POLL)
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity { fleet: self.join.fleet, device: self.join.device.clone() }
    }

    /// What the accepted state wants on this device, which has what `device_state` says that it reports.
    fn wanted(&self, desired: &Desired, device_state: &DeviceState) -> Vec<DesiredDeployment> {
        let read = |name: &str| read_device_file(&self.settings.device_files, name);
        let pushed = device_state.status.get(CAPABILITIES);
        let capabilities = pushed.and_then(|bytes| DeviceCapabilities::read(CAPABILITIES, bytes).ok());
        let types = &self.runtimes.types();
        let capabilities = capabilities.as_ref();
        let values = DeviceValues { types, capabilities, read: &read, hmac_key: &self.hmac_key };
        wanted(desired, &values)
    }

    /// Lets what was given up be tried again: everything, or one deployment by the operator's id.
    fn forget_failures(&mut self, deployment: &str) -> Result<(), PassError> {
        let mut next = self.store.device_state.clone();
        if deployment.is_empty() {
            next.failed_inputs.clear();
            next.attempts.clear();
        } else {
            let desired = self.accepted(&next)?;
            let wanted = desired.map(|desired| self.wanted(&desired, &next)).unwrap_or_default();
            match wanted.iter().find(|wanted| wanted.name.as_str() == deployment) {
                Some(wanted) => next.forget_failures(wanted),
                None => tracing::warn!(deployment, "no deployment of this id is wanted, so nothing is tried again"),
            }
        }
        self.retries.clear();
        self.restores.clear();
        let (report, identity) = (Report::read(&next.status), self.identity());
        apply::commit(&mut self.store, next, &report, &identity, Timestamp::now())?;
        Ok(())
    }

    /// Backs off what a killed syncer left open more than once during this boot.
    pub fn resume_retries(&mut self) {
        for (project, attempt) in &self.store.device_state.attempts {
            if attempt.boot_id == self.boot_id && attempt.open > 1 {
                self.retries.resume(project, attempt.open - 1, backoff::jitter(Timestamp::now()));
            }
        }
    }

    /// Plans as the next pass would, for what the host shows now, and changes nothing.
    pub fn preview(&self) -> Result<Preview, PlanError> {
        let requests = Requests::read(&self.home);
        let accepted_history = requests.accept_history.filter(|commit| !self.is_in_force(*commit));
        let (mut conditions, mut news) = (Vec::new(), None);
        let found = match RemoteRefs::poll(&self.connection.remote) {
            Ok(refs) => self.fetch_outcome(&refs, accepted_history),
            Err(error) => FetchOutcome::Unreachable(Box::new(error)),
        };
        let tip_lists_us = found.lists_us();
        match found {
            FetchOutcome::Adoption(adoption) => news = Some(adoption),
            FetchOutcome::Refused(condition) | FetchOutcome::Unfetched(condition) => conditions.push(condition),
            FetchOutcome::Unreachable(error) => conditions.push(connectivity::condition(&error)),
            FetchOutcome::Unchanged | FetchOutcome::Unlisted => {}
        }
        let mut device_state = self.store.device_state.clone();
        let accepted = if news.is_none() { self.accepted(&device_state)? } else { None };
        if news.is_none() {
            conditions.extend(lost(&device_state, accepted.as_ref()));
        }
        let desired = news.as_ref().map(|adoption| &adoption.desired).or(accepted.as_ref());
        let waiting = self.waiting(tip_lists_us, desired);
        self.look(&mut Probe::default(), &mut device_state);
        let wanted = desired.map(|desired| self.wanted(desired, &device_state));
        if let Some(retry) = requests.retry {
            let named = wanted.iter().flatten().filter(|wanted| retry.is_empty() || wanted.name.as_str() == retry);
            named.for_each(|wanted| device_state.forget_failures(wanted));
        }
        let observation = self.runtimes.observe_any()?;
        conditions.extend(unreachable(&observation, &[]));
        let plan = Plan::make(wanted.as_deref(), &device_state, &observation.found, &observation.unreachable_types());
        let plan = plan.held_back(is_suspended(desired), waiting.is_some(), &device_state);
        conditions.extend(waiting);
        Ok(Preview { plan, news, conditions })
    }
}

/// What stands in the way of what can't be seen: of whole runtimes, and of single projects. The words of the first time
/// stay, so that being tried again and again grows no history.
fn unreachable(observation: &Observation, before: &[Condition]) -> impl Iterator<Item = Condition> {
    let runtimes = observation.unreachable.values().map(|failure| condition(RUNTIME, &failure.code, &failure.message));
    let projects = observation.found.iter().filter_map(|found| match &found.condition {
        observation::Condition::Unknown(why) => {
            let text = format!("`{}` can't be looked at: {why}", found.project);
            Some(condition(RUNTIME, "ProjectUnreadable", text))
        }
        _ => None,
    });
    runtimes.chain(projects).map(|new| {
        let is_known = |one: &&Condition| {
            let what = |one: &Condition| one.message.split(' ').next().map(str::to_owned);
            one.kind == new.kind && one.reason == new.reason && what(one) == what(&new)
        };
        before.iter().find(is_known).cloned().unwrap_or(new)
    })
}

/// Whether the operator told this device to leave everything as it is.
fn is_suspended(desired: Option<&Desired>) -> bool {
    desired.is_some_and(|desired| desired.envelope.policy.suspended)
}

/// What the next pass would do.
#[derive(Debug)]
pub struct Preview {
    /// The steps.
    pub plan: Plan,
    /// The state that it would adopt first.
    pub news: Option<Box<Adoption>>,
    /// Why it can't adopt what the host shows.
    pub conditions: Vec<Condition>,
}

impl Outcome {
    /// Nothing is known but what the host would have to tell.
    fn unreached(asked: bool, device_state: &DeviceState) -> Self {
        let damaged = conditions::damaged(device_state).into_iter();
        Self {
            asked,
            reached: false,
            fetched: false,
            acted: false,
            good: false,
            outdated: false,
            problems: damaged.map(|one| conditions::text(&one)).collect(),
            not_ready: Vec::new(),
            poll: POLL,
            retry_after: None,
        }
    }
}

/// The value in a device file: UTF-8, one final newline removed. Failures name the file, never its contents.
fn read_device_file(directory: &Path, name: &str) -> Result<String, Failure> {
    let invalid = |problem: String| Failure::new("parameter-invalid", format!("device file `{name}`: {problem}"));
    if !envelope::ValueFrom::is_bare(name) {
        return Err(invalid("is not a bare file name".to_owned()));
    }
    let path = directory.join(name);
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(MAX_VALUE + 1).read_to_end(&mut bytes));
    read.map_err(|error| invalid(format!("`{}`: {error}", path.display())))?;
    if bytes.len() as u64 > MAX_VALUE {
        return Err(invalid(format!("is larger than {MAX_VALUE} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| invalid("is not UTF-8".to_owned()))?;
    if text.contains('\0') {
        return Err(invalid("holds a NUL character".to_owned()));
    }
    Ok(text.strip_suffix('\n').map(str::to_owned).unwrap_or(text))
}
