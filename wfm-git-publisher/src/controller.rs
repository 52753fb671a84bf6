//! The loop that follows the fleet repository: each new commit is published, and proofs of freshness stay fresh.
//!
//! One pass at a time, in its own thread. A pass that fails is reported and tried again with the next poll; none ever ends
//! the loop.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_git::CommitId;
use repo_git::watch::{Change, WatchError, Watcher};
use repo_model::error_chain;
use repo_service::ServiceManager;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{Span, debug, error, info, warn};

use crate::config::Config;
use crate::mirror::{MirrorError, Mirrored};
use crate::operator::{Alone, approve_alone};
use crate::plan::Allowed;
use crate::publish::{Done, Options, Outcome, PublishError, Publisher, is_as_left};
use crate::render::Artifact;
use crate::repos::{FleetRepo, Following, Home, Registries, Remotes};

/// The loop with what it needs; `run` consumes it.
#[derive(Debug)]
pub struct Controller {
    /// The fleet repository: the operators' work tree or bare repository, or the hosted one.
    pub fleet: PathBuf,
    pub home: Home,
    /// The revision that is followed, resolved anew each time; `HEAD` unless `--rev` says otherwise.
    pub rev: String,
    /// How often the fleet repository is read where no file system says that it changed.
    pub poll: Duration,
    /// Where tags of archives, charts and images are looked up.
    pub registries: Registries,
    /// The host that devices talk to, where it isn't this one.
    pub remotes: Option<Remotes>,
    /// How many devices are worked on at the same time.
    pub threads: usize,
    /// Who hears how this goes.
    pub service: Arc<ServiceManager>,
}

/// How long a pass may go on without a device or an artifact being done.
const STEP: Duration = Duration::from_secs(3600);

/// Why the loop woke up; logged with each wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    Hint,
    Poll,
}

/// What this process remembers of its last pass; how that left the fleet is in the home.
#[derive(Debug, Default)]
struct LastPass {
    /// The commit of the fleet; absent before the first pass, and after one that failed.
    commit: Option<CommitId>,
    /// When the other host is asked again, where there is one.
    ask_at: Option<Instant>,
    /// What was logged as an error already; it isn't logged again with every poll.
    errors: BTreeSet<String>,
    /// What was said of devices that wait and are left to a person; it isn't said again with every poll.
    left: BTreeSet<String>,
}

