//! Where the bench runs: release binaries, and a directory on a real disk.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use repo_testkit::{cargo, registry, root};
use tempfile::TempDir;

/// Everything that is set up once.
pub(crate) struct Stage {
    pub(crate) dir: TempDir,
    pub(crate) publisher: PathBuf,
    pub(crate) syncer: PathBuf,
}

impl Stage {
    pub(crate) fn new() -> Self {
        // Beside the binaries, because the system's temporary directory may be in memory, where a sync costs nothing.
        let own = std::env::current_exe().expect("a bench knows its own path");
        let profile = own.ancestors().nth(2).expect("a bench lies in <target>/<profile>/deps");
        let dir = tempfile::Builder::new()
            .prefix("bench-")
            .tempdir_in(profile.parent().expect("a target directory"))
            .expect("a directory");
        let [publisher, syncer] = build(profile);
        Self { dir, publisher, syncer }
    }

    /// A place for something of this name.
    pub(crate) fn make_dir(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(&path).expect("made");
        path
    }

    /// Where a fleet pushes its archives.
    pub(crate) fn registry_for(&self, fleet: &str) -> String {
        let name = self.dir.path().file_name().expect("a name").to_string_lossy().to_lowercase();
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        format!("{}/{name}-{fleet}", registry())
    }

    /// The kind of file system that all this is on.
    pub(crate) fn file_system(&self) -> String {
        text(Command::new("stat").args(["-f", "-c", "%T"]).arg(self.dir.path()))
    }
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The products as they are delivered: without the hooks of the crash tests, whatever else is built in this directory.
/// Only with `--profile dev`, to try the bench itself, they are not optimised.
fn build(profile: &Path) -> [PathBuf; 2] {
    let mut build = cargo();
    build.args(["build", "--quiet", "-p", "wfm-git-publisher", "-p", "device-syncer", "--bins"]);
    build.args(profile.ends_with("release").then_some("--release"));
    let target = profile.parent().expect("a target directory");
    let built = build.arg("--target-dir").arg(target).current_dir(root()).status();
    assert!(built.is_ok_and(|status| status.success()), "the programs can't be built");
    ["wfm-git-publisher", "device-syncer"].map(|name| profile.join(name))
}

/// Runs a command that must succeed; what it printed.
pub(crate) fn text(command: &mut Command) -> String {
    String::from_utf8_lossy(&run(command).stdout).trim().to_owned()
}

pub(crate) fn run(command: &mut Command) -> Output {
    command.env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = command.stdin(Stdio::null()).output().expect("it can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {said}", output.status);
    output
}

/// How long a command takes that must succeed.
pub(crate) fn timed(command: &mut Command) -> Duration {
    let start = Instant::now();
    run(command);
    start.elapsed()
}

/// Copies a directory, and waits until that is on the disk.
pub(crate) fn copy(from: &Path, to: &Path) {
    repo_testkit::copy(from, to);
    run(Command::new("sync").arg("-f").arg(to));
}
