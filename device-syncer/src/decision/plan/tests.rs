use super::*;
use crate::decision::device_state::{AppliedComponent, Attempt, FailedInput};
use crate::decision::windows::Openings;
use crate::testing::{any_wanted, component, id, input_digest, observed, project, wanted};
use proptest::prelude::*;
use repo_model::windows::{Opening, Overrun};

fn make(wanted: Option<&[DesiredDeployment]>, device_state: &DeviceState, observed: &[Observed]) -> Plan {
    make_with(wanted, device_state, observed, &Gates::default())
}

fn make_with(
    wanted: Option<&[DesiredDeployment]>,
    device_state: &DeviceState,
    observed: &[Observed],
    gates: &Gates,
) -> Plan {
    Plan::make(wanted, device_state, observed, &BTreeSet::new(), gates)
}

fn all_suspended() -> Gates {
    Gates { is_suspended: true, ..Gates::default() }
}

fn held(all: &[HeldRemoval]) -> Vec<String> {
    all.iter().map(|one| format!("{} {}", one.removal.project, one.why.code)).collect()
}

/// A device state in which these components were applied in these versions; one without is under way.
fn applied(all: &[(&str, &str, Option<&str>)]) -> DeviceState {
    let mut device_state = DeviceState::default();
    for (deployment, name, version) in all {
        let input_digest = version.map(|version| input_digest(deployment, name, version));
        let (name, project) = (component(name), project(deployment, name));
        device_state.note(
            &wanted(deployment, &[]),
            AppliedComponent { name, project, kind: ProfileType::Compose, input_digest },
        );
    }
    device_state
}

fn failed(version: &str) -> FailedInput {
    FailedInput { input_digest: input_digest("a", "x", version), failure: Failure::new(ErrorCode::ComposeFailed, "no") }
}

fn action(device_state: &DeviceState, observed: &[Observed], want: &str) -> String {
    action_of(&make(Some(&[wanted("a", &[("x", want)])]), device_state, observed))
}

#[test]
fn what_the_site_does_not_admit_any_more_runs_on_and_is_not_put_back() {
    let once = applied(&[("a", "x", Some("1"))]);
    let stopped = || Condition::Stopped("exited".to_owned());
    let run = |digest: Option<&str>, condition: Condition| {
        let found = observed("a", "x", digest.map(|version| input_digest("a", "x", version)), condition);
        vec![Observed { violation: Some("privileged".to_owned()), ..found }]
    };
    for (condition, expected) in [
        (Condition::Running, "keep"),
        (Condition::Degraded("unhealthy".to_owned()), "keep"),
        (stopped(), "policy-denied"),
        (Condition::Missing, "policy-denied"),
        (Condition::Edited("image".to_owned()), "policy-denied"),
    ] {
        assert_eq!(action(&once, &run(Some("1"), condition.clone()), "1"), expected, "{condition:?}");
    }
    assert_eq!(action(&once, &run(Some("1"), stopped()), "2"), "Changed", "another input is judged by itself");
    assert_eq!(
        action(&once, &run(None, stopped()), "1"),
        "HalfMade",
        "what isn't complete is judged when it is applied"
    );
}

#[test]
fn what_was_found_to_break_the_policy_once_it_was_applied_stays_failed() {
    let failure = Failure::new(ErrorCode::PolicyDenied, "it became something else");
    let mut state = applied(&[("a", "x", Some("1"))]);
    let bad = FailedInput { input_digest: input_digest("a", "x", "1"), failure };
    state.failed_inputs.insert(project("a", "x"), bad);
    for condition in [Condition::Running, Condition::Missing] {
        let found = vec![observed("a", "x", Some(input_digest("a", "x", "1")), condition)];
        assert_eq!(action(&state, &found, "1"), "policy-denied");
        assert_eq!(action(&state, &found, "2"), "Changed");
    }
}

#[test]
fn what_the_device_goes_down_with_is_applied_no_more_and_what_was_given_up_for_that_stays_failed() {
    let digest = input_digest("a", "x", "1");
    let attempt = Attempt { lost: 3, on_trial: true, ..Attempt::new(digest) };
    let mut state = applied(&[("a", "x", Some("1"))]);
    state.attempts.insert(project("a", "x"), attempt.clone());
    let runs = [observed("a", "x", Some(digest), Condition::Running)];
    assert_eq!(action(&state, &runs, "1"), "take down: crash-loop");
    assert_eq!(action(&state, &[], "1"), "take down: crash-loop", "its removal wasn't noted any more");
    assert_eq!(action(&state, &runs, "2"), "Changed", "another input is judged by itself");
    state.attempts.insert(project("a", "x"), Attempt { lost: 2, ..attempt.clone() });
    assert_eq!(action(&state, &runs, "1"), "keep");
    state.attempts.insert(project("a", "x"), Attempt { lost: 2, suspect: true, ..attempt });
    assert_eq!(action(&state, &runs, "1"), "take down: queued");
    state.attempts.clear();
    let failure = Failure::new(ErrorCode::CrashLoop, "the device went down");
    state.failed_inputs.insert(project("a", "x"), FailedInput { input_digest: digest, failure });
    assert_eq!(action(&state, &runs, "1"), "crash-loop", "a release isn't removed");
}

