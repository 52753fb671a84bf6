//! Restarts that are asked for, on real Docker: the same containers, started again, and no migration a second time.

use serde_json::json;

use crate::docker::{MIGRATION, Real, client, docker};
use crate::world::{command, kill, script, until};

/// A database that stops at once, and a server that takes its time.
const SERVERS: &str = "  db:
    image: margo-test/busybox:1
    network_mode: none
    command: [sh, -c, 'trap exit TERM; sleep infinity & wait']
    stop_signal: SIGTERM
    healthcheck: {test: [CMD, sh, -c, 'mkdir /dev/shm/well || exec sleep 1000'], interval: 1s, timeout: 1h}
    restart: unless-stopped
  web:
    image: margo-test/busybox:1
    network_mode: none
    command: [sh, -c, 'trap \"sleep 6; exit\" TERM; sleep infinity & wait']
    environment: {GREETING: '${GREETING}'}
    volumes: ['data:/data']
    depends_on: {migrate: {condition: service_completed_successfully}, db: {condition: service_started}}
    healthcheck: {test: [CMD, sh, -c, 'mkdir /dev/shm/well || exec sleep 1000'], interval: 1s, timeout: 1h}
    stop_signal: SIGTERM
    stop_grace_period: 30s
    restart: unless-stopped
";

fn application() -> String {
    format!("services:\n{MIGRATION}{SERVERS}volumes: {{data: {{}}}}\n")
}

const SERVICES: [&str; 3] = ["migrate", "db", "web"];

fn running(name: &str) -> Real {
    let real = Real::enrolled();
    real.want(name, &application());
    real.hand.publish();
    real.once().good();
    real.told();
    real
}

fn ask(real: &Real, number: u64) {
    real.hand.describe("greeter", |envelope| envelope["policy"] = json!({ "restart": number }));
    real.hand.publish();
}

fn seen(real: &Real) -> [String; 3] {
    SERVICES.map(|service| real.of_service(service).concat())
}

/// Those containers are the same and were started again, and the migration is as it was.
fn assert_restarted(real: &Real, before: &[String; 3]) {
    let now = seen(real);
    for (at, service) in SERVICES.iter().enumerate() {
        assert_eq!(now[at][..64], before[at][..64], "{service} is the same container");
        assert_eq!(now[at] != before[at], *service != "migrate", "{service}: {before:?} {now:?}");
    }
    let runs = docker(&["exec", &now[2][..64], "sh", "-c", "wc -l </data/runs"]);
    assert_eq!((runs.as_str(), real.states("greeter")), ("1", vec!["hello installed".to_owned()]));
}

const TOLD: [&str; 2] = [
    "greeter/* installed > installing restart-requested; greeter/hello installed > installing restart-requested",
    "greeter/* installing > installed; greeter/hello installing > installed",
];

#[test]
fn what_runs_is_restarted_as_it_is_by_fleet_and_person_and_a_migration_does_not_run_again() {
    let real = running("restarted");
    let before = seen(&real);
    ask(&real, 1);
    real.once().good();
    assert_restarted(&real, &before);
    assert_eq!(real.told()[1..], TOLD, "behind the adoption");
    real.assert_idle();
    let before = seen(&real);
    real.syncer(&["restart", "greeter"]).good();
    real.once().good();
    assert_restarted(&real, &before);
    real.assert_idle();
}

#[test]
fn killed_in_the_middle_the_next_goes_on_with_what_is_left() {
    let real = running("restart-killed");
    let before = seen(&real);
    ask(&real, 1);
    real.add_settings("poll: 1s\n");
    let mut syncer = command(&real.home(), &["run"]).spawn().unwrap();
    until("the database is done, and the server is stopping", || seen(&real)[1] != before[1]);
    kill(&mut syncer);
    let middle = seen(&real);
    assert_eq!(middle[2], before[2], "the server wasn't done");
    real.once().good();
    assert_restarted(&real, &before);
    assert_eq!(seen(&real)[1], middle[1], "the database was restarted once");
    assert_eq!(real.told().iter().filter(|told| TOLD.contains(&told.as_str())).count(), 2, "and told once");
    real.assert_idle();
}

#[test]
fn an_engine_that_is_asked_by_docker_restarts_as_well() {
    let real = Real::enrolled();
    // Nobody knows that this is a socket of this machine.
    let program = real.path("docker-elsewhere");
    let socket = crate::docker::variable("DOCKER_HOST");
    script(&program, &format!("DOCKER_HOST={socket} exec {} \"$@\"", client().display()));
    real.use_engine(&program, "tcp://elsewhere.invalid:2375", "");
    real.want("restarted-elsewhere", &application());
    real.hand.publish();
    real.once().good();
    let before = seen(&real);
    ask(&real, 1);
    real.once().good();
    assert_restarted(&real, &before);
    real.assert_idle();
}
