//! What the fleet asks of a device, from a person's command over the host to the device, and its answer back.

use repo_testkit::git;
use serde_json::{Value, json};

use crate::hosted::{Hosted, ID};

/// A device at its host, which nothing wakes but the wait there.
fn hosted() -> Hosted {
    let mut hosted = Hosted::new();
    hosted.start_host();
    hosted.adopt_first();
    hosted.device.set("poll", "1h");
    hosted.start_device();
    hosted
}

/// What a command of `device` that waits says in the end; the exit code and its notes beside it.
fn wait(hosted: &Hosted, args: &[&str]) -> (i32, Value, String) {
    let output = hosted.fleet.try_run(&[&["device"], args, &["--wait=4m", "--output", "json"]].concat());
    let said = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    (output.status.code().expect("it ends"), said, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Asks and waits for the answer; the exit code beside it.
fn ask(hosted: &Hosted, args: &[&str]) -> (i32, Value) {
    let (code, said, _) = wait(hosted, args);
    (code, said["answers"][0].clone())
}

#[test]
fn a_device_is_asked_from_elsewhere_and_answers_over_its_host() {
    let hosted = hosted();
    let (code, answer) = ask(&hosted, &["retry", ID, "hello"]);
    assert_eq!((code, &answer["number"], &answer["outcome"]), (0, &json!(1), &json!("done")), "{answer}");
    let (code, answer) = ask(&hosted, &["diagnostics", ID]);
    assert_eq!((code, &answer["outcome"]), (1, &json!("refused")));
    assert!(answer["reason"].as_str().expect("a reason").contains("the site doesn't allow it"), "{answer}");
    hosted.device.set("remote", "{diagnostics: true}");
    hosted.until("the site's word counts", |hosted| {
        std::fs::read_to_string(hosted.dir.path().join("device.log"))
            .is_ok_and(|log| log.contains("counts from here on"))
    });
    let (code, answer) = ask(&hosted, &["diagnostics", ID]);
    assert_eq!((code, &answer["diagnostics"]["status"]["device"]), (0, &json!(ID)), "{answer}");
    let (code, _) = ask(&hosted, &["sync", ID]);
    assert_eq!(code, 0);
    let listed = hosted.fleet.run(&["device", "answers", ID]);
    assert_eq!(listed.lines().filter(|line| line.contains("  done  ")).count(), 3, "{listed}");
    assert_eq!(hosted.fleet.status(ID)["doubts"], json!([]));

    // Heartbeats bring only what the host lacks, and what it has then is whole; no history keeps an answer.
    let repository = hosted.fleet.repository(ID);
    git::git(&repository, &["fsck", "--strict", "--no-dangling"]);
    assert_eq!(git::git(&repository, &["rev-list", "--count", "heartbeat"]), "1");
    assert_eq!(git::git(&repository, &["ls-tree", "-r", "--name-only", "status", "answers"]), "");
}

#[test]
fn a_restart_is_waited_for_from_elsewhere() {
    let hosted = hosted();
    for number in [1, 2] {
        let (code, said, notes) = wait(&hosted, &["restart", ID, "hello", "-m", "it leaks"]);
        assert_eq!((code, &said["restart"]), (0, &json!(number)), "{said}");
        assert_eq!((&said["done"], &said["left"]), (&json!([ID]), &json!([])), "{said}");
        assert!(notes.contains("note: done on 1 of 1 device\n"), "{notes}");
    }
}
