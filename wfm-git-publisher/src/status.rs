//! What runs where, as far as signatures prove it: each device's tip against what it verifiably reports.

mod answers;
mod health;
mod rollouts;
mod trace;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use jiff::Timestamp;
use repo_model::desired::Document;
use repo_model::margo::{DeploymentStatus, Source};
use repo_model::report::doubt::ADOPTED_UNKNOWN;
use repo_model::report::{Adopted, ClosedGate, Condition, CurrentDeployment, Doubt, Drift, SeenList};
use repo_model::site::SiteWord;
use repo_model::{DeploymentId, DeploymentName, DeviceId};
use serde::Serialize;
use wfm_git_host::accounts::{AccountName, Store};

use crate::fleet::{Device, Fleet, Retired, RolloutPolicy, RolloutRule, talks_again};
use crate::mirror::{Each, Mirror};
use crate::parallel;
use crate::plan::{Blocked, GONE, GONE_HINT};
use crate::publish::{Findings, doubt};
use crate::repos::{Checked, Control, ControlError, DeviceRepo, DeviceRepoError, Home, Remotes, Reports, Rosters, Tip};
use crate::rollout::silence;

pub use answers::{DeviceAnswers, answers};
pub use health::{Counts, Health, Summary};
pub use rollouts::{DeviceRow, RolloutStatus, rollout, rollout_words, rollouts};
pub use trace::{
    Arrival, DeviceTrace, Moment, RolloutTrace, Trace, TraceError, TraceState, TraceSummary, WaveTrace, trace,
};
pub use view::{DeviceView, RolloutPlace, view};

/// The word for what can't be read in this publisher's own copy.
pub const UNREADABLE: &str = "unreadable";

/// The word for what can't be fetched from the host.
pub const UNREACHABLE: &str = "unreachable";

/// What there is to say about one device.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceStatus {
    pub device: DeviceId,
    /// How it is in one word, for a device of the fleet that is enrolled; of others it says nothing.
    pub health: Health,
    /// Every word that is so of it as a whole; `health` is the worst of these and of its deployments'.
    #[serde(skip)]
    pub words: BTreeSet<Health>,
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
    /// Seconds since its last believable heartbeat.
    pub heartbeat_age: Option<i64>,
    /// Seconds since the newest believable thing that it said; absent if it never said one.
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
#[derive(Debug, Clone, PartialEq, Serialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    /// Seconds since the report or heartbeat that the newest of these is from.
    pub age: Option<i64>,
}

/// Fetches from the host that devices talk to what these devices reported.
pub fn fetch(
    home: &Home,
    remotes: &Remotes,
    fleet: &Fleet,
    devices: impl Iterator<Item = DeviceId>,
) -> Result<Each<()>, ControlError> {
    let (_, rosters) = Control::read(home)?;
    let (reclaim, stop) = (BTreeSet::new(), AtomicBool::new(false));
    let (provisioning, progress) = (None, &|_: usize, _: usize| {});
    let mirror = Mirror { home, rosters: &rosters, remotes, reclaim: &reclaim, provisioning, stop: &stop, progress };
    Ok(mirror.reports(mirror.concerned(fleet, devices)))
}

