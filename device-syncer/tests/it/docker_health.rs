//! Health is what docker says now, and what was stopped by hand comes back: on real Docker.

use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::docker::{MIGRATION, Real, docker};
use crate::world::{World, command, finish, until};

impl World {
    /// What the host's heartbeat says of the only component of `greeter`: state, health, drift and reason.
    fn heartbeat(&self) -> [String; 4] {
        let bytes = repo_testkit::git::show(&self.hand.repository(), "heartbeat", "current-state.json");
        let state: Value = serde_json::from_slice(&bytes.unwrap_or_default()).unwrap_or_default();
        let component = &state["deployments"][self.hand.deployment_id("greeter").to_string()]["components"]["hello"];
        ["state", "health", "drift", "reason"].map(|key| component[key].as_str().unwrap_or_default().to_owned())
    }

    /// The syncer as a service, which looks every second.
    fn follow(&self) -> Child {
        let file = self.home().join("device.yaml");
        let settings = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, settings + "poll: 1s\n").unwrap();
        command(&self.home(), &["run"]).spawn().unwrap()
    }
}

pub(crate) fn end(syncer: Child) {
    let pid = Pid::from_raw(syncer.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    finish(syncer).good();
}

/// A server that ends with 3 once somebody left `/data/broken`.
const WEB: &str = "  web:
    image: margo-test/busybox:1
    network_mode: none
    command: [sh, -c, 'while [ ! -e /data/broken ]; do sleep 0.1; done; exit 3']
    environment: {GREETING: '${GREETING}'}
    volumes: ['data:/data']
    depends_on: {migrate: {condition: service_completed_successfully}}
    healthcheck: {test: [CMD, test, '!', -e, /data/ill], interval: 1s, retries: 1}
    restart: RESTART
";

fn running(name: &str, restart: &str) -> Real {
    let real = Real::enrolled();
    let web = WEB.replace("RESTART", restart);
    real.want(name, &format!("services:\n{MIGRATION}{web}volumes: {{data: {{}}}}\n"));
    real.hand.publish();
    real.once().good();
    real.told();
    real
}

fn in_web(real: &Real, shell: &str) -> String {
    let web = real.of_service("web");
    let all = || docker(&["ps", "--all", "--no-trunc", "--filter", &real.label()]);
    docker(&["exec", &web.first().unwrap_or_else(|| panic!("`web` isn't there: {}", all()))[..64], "sh", "-c", shell])
}

#[test]
fn a_service_stopped_by_hand_is_put_back_and_its_finished_migration_does_not_run_again() {
    let real = running("stopped", "unless-stopped");
    let (web, migrate) = (real.of_service("web")[0].clone(), real.of_service("migrate"));
    docker(&["stop", "-t", "1", &web[..64]]);
    let status = real.syncer(&["status"]).good().stdout;
    assert!(status.contains("greeter/hello  installed  degraded: service `web` is exited with 137"), "{status}");
    let plan = real.syncer(&["plan"]).ended(3).stdout;
    assert_eq!(plan, "+ greeter/hello: put back: service `web` is exited with 137\n");
    real.once().good();
    let again = real.of_service("web")[0].clone();
    assert_eq!(again[..64], web[..64], "it is the same container");
    assert_ne!(again, web, "and was started again");
    assert_eq!(real.of_service("migrate"), migrate);
    assert_eq!(in_web(&real, "wc -l </data/runs"), "1");
    let told = [
        "greeter/* installed > installing; greeter/hello installed > installing",
        "greeter/* installing > installed; greeter/hello installing > installed",
    ];
    assert_eq!(real.told(), told);
    real.syncer(&["plan"]).good();
    real.assert_idle();

    // The same while it is followed.
    let commits = || real.history(&real.hand.repository()).len();
    let before = commits();
    let syncer = real.follow();
    docker(&["stop", "-t", "1", &web[..64]]);
    until("it runs again", || real.running().iter().any(|one| one.starts_with(&web[..64]) && one.ends_with("true")));
    until("and that is told", || commits() == before + 2 && real.heartbeat() == ["installed", "healthy", "none", ""]);
    end(syncer);
    assert_eq!(real.told(), told);
    assert_eq!(real.of_service("migrate"), migrate);
}

#[test]
fn what_stops_again_and_again_is_put_back_ever_more_rarely_and_told() {
    let real = running("broken-once", "'no'");
    let syncer = real.follow();
    in_web(&real, ": >/data/broken");
    until("it was put back twice", || real.states("greeter") == ["hello installing health-timeout"]);
    assert!(real.message("greeter").contains("stops again and again"), "{}", real.message("greeter"));
    until("that is told", || {
        real.heartbeat() == ["installing", "degraded", "stopped", "service `web` is exited with 3"]
    });
    let told = real.told();
    assert!(told.len() <= 4, "{told:?}");
    end(syncer);
    real.once().ended(1).says(&["greeter/hello: installing: health-timeout: it stops again and again"]);
}

#[test]
fn a_crash_loop_and_an_unhealthy_service_are_told_at_once_by_everybody_and_by_exit_codes() {
    let real = running("looping", "always");
    let syncer = real.follow();
    until("it is well", || real.heartbeat() == ["installed", "healthy", "none", ""]);
    in_web(&real, ": >/data/ill");
    until("it is ill", || real.heartbeat() == ["installed", "degraded", "none", "service `web` is unhealthy"]);
    in_web(&real, "rm /data/ill");
    until("it is well again", || real.heartbeat()[1] == "healthy");
    in_web(&real, ": >/data/broken");
    let is_crash_looping = || {
        let heartbeat =
            repo_testkit::git::show(&real.hand.repository(), "heartbeat", "current-state.json").unwrap_or_default();
        String::from_utf8_lossy(&heartbeat).contains(r#""crashLooping":true"#)
    };
    until("it is told", || real.heartbeat()[3].contains("restarting") && is_crash_looping());
    assert_eq!(real.heartbeat()[1], "degraded");
    end(syncer);
    let plan = real.syncer(&["plan"]).ended(1).stdout;
    assert!(plan.starts_with("! greeter/hello: keep, although service `web` is restarting"), "{plan}");
    let status = real.syncer(&["status"]).good().stdout;
    assert!(status.contains("greeter/hello  installed  degraded: service `web` is restarting"), "{status}");
    real.once().ended(1).says(&["greeter/hello: degraded: service `web` is restarting"]);
    assert_eq!(real.told(), Vec::<String>::new(), "it is no transition");
}

#[test]
fn what_crashes_again_and_again_is_never_called_installed() {
    let real = Real::enrolled();
    let compose = "services: {web: {image: 'margo-test/busybox:1', network_mode: none, restart: always, \
        command: [sh, -c, 'sleep 3; exit 1'], environment: {GREETING: '${GREETING}'}}}\n";
    real.want("crashing", compose);
    real.hand.edit("greeter", |text| text.replace("timeout: 1m", "timeout: 15s"));
    real.hand.publish();
    real.once().ended(1).says(&["greeter/hello: installing: health-timeout: service `web`"]);
    assert_eq!(real.states("greeter"), ["hello installing health-timeout"]);
    assert!(!real.told().join("; ").contains("installed"));
}
