//! What stands in the way, or is worth knowing: the conditions of `syncer.json`.

use repo_model::report::{Adopted, Condition, SYNCER, SyncerReport};
use repo_model::{DeviceId, FileTree, KeyText, envelope, json};
use uuid::Uuid;

use crate::decision::device_state::{Accepted, Damaged, DeviceState};
use crate::decision::failure::shown;
use crate::decision::observation::{self, Observation};

/// It needs a person or a new commit; what runs keeps running.
pub const STALLED: &str = "Stalled";

/// It needs somebody to do something first.
pub const WAITING: &str = "Waiting";

/// The host may be showing an old state.
pub const STALE: &str = "Stale";

/// The descent of the accepted state wasn't checked.
pub const UNVERIFIED: &str = "AncestryUnverified";

/// What runs can't be seen or changed now.
pub const RUNTIME: &str = "RuntimeUnavailable";

/// `capabilities` of `device.yaml` say something that Margo has no word for.
pub const CAPABILITIES_INVALID: &str = "CapabilitiesInvalid";

/// What reads applications' files isn't kept from the rest of the host.
pub const SANDBOX: &str = "SandboxUnavailable";

/// The clone couldn't be read in full, and was made anew; stays until something newer is adopted.
pub const CLONE: &str = "CloneDamaged";

/// Something that an auditor should know; stays until the next adoption.
pub const EVENT: &str = "SecurityEvent";

/// A condition. Its message may quote what a stranger wrote.
pub fn condition(kind: &str, reason: &str, message: impl AsRef<str>) -> Condition {
    Condition { kind: kind.to_owned(), reason: reason.to_owned(), message: shown(message.as_ref()) }
}

/// A condition in a line of a log or a table: its reason and what it says.
pub fn text(condition: &Condition) -> String {
    format!("{}: {}", condition.reason, condition.message)
}

/// The report in a tree of `status`; one that can't be read counts as absent.
pub fn report(status: &FileTree) -> Option<SyncerReport> {
    serde_json::from_slice(status.get(SYNCER)?).ok()
}

/// All conditions in a tree of `status`.
pub fn all(status: &FileTree) -> Vec<Condition> {
    report(status).map(|report| report.conditions).unwrap_or_default()
}

/// Security events that were told before.
pub fn events(status: &FileTree) -> Vec<Condition> {
    all(status).into_iter().filter(|one| one.kind == EVENT).collect()
}

/// Whether something isn't as wanted; the others are for auditors.
pub fn is_in_the_way(condition: &Condition) -> bool {
    ![EVENT, UNVERIFIED, CAPABILITIES_INVALID, SANDBOX, CLONE].contains(&condition.kind.as_str())
}

/// What is to be said of a clone that was made anew.
pub fn damaged(device_state: &DeviceState) -> Option<Condition> {
    let Damaged { since, what } = device_state.damaged.as_ref()?;
    let text = format!(
        "the clone was damaged when it was read on {since:.0}, and was made anew from what could be read and from the \
         host: {what}; the damaged one is `repository.damaged` in the device's home: look at its disk"
    );
    Some(condition(CLONE, "SetAside", text))
}

/// What this device waits for where the tip, or the state in force, doesn't list its key: it isn't the device that the
/// fleet means, or not any more. What isn't known of the tip (`None`) is as it was before.
pub fn not_listed(
    is_listed_by_tip: Option<bool>,
    is_listed: bool,
    before: &DeviceState,
    (device, key): (&DeviceId, &KeyText),
) -> Option<Condition> {
    if is_listed_by_tip.unwrap_or(before.waiting.is_none()) && is_listed {
        return None;
    }
    let text = format!(
        "`statusKeys` of `desired` don't list this device's key, so it adopts nothing new and tells the host nothing; \
         if it shall be `{device}`, run `wfm-git-publisher device enroll {device} '{key}'`, with `--replace` where \
         another machine was that"
    );
    Some(condition(WAITING, "NotListed", text))
}

