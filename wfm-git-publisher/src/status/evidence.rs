//! What a device's repository verifiably says: once it is read, what there is to say of the device at any moment follows without it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use repo_model::desired::Document;
use repo_model::margo::{DeploymentStatus, Source};
use repo_model::report::doubt::ADOPTED_UNKNOWN;
use repo_model::report::{Adopted, ClosedGate, Condition, CurrentDeployment, Doubt, Drift};
use repo_model::windows::WindowsPolicy;
use repo_model::{DeploymentId, DeploymentName, DeviceId, KeyText};
use serde::{Deserialize, Serialize};

use super::health::{self, Health};
use super::{DeploymentRow, DeviceStatus, Membership, Restarts, SiteStatus, UNREADABLE};
use crate::fleet::{is_silent, talks_again};
use crate::publish::doubt;
use crate::repos::{Checked, DeviceRepo, DeviceRepoError, Heard, Home, Reports, Rosters, Tip};

/// What was found in a device's repository. How old it is follows from when its branches moved: the device's clock may be wrong.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Evidence {
    /// The serial of the tip of `desired`; absent if nothing is published that can be verified.
    desired_serial: Option<u64>,
    adopted_serial: Option<u64>,
    /// When it may talk, and changes may be made.
    windows: Option<WindowsPolicy>,
    conditions: Vec<Condition>,
    gates: Vec<ClosedGate>,
    site: Option<SiteStatus>,
    /// Some of them are over after some time, so what is in doubt is read each time.
    #[serde(skip)]
    doubts: Vec<Doubt>,
    /// When something was published for it first, in Unix seconds; only of one that never said anything that is believed.
    first_published: Option<i64>,
    /// Whether its `status`, and its heartbeat, are believed.
    has_status: bool,
    has_heartbeat: bool,
    rows: Vec<Row>,
}

/// What is said of a deployment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Row {
    /// The operator's id; Margo's where it isn't known any more.
    name: String,
    id: DeploymentId,
    health: Health,
    desired: Option<String>,
    actual: Option<String>,
    state: Option<String>,
    reason: Option<String>,
    restarts: Option<Restarts>,
    /// Which branch told the newest of these; absent where neither did.
    told: Option<Told>,
}

/// What a device tells something by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Told {
    Status,
    Heartbeat,
}

impl Evidence {
    /// Reads the repository of a device. `enrolled`: the fleet's keys for it, for as long as no `desired` lists any.
    pub(super) fn read(home: &Home, rosters: &Rosters, id: &DeviceId, enrolled: &[KeyText], now: Timestamp) -> Self {
        Self::try_read(home, rosters, id, enrolled, now)
            .unwrap_or_else(|error| Self { doubts: vec![unreadable(&error)], ..Self::default() })
    }

    fn try_read(
        home: &Home,
        rosters: &Rosters,
        id: &DeviceId,
        enrolled: &[KeyText],
        now: Timestamp,
    ) -> Result<Self, DeviceRepoError> {
        let Some(repo) = DeviceRepo::open(home, rosters.fleet(), id)? else { return Ok(Self::default()) };
        let Said { tip, reports, doubts } = Said::read(&repo, rosters, enrolled, now)?;
        let status = reports.status.verified();
        let reported = status.into_iter().flat_map(|status| status.report.deployments.keys().copied());
        let names =
            tip.as_ref().map(|tip| repo.names_before(tip, reported.collect(), &rosters.publishers)).unwrap_or_default();
        let site = status.and_then(|status| status.report.syncer.site.clone()).map(|seen| {
            let (approvals, rejected) = repo.site_list(&seen).map(|list| (list.approvals, list.rejected)).unzip();
            SiteStatus { seen, approvals, rejected }
        });
        let evidence = Self { site, ..Self::of(tip.as_ref(), &reports, doubts, &names) };
        let unheard = tip.filter(|_| !evidence.has_status && !evidence.has_heartbeat);
        let first_published = unheard.and_then(|tip| repo.line(tip.commit).map_while(Result::ok).last());
        Ok(Self { first_published: first_published.map(|first| first.time), ..evidence })
    }