#[test]
fn what_was_applied_and_stopped_is_put_back_before_another_input_whatever_that_waits_for() {
    let once = applied(&[("a", "x", Some("1"))]);
    let found = |version, condition| vec![observed("a", "x", Some(input_digest("a", "x", version)), condition)];
    let stopped = || found("1", Condition::Stopped("exited".to_owned()));
    let closed = Openings { apply: Opening::NeverOpens, ..Openings::default() };
    let gates = |drift| Gates { openings: closed.clone(), drift, ..Gates::default() };
    let of = |state: &DeviceState, found: &[Observed], wanted: &[DesiredDeployment], gates: &Gates| {
        let plan = make_with(Some(wanted), state, found, gates);
        let put_back: Vec<_> = plan.put_back().map(|one| (one.reason.clone(), one.input.input_digest)).collect();
        assert!(put_back.is_empty() || !plan.is_in_sync());
        assert!(put_back.iter().all(|(_, digest)| *digest == input_digest("a", "x", "1")));
        put_back.into_iter().map(|(reason, _)| reason).collect::<Vec<_>>()
    };
    let newer = [wanted("a", &[("x", "2")])];
    let exited = vec!["exited".to_owned()];
    let heal = gates(DriftPolicy::Heal);
    assert_eq!(of(&once, &stopped(), &newer, &heal), exited);
    assert_eq!(of(&once, &stopped(), &[], &heal), exited, "what would go stays meanwhile");
    assert_eq!(of(&once, &stopped(), &newer, &Gates::default()), exited, "it may have to be fetched");
    assert_eq!(of(&once, &stopped(), &[wanted("a", &[("x", "!capability-missing")])], &heal), exited);
    let nothing = Vec::<String>::new();
    assert_eq!(of(&once, &stopped(), &[], &Gates::default()), nothing, "it goes");
    assert_eq!(of(&once, &stopped(), &[wanted("a", &[("x", "1")])], &heal), nothing, "that is restored");
    assert_eq!(of(&once, &found("1", Condition::Running), &newer, &heal), nothing);
    assert_eq!(of(&once, &found("2", Condition::Missing), &newer, &heal), nothing, "it wasn't applied whole");
    assert_eq!(of(&applied(&[("a", "x", None)]), &stopped(), &newer, &heal), nothing, "another one began");
    assert_eq!(of(&once, &stopped(), &newer, &all_suspended()), nothing);
    let suspended = [DesiredDeployment { suspended: true, ..newer[0].clone() }];
    assert_eq!(of(&once, &stopped(), &suspended, &heal), nothing);
    let denied: Vec<_> =
        stopped().into_iter().map(|one| Observed { violation: Some("privileged".to_owned()), ..one }).collect();
    assert_eq!(of(&once, &denied, &newer, &heal), nothing);
    for drift in [DriftPolicy::Report, DriftPolicy::HealInWindow] {
        assert_eq!(of(&once, &stopped(), &newer, &gates(drift)), nothing);
        let said = [DesiredDeployment { drift, ..newer[0].clone() }];
        assert_eq!(of(&once, &stopped(), &said, &heal), nothing);
        let mut went_down = once.clone();
        went_down.was_whole(&project("a", "x"), "before");
        assert_eq!(of(&went_down, &stopped(), &said, &heal), exited, "it went down with the device");
    }
    let put_back = || Some(Failure::new(ErrorCode::HealthTimeout, "unhealthy"));
    let rolled_back = [DesiredDeployment { rolled_back: put_back(), ..newer[0].clone() }];
    assert_eq!(of(&once, &stopped(), &rolled_back, &heal), nothing, "it failed");
}

fn action_of(plan: &Plan) -> String {
    match &plan.deployments[0].components[0].action {
        Action::Keep => "keep".to_owned(),
        Action::Apply { reason, .. } => format!("{reason:?}"),
        Action::Restore { reason, .. } => format!("restore: {reason}"),
        Action::Restart { cause, .. } => format!("restart: {cause}"),
        Action::TakeDown { why, .. } => format!("take down: {}", why.code),
        Action::Fail(failure) | Action::Wait(failure) => failure.code.clone(),
        Action::Unknown => "unknown".to_owned(),
    }
}

/// The same, which helm runs.
fn by_helm(found: Observed) -> Observed {
    Observed { kind: ProfileType::Helm, ..found }
}

#[test]
fn what_runs_under_another_type_is_replaced_and_an_unwanted_project_goes_from_every_runtime() {
    let digest = || Some(input_digest("a", "x", "1"));
    let running = || observed("a", "x", digest(), Condition::Running);
    let mut device_state = applied(&[("a", "x", Some("1"))]);
    for found in [vec![by_helm(running())], vec![running(), by_helm(running())]] {
        assert_eq!(action(&device_state, &found, "1"), "Retyped");
        let plan = make(Some(&[wanted("a", &[("x", "1")])]), &device_state, &found);
        let Action::Apply { replaces, .. } = plan.deployments[0].components[0].action else { panic!("{plan:?}") };
        assert_eq!((replaces, plan.removals.len()), (Some(ProfileType::Helm), 0));
        let gone = make(Some(&[]), &device_state, &found);
        let kinds: BTreeSet<_> = gone.removals.iter().map(|removal| removal.kind).collect();
        assert_eq!(kinds, [ProfileType::Compose, ProfileType::Helm].into());
    }
    let applied = &mut device_state.deployments.get_mut(&id("a")).unwrap().inputs.components[0];
    applied.kind = ProfileType::Helm;
    assert_eq!(action(&device_state, &[], "1"), "Retyped", "it may have left something");
    device_state.failed_inputs.insert(project("a", "x"), failed("1"));
    assert_eq!(action(&device_state, &[by_helm(running())], "1"), "compose-failed", "what runs stays");
}

