//! The publisher's home is backed up while it is at work, its machine is lost, and another one goes on.

use std::path::Path;
use std::process::Output;

use repo_testkit::git;
use serde_json::{Value, json};

use crate::hosted::{Hosted, ID};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn change(hosted: &Hosted, greeting: &str) {
    hosted.fleet.replace("deployments/hello.yaml", "greeting: ", &format!("greeting: {greeting} # was "));
    hosted.fleet.commit(greeting);
}

/// Everything of the publisher's that is Git, by stock Git.
fn assert_sound(home: &Path) {
    for repository in ["control.git", "devices/press-01.git", "devices/press-02.git", "devices/packer-01.git"] {
        let path = home.join(repository);
        if path.is_dir() {
            git::git(&path, &["fsck", "--strict", "--no-dangling"]);
        }
    }
}

#[test]
fn a_machine_that_is_lost_is_made_good_from_a_backup_and_devices_go_on_by_themselves() {
    let mut hosted = Hosted::new();
    let first = hosted.start_host();
    hosted.adopt_first();
    let archive = hosted.dir.path().join("backup.tar");
    let file = archive.display().to_string();
    // While the host serves, and again over the older one.
    hosted.fleet.run(&["backup", &file]);
    change(&hosted, "before the backup");
    hosted.until("it is there", |hosted| {
        hosted.device.pass();
        hosted.runs("before the backup")
    });
    let made: Value = serde_json::from_str(&hosted.fleet.run(&["backup", &file, "--output", "json"])).expect("JSON");
    assert_eq!(made["warnings"], json!([]), "{made}");
    assert!(made["repositories"].as_u64() >= Some(2), "{made}");
    // What comes after it is lost with the machine: two states, what the device says of them, and its new secret.
    for greeting in ["after the backup", "after it, too"] {
        change(&hosted, greeting);
        hosted.until(greeting, |hosted| {
            hosted.device.pass();
            hosted.runs(greeting)
        });
    }
    let path = hosted.device.home().join("account.json");
    let mut due = hosted.account();
    due["current"]["since"] = "2020-01-01T00:00:00Z".into();
    due["current"]["expires"] = "2020-02-01T00:00:00Z".into();
    std::fs::write(&path, due.to_string()).expect("written");
    hosted.device.pass();
    let mut renewed = hosted.account();
    assert_ne!(renewed["current"]["secret"], due["current"]["secret"]);
    // As after two renewals: the host that is restored knows neither of its secrets.
    renewed["previous"] = Value::Null;
    renewed.as_object_mut().expect("an object").remove("previous");
    std::fs::write(&path, renewed.to_string()).expect("written");
    let before = hosted.fleet.status(ID);
    let reported = git::git(&hosted.fleet.repository(ID), &["rev-parse", "status"]);
    hosted.end(first);
    std::fs::remove_dir_all(hosted.fleet.home()).expect("lost");
    let restored = hosted.fleet.run(&["restore", &file, "--output", "json"]);
    let restored: Value = serde_json::from_str(&restored).expect("JSON");
    assert_eq!(restored["warnings"], json!([]), "{restored}");
    assert_sound(&hosted.fleet.home());
    // Nothing is restored over what is there.
    let again = hosted.fleet.try_run(&["restore", &file]);
    assert!(
        !again.status.success() && said(&again).contains("exists, and nothing is restored over it"),
        "{}",
        said(&again)
    );
    hosted.start_host();
    change(&hosted, "from the new machine");
    hosted.until("the device goes on", |hosted| {
        hosted.device.syncer(&["once"]);
        hosted.runs("from the new machine")
    });
    hosted.until("and says so", |hosted| {
        hosted.device.pass();
        let status = hosted.fleet.status(ID);
        status["adoptedSerial"].as_u64() > before["adoptedSerial"].as_u64() && status["doubts"] == json!([])
    });
    // What it had said when the machine was lost is in its history still, and all of it is sound.
    let repository = hosted.fleet.repository(ID);
    git::git(&repository, &["merge-base", "--is-ancestor", &reported, "status"]);
    assert_sound(&hosted.fleet.home());
    assert_eq!(hosted.trouble(), None);
    let kept = hosted.account();
    assert_ne!(kept["current"]["secret"], renewed["current"]["secret"], "it came back by its key");
}
