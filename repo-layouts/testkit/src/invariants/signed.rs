//! Who signed which commit, as stock Git and ssh-keygen see it.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use serde_json::Value;

use crate::git::{command, git};

/// Commits that were found good, with all that this depends on: a commit's name is its content, so it stays good, and
/// hundreds of crash rounds begin with the same ones.
static GOOD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// 1: every commit of a branch is signed by one of the keys and says in `Kind` that it belongs there.
pub(super) fn check(repository: &Path, branch: &str, writer: &str, keys: &BTreeSet<String>, broken: &mut Vec<String>) {
    let context = format!("{branch} {writer} {}", keys.iter().map(String::as_str).collect::<Vec<_>>().join(","));
    let place = |commit: &str| format!("{commit} {context}");
    let all = git(repository, &["rev-list", &format!("refs/heads/{branch}")]);
    let known = GOOD.lock().expect("nobody panics here").clone();
    let new: Vec<_> = all.lines().filter(|commit| !known.contains(&place(commit))).collect();
    if new.is_empty() {
        return;
    }
    let mut signers = tempfile::NamedTempFile::new().expect("a temporary file");
    for key in keys {
        writeln!(signers, "{writer} namespaces=\"git\" {key}").expect("written");
    }
    let config = format!("gpg.ssh.allowedSignersFile={}", signers.path().display());
    let format = "--format=%H %G? %GS %(trailers:key=Kind,valueonly,separator=%x2C)";
    let log = command(repository).args(["-c", &config, "log", "--no-walk", format]).args(&new).output();
    let log = log.expect("git is installed");
    for line in String::from_utf8_lossy(&log.stdout).lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            [commit, "G", by, kind] if by == writer && kind == branch => {
                GOOD.lock().expect("nobody panics here").insert(place(commit));
            }
            _ => broken.push(format!("1: {branch} has a commit that its {writer} didn't sign as {branch}: {line}")),
        }
    }
}

/// The publishers' keys in a roster.
pub(super) fn keys(roster: &[u8]) -> Vec<String> {
    let roster: Value = serde_json::from_slice(roster).unwrap_or_default();
    let publishers = roster["publishers"].as_array().cloned().unwrap_or_default();
    publishers.iter().filter_map(|one| one["key"].as_str().map(str::to_owned)).collect()
}