#[test]
fn what_belongs_to_a_runtime_that_does_not_answer_is_left_alone() {
    let device_state = applied(&[("a", "x", Some("1")), ("b", "x", Some("1"))]);
    let (unreachable, helm) = (BTreeSet::from([ProfileType::Compose]), observed("c", "x", None, Condition::Running));
    let plan = Plan::make(
        Some(&[wanted("a", &[("x", "2")])]),
        &device_state,
        &[by_helm(helm)],
        &unreachable,
        &Gates::default(),
    );
    assert!(matches!(plan.deployments[0].components[0].action, Action::Unknown));
    let projects = |all: &[Removal]| all.iter().map(|one| one.project.clone()).collect::<Vec<_>>();
    assert_eq!(projects(&plan.removals), [project("c", "x")]);
    assert_eq!(held(&plan.held), [format!("{} runtime-unavailable", project("b", "x"))]);
    assert_eq!(plan.held[0].gate(), None);
}

#[test]
fn every_row_of_the_decision() {
    let digest = |version| Some(input_digest("a", "x", version));
    let run = |version, condition| vec![observed("a", "x", digest(version), condition)];
    let half = |condition| vec![observed("a", "x", None, condition)];
    let degraded = || Condition::Degraded("unhealthy".to_owned());
    let restarting = || Condition::Degraded("restarting after it exited with 1".to_owned());
    let stopped = || Condition::Stopped("exited with 137".to_owned());
    let once = applied(&[("a", "x", Some("1"))]);
    let begun = applied(&[("a", "x", None)]);
    let mut bad = DeviceState::default();
    bad.failed_inputs.insert(project("a", "x"), failed("1"));
    for (given, device_state, found, want, expected) in [
        ("nothing is there", &DeviceState::default(), vec![], "1", "New"),
        ("an apply was begun and left nothing", &begun, vec![], "1", "New"),
        ("it runs", &once, run("1", Condition::Running), "1", "keep"),
        ("it runs, and the device state was lost", &DeviceState::default(), run("1", Condition::Running), "1", "keep"),
        ("it starts", &once, run("1", Condition::Starting), "1", "keep"),
        ("it is unwell", &once, run("1", degraded()), "1", "keep"),
        ("it restarts", &once, run("1", restarting()), "1", "keep"),
        ("another version runs", &once, run("1", Condition::Running), "2", "Changed"),
        ("another version is unwell", &once, run("1", degraded()), "2", "Changed"),
        ("a container of it is gone", &once, run("1", Condition::Missing), "1", "restore: something of it is missing"),
        ("somebody stopped it", &once, run("1", stopped()), "1", "restore: exited with 137"),
        (
            "it stopped, and the device state was lost",
            &DeviceState::default(),
            run("1", stopped()),
            "1",
            "restore: exited with 137",
        ),
        ("another version stopped", &once, run("1", stopped()), "2", "Changed"),
        ("it stopped half made", &begun, half(stopped()), "1", "HalfMade"),
        ("all of it is gone", &once, vec![], "1", "Missing"),
        ("somebody changed it", &once, run("1", Condition::Edited("image".to_owned())), "1", "Edited"),
        ("it is half made", &begun, half(Condition::Running), "1", "HalfMade"),
        (
            "it is half made, and the device state was lost",
            &DeviceState::default(),
            half(Condition::Missing),
            "1",
            "HalfMade",
        ),
        ("it failed before", &bad, vec![], "1", "compose-failed"),
        ("it failed half made", &bad, half(Condition::Running), "1", "compose-failed"),
        ("it failed, and another version is wanted", &bad, half(Condition::Running), "2", "HalfMade"),
        ("it failed, and runs all the same", &bad, run("1", Condition::Running), "1", "keep"),
        ("it failed, and stopped", &bad, run("1", stopped()), "1", "compose-failed"),
        ("it can't run here", &once, run("1", Condition::Running), "!parameter-invalid", "parameter-invalid"),
    ] {
        assert_eq!(action(device_state, &found, want), expected, "{given}");
    }
}

#[test]
fn what_the_device_lacks_something_for_is_not_applied_and_what_runs_of_it_stays_and_is_healed() {
    let unfit = |version: &str, requirements: Requirements| DesiredDeployment {
        requirements,
        ..wanted("a", &[("x", version)])
    };
    let lack = || {
        Requirements::Unmet(Failure::new(
            ErrorCode::CapabilityMissing,
            "it needs 9Gi of memory, and the device has 8Gi",
        ))
    };
    let run = |condition| vec![observed("a", "x", Some(input_digest("a", "x", "1")), condition)];
    let (nothing, once) = (DeviceState::default(), applied(&[("a", "x", Some("1"))]));
    for (given, device_state, found, version, expected) in [
        ("nothing is there", &nothing, vec![], "1", "capability-missing"),
        ("another version runs", &once, run(Condition::Running), "2", "capability-missing"),
        ("another version ran and is gone", &once, vec![], "2", "capability-missing"),
        ("it runs", &once, run(Condition::Running), "1", "keep"),
        ("it ran and is gone", &once, vec![], "1", "Missing"),
        ("a part of it is gone", &nothing, run(Condition::Missing), "1", "restore: something of it is missing"),
    ] {
        let planned = |requirements| action_of(&make(Some(&[unfit(version, requirements)]), device_state, &found));
        assert_eq!(planned(lack()), expected, "{given}");
        let unknown = if expected == "capability-missing" { "runtime-unavailable" } else { expected };
        assert_eq!(planned(Requirements::Unknown), unknown, "{given}");
    }
    let suspended = DesiredDeployment { suspended: true, ..unfit("1", lack()) };
    assert_eq!(action_of(&make(Some(&[suspended]), &nothing, &[])), "suspended");
}

