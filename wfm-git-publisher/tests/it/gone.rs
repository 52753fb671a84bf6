//! A device that leaves the fleet: who is told, and what ends.

use jiff::Timestamp;
use repo_testkit::git::git;
use serde_json::Value;
use wfm_git_host::accounts::{Role, Store};

use crate::support::Lab;

/// Two published devices, each with an account on the host.
fn lab() -> Lab {
    let lab = Lab::with(&["press-01", "packer-01"]);
    account(&lab, "press-01");
    account(&lab, "packer-01");
    lab.publish_all();
    lab
}

fn account(lab: &Lab, device: &str) {
    let id = Some(device.parse().unwrap());
    Store::new(lab.home.accounts()).add(&device.parse().unwrap(), Role::Device, id, None, Timestamp::now()).unwrap();
}

fn is_revoked(lab: &Lab, device: &str) -> bool {
    Store::new(lab.home.accounts()).read(&device.parse().unwrap()).unwrap().unwrap().revoked.is_some()
}

#[test]
fn a_device_that_left_is_shown_with_commands_and_its_account_ends() {
    let lab = lab();
    git(&lab.fleet, &["rm", "--quiet", "devices/press-01.yaml"]);
    lab.commit();
    let tip = lab.refs("press-01");
    let plan = lab.run(&["plan"]);
    assert_eq!(plan.code, Some(3), "an account would end: {}", plan.out);
    for words in [
        "press-01: it left the fleet: what it runs runs on",
        "its account `press-01` ends with `publish`",
        "git revert",
    ] {
        assert!(plan.out.contains(words), "{words}\n{}", plan.out);
    }
    let json: Value = serde_json::from_str(&lab.run(&["plan", "press-01", "--output", "json"]).out).unwrap();
    assert_eq!(json["devices"][0], serde_json::json!({"device": "press-01", "state": "gone", "account": "press-01"}));
    let status = lab.run(&["status"]).good();
    assert!(status.contains("its account `press-01` still counts: `account revoke press-01` ends it"), "{status}");

    let published = lab.run(&["publish"]).good();
    assert!(published.contains("press-01: it left the fleet") && published.contains("is ended"), "{published}");
    assert!(is_revoked(&lab, "press-01") && !is_revoked(&lab, "packer-01"));
    assert_eq!(lab.refs("press-01"), tip, "nothing of its repository goes");
    let plan = lab.run(&["plan"]);
    assert!(plan.code == Some(0) && plan.out.contains("1 no longer in the fleet"), "{}", plan.out);
    let status = lab.run(&["status"]).good();
    assert!(
        status.contains("no longer in the fleet (since ") && status.contains("its account `press-01` is ended"),
        "{status}"
    );
    assert!(!lab.run(&["publish"]).good().contains("left the fleet"), "news are told once");

    // It comes back, and can't reach the host until somebody lets it.
    git(&lab.fleet, &["revert", "--no-edit", "HEAD"]);
    let published = lab.run(&["publish"]);
    assert_eq!(published.code, Some(0));
    let words = "its account `press-01` is ended, so it reaches this host no more; to let it in: `account add press-01 --role \
                 device --device press-01`";
    assert!(published.err.contains(words), "{}", published.err);
    assert!(lab.run(&["status"]).good().contains(words));
    lab.run(&["account", "add", "press-01", "--role", "device", "--device", "press-01"]).good();
    lab.run(&["device", "join", "press-01"]).good();
    assert!(!lab.run(&["status"]).good().contains("reaches this host no more"));
    lab.run(&["publish"]).good();
    assert!(!is_revoked(&lab, "press-01"));
}

#[test]
fn no_account_ends_by_mistake() {
    let lab = lab();
    let before = git(&lab.fleet, &["rev-parse", "HEAD"]);
    lab.enroll("press-07");
    account(&lab, "press-07");
    lab.publish_all();
    // An old state, on purpose, once and again.
    for _ in 0..2 {
        lab.run(&["publish", "--rev", &before]).good();
        assert!(!is_revoked(&lab, "press-07"));
    }
    // Nobody knows what that file is about.
    lab.write("devices/press-07.yaml", "id: [\n");
    lab.commit();
    lab.run(&["publish"]).failed(1);
    assert!(!is_revoked(&lab, "press-07"));
    // It left; and an account that is made anew, before its file is there again, stays.
    lab.remove("devices/press-07.yaml");
    lab.commit();
    lab.run(&["publish"]).good();
    assert!(is_revoked(&lab, "press-07"));
    account(&lab, "press-07");
    lab.commit();
    lab.run(&["publish"]).good();
    assert!(!is_revoked(&lab, "press-07"));
}
