//! The side of the host: asks it, fetches and judges what it has, and tells it what this device says. It touches no runtime, and
//! accepts nothing: what it found is handed over. However slow the host is, nothing else waits for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use repo_git::Remote;
use repo_model::desired::Desired;
use repo_model::roster::Trust;

use crate::config::Device;
use crate::config::device::POLL;
use crate::decision::heartbeat;
use crate::decision::observation::Observation;
use crate::host::client::HostClient;
use crate::host::fetch::Fetcher;
use crate::host::heartbeat::Heartbeat;
use crate::host::refs::{Ask, RemoteRefs, StatusTip};
use crate::host::status::{StatusBranch, Told};
use crate::host::status_push::StatusPush;
use crate::reconcile::accept::{Found, fetch_and_judge};
use crate::reconcile::at_rest;
use crate::reconcile::outcome::{HostAnswer, HostReport};
use crate::reconcile::pass_error::PassError;
use crate::state::accepted::{LastRead, Unreadable};
use crate::state::answers;
use crate::state::floor::Floor;
use crate::state::requests::Requests;
use crate::state::shared::Shared;
use crate::state::view::View;

/// Held by whoever works in the clone for long: the host's side while it fetches, judges and pushes, and whoever drops something
/// from the clone.
#[derive(Debug, Clone, Default)]
pub(super) struct CloneInUse(Arc<Mutex<()>>);

