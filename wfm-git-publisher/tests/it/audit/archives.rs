//! Old epochs of `status` that leave the host: what the archives are worth to stock Git and to the audit, and what stays.

use std::path::PathBuf;

use repo_git::durable::remove_dir_all;
use repo_model::{Branch, Digest};
use repo_testkit::git::{command, git, tip};
use serde_json::Value;

use super::forge::{BAD, Forge};
use crate::support::{Lab, Ran, copy};

/// A fleet whose press-01 has two epochs that ended, and an auditor's tools.
struct Place {
    forge: Forge,
}

impl Place {
    fn new() -> Self {
        let forge = Forge::new();
        forge.with_epochs();
        forge.bring_home();
        Self { forge }
    }

    fn lab(&self) -> &Lab {
        self.forge.lab()
    }

    fn to(&self) -> PathBuf {
        self.lab().dir().join("archives")
    }

    fn bundle(&self) -> PathBuf {
        self.to().join("press-01.status-1.bundle")
    }

    fn archive(&self) -> Ran {
        self.lab().run(&["archive", "--to", "../archives", "--output", "json"])
    }

    /// The audit of what is at the host.
    fn audit(&self, more: &[&str]) -> Ran {
        let home = self.lab().home.devices().display().to_string();
        let roster = self.lab().dir().join("roster.json").display().to_string();
        self.lab().run(&[&["audit", &home, "--roster", &roster, "--output", "json"], more].concat())
    }

    /// By the ledger, which is believed, and says what it finds.
    fn audit_by_ledger(&self, more: &[&str]) -> (Value, Vec<String>) {
        let control = self.lab().home.control().display().to_string();
        let said: Value = serde_json::from_str(&self.audit(&[&["--control", &control], more].concat()).out).unwrap();
        let codes = codes(&said);
        (said, codes)
    }

    /// Whether the host still has the first epoch: its branch, and its objects.
    fn has_first(&self, end: &str) -> (bool, bool) {
        let repo = self.lab().repo(BAD);
        let is_there = command(&repo).args(["cat-file", "-e", end]).output().unwrap().status.success();
        (tip(&repo, "status-1").is_some(), is_there)
    }

    fn commits_of_ledger(&self) -> String {
        self.lab().control(&["rev-list", "--count", Branch::Control.as_str()])
    }
}

fn codes(said: &Value) -> Vec<String> {
    let findings = said["findings"].as_array().unwrap().iter();
    findings.map(|one| format!("{} {}", one["code"].as_str().unwrap(), one["branch"].as_str().unwrap_or("-"))).collect()
}

fn commits(said: &Value) -> u64 {
    said["repositories"].as_array().unwrap().iter().map(|one| one["commits"].as_u64().unwrap()).sum()
}

#[test]
fn old_epochs_leave_the_host_in_bundles_and_the_audit_follows_them_there() {
    let place = Place::new();
    let (lab, repo) = (place.lab(), place.lab().repo(BAD));
    let end = tip(&repo, "status-1").unwrap();
    let count = git(&repo, &["rev-list", "--count", "status-1"]);
    let (whole, nothing) = place.audit_by_ledger(&[]);
    assert_eq!(nothing, [""; 0]);
    let said: Value = serde_json::from_str(&place.archive().good()).unwrap();
    let archived = &said["devices"][0]["archived"];
    assert_eq!((archived.as_array().unwrap().len(), &archived[0]["epoch"]), (1, &1.into()), "{said}");
    assert_eq!(archived[0]["commits"].to_string(), count);
    // The newest that ended stays, and nothing of the old one.
    assert_eq!((place.has_first(&end), tip(&repo, "status-2").is_some()), ((false, false), true));
    git(&repo, &["fsck", "--strict", "--full"]);
    // Stock Git reads it, and needs nothing else for that.
    let bundle = place.bundle().display().to_string();
    git(lab.dir(), &["init", "--quiet", "--bare", "empty"]);
    git(&lab.dir().join("empty"), &["bundle", "verify", "--quiet", &bundle]);
    git(lab.dir(), &["clone", "--quiet", "--bare", "--branch", "status-1", &bundle, "cloned"]);
    let cloned = lab.dir().join("cloned");
    assert_eq!((tip(&cloned, "status-1"), git(&cloned, &["rev-list", "--count", "status-1"])), (Some(end), count));
    git(&cloned, &["fsck", "--strict", "--full"]);
    // The ledger says so.
    let noted: Value = serde_json::from_str(&lab.control(&["show", "control:epochs/press-01/1.json"])).unwrap();
    let digest = Digest::of(&std::fs::read(&bundle).unwrap()).to_string();
    assert_eq!((&noted["digest"], &noted["file"]), (&digest.as_str().into(), &bundle.as_str().into()));
    let listed: Value = serde_json::from_str(&lab.run(&["archive", "list", "--output", "json"]).good()).unwrap();
    assert_eq!(listed["archived"], Value::Array(vec![noted]));
    assert!(lab.run(&["archive", "list"]).good().contains(&digest));
    // The audit misses it, knows where it is, or reads it.
    assert_eq!(codes(&serde_json::from_str(&place.audit(&[]).out).unwrap()), ["epoch-missing status-1"]);
    let (known, found) = place.audit_by_ledger(&[]);
    assert_eq!((found, &known["good"]), (vec!["epoch-archived status-1".to_owned()], &true.into()));
    let archives = ["--archives", "../archives"];
    let (read, found) = place.audit_by_ledger(&archives);
    assert_eq!((found, commits(&read)), (vec![], commits(&whole)));
    assert!(lab.run(&["history", BAD]).err.contains("older history is archived on"));
    // Another one, whatever is in it: stock Git's own of the same commits has other bytes.
    git(&cloned, &["bundle", "create", "--quiet", &bundle, "status-1"]);
    let (changed, found) = place.audit_by_ledger(&archives);
    let expected = ["archive-mismatch status-1", "epoch-archived status-1"].map(str::to_owned).to_vec();
    assert_eq!((found, &changed["good"]), (expected, &false.into()));
}

