//! The publisher's home is backed up while it is at work, its machine is lost, and another one goes on.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Output;

use repo_testkit::git;
use serde_json::{Value, json};

use crate::clocks::{drill_blocks, run_drill};
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
    let dir = hosted.dir.path().to_owned();
    fs::create_dir(dir.join("stick")).expect("made");
    // The drill's own names are the real ones, because its home is lost and made anew.
    for (name, path) in [("my-fleet", hosted.fleet.dir()), ("my-fleet.wfm", hosted.fleet.home())] {
        fs::rename(&path, dir.join(name)).expect("moved");
        symlink(dir.join(name), path).expect("linked");
    }
    symlink(hosted.device.home(), dir.join("device")).expect("linked");
    let blocks = drill_blocks("restore.md");
    let [backup, rehearsal, restore, look] = &blocks[..] else { panic!("{blocks:?}") };
    let first = hosted.start_host();
    hosted.adopt_first();
    let file = dir.join("stick/my-fleet.tar").display().to_string();
    // While the host serves, and again over the older one.
    let made: Value = serde_json::from_str(&hosted.fleet.run(&["backup", &file, "--output", "json"])).expect("JSON");
    assert_eq!(made["warnings"], json!([]), "{made}");
    assert!(made["repositories"].as_u64() >= Some(2), "{made}");
    change(&hosted, "before the backup");
    hosted.until("it is there", |hosted| {
        hosted.device.pass();
        hosted.runs("before the backup")
    });
    let said_of_both = run_drill(backup, &dir) + &run_drill(rehearsal, &dir);
    assert!(!said_of_both.contains("warning") && said_of_both.contains(ID), "{said_of_both}");
    assert!(!dir.join("rehearsal.wfm").exists());
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
    fs::write(&path, due.to_string()).expect("written");
    hosted.device.pass();
    let mut renewed = hosted.account();
    assert_ne!(renewed["current"]["secret"], due["current"]["secret"]);
    // As after two renewals: the host that is restored knows neither of its secrets.
    renewed["previous"] = Value::Null;
    renewed.as_object_mut().expect("an object").remove("previous");
    fs::write(&path, renewed.to_string()).expect("written");
    let before = hosted.fleet.status(ID);
    let reported = git::git(&hosted.fleet.repository(ID), &["rev-parse", "status"]);
    hosted.end(first);
    fs::remove_dir_all(dir.join("my-fleet.wfm")).expect("lost");
    let restored = run_drill(restore, &dir);
    assert!(restored.contains("the home of fleet") && !restored.contains("warning"), "{restored}");
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
    let table = run_drill(look, &dir);
    assert!(table.contains(ID) && !table.contains("doubtful"), "{table}");
    // What it had said when the machine was lost is in its history still, and all of it is sound.
    let repository = hosted.fleet.repository(ID);
    git::git(&repository, &["merge-base", "--is-ancestor", &reported, "status"]);
    assert_sound(&hosted.fleet.home());
    assert_eq!(hosted.trouble(), None);
    let kept = hosted.account();
    assert_ne!(kept["current"]["secret"], renewed["current"]["secret"], "it came back by its key");
}