impl CloneInUse {
    /// Waits for the other one.
    pub(super) fn take(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` while the other one is at work in it.
    pub(super) fn try_take(&self) -> Option<MutexGuard<'_, ()>> {
        self.0.try_lock().ok()
    }
}

/// What a pass saw, for the heartbeat.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) observation: Arc<Observation>,
    /// Something was tried since the heartbeat was last replaced.
    pub(super) acted: bool,
    /// What has just begun says soon what it comes to.
    pub(super) is_soon: bool,
}

/// Talks with the host for one device.
#[derive(Debug)]
pub struct HostSide {
    pub(super) device: Device,
    pub(super) client: HostClient,
    /// The `heartbeat` that the host took last.
    pub heartbeat: Heartbeat,
    /// What this device answered to the fleet.
    answers: answers::Known,
    pub(super) state: Shared,
    /// Pushes `status` beside what is at work.
    status_push: Option<Arc<StatusPush>>,
    /// Where the host's branches stand; `None` where that isn't known.
    refs: Option<RemoteRefs>,
    answer: HostAnswer,
    poll: Duration,
    /// The accepted state, and how it was read last.
    desired: Option<Arc<Desired>>,
    last_read: LastRead,
    has_more: bool,
    /// How long the host isn't to be talked to, where a running syncer keeps windows for that.
    pub(super) silent: Option<Duration>,
    pub(super) clone: CloneInUse,
}

impl HostSide {
    /// Of a syncer that has asked nothing so far, and may talk at any time.
    pub(super) fn new(device: Device, client: HostClient, state: Shared) -> Self {
        let (heartbeat, status_push, answer, clone) =
            (Heartbeat::default(), None, HostAnswer::NotAsked, CloneInUse::default());
        let (refs, poll, desired, last_read, silent) = (None, POLL, None, LastRead::default(), None);
        let answers = answers::Known::default();
        Self {
            device,
            client,
            heartbeat,
            answers,
            state,
            status_push,
            refs,
            answer,
            poll,
            desired,
            last_read,
            has_more: false,
            silent,
            clone,
        }
    }

    /// The device's repository at the host.
    pub fn remote(&self) -> &Remote {
        self.client.remote()
    }

    /// Where that is, as the join file, the roster or a person at the device says.
    pub fn url(&self) -> &str {
        &self.client.connection.url
    }

    /// Other settings count from now on.
    pub(super) fn follow(&mut self, device: Device) {
        self.device = device;
        self.client.connection.renew(&self.device.home, &self.device.join, &self.device.settings.host);
    }

    /// Asks the host, if this asks it, and judges what it has by this floor. Returns what it has; `None` where it isn't asked.
    pub(super) fn ask(&mut self, ask: Ask, floor: &Floor) -> Result<Option<Found>, PassError> {
        let found = self.ask_and_fetch(ask, floor);
        match &found {
            Ok(Some(found)) => self.answer = found.host,
            Ok(None) => {}
            Err(_) => self.answer = HostAnswer::Unreachable,
        }
        found
    }

    fn ask_and_fetch(&mut self, ask: Ask, floor: &Floor) -> Result<Option<Found>, PassError> {
        if matches!(ask, Ask::Later(_)) {
            self.refs = None;
            return Ok(None);
        }
        let requests = Requests::read(&self.device.home);
        let is_asked = self.client.is_asked(ask);
        if requests.sync && is_asked {
            Requests::host_is_asked(&self.device.home);
            self.client.push_status_again();
        }
        self.refs = self.client.remote_refs(ask, &self.device);
        if !is_asked {
            return Ok(None);
        }
        let newer_roster = self.newer_roster(floor);
        if newer_roster.is_some() {
            // At the place and by the authority that it names.
            self.refs = self.client.remote_refs(ask, &self.device);
        }
        let is_resumed = status_branch(&mut self.client, &self.state, &self.device).resume(self.refs.as_ref())?;
        let view = self.state.view();
        let refs = (self.refs.as_mut(), is_resumed);
        let mut found = fetch_and_judge(&mut self.client, &self.device, &view, floor, refs, requests.accept_history);
        found.newer_roster = newer_roster;
        Ok(Some(found))
    }

    fn newer_roster(&mut self, floor: &Floor) -> Option<Trust> {
        if !self.client.asks_for_rosters() {
            return None;
        }
        let (view, connection) = (self.state.view(), &self.client.connection);
        let known = Fetcher { connection, device: &self.device, view: &view, floor }.trust().ok()?;
        self.client.newer_roster(&self.device, &known)
    }

    /// Pushes what the host doesn't know yet, and returns whether it knows all of it then. Nothing is pushed before a `desired`
    /// was believed, nor while this device waits for one that lists it.
    pub(super) fn push(&mut self, seen: &mut Option<Seen>) -> Result<bool, PassError> {
        let view = self.state.view();
        self.read_desired(&view)?;
        let desired = self.desired.as_deref();
        self.poll = self.device.poll_interval(desired);
        self.has_more = false;
        if view.device_state.waiting.is_some() {
            return Ok(false);
        }
        let (Some(refs), Some(desired)) = (&mut self.refs, desired) else { return Ok(desired.is_none()) };
        let told = status_branch(&mut self.client, &self.state, &self.device).push(refs, desired)?;
        self.has_more = told == Told::PartForNow;
        let is_told = told == Told::All;
        let Some(seen) = seen else { return Ok(is_told) };
        let now = Timestamp::now();
        let current = {
            let state = self.state.lock();
            let attempts = |project: &str| state.retries.count(project);
            // What was accepted since is told already.
            let accepted = state.store.device_state.accepted.as_ref();
            let serial = accepted.map_or(desired.envelope.serial, |accepted| accepted.serial);
            heartbeat::current_state(&state.store.device_state, &seen.observation, &attempts, serial, now)
        };
        let interval = self.device.report_interval(desired);
        let answers = self.answers.standing(&self.device.home, now);
        let is_new = !self.heartbeat.has_answers(&answers);
        if seen.acted || (is_new || heartbeat::is_due(self.heartbeat.pushed(), &current, interval)) && !seen.is_soon {
            self.heartbeat.push(&mut self.client, &self.state, &self.device, refs, (current, answers))?;
            seen.acted = false;
        }
        Ok(is_told)
    }

    /// Whether the host took what one turn tells, and there is more.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    /// The accepted state as it was last read.
    pub(super) fn desired(&self) -> Option<&Desired> {
        self.desired.as_deref()
    }

    /// Reads the accepted state, unless that was done a while ago.
    pub(super) fn read_desired(&mut self, view: &View) -> Result<(), Unreadable> {
        self.desired = self.last_read.read(view, &view.device_state)?;
        Ok(())
    }

    /// Where the host's `status` stands, as far as that is known.
    pub(super) fn status(&self) -> StatusTip {
        self.refs.as_ref().map_or(StatusTip::Unknown, |refs| refs.status.into())
    }

    /// From here on it is noted anew how talking with the host goes.
    pub(super) fn begin(&mut self) {
        self.client.connectivity.begin();
    }

    /// How it stands with the host now, after it was asked like this and told.
    pub(super) fn report(&mut self, ask: Ask, is_told: bool) -> HostReport {
        if !matches!(ask, Ask::Later(_)) {
            self.client.connectivity.end();
        }
        let status = self.status();
        let problem = self.client.connectivity.problem().map(ToString::to_string);
        let retry_after = self.client.connectivity.retry_after();
        let is_silent = self.silent.is_some();
        HostReport { answer: self.answer, status, is_told, is_silent, problem, retry_after, poll: self.poll }
    }

    /// How long no other turn is needed after one that told what a pass saw, while nothing changes and a wait at the host goes on:
    /// until the heartbeat is to be replaced, or a pass in full should have come long ago. `None` where the host doesn't
    /// know everything.
    pub(super) fn rests(&self, seen: Option<&Seen>, is_told: bool) -> Option<Duration> {
        let desired = self.desired().filter(|_| is_told && seen.is_some_and(|seen| !seen.acted))?;
        // A turn is what finds that they begin.
        let has_windows = self.device.settings.gates.windows.is_some() || desired.envelope.policy.windows.is_some();
        let report = self.heartbeat.pushed()?.time.checked_add(self.device.report_interval(desired)).ok()?;
        let until = Duration::try_from(report.duration_since(Timestamp::now())).ok().filter(|_| !has_windows)?;
        Some(until.min(at_rest::longest(self.poll)))
    }

    /// Whether there is anything that the host may be told, whatever it knows.
    fn is_heard(&self) -> bool {
        let device_state = self.state.view().device_state;
        device_state.accepted.is_some() && device_state.waiting.is_none()
    }

    /// From now on `status` is pushed as soon as it says something new.
    pub(super) fn begin_push(&mut self) {
        let is_heard = self.is_heard() && self.client.may_push_status();
        let Some(refs) = self.refs.as_ref().filter(|_| is_heard) else { return };
        let push = Arc::new(StatusPush::new(self.client.remote().clone(), Some(refs)));
        self.status_push = Some(Arc::clone(&push));
        self.state.listen(Some(Box::new(move |store| push.push(store))));
    }

    /// Waits for the push that is in flight; nothing is pushed beside the work from here on.
    pub(super) fn end_push(&mut self) {
        let Some(push) = self.status_push.take() else { return };
        self.state.listen(None);
        self.client.status_is_at(push.end());
    }
}

fn status_branch<'a>(host: &'a mut HostClient, state: &'a Shared, device: &'a Device) -> StatusBranch<'a> {
    StatusBranch { host, state, device }
}
