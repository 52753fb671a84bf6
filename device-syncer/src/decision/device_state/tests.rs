use repo_model::ErrorCode;

use super::*;
use crate::testing::{component, input_digest, project, wanted};

fn device_state() -> DeviceState {
    let mut device_state = DeviceState {
        accepted: Some(Accepted {
            commit: "0".repeat(40),
            serial: 7,
            manifest_version: 6,
            envelope: Digest::of(b"e"),
            trust: 1,
            since: "2026-01-01T00:00:00Z".parse().unwrap(),
            fresh_until: Some("2026-01-02T00:00:00Z".parse().unwrap()),
            fresh_before: None,
            unverified: true,
        }),
        roster: b"{}".to_vec(),
        waiting: Some(crate::decision::conditions::condition("Waiting", "NotListed", "because")),
        ..DeviceState::default()
    };
    for (name, version) in [("x", Some("1")), ("y", None)] {
        let input_digest = version.map(|version| input_digest("a", name, version));
        let applied = AppliedComponent {
            name: component(name),
            project: format!("{name}-1"),
            kind: ProfileType::Compose,
            input_digest,
        };
        device_state.note(&wanted("a", &[(name, "1")]), applied);
    }
    let mut attempt = Attempt::new(input_digest("a", "y", "1"));
    attempt.begin("boot");
    device_state.attempts.insert(project("a", "y"), attempt);
    let failure = Failure::new(ErrorCode::ComposeFailed, "no");
    device_state
        .failed_inputs
        .insert(project("a", "z"), FailedInput { input_digest: input_digest("a", "z", "1"), failure });
    device_state
}

#[test]
fn what_is_written_is_read() {
    for device_state in [DeviceState::default(), device_state()] {
        assert_eq!(DeviceState::of_tree(&device_state.to_tree()).unwrap(), device_state);
    }
}

#[test]
fn a_state_is_stale_unless_a_proof_of_it_or_of_the_one_before_still_holds() {
    let day = "2026-01-02T00:00:00Z";
    for (fresh_until, fresh_before, now, stale) in [
        (Some(day), None, "2026-01-02T00:00:00Z", false),
        (Some(day), None, "2026-01-02T00:00:01Z", true),
        (Some("2026-02-02T12:00:00Z"), None, "2026-02-01T00:00:00Z", false),
        (Some("9999-01-01T00:00:00Z"), None, "2026-02-01T00:00:00Z", true),
        (None, None, "2026-01-01T00:00:01Z", true),
        (None, Some(day), "2026-01-02T00:00:00Z", false),
        (None, Some(day), "2026-01-02T00:00:01Z", true),
        (Some(day), Some("2026-01-03T00:00:00Z"), "2026-01-02T00:00:01Z", true),
    ] {
        let mut accepted = device_state().accepted.unwrap();
        accepted.fresh_until = fresh_until.map(|text| text.parse().unwrap());
        accepted.fresh_before = fresh_before.map(|text| text.parse().unwrap());
        let words = format!("{fresh_until:?} {fresh_before:?} {now}");
        assert_eq!(accepted.is_stale(now.parse().unwrap()), stale, "{words}");
    }
}

#[test]
fn a_damaged_file_is_named() {
    for (path, bytes) in
        [("accepted.json", "{}"), ("attempt.json", "["), ("bad.json", "1"), ("deployments/x/applied/inputs.json", "{}")]
    {
        let mut tree = device_state().to_tree();
        tree.insert(path.to_owned(), bytes.as_bytes().to_vec());
        let error = DeviceState::of_tree(&tree).unwrap_err().to_string();
        assert!(error.contains(path), "{path} in {error}");
    }
}

#[test]
fn a_component_that_was_removed_is_forgotten_and_its_deployment_with_the_last_one() {
    let mut device_state = device_state();
    assert_eq!(device_state.applied_digest("x-1"), Some(input_digest("a", "x", "1")));
    device_state.forget("x-1");
    assert_eq!(device_state.deployments.values().flat_map(|one| &one.inputs.components).count(), 1);
    device_state.forget("y-1");
    assert!(device_state.deployments.is_empty());
}

#[test]
fn attempts_and_failures_live_as_long_as_their_input_is_wanted() {
    let mut device_state = device_state();
    device_state.keep_only(&[wanted("a", &[("y", "1"), ("z", "1")])]);
    assert_eq!((device_state.attempts.len(), device_state.failed_inputs.len()), (1, 1));
    device_state.keep_only(&[wanted("a", &[("y", "2"), ("z", "2")])]);
    assert_eq!((device_state.attempts.len(), device_state.failed_inputs.len()), (0, 0));
}

/// What is counted against the attempts at `a` and `b`: boots lost, and whether each is a suspect.
fn blamed(open: &[&str], boots: &[&str]) -> Vec<(u32, bool)> {
    let mut state = DeviceState::default();
    for project in ["a", "b"] {
        state.attempts.insert(project.to_owned(), Attempt::new(Digest::of(b"x")));
    }
    for boot in boots {
        state.blame(boot);
        for project in open {
            state.attempts.get_mut(*project).unwrap().begin(boot);
        }
    }
    state.blame("last");
    state.blame("last");
    state.attempts.values().map(|attempt| (attempt.lost, attempt.suspect)).collect()
}

#[test]
fn what_was_open_alone_when_the_device_went_down_is_blamed_and_what_was_not_alone_is_a_suspect() {
    assert_eq!(blamed(&[], &["one", "two"]), [(0, false), (0, false)]);
    assert_eq!(blamed(&["a"], &["one", "two", "three"]), [(3, false), (0, false)]);
    assert_eq!(blamed(&["a", "b"], &["one", "two", "three"]), [(0, true), (0, true)]);
    assert_eq!(blamed(&["a"], &["last"]), [(0, false), (0, false)], "the syncer was killed, and not the device");
}

#[test]
fn a_suspect_that_is_open_alone_when_the_device_goes_down_again_is_blamed() {
    let mut state = DeviceState::default();
    for project in ["a", "b"] {
        state.attempts.entry(project.to_owned()).or_insert(Attempt::new(Digest::of(b"x"))).begin("one");
    }
    state.blame("two");
    state.attempts.get_mut("a").unwrap().begin("two");
    state.blame("three");
    let found: Vec<_> = state.attempts.values().map(|attempt| (attempt.lost, attempt.suspect)).collect();
    assert_eq!(found, [(1, true), (0, true)]);
}
