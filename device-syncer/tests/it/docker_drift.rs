//! Drift that is only reported, on real Docker.

use serde_json::json;

use crate::docker::{CHECK, Real, docker};
use crate::world::until;

/// A migration that is done, and a server that the engine never starts by itself.
fn running(name: &str) -> Real {
    let compose = format!(
        "services:
  migrate: {{image: 'margo-test/busybox:1', network_mode: none, command: ['true'], restart: 'no'}}
  web:
    image: margo-test/busybox:1
    network_mode: none
    command: [sleep, infinity]
    environment: {{GREETING: '${{GREETING}}'}}
    depends_on: {{migrate: {{condition: service_completed_successfully}}}}
    restart: 'no'
    {CHECK}
"
    );
    let real = Real::enrolled();
    real.want(name, &compose);
    real.hand.describe("greeter", |envelope| envelope["policy"] = json!({"drift": "report"}));
    real.hand.publish();
    real.once().good();
    real
}

/// Kills the server, and returns what is there of it and of the migration.
fn kill(real: &Real) -> [Vec<String>; 2] {
    docker(&["kill", &real.of_service("web")[0][..64]]);
    ["web", "migrate"].map(|service| real.of_service(service))
}

/// The same container of the server was started once more, and nothing else was.
fn assert_started(real: &Real, [web, migrate]: &[Vec<String>; 2]) {
    let now = real.of_service("web");
    assert!(now[0][..64] == web[0][..64] && now != *web, "{web:?} {now:?}");
    assert_eq!((real.of_service("migrate"), real.states("greeter")), (migrate.clone(), vec!["hello installed".into()]));
    assert!(real.running().iter().any(|one| one.ends_with("true")));
}

#[test]
fn a_service_stopped_by_hand_is_told_and_left_and_a_persons_word_starts_it_once() {
    let real = running("reported");
    let before = kill(&real);
    real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello pending drifted"]);
    real.reboot("second boot");
    real.once().ended(1);
    assert_eq!(before, ["web", "migrate"].map(|service| real.of_service(service)));
    real.syncer(&["retry", "greeter"]).good();
    real.once().good();
    assert_started(&real, &before);
    kill(&real);
    real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello pending drifted"]);
}

#[test]
fn what_ends_with_0_because_the_device_goes_down_is_started_again_and_what_had_come_to_its_end_is_not() {
    let real = Real::enrolled();
    let service = |name: &str, command: &str| {
        format!("  {name}: {{image: 'margo-test/busybox:1', network_mode: none, command: [sh, -c, '{command}']}}\n")
    };
    // As nginx, redis or postgres end; a job that takes longer than the apply waits; and one that is at work when the device goes down.
    let ends_well = "trap \"exit 0\" TERM; while :; do sleep 0.1; done";
    let services = service("web", ends_well) + &service("import", "sleep 15") + &service("export", ends_well);
    real.want("orderly", &format!("services:\n{services}"));
    real.hand.publish();
    real.once().good();
    let of = |service: &str| real.of_service(service);
    let ended = |service: &str| {
        docker(&["inspect", "--format", "{{.State.Status}} {{.State.ExitCode}}", &of(service)[0][..64]]) == "exited 0"
    };
    until("the job is done", || ended("import"));
    real.once().good();
    let before = ["web", "import", "export"].map(of);
    let end = |service: &str| {
        docker(&["kill", "--signal", "TERM", &of(service)[0][..64]]);
        until("it has ended with 0", || ended(service));
    };
    ["web", "export"].into_iter().for_each(end);
    real.reboot("second boot");
    real.once().good();
    let now = ["web", "import", "export"].map(of);
    assert_eq!(now[1], before[1], "it had come to its end");
    for (one, was) in [(&now[0], &before[0]), (&now[2], &before[2])] {
        assert!(one[0][..64] == was[0][..64] && one != was, "{was:?} {one:?}");
    }
    // During one boot it ends for good, by whatever it is: so vendors write jobs.
    end("export");
    let stopped = of("export");
    real.once().good();
    real.reboot("third boot");
    real.once().good();
    assert_eq!(of("export"), stopped);
}

#[test]
fn what_the_engine_does_not_start_after_a_power_cut_is_started_although_drift_is_only_reported() {
    let real = running("power");
    let before = kill(&real);
    real.reboot("second boot");
    real.once().good();
    assert_started(&real, &before);
}