#[test]
fn what_is_not_wanted_goes_in_the_reverse_order_of_its_application() {
    let device_state = applied(&[("b", "x", Some("1")), ("a", "x", Some("1")), ("a", "y", Some("1"))]);
    let stray = observed("c", "x", None, Condition::Running);
    let plan = make(Some(&[]), &device_state, &[stray]);
    let gone: Vec<_> = plan.removals.iter().map(|removal| removal.project.clone()).collect();
    assert_eq!(gone, [project("b", "x"), project("a", "y"), project("a", "x"), project("c", "x")]);
    assert!(!plan.is_in_sync());
}

#[test]
fn a_component_that_left_its_deployment_goes_and_its_neighbour_stays() {
    let device_state = applied(&[("a", "x", Some("1")), ("a", "y", Some("1"))]);
    let running = |name| observed("a", name, Some(input_digest("a", name, "1")), Condition::Running);
    let plan = make(Some(&[wanted("a", &[("y", "1")])]), &device_state, &[running("x"), running("y")]);
    assert_eq!(plan.removals.len(), 1);
    assert_eq!(plan.removals[0].component(), Some((id("a"), &component("x"))));
    assert_eq!(plan.applies().count(), 0);
}

#[test]
fn a_device_that_is_not_listed_puts_back_what_was_applied_and_nothing_else() {
    let device_state = applied(&[("a", "x", Some("1")), ("a", "y", Some("1")), ("b", "x", Some("1"))]);
    let parts = [("x", "1"), ("y", "2"), ("z", "1")];
    let gates = Gates { is_unlisted: true, ..Gates::default() };
    let plan = make_with(Some(&[wanted("a", &parts)]), &device_state, &[], &gates);
    let applies: Vec<_> = plan.applies().map(|input| input.component.as_str()).collect();
    assert_eq!(applies, ["x"]);
    let waits =
        |at: usize| matches!(&plan.deployments[0].components[at].action, Action::Wait(why) if why.code == "queued");
    assert!(waits(1) && waits(2) && plan.removals.is_empty() && plan.held.len() == 1, "{plan:?}");
}

#[test]
fn what_is_suspended_stays_as_it_is() {
    let device_state = applied(&[("a", "x", Some("1")), ("a", "y", Some("1")), ("b", "x", Some("1"))]);
    let running = |a, x| observed(a, x, Some(input_digest(a, x, "1")), Condition::Running);
    let found = [running("a", "x"), running("a", "y"), running("b", "x")];
    let suspended = DesiredDeployment { suspended: true, ..wanted("a", &[("x", "2")]) };
    let plan = make(Some(&[suspended]), &device_state, &found);
    let gone: Vec<_> = plan.removals.iter().map(|one| one.project.clone()).collect();
    assert_eq!(gone, [project("b", "x")], "its neighbour isn't suspended");
    assert_eq!(held(&plan.held), [format!("{} suspended", project("a", "y"))]);
    assert!(matches!(&plan.deployments[0].components[0].action, Action::Wait(why) if why.code == "suspended"));
    let both = [wanted("a", &[("x", "2"), ("y", "1")])];
    let plan = make_with(Some(&both), &device_state, &found, &all_suspended());
    assert!(plan.is_in_sync() && plan.held.len() == 1);
    assert!(matches!(plan.deployments[0].components[1].action, Action::Keep), "what runs as wanted waits for nothing");
}

#[test]
fn what_began_goes_on_after_its_window_and_what_is_new_waits() {
    let closed = Gates { openings: Openings { apply: Opening::NeverOpens, ..Openings::default() }, ..Gates::default() };
    let parts = [("x", "2"), ("y", "2")];
    let deployment = wanted("a", &parts);
    let found = [
        observed("a", "x", Some(input_digest("a", "x", "2")), Condition::Running),
        observed("a", "y", Some(input_digest("a", "y", "1")), Condition::Running),
    ];
    let mut device_state = applied(&[("a", "x", Some("2")), ("a", "y", Some("1")), ("b", "x", Some("1"))]);
    let second = |device_state: &DeviceState, deployment: &DesiredDeployment| {
        let plan = make_with(Some(std::slice::from_ref(deployment)), device_state, &found, &closed);
        assert_eq!(held(&plan.held), [format!("{} waiting-window", project("b", "x"))]);
        match &plan.deployments[0].components[1].action {
            Action::Wait(why) => why.code.clone(),
            action => format!("{action:?}").split([' ', '{']).next().unwrap().to_owned(),
        }
    };
    assert_eq!(second(&device_state, &deployment), "waiting-window");
    device_state.note_begun(&deployment);
    assert_eq!(second(&device_state, &deployment), "Apply", "half of it is worse than all of it late");
    let newer = wanted("a", &[("x", "2"), ("y", "3")]);
    assert_eq!(second(&device_state, &newer), "waiting-window", "something else began");
    let suspended = DesiredDeployment { suspended: true, ..deployment };
    let plan = make(Some(&[suspended]), &device_state, &found);
    assert!(matches!(&plan.deployments[0].components[1].action, Action::Wait(why) if why.code == "suspended"));
}

