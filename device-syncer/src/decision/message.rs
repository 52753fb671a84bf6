//! What a `status` commit says: a subject that names what is new, and the trailers.

use repo_model::message::Message;
use repo_model::report::Condition;
use repo_model::{Branch, DeviceId, FleetId, IntoSet, Trailer};

use crate::decision::conditions;
use crate::decision::device_state::DeviceState;
use crate::decision::status::Report;

/// Who speaks: the trailers `Fleet` and `Device` of each commit.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The fleet's id, from the join file.
    pub fleet: FleetId,
    /// The device's id in that fleet.
    pub device: DeviceId,
}

/// The message of the `status` commit that leads from `before` to `next` (`repo-layouts/README.md`, *Branch `status`*).
pub fn message(next: &DeviceState, before: &DeviceState, identity: &Identity) -> Message {
    let (report, old) = (Report::read(&next.status), Report::read(&before.status));
    let transitions = report.transitions(&old);
    let components = transitions.iter().filter(|one| !one.summary.starts_with('*')).map(|one| one.summary.clone());
    let changed: Vec<_> = components.chain(report.reasons(&old)).chain(of_conditions(next, before)).collect();
    let serial = next.accepted.as_ref().map_or(0, |accepted| accepted.serial);
    let subject = match changed.as_slice() {
        [] if is_adoption(next, before) => format!("adopted (serial {serial})"),
        [] => format!("report (serial {serial})"),
        [one] => format!("{one} (serial {serial})"),
        [one, rest @ ..] => format!("{one}, {} more (serial {serial})", rest.len()),
    };
    let mut message = Message::new(subject)
        .identity(Branch::Status, identity.fleet, &identity.device)
        .trailer(Trailer::Serial, serial);
    if let Some(accepted) = &next.accepted {
        message = message.trailer(Trailer::DesiredCommit, &accepted.commit);
    }
    transitions.iter().fold(message, |message, one| message.trailer(Trailer::State, &one.trailer))
}

/// The serial that the message of a `status` commit gives; 0 before the first adoption, or where it gives none.
pub fn serial(message: &str) -> u64 {
    Message::parse(message).number(Trailer::Serial).unwrap_or(0)
}

/// The transitions that it names.
pub fn states(message: &str) -> Vec<String> {
    Message::parse(message).all(Trailer::State).map(str::to_owned).collect()
}

/// The message with the transitions of commits before it that were never reported, in front of its own.
pub fn carrying(message: String, before: &[String]) -> String {
    if before.is_empty() {
        return message;
    }
    let read = Message::parse(&message);
    let (own, others): (Vec<_>, Vec<_>) = read.trailers().iter().partition(|(key, _)| Trailer::State == key.as_str());
    let states = before.iter().chain(own.into_iter().map(|(_, state)| state));
    let all = others.into_iter().map(|(key, value)| (key.as_str(), value));
    let all = all.chain(states.map(|state| (Trailer::State.as_str(), state)));
    all.fold(Message::new(read.subject()), |message, (key, value)| message.trailer(key, value)).to_string()
}

/// The message of a commit that says again what one said with this message, and reports nothing new.
pub fn beginning(of: &str) -> String {
    let of = Message::parse(of);
    let begins = Message::new(format!("epoch begins (serial {})", of.number(Trailer::Serial).unwrap_or(0)));
    let about = of.trailers().iter().filter(|(key, _)| Trailer::State != key.as_str());
    about.fold(begins, |message, (key, value)| message.trailer(key, value)).to_string()
}

fn is_adoption(next: &DeviceState, before: &DeviceState) -> bool {
    let adopted =
        |device_state: &DeviceState| conditions::report(&device_state.status).and_then(|report| report.adopted);
    adopted(next).is_some_and(|now| adopted(before) != Some(now))
}

