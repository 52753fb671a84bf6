//! One conversation's bytes between the thread that asks and the thread that has the session.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use repo_http::{Phase, Timeouts};

use super::wire::Wake;
use super::{Problem, SshError};

/// How much is kept for whoever reads, and for the session to send.
pub(super) const ROOM: usize = 256 << 10;

/// How much of the end of what a host's command says on its standard error is kept.
const SAID: usize = 2048;

/// How long the exit status of a command may take to come after its output has ended.
const END: Duration = Duration::from_secs(2);

/// One command that the host runs, between the thread that wants it and the thread that has the session.
#[derive(Debug)]
pub(super) struct Pipe {
    state: Mutex<State>,
    changed: Condvar,
    wake: Arc<Wake>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The host runs the command.
    pub(super) opened: bool,
    pub(super) incoming: VecDeque<u8>,
    pub(super) outgoing: VecDeque<u8>,
    /// Nothing more will be written.
    pub(super) is_written: bool,
    /// Nothing more will come.
    pub(super) is_read: bool,
    /// The end of what the command wrote to standard error.
    said: VecDeque<u8>,
    /// Nobody reads or writes any more.
    pub(super) abandoned: bool,
    /// Whoever waited did so in vain, so the session itself may be dead.
    pub(super) suspect: bool,
    pub(super) end: Option<End>,
}

#[derive(Debug, Clone)]
pub(super) enum End {
    /// The command ended with this status; `None`: by a signal, or nobody says.
    Exit(Option<i32>),
    Failed(Failure),
}

/// Why a conversation broke off.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) problem: Problem,
    pub(super) source: Option<String>,
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self { problem, source: None }
    }
}

impl Failure {
    pub(super) fn at(self, url: &super::Url) -> SshError {
        SshError::new(url, self.problem, self.source.map(Into::into))
    }
}

impl State {
    /// Keeps the end of what the command wrote to standard error.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        self.said.extend(bytes);
        let surplus = self.said.len().saturating_sub(SAID);
        self.said.drain(..surplus);
    }

    /// All that the host says was said, and nothing broke off.
    fn has_come_to_an_end(&self) -> bool {
        self.is_read && !matches!(self.end, Some(End::Failed(_)))
    }

    /// Ends the conversation; only the first end counts.
    pub(super) fn finish(&mut self, end: End) {
        self.is_read = true;
        self.end.get_or_insert(end);
    }
}

impl Pipe {
    pub(super) fn new(wake: Arc<Wake>) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), wake }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and tells whoever waits for that.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    pub(super) fn fail(&self, failure: Failure) {
        self.change(|state| state.finish(End::Failed(failure)));
    }

    pub(super) fn ring(&self) {
        self.wake.ring();
    }

    /// Nobody reads or writes any more.
    pub(super) fn abandon(&self) {
        self.lock().abandoned = true;
        self.ring();
    }

    /// Why it broke off, if it did.
    pub(super) fn failure(&self) -> Option<Failure> {
        match &self.lock().end {
            Some(End::Failed(failure)) => Some(failure.clone()),
            _ => None,
        }
    }

    /// How the command ended, and what it said, when its output has ended.
    pub(super) fn ended(&self) -> (Option<i32>, String) {
        let until = Instant::now() + END;
        let mut state = self.lock();
        while state.end.is_none() && Instant::now() < until {
            state = self.wait(state, until);
        }
        let status = match state.end {
            Some(End::Exit(status)) => status,
            _ => None,
        };
        (status, clean(state.said.make_contiguous()))
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, until: Instant) -> MutexGuard<'a, State> {
        let left = until.saturating_duration_since(Instant::now());
        self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until `is_ready`, or the conversation is over, or `until`. `slow` says what took too long then.
    pub(super) fn wait_for(
        &self,
        until: Instant,
        slow: Problem,
        is_ready: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'_, State>, Failure> {
        let mut state = self.lock();
        loop {
            if is_ready(&state) {
                return Ok(state);
            }
            if let Some(End::Failed(failure)) = &state.end {
                return Err(failure.clone());
            }
            if Instant::now() >= until {
                let failure = Failure::from(slow);
                (state.suspect, state.abandoned) = (true, true);
                state.finish(End::Failed(failure.clone()));
                self.ring();
                return Err(failure);
            }
            state = self.wait(state, until);
        }
    }
}

