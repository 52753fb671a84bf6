//! What a pass came to, and what happens next.

use std::time::Duration;

use crate::config::device::POLL;
use crate::decision::conditions;
use crate::decision::device_state::DeviceState;
use crate::decision::health::NotReady;
use crate::host::refs::Ask;

/// What became of a plan so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Jobs are still at work as the pass ends.
    pub at_work: bool,
    /// Jobs that ended since the pass before have tried something.
    pub acted: bool,
    /// No job is at work, and the plan leaves nothing to do.
    pub up_to_date: bool,
}

/// What a pass came to.
#[derive(Debug)]
pub struct PassOutcome {
    pub progress: Progress,
    /// Jobs have just begun: what they come to isn't known yet.
    pub just_began: bool,
    /// What was had of the host.
    pub host: HostAnswer,
    pub next: Next,
    /// What stands in the way, or is worth knowing, for a person.
    pub problems: Vec<String>,
    /// Components that aren't installed or don't run well.
    pub not_ready: Vec<NotReady>,
    /// How often the host is asked.
    pub poll: Duration,
    /// How long the host wants to be left alone; `None` if it didn't say so.
    pub retry_after: Option<Duration>,
}

/// How far a pass came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Everything ran as desired, and the host knows.
    UpToDate,
    /// It does since this pass did something for it.
    BroughtUpToDate,
    /// Something is left to do, or to report.
    Behind,
}

impl Progress {
    /// `is_clear`: nothing is in the way, every component is ready, and the host knows.
    pub(super) fn of(done: Done, is_clear: bool) -> Self {
        match (done.up_to_date && is_clear, done.acted) {
            (true, false) => Self::UpToDate,
            (true, true) => Self::BroughtUpToDate,
            (false, _) => Self::Behind,
        }
    }
}

/// What a pass had of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAnswer {
    /// The pass didn't ask: what was known last still counts, or it isn't to ask yet.
    NotAsked,
    /// It didn't answer, or went away while something was fetched.
    Unreachable,
    /// It answered, and what it has couldn't be fetched for a reason of its own.
    Unfetched,
    /// All that was asked for was had.
    Complete,
}

/// When the host is asked next, and in which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// After the poll interval, or when a wait at the host ends.
    AfterPoll,
    /// After a back-off: nothing could be had.
    AfterBackOff,
    /// When it was to be asked before the pass, which didn't ask.
    AsBefore,
}

impl Next {
    /// What follows a pass. One that failed had nothing of a host that it might have asked.
    pub fn after(ask: Ask, outcome: Option<HostAnswer>) -> Self {
        match outcome {
            Some(HostAnswer::NotAsked) => Self::AsBefore,
            Some(HostAnswer::Complete) => Self::AfterPoll,
            Some(HostAnswer::Unreachable | HostAnswer::Unfetched) => Self::AfterBackOff,
            None if matches!(ask, Ask::Later(_)) => Self::AsBefore,
            None => Self::AfterBackOff,
        }
    }
}

impl PassOutcome {
    /// Nothing is known but what the host would have to say.
    pub(super) fn unreachable(asked: bool, device_state: &DeviceState) -> Self {
        let damaged = conditions::damaged(device_state).into_iter();
        let host = if asked { HostAnswer::Unreachable } else { HostAnswer::NotAsked };
        Self {
            progress: Progress::Behind,
            just_began: false,
            host,
            next: if asked { Next::AfterBackOff } else { Next::AsBefore },
            problems: damaged.map(|one| conditions::text(&one)).collect(),
            not_ready: Vec::new(),
            poll: POLL,
            retry_after: None,
        }
    }

    /// Whether everything runs as desired, and the host knows; not while the host may have something newer that couldn't be
    /// had.
    pub fn is_up_to_date(&self) -> bool {
        self.progress != Progress::Behind && matches!(self.host, HostAnswer::NotAsked | HostAnswer::Complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_pass_hangs_on_what_was_had_of_the_host() {
        let later = Ask::Later(Duration::from_secs(1));
        for (ask, outcome, next) in [
            (Ask::Host, Some(HostAnswer::Complete), Next::AfterPoll),
            (Ask::Host, Some(HostAnswer::Unreachable), Next::AfterBackOff),
            (Ask::Host, Some(HostAnswer::Unfetched), Next::AfterBackOff),
            (Ask::IfMoved, Some(HostAnswer::NotAsked), Next::AsBefore),
            (later, Some(HostAnswer::NotAsked), Next::AsBefore),
            (Ask::Host, None, Next::AfterBackOff),
            (Ask::IfMoved, None, Next::AfterBackOff),
            (later, None, Next::AsBefore),
        ] {
            assert_eq!(Next::after(ask, outcome), next, "{ask:?} {outcome:?}");
        }
    }
}
