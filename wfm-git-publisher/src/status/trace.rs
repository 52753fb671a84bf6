//! What became of a commit of the fleet: the state by which each device got it, and what the device verifiably said of that.
//!
//! A device has a commit once its `desired` is of that commit, or of one that contains it, and nothing of it is held back.
//! `control.git` says what rollouts hold, and the home up to which commit each device has everything.

mod course;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use course::{Course, Told, Word};
use jiff::Timestamp;
use repo_git::CommitId;
use repo_git::repo::Lineage;
use repo_model::DeviceId;
use repo_model::message::Wave;
use serde::Serialize;

use super::{Counts, DeviceStatus, Health, Membership};
use crate::coverage::Written;
use crate::fleet::{Fleet, counted};
use crate::parallel;
use crate::publish::{CoveredCommits, Findings};
use crate::repos::{
    Agreement, Control, ControlError, CoverageError, DeviceRepo, DeviceRepoError, FleetRepo, Home, Ledger, Rosters,
    SourceError, Step,
};
use crate::rollout::{Phase, Record};

/// The most commits of `status` that are looked at for when something was so first.
pub(super) const MAX_TOLD: usize = 10_000;

/// What became of a commit.
#[derive(Debug)]
pub struct Trace {
    /// Every device of the fleet; those that are retired aren't followed.
    pub devices: Vec<DeviceTrace>,
    /// The rollouts that released it, or hold it back, by their numbers.
    pub rollouts: Vec<RolloutTrace>,
    /// Who agreed to it, or to what it was published with first; absent where nobody had to.
    pub agreement: Option<Agreement>,
}

/// How far a commit came on a device, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceState {
    /// Neither it nor what came since changes anything there.
    Unchanged,
    /// The device said that all that came with it is installed, or removed.
    Installed,
    /// The device accepted it, and isn't done.
    Accepted,
    /// It is in `desired`, and the device didn't say that it accepted it.
    Published,
    /// A rollout holds it back.
    HeldBack,
    /// It isn't published there yet.
    Pending,
    /// No key of the device is known.
    NotEnrolled,
    /// The last `publish` could not publish something of the device.
    NotPublishable,
    /// The device said that something of it failed, or refuses the state.
    Failed,
    /// What is here of the device can't be read.
    Unreadable,
}

impl TraceState {
    /// The word, as it is printed and is in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Installed => "installed",
            Self::Accepted => "accepted",
            Self::Published => "published",
            Self::HeldBack => "held-back",
            Self::Pending => "pending",
            Self::NotEnrolled => "not-enrolled",
            Self::NotPublishable => Health::NotPublishable.as_str(),
            Self::Failed => Health::Failed.as_str(),
            Self::Unreadable => super::UNREADABLE,
        }
    }
}

impl fmt::Display for TraceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What became of a commit on a device.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceTrace {
    pub device: DeviceId,
    pub state: TraceState,
    /// Why it isn't `installed`, or what else there is to know.
    pub why: Option<String>,
    /// The rollout that holds it back.
    pub held_by: Option<u32>,
    /// How the device is now, as `status` says it.
    pub health: Health,
    /// Seconds since the newest believable thing that it said; absent if it never said one.
    pub heard_age: Option<i64>,
    /// The state by which the device got all of the commit that it gets, by the publisher's clock; absent if there is none.
    pub published: Option<Arrival>,
    /// When the device said first that it accepted that state, or a newer one, by its own clock.
    pub accepted: Option<Moment>,
    /// When it said that all of it is done, likewise.
    pub installed: Option<Moment>,
    /// When it said last that something of it failed, if that is so now; likewise.
    pub failed: Option<Moment>,
}

/// A commit of `desired` with which a commit of the fleet came to a device.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Arrival {
    #[serde(flatten)]
    pub moment: Moment,
    pub serial: Option<u64>,
    /// The commit of the fleet that it is of; it contains the one that is asked about.
    pub fleet_commit: CommitId,
    /// The deployments that changed with it, by the operators' ids.
    pub deployments: Vec<String>,
    /// The waves that released any of it; none for what needed no rollout.
    pub waves: Vec<Wave>,
}

/// A commit in a device's repository, and when it was made by its writer's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Moment {
    pub time: Timestamp,
    pub commit: CommitId,
}

