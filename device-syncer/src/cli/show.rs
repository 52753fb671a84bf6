//! What commands print.

use std::fmt::Write;

use repo_model::desired::Desired;
use repo_model::report::{Condition, ConditionType};
use repo_model::text;
use serde::Serialize;

use crate::decision::conditions;
use crate::decision::device_state::{Accepted, DeviceState};
use crate::decision::failure::Failure;
use crate::decision::health::Health;
use crate::decision::observation::Observation;
use crate::decision::plan::{Action, Plan, Reason};
use crate::decision::status::Report;
use crate::home::Enrolment;
use crate::host::ssh::KeysInUse;
use crate::reconcile::preview::Preview;
use crate::state::local_condition::LocalCondition;

/// Any answer as JSON, in which texts are exactly what strangers wrote and nothing steers a terminal.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).map(|text| text::json(&text) + "\n").unwrap_or_default()
}

/// The lines that enrol a device, for `init --output json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EnrolmentOut<'a> {
    enrolment_line: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ssh_line: Option<&'a str>,
}

impl<'a> EnrolmentOut<'a> {
    pub(super) fn of(enrolment: &'a Enrolment) -> Self {
        Self { enrolment_line: &enrolment.line, ssh_line: enrolment.ssh_line.as_deref() }
    }
}

/// The lines that enrol a device.
pub(super) fn enrolment(Enrolment { line, ssh_line }: &Enrolment) -> String {
    std::iter::once(line).chain(ssh_line).map(|line| format!("{line}\n")).collect()
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
    /// Everything that a preview says.
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
    for removal in &plan.held {
        let name = removal.name.as_ref().map_or("?", |name| name.as_str());
        let component = removal.component.as_ref().map_or("?", |name| name.as_str());
        let _ = writeln!(
            text,
            ". {name}/{component}: stays for now: it is suspended, or its runtime doesn't answer ({})",
            removal.project
        );
    }
    for deployment in &plan.deployments {
        for component in &deployment.components {
            let (mark, what) = match (&component.action, &component.degraded) {
                (Action::Keep, None) => ("=", "keep".to_owned()),
                (Action::Keep, Some(degraded)) => ("!", text::cell(&format!("keep, although {degraded}"))),
                (Action::Apply { reason, .. }, _) => ("+", format!("apply: {}", reason_text(*reason))),
                (Action::Restore { reason, .. }, _) => ("+", text::cell(&format!("put back: {reason}"))),
                (Action::Fail(failure), _) => ("!", failure_text(failure)),
                (Action::Wait(reason), _) => (".", failure_text(reason)),
                (Action::Unknown, _) => ("?", "its runtime doesn't answer".to_owned()),
            };
            let _ = writeln!(text, "{mark} {}/{}: {what}", deployment.name, component.name);
        }
    }
    if plan.removals.is_empty() && plan.deployments.is_empty() {
        text += "nothing is wanted, and nothing of ours is here\n";
    }
    text
}

/// What hosts, registries, engines and containers wrote stands in conditions and failures; here it is one line each.
fn condition_text(Condition { kind, reason, message }: &Condition) -> String {
    text::cell(&format!("{kind}: {reason}: {message}"))
}

fn failure_text(Failure { code, message }: &Failure) -> String {
    text::cell(&format!("{code}: {message}"))
}

fn reason_text(reason: Reason) -> &'static str {
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
    conditions: Vec<Condition>,
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
    health: &'static str,
    drift: &'static str,
    /// Why it isn't well.
    reason: Option<String>,
}

impl StatusOut {
    /// Everything that the device state says, and how what runs is; nothing is known of that without `observation`.
    pub(super) fn of(device_state: &DeviceState, desired: Option<&Desired>, observation: Option<&Observation>) -> Self {
        let mut components = Vec::new();
        for (id, reported) in Report::read(&device_state.status).deployments {
            let name = device_state.name_of(id, desired);
            components.extend(reported.components.into_iter().map(|component| {
                let unknown = Health { health: "unknown", drift: "unknown", reason: None };
                let project = id.runtime_name(&component.name);
                let health = observation.map_or(unknown, |observation| Health::of(&project, observation, device_state));
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
        components.sort_by(|a, b| (&a.deployment, &a.component).cmp(&(&b.deployment, &b.component)));
        let mut conditions = conditions::all(&device_state.status);
        // Before a pass could say so.
        if !conditions.iter().any(|one| one.kind == ConditionType::CloneDamaged) {
            conditions.extend(conditions::damaged(device_state));
        }
        conditions.extend(device_state.waiting.clone());
        let accepted = device_state.accepted.clone();
        Self { accepted, url: None, ssh: None, host: None, pass: None, conditions, components }
    }

    /// The same, with where the host is.
    pub(super) fn at_host(self, host: Option<(String, Option<KeysInUse>)>) -> Self {
        let (url, ssh) = host.map_or((None, None), |(url, ssh)| (Some(url), ssh));
        Self { url, ssh, ..self }
    }

    /// The same, with what stands between it and the host, and why the last pass failed.
    pub(super) fn with_trouble(self, host: Option<LocalCondition>, pass: Option<LocalCondition>) -> Self {
        Self { host, pass, ..self }
    }
}

impl ComponentOut {
    /// What never was there has no health.
    fn shown_health(&self) -> String {
        match &self.reason {
            None if self.health == "missing" => "-".to_owned(),
            None => self.health.to_owned(),
            Some(reason) => text::cell(&format!("{}: {reason}", self.health)),
        }
    }
}

/// The device state as text, and how what runs is.
pub(super) fn status(out: &StatusOut) -> String {
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
    for condition in &out.conditions {
        let _ = writeln!(text, "{}", condition_text(condition));
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
