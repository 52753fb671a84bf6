//! What a released device is: the first row that fits.

use std::fmt;

use jiff::Timestamp;
use repo_model::ErrorCode;
use repo_model::margo::State;
use repo_model::report::Reason;
use serde::{Deserialize, Serialize};

use super::evidence::{Adoption, Beat, Component, Evidence, Report};
use super::meaning::Meaning;
use super::record::Released;
use crate::fleet::RolloutPolicy;

/// What a released device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceState {
    /// What it shall have isn't in its `desired`, here or at the other host.
    Blocked,
    /// It has the change, and is well.
    Updated,
    Failed,
    /// It said nothing, or didn't take the change, and nothing tells that the change did it.
    Offline,
    /// Its site or a person holds the change back.
    Deferred,
    /// All else: it counts as neither, and its wave waits for it.
    Updating,
}

impl DeviceState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Updated => "updated",
            Self::Failed => "failed",
            Self::Offline => "offline",
            Self::Deferred => "deferred",
            Self::Updating => "updating",
        }
    }
}

impl fmt::Display for DeviceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a released device is, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    pub state: DeviceState,
    /// For a person: an error code, or a few words.
    pub why: String,
    /// The earliest moment at which time alone may make it something else.
    pub again: Option<Timestamp>,
}

/// What a device is judged by.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    pub policy: &'a RolloutPolicy,
    /// How often it reports, in seconds.
    pub report_seconds: u64,
    pub released: Released,
    pub want: Option<&'a Meaning>,
    pub evidence: &'a Evidence,
    pub now: Timestamp,
}

impl Case<'_> {
    /// What it is, where its `desired` has what it shall have.
    pub fn judge(&self) -> Judged {
        let (state, why) = self.row();
        let again = (state == DeviceState::Updating).then(|| self.again()).flatten();
        Judged { state, why, again }
    }

    fn row(&self) -> (DeviceState, String) {
        let nothing = Report::default();
        let report = self.evidence.status.as_ref().unwrap_or(&nothing);
        let adopted = report.adopted.as_ref().filter(|adopted| adopted.meaning.as_ref() == self.want);
        let baking = match adopted.map(|adopted| self.bakes(report, adopted)) {
            Some(Ok(())) => return (DeviceState::Updated, String::new()),
            Some(Err(why)) => why,
            None => "didn't adopt it yet".to_owned(),
        };
        if let Some(reason) = report.stalled.as_ref().filter(|reason| !is_passing(reason)) {
            return (DeviceState::Failed, reason.clone());
        }
        let deferred = adopted.and_then(|_| deferred(&report.components));
        let is_silent = self.is_silent();
        if adopted.is_some() {
            if let Some(failed) = report.components.iter().find(|one| one.state == State::Failed) {
                return (DeviceState::Failed, failed.why());
            }
            // What others hold back didn't begin, whatever of the change is done already.
            if is_silent && deferred.is_none() && report.components.iter().any(|one| one.state != State::Pending) {
                return (DeviceState::Failed, "silent since it began the change".to_owned());
            }
            if !is_silent && deferred.is_none() && self.is_stuck(report) {
                return (DeviceState::Failed, format!("no progress: {baking}"));
            }
        }
        if is_silent {
            return (DeviceState::Offline, "silent".to_owned());
        }
        match deferred {
            Some(why) => (DeviceState::Deferred, why),
            None if adopted.is_none() && self.since_release() >= self.policy.timeout => {
                (DeviceState::Offline, "didn't adopt it".to_owned())
            }
            None => (DeviceState::Updating, baking),
        }
    }

    /// Whether all is done and well for long enough; else why not.
    fn bakes(&self, report: &Report, adopted: &Adoption) -> Result<(), String> {
        if let Some(one) = report.components.iter().find(|one| !one.is_done()) {
            return Err(one.why());
        }
        if report.runtime_unavailable {
            return Err("its runtime doesn't answer".to_owned());
        }
        let Some(since) = report.done_since else { return Err("isn't done yet".to_owned()) };
        match self.evidence.heartbeat {
            Beat::Absent => {}
            Beat::Unbelieved => return Err("its heartbeat isn't believed".to_owned()),
            Beat::Seen { serial, .. } if serial < adopted.serial => {
                return Err("sent no heartbeat since".to_owned());
            }
            Beat::Seen { healthy: false, .. } => return Err("isn't healthy".to_owned()),
            // A clock that went back since proves nothing; then ours alone counts.
            Beat::Seen { time, .. } if time >= since && seconds(time - since) < self.policy.bake => {
                return Err("bakes".to_owned());
            }
            Beat::Seen { .. } => {}
        }
        if self.since_release() < self.policy.bake { Err("bakes".to_owned()) } else { Ok(()) }
    }

    /// Whether it made no progress for too long, by its clock and by ours.
    fn is_stuck(&self, report: &Report) -> bool {
        let by_its_own = match self.evidence.heartbeat {
            Beat::Seen { time, .. } if time >= report.moved => seconds(time - report.moved) >= self.policy.timeout,
            _ => true,
        };
        by_its_own && seconds_between(self.last_move(report), self.now) >= self.policy.timeout
    }

    fn last_move(&self, report: &Report) -> Timestamp {
        report.moved_here.map_or(self.released.at, |moved| moved.max(self.released.at))
    }

    fn is_silent(&self) -> bool {
        is_silent(self.evidence, self.policy, self.report_seconds)
    }

    fn since_release(&self) -> u64 {
        seconds_between(self.released.at, self.now)
    }

    /// When time alone may make it something else: once it has baked, made no progress or was silent for long enough.
    fn again(&self) -> Option<Timestamp> {
        let report = self.evidence.status.as_ref();
        let baked = after(self.released.at, self.policy.bake);
        let from = report.map_or(self.released.at, |report| self.last_move(report));
        let stuck = after(from, self.policy.timeout);
        let unheard = after(self.released.at, self.policy.timeout);
        let threshold = silence(self.policy, self.report_seconds);
        let silent = after(self.now, threshold.saturating_sub(self.evidence.silent_for));
        [baked, stuck, unheard, silent].into_iter().flatten().filter(|moment| *moment > self.now).min()
    }
}

