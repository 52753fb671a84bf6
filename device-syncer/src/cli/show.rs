//! What commands print.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::{SignedDuration, Timestamp};
use repo_model::desired::Desired;
use repo_model::margo::State;
use repo_model::report::{Condition, ConditionType, Drift, Health, SeenList};
use repo_model::{DeviceId, sort_few, text};
use serde::Serialize;

use crate::config::{FleetKey, Said};
use crate::decision::conditions;
use crate::decision::device_state::{Accepted, DeviceState};
use crate::decision::failure::Failure;
use crate::decision::health::ComponentHealth;
use crate::decision::hold::{Hold, HoldByPerson};
use crate::decision::observation::Observation;
use crate::decision::plan::{Action, HeldRemoval, Plan, PutBack, Reason};
use crate::decision::status::Report;
use crate::home::Enrolment;
use crate::host::ssh::KeysInUse;
use crate::reconcile::preview::Preview;
use crate::state::local_condition::LocalCondition;

/// The version of what is printed for programs: within it fields come, and none goes.
const API_VERSION: &str = "v1";

/// An object for programs, with its version: texts in it are exactly what strangers wrote, and nothing steers a terminal.
pub(super) fn json(object: &impl Serialize) -> String {
    versioned(&serde_json::to_string_pretty(object).unwrap_or_default(), ["\n  ", " "])
}

/// The same on a line of its own.
pub(super) fn json_line(object: &impl Serialize) -> String {
    versioned(&serde_json::to_string(object).unwrap_or_default(), ["", ""])
}

/// Once for all types, for a small program: an object begins with its version.
fn versioned(object: &str, [before, between]: [&str; 2]) -> String {
    let Some(fields) = object.strip_prefix('{') else { return String::new() };
    text::json(&format!("{{{before}\"apiVersion\":{between}\"{API_VERSION}\",{fields}\n"))
}

/// The lines that enrol a device, for `init --output json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EnrolmentOut<'a> {
    enrolment_line: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ssh_line: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_line: Option<&'a str>,
}

impl<'a> EnrolmentOut<'a> {
    pub(super) fn of(enrolment: &'a Enrolment) -> Self {
        let Enrolment { line, ssh_line, certificate_line } = enrolment;
        Self { enrolment_line: line, ssh_line: ssh_line.as_deref(), certificate_line: certificate_line.as_deref() }
    }
}

/// The lines that enrol a device.
pub(super) fn enrolment(Enrolment { line, ssh_line, certificate_line }: &Enrolment) -> String {
    std::iter::once(line).chain(ssh_line).chain(certificate_line).map(|line| format!("{line}\n")).collect()
}

/// A plan, for `plan --output json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlanOut<'a> {
    /// The serial that the next pass adopts first.
    adopts: Option<u64>,
    conditions: &'a [Condition],
    #[serde(flatten)]
    plan: &'a Plan,
}

impl<'a> PlanOut<'a> {
    pub(super) fn of(preview: &'a Preview) -> Self {
        let adopts = preview.adoption.as_ref().map(|adoption| adoption.desired.envelope.serial);
        Self { adopts, conditions: &preview.conditions, plan: &preview.plan }
    }
}

/// A plan, one line a step, in order.
pub(super) fn plan(preview: &Preview) -> String {
    let mut text = String::new();
    for condition in &preview.conditions {
        let _ = writeln!(text, "{}", condition_text(condition));
    }
    if let Some(adoption) = &preview.adoption {
        let _ = writeln!(text, "adopts serial {} ({})", adoption.desired.envelope.serial, adoption.commit);
    }
    let plan = &preview.plan;
    for removal in &plan.removals {
        let name = removal.name.as_ref().map_or("?", |name| name.as_str());
        let component = removal.component.as_ref().map_or("?", |name| name.as_str());
        let _ = writeln!(text, "- {name}/{component}: remove ({})", removal.project);
    }
    for HeldRemoval { removal, why, put_back, .. } in &plan.held {
        let name = removal.name.as_ref().map_or("?", |name| name.as_str());
        let component = removal.component.as_ref().map_or("?", |name| name.as_str());
        let why = format!("{}{}", failure_text(why), put_back_text(put_back.as_ref()));
        let _ = writeln!(text, ". {name}/{component}: stays for now ({}): {why}", removal.project);
    }
    for deployment in &plan.deployments {
        for component in &deployment.components {
            let mark = match (&component.action, &component.degraded) {
                (Action::Keep, None) => "=",
                (Action::Keep, Some(_)) | (Action::Fail(_), _) => "!",
                (Action::Apply { .. } | Action::Restore { .. } | Action::Restart { .. }, _) => "+",
                (Action::TakeDown { .. }, _) => "-",
                (Action::Wait(_), _) => ".",
                (Action::Unknown, _) => "?",
            };
            let what = action_text(&component.action, component.degraded.as_deref());
            let ahead = if component.ahead { " (what it needs is fetched already)" } else { "" };
            let here =
                if deployment.from_here && mark == "+" { " (with what is here: nothing is fetched now)" } else { "" };
            let put_back = put_back_text(component.put_back.as_ref());
            let _ = writeln!(text, "{mark} {}/{}: {what}{ahead}{here}{put_back}", deployment.name, component.name);
        }
    }
    if plan.removals.is_empty() && plan.deployments.is_empty() {
        text += "nothing is wanted, and nothing of ours is here\n";
    }
    text
}

