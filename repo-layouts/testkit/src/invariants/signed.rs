//! Who signed which commit, as stock Git and ssh-keygen see it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use serde_json::Value;

use crate::git::command;

/// Commits that were found good, with all that this depends on: a commit's name is its content, so it stays good, and
/// hundreds of crash rounds begin with the same ones.
static GOOD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// 1: each of these commits is signed by one of the keys and says in `Kind` that it belongs to the branch beside it.
pub(super) fn check(
    repository: &Path,
    writer: &str,
    keys: &BTreeSet<String>,
    commits: &[(&str, String)],
    broken: &mut Vec<String>,
) {
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let place = |branch: &str, commit: &str| format!("{commit} {branch} {writer} {}", keys.join(","));
    let known = GOOD.lock().expect("nobody panics here").clone();
    let new: Vec<_> = commits.iter().filter(|(branch, commit)| !known.contains(&place(branch, commit))).collect();
    if new.is_empty() {
        return;
    }
    let mut signers = tempfile::NamedTempFile::new().expect("a temporary file");
    for key in &keys {
        writeln!(signers, "{writer} namespaces=\"git\" {key}").expect("written");
    }
    let config = format!("gpg.ssh.allowedSignersFile={}", signers.path().display());
    let format = "--format=%H %G? %GS %(trailers:key=Kind,valueonly,separator=%x2C)";
    let mut log = command(repository);
    log.args(["-c", &config, "log", "--no-walk=unsorted", format]).args(new.iter().map(|(_, commit)| commit));
    let said = log.output().expect("git is installed").stdout;
    let said = String::from_utf8_lossy(&said);
    let lines: BTreeMap<_, _> = said.lines().map(|line| (line.split(' ').next().unwrap_or_default(), line)).collect();
    for (branch, commit) in new {
        let line = lines.get(commit.as_str()).copied().unwrap_or("git doesn't show it");
        match line.split(' ').collect::<Vec<_>>()[..] {
            [_, "G", by, kind] if by == writer && kind == *branch => {
                GOOD.lock().expect("nobody panics here").insert(place(branch, commit));
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
