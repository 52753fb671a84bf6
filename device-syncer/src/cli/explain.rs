//! `explain`: what a deployment is on this device, what it waits for, and what happens next.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use jiff::Timestamp;
use repo_model::report::{Condition, Health};
use repo_model::{ComponentName, DeploymentId, DeploymentName, ErrorCode, text};
use serde::Serialize;

use super::show::{action_text, age, from_fleet_text, json};
use super::status::from_fleet;
use super::{OutputArgs, must_be, plan};
use crate::config::{FleetKey, Home, Said, Settings};
use crate::decision::device_state::DeviceState;
use crate::decision::failure::Failure;
use crate::decision::gates::Gates;
use crate::decision::health::ComponentHealth;
use crate::decision::hold::Hold;
use crate::decision::plan::{Action, HeldRemoval, Planned, PlannedComponent, Removal};
use crate::decision::status::Report;
use crate::error::CliError;
use crate::reconcile::preview::Preview;
use crate::state::history::{Entry, History};
use crate::state::retry_times::{self, RetryTime};
use crate::state::{history, loaded};

/// Explains one deployment on this device: what it is now and since when, what the next pass does with it, what it waits
/// for, who opens that and when, what failed last, and when it is tried again.
///
/// It changes nothing, asks no host and works beside a running syncer. Exit code 0 whatever it says.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  device-syncer explain hello\n  device-syncer explain hello --output json")]
pub(super) struct Args {
    /// The operator's id of the deployment, or its `deploymentId`.
    deployment: String,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(home: Home, args: &Args) -> Result<ExitCode, CliError> {
    must_be(&home)?;
    let preview = plan::of_accepted(home.clone())?;
    let (device_state, desired) = loaded::peek(&home.repository());
    let report = Report::read(&device_state.status);
    let Some(id) = named(&args.deployment, &preview, &device_state, &report) else {
        let text = format!("no deployment `{}` is wanted, runs here or was told of", args.deployment);
        return Err(CliError::Input(text));
    };
    let known = Known {
        history: History::read(&home.repository(), None)?,
        retries: retry_times::read(&home.retries()),
        name: device_state.name_of(id, desired.as_ref()),
        from_fleet: from_fleet(Settings::read(&home).ok().as_ref(), desired.as_ref()),
        device_state,
        report,
        preview,
        now: Timestamp::now(),
    };
    let explained = Explained::of(id, &known);
    args.output.print(|| explained.text(known.now), || json(&explained))?;
    Ok(ExitCode::SUCCESS)
}

/// The deployment that a person means.
fn named(asked: &str, preview: &Preview, device_state: &DeviceState, report: &Report) -> Option<DeploymentId> {
    let planned = preview.plan.deployments.iter().map(|one| (one.id, one.name.as_str()));
    let applied = device_state.deployments.iter().map(|(id, one)| (*id, one.inputs.id.as_str()));
    let mut all = planned.chain(applied).chain(report.deployments.keys().map(|id| (*id, "")));
    all.find(|(id, name)| *name == asked || id.to_string() == asked).map(|(id, _)| id)
}

/// What is known on the device.
struct Known {
    /// What the next pass does, and what of the runtimes that was planned for.
    preview: Preview,
    history: Option<History>,
    retries: BTreeMap<String, RetryTime>,
    device_state: DeviceState,
    /// The states that were reported last.
    report: Report,
    /// The operator's id of the deployment.
    name: String,
    from_fleet: BTreeMap<FleetKey, Said>,
    now: Timestamp,
}

impl Known {
    /// What was reported of a component, newest first.
    fn reported(&self, id: DeploymentId, name: &ComponentName) -> impl Iterator<Item = &Entry> {
        let all = self.history.iter().flat_map(|history| &history.entries);
        all.filter(move |entry| entry.transition.deployment == id && entry.transition.component.as_ref() == Some(name))
    }
}

/// A deployment explained, for `--output json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    deployment: String,
    deployment_id: String,
    /// Of the accepted state; `null` before the first.
    serial: Option<u64>,
    /// Whether that wants it.
    is_wanted: bool,
    /// What stands in the way of the device as a whole.
    conditions: Vec<Condition>,
    /// Who approved or rejected what is wanted of it, and why, where a person is asked for that.
    approval: Option<String>,
    /// What the fleet says of the site's policy where that hands it over, by the keys of that.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    from_fleet: BTreeMap<FleetKey, Said>,
    components: Vec<Part>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    component: String,
    /// As it was reported last; `null` where it never was.
    state: Option<String>,
    /// When that was reported, as far back as the clone goes.
    since: Option<Timestamp>,
    /// As it is now, in the words of the heartbeat.
    health: Health,
    /// Why it is neither healthy nor starts.
    reason: Option<String>,
    /// What the next pass does with it.
    next: Next,
    /// What that waits for.
    waits: Option<Waits>,
    last_failure: Option<LastFailure>,
    /// When what failed for now is tried again.
    retry: Option<RetryTime>,
}

