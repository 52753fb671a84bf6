//! What was applied and does not run.

use super::*;

#[test]
fn a_runtime_that_lost_a_part_gets_it_back() {
    let mut bench = Bench::new();
    let desired = [wanted("a", &[("x", "1")])];
    bench.pass(&desired);
    bench.told();
    bench.runtimes.running.lock().unwrap().clear();
    bench.pass(&desired);
    assert_eq!(
        bench.told(),
        [
            "a/* installed > pending queued; a/x installed > pending queued",
            "a/* pending > installing; a/x pending > installing",
            "a/* installing > installed; a/x installing > installed",
        ]
    );
}

const RESTORING: &str = "a/* installed > installing; a/x installed > installing";
const RESTORED: &str = "a/* installing > installed; a/x installing > installed";

/// A device on which `x` of `a` was applied and stopped since.
fn stopped() -> (Bench, [DesiredDeployment; 1]) {
    let (mut bench, desired) = (Bench::new(), [wanted("a", &[("x", "1")])]);
    bench.pass(&desired);
    stop(&bench);
    bench.listen_anew();
    (bench, desired)
}

fn stop(bench: &Bench) {
    let mut running = bench.runtimes.running.lock().unwrap();
    running.get_mut(&project("a", "x")).unwrap().condition = Condition::Stopped("exited with 3".to_owned());
}

#[test]
fn what_was_applied_and_stopped_is_put_back_before_anything_else_and_that_is_told() {
    let (mut bench, desired) = stopped();
    let and_more = [&desired[..], &[wanted("b", &[("y", "1")])]].concat();
    assert_eq!(bench.pass(&and_more), Done { at_work: false, acted: true, up_to_date: true });
    assert_eq!(bench.runtimes.log(), ["restore x (installing, attempt 1)", "apply y (installing, attempt 1)"]);
    let told = ["b/* none > pending queued; b/y none > pending queued", RESTORING, RESTORED];
    assert_eq!(bench.told()[..3], told);
    assert_eq!((bench.state("a", "x"), bench.view().device_state.attempts.len()), ("installed".to_owned(), 0));
    assert_eq!(bench.pass(&and_more), Done { at_work: false, acted: false, up_to_date: true });
}

#[test]
fn what_stops_again_and_again_is_put_back_with_a_back_off_and_not_called_installed_meanwhile() {
    let (mut bench, desired) = stopped();
    bench.pass(&desired);
    stop(&bench);
    bench.listen_anew();
    assert_eq!(bench.later(&desired), Done { at_work: false, acted: false, up_to_date: true }, "not so soon");
    for _ in 0..3 {
        bench.state.lock().restores.later(Duration::from_secs(300));
        assert!(bench.pass(&desired).acted);
        assert_eq!(bench.state("a", "x"), "installing health-timeout");
        assert!(!bench.later(&desired).up_to_date, "it runs, but not for long yet");
        stop(&bench);
        assert!(!bench.later(&desired).acted);
    }
    assert_eq!(bench.runtimes.log().len(), 3);
    assert_eq!(bench.told(), [RESTORING, ""], "state and reason, once");
    bench.state.lock().restores.later(Duration::from_secs(300));
    bench.pass(&desired);
    bench.state.lock().restores.later(Duration::from_secs(300));
    assert_eq!(bench.pass(&desired), Done { at_work: false, acted: false, up_to_date: true });
    assert_eq!(bench.state("a", "x"), "installed");
}

#[test]
fn what_cannot_be_put_back_now_is_never_given_up_and_holds_what_depends_on_it() {
    let (mut bench, desired) = stopped();
    let dependent = DesiredDeployment { depends_on: vec!["a".parse().unwrap()], ..wanted("b", &[("y", "1")]) };
    let both = [&desired[..], &[dependent]].concat();
    for (error, state, waits) in [
        (transient as fn() -> RuntimeError, "installing runtime-unavailable", "pending waiting-dependency"),
        (permanent as fn() -> RuntimeError, "failed compose-failed", "pending dependency-failed"),
    ] {
        bench.fail("restore", ("a", "x"), (0..5).map(|_| error()).collect());
        for _ in 0..5 {
            assert!(!bench.later(&both).up_to_date);
            let states = [bench.state("a", "x"), bench.state("b", "y")];
            assert_eq!(states, [state, waits]);
            assert!(!bench.pass(&both).acted, "it backs off");
        }
    }
    let told = bench.told().join("; ");
    for once in ["a/x installed > installing", "a/x installing > failed compose-failed"] {
        assert_eq!(told.matches(once).count(), 1, "{once} in {told}");
    }
    assert_eq!(told.matches("a/x").count(), 2, "{told}");
    assert_eq!(bench.later(&both), Done { at_work: false, acted: true, up_to_date: true });
    assert_eq!(bench.state("a", "x"), "installed");
}

#[test]
fn what_takes_the_device_down_whenever_it_is_put_back_is_given_up() {
    let (bench, desired) = stopped();
    for boot in ["one", "two", "three"] {
        bench.boot(boot);
        let input = desired[0].components[0].input.as_ref().unwrap();
        let mut change = bench.state.begin();
        change.next.blame(boot);
        change.next.attempts.entry(input.project.clone()).or_insert(Attempt::new(input.input_digest)).begin(boot);
        change.commit().unwrap();
    }
    bench.boot("four");
    bench.pass(&desired);
    assert_eq!(bench.state("a", "x"), "failed crash-loop");
    assert_eq!(bench.runtimes.log(), ["remove x (installed)"], "the engine would start it at each boot");
}
