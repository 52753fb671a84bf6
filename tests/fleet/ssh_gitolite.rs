//! A customer's gitolite between both sides: it says by its own configuration who may push which branch.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use repo_testkit::device::{Device, fake_docker};
use repo_testkit::fleet::Fleet;
use repo_testkit::git;
use repo_testkit::gitolite::Gitolite;
use repo_testkit::ssh_key::public_of;
use repo_testkit::text;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::site::registry_name;
use crate::ssh_faults::Server;

const ID: &str = "press-01";

/// A fleet whose administrator copies what is published to gitolite, where the device finds it.
pub(crate) struct Customer {
    dir: TempDir,
    fleet: Fleet,
    device: Device,
    host: Gitolite,
}

impl Customer {
    pub(crate) fn new() -> Self {
        let (dir, host) = (TempDir::new().expect("a temporary directory"), Gitolite::start());
        let fleet = Fleet::init(dir.path(), &registry_name(dir.path()));
        fleet.push_application();
        fleet.run(&["device", "add", ID]);
        let path = fleet.join_file(ID);
        let mut join: Value = serde_json::from_slice(&fs::read(&path).expect("a join file")).expect("JSON");
        join["url"] = host.url(ID).into();
        join["hostKeys"] = json!([host.sshd().host_key("ed25519")]);
        fs::write(&path, join.to_string()).expect("written");
        let root = dir.path().join(ID);
        fs::create_dir(&root).expect("made");
        let (device, lines) = Device::init(ID, &root, &fake_docker(&root.join("docker")), &path);
        fleet.run(&["device", "enroll", ID, &lines]);
        let site = Self { dir, fleet, device, host };
        let clone = ["clone", "--quiet", &site.host.url("gitolite-admin"), "admin"];
        text(site.host.admin().git(site.dir.path()).args(clone).output().expect("git runs"));
        let key = lines.lines().find(|line| line.ends_with(" ssh")).expect("a line for the host");
        fs::write(site.admin().join(format!("keydir/{ID}.pub")), format!("{key}\n")).expect("written");
        site.let_report();
        site
    }

    /// Lets the device read all, and push what it reports.
    fn let_report(&self) {
        let reports = format!("    RW+ status$ = {ID}\n    RW+ heartbeat$ = {ID}\n    R = {ID}\n");
        self.configure(&format!("\nrepo {ID}\n    RW+ = admin\n{reports}"));
    }

    /// Lets the device read all, and push nothing.
    fn let_read(&self) {
        self.configure(&format!("\nrepo {ID}\n    RW+ = admin\n    R = {ID}\n"));
    }

    fn admin(&self) -> PathBuf {
        self.dir.path().join("admin")
    }

    /// Has gitolite do as this says of the device's repository, and no more as it was said before.
    fn configure(&self, lines: &str) {
        let path = self.admin().join("conf/gitolite.conf");
        let before = fs::read_to_string(&path).expect("a configuration");
        let others = before.split(&format!("\nrepo {ID}\n")).next().expect("the others");
        fs::write(&path, format!("{others}{lines}")).expect("written");
        git::git(&self.admin(), &["add", "--all"]);
        git::git(&self.admin(), &["commit", "--quiet", "--message", "who may do what"]);
        self.push(&self.admin(), &["origin", "master"]);
    }

    fn push(&self, repository: &Path, arguments: &[&str]) {
        let mut push = self.host.admin().git(repository);
        text(push.args(["push", "--quiet"]).args(arguments).output().expect("git runs"));
    }

    fn publish(&self) {
        self.fleet.run(&["publish"]);
        let url = self.host.url(ID);
        self.push(&self.fleet.repository(ID), &[&url, "desired", "+bundle", "+freshness"]);
    }

    fn runs(&self, greeting: &str) -> bool {
        self.device.environments().iter().any(|environment| environment.contains(greeting))
    }
}

impl Server for Customer {
    fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn address(&self) -> SocketAddr {
        self.host.sshd().address()
    }

