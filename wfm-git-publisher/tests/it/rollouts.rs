//! `rollout`: what is remembered is shown, what devices verifiably say is judged, and what persons say is committed.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use repo_git::SigningKey;
use repo_model::{DeviceId, Trailer};
use repo_testkit::git::git;
use serde_json::{Value, json};
use wfm_git_publisher::fleet::{RolloutPolicy, WaveSpec};
use wfm_git_publisher::repos::{Control, DeviceRepo, Home};
use wfm_git_publisher::rollout::{
    Decided, Decision, Meaning, Member, Order, Phase, Record, Release, RolloutState, Stop, meanings,
};

use crate::reports::Reporter;
use crate::support::{Lab, after};
use crate::waves::reports;

/// What the `desired` of a device means of `hello` now.
fn meant(home: &Home, device: &DeviceId) -> Option<Meaning> {
    let (_, rosters) = Control::read(home).unwrap();
    let repo = DeviceRepo::open(home, rosters.fleet(), device).unwrap()?;
    let tip = repo.desired(&rosters.publishers).unwrap()?;
    Meaning::of(meanings(&tip.desired).iter().map(|(name, digest)| (name, *digest)))
}

/// The waves that are the default, the second one after a person agreed to it.
fn waves() -> Vec<WaveSpec> {
    serde_json::from_value(json!([1, "approve", "10%"])).unwrap()
}

/// Remembers a rollout of `hello` on these devices, which shall have what they have, and of which the first was released ten
/// minutes ago.
pub(crate) fn remember(home: &Home, number: u32, phase: Phase, devices: &[&str]) {
    let released = Timestamp::now() - SignedDuration::from_mins(10);
    let devices: Vec<DeviceId> = devices.iter().map(|id| id.parse().unwrap()).collect();
    let member = |wave: u32, device: &DeviceId| Member {
        had: None,
        want: meant(home, device),
        wave,
        order: Order::Normal,
        back: false,
        since: None,
        before: None,
    };
    let members = (1..).zip(&devices).map(|(wave, device)| (device.clone(), member(wave, device)));
    let stop = Stop { at: released, reason: "1 of 1 failed".to_owned(), failed: BTreeMap::new(), resumed: None };
    let release = Release {
        wave: 1,
        released,
        devices: devices.iter().take(1).cloned().collect(),
        passed_over: BTreeMap::new(),
        was_failing: [].into(),
        promoted: false,
    };
    let state = RolloutState {
        rollout: number,
        state: phase,
        fleet_commit: "4be1".repeat(10),
        operator_key: "unverified".to_owned(),
        deployments: ["hello".parse().unwrap()].into(),
        policy: RolloutPolicy { waves: waves(), ..RolloutPolicy::default() },
        supersedes: [].into(),
        allowed: [].into(),
        waves: vec![release],
        stops: if phase == Phase::Stopped { vec![stop] } else { Vec::new() },
        end: None,
    };
    let record = Record { state, members: members.collect() };
    let decided = Decided { decision: Decision::Release(1), reason: "wave 1 of 3: 1 device".to_owned(), record };
    let (mut control, rosters) = Control::open(home).unwrap();
    let key = SigningKey::load(&home.publisher_key()).unwrap();
    let commit = "1".repeat(40).parse().unwrap();
    control.commit_rollout(&decided, commit, rosters.fleet(), &key, Timestamp::now()).unwrap();
}

fn lab() -> Lab {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.publish_all();
    remember(&lab.home, 12, Phase::Running, &["press-01", "packer-01"]);
    lab
}

fn shown(lab: &Lab) -> Value {
    serde_json::from_str(&lab.run(&["rollout", "show", "12", "--output", "json"]).good()).unwrap()
}

/// What `press-01` is, and why.
fn state(lab: &Lab) -> (String, String) {
    let row = shown(lab)["devices"]["press-01"].clone();
    (row["state"].as_str().unwrap().to_owned(), row["why"].as_str().unwrap().to_owned())
}

