//! How the devices stand, for the metrics: what was published against what they verifiably say.
//!
//! Computed when somebody asks, at most every 15 s; of each device only what moved since is read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_git::CommitId;
use repo_git::repo::branches;
use repo_model::margo::status::State;
use repo_model::windows::WindowsPolicy;
use repo_model::{Branch, DeviceId, error_chain};
use wfm_git_host::FleetFigures;

use crate::fleet::is_silent;
use crate::plan::Code;
use crate::publish::Findings;
use crate::repos::{Control, ControlError, DeviceRepo, DeviceRepoError, Entry, Heard, Home, Ledger, Rosters};
use crate::rollout::Phase;
use crate::status::Health;

/// How devices of rollouts stand: they may have the change, or not yet.
const RELEASED: &str = "released";
const WAITING: &str = "waiting";

/// How long the figures are given out before they are computed again.
const FRESH: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// It has what was published last.
    Current,
    /// It has something older.
    Behind,
    /// It reported nothing that can be believed.
    Unknown,
    /// Nothing was heard of it for long, whatever it had then: it is off, or cut off.
    Offline,
    /// It is retired, and gets nothing more.
    Retired,
    /// It left the fleet.
    Gone,
}

impl Standing {
    /// All of them, so that the metrics show zeros, too.
    const ALL: [Self; 6] = [Self::Current, Self::Behind, Self::Unknown, Self::Offline, Self::Retired, Self::Gone];

    fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Behind => "behind",
            Self::Unknown => Health::Unknown.as_str(),
            Self::Offline => Health::Offline.as_str(),
            Self::Retired => "retired",
            Self::Gone => "gone",
        }
    }
}

