//! What the publisher's home must show: its ledger agrees with the device repositories, whenever it is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use repo_model::Digest;
use serde_json::Value;

use super::{history, signed, whole};
use crate::git::{git, objects, tip};

/// Device repository → serial → the envelopes that it was ever given to.
type Given = BTreeMap<String, BTreeMap<u64, BTreeSet<String>>>;

/// Invariants 1, 3, 5, 6 and 7 over `control.git` and every device repository beside it.
pub(super) fn check(home: &Path, converged: bool, broken: &mut Vec<String>) {
    let control = home.join("control.git");
    let mut given = Given::new();
    let mut newest = BTreeMap::new();
    if whole(&control, "control.git", broken) && tip(&control, "control").is_some() {
        let commits = git(&control, &["rev-list", "refs/heads/control"]);
        let commits: Vec<_> = commits.lines().map(|commit| ("control", commit.to_owned())).collect();
        signed::check(&control, "publisher", &publishers(&control), &commits, broken);
        newest = remembered(&control, &mut given);
    }
    for name in repositories(home) {
        let repository = home.join("devices").join(format!("{name}.git"));
        history::check(&repository, broken);
        let tip = published(&repository, given.entry(name.clone()).or_default());
        agree(&name, newest.get(&name), tip, converged, broken);
    }
    for (device, serials) in &given {
        for (serial, envelopes) in serials.iter().filter(|(_, envelopes)| envelopes.len() > 1) {
            broken.push(format!("7: serial {serial} of {device} was given to {envelopes:?}"));
        }
    }
}

/// The names of all device repositories, those that were never finished left out.
fn repositories(home: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(home.join("devices")).into_iter().flatten().flatten();
    let names = entries.filter(|entry| entry.path().join("HEAD").exists());
    let names = names.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".git").map(str::to_owned));
    names.collect()
}

/// Every key that any roster in `control.git` names.
fn publishers(control: &Path) -> BTreeSet<String> {
    let files = git(control, &["ls-tree", "-r", "--name-only", "refs/heads/control", "trust/"]);
    let rosters = files.lines().filter(|path| path.ends_with(".json"));
    let names: Vec<_> = rosters.map(|path| format!("refs/heads/control:{path}")).collect();
    objects(control, &names).iter().flatten().flat_map(|bytes| signed::keys(bytes)).collect()
}

/// Reads the ledger of every commit; gives the newest entry of each device.
fn remembered(control: &Path, given: &mut Given) -> BTreeMap<String, Value> {
    let mut newest = BTreeMap::new();
    let log = git(
        control,
        &[
            "log",
            "--reverse",
            "--first-parent",
            "--format=commit %H",
            "--raw",
            "--no-abbrev",
            "-m",
            "--root",
            "refs/heads/control",
            "--",
            "ledger/",
        ],
    );
    // `:100644 100644 <old> <new> M\tledger/ab/press-01.json`
    let changes: Vec<_> = log
        .lines()
        .filter_map(|line| {
            let (head, path) = line.strip_prefix(':')?.split_once('\t')?;
            let name = path.rsplit('/').next()?.strip_suffix(".json")?;
            Some((name.to_owned(), head.split(' ').nth(3)?.to_owned()))
        })
        .collect();
    let ids: Vec<_> = changes.iter().map(|(_, id)| id.clone()).collect();
    for ((name, _), bytes) in changes.into_iter().zip(objects(control, &ids)) {
        let entry: Value = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let (serial, envelope) = (entry["serial"].as_u64().unwrap_or(0), entry["envelope"].as_str().unwrap_or(""));
        given.entry(name.clone()).or_default().entry(serial).or_default().insert(envelope.to_owned());
        newest.insert(name, entry);
    }
    newest
}

/// Reads every envelope of `desired`; gives serial and digest of the tip's.
fn published(repository: &Path, serials: &mut BTreeMap<u64, BTreeSet<String>>) -> Option<(u64, String)> {
    let tip = tip(repository, "desired")?;
    let history = git(repository, &["rev-list", "--reverse", &tip]);
    let names: Vec<_> = history.lines().map(|commit| format!("{commit}:envelope.json")).collect();
    let mut newest = None;
    for bytes in objects(repository, &names).into_iter().flatten() {
        let envelope: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let (serial, digest) = (envelope["serial"].as_u64().unwrap_or(0), Digest::of(&bytes).to_string());
        serials.entry(serial).or_default().insert(digest.clone());
        newest = Some((serial, digest));
    }
    newest
}

/// 3: a serial is reserved before it goes out, and called published only after.
fn agree(name: &str, entry: Option<&Value>, tip: Option<(u64, String)>, converged: bool, broken: &mut Vec<String>) {
    let Some(entry) = entry else {
        let unknown = tip.map(|(serial, _)| format!("3: {name} has serial {serial}, and the ledger doesn't know it"));
        return broken.extend(unknown);
    };
    let serial = entry["serial"].as_u64().unwrap_or(0);
    let (tip_serial, tip_digest) = tip.unwrap_or_default();
    let is_published = entry["state"] == "published";
    if serial < tip_serial {
        broken.push(format!("3: {name} has serial {tip_serial}, and the ledger only {serial}"));
    }
    if is_published && serial > tip_serial {
        broken.push(format!("3: the ledger calls serial {serial} of {name} published, and its tip is {tip_serial}"));
    }
    if serial == tip_serial && entry["envelope"] != tip_digest.as_str() {
        broken.push(format!("3: serial {serial} of {name} is {tip_digest}, and in the ledger {}", entry["envelope"]));
    }
    if converged && !is_published {
        broken.push(format!("3: serial {serial} of {name} is only {}", entry["state"]));
    }
}
