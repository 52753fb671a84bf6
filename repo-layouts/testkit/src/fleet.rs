//! A fleet repository with its publisher's home, made and driven through the publisher's own commands.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::host::Host;
use crate::invariants::World;
use crate::{git, publisher, registry, text};

/// The devices that `init` writes into a new fleet.
pub const DEVICES: [&str; 3] = ["packer-01", "press-01", "press-02"];

/// The deployment that `init` writes.
pub const DEPLOYMENT: &str = "deployments/hello.yaml";

/// A fleet repository `fleet` and the home `fleet.wfm` beside it.
#[derive(Debug, Clone)]
pub struct Fleet {
    root: PathBuf,
}

impl Fleet {
    /// The fleet below `root`, whether it is there or not.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Makes a fleet; its application has a place of its own in the registry, called `name`.
    pub fn init(root: &Path, name: &str) -> Self {
        let fleet = Self::at(root);
        text(fleet.init_command(name).output().expect("the publisher runs"));
        fleet
    }

    pub fn init_command(&self, name: &str) -> Command {
        self.init_at(&format!("{}/{name}", registry()))
    }

    /// Makes a fleet whose application has this place in a registry.
    pub fn init_at(&self, place: &str) -> Command {
        let mut command = publisher();
        command.arg("init").arg(self.dir()).args(["--registry", place]);
        command.arg("--image").arg(format!("{}/margo-test/busybox:1", registry()));
        command
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn dir(&self) -> PathBuf {
        self.root.join("fleet")
    }

    pub fn home(&self) -> PathBuf {
        self.root.join("fleet.wfm")
    }

    pub fn control(&self) -> PathBuf {
        self.home().join("control.git")
    }

    /// The device repository on the host.
    pub fn repository(&self, id: &str) -> PathBuf {
        self.home().join("devices").join(format!("{id}.git"))
    }

    pub fn join_file(&self, id: &str) -> PathBuf {
        self.home().join("join").join(format!("{id}.json"))
    }

    /// A command of the publisher, not yet run.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = publisher();
        command.arg("-C").arg(self.dir()).args(args);
        command
    }

    /// Starts the host, and waits until it listens or has ended.
    pub fn serve(&self, environment: &[(&str, String)]) -> Host {
        let mut command = self.command(&["serve"]);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        Host::start(command)
    }

    pub fn try_run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the publisher runs")
    }

    /// Runs a command of the publisher, which must succeed; what it printed.
    pub fn run(&self, args: &[&str]) -> String {
        let output = self.try_run(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {}: {said}", output.status);
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub fn push_application(&self) {
        self.run(&["app", "push", "applications/hello/1.0.0"]);
    }

    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.dir().join(path)).expect("the file is there")
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.dir().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    /// Replaces a text that must be there.
    pub fn replace(&self, path: &str, from: &str, to: &str) {
        let before = self.read(path);
        assert!(before.contains(from), "{path} has no `{from}`:\n{before}");
        self.write(path, &before.replace(from, to));
    }

    /// Commits everything in the work tree, as an operator does.
    pub fn commit(&self, message: &str) {
        git::git(&self.dir(), &["add", "--all"]);
        git::git(&self.dir(), &["-c", "core.fsync=all", "commit", "--quiet", "--message", message]);
    }

    /// Whether everything in the work tree is committed.
    pub fn is_clean(&self) -> bool {
        git::git(&self.dir(), &["status", "--porcelain"]).is_empty()
    }

    /// An operator's change of one text in one file, committed.
    pub fn change(&self, path: &str, from: &str, to: &str) {
        self.replace(path, from, to);
        self.commit(&format!("{path}: {to}"));
    }

    /// Where all refs of the fleet, of `control.git` and of every device repository stand.
    pub fn refs(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let devices = std::fs::read_dir(self.home().join("devices")).expect("listed").flatten();
        let all = devices.map(|entry| entry.path()).chain([self.dir(), self.control()]);
        all.map(|path| (path.display().to_string(), git::refs(&path))).collect()
    }

    /// Every file below fleet and home, and what would change if it were written. Git refreshes its index at will.
    pub fn files(&self) -> BTreeMap<PathBuf, (u64, u64, i64, i64)> {
        let mut files = BTreeMap::new();
        for top in [self.dir(), self.home()] {
            list(&top, &mut files);
        }
        // What git and the publisher only keep to be quicker the next time.
        files.retain(|path, _| !path.ends_with(".git/index") && !path.ends_with("index/settled"));
        files
    }

    /// The serial of the tip of `desired`; 0 if there is none.
    pub fn serial(&self, id: &str) -> u64 {
        let envelope = git::show(&self.repository(id), "refs/heads/desired", "envelope.json").unwrap_or_default();
        let envelope: Value = serde_json::from_slice(&envelope).unwrap_or_default();
        envelope["serial"].as_u64().unwrap_or(0)
    }

    /// The publisher's word on a device, as JSON.
    pub fn status(&self, id: &str) -> Value {
        let said = self.run(&["status", id, "--output", "json"]);
        let all: Value = serde_json::from_str(&said).expect("JSON");
        all["devices"][0].clone()
    }

    /// What must hold for the fleet and its publisher.
    pub fn assert_whole(&self, converged: bool, when: &str) {
        let (fleet, home) = (self.dir(), self.home());
        World { fleet: Some(&fleet), publisher: Some(&home), converged, ..World::default() }.assert_whole(when);
    }

    /// Publishes until all is as wanted, which one pass must do; the next one must write nothing.
    pub fn assert_converges(&self, when: &str) {
        let output = self.try_run(&["publish"]);
        assert!(output.status.success(), "{when}: it doesn't converge: {}", String::from_utf8_lossy(&output.stderr));
        self.assert_whole(true, when);
        self.assert_settled(when);
    }

    /// A pass must write nothing.
    pub fn assert_settled(&self, when: &str) {
        let before = (self.refs(), self.files());
        let output = self.try_run(&["publish"]);
        assert!(output.status.success(), "{when}: {}", String::from_utf8_lossy(&output.stderr));
        let after = (self.refs(), self.files());
        assert_eq!(before, after, "{when}: a pass with nothing to do did something");
    }
}

fn list(dir: &Path, files: &mut BTreeMap<PathBuf, (u64, u64, i64, i64)>) {
    for entry in std::fs::read_dir(dir).expect("listed").flatten() {
        let meta = entry.metadata().expect("looked at");
        if meta.is_dir() {
            list(&entry.path(), files);
        } else {
            files.insert(entry.path(), (meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()));
        }
    }
}
