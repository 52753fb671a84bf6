//! Finds the workspace's programs beside the running test, and builds them if they aren't there.

use std::path::PathBuf;
use std::process::Command;

/// The path of a program of the workspace: `fake-docker`, `device-syncer` … The two products are built with the
/// crash tests' `cut-points`.
///
/// Cargo builds a package's programs for its own integration tests only, so another package's test may come first.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile = test.ancestors().nth(2).expect("a test lies in <target>/<profile>/deps");
    let program = profile.join(name);
    if !program.exists() {
        let target = profile.parent().expect("a profile lies in the target directory");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--bins"])
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
