//! What runs where, as far as signatures prove it: each device's tip against what it verifiably reports.

mod answers;
mod cursors;
mod events;
mod evidence;
mod fleet_index;
mod health;
mod index;
mod lines;
mod rollouts;
mod trace;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use jiff::Timestamp;
use repo_model::report::{ClosedGate, Condition, Doubt, SeenList};
use repo_model::site::SiteWord;
use repo_model::{DeploymentId, DeploymentName, DeviceId};
use serde::{Deserialize, Serialize};
use wfm_git_host::accounts::{AccountName, Store};

use crate::fleet::{Device, Fleet, Retired, RolloutPolicy, RolloutRule};
use crate::mirror::{Each, Mirror};
use crate::parallel;
use crate::plan::{Blocked, GONE, GONE_HINT};
use crate::publish::Findings;
use crate::repos::{Control, ControlError, Home, Ledger, Remotes, Rosters};
use crate::rollout::silence;
use index::Index;

pub use answers::{DeviceAnswers, answers};
pub use events::{DeviceNews, Follower, News, RolloutEvent, RolloutStep};
pub use fleet_index::{Usable, UsableError, read_fleet, usable_fleet};
pub use health::{Apart, Counts, Health, Summary};
pub use index::Gatherer;
pub use rollouts::{DeviceRow, RolloutStatus, approval, rollout, rollout_words, rollouts, waiting};
pub use trace::{
    Arrival, DeviceTrace, Moment, RolloutTrace, Trace, TraceError, TraceState, TraceSummary, WaveTrace, trace,
};
pub use view::{DeviceView, RolloutPlace, view};

macro_rules! own_doubts {
    ($($name:ident $word:literal, $meaning:literal;)+) => {
        $(#[doc = $meaning] pub const $name: &str = $word;)+

        /// The words for doubts beside those of the contract, each with what it means, in the order of `docs/codes.md`.
        pub const OWN_DOUBTS: &[(&str, &str)] = &[$(($name, $meaning),)+];
    };
}

own_doubts! {
    UNREADABLE "unreadable", "What is here of the device can't be read.";
    UNREACHABLE "unreachable", "What the device reported can't be fetched from its host.";
}

/// What there is to say about one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceStatus {
    pub device: DeviceId,
    /// How it is in one word, for a device of the fleet that is enrolled; of others it says nothing.
    pub health: Health,
    /// Every word that is so of it as a whole; `health` is the worst of these and of its deployments'.
    #[serde(skip)]
    pub words: BTreeSet<Health>,
    /// When something was published for it first, if it never said anything since, and that is longer than it may say nothing.
    #[serde(skip)]
    pub never_heard_since: Option<Timestamp>,
    /// How it stands with the fleet.
    pub membership: Membership,
    /// The serial that it shall have.
    pub desired_serial: Option<u64>,
    /// The serial that it says it has.
    pub adopted_serial: Option<u64>,
    /// What the device itself finds wrong.
    pub conditions: Vec<Condition>,
    /// What its site holds, and what changes wait for there.
    pub gates: Vec<ClosedGate>,
    /// What persons of its site say from elsewhere, by its own word; absent if they said nothing yet.
    pub site: Option<SiteStatus>,
    /// What can't be believed or read, and why.
    pub doubts: Vec<Doubt>,
    /// What somebody has to know or to do about it.
    pub remarks: Vec<String>,
    /// What the last publish could not publish for it.
    pub blocked: Vec<Blocked>,
    /// The rollouts that hold a change for it back.
    pub held_by: Vec<RolloutPlace>,
    /// Seconds since its last believable heartbeat came here.
    pub heartbeat_age: Option<i64>,
    /// Seconds since the newest believable thing that it said came here; absent if it never said one.
    pub heard_age: Option<i64>,
    /// What its tip holds or it reports, by name.
    pub deployments: Vec<DeploymentRow>,
}

impl DeviceStatus {
    /// The same without what changes by itself from one moment to the next.
    pub fn without_ages(&self) -> Self {
        let rows = self.deployments.iter().map(|row| DeploymentRow { age: None, ..row.clone() });
        Self { heartbeat_age: None, heard_age: None, deployments: rows.collect(), ..self.clone() }
    }
}

/// The site's list that a device believes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SiteStatus {
    #[serde(flatten)]
    pub seen: SeenList,
    /// What it approves; `null` where the list isn't here.
    pub approvals: Option<Vec<SiteWord>>,
    /// What it rejects; likewise.
    pub rejected: Option<Vec<SiteWord>>,
}

