//! A device of a fleet: its home, and what runs its containers.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::fleet::Fleet;
use crate::invariants::World;
use crate::{git, program, registry, syncer, text};

/// A device with its home below `root`.
#[derive(Debug, Clone)]
pub struct Device {
    pub id: String,
    root: PathBuf,
}

/// What a pass may not change when there is nothing to do.
#[derive(Debug, PartialEq, Eq)]
pub struct Marks {
    status: Option<String>,
    state: String,
    calls: String,
}

impl Device {
    /// The device whose home is below `root`.
    pub fn at(id: &str, root: &Path) -> Self {
        Self { id: id.to_owned(), root: root.to_owned() }
    }

    /// A device of the fleet on the stand-in for docker: joined and enrolled, nothing published yet.
    pub fn join(fleet: &Fleet, id: &str, root: &Path) -> Self {
        Self::with_docker(fleet, id, root, &fake_docker(&root.join("docker")))
    }

    /// The same with these settings for docker.
    pub fn with_docker(fleet: &Fleet, id: &str, root: &Path, docker: &str) -> Self {
        fleet.run(&["device", "add", id]);
        let (device, line) = Self::init(id, root, docker, &fleet.join_file(id));
        fleet.run(&["device", "enroll", id, &line]);
        device
    }

    /// A device that joined with this file, and what it printed for its enrolment.
    pub fn init(id: &str, root: &Path, docker: &str, join: &Path) -> (Self, String) {
        let device = Self { id: id.to_owned(), root: root.to_owned() };
        let lines = text(device.syncer(&["init", "--join", &join.display().to_string()]));
        let settings = format!(
            "docker: {docker}\nregistries: {{plainHttp: [\"{}\"]}}\nlimits: {{packs: 4}}\nbootIdFile: {}\npoll: 1s\n",
            registry(),
            root.join("boot-id").display(),
        );
        std::fs::write(device.home().join("device.yaml"), settings).expect("written");
        reboot(root);
        (device, lines)
    }

    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// Where the stand-in for docker keeps its state.
    pub fn docker_dir(&self) -> PathBuf {
        self.root.join("docker")
    }

    pub fn clone_dir(&self) -> PathBuf {
        self.home().join("repository.git")
    }

    /// Says something in its settings, in the place of what was said of it before.
    pub fn set(&self, key: &str, value: &str) {
        let path = self.home().join("device.yaml");
        let before = std::fs::read_to_string(&path).expect("settings");
        let others = before.lines().filter(|line| !line.starts_with(&format!("{key}: ")));
        let lines: Vec<_> = others.map(str::to_owned).chain([format!("{key}: {value}\n")]).collect();
        std::fs::write(path, lines.join("\n")).expect("written");
    }

    /// Writes a file that is its owner's alone into its home.
    pub fn keep(&self, name: &str, text: &str) {
        let path = self.home().join(name);
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("set");
    }

    /// One pass, not yet run.
    pub fn once(&self) -> Command {
        self.command(&["once"])
    }

    pub fn command(&self, args: &[&str]) -> Command {
        syncer(&self.home(), args)
    }

    pub fn syncer(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the syncer runs")
    }

    /// One pass that must be good; what it said.
    pub fn pass(&self) -> String {
        let output = self.syncer(&["once"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {}: {said}", self.id, output.status);
        said
    }

    /// What the stand-in for docker was told to change.
    pub fn calls(&self) -> String {
        std::fs::read_to_string(self.docker_dir().join("calls.log")).unwrap_or_default()
    }

    pub fn marks(&self) -> Marks {
        let state = git::git(&self.clone_dir(), &["rev-parse", "refs/syncer/state"]);
        Marks { status: git::tip(&self.clone_dir(), "status"), state, calls: self.calls() }
    }

    /// The environment of the containers that run on the stand-in, one text for each.
    pub fn environments(&self) -> Vec<String> {
        let state = std::fs::read(self.docker_dir().join("state.json")).unwrap_or_default();
        let state: serde_json::Value = serde_json::from_slice(&state).unwrap_or_default();
        let containers = state["containers"].as_object().into_iter().flatten();
        containers.map(|(_, container)| container["service"]["environment"].to_string()).collect()
    }

    /// What must hold on the device and on its host.
    pub fn assert_whole(&self, fleet: &Fleet, converged: bool, when: &str) {
        self.assert_whole_with(&fleet.repository(&self.id), converged, when);
    }

    /// The same with another repository on the host.
    pub fn assert_whole_with(&self, host: &Path, converged: bool, when: &str) {
        let (home, runtime) = (self.home(), self.docker_dir());
        let (device, runtime) = (Some(home.as_path()), Some(runtime.as_path()));
        World { host: Some(host), device, runtime, converged, ..World::default() }.assert_whole(when);
    }

    /// Passes until all is as wanted, at most three; then one more, which must do nothing.
    pub fn assert_converges(&self, fleet: &Fleet, when: &str) {
        self.assert_converges_with(&fleet.repository(&self.id), when);
    }

    /// The same with another repository on the host.
    pub fn assert_converges_with(&self, host: &Path, when: &str) {
        let mut said = String::new();
        let good = (0..3).any(|_| {
            let output = self.syncer(&["once"]);
            said = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success()
        });
        assert!(good, "{when}: it doesn't converge: {said}");
        self.assert_whole_with(host, true, when);
        let marks = || (["desired", "status"].map(|branch| git::tip(host, branch)), self.marks());
        let before = marks();
        self.pass();
        assert_eq!(before, marks(), "{when}: a pass with nothing to do did something");
    }
}

/// Settings of a stand-in for docker that keeps its state in this directory.
pub fn fake_docker(dir: &Path) -> String {
    std::fs::create_dir_all(dir.join("knobs")).expect("made");
    format!("{{program: {}, host: \"fake://{}\"}}", program("fake-docker").display(), dir.display())
}

/// Another boot id, as after a power cut.
pub fn reboot(root: &Path) {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/uuid").expect("a UUID");
    std::fs::write(root.join("boot-id"), id).expect("written");
}
