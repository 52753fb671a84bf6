//! One pass, in order: take what the host's side found, put it in force, observe what runs, plan, and begin what applies.
//!
//! Every pass recomputes from Git and the runtime. Nothing but the device state, the floor and the markers of the runtime
//! lasts from one to the next, and each of them changes in one step: after a kill or a power cut at any instruction the
//! next pass goes on from there, and the one after it does nothing. An unreachable host ends nothing: the device keeps
//! reconciling what it accepted, and what it has to say waits as commits on its local `status`. Only a device that
//! knows nothing at all, because it is new or its clone was lost, first fetches what it reported before.
//!
//! A pass waits for no host: `HostSide` asks it, and tells it what came of the pass; beside it in a running syncer
//! ([`agent`](crate::reconcile::agent)), and before and after it for `once`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_model::ask::answer_path;
use repo_model::desired::Desired;
use repo_model::error_chain;
use repo_model::report::{CAPABILITIES, Condition, ConditionType, Reason};

use crate::config::Device;
use crate::decision::ask::{self, Asked, Task};
use crate::decision::device_state::{Accepted, DeviceState};
use crate::decision::failure::is_disk_full;
use crate::decision::health::{self, NotReady};
use crate::decision::observation::Observation;
use crate::decision::{backoff, conditions};
use crate::host::client::HostClient;
use crate::host::connection::{Current, HostClock};
use crate::host::refs::{Ask, StatusTip};
use crate::reconcile::accept::{Acceptance, Found, Heard, is_behind};
use crate::reconcile::answers::Answers;
use crate::reconcile::at_rest::Rest;
use crate::reconcile::encrypted;
use crate::reconcile::host_side::{CloneInUse, HostSide, Seen};
use crate::reconcile::outcome::{HostAnswer, LocalOutcome, PassOutcome};
use crate::reconcile::pass_error::PassError;
use crate::reconcile::reconciler::{Reconciler, clocks};
use crate::reconcile::talk::silent_for;
use crate::state::accepted::{self, LastRead};
use crate::state::answers;
use crate::state::floor::Floor;
use crate::state::hold;
use crate::state::last_failure::LastFailure;
use crate::state::rekey;
use crate::state::requests::Requests;
use crate::state::shared::{Again, Shared};
use crate::state::store::Store;

/// A job that began less long ago says soon what it comes to: the heartbeat and the log wait for that.
const SOON: Duration = Duration::from_secs(30);

/// How soon a clone is mended that the host's side was at work in.
const MEND: Duration = Duration::from_secs(1);

/// Both sides of one device.
#[derive(Debug)]
pub struct Syncer {
    pub host: HostSide,
    pub here: DeviceSide,
}

/// The side of the device: adopts, observes, plans and begins jobs. It waits for no host.
#[derive(Debug)]
pub struct DeviceSide {
    /// Who this is, and what it runs with.
    pub device: Device,
    pub reconciler: Reconciler,
    /// What lasts, and what is at work on it.
    pub(super) state: Shared,
    pub(super) floor: Floor,
    clock: HostClock,
    /// Ends what the host's side is waiting for.
    current: Current,
    last_failure: LastFailure,
    /// Whether the host isn't talked to outside the windows for that: those of a running syncer count, and not of `once`.
    pub(super) keeps_silence: bool,
    /// Security events that the next pass reports.
    events: Vec<Condition>,
    /// What wasn't ready after the pass before.
    not_ready: Vec<NotReady>,
    heard: Heard,
    last_read: LastRead,
    clone: CloneInUse,
    /// Answers what the fleet asks for.
    answers: Answers,
    /// The clone is to be mended as soon as nobody else is at work in it.
    is_mended_later: bool,
    /// What the newest pass in full left, if nothing was left to do.
    pub(super) at_rest: Option<PassAtRest>,
}

/// A pass that changed nothing, and left nothing to do.
#[derive(Debug)]
pub(super) struct PassAtRest {
    rest: Rest,
    local: LocalOutcome,
    observation: Arc<Observation>,
}

