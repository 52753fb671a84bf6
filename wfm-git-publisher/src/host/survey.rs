//! How the devices stand, for the metrics: what was published against what they verifiably say.
//!
//! Looked at when somebody asks, at most every 15 s, and of each device only what moved since.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use repo_git::CommitId;
use repo_model::{DeviceId, error_chain};

use super::receive::PushError;
use crate::plan::Code;
use crate::publish::Findings;
use crate::repos::{Control, DESIRED, DeviceRepo, Entry, Home, Ledger, Rosters};

/// How long what was seen is good enough.
const FRESH: Duration = Duration::from_secs(15);

/// How a device stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It has what was published last.
    Current,
    /// It has something older.
    Behind,
    /// It said nothing that can be believed.
    Silent,
    /// It has something older, or not even said so, and nothing was heard of it for long: it is off, or cut off.
    Offline,
    /// It left the fleet.
    Gone,
}

impl Standing {
    /// All of them, so that the metrics show zeros, too.
    pub(super) const ALL: [Self; 5] = [Self::Current, Self::Behind, Self::Silent, Self::Offline, Self::Gone];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Behind => "behind",
            Self::Silent => "silent",
            Self::Offline => "offline",
            Self::Gone => "gone",
        }
    }
}

/// The numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Summary {
    /// How many devices stand how.
    pub(super) devices: BTreeMap<Standing, i64>,
    /// Seconds since the oldest publish that a device doesn't have that is heard of; 0 if all of these have theirs.
    pub(super) lag: i64,
    /// How many deployments, or devices, can't be published for which reason.
    pub(super) blocked: BTreeMap<Code, i64>,
    /// Seconds since the first of them could not be published; 0 if there is none.
    pub(super) blocked_for: i64,
}

/// What was seen last.
#[derive(Debug, Default)]
pub(super) struct Survey {
    taken: Option<(Instant, Summary)>,
    memory: Option<(CommitId, Arc<(Ledger, Rosters)>)>,
    said: HashMap<DeviceId, ([Option<CommitId>; 2], Option<SaidByDevice>)>,
}

/// What a device verifiably said, against its tip.
#[derive(Debug, Clone, Copy)]
struct SaidByDevice {
    /// The serial that it adopted.
    serial: u64,
    /// When the first commit was made that it lacks, in Unix seconds.
    lacks_since: Option<i64>,
    /// How often it reports, in seconds.
    report: u64,
}

impl Survey {
    /// The numbers, seen a few seconds ago at most.
    pub(super) fn take(&mut self, home: &Home, now: Timestamp) -> Result<Summary, PushError> {
        match &self.taken {
            Some((when, summary)) if when.elapsed() < FRESH => Ok(summary.clone()),
            _ => {
                let summary = self.look(home, now)?;
                self.taken = Some((Instant::now(), summary.clone()));
                Ok(summary)
            }
        }
    }

    fn look(&mut self, home: &Home, now: Timestamp) -> Result<Summary, PushError> {
        let mut summary = Summary::default();
        let Some(memory) = self.memory(home)? else { return Ok(summary) };
        let (ledger, rosters) = &*memory;
        let findings = Findings::read(home);
        for one in findings.blocked.iter().filter(|one| one.code.is_error()) {
            *summary.blocked.entry(one.code).or_default() += 1;
            let since = one.since.map_or(0, |since| now.as_second().saturating_sub(since.as_second()));
            summary.blocked_for = summary.blocked_for.max(since);
        }
        for device in ledger.devices() {
            let Some(entry) = ledger.entry(device) else { continue };
            if findings.gone.contains_key(device) {
                *summary.devices.entry(Standing::Gone).or_default() += 1;
                continue;
            }
            // One that can't be read doesn't hide the others.
            let (standing, lacks_since) = self.standing(home, rosters, device, entry).unwrap_or_else(|error| {
                tracing::warn!(%device, error = error_chain(&error), "how it stands can't be told");
                (Standing::Silent, None)
            });
            *summary.devices.entry(standing).or_default() += 1;
            // Whoever is off, or was never on, has its number above, and says nothing of how quick publishes arrive.
            if standing == Standing::Behind {
                let since = lacks_since.unwrap_or(entry.time.as_second());
                summary.lag = summary.lag.max(now.as_second().saturating_sub(since));
            }
        }
        Ok(summary)
    }

    /// The publisher's memory, read again only when it has moved.
    fn memory(&mut self, home: &Home) -> Result<Option<Arc<(Ledger, Rosters)>>, PushError> {
        let Some(tip) = Control::tip(home)? else { return Ok(None) };
        match &self.memory {
            Some((known, memory)) if *known == tip => Ok(Some(Arc::clone(memory))),
            _ => {
                let memory = Arc::new(Control::read(home)?);
                self.memory = Some((tip, Arc::clone(&memory)));
                Ok(Some(memory))
            }
        }
    }

    fn standing(
        &mut self,
        home: &Home,
        rosters: &Rosters,
        device: &DeviceId,
        entry: &Entry,
    ) -> Result<(Standing, Option<i64>), PushError> {
        let Some(repo) = DeviceRepo::open(home, rosters.fleet(), device)? else { return Ok((Standing::Silent, None)) };
        let tips = [repo.tip(DESIRED)?, repo.tip("status")?];
        let said = match self.said.get(device) {
            Some((known, said)) if *known == tips => *said,
            _ => {
                let tip = repo.desired(&rosters.publishers).ok().flatten();
                let adopted = repo.adopted(tip.as_ref(), &[], &rosters.publishers);
                let said = tip.zip(adopted).map(|(tip, adopted)| SaidByDevice {
                    serial: adopted.serial,
                    lacks_since: adopted.commit.parse().ok().and_then(|commit| repo.published_after(&tip, commit)),
                    report: tip.desired.envelope.policy.report_seconds.unwrap_or_default(),
                });
                self.said.insert(device.clone(), (tips, said));
                said
            }
        };
        let published = entry.last_published().map_or(0, |published| published.serial);
        Ok(match said {
            None => (Standing::Silent, None),
            Some(said) if said.serial >= published => (Standing::Current, None),
            Some(said) if heard(home, device).is_some_and(|heard| heard > said.patience()) => (Standing::Offline, None),
            Some(said) => (Standing::Behind, said.lacks_since),
        })
    }
}

impl SaidByDevice {
    /// How long nothing may be heard of a device that is on: an hour, or three of its reports.
    fn patience(&self) -> Duration {
        Duration::from_secs(self.report.saturating_mul(3)).max(Duration::from_hours(1))
    }
}

/// How long ago a device's report came, by this machine's clock; `None` if that can't be told.
fn heard(home: &Home, device: &DeviceId) -> Option<Duration> {
    let heads = home.device(device).join("refs/heads");
    let came = |branch: &str| std::fs::metadata(heads.join(branch)).ok()?.modified().ok();
    let newest = ["status", "heartbeat"].into_iter().filter_map(came).max()?;
    SystemTime::now().duration_since(newest).ok()
}