impl Controller {
    /// Runs until `shutdown` is ready; then the device in hand is finished, and the loop ends.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let (hints, mut hinted) = mpsc::channel(1);
        let _watcher = self.watch(hints);
        let stop = Arc::new(AtomicBool::new(false));
        let this = Arc::new(self);
        let _following = this.follow();
        let mut poll = interval(this.poll);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = LastPass::default();
        let mut shutdown = std::pin::pin!(shutdown);
        this.service.ready();
        loop {
            this.service.alive(this.poll.saturating_add(STEP));
            let wake = tokio::select! {
                // Both are cancel-safe: a tick or hint that isn't taken now is there the next time.
                _ = poll.tick() => Wake::Poll,
                Some(()) = hinted.recv() => Wake::Hint,
                () = &mut shutdown => break,
            };
            debug!(?wake, "reading the fleet repository");
            this.service.alive(STEP);
            let (controller, stopping) = (Arc::clone(&this), Arc::clone(&stop));
            let before = std::mem::take(&mut last);
            let mut pass = spawn_blocking(move || controller.pass(before, &stopping));
            last = tokio::select! {
                done = &mut pass => done.unwrap_or_default(),
                // The pass is not cancelled: it is asked to stop, and waited for.
                () = &mut shutdown => {
                    stop.store(true, Ordering::Relaxed);
                    let _ = pass.await;
                    break;
                }
            };
        }
        info!("stopped");
    }

    /// Says that what is pushed is published, where it is that which is followed.
    fn follow(&self) -> Option<Following> {
        let is_pushed_to = self.fleet == self.home.hosted_fleet();
        let follows = is_pushed_to && FleetRepo::open(&self.fleet).is_ok_and(|fleet| fleet.is_head(&self.rev));
        let following = follows.then(|| self.home.follow())?;
        following.inspect_err(|error| warn!(error = error_chain(error), "who pushes isn't told that this runs")).ok()
    }

    fn watch(&self, hints: mpsc::Sender<()>) -> Option<Watcher> {
        let watcher = FleetRepo::open(&self.fleet).map_err(|error| error_chain(&error)).and_then(|source| {
            watch_refs(source.git_dir(), hints)
                .map_err(|error| format!("cannot watch the fleet repository: {}", error_chain(&error)))
        });
        watcher.inspect_err(|error| warn!(error, "changes are only seen by polling")).ok()
    }

    /// One pass, if there is anything to do.
    fn pass(&self, last: LastPass, stop: &AtomicBool) -> LastPass {
        let (logged, left) = (last.errors.clone(), last.left.clone());
        let after = self.try_pass(last, stop).unwrap_or_else(|error| {
            let error = format!("the pass failed: {}", with_problems(&error));
            self.service.status(&error);
            let errors = BTreeSet::from([error]);
            LastPass { errors, left, ..LastPass::default() }
        });
        for error in after.errors.difference(&logged) {
            error!("{error}; it is tried again");
        }
        after
    }

    /// Takes in devices whose token says that no person has to, as a commit of the hosted fleet's own, which the pass then publishes.
    fn take_in(&self, logged: &BTreeSet<String>) -> BTreeSet<String> {
        let is_followed = self.rev == "HEAD" && self.fleet == self.home.hosted_fleet();
        let serve = Config::load(&self.home.config()).ok().and_then(|config| config.serve).filter(|_| is_followed);
        let Some(serve) = serve else { return BTreeSet::new() };
        let done = match approve_alone(&self.home, &serve, Timestamp::now()) {
            Ok(done) => done,
            Err(error) => return BTreeSet::from([format!("nobody is taken in by a token: {}", error_chain(&error))]),
        };
        let mut said = BTreeSet::new();
        for Alone { token, taken, left } in done {
            for one in taken {
                info!(device = %one.device, token, fingerprint = one.fingerprint, "taken in by its token, without a person");
            }
            said.extend(left.map(|why| format!("who waits with the token `{token}` is left to a person: {why}")));
        }
        for why in said.difference(logged) {
            warn!("{why}");
        }
        said
    }

    fn try_pass(&self, last: LastPass, stop: &AtomicBool) -> Result<LastPass, PublishError> {
        let left = self.take_in(&last.left);
        let last = LastPass { left, ..last };
        let source = FleetRepo::open(&self.fleet)?;
        let commit = source.resolve(&self.rev)?;
        let now = Timestamp::now();
        let is_known = last.commit == Some(commit) && last.ask_at.is_none_or(|moment| Instant::now() < moment);
        if is_known && is_as_left(&self.home, commit, now, self.threads) {
            return Ok(last);
        }
        let resolve = |artifact: &Artifact| {
            self.service.alive(STEP);
            self.registries.resolve(artifact).map_err(Into::into)
        };
        let progress = |work, done, all| {
            self.service.alive(STEP);
            debug!(?work, done, all, "at work");
        };
        let options = Options {
            now,
            devices: None,
            allowed: Allowed::default(),
            resolve: &resolve,
            threads: self.threads,
            stop,
            progress: &progress,
            remotes: self.remotes.as_ref(),
            reclaim: BTreeSet::new(),
        };
        let mut publisher = Publisher::open(&self.home, now)?;
        let outcome = publisher.publish(&source, &commit.to_string(), &options)?;
        // A commit that is broken is reported once, not with every poll.
        if last.commit != Some(commit) {
            log_problems(&outcome);
        }
        log(&outcome);
        self.service.status(&status(&commit, &outcome));
        let ask_at = self.remotes.as_ref().map(|remotes| Instant::now() + remotes.poll());
        Ok(LastPass { commit: Some(commit), ask_at, errors: errors(&outcome), left: last.left })
    }
}