/// A heartbeat in which all is well, of so many seconds from now.
fn beats(reporter: &Reporter<'_>, signer: &str, seconds: i64, serial: u64) {
    beats_with(reporter, signer, seconds, serial, &input(reporter));
}

/// The same of what runs with this input.
fn beats_with(reporter: &Reporter<'_>, signer: &str, seconds: i64, serial: u64, input: &str) {
    let state = format!(
        r#"{{"layout":1,"time":"{}","serial":{serial},"deployments":{{"{}":{{"components":{{"hello":{{"inputDigest":"{}",
           "state":"installed","health":"healthy","drift":"none","attempts":0}}}}}}}}}}"#,
        after(seconds),
        reporter.deployment(),
        input
    );
    reporter.commit("heartbeat", signer, &[("current-state.json", state)], &reporter.trailers("heartbeat"));
}

/// The input digest of its only component, as a reader of its `desired` finds it.
fn input(reporter: &Reporter<'_>) -> String {
    let (home, device) = (&reporter.lab.home, reporter.device.parse().unwrap());
    let (_, rosters) = Control::read(home).unwrap();
    let repo = DeviceRepo::open(home, rosters.fleet(), &device).unwrap().unwrap();
    let tip = repo.desired(&rosters.publishers).unwrap().unwrap();
    let named = repo_model::report::Named::of(tip.commit, &tip.desired);
    let components = named.components.into_values().next().unwrap();
    components.into_values().next().unwrap().unwrap().to_string()
}

#[test]
fn a_decision_is_one_signed_commit_that_says_what_and_why() {
    let lab = lab();
    let message = lab.control(&["log", "-1", "--format=%B", "control"]);
    let trailer = |key: Trailer, value: &str| assert!(message.contains(&format!("\n{key}: {value}\n")), "{message}");
    trailer(Trailer::Kind, "control");
    trailer(Trailer::Rollout, "12");
    trailer(Trailer::Decision, "release 1");
    trailer(Trailer::FleetCommit, &"1".repeat(40));
    assert!(message.trim_end().ends_with(&format!("{}: wave 1 of 3: 1 device", Trailer::Reason)), "{message}");
    let files = lab.control(&["ls-tree", "-r", "--name-only", "control", "rollouts/"]);
    assert_eq!(files.lines().collect::<Vec<_>>(), ["rollouts/12/members.json", "rollouts/12/state.json"]);
    // Publishing again leaves it where it is.
    lab.publish_all();
    assert_eq!(shown(&lab)["rollout"], 12);
}

#[test]
fn what_is_remembered_is_listed_and_shown() {
    let lab = lab();
    remember(&lab.home, 11, Phase::Done, &["press-01"]);
    let list = lab.run(&["rollout", "list"]).good();
    let rows: Vec<_> = list.lines().map(|line| line.split_whitespace().take(4).collect::<Vec<_>>()).collect();
    assert_eq!(rows[1..], [["12", "running", "1", "1"], ["11", "done", "1", "1"]], "{list}");
    let json: Value = serde_json::from_str(&lab.run(&["rollout", "list", "--output", "json"]).good()).unwrap();
    assert_eq!((&json["rollouts"][0]["rollout"], &json["rollouts"][1]["state"]), (&12.into(), &"done".into()));
    let text = lab.run(&["rollout", "show", "12"]).good();
    assert!(text.contains("Rollout 12: running") && text.contains("1 not released, 1 updating"), "{text}");
    assert!(text.contains("press-01  1 of 3") && !text.contains("packer-01  "), "{text}");
    assert_eq!(shown(&lab)["devices"]["packer-01"]["state"], Value::Null);
    assert!(lab.run(&["rollout", "show", "13"]).failed(1).contains("there is no rollout 13"));
    assert!(lab.run(&["rollout", "show", "11", "--watch"]).good().contains("Rollout 11: done"));
    remember(&lab.home, 12, Phase::Stopped, &["press-01"]);
    assert!(lab.run(&["rollout", "show", "12", "--watch"]).code == Some(1));
    // It is remembered whatever the fleet is.
    lab.write("fleet.yaml", lab.read("fleet.yaml") + "polcy: {}\n");
    lab.commit();
    let shown = lab.run(&["rollout", "show", "12", "--watch"]);
    assert!(shown.code == Some(1) && shown.out.contains("Rollout 12: stopped"), "{}{}", shown.out, shown.err);
    assert!(shown.err.contains("the fleet can't be used: fleet.yaml:"), "{}", shown.err);
}

