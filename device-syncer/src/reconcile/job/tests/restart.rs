//! Containers that run are started again.

use super::*;

fn container(id: &str, at: &str, runs: bool) -> Started {
    Started { container: id.to_owned(), at: at.to_owned(), runs }
}

/// The same, of which the fleet wants this restart.
fn at_restart(number: u64, wanted: &DesiredDeployment) -> [DesiredDeployment; 1] {
    [DesiredDeployment { restarts: RestartsAsked { number, here: None }, ..wanted.clone() }]
}

#[test]
fn a_restart_of_the_fleet_is_done_once_and_told_and_what_is_left_is_durable_before_it_is_done() {
    let mut bench = Bench::new();
    let one = wanted("a", &[("x", "1")]);
    bench.pass(&at_restart(3, &one));
    *bench.runtimes.containers.lock().unwrap() = vec![container("db", "t1", true), container("migrate", "t1", false)];
    bench.listen_anew();
    assert!(!bench.pass(&at_restart(3, &one)).acted, "it was installed at 3");
    assert_eq!(bench.pass(&at_restart(4, &one)), Done { at_work: false, acted: true, up_to_date: true });
    assert_eq!(bench.runtimes.log(), ["restart [\"db\"], durable [\"db\"] of x (installing)"]);
    let told = [
        "a/* installed > installing restart-requested; a/x installed > installing restart-requested",
        "a/* installing > installed; a/x installing > installed",
    ];
    assert_eq!(bench.told(), told);
    for number in [4, 2] {
        assert_eq!(bench.pass(&at_restart(number, &one)), Done { at_work: false, acted: false, up_to_date: true });
    }
    assert_eq!((bench.told(), bench.runtimes.log()), (vec![], vec![]));
}

#[test]
fn a_restart_that_fails_or_is_cut_off_goes_on_with_what_is_left() {
    let mut bench = Bench::new();
    let one = wanted("a", &[("x", "1")]);
    bench.pass(&at_restart(0, &one));
    *bench.runtimes.containers.lock().unwrap() = vec![container("db", "t1", true), container("web", "t1", true)];
    bench.listen_anew();
    bench.fail("restart", ("a", "x"), vec![transient(), RuntimeError::Cancelled]);
    assert!(!bench.pass(&at_restart(1, &one)).up_to_date);
    assert_eq!(bench.state("a", "x"), "installing runtime-unavailable");
    assert!(!bench.pass(&at_restart(1, &one)).acted, "it backs off");
    *bench.runtimes.containers.lock().unwrap() = vec![container("db", "t2", true), container("web", "t1", true)];
    // What was cut off goes on, whatever the fleet says meanwhile.
    assert_eq!(bench.later(&at_restart(0, &one)), Done { at_work: false, acted: true, up_to_date: true });
    let both = "restart [\"db\", \"web\"], durable [\"db\", \"web\"] of x (installing)";
    let rest = "restart [\"web\"], durable [\"web\"] of x (installing)";
    assert_eq!(bench.runtimes.log(), [both, rest, rest]);
    assert_eq!(bench.state("a", "x"), "installed");
}