/// Reads every device of the fleet, and those that it had once, on so many threads. `unreachable`: of which devices nothing could
/// be fetched, and why.
pub fn read(
    home: &Home,
    fleet: &Fleet,
    unreachable: BTreeMap<DeviceId, Doubt>,
    threads: usize,
    now: Timestamp,
) -> Result<Vec<DeviceStatus>, ControlError> {
    let (ledger, rosters) = Control::read(home)?;
    let findings = Findings::read(home);
    let ids: BTreeSet<_> = fleet.devices.keys().chain(ledger.devices()).collect();
    let policy = match &fleet.settings.rollout {
        Some(RolloutRule::Waves(policy)) => policy.clone(),
        _ => RolloutPolicy::default(),
    };
    let read = |id: &DeviceId| {
        let device = fleet.devices.get(id);
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
        let evidence = device_evidence(home, &rosters, (id, device), now).unwrap_or_else(Evidence::doubt);
        let remarks = match membership {
            Membership::Gone => left(home, id, &findings),
            Membership::Retired => retired(id, &findings),
            Membership::Enrolled => device.and_then(being_retired).or_else(|| shut_out(home, id)).into_iter().collect(),
            Membership::NotEnrolled => Vec::new(),
        };
        let mut status = evidence.status(id, membership, silence(&policy, fleet.report_seconds(id)), now);
        status.remarks.extend(remarks);
        status.doubts.extend(unreachable.get(id).cloned());
        status.blocked = findings.of(id).to_vec();
        device.into_iter().for_each(|device| name_applications(&mut status, fleet, device));
        health::judge(&mut status, device.is_some_and(|device| device.suspended));
        status
    };
    Ok(parallel::map(ids.into_iter().collect(), threads, read))
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

/// What was found in a device's repository.
#[derive(Default)]
struct Evidence {
    tip: Option<Tip>,
    reports: Option<Reports>,
    doubts: Vec<Doubt>,
    /// Names of deployments that the device reports and that the tip has no more.
    names: BTreeMap<DeploymentId, DeploymentName>,
    site: Option<SiteStatus>,
}

fn device_evidence(
    home: &Home,
    rosters: &Rosters,
    (id, device): (&DeviceId, Option<&Device>),
    now: Timestamp,
) -> Result<Evidence, DeviceRepoError> {
    let Some(repo) = DeviceRepo::open(home, rosters.fleet(), id)? else { return Ok(Evidence::default()) };
    let (tip, mut doubts) = match repo.desired(&rosters.publishers) {
        Ok(tip) => (tip, Vec::new()),
        Err(error) => (None, vec![Doubt::new(UNREADABLE, error.status_text())]),
    };
    let enrolled = device.map_or(&[][..], |device| &device.status_keys);
    let reports = repo.reports(tip.as_ref(), enrolled, &rosters.publishers, now);
    let adopted = reports.status.verified().and_then(|status| status.report.adopted());
    if let Some((tip, adopted)) = tip.as_ref().zip(adopted) {
        let claim = repo.claim(tip, adopted, &rosters.publishers, now.as_second())?;
        doubts.extend(doubt(claim, adopted).map(|text| Doubt::new(ADOPTED_UNKNOWN, text)));
    }
    let reported = reports.status.verified().into_iter().flat_map(|status| status.report.deployments.keys().copied());
    let names =
        tip.as_ref().map(|tip| repo.names_before(tip, reported.collect(), &rosters.publishers)).unwrap_or_default();
    let seen = reports.status.verified().and_then(|status| status.report.syncer.site.clone());
    let site = seen.map(|seen| {
        let (approvals, rejected) = repo.site_list(&seen).map(|list| (list.approvals, list.rejected)).unzip();
        SiteStatus { seen, approvals, rejected }
    });
    Ok(Evidence { tip, reports: Some(reports), doubts, names, site })
}

impl Evidence {
    fn doubt(error: DeviceRepoError) -> Self {
        Self { doubts: vec![Doubt::new(UNREADABLE, error.status_text())], ..Self::default() }
    }

    /// `silence`: after how many seconds without a word the device is offline.
    fn status(mut self, id: &DeviceId, membership: Membership, silence: u64, now: Timestamp) -> DeviceStatus {
        let reports = self.reports.take();
        let status = reports.as_ref().and_then(|reports| reports.status.verified());
        let heartbeat = reports.as_ref().and_then(|reports| reports.heartbeat.verified());
        let disbelieved =
            |branch: &str, why: &Doubt| Doubt::new(why.code, format!("`{branch}` can't be believed: {}", why.message));
        if let Some(Reports { status: Checked::Unverified(why), .. }) = &reports {
            self.doubts.push(disbelieved("status", why));
        }
        if let Some(Reports { heartbeat: Checked::Unverified(why), .. }) = &reports {
            self.doubts.push(disbelieved("heartbeat", why));
        }
        self.doubts.extend(status.iter().flat_map(|status| status.report.doubts.clone()));
        self.doubts.extend(heartbeat.iter().flat_map(|heartbeat| heartbeat.doubts.clone()));
        let windows = self.tip.as_ref().and_then(|tip| tip.desired.envelope.policy.windows.as_ref());
        let silent = windows.and_then(|windows| talks_again(windows, now)).map(|opens| {
            format!("its windows let it say nothing to the host until {opens:.0}: what is shown is as old as it may be")
        });
        let times = [status.map(|status| status.time), heartbeat.map(|heartbeat| heartbeat.state.time.as_second())];
        let heard = times.into_iter().flatten().max();
        let heard_age = heard.map(|heard| age(heard, now));
        let is_silent = heard_age
            .and_then(|age| u64::try_from(age).ok())
            .is_some_and(|age| health::is_silent(windows, Duration::from_secs(age), Duration::from_secs(silence), now));
        let syncer = status.map(|status| &status.report.syncer);
        let adopted = status.and_then(|status| status.report.adopted());
        let none = BTreeMap::new();
        let rows = Rows {
            tip: self.tip.as_ref(),
            adopted,
            is_newest: adopted.map(|adopted| adopted.serial)
                == self.tip.as_ref().map(|tip| tip.desired.envelope.serial),
            reported: status.map_or(&none, |status| &status.report.deployments),
            status_age: status.map(|status| age(status.time, now)),
            running: heartbeat.map(|heartbeat| &heartbeat.state.deployments),
            heartbeat_age: heartbeat.map(|heartbeat| age(heartbeat.state.time.as_second(), now)),
            names: &self.names,
        };
        DeviceStatus {
            device: id.clone(),
            health: if is_silent { Health::Offline } else { Health::Ready },
            words: BTreeSet::new(),
            membership,
            desired_serial: self.tip.as_ref().map(|tip| tip.desired.envelope.serial),
            adopted_serial: adopted.map(|adopted| adopted.serial),
            conditions: syncer.map(|syncer| syncer.conditions.clone()).unwrap_or_default(),
            gates: syncer.map(|syncer| syncer.gates.clone()).unwrap_or_default(),
            site: self.site,
            remarks: silent.into_iter().collect(),
            blocked: Vec::new(),
            heartbeat_age: rows.heartbeat_age,
            heard_age,
            deployments: rows.all(),
            doubts: self.doubts,
        }
    }
}

/// Clocks differ: what comes from the future is new.
fn age(then: i64, now: Timestamp) -> i64 {
    now.as_second().saturating_sub(then).max(0)
}

/// What the rows of one device are made of.
struct Rows<'a> {
    tip: Option<&'a Tip>,
    adopted: Option<&'a Adopted>,
    /// Whether that is the tip.
    is_newest: bool,
    reported: &'a BTreeMap<DeploymentId, DeploymentStatus>,
    status_age: Option<i64>,
    running: Option<&'a BTreeMap<DeploymentId, CurrentDeployment>>,
    heartbeat_age: Option<i64>,
    /// Names of deployments that the tip has no more.
    names: &'a BTreeMap<DeploymentId, DeploymentName>,
}

