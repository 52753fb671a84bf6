//! Both programs over HTTPS: the real host, the real device, and the trouble between them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use repo_testkit::faults::power::{Cut, Experiment, Point, assert_cut, cut_everywhere};
use repo_testkit::git;
use serde_json::json;

use crate::hosted::{Hosted, ID, read};
use repo_testkit::device::Device;
use repo_testkit::fleet::DEPLOYMENT;
use repo_testkit::{copy, publisher};

#[test]
fn a_commit_reaches_a_waiting_device_and_a_lost_host_costs_nothing() {
    let mut hosted = Hosted::new();
    let host = hosted.start_host();
    let device = hosted.start_device();
    hosted.until("it is installed", |hosted| hosted.runs("hello from the press"));
    hosted.fleet.change(DEPLOYMENT, "hello from the press", "at once");
    hosted.until("the change runs", |hosted| hosted.runs("at once"));
    hosted.until("it was told", |hosted| {
        hosted.fleet.status(ID)["state"] == "installed" || !hosted.fleet.status(ID).is_null()
    });

    // The host is gone as by a crash; what runs keeps running, and its return is noticed.
    hosted.running[host].kill().expect("it ran");
    hosted.running[host].wait().expect("it ends");
    hosted.until("it knows", |hosted| hosted.trouble().as_deref() == Some("Unreachable ConnectionRefused"));
    assert!(hosted.runs("at once"));
    hosted.fleet.change(DEPLOYMENT, "at once", "after a crash");
    hosted.start_host();
    hosted.until("the change runs", |hosted| hosted.runs("after a crash"));
    hosted.until("nothing is in the way", |hosted| hosted.trouble().is_none());

    // Revoked, it is out at once, its waiting request included.
    let begin = Instant::now();
    hosted.fleet.run(&["account", "revoke", ID]);
    hosted.until("it is out", |hosted| hosted.trouble().as_deref() == Some("Stalled Unauthorized"));
    assert!(begin.elapsed() < Duration::from_secs(90), "{:?}", begin.elapsed());
    assert!(hosted.runs("after a crash"), "what runs keeps running");
    hosted.end(device);
    let log = std::fs::read_to_string(hosted.dir.path().join("device.log")).expect("a log");
    let secret = hosted.account()["current"]["secret"].as_str().expect("text").to_owned();
    assert!(!log.contains(&secret) && log.contains("Unauthorized"), "{log}");
}

/// The real host gives out only what its branches reach, so the new disk fetches what `desired` was before.
#[test]
fn a_new_disk_begins_an_epoch_after_the_history_at_the_real_host() {
    let mut hosted = Hosted::new();
    hosted.start_host();
    hosted.adopt_first();
    let (home, old) = (hosted.device.home(), hosted.dir.path().join("old-home"));
    let repository = hosted.fleet.repository(ID);
    let before = git::tip(&repository, "status").expect("it reported");
    std::fs::rename(&home, &old).expect("moved");
    hosted.fleet.run(&["device", "join", ID]);
    let line = hosted.device.syncer(&["init", "--join", &hosted.fleet.join_file(ID).display().to_string()]);
    let line = String::from_utf8(line.stdout).expect("text");
    std::fs::copy(old.join("device.yaml"), home.join("device.yaml")).expect("copied");
    hosted.fleet.run(&["device", "enroll", ID, line.trim(), "--replace"]);
    let adopted = |hosted: &Hosted| hosted.fleet.status(ID)["adoptedSerial"].as_u64();
    hosted.until("the new disk reports", |hosted| {
        hosted.device.syncer(&["once"]).status.success() && adopted(hosted) == Some(2)
    });
    assert_eq!(git::tip(&repository, "status-1"), Some(before), "what the old disk said is gone");
    let status = hosted.fleet.status(ID);
    assert_eq!((&status["doubts"], &status["conditions"]), (&json!([]), &json!([])), "{status}");
}

/// The operator has a clone and an account. The new disk has the join file of the old one, whose secret may have ended.
#[test]
fn a_new_disk_takes_the_place_of_the_old_one_by_its_line_that_is_pushed_from_a_clone() {
    let mut hosted = Hosted::new();
    let (dir, home) = (hosted.dir.path().to_owned(), hosted.fleet.home());
    let [bare, work] = [home.join("fleet.git"), hosted.fleet.dir().to_owned()].map(|path| path.display().to_string());
    git::git(&dir, &["clone", "--quiet", "--bare", &work, &bare]);
    hosted.start_host();
    hosted.adopt_first();
    let olga = hosted.fleet.run(&["account", "add", "olga", "--role", "operator", "--output", "json"]);
    let olga: serde_json::Value = serde_json::from_str(&olga).expect("JSON");
    let disk = hosted.device.home();
    std::fs::rename(&disk, dir.join("old-home")).expect("moved");
    let line = hosted.device.syncer(&["init", "--join", &hosted.fleet.join_file(ID).display().to_string()]);
    let line = String::from_utf8(line.stdout).expect("text");
    std::fs::copy(dir.join("old-home/device.yaml"), disk.join("device.yaml")).expect("copied");
    std::fs::remove_file(home.join(format!("accounts/{ID}.json"))).expect("removed");

    let url = format!("https://olga:{}@{}/fleet.git", olga["secret"].as_str().expect("a secret"), hosted.address);
    let authority = format!("http.sslCAInfo={}", home.join("ca/ca.pem").display());
    git::git(&dir, &["clone", "--quiet", "--config", &authority, &url, "clone"]);
    let clone = dir.join("clone");
    let enroll = ["device", "enroll", ID, line.trim(), "--replace"];
    let said = publisher().arg("-C").arg(&clone).args(enroll).output().expect("it runs");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    git::git(&clone, &["push", "--quiet"]);
    hosted.until("the new disk reports", |hosted| {
        hosted.device.syncer(&["once"]).status.success() && hosted.fleet.status(ID)["adoptedSerial"] == 2
    });
    let status = hosted.fleet.status(ID);
    assert_eq!((&status["doubts"], &status["conditions"]), (&json!([]), &json!([])), "{status}");
}

