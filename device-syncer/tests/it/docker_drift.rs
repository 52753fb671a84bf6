//! Drift that is only reported, on real Docker.

use serde_json::json;

use crate::docker::{CHECK, Real, docker};

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
fn what_the_engine_does_not_start_after_a_power_cut_is_started_although_drift_is_only_reported() {
    let real = running("power");
    let before = kill(&real);
    real.reboot("second boot");
    real.once().good();
    assert_started(&real, &before);
}