impl Moment {
    pub(super) fn of(step: &Step) -> Self {
        Self { time: at(step.time), commit: step.commit }
    }
}

/// A moment in Unix seconds; the epoch where that is none.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// What a rollout did with the commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutTrace {
    pub rollout: u32,
    /// Absent where it isn't remembered any more.
    pub state: Option<Phase>,
    pub waves: Vec<WaveTrace>,
    /// How many devices it holds back.
    pub held_back: usize,
}

/// The devices that got the commit with a wave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaveTrace {
    pub wave: u32,
    pub devices: usize,
    /// When the first and the last of them got it.
    pub first: Timestamp,
    pub last: Timestamp,
}

/// All devices in one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceSummary {
    /// How many the commit is for, as far as that is known.
    pub devices: usize,
    pub states: Counts<TraceState>,
    /// Those that have it, and weren't heard for longer than they may be silent, or whose word is doubtful.
    pub unheard: usize,
    pub unchanged: usize,
    pub not_enrolled: usize,
}

/// It can't be told what became of the commit.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Coverage(#[from] CoverageError),
}

impl DeviceTrace {
    /// One of which nothing is known yet.
    fn new(status: &DeviceStatus) -> Self {
        Self {
            device: status.device.clone(),
            state: TraceState::Pending,
            why: None,
            held_by: None,
            health: status.health,
            heard_age: status.heard_age,
            published: None,
            accepted: None,
            installed: None,
            failed: None,
        }
    }

    /// Whether somebody has to look at it.
    pub fn is_failed(&self) -> bool {
        matches!(self.state, TraceState::Failed | TraceState::NotPublishable | TraceState::Unreadable)
            || self.health == Health::Doubtful
    }

    /// Whether it has the commit by its own word, and is heard.
    fn is_there(&self) -> bool {
        self.state == TraceState::Installed && !self.is_unheard()
    }

    fn is_unheard(&self) -> bool {
        self.health.is_stale() || self.health == Health::Doubtful
    }

    fn concerns(&self) -> bool {
        !matches!(self.state, TraceState::Unchanged | TraceState::NotEnrolled)
    }
}

impl TraceSummary {
    pub fn of<'a>(all: impl Iterator<Item = &'a DeviceTrace> + Clone) -> Self {
        let count = |state| all.clone().filter(move |one| one.state == state).count();
        let states: Counts<_> = all.clone().filter(|one| one.concerns()).map(|one| one.state).collect();
        let there = all.clone().filter(|one| one.is_there()).count();
        Self {
            devices: states.total(),
            unheard: states.of(&TraceState::Installed) - there,
            states,
            unchanged: count(TraceState::Unchanged),
            not_enrolled: count(TraceState::NotEnrolled),
        }
    }

    /// Whether every device that the commit is for has it, by its own word, and is heard. Where nothing is followed, nothing is done.
    pub fn is_done(&self) -> bool {
        let is_any = self.devices + self.unchanged > 0;
        is_any && self.states.of(&TraceState::Installed) == self.devices && self.unheard == 0
    }
}

impl fmt::Display for TraceSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.devices))?;
        if self.devices > 0 {
            write!(f, ": {}", self.states)?;
        }
        for (count, what) in [
            (self.unheard, "installed, but not heard or doubtful now"),
            (self.unchanged, "unchanged by it"),
            (self.not_enrolled, "not enrolled"),
        ] {
            if count > 0 {
                write!(f, "; {count} {what}")?;
            }
        }
        Ok(())
    }
}

/// Commits of the fleet, as the one that is asked about sees them.
struct Commits {
    lineage: Lineage,
    /// It, and all that contain it.
    with: HashSet<CommitId>,
}

impl Commits {
    /// Tells of commits whether what they brought came with the commit to a device that got it first by `first`: they contain it,
    /// and are no newer than that.
    fn came_by(&self, first: CommitId) -> impl Fn(&str) -> bool {
        let newer = self.lineage.descendants(first);
        move |commit| {
            let commit = commit.parse::<CommitId>();
            commit.is_ok_and(|one| self.with.contains(&one) && (one == first || !newer.contains(&one)))
        }
    }
}