/// How a device stands with the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Membership {
    /// A key of it is known, or its file is broken.
    Enrolled,
    /// No key of it is known.
    NotEnrolled,
    /// It is retired, and nothing more is published for it.
    Retired,
    /// It was in the fleet once.
    Gone,
}

impl Membership {
    /// What is said of it in the place of its health; `None` for a device in service, which has one.
    pub fn out_of_service(self) -> Option<&'static str> {
        match self {
            Self::Enrolled => None,
            Self::NotEnrolled => Some("not enrolled"),
            Self::Retired => Some("retired"),
            Self::Gone => Some("no longer in the fleet"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentRow {
    /// The operator's id; Margo's where it isn't known any more.
    pub deployment: String,
    /// The UUID of Margo's document.
    pub deployment_id: DeploymentId,
    /// How it is in one word.
    pub health: Health,
    /// The same without what is so of the device as a whole.
    #[serde(skip)]
    pub own_health: Health,
    /// The application and version that the fleet means for it; absent where it means nothing of it.
    pub application: Option<String>,
    pub version: Option<String>,
    /// The revisions that shall run; absent if it shall be gone.
    pub desired: Option<String>,
    /// What the device sees running, in one word; absent without a believable heartbeat.
    pub actual: Option<String>,
    /// Margo's state; absent if the device reported nothing of it yet.
    pub state: Option<String>,
    /// Why, if it failed or waits.
    pub reason: Option<String>,
    /// How it stands with the restarts that the fleet asks for; absent where it asks for none and the device says none.
    pub restarts: Option<Restarts>,
    /// Seconds since the report or heartbeat came here that the newest of these is from.
    pub age: Option<i64>,
}

impl DeploymentRow {
    /// Whether the publisher knows it, or knew it not long ago: a device may report any.
    pub fn is_known(&self) -> bool {
        self.deployment != self.deployment_id.to_string()
    }
}

/// How a deployment stands with the restarts that the fleet asks for, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarts {
    /// What `desired` asks for; 0 where it asks for none.
    pub asked: u64,
    /// What all of its components have done, by the device's own word; absent where it tells none: its syncer is older than 0.3, or it
    /// never reported.
    pub done: Option<u64>,
    /// The highest that any of its components has done, likewise; 0 where there is none.
    pub highest: u64,
}

impl Restarts {
    /// Whether what is asked for is done.
    pub fn is_done(&self) -> bool {
        self.done.is_some_and(|done| done >= self.asked)
    }
}

/// Fetches from the host that devices talk to what these devices reported.
pub fn fetch(
    home: &Home,
    remotes: &Remotes,
    fleet: &Fleet,
    devices: impl Iterator<Item = DeviceId>,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Each<()>, ControlError> {
    let rosters = Control::read_rosters(home)?;
    let (reclaim, stop) = (BTreeSet::new(), AtomicBool::new(false));
    let (reclaim, stop) = (&reclaim, &stop);
    let mirror = Mirror { home, rosters: &rosters, remotes, reclaim, provisioning: None, stop, progress };
    Ok(mirror.reports(mirror.concerned(fleet, devices)))
}

/// Reads the devices of the fleet, and those that it had once, as far as they are asked for, on so many threads. `unreachable`: of
/// which devices nothing could be fetched, and why.
pub fn read(
    home: &Home,
    (ledger, rosters): &(Ledger, Rosters),
    fleet: &Fleet,
    asked: &impl Fn(&DeviceId) -> bool,
    unreachable: BTreeMap<DeviceId, Doubt>,
    threads: usize,
    now: Timestamp,
) -> Vec<DeviceStatus> {
    let (known, findings) = (lines::text(&home.status_index()), Findings::read(home));
    let index = Index::open(home, rosters, &known, threads, now);
    let ids = fleet.devices.keys().chain(&fleet.broken.devices).chain(ledger.devices());
    let ids: BTreeSet<_> = ids.filter(|id| asked(id)).collect();
    let policy = match &fleet.settings.rollout {
        Some(RolloutRule::Waves(policy)) => policy.clone(),
        _ => RolloutPolicy::default(),
    };
    let read = |id: &DeviceId| {
        let device = fleet.device(id);
        let membership = match device {
            _ if device.is_none_or(|device| device.retired.is_some()) && findings.retired.contains_key(id) => {
                Membership::Retired
            }
            Some(device) if device.is_enrolled() => Membership::Enrolled,
            Some(_) => Membership::NotEnrolled,
            // A device with a broken file is still in the fleet.
            None if fleet.broken.devices.contains(id) => Membership::Enrolled,
            None => Membership::Gone,
        };
        let (evidence, heard) = index.evidence(id, device.map_or(&[][..], |device| &device.status_keys));
        let remarks = match membership {
            Membership::Gone => left(home, id, &findings),
            Membership::Retired => retired(id, &findings),
            Membership::Enrolled => device.and_then(being_retired).or_else(|| shut_out(home, id)).into_iter().collect(),
            Membership::NotEnrolled => Vec::new(),
        };
        let mut status = {
            let silence = Duration::from_secs(silence(&policy, fleet.report_seconds(id)));
            evidence.status((id, membership), heard, silence, now)
        };
        status.remarks.extend(remarks);
        status.doubts.extend(unreachable.get(id).cloned());
        status.blocked = findings.of(id).to_vec();
        if membership == Membership::Enrolled {
            let places = ledger.rollouts.open.values().filter_map(|record| view::place_in(record, id));
            let holds = |place: &RolloutPlace| place.released.is_none() && findings.is_held(place.rollout, id);
            status.held_by = places.filter(holds).collect();
        }
        device.into_iter().for_each(|device| name_applications(&mut status, fleet, device));
        health::judge(&mut status, device.is_some_and(|device| device.suspended));
        status
    };
    let all = parallel::map(ids.into_iter().collect(), threads, read);
    index.keep();
    all
}

/// Notes in each row what the fleet means for the device.
fn name_applications(status: &mut DeviceStatus, fleet: &Fleet, device: &Device) {
    for row in &mut status.deployments {
        let name = row.deployment.parse::<DeploymentName>().ok().filter(|_| row.desired.is_some());
        let Some(deployment) = name.and_then(|name| fleet.deployments.get(&name)) else { continue };
        let description = &deployment.on(device).application.description;
        (row.application, row.version) = (Some(description.id.to_string()), Some(description.version.clone()));
    }
}

/// What `status` shows of a device that left the fleet.
fn left(home: &Home, device: &DeviceId, findings: &Findings) -> Vec<String> {
    let since = findings.gone.get(device).map(|gone| format!(" (since {:.0})", gone.since)).unwrap_or_default();
    let account = Store::new(home.accounts()).read(&AccountName::of(device)).ok().flatten();
    let account =
        account.filter(|account| account.device.as_ref() == Some(device)).map(|account| match account.revoked {
            Some(_) => format!("its account `{}` is ended", account.name),
            None => format!(
                "its account `{0}` still counts: `account revoke {0}` ends it, and so does `publish`",
                account.name
            ),
        });
    [format!("no longer in the fleet{since}; {GONE}"), GONE_HINT.to_owned()].into_iter().chain(account).collect()
}

/// What `status` shows of a device that is retired.
fn retired(device: &DeviceId, findings: &Findings) -> Vec<String> {
    let since = findings.retired.get(device).map(|since| format!(" since {since:.0}")).unwrap_or_default();
    vec![format!("retired{since}: it is cut off, and nothing more is published for it; its history stays")]
}

/// What `status` shows of a device that is to be retired, and isn't yet.
fn being_retired(device: &Device) -> Option<String> {
    let next = match device.retired? {
        Retired::WhenEmpty => format!(
            "what it runs is removed, and once it verifiably says that nothing is left it is cut off; if it never will: \
             `device retire {} --now`, then `publish`",
            device.id
        ),
        Retired::KeepWorkloads | Retired::Now => "it is cut off with the next `publish`".to_owned(),
    };
    Some(format!("is being retired: {next}"))
}

/// What to do about a device of the fleet whose account is ended.
pub fn shut_out(home: &Home, device: &DeviceId) -> Option<String> {
    let account = Store::new(home.accounts()).read(&AccountName::of(device)).ok()??;
    let name = (account.device.as_ref() == Some(device) && account.revoked.is_some()).then_some(account.name)?;
    Some(format!(
        "its account `{name}` is ended, so it reaches this host no more; to let it in: `account add {name} --role device \
         --device {device}`, `device join {device} --out FILE`, and on the device `device-syncer init --join FILE`; if its \
         key is new, too: `device enroll --replace`"
    ))
}