    fn host_key(&self) -> String {
        self.host.sshd().host_key("ed25519")
    }

    fn repository(&self) -> PathBuf {
        self.host.repository(ID)
    }

    fn publish(&mut self) {
        Customer::publish(self);
    }

    fn kill(&mut self) {
        self.host.sshd_mut().kill();
    }

    fn start(&mut self) {
        self.host.sshd_mut().restart();
    }

    fn change_host_key(&mut self) {
        self.host.sshd_mut().change_host_keys();
        self.host.admin().know(self.host.sshd(), self.host.sshd().address());
    }

    fn refuse_key(&mut self) {
        fs::remove_file(self.admin().join(format!("keydir/{ID}.pub"))).expect("removed");
        self.let_read();
    }

    fn admit_key(&mut self) {
        let key = public_of(&self.device.home().join("ssh.key"));
        fs::write(self.admin().join(format!("keydir/{ID}.pub")), format!("{key}\n")).expect("written");
        self.let_report();
    }

    fn refuse_reports(&mut self) {
        self.let_read();
    }

    fn take_reports(&mut self) {
        self.let_report();
    }
}

#[test]
fn a_device_joins_applies_and_reports_through_a_customers_gitolite() {
    let site = Customer::new();
    site.publish();
    site.device.pass();
    assert!(site.runs("hello from the press"));
    site.fleet.change("deployments/hello.yaml", "hello from the press", "servus");
    site.publish();
    site.device.pass();
    assert!(site.runs("servus"));
    let repository = site.host.repository(ID);
    let signers = format!("gpg.ssh.allowedSignersFile={}", site.fleet.home().join("allowed_signers").display());
    for branch in ["desired", "status", "heartbeat"] {
        git::git(&repository, &["-c", &signers, "verify-commit", branch]);
    }
    let report: Value =
        serde_json::from_slice(&git::show(&repository, "status", "syncer.json").expect("a report")).expect("JSON");
    assert_eq!((&report["adopted"]["serial"], &report["conditions"]), (&json!(2), &json!([])), "{report}");
}

#[test]
fn a_device_that_gitolite_may_not_let_push_or_read_any_more_says_so_and_goes_on_once_it_may() {
    let site = Customer::new();
    site.publish();
    site.device.pass();
    let trouble = || {
        let path = site.device.home().join("contact.json");
        let trouble: Value = serde_json::from_slice(&fs::read(path).ok()?).expect("JSON");
        Some(trouble["type"].as_str()?.to_owned())
    };
    let before = git::tip(&site.host.repository(ID), "status");
    site.fleet.change("deployments/hello.yaml", "hello from the press", "servus");
    site.publish();
    site.let_read();
    assert!(!site.device.syncer(&["once"]).status.success());
    assert!(site.runs("servus"), "it is applied all the same");
    assert_eq!(git::tip(&site.host.repository(ID), "status"), before);

    site.configure(&format!("\nrepo {ID}\n    RW+ = admin\n"));
    let refused = site.device.syncer(&["once"]);
    assert!(!refused.status.success());
    assert_eq!(trouble().as_deref(), Some("Stalled"), "{}", String::from_utf8_lossy(&refused.stderr));
    assert!(site.runs("servus"), "what runs keeps running");

    site.configure(&format!("\nrepo {ID}\n    RW+ = admin {ID}\n"));
    site.device.pass();
    assert_eq!(trouble(), None);
    assert_ne!(git::tip(&site.host.repository(ID), "status"), before);
}

#[test]
fn a_gitolite_that_refuses_the_protocols_version_serves_all_the_same() {
    let mut site = Customer::new();
    site.host.sshd_mut().set(|options| options.accept_env = false);
    site.publish();
    site.device.pass();
    site.fleet.change("deployments/hello.yaml", "hello from the press", "servus");
    site.publish();
    site.device.pass();
    assert!(site.runs("servus") && git::tip(&site.host.repository(ID), "status").is_some());
}
