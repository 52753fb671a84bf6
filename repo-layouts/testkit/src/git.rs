//! Stock Git as the witness: hermetic, and nothing of ours in between.

use std::collections::BTreeMap;
use std::io::{Seek, Write};
use std::path::Path;
use std::process::{Command, Output};

/// A `git` that sees no configuration but its repository's, with a fixed identity.
pub fn command(repository: &Path) -> Command {
    let mut git = Command::new("git");
    git.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LC_ALL", "C");
    git.env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    for who in ["AUTHOR", "COMMITTER"] {
        git.env(format!("GIT_{who}_NAME"), "test").env(format!("GIT_{who}_EMAIL"), "test@example.invalid");
    }
    git.args(["-c", "safe.directory=*", "-C"]).arg(repository);
    git
}

/// Runs it and gives whatever came of it.
pub fn try_git(repository: &Path, args: &[&str]) -> Output {
    command(repository).args(args).output().expect("git is installed")
}

/// Runs it, and gives its output without the last newline.
///
/// # Panics
/// If it fails.
pub fn git(repository: &Path, args: &[&str]) -> String {
    let output = try_git(repository, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?} in {}: {said}", repository.display());
    String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned()
}

/// Where a branch stands, if it exists.
pub fn tip(repository: &Path, branch: &str) -> Option<String> {
    let output = try_git(repository, &["rev-parse", "-q", "--verify", &format!("refs/heads/{branch}")]);
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

pub fn refs(repository: &Path) -> BTreeMap<String, String> {
    let listed = git(repository, &["for-each-ref", "--format=%(refname) %(objectname)"]);
    let refs = listed.lines().filter_map(|line| line.split_once(' '));
    refs.map(|(name, id)| (name.to_owned(), id.to_owned())).collect()
}

/// A file of a commit.
pub fn show(repository: &Path, commit: &str, path: &str) -> Option<Vec<u8>> {
    objects(repository, &[format!("{commit}:{path}")]).pop()?
}

/// The contents of objects, by id or `<commit>:<path>`, read by one process.
///
/// # Panics
/// If git fails; a missing object is `None`.
pub fn objects(repository: &Path, names: &[String]) -> Vec<Option<Vec<u8>>> {
    let mut input = tempfile::tempfile().expect("a temporary file");
    input.write_all((names.join("\n") + "\n").as_bytes()).and_then(|()| input.rewind()).expect("written");
    let output = command(repository).args(["cat-file", "--batch"]).stdin(input).output().expect("git is installed");
    assert!(output.status.success(), "cat-file: {}", String::from_utf8_lossy(&output.stderr));
    let mut rest = output.stdout.as_slice();
    names.iter().map(|_| next_object(&mut rest)).collect()
}

/// Takes `<id> <type> <size>`, the contents and a newline off the front; or a line that says that it is missing.
fn next_object(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let end = rest.iter().position(|byte| *byte == b'\n').expect("a line for each object");
    let head = String::from_utf8_lossy(&rest[..end]).into_owned();
    *rest = &rest[end + 1..];
    if head.ends_with(" missing") {
        return None;
    }
    let size: usize = head.rsplit(' ').next().and_then(|size| size.parse().ok()).expect("a size");
    let contents = rest[..size].to_vec();
    *rest = &rest[size + 1..];
    Some(contents)
}
