//! The loop: pass after pass, at the poll interval or when a retry is due, until a signal ends it.
//!
//! At a host that offers it, one request waits there while the passes between look at the device only: the host is asked
//! when the wait ends, which it does when something moved and at the latest when the host lets nobody wait longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use repo_model::error_chain;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::backoff;
use crate::hints::Hints;
use crate::link::Current;
use crate::reconcile::{Ask, Outcome, POLL, PassError, Syncer};
use crate::update::is_disk_full;
use crate::waiter::Waiter;

/// How long requests to the host that are under way may go on after a signal.
const LEAVE: Duration = Duration::from_secs(5);

/// Makes passes until SIGTERM or SIGINT; the step in hand is finished or stopped cleanly.
pub async fn run(mut syncer: Syncer) -> std::io::Result<()> {
    let stop = Stop::on_signals(syncer.link.current())?;
    let mut hints = Hints::watch(&syncer.home, &syncer.settings.host);
    let (mut waiter, mut ask) = (Waiter::default(), Ask::Host);
    let (mut unreached, mut poll) = (0, POLL);
    syncer.resume_retries();
    while !stop.is_set() {
        let cancel = stop.clone();
        let (back, result) = blocking(move || {
            let result = syncer.pass(ask, &|| cancel.is_set());
            (syncer, result)
        })
        .await;
        syncer = back;
        log(&result);
        unreached =
            if matches!(&result, Ok(outcome) if outcome.reached && outcome.fetched) { 0 } else { unreached + 1 };
        let outdated = matches!(&result, Ok(outcome) if outcome.outdated);
        let retry_after = result.as_ref().ok().and_then(|outcome| outcome.retry_after).unwrap_or_default();
        poll = result.map_or(poll, |outcome| outcome.poll);
        match (unreached, syncer.shown) {
            (0, Some(shown)) => waiter.hold(&syncer.link.remote, shown).await,
            (0, None) => {}
            _ => waiter.end().await,
        }
        let wait = if outdated { Duration::ZERO } else { wait(&syncer, poll, unreached).max(retry_after) };
        ask = rest(wait, retry_after, &mut waiter, &mut hints, &stop).await;
    }
    waiter.end().await;
    Ok(())
}

/// Rests until the next pass, and says whom that asks. The end of a wait at the host is heeded after `hold_off` only.
async fn rest(wait: Duration, hold_off: Duration, waiter: &mut Waiter, hints: &mut Hints, stop: &Stop) -> Ask {
    let (mut due, earliest) = (Instant::now() + wait, Instant::now() + hold_off);
    let mut ask = if waiter.is_held() { Ask::Nobody } else { Ask::Host };
    loop {
        tokio::select! {
            // Cancel-safe: a timer holds nothing.
            () = tokio::time::sleep_until(due) => return ask,
            // Cancel-safe: the wait goes on in its own thread.
            pause = waiter.ended() => (due, ask) = (earliest.max(Instant::now() + pause), Ask::Host),
            // Cancel-safe: a hint stays in its channel.
            () = hints.next() => {
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
