//! A device is taken out of service: what is published then, what ends, and what doesn't.

#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use jiff::Timestamp;
use repo_model::Trailer;
use repo_testkit::git::git;
use serde_json::Value;
use wfm_git_host::accounts::{Account, Store};

use crate::reports::Reporter;
use crate::support::{BEGIN, Lab};

/// Two published devices, each with an account on the host.
fn lab() -> Lab {
    let lab = Lab::with(&["press-01", "packer-01"]);
    let settings = lab.home.root().join("publisher.yaml");
    std::fs::write(settings, "serve:\n  names: [localhost]\n").unwrap();
    let store = Store::new(lab.home.accounts());
    for device in ["press-01", "packer-01"] {
        store.issue_for_device(&device.parse().unwrap(), None, false, Timestamp::now()).unwrap();
    }
    lab.publish_all();
    lab
}

fn account(lab: &Lab, device: &str) -> Account {
    Store::new(lab.home.accounts()).read(&device.parse().unwrap()).unwrap().expect("an account")
}

/// Whether the account of a device lets nobody in because the device is retired, and that of the other does.
fn is_cut_off(lab: &Lab) -> bool {
    assert!(account(lab, "packer-01").revoked.is_none());
    let account = account(lab, "press-01");
    assert_eq!(account.retired, account.revoked.is_some());
    account.retired
}

fn state(lab: &Lab) -> Value {
    let status: Value = serde_json::from_str(&lab.run(&["status", "press-01", "--output", "json"]).good()).unwrap();
    status["devices"][0]["membership"].clone()
}

/// The device says that it adopted the newest state, and that its only deployment is in this state.
fn reports(lab: &Lab, deployment: &str, state: &str) {
    let document = format!(
        r#"{{"deploymentId":"{deployment}","deviceId":"press-01","status":{{"state":"{state}"}},
           "components":[{{"name":"hello","state":"{state}"}}]}}"#
    );
    let path = format!("deployments/{deployment}.json");
    let reporter = Reporter { lab, device: "press-01" };
    reporter.status_of(
        "press-01",
        lab.json("press-01", "desired", "manifest.json")["manifestVersion"].as_u64().unwrap(),
        &[(&path, document)],
    );
}

#[test]
fn what_a_retired_device_runs_goes_past_the_guards_and_it_is_cut_off_once_it_says_that_nothing_is_left() {
    let lab = lab();
    let deployment = Reporter { lab: &lab, device: "press-01" }.deployment();
    let keys = lab.json("press-01", "desired", "envelope.json")["device"]["statusKeys"].clone();
    lab.edit("devices/press-01.yaml", "id: press-01\n", "id: press-01 # the old one\n");
    // Nothing of this may go without a person's word; and nobody knows what that file is about.
    let settings = lab.read("fleet.yaml");
    lab.write("fleet.yaml", format!("{settings}guards: {{deviceRemovals: 0%, fleetRemovals: 0%}}\n"));
    lab.commit();
    let said = lab.run(&["device", "retire", "press-01"]).good();
    assert!(
        said.contains("press-01 is retired (devices/press-01.yaml): what it runs goes with the next publish"),
        "{said}"
    );
    let file = lab.read("devices/press-01.yaml");
    assert!(file.contains("id: press-01 # the old one\n") && file.ends_with("retired: when-empty\n"), "{file}");
    assert_eq!(git(&lab.fleet, &["log", "-1", "--format=%B"]), "press-01: retire\n\nRetired: press-01 when-empty");
    lab.write("deployments/broken.yaml", "id: [\n");
    lab.commit();
    let plan = lab.run(&["plan", "press-01"]).out;
    assert!(plan.contains("- hello") && plan.contains("retired: yes") && !plan.contains("not published"), "{plan}");

    lab.publish();
    let envelope = lab.json("press-01", "desired", "envelope.json");
    assert_eq!(
        (&envelope["deployments"], &envelope["device"]["retired"], &envelope["device"]["statusKeys"]),
        (&serde_json::json!({}), &true.into(), &keys)
    );
    assert!(!is_cut_off(&lab) && state(&lab) == "enrolled", "it has to hear that");
    // It has heard of it, and is at work.
    reports(&lab, &deployment, "removing");
    lab.publish_at(*BEGIN + 13 * 3600);
    assert!(!is_cut_off(&lab));
    let fresh = lab.tip("press-01", "freshness");
    reports(&lab, &deployment, "removed");
    let outcome = lab.publish_at(*BEGIN + 14 * 3600);
    assert_eq!(outcome.retired, ["press-01".parse().unwrap()]);
    assert!(is_cut_off(&lab) && state(&lab) == "retired");

    // Nothing more is issued for it, whatever changes and however late it is; and a pass needn't look again.
    lab.remove("deployments/broken.yaml");
    lab.commit();
    let before = lab.refs("press-01");
    let later = *BEGIN + 40 * 3600;
    let outcome = lab.publish_at(later);
    assert!(outcome.is_complete() && outcome.retired.is_empty(), "{outcome:?}");
    assert_eq!((lab.refs("press-01"), lab.tip("press-01", "freshness")), (before, fresh));
    assert!(lab.is_unchanged_at(later + 1) && lab.is_as_left_at(later + 1));
    let plan = lab.run(&["plan", "press-01", "--output", "json"]);
    let plan: Value = serde_json::from_str(&plan.out).unwrap();
    assert_eq!(plan["devices"][0], serde_json::json!({ "device": "press-01", "state": "retired" }));
    assert!(lab.run(&["device", "list"]).good().contains("press-01   retired "));
    assert!(lab.run(&["explain", "press-01"]).good().contains("retired (when-empty)"));

    // Without its file it is the same, and nobody is told that it left.
    git(&lab.fleet, &["rm", "--quiet", "devices/press-01.yaml"]);
    lab.commit();
    let outcome = lab.publish_at(later + 60);
    assert!(outcome.left.is_empty() && is_cut_off(&lab) && state(&lab) == "retired", "{outcome:?}");
}

