//! What happens in a fleet, by the signed branches of its devices and by `control.git`: looked at again and again, and read where a
//! branch moved.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::SystemTime;

use jiff::Timestamp;
use repo_git::CommitId;
use repo_git::durable::Stamp;
use repo_git::repo::{BranchStamps, stamped_branches};
use repo_model::report::Doubt;
use repo_model::{Branch, DeviceId, Digest, KeyText};
use serde::{Deserialize, Serialize};
use tracing::info;

use super::{UNREADABLE, cursors};
use crate::audit::Recent;
use crate::parallel;
use crate::repos::{Checked, Control, ControlError, DeviceRepo, DeviceRepoError, Home, Rosters, Step};
use crate::rollout::{End, Phase, RolloutState};

/// The branches that tell what happened.
const BRANCHES: [&str; 2] = [Branch::Desired.as_str(), Branch::Status.as_str()];

/// A commit of each of these branches, if there is one.
type Commits = [Option<CommitId>; 2];

/// Tells what is new at each look, once.
#[derive(Debug)]
pub struct Follower {
    home: Home,
    stand: Stand,
}

/// What was told already.
#[derive(Debug, Serialize, Deserialize)]
struct Stand {
    /// What was before that isn't told.
    since: Timestamp,
    seen: BTreeMap<DeviceId, Seen>,
    /// Where `control.git` stood, and what was told of rollouts.
    control: Option<CommitId>,
    told: BTreeSet<(u32, u8, usize)>,
}

/// Where the branches of a device stood.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Seen {
    tips: Commits,
    /// What tells that nobody touched them since, if anything can.
    #[serde(skip)]
    stamps: Option<BranchStamps>,
    /// The newest commits of them that were believed, or the first ones that were seen.
    believed: Commits,
}

/// What was found by one look.
#[derive(Debug, Default)]
pub struct News {
    pub devices: Vec<DeviceNews>,
    pub rollouts: Vec<RolloutEvent>,
}

/// What is new of a device.
#[derive(Debug)]
pub struct DeviceNews {
    pub device: DeviceId,
    pub recent: Recent,
    /// Why what came now on a branch isn't believed.
    pub doubts: Vec<Doubt>,
}

/// Something that happened to a rollout.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RolloutEvent {
    pub rollout: u32,
    /// By the publisher's clock.
    pub time: Timestamp,
    #[serde(flatten)]
    pub what: RolloutStep,
}

/// One step of a rollout, as its record in `control.git` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", content = "what", rename_all = "kebab-case")]
pub enum RolloutStep {
    WaveReleased {
        wave: u32,
        /// How many were released with it; a wave may come in parts.
        devices: usize,
    },
    RolloutStopped {
        /// Its number, by which a person lifts it.
        stop: usize,
        reason: String,
        failed: BTreeMap<DeviceId, String>,
    },
    RolloutResumed {
        stop: usize,
    },
    RolloutEnded {
        state: Phase,
        /// The devices that were released and aren't updated, and how they are.
        left: BTreeMap<DeviceId, String>,
    },
}

impl Follower {
    /// Tells what is from this moment on.
    pub fn new(home: Home, since: Timestamp) -> Self {
        Self { home, stand: Stand { since, seen: BTreeMap::new(), control: None, told: BTreeSet::new() } }
    }

    /// Goes on where another one stood that named this cursor; `None` if that isn't known any more.
    pub fn after(home: Home, cursor: &Digest) -> Option<Self> {
        let stand = cursors::read(&home, cursor)?;
        Some(Self { home, stand })
    }

    /// Names where it stands now, for ten minutes; `None` if that can't be kept.
    pub fn cursor(&self) -> Option<Digest> {
        let kept = cursors::keep(&self.home, &self.stand);
        kept.map_err(|error| info!(%error, "where somebody stands who asks for events can't be kept")).ok()
    }

    /// What came since the last look. Of each device the fleet's keys for it, for as long as no `desired` lists any.
    pub fn look(
        &mut self,
        devices: BTreeMap<DeviceId, Vec<KeyText>>,
        threads: usize,
        now: Timestamp,
    ) -> Result<News, ControlError> {
        let rosters = Control::read_rosters(&self.home)?;
        let looked = parallel::map(devices.into_iter().collect(), threads, |(device, keys)| {
            let before = self.stand.seen.get(&device);
            let (seen, news) = self.look_at(&device, &keys, &rosters, before, now)?;
            Some((device, seen, news))
        });
        let mut news = News { rollouts: self.rollouts()?, ..News::default() };
        for (device, seen, of_it) in looked.into_iter().flatten() {
            self.stand.seen.insert(device, seen);
            news.devices.extend(of_it);
        }
        Ok(news)
    }