impl Syncer {
    /// A syncer that has made no pass; the first one reports these security events.
    pub fn new(
        device: Device,
        client: HostClient,
        (store, floor, last_failure): (Store, Floor, LastFailure),
        reconciler: Reconciler,
        events: Vec<Condition>,
    ) -> Self {
        let state = Shared::new(store, device.identity(), device.boot_id.clone());
        let (clock, current) = (client.connection.clock(), client.connection.current());
        let host = HostSide::new(device.clone(), client, state.clone());
        let (clone, not_ready, heard, is_mended_later) = (host.clone.clone(), Vec::new(), Heard::default(), false);
        let answers = Answers::new(&device.home, reconciler.jobs.stop(), reconciler.jobs.ended());
        let here = DeviceSide {
            device,
            reconciler,
            state,
            floor,
            clock,
            current,
            last_failure,
            keeps_silence: false,
            events,
            not_ready,
            heard,
            last_read: LastRead::default(),
            clone,
            answers,
            is_mended_later,
            at_rest: None,
        };
        Self { host, here }
    }

    /// The passes of a program that ends then: what is at work is ended, and the runtimes answer nothing more.
    pub fn once(&mut self) -> Result<PassOutcome, PassError> {
        let result = self.converge();
        self.here.end()?;
        self.host.end_push();
        result
    }

    /// Makes passes until nothing is at work and nothing more can begin. Nothing is tried twice.
    pub fn converge(&mut self) -> Result<PassOutcome, PassError> {
        self.here.reconciler.jobs.try_each_once();
        self.here.reconciler.begun.wait_for_all();
        let mut ask = Ask::Host;
        loop {
            let outcome = self.pass(ask)?;
            // What was answered is told by one more pass, and so is what was more than one tells.
            let is_over = !self.here.reconciler.jobs.is_any();
            if is_over && !self.here.answers.join() && !self.host.has_more() {
                return Ok(outcome);
            }
            ask = match (is_over || self.here.reconciler.jobs.wait(outcome.poll), outcome.host) {
                (false, _) => Ask::Host,
                (true, HostAnswer::Complete | HostAnswer::NotAsked) => Ask::IfMoved,
                (true, HostAnswer::Unreachable | HostAnswer::Unfetched) => Ask::Later(outcome.poll),
            };
        }
    }

    /// Asks the host, makes a pass, and tells the host what came of it, one after the other.
    fn pass(&mut self, ask: Ask) -> Result<PassOutcome, PassError> {
        self.host.begin();
        let mut result = self.make_pass(ask);
        match self.here.mend_after(result.as_ref().err()) {
            Ok(false) => {}
            Ok(true) => result = self.make_pass(ask),
            Err(error) => result = Err(error),
        }
        self.here.note_failure(&result);
        let (passed, is_told) = result.inspect_err(|_| drop(self.host.report(ask, false)))?;
        Ok(passed.with(&self.host.report(ask, is_told)))
    }

    fn make_pass(&mut self, ask: Ask) -> Result<(LocalOutcome, bool), PassError> {
        self.host.end_push();
        let found = self.host.ask(ask, &self.here.floor)?;
        let (passed, mut seen) = self.here.make_pass(found, false)?;
        let is_told = self.host.push(&mut seen)?;
        self.here.consolidate(self.host.status())?;
        if passed.done.at_work {
            self.host.begin_push();
        }
        Ok((passed, is_told))
    }
}

impl DeviceSide {
    /// Ends what is at work.
    pub fn end(&mut self) -> Result<(), PassError> {
        self.reconciler.hooks.join();
        let ended = self.reconciler.jobs.end();
        self.answers.join();
        self.reconciler.observer.end(&self.reconciler.runtimes);
        self.reconciler.begun.end();
        ended?;
        // It may be switched off now.
        let mut change = self.state.begin();
        change.next.unwatch();
        Ok(change.commit_attempts()?)
    }

