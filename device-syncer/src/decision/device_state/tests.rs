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

#[test]
fn what_the_fleet_says_anew_has_tried_again_what_it_may_make_possible_and_nothing_else() {
    let said = |text: &str| [("registries".to_owned(), serde_json::json!(text))].into_iter();
    for (code, is_tried) in [
        (ErrorCode::PolicyDenied, true),
        (ErrorCode::ArtifactDigestChanged, true),
        (ErrorCode::ArtifactInvalid, false),
        (ErrorCode::ComposeFailed, false),
    ] {
        let mut device_state = device_state();
        device_state.note_policy_of_fleet(said("a"));
        device_state.failed_inputs.values_mut().for_each(|one| one.failure = Failure::new(code, "no"));
        let before = device_state.failed_inputs.len();
        device_state.note_policy_of_fleet(said("a"));
        assert_eq!(device_state.failed_inputs.len(), before, "{code}");
        device_state.note_policy_of_fleet(said("b"));
        assert_eq!(device_state.failed_inputs.is_empty(), is_tried, "{code}");
    }
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

/// A device state in which these deployments were applied, each a component `x`, and are on trial during the first boot.
fn on_trial(names: &[&str], kind: ProfileType) -> DeviceState {
    let mut state = DeviceState::default();
    for name in names {
        let one = wanted(name, &[("x", "1")]);
        let (project, name) = (project(name, "x"), component("x"));
        let mut attempt = Attempt::new(input_digest(one.name.as_str(), "x", "1"));
        attempt.begin("0");
        state.attempts.insert(project.clone(), attempt);
        state.try_out(&one, one.components[0].input.as_ref().unwrap(), Some("0"));
        let input_digest = Some(input_digest(one.name.as_str(), "x", "1"));
        state.note(&one, AppliedComponent { name, project, kind, input_digest });
    }
    state
}

/// The device goes down so often, each time while a syncer watches; then these are taken down, given up, or neither.
fn goes_down(state: &mut DeviceState, boots: std::ops::RangeInclusive<u32>, name: &str) -> (bool, Option<String>) {
    for boot in boots {
        // Each boot is seen by more than one syncer.
        for _ in 0..2 {
            state.blame(&boot.to_string());
            state.watch(&boot.to_string());
        }
    }
    let one = wanted(name, &[("x", "1")]);
    let input = one.components[0].input.as_ref().unwrap();
    let (why, given_up) = (state.why_taken_down(input), state.takes_down(input).map(|failure| failure.code));
    (why.is_some_and(|why| why.code == ErrorCode::Queued), given_up)
}

#[test]
fn what_is_on_trial_is_given_up_when_the_device_goes_down_with_it_alone_for_the_third_time() {
    let given_up = || Some(ErrorCode::CrashLoop.as_str().to_owned());
    let mut state = on_trial(&["a"], ProfileType::Compose);
    assert_eq!(goes_down(&mut state, 0..=2, "a"), (false, None));
    assert_eq!(DeviceState::of_tree(&state.to_tree()).unwrap(), state);
    assert_eq!(goes_down(&mut state, 3..=3, "a"), (false, given_up()));

    let mut switched_off = on_trial(&["a"], ProfileType::Compose);
    for boot in 1..=9 {
        switched_off.unwatch();
        assert_eq!(goes_down(&mut switched_off, boot..=boot, "a"), (false, None), "its syncer ended before");
    }
    // What is being applied is judged first, and what was applied before it of the same deployment isn't.
    let mut state = on_trial(&["a"], ProfileType::Compose);
    let of_y = |input_digest| {
        let (name, project, kind) = (component("y"), project("a", "y"), ProfileType::Compose);
        AppliedComponent { name, project, kind, input_digest }
    };
    state.note(&wanted("a", &[("x", "1"), ("y", "1")]), of_y(None));
    for boot in 0..9 {
        let attempts = &mut state.attempts;
        attempts.entry(project("a", "y")).or_insert(Attempt::new(Digest::of(b"y"))).begin(&boot.to_string());
        assert_eq!(goes_down(&mut state, boot + 1..=boot + 1, "a"), (false, None));
    }
    assert_eq!(state.attempts[&project("a", "y")].lost, 9);
}

#[test]
fn of_several_on_trial_each_is_taken_down_at_the_third_time_and_none_is_blamed_but_charts_stay() {
    let mut state = on_trial(&["a", "b"], ProfileType::Compose);
    assert_eq!(goes_down(&mut state, 0..=2, "a"), (false, None));
    for name in ["a", "b"] {
        assert_eq!(goes_down(&mut state, 3..=3, name), (true, None));
    }
    let mut charts = on_trial(&["a", "b"], ProfileType::Helm);
    assert_eq!(goes_down(&mut charts, 0..=9, "a"), (false, None), "to remove a release may take its data along");
    // One of them is on trial and the other is being applied.
    let mut state = on_trial(&["a", "b"], ProfileType::Compose);
    state.attempts.get_mut(&project("b", "x")).unwrap().on_trial = false;
    assert_eq!(goes_down(&mut state, 1..=1, "a"), (false, None));
    let found: Vec<_> =
        ["a", "b"].map(|name| &state.attempts[&project(name, "x")]).map(|one| (one.lost, one.suspect)).into();
    assert_eq!(found, [(0, false), (0, true)], "the other begins again when this one isn't on trial any more");
    assert!(state.is_tried_beside(&wanted("b", &[])) && !state.is_tried_beside(&wanted("a", &[("x", "1")])));
}

#[test]
fn on_trial_is_what_was_just_applied_while_somebody_watches_and_not_what_ran_well_before() {
    let one = wanted("a", &[("x", "1")]);
    let input = one.components[0].input.as_ref().unwrap();
    let tried = |wanted: &DesiredDeployment, watched: Option<&str>, before: &dyn Fn(&mut DeviceState)| {
        let mut state = DeviceState::default();
        state.attempts.insert(project("a", "x"), Attempt { lost: 2, ..Attempt::new(input.input_digest) });
        before(&mut state);
        state.try_out(wanted, input, watched);
        state.attempts.get(&project("a", "x")).map(|one| (one.on_trial, one.open, one.lost))
    };
    let nothing = |_: &mut DeviceState| {};
    assert_eq!(tried(&one, Some("boot"), &nothing), Some((true, 1, 2)), "boots that it was lost in count on");
    assert_eq!(tried(&one, None, &nothing), None, "nobody watches");
    let back = Failure::new(ErrorCode::RolledBack, "put back");
    assert_eq!(tried(&DesiredDeployment { rolled_back: Some(back), ..one.clone() }, Some("boot"), &nothing), None);
    let ran = |state: &mut DeviceState| {
        let (name, kind, input_digest) = (component("x"), ProfileType::Compose, Some(input.input_digest));
        state.note(&one, AppliedComponent { name, project: project("a", "x"), kind, input_digest });
    };
    assert_eq!(tried(&one, Some("boot"), &ran), None, "it was only put back");
    let on_trial = |state: &mut DeviceState| {
        ran(state);
        state.attempts.get_mut(&project("a", "x")).unwrap().on_trial = true;
    };
    assert_eq!(tried(&one, None, &on_trial), Some((true, 0, 2)), "and stays on trial if it was");
    assert_eq!(tried(&one, Some("boot"), &|state| state.attempts.clear()), None, "nothing was done");
}
