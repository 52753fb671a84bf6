//! A conversation that stays open and answers one request after the other.

use std::io::{Read, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use repo_http::{Phase, Timeouts};

use super::Problem;
use super::talk::Talk;
use crate::Cause;
use crate::remote::RemoteError;

/// Requests are written as they come, and each reads its answer when those before it have read theirs. A request that
/// comes while the host waits for another ends that wait.
#[derive(Debug)]
pub(super) struct Kept {
    talk: Talk,
    turns: Mutex<Turns>,
    turned: Condvar,
}

/// Counts requests and answers: who has asked later waits for the answers before its own.
#[derive(Debug, Default)]
struct Turns {
    asked: u64,
    answered: u64,
}

impl Kept {
    /// A conversation whose advertisement was read.
    pub(super) fn new(talk: Talk) -> Self {
        Self { talk, turns: Mutex::default(), turned: Condvar::new() }
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and reads its answer. After an error the conversation has ended.
    pub(super) fn ask<T>(
        &self,
        request: &[u8],
        limit: Duration,
        timeouts: Timeouts,
        read: impl FnOnce(&mut dyn Read) -> Result<T, Cause>,
    ) -> Result<T, RemoteError> {
        let mut talk = self.talk.again(limit, timeouts);
        let turn = self.send(&talk, request)?;
        let answer = self.wait_for_turn(turn, limit, &talk).and_then(|()| {
            if !talk.says_something()? {
                return Err(talk.gone().into());
            }
            read(&mut talk.sides().0).map_err(|source| talk.failed(source))
        });
        if answer.is_err() {
            talk.abandon();
        }
        self.turns().answered = turn + 1;
        self.turned.notify_all();
        answer
    }

    /// Sends a request, and returns its number among all, from 0.
    fn send(&self, talk: &Talk, request: &[u8]) -> Result<u64, RemoteError> {
        let mut turns = self.turns();
        let mut writer = talk.sides().1;
        writer.write_all(request).and_then(|()| writer.flush()).map_err(|_| talk.gone())?;
        turns.asked += 1;
        Ok(turns.asked - 1)
    }

    fn wait_for_turn(&self, turn: u64, limit: Duration, talk: &Talk) -> Result<(), RemoteError> {
        let until = Instant::now() + limit;
        let mut turns = self.turns();
        while turns.answered < turn {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                talk.ending(Problem::Slow { phase: Phase::Total, limit })();
                return Err(talk.failed("those before it had no answer".into()));
            }
            turns = self.turned.wait_timeout(turns, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}
