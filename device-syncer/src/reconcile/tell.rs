//! Tells the host: pushes `status`, and replaces `heartbeat` at the report interval.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use jiff::Timestamp;
use repo_git::repo::TreeLimits;
use repo_git::{Commit, CommitId, FetchError, PushError, PushResult, PushUpdate, Remote, Repo};
use repo_model::desired::Desired;
use repo_model::message::Message;
use repo_model::report::{CURRENT_STATE, CurrentComponent, CurrentDeployment, CurrentState};
use repo_model::{DeploymentId, FileTree, KeyText, envelope, error_chain, json};
use uuid::Uuid;

use crate::decision::conditions::{self, EVENT, condition};
use crate::decision::device_state::Accepted;
use crate::decision::health::Health;
use crate::decision::observation::Observation;
use crate::decision::status::Report;
use crate::host::verify::key_text;
use crate::reconcile::apply;
use crate::reconcile::pass::{PassError, Syncer};
use crate::reconcile::update::{self, History, RemoteRefs};
use crate::state::store::Store;

/// How often the heartbeat is replaced where nothing else is said.
const REPORT: Duration = Duration::from_secs(300);

/// What to do about the tip of `status` on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Theirs {
    /// It stands where it was left, or nowhere.
    Known,
    /// An allowed key signed it, and it isn't in our history: our commits go on top of it.
    Ours(CommitId),
    /// A key signed it that was allowed then, and isn't any more: this device on its disk before. Ours go on top of it.
    Before(CommitId),
    /// No allowed key signed it: it is replaced.
    Foreign(CommitId),
}

/// Tells the host of the newest state while a pass goes on, for as long as it takes what it is told, and beside the pass:
/// however slow the host is, nothing waits for it. The rest is for [`Syncer::push_status`] at the end of the pass.
pub(crate) struct StatusPush {
    remote: Remote,
    /// Where the host's `status` stood; `None` if that isn't known.
    known: Option<Option<CommitId>>,
    worker: RefCell<Option<Worker>>,
}

/// The thread that pushes, made when there is something to tell.
struct Worker {
    tips: Sender<CommitId>,
    /// Where the host's `status` stands at its end.
    end: JoinHandle<Option<CommitId>>,
}

impl StatusPush {
    pub(crate) fn new(remote: Remote, refs: Option<&RemoteRefs>) -> Self {
        Self { remote, known: refs.map(|refs| refs.status), worker: RefCell::default() }
    }

    /// Has the local `status` pushed, if it only adds to what the host has.
    pub(crate) fn push(&self, store: &Store) {
        let (Some(new), Some(known)) = (store.status_tip(), self.known) else { return };
        let mut worker = self.worker.borrow_mut();
        let worker = worker.get_or_insert_with(|| Worker::start(self.remote.clone(), store.repo.path(), known));
        // One that has ended tells nothing more.
        let _ = worker.tips.send(new);
    }

    /// Waits for what is under way; where the host's `status` stands then, by all that is known.
    pub(crate) fn end(self) -> Option<CommitId> {
        let known = self.known.flatten();
        self.worker.into_inner().map_or(known, |worker| {
            drop(worker.tips);
            worker.end.join().unwrap_or(known)
        })
    }
}

impl Worker {
    fn start(remote: Remote, repo: &Path, known: Option<CommitId>) -> Self {
        let (tips, pushed) = channel();
        let repo = repo.to_owned();
        Self { tips, end: thread::spawn(move || push_each(&remote, &repo, known, &pushed)) }
    }
}

/// Pushes the newest tip until there are no more, or the host doesn't take one; where its `status` stands then.
fn push_each(remote: &Remote, repo: &Path, known: Option<CommitId>, tips: &Receiver<CommitId>) -> Option<CommitId> {
    let mut tip = known;
    while let Ok(next) = tips.recv() {
        let new = tips.try_iter().last().unwrap_or(next);
        let update = PushUpdate { branch: "status".to_owned(), expected: tip, new, force: false };
        let pushed = Repo::open_briefly(repo).ok().and_then(|repo| remote.push(&repo, &[update]).ok());
        if !matches!(pushed.as_deref(), Some([PushResult::Done])) {
            break;
        }
        tip = Some(new);
    }
    tip
}

