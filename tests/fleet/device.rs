//! A device of a plant: its home, and what runs its containers.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use repo_testkit::invariants::World;
use repo_testkit::{git, program};

use crate::plant::Plant;
use crate::stand::{calls, reboot, registry, text};

/// A device with its home below `root`.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) id: String,
    root: PathBuf,
}

/// What a pass may not change when there is nothing to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    status: Option<String>,
    state: String,
    calls: String,
}

impl Device {
    /// The device whose home is below `root`.
    pub(crate) fn at(id: &str, root: &Path) -> Self {
        Self { id: id.to_owned(), root: root.to_owned() }
    }

    /// A device of the plant on the stand-in for docker: joined and enrolled, nothing published yet.
    pub(crate) fn join(plant: &Plant, id: &str, root: &Path) -> Self {
        let docker = root.join("docker");
        std::fs::create_dir_all(docker.join("knobs")).expect("made");
        let settings =
            format!("{{program: {}, host: \"fake://{}\"}}", program("fake-docker").display(), docker.display());
        let device = Self::with_docker(plant, id, root, &settings);
        reboot(root);
        device
    }

    /// The same with these settings for docker.
    pub(crate) fn with_docker(plant: &Plant, id: &str, root: &Path, docker: &str) -> Self {
        let device = Self { id: id.to_owned(), root: root.to_owned() };
        plant.run(&["device", "add", id]);
        let line = text(device.syncer(&["init", "--join", &plant.join_file(id).display().to_string()]));
        let settings = format!(
            "docker: {docker}\nregistries: {{plainHttp: [\"{}\"]}}\nlimits: {{packs: 4}}\nbootIdFile: {}\npoll: 1s\n",
            registry(),
            root.join("boot-id").display(),
        );
        std::fs::write(device.home().join("device.yaml"), settings).expect("written");
        reboot(root);
        plant.run(&["device", "enroll", id, &line]);
        device
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// Where the stand-in for docker keeps its state.
    pub(crate) fn docker_dir(&self) -> PathBuf {
        self.root.join("docker")
    }

    pub(crate) fn clone_dir(&self) -> PathBuf {
        self.home().join("repository.git")
    }

    /// Says something in its settings, in the place of what was said of it before.
    pub(crate) fn set(&self, key: &str, value: &str) {
        let path = self.home().join("device.yaml");
        let before = std::fs::read_to_string(&path).expect("settings");
        let others = before.lines().filter(|line| !line.starts_with(&format!("{key}: ")));
        let lines: Vec<_> = others.map(str::to_owned).chain([format!("{key}: {value}\n")]).collect();
        std::fs::write(path, lines.join("\n")).expect("written");
    }

    /// Writes a file that is its owner's alone into its home.
    pub(crate) fn keep(&self, name: &str, text: &str) {
        let path = self.home().join(name);
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("set");
    }

    /// One pass, not yet run.
    pub(crate) fn once(&self) -> Command {
        self.command(&["once"])
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program("device-syncer"));
        command.arg("--home").arg(self.home()).args(args).stdin(Stdio::null());
        command
    }

    pub(crate) fn syncer(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the syncer runs")
    }

    /// One pass that must be good; what it said.
    pub(crate) fn pass(&self) -> String {
        let output = self.syncer(&["once"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {}: {said}", self.id, output.status);
        said
    }

    /// What the stand-in for docker was told to change.
    pub(crate) fn calls(&self) -> String {
        calls(&self.root)
    }

    pub(crate) fn marks(&self) -> Marks {
        let state = git::git(&self.clone_dir(), &["rev-parse", "refs/syncer/state"]);
        Marks { status: git::tip(&self.clone_dir(), "status"), state, calls: self.calls() }
    }

    /// The environment of the containers that run on the stand-in, one text for each.
    pub(crate) fn environments(&self) -> Vec<String> {
        let state = std::fs::read(self.docker_dir().join("state.json")).unwrap_or_default();
        let state: serde_json::Value = serde_json::from_slice(&state).unwrap_or_default();
        let containers = state["containers"].as_object().into_iter().flatten();
        containers.map(|(_, container)| container["service"]["environment"].to_string()).collect()
    }

    /// What must hold on the device and on its host.
    pub(crate) fn assert_whole(&self, plant: &Plant, converged: bool, when: &str) {
        let (host, home, runtime) = (plant.device(&self.id), self.home(), self.docker_dir());
        let (host, device, runtime) = (Some(host.as_path()), Some(home.as_path()), Some(runtime.as_path()));
        World { host, device, runtime, converged, ..World::default() }.assert_whole(when);
    }

    /// Passes until all is as wanted, at most three; then one more, which must do nothing.
    pub(crate) fn assert_converges(&self, plant: &Plant, when: &str) {
        let mut said = String::new();
        let good = (0..3).any(|_| {
            let output = self.syncer(&["once"]);
            said = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success()
        });
        assert!(good, "{when}: it doesn't converge: {said}");
        self.assert_whole(plant, true, when);
        let before = self.marks();
        self.pass();
        assert_eq!(before, self.marks(), "{when}: a pass with nothing to do did something");
    }
}