/// What stands in the way of what can't be seen: of whole runtimes, and of single projects. The words of the first time
/// stay, so that being tried again and again grows no history.
pub fn unreachable(observation: &Observation, before: &[Condition]) -> impl Iterator<Item = Condition> {
    let runtimes = observation.unreachable.values().map(|failure| condition(RUNTIME, &failure.code, &failure.message));
    let projects = observation.found.iter().filter_map(|found| match &found.condition {
        observation::Condition::Unknown(why) => {
            let text = format!("`{}` can't be looked at: {why}", found.project);
            Some(condition(RUNTIME, "ProjectUnreadable", text))
        }
        _ => None,
    });
    runtimes.chain(projects).map(|new| {
        let is_known = |one: &&Condition| {
            let what = |one: &Condition| one.message.split(' ').next().map(str::to_owned);
            one.kind == new.kind && one.reason == new.reason && what(one) == what(&new)
        };
        before.iter().find(is_known).cloned().unwrap_or(new)
    })
}

/// Writes `syncer.json` into the tree of `status`.
pub fn write(next: &mut DeviceState, instance: Uuid, conditions: &[Condition]) {
    let mut conditions = conditions.to_vec();
    conditions.sort();
    conditions.dedup();
    let adopted = |accepted: &Accepted| Adopted {
        serial: accepted.serial,
        manifest_version: accepted.manifest_version,
        trust: accepted.trust,
        commit: accepted.commit.clone(),
        envelope: accepted.envelope,
    };
    let report = SyncerReport {
        layout: envelope::LAYOUT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instance,
        adopted: next.accepted.as_ref().map(adopted),
        conditions,
        holds: Vec::new(),
    };
    log_new(report.conditions.iter(), next);
    next.status.insert(SYNCER.to_owned(), json::to_bytes(&report));
}

/// Says what wasn't so before, once.
fn log_new<'a>(conditions: impl Iterator<Item = &'a Condition>, before: &DeviceState) {
    let before = all(&before.status);
    for Condition { kind, reason, message } in conditions.filter(|one| !before.contains(one)) {
        if kind == EVENT || kind == STALLED {
            tracing::error!(kind, reason, security_event = kind == EVENT, "{message}");
        } else {
            tracing::warn!(kind, reason, "{message}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reason that the syncer gives besides the error codes.
    const REASONS: &[(&str, &[&str])] = &[
        (STALLED, &["FetchFailed", "AcceptedLost"]),
        (WAITING, &["NotEnrolled", "NotListed"]),
        (STALE, &["Expired", "ProofRefused"]),
        (UNVERIFIED, &["ShallowHistory"]),
        (RUNTIME, &["runtime-unavailable", "ProjectUnreadable"]),
        (CAPABILITIES_INVALID, &["LeftOut"]),
        (CLONE, &["SetAside"]),
        (SANDBOX, &["NoLandlockAndNotRoot"]),
        (EVENT, &["HistoryContinued", "HistoryAccepted", "history-forked", "StatusReplaced", "FloorLost"]),
    ];

    #[test]
    fn the_contract_lists_every_condition() {
        let contract = include_str!("../../../repo-layouts/README.md");
        for (kind, reasons) in REASONS {
            for reason in *reasons {
                assert!(contract.contains(&format!("| `{kind}` | `{reason}` ")), "{kind} {reason}");
            }
        }
    }

    #[test]
    fn only_security_events_stay() {
        let mut device_state = DeviceState::default();
        let all = [condition(STALE, "Expired", "x"), condition(EVENT, "history-forked", "y")];
        write(&mut device_state, Uuid::nil(), &all);
        assert_eq!(events(&device_state.status), [condition(EVENT, "history-forked", "y")]);
        assert_eq!(report(&device_state.status).unwrap().conditions.len(), 2);
    }

    #[test]
    fn the_order_in_which_they_were_found_means_nothing() {
        let (a, b) = (condition(STALE, "Expired", "x"), condition(EVENT, "history-forked", "y"));
        let bytes = |all: &[Condition]| {
            let mut device_state = DeviceState::default();
            write(&mut device_state, Uuid::nil(), all);
            device_state.status
        };
        assert_eq!(bytes(&[a.clone(), b.clone(), a.clone()]), bytes(&[b, a]));
    }
}