#[test]
fn what_was_cut_off_is_completed_and_what_is_in_the_way_or_in_doubt_stays_at_the_host() {
    let place = Place::new();
    let (lab, repo) = (place.lab(), place.lab().repo(BAD));
    let (before, ledger) = (lab.dir().join("before"), lab.dir().join("ledger"));
    copy(&repo, &before);
    copy(&lab.home.control(), &ledger);
    let end = tip(&repo, "status-1").unwrap();
    // Something else is at its place.
    std::fs::create_dir_all(place.to()).unwrap();
    std::fs::write(place.bundle(), "notes").unwrap();
    let refused = place.archive().failed(1);
    assert!(refused.contains("cannot read the bundle") || refused.contains("is no bundle"), "{refused}");
    assert_eq!(place.has_first(&end), (true, true));
    std::fs::remove_file(place.bundle()).unwrap();
    place.archive().good();
    let (bytes, noted) = (std::fs::read(place.bundle()).unwrap(), place.commits_of_ledger());
    // The file is written, and not noted.
    copy(&before, &repo);
    copy(&ledger, &lab.home.control());
    place.archive().good();
    assert_eq!((std::fs::read(place.bundle()).unwrap(), place.commits_of_ledger()), (bytes, noted.clone()));
    assert_eq!(place.has_first(&end), (false, false));
    // It is noted, and its branch is there; then its objects only. Also where the archive went elsewhere meanwhile.
    for branch in [true, false] {
        copy(&before, &repo);
        if !branch {
            git(&repo, &["update-ref", "-d", "refs/heads/status-1"]);
        }
        remove_dir_all(&place.to()).unwrap();
        assert_eq!(place.has_first(&end), (branch, true));
        place.archive().good();
        assert_eq!((place.has_first(&end), place.commits_of_ledger()), ((false, false), noted.clone()), "{branch}");
    }
    let left = std::fs::read_dir(place.to()).unwrap().count();
    assert_eq!(left, 0, "nothing temporary");
    // The end of an epoch isn't what the next one says.
    copy(&before, &repo);
    copy(&ledger, &lab.home.control());
    git(&repo, &["update-ref", "refs/heads/status-1", "status-1~1"]);
    let refused = place.archive().failed(1);
    assert!(refused.contains("an audit finds something wrong in its repository") && refused.contains("epoch-moved"));
    assert_eq!((place.has_first(&end), place.bundle().exists()), ((true, true), false));
}

#[test]
fn a_ledger_that_no_publisher_of_the_fleet_signed_excuses_no_missing_epoch() {
    let place = Place::new();
    place.archive().good();
    let lab = place.lab();
    let forged = lab.dir().join("forged.git");
    copy(&lab.home.control(), &forged);
    let tree = git(&forged, &["commit-tree", "-m", "archive 1 epochs of status", "control^{tree}"]);
    git(&forged, &["update-ref", "refs/heads/control", &tree]);
    let refused = place.audit(&["--control", &forged.display().to_string()]).failed(1);
    assert!(refused.contains("isn't signed by a publisher of its newest roster"), "{refused}");
    let refused = place.audit(&["--control", &lab.home.devices().display().to_string()]).failed(1);
    assert!(
        refused.contains("is not a Git repository") && refused.contains("hint: name the publisher's control.git"),
        "{refused}"
    );
    let another = format!("sha256:{}", "0".repeat(64));
    let (home, control) = (lab.home.devices().display().to_string(), lab.home.control().display().to_string());
    let refused = lab.run(&["audit", &home, "--roster", &another, "--control", &control]).failed(1);
    assert!(refused.contains("holds no roster with the digest"), "{refused}");
    lab.run(&["audit", &home, "--roster", &another, "--archives", "x"]).failed(2);
}