#[test]
fn what_a_change_needs_is_fetched_in_windows_of_its_own_and_the_change_is_made_with_what_is_here() {
    let (open, shut) = (Opening::Open(None), Opening::NeverOpens);
    let deployment = wanted("a", &[("x", "2")]);
    let digest = input_digest("a", "x", "2");
    let of = |gates: &Gates, state: &DeviceState, deployment: &DesiredDeployment| {
        let plan = make_with(Some(std::slice::from_ref(deployment)), state, &[], gates);
        let planned = &plan.deployments[0];
        let part = &planned.components[0];
        let what = match &part.action {
            Action::Wait(why) => format!("{}: {}", why.code, why.message.split(" by ").next().unwrap()),
            action => format!("{action:?}").split([' ', '{']).next().unwrap().to_owned(),
        };
        (what, part.ahead, planned.from_here, planned.fetching)
    };
    let gates = |apply, fetch: Option<Opening>, known: Option<Fetched>| {
        let openings = Openings { apply, fetch, whose: crate::decision::windows::Whose::Sites, ..Openings::default() };
        let fetched = known.into_iter().map(|known| (digest, known)).collect();
        Gates { openings, fetched, ..Gates::default() }
    };
    let waits = || "waiting-window: waits for a window, and".to_owned();
    let failed = || Some(Fetched::failed("no route".to_owned(), None, jiff::Timestamp::UNIX_EPOCH));
    let new = DeviceState::default();
    for (apply, fetch, known, expected) in [
        (open, None, None, ("Apply".to_owned(), false, false)),
        (shut, None, None, (waits(), false, false)),
        (open, Some(open), None, ("Apply".to_owned(), false, false)),
        (shut, Some(open), None, (waits(), true, false)),
        (shut, Some(open), Some(Fetched::Missing), (waits(), true, false)),
        (shut, Some(open), Some(Fetched::Here), (waits(), false, false)),
        (shut, Some(shut), None, (waits(), false, false)),
        (open, Some(shut), None, ("Apply".to_owned(), false, true)),
        (open, Some(shut), Some(Fetched::Here), ("Apply".to_owned(), false, true)),
        (open, Some(shut), failed(), ("Apply".to_owned(), false, true)),
    ] {
        let (what, ahead, from_here, _) = of(&gates(apply, fetch, known.clone()), &new, &deployment);
        assert_eq!((what, ahead, from_here), expected, "{apply:?} {fetch:?} {known:?}");
    }
    let missing = gates(open, Some(shut), Some(Fetched::Missing));
    let (what, ahead, ..) = of(&missing, &new, &deployment);
    assert!(what.starts_with("waiting-window: not all that it needs is here") && !ahead, "{what}");
    let failing = gates(shut, Some(open), failed());
    let plan = make_with(Some(std::slice::from_ref(&deployment)), &new, &[], &failing);
    let Action::Wait(why) = &plan.deployments[0].components[0].action else { panic!("it waits") };
    assert!(why.message.ends_with("; what it needs isn't here yet: no route"), "{why:?}");

    // What is put back, and what began, isn't held up by that.
    let healed = of(&missing, &applied(&[("a", "x", Some("2"))]), &deployment);
    assert_eq!((healed.0.as_str(), healed.2), ("Apply", false));
    let mut begun = applied(&[("a", "x", None)]);
    begun.note_begun(&deployment);
    assert_eq!(of(&missing, &begun, &deployment).0, "Apply");

    // Who holds or suspends it, or has no use for it here, has nothing fetched.
    let suspended = DesiredDeployment { suspended: true, ..deployment.clone() };
    let lack = Requirements::Unmet(Failure::new(ErrorCode::Queued, "no GPU"));
    let unmet = DesiredDeployment { requirements: lack, ..deployment.clone() };
    for none in [&suspended, &unmet] {
        assert!(!of(&gates(shut, Some(open), None), &new, none).1, "{none:?}");
    }
    // What is being fetched ends at once for a person, and with its component where `overrun` says so.
    let fetching = |gates: Gates, deployment| of(&gates, &new, deployment).3;
    assert_eq!(fetching(gates(shut, Some(open), None), &deployment), Fetching::GoesOn);
    assert_eq!(fetching(gates(shut, Some(shut), None), &deployment), Fetching::GoesOn);
    assert_eq!(fetching(gates(shut, Some(open), None), &suspended), Fetching::Ends);
    let mut strict = gates(shut, Some(shut), None);
    strict.openings.overrun = Overrun::Component;
    assert_eq!(fetching(strict, &deployment), Fetching::EndsWithComponent);
}

