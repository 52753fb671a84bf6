//! The loop: pass after pass, at the poll interval or when a retry is due, until a signal ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::backoff;
use crate::reconcile::{Outcome, POLL, PassError, Syncer};
use crate::update::{error_chain, is_disk_full};

/// Makes passes until SIGTERM or SIGINT; the step in hand is finished or stopped cleanly.
pub async fn run(mut syncer: Syncer) -> std::io::Result<()> {
    let stop = Stop::on_signals()?;
    let (mut unreached, mut poll) = (0, POLL);
    syncer.resume_retries();
    while !stop.is_set() {
        let cancel = stop.clone();
        let (back, result) = blocking(move || {
            let result = syncer.pass(&|| cancel.is_set());
            (syncer, result)
        })
        .await;
        syncer = back;
        log(&result);
        unreached =
            if matches!(&result, Ok(outcome) if outcome.reached && outcome.fetched) { 0 } else { unreached + 1 };
        let outdated = matches!(&result, Ok(outcome) if outcome.outdated);
        poll = result.map_or(poll, |outcome| outcome.poll);
        let wait = if outdated { Duration::ZERO } else { wait(&syncer, poll, unreached) };
        tokio::select! {
            // Cancel-safe: a timer holds nothing.
            () = tokio::time::sleep(wait) => {}
            // Cancel-safe: a permit stays until it is taken.
            () = stop.notify.notified() => tracing::info!("stopping"),
        }
    }
    Ok(())
}

/// Runs blocking code off the loop, within the caller's span.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let span = tracing::Span::current();
    match tokio::task::spawn_blocking(move || span.in_scope(work)).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn log(result: &Result<Outcome, PassError>) {
    match result {
        Ok(outcome) if outcome.acted || !outcome.problems.is_empty() => {
            tracing::info!(good = outcome.good, problems = ?outcome.problems, "pass");
        }
        Ok(_) => tracing::debug!("nothing to do"),
        Err(error) if is_disk_full(error) => {
            tracing::error!(code = "disk-full", error = error_chain(error), "the pass failed");
        }
        Err(error) => tracing::error!(error = error_chain(error), "the pass failed"),
    }
}

/// Until the next pass: the poll interval spread by a tenth, the back-off of a host from which nothing can be had, or a retry if that
/// is due before.
fn wait(syncer: &Syncer, poll: Duration, unreached: u32) -> Duration {
    let jitter = backoff::jitter(Timestamp::now());
    let poll = poll.mul_f64(0.9 + jitter / 5.0);
    let poll = if unreached > 0 { poll.max(backoff::wait(unreached, jitter)) } else { poll };
    syncer.retries.next().map_or(poll, |retry| poll.min(retry.max(Duration::from_millis(100))))
}

/// Set once by a signal.
#[derive(Clone)]
struct Stop {
    set: Arc<AtomicBool>,
    notify: Arc<Notify>,
}

impl Stop {
    fn on_signals() -> std::io::Result<Self> {
        let stop = Self { set: Arc::default(), notify: Arc::default() };
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            let (mut signals, stop) = (signal(kind)?, stop.clone());
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    stop.set.store(true, Ordering::Relaxed);
                    stop.notify.notify_one();
                }
            });
        }
        Ok(stop)
    }

    fn is_set(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }
}