/// `Type: reason` of each condition that is new or says something new, `Type cleared` of each type that is gone. Their
/// messages aren't in the subject: they may quote what a stranger wrote.
fn of_conditions(next: &DeviceState, before: &DeviceState) -> Vec<String> {
    let (now, old) = (conditions::all(&next.status), conditions::all(&before.status));
    let new = now.iter().filter(|one| !old.contains(one)).map(|one| format!("{}: {}", one.kind, one.reason));
    let kinds = |all: &[Condition]| all.iter().map(|one| one.kind.clone()).into_set();
    let gone = kinds(&old).difference(&kinds(&now)).map(|kind| format!("{kind} cleared")).collect::<Vec<_>>();
    new.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use repo_model::Digest;
    use repo_model::margo::State;
    use uuid::Uuid;

    use super::*;
    use crate::decision::conditions::condition;
    use crate::decision::device_state::Accepted;
    use crate::decision::failure::Failure;
    use crate::testing::{component, fleet, id};

    fn device_state(
        conditions: &[(&str, &str, &str)],
        state: Option<(State, Option<&str>)>,
        serial: u64,
    ) -> DeviceState {
        let accepted = (serial > 0).then(|| Accepted {
            commit: "0".repeat(40),
            serial,
            manifest_version: serial,
            envelope: Digest::of(b"e"),
            trust: 1,
            since: jiff::Timestamp::UNIX_EPOCH,
            fresh_until: None,
            fresh_before: None,
            unverified: false,
        });
        let mut device_state = DeviceState { accepted, ..DeviceState::default() };
        let all: Vec<_> = conditions.iter().map(|(kind, reason, text)| condition(*kind, *reason, *text)).collect();
        conditions::write(&mut device_state, Uuid::nil(), &all, Vec::new(), None);
        let mut report = Report::default();
        if let Some((state, code)) = state {
            report.set(id("a"), &component("x"), state, code.map(|code| Failure::new(code, "because")));
        }
        report.write(&mut device_state.status, &"press-01".parse().unwrap(), serial);
        device_state
    }

    fn subject(before: &DeviceState, next: &DeviceState) -> String {
        let identity = Identity { fleet: fleet(), device: "press-01".parse().unwrap() };
        message(next, before, &identity).subject().to_owned()
    }

    #[test]
    fn a_commit_that_changes_only_conditions_names_them() {
        let refused = ("Stalled", "SignatureInvalid", "1234: Deployment: not signed");
        for (before, next, expected) in [
            (&[][..], &[refused][..], "Stalled: SignatureInvalid (serial 4)"),
            (&[refused], &[], "Stalled cleared (serial 4)"),
            (&[("Stale", "Expired", "x")], &[], "Stale cleared (serial 4)"),
            (&[("Stalled", "TrustInvalid", "x")], &[refused], "Stalled: SignatureInvalid (serial 4)"),
            (&[("Stalled", "SignatureInvalid", "other words")], &[refused], "Stalled: SignatureInvalid (serial 4)"),
            (&[("Stale", "Expired", "x")], &[refused], "Stalled: SignatureInvalid, 1 more (serial 4)"),
            (
                &[("SecurityEvent", "FloorLost", "x")],
                &[("SecurityEvent", "FloorLost", "x"), ("SecurityEvent", "HistoryForked", "y")],
                "SecurityEvent: HistoryForked (serial 4)",
            ),
        ] {
            let running = Some((State::Installed, None));
            assert_eq!(subject(&device_state(before, running, 4), &device_state(next, running, 4)), expected);
        }
    }

    #[test]
    fn states_come_before_reasons_and_those_before_conditions() {
        let refused = [("Stalled", "WrongDevice", "x")];
        let state = |state, code| device_state(&[], Some((state, code)), 4);
        let (queued, running) = (state(State::Pending, Some("queued")), state(State::Installed, None));
        assert_eq!(subject(&queued, &running), "x installed (serial 4)");
        let next = device_state(&refused, Some((State::Installed, None)), 4);
        assert_eq!(subject(&queued, &next), "x installed, 1 more (serial 4)");
        let waiting = state(State::Pending, Some("artifact-unavailable"));
        assert_eq!(subject(&queued, &waiting), "x pending artifact-unavailable (serial 4)");
        assert_eq!(subject(&running, &device_state(&[], Some((State::Installed, None)), 5)), "adopted (serial 5)");
        assert_eq!(subject(&DeviceState::default(), &device_state(&[], None, 0)), "report (serial 0)");
    }
}