/// What all devices are judged by.
struct Ground<'a> {
    home: &'a Home,
    fleet: &'a Fleet,
    ledger: Ledger,
    rosters: Rosters,
    covered: CoveredCommits,
    findings: Findings,
    commits: Commits,
}

/// A device, with when its first state with the commit was published, and of which commit of the fleet that is.
struct Traced {
    device: DeviceTrace,
    first: Option<(i64, CommitId)>,
}

/// Follows a commit to each device. `statuses` is what there is to say of these, and `fleet` what is published now.
pub fn trace(
    (home, source): (&Home, &FleetRepo),
    commit: CommitId,
    fleet: &Fleet,
    statuses: &[DeviceStatus],
    threads: usize,
    now: Timestamp,
) -> Result<Trace, TraceError> {
    let (ledger, rosters) = Control::read(home)?;
    let lineage = source.lineage(source.resolve("HEAD")?)?;
    let commits = Commits { with: lineage.descendants(commit), lineage };
    let (covered, findings) = (CoveredCommits::read(home), Findings::read(home));
    let ground = Ground { home, fleet, ledger, rosters, covered, findings, commits };
    let is_followed =
        |status: &&DeviceStatus| matches!(status.membership, Membership::Enrolled | Membership::NotEnrolled);
    let traced = parallel::map(statuses.iter().filter(is_followed).collect(), threads, |status| ground.device(status));
    let agreement = agreement(source, commit, &traced, &ground.commits.lineage, now)?;
    let devices: Vec<_> = traced.into_iter().map(|one| one.device).collect();
    Ok(Trace { rollouts: rollouts(&devices, &ground.ledger), devices, agreement })
}

/// Who agreed to it, up to the first commit with it that was published; or to it alone, where none was.
fn agreement(
    source: &FleetRepo,
    commit: CommitId,
    traced: &[Traced],
    lineage: &Lineage,
    now: Timestamp,
) -> Result<Option<Agreement>, TraceError> {
    // Of one second the older commit came first.
    let order = |(time, commit): &(i64, CommitId)| (*time, Reverse(lineage.descendants(*commit).len()));
    let firsts: BTreeSet<_> = traced.iter().filter_map(|one| one.first).collect();
    let (published, at) = firsts.into_iter().min_by_key(order).map_or((commit, now), |(time, first)| (first, at(time)));
    let before = source.commit(commit)?.parents.first().copied().filter(|parent| source.has(*parent));
    if !source.has(published) || source.written(before.unwrap_or(commit))? == Written::Absent {
        return Ok(None);
    }
    Ok(Some(source.agreement(before, published, at)?))
}

/// What rollouts did, by what devices got.
fn rollouts(devices: &[DeviceTrace], ledger: &Ledger) -> Vec<RolloutTrace> {
    let mut waves: BTreeMap<u32, BTreeMap<u32, WaveTrace>> = BTreeMap::new();
    for arrival in devices.iter().filter_map(|one| one.published.as_ref()) {
        let time = arrival.moment.time;
        for Wave { rollout, wave } in &arrival.waves {
            let new = || WaveTrace { wave: *wave, devices: 0, first: time, last: time };
            let known = waves.entry(*rollout).or_default().entry(*wave).or_insert_with(new);
            known.devices += 1;
            (known.first, known.last) = (known.first.min(time), known.last.max(time));
        }
    }
    let mut held_back: BTreeMap<u32, usize> = BTreeMap::new();
    for number in devices.iter().filter_map(|one| one.held_by) {
        waves.entry(number).or_default();
        *held_back.entry(number).or_default() += 1;
    }
    let one = |(rollout, waves): (u32, BTreeMap<u32, WaveTrace>)| RolloutTrace {
        rollout,
        state: ledger.rollouts.state(rollout).map(|state| state.state),
        waves: waves.into_values().collect(),
        held_back: held_back.get(&rollout).copied().unwrap_or(0),
    };
    waves.into_iter().map(one).collect()
}