/// The figures can't be computed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SurveyError {
    #[error("cannot read the publisher's ledger")]
    Control(#[from] ControlError),
    #[error("cannot read what the device shall run")]
    Desired(#[from] DeviceRepoError),
}

/// What was read and computed last.
#[derive(Debug, Default)]
pub(super) struct Survey {
    figures: Option<(Instant, FleetFigures)>,
    ledger: Option<(CommitId, Arc<(Ledger, Rosters)>)>,
    said: HashMap<DeviceId, ([Option<CommitId>; 2], Option<SaidByDevice>)>,
}

/// What a device verifiably reported, against its tip.
#[derive(Debug, Clone)]
struct SaidByDevice {
    /// The serial that it adopted.
    serial: u64,
    /// When the first commit was made that it lacks, in Unix seconds.
    lacks_since: Option<i64>,
    /// How often it reports, in seconds.
    report: u64,
    /// The fleet's windows for it, in which it talks.
    windows: Option<WindowsPolicy>,
    /// How many deployments it says are in which state.
    deployments: BTreeMap<&'static str, i64>,
}

impl Survey {
    /// The figures, as they were at most 15 s ago.
    pub(super) fn figures(&mut self, home: &Home, now: Timestamp) -> Result<FleetFigures, SurveyError> {
        match &self.figures {
            Some((when, figures)) if when.elapsed() < FRESH => Ok(figures.clone()),
            _ => {
                let figures = self.compute(home, now)?;
                self.figures = Some((Instant::now(), figures.clone()));
                Ok(figures)
            }
        }
    }

    fn compute(&mut self, home: &Home, now: Timestamp) -> Result<FleetFigures, SurveyError> {
        let mut figures = nothing();
        let Some(known) = self.ledger(home)? else { return Ok(figures) };
        let (ledger, rosters) = &*known;
        let findings = Findings::read(home);
        for one in findings.blocked.iter().filter(|one| one.code.is_error()) {
            *figures.blocked.entry(one.code.as_str()).or_default() += 1;
            let since = one.since.map_or(0, |since| now.as_second().saturating_sub(since.as_second()));
            figures.blocked_for = figures.blocked_for.max(since);
        }
        for record in ledger.rollouts.open.values() {
            *figures.rollouts.entry(record.state.state.as_str()).or_default() += 1;
            let released = record.released().len();
            *figures.rollout_devices.entry(RELEASED).or_default() += count(released);
            let dropped_out = findings.dropped_out.get(&record.number()).map_or(0, BTreeSet::len);
            *figures.rollout_devices.entry(WAITING).or_default() +=
                count(record.members.len().saturating_sub(released + dropped_out));
        }
        for device in ledger.devices() {
            let Some(entry) = ledger.entry(device) else { continue };
            let out_of_service = match (findings.retired.contains_key(device), findings.gone.contains_key(device)) {
                (true, _) => Some(Standing::Retired),
                (false, true) => Some(Standing::Gone),
                (false, false) => None,
            };
            if let Some(standing) = out_of_service {
                *figures.devices.entry(standing.name()).or_default() += 1;
                continue;
            }
            // One that can't be read doesn't hide the others.
            let (standing, lacks_since) = self.standing(home, rosters, (device, now), entry).unwrap_or_else(|error| {
                tracing::warn!(%device, error = error_chain(&error), "how it stands can't be told");
                (Standing::Unknown, None)
            });
            *figures.devices.entry(standing.name()).or_default() += 1;
            let said = self.said.get(device).and_then(|(_, said)| said.as_ref());
            for (state, count) in said.into_iter().flat_map(|said| &said.deployments) {
                *figures.deployments.entry(state).or_default() += count;
            }
            // Whoever is off, or was never on, has its number above, and says nothing of how quick publishes arrive.
            if standing == Standing::Behind {
                let since = lacks_since.unwrap_or(entry.time.as_second());
                figures.publish_lag = figures.publish_lag.max(now.as_second().saturating_sub(since));
            }
        }
        Ok(figures)
    }

    /// Ledger and rosters, read again only when `control.git` has moved.
    fn ledger(&mut self, home: &Home) -> Result<Option<Arc<(Ledger, Rosters)>>, ControlError> {
        let Some(tip) = Control::tip(home)? else { return Ok(None) };
        match &self.ledger {
            Some((known, ledger)) if *known == tip => Ok(Some(Arc::clone(ledger))),
            _ => {
                let ledger = Arc::new(Control::read(home)?);
                self.ledger = Some((tip, Arc::clone(&ledger)));
                Ok(Some(ledger))
            }
        }
    }

    fn standing(
        &mut self,
        home: &Home,
        rosters: &Rosters,
        (device, now): (&DeviceId, Timestamp),
        entry: &Entry,
    ) -> Result<(Standing, Option<i64>), DeviceRepoError> {
        let tips = branches(&home.device(device), [Branch::Desired.as_str(), Branch::Status.as_str()]).ok();
        let said = match self.said.get(device) {
            Some((known, said)) if Some(*known) == tips => said.clone(),
            _ => {
                let said = said(home, rosters, device)?;
                self.said.extend(tips.map(|tips| (device.clone(), (tips, said.clone()))));
                said
            }
        };
        let published = entry.last_published().map_or(0, |published| published.serial);
        Ok(match said {
            None => (Standing::Unknown, None),
            Some(said)
                if Heard::of(&home.device(device))
                    .age(now)
                    .is_some_and(|age| is_silent(said.windows.as_ref(), age, said.patience(), now)) =>
            {
                (Standing::Offline, None)
            }
            Some(said) if said.serial >= published => (Standing::Current, None),
            Some(said) => (Standing::Behind, said.lacks_since),
        })
    }
}

/// Reads what a device verifiably reported; `None` if that is nothing.
fn said(home: &Home, rosters: &Rosters, device: &DeviceId) -> Result<Option<SaidByDevice>, DeviceRepoError> {
    let Some(repo) = DeviceRepo::open(home, rosters.fleet(), device)? else { return Ok(None) };
    let tip = repo.desired(&rosters.publishers).ok().flatten();
    let status = repo.verified_status(tip.as_ref(), &[], &rosters.publishers);
    Ok(tip.zip(status).and_then(|(tip, status)| {
        let adopted = status.report.adopted()?;
        let mut deployments = BTreeMap::new();
        for one in status.report.deployments.values() {
            *deployments.entry(one.status.state.as_str()).or_default() += 1;
        }
        Some(SaidByDevice {
            serial: adopted.serial,
            lacks_since: adopted.commit.parse().ok().and_then(|commit| repo.published_after(&tip, commit)),
            report: tip.desired.envelope.policy.report_seconds.unwrap_or_default(),
            windows: tip.desired.envelope.policy.windows,
            deployments,
        })
    }))
}

/// Zeros under every name, so that the metrics show them, too.
fn nothing() -> FleetFigures {
    let devices = Standing::ALL.iter().map(|standing| (standing.name(), 0)).collect();
    let blocked = Code::TABLE.iter().map(|(code, _)| (code.as_str(), 0)).collect();
    let rollouts = [Phase::Running, Phase::Stopped].map(|phase| (phase.as_str(), 0)).into();
    let rollout_devices = [RELEASED, WAITING].map(|state| (state, 0)).into();
    let deployments = State::ALL.map(|(word, _)| (word, 0)).into();
    FleetFigures { devices, deployments, blocked, rollouts, rollout_devices, ..FleetFigures::default() }
}

/// A gauge is signed.
fn count(devices: usize) -> i64 {
    i64::try_from(devices).unwrap_or(i64::MAX)
}

impl SaidByDevice {
    /// How long nothing may be heard of a device that is on: an hour, or three of its reports.
    fn patience(&self) -> Duration {
        Duration::from_secs(self.report.saturating_mul(3)).max(Duration::from_hours(1))
    }
}
