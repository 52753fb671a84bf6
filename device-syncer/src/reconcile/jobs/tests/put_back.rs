//! What was applied and stopped comes back beside what is at work.

use super::*;

#[test]
fn what_was_applied_is_put_back_beside_what_is_fetched_ahead_and_before_what_is_applied() {
    let mut bench = Bench::new(&[]);
    bench.settle(&all(&["a"]));
    bench.runtimes.begun.lock().unwrap().clear();
    let of = |verb: &str| format!("{verb} {}", project("a", "x"));
    let newer = [wanted("a", &[("x", "2")])];
    let openings = Openings { apply: Opening::NeverOpens, fetch: Some(Opening::Open(None)), ..Openings::default() };
    bench.gates = Gates { openings, ..Gates::default() };
    bench.hang(&["fetch a"]);
    bench.settle(&newer);
    assert_eq!((bench.at_work(), bench.state("a")), (vec!["a".to_owned()], "pending".to_owned()));
    let stop = |bench: &Bench| _ = bench.runtimes.stopped.lock().unwrap().insert(project("a", "x"));
    stop(&bench);
    bench.settle(&newer);
    assert_eq!((bench.at_work(), bench.state("a")), (vec!["a".to_owned()], "pending".to_owned()));
    assert!(bench.runtimes.stopped.lock().unwrap().is_empty());
    bench.release();
    bench.settle(&newer);
    assert_eq!(*bench.runtimes.begun.lock().unwrap(), ["fetch", "restore"].map(of));

    // Beside what changes it nothing is put back.
    bench.runtimes.begun.lock().unwrap().clear();
    bench.state.lock().restores.clear();
    stop(&bench);
    bench.gates = Gates::default();
    bench.hang(&["restore a"]);
    bench.settle(&newer);
    bench.settle(&newer);
    assert_eq!(*bench.runtimes.begun.lock().unwrap(), [of("restore")]);
    bench.release();
    bench.settle(&newer);
    assert_eq!(*bench.runtimes.begun.lock().unwrap(), ["restore", "fetch", "apply"].map(of));
    assert_eq!(bench.state("a"), "installed");
}

#[test]
fn what_is_being_put_back_ends_at_once_when_it_is_held_or_something_newer_is_wanted() {
    let held = Gates { holds: vec![Hold::Person(HoldByPerson { now: false, ..now(Some("a")) })], ..Gates::default() };
    for (gates, version, then) in [(held, "1", "pending"), (Gates::default(), "2", "installed")] {
        let mut bench = Bench::new(&[]);
        bench.be_patient(HOUR);
        bench.settle(&all(&["a"]));
        bench.runtimes.stopped.lock().unwrap().insert(project("a", "x"));
        bench.hang(&["restore a"]);
        bench.settle(&all(&["a"]));
        assert_eq!(bench.at_work(), ["a"]);
        bench.gates = gates;
        bench.pass(&[wanted("a", &[("x", version)])]);
        let began = Instant::now();
        while bench.jobs.is_any() && began.elapsed() < Duration::from_secs(10) {
            bench.jobs.wait(Duration::from_millis(100));
            bench.jobs.reap().unwrap();
        }
        assert!(!bench.jobs.is_any());
        assert!(bench.runtimes.stopped.lock().unwrap().contains(&project("a", "x")), "it wasn't put back");
        bench.release();
        bench.settle(&[wanted("a", &[("x", version)])]);
        assert_eq!(bench.state("a"), then);
    }
}

#[test]
fn what_is_done_of_a_deployment_is_put_back_while_a_later_component_of_it_is_at_work() {
    let mut bench = Bench::new(&[]);
    let two = [wanted("a", &[("x", "1"), ("y", "1")])];
    let of = |verb: &str, name: &str| format!("{verb} {}", project("a", name));
    bench.runtimes.hang.lock().unwrap().insert(of("wait", "y"));
    bench.settle(&two);
    assert_eq!((bench.at_work(), bench.state("a")), (vec!["a".to_owned()], "installed".to_owned()));
    bench.runtimes.begun.lock().unwrap().clear();
    bench.runtimes.stopped.lock().unwrap().insert(project("a", "x"));
    bench.settle(&two);
    assert_eq!(*bench.runtimes.begun.lock().unwrap(), [of("restore", "x")]);
    assert_eq!((bench.at_work(), bench.state("a")), (vec!["a".to_owned()], "installed".to_owned()));
    bench.release();
    bench.finish(&two);
    assert!(bench.runtimes.stopped.lock().unwrap().is_empty());
}
