//! Containers that somebody removes while they are being applied: on real Docker.

use crate::docker::{MIGRATION, Real, docker};
use crate::docker_health::end;
use crate::world::until;

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
