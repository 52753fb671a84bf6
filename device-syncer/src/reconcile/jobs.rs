//! Jobs at work, each in a thread of its own, so that none waits for another: bounded in number, ended where the desired state
//! wants something else by now, and outliving the pass that began them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use repo_model::{DeploymentId, IntoSet};
use tokio::sync::Notify;

use crate::decision::deployment::DesiredDeployment;
use crate::decision::device_state::DeviceState;
use crate::decision::hold::HoldByPerson;
use crate::decision::plan::{Fetching, Plan};
use crate::reconcile::hooks::Hooks;
use crate::reconcile::job::{Job, Work};
use crate::runtimes::{Cancel, Runtimes};
use crate::state::shared::Shared;
use crate::state::store::StoreError;

/// A job that is at work for longer no longer counts among those that may be at work at once.
const YOUNG: Duration = Duration::from_secs(120);

#[cfg(not(feature = "cut-points"))]
fn young() -> Duration {
    YOUNG
}

/// [`YOUNG`], or so many seconds as `SYNC_YOUNG` says: tests of the whole program don't wait for two minutes.
#[cfg(feature = "cut-points")]
fn young() -> Duration {
    let seconds = std::env::var("SYNC_YOUNG").ok().and_then(|text| text.parse().ok());
    seconds.map_or(YOUNG, Duration::from_secs)
}

/// How long what changes something goes on after it is asked to end; what only fetches, or waits for health, ends at once.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// Because something else is wanted by now.
    outdated: Duration,
    /// The same, once what runs only once has begun.
    outdated_once: Duration,
    /// Because the program ends: the service manager gives it 90 seconds.
    program: Duration,
}

const PATIENCE: Patience = Patience {
    outdated: Duration::from_secs(120),
    outdated_once: Duration::from_secs(600),
    program: Duration::from_secs(60),
};

/// How many may be at work at once.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Of those that began within the last two minutes.
    young: usize,
    /// Of all: what takes long is often a client that only waits, and each takes some 100 MB. Without one, what only waits for
    /// health counts for nothing.
    all: usize,
}

impl Bounds {
    /// So many young ones on a device with so many bytes of memory.
    pub fn new(young: usize, memory: u64) -> Self {
        let all = if memory < 1 << 30 { 3 } else { 6 };
        Self { young, all: all.max(young) }
    }
}

/// What is at work, since before what runs was observed.
#[derive(Debug, Default, Clone)]
pub(super) struct AtWork {
    /// What those jobs work on that others wait for, by the operator's ids.
    names: BTreeSet<String>,
    works_on: BTreeSet<String>,
    /// Those of them that more is done with than to fetch what they need.
    changes: BTreeSet<String>,
    /// The deployments of which components are applied, what is done of them included.
    applies: BTreeSet<DeploymentId>,
    tried: BTreeSet<String>,
}

impl AtWork {
    /// Whether a job works on this project.
    pub(super) fn works_on(&self, project: &str) -> bool {
        self.works_on.contains(project)
    }

    /// Whether a job has worked on it, where each is tried once.
    pub(super) fn was_tried(&self, project: &str) -> bool {
        self.tried.contains(project)
    }

    /// Whether a job changes this project, and doesn't only fetch what it needs.
    pub(super) fn changes(&self, project: &str) -> bool {
        self.changes.contains(project)
    }

    /// Whether a job applies components of this deployment.
    pub(super) fn applies(&self, deployment: DeploymentId) -> bool {
        self.applies.contains(&deployment)
    }

    /// Why something that could begin is `queued`: after whom it waits for its turn.
    pub(super) fn turn(&self) -> String {
        let names: Vec<_> = self.names.iter().map(|name| format!("`{name}`")).collect();
        let after = if names.is_empty() { String::new() } else { format!(" after {}", names.join(", ")) };
        format!("waits for its turn{after}")
    }

