//! A plan as text for people and as JSON for programs.

use std::fmt::Write;

use repo_model::problem::Problems;
use repo_model::{DeploymentName, DeviceId, text};
use serde_json::{Value, json};

use super::{Blocked, Change, ChangeKind, DevicePlan, Difference};
use crate::fleet::counted;

/// What there is to say about one device.
#[derive(Debug, Clone, PartialEq)]
pub enum Shown {
    /// It was compared; with what of it can't be published.
    Plan(Box<DevicePlan>, Vec<Blocked>),
    /// Nothing changed for it since it had everything, with this serial.
    UpToDate(DeviceId, u64),
    /// No key of it is known, so nothing is published for it yet.
    NotEnrolled(DeviceId),
    /// Its file is broken, so it is left as it is.
    Broken(DeviceId),
    /// It can't be compared; the reason is reported elsewhere.
    Failed(DeviceId),
    /// It is retired, and nothing more is published for it.
    Retired(DeviceId),
    /// It left the fleet. Its account, if that still counts, ends with the next publish.
    Gone(DeviceId, Option<String>),
}

/// What stays of a device that left the fleet.
pub const GONE: &str = "it left the fleet: what it runs runs on, and its repository stays";

/// What to do about a device that left the fleet.
pub const GONE_HINT: &str = "to stop what it runs, put its file back (`git revert`), exclude it from its deployments, \
    publish, and remove the file once `status` shows nothing there";

impl Shown {
    pub fn device(&self) -> &DeviceId {
        match self {
            Self::Plan(plan, _) => &plan.device,
            Self::UpToDate(device, _) | Self::Gone(device, _) => device,
            Self::NotEnrolled(device) | Self::Broken(device) | Self::Failed(device) | Self::Retired(device) => device,
        }
    }

    /// What is wrong with what is meant for it.
    pub fn problems(&self) -> Option<(&DeviceId, Problems)> {
        if let Self::Plan(plan, _) = self { Some((&plan.device, plan.problems())) } else { None }
    }

    /// What of it can't be published.
    pub fn blocked(&self) -> &[Blocked] {
        if let Self::Plan(_, blocked) = self { blocked } else { &[] }
    }

    /// Whether `publish` would change its repository, or end its account.
    pub fn differs(&self) -> bool {
        match self {
            Self::Plan(plan, _) => !plan.is_empty(),
            Self::Gone(_, account) => account.is_some(),
            _ => false,
        }
    }
}

/// The plan for people: one block per device that has something to show, then a summary.
pub fn to_text(all: &[Shown]) -> String {
    let mut text = String::new();
    for shown in all {
        match shown {
            Shown::UpToDate(..) | Shown::Retired(_) => {}
            Shown::Plan(plan, _) if plan.is_empty() && plan.kept.is_empty() && plan.held.is_empty() => {}
            Shown::Plan(plan, blocked) => {
                device_text(&mut text, plan);
                blocked.iter().filter(|one| !one.is_shown_as_problem()).for_each(|one| blocked_text(&mut text, one));
            }
            Shown::NotEnrolled(id) => _ = writeln!(text, "{id}: not enrolled yet, nothing is published for it"),
            Shown::Broken(id) => _ = writeln!(text, "{id}: left as it is, because its file is broken"),
            Shown::Failed(id) => _ = writeln!(text, "{id}: left as it is, because its repository can't be believed"),
            Shown::Gone(id, account) => {
                let account = account.iter().map(|name| format!("; its account `{name}` ends with `publish`"));
                let _ = writeln!(text, "{id}: {GONE}{}\n    {GONE_HINT}", account.collect::<String>());
            }
        }
    }
    text + &summary(all)
}

fn blocked_text(text: &mut String, blocked: &Blocked) {
    let Blocked { deployment, code, since, message, hint, .. } = blocked;
    let name = deployment.iter().map(|name| format!("{name} ")).collect::<String>();
    let since = since.map(|since| format!(" since {since:.0}")).unwrap_or_default();
    let _ = writeln!(text, "  ! {name}not published: {} ({code}{since})", text::line(message));
    hint.iter().for_each(|hint| _ = writeln!(text, "    {}", text::line(hint)));
}

