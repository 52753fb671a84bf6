use std::collections::BTreeSet;

use super::*;
use crate::decision::device_state::AppliedComponent;
use crate::decision::hold::Hold;
use crate::decision::hook::{HookChange, HookGate};
use crate::decision::observation::{Condition, Observed};
use crate::decision::plan::{Action, Plan};
use crate::testing::{component, input_digest, observed, project, wanted};

fn asked(number: u64) -> RestartsAsked {
    RestartsAsked { number, here: None }
}

fn started(container: &str, at: &str, runs: bool) -> Started {
    Started { container: container.to_owned(), at: at.to_owned(), runs }
}

/// What the device has of `x` of `a`, of which the fleet wants restart `number`.
fn applied(number: u64) -> (DeviceState, DesiredDeployment) {
    let one = DesiredDeployment { restarts: asked(number), ..wanted("a", &[("x", "1")]) };
    let mut state = DeviceState::default();
    for input_digest in [None, Some(input_digest("a", "x", "1"))] {
        let (name, kind) = (component("x"), ProfileType::Compose);
        state.note(&one, AppliedComponent { name, project: project("a", "x"), kind, input_digest });
    }
    (state, one)
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn action(state: &DeviceState, one: &DesiredDeployment, gates: &Gates) -> Action {
    action_of(state, one, gates, Condition::Running)
}

fn action_of(state: &DeviceState, one: &DesiredDeployment, gates: &Gates, condition: Condition) -> Action {
    let found: [Observed; 1] = [observed("a", "x", Some(input_digest("a", "x", "1")), condition)];
    let all = std::slice::from_ref(one);
    Plan::make(Some(all), state, &found, &BTreeSet::new(), gates).deployments[0].components[0].action.clone()
}

fn cause(action: &Action) -> Option<RestartCause> {
    match action {
        Action::Restart { cause, .. } => Some(*cause),
        _ => None,
    }
}

#[test]
fn a_higher_number_restarts_once_and_a_first_install_and_a_lower_number_do_not() {
    let (mut state, one) = applied(3);
    let of = |number| DesiredDeployment { restarts: asked(number), ..one.clone() };
    let project = project("a", "x");
    let open = Gates::default();
    assert!(matches!(action(&state, &of(3), &open), Action::Keep), "it was installed at 3");
    assert!(matches!(action(&state, &of(2), &open), Action::Keep));
    assert_eq!(cause(&action(&state, &of(5), &open)), Some(RestartCause::Fleet(5)));
    let there = [started("db", "t1", true), started("migrate", "t1", false), started("web", "t1", true)];
    assert_eq!(state.begin_restart(&project, RestartCause::Fleet(5), &there), ["db", "web"]);
    assert_eq!(cause(&action(&state, &of(5), &open)), Some(RestartCause::Unfinished));
    state.end_restart(&project);
    assert!(matches!(action(&state, &of(5), &open), Action::Keep), "once");
    assert!(matches!(action(&state, &of(4), &open), Action::Keep));

    // Before it was known, a device had done none.
    let (state, one) = applied(0);
    let first = DesiredDeployment { restarts: asked(1), ..one };
    assert_eq!(cause(&action(&state, &first, &open)), Some(RestartCause::Fleet(1)));
}

#[test]
fn what_a_crash_cut_off_goes_on_with_those_containers_that_have_not_started_since() {
    let (mut state, one) = applied(0);
    let (one, project) = (DesiredDeployment { restarts: asked(1), ..one }, project("a", "x"));
    let before = [started("db", "t1", true), started("web", "t1", true), started("gone", "t1", true)];
    state.begin_restart(&project, RestartCause::Fleet(1), &before);
    let mut read = DeviceState::of_tree(&state.to_tree()).unwrap();
    assert_eq!(read.restarts, state.restarts, "it is durable");
    // One was done, one is stopped since, one was made anew under another id.
    let after = [started("db", "t2", true), started("web", "t1", false), started("new", "t3", true)];
    assert_eq!(read.begin_restart(&project, RestartCause::Unfinished, &after), ["web"]);
    // What it stopped is no drift, also where drift is only told.
    let stopped = || Condition::Stopped("exited with 143".to_owned());
    let strict = Gates { drift: repo_model::envelope::DriftPolicy::Report, ..Gates::default() };
    assert!(matches!(action_of(&read, &one, &strict, stopped()), Action::Restore { .. }));
    read.end_restart(&project);
    assert!(matches!(action_of(&read, &one, &strict, stopped()), Action::Wait(_)));
    // A newer set makes all of it anew.
    state.note(
        &one,
        AppliedComponent {
            name: component("x"),
            project: project.clone(),
            kind: ProfileType::Compose,
            input_digest: None,
        },
    );
    assert!(!state.is_restarting(&project));
    assert_eq!(state.restarts[&project].number, 1);
    state.forget(&project);
    assert_eq!(state.restarts, BTreeMap::new());
}

#[test]
fn a_number_is_done_at_the_end_of_its_restart_or_of_what_makes_it_needless() {
    let digest = || Some(input_digest("a", "x", "1"));
    let note = |state: &mut DeviceState, one: &DesiredDeployment, input_digest| {
        let (name, project, kind) = (component("x"), project("a", "x"), ProfileType::Compose);
        state.note(one, AppliedComponent { name, project, kind, input_digest });
    };
    let (project, there) = (project("a", "x"), [started("db", "t1", true)]);
    let done = |state: &DeviceState| state.restarts[&project].done;
    let one = DesiredDeployment { restarts: asked(3), ..wanted("a", &[("x", "1")]) };
    let mut state = DeviceState::default();
    note(&mut state, &one, None);
    assert_eq!(done(&state), 0, "it is being installed");
    note(&mut state, &one, digest());
    assert_eq!(done(&state), 3, "it was installed with it");
    state.begin_restart(&project, RestartCause::Fleet(5), &there);
    note(&mut state, &one, digest());
    assert_eq!(done(&state), 3, "what is put back meanwhile ends no restart");
    let mut cut = DeviceState::of_tree(&state.to_tree()).unwrap();
    assert_eq!(done(&cut), 3, "nor does a crash");
    state.end_restart(&project);
    note(&mut state, &one, digest());
    assert_eq!(done(&state), 5);
    state.begin_restart(&project, RestartCause::Person(at("2026-11-25T05:00:00Z")), &there);
    assert_eq!(done(&state), 5, "a person's has no number");
    // A newer set comes in the place of the one that was cut off.
    note(&mut cut, &one, None);
    assert_eq!((done(&cut), cut.is_restarting(&project)), (3, false), "until that runs");
    note(&mut cut, &one, digest());
    assert_eq!(done(&cut), 5);
    cut.forget(&project);
    note(&mut cut, &DesiredDeployment { restarts: asked(2), ..one }, digest());
    assert_eq!(done(&cut), 2, "what is installed anew begins anew");
}

#[test]
fn the_fleets_restart_waits_for_gates_and_what_began_only_for_holds() {
    let (mut state, one) = applied(0);
    let one = DesiredDeployment { restarts: asked(2), ..one };
    let suspended = Gates { is_suspended: true, ..Gates::default() };
    let Action::Wait(why) = action(&state, &one, &suspended) else { panic!("it waits for nothing") };
    assert_eq!(why.code, "suspended");
    assert_eq!(why.message, "restart 2 of the fleet: the operator suspended this device");
    let openings =
        crate::decision::windows::Openings { apply: repo_model::windows::Opening::NeverOpens, ..Default::default() };
    let outside = Gates { openings, ..Gates::default() };
    assert!(matches!(action(&state, &one, &outside), Action::Wait(why) if why.code == "waiting-window"));
    state.begin_restart(&project("a", "x"), RestartCause::Fleet(2), &[started("db", "t1", true)]);
    assert_eq!(cause(&action(&state, &one, &outside)), Some(RestartCause::Unfinished));
    let held = Gates { holds: vec![hold()], ..Gates::default() };
    assert!(matches!(action(&state, &one, &held), Action::Wait(why) if why.code == "held"));
}

fn hold() -> Hold {
    Hold::File { file: "/run/busy".to_owned(), why: "line 2".to_owned() }
}

#[test]
fn what_a_person_asks_for_waits_for_nothing_and_is_refused_while_the_site_holds_it() {
    let (mut state, one) = applied(0);
    let now = at("2026-11-25T05:00:00Z");
    let requests = BTreeMap::from([(one.name.clone(), now)]);
    let closed = Gates { is_suspended: true, ..Gates::default() };
    let let_in = |state: &DeviceState, gates: &Gates, now| {
        let mut all = [one.clone()];
        let over = ask(&requests, &mut all, state, gates, now);
        let [one] = all;
        (over.into_iter().next().map(|over| over.refused), one)
    };
    let (over, wanted) = let_in(&state, &closed, now);
    assert_eq!((over, cause(&action(&state, &wanted, &closed))), (None, Some(RestartCause::Person(now))));
    let held = Gates { holds: vec![hold()], ..Gates::default() };
    let (over, wanted) = let_in(&state, &held, now);
    assert!(over.flatten().unwrap().contains("release"), "{over:?}");
    assert!(matches!(action(&state, &wanted, &held), Action::Keep));
    let later = now + SignedDuration::from_mins(16);
    assert!(let_in(&state, &closed, later).0.flatten().unwrap().contains("15 minutes"));
    state.begin_restart(&project("a", "x"), RestartCause::Person(now), &[started("db", "t1", true)]);
    assert_eq!(let_in(&state, &closed, now).0, None, "it isn't at its end");
    state.end_restart(&project("a", "x"));
    assert_eq!(let_in(&state, &closed, now).0, Some(None), "the same request once");
    let stranger = BTreeMap::from([("b".parse().unwrap(), now)]);
    assert!(ask(&stranger, &mut [one.clone()], &state, &closed, now)[0].refused.unwrap().contains("no deployment"));
}

#[test]
fn nothing_is_restarted_while_something_else_of_it_is_to_be_done() {
    let (state, _) = applied(0);
    let one = DesiredDeployment { restarts: asked(1), ..wanted("a", &[("x", "1"), ("y", "1")]) };
    assert!(matches!(action(&state, &one, &Gates::default()), Action::Keep), "y is to be installed first");
}

#[test]
fn the_sites_hook_has_the_last_word_on_the_fleets_restart_and_none_on_a_persons() {
    let (mut state, one) = applied(0);
    let gates = Gates { hook: Some(HookGate::default()), ..Gates::default() };
    let asks = |state: &DeviceState, restarts: RestartsAsked| {
        let one = DesiredDeployment { restarts, ..one.clone() };
        let found = [observed("a", "x", Some(input_digest("a", "x", "1")), Condition::Running)];
        let plan = Plan::make(Some(std::slice::from_ref(&one)), state, &found, &BTreeSet::new(), &gates);
        assert!(matches!(plan.deployments[0].components[0].action, Action::Restart { .. }));
        plan.asks.get(&one.id).copied()
    };
    assert_eq!(asks(&state, asked(1)), Some(HookChange::Restart));
    let here = RestartsAsked { number: 0, here: Some(at("2026-11-25T05:00:00Z")) };
    assert_eq!(asks(&state, here), None);
    state.begin_restart(&project("a", "x"), RestartCause::Fleet(1), &[started("db", "t1", true)]);
    assert_eq!(asks(&state, asked(1)), None, "it let it begin");
}