#[test]
fn a_secret_is_renewed_at_the_real_host_and_the_old_one_ends_with_its_first_use() {
    let mut hosted = Hosted::new();
    hosted.start_host();
    hosted.until("the host answers", |hosted| hosted.device.syncer(&["once"]).status.success());
    let before = hosted.account();
    assert!(before["current"]["expires"].is_string(), "the host said when it ends: {before}");
    // As if its time had nearly come.
    let path = hosted.device.home().join("account.json");
    let mut kept = before.clone();
    kept["current"]["since"] = "2020-01-01T00:00:00Z".into();
    kept["current"]["expires"] = "2020-02-01T00:00:00Z".into();
    std::fs::write(&path, kept.to_string()).expect("written");
    hosted.device.pass();
    let renewed = hosted.account();
    assert_ne!(renewed["current"]["secret"], before["current"]["secret"]);
    assert_eq!(renewed["previous"]["secret"], before["current"]["secret"]);
    hosted.device.pass();
    // The old one is out as soon as the host has noted that the new one works.
    let old = serde_json::json!({"current": before["current"]}).to_string();
    hosted.until("the old one is out, and the device's key lets it in again", |hosted| {
        std::fs::write(&path, &old).expect("written");
        hosted.device.pass();
        hosted.account()["current"]["secret"] != before["current"]["secret"]
    });
    // A new join file lets it in as well, and the same one once more changes nothing.
    hosted.fleet.run(&["device", "join", ID]);
    for _ in 0..2 {
        hosted.device.syncer(&["init", "--join", &hosted.fleet.join_file(ID).display().to_string()]);
        hosted.device.pass();
    }
    assert_eq!(hosted.trouble(), None);
}

/// A renewal can be cut anywhere: the device always has a secret that the host knows, and renews at last.
#[test]
fn power_cuts_of_a_renewal_leave_a_secret_that_the_host_knows() {
    let mut hosted = Hosted::new();
    hosted.start_host();
    hosted.until("the host answers", |hosted| hosted.device.syncer(&["once"]).status.success());
    let (template, file) = (hosted.dir.path().join(ID), hosted.device.home().join("account.json"));
    let mut due = hosted.account();
    due["current"]["since"] = "2020-01-01T00:00:00Z".into();
    due["current"]["expires"] = "2020-02-01T00:00:00Z".into();
    std::fs::write(&file, due.to_string()).expect("written");
    let at_host = hosted.fleet.home().join(format!("accounts/{ID}.json"));
    let known = std::fs::read(&at_host).expect("an account");
    let prepare = |root: &Path| {
        // What the host knew before; it reads its accounts again within half a second.
        let new = at_host.with_extension("new");
        std::fs::write(&new, &known).expect("written");
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).expect("set");
        std::fs::rename(&new, &at_host).expect("renamed");
        copy(&template, &root.join(ID));
        hosted.until("the host knows the old secret again", |hosted| {
            !String::from_utf8_lossy(&hosted.device.syncer(&["plan"]).stdout).contains("Unauthorized")
        });
    };
    let check = |root: &Path, _: Option<&Point>, when: &str| {
        let device = Device::at(ID, &root.join(ID));
        let mut said = String::new();
        let good = (0..2).any(|_| {
            let output = device.syncer(&["once"]);
            said = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success()
        });
        assert!(good, "{when}: {said}");
        let kept = read(&device.home().join("account.json"));
        assert_ne!(kept["current"]["secret"], due["current"]["secret"], "{when}: it is renewed");
        assert!(kept["next"].is_null(), "{when}");
    };
    let command = |root: &Path| Device::at(ID, &root.join(ID)).once();
    let experiment = Experiment {
        deed: "a renewal",
        prepare: &prepare,
        command: &command,
        check: &check,
        cut: Cut::Power,
        occurrences: 2,
    };
    let cut = cut_everywhere(&experiment).expect("the cuts are made");
    assert_cut(&cut, &["file.data", "file.rename", "file.dir"]);
}
