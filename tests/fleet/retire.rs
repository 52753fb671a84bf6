//! A device is taken out of service: by its own word that nothing is left, or by a person's.

use std::time::Duration;

use repo_testkit::faults::fault_proxy::FaultProxy;
use repo_testkit::git;
use serde_json::Value;

use crate::audit::{findings, report};
use crate::hosted::{Hosted, ID, read};

fn is_retired(hosted: &Hosted) -> bool {
    hosted.trouble().as_deref() == Some("Waiting Retired")
}

/// It looks at itself each second meanwhile, and asks nobody.
fn assert_asks_nobody(hosted: &Hosted, proxy: &FaultProxy) {
    let before = proxy.counts().connections;
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(proxy.counts().connections, before);
    assert!(is_retired(hosted));
}

fn status(hosted: &Hosted) -> Value {
    hosted.fleet.status(ID)
}

#[test]
fn a_retired_device_removes_what_it_runs_says_so_is_cut_off_and_asks_once_a_day() {
    let (mut hosted, proxy) = Hosted::behind_a_proxy("");
    hosted.start_host();
    hosted.adopt_first();
    let syncer = hosted.start_device();
    hosted.fleet.run(&["device", "retire", ID]);
    hosted.until("it is cut off", is_retired);
    assert!(!hosted.runs("hello from the press"), "nothing is left");
    assert_eq!(read(&hosted.fleet.home().join("accounts/press-01.json"))["retired"], true);
    assert_eq!(status(&hosted)["membership"], "retired");
    assert_eq!(status(&hosted)["deployments"][0]["state"], "removed", "by its own word");
    assert_asks_nobody(&hosted, &proxy);
    // Its history is whole, and the report says what became of it.
    assert_eq!(findings(&hosted.fleet), [""; 0]);
    assert!(report(&hosted.fleet).contains("the device is retired"));
    // It starts again, asks once, and is told the same.
    hosted.end(syncer);
    let before = proxy.counts().connections;
    let syncer = hosted.start_device();
    hosted.until("it asked", |_| proxy.counts().connections > before);
    std::thread::sleep(Duration::from_secs(2));
    assert_asks_nobody(&hosted, &proxy);
    hosted.end(syncer);
    // Its file can go, and nothing is lost by that.
    git::git(&hosted.fleet.dir(), &["rm", "--quiet", "devices/press-01.yaml"]);
    hosted.fleet.commit("it is scrap");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(status(&hosted)["membership"], "retired");
    assert_eq!(findings(&hosted.fleet), [""; 0]);
}

#[test]
fn what_a_retired_device_keeps_runs_on_and_is_healed() {
    let (mut hosted, proxy) = Hosted::behind_a_proxy("");
    hosted.start_host();
    hosted.adopt_first();
    hosted.start_device();
    hosted.fleet.run(&["device", "retire", ID, "--keep-workloads"]);
    hosted.until("it is cut off", is_retired);
    assert_asks_nobody(&hosted, &proxy);
    // Everything that runs is lost, as by a hand that cleans up.
    let state = hosted.device.docker_dir().join("state.json");
    let mut docker = read(&state);
    docker["containers"] = serde_json::json!({});
    std::fs::write(&state, docker.to_string()).expect("written");
    hosted.until("it is healed", |hosted| hosted.runs("hello from the press"));
    assert_eq!(findings(&hosted.fleet), [""; 0]);
}

/// A thief keeps the device from the network until he looks at it, and it never says that anything is gone.
#[test]
fn a_thief_who_keeps_a_device_silent_is_cut_off_by_a_persons_word() {
    let (mut hosted, _proxy) = Hosted::behind_a_proxy("");
    hosted.start_host();
    hosted.adopt_first();
    hosted.fleet.run(&["device", "retire", ID]);
    std::thread::sleep(Duration::from_secs(3));
    assert_ne!(status(&hosted)["membership"], "retired", "it has said nothing");
    hosted.fleet.run(&["device", "retire", ID, "--now"]);
    hosted.until("it is cut off", |hosted| {
        hosted.device.syncer(&["once"]);
        is_retired(hosted)
    });
    let desired = |rev: &str| git::git(&hosted.device.clone_dir(), &["rev-parse", rev]);
    let known = desired("refs/syncer/state");
    hosted.device.syncer(&["once"]);
    assert_eq!(desired("refs/syncer/state"), known, "it learns nothing more");
}
