//! An engine that really goes away in the middle of an apply, and comes back.
//!
//! It is a second one of the test's own, with its own data and socket, no bridge and no firewall rules: the engine that
//! all other tests use is never touched.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use repo_testkit::{comes_within, engine, git};
use tempfile::TempDir;

use crate::docker::{client, variable};
use crate::world::{Run, World, command, finish, push, text, until};

/// How long anything of an engine may take; a minute is for machines under load.
const PATIENCE: Duration = Duration::from_secs(60);

/// A `dockerd`, ended with all its containers when dropped.
struct Engine {
    dir: TempDir,
    dockerd: Option<Child>,
}

impl Engine {
    fn new() -> Self {
        // A Unix socket's path has at most 107 bytes, and containerd makes its own below the exec root.
        let dir = tempfile::Builder::new().prefix("engine").tempdir_in("/tmp").unwrap();
        let mut engine = Self { dir, dockerd: None };
        engine.start();
        let image = variable("MARGO_TEST_IMAGE") + ":1";
        let mut save = Command::new(client()).args(["save", &image]).stdout(Stdio::piped()).spawn().unwrap();
        let load = Command::new(client())
            .args(["-H", &engine.host(), "load"])
            .stdin(save.stdout.take().unwrap())
            .output()
            .unwrap();
        text(load);
        assert!(save.wait().unwrap().success());
        engine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn host(&self) -> String {
        format!("unix://{}", self.path("docker.sock").display())
    }

    fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut dockerd = Command::new("dockerd");
        for (option, name) in [("--data-root", "data"), ("--exec-root", "exec"), ("--pidfile", "pid")] {
            dockerd.arg(option).arg(self.path(name));
        }
        dockerd.args(["--host", &self.host(), "--bridge=none", "--iptables=false", "--ip-masq=false"]);
        dockerd.args(["--ip-forward=false", "--storage-driver=overlay2", "--shutdown-timeout=3"]);
        let err = log.try_clone().unwrap();
        self.dockerd = Some(dockerd.stdin(Stdio::null()).stdout(log).stderr(err).spawn().expect("dockerd starts"));
        let engine = engine::Engine::at(&self.host());
        let answers = comes_within(PATIENCE, || engine.get("/version").is_some());
        let log = || fs::read_to_string(self.path("log")).unwrap_or_default();
        assert!(answers, "dockerd doesn't answer: {}", log());
    }

    /// Ends it as a stop of its service does, and its containers with it.
    fn stop(&mut self) {
        if let Some(mut dockerd) = self.dockerd.take() {
            let _ = Command::new("kill").arg(dockerd.id().to_string()).status();
            dockerd.wait().expect("it ends");
        }
    }

    /// Ends it as a crash does: its containers don't notice.
    fn kill(&mut self) {
        let mut dockerd = self.dockerd.take().expect("it runs");
        dockerd.kill().expect("it runs");
        dockerd.wait().expect("it ends");
        fs::remove_file(self.path("pid")).expect("its number");
        // containerd dies with it; where nobody waits for orphans its number lives on, and keeps a new one from starting.
        let number = self.path("exec/containerd/containerd.pid");
        let pid = fs::read_to_string(&number).expect("containerd's number");
        let cmdline = Path::new("/proc").join(pid.trim()).join("cmdline");
        until("containerd has ended", || fs::read(&cmdline).unwrap_or_default().is_empty());
        fs::remove_file(number).expect("removed");
    }

    /// Ends what a container runs, and the shim above it, by the numbers that the engine itself wrote down.
    fn end_orphans(&self) {
        let tasks = self.path("exec/containerd/daemon/io.containerd.runtime.v2.task/moby");
        for task in fs::read_dir(tasks).into_iter().flatten().flatten().map(|entry| entry.path()) {
            for number in ["init.pid", "shim.pid"].map(|name| fs::read_to_string(task.join(name))).into_iter().flatten()
            {
                let _ = Command::new("kill").arg("-9").arg(number.trim()).status();
            }
        }
    }

