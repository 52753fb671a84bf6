//! From an operator's commit to a device's word on it, through both programs, on the stand-in for docker.

use serde_json::Value;

use repo_testkit::git;
use repo_testkit::hand::HandMadeDevice;

use crate::site::Site;
use repo_testkit::copy;
use repo_testkit::fleet::{DEPLOYMENT, DEVICES, Fleet};

/// What the publisher says of the one deployment of a device.
fn told(fleet: &Fleet, device: &str) -> (String, String) {
    let status = fleet.status(device);
    let row = &status["deployments"][0];
    (row["deployment"].to_string(), row["state"].as_str().unwrap_or("nothing").to_owned())
}

/// What differs in what `status` says between two moments, but for ages.
fn conditions(fleet: &Fleet, device: &str) -> Vec<String> {
    let status = fleet.status(device);
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().map(|one| format!("{} {}", one["type"], one["reason"]).replace('"', "")).collect()
}

/// The same fleet in other words: flow style, other quotes, order, comments, names and places of files.
pub(crate) fn say_it_differently(fleet: &Fleet) {
    fleet.write(
        "deployments/line 1/of this year/greetings.yaml",
        "# The same as before, by somebody with other habits.\n\
         overrides: [{parameters: {\"interval\": 10, 'greeting': \"hello from the packer\"}, when: {matchLabels: {role: 'packer'}}}]\n\
         parameters:\n    greeting: >-\n        hello from\n        the press\n\
         targets: [{matchLabels: {\"site\": graz}}]   # all of them\n\
         application:\n  version: '1.0.0'\n  id: hello\n\
         id: \"hello\"\n",
    );
    std::fs::remove_file(fleet.dir().join(DEPLOYMENT)).expect("removed");
    for device in DEVICES {
        let from = format!("devices/{device}.yaml");
        let text = fleet.read(&from);
        fleet
            .write(&format!("devices/hall b/{}.yaml", device.replace("-0", "-number-")), &format!("# moved\n{text}\n"));
        std::fs::remove_file(fleet.dir().join(from)).expect("removed");
    }
    fleet.replace("fleet.yaml", "poll: 15s", "poll: \"15s\"");
    fleet.commit("tidied up; nothing changes");
}

#[test]
fn what_is_committed_is_published_installed_and_told() {
    let site = Site::new(&DEVICES);
    let fleet = &site.fleet;
    assert_eq!(fleet.try_run(&["plan"]).status.code(), Some(3), "there are differences");
    site.publish();
    assert_eq!(fleet.try_run(&["plan"]).status.code(), Some(0), "there are none");
    for device in &site.devices {
        assert_eq!(told(fleet, &device.id).1, "nothing", "nobody knows yet");
        device.pass();
        assert_eq!(told(fleet, &device.id), ("\"hello\"".to_owned(), "installed".to_owned()));
        let status = fleet.status(&device.id);
        assert_eq!((&status["desiredSerial"], &status["adoptedSerial"]), (&1.into(), &1.into()), "{status}");
        assert_eq!(status["deployments"][0]["actual"], "healthy", "{status}");
        assert_eq!(status["doubts"], Value::Array(vec![]), "{status}");
        assert_eq!(status["conditions"], Value::Array(vec![]), "{status}");
        device.assert_whole(fleet, true, &device.id);
    }
    assert!(site.device("packer-01").environments()[0].contains("hello from the packer"));
    assert!(site.device("press-01").environments()[0].contains("hello from the press"));
}

#[test]
fn the_same_fleet_in_other_words_makes_no_commit_and_no_call() {
    let site = Site::new(&DEVICES);
    site.publish();
    site.pass();
    let published = |branch| DEVICES.map(|device| git::tip(&site.fleet.repository(device), branch));
    let before =
        (published("desired"), published("status"), site.devices.iter().map(|d| d.calls()).collect::<Vec<_>>());
    say_it_differently(&site.fleet);
    assert_eq!(site.fleet.try_run(&["plan"]).status.code(), Some(0));
    let said = site.publish();
    assert!(said.contains("0 published, 3 unchanged"), "{said}");
    site.pass();
    let after = (published("desired"), published("status"), site.devices.iter().map(|d| d.calls()).collect::<Vec<_>>());
    assert_eq!(before, after);
}

