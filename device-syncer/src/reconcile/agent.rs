//! The loop: pass after pass, as the [`schedule`](crate::reconcile::schedule) says, until a signal ends it.
//!
//! At a host that offers it, one request waits there while the passes between observe the device only: the host is
//! asked when the wait ends, which it does when something moved and at the latest when the host lets nobody wait
//! longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_model::{ErrorCode, error_chain};
use repo_service::ServiceManager;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::config::device::POLL;
use crate::decision::backoff;
use crate::decision::failure::is_disk_full;
use crate::host::connection::Current;
use crate::host::refs::Ask;
use crate::host::wait::Waiter;
use crate::reconcile::engine_events::EngineEvents;
use crate::reconcile::outcome::{HostAnswer, Next, PassOutcome, Progress};
use crate::reconcile::pass::{PassError, Syncer};
use crate::reconcile::reload::{Make, Reload};
use crate::reconcile::schedule::{Passed, Schedule};
use crate::reconcile::watcher::Watcher;
use crate::state::retry_times::RetryTimes;

/// How long requests to the host that are in flight may go on after a signal.
const LEAVE: Duration = Duration::from_secs(5);

/// Without what it waits for the host, a pass takes seconds; one that takes so long hangs, and the service manager's watchdog
/// may end the program. Jobs run beside passes, and may take as long as they take.
const HANGS: Duration = Duration::from_secs(30 * 60);

/// It may wait so many times as long for the host as one request may take: a fetch takes ten times that.
const REQUESTS: u32 = 30;

/// Makes passes until SIGTERM or SIGINT; the step in hand is finished or stopped cleanly.
pub async fn run(mut syncer: Syncer, make: Make, service: Arc<ServiceManager>) -> std::io::Result<()> {
    let (set, host) = (syncer.reconciler.jobs.stop(), syncer.host.connection.current());
    let stop = Stop::on_signals(set, host, service.clone())?;
    let ended = syncer.reconciler.jobs.ended();
    let mut watcher = Watcher::watch(&syncer.device.home, &syncer.device.settings.host);
    let mut engine = EngineEvents::listen(&syncer.reconciler.runtimes);
    let (mut waiter, mut schedule) = (Waiter::default(), Schedule::new(Instant::now()));
    let (mut ask, mut poll, mut log) = (Ask::Host, POLL, Log::default());
    let mut reload = Reload::new(&syncer.device, make);
    let mut retry_times = RetryTimes::new(syncer.device.home.retries());
    syncer.resume_retries();
    service.ready();
    while !stop.is_set() {
        let longest = syncer.device.settings.host.timeouts.total.saturating_mul(REQUESTS).saturating_add(HANGS);
        tracing::debug!(?ask, "a pass begins");
        let began = Instant::now();
        service.alive(longest);
        let changed;
        (syncer, reload, changed) = blocking(move || {
            let changed = reload.refresh(&mut syncer);
            (syncer, reload, changed)
        })
        .await;
        if changed.settings {
            watcher = Watcher::watch(&syncer.device.home, &syncer.device.settings.host);
        }
        if changed.runtimes {
            engine = EngineEvents::listen(&syncer.reconciler.runtimes);
        }
        let result;
        (syncer, ask, result) = blocking(move || {
            let ask = syncer.unless_silent(ask);
            let result = syncer.pass(ask);
            (syncer, ask, result)
        })
        .await;
        log.note(&result, &service);
        retry_times.note(&syncer.state.lock().retries, Timestamp::now());
        let mut passed = passed(ask, &result, poll, syncer.due(began));
        poll = passed.poll;
        passed.retry_after = passed.retry_after.max(syncer.silent.unwrap_or_default());
        match (host_answer(ask, &result), syncer.host.waited_refs()) {
            (HostAnswer::Unreachable | HostAnswer::Unfetched, _) => waiter.end().await,
            _ if syncer.silent.is_some() => waiter.end().await,
            (HostAnswer::Complete, Some(refs)) => waiter.hold(syncer.host.remote(), refs).await,
            _ => {}
        }
        passed.waits = syncer.host.remote().waits().filter(|_| waiter.is_in_flight());
        schedule.passed(Instant::now(), passed, backoff::jitter(Timestamp::now()));
        let alive = |rest| service.alive(rest + longest);
        ask = rest(&mut schedule, &mut waiter, (&mut watcher, &mut engine, &ended), &stop, alive).await;
    }
    waiter.end().await;
    if let Err(error) = blocking(move || syncer.end()).await {
        tracing::error!(error = error_chain(&error), "what was at work couldn't be noted to its end");
    }
    Ok(())
}