#[test]
fn what_differs_by_files_of_the_device_alone_is_told_apart_from_what_the_fleet_changes() {
    let versions = |x: &'static str, y: &'static str| wanted("a", &[("x", x), ("y", y)]);
    let change = |state: &DeviceState, one: &DesiredDeployment| {
        update(one, &Actual { device_state: state, observed: BTreeMap::new(), unreachable: &BTreeSet::new() })
    };
    let mut state = applied(&[("a", "x", Some("1+f")), ("a", "y", Some("1"))]);
    assert_eq!(change(&state, &versions("1+g", "1")), Change::Apply, "a syncer before this noted nothing");
    state.note_begun(&versions("1+f", "1"));
    for (x, y, expected) in [
        ("1+f", "1", Change::Finish),
        ("1+g", "1", Change::Renew),
        ("1+g", "1+g", Change::Renew),
        ("1+f", "2", Change::Apply),
        ("1+g", "2", Change::Apply),
        ("2+f", "1", Change::Apply),
        ("1+g", "!parameter-invalid", Change::Apply),
    ] {
        assert_eq!(change(&state, &versions(x, y)), expected, "{x} {y}");
    }
    assert_eq!(change(&state, &wanted("a", &[("x", "1+g")])), Change::Apply, "one of them goes");
    let why = Failure::new(ErrorCode::RolledBack, "");
    let back = DesiredDeployment { rolled_back: Some(why), ..versions("1+g", "1") };
    assert_eq!(change(&state, &back), Change::RollBack);
    state.note_begun(&wanted("a", &[("x", "1+f")]));
    assert_eq!(change(&state, &versions("1+f", "1")), Change::Apply, "one of them went");
    state.note_begun(&versions("1+f", "1"));
    state.note_going(versions("1+f", "1").id);
    for x in ["1+f", "1+g"] {
        assert_eq!(change(&state, &versions(x, "1")), Change::Apply, "all of it was to go: {x}");
    }
}

#[test]
fn what_failed_for_good_is_a_change_like_any_other_when_it_is_tried_again() {
    let versions = |x: &'static str, y: &'static str| wanted("a", &[("x", x), ("y", y)]);
    let change = |state: &DeviceState, one: &DesiredDeployment| {
        update(one, &Actual { device_state: state, observed: BTreeMap::new(), unreachable: &BTreeSet::new() })
    };
    let failed = |one: &DesiredDeployment, state: &mut DeviceState| {
        let input = one.components[1].input.as_ref().unwrap();
        let failure = Failure::new(ErrorCode::ComposeFailed, "it said no");
        let bad = FailedInput { input_digest: input.input_digest, failure };
        state.failed_inputs.insert(input.project.clone(), bad);
        state.note_ended(one);
    };
    let (first, second, third) = (versions("1+f", "1"), versions("1+f", "2"), versions("1+g", "2"));
    let mut state = applied(&[("a", "x", Some("1+f")), ("a", "y", Some("1"))]);
    state.note_begun(&first);
    state.note_begun(&second);
    state.note_begun(&second);
    assert_eq!(change(&state, &second), Change::Finish, "a crash may have cut it off");
    failed(&second, &mut state);
    assert_eq!(change(&state, &second), Change::Finish, "what stands behind it waits for it, and for nothing else");
    let of_one = |state: &mut DeviceState| state.forget_failures(&wanted("a", &[("x", "1+f"), ("y", "2")]), "boot");
    let of_all: fn(&mut DeviceState) = |state| state.forget_all_failures("boot");
    for again in [of_all, of_one] {
        let mut state = state.clone();
        again(&mut state);
        assert_eq!(change(&state, &second), Change::Apply, "a person or the fleet wants it tried again");
        state.note_begun(&second);
        assert_eq!(change(&state, &second), Change::Finish);
    }
    state.keep_only(&[versions("1+f", "3")]);
    assert_eq!(change(&state, &second), Change::Apply, "another one was wanted meanwhile");
    assert_eq!(change(&state, &third), Change::Renew, "the site itself changed a file since");

    state.note_begun(&third);
    failed(&third, &mut state);
    state.forget_all_failures("boot");
    assert_eq!(change(&state, &third), Change::Renew, "nobody was asked for it before");
}

#[test]
fn what_began_goes_on_outside_windows_or_waits_for_them_as_is_said() {
    let deployment = wanted("a", &[("x", "2"), ("y", "2")]);
    let found = [
        observed("a", "x", Some(input_digest("a", "x", "2")), Condition::Running),
        observed("a", "y", Some(input_digest("a", "y", "1")), Condition::Running),
    ];
    let mut state = applied(&[("a", "x", Some("2")), ("a", "y", Some("1"))]);
    state.note_begun(&deployment);
    let second = |deployment: &DesiredDeployment, overrun, apply| {
        let openings = Openings { apply, overrun, ..Openings::default() };
        let gates = Gates { openings, ..Gates::default() };
        match &make_with(Some(std::slice::from_ref(deployment)), &state, &found, &gates).deployments[0].components[1]
            .action
        {
            Action::Wait(why) => why.code.clone(),
            action => format!("{action:?}").split([' ', '{']).next().unwrap().to_owned(),
        }
    };
    let (closed, open) = (Opening::NeverOpens, Opening::Open(None));
    assert_eq!(second(&deployment, Overrun::Deployment, closed), "Apply", "half of it is worse than all of it late");
    assert_eq!(second(&deployment, Overrun::Component, closed), "waiting-window");
    assert_eq!(second(&deployment, Overrun::Component, open), "Apply");
    let rolled_back = Some(Failure::new(ErrorCode::RolledBack, "the good set"));
    let rolled_back = DesiredDeployment { rolled_back, ..deployment };
    assert_eq!(second(&rolled_back, Overrun::Component, closed), "Apply", "what is put back waits for no window");
}

