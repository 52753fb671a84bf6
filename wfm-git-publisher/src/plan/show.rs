//! A plan as text for people and as JSON for programs.

use std::fmt::Write;

use repo_model::DeploymentName;
use serde_json::{Value, json};

use super::Change;
use super::groups::{Describe, Group, Part, groups};
use super::shown::Shown;
use super::statements::{Statement, statements};
use crate::fleet::{Fleet, counted};

/// The plan for people: each change once, with the devices that it is made on, then a summary. What a person has to look at
/// comes first.
pub fn to_text(all: &[Shown], fleet: &Fleet) -> String {
    let (mut text, describe) = (String::new(), Describe::new(fleet));
    for Group { kind, line, parts } in groups(all) {
        if !kind.is_of_device() {
            let _ = writeln!(text, "{line}");
        }
        for Part { details, devices } in parts {
            let (details, devices) = (indented(&details), describe.devices(&devices));
            let _ = if kind.is_of_device() {
                write!(text, "{devices}: {line}\n{details}")
            } else {
                writeln!(text, "{details}    on {devices}")
            };
        }
    }
    text + &summary(all)
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("    {line}\n")).collect()
}

/// The plan for people: one block per device that has something to show, then a summary.
pub fn to_text_of_each(all: &[Shown]) -> String {
    let mut text = String::new();
    for shown in all {
        let device = shown.device();
        let said = statements(shown);
        if let (Shown::Plan(plan, _), false) = (shown, said.is_empty()) {
            let _ = match plan.serial {
                _ if plan.is_empty() => writeln!(text, "{device}: no change"),
                Some(serial) => writeln!(text, "{device}: after serial {serial}"),
                None => Ok(()),
            };
        }
        for Statement { kind, line, details } in said {
            let _ = if kind.is_of_device() { writeln!(text, "{device}: {line}") } else { writeln!(text, "  {line}") };
            details.iter().for_each(|detail| _ = writeln!(text, "      {}", detail.text));
        }
    }
    text + &summary(all)
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
    let held = count(|shown| matches!(shown, Shown::Plan(plan, _) if plan.held.iter().any(|one| one.guard.is_none())));
    let guarded =
        count(|shown| matches!(shown, Shown::Plan(plan, _) if plan.held.iter().any(|one| one.guard.is_some())));
    let left = all.len() - changed - same - waiting - retired - gone;
    let _ = write!(text, "{} to change, {same} unchanged", counted(changed));
    if held > 0 {
        let _ = write!(text, ", {held} held back by rollouts");
    }
    if guarded > 0 {
        let _ = write!(text, ", {guarded} held back by guards");
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
            "lagsBehind": null,
            "deployments": [],
            "settings": [],
            "heldBack": [],
            "blocked": [],
            "kept": [],
        }),
        Shown::Retired(_) => json!({ "device": id, "state": "retired" }),
        Shown::Broken(_) => json!({ "device": id, "state": "broken" }),
        Shown::Failed(_, blocked) => json!({ "device": id, "state": "failed", "blocked": [blocked] }),
        Shown::Gone(_, account) => json!({ "device": id, "state": "gone", "account": account }),
        Shown::Plan(plan, blocked) => json!({
            "device": id,
            "state": if plan.is_empty() { "unchanged" } else { "changed" },
            "serial": plan.serial,
            "lagsBehind": plan.lags_behind,
            "deployments": plan.changes.iter().map(made_json).collect::<Vec<_>>(),
            "settings": plan.settings,
            "heldBack": plan.held.iter().map(held_json).collect::<Vec<_>>(),
            "blocked": blocked,
            "kept": plan.kept.iter().map(DeploymentName::as_str).collect::<Vec<_>>(),
        }),
    }
}

/// A change that is made, and whether a person let it pass that guards would hold.
fn made_json(change: &Change) -> Value {
    let mut json = change_json(change);
    json["allowed"] = json!(change.allowed);
    json
}

/// A change that is held back, with the guard that does it; `null` where that is a rollout.
fn held_json(change: &Change) -> Value {
    let mut json = change_json(change);
    json["guard"] = json!(change.guard);
    json
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
