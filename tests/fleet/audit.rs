//! What both programs write in a fleet's life is a clean history to an auditor, and a forgery in the middle of it isn't.

use repo_model::Digest;
use repo_testkit::fleet::{DEPLOYMENT, DEVICES, Fleet};
use repo_testkit::{copy, git, publisher};
use serde_json::Value;

use crate::hosted::ID;
use crate::site::Site;

/// What the report of all repositories says, as Markdown.
pub(crate) fn report(fleet: &Fleet) -> String {
    let roster = git::show(&fleet.control(), "control", "trust/1.json").expect("a roster");
    let mut audit = publisher();
    audit.args(["audit", "report", "--roster", &Digest::of(&roster).to_string()]);
    let output = audit.arg(fleet.home().join("devices")).current_dir("/").output().expect("it runs");
    String::from_utf8(output.stdout).expect("text")
}

/// The findings of an audit of all repositories, by somebody who has nothing but them and a digest.
pub(crate) fn findings(fleet: &Fleet) -> Vec<String> {
    findings_by(fleet, &[])
}

/// The same of an auditor who was given more, as these options name it.
pub(crate) fn findings_by(fleet: &Fleet, more: &[&str]) -> Vec<String> {
    let roster = git::show(&fleet.control(), "control", "trust/1.json").expect("a roster");
    let mut audit = publisher();
    audit.args(["audit", "--output", "json", "--roster", &Digest::of(&roster).to_string()]).args(more);
    let output = audit.arg(fleet.home().join("devices")).current_dir("/").output().expect("it runs");
    let said: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let all = said["findings"].as_array().expect("a list").iter();
    let shown = all.map(|one| format!("{} {} {}: {}", one["device"], one["code"], one["branch"], one["message"]));
    shown.collect()
}

#[test]
fn what_both_programs_write_is_clean_from_the_first_commit_on() {
    let site = Site::new(&DEVICES);
    let fleet = &site.fleet;
    let step = |when: &str| {
        site.publish();
        site.pass();
        assert_eq!(findings(fleet), [""; 0], "{when}");
    };
    step("installed");
    let kept = site.dir.path().join("backup");
    copy(&fleet.home().join("devices"), &kept);
    fleet.change(DEPLOYMENT, "hello from", "servus from");
    step("changed");
    let text = fleet.read(DEPLOYMENT);
    fleet.write(DEPLOYMENT, &format!("{text}\nsuspended: true\n"));
    fleet.commit("suspended");
    step("suspended");
    std::fs::remove_file(fleet.dir().join(DEPLOYMENT)).expect("removed");
    fleet.commit("nothing");
    step("removed");
    fleet.write(DEPLOYMENT, &text);
    fleet.commit("again");
    step("installed again");
    // The host comes back from an older copy, and goes on from what devices say.
    copy(&kept, &fleet.home().join("devices"));
    for device in &site.devices {
        // It refuses the old state, and pushes what it told meanwhile.
        assert_eq!(device.once().output().expect("it runs").status.code(), Some(1));
    }
    fleet.change(DEPLOYMENT, "servus from", "moin from");
    site.publish();
    site.pass();
    let found = findings(fleet);
    assert!(!found.is_empty() && found.iter().all(|one| one.contains("state-lost")), "{found:?}");
    let repository = fleet.repository(DEVICES[0]);
    git::git(&repository, &["update-ref", "refs/heads/status", "status~1"]);
    let unsigned = git::git(&repository, &["commit-tree", "-p", "status", "-m", "x", "status^{tree}"]);
    git::git(&repository, &["update-ref", "refs/heads/status", &unsigned]);
    let found = findings(fleet);
    assert!(found.iter().any(|one| one.contains("signature-invalid")), "{found:?}");
}

/// Whether a section of the report has a row with these words.
fn has(page: &str, title: &str, words: &str) -> bool {
    let section = page.split(&format!("\n## {title}\n")).nth(1).expect("a section");
    section.split("\n## ").next().is_some_and(|rows| rows.contains(words))
}

#[test]
fn a_report_has_what_was_held_failed_drifted_and_was_replaced_as_the_device_said_it() {
    let site = Site::new(&[ID]);
    let (fleet, device) = (&site.fleet, site.device(ID));
    device.set("gates", "{drift: report}");
    site.publish();
    device.pass();
    assert!(device.syncer(&["hold", "--by", "j.doe", "--why", "line 2 is being set up"]).status.success());
    fleet.change(DEPLOYMENT, "hello from the press", "servus");
    site.publish();
    device.syncer(&["once"]);
    assert!(device.syncer(&["release"]).status.success());
    std::fs::write(device.docker_dir().join("knobs/fail-up"), "no such luck\n").expect("written");
    device.syncer(&["once"]);
    assert!(device.syncer(&["retry"]).status.success());
    device.pass();
    // All that runs is gone, and then somebody else's word is in the place of the device's.
    let state = device.docker_dir().join("state.json");
    let mut docker: Value = serde_json::from_slice(&std::fs::read(&state).expect("there")).expect("JSON");
    docker["containers"] = serde_json::json!({});
    std::fs::write(&state, docker.to_string()).expect("written");
    device.syncer(&["once"]);
    let repository = fleet.repository(ID);
    let unsigned = git::git(&repository, &["commit-tree", "-m", "x", "status^{tree}"]);
    git::git(&repository, &["update-ref", "refs/heads/status", &unsigned]);
    device.syncer(&["once"]);
    let page = report(fleet);
    for (title, words) in [
        ("Failures, waits and drift", "| press-01 | hello of hello is pending | held |"),
        ("Failures, waits and drift", "| press-01 | hello of hello is failed | compose-failed |"),
        ("Failures, waits and drift", "| press-01 | hello of hello is pending | drifted |"),
        ("Conditions and security events", "| press-01 | SecurityEvent: StatusReplaced |"),
        ("Holds and other gates", "| press-01 | everything: held by j.doe | line 2 is being set up |"),
    ] {
        assert!(has(&page, title, words), "{title}: {words}\n{page}");
    }
    assert_eq!(findings(fleet), [""; 0]);
}