#[test]
fn what_began_is_not_over_while_it_waits_or_can_not_be_seen_and_what_did_not_begin_is() {
    let deployment = wanted("a", &[("x", "2"), ("y", "2")]);
    let found = [
        observed("a", "x", Some(input_digest("a", "x", "2")), Condition::Running),
        observed("a", "y", Some(input_digest("a", "y", "1")), Condition::Running),
    ];
    let all = [("a", "x", Some("2")), ("a", "y", Some("1"))];
    let (mut begun, other) = (applied(&all), applied(&all));
    begun.note_begun(&deployment);
    let is_over = |deployment: &DesiredDeployment, state: &DeviceState, unreachable: &[ProfileType], gates: &Gates| {
        let unreachable = unreachable.iter().copied().into_set();
        Plan::make(Some(std::slice::from_ref(deployment)), state, &found, &unreachable, gates)
            .is_over(id("a"), |_| false)
    };
    let (here, compose) = (&[][..], &[ProfileType::Compose][..]);
    for (unreachable, gates) in [(here, all_suspended()), (compose, Gates::default()), (compose, all_suspended())] {
        assert!(!is_over(&deployment, &begun, unreachable, &gates), "{unreachable:?} {gates:?}");
        assert!(is_over(&deployment, &other, unreachable, &gates), "{unreachable:?} {gates:?}");
    }
    let rolled_back = Some(Failure::new(ErrorCode::RolledBack, "the good set"));
    let rolled_back = DesiredDeployment { rolled_back, ..deployment.clone() };
    assert!(!is_over(&rolled_back, &other, here, &all_suspended()));
    // What drifts later, or goes, is asked for again or by nobody.
    let whole = wanted("a", &[("x", "2"), ("y", "1")]);
    assert!(is_over(&whole, &begun, compose, &Gates::default()));
    // What belongs to it and isn't removed yet.
    let one = wanted("a", &[("x", "2")]);
    assert!(is_over(&one, &other, here, &all_suspended()));
    begun.note_begun(&one);
    assert!(!is_over(&one, &begun, here, &all_suspended()));
    // Nothing behind what failed for good is done.
    let fails = wanted("a", &[("x", "!compose-failed"), ("y", "2")]);
    assert!(is_over(&fails, &other, here, &Gates::default()));
    begun.note_begun(&fails);
    assert!(is_over(&fails, &begun, here, &all_suspended()));
}

#[test]
fn all_is_as_wanted_only_while_everything_runs_well() {
    let device_state = applied(&[("a", "x", Some("1")), ("a", "y", Some("1"))]);
    let run = |condition| observed("a", "x", Some(input_digest("a", "x", "1")), condition);
    let all = [wanted("a", &[("x", "1")])];
    let suspended = [DesiredDeployment { suspended: true, ..wanted("a", &[("x", "1")]) }];
    let stopped = || Condition::Stopped("exited with 137".to_owned());
    for (given, wanted, device_state, found, in_sync, as_wanted) in [
        ("it runs", &all, &DeviceState::default(), vec![run(Condition::Running)], true, true),
        ("it starts", &all, &DeviceState::default(), vec![run(Condition::Starting)], true, true),
        ("it is unwell", &all, &DeviceState::default(), vec![run(Condition::Degraded("x".to_owned()))], true, false),
        (
            "it can't be looked at",
            &all,
            &DeviceState::default(),
            vec![run(Condition::Unknown("x".to_owned()))],
            true,
            false,
        ),
        ("it stopped", &all, &DeviceState::default(), vec![run(stopped())], false, false),
        ("it stopped while it is suspended", &suspended, &DeviceState::default(), vec![run(stopped())], true, false),
        ("something is to go", &all, &device_state, vec![run(Condition::Running)], false, false),
        ("what is to go is suspended", &suspended, &device_state, vec![run(Condition::Running)], true, false),
    ] {
        let plan = make(Some(wanted), device_state, &found);
        assert_eq!((plan.is_in_sync(), plan.is_as_wanted()), (in_sync, as_wanted), "{given}");
    }
    let plan = make_with(Some(&all), &DeviceState::default(), &[run(stopped())], &all_suspended());
    assert!(plan.is_in_sync() && !plan.is_as_wanted(), "the device is suspended");
    let plan = make(Some(&[wanted("a", &[("x", "!policy-denied")])]), &DeviceState::default(), &[]);
    assert!(plan.is_in_sync() && !plan.is_as_wanted(), "it can't run here");
}

#[test]
fn before_the_first_accepted_state_nothing_is_known_to_be_unwanted() {
    let plan = make(None, &DeviceState::default(), &[observed("a", "x", None, Condition::Running)]);
    assert!(plan.is_in_sync());
}

#[derive(Debug, Clone)]
struct Model {
    device_state: DeviceState,
    runtime: Vec<Observed>,
}

impl Model {
    /// What a runtime that never fails makes of a plan.
    fn apply(&mut self, plan: &Plan, wanted: &[DesiredDeployment]) {
        plan.put_back().for_each(|one| self.restore(&one.input.project));
        for removal in &plan.removals {
            self.runtime.retain(|found| found.project != removal.project);
            self.device_state.forget(&removal.project);
        }
        for input in plan.applies() {
            let (name, project) = (input.component.clone(), input.project.clone());
            let deployment = wanted.iter().find(|one| one.id == input.deployment).unwrap();
            self.runtime.retain(|found| found.project != project);
            let made =
                observed(input.deployment_name.as_str(), name.as_str(), Some(input.input_digest), Condition::Running);
            self.runtime.push(made);
            let component =
                AppliedComponent { name, project, kind: input.profile_type(), input_digest: Some(input.input_digest) };
            self.device_state.note(deployment, component);
        }
        let restored = plan.components().filter(|one| matches!(one.action, Action::Restore { .. }));
        restored.for_each(|one| self.restore(&one.project));
    }