    /// Puts together what was read. `names`: those of deployments that the device reports and that the tip has no more.
    fn of(
        tip: Option<&Tip>,
        reports: &Reports,
        mut doubts: Vec<Doubt>,
        names: &BTreeMap<DeploymentId, DeploymentName>,
    ) -> Self {
        let (status, heartbeat) = (reports.status.verified(), reports.heartbeat.verified());
        doubts.extend(disbelieved("status", &reports.status));
        doubts.extend(disbelieved("heartbeat", &reports.heartbeat));
        doubts.extend(status.iter().flat_map(|status| status.report.doubts.clone()));
        doubts.extend(heartbeat.iter().flat_map(|heartbeat| heartbeat.doubts.clone()));
        let syncer = status.map(|status| &status.report.syncer);
        let adopted = status.and_then(|status| status.report.adopted());
        let desired_serial = tip.map(|tip| tip.desired.envelope.serial);
        let none = BTreeMap::new();
        let rows = Rows {
            tip,
            adopted,
            is_newest: adopted.map(|adopted| adopted.serial) == desired_serial,
            reported: status.map_or(&none, |status| &status.report.deployments),
            running: heartbeat.map(|heartbeat| &heartbeat.state.deployments),
            answers: heartbeat.is_some_and(|heartbeat| heartbeat.state.asked.is_some()),
            names,
        };
        Self {
            desired_serial,
            adopted_serial: adopted.map(|adopted| adopted.serial),
            windows: tip.and_then(|tip| tip.desired.envelope.policy.windows.clone()),
            conditions: syncer.map(|syncer| syncer.conditions.clone()).unwrap_or_default(),
            gates: syncer.map(|syncer| syncer.gates.clone()).unwrap_or_default(),
            site: None,
            doubts,
            first_published: None,
            has_status: status.is_some(),
            has_heartbeat: heartbeat.is_some(),
            rows: rows.all(),
        }
    }

    /// Whether it stays the same for as long as no branch moves, whoever is enrolled.
    pub(super) fn lasts(&self) -> bool {
        self.desired_serial.is_some() && self.doubts.is_empty()
    }

    /// What there is to say of the device now. `heard`: when its branches moved here; `silence`: for how long it may say nothing.
    pub(super) fn status(
        self,
        (id, membership): (&DeviceId, Membership),
        heard: Heard,
        silence: Duration,
        now: Timestamp,
    ) -> DeviceStatus {
        let windows = self.windows.as_ref();
        let silent = windows.and_then(|windows| talks_again(windows, now)).map(|opens| {
            format!("its windows let it say nothing to the host until {opens:.0}: what is shown is as old as it may be")
        });
        let believed = Heard {
            status: heard.status.filter(|_| self.has_status),
            heartbeat: heard.heartbeat.filter(|_| self.has_heartbeat),
        };
        let is_silent = |age: Option<Duration>| age.is_some_and(|age| is_silent(windows, age, silence, now));
        let since_published = |first: &i64| Heard { status: Some(*first), heartbeat: None }.age(now);
        let awaited = self.first_published.filter(|first| is_silent(since_published(first)));
        DeviceStatus {
            device: id.clone(),
            health: if is_silent(believed.age(now)) { Health::Offline } else { Health::Ready },
            words: BTreeSet::new(),
            never_heard_since: awaited.and_then(|first| Timestamp::from_second(first).ok()),
            membership,
            desired_serial: self.desired_serial,
            adopted_serial: self.adopted_serial,
            conditions: self.conditions,
            gates: self.gates,
            site: self.site,
            remarks: silent.into_iter().collect(),
            blocked: Vec::new(),
            held_by: Vec::new(),
            heartbeat_age: believed.heartbeat.map(|time| age(time, now)),
            heard_age: believed.last().map(|time| age(time, now)),
            deployments: self.rows.into_iter().map(|row| row.shown(believed, now)).collect(),
            doubts: self.doubts,
        }
    }
}

/// What publisher and device say in its repository.
pub(super) struct Said {
    pub(super) tip: Option<Tip>,
    pub(super) reports: Reports,
    /// Why the tip doesn't count, or what the device says that it adopted.
    pub(super) doubts: Vec<Doubt>,
}