impl Ground<'_> {
    fn device(&self, status: &DeviceStatus) -> Traced {
        let mut device = DeviceTrace::new(status);
        if status.membership == Membership::NotEnrolled {
            device.state = TraceState::NotEnrolled;
            return Traced { device, first: None };
        }
        let (course, told) = match self.read(status) {
            Ok(read) => read,
            Err(error) => {
                (device.state, device.why) = (TraceState::Unreadable, Some(error.status_text()));
                return Traced { device, first: None };
            }
        };
        if !self.lacks(&mut device, status, &course) {
            let is_of_it = |number| {
                let commit = self.ledger.rollouts.state(number).map(|state| state.fleet_commit.parse());
                commit.is_none_or(|commit| commit.is_ok_and(|commit| self.commits.with.contains(&commit)))
            };
            device.published = course.arrival(is_of_it);
            let Word { state, why, accepted, installed, failed } = course.word(&told, status);
            device = DeviceTrace { state, why, accepted, installed, failed, ..device };
        }
        Traced { device, first: course.first() }
    }

    fn read(&self, status: &DeviceStatus) -> Result<(Course, Told), DeviceRepoError> {
        let (id, publishers) = (&status.device, &self.rosters.publishers);
        let Some(repo) = DeviceRepo::open(self.home, self.rosters.fleet(), id)? else { return Ok(Default::default()) };
        let Some(tip) = repo.desired(publishers)? else { return Ok(Default::default()) };
        let course = Course::read(repo.line(tip.commit), &self.commits)?;
        let enrolled = self.fleet.devices.get(id).map_or(&[][..], |device| &device.status_keys);
        let verified = repo.verified_status(Some(&tip), enrolled, publishers);
        let told = verified.map(|verified| {
            let adopted = verified.report.adopted().and_then(|adopted| adopted.commit.parse().ok());
            Told::read(repo.line(verified.commit), adopted, &course)
        });
        Ok((course, told.unwrap_or_default()))
    }

    /// Notes what the device lacks of the commit, and why, if it lacks anything.
    fn lacks(&self, device: &mut DeviceTrace, status: &DeviceStatus, course: &Course) -> bool {
        let has_all = self.covered.of(&status.device).map(|commit| self.commits.with.contains(&commit));
        let first = course.first().map(|(_, commit)| commit);
        let blocked = status.blocked.first();
        if let Some(record) = self.holder(&status.device, first).filter(|_| has_all != Some(true)) {
            device.held_by = Some(record.number());
            (device.state, device.why) = (TraceState::HeldBack, Some(why_held(record, &status.device)));
            return true;
        }
        match (first, has_all) {
            (Some(_), Some(true) | None) => false,
            // What is held back isn't of it.
            (Some(_), Some(false)) if self.holders(&status.device).next().is_some() => false,
            (None, Some(true)) if blocked.is_none() => {
                device.state = TraceState::Unchanged;
                true
            }
            _ => {
                (device.state, device.why) = match blocked {
                    Some(one) => (TraceState::NotPublishable, Some(one.message.clone())),
                    None => (TraceState::Pending, self.findings.of_each().next().map(|one| one.message.clone())),
                };
                true
            }
        }
    }

    /// The rollouts that hold something of a device back.
    fn holders(&self, device: &DeviceId) -> impl Iterator<Item = &Record> {
        let open = self.ledger.rollouts.open.values();
        let is_held = |record: &&Record| self.findings.is_held(record.number(), device);
        let waits = |record: &&Record| record.members.contains_key(device) && record.released_with(device).is_none();
        open.filter(move |record| waits(record) && is_held(record))
    }

    /// The one that holds something of the commit back; of whatever it is, where the device got nothing with the commit. `first` is the
    /// commit of the fleet that it got first: what was held then is older.
    fn holder(&self, device: &DeviceId, first: Option<CommitId>) -> Option<&Record> {
        let mut holders = self.holders(device).peekable();
        holders.peek()?;
        match first.map(|first| self.commits.came_by(first)) {
            Some(came) => holders.find(|record| came(&record.state.fleet_commit)),
            None => holders.next(),
        }
    }
}

fn why_held(record: &Record, device: &DeviceId) -> String {
    let wave = record.members.get(device).map_or(0, |member| member.wave);
    let stopped = if record.state.state == Phase::Stopped { ", which is stopped" } else { "" };
    format!("rollout {}{stopped}: wave {wave} of {}", record.number(), record.last_wave())
}
