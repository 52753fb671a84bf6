//! How the devices stand, for the metrics: what was published against what they verifiably say.
//!
//! Looked at when somebody asks, at most every 15 s, and of each device only what moved since.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_git::CommitId;
use repo_model::DeviceId;

use super::receive::PushError;
use crate::host::{Control, DESIRED, DeviceRepo, Entry, Home, Ledger, Rosters};
use crate::plan::Code;
use crate::publish::Findings;

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
}

impl Standing {
    /// All of them, so that the metrics show zeros, too.
    pub(super) const ALL: [Self; 3] = [Self::Current, Self::Behind, Self::Silent];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Behind => "behind",
            Self::Silent => "silent",
        }
    }
}

/// The numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Summary {
    /// How many devices stand how.
    pub(super) devices: BTreeMap<Standing, i64>,
    /// Seconds since the oldest publish that its device doesn't have yet; 0 if all have theirs.
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
    adopted: HashMap<DeviceId, ([Option<CommitId>; 2], Option<u64>)>,
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
        for one in Findings::read(home).blocked.iter().filter(|one| one.code.is_error()) {
            *summary.blocked.entry(one.code).or_default() += 1;
            let since = one.since.map_or(0, |since| now.as_second().saturating_sub(since.as_second()));
            summary.blocked_for = summary.blocked_for.max(since);
        }
        for device in ledger.devices() {
            let Some(entry) = ledger.entry(device) else { continue };
            // One that can't be read doesn't hide the others.
            let standing = self.standing(home, rosters, device, entry).unwrap_or_else(|error| {
                tracing::warn!(%device, error = super::chain(&error), "how it stands can't be told");
                Standing::Silent
            });
            *summary.devices.entry(standing).or_default() += 1;
            if standing != Standing::Current {
                summary.lag = summary.lag.max(now.as_second().saturating_sub(entry.time.as_second()));
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
    ) -> Result<Standing, PushError> {
        let Some(repo) = DeviceRepo::open(home, rosters.fleet(), device)? else { return Ok(Standing::Silent) };
        let tips = [repo.tip(DESIRED)?, repo.tip("status")?];
        let adopted = match self.adopted.get(device) {
            Some((known, adopted)) if *known == tips => *adopted,
            _ => {
                let tip = repo.desired(&rosters.publishers).ok().flatten();
                let adopted = repo.adopted(tip.as_ref(), &[], &rosters.publishers).map(|adopted| adopted.serial);
                self.adopted.insert(device.clone(), (tips, adopted));
                adopted
            }
        };
        let published = entry.last_published().map_or(0, |published| published.serial);
        Ok(match adopted {
            None => Standing::Silent,
            Some(serial) if serial >= published => Standing::Current,
            Some(_) => Standing::Behind,
        })
    }
}
