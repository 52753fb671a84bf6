//! Both programs with our own host between them, over SSH: real sshd, kept sessions, waits, and what ends a key.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use repo_testkit::device::{Device, fake_docker};
use repo_testkit::fleet::Fleet;
use repo_testkit::ports::free_port;
use repo_testkit::terminate;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::installed::Installed;
use crate::site::registry_name;

const ID: &str = "press-01";

/// A fleet on our own host, whose device asks over SSH.
struct HostedOverSsh {
    dir: TempDir,
    installed: Installed,
    fleet: Fleet,
    device: Device,
    running: Vec<Child>,
}

impl HostedOverSsh {
    /// Joined and enrolled; the host doesn't run yet.
    fn new() -> Self {
        let (dir, installed) = (TempDir::new().expect("a temporary directory"), Installed::new());
        let fleet = Fleet::init(dir.path(), &registry_name(dir.path()));
        fleet.push_application();
        let (https, ssh) = (free_port(), free_port());
        let settings = format!(
            "poll: 1s\nserve:\n  names: [127.0.0.1]\n  listen: 127.0.0.1:{https}\n  ssh: {{listen: \"127.0.0.1:{ssh}\"}}\n"
        );
        std::fs::write(fleet.home().join("publisher.yaml"), settings).expect("written");
        let root = dir.path().join(ID);
        std::fs::create_dir(&root).expect("made");
        fleet.run(&["device", "add", ID, "--over", "ssh"]);
        let (device, lines) = Device::init(ID, &root, &fake_docker(&root.join("docker")), &fleet.join_file(ID));
        fleet.run(&["device", "enroll", ID, &lines]);
        Self { dir, installed, fleet, device, running: Vec::new() }
    }

    /// Starts the publisher with its host, from where sshd may run it; publishes whatever is committed.
    fn start_host(&mut self) -> usize {
        let log = std::fs::File::options().create(true).append(true).open(self.dir.path().join("host.log"));
        let mut command = Command::new(self.installed.publisher());
        command.env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.arg("-C").arg(self.fleet.dir()).arg("run").stdin(Stdio::null()).stdout(Stdio::null());
        self.running.push(command.stderr(log.expect("a log")).spawn().expect("the publisher starts"));
        self.running.len() - 1
    }

    fn start_device(&mut self) -> usize {
        let log = std::fs::File::create(self.dir.path().join("device.log")).expect("a log");
        self.running.push(self.device.command(&["run"]).stderr(log).spawn().expect("the syncer starts"));
        self.running.len() - 1
    }

    fn end(&mut self, number: usize) {
        terminate(&self.running[number]);
        self.running[number].wait().expect("it ends");
    }

    fn runs(&self, greeting: &str) -> bool {
        self.device.environments().iter().any(|environment| environment.contains(greeting))
    }

    /// Passes of the device until it runs this.
    fn comes_to(&self, greeting: &str) {
        self.until("it is applied", |hosted| hosted.device.syncer(&["once"]).status.success() && hosted.runs(greeting));
    }

    fn is_reported(&self) -> bool {
        let status = self.fleet.status(ID);
        status["deployments"][0]["state"] == "installed" && status["adoptedSerial"] == status["desiredSerial"]
    }

    /// Why the device can't reach its host.
    fn trouble(&self) -> Option<String> {
        let text = std::fs::read(self.device.home().join("contact.json")).ok()?;
        let trouble: Value = serde_json::from_slice(&text).ok()?;
        Some(format!("{} {}", trouble["type"].as_str()?, trouble["reason"].as_str()?))
    }

    fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(120);
        while !so(self) {
            let log = |name: &str| std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
            assert!(Instant::now() < end, "{what}: {:?}\n{}\n{}", self.trouble(), log("device.log"), log("host.log"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for HostedOverSsh {
    fn drop(&mut self) {
        for child in &mut self.running {
            if matches!(child.try_wait(), Ok(None)) {
                terminate(child);
            }
            let _ = child.wait();
        }
    }
}

#[test]
fn a_device_joins_applies_reports_and_waits_at_our_own_host() {
    let mut hosted = HostedOverSsh::new();
    hosted.start_host();
    hosted.comes_to("hello from the press");
    hosted.until("it is reported", HostedOverSsh::is_reported);
    assert_eq!(hosted.fleet.status(ID)["doubts"], json!([]));

    // It asks each hour only; what wakes it is the wait.
    hosted.device.set("poll", "1h");
    let device = hosted.start_device();
    for (from, to) in [("hello from the press", "one"), ("one", "two"), ("two", "three")] {
        hosted.fleet.change("deployments/hello.yaml", from, to);
        hosted.until("the wait ends, and it is applied", |hosted| hosted.runs(to));
    }
    hosted.until("it is reported", HostedOverSsh::is_reported);
    hosted.end(device);
}

#[test]
fn a_key_that_the_fleet_lists_no_more_ends_and_comes_back_with_its_line() {
    let mut hosted = HostedOverSsh::new();
    hosted.start_host();
    hosted.comes_to("hello from the press");
    let file = format!("devices/{ID}.yaml");
    let before = hosted.fleet.read(&file);
    let line = before.lines().skip_while(|line| *line != "sshKeys:").nth(1).expect("a key").to_owned();
    hosted.fleet.write(&file, &before.replace(&format!("sshKeys:\n{line}\n"), ""));
    hosted.fleet.commit("without it");
    hosted.until("the key ends", |hosted| {
        hosted.device.syncer(&["once"]);
        hosted.trouble().as_deref() == Some("Stalled SshKeyRefused")
    });
    assert!(hosted.runs("hello from the press"), "what runs keeps running");
    hosted.fleet.write(&file, &before);
    hosted.fleet.commit("with it");
    hosted.until("it is let in", |hosted| hosted.device.syncer(&["once"]).status.success());
    assert_eq!(hosted.trouble(), None);
}

#[test]
fn a_host_that_is_killed_and_comes_back_is_found_again() {
    let mut hosted = HostedOverSsh::new();
    hosted.start_host();
    hosted.comes_to("hello from the press");
    hosted.start_device();
    for (from, to) in [("hello from the press", "one"), ("one", "two")] {
        let host = &mut hosted.running[0];
        host.kill().expect("killed");
        host.wait().expect("it ends");
        let again = hosted.start_host();
        hosted.running.swap(0, again);
        hosted.fleet.change("deployments/hello.yaml", from, to);
        hosted.until("it is applied", |hosted| hosted.runs(to));
    }
}

#[test]
fn a_device_changes_from_https_to_ssh_and_back() {
    let mut hosted = HostedOverSsh::new();
    hosted.start_host();
    hosted.comes_to("hello from the press");
    let init = |hosted: &HostedOverSsh| {
        let join = hosted.fleet.join_file(ID).display().to_string();
        let output = hosted.device.syncer(&["init", "--join", &join]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    hosted.fleet.run(&["device", "join", ID, "--over", "https"]);
    assert_eq!(init(&hosted).lines().count(), 1);
    hosted.fleet.change("deployments/hello.yaml", "hello from the press", "over https");
    hosted.comes_to("over https");
    hosted.fleet.run(&["device", "join", ID, "--over", "ssh"]);
    let again = hosted.fleet.run(&["device", "enroll", ID, &init(&hosted)]);
    assert!(again.contains("already"), "the same keys: {again}");
    hosted.fleet.change("deployments/hello.yaml", "over https", "over ssh");
    hosted.comes_to("over ssh");
}
