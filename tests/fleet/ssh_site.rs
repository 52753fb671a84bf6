//! A fleet whose device reaches its repository over SSH, through stock OpenSSH and plain Git.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use repo_testkit::device::{Device, fake_docker};
use repo_testkit::fleet::Fleet;
use repo_testkit::ssh_key::public_of;
use repo_testkit::sshd::{Options, Sshd};
use repo_testkit::{comes_within, git, terminate};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::site::registry_name;
use crate::ssh_faults::Server;

pub(crate) const ID: &str = "press-01";

/// The fleet, its device and the server between them.
pub(crate) struct SshSite {
    pub(crate) dir: TempDir,
    pub(crate) fleet: Fleet,
    pub(crate) device: Device,
    pub(crate) sshd: Sshd,
    running: Vec<Child>,
}

impl SshSite {
    /// Joined and enrolled; nothing is published yet.
    pub(crate) fn new(options: Options) -> Self {
        let (dir, sshd) = (TempDir::new().expect("a temporary directory"), Sshd::start(options));
        let fleet = Fleet::init(dir.path(), &registry_name(dir.path()));
        fleet.push_application();
        let root = dir.path().join(ID);
        std::fs::create_dir(&root).expect("made");
        let device = join(&fleet, &sshd, &root);
        Self { dir, fleet, device, sshd, running: Vec::new() }
    }

    pub(crate) fn publish(&self) {
        self.fleet.run(&["publish"]);
    }

    /// The device repository on the host.
    pub(crate) fn repository(&self) -> PathBuf {
        self.fleet.repository(ID)
    }

    /// A site whose device has applied the first greeting.
    pub(crate) fn running(options: Options) -> Self {
        let site = Self::new(options);
        site.publish();
        site.device.pass();
        assert!(site.runs("hello from the press"));
        site
    }

    pub(crate) fn runs(&self, greeting: &str) -> bool {
        self.device.environments().iter().any(|environment| environment.contains(greeting))
    }

    /// Changes the greeting, and publishes that.
    pub(crate) fn greet(&self, from: &str, to: &str) {
        self.fleet.change("deployments/hello.yaml", from, to);
        self.publish();
    }

    /// A pass that can't reach the host, for this reason; returns what `status` says of it.
    pub(crate) fn unreached(&self, kind: &str, reason: &str) -> String {
        let output = self.device.syncer(&["once"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(self.trouble(), Some(format!("{kind} {reason}")), "{said}");
        let status = self.device.syncer(&["status"]);
        String::from_utf8_lossy(&status.stdout).into_owned()
    }

    /// Why the device can't reach its host.
    pub(crate) fn trouble(&self) -> Option<String> {
        let text = std::fs::read(self.device.home().join("contact.json")).ok()?;
        let trouble: Value = serde_json::from_slice(&text).expect("JSON");
        Some(format!("{} {}", trouble["type"].as_str()?, trouble["reason"].as_str()?))
    }

    pub(crate) fn start_device(&mut self) {
        let log = std::fs::File::create(self.dir.path().join("device.log")).expect("a log");
        self.running.push(self.device.command(&["run"]).stderr(log).spawn().expect("the syncer starts"));
    }

    /// Ends the syncer's loop, which leaves in good order.
    pub(crate) fn end_device(&mut self) {
        let mut child = self.running.pop().expect("it runs");
        terminate(&child);
        assert!(child.wait().expect("it ends").success());
    }

    pub(crate) fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let came = comes_within(Duration::from_secs(120), || so(self));
        let log = || std::fs::read_to_string(self.dir.path().join("device.log")).unwrap_or_default();
        assert!(came, "{what}: {}", log());
    }

    /// Whether the host has this state of the one deployment, signed and without doubt.
    pub(crate) fn assert_reported(&self, state: &str) {
        let status = self.fleet.status(ID);
        assert_eq!((&status["deployments"][0]["state"], &status["doubts"]), (&json!(state), &json!([])), "{status}");
        let signers = format!("gpg.ssh.allowedSignersFile={}", self.fleet.home().join("allowed_signers").display());
        git::git(&self.repository(), &["-c", &signers, "verify-commit", "status"]);
    }
}

impl Server for SshSite {
    fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn address(&self) -> SocketAddr {
        self.sshd.address()
    }

    fn host_key(&self) -> String {
        self.sshd.host_key("ed25519")
    }

    fn repository(&self) -> PathBuf {
        self.fleet.repository(ID)
    }

    fn publish(&mut self) {
        self.fleet.run(&["publish"]);
    }

    fn kill(&mut self) {
        self.sshd.kill();
    }

    fn start(&mut self) {
        self.sshd.restart();
    }

    fn change_host_key(&mut self) {
        self.sshd.change_host_keys();
    }

    fn refuse_key(&mut self) {
        self.sshd.forget_clients();
    }

    fn admit_key(&mut self) {
        self.sshd.authorize_line(&public_of(&self.device.home().join("ssh.key")));
    }

    fn refuse_reports(&mut self) {
        refuse_pushes(&self.fleet.repository(ID));
    }

    fn take_reports(&mut self) {
        std::fs::remove_file(self.fleet.repository(ID).join("hooks/pre-receive")).expect("removed");
    }
}

/// Has a repository refuse what is pushed to it, by a hook.
pub(crate) fn refuse_pushes(repository: &Path) {
    let hook = repository.join("hooks/pre-receive");
    std::fs::create_dir_all(hook.parent().expect("a directory")).expect("made");
    std::fs::write(&hook, "#!/bin/sh\necho 'not now' >&2\nexit 1\n").expect("written");
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("set");
}

impl Drop for SshSite {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A device that asks this server with a key of its own, where it finds the repository that the publisher keeps.
pub(crate) fn join(fleet: &Fleet, sshd: &Sshd, root: &Path) -> Device {
    fleet.run(&["device", "add", ID]);
    let path = fleet.join_file(ID);
    let mut join: Value = serde_json::from_slice(&std::fs::read(&path).expect("a join file")).expect("JSON");
    let repository = fleet.repository(ID);
    join["url"] = format!("ssh://{}@{}{}", sshd.user(), sshd.address(), repository.display()).into();
    join["hostKeys"] = json!([sshd.host_key("ed25519")]);
    std::fs::write(&path, join.to_string()).expect("written");
    let (device, lines) = Device::init(ID, root, &fake_docker(&root.join("docker")), &path);
    sshd.authorize_line(lines.lines().find(|line| line.ends_with(" ssh")).expect("a line for the host"));
    fleet.run(&["device", "enroll", ID, &lines]);
    device
}