/// What the next pass does.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Next {
    /// `keep`, `apply`, `restore`, `restart`, `remove`, `wait`, `fail`, or `unknown` while its runtime doesn't answer.
    action: &'static str,
    text: String,
}

/// What something waits for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Waits {
    /// The error code of the first closed gate.
    code: String,
    /// The words of all closed gates: by whom, since when, until when.
    text: String,
    /// When the first one opens by itself.
    opens: Option<Timestamp>,
    /// What opens it, for a person: a command, or what has to happen.
    how: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LastFailure {
    at: Timestamp,
    code: String,
    message: String,
}

impl Explained {
    fn of(id: DeploymentId, known: &Known) -> Self {
        let Preview { plan, conditions, .. } = &known.preview;
        let planned = plan.deployments.iter().find(|one| one.id == id);
        let mut components: Vec<_> = planned.map(|one| parts(one, known)).unwrap_or_default();
        let going = plan.removals.iter().filter(|one| one.deployment == Some(id)).map(|removal| (removal, None));
        let held = plan.held.iter().filter(|one| one.removal.deployment == Some(id));
        let held = held.map(|HeldRemoval { removal, why, .. }| (removal, Some(why)));
        components.extend(going.chain(held).filter_map(|(removal, why)| gone(id, removal, why, known)));
        let approvals = known.preview.gates.approvals.as_ref().zip(plan.changes.get(&id));
        let approvals = approvals.filter(|(all, _)| all.means(known.name.parse().ok().as_ref(), id));
        Self {
            deployment: known.name.clone(),
            deployment_id: id.to_string(),
            approval: approvals.and_then(|(all, change)| Some(all.said(change).ok()??.message(change))),
            serial: known.device_state.accepted.as_ref().map(|accepted| accepted.serial),
            is_wanted: planned.is_some(),
            conditions: conditions.clone(),
            from_fleet: known.from_fleet.clone(),
            components,
        }
    }

    fn text(&self, now: Timestamp) -> String {
        let wanted = match (self.is_wanted, self.serial) {
            (true, Some(serial)) => format!("wanted by serial {serial}"),
            _ => "not wanted any more".to_owned(),
        };
        let mut all = format!("{} ({}): {wanted}\n", text::cell(&self.deployment), self.deployment_id);
        for Condition { kind, reason, message } in &self.conditions {
            let _ = writeln!(all, "device: {}", text::cell(&format!("{kind}: {reason}: {message}")));
        }
        if let Some(said) = &self.approval {
            let _ = writeln!(all, "approval: {}", text::cell(said));
        }
        all += &from_fleet_text(&self.from_fleet);
        self.components.iter().for_each(|part| part.write(&mut all, now));
        if self.components.is_empty() {
            all += "nothing of it is here\n";
        }
        all
    }
}

fn parts(planned: &Planned, known: &Known) -> Vec<Part> {
    let part = |one: &PlannedComponent| {
        let action = name_of(&one.action);
        let text = match one.action {
            Action::Wait(_) => match &one.put_back {
                Some(put_back) => {
                    text::cell(&format!("put back what was applied, while it waits: {}", put_back.reason))
                }
                None => "nothing, while it waits".to_owned(),
            },
            _ => action_text(&one.action, one.degraded.as_deref()),
        };
        let waits = match &one.action {
            Action::Wait(why) => Some(Waits::of(why, &known.preview.gates, (planned.id, Some(&planned.name)))),
            _ => None,
        };
        Part::of((planned.id, &one.name, &one.project), Next { action, text }, waits, known)
    };
    planned.components.iter().map(part).collect()
}

fn gone(id: DeploymentId, removal: &Removal, why: Option<&Failure>, known: &Known) -> Option<Part> {
    let waits = why.map(|why| Waits::of(why, &known.preview.gates, (id, removal.name.as_ref())));
    let action = if waits.is_some() { "wait" } else { "remove" };
    let next = Next { action, text: "remove".to_owned() };
    Some(Part::of((id, removal.component.as_ref()?, &removal.project), next, waits, known))
}

fn name_of(action: &Action) -> &'static str {
    match action {
        Action::Keep => "keep",
        Action::Apply { .. } => "apply",
        Action::Restore { .. } => "restore",
        Action::Restart { .. } => "restart",
        Action::TakeDown { .. } => "take-down",
        Action::Fail(_) => "fail",
        Action::Wait(_) => "wait",
        Action::Unknown => "unknown",
    }
}

impl Part {
    fn of(
        (id, name, project): (DeploymentId, &ComponentName, &str),
        next: Next,
        waits: Option<Waits>,
        known: &Known,
    ) -> Self {
        let state = known.report.get(id, name).map(|reported| reported.state);
        let newest = known.reported(id, name).find(|entry| Some(entry.transition.to) == state);
        let failed = known.reported(id, name).find(|entry| entry.transition.to == repo_model::margo::State::Failed);
        let ComponentHealth { health, reason, .. } =
            ComponentHealth::of(project, &known.preview.observation, &known.device_state);
        let failure = failed.zip(known.history.as_ref()).map(|(entry, history)| LastFailure::of(entry, history));
        Self {
            component: name.to_string(),
            state: state.map(|state| state.to_string()),
            since: newest.map(|entry| entry.at),
            health,
            reason,
            retry: known.retries.get(project).copied().filter(|_| next.action != "keep"),
            next,
            waits,
            last_failure: failure,
        }
    }

