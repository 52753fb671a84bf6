//! `device show` and `deployment show`.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use serde_json::{Value, json};

use crate::audit::honest::Honest;
use crate::support::{BEGIN, Lab};
use crate::waves::{self, FIRST, change, reports};

fn shown(lab: &Lab, args: &[&str]) -> Value {
    let text = lab.run(&[args, &["--output", "json"]].concat()).good();
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_device_is_shown_with_what_it_is_and_since_when_it_runs_what() {
    let honest = Honest::new();
    let lab = &honest.lab;
    let group = "groups:\n  - {name: graz, when: {matchLabels: {site: graz}}, policy: {poll: 20s}}\n";
    lab.write("fleet.yaml", lab.read("fleet.yaml") + group);
    lab.commit();
    let press = shown(lab, &["device", "show", "press-01"]);
    assert_eq!((&press["file"], &press["groups"]), (&"devices/press-01.yaml".into(), &json!(["graz"])), "{press:#}");
    assert_eq!(press["statusKeys"], json!([Lab::device_key("press-01").public().fingerprint()]));
    assert_eq!(press["status"]["adoptedSerial"], 4);
    let id = press["status"]["deployments"][0]["deploymentId"].as_str().expect("an id");
    // Nothing of it changed since the second state.
    let step = format!("State: {id}/* installing > installed");
    let commits = lab.git("press-01", &["log", "--format=%H", "--fixed-strings", "--grep", &step, "status"]);
    assert_eq!(press["since"][id]["commit"].as_str(), commits.lines().next());
    let page = lab.run(&["device", "show", "press-01"]).good();
    assert!(page.starts_with("press-01: ") && page.contains("\nserial:     4 published, 4 accepted\n"), "{page}");
    let time = press["since"][id]["time"].as_str().expect("a time");
    assert!(page.lines().any(|line| line.starts_with("hello") && line.contains(time)), "{page}");
    lab.run(&["device", "show", "press-99"]).failed(1);
}

#[test]
fn a_deployment_is_shown_by_version_and_what_a_rollout_holds_back_is_named() {
    let lab = waves::lab();
    ["press-01", "press-02"].iter().for_each(|device| reports(&lab, device, "installed"));
    reports(&lab, "press-03", "failed");
    change(&lab, FIRST, "servus");
    assert!(lab.publish_at(*BEGIN).is_complete());
    let hello = shown(&lab, &["deployment", "show", "hello"]);
    assert_eq!((&hello["version"], &hello["rollouts"]), (&"1.0.0".into(), &json!([1])));
    assert_eq!((&hello["versions"][0]["desired"], &hello["versions"][0]["devices"]), (&"1.0.0".into(), &5.into()));
    let of = |device: &str| {
        let all = hello["devices"].as_array().expect("devices").iter();
        all.clone().find(|one| one["device"] == device).expect("the device")["health"].clone()
    };
    assert_eq!((of("press-03"), of("press-04")), ("failed".into(), "unknown".into()), "{hello:#}");
    let page = lab.run(&["deployment", "show", "hello"]).good();
    assert!(page.starts_with("hello: hello@1.0.0\n") && page.contains("\nRollout 1 (running)\n"), "{page}");
    assert!(page.contains("press-04, press-05") && page.contains("apply-failed: it did not work"), "{page}");
    lab.run(&["deployment", "show", "other"]).failed(1);
    // The devices say which rollout it is.
    let held = shown(&lab, &["device", "show", "press-04"])["rollouts"].clone();
    assert_eq!((&held[0]["rollout"], &held[0]["lastWave"]), (&1.into(), &3.into()), "{held}");
}

#[test]
fn who_is_in_service_no_more_or_not_yet_has_no_health_and_is_counted_apart() {
    let lab = waves::lab();
    ["press-01", "press-02", "press-05"].iter().for_each(|device| reports(&lab, device, "installed"));
    change(&lab, FIRST, "servus");
    assert!(lab.publish_at(*BEGIN).is_complete());
    assert!(lab.run(&["device", "show", "press-05"]).good().contains("holds it back"));
    lab.run(&["device", "retire", "press-05", "--now"]).good();
    assert!(lab.publish_at(*BEGIN + 1).is_complete());
    for (device, how, membership) in [("packer-01", "not enrolled", "not-enrolled"), ("press-05", "retired", "retired")]
    {
        let page = lab.run(&["device", "show", device]).good();
        assert!(page.starts_with(&format!("{device}: {how}\n")), "{page}");
        assert!(!page.contains("holds it back") && !page.contains("unknown"), "{page}");
        let shown = shown(&lab, &["device", "show", device]);
        assert_eq!((&shown["status"]["membership"], &shown["rollouts"]), (&membership.into(), &json!([])));
    }
    let hello = shown(&lab, &["deployment", "show", "hello"]);
    let of = |version: Value| {
        let mut all = hello["versions"].as_array().expect("versions").iter();
        let one = all.find(|one| one["version"] == version && one["desired"] == json!(null)).cloned();
        one.map(|one| json!([one["devices"], one["health"], one["notEnrolled"], one["retired"]]))
    };
    assert_eq!(of("1.0.0".into()), Some(json!([0, {}, 1, 0])), "{hello:#}");
    let retired = hello["devices"].as_array().expect("devices").iter().find(|one| one["device"] == "press-05");
    assert_eq!(retired.map(|one| &one["membership"]), Some(&"retired".into()), "{hello:#}");
    let page = lab.run(&["deployment", "show", "hello"]).good();
    let alone = lab.run(&["deployment", "show", "hello", "packer-01"]).good();
    let has =
        |page: &str, start: &str, part: &str| page.lines().any(|line| line.starts_with(start) && line.contains(part));
    assert!(has(&page, "(gone) ", "  1 retired or gone") && has(&page, "retired ", " press-05"), "{page}");
    for page in [page, alone] {
        assert!(has(&page, "1.0.0 ", "  1 not enrolled") && has(&page, "not enrolled ", " packer-01"), "{page}");
    }
}
