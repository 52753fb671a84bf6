//! The power is cut at any moment.

use std::path::Path;

use repo_model::Digest;
use repo_testkit::device::Device;
use repo_testkit::faults::power::{Cut, Experiment, assert_cut, cut_everywhere};
use repo_testkit::fleet::Fleet;
use repo_testkit::{copy, git};

use super::{Site, approve_again, read, said};
use crate::crash::occurrences;

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
        prepare: &|root| site.copy_fleet(root),
        command: &approve,
        check: &|root, _, when| {
            let fleet = Fleet::at(root);
            if is_answered(&fleet) {
                has_all(&fleet, when);
            }
            approve_again(&fleet, || approve(root), "press-07 ", when);
            has_all(&fleet, when);
            assert!(is_answered(&fleet), "{when}");
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