    /// Makes actual equal desired, as far as it can be now. What it begins goes on after it. `pushed` is where the host's
    /// `status` stands; `None` while something was found that this pass didn't take over, so that nothing is dropped of the clone.
    /// Where something waits for this pass, it waits for no runtime for long.
    pub(super) fn pass(
        &mut self,
        found: Result<Option<Found>, PassError>,
        mut is_waited_for: bool,
        pushed: &dyn Fn() -> Option<StatusTip>,
    ) -> Result<(LocalOutcome, Option<Seen>), PassError> {
        if let Ok(found) = &found
            && let Some((local, seen)) = self.look(found.as_ref(), &mut is_waited_for)
        {
            return Ok((local, Some(seen)));
        }
        let rest = Rest::begin(&self.state, &self.device.home);
        let mut result = found.and_then(|found| self.make_pass(found, is_waited_for));
        if self.is_mended_later || self.is_to_be_mended(result.as_ref().err()) {
            let clone = self.clone.clone();
            match clone.try_take() {
                Some(_in_use) => match self.mend_after(result.as_ref().err()) {
                    Ok(false) => {}
                    // What the host has of it is fetched anew.
                    Ok(true) => {
                        result = self
                            .make_pass(None, is_waited_for)
                            .map(|(local, seen)| (LocalOutcome { is_outdated: true, ..local }, seen));
                    }
                    Err(error) => result = Err(error),
                },
                None => {
                    self.current.interrupt();
                    self.is_mended_later = true;
                }
            }
        }
        self.note_failure(&result);
        let clone = self.clone.clone();
        if let (true, Some(_in_use)) = (result.is_ok(), clone.try_take())
            && let Some(pushed) = pushed()
        {
            self.consolidate(pushed)?;
        }
        if let Ok((local, Some(seen))) = &result {
            self.rest(rest, local, seen);
        }
        result
    }

    /// Notes what a pass came to that began then, if nothing is left to do.
    fn rest(&mut self, rest: Rest, local: &LocalOutcome, seen: &Seen) {
        let is_over = local.is_at_rest() && !self.answers.is_at_work() && self.due(rest.since).is_none();
        let is_seen = seen.observation.unreachable.is_empty() && !seen.acted;
        self.at_rest = (is_over && is_seen).then(|| PassAtRest {
            rest,
            local: local.clone(),
            observation: Arc::clone(&seen.observation),
        });
    }

    /// What a pass comes to if all is as the one before left it; `None` where it has to be made in full. Something may wait for it
    /// by then.
    fn look(&mut self, found: Option<&Found>, is_waited_for: &mut bool) -> Option<(LocalOutcome, Seen)> {
        let mut before = self.at_rest.take().filter(|_| !*is_waited_for)?;
        let is_known = |found: &Found| found.is_known(&self.state.lock().store.device_state, &self.heard);
        if !found.is_none_or(is_known) || !before.rest.goes_on(&self.state, &self.device.home) {
            return None;
        }
        let answers = self.reconciler.observe_at_rest()?;
        *is_waited_for = answers.is_waited_for;
        if answers.now != *before.observation {
            return None;
        }
        tracing::debug!("all is as the newest pass in full left it");
        let seen = Seen { observation: Arc::clone(&before.observation), acted: false, is_soon: false };
        let local = before.local.clone();
        self.at_rest = Some(before);
        Some((local, seen))
    }

    fn note_failure<T>(&mut self, result: &Result<T, PassError>) {
        self.last_failure.note(result.as_ref().err().map(|error| error as _), Timestamp::now());
    }

    /// Keeps the clone's packs bounded, and what of its history the host has.
    fn consolidate(&mut self, pushed: StatusTip) -> Result<(), PassError> {
        let pushed = if let StatusTip::At(tip) = pushed { Some(tip) } else { None };
        Ok(self.state.lock().store.consolidate(self.device.settings.limits.packs, pushed)?)
    }