    /// Where a device's branches stand, and what came since they stood elsewhere; `None` where nobody touched them.
    fn look_at(
        &self,
        device: &DeviceId,
        keys: &[KeyText],
        rosters: &Rosters,
        before: Option<&Seen>,
        now: Timestamp,
    ) -> Option<(Seen, Option<DeviceNews>)> {
        let path = self.home.device(device);
        let stamps = before.and_then(|seen| seen.stamps);
        if stamps.is_some_and(|stamps| stamps == BranchStamps::of(&path, BRANCHES)) {
            return None;
        }
        let (tips, stamps) = stamped_branches(&path, BRANCHES, Timestamp::now().as_second()).ok()?;
        // What stood there before anything was told is old, whoever made it.
        let mut seen = Seen { tips, stamps, believed: before.map_or(tips, |before| before.believed) };
        if before.map_or_else(|| self.is_idle(&path, tips), |before| before.tips == tips) {
            return Some((seen, None));
        }
        let mut news = DeviceNews { device: device.clone(), recent: Recent::default(), doubts: Vec::new() };
        match self.read(device, keys, rosters, before, now) {
            Ok((believed, recent, doubt)) => {
                seen.believed = [0, 1].map(|branch| believed[branch].or(seen.believed[branch]));
                news.recent = recent;
                news.doubts.extend(doubt.filter(|_| before.is_some_and(|before| before.tips[1] != tips[1])));
            }
            Err(error) => news.doubts.extend(before.map(|_| Doubt::new(UNREADABLE, error.status_text()))),
        }
        Some((seen, Some(news)))
    }

    /// Whether these branches didn't move since the moment from which on events are told, by the times of their files.
    fn is_idle(&self, path: &Path, tips: Commits) -> bool {
        let stamp = |branch: &str| Stamp::of(&path.join("refs/heads").join(branch));
        let stood =
            |branch: &str| stamp(branch).is_some_and(|stamp| stamp.changed() < SystemTime::from(self.stand.since));
        BRANCHES.iter().zip(tips).all(|(branch, tip)| tip.is_none() || stood(branch))
    }

    /// The newest believed commits of a device, what it and those behind it tell that is new, and why its `status` isn't believed.
    fn read(
        &self,
        device: &DeviceId,
        keys: &[KeyText],
        rosters: &Rosters,
        before: Option<&Seen>,
        now: Timestamp,
    ) -> Result<(Commits, Recent, Option<Doubt>), DeviceRepoError> {
        let Some(repo) = DeviceRepo::open(&self.home, rosters.fleet(), device)? else { return Ok(Default::default()) };
        let tip = repo.desired(&rosters.publishers)?;
        let (status, doubt) = match repo.reports(tip.as_ref(), keys, &rosters.publishers, now).status {
            Checked::Verified(status) => (Some(status.commit), None),
            Checked::Unverified(why) => (None, Some(why)),
            Checked::Absent => (None, None),
        };
        let believed = [tip.map(|tip| tip.commit), status];
        // What came later is new, also by a clock that is behind.
        let is_old = |step: &Step| match before {
            Some(before) => before.believed.contains(&Some(step.commit)),
            None => step.time < self.stand.since.as_second(),
        };
        Ok((believed, Recent::read(&repo, device, believed, is_old), doubt))
    }

    /// What is new of rollouts.
    fn rollouts(&mut self) -> Result<Vec<RolloutEvent>, ControlError> {
        let tip = Control::tip(&self.home)?;
        let stand = &mut self.stand;
        if stand.control == tip {
            return Ok(Vec::new());
        }
        stand.control = tip;
        let (ledger, _) = Control::read(&self.home)?;
        let open = ledger.rollouts.open.values().map(|record| &record.state);
        let events = open.chain(ledger.rollouts.ended.values()).flat_map(steps);
        let mut is_new = |number: &usize, event: &RolloutEvent| {
            event.time >= stand.since && stand.told.insert((event.rollout, event.what.kind(), *number))
        };
        Ok(events.filter(|(number, event)| is_new(number, event)).map(|(_, event)| event).collect())
    }
}

impl RolloutStep {
    /// A number for each kind.
    fn kind(&self) -> u8 {
        match self {
            Self::WaveReleased { .. } => 0,
            Self::RolloutStopped { .. } => 1,
            Self::RolloutResumed { .. } => 2,
            Self::RolloutEnded { .. } => 3,
        }
    }
}

/// All that happened to a rollout, each with its number among those of its kind.
fn steps(state: &RolloutState) -> Vec<(usize, RolloutEvent)> {
    let event = |number, time, what| (number, RolloutEvent { rollout: state.rollout, time, what });
    let mut steps = Vec::new();
    for (number, one) in (1..).zip(state.own_waves()) {
        steps.push(event(
            number,
            one.released,
            RolloutStep::WaveReleased { wave: one.wave, devices: one.devices.len() },
        ));
    }
    for (number, one) in (1..).zip(&state.stops) {
        let what = RolloutStep::RolloutStopped { stop: number, reason: one.reason.clone(), failed: one.failed.clone() };
        steps.push(event(number, one.at, what));
        steps.extend(one.resumed.map(|resumed| event(number, resumed, RolloutStep::RolloutResumed { stop: number })));
    }
    let ended = |end: &End| event(1, end.at, RolloutStep::RolloutEnded { state: state.state, left: end.left.clone() });
    steps.extend(state.end.iter().map(ended));
    steps
}