#[test]
fn a_device_is_updated_only_by_what_it_signed_after_the_change() {
    let lab = lab();
    let device = Reporter { lab: &lab, device: "press-01" };
    let updating = |why: &str| (("updating".to_owned()), why.to_owned());
    assert_eq!(state(&lab), updating("didn't adopt it yet"));
    device.status("press-01", "installed", "");
    assert_eq!(state(&lab), ("updated".to_owned(), String::new()), "it never sent a heartbeat, and ten minutes passed");
    beats(&device, "press-01", 30, 1);
    assert_eq!(state(&lab), updating("bakes"));
    beats(&device, "packer-01", 400, 1);
    assert_eq!(state(&lab), updating("its heartbeat isn't believed"));
    beats(&device, "press-01", 400, 0);
    assert_eq!(state(&lab).0, "updating", "it is from before the adoption");
    beats(&device, "press-01", 400, 1);
    assert_eq!(state(&lab), ("updated".to_owned(), String::new()));
    // Nobody else's word counts.
    device.status("packer-01", "installed", "");
    assert_eq!(state(&lab).0, "updating");
}

#[test]
fn a_device_whose_component_is_another_type_by_now_is_not_updated_by_what_it_was() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.publish_all();
    let device = Reporter { lab: &lab, device: "press-01" };
    let old = input(&device);
    let chart = lab.read("applications/hello/1.0.0/margo.yaml").replace("version: 1.0.0\n", "version: 1.1.0\n");
    lab.write("applications/hello/1.1.0/margo.yaml", chart.replace("type: compose", "type: helm"));
    lab.edit("deployments/hello.yaml", "version: 1.0.0}", "version: 1.1.0}");
    lab.commit();
    lab.publish_all();
    assert!(lab.documents("press-01")["hello"].contains("type: helm"));
    remember(&lab.home, 12, Phase::Running, &["press-01", "packer-01"]);
    let updating = |why: &str| ("updating".to_owned(), why.to_owned());
    // What a syncer says that keeps `installed` until the old one goes: the digest is no input of the new state.
    reports(&lab, "press-01", "installed");
    beats_with(&device, "press-01", 400, 2, &old);
    assert_eq!(state(&lab), updating("its heartbeat isn't believed"));
    // A heartbeat of a state that came later isn't compared with this one by everybody.
    beats_with(&device, "press-01", 400, 3, &old);
    assert_eq!(state(&lab), updating("isn't healthy"));
    // What it has to say: it waits, and what it was runs well meanwhile.
    reports(&lab, "press-01", "pending");
    beats_with(&device, "press-01", 400, 2, &old);
    assert_eq!(state(&lab), updating("hello/hello: pending"));
    reports(&lab, "press-01", "installed");
    beats(&device, "press-01", 400, 2);
    assert_eq!(state(&lab), ("updated".to_owned(), String::new()));
}

#[test]
fn what_a_device_signed_counts_before_and_after_it_gets_a_new_key() {
    let lab = lab();
    let device = Reporter { lab: &lab, device: "press-01" };
    let updated = ("updated".to_owned(), String::new());
    device.status("press-01", "installed", "");
    beats(&device, "press-01", 400, 1);
    let line = format!("{} new", Lab::device_key("another key").public());
    // Nobody decides anything meanwhile.
    lab.write("rollouts/12.yaml", "paused: true\n");
    lab.commit();
    lab.run(&["device", "enroll", "press-01", &line, "--replace"]).good();
    lab.publish_all();
    assert_eq!(lab.serial("press-01"), 2);
    assert_eq!(state(&lab), updated, "the old key said so of the state that lists it");
    device.status("another key", "installed", "");
    beats(&device, "press-01", 400, 2);
    assert_eq!(state(&lab).1, "its heartbeat isn't believed", "nor is the old one in the new state");
    beats(&device, "another key", 400, 2);
    assert_eq!(state(&lab), updated);
}