    /// Whether a pass met something in the clone that can't be read.
    fn is_to_be_mended(&self, failed: Option<&PassError>) -> bool {
        let failed = match failed {
            Some(PassError::Accepted(_) | PassError::Status(_)) => true,
            Some(PassError::Store(error)) => !is_disk_full(error),
            _ => false,
        };
        failed || self.state.lock().store.is_suspect()
    }

    /// Repairs the clone if the pass met something in it that can't be read. Returns whether it had to be rebuilt.
    fn mend_after(&mut self, failed: Option<&PassError>) -> Result<bool, PassError> {
        let is_due = std::mem::take(&mut self.is_mended_later) || self.is_to_be_mended(failed);
        Ok(is_due && self.state.lock().store.repair()?)
    }

    fn make_pass(
        &mut self,
        found: Option<Found>,
        is_waited_for: bool,
    ) -> Result<(LocalOutcome, Option<Seen>), PassError> {
        // Before anything is asked that may be slow to answer.
        let clocks = clocks(&self.device.settings, &self.device.boot_id, is_behind(&self.floor));
        self.reconciler.jobs.end_now(&hold::now(&self.device.home, &clocks));
        let requests = Requests::read(&self.device.home);
        if !requests.retry.is_empty() {
            requests.retry.iter().try_for_each(|retry| self.try_again(retry))?;
            Requests::retries_are_done(&self.device.home, &requests.retry);
        }
        if let Some(found) = &found {
            self.heard.is_resumed |= found.is_resumed;
            if found.newer_roster.as_ref().is_some_and(|newest| self.floor.lift_to_roster(newest)) {
                self.floor.raise(&self.device.home.floor())?;
            }
        }
        let view = self.state.view();
        if view.status.is_none() && !self.heard.is_resumed {
            return Ok((LocalOutcome::knowing_nothing(&view.device_state), None));
        }
        let (device, clock, view, floor) = (&self.device, &self.clock, &view, &mut self.floor);
        let (heard, last_read) = (&mut self.heard, &mut self.last_read);
        let mut pass = Acceptance { device, clock, view, floor, heard, last_read }.take(found, &self.events)?;
        let is_silent =
            |desired: &Desired| self.keeps_silence && silent_for(&self.device, desired, &self.floor).is_some();
        // Windows are read only where something hangs on it.
        if pass.conditions.iter().any(is_expired) && pass.desired.as_deref().is_some_and(is_silent) {
            keep_staleness(&mut pass.conditions, &view.device_state);
        }
        let next_key = pass.next_key.take();
        let is_rekeyed = next_key.is_some();
        if let (Some(key), Some(adopted)) = (next_key, pass.next.accepted.as_ref().and_then(Accepted::id)) {
            self.state.lock().store.sign_after(adopted, key);
        }
        let (done, observation) = self.reconciler.reconcile(&self.device, &self.state, &pass, is_waited_for)?;
        if is_rekeyed && let Err(error) = rekey::settle(&self.device.home) {
            tracing::warn!(error = error_chain(&error), "the old key stays on the disk until the next start");
        }
        self.events.clear();
        let view = self.state.view();
        if let Some(desired) = pass.desired.as_deref() {
            encrypted::forget_old_key(&self.device.home, encrypted::deployments(Some(desired), &view.device_state));
        }
        let is_answered = self.answers.reap();
        if let Some(desired) = pass.desired.as_deref() {
            self.answer(desired, &view.device_state)?;
        }
        if requests.accept_history.is_some_and(|commit| accepted::is_in_force(&view, commit)) {
            Requests::history_is_accepted(&self.device.home);
        }
        let conditions = conditions::all(&view.device_state.status);
        let not_ready = health::not_ready(&observation, &view.device_state, pass.desired.as_deref());
        self.log_not_ready(&not_ready);
        let is_clear = not_ready.is_empty() && !conditions.iter().any(conditions::is_in_the_way);
        let is_left = !done.up_to_date && not_ready.is_empty() && pass.desired.is_some();
        let removals_are_left = is_left && !done.at_work;
        let just_began = done.at_work && self.reconciler.jobs.are_younger_than(SOON);
        let passed = LocalOutcome {
            done,
            is_outdated: pass.is_outdated,
            is_clear,
            just_began,
            problems: self.problems(&view.device_state.waiting, &conditions, removals_are_left),
            not_ready,
            poll: self.device.poll_interval(pass.desired.as_deref()),
        };
        let acted = done.acted || is_answered;
        let seen = Seen { observation: Arc::new(observation), acted, is_soon: just_began };
        Ok((passed, Some(seen)))
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

    /// Lets what was given up be tried again, as a person at the device says: everything, or one deployment by the operator's id.
    fn try_again(&mut self, deployment: &str) -> Result<(), PassError> {
        let view = self.state.view();
        let again = match deployment {
            "" => Again::All,
            _ => self.again(deployment, accepted::read(&view, &view.device_state)?.as_ref(), &view.device_state),
        };
        if matches!(again, Again::Nothing) {
            tracing::warn!(deployment, "no deployment of this id is wanted, so nothing is tried again");
        }
        let mut change = self.state.begin();
        change.put_back(&again);
        change.commit()?;
        Ok(())
    }

    /// What is tried again of one deployment, by the operator's id.
    fn again(&self, name: &str, desired: Option<&Desired>, device_state: &DeviceState) -> Again {
        let capabilities = device_state.status.get(CAPABILITIES);
        let wanted = desired.map(|desired| self.reconciler.resolve(&self.device, desired, capabilities));
        let found = wanted.into_iter().flatten().find(|wanted| wanted.name.as_str() == name);
        found.map_or(Again::Nothing, |wanted| Again::Of(Box::new(wanted)))
    }

    /// Begins to answer what the fleet asks for, if that is due. It is durable that it was begun before anything is done for it, and
    /// a retry is done with that.
    fn answer(&mut self, desired: &Desired, device_state: &DeviceState) -> Result<(), PassError> {
        if self.answers.is_at_work() {
            return Ok(());
        }
        let now = Timestamp::now();
        let standing = self.answers.forget_old(now);
        let Some((ask, asked)) = desired.envelope.policy.ask.as_ref().zip(device_state.asked) else { return Ok(()) };
        let is_answered = standing.contains_key(&answer_path(ask.number));
        if !asked.is_due(ask, is_answered, now) || !self.answers.may_begin(ask.number) {
            return Ok(());
        }
        let given = answers::read(&self.device.home, now);
        let task = ask::task(ask, &self.device.settings.remote, (desired, &device_state.names()), &given);
        if ask.number > asked.number {
            let again = match &task {
                Ok(Task::Retry(None)) => Again::All,
                Ok(Task::Retry(Some(name))) => self.again(name.as_str(), Some(desired), device_state),
                _ => Again::Nothing,
            };
            let mut change = self.state.begin();
            change.next.asked = Some(Asked { number: ask.number, at: Some(now) });
            change.try_again(&again);
            change.commit()?;
        }
        self.answers.begin(ask.clone(), task, self.device.settings.path.clone());
        Ok(())
    }

    /// How long until a pass is due: something may begin that couldn't at `began`, when the newest one began, or a gate opens by
    /// itself.
    pub fn due(&self, began: Instant) -> Option<Duration> {
        let state = self.state.lock();
        let mended = self.is_mended_later.then_some(MEND);
        let behind = self.reconciler.observer.is_behind().then_some(Duration::ZERO);
        let (opens, old) = (self.reconciler.gate_opens(), self.reconciler.jobs.until_old(began));
        let begun = self.reconciler.begun.due(Instant::now());
        let again = [state.retries.next(began), state.restores.next(began), opens, old, mended, behind, begun];
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
    let was_told = conditions::all(&device_state.status).iter().any(is_expired);
    conditions.retain(|one| was_told || !is_expired(one));
}

/// Whether it says that no proof of freshness counts any more.
fn is_expired(one: &Condition) -> bool {
    one.kind == ConditionType::Stale && one.reason == Reason::Expired
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