#[test]
fn a_device_that_never_answers_is_cut_off_at_once_by_a_persons_word() {
    let lab = lab();
    let said = lab.run(&["device", "retire", "press-01"]).good();
    assert!(!is_cut_off(&lab), "{said}");
    let said = lab.run(&["device", "retire", "press-01", "--now", "--output", "json"]).good();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["retired"], &said["cutOff"], &said["wasThere"]), (&"now".into(), &true.into(), &false.into()));
    assert!(is_cut_off(&lab) && lab.read("devices/press-01.yaml").ends_with("retired: now\n"));
    // Said again, it changes nothing.
    let head = git(&lab.fleet, &["rev-parse", "HEAD"]);
    assert!(lab.run(&["device", "retire", "press-01", "--now"]).good().contains("is retired already"));
    assert_eq!(git(&lab.fleet, &["rev-parse", "HEAD"]), head);
    // The first pass says so in its repository, the second finds nothing left to say.
    assert_eq!(lab.publish_all().retired.len(), 1);
    assert_eq!(lab.json("press-01", "desired", "envelope.json")["deployments"], serde_json::json!({}));
    assert!(lab.publish_all().retired.is_empty() && lab.is_unchanged_at(*BEGIN));
    assert_eq!(state(&lab), "retired");
    // No key gets it back, and its account doesn't, either.
    let line = format!("{} press-01", Lab::device_key("thief").public());
    let said = lab.run(&["device", "enroll", "press-01", &line, "--replace"]).failed(1);
    assert!(said.contains("`press-01` is retired") && said.contains("take `retired` out of its file"), "{said}");
    lab.run(&["device", "join", "press-01"]).failed(1);
}

#[test]
fn a_device_that_keeps_its_workloads_has_the_state_that_it_had() {
    let lab = lab();
    let before = lab.json("press-01", "desired", "manifest.json");
    lab.run(&["device", "retire", "press-01", "--keep-workloads"]).good();
    assert!(!is_cut_off(&lab));
    lab.publish_all();
    assert_eq!(lab.json("press-01", "desired", "manifest.json"), before);
    let envelope = lab.json("press-01", "desired", "envelope.json");
    assert_eq!(
        (&envelope["device"]["retired"], lab.trailer("press-01", Trailer::Serial)),
        (&true.into(), "2".to_owned())
    );
    assert!(is_cut_off(&lab));
    // Nothing that is for it now reaches it.
    lab.edit("deployments/hello.yaml", "hello from", "servus from");
    lab.commit();
    lab.publish_all();
    assert_eq!((lab.json("press-01", "desired", "manifest.json"), lab.serial("press-01")), (before, 2));
    // It comes back as it left.
    lab.edit("devices/press-01.yaml", "retired: keep-workloads\n", "");
    lab.commit();
    lab.publish_all();
    assert_eq!((lab.serial("press-01"), state(&lab)), (3, "enrolled".into()));
    let status = lab.run(&["status", "press-01"]).good();
    assert!(status.contains("its account `press-01` is ended"), "{status}");
}

#[test]
fn a_retirement_that_was_cut_off_before_its_commit_is_completed_and_other_changes_are_left_alone() {
    let lab = lab();
    let head = || git(&lab.fleet, &["rev-list", "--count", "HEAD"]);
    let before = head();
    let file = lab.read("devices/press-01.yaml");
    lab.write("devices/press-01.yaml", format!("{file}retired: when-empty\n"));
    assert!(lab.run(&["device", "retire", "press-01"]).good().contains("is retired already"));
    assert_ne!(head(), before);
    let packer = lab.read("devices/packer-01.yaml");
    lab.write("devices/packer-01.yaml", format!("{packer}# mine\n"));
    let said = lab.run(&["device", "retire", "packer-01"]).failed(1);
    assert!(said.contains("has changes that are not committed"), "{said}");
    let said = lab.run(&["device", "retire", "press-07"]).failed(1);
    assert!(said.contains("there is no device `press-07`") && said.contains("device list"), "{said}");
    lab.edit("devices/press-01.yaml", "retired: when-empty", "retired: soon");
    lab.commit();
    let said = lab.run(&["validate"]).failed(1);
    assert!(said.contains("must be `when-empty`, `keep-workloads` or `now`"), "{said}");
}
