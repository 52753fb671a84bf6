//! `status` in one word for each device: summed up, by what it is, and by what devices have in common.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};
use wfm_git_publisher::plan::{Blocked, Code};
use wfm_git_publisher::publish::Findings;
use wfm_git_publisher::rollout::Phase;
use wfm_git_publisher::status::Health;

use crate::device_history::tells;
use crate::reports::Reporter;
use crate::rollouts;
use crate::support::{BEGIN, Lab, after, cells, page};
use crate::trace::said_at;
use crate::waves::reports;

const DEVICES: [&str; 5] = ["mill-01", "mill-02", "mill-03", "mill-04", "mill-05"];

/// One that is well, one that failed, one that was heard two hours ago, and one that never was; the fifth isn't enrolled.
pub(crate) fn lab() -> Lab {
    let lab = Lab::with(&DEVICES[..4]);
    lab.edit("deployments/hello.yaml", "matchLabels: {site: graz}", "matchLabels: {}");
    for (device, site) in DEVICES[..4].iter().zip(["graz", "graz", "linz", "linz"]) {
        let file = format!("devices/{device}.yaml");
        lab.write(&file, format!("{}labels: {{site: {site}}}\n", lab.read(&file)));
    }
    for example in std::fs::read_dir(lab.path("devices")).expect("a directory").flatten() {
        if !example.file_name().to_string_lossy().starts_with("mill") {
            lab.remove(&format!("devices/{}", example.file_name().to_string_lossy()));
        }
    }
    lab.write("devices/mill-05.yaml", "id: mill-05\nlabels: {site: graz}\n");
    lab.commit();
    lab.publish_all();
    for (device, state) in [("mill-01", "installed"), ("mill-02", "failed")] {
        reports(&lab, device, state);
        Reporter { lab: &lab, device }.heartbeat(device, &after(-60));
    }
    Reporter { lab: &lab, device: "mill-03" }.heartbeat("mill-03", &after(-60));
    lab.was_heard("mill-03", 7200);
    lab
}

pub(crate) fn shown(lab: &Lab, args: &[&str]) -> Value {
    let text = lab.run(&[&["status", "--output", "json"], args].concat()).good();
    serde_json::from_str(&text).expect("JSON")
}

fn named(value: &Value) -> Vec<(&str, &str)> {
    let devices = value["devices"].as_array().expect("devices");
    devices
        .iter()
        .map(|one| (one["device"].as_str().expect("an id"), one["health"].as_str().expect("a word")))
        .collect()
}

#[test]
fn each_device_has_one_word_and_whoever_was_not_heard_is_not_counted_as_well() {
    let lab = lab();
    let all = shown(&lab, &[]);
    assert_eq!(
        named(&all)[..4],
        [("mill-01", "ready"), ("mill-02", "failed"), ("mill-03", "offline"), ("mill-04", "unknown")]
    );
    let health = json!({"unknown": 1, "offline": 1, "failed": 1, "ready": 1});
    assert_eq!(all["summary"], json!({"devices": 4, "health": health, "notEnrolled": 1, "retired": 0, "heldBack": 0}));
    let table = lab.run(&["status"]).good();
    let sum = "\n4 devices: 1 unknown, 1 offline, 1 failed, 1 ready; 1 not enrolled\n";
    assert!(table.contains(sum), "{table}");
    // The sum is of all, whichever are shown.
    for (flags, expected) in [
        (&["--failed"][..], &["mill-02"][..]),
        (&["--stale"], &["mill-03", "mill-04"]),
        (&["--failed", "--stale"], &["mill-02", "mill-03", "mill-04"]),
    ] {
        let some = shown(&lab, flags);
        assert_eq!(named(&some).iter().map(|(device, _)| *device).collect::<Vec<_>>(), expected);
        assert_eq!(some["summary"], all["summary"]);
    }
    // A suspended device that is heard stays as it is, and one that failed is failed all the same.
    for device in ["mill-01", "mill-02"] {
        let file = format!("devices/{device}.yaml");
        lab.write(&file, lab.read(&file) + "suspended: true\n");
    }
    lab.commit();
    let some = shown(&lab, &["mill-01", "mill-02"]);
    assert_eq!(named(&some), [("mill-01", "suspended"), ("mill-02", "failed")]);
}