#[test]
fn who_stalls_or_is_suspended_proves_nothing() {
    let with = |reason: &str| {
        let lab = Lab::with(&["press-01", "packer-01"]);
        lab.publish_all();
        let device = Reporter { lab: &lab, device: "press-01" };
        let (id, stalled) = (device.deployment(), json!([{ "type": "Stalled", "reason": reason, "message": "x" }]));
        let document = json!({ "deploymentId": id, "deviceId": "press-01", "status": { "state": "installed" },
            "components": [{ "name": "hello", "state": "installed" }] });
        let document = (&*format!("deployments/{id}.json"), document.to_string());
        device.status_in(&stalled.to_string(), "press-01", 1, &[document]);
        // It runs what it had, and that well.
        beats(&device, "press-01", 400, 1);
        lab.edit("deployments/hello.yaml", "hello from the press", "servus");
        lab.commit();
        lab.publish_all();
        remember(&lab.home, 12, Phase::Running, &["press-01", "packer-01"]);
        lab
    };
    assert_eq!(state(&with("SignatureInvalid")), ("failed".to_owned(), "SignatureInvalid".to_owned()));
    let lab = with("FetchFailed");
    assert_eq!(state(&lab), ("updating".to_owned(), "didn't adopt it yet".to_owned()), "that passes by itself");
    let device = Reporter { lab: &lab, device: "press-01" };
    let id = device.deployment();
    let why = json!({ "code": "suspended", "source": "hello", "message": "x" });
    let document = json!({ "deploymentId": id, "deviceId": "press-01", "status": { "state": "pending", "error": why },
        "components": [{ "name": "hello", "state": "pending", "error": why }] });
    device.status_of("press-01", 2, &[(&format!("deployments/{id}.json"), document.to_string())]);
    beats(&device, "press-01", 400, 2);
    assert_eq!(state(&lab), ("deferred".to_owned(), "hello/hello: suspended".to_owned()));
}

#[test]
fn a_later_serial_with_the_same_meaning_is_as_good_and_another_meaning_is_another_rollout() {
    let lab = lab();
    let device = Reporter { lab: &lab, device: "press-01" };
    device.status("press-01", "installed", "");
    beats(&device, "press-01", 400, 1);
    // Another one is added to it, and hello stays; nobody decides anything meanwhile.
    lab.write("rollouts/12.yaml", "paused: true\n");
    lab.write(
        "deployments/second.yaml",
        "id: second\napplication: {id: hello, version: 1.0.0}\ntargets: [{devices: [press-01]}]\n",
    );
    lab.commit();
    lab.publish_all();
    assert_eq!(state(&lab).0, "updated", "what it adopted means the same of hello");
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    lab.commit();
    lab.publish_all();
    assert_eq!(shown(&lab)["state"], "superseded", "what is meant now is another change");
}

