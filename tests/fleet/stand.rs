//! One device and its hand-made repository, on the stand-in for docker.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use repo_testkit::invariants::World;
use repo_testkit::{git, program};
use tempfile::TempDir;

use crate::site::registry_name;

/// The script that makes either half by hand.
pub(crate) const BY_HAND: &str = "by_hand.sh";

/// The host's side of one device: a repository made by hand, and an application in the registry.
pub(crate) struct Stand {
    dir: TempDir,
}

/// What a pass may not change when there is nothing to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    host: Vec<Option<String>>,
    state: String,
    calls: String,
}

impl Stand {
    /// A repository with serial 1 for a device whose home template is made, too.
    pub(crate) fn new() -> Self {
        let stand = Self { dir: TempDir::new().expect("a temporary directory") };
        let (manifest, content) = stand.push_application();
        let registry = registry();
        let repository = format!("oci://{registry}/crash/{}", stand.name());
        // The join file comes before the key, and the key before the first envelope: made once with no key at all.
        let args = [
            "make",
            &stand.host_dir(),
            "press-01",
            "ssh-ed25519 AAAA",
            &repository,
            "1.0.0",
            &manifest,
            &content,
            "one",
        ];
        stand.by_hand(&args);
        let line =
            text(stand.syncer(&stand.template(), &["init", "--join", &format!("{}/join.json", stand.host_dir())]));
        let key: Vec<_> = line.split_whitespace().take(2).collect();
        std::fs::write(format!("{}/var.status_key", stand.host_dir()), key.join(" ")).expect("written");
        stand.by_hand(&["update", &stand.host_dir(), "one"]);
        stand
    }

    fn name(&self) -> String {
        registry_name(self.dir.path())
    }

    fn push_application(&self) -> (String, String) {
        let source = self.dir.path().join("application");
        std::fs::create_dir(&source).expect("made");
        let compose = "services:\n  one:\n    image: margo-test/busybox:1\n    environment: {GREETING: \"${GREETING}\"}\n  \
                       two:\n    image: margo-test/busybox:1\n    volumes: [\"./two.conf:/two.conf:ro\"]\n";
        std::fs::write(source.join("compose.yaml"), compose).expect("written");
        std::fs::write(source.join("two.conf"), "two\n").expect("written");
        let reference = format!("oci://{}/crash/{}:1.0.0", registry(), self.name());
        let mut push = Command::new(program("push-app"));
        let said = text(push.arg(&source).args([&reference, "--plain-http"]).output().expect("push-app runs"));
        let digest = |word: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(word)).expect("a digest");
            line.trim().to_owned()
        };
        (digest("manifest "), digest("content "))
    }

    /// Where the host's files lie; outside every volume.
    fn host_dir(&self) -> String {
        self.dir.path().join("host").display().to_string()
    }

    /// The device repository on the host.
    pub(crate) fn host(&self) -> PathBuf {
        self.dir.path().join("host/repository.git")
    }

    fn template(&self) -> PathBuf {
        self.dir.path().join("template")
    }

    /// Publishes the next serial by hand.
    pub(crate) fn publish(&self, what: &[&str]) {
        let host = self.host_dir();
        let args: Vec<&str> =
            std::iter::once(what[0]).chain([host.as_str()]).chain(what[1..].iter().copied()).collect();
        self.by_hand(&args);
    }

    fn by_hand(&self, args: &[&str]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(BY_HAND);
        text(Command::new(script).args(args).output().expect("the script runs"));
    }

    /// Remembers the host and the device on `root` as they are, for [`Stand::restore`].
    pub(crate) fn keep(&self, root: &Path) {
        for (from, name) in
            [(self.dir.path().join("host"), "host"), (root.join("home"), "home"), (root.join("docker"), "docker")]
        {
            copy(&from, &self.dir.path().join("kept").join(name));
        }
    }

    /// Puts host and device back as they were kept; false if nothing was.
    pub(crate) fn restore(&self, root: &Path) -> bool {
        let kept = self.dir.path().join("kept");
        if !kept.exists() {
            return false;
        }
        copy(&kept.join("host"), &self.dir.path().join("host"));
        copy(&kept.join("home"), &root.join("home"));
        copy(&kept.join("docker"), &root.join("docker"));
        true
    }

    /// Puts a fresh device onto `root`.
    pub(crate) fn begin(&self, root: &Path) {
        copy(&self.template(), &root.join("home"));
        let docker = root.join("docker");
        std::fs::create_dir_all(docker.join("knobs")).expect("made");
        let settings = format!(
            "docker: {{program: {}, host: \"fake://{}\"}}\nlimits: {{packs: 2}}\nbootIdFile: {}\n",
            program("fake-docker").display(),
            docker.display(),
            root.join("boot-id").display(),
        );
        std::fs::write(root.join("home/device.yaml"), settings).expect("written");
        reboot(root);
    }

    /// One pass of the device on `root`, not yet run.
    pub(crate) fn once(&self, root: &Path) -> Command {
        let mut command = Command::new(program("device-syncer"));
        command.arg("--home").arg(root.join("home")).arg("once").stdin(Stdio::null());
        command
    }

    fn syncer(&self, home: &Path, args: &[&str]) -> Output {
        let mut command = Command::new(program("device-syncer"));
        command.arg("--home").arg(home).args(args).stdin(Stdio::null()).output().expect("the syncer runs")
    }

    /// What must hold on `root` and on the host.
    pub(crate) fn assert_whole(&self, root: &Path, converged: bool, when: &str) {
        let (host, home, runtime) = (self.host(), root.join("home"), root.join("docker"));
        let world =
            World { host: Some(&host), device: Some(&home), runtime: Some(&runtime), converged, ..World::default() };
        world.assert_whole(when);
    }

    /// Passes until all is as wanted, at most three; then one more, which must do nothing.
    pub(crate) fn assert_converges(&self, root: &Path, when: &str) {
        let mut said = String::new();
        let good = (0..3).any(|_| {
            let output = self.once(root).output().expect("the syncer runs");
            said = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success()
        });
        assert!(good, "{when}: it doesn't converge: {said}");
        self.assert_whole(root, true, when);
        let before = self.marks(root);
        let output = self.once(root).output().expect("the syncer runs");
        assert!(output.status.success(), "{when}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(before, self.marks(root), "{when}: a pass with nothing to do did something");
    }

    fn marks(&self, root: &Path) -> Marks {
        let host = ["desired", "status"].map(|branch| git::tip(&self.host(), branch)).to_vec();
        let state = git::git(&root.join("home/repository.git"), &["rev-parse", "refs/syncer/state"]);
        Marks { host, state, calls: calls(root) }
    }
}

/// What the stand-in for docker was told to change.
pub(crate) fn calls(root: &Path) -> String {
    std::fs::read_to_string(root.join("docker/calls.log")).unwrap_or_default()
}

/// Another boot id, as after a power cut.
pub(crate) fn reboot(root: &Path) {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/uuid").expect("a UUID");
    std::fs::write(root.join("boot-id"), id).expect("written");
}

pub(crate) fn registry() -> String {
    std::env::var("MARGO_TEST_REGISTRY").expect("MARGO_TEST_REGISTRY is set: run the tests by `./justw test`")
}

pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().expect("a parent")).expect("made");
    let _ = std::fs::remove_dir_all(to);
    text(Command::new("cp").arg("-a").arg(from).arg(to).output().expect("cp runs"));
}

pub(crate) fn text(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