    fn write(&self, all: &mut String, now: Timestamp) {
        let state = self.state.as_deref().unwrap_or("nothing was told of it");
        let since = |at: Timestamp| format!(" since {at:.0} ({} ago)", age(now.duration_since(at)));
        let since = self.since.map(since).unwrap_or_default();
        let reason = self.reason.as_ref().map(|reason| format!(": {}", text::cell(reason))).unwrap_or_default();
        let mut line = |what: &str, text: &str| _ = writeln!(all, "  {what:13} {text}");
        line(&format!("{}:", self.component), &format!("{state}{since}; {}{reason}", self.health));
        line("next:", &self.next.text);
        if let Some(Waits { code, text, opens, how }) = &self.waits {
            let opens = opens.map(|opens| format!("{opens:.0}, ")).unwrap_or_default();
            line("waits:", &text::cell(&format!("{code}: {text}")));
            line("opens:", &format!("{opens}{how}"));
        }
        if let Some(LastFailure { at, code, message }) = &self.last_failure {
            line("last failure:", &text::cell(&format!("{at:.0} {code}: {message}")));
        }
        match &self.retry {
            Some(RetryTime { at, failures }) if *at > now => {
                line("tried again:", &format!("{at:.0}, after {failures} failures in a row"));
            }
            Some(RetryTime { failures, .. }) => {
                line("tried again:", &format!("with the next pass, after {failures} failures in a row"));
            }
            None if self.next.action == "fail" => {
                line("tried again:", "when its inputs change, or after `device-syncer retry`");
            }
            None => {}
        }
    }
}

impl LastFailure {
    fn of(entry: &Entry, history: &history::History) -> Self {
        let code = entry.transition.code.clone().unwrap_or_default();
        Self { at: entry.at, code, message: history.words(entry).unwrap_or_default() }
    }
}

impl Waits {
    fn of(why: &Failure, gates: &Gates, of: (DeploymentId, Option<&DeploymentName>)) -> Self {
        let opens = opens(why, gates, of);
        Self { code: why.code.to_string(), text: why.message.clone(), opens, how: how(why, gates, of, opens) }
    }
}

/// The hold of this deployment that counts.
fn hold_of<'a>(gates: &'a Gates, (id, name): (DeploymentId, Option<&DeploymentName>)) -> Option<&'a Hold> {
    gates.holds.iter().find(|hold| hold.is_of(Some(id), name))
}

/// When the first closed gate opens by itself.
fn opens(why: &Failure, gates: &Gates, of: (DeploymentId, Option<&DeploymentName>)) -> Option<Timestamp> {
    if why.code == ErrorCode::Held { hold_of(gates, of)?.until() } else { gates.window_opens(&why.code, Some(of.0)) }
}

/// What puts back what is only reported.
fn retry(name: Option<&DeploymentName>) -> String {
    let name = name.map(|name| format!(" {name}")).unwrap_or_default();
    format!("with `device-syncer retry{name}`, or a newer set of the fleet's (`drift: report`)")
}

/// What opens the first closed gate.
fn how(why: &Failure, gates: &Gates, of: (DeploymentId, Option<&DeploymentName>), opens: Option<Timestamp>) -> String {
    let text = match ErrorCode::parse(&why.code) {
        Some(ErrorCode::Suspended) => "when the operator takes `suspended` out of the fleet",
        Some(ErrorCode::Held) => match hold_of(gates, of) {
            Some(Hold::Person(by)) => {
                let name = by.deployment.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
                let before = if opens.is_some() { "or before with" } else { "with" };
                return format!("{before} `device-syncer release{name}`");
            }
            Some(Hold::File { file, .. }) => return text::cell(&format!("when `{file}` goes")),
            None => "with `device-syncer release`",
        },
        Some(ErrorCode::WaitingDowntime | ErrorCode::WaitingWindow) if opens.is_some() => {
            "by itself (`device-syncer windows`)"
        }
        Some(ErrorCode::WaitingDowntime | ErrorCode::WaitingWindow) => {
            let openings = gates.openings_of(Some(of.0));
            return match &openings.doubt {
                Some(_) => "when what the text names is over".to_owned(),
                None => format!("never, by {} as they are now", openings.whose),
            };
        }
        Some(ErrorCode::WaitingApproval) => "with `device-syncer approve`, which shows what it is about",
        Some(ErrorCode::Drifted) => return retry(of.1),
        Some(ErrorCode::WaitingPolicy) => {
            "when the site's hook lets it, which is asked again (`gates.hook` of device.yaml)"
        }
        Some(ErrorCode::RuntimeUnavailable) => "when its runtime answers (`device-syncer doctor`)",
        _ => "by itself, when what the text names is over",
    };
    text.to_owned()
}