#[test]
fn what_failed_or_is_held_back_there_is_told() {
    let lab = lab();
    let device = Reporter { lab: &lab, device: "press-01" };
    let error = |code: &str| format!(r#","error":{{"code":"{code}","source":"hello","message":"x"}}"#);
    device.status("press-01", "failed", &error("compose-failed"));
    assert_eq!(state(&lab), ("failed".to_owned(), "hello/hello: compose-failed".to_owned()));
    device.status("press-01", "pending", &error("waiting-window"));
    assert_eq!(state(&lab), ("deferred".to_owned(), "hello/hello: waiting-window".to_owned()));
}

#[test]
fn what_a_person_says_is_a_commit_and_the_same_again_is_none() {
    let lab = lab();
    let commits = || git(&lab.fleet, &["rev-list", "--count", "HEAD"]);
    let before = commits();
    let said = lab.run(&["rollout", "pause", "12"]).good();
    assert!(said.contains("rollouts/12.yaml says so now"), "{said}");
    assert_eq!(lab.read("rollouts/12.yaml"), "paused: true\n");
    assert_eq!(git(&lab.fleet, &["log", "-1", "--format=%s"]), "rollout 12: pause");
    assert!(lab.run(&["rollout", "pause", "12"]).good().contains("says so already"));
    assert_eq!(commits().parse::<u32>().unwrap(), before.parse::<u32>().unwrap() + 1);
    assert_eq!(shown(&lab)["words"]["paused"], true);
    assert!(lab.run(&["rollout", "show", "12"]).good().contains("Paused: nothing more is released"));
    // Nothing is promised that a pause keeps from being.
    for (args, what) in [
        (&["rollout", "approve", "12"][..], "wave 3 comes"),
        (&["rollout", "promote", "12", "packer-01"], "they are released"),
    ] {
        let said = lab.run(args);
        let expected = format!(": it is paused: {what} only after `rollout pause 12 --end`\n");
        assert!(said.out.contains(&expected) && !said.out.contains("next publish"), "{}", said.out);
        said.good();
        git(&lab.fleet, &["reset", "--quiet", "--hard", "HEAD~1"]);
    }
    let said = lab.run(&["rollout", "pause", "12", "--end"]).good();
    assert!(said.contains("it goes on with the next publish"), "{said}");
    let json: Value = serde_json::from_str(&lab.run(&["rollout", "approve", "12", "--output", "json"]).good()).unwrap();
    assert_eq!((&json["words"]["approved"], &json["wasThere"]), (&3.into(), &false.into()));
    lab.run(&["rollout", "promote", "12", "packer-01"]).good();
    assert_eq!(lab.read("rollouts/12.yaml"), "paused: false\napproved: 3\npromoted:\n  - \"packer-01\"\n");
    lab.run(&["rollout", "promote", "12"]).good();
    assert_eq!(lab.read("rollouts/12.yaml"), "paused: false\napproved: 3\npromoted: true\n");
    lab.run(&["validate"]).good();
}

#[test]
fn a_word_for_what_is_not_there_or_is_over_is_refused() {
    let lab = lab();
    remember(&lab.home, 11, Phase::Done, &["press-01"]);
    assert!(lab.run(&["rollout", "pause", "13"]).failed(1).contains("there is no rollout 13"));
    assert!(lab.run(&["rollout", "pause", "11"]).failed(1).contains("rollout 11 is done"));
    assert!(lab.run(&["rollout", "resume", "12"]).failed(1).contains("rollout 12 isn't stopped"));
    assert!(lab.run(&["rollout", "promote", "12", "press-02"]).failed(1).contains("is no device of rollout 12"));
    lab.write("rollouts/12.yaml", "pause: true\n");
    let said = lab.run(&["rollout", "approve", "12"]).failed(1);
    assert!(said.contains("`rollouts/12.yaml` can't be read") && said.contains("pause"), "{said}");
    lab.commit();
    assert!(lab.run(&["validate"]).failed(1).contains("rollouts/12.yaml:1:1"));
    lab.write("rollouts/12.yaml", "paused: true\n");
    assert!(lab.run(&["rollout", "approve", "12"]).failed(1).contains("has changes that are not committed"));
    remember(&lab.home, 12, Phase::Stopped, &["press-01"]);
    lab.commit();
    let said = lab.run(&["rollout", "pause", "12", "--end"]).good();
    assert!(said.contains(": it is stopped: it goes on only after `rollout resume 12`\n"), "{said}");
    lab.run(&["rollout", "pause", "12"]).good();
    let said = lab.run(&["rollout", "resume", "12"]).good();
    assert!(said.contains(": it is paused: stop 1 is lifted only after `rollout pause 12 --end`\n"), "{said}");
    assert_eq!(lab.read("rollouts/12.yaml"), "paused: true\nresumed: 1\n");
    let said = lab.run(&["rollout", "approve", "12"]).failed(1);
    assert!(said.contains("no wave of rollout 12 that is to come needs anybody's word"), "{said}");
    lab.run(&["rollout", "approve", "12", "--wave", "2"]).good();
}
