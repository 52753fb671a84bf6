//! Gates that close while something is at work, and what began although they are closed.

use super::*;
use crate::decision::component::Kind;
use crate::decision::hook::HookGate;

/// Gates of which the windows for changes are closed.
fn outside_windows() -> Gates {
    Gates { openings: Openings { apply: Opening::NeverOpens, ..Openings::default() }, ..Gates::default() }
}

#[test]
fn gates_reach_what_is_fetched_while_its_runtime_does_not_answer() {
    let held = Gates { holds: vec![Hold::Person(HoldByPerson { now: false, ..now(None) })], ..Gates::default() };
    for gates in [held, outside_windows(), Gates { is_suspended: true, ..Gates::default() }] {
        let (mut bench, wanted) = (Bench::new(&["fetch a"]), all(&["a"]));
        bench.settle(&wanted);
        assert_eq!(bench.at_work(), ["a"]);
        (bench.gates, bench.unreachable) = (gates, [ProfileType::Compose].into());
        bench.pass(&wanted);
        bench.release();
        bench.settle(&wanted);
        assert_eq!((bench.at_work(), bench.begun("apply", ("a", "x"))), (vec![], 0), "{:?}", bench.gates);
        (bench.gates, bench.unreachable) = (Gates::default(), BTreeSet::new());
        bench.settle(&wanted);
        assert_eq!(bench.state("a"), "installed");
    }
}

#[test]
fn what_began_goes_on_outside_windows_also_while_its_runtime_does_not_answer() {
    let (mut bench, both) = (Bench::new(&["apply a"]), [wanted("a", &[("x", "1"), ("y", "1")])]);
    bench.settle(&both);
    (bench.gates, bench.unreachable) = (outside_windows(), [ProfileType::Compose].into());
    bench.pass(&both);
    bench.release();
    bench.settle(&both);
    assert_eq!(bench.begun("apply", ("a", "y")), 1);
}

#[test]
fn the_sites_hook_is_asked_for_what_was_fetched_while_its_runtime_did_not_answer() {
    let (mut bench, wanted) = (Bench::new(&["fetch a"]), all(&["a"]));
    let (home, asked) = (Home::new(bench._dir.path()), bench._dir.path().join("asked"));
    bench.jobs.ask(Hooks::of_shell(&home, &format!("cat >>'{}'; exit 1", asked.display())));
    bench.gates.hook = Some(HookGate::default());
    bench.settle(&wanted);
    bench.unreachable = [ProfileType::Compose].into();
    bench.pass(&wanted);
    assert!(!asked.exists());
    bench.release();
    bench.settle(&wanted);
    assert!(asked.exists() && bench.begun("apply", ("a", "x")) == 0);
}

/// The same deployment, by helm.
fn by_helm(mut wanted: DesiredDeployment) -> DesiredDeployment {
    for component in &mut wanted.components {
        let (namespace, values) = ("default".to_owned(), Default::default());
        component.input.as_mut().unwrap().kind = Kind::Helm { namespace, values, secrets: Vec::new() };
    }
    wanted
}

#[test]
fn what_began_by_a_removal_goes_on_when_the_windows_close_and_after_it_was_cut_off() {
    let retyped = ([wanted("a", &[("x", "1")])], [by_helm(wanted("a", &[("x", "2")]))], "x");
    let without = ([wanted("a", &[("x", "1"), ("y", "1")])], [wanted("a", &[("y", "2")])], "y");
    for (before, after, changes) in [retyped, without] {
        for is_cut_off in [false, true] {
            let mut bench = Bench::new(&[]);
            bench.settle(&before);
            bench.hang(&["remove a"]);
            bench.settle(&after);
            assert_eq!((bench.begun("remove", ("a", "x")), bench.begun("apply", ("a", changes))), (1, 1));
            let cut = Gates { is_suspended: true, ..Gates::default() };
            bench.gates = if is_cut_off { cut } else { outside_windows() };
            bench.pass(&after);
            bench.release();
            bench.settle(&after);
            assert_eq!(bench.begun("apply", ("a", changes)), if is_cut_off { 1 } else { 2 });
            bench.gates = outside_windows();
            bench.settle(&after);
            assert_eq!(
                (bench.begun("apply", ("a", changes)), bench.state_of("a", changes)),
                (2, "installed".to_owned())
            );
            assert_eq!(bench.begun("remove", ("a", "x")), 1, "it is gone");
        }
    }
}