    fn restore(&mut self, project: &str) {
        let found = self.runtime.iter_mut().find(|found| found.project == project).unwrap();
        found.condition = Condition::Running;
    }
}

fn any_model() -> impl Strategy<Value = Model> {
    let place = (prop::sample::select(vec!["a", "b", "c", "d"]), prop::sample::select(vec!["x", "y", "z"]));
    let version = prop::option::of(prop::sample::select(vec!["1", "2"]));
    let condition = prop::sample::select(vec![
        Condition::Running,
        Condition::Starting,
        Condition::Degraded("x".to_owned()),
        Condition::Missing,
        Condition::Stopped("x".to_owned()),
        Condition::Edited("x".to_owned()),
    ]);
    let remembered = prop::collection::btree_map(place.clone(), version.clone(), 0..6);
    let running = prop::collection::btree_map(place, (version, condition), 0..6);
    let bad = prop::collection::vec(prop::sample::select(vec!["1", "2", "3"]), 0..2);
    (remembered, running, bad).prop_map(|(remembered, running, bad)| {
        let remembered: Vec<_> = remembered.into_iter().map(|((a, x), version)| (a, x, version)).collect();
        let mut device_state = applied(&remembered);
        for version in bad {
            device_state.failed_inputs.insert(project("a", "x"), failed(version));
        }
        let found = |((a, x), (version, condition)): ((&str, &str), (Option<&str>, Condition))| {
            observed(a, x, version.map(|version| input_digest(a, x, version)), condition)
        };
        Model { device_state, runtime: running.into_iter().map(found).collect() }
    })
}

proptest! {
    #[test]
    fn once_a_plan_is_carried_out_there_is_nothing_left_to_do(desired in any_wanted(), mut model in any_model()) {
        let plan = make(Some(&desired), &model.device_state, &model.runtime);
        model.apply(&plan, &desired);
        let next = make(Some(&desired), &model.device_state, &model.runtime);
        prop_assert!(next.is_in_sync(), "{next:?}");
    }

    #[test]
    fn only_what_is_ours_and_unwanted_is_removed(desired in any_wanted(), model in any_model()) {
        let plan = make(Some(&desired), &model.device_state, &model.runtime);
        let inventory: BTreeSet<_> = removable(&model.device_state).into_iter().map(|one| one.project)
            .chain(model.runtime.iter().map(|found| found.project.clone())).collect();
        let keep: BTreeSet<_> =
            desired.iter().flat_map(|one| &one.components).map(|one| one.project.clone()).collect();
        let removed: Vec<_> = plan.removals.iter().map(|one| one.project.clone()).collect();
        let once: BTreeSet<_> = removed.iter().cloned().collect();
        prop_assert_eq!(removed.len(), once.len());
        prop_assert_eq!(once, inventory.difference(&keep).cloned().collect());
    }
}

#[test]
fn what_drifted_waits_as_the_stricter_of_fleet_and_site_says() {
    let digest = |name| Some(input_digest("a", name, "1"));
    let state = applied(&[("a", "x", Some("1")), ("a", "y", Some("1"))]);
    let closed = Openings { apply: Opening::NeverOpens, ..Openings::default() };
    let of = |fleet, site, state: &DeviceState, condition: &Condition, y: &str| {
        let found =
            [observed("a", "x", digest("x"), condition.clone()), observed("a", "y", digest("y"), Condition::Running)];
        let wanted = DesiredDeployment { drift: fleet, ..wanted("a", &[("x", "1"), ("y", y)]) };
        let openings = if y == "1" { closed.clone() } else { Openings::default() };
        let gates = Gates { drift: site, openings, ..Gates::default() };
        action_of(&make_with(Some(&[wanted]), state, &found, &gates))
    };
    let (heal, window, report) = (DriftPolicy::Heal, DriftPolicy::HealInWindow, DriftPolicy::Report);
    let stopped = Condition::Stopped("exited with 1".to_owned());
    for condition in [&stopped, &Condition::Missing, &Condition::Edited("replicas".to_owned())] {
        let free = of(heal, heal, &state, condition, "1");
        assert!(!["drifted", "waiting-window", "keep"].contains(&free.as_str()), "{free}");
        for (fleet, site, code) in [
            (report, heal, "drifted"),
            (heal, report, "drifted"),
            (window, report, "drifted"),
            (window, heal, "waiting-window"),
            (heal, window, "waiting-window"),
        ] {
            assert_eq!(of(fleet, site, &state, condition, "1"), code, "{fleet} {site} {condition:?}");
        }
        assert_eq!(of(report, report, &state, condition, "2"), free, "a newer set is applied as a whole");
        let mut down = state.clone();
        down.whole.insert(project("a", "x"), "boot before".to_owned());
        assert_eq!(of(report, window, &down, condition, "1"), free, "it went down with the device");
    }
    assert_eq!(of(report, report, &state, &Condition::Degraded("unhealthy".to_owned()), "1"), "keep", "it is there");
}
