//! What a pass came to, and what happens next.

use std::time::Duration;

use crate::config::device::POLL;
use crate::decision::conditions;
use crate::decision::device_state::DeviceState;
use crate::decision::health::NotReady;
use crate::host::refs::StatusTip;

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

/// What a pass came to on the device, whatever the host knows of it.
#[derive(Debug, Clone)]
pub(super) struct LocalOutcome {
    pub(super) done: Done,
    /// What the host's side found was judged by what isn't in force any more, or isn't here: the host is to be asked again.
    pub(super) is_outdated: bool,
    /// Nothing is in the way, and every component is ready.
    pub(super) is_clear: bool,
    /// Jobs have just begun: what they come to isn't known yet.
    pub(super) just_began: bool,
    /// What stands in the way, or is worth knowing, for a person.
    pub(super) problems: Vec<String>,
    /// Components that aren't installed or don't run well.
    pub(super) not_ready: Vec<NotReady>,
    /// How often the device is observed.
    pub(super) poll: Duration,
}

/// How it stands with the host.
#[derive(Debug, Clone)]
pub(super) struct HostReport {
    /// What was had of it when it was last asked; not asked before that.
    pub(super) answer: HostAnswer,
    /// Where its `status` stands, as far as that is known.
    pub(super) status: StatusTip,
    /// Whether it knows all that it may be told.
    pub(super) is_told: bool,
    /// Whether it isn't talked to, because windows are kept for that.
    pub(super) is_silent: bool,
    /// Why it wasn't reached.
    pub(super) problem: Option<String>,
    /// How long it wants to be left alone; `None` if it didn't say so.
    pub(super) retry_after: Option<Duration>,
    /// How often it is asked.
    pub(super) poll: Duration,
}

/// What a pass came to, with what the host knows of it.
#[derive(Debug)]
pub struct PassOutcome {
    pub progress: Progress,
    /// Jobs have just begun: what they come to isn't known yet.
    pub just_began: bool,
    /// What was last had of the host.
    pub host: HostAnswer,
    /// What stands in the way, or is worth knowing, for a person.
    pub problems: Vec<String>,
    /// Components that aren't installed or don't run well.
    pub not_ready: Vec<NotReady>,
    /// How often the device is observed.
    pub poll: Duration,
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

/// What a turn had of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAnswer {
    /// It didn't ask: what was known last still counts, or it isn't to ask yet.
    NotAsked,
    /// The host didn't answer, or went away while something was fetched.
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
    /// When it was to be asked before the turn, which didn't ask.
    AsBefore,
}

impl Next {
    /// What follows a turn at the host.
    pub fn after(answer: HostAnswer) -> Self {
        match answer {
            HostAnswer::NotAsked => Self::AsBefore,
            HostAnswer::Complete => Self::AfterPoll,
            HostAnswer::Unreachable | HostAnswer::Unfetched => Self::AfterBackOff,
        }
    }
}

impl LocalOutcome {
    /// Nothing is known but what the host would have to say.
    pub(super) fn knowing_nothing(device_state: &DeviceState) -> Self {
        let damaged = conditions::damaged(device_state).into_iter();
        Self {
            done: Done::default(),
            is_outdated: false,
            is_clear: false,
            just_began: false,
            problems: damaged.map(|one| conditions::text(&one)).collect(),
            not_ready: Vec::new(),
            poll: POLL,
        }
    }

    /// Whether nothing is left to do, nothing in the way and nothing worth knowing.
    pub(super) fn is_at_rest(&self) -> bool {
        let is_over = self.done.up_to_date && !self.done.acted && !self.is_outdated;
        is_over && self.is_clear && self.problems.is_empty() && self.not_ready.is_empty()
    }

    /// The same, with what the host knows of it.
    pub(super) fn with(self, host: &HostReport) -> PassOutcome {
        let Self { done, is_clear, just_began, mut problems, not_ready, poll, .. } = self;
        problems.extend(host.problem.clone());
        let progress = Progress::of(done, host.is_told && is_clear);
        let mut outcome = PassOutcome { progress, just_began, host: host.answer, problems, not_ready, poll };
        let is_explained = !outcome.problems.is_empty() || !outcome.not_ready.is_empty();
        if !outcome.is_up_to_date() && !is_explained && !done.at_work {
            let reason = if host.is_silent {
                "windows let nothing be said to the host now"
            } else {
                "the host hasn't taken the newest `status` yet"
            };
            outcome.problems.push(reason.to_owned());
        }
        outcome
    }
}

impl PassOutcome {
    /// Whether everything runs as desired, and the host knows; not while the host may have something newer that couldn't be
    /// had.
    pub fn is_up_to_date(&self) -> bool {
        self.progress != Progress::Behind && matches!(self.host, HostAnswer::NotAsked | HostAnswer::Complete)
    }
}