impl Rows<'_> {
    fn all(&self) -> Vec<DeploymentRow> {
        let desired = self.tip.iter().flat_map(|tip| tip.desired.deployments.keys());
        let ids: BTreeSet<_> = desired.chain(self.reported.keys()).copied().collect();
        let mut rows: Vec<_> = ids.into_iter().map(|id| self.row(id)).collect();
        rows.sort_by(|a, b| a.deployment.cmp(&b.deployment));
        rows
    }

    fn row(&self, id: DeploymentId) -> DeploymentRow {
        let document = self.tip.and_then(|tip| tip.desired.deployments.get(&id));
        let name = self.tip.and_then(|tip| tip.desired.envelope.deployments.get(&id));
        let reported = self.reported.get(&id);
        let actual = self.running.map(|running| shown_health(running.get(&id)));
        let observed = self.running.and_then(|running| running.get(&id));
        let health = health::of_deployment(reported, observed, document.is_some(), self.is_newest);
        DeploymentRow {
            deployment: name.map_or_else(|| self.known_as(id), |envelope| envelope.id.to_string()),
            deployment_id: id,
            health,
            own_health: health,
            application: None,
            version: None,
            desired: document.map(shown_revisions),
            actual,
            state: reported.map(|status| status.status.state.to_string()),
            reason: self.reason(id, reported),
            age: observed.and(self.heartbeat_age).or(self.status_age.filter(|_| reported.is_some())),
        }
    }

    /// What operators called a deployment that the tip has no more; Margo's id if nobody knows.
    fn known_as(&self, id: DeploymentId) -> String {
        self.names.get(&id).map_or_else(|| id.to_string(), ToString::to_string)
    }

    /// Why a deployment isn't as desired: what the device says of it, or of how it runs, or that it doesn't have the newest
    /// state yet.
    fn reason(&self, id: DeploymentId, reported: Option<&DeploymentStatus>) -> Option<String> {
        let error = reported.and_then(|status| status.status.error.as_ref());
        if let Some(error) = error {
            return Some(format!("{}: {}", error.code, error.message));
        }
        let running = self.running.and_then(|running| running.get(&id));
        let unwell = running.and_then(|running| running.components.values().find_map(|one| one.reason.clone()));
        if unwell.is_some() {
            return unwell;
        }
        let wanted = self.tip?.desired.envelope.serial;
        match self.adopted {
            None => Some("the device adopted nothing yet".to_owned()),
            Some(adopted) if adopted.serial < wanted => Some(format!("the device has serial {}", adopted.serial)),
            Some(_) => None,
        }
    }
}

fn shown_revisions(document: &Document) -> String {
    let revisions: BTreeSet<_> = document
        .deployment
        .components
        .iter()
        .map(|component| match &component.source {
            Source::Oci { revision, .. } | Source::HelmRepo { revision, .. } => revision.as_str(),
            Source::Https { .. } => "https",
        })
        .collect();
    revisions.into_iter().collect::<Vec<_>>().join(", ")
}

/// The components' health, each word once.
fn shown_health(running: Option<&CurrentDeployment>) -> String {
    let components = running.iter().flat_map(|deployment| deployment.components.values());
    let words: BTreeSet<_> = components
        .map(|component| {
            if component.drift == Drift::None {
                component.health.clone()
            } else {
                format!("drifted ({})", component.drift)
            }
        })
        .collect();
    if words.is_empty() { "nothing".to_owned() } else { words.into_iter().collect::<Vec<_>>().join(", ") }
}
