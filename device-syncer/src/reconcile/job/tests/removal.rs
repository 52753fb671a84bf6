//! What is to be removed, and what waits until it has gone.

use super::*;

#[test]
fn removals_come_first_in_reverse_order_and_each_is_told_once() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1"), ("y", "1")]), wanted("b", &[("x", "1")])]);
    bench.listen_anew();
    let done = bench.pass(&[wanted("c", &[("z", "1")])]);
    assert_eq!(done, Done { at_work: false, acted: true, up_to_date: true });
    let log = bench.runtimes.log();
    let expected = ["remove x (removing)", "remove y (removing)", "remove x (removing)"];
    assert_eq!(log, [&expected[..], &["apply z (installing, attempt 1)"]].concat());
    let told = bench.told().join("; ");
    for (transition, times) in [
        ("a/* installed > removing", 1),
        ("a/* removing > removed", 1),
        ("a/x removing > removed", 1),
        ("b/* removing > removed", 1),
    ] {
        assert_eq!(told.matches(transition).count(), times, "{transition} in {told}");
    }
    assert!(!told.contains("removed > removing"), "{told}");
}

#[test]
fn a_component_that_left_goes_before_its_neighbour_changes_and_is_no_longer_listed() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1"), ("y", "1")])]);
    bench.told();
    bench.pass(&[wanted("a", &[("x", "1")])]);
    let told =
        ["a/* installed > removing; a/y installed > removing", "a/* removing > installed; a/y removing > removed"];
    assert_eq!(bench.told(), told);
    assert_eq!(bench.state("a", "y"), "none");
}

#[test]
fn what_never_came_onto_the_device_is_told_as_removed_too() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "!policy-denied")])]);
    bench.told();
    assert_eq!(bench.pass(&[]), Done { at_work: false, acted: false, up_to_date: true });
    assert_eq!(bench.told(), ["a/* failed > removed; a/x failed > removed"]);
}

#[test]
fn a_removal_that_fails_is_told_once_and_tried_again() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1")])]);
    bench.told();
    let error = || RuntimeError::RemovalFailed { project: "p".to_owned(), reason: "busy".to_owned() };
    bench.fail("remove", ("a", "x"), vec![error(), error()]);
    assert_eq!(bench.pass(&[]), Done { at_work: false, acted: true, up_to_date: false });
    bench.pass(&[]);
    bench.later(&[]);
    assert_eq!(bench.state("a", "x"), "removing removal-failed");
    assert_eq!(bench.told(), ["a/* installed > removing; a/x installed > removing", ""]);
    assert_eq!(bench.later(&[]), Done { at_work: false, acted: true, up_to_date: true });
    assert_eq!(bench.told(), ["a/* removing > removed; a/x removing > removed"]);
}

#[test]
fn while_anything_is_left_to_remove_no_failure_to_apply_is_final() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1")])]);
    bench.told();
    let next = [wanted("b", &[("y", "1")])];
    bench.fail("remove", ("a", "x"), (0..6).map(|_| stays()).collect());
    // As many as would be final three times over, of each kind.
    let failures = [permanent(), unhealthy("1"), unhealthy("2"), unhealthy("3"), permanent(), unhealthy("4")];
    bench.fail("apply", ("b", "y"), failures.into());
    let mut first = None;
    for _ in 0..6 {
        assert!(!bench.later(&next).up_to_date);
        assert!(bench.state("b", "y").starts_with("installing "), "{}", bench.state("b", "y"));
        first.get_or_insert(bench.told());
    }
    let report = Report::read(&bench.view().device_state.status);
    let why = report.get(id("b"), &component("y")).and_then(|now| now.failure.clone()).unwrap().message;
    assert!(why.starts_with("tried again until all is removed"), "{why}");
    let told = first.unwrap().join("; ");
    assert_eq!(told.matches("a/x installed > removing").count(), 1, "{told}");
    assert_eq!(told.matches("b/y pending > installing").count(), 1, "{told}");
    assert_eq!(bench.told().join(""), "", "nothing of it is a transition");
    // Once it has gone, what failed is tried at once, and not when its back-off is over; now its failures count.
    bench.fail("apply", ("b", "y"), vec![permanent()]);
    bench.later(&next);
    assert_eq!([bench.state("a", "x"), bench.state("b", "y")], ["removed", "failed compose-failed"]);
}

#[test]
fn what_began_while_something_was_left_to_remove_is_tried_again_once_it_has_gone() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1")])]);
    let next = [wanted("b", &[("y", "1")])];
    // Fails because of what is there, and says so when that has gone.
    bench.fail("remove", ("a", "x"), vec![stays()]);
    bench.fail("apply", ("b", "y"), vec![permanent()]);
    *bench.runtimes.clears.lock().unwrap() = Some(bench.state.clone());
    bench.later(&next);
    assert!(bench.state("b", "y").starts_with("installing "), "{}", bench.state("b", "y"));
    assert!(bench.later(&next).up_to_date);
}

#[test]
fn what_a_closed_gate_keeps_from_being_removed_is_left_to_remove_too() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1")])]);
    let next = [wanted("b", &[("y", "1")])];
    bench.gates.holds = vec![held("a")];
    bench.fail("apply", ("b", "y"), vec![permanent(), permanent()]);
    for _ in 0..2 {
        bench.later(&next);
        assert_eq!([bench.state("a", "x"), bench.state("b", "y")], ["removing held", "installing compose-failed"]);
    }
    bench.gates.holds.clear();
    assert!(bench.pass(&next).up_to_date, "without waiting for the back-off");
}

#[test]
fn what_a_gate_keeps_from_being_removed_excuses_nothing_where_what_ran_well_can_be_put_back() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1")])]);
    let next = [wanted("b", &[("y", "1")])];
    let envelope = serde_json::from_value(serde_json::json!({"id": "b"})).unwrap();
    bench.tamper(|state| state.note_good(&wanted("b", &[("y", "0")]), &envelope));
    bench.fail("remove", ("a", "x"), vec![stays()]);
    bench.fail("apply", ("b", "y"), vec![permanent(), permanent()]);
    bench.later(&next);
    assert_eq!(bench.state("b", "y"), "installing compose-failed", "it may be gone within minutes");
    bench.gates.holds = vec![held("a")];
    bench.later(&next);
    assert_eq!([bench.state("a", "x"), bench.state("b", "y")], ["removing held", "failed compose-failed"]);
}

fn held(name: &str) -> Hold {
    let (deployment, since) = (Some(name.parse().unwrap()), "2026-11-23T15:00:00Z".parse().unwrap());
    let (by, why) = ("j.doe".to_owned(), "x".to_owned());
    Hold::Person(HoldByPerson { deployment, id: Some(id(name)), by, why, since, until: None, now: false })
}