    fn ask(&self, args: &[&str]) -> Option<String> {
        let output = Command::new(client()).args(["-H", &self.host()]).args(args).output().expect("docker runs");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Id, start and greeting of each running container of a service.
    fn running(&self, service: &str) -> Vec<String> {
        let engine = engine::Engine::at(&self.host());
        let found = engine.try_containers(&[&format!("com.docker.compose.service={service}")]).unwrap_or_default();
        let running = found.iter().filter(|one| one["State"]["Running"] == true);
        let text = |one| ["/Id", "/State/StartedAt"].map(|pointer| engine::text(one, pointer)).join(" ");
        running.map(|one| format!("{} {}", text(one), one["Config"]["Env"])).collect()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let all = self.dockerd.is_some().then(|| self.ask(&["ps", "--all", "--quiet"])).flatten();
        for id in all.unwrap_or_default().lines() {
            self.ask(&["rm", "--force", "--volumes", id]);
        }
        self.stop();
        self.end_orphans();
        for below in mounts_below(self.dir.path()) {
            let _ = Command::new("umount").arg("--lazy").arg(below).status();
        }
    }
}

/// What is mounted below a directory, the innermost first.
fn mounts_below(directory: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
    let mut below: Vec<_> = points.filter(|point| point.starts_with(directory)).collect();
    below.reverse();
    below
}

/// `up` waits for `gate`, which is healthy some seconds after its start.
const SLOW: &str = r#"services:
  gate:
    image: margo-test/busybox:1
    network_mode: none
    command: [sh, -c, "sleep 15; : >/tmp/open; exec sleep 100000"]
    environment: {GREETING: "${GREETING}"}
    healthcheck: {test: [CMD, test, -e, /tmp/open], interval: 1s, retries: 60}
    restart: unless-stopped
  web:
    image: margo-test/busybox:1
    network_mode: none
    command: [sleep, "100000"]
    environment: {GREETING: "${GREETING}"}
    healthcheck: {test: [CMD, "true"], interval: 1s}
    depends_on: {gate: {condition: service_healthy}}
    restart: unless-stopped
"#;

/// An apply during which `away` ends the engine; how the pass ended, and the device.
fn interrupted(away: impl FnOnce(&mut Engine)) {
    let (world, mut engine) = (World::enrolled(), Engine::new());
    let settings = format!(
        "{{program: {}, host: \"{}\", config: \"{}\"}}",
        client().display(),
        engine.host(),
        variable("DOCKER_CONFIG")
    );
    world.settings_of(&world.home(), &settings, "");
    let directory = world.path("application");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("compose.yaml"), SLOW).unwrap();
    let app = push(&directory, "slow", "1.0.0");
    world.hand.want("greeter", &app, "hello");
    world.hand.publish();
    let syncer = command(&world.home(), &["once"]).spawn().unwrap();
    until("it applies", || !engine.running("gate").is_empty());
    away(&mut engine);
    let run: Run = finish(syncer).ended(1);
    let state = world.states("greeter");
    let codes = ["runtime-unavailable", "health-timeout"].map(|code| format!("hello installing {code}"));
    assert!(codes.contains(&state[0]), "{state:?} {run:?}");
    // While it is away the device says so, and nothing is given up.
    world.once().ended(1).says(&["RuntimeUnavailable: docker can't be used"]);
    assert!(world.conditions().contains(&"RuntimeUnavailable RuntimeUnavailable".to_owned()));

    engine.start();
    world.once().good();
    assert_eq!((engine.running("gate").len(), engine.running("web").len()), (1, 1));
    assert_eq!(world.states("greeter"), ["hello installed"]);
    assert_eq!(world.conditions(), Vec::<String>::new());
    let told = world.told().join("; ");
    for once in ["hello none > pending", "hello pending > installing", "hello installing > installed"] {
        assert_eq!(told.matches(once).count(), 1, "{once} in {told}");
    }
    let (before, status) = (engine.running("web"), git::tip(&world.hand.repository(), "status"));
    world.once().good();
    assert_eq!((engine.running("web"), git::tip(&world.hand.repository(), "status")), (before, status));
}

#[test]
fn an_engine_that_is_restarted_during_an_apply_is_waited_for() {
    interrupted(Engine::stop);
}

#[test]
fn an_engine_that_crashes_during_an_apply_is_waited_for() {
    interrupted(Engine::kill);
}

#[test]
fn after_the_engine_was_away_its_events_are_heard_again() {
    let (world, mut engine) = (World::enrolled(), Engine::new());
    let config = variable("DOCKER_CONFIG");
    let settings = format!("{{program: {}, host: \"{}\", config: \"{config}\"}}", client().display(), engine.host());
    world.settings_of(&world.home(), &settings, "");
    let directory = world.path("application");
    fs::create_dir_all(&directory).unwrap();
    let compose = "services: {web: {image: 'margo-test/busybox:1', network_mode: none, command: [sleep, '100000'], \
                   restart: unless-stopped, environment: {A: '${GREETING}'}, healthcheck: {test: [CMD, 'true'], interval: 1s}}}\n";
    fs::write(directory.join("compose.yaml"), compose).unwrap();
    world.hand.want("greeter", &push(&directory, "heard", "1.0.0"), "hello");
    world.hand.publish();
    world.once().good();
    let syncer = world.listens();
    std::thread::sleep(Duration::from_secs(3));
    engine.stop();
    engine.start();
    until("what ended with the engine is back", || engine.running("web").len() == 1);
    // Longer than the pause after it was put back, if that was needed, and than a try to listen.
    std::thread::sleep(Duration::from_secs(10));
    let before = engine.running("web");
    engine.ask(&["rm", "--force", &before[0][..64]]).unwrap();
    until("what is gone is back", || engine.running("web").len() == 1 && engine.running("web") != before);
    crate::docker_health::end(syncer);
}
