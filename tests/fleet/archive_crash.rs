//! Power cuts of `archive` at every sync point: the publisher's home and the archives lie on the volume.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use repo_model::{Branch, Digest};
use repo_testkit::faults::power::{Cut, Experiment, assert_cut, cut_everywhere};
use repo_testkit::fleet::Fleet;
use repo_testkit::{copy, git};
use serde_json::Value;
use tempfile::TempDir;

use crate::audit::findings_by;
use crate::crash::occurrences;
use crate::epochs::{branches, greet};
use crate::hosted::ID;
use crate::site::Site;

fn archives(root: &Path) -> PathBuf {
    root.join("archives")
}

fn archive(root: &Path) -> Command {
    Fleet::at(root).command(&["archive", "--to", &archives(root).display().to_string()])
}

/// What the ledger says is archived: the branch, and the file as it says it.
fn noted(fleet: &Fleet, root: &Path, when: &str) -> Vec<(String, PathBuf)> {
    let control = fleet.control();
    let names = git::git(&control, &["ls-tree", "-r", "--name-only", Branch::Control.as_str(), "epochs/"]);
    let read = |path: &str| {
        let one = git::show(&control, Branch::Control.as_str(), path).expect("it is listed");
        let one: Value = serde_json::from_slice(&one).expect("JSON");
        let branch = format!("status-{}", one["epoch"]);
        let file = archives(root).join(format!("{ID}.{branch}.bundle"));
        let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{when}: {branch} is noted: {error}"));
        assert_eq!(one["digest"], Digest::of(&bytes).to_string(), "{when}: {branch}");
        (branch, file)
    };
    names.lines().map(read).collect()
}

/// What stock Git makes of the host's repository and, where that lacks something, of the archives that the ledger notes.
fn assert_kept(fleet: &Fleet, root: &Path, all: &BTreeMap<String, String>, when: &str) {
    let (dir, here) = (TempDir::new().expect("a temporary directory"), fleet.repository(ID));
    git::git(&fleet.control(), &["fsck", "--strict", "--no-dangling"]);
    git::git(dir.path(), &["clone", "--quiet", "--mirror", &here.display().to_string(), "whole"]);
    let whole = dir.path().join("whole");
    for (branch, file) in noted(fleet, root, when) {
        if git::tip(&here, &branch).is_none() {
            git::git(&whole, &["fetch", "--quiet", &file.display().to_string(), &format!("{branch}:{branch}")]);
        }
    }
    assert_eq!(&git::refs(&whole), all, "{when}: what was told is at the host, or in an archive that is noted");
    git::git(&whole, &["fsck", "--strict", "--full"]);
}

/// All that is old is archived, once, and the audit accepts it.
fn assert_archived(fleet: &Fleet, root: &Path, when: &str) {
    let repository = fleet.repository(ID);
    assert_eq!(branches(&repository).len(), 2, "{when}: the newest that ended stays");
    git::git(&repository, &["fsck", "--strict", "--full"]);
    let files: Vec<_> = noted(fleet, root, when).into_iter().map(|(_, file)| file).collect();
    let mut there: Vec<_> = std::fs::read_dir(archives(root)).expect("made").flatten().map(|one| one.path()).collect();
    there.sort();
    assert_eq!(there, files, "{when}: nothing temporary");
    let subjects = git::git(&fleet.control(), &["log", "--format=%s", Branch::Control.as_str()]);
    assert_eq!(subjects.lines().filter(|line| line.starts_with("archive ")).count(), 1, "{when}: {subjects}");
    let (control, archives) = (fleet.control().display().to_string(), archives(root).display().to_string());
    let found = findings_by(fleet, &["--control", &control, "--archives", &archives]);
    assert_eq!(found, [""; 0], "{when}");
}

#[test]
fn power_cuts_of_an_archive_lose_nothing_that_was_told_and_the_same_command_ends_it() {
    let site = Site::new(&[ID]);
    site.publish();
    greet((&site.fleet, site.device(ID)), 2, 3);
    let all = git::refs(&site.fleet.repository(ID));
    let epochs = branches(&site.fleet.repository(ID));
    assert!(epochs.len() >= 4, "two epochs at least are old enough: {epochs:?}");
    let prepare = |root: &Path| {
        for part in ["fleet", "fleet.wfm"] {
            copy(&site.dir.path().join(part), &root.join(part));
        }
    };
    let check = |root: &Path, when: &str| {
        let fleet = Fleet::at(root);
        assert_kept(&fleet, root, &all, when);
        let again = archive(root).output().expect("it runs");
        assert!(again.status.success(), "{when}: {}", String::from_utf8_lossy(&again.stderr));
        assert_archived(&fleet, root, when);
    };
    let experiment = Experiment {
        deed: "archives",
        prepare: &prepare,
        command: &archive,
        check: &|root, _, when| check(root, when),
        cut: Cut::Power,
        occurrences: occurrences(),
    };
    let points = cut_everywhere(&experiment).expect("the cuts are made");
    assert_cut(&points, &["dir.create", "dir.rename", "file.data", "pack.data", "ref.move", "ref.delete"]);
}
