//! The power is cut at any moment.

use std::path::Path;

use repo_model::Digest;
use repo_testkit::device::Device;
use repo_testkit::faults::power::{Cut, Experiment, assert_cut, cut_everywhere};
use repo_testkit::fleet::Fleet;
use repo_testkit::{copy, git};

use super::{Site, read, said};
use crate::crash::occurrences;
use crate::publish_crash::remove_lock;

#[test]
fn the_power_cut_at_any_moment_of_an_approval_or_a_joining_leaves_what_the_same_command_completes() {
    let site = Site::new().open();
    let device = site.device("press-07");
    let mut enrolling = site.enroll(&device);
    let code = enrolling.says("code");
    enrolling.kill();
    let approve = |root: &Path| {
        let label = ["device", "approve", &code, "--id", "press-07", "--label", "site=graz"];
        Fleet::at(root).command(&label)
    };
    let secret = read(&device.home().join("enrol.json"))["secret"].as_str().expect("a secret").to_owned();
    let request = read(&device.home().join("enrol.json"))["shown"]["request"].as_str().expect("a name").to_owned();
    let digest = Digest::of(secret.as_bytes()).to_string();
    let has_all = |fleet: &Fleet, when: &str| {
        let account = std::fs::read_to_string(fleet.home().join("accounts/press-07.json")).unwrap_or_default();
        assert!(account.contains(&digest), "{when}: {account}");
        let file = git::git(&fleet.dir(), &["show", "HEAD:devices/press-07.yaml"]);
        assert!(file.contains("statusKeys:"), "{when}: {file}");
        assert!(fleet.repository("press-07").is_dir(), "{when}");
    };
    let is_answered =
        |fleet: &Fleet| read(&fleet.home().join(format!("enroll/{request}.json")))["verdict"]["approved"].is_object();
    let experiment = Experiment {
        deed: "approve",
        prepare: &|root| {
            for part in ["fleet", "fleet.wfm"] {
                copy(&site.dir.path().join(part), &root.join(part));
            }
        },
        command: &approve,
        check: &|root, _, when| {
            let fleet = Fleet::at(root);
            if is_answered(&fleet) {
                has_all(&fleet, when);
            }
            let mut again = approve(root).output().expect("the publisher runs");
            // Between git's rename and our sync of it: git says which of its lock files the operator has to remove.
            if said(&again).contains(".lock") {
                remove_lock(&fleet, when);
                again = approve(root).output().expect("the publisher runs");
            }
            assert!(again.status.success(), "{when}: {}", said(&again));
            has_all(&fleet, when);
            assert!(is_answered(&fleet), "{when}");
            // What a cut write left beside its target is nobody's.
            let left = git::git(&fleet.dir(), &["status", "--porcelain", "--untracked-files=no"]);
            assert_eq!(left, "", "{when}");
            let commits = git::git(&fleet.dir(), &["log", "--format=%s", "--grep=^Enrolled: press-07 "]);
            assert_eq!(commits.lines().count(), 1, "{when}: {commits}");
        },
        cut: Cut::Power,
        // So many that one comes between any two of the files that it writes.
        occurrences: occurrences().max(12),
    };
    assert_cut(&cut_everywhere(&experiment).expect("the cuts are made"), &["file.data", "file.rename", "file.dir"]);
    assert!(approve(site.dir.path()).status().expect("the publisher runs").success());
    let key = std::fs::read(device.home().join("status.key")).expect("a key");
    let file = site.file().display().to_string();
    let joining = |root: &Path| Device::at("press-07", root).command(&["enroll", "--from", &file]);
    let experiment = Experiment {
        deed: "join",
        prepare: &|root| copy(&device.home(), &root.join("home")),
        command: &joining,
        check: &|root, _, when| {
            let again = joining(root).output().expect("the syncer runs");
            let home = root.join("home");
            // One that was done is told that it is.
            let is_done = said(&again).contains("belongs to device `press-07` already");
            assert!(again.status.success() || is_done, "{when}: {}", said(&again));
            assert_eq!(std::fs::read(home.join("status.key")).expect("a key"), key, "{when}");
            assert_eq!(read(&home.join("account.json"))["current"]["secret"], secret.as_str(), "{when}");
            assert_eq!(read(&home.join("join.json"))["device"], "press-07", "{when}");
            assert!(home.join("floor").exists() && !home.join("enrol.json").exists(), "{when}");
        },
        cut: Cut::Power,
        occurrences: occurrences(),
    };
    let points = ["file.data", "file.rename", "file.dir", "file.remove"];
    assert_cut(&cut_everywhere(&experiment).expect("the cuts are made"), &points);
}
