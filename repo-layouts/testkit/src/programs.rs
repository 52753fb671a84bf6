//! Finds the workspace's programs beside the running test, builds them if they aren't there, and ends those that run.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

thread_local! {
    static OTHERS: RefCell<HashMap<String, PathBuf>> = RefCell::default();
}

/// Has this test use the program of another directory from now on, or the workspace's again.
pub fn use_program(name: &str, dir: Option<&Path>) {
    OTHERS.with_borrow_mut(|others| match dir {
        Some(dir) => _ = others.insert(name.to_owned(), dir.join(name)),
        None => _ = others.remove(name),
    });
}

/// The same program with the same arguments and variables, in namespaces of a process, as `nsenter` calls them (`--net`); the rest
/// of the command is to be said anew.
pub fn in_namespaces(process: u32, which: &[&str], command: &Command) -> Command {
    let mut inside = Command::new("nsenter");
    inside.arg("--target").arg(process.to_string()).args(which).arg("--");
    inside.arg(command.get_program()).args(command.get_args());
    inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    inside
}

/// The path of a program of the workspace: `fake-docker`, `device-syncer` … The two products are built with the
/// crash tests' `cut-points`.
///
/// Cargo builds a package's programs for its own integration tests only, so another package's test may come first.
pub fn program(name: &str) -> PathBuf {
    if let Some(other) = OTHERS.with_borrow(|others| others.get(name).cloned()) {
        return other;
    }
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile = test.ancestors().nth(2).expect("a test lies in <target>/<profile>/deps");
    let program = profile.join(name);
    if !program.exists() {
        let target = profile.parent().expect("a profile lies in the target directory");
        let built = cargo()
            .args(["build", "--quiet", "--bins"])
            .args(profile.ends_with("release").then_some("--release"))
            .args(match name {
                "device-syncer" | "wfm-git-publisher" => vec!["--package", name, "--features", "cut-points"],
                _ => vec!["--package", "repo-testkit"],
            })
            .arg("--target-dir")
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(built.is_ok_and(|status| status.success()), "{name} can't be built");
    }
    program
}

/// Cargo, as from a shell. What it says of the package of a test or bench isn't passed on: build scripts that read such
/// variables (ring's) would run again, and everything that needs their crates be built again, each time.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let is_of_a_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_of_a_package)) {
        cargo.env_remove(name);
    }
    cargo
}

/// The root of this repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().find(|dir| dir.join("ARCHITECTURE.md").exists()).expect("ARCHITECTURE.md").to_owned()
}

/// The publisher without any configuration of the machine's, not yet run.
pub fn publisher() -> Command {
    let mut command = Command::new(program("wfm-git-publisher"));
    command.env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.stdin(Stdio::null());
    command
}

/// A command of the syncer of this home, not yet run.
pub fn syncer(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program("device-syncer"));
    command.arg("--home").arg(home).args(args).stdin(Stdio::null());
    command
}

/// The registry of the tests, `HOST:PORT`.
pub fn registry() -> String {
    std::env::var("MARGO_TEST_REGISTRY").expect("MARGO_TEST_REGISTRY is set: run the tests by `./justw test`")
}

/// Standard output of a command that must have ended well, without the last newline.
pub fn text(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned()
}

/// Copies a directory with everything in it, the way a backup does; what was at `to` goes.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().expect("a parent")).expect("made");
    let _ = std::fs::remove_dir_all(to);
    text(Command::new("cp").arg("-a").arg(from).arg(to).output().expect("cp runs"));
}

/// Tells a running program to end, as a service manager does. A bare machine has no `kill` outside its shell.
pub fn terminate(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process has a number above 0");
    kill_process(pid, Signal::TERM).expect("it is ours");
}