/// What a push came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pushed {
    Done,
    /// The host won't have this commit, or lacks what it builds on.
    Refused,
    /// The branch stands elsewhere by now, the host wasn't reached, or what is here can't be read: the next pass tries
    /// again.
    NotNow,
}

impl Syncer {
    /// A device that knows nothing of its `status`, because it is new or its clone was lost, goes on from the host's if
    /// its own key signed that, so that no transition is told twice. Returns false if that can't be found out now.
    pub(crate) fn find_status_again(&mut self, refs: Option<&RemoteRefs>) -> Result<bool, PassError> {
        if self.store.status_tip().is_some() {
            return Ok(true);
        }
        let Some(refs) = refs else { return Ok(false) };
        let Some(tip) = refs.status else { return Ok(true) };
        match update::fetch(&self.connection.remote, &self.store, &[tip], History::Since(None), &self.settings.limits) {
            Ok(()) => {}
            Err(FetchError::Remote(error)) => {
                self.connectivity.failed(&error, "the host's `status` can't be fetched", Timestamp::now());
                return Ok(false);
            }
            Err(error @ (FetchError::Store { .. } | FetchError::Read(_))) => return Err(PassError::Status(error)),
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "the host's `status` is not ours");
                return Ok(true);
            }
        }
        if self.signer(tip).is_some_and(|key| key == self.key) {
            tracing::warn!(%tip, "going on from the `status` that the host has");
            let other = self.instance_of(tip).filter(|other| *other != self.instance);
            _ = self.store.replant(Some(tip), Timestamp::now().as_second())?;
            if let Some(other) = other {
                self.report_fork(tip, Some(other))?;
            }
        }
        Ok(true)
    }

    /// Pushes what the host doesn't know; returns whether it knows everything now. Nothing is pushed before a
    /// `desired` was believed.
    pub(crate) fn push_status(&mut self, refs: &RemoteRefs, desired: &Desired) -> Result<bool, PassError> {
        if self.store.status_tip() == refs.status {
            return Ok(true);
        }
        let theirs = match refs.status.map_or(Ok(Theirs::Known), |tip| self.judge_theirs(tip, desired)) {
            Ok(theirs) => theirs,
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "the host's `status` can't be read");
                return Ok(false);
            }
        };
        if self.store.is_suspect() {
            // Whose commits they are can't be told by a history that can't be read.
            return Ok(false);
        }
        match theirs {
            Theirs::Known => {}
            Theirs::Ours(tip) => {
                let moved = self.store.replant(Some(tip), Timestamp::now().as_second())?;
                let made_by = self.instance_of(tip);
                // What a damaged clone lost of this installation's own history is no fork.
                if self.store.device_state.damaged.is_none() || made_by != Some(self.instance) {
                    self.report_fork(tip, made_by)?;
                }
                let Some(moved) = moved else {
                    // What is told of an older state waits for the next one, so that `status` never goes backwards.
                    tracing::debug!(onto = %tip, "another installation has told of a newer state");
                    return Ok(false);
                };
                tracing::warn!(onto = %tip, commits = moved, "going on from a `status` that was moved elsewhere");
            }
            Theirs::Before(tip) => {
                let Some(moved) = self.store.replant(Some(tip), Timestamp::now().as_second())? else {
                    return Ok(false);
                };
                tracing::warn!(onto = %tip, commits = moved, "going on from what this device said with its key before");
            }
            Theirs::Foreign(tip) => {
                self.report_event(
                    "StatusReplaced",
                    format!("{tip} on `status`, which no allowed key signed, is replaced"),
                )?;
            }
        }
        let Some(new) = self.store.status_tip().filter(|new| Some(*new) != refs.status) else { return Ok(true) };
        let force = matches!(theirs, Theirs::Foreign(_));
        let update = PushUpdate { branch: "status".to_owned(), expected: refs.status, new, force };
        let mut pushed = self.push_one(&update);
        if pushed == Pushed::Refused && (force || refs.status.is_none()) && !self.store.has_whole_status()? {
            let moved = self.store.replant(None, Timestamp::now().as_second())?;
            tracing::warn!(commits = moved, "the host lost `status`; what is here of it is told anew");
            pushed = self.push_one(&PushUpdate { new: self.store.status_tip().unwrap_or(new), ..update });
        }
        Ok(pushed == Pushed::Done)
    }

    fn push_one(&mut self, update: &PushUpdate) -> Pushed {
        self.refs = None;
        match self.connection.remote.push(&self.store.repo, std::slice::from_ref(update)) {
            Ok(results) => match results.into_iter().next() {
                Some(PushResult::Done) => Pushed::Done,
                other => {
                    tracing::warn!(branch = update.branch, answer = ?other, "the host didn't take the push");
                    if matches!(other, Some(PushResult::Refused { .. })) { Pushed::Refused } else { Pushed::NotNow }
                }
            },
            Err(PushError::Remote(error)) => {
                let doing = format!("can't push `{}`", update.branch);
                self.connectivity.failed(&error, &doing, Timestamp::now());
                Pushed::NotNow
            }
            Err(error) => {
                tracing::warn!(branch = update.branch, error = error_chain(&error), "can't push");
                if matches!(error, PushError::Unpack { .. }) { Pushed::Refused } else { Pushed::NotNow }
            }
        }
    }

    fn judge_theirs(&self, tip: CommitId, desired: &Desired) -> Result<Theirs, FetchError> {
        let ours = self.store.status_tip();
        if ours.is_some_and(|ours| self.store.descends(ours, tip)) {
            return Ok(Theirs::Known);
        }
        match update::fetch(&self.connection.remote, &self.store, &[tip], History::Since(ours), &self.settings.limits) {
            // A device's own tip alone is never that large.
            Err(error) if error.is_too_much() => return Ok(Theirs::Foreign(tip)),
            result => result?,
        }
        let allowed: &[KeyText] = &desired.envelope.device.status_keys;
        Ok(match self.signer(tip) {
            Some(key) if allowed.contains(&key) || key == self.key => Theirs::Ours(tip),
            Some(key) if self.was_ours(tip, &key)? => Theirs::Before(tip),
            _ => Theirs::Foreign(tip),
        })
    }

    /// Whether a tip of `status` is what this device said with another key, before this installation said anything there:
    /// the commit of `desired` that it names allowed that key. Whoever still has the key can't go on from what we said.
    fn was_ours(&self, tip: CommitId, key: &KeyText) -> Result<bool, FetchError> {
        let named = |commit: Commit| Message::parse(&commit.message).get("Desired-Commit")?.parse::<CommitId>().ok();
        let accepted = self.store.device_state.accepted.as_ref().and_then(Accepted::id);
        let (Some(named), Some(accepted)) = (self.store.repo.commit(tip).ok().and_then(named), accepted) else {
            return Ok(false);
        };
        if self.store.has_said_before(tip)? {
            return Ok(false);
        }
        // The clone may end at the accepted commit, which names its parent all the same.
        if self.store.repo.commit(named).is_err() || !self.store.descends(accepted, named) {
            match update::fetch_history(&self.connection.remote, &self.store, accepted, &self.settings.limits) {
                Err(error @ (FetchError::Remote(_) | FetchError::Store { .. })) => return Err(error),
                Err(error) => tracing::warn!(error = error_chain(&error), "the history of `desired` can't be had"),
                Ok(()) => {}
            }
        }
        // What the accepted commit descends from is the publisher's, too.
        let files = self.store.repo.files(named, &TreeLimits::default());
        let allowed = files.ok().and_then(|files| repo_model::desired::read(&files).ok());
        let allowed = allowed.is_some_and(|desired| desired.envelope.device.status_keys.contains(key));
        Ok(allowed && self.store.descends(accepted, named))
    }

    fn signer(&self, commit: CommitId) -> Option<KeyText> {
        Some(key_text(&self.store.repo.commit(commit).ok()?.signer().ok()?))
    }

    /// The installation that made a `status` commit, by its own word.
    fn instance_of(&self, tip: CommitId) -> Option<Uuid> {
        Some(conditions::report(&self.store.repo.files(tip, &TreeLimits::default()).ok()?)?.instance)
    }

    /// Says that somebody else speaks in this device's name.
    fn report_fork(&mut self, tip: CommitId, other: Option<Uuid>) -> Result<(), PassError> {
        let installations = other.into_iter().chain([self.instance]);
        let names: BTreeSet<_> = installations.map(|instance| instance.to_string()).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(" and ");
        let text = match other {
            Some(other) if other == self.instance => {
                format!("installation {names} is there twice, or was put back: it made {tip} elsewhere")
            }
            _ => format!("installations {names} use the same identity"),
        };
        self.report_event("history-forked", text)
    }

    /// Tells of a security event on `status`, until the next adoption.
    fn report_event(&mut self, reason: &str, message: String) -> Result<(), PassError> {
        let mut next = self.store.device_state.clone();
        let all: Vec<_> =
            conditions::all(&next.status).into_iter().chain([condition(EVENT, reason, message)]).collect();
        conditions::write(&mut next, self.instance, &all);
        let (report, identity) = (Report::read(&next.status), self.identity());
        apply::commit(&mut self.store, next, &report, &identity, Timestamp::now())?;
        Ok(())
    }

    /// Replaces the heartbeat by this state.
    pub(crate) fn beat(&mut self, refs: &RemoteRefs, state: CurrentState) -> Result<(), PassError> {
        let message = Message::new(format!("heartbeat (serial {})", state.serial))
            .trailer("Kind", "heartbeat")
            .trailer("Fleet", self.join.fleet)
            .trailer("Device", &self.join.device)
            .trailer("Serial", state.serial);
        let files = FileTree::from([(CURRENT_STATE.to_owned(), json::to_bytes(&state))]);
        let new = self.store.parentless(&files, &message, state.time.as_second())?;
        let branch = "heartbeat".to_owned();
        if self.push_one(&PushUpdate { branch, expected: refs.heartbeat, new, force: true }) == Pushed::Done {
            self.reported = Some(state);
        }
        Ok(())
    }

    /// Whether the heartbeat's time has come, or anything is in other health than it says.
    pub(crate) fn is_due(&self, desired: &Desired, state: &CurrentState) -> bool {
        let fleet = desired.envelope.policy.report_seconds.map(Duration::from_secs);
        let interval = self.settings.report.or(fleet).unwrap_or(REPORT);
        let interval = jiff::SignedDuration::try_from(interval).unwrap_or(jiff::SignedDuration::MAX);
        self.reported
            .as_ref()
            .is_none_or(|last| words(last) != words(state) || state.time.duration_since(last.time).abs() >= interval)
    }

    pub(crate) fn current_state(&self, desired: &Desired, observation: &Observation, time: Timestamp) -> CurrentState {
        let device_state = &self.store.device_state;
        let mut deployments: BTreeMap<_, CurrentDeployment> = BTreeMap::new();
        for (id, reported) in &Report::read(&device_state.status).deployments {
            for component in &reported.components {
                let project = id.runtime_name(&component.name);
                let found = observation.found.iter().find(|found| found.project == project);
                let Health { health, drift, reason } = Health::of(&project, observation, device_state);
                let current = CurrentComponent {
                    input_digest: found.and_then(|found| found.input_digest),
                    state: component.state.to_string(),
                    health: health.to_owned(),
                    drift: drift.to_owned(),
                    reason,
                    attempts: self.retries.count(&project),
                };
                deployments.entry(*id).or_default().components.insert(component.name.clone(), current);
            }
        }
        CurrentState { layout: envelope::LAYOUT, time, serial: desired.envelope.serial, deployments }
    }
}

/// Digest, state, health and drift of each component: what is told at once. A reason may be another one at each look.
fn words(state: &CurrentState) -> BTreeMap<DeploymentId, CurrentDeployment> {
    let mut deployments = state.deployments.clone();
    for component in deployments.values_mut().flat_map(|deployment| deployment.components.values_mut()) {
        (component.reason, component.attempts) = (None, 0);
    }
    deployments
}
