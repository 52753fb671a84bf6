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
use crate::host::connectivity::RETIRED;

/// What a wait at the host waits for to move, where it stood when the host was last asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitedRefs {
    /// `desired`; absent before the device is enrolled.
    pub desired: Option<CommitId>,
    /// `freshness`; absent before the first proof.
    pub freshness: Option<CommitId>,
    /// `site`; the outer absence says that this device doesn't read it.
    pub site: Option<Option<CommitId>>,
}

/// At most one wait in flight.
#[derive(Debug, Default)]
pub struct Waiter {
    state: State,
    pace: Pace,
    /// Where the host stood before it ended a wait because something had moved; compared once the host was asked.
    called_from: Option<WaitedRefs>,
}

#[derive(Debug, Default)]
enum State {
    /// Nothing is waited for.
    #[default]
    Idle,
    /// A request is in flight.
    InFlight(InFlight),
    /// No wait is in flight; the host is asked at this moment.
    Pause(Instant),
}

#[derive(Debug)]
struct InFlight {
    task: JoinHandle<Result<Waited, RemoteError>>,
    remote: Remote,
    refs: WaitedRefs,
    began: Instant,
    /// When the host was last asked.
    asked: Instant,
}

impl InFlight {
    fn begin(remote: Remote, refs: WaitedRefs, asked: Instant, at_most: Duration) -> Self {
        let there = remote.clone();
        let task = tokio::task::spawn_blocking(move || there.wait(refs.desired, refs.freshness, refs.site, at_most));
        Self { task, remote, refs, began: Instant::now(), asked }
    }
}

impl Waiter {
    /// Waits for something else than `refs`, which the host has just said; one that waits for it already goes on.
    pub async fn hold(&mut self, remote: &Remote, refs: WaitedRefs) {
        if matches!(&self.state, State::InFlight(held) if held.refs == refs) {
            return;
        }
        self.end().await;
        let now = Instant::now();
        match self.called_from.take() {
            Some(before) if before == refs => _ = self.pace.vain(now, backoff::jitter(Timestamp::now())),
            Some(_) => self.pace.was_right(),
            None => {}
        }
        if remote.waits().is_some() {
            self.state = match self.pace.may_wait(now) {
                Ok(at_most) => State::InFlight(InFlight::begin(remote.clone(), refs, now, at_most)),
                Err(until) => State::Pause(until),
            };
        }
    }

    /// Whether a wait is in flight.
    pub fn is_in_flight(&self) -> bool {
        matches!(self.state, State::InFlight(_))
    }

    /// Returns when the host is to be asked, because a wait ended or the next one may begin; says for how long the host
    /// wants to be left alone before. `None` where a wait ended, and the host is asked later. Never while there is nothing to
    /// wait for.
    pub async fn ended(&mut self) -> Option<Duration> {
        loop {
            match &mut self.state {
                State::Idle => std::future::pending().await,
                State::Pause(until) => {
                    tokio::time::sleep_until((*until).into()).await;
                    self.state = State::Idle;
                    return Some(Duration::ZERO);
                }
                State::InFlight(held) => {
                    let result = (&mut held.task).await;
                    let State::InFlight(held) = std::mem::take(&mut self.state) else { continue };
                    match result {
                        Ok(result) => {
                            let retry_after = self.judge(held, result);
                            if !self.is_in_flight() {
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
    fn judge(&mut self, held: InFlight, result: Result<Waited, RemoteError>) -> Option<Duration> {
        let (now, jitter, lasted) = (Instant::now(), backoff::jitter(Timestamp::now()), held.began.elapsed());
        match result {
            Ok(Waited::Nothing) if self.pace.came_back(lasted) => {
                let InFlight { remote, refs, asked, .. } = held;
                let longest = remote.waits().unwrap_or_default();
                if asked.elapsed() + self.pace.length() > longest {
                    return Some(Duration::ZERO);
                }
                self.state = State::InFlight(InFlight::begin(remote, refs, asked, self.pace.length()));
                None
            }
            Ok(Waited::Moved { jitter: within }) => {
                self.called_from = Some(held.refs);
                self.state = State::Pause(self.pace.called(now) + within.mul_f64(jitter));
                None
            }
            Ok(Waited::Nothing | Waited::Unsupported) => {
                self.state = State::Pause(self.pace.vain(now, jitter));
                None
            }
            Err(error) => {
                tracing::debug!(error = error_chain(&error), ?lasted, "the wait broke off");
                // Asking says so, too, and is what a person is shown.
                if error.reason() == RETIRED {
                    return Some(Duration::ZERO);
                }
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
        let State::InFlight(held) = std::mem::take(&mut self.state) else { return };
        while !held.task.is_finished() {
            // Again, because it may not have begun to ask.
            held.remote.interrupt();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