impl Said {
    pub(super) fn read(
        repo: &DeviceRepo,
        rosters: &Rosters,
        enrolled: &[KeyText],
        now: Timestamp,
    ) -> Result<Self, DeviceRepoError> {
        let (tip, mut doubts) = match repo.desired(&rosters.publishers) {
            Ok(tip) => (tip, Vec::new()),
            Err(error) => (None, vec![unreadable(&error)]),
        };
        let reports = repo.reports(tip.as_ref(), enrolled, &rosters.publishers, now);
        let adopted = reports.status.verified().and_then(|status| status.report.adopted());
        if let Some((tip, adopted)) = tip.as_ref().zip(adopted) {
            let claim = repo.claim(tip, adopted, &rosters.publishers, now.as_second())?;
            doubts.extend(doubt(claim, adopted).map(|text| Doubt::new(ADOPTED_UNKNOWN, text)));
        }
        Ok(Self { tip, reports, doubts })
    }
}

impl Row {
    fn shown(self, heard: Heard, now: Timestamp) -> DeploymentRow {
        let told = self.told.and_then(|told| match told {
            Told::Status => heard.status,
            Told::Heartbeat => heard.heartbeat,
        });
        DeploymentRow {
            deployment: self.name,
            deployment_id: self.id,
            health: self.health,
            own_health: self.health,
            application: None,
            version: None,
            desired: self.desired,
            actual: self.actual,
            state: self.state,
            reason: self.reason,
            restarts: self.restarts,
            age: told.map(|time| age(time, now)),
        }
    }
}

pub(super) fn unreadable(error: &DeviceRepoError) -> Doubt {
    Doubt::new(UNREADABLE, error.status_text())
}

/// Why nothing on a branch counts, if that is so.
fn disbelieved<T>(branch: &str, checked: &Checked<T>) -> Option<Doubt> {
    let Checked::Unverified(why) = checked else { return None };
    Some(Doubt::new(why.code.clone(), format!("`{branch}` can't be believed: {}", why.message)))
}

/// What moved later than now, by a clock that was ahead, moved now.
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
    running: Option<&'a BTreeMap<DeploymentId, CurrentDeployment>>,
    /// Whether its syncer tells what it has done of what the fleet asks for.
    answers: bool,
    /// Names of deployments that the tip has no more.
    names: &'a BTreeMap<DeploymentId, DeploymentName>,
}

impl Rows<'_> {
    fn all(&self) -> Vec<Row> {
        let desired = self.tip.iter().flat_map(|tip| tip.desired.deployments.keys());
        let ids: BTreeSet<_> = desired.chain(self.reported.keys()).copied().collect();
        let mut rows: Vec<_> = ids.into_iter().map(|id| self.row(id)).collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows
    }

    fn row(&self, id: DeploymentId) -> Row {
        let document = self.tip.and_then(|tip| tip.desired.deployments.get(&id));
        let name = self.tip.and_then(|tip| tip.desired.envelope.deployments.get(&id));
        let reported = self.reported.get(&id);
        let actual = self.running.map(|running| shown_health(running.get(&id)));
        let observed = self.running.and_then(|running| running.get(&id));
        Row {
            name: name.map_or_else(|| self.known_as(id), |envelope| envelope.id.to_string()),
            id,
            health: health::of_deployment(reported, observed, document.is_some(), self.is_newest),
            desired: document.map(shown_revisions),
            actual,
            state: reported.map(|status| status.status.state.to_string()),
            reason: self.reason(id, reported),
            restarts: self.restarts(id),
            told: observed.map(|_| Told::Heartbeat).or(reported.map(|_| Told::Status)),
        }
    }

    /// `None` where nothing is asked for and nothing was done.
    fn restarts(&self, id: DeploymentId) -> Option<Restarts> {
        let envelope = self.tip.and_then(|tip| tip.desired.envelope.deployments.get(&id));
        let asked = envelope.map_or(0, |envelope| envelope.policy.restart);
        let said = self.running.and_then(|running| running.get(&id)).map(|running| &running.components);
        let highest = said.into_iter().flat_map(BTreeMap::values).map(|one| one.restart).max().unwrap_or(0);
        let document = self.tip.and_then(|tip| tip.desired.deployments.get(&id));
        let wanted = document.into_iter().flat_map(|document| &document.deployment.components);
        let each = wanted.map(|one| said.and_then(|said| said.get(&one.name)).map_or(0, |one| one.restart));
        let done = (self.answers || highest > 0).then(|| each.min().unwrap_or(highest));
        (asked > 0 || highest > 0).then_some(Restarts { asked, done, highest })
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