/// How many devices it changes, in a line, and who is left as they are.
pub fn summary(all: &[Shown]) -> String {
    let mut text = String::new();
    let count = |test: fn(&Shown) -> bool| all.iter().filter(|shown| test(shown)).count();
    let gone = count(|shown| matches!(shown, Shown::Gone(..)));
    let changed = count(|shown| matches!(shown, Shown::Plan(plan, _) if !plan.is_empty()));
    let same = count(|shown| match shown {
        Shown::UpToDate(..) => true,
        Shown::Plan(plan, _) => plan.is_empty(),
        _ => false,
    });
    let waiting = count(|shown| matches!(shown, Shown::NotEnrolled(_)));
    let retired = count(|shown| matches!(shown, Shown::Retired(_)));
    let held = count(|shown| matches!(shown, Shown::Plan(plan, _) if !plan.held.is_empty()));
    let left = all.len() - changed - same - waiting - retired - gone;
    let _ = write!(text, "{} to change, {same} unchanged", counted(changed));
    if held > 0 {
        let _ = write!(text, ", {held} held back by rollouts");
    }
    if waiting > 0 {
        let _ = write!(text, ", {waiting} not enrolled");
    }
    if left > 0 {
        let _ = write!(text, ", {left} left as they are");
    }
    if retired > 0 {
        let _ = write!(text, ", {retired} retired");
    }
    if gone > 0 {
        let _ = write!(text, ", {gone} no longer in the fleet");
    }
    text.push('\n');
    text
}

fn device_text(text: &mut String, plan: &DevicePlan) {
    let _ = match plan.serial {
        _ if plan.is_empty() => writeln!(text, "{}: no change", plan.device),
        Some(serial) => writeln!(text, "{}: after serial {serial}", plan.device),
        None => writeln!(text, "{}: first desired state", plan.device),
    };
    if let Some(serial) = plan.lags_behind {
        let _ = writeln!(text, "  ~ {}", lags_behind(serial));
    }
    for change in &plan.changes {
        change_text(text, change);
    }
    for difference in &plan.settings {
        let _ = writeln!(text, "  ~ {}", difference_text(difference));
    }
    for change in &plan.held {
        let _ = writeln!(text, "  = {}: held back: {}", change.name, change.kind.as_str());
        differences_text(text, change);
    }
    for name in plan.kept.iter().filter(|name| !plan.awaits(name)) {
        let _ =
            writeln!(text, "  = {name}: left as it is, because something is wrong with it, or with what waits for it");
    }
}

fn lags_behind(serial: u64) -> String {
    format!("published anew: its repository was restored, and doesn't know serial {serial}")
}

fn change_text(text: &mut String, change: &Change) {
    let sign = match change.kind {
        ChangeKind::Add => '+',
        ChangeKind::Change => '~',
        ChangeKind::Remove => '-',
    };
    let replaces = change.replaces.as_ref().map(|old| format!(" (replaces {old}: data not carried)"));
    let _ = writeln!(text, "  {sign} {}{}", change.name, replaces.unwrap_or_default());
    differences_text(text, change);
}

fn differences_text(text: &mut String, change: &Change) {
    for difference in &change.differences {
        let _ = writeln!(text, "      {}", difference_text(difference));
    }
    for artifact in &change.unresolved {
        let artifact = text::line(&artifact.to_string());
        let _ = writeln!(text, "      {artifact}: `publish` finds out which bytes these are");
    }
}

