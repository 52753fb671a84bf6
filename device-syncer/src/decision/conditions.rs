//! What stands in the way, or is worth knowing: the conditions of `syncer.json`.

use repo_model::report::{Adopted, ClosedGate, Condition, ConditionType, Reason, SYNCER, SeenList, SyncerReport};
use repo_model::{DeviceId, ErrorCode, FileTree, KeyText, envelope, json, sort_few};
use uuid::Uuid;

use crate::decision::device_state::{Accepted, Damaged, DeviceState};
use crate::decision::failure::shown;
use crate::decision::observation::{self, Observation};

/// A condition. Its message may quote what a stranger wrote; a `reason` that is an error code is given in PascalCase, as
/// all others are.
pub fn condition(kind: impl Into<String>, reason: impl Into<String>, message: impl AsRef<str>) -> Condition {
    let reason = reason.into();
    let reason = ErrorCode::parse(&reason).map_or(reason, |code| Reason::from(code).into());
    Condition { kind: kind.into(), reason, message: shown(message.as_ref()) }
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

/// The conditions and closed gates in a tree of `status`.
pub fn reported(status: &FileTree) -> (Vec<Condition>, Vec<ClosedGate>) {
    report(status).map(|report| (report.conditions, report.gates)).unwrap_or_default()
}

/// Security events that were reported before.
pub fn events(status: &FileTree) -> Vec<Condition> {
    all(status).into_iter().filter(|one| one.kind == ConditionType::SecurityEvent).collect()
}

/// Whether something isn't as wanted; the others are for auditors.
pub fn is_in_the_way(condition: &Condition) -> bool {
    ConditionType::parse(&condition.kind).is_none_or(ConditionType::is_in_the_way)
}

/// What `syncer.json` reports of a clone that was made anew, until something newer is adopted.
pub fn damaged(device_state: &DeviceState) -> Option<Condition> {
    let Damaged { since, what } = device_state.damaged.as_ref()?;
    let text = format!(
        "the clone was damaged when it was read on {since:.0}, and was made anew from what could be read and from the \
         host: {what}; the damaged one is `repository.damaged` in the device's home: look at its disk"
    );
    Some(condition(ConditionType::CloneDamaged, Reason::SetAside, text))
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
    Some(condition(ConditionType::Waiting, Reason::NotListed, text))
}

/// Why something can't be observed: whole runtimes, and single projects. The words of the first time stay, so that
/// being tried again and again grows no history. Of a runtime that hasn't answered yet nothing is said for the first time.
pub fn unreachable(observation: &Observation, before: &[Condition]) -> impl Iterator<Item = Condition> {
    let runtimes = observation.unreachable.iter().map(|(kind, failure)| {
        let new = condition(ConditionType::RuntimeUnavailable, &failure.code, &failure.message);
        (new, observation.unanswered.contains(kind))
    });
    let projects = observation.found.iter().filter_map(|found| match &found.condition {
        observation::Condition::Unknown(why) => {
            let text = format!("`{}` can't be looked at: {why}", found.project);
            Some((condition(ConditionType::RuntimeUnavailable, Reason::ProjectUnreadable, text), false))
        }
        _ => None,
    });
    runtimes.chain(projects).filter_map(|(new, may_answer)| {
        let is_known = |one: &&Condition| {
            let what = |one: &Condition| one.message.split(' ').next().map(str::to_owned);
            one.kind == new.kind && one.reason == new.reason && what(one) == what(&new)
        };
        before.iter().find(is_known).cloned().or((!may_answer).then_some(new))
    })
}

/// What runs, and the site's policy doesn't admit, or not any more: it goes on, and isn't put back.
pub fn violations(observation: &Observation) -> impl Iterator<Item = Condition> {
    observation.found.iter().filter_map(|found| {
        let text = format!("`{}` runs, and the site doesn't admit it: {}", found.project, found.violation.as_ref()?);
        Some(condition(ConditionType::PolicyViolated, Reason::NotAdmitted, text))
    })
}

/// Writes `syncer.json` into the tree of `status`.
pub fn write(
    next: &mut DeviceState,
    instance: Uuid,
    conditions: &[Condition],
    gates: Vec<ClosedGate>,
    site: Option<SeenList>,
) {
    let mut conditions = conditions.to_vec();
    sort_few(&mut conditions, Ord::cmp);
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
        gates,
        site,
    };
    log_new(report.conditions.iter(), next);
    next.status.insert(SYNCER.to_owned(), json::to_bytes(&report));
}

/// Says what wasn't so before, once.
fn log_new<'a>(conditions: impl Iterator<Item = &'a Condition>, before: &DeviceState) {
    let before = all(&before.status);
    for Condition { kind, reason, message } in conditions.filter(|one| !before.contains(one)) {
        if *kind == ConditionType::SecurityEvent || *kind == ConditionType::Stalled {
            tracing::error!(kind, reason, security_event = *kind == ConditionType::SecurityEvent, "{message}");
        } else {
            tracing::warn!(kind, reason, "{message}");
        }
    }
}

#[cfg(test)]
mod tests {
    use repo_model::ErrorCode;

    use super::*;

    /// Every reason that the syncer gives besides the error codes.
    const REASONS: &[(ConditionType, &[&str])] = &[
        (ConditionType::Stalled, &["FetchFailed", "AcceptedLost"]),
        (ConditionType::Waiting, &["NotEnrolled", "NotListed"]),
        (ConditionType::Stale, &["Expired", "ProofRefused"]),
        (ConditionType::AncestryUnverified, &["ShallowHistory"]),
        (ConditionType::RuntimeUnavailable, &["RuntimeUnavailable", "ProjectUnreadable"]),
        (ConditionType::CapabilitiesInvalid, &["LeftOut"]),
        (ConditionType::HookFailed, &["NoAnswer", "NotTold"]),
        (ConditionType::PolicyViolated, &["NotAdmitted"]),
        (ConditionType::CloneDamaged, &["SetAside"]),
        (ConditionType::SandboxUnavailable, &["NoLandlockAndNotRoot"]),
        (
            ConditionType::SecurityEvent,
            &["HistoryContinued", "HistoryAccepted", "HistoryForked", "StatusReplaced", "FloorLost"],
        ),
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
        let all = [
            condition(ConditionType::Stale, Reason::Expired, "x"),
            condition(ConditionType::SecurityEvent, ErrorCode::HistoryForked, "y"),
        ];
        write(&mut device_state, Uuid::nil(), &all, Vec::new(), None);
        assert_eq!(
            events(&device_state.status),
            [condition(ConditionType::SecurityEvent, ErrorCode::HistoryForked, "y")]
        );
        assert_eq!(report(&device_state.status).unwrap().conditions.len(), 2);
    }

    #[test]
    fn the_order_in_which_they_were_found_means_nothing() {
        let (a, b) = (
            condition(ConditionType::Stale, Reason::Expired, "x"),
            condition(ConditionType::SecurityEvent, ErrorCode::HistoryForked, "y"),
        );
        let bytes = |all: &[Condition]| {
            let mut device_state = DeviceState::default();
            write(&mut device_state, Uuid::nil(), all, Vec::new(), None);
            device_state.status
        };
        assert_eq!(bytes(&[a.clone(), b.clone(), a.clone()]), bytes(&[b, a]));
    }
}
