//! The power is cut at any moment of an enrolment by a batch token.

use std::path::Path;

use repo_testkit::device::Device;
use repo_testkit::faults::power::{Cut, Experiment, assert_cut, cut_everywhere};
use repo_testkit::fleet::Fleet;
use repo_testkit::{copy, git};

use super::{Site, approve_again, read, said};
use crate::crash::occurrences;

#[test]
fn a_power_cut_of_an_approval_by_token_or_of_the_joining_leaves_what_the_same_command_completes() {
    let site = Site::new();
    let file = site.token("graz", &["--count", "2", "--for", "1h"]);
    let devices = ["one", "two"].map(|name| site.device(name));
    for (serial, device) in ["px-1", "px-2"].iter().zip(&devices) {
        let output = site.enrolling(device, &file, serial, "1s").output().expect("the syncer runs");
        assert!(String::from_utf8_lossy(&output.stdout).contains("waiting"), "{}", said(&output));
    }
    let request = |device: &Device| {
        let kept = read(&device.home().join("enrol.json"));
        kept["shown"]["request"].as_str().expect("a request").to_owned()
    };
    let requests = devices.each_ref().map(request);
    let approve = |root: &Path| Fleet::at(root).command(&["device", "approve", "--token", "graz"]);
    let answered = |fleet: &Fleet| {
        let answer = |request: &String| {
            let kept = read(&fleet.home().join(format!("enroll/{request}.json")));
            kept["verdict"]["approved"]["answer"]["device"].as_str().map(str::to_owned)
        };
        requests.each_ref().map(answer)
    };
    let experiment = Experiment {
        deed: "approve",
        prepare: &|root| site.copy_fleet(root),
        command: &approve,
        check: &|root, _, when| {
            let fleet = Fleet::at(root);
            // Nobody is answered before all that the answer names is there.
            for id in answered(&fleet).into_iter().flatten() {
                assert!(fleet.repository(&id).is_dir(), "{when}: {id}");
                let text = git::git(&fleet.dir(), &["show", &format!("HEAD:devices/{id}.yaml")]);
                assert!(text.contains("enrolledBy:"), "{when}: {text}");
            }
            approve_again(&fleet, || approve(root), "graz-px-1 ", when);
            let ids = ["graz-px-1", "graz-px-2"].map(|id| Some(id.to_owned()));
            assert_eq!(answered(&fleet), ids, "{when}");
        },
        cut: Cut::Power,
        occurrences: occurrences().max(8),
    };
    assert_cut(&cut_everywhere(&experiment).expect("the cuts are made"), &["file.data", "file.rename", "file.dir"]);
    assert!(approve(site.dir.path()).status().expect("the publisher runs").success());
    let [device, _] = &devices;
    let joining = |root: &Path| {
        let own = root.join("enroll.json").display().to_string();
        Device::at("one", root).command(&["enroll", "--from", &own, "--serial", "px-1"])
    };
    let experiment = Experiment {
        deed: "join",
        prepare: &|root| {
            copy(&device.home(), &root.join("home"));
            std::fs::copy(device.home().join("../enroll.json"), root.join("enroll.json")).expect("copied");
        },
        command: &joining,
        check: &|root, _, when| {
            let again = joining(root).output().expect("the syncer runs");
            // One that was done is told that it is.
            let is_done = said(&again).contains("belongs to device `graz-px-1` already");
            assert!(again.status.success() || is_done, "{when}: {}", said(&again));
            let home = root.join("home");
            assert_eq!(read(&home.join("join.json"))["device"], "graz-px-1", "{when}");
            let own = std::fs::read_to_string(root.join("enroll.json")).expect("there");
            assert!(!own.contains("PRIVATE KEY") && !home.join("enrol.json").exists(), "{when}: the token is gone");
        },
        cut: Cut::Power,
        occurrences: occurrences(),
    };
    let points = ["file.data", "file.rename", "file.dir", "file.remove"];
    assert_cut(&cut_everywhere(&experiment).expect("the cuts are made"), &points);
}
