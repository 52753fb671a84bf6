//! The loop: pass after pass, as the [`schedule`](crate::reconcile::schedule) says, until a signal ends it.
//!
//! At a host that offers it, one request waits there while the passes between look at the device only: the host is asked
//! when the wait ends, which it does when something moved and at the latest when the host lets nobody wait longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_model::{ErrorCode, error_chain};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::config::device::POLL;
use crate::decision::backoff;
use crate::decision::failure::is_disk_full;
use crate::host::connection::Current;
use crate::host::refs::Ask;
use crate::host::wait::Waiter;
use crate::reconcile::outcome::{HostAnswer, Next, PassOutcome, Progress};
use crate::reconcile::pass::{PassError, Syncer};
use crate::reconcile::schedule::{Passed, Schedule};
use crate::reconcile::watcher::Watcher;

/// How long requests to the host that are in flight may go on after a signal.
const LEAVE: Duration = Duration::from_secs(5);

/// Makes passes until SIGTERM or SIGINT; the step in hand is finished or stopped cleanly.
pub async fn run(mut syncer: Syncer) -> std::io::Result<()> {
    let stop = Stop::on_signals(syncer.host.connection.current())?;
    let mut watcher = Watcher::watch(&syncer.device.home, &syncer.device.settings.host);
    let (mut waiter, mut schedule) = (Waiter::default(), Schedule::new(Instant::now()));
    let (mut ask, mut poll, mut log) = (Ask::Host, POLL, Log::default());
    syncer.resume_retries();
    while !stop.is_set() {
        tracing::debug!(?ask, "a pass begins");
        let (cancel, began) = (stop.clone(), Instant::now());
        let (back, result) = blocking(move || {
            let result = syncer.pass(ask, &|| cancel.is_set());
            (syncer, result)
        })
        .await;
        syncer = back;
        log.note(&result);
        let mut passed = passed(ask, &result, poll, syncer.reconciler.retries.next(began));
        poll = passed.poll;
        match (host_answer(ask, &result), syncer.host.waited_refs()) {
            (HostAnswer::Unreachable | HostAnswer::Unfetched, _) => waiter.end().await,
            (HostAnswer::Complete, Some(refs)) => waiter.hold(syncer.host.remote(), refs).await,
            _ => {}
        }
        passed.waits = syncer.host.remote().waits().filter(|_| waiter.is_in_flight());
        schedule.passed(Instant::now(), passed, backoff::jitter(Timestamp::now()));
        ask = rest(&mut schedule, &mut waiter, &mut watcher, &stop).await;
    }
    waiter.end().await;
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
async fn rest(schedule: &mut Schedule, waiter: &mut Waiter, watcher: &mut Watcher, stop: &Stop) -> Ask {
    loop {
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
    fn note(&mut self, result: &Result<PassOutcome, PassError>) {
        match result {
            Ok(outcome @ PassOutcome { progress, problems, not_ready, .. }) => {
                // The reason of each is logged by itself; it may be another one each time.
                let not_ready = not_ready.iter().map(|one| format!("{}: {}", one.name, one.how));
                let problems: Vec<_> = problems.iter().cloned().chain(not_ready).collect();
                let good = outcome.is_up_to_date();
                let now = (good, problems.clone());
                if *progress == Progress::BroughtUpToDate || self.0.as_ref() != Some(&now) {
                    tracing::info!(name: OUTCOME, good, ?problems, "pass");
                }
                self.0 = Some(now);
            }
            Err(error) => {
                let code = is_disk_full(error).then_some(ErrorCode::DiskFull.as_str());
                tracing::error!(code, error = error_chain(error), "the pass failed");
                self.0 = None;
            }
        }
    }
}

/// Set once by a signal.
#[derive(Clone)]
struct Stop {
    set: Arc<AtomicBool>,
    notify: Arc<Notify>,
}

impl Stop {
    fn on_signals(host: Current) -> std::io::Result<Self> {
        let stop = Self { set: Arc::default(), notify: Arc::default() };
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            let (mut signals, stop, host) = (signal(kind)?, stop.clone(), host.clone());
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    stop.set.store(true, Ordering::Relaxed);
                    stop.notify.notify_one();
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