/// What is put back meanwhile of what was applied.
fn put_back_text(put_back: Option<&PutBack>) -> String {
    put_back.map_or_else(String::new, |one| format!(" (what was applied is put back: {})", text::cell(&one.reason)))
}

/// What is done with a component, which may not be as it should be.
pub(super) fn action_text(action: &Action, degraded: Option<&str>) -> String {
    match (action, degraded) {
        (Action::Keep, None) => "keep".to_owned(),
        (Action::Keep, Some(degraded)) => text::cell(&format!("keep, although {degraded}")),
        (Action::Apply { reason, .. }, _) => format!("apply: {}", reason_text(*reason)),
        (Action::Restore { reason, .. }, _) => text::cell(&format!("put back: {reason}")),
        (Action::Restart { cause, .. }, _) => format!("restart: {cause}"),
        (Action::TakeDown { why, .. }, _) => text::cell(&format!("take down: {}", why.message)),
        (Action::Fail(failure), _) => failure_text(failure),
        (Action::Wait(reason), _) => failure_text(reason),
        (Action::Unknown, _) => "its runtime doesn't answer".to_owned(),
    }
}

/// What hosts, registries, engines and containers wrote stands in conditions and failures; here it is one line each.
fn condition_text(Condition { kind, reason, message }: &Condition) -> String {
    text::cell(&format!("{kind}: {reason}: {message}"))
}

pub(super) fn failure_text(Failure { code, message }: &Failure) -> String {
    text::cell(&format!("{code}: {message}"))
}

pub(super) fn reason_text(reason: Reason) -> &'static str {
    match reason {
        Reason::New => "it is new",
        Reason::Changed => "its inputs changed",
        Reason::Retyped => "what runs of it is of another type, and goes first",
        Reason::Missing => "something of it is missing",
        Reason::Edited => "somebody changed it",
        Reason::HalfMade => "an apply began and didn't complete",
    }
}

/// The device state, for `status --output json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusOut {
    /// The device's id; `null` where the join file can't be read.
    device: Option<String>,
    /// The version of this program, not that of the running syncer.
    version: &'static str,
    /// The worst of all components that are to be here, in the words of the heartbeat.
    health: Health,
    accepted: Option<Accepted>,
    /// Where the device's repository is; `null` where the join file can't be read.
    url: Option<String>,
    /// The keys in use there over SSH.
    #[serde(skip_serializing_if = "Option::is_none")]
    ssh: Option<KeysInUse>,
    /// Why the host can't be reached.
    host: Option<LocalCondition>,
    /// Why the last pass failed: what else stands here is from before.
    pass: Option<LocalCondition>,
    /// What the site holds, and who says so.
    holds: Vec<Hold>,
    /// What the fleet says of the site's policy where that hands it over, by the keys of that.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    from_fleet: BTreeMap<FleetKey, Said>,
    conditions: Vec<Condition>,
    /// The site's list that counts, if its persons say anything from elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<SeenList>,
    components: Vec<ComponentOut>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ComponentOut {
    deployment: String,
    deployment_id: String,
    component: String,
    state: String,
    error: Option<Failure>,
    /// As it is now, in the words of the heartbeat.
    health: Health,
    drift: Drift,
    /// Absent where it is healthy, starts, or never was there.
    reason: Option<String>,
}

