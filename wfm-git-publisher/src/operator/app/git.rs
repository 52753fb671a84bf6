//! A package in somebody's Git repository: fetched by stock git into a bare repository of its own, and never checked out.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use repo_git::durable::{self, FileError, TEMP_PREFIX};
use repo_git::{CommitId, Repo};
use repo_model::text;

use super::error::AppError;
use super::git_origin::GitOrigin;
use crate::fleet::Package;
use crate::repos::FleetRepo;

/// How long a fetch may take, in seconds.
const LONGEST: &str = "600";

/// The largest file that it may write, in blocks of 512 bytes (POSIX, *ulimit*): 128 MiB.
const LARGEST: &str = "262144";

/// The end of what git says that is shown, in characters.
const TAIL: usize = 1000;

/// Where its commit is kept in the bare repository.
const REF: &str = "refs/app/package";

/// A directory that goes with its value.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = durable::remove_dir_all(&self.0);
    }
}

/// Fetches the one commit and reads the folder from its objects: no hook, filter or submodule of a stranger's is ever
/// looked at. `beside` is a directory that is ours, such as the fleet's own `.git`.
pub(super) fn fetch(origin: &GitOrigin, beside: &Path) -> Result<(Package, CommitId), AppError> {
    let scratch = Scratch(beside.join(format!("{TEMP_PREFIX}app-{}", std::process::id())));
    let failed = FileError::write(&scratch.0);
    durable::remove_dir_all(&scratch.0).map_err(failed)?;
    Repo::create(&scratch.0, "main").map_err(|source| AppError::Scratch { source })?;
    run(origin, &scratch.0)?;
    let failed = |source| AppError::Fetched { from: origin.to_string(), source: Box::new(source) };
    let repo = FleetRepo::open(&scratch.0).map_err(failed)?;
    // The name may be that of a signed tag, which only its id leads away from.
    let fetched = repo.resolve(REF).and_then(|found| repo.resolve(&found.to_string()));
    let commit = fetched.map_err(failed)?;
    let package = repo.package(commit, &origin.folder).map_err(failed)?;
    let missing = || AppError::NoFolderThere { from: origin.to_string(), folder: origin.folder.clone() };
    Ok((package.ok_or_else(missing)?, commit))
}

fn run(origin: &GitOrigin, scratch: &Path) -> Result<(), AppError> {
    // A shell's limit and coreutils' clock: what is at the other end may send without end.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f \"$1\" && shift && exec timeout -k 5 \"$@\"", "sh", LARGEST, LONGEST, "git"]);
    for setting in [
        "core.hooksPath=/dev/null",
        "core.askPass=",
        "core.bigFileThreshold=16m",
        "fetch.recurseSubmodules=false",
        "http.followRedirects=initial",
        "http.lowSpeedLimit=1",
        "http.lowSpeedTime=60",
    ] {
        command.args(["-c", setting]);
    }
    command.arg("--git-dir").arg(scratch).args([
        "fetch",
        "--quiet",
        "--no-tags",
        "--depth=1",
        "--no-recurse-submodules",
    ]);
    command.args(["--end-of-options", &origin.url, &format!("{}:{REF}", origin.rev)]);
    // No other protocol, wherever it leads; and nobody is asked for anything.
    command.env("GIT_ALLOW_PROTOCOL", origin.scheme).env("GIT_TERMINAL_PROMPT", "0").env("GIT_ASKPASS", "/bin/false");
    command.stdin(Stdio::null());
    let failed = |said: String| AppError::Fetch { from: origin.to_string(), said };
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<_> = said.trim().lines().map(text::line).collect();
    let said = said.join("; ");
    let cut = said.char_indices().rev().nth(TAIL).map_or(0, |(index, _)| index);
    Err(failed(match output.status.code() {
        Some(124 | 137) => format!("it took longer than {LONGEST} seconds"),
        _ if said.is_empty() => format!("git ended with {}", output.status),
        _ => said[cut..].to_owned(),
    }))
}