impl Component {
    fn why(&self) -> String {
        let what = self.code.clone().unwrap_or_else(|| self.state.to_string());
        format!("{}/{}: {what}", self.deployment, self.name)
    }
}

/// For how many seconds a device has to say nothing so that it is silent: at least three times as long as between two reports.
pub fn silence(policy: &RolloutPolicy, report_seconds: u64) -> u64 {
    policy.offline_after.max(report_seconds.saturating_mul(3))
}

/// Whether a device says nothing.
pub(super) fn is_silent(evidence: &Evidence, policy: &RolloutPolicy, report_seconds: u64) -> bool {
    evidence.silent_for >= silence(policy, report_seconds)
}

/// Whether what stalls a device ends without a person or a new commit.
fn is_passing(reason: &str) -> bool {
    [Reason::FetchFailed, Reason::Code(ErrorCode::DiskFull)].iter().any(|passing| passing.as_str() == reason)
}

/// Why somebody other than the device holds the change back; `None` if nobody does, or something of it is at work.
fn deferred(components: &[Component]) -> Option<String> {
    let held = components.iter().find(|one| one.is_deferred())?;
    let may_wait = |one: &Component| one.is_done() || one.is_deferred() || one.waits_for_another();
    components.iter().all(may_wait).then(|| held.why())
}

/// What a device waits with for somebody else.
const DEFERRING: [ErrorCode; 6] = [
    ErrorCode::WaitingWindow,
    ErrorCode::WaitingApproval,
    ErrorCode::WaitingPolicy,
    ErrorCode::WaitingDowntime,
    ErrorCode::Held,
    ErrorCode::Suspended,
];

impl Component {
    fn has(&self, codes: &[ErrorCode]) -> bool {
        let waits = matches!(self.state, State::Pending | State::Removing);
        waits && codes.iter().any(|code| self.code.as_deref() == Some(code.as_str()))
    }

    fn waits_for_another(&self) -> bool {
        self.has(&[ErrorCode::WaitingDependency])
    }

    fn is_deferred(&self) -> bool {
        self.has(&DEFERRING) || self.waits_outside && self.waits_for_another()
    }
}

fn seconds(difference: i64) -> u64 {
    u64::try_from(difference).unwrap_or(0)
}

fn seconds_between(from: Timestamp, to: Timestamp) -> u64 {
    seconds(to.as_second() - from.as_second())
}

pub(super) fn after(from: Timestamp, seconds: u64) -> Option<Timestamp> {
    Timestamp::from_second(from.as_second().saturating_add(i64::try_from(seconds).ok()?)).ok()
}
