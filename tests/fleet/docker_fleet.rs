//! A fleet of three devices on real Docker, from a commit to containers.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use repo_testkit::engine::{self, Engine};
use repo_testkit::{git, terminate};

use crate::draft::Draft;
use crate::end_to_end::say_it_differently;
use crate::site::Site;
use repo_testkit::device::Device;
use repo_testkit::fleet::{DEPLOYMENT, DEVICES, Fleet};
use repo_testkit::text;

/// A fleet on real Docker; its containers and networks go with it.
struct Real {
    site: Site,
    fleet: String,
}

/// What may not change of a container that nobody wants to change.
type Marks = (String, String, u64);

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set: run the tests by `./justw test`"))
}

fn docker(args: &[&str]) -> String {
    text(Command::new("docker").args(args).stdin(Stdio::null()).output().expect("docker is installed"))
}

/// Joins a device that runs on the Docker of the tests.
fn join(fleet: &Fleet, id: &str, root: &Path) -> Device {
    let program = text(Command::new("sh").args(["-c", "command -v docker"]).output().expect("sh runs"));
    let (host, config) = (variable("DOCKER_HOST"), variable("DOCKER_CONFIG"));
    Device::with_docker(fleet, id, root, &format!("{{program: {program}, host: \"{host}\", config: {config}}}"))
}

impl Real {
    fn new() -> Self {
        Self::with(&DEVICES)
    }

    fn with(devices: &[&str]) -> Self {
        let site = Site::with(devices, join);
        let fleet = site.fleet.read("fleet.yaml");
        let fleet = fleet.lines().find_map(|line| line.strip_prefix("id: ")).expect("an id").to_owned();
        Self { site, fleet }
    }

    fn label(&self) -> String {
        format!("label=device-syncer.fleet={}", self.fleet)
    }

    /// Every container of the fleet, by the device that it belongs to.
    fn containers(&self) -> BTreeMap<String, Value> {
        let found = Engine::of_the_tests().containers(&[&format!("device-syncer.fleet={}", self.fleet)]);
        let count = found.len();
        let device = |one: &Value| engine::text(one, "/Config/Labels/device-syncer.device").to_owned();
        let all: BTreeMap<_, _> = found.into_iter().map(|one| (device(&one), one)).collect();
        assert_eq!(all.len(), count, "one container for each device");
        all
    }

    /// Id, start and restarts of each container, which must run.
    fn marks(&self) -> BTreeMap<String, Marks> {
        let marks = |one: &Value| {
            assert_eq!(one["State"]["Status"], "running", "{}", one["Name"]);
            let text = |value: &Value| value.as_str().expect("text").to_owned();
            (text(&one["Id"]), text(&one["State"]["StartedAt"]), one["RestartCount"].as_u64().expect("a number"))
        };
        self.containers().iter().map(|(device, one)| (device.clone(), marks(one))).collect()
    }

    fn greeting(&self, device: &str) -> String {
        let containers = self.containers();
        let environment = containers[device]["Config"]["Env"].as_array().expect("a list").clone();
        let greeting = environment.iter().find_map(|one| one.as_str()?.strip_prefix("GREETING="));
        greeting.expect("a greeting").to_owned()
    }

    /// What Docker did to the fleet's containers since then, whoever asked for it, but for their health checks. Each program
    /// that anybody runs in a container is there with its arguments (`exec_create: …`).
    fn events(&self, since: &str) -> String {
        let until = docker_time();
        let args = ["events", "--since", since, "--until", &until, "--filter", "type=container", "--filter"];
        let all = docker(&[&args[..], &[&self.label(), "--format", "{{.Action}} {{.Actor.Attributes.name}}"]].concat());
        let is_check = |line: &&str| {
            let check = ["exec_create: ", "exec_start: "].map(|action| format!("{action}test -s /tmp/greeting "));
            check.iter().any(|check| line.starts_with(check)) || line.starts_with("exec_die ")
        };
        all.lines().filter(|line| !is_check(line)).map(|line| format!("{line}\n")).collect()
    }
}

/// The present moment, with its fraction.
fn docker_time() -> String {
    text(Command::new("date").arg("+%s.%N").output().expect("date runs"))
}