impl StatusOut {
    /// Everything that the device state says, and how what runs is; nothing is known of that without `observation`.
    pub(super) fn of(device_state: &DeviceState, desired: Option<&Desired>, observation: Option<&Observation>) -> Self {
        let mut components = Vec::new();
        for (id, reported) in Report::read(&device_state.status).deployments {
            let name = device_state.name_of(id, desired);
            components.extend(reported.components.into_iter().map(|component| {
                let project = id.runtime_name(&component.name);
                let health = observation.map_or(ComponentHealth::UNKNOWN, |observation| {
                    ComponentHealth::of(&project, observation, device_state)
                });
                ComponentOut {
                    deployment: name.clone(),
                    deployment_id: id.to_string(),
                    component: component.name.to_string(),
                    state: component.state.to_string(),
                    error: component.failure,
                    health: health.health,
                    drift: health.drift,
                    reason: health.reason,
                }
            }));
        }
        sort_few(&mut components, |a, b| (&a.deployment, &a.component).cmp(&(&b.deployment, &b.component)));
        let mut conditions = conditions::all(&device_state.status);
        // Before a pass could say so.
        if !conditions.iter().any(|one| one.kind == ConditionType::CloneDamaged) {
            conditions.extend(conditions::damaged(device_state));
        }
        conditions.extend(device_state.waiting.clone());
        let accepted = device_state.accepted.clone();
        let (device, version, holds) = (None, env!("CARGO_PKG_VERSION"), Vec::new());
        let health = overall(&components);
        let (url, ssh, host, pass, from_fleet) = (None, None, None, None, BTreeMap::new());
        let site = conditions::report(&device_state.status).and_then(|report| report.site);
        Self {
            device,
            version,
            health,
            accepted,
            url,
            ssh,
            host,
            pass,
            holds,
            from_fleet,
            conditions,
            site,
            components,
        }
    }

    /// The same, of the device with this id.
    pub(super) fn of_device(self, device: Option<DeviceId>) -> Self {
        Self { device: device.map(|device| device.to_string()), ..self }
    }

    /// Which device this is, where its host is, and how all of it is.
    pub(super) fn heading(&self) -> String {
        let (device, host) = (self.device.as_deref().unwrap_or("?"), self.url.as_deref().unwrap_or("?"));
        text::cell(&format!("{device} at {host}, device-syncer {}: {}", self.version, self.health))
    }

    /// Each thing that can change, and how it is: nothing in it changes with time alone.
    pub(super) fn lines(&self) -> BTreeMap<String, String> {
        let mut lines = BTreeMap::from([("device".to_owned(), self.heading())]);
        if let Some(Accepted { serial, commit, .. }) = &self.accepted {
            lines.insert("adopted".to_owned(), format!("serial {serial} ({commit})"));
        }
        let troubles = [("pass", &self.pass), ("host", &self.host)];
        let troubles = troubles.into_iter().filter_map(|(what, trouble)| Some((what, trouble.as_ref()?.to_string())));
        lines.extend(troubles.map(|(what, text)| (what.to_owned(), text::cell(&text))));
        let holds: Vec<_> = self.holds.iter().map(Hold::message).collect();
        lines.extend((!holds.is_empty()).then(|| ("hold".to_owned(), text::cell(&holds.join("; ")))));
        let said = |(key, said): (&FleetKey, &Said)| {
            (format!("{} from the fleet", key.place()), text::cell(&said.to_string()))
        };
        lines.extend(self.from_fleet.iter().map(said));
        for one in &self.conditions {
            lines.insert(
                format!("condition {}", text::cell(&one.kind)),
                text::cell(&format!("{}: {}", one.reason, one.message)),
            );
        }
        lines.extend(
            self.components
                .iter()
                .map(|one| (format!("{}/{}", text::cell(&one.deployment), one.component), one.text())),
        );
        lines
    }

    /// The same, with where the host is.
    pub(super) fn at_host(self, host: Option<(String, Option<KeysInUse>)>) -> Self {
        let (url, ssh) = host.map_or((None, None), |(url, ssh)| (Some(url), ssh));
        Self { url, ssh, ..self }
    }

    /// The same, with what the site holds.
    pub(super) fn with_holds(self, holds: Vec<Hold>) -> Self {
        Self { holds, ..self }
    }

    /// The same, with what comes from the fleet of the site's policy.
    pub(super) fn with_fleet(self, from_fleet: BTreeMap<FleetKey, Said>) -> Self {
        Self { from_fleet, ..self }
    }

    /// The same, with what stands between it and the host, and why the last pass failed.
    pub(super) fn with_trouble(self, host: Option<LocalCondition>, pass: Option<LocalCondition>) -> Self {
        Self { host, pass, ..self }
    }
}