/// Text of the other side on one line, without control characters.
pub(super) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" / ");
    lines.chars().filter(|c| !c.is_control()).take(SAID).collect()
}

/// One side of a conversation, which reads and writes within limits in time.
#[derive(Debug, Clone)]
pub(super) struct Side {
    pub(super) pipe: Arc<Pipe>,
    until: Instant,
    /// The whole time, for messages.
    total: Duration,
    timeouts: Timeouts,
    /// Something was read since it was last written.
    answered: bool,
}

impl Side {
    pub(super) fn new(pipe: Arc<Pipe>, total: Duration, timeouts: Timeouts) -> Self {
        Self { pipe, until: Instant::now() + total, total, timeouts, answered: false }
    }

    /// When what is waited for now has to be there, and what it is if it isn't.
    fn patience(&self) -> (Instant, Problem) {
        let (phase, limit) = match self.answered {
            true => (Phase::Stall, self.timeouts.stall),
            false => (Phase::Answer, self.timeouts.answer),
        };
        let until = Instant::now() + limit;
        if until < self.until {
            (until, Problem::Slow { phase, limit })
        } else {
            (self.until, Problem::Slow { phase: Phase::Total, limit: self.total })
        }
    }

    fn failed(failure: &Failure) -> io::Error {
        let kind = match failure.problem {
            Problem::Slow { .. } => ErrorKind::TimedOut,
            Problem::Cut => ErrorKind::ConnectionReset,
            _ => ErrorKind::Other,
        };
        io::Error::new(kind, failure.problem.to_string())
    }

    /// The next bytes, without taking them; fewer where the conversation has ended.
    pub(super) fn peek(&self, count: usize) -> Result<Vec<u8>, Failure> {
        self.pipe.ring();
        let (until, slow) = self.patience();
        let state = self.pipe.wait_for(until, slow, |state| state.incoming.len() >= count || state.is_read)?;
        if let (true, Some(End::Failed(failure))) = (state.incoming.len() < count, &state.end) {
            return Err(failure.clone());
        }
        Ok(state.incoming.iter().take(count).copied().collect())
    }

    /// Nothing more will be written.
    pub(super) fn finish_writing(&self) {
        self.pipe.lock().is_written = true;
        self.pipe.ring();
    }
}

impl Read for Side {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if !self.pipe.lock().outgoing.is_empty() {
            self.pipe.ring();
        }
        let (until, slow) = self.patience();
        let is_ready = |state: &State| !state.incoming.is_empty() || state.has_come_to_an_end();
        let mut state = self.pipe.wait_for(until, slow, is_ready).map_err(|failure| Self::failed(&failure))?;
        let was_full = state.incoming.len() >= ROOM / 2;
        let count = state.incoming.read(buffer)?;
        drop(state);
        self.answered = true;
        if was_full {
            self.pipe.ring();
        }
        Ok(count)
    }
}

impl Write for Side {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_ready = |state: &State| state.outgoing.len() < ROOM || state.has_come_to_an_end();
        // Whoever has to take it is slow, not the answer.
        self.answered = true;
        let (until, slow) = self.patience();
        let mut state = self.pipe.wait_for(until, slow, is_ready).map_err(|failure| Self::failed(&failure))?;
        let failed = match &state.end {
            Some(End::Failed(failure)) => Some(Self::failed(failure)),
            _ if state.is_read => Some(ErrorKind::BrokenPipe.into()),
            _ => None,
        };
        if let Some(error) = failed {
            return Err(error);
        }
        let count = bytes.len().min(ROOM - state.outgoing.len());
        state.outgoing.extend(&bytes[..count]);
        let is_much = state.outgoing.len() >= ROOM / 8;
        drop(state);
        if is_much {
            self.pipe.ring();
        }
        self.answered = false;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.ring();
        Ok(())
    }
}