    /// What was at work then counts as well.
    pub(super) fn extend(&mut self, then: &Self) {
        self.names.extend(then.names.iter().cloned());
        self.works_on.extend(then.works_on.iter().cloned());
        self.changes.extend(then.changes.iter().cloned());
        self.applies.extend(&then.applies);
    }

    /// Nothing is at work, and these were tried.
    #[cfg(test)]
    pub(super) fn after(tried: BTreeSet<String>) -> Self {
        Self { tried, ..Self::default() }
    }

    /// Whether no other job may begin with it.
    pub(super) fn is_taken(&self, project: &str) -> bool {
        self.works_on(project) || self.was_tried(project)
    }
}

/// Tells the loop, and whoever waits in a thread, that a job has ended, or makes room for another one.
#[derive(Debug, Default)]
struct Ended {
    notify: Arc<Notify>,
    /// Whether anything is queued for which there was no room.
    is_full: AtomicBool,
    /// Whether one has made room since somebody looked.
    makes_room: Mutex<bool>,
    changed: Condvar,
}

impl Ended {
    fn tell(&self, change: impl FnOnce(&mut bool)) {
        change(&mut self.makes_room.lock().unwrap_or_else(PoisonError::into_inner));
        self.notify.notify_one();
        self.changed.notify_all();
    }
}

/// What a job says of itself.
#[derive(Debug, Default)]
struct Told {
    over: AtomicBool,
    /// It only waits for health, without a process.
    waits: AtomicBool,
    /// What it has done with, by project: others may work on that.
    done: Mutex<BTreeSet<String>>,
}

impl Told {
    fn done(&self, project: &str) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).insert(project.to_owned());
    }
}

/// All of a device's jobs.
#[derive(Debug)]
pub struct Jobs {
    bounds: Bounds,
    running: Vec<Running>,
    ended: Arc<Ended>,
    /// Set at the end of the program.
    stop: Arc<AtomicBool>,
    /// What jobs have worked on; `None` where they may try again and again.
    tried: Option<BTreeSet<String>>,
    /// What each asks before its first effect.
    hooks: Hooks,
    patience: Patience,
}

/// What the loop says to a job.
#[derive(Debug, Default)]
struct Said {
    /// Since when something else is wanted.
    outdated: OnceLock<Instant>,
    /// A person wants whatever changes something to end now.
    now: AtomicBool,
    /// No further step is to be taken: a gate has closed.
    halt: AtomicBool,
    /// No further component is to be fetched: the windows for that have closed.
    fetched: AtomicBool,
    /// It is held or suspended, for as long as that is so: nothing of it is put back.
    held: AtomicBool,
}

/// What a job hears, in its own thread.
struct Heard<'a> {
    said: &'a Said,
    stop: &'a AtomicBool,
    /// When it heard first that the program ends.
    stopped: OnceLock<Instant>,
    patience: Patience,
}

impl Heard<'_> {
    /// For how long something else is wanted.
    fn outdated(&self) -> Option<Duration> {
        self.said.outdated.get().map(Instant::elapsed)
    }

    /// For how long the program has been ending.
    fn stopped(&self) -> Option<Duration> {
        self.stop.load(Ordering::Relaxed).then(|| self.stopped.get_or_init(Instant::now).elapsed())
    }

    /// Whether what changes nothing ends.
    fn ends(&self) -> bool {
        self.outdated().or(self.stopped()).is_some()
    }

    /// Whether what changes something ends, which may go on for so long where something else is wanted.
    fn ends_change(&self, outdated: Duration) -> bool {
        let is_over = |since: Option<Duration>, patience| since.is_some_and(|since| since >= patience);
        let is_said = self.said.now.load(Ordering::Relaxed);
        is_said || is_over(self.outdated(), outdated) || is_over(self.stopped(), self.patience.program)
    }

    /// Whether nothing is put back.
    fn is_held(&self) -> bool {
        self.said.held.load(Ordering::Relaxed) || self.ends()
    }

    fn is_halted(&self) -> bool {
        self.said.halt.load(Ordering::Relaxed) || self.said.now.load(Ordering::Relaxed) || self.ends()
    }
}

