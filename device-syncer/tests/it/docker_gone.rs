//! Containers that somebody removes while they are being applied, and a syncer that ends meanwhile: on real Docker.

use std::fs::{self, File};
use std::process::Child;

use crate::docker::{MIGRATION, Real, docker};
use crate::docker_health::end;
use crate::world::{command, kill, until};

/// A server that is well once somebody left `/data/well`.
const WAITING: &str = "  web:
    image: margo-test/busybox:1
    network_mode: none
    command: [sleep, '100000']
    init: true
    environment: {GREETING: '${GREETING}'}
    volumes: ['data:/data']
    depends_on: {migrate: {condition: service_completed_successfully}}
    healthcheck: {test: [CMD, test, -e, /data/well], interval: 1s, retries: 1000}
";

/// One more that is only started once `web` is well, so that `up` itself waits.
const BEHIND: &str = "  behind:
    image: margo-test/busybox:1
    network_mode: none
    command: [sleep, '100000']
    init: true
    depends_on: {web: {condition: service_healthy}}
";

/// Removes `web` while it isn't well yet; then it gets well, and nothing was ever told as failed.
fn remove_while_it_waits(name: &str, more: &str) -> Real {
    let real = Real::enrolled();
    real.want(name, &format!("services:\n{MIGRATION}{WAITING}{more}volumes: {{data: {{}}}}\n"));
    real.hand.publish();
    let syncer = real.listens();
    let is_up = |all: &[String]| all.iter().any(|one| !one.ends_with(" 0001-01-01T00:00:00Z"));
    until("it waits for its health", || is_up(&real.of_service("web")));
    // Whoever started it waits for its health from here on.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let before = real.of_service("web")[0][..64].to_owned();
    docker(&["rm", "--force", &before]);
    until("it is back", || {
        real.of_service("web").iter().any(|one| one[..64] != before && is_up(std::slice::from_ref(one)))
    });
    docker(&["exec", &real.of_service("web")[0][..64], "touch", "/data/well"]);
    until("it is installed", || real.states("greeter") == ["hello installed"]);
    end(syncer);
    let told = real.told().join("; ");
    assert!(!told.contains("failed") && !told.contains("health-timeout"), "{told}");
    real
}

fn migrations(real: &Real) -> String {
    docker(&["exec", &real.of_service("web")[0][..64], "wc", "-l", "/data/runs"])
}

#[test]
fn what_is_removed_while_its_health_is_waited_for_is_back_and_no_migration_runs_again() {
    let real = remove_while_it_waits("gone", "");
    assert_eq!(migrations(&real), "1 /data/runs");
}

#[test]
fn what_is_removed_while_up_itself_waits_for_it_is_back_and_nothing_is_told_as_failed() {
    let real = remove_while_it_waits("gone-in-up", BEHIND);
    assert_eq!(real.of_service("behind").len(), 1);
}

impl Real {
    /// Wants `web`, which isn't well yet, behind its migration.
    fn want_waiting(&self, name: &str) {
        self.want(name, &format!("services:\n{MIGRATION}{WAITING}volumes: {{data: {{}}}}\n"));
    }

    /// A syncer that works on it.
    fn applies(&self) -> Child {
        let log = self.path("run.log");
        let syncer = command(&self.home(), &["run"]).stderr(File::create(&log).unwrap()).spawn().unwrap();
        until("it is applied", || fs::read_to_string(&log).unwrap().contains("applying"));
        syncer
    }

    /// Whether the marker says that all was started.
    fn is_started(&self) -> bool {
        let marker = self.home().join("projects").join(self.project("greeter")).join("marker.json");
        fs::read_to_string(marker).is_ok_and(|text| text.contains("\"started\": true"))
    }

    fn get_well(&self) {
        docker(&["exec", &self.of_service("web")[0][..64], "touch", "/data/well"]);
    }
}

#[test]
fn what_somebody_removes_under_a_hold_while_its_health_is_waited_for_stays_away_until_it_is_released() {
    let real = Real::enrolled();
    real.want_waiting("held");
    real.hand.publish();
    let syncer = real.applies();
    until("it waits for health", || real.is_started());
    real.syncer(&["hold", "greeter", "--by", "j.doe", "--why", "line 2"]).good();
    until("it is held", || real.report()["gates"][0]["code"] == "held");
    docker(&["rm", "--force", &real.of_service("web")[0][..64]]);
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert!(real.of_service("web").is_empty(), "a person is at work there");
    real.syncer(&["release", "greeter"]).good();
    until("it is back", || !real.of_service("web").is_empty());
    until("it is well", || real.of_service("web").iter().any(|one| !one.ends_with(" 0001-01-01T00:00:00Z")));
    real.get_well();
    until("it is installed", || real.states("greeter") == ["hello installed"]);
    assert_eq!(migrations(&real), "1 /data/runs");
    end(syncer);
}

#[test]
fn a_syncer_that_ends_while_health_is_waited_for_goes_on_with_that_and_no_migration_runs_again() {
    let real = Real::enrolled();
    real.want_waiting("taken-up");
    real.hand.publish();
    let mut killed = real.applies();
    until("it waits for health", || real.is_started());
    let before = real.running();
    kill(&mut killed);

    let ended = real.applies();
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(real.running(), before, "nothing was started again");
    end(ended);
    assert!(real.is_started());

    // As after a power cut, and somebody has tidied up.
    docker(&["kill", &real.of_service("web")[0][..64]]);
    docker(&["rm", &real.of_service("migrate")[0][..64]]);
    let third = real.applies();
    until("what doesn't run is started", || {
        real.running().iter().any(|one| one.ends_with("true") && !before.contains(one))
    });
    real.get_well();
    until("it is installed", || real.states("greeter") == ["hello installed"]);
    assert_eq!((migrations(&real), real.of_service("migrate")), ("1 /data/runs".to_owned(), vec![]));
    assert!(!real.is_started());
    end(third);
    let told = real.told().join("; ");
    assert!(!told.contains("failed") && !told.contains("health-timeout"), "{told}");
    // The migration has come to its end, also for who looks later.
    real.assert_idle();
}

#[test]
fn health_that_comes_at_a_later_try_is_only_waited_for_and_no_migration_runs_again() {
    let real = Real::enrolled();
    real.want_waiting("later");
    real.hand.edit("greeter", |text| text.replace("timeout: 1m", "timeout: 15s"));
    real.hand.publish();
    real.once().ended(1);
    let before = real.running();
    real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello installing health-timeout"]);
    real.get_well();
    real.once().good();
    assert_eq!((real.states("greeter"), real.running()), (vec!["hello installed".to_owned()], before));
    assert_eq!(migrations(&real), "1 /data/runs");
    // Another input is applied as ever.
    real.hand.want("greeter", &real.app, "servus");
    real.hand.publish();
    real.once().good();
    real.assert_idle();
}