/// The worst health of what is to be here.
fn overall(components: &[ComponentOut]) -> Health {
    const WORST: [Health; 5] = [Health::Degraded, Health::Missing, Health::Unknown, Health::Starting, Health::Healthy];
    let is_here = |one: &&ComponentOut| one.state != State::Removed.as_str() && one.shown_health() != "-";
    let all: Vec<_> = components.iter().filter(is_here).map(|one| one.health).collect();
    WORST.into_iter().find(|health| all.contains(health)).unwrap_or(Health::Healthy)
}

impl ComponentOut {
    /// State, health and failure.
    fn text(&self) -> String {
        let error = self.error.as_ref().map(|error| format!("  {}", failure_text(error))).unwrap_or_default();
        format!("{}  {}{error}", self.state, self.shown_health())
    }

    /// What never was there has no health.
    fn shown_health(&self) -> String {
        match &self.reason {
            None if self.health == Health::Missing => "-".to_owned(),
            None => self.health.to_string(),
            Some(reason) => text::cell(&format!("{}: {reason}", self.health)),
        }
    }
}

/// What is held, by whom, and for how long already: a forgotten hold blocks the fleet for months otherwise.
fn hold_text(hold: &Hold, now: Timestamp) -> String {
    let (of, since) = match hold {
        Hold::Person(HoldByPerson { deployment, since, .. }) => (deployment.as_ref(), Some(*since)),
        Hold::File { .. } => (None, None),
    };
    let of = of.map_or("everything".to_owned(), |name| format!("deployment {name}"));
    let age = since.map(|since| format!(" ({} ago)", age(now.duration_since(since)))).unwrap_or_default();
    text::cell(&format!("{of} is held {}{age}", hold.message()))
}

/// What comes from the fleet of the site's policy, a line each.
pub(super) fn from_fleet_text(all: &BTreeMap<FleetKey, Said>) -> String {
    let line =
        |(key, said): (&FleetKey, &Said)| text::cell(&format!("{} comes from the fleet: {said}", key.place())) + "\n";
    all.iter().map(line).collect()
}

/// A duration in its largest unit.
pub(super) fn age(duration: SignedDuration) -> String {
    match (duration.as_hours(), duration.as_mins()) {
        (hours @ 48.., _) => format!("{} days", hours / 24),
        (hours @ 2.., _) => format!("{hours} hours"),
        (_, minutes @ 2..) => format!("{minutes} minutes"),
        _ => format!("{} s", duration.as_secs().max(0)),
    }
}

/// The device state as text, and how what runs is.
pub(super) fn status(out: &StatusOut, now: Timestamp) -> String {
    let mut text = match &out.accepted {
        Some(accepted) => format!("adopted: serial {} ({})\n", accepted.serial, accepted.commit),
        None => "adopted: nothing yet\n".to_owned(),
    };
    if let (Some(url), Some(KeysInUse { key, host_keys })) = (&out.url, &out.ssh) {
        let key = key.as_deref().unwrap_or("a key of an ssh-agent, or one that can't be read");
        let host_keys = if host_keys.is_empty() { "as knownHosts says".to_owned() } else { host_keys.join(", ") };
        let _ = writeln!(text, "{}", text::cell(&format!("host: {url}, asked with {key}; its key: {host_keys}")));
    }
    for trouble in out.pass.iter().chain(&out.host) {
        let _ = writeln!(text, "{}", text::cell(&trouble.to_string()));
    }
    for hold in &out.holds {
        let _ = writeln!(text, "{}", hold_text(hold, now));
    }
    text += &from_fleet_text(&out.from_fleet);
    for condition in &out.conditions {
        let _ = writeln!(text, "{}", condition_text(condition));
    }
    if let Some(SeenList { serial, expires, key, .. }) = &out.site {
        let ends = if *expires > now { "counts until" } else { "ended at" };
        let _ = writeln!(
            text,
            "{}",
            text::cell(&format!("site: its list {serial}, with the key of {key}, {ends} {expires:.0}"))
        );
    }
    let width = out.components.iter().map(|one| one.deployment.len() + one.component.len() + 1).max().unwrap_or(0);
    let states = out.components.iter().map(|one| one.state.len()).max().unwrap_or(0);
    for one in &out.components {
        let name = format!("{}/{}", one.deployment, one.component);
        let error = one.error.as_ref().map(|error| format!("  {}", failure_text(error))).unwrap_or_default();
        let _ = writeln!(text, "{name:width$}  {:states$}  {}{error}", one.state, one.shown_health());
    }
    text
}
