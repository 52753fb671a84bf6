//! Waits at a host that offers it: one request under way, which ends when the host's branches move.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_git::{CommitId, Remote, RemoteError, Waited};
use repo_model::error_chain;
use tokio::task::JoinHandle;

use crate::backoff;

/// A wait that ends sooner brought nothing, or the host or something before it doesn't wait at all.
const SHORT: Duration = Duration::from_secs(1);

/// So many short waits in a row are no reason to slow down: several revisions may follow each other.
const FREE: u32 = 5;

/// Where `desired` and `freshness` of the host stood.
pub type Shown = (Option<CommitId>, Option<CommitId>);

/// At most one wait under way.
#[derive(Debug, Default)]
pub struct Waiter {
    held: Option<Held>,
    /// Waits that ended soon, in a row.
    short: u32,
    /// Waits that failed, in a row.
    failed: u32,
}

#[derive(Debug)]
struct Held {
    task: JoinHandle<Result<Waited, RemoteError>>,
    remote: Remote,
    shown: Shown,
    since: Instant,
}

impl Waiter {
    /// Waits for something else than `shown`; one that waits for it already goes on.
    pub async fn hold(&mut self, remote: &Remote, shown: Shown) {
        if self.held.as_ref().is_some_and(|held| held.shown == shown) {
            return;
        }
        self.end().await;
        if remote.waits().is_some() {
            let there = remote.clone();
            let task = tokio::task::spawn_blocking(move || there.wait(shown.0, shown.1));
            self.held = Some(Held { task, remote: remote.clone(), shown, since: Instant::now() });
        }
    }

    /// Whether a wait is under way.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// When the wait that is under way ends: how long to hold back before the host is asked. Never if there is none.
    pub async fn ended(&mut self) -> Duration {
        let Some(held) = &mut self.held else { return std::future::pending().await };
        let result = (&mut held.task).await;
        let lasted = held.since.elapsed();
        self.held = None;
        match result {
            Ok(Ok(waited)) => self.judge(waited, lasted),
            Ok(Err(error)) => {
                self.failed += 1;
                tracing::debug!(error = error_chain(&error), "the wait broke off");
                let pause = backoff::wait(self.failed, backoff::jitter(Timestamp::now()));
                pause.max(error.retry_after().unwrap_or_default())
            }
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    fn judge(&mut self, waited: Waited, lasted: Duration) -> Duration {
        self.failed = 0;
        self.short = if lasted < SHORT { self.short + 1 } else { 0 };
        let pause = match self.short.saturating_sub(FREE) {
            0 => Duration::ZERO,
            many => backoff::wait(many, backoff::jitter(Timestamp::now())),
        };
        match waited {
            Waited::Moved { jitter } => jitter.mul_f64(backoff::jitter(Timestamp::now())).max(pause),
            Waited::Nothing | Waited::Unsupported => pause,
        }
    }

    /// Ends the wait that is under way, at once.
    pub async fn end(&mut self) {
        let Some(held) = self.held.take() else { return };
        while !held.task.is_finished() {
            // Again, because it may not have begun to ask.
            held.remote.interrupt();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_never_lets_wait_is_not_asked_in_a_circle() {
        let mut waiter = Waiter::default();
        let short = |waiter: &mut Waiter| waiter.judge(Waited::Nothing, Duration::from_millis(3));
        for _ in 0..FREE {
            assert_eq!(short(&mut waiter), Duration::ZERO);
        }
        assert!(short(&mut waiter) >= Duration::from_secs(2));
        assert!((0..10).map(|_| short(&mut waiter)).last().unwrap() >= Duration::from_secs(150));
        let jitter = Duration::from_millis(40);
        assert!(waiter.judge(Waited::Moved { jitter }, Duration::from_secs(9)) <= jitter);
        assert_eq!(short(&mut waiter), Duration::ZERO);
    }
}