#[test]
fn silence_is_told_by_when_something_came_here_and_not_by_the_clock_of_who_sent_it() {
    let lab = lab();
    // Its clock is two hours behind, and it was heard just now.
    Reporter { lab: &lab, device: "mill-01" }.heartbeat("mill-01", &after(-7200));
    // Its clock was 20 hours ahead when it said its last word, two hours ago.
    Reporter { lab: &lab, device: "mill-02" }.heartbeat("mill-02", &after(72_000));
    lab.was_heard("mill-02", 7200);
    let words = |page: &Value| {
        page["devices"].as_array().expect("devices").iter().map(|one| one["health"].clone()).collect::<Vec<_>>()
    };
    let page = shown(&lab, &["mill-01", "mill-02"]);
    assert_eq!(words(&page), ["ready", "offline"], "{page:#}");
    let ages = |device: &Value| {
        [&device["heardAge"], &device["heartbeatAge"], &device["deployments"][0]["age"]]
            .map(|age| age.as_i64().expect("an age"))
    };
    assert!(ages(&page["devices"][0]).into_iter().all(|age| age < 600), "{page:#}");
    assert!(ages(&page["devices"][1]).into_iter().all(|age| (7200..7800).contains(&age)), "{page:#}");
    // The same where branches have no files of their own: they came before `packed-refs` was written.
    lab.git("mill-02", &["pack-refs", "--all"]);
    assert_eq!(words(&shown(&lab, &["mill-02"])), ["failed"]);
    lab.was_written("mill-02", "packed-refs", 7200);
    assert_eq!(words(&shown(&lab, &["mill-02"])), ["offline"]);
    // A file of tomorrow, because this machine's clock was ahead, says that it was heard, and that only.
    lab.was_heard("mill-01", -86_400);
    let page = shown(&lab, &["mill-01"]);
    assert_eq!((words(&page), page["devices"][0]["heardAge"].clone()), (vec![json!("ready")], json!(0)));
    // What the device's clock says is at most a reason to doubt it.
    said_at(&lab, "mill-01", *BEGIN + 20 * 86_400);
    let page = shown(&lab, &["mill-01"]);
    assert_eq!(
        (words(&page), &page["devices"][0]["doubts"][0]["code"]),
        (vec![json!("doubtful")], &json!("time-ahead"))
    );
}

#[test]
fn a_device_that_its_site_holds_is_held_and_one_that_nothing_can_be_published_for_is_not_publishable() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let is = |health: &str| {
        let page = shown(&lab, &["press-01"]);
        assert_eq!(named(&page), [("press-01", health)], "{page:#}");
        assert_eq!(page["summary"]["health"], json!({ health: 1 }));
    };
    tells(&lab, "press-01", json!([]), json!([{"code": "held", "since": after(-60), "text": "line 2", "by": "j.doe"}]));
    Reporter { lab: &lab, device: "press-01" }.heartbeat("press-01", &after(-60));
    is("held");
    lab.edit("deployments/hello.yaml", "version: 1.0.0", "version: 9.9.9");
    lab.commit();
    lab.run(&["publish"]).failed(1);
    is("not-publishable");
}

#[test]
fn a_device_whose_change_waits_for_a_rollout_says_for_which_wave_and_is_counted() {
    let lab = Lab::with(&["press-01", "packer-01", "mill-01"]);
    lab.publish_all();
    let all = ["press-01", "packer-01"];
    let places = |phase: Phase| {
        rollouts::remember(&lab.home, 12, phase, &all);
        let page = shown(&lab, &[]);
        let of = |device: &str| {
            let mut devices = page["devices"].as_array().expect("devices").iter();
            devices.find(|one| one["device"] == device).expect("the device")["heldBy"].clone()
        };
        ([of("press-01"), of("packer-01"), of("mill-01")], page["summary"]["heldBack"].clone())
    };
    let place = json!({"rollout": 12, "state": "stopped", "wave": 2, "lastWave": 3, "released": null});
    // The first one was released, and the third is none of it.
    assert_eq!(places(Phase::Stopped), ([json!([]), json!([place]), json!([])], json!(1)));
    let table = lab.run(&["status"]).good();
    let line = table.lines().find(|line| line.contains("held back by rollout 12")).expect("a line");
    assert!(
        line.starts_with("packer-01") && line.ends_with("held back by rollout 12 (stopped), wave 2 of 3"),
        "{table}"
    );
    assert!(table.contains("\nheld back by rollouts: 1 device (wfm-git-publisher rollout list)\n"), "{table}");
    // The sum is of all that were asked for, whichever are shown.
    assert_eq!(shown(&lab, &["--failed"])["summary"]["heldBack"], 1);
    assert_eq!(shown(&lab, &["press-01"])["summary"]["heldBack"], 0);
    assert_eq!(places(Phase::Done), ([json!([]), json!([]), json!([])], json!(0)));
    assert!(!lab.run(&["status"]).good().contains("held back"));
}