#[derive(Debug)]
struct Running {
    work: Arc<Work>,
    began: Instant,
    is_suspect: bool,
    said: Arc<Said>,
    told: Arc<Told>,
    thread: JoinHandle<Result<bool, StoreError>>,
}

impl Running {
    fn is_young(&self) -> bool {
        self.began.elapsed() < young()
    }

    fn is_over(&self) -> bool {
        self.told.over.load(Ordering::Acquire)
    }

    /// What it works on still, by project.
    fn projects(&self) -> BTreeSet<&str> {
        let done = self.told.done.lock().unwrap_or_else(PoisonError::into_inner);
        self.work.projects().into_iter().filter(|project| !done.contains(*project)).collect()
    }

    /// Whether it is one of those that may be at work at once. What only waits takes nothing.
    fn counts(&self) -> bool {
        !self.told.waits.load(Ordering::SeqCst)
    }
}

impl Jobs {
    /// None is at work.
    pub fn new(bounds: Bounds) -> Self {
        let (ended, stop, hooks) = (Arc::default(), Arc::default(), Hooks::default());
        Self { bounds, running: Vec::new(), ended, stop, tried: None, hooks, patience: PATIENCE }
    }

    /// From now on each asks the site's hook before its first effect.
    pub(super) fn ask(&mut self, hooks: Hooks) {
        self.hooks = hooks;
    }

    /// So many may be at work at once from now on; what is at work goes on.
    pub fn bound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Notified whenever a job ends, or makes room for what is queued.
    pub fn ended(&self) -> Arc<Notify> {
        Arc::clone(&self.ended.notify)
    }

    /// Ends all jobs once it is set, and lets none begin.
    pub fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// From now on nothing is tried twice; what was tried before this may be tried once more.
    pub fn try_each_once(&mut self) {
        self.tried = Some(BTreeSet::new());
    }

    /// Whether any is at work, or has ended and no pass has taken note of it.
    pub fn is_any(&self) -> bool {
        !self.running.is_empty()
    }

    /// Whether all that are at work began less than `time` ago.
    pub(super) fn are_younger_than(&self, time: Duration) -> bool {
        self.running.iter().all(|job| job.began.elapsed() < time)
    }