#[test]
fn device_repositories_restored_three_versions_back_are_continued_and_nothing_is_reinstalled() {
    let site = Site::new(&DEVICES);
    let (fleet, kept) = (&site.fleet, site.dir.path().join("backup"));
    site.publish();
    site.pass();
    copy(&fleet.home().join("devices"), &kept);
    for n in 2..=4 {
        let old = if n == 2 { "hello from".to_owned() } else { format!("greeting {} from", n - 1) };
        fleet.change(DEPLOYMENT, &old, &format!("greeting {n} from"));
        site.publish();
        site.pass();
    }
    let envelopes = DEVICES.map(|device| {
        git::git(
            &fleet.repository(device),
            &["log", "-1", "--format=%(trailers:key=Envelope-Digest,valueonly)", "desired"],
        )
    });
    let calls: Vec<_> = site.devices.iter().map(|device| device.calls()).collect();

    copy(&kept, &fleet.home().join("devices"));
    for device in &site.devices {
        let output = device.syncer(&["once"]);
        assert_eq!(output.status.code(), Some(1), "{}: an old state isn't adopted", device.id);
    }
    site.publish();
    for (device, envelope) in DEVICES.iter().zip(&envelopes) {
        let continues = git::git(
            &fleet.repository(device),
            &["log", "-1", "--format=%(trailers:key=Continues,valueonly)", "desired"],
        );
        assert_eq!(continues.trim(), format!("{} 4", envelope.trim()));
        assert_eq!(fleet.serial(device), 5);
    }
    site.pass();
    for device in &site.devices {
        assert_eq!(told(fleet, &device.id).1, "installed");
        assert!(conditions(fleet, &device.id).contains(&"SecurityEvent HistoryContinued".to_owned()), "{}", device.id);
    }
    let after: Vec<_> = site.devices.iter().map(|device| device.calls()).collect();
    assert_eq!(calls, after, "nothing was installed again");
    fleet.assert_settled("after the restore");
}

#[test]
fn a_lost_memory_of_the_publisher_is_rebuilt_and_no_device_notices() {
    let site = Site::new(&DEVICES);
    let fleet = &site.fleet;
    site.publish();
    site.pass();
    fleet.change(DEPLOYMENT, "hello from", "servus from");
    site.publish();
    site.pass();
    let calls: Vec<_> = site.devices.iter().map(|device| device.calls()).collect();
    let desired = DEVICES.map(|device| git::tip(&fleet.repository(device), "desired"));
    std::fs::remove_dir_all(fleet.control()).expect("removed");
    site.publish();
    assert_eq!(
        DEVICES.map(|device| git::tip(&fleet.repository(device), "desired")),
        desired,
        "nothing is published anew"
    );
    fleet.assert_converges("with a new memory");
    site.pass();
    assert_eq!(calls, site.devices.iter().map(|device| device.calls()).collect::<Vec<_>>());
    fleet.change(DEPLOYMENT, "servus from", "moin from");
    site.publish();
    assert_eq!(DEVICES.map(|device| fleet.serial(device)), [3, 3, 3], "serials go on");
    site.pass();
    fleet.assert_converges("one change later");
}

#[test]
fn what_no_key_of_the_device_signed_is_shown_as_a_doubt_and_what_it_signed_before_is_not_lost_on_it() {
    let site = Site::new(&["press-01"]);
    let fleet = &site.fleet;
    site.publish();
    site.pass();
    let repository = fleet.repository("press-01");
    let genuine = git::tip(&repository, "status").expect("a status");
    HandMadeDevice::with_key(&site.dir.path().join("mallory")).status(&fleet.repository("press-01"), "failed");
    let status = fleet.status("press-01");
    assert!(status["doubts"].to_string().contains("no key of this device"), "{status}");
    assert_eq!(status["deployments"][0]["state"], Value::Null, "{status}");

    let message = git::git(&repository, &["log", "-1", "--format=%B", &genuine]);
    let unsigned = git::git(&repository, &["commit-tree", &format!("{genuine}^{{tree}}"), "-m", message.trim_end()]);
    git::git(&repository, &["update-ref", "refs/heads/status", &unsigned]);
    let status = fleet.status("press-01");
    assert!(status["doubts"].to_string().contains("can't be believed"), "{status}");
    assert_eq!(status["deployments"][0]["state"], Value::Null, "{status}");

    // The device replaces what isn't its own, and says so.
    site.pass();
    assert_eq!(told(fleet, "press-01").1, "installed");
    assert!(conditions(fleet, "press-01").contains(&"SecurityEvent StatusReplaced".to_owned()));
}