/// What is printed for programs, one object after the other.
fn watched(lab: &Lab, args: &[&str]) -> (std::process::Child, impl Iterator<Item = Value>) {
    let args = [&["status", "--watch", "--output", "json"], args].concat();
    let mut child = lab.command(&args).stdout(Stdio::piped()).spawn().expect("started");
    let objects = serde_json::Deserializer::from_reader(child.stdout.take().expect("a pipe")).into_iter::<Value>();
    (child, objects.map(|object| object.expect("JSON")))
}

#[test]
fn whoever_watches_those_that_failed_sees_one_get_well_one_go_and_what_is_about_all() {
    let lab = lab();
    let (mut child, mut objects) = watched(&lab, &["--failed", "-l", "site in (graz,linz)"]);
    let mut next = || objects.next().expect("an object");
    assert_eq!(named(&next()), [("mill-02", "failed")]);
    reports(&lab, "mill-02", "installed");
    assert_eq!(named(&next()), [("mill-02", "ready")]);
    // One that was well fails, and then isn't asked for any more.
    reports(&lab, "mill-01", "failed");
    assert_eq!(named(&next()), [("mill-01", "failed")]);
    lab.edit("devices/mill-01.yaml", "graz", "wels");
    lab.commit();
    let left = next();
    assert_eq!((named(&left), &left["left"]), (vec![], &json!(["mill-01"])));
    let all = Blocked::new(Code::ClockWrong, "it is wrong");
    for blocked in [vec![all], vec![]] {
        let expected = json!(blocked);
        let findings = serde_json::to_vec(&Findings { blocked, ..Findings::default() }).expect("JSON");
        repo_git::durable::replace_file(&lab.home.findings(), &findings, 0o600).expect("written");
        let found = next();
        assert_eq!((named(&found), &found["blocked"]), (vec![], &expected));
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
}

#[test]
fn whoever_watches_goes_on_while_the_fleet_can_not_be_used_and_sees_why() {
    let lab = lab();
    let good = lab.commit();
    let (mut child, mut objects) = watched(&lab, &[]);
    let mut next = || objects.next().expect("an object");
    assert_eq!(next()["commit"], good);
    lab.write("fleet.yaml", lab.read("fleet.yaml") + "polcy: {}\n");
    let bad = lab.commit();
    let broken = next();
    let blocked = &broken["blocked"][0];
    assert_eq!((named(&broken), &blocked["code"], &blocked["device"]), (vec![], &json!("fleet-invalid"), &Value::Null));
    assert!(blocked["message"].as_str().unwrap().contains("fleet.yaml:"), "{broken}");
    // It goes by the fleet of before, and so does whoever asks once.
    reports(&lab, "mill-02", "installed");
    assert_eq!(named(&next()), [("mill-02", "ready")]);
    let once = lab.run(&["status", "--output", "json"]);
    let warning = format!("warning: at commit {} the fleet can't be used: fleet.yaml:", &bad[..12]);
    assert!(once.err.contains(&warning) && once.err.contains(&good[..12]), "{}", once.err);
    let once: Value = serde_json::from_str(&once.good()).expect("JSON");
    assert_eq!((&once["commit"], &once["blocked"][0]["code"]), (&json!(good), &json!("fleet-invalid")));
    for command in
        [&["device", "show", "mill-02"][..], &["deployment", "show", "hello"], &["events"], &["trace", "HEAD~1"]]
    {
        let ran = lab.run(command);
        assert!(ran.code == Some(0) && ran.err.contains(&warning), "{command:?}: {}", ran.err);
    }
    lab.edit("fleet.yaml", "polcy: {}\n", "");
    lab.commit();
    let mended = next();
    assert_eq!((named(&mended), &mended["blocked"]), (vec![], &json!([])));
    child.kill().expect("killed");
    child.wait().expect("ended");
}

#[test]
fn the_page_has_each_word_with_what_it_means_and_by_which_option_it_is_shown() {
    let rows = cells(&page("status.md"), "The words");
    let expected = Health::TABLE.iter().rev().map(|(health, means)| {
        let option = match health {
            health if health.is_failed() => "`--failed`",
            health if health.is_stale() => "`--stale`",
            _ => "",
        };
        [format!("`{health}`"), (*means).to_owned(), option.to_owned()]
    });
    assert_eq!(
        rows.iter().map(|row| row[..3].to_vec()).collect::<Vec<_>>(),
        expected.map(Vec::from).collect::<Vec<_>>()
    );
    assert!(rows.iter().all(|row| row.len() == 4 && !row[3].is_empty()), "what is to be done? {rows:?}");
}

#[test]
fn devices_are_counted_by_a_label_by_application_and_by_version() {
    let lab = lab();
    let groups = |by: &str| shown(&lab, &["--group-by", by])["groups"].clone();
    assert_eq!(
        groups("site"),
        json!([
            {"group": "graz", "devices": 2, "health": {"failed": 1, "ready": 1}},
            {"group": "linz", "devices": 2, "health": {"unknown": 1, "offline": 1}},
        ])
    );
    let all = json!({"unknown": 1, "offline": 1, "failed": 1, "ready": 1});
    assert_eq!(groups("application"), json!([{"group": "hello", "devices": 4, "health": all}]));
    assert_eq!(groups("version"), json!([{"group": "hello@1.0.0", "devices": 4, "health": all}]));
    assert_eq!(groups("line"), json!([{"group": null, "devices": 4, "health": all}]));
    let table = lab.run(&["status", "--group-by", "site"]).good();
    let lines: Vec<_> = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let expected = ["GROUP DEVICES HEALTH", "graz 2 1 failed, 1 ready", "linz 2 1 unknown, 1 offline"];
    assert_eq!(lines[..3], expected, "{table}");
}

#[test]
fn a_script_learns_by_the_exit_code_whether_all_is_well() {
    let lab = lab();
    lab.run(&["status", "mill-01", "--exit-code"]).good();
    for device in ["mill-02", "mill-03", "mill-04"] {
        lab.run(&["status", device, "--exit-code"]).failed(1);
    }
    lab.run(&["status", "--exit-code"]).failed(1);
    // What isn't shown counts as well.
    lab.run(&["status", "--exit-code", "--stale", "mill-02"]).failed(1);
    // Whoever names one that isn't in service, or labels that no device has, asked for something that isn't ready.
    for command in [&["status"][..], &["trace", "HEAD"]] {
        let of = |more: &[&str]| lab.run(&[command, more, &["--exit-code"]].concat()).failed(1);
        assert!(of(&["-l", "site=typo"]).contains("note: no device has the labels site=typo\n"));
        let named: &[&str] = if command == ["status"] { &["mill-01", "mill-05"] } else { &["--device", "mill-05"] };
        assert!(of(named).contains("note: mill-05 isn't enrolled\n"));
    }
    assert!(lab.run(&["status", "-l", "site=typo"]).err.contains("note: no device has the labels site=typo\n"));
    lab.write("devices/mill-01.yaml", lab.read("devices/mill-01.yaml") + "retired: now\n");
    lab.commit();
    lab.run(&["publish"]);
    assert!(lab.run(&["status", "mill-01", "--exit-code"]).failed(1).contains("note: mill-01 is retired\n"));
}

#[test]
fn whoever_watches_sees_what_changes_and_nothing_else() {
    let lab = lab();
    let mut child = lab.command(&["status", "--watch"]).stdout(Stdio::piped()).spawn().expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map(|line| line.expect("text"));
    let first: Vec<_> = lines.by_ref().take_while(|line| !line.starts_with("4 devices")).collect();
    assert!(first.iter().any(|line| line.starts_with("mill-04")), "{first:?}");
    reports(&lab, "mill-02", "installed");
    let then: Vec<_> =
        lines.by_ref().take_while(|line| !line.starts_with("4 devices: 1 unknown, 1 offline, 2 ready")).collect();
    child.kill().expect("killed");
    child.wait().expect("ended");
    let about: Vec<_> = then.iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(about, ["DEVICE", "mill-02"], "{then:?}");
}