    /// How long until one no longer counts as young that did at this moment: then another one may begin.
    pub(super) fn until_old(&self, then: Instant) -> Option<Duration> {
        let ends = self.running.iter().map(|job| job.began + young()).filter(|end| *end > then).min();
        ends.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// What those work on that no longer count as young, by the operator's ids.
    pub(super) fn old(&self) -> Vec<String> {
        self.running.iter().filter(|job| !job.is_young()).map(|job| job.work.name()).collect()
    }

    pub(super) fn at_work(&self) -> AtWork {
        // Beside what may have taken the device down nothing begins, whether it waits or not.
        let in_the_way = self.running.iter().filter(|job| job.counts() || job.is_suspect);
        let names = in_the_way.map(|job| job.work.name()).collect();
        let (mut works_on, mut changes, mut applies) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for job in &self.running {
            if let Work::Deployment { wanted, .. } = &*job.work {
                applies.insert(wanted.id);
            }
            let projects = job.projects().into_iter().map(str::to_owned).into_set();
            if !matches!(*job.work, Work::Fetch { .. }) {
                changes.extend(projects.iter().cloned());
            }
            works_on.extend(projects);
        }
        AtWork { names, works_on, changes, applies, tried: self.tried.clone().unwrap_or_default() }
    }

    /// Takes leave of those that ended. Returns whether any of them tried anything; an error if one couldn't make durable
    /// what it came to.
    pub(super) fn reap(&mut self) -> Result<bool, StoreError> {
        let (over, running) = std::mem::take(&mut self.running).into_iter().partition(Running::is_over);
        self.running = running;
        let (mut acted, mut failed) = (false, None);
        for job in over {
            if let Some(tried) = &mut self.tried {
                tried.extend(job.work.tries().into_iter().map(str::to_owned));
            }
            match job.thread.join() {
                Ok(Ok(tried)) => acted |= tried,
                Ok(Err(error)) => failed = Some(error),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        failed.map_or(Ok(acted), Err)
    }

    /// Ends those whose work isn't wanted any more as it is: at once what only fetches or waits; what changes something has
    /// a while to come to its end.
    pub(super) fn cancel_outdated(&self, wanted: &[DesiredDeployment]) {
        for job in self.running.iter().filter(|job| job.work.is_outdated(wanted)) {
            if job.said.outdated.set(Instant::now()).is_ok() {
                tracing::info!(deployment = job.work.name(), "what is at work is outdated, and ends");
                // It may rest while it waits for health.
                job.thread.thread().unpark();
            }
        }
    }

    /// Ends now what changes something of what a person holds, where they say so.
    pub(super) fn end_now(&self, holds: &[HoldByPerson]) {
        for job in self.running.iter().filter(|job| holds.iter().any(|hold| job.work.is_held_by(hold))) {
            if !job.said.now.swap(true, Ordering::Relaxed) {
                tracing::warn!(deployment = job.work.name(), "what is at work is ended, because a person says so");
            }
        }
    }

    /// Lets those take no further step for which a gate has closed. What changes something already goes on to its end: half
    /// of it would be worse.
    pub(super) fn halt(&self, plan: &Plan) {
        let (waiting, closed) = (plan.waiting().into_set(), plan.closed_unseen().into_set());
        for job in &self.running {
            let planned = job.work.fetches_for().and_then(|id| plan.planned(id));
            let fetching = planned.map(|one| one.fetching).unwrap_or_default();
            let (halts, is_over) = match &*job.work {
                Work::Fetch { .. } => (fetching == Fetching::Ends, fetching != Fetching::GoesOn),
                // What waits is another input.
                Work::Lost(_) => (false, false),
                _ => {
                    // What is put back goes on, whatever it needs.
                    let is_update = planned.is_some_and(|one| one.from_here);
                    let waits = job.projects().iter().any(|one| waiting.contains(one));
                    // What a runtime that doesn't answer runs is no reason to go on from its fetch to its effects.
                    let is_closed = planned.is_some() && job.projects().iter().any(|one| closed.contains(one));
                    (waits || is_closed, is_update && fetching == Fetching::EndsWithComponent)
                }
            };
            let is_held = job.work.deployment().and_then(|id| plan.planned(id)).is_some_and(|one| one.is_held);
            job.said.held.store(is_held, Ordering::Relaxed);
            job.said.halt.fetch_or(halts, Ordering::Relaxed);
            job.said.fetched.fetch_or(is_over, Ordering::Relaxed);
        }
    }

    /// Lets none take a further step, or fetch any more: what it judged by doesn't count any longer. What is left of its work is
    /// another job's. What changes something already goes on to its end.
    pub(super) fn halt_all(&self) {
        self.running.iter().for_each(|job| job.said.halt.store(true, Ordering::Relaxed));
    }

    /// Begins as many of these, in their order, as there is room for.
    pub(super) fn begin<H>(&mut self, works: Vec<Work>, device_state: &DeviceState, runtimes: &Arc<H>, state: &Shared)
    where
        H: Runtimes + Send + Sync + 'static,
    {
        // Said before it is looked: what begins to wait meanwhile makes another pass.
        self.ended.is_full.store(true, Ordering::SeqCst);
        let mut is_full = false;
        for work in works {
            let is_suspect = work.is_suspect(device_state);
            let waits = self.stop.load(Ordering::Relaxed) || work.waits_for_trials(device_state);
            if waits {
                continue;
            }
            if self.has_room_for(is_suspect) {
                self.begin_one(work, is_suspect, Arc::clone(runtimes), state.clone());
            } else {
                is_full = true;
            }
        }
        self.ended.is_full.store(is_full, Ordering::SeqCst);
    }

    /// What may have taken the device down is at work alone, among the young ones. What only waits for health counts for
    /// nothing else.
    fn has_room_for(&self, is_suspect: bool) -> bool {
        let young = || self.running.iter().filter(|job| job.is_young());
        let is_free = if is_suspect { young().next().is_none() } else { !young().any(|job| job.is_suspect) };
        let all = self.running.iter().filter(|job| job.counts()).count();
        is_free && young().filter(|job| job.counts()).count() < self.bounds.young && all < self.bounds.all
    }

    fn begin_one<H>(&mut self, work: Work, is_suspect: bool, runtimes: Arc<H>, state: Shared)
    where
        H: Runtimes + Send + Sync + 'static,
    {
        let work = Arc::new(work);
        let (said, told) = (Arc::<Said>::default(), Arc::<Told>::default());
        let end = End { told: Arc::clone(&told), ended: Arc::clone(&self.ended) };
        let (its_work, its_said, its_told) = (Arc::clone(&work), Arc::clone(&said), Arc::clone(&told));
        let (stop, hooks, patience) = (self.stop(), self.hooks.clone(), self.patience);
        let thread = thread::spawn(move || {
            let waits = move |waits| end.waits(waits);
            let heard = Heard { said: &its_said, stop: &stop, stopped: OnceLock::new(), patience };
            let (waiting, halt, halted) = (|| heard.ends(), || heard.is_halted(), || heard.is_held());
            let (changing, once) =
                (|| heard.ends_change(patience.outdated), || heard.ends_change(patience.outdated_once));
            let may_change = |deployment| hooks.may_change(deployment, &halt);
            let is_outdated = || heard.outdated().is_some();
            let may_fetch = || !its_said.fetched.load(Ordering::Relaxed);
            let done = |project: &str| its_told.done(project);
            let cancel = Cancel { waiting: &waiting, changing: &changing, halted: &halted, once: &once, waits: &waits };
            let (runtimes, state, is_outdated, halt) = (&*runtimes, &state, &is_outdated, &halt);
            let (may_fetch, may_change, done) = (&may_fetch, &may_change, &done);
            Job { runtimes, state, cancel, halt, is_outdated, may_fetch, may_change, done }.run(&its_work)
        });
        self.running.push(Running { work, began: Instant::now(), is_suspect, said, told, thread });
    }

    /// Waits until one has ended, or makes room for what is queued. Returns whether one does.
    pub(super) fn wait(&self, at_most: Duration) -> bool {
        let makes_room = self.ended.makes_room.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = |makes_room: &mut bool| !std::mem::take(makes_room) && !self.running.iter().any(Running::is_over);
        let waited = self.ended.changed.wait_timeout_while(makes_room, at_most, goes_on);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Ends all, and waits until they have: each step is finished or stopped cleanly.
    pub(super) fn end(&mut self) -> Result<(), StoreError> {
        self.stop.store(true, Ordering::Relaxed);
        while self.is_any() {
            self.wait(YOUNG);
            self.reap()?;
        }
        Ok(())
    }
}

/// Says that a job is over when it is dropped, also by a panic.
struct End {
    told: Arc<Told>,
    ended: Arc<Ended>,
}

impl End {
    /// Says whether the job only waits from here on.
    fn waits(&self, waits: bool) {
        self.told.waits.store(waits, Ordering::SeqCst);
        if waits && self.ended.is_full.load(Ordering::SeqCst) {
            self.ended.tell(|makes_room| *makes_room = true);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.ended.tell(|_| self.told.over.store(true, Ordering::Release));
    }
}

#[cfg(test)]
mod tests;