/// A difference as one line.
pub fn difference_text(difference: &Difference) -> String {
    let Difference { what, old, new } = difference;
    let [what, old, new] = [Some(what), old.as_ref(), new.as_ref()].map(|part| part.map(|part| text::line(part)));
    let what = what.unwrap_or_default();
    match (old, new) {
        (Some(old), Some(new)) => format!("{what}: {old} → {new}"),
        (None, Some(new)) => format!("{what}: {new}"),
        (Some(old), None) => format!("{what}: {old} → (none)"),
        (None, None) => what,
    }
}

/// The plan for a review: one table over all devices that change, then a summary.
pub fn to_markdown(all: &[Shown]) -> String {
    // A value may hold anything; code stays code whatever is in it, and a cell holds neither its own end nor a new line.
    let code = |value: &str| {
        let cell = text::cell(value).replace('\\', "\\\\").replace('|', "\\|").replace('`', "'");
        if cell.is_empty() { cell } else { format!("`{cell}`") }
    };
    let mut rows = String::new();
    let mut row = |device: &DeviceId, sign: &str, what: &str, text: &str| {
        let _ = writeln!(rows, "| {} | {sign} | {} | {} |", code(device.as_str()), code(what), code(text));
    };
    for shown in all {
        let Shown::Plan(plan, blocked) = shown else { continue };
        let changes = plan.changes.iter().map(|change| (change.kind.as_str().to_owned(), change));
        let held = plan.held.iter().map(|change| (format!("{}, held back", change.kind.as_str()), change));
        for (sign, change) in changes.chain(held) {
            let what: Vec<_> = change.differences.iter().map(difference_text).collect();
            let replaces = change.replaces.iter().map(|old| format!("replaces {old}: data not carried"));
            let what: Vec<_> = replaces.chain(what).collect();
            row(&plan.device, &sign, change.name.as_str(), &what.join("; "));
        }
        plan.settings.iter().for_each(|one| row(&plan.device, "change", &one.what, &difference_text(one)));
        if let Some(serial) = plan.lags_behind {
            row(&plan.device, "change", "serial", &lags_behind(serial));
        }
        for one in blocked {
            row(&plan.device, "**not published**", one.code.as_str(), &one.message);
        }
    }
    let head = if rows.is_empty() { "" } else { "| Device | Change | What | Old → new |\n|---|---|---|---|\n" };
    format!("{head}{rows}\n{}", summary(all))
}

/// The plan for programs: a list of devices in the order of their ids.
pub fn to_json(all: &[Shown]) -> Value {
    Value::Array(all.iter().map(device_json).collect())
}

fn device_json(shown: &Shown) -> Value {
    let id = shown.device();
    match shown {
        Shown::NotEnrolled(_) => json!({ "device": id, "state": "not-enrolled" }),
        Shown::UpToDate(_, serial) => json!({
            "device": id,
            "state": "unchanged",
            "serial": serial,
            "deployments": [],
            "settings": [],
            "heldBack": [],
            "blocked": [],
            "kept": [],
        }),
        Shown::Retired(_) => json!({ "device": id, "state": "retired" }),
        Shown::Broken(_) => json!({ "device": id, "state": "broken" }),
        Shown::Failed(_) => json!({ "device": id, "state": "failed" }),
        Shown::Gone(_, account) => json!({ "device": id, "state": "gone", "account": account }),
        Shown::Plan(plan, blocked) => json!({
            "device": id,
            "state": if plan.is_empty() { "unchanged" } else { "changed" },
            "serial": plan.serial,
            "lagsBehind": plan.lags_behind,
            "deployments": plan.changes.iter().map(change_json).collect::<Vec<_>>(),
            "settings": plan.settings,
            "heldBack": plan.held.iter().map(change_json).collect::<Vec<_>>(),
            "blocked": blocked,
            "kept": plan.kept.iter().map(DeploymentName::as_str).collect::<Vec<_>>(),
        }),
    }
}

fn change_json(change: &Change) -> Value {
    json!({
        "change": change.kind.as_str(),
        "deployment": change.name,
        "deploymentId": change.id,
        "replaces": change.replaces,
        "differences": change.differences,
        "unresolved": change.unresolved.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