/// Hints whenever a ref of this Git directory may have moved. `git` renames a file to the ref's name; `HEAD` and
/// `packed-refs` lie beside `refs`.
fn watch_refs(git_dir: &Path, hints: mpsc::Sender<()>) -> Result<Watcher, WatchError> {
    let is_lock = |path: &Path| path.extension().is_some_and(|ending| ending == "lock");
    let mut watcher = Watcher::new(move |change| {
        if !matches!(change, Change::Written(path) | Change::Touched(path) if is_lock(path)) {
            // A full channel holds a hint already.
            let _ = hints.try_send(());
        }
    })?;
    watcher.watch(git_dir)?;
    let refs = git_dir.join("refs");
    if refs.is_dir() {
        watcher.watch_below(&refs)?;
    }
    Ok(watcher)
}

fn errors(outcome: &Outcome) -> BTreeSet<String> {
    let failed = outcome.devices.iter().filter_map(|(device, result)| Some((device, result.as_ref().err()?)));
    let failed = failed.map(|(device, error)| format!("device `{device}` is left as it is: {}", error_chain(error)));
    let unpushed = outcome.remote.iter().filter_map(|(device, result)| Some((device, result.as_ref().err()?)));
    // One host that is down is reported once, not for each device.
    let unpushed = unpushed.filter(|(_, error)| !matches!(error, MirrorError::HostDown { .. }));
    let unpushed = unpushed.map(|(device, error)| format!("device `{device}`: {}", error_chain(error)));
    let accounts = outcome.accounts.iter();
    let accounts = accounts
        .map(|(device, error)| format!("the account of device `{device}` can't be ended: {}", error_chain(error)));
    failed.chain(accounts).chain(unpushed).chain(outcome.unresolved.iter().map(|error| error_chain(error))).collect()
}

/// The error, and what is wrong with the fleet if that is it.
fn with_problems(error: &PublishError) -> String {
    let problems = if let PublishError::Fleet(problems) = error { Some(problems.errors()) } else { None };
    let problems = problems.into_iter().flatten().map(ToString::to_string);
    std::iter::once(error_chain(error)).chain(problems).collect::<Vec<_>>().join("; ")
}

/// What a pass came to, for people.
fn status(commit: &CommitId, outcome: &Outcome) -> String {
    let wrong: Vec<_> = outcome.problems.errors().map(ToString::to_string).chain(errors(outcome)).collect();
    let waiting = outcome.rollouts.iter().flat_map(|rollouts| &rollouts.waiting);
    let waiting = waiting.map(|one| format!("; rollout {} {one}", one.rollout)).collect::<String>();
    if wrong.is_empty() { format!("commit {commit} is published{waiting}") } else { wrong.join("; ") }
}

fn log_problems(outcome: &Outcome) {
    for problem in outcome.problems.iter() {
        warn!(hint = problem.hint, "{problem}");
    }
    if !outcome.unidentified.is_empty() {
        warn!(files = ?outcome.unidentified, "nothing is removed: it can't be told what these files are about");
    }
}

fn log(outcome: &Outcome) {
    for (device, result) in &outcome.devices {
        match result {
            Ok(Done::Published { serial, commit, .. }) => info!(%device, serial, %commit, "published"),
            Ok(Done::Renewed { .. }) => debug!(%device, "renewed its proof of freshness"),
            _ => {}
        }
    }
    for decided in outcome.rollouts.iter().flat_map(|rollouts| &rollouts.decided) {
        info!("rollout: {decided}");
    }
    for device in &outcome.retired {
        info!(%device, "retired: it is cut off, and nothing more is published for it");
    }
    for (device, account) in &outcome.left {
        warn!(%device, ended_account = account.as_ref().map(tracing::field::display), "left the fleet: what it runs runs on");
    }
    for (device, result) in &outcome.remote {
        if let Ok(Mirrored::Pushed(branches)) = result {
            info!(%device, branches, "pushed to the remote host");
        }
    }
}

/// Runs blocking work in its own thread; its logs stay in the present span.
fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> tokio::task::JoinHandle<T> {
    let span = Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(work))
}
