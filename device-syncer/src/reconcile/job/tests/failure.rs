//! What fails now, for good, or with the whole device.

use super::*;

#[test]
fn a_failure_for_now_is_tried_again_without_a_word_until_it_succeeds() {
    let mut bench = Bench::new();
    bench.fail("apply", ("a", "x"), vec![transient(), transient(), transient()]);
    let desired = [wanted("a", &[("x", "1")])];
    bench.pass(&desired);
    assert_eq!((bench.state("a", "x").as_str(), bench.told().len()), ("installing runtime-unavailable", 3));
    bench.pass(&desired);
    assert_eq!(bench.runtimes.log().len(), 1, "it is not tried before its time");
    bench.later(&desired);
    bench.later(&desired);
    assert_eq!((bench.runtimes.log().len(), bench.told().len()), (2, 0));
    bench.later(&desired);
    assert_eq!(bench.told(), ["a/* installing > installed; a/x installing > installed"]);
}

#[test]
fn what_fails_in_a_downtime_is_neither_told_nor_tried_again_before_it_is_over() {
    let mut bench = Bench::new();
    bench.fail("apply", ("a", "x"), vec![permanent(), unhealthy("1")]);
    let desired = [wanted("a", &[("x", "1")]), wanted("b", &[("x", "1")])];
    bench.state.lock().down.insert(id("a"));
    bench.pass(&desired);
    assert_eq!([bench.state("a", "x"), bench.state("b", "x")], ["installing", "installed"]);
    bench.listen_anew();
    // Its time has come, and it is still down.
    bench.state.lock().retries.later(std::time::Duration::from_secs(3600));
    bench.pass(&desired);
    assert_eq!((bench.runtimes.log(), bench.told()), (vec![], vec![]));
    // What is put back is put back, and tried again, and that it can't be isn't told.
    bench.state.lock().down.clear();
    bench.pass(&desired);
    assert_eq!(bench.state("a", "x"), "installing health-timeout", "the failure before wasn't final");
    bench.later(&desired);
    assert_eq!(bench.state("a", "x"), "installed");
    bench.state.lock().down.insert(id("a"));
    let stopped = observed("a", "x", Some(input_digest("a", "x", "1")), Condition::Stopped("exited".to_owned()));
    bench.runtimes.running.lock().unwrap().insert(project("a", "x"), stopped);
    bench.fail("restore", ("a", "x"), vec![permanent()]);
    bench.pass(&desired);
    assert_eq!(bench.state("a", "x"), "installing", "and no word of why");
    bench.state.lock().retries.later(std::time::Duration::from_secs(3600));
    bench.pass(&desired);
    assert_eq!(bench.state("a", "x"), "installed");
}

#[test]
fn a_failure_of_this_input_is_final_until_the_input_changes_or_a_person_asks() {
    let mut bench = Bench::new();
    bench.fail("apply", ("a", "x"), vec![permanent(), permanent()]);
    let desired = [wanted("a", &[("x", "1")])];
    bench.pass(&desired);
    bench.later(&desired);
    assert_eq!((bench.runtimes.log().len(), bench.state("a", "x").as_str()), (1, "failed compose-failed"));
    bench.tamper(|state| state.forget_failures(&desired[0], "first boot"));
    bench.later(&desired);
    assert_eq!((bench.runtimes.log().len(), bench.state("a", "x").as_str()), (1, "failed compose-failed"));
    bench.later(&[wanted("a", &[("x", "2")])]);
    assert_eq!((bench.runtimes.log().len(), bench.state("a", "x").as_str()), (1, "installed"));
}

#[test]
fn health_that_takes_too_long_is_waited_for_three_times() {
    let mut bench = Bench::new();
    bench.fail("apply", ("a", "x"), vec![unhealthy("1"), unhealthy("2"), unhealthy("3"), unhealthy("4")]);
    let desired = [wanted("a", &[("x", "1")])];
    for expected in ["installing health-timeout", "installing health-timeout", "failed health-timeout"] {
        bench.later(&desired);
        assert_eq!(bench.state("a", "x"), expected);
    }
    bench.later(&desired);
    assert_eq!(bench.runtimes.log().len(), 3);
    let told = ["a/* installing > failed health-timeout; a/x installing > failed health-timeout"];
    assert_eq!(bench.told()[3..], told, "the second failure with the same code is no commit");
}

#[test]
fn a_new_input_starts_with_a_clean_slate() {
    let mut bench = Bench::new();
    bench.fail("apply", ("a", "x"), vec![unhealthy("1"), unhealthy("2"), unhealthy("3"), unhealthy("4")]);
    bench.later(&[wanted("a", &[("x", "1")])]);
    bench.later(&[wanted("a", &[("x", "1")])]);
    bench.told();
    bench.later(&[wanted("a", &[("x", "2")])]);
    assert_eq!(
        bench.told()[..2],
        [
            "a/* installing > pending queued; a/x installing > pending queued",
            "a/* pending > installing; a/x pending > installing"
        ]
    );
    assert_eq!(bench.state("a", "x"), "installing health-timeout");
}

#[test]
fn an_input_that_takes_the_device_down_three_times_is_given_up() {
    let mut bench = Bench::new();
    let desired = [wanted("a", &[("x", "1")]), wanted("b", &[("x", "1")])];
    for boot in ["one", "two", "three"] {
        bench.boot(boot);
        lost_during_apply(&mut bench, &desired);
        assert_eq!(bench.state("a", "x"), "installing");
    }
    assert_eq!(bench.runtimes.log().iter().filter(|line| line.starts_with("apply x (installing")).count(), 4);
    bench.told();
    bench.boot("four");
    // The engine has started what was made of it.
    let half = observed("a", "x", None, Condition::Running);
    bench.runtimes.running.lock().unwrap().insert(project("a", "x"), half);
    bench.fail("remove", ("a", "x"), vec![transient()]);
    bench.later(&desired);
    assert_eq!(bench.state("a", "x"), "installing runtime-unavailable", "it still runs, and may take the device down");
    bench.runtimes.log();
    bench.told();
    bench.later(&desired);
    assert_eq!(bench.told(), ["a/* installing > failed crash-loop; a/x installing > failed crash-loop"]);
    let log = bench.runtimes.log();
    assert!(matches!(&log[..], [line] if line.starts_with("remove x")), "{log:?}");
    bench.later(&desired);
    assert_eq!((bench.runtimes.log(), bench.state("b", "x").as_str()), (vec![], "installed"));
}

#[test]
fn a_syncer_that_is_killed_again_and_again_within_one_boot_gives_nothing_up() {
    let mut bench = Bench::new();
    let desired = [wanted("a", &[("x", "1")])];
    for _ in 0..10 {
        lost_during_apply(&mut bench, &desired);
    }
    let attempt = bench.view().device_state.attempts.values().next().unwrap().clone();
    assert_eq!((attempt.lost, attempt.open), (0, 1));
    bench.later(&desired);
    assert_eq!(bench.state("a", "x"), "installed");
}