/// What the next pass hangs on. One that failed counts as one for which nothing could be had.
fn passed(ask: Ask, result: &Result<PassOutcome, PassError>, poll: Duration, retry: Option<Duration>) -> Passed {
    let next = Next::after(ask, None);
    let none = Passed { next, poll, waits: None, retry, retry_after: Duration::ZERO };
    result.as_ref().map_or(none, |outcome| Passed {
        next: outcome.next,
        poll: outcome.poll,
        retry_after: outcome.retry_after.unwrap_or_default(),
        ..none
    })
}

/// What was had of the host; a pass that failed had nothing of it.
fn host_answer(ask: Ask, result: &Result<PassOutcome, PassError>) -> HostAnswer {
    match result {
        Ok(outcome) => outcome.host,
        Err(_) if matches!(ask, Ask::Later(_)) => HostAnswer::NotAsked,
        Err(_) => HostAnswer::Unreachable,
    }
}

/// Rests until the next pass, and says whom that asks.
async fn rest(
    schedule: &mut Schedule,
    waiter: &mut Waiter,
    (watcher, engine, ended): (&mut Watcher, &mut EngineEvents, &Notify),
    stop: &Stop,
    alive: impl Fn(Duration),
) -> Ask {
    loop {
        alive(schedule.due().saturating_duration_since(Instant::now()));
        tokio::select! {
            // Cancel-safe: a timer holds nothing.
            () = tokio::time::sleep_until(schedule.due().into()) => return schedule.ask(Instant::now(), waiter.is_in_flight()),
            // Cancel-safe: the wait goes on in its own thread, and a pause until its moment.
            retry_after = waiter.ended() => schedule.called(Instant::now(), retry_after),
            // Cancel-safe: a change stays in its channel.
            () = watcher.next() => {
                tracing::debug!("something changed at the device");
                return Ask::Host;
            }
            // Cancel-safe: what was heard and when that is due are kept.
            () = engine.next() => {
                tracing::debug!("something of ours ended or went");
                return schedule.engine_changed(Instant::now(), waiter.is_in_flight());
            }
            // Cancel-safe: a permit stays until it is taken.
            () = ended.notified() => {
                tracing::debug!("a job ended");
                return schedule.job_ended(Instant::now());
            }
            // Cancel-safe: a permit stays until it is taken.
            () = stop.notify.notified() => {
                tracing::info!("stopping");
                return Ask::Host;
            }
        }
    }
}

/// Runs blocking code off the loop, within the caller's span.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let span = tracing::Span::current();
    match tokio::task::spawn_blocking(move || span.in_scope(work)).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// The name of the event that says what passes come to, whenever that isn't what it was.
pub const OUTCOME: &str = "outcome";

/// What passes came to when it was last logged; nothing after one that failed.
#[derive(Debug, Default)]
struct Log(Option<(bool, Vec<String>)>);

impl Log {
    fn note(&mut self, result: &Result<PassOutcome, PassError>, service: &ServiceManager) {
        match result {
            // What has just begun says soon what it comes to.
            Ok(outcome) if outcome.just_began => {}
            Ok(outcome @ PassOutcome { progress, problems, not_ready, .. }) => {
                // The reason of each is logged by itself; it may be another one each time.
                let not_ready = not_ready.iter().map(|one| format!("{}: {}", one.name, one.how));
                let problems: Vec<_> = problems.iter().cloned().chain(not_ready).collect();
                let good = outcome.is_up_to_date();
                let now = (good, problems.clone());
                if *progress == Progress::BroughtUpToDate || self.0.as_ref() != Some(&now) {
                    tracing::info!(name: OUTCOME, good, ?problems, "pass");
                }
                service.status(&if good { "up to date".to_owned() } else { now.1.join("; ") });
                self.0 = Some(now);
            }
            Err(error) => {
                let code = is_disk_full(error).then_some(ErrorCode::DiskFull.as_str());
                tracing::error!(code, error = error_chain(error), "the pass failed");
                service.status(&format!("the pass failed: {}", error_chain(error)));
                self.0 = None;
            }
        }
    }
}

/// Set by SIGTERM or SIGINT, and never cleared.
#[derive(Clone)]
struct Stop {
    set: Arc<AtomicBool>,
    notify: Arc<Notify>,
}

impl Stop {
    /// What is to be set, and whose requests don't hold up the end.
    fn on_signals(set: Arc<AtomicBool>, host: Current, service: Arc<ServiceManager>) -> std::io::Result<Self> {
        let stop = Self { set, notify: Arc::default() };
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            let (mut signals, stop, host, service) = (signal(kind)?, stop.clone(), host.clone(), service.clone());
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    stop.set.store(true, Ordering::Relaxed);
                    stop.notify.notify_one();
                    service.stopping();
                    // A host that is slow or silent doesn't hold up the end.
                    tokio::time::sleep(LEAVE).await;
                    host.interrupt();
                }
            });
        }
        Ok(stop)
    }

    fn is_set(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }
}
