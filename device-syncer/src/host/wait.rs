//! Waits at a host that offers it: one request in flight, which ends when the host's branches move.
//!
//! A wait only says that something moved. How long one lasts is learnt from the path (`pace`); what brings nothing has a
//! back-off of its own. Neither holds up a pass, or what is asked of the host at its own time.

mod pace;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_git::{CommitId, Remote, RemoteError, Waited};
use repo_model::error_chain;
use tokio::task::JoinHandle;

use self::pace::Pace;
use crate::decision::backoff;

/// Where `desired` and `freshness` of the host stood.
pub type Shown = (Option<CommitId>, Option<CommitId>);

/// At most one wait in flight.
#[derive(Debug, Default)]
pub struct Waiter {
    state: State,
    pace: Pace,
    /// Where the host stood when it said that it didn't any more; looked at once the host was asked.
    called_from: Option<Shown>,
}

#[derive(Debug, Default)]
enum State {
    /// Nothing is waited for.
    #[default]
    Idle,
    /// A request is in flight.
    Held(Held),
    /// The host is asked after this.
    Pause(Instant),
}

#[derive(Debug)]
struct Held {
    task: JoinHandle<Result<Waited, RemoteError>>,
    remote: Remote,
    shown: Shown,
    began: Instant,
    /// When the host was last asked.
    asked: Instant,
}

impl Held {
    fn begin(remote: Remote, shown: Shown, asked: Instant, at_most: Duration) -> Self {
        let there = remote.clone();
        let task = tokio::task::spawn_blocking(move || there.wait(shown.0, shown.1, at_most));
        Self { task, remote, shown, began: Instant::now(), asked }
    }
}

impl Waiter {
    /// Waits for something else than `shown`, which the host has just said; one that waits for it already goes on.
    pub async fn hold(&mut self, remote: &Remote, shown: Shown) {
        if matches!(&self.state, State::Held(held) if held.shown == shown) {
            return;
        }
        self.end().await;
        let now = Instant::now();
        match self.called_from.take() {
            Some(before) if before == shown => _ = self.pace.vain(now, backoff::jitter(Timestamp::now())),
            Some(_) => self.pace.was_right(),
            None => {}
        }
        if remote.waits().is_some() {
            self.state = match self.pace.may_wait(now) {
                Ok(at_most) => State::Held(Held::begin(remote.clone(), shown, now, at_most)),
                Err(until) => State::Pause(until),
            };
        }
    }

    /// Whether a wait is in flight.
    pub fn is_held(&self) -> bool {
        matches!(self.state, State::Held(_))
    }

    /// Returns when the host is to be asked, because a wait ended or the next one may begin; says for how long the host
    /// wants to be left alone before. Never while there is nothing to wait for.
    pub async fn ended(&mut self) -> Duration {
        loop {
            match &mut self.state {
                State::Idle => std::future::pending().await,
                State::Pause(until) => {
                    tokio::time::sleep_until((*until).into()).await;
                    self.state = State::Idle;
                    return Duration::ZERO;
                }
                State::Held(held) => {
                    let result = (&mut held.task).await;
                    let State::Held(held) = std::mem::take(&mut self.state) else { continue };
                    match result {
                        Ok(result) => {
                            if let Some(retry_after) = self.judge(held, result) {
                                return retry_after;
                            }
                        }
                        Err(error) => std::panic::resume_unwind(error.into_panic()),
                    }
                }
            }
        }
    }

    /// What follows a wait that has ended: another one, a pause, or, at once, asking the host, which may want to be left
    /// alone before.
    fn judge(&mut self, held: Held, result: Result<Waited, RemoteError>) -> Option<Duration> {
        let (now, jitter, lasted) = (Instant::now(), backoff::jitter(Timestamp::now()), held.began.elapsed());
        match result {
            Ok(Waited::Nothing) if self.pace.came_back(lasted) => {
                let Held { remote, shown, asked, .. } = held;
                let longest = remote.waits().unwrap_or_default();
                if asked.elapsed() + self.pace.length() > longest {
                    return Some(Duration::ZERO);
                }
                self.state = State::Held(Held::begin(remote, shown, asked, self.pace.length()));
                None
            }
            Ok(Waited::Moved { jitter: within }) => {
                self.called_from = Some(held.shown);
                self.state = State::Pause(self.pace.called(now) + within.mul_f64(jitter));
                None
            }
            Ok(Waited::Nothing | Waited::Unsupported) => {
                self.state = State::Pause(self.pace.vain(now, jitter));
                None
            }
            Err(error) => {
                tracing::debug!(error = error_chain(&error), ?lasted, "the wait broke off");
                if error.retry_after().is_none() && self.pace.was_cut(lasted) {
                    return Some(Duration::ZERO);
                }
                self.state = State::Pause(self.pace.vain(now, jitter));
                error.retry_after()
            }
        }
    }

    /// Ends the wait that is in flight, at once.
    pub async fn end(&mut self) {
        let State::Held(held) = std::mem::take(&mut self.state) else { return };
        while !held.task.is_finished() {
            // Again, because it may not have begun to ask.
            held.remote.interrupt();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