impl Drop for Real {
    fn drop(&mut self) {
        let projects = docker(&[
            "ps",
            "--all",
            "--filter",
            &self.label(),
            "--format",
            "{{.Label \"com.docker.compose.project\"}}",
        ]);
        for project in projects.lines() {
            let down = ["compose", "-p", project, "down", "--volumes", "--timeout", "1"];
            let _ = Command::new("docker").args(down).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

#[test]
fn a_commit_becomes_containers_and_each_change_reaches_just_the_devices_that_it_is_for() {
    let real = Real::new();
    let (site, fleet) = (&real.site, &real.site.fleet);
    site.publish();
    site.pass();
    let first = real.marks();
    assert_eq!(first.keys().collect::<Vec<_>>(), DEVICES.iter().collect::<Vec<_>>(), "each device has its container");
    assert_eq!(real.greeting("packer-01"), "hello from the packer");
    assert_eq!(real.greeting("press-01"), "hello from the press");

    fleet.change(DEPLOYMENT, "hello from the packer", r#""servus \"from\" the 'packer': $x 1.10 ü""#);
    site.publish();
    site.pass();
    let second = real.marks();
    assert_eq!(real.greeting("packer-01"), "servus \"from\" the 'packer': $x 1.10 ü");
    assert_ne!(second["packer-01"].0, first["packer-01"].0, "another container");
    for neighbour in ["press-01", "press-02"] {
        assert_eq!(second[neighbour], first[neighbour], "{neighbour} is left alone");
    }

    fleet.change(DEPLOYMENT, "# exclude:\n#   - matchLabels: {role: spare}", "exclude: [{devices: [press-01]}]");
    site.publish();
    site.pass();
    let third = real.marks();
    assert!(!third.contains_key("press-01"), "it is removed where it is excluded");
    for neighbour in ["packer-01", "press-02"] {
        assert_eq!(third[neighbour], second[neighbour], "{neighbour} is left alone");
    }

    // Somebody changes a document in the repository, and signs it with a key of their own.
    let repository = fleet.repository("press-02");
    let stranger = site.dir.path().join("stranger");
    repo_testkit::hand::HandMadeDevice::with_key(&stranger);
    let forged = Draft::next(&repository, stranger.join("key"), |text| text.replace("hello from", "pwned from"));
    let genuine = git::tip(&repository, "desired").expect("a tip");
    forged.put(&repository, "desired");
    let output = site.device("press-02").syncer(&["once"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(fleet.run(&["status", "press-02"]).contains("SignatureInvalid"), "and says so in Git");
    assert_eq!(real.marks(), third, "what runs keeps running");
    git::git(&repository, &["update-ref", "refs/heads/desired", &genuine]);

    std::fs::remove_file(fleet.dir().join(DEPLOYMENT)).expect("removed");
    fleet.commit("nothing is wanted any more");
    site.publish();
    site.pass();
    assert!(real.containers().is_empty(), "everything is removed");
    for device in DEVICES {
        assert_eq!(fleet.status(device)["adoptedSerial"], fleet.serial(device), "{device}");
    }
}

/// `hello` in a second version; both keep a volume.
fn with_volume(fleet: &Fleet) {
    let [one, two] = ["1.0.0", "1.1.0"].map(|version| format!("applications/hello/{version}"));
    let (package, compose) = (format!("{one}/margo.yaml"), format!("{one}/compose/hello/compose.yaml"));
    let volume = "volumes: [\"data:/data\"]\n    restart: unless-stopped";
    fleet.replace(&compose, "restart: unless-stopped", volume);
    fleet.write(&compose, &(fleet.read(&compose) + "volumes: {data: {}}\n"));
    let (next, with) = (fleet.read(&package), fleet.read(&compose));
    fleet.write(
        &format!("{two}/margo.yaml"),
        &next.replace("version: 1.0.0", "version: 1.1.0").replace("revision: 1.0.0", "revision: 1.1.0"),
    );
    let greeting = "GREETING: ${GREETING}";
    fleet.write(
        &format!("{two}/compose/hello/compose.yaml"),
        &with.replace(greeting, "GREETING: ${GREETING}, from 1.1.0"),
    );
    fleet.run(&["app", "push", "--all"]);
    fleet.commit("a second version, and a volume");
}

#[test]
fn a_device_that_gets_another_version_by_an_override_keeps_its_volume_and_its_identity() {
    let real = Real::with(&["press-01", "press-02"]);
    let (site, fleet) = (&real.site, &real.site.fleet);
    with_volume(fleet);
    site.publish();
    site.pass();
    let (before, first) = (real.containers(), real.marks());
    let kept = |id: &str, script: &str| docker(&["exec", id, "sh", "-c", script]);
    kept(&first["press-02"].0, "echo since the first version > /data/kept");

    let example = "  # - when: {devices: [press-07]}\n  #   application: {version: 1.1.0}";
    fleet.change(DEPLOYMENT, example, "  - when: {devices: [press-02]}\n    application: {version: 1.1.0}");
    site.publish();
    site.pass();
    let (after, second) = (real.containers(), real.marks());
    assert_eq!(real.greeting("press-02"), "hello from the press, from 1.1.0");
    assert_ne!(second["press-02"].0, first["press-02"].0, "another container");
    let deployment = |all: &BTreeMap<String, Value>| {
        engine::text(&all["press-02"], "/Config/Labels/device-syncer.deployment").to_owned()
    };
    assert_eq!(deployment(&after), deployment(&before), "the same deployment");
    assert_eq!(kept(&second["press-02"].0, "cat /data/kept"), "since the first version");
    assert_eq!(second["press-01"], first["press-01"], "its neighbour is left alone");
}

#[test]
fn nothing_is_touched_when_nothing_changed() {
    let real = Real::new();
    let (site, fleet) = (&real.site, &real.site.fleet);
    site.publish();
    site.pass();
    let (before, since) = (real.marks(), docker_time());
    let status = |id: &str| git::tip(&fleet.repository(id), "status");
    let told = DEVICES.map(status);
    let idle = site.device("press-01");
    for _ in 0..20 {
        idle.pass();
    }
    assert_eq!((real.marks(), DEVICES.map(status)), (before.clone(), told.clone()), "20 idle passes");

    for _ in 0..2 {
        let mut running = idle.command(&["run"]).stderr(Stdio::null()).spawn().expect("the syncer runs");
        std::thread::sleep(std::time::Duration::from_millis(2500));
        terminate(&running);
        assert!(running.wait().expect("waited").success(), "it ends when it is told to");
    }
    assert_eq!((real.marks(), DEVICES.map(status)), (before.clone(), told.clone()), "a syncer that is restarted");

    let published = DEVICES.map(|id| git::tip(&fleet.repository(id), "desired"));
    say_it_differently(fleet);
    site.publish();
    site.pass();
    assert_eq!(DEVICES.map(|id| git::tip(&fleet.repository(id), "desired")), published, "the same in other words");
    assert_eq!((real.marks(), DEVICES.map(status)), (before.clone(), told.clone()), "the same in other words");

    std::fs::remove_dir_all(idle.clone_dir()).expect("removed");
    idle.pass();
    idle.pass();
    assert_eq!(real.marks(), before, "a clone that is lost");
    assert_eq!(real.events(&since), "", "Docker did nothing at all");
}
