//! `status` by what is known of repositories whose branches didn't move: the same as where each of them is read.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use repo_testkit::git::git;
use serde_json::Value;

use crate::health::{lab, shown};
use crate::host::eventually;
use crate::reports::Reporter;
use crate::support::{Lab, after};
use crate::waves::reports;

/// Without what changes from one second to the next.
fn all(lab: &Lab) -> Value {
    let mut value = shown(lab, &[]);
    for device in value["devices"].as_array_mut().expect("devices") {
        let ages = |one: &mut Value| {
            ["age", "heartbeatAge", "heardAge"]
                .iter()
                .for_each(|age| _ = one.as_object_mut().expect("an object").remove(*age))
        };
        ages(device);
        device["deployments"].as_array_mut().expect("rows").iter_mut().for_each(ages);
    }
    value
}

fn index(lab: &Lab) -> String {
    fs::read_to_string(lab.home.status_index()).unwrap_or_default()
}

/// The lines of the file, in no order.
fn lines(text: &str) -> BTreeSet<&str> {
    text.lines().filter(|line| !line.is_empty()).collect()
}

/// Whose lines these are.
fn devices(text: &str) -> BTreeSet<&str> {
    lines(text).into_iter().filter_map(|line| line.split(' ').nth(1)).collect()
}

/// Takes away what whoever opens a repository needs.
fn take_objects(lab: &Lab) {
    for device in ["mill-01", "mill-02", "mill-03", "mill-04"] {
        fs::rename(lab.repo(device).join("objects"), lab.repo(device).join("away")).expect("moved");
    }
}

/// The same fleet once so many devices are known, which they are not while they could have been touched again.
fn known(lab: Lab, devices: usize) -> Lab {
    let is_known = || {
        all(&lab);
        lines(&index(&lab)).len() >= devices
    };
    assert!(eventually(is_known), "{}", index(&lab));
    lab
}

#[test]
fn what_is_known_of_a_repository_is_what_it_says_after_every_kind_of_change() {
    let lab = known(lab(), 4);
    let before = index(&lab);
    let changes: [(&str, &dyn Fn()); 8] = [
        ("nothing", &|| ()),
        ("a report", &|| reports(&lab, "mill-02", "installed")),
        ("a heartbeat", &|| Reporter { lab: &lab, device: "mill-04" }.heartbeat("mill-04", &after(-30))),
        ("a stranger's report", &|| Reporter { lab: &lab, device: "mill-01" }.status("mill-02", "installed", "")),
        ("a heartbeat from the future", &|| {
            Reporter { lab: &lab, device: "mill-03" }.heartbeat("mill-03", &after(200_000))
        }),
        ("a publish", &|| {
            lab.edit("deployments/hello.yaml", "hello from the press", "servus");
            lab.commit();
            lab.publish_all();
        }),
        ("branches in packed-refs", &|| _ = lab.git("mill-04", &["pack-refs", "--all"])),
        ("a branch that is gone", &|| _ = lab.git("mill-02", &["update-ref", "-d", "refs/heads/status"])),
    ];
    for (what, change) in changes {
        change();
        let with_new = all(&lab);
        // As of a process that knows of none of the changes.
        fs::write(lab.home.status_index(), &before).expect("written");
        let with_old = all(&lab);
        fs::remove_file(lab.home.status_index()).expect("removed");
        let without = all(&lab);
        assert_eq!((&with_new, &with_old), (&without, &without), "after {what}");
    }
}

#[test]
fn a_repository_whose_branches_did_not_move_is_not_opened() {
    let lab = known(lab(), 4);
    let before = all(&lab);
    take_objects(&lab);
    assert_eq!(all(&lab), before);
    let file = lab.home.status_index();
    fs::remove_file(&file).expect("removed");
    assert_eq!(all(&lab)["summary"]["health"]["doubtful"], 4);
    assert!(index(&lab).is_empty(), "nothing is known that is in doubt");
}

#[test]
fn what_is_damaged_or_of_somebody_else_counts_as_none_and_is_made_anew() {
    let lab = known(lab(), 4);
    let (good, before) = (index(&lab), all(&lab));
    let other = known(self::lab(), 4);
    let half = &good[..good.len() / 2];
    let said = good.replacen("\"failed\"", "\"ready\"", 1);
    let cases = [
        ("half of it", half.to_owned()),
        ("a word", said.clone()),
        ("another fleet's", index(&other)),
        ("no text", "\u{0}\n\u{0}\u{0}\n{}\nsha256: {}\n".repeat(100)),
        ("both", format!("{said}\n{good}")),
    ];
    for (what, text) in cases {
        assert_ne!(text, good, "{what}");
        fs::write(lab.home.status_index(), &text).expect("written");
        assert_eq!(all(&lab), before, "{what}");
        assert_eq!(index(&lab).lines().count(), good.lines().count(), "{what}: {}", index(&lab));
    }
    // A file that can't be written is no reason to say nothing.
    fs::remove_file(lab.home.status_index()).expect("removed");
    fs::create_dir(lab.home.status_index()).expect("made");
    assert_eq!(all(&lab), before);
}

#[test]
fn two_processes_at_once_say_the_same_and_what_both_keep_counts() {
    let lab = known(lab(), 4);
    let (good, before) = (index(&lab), all(&lab));
    let (half, damaged) = good.split_at(good.rfind('\n').expect("lines"));
    // Both make the file, both add to it, both make it anew.
    for text in ["", half, &damaged.replace("\"", "'")] {
        fs::write(lab.home.status_index(), text).expect("written");
        thread::scope(|scope| {
            let both = [(); 2].map(|()| scope.spawn(|| all(&lab)));
            both.into_iter().for_each(|one| assert_eq!(one.join().expect("it ends"), before, "{text}"));
        });
        assert_eq!(devices(&index(&lab)), devices(&good), "{text}");
    }
    take_objects(&lab);
    assert_eq!(all(&lab), before);
}

#[test]
fn the_file_is_made_anew_once_most_of_it_is_old() {
    let lab = known(lab(), 4);
    let (good, before) = (index(&lab), all(&lab));
    // What is old may have a mebibyte, and as much as what counts.
    for (bytes, is_anew) in [(1 << 19, false), ((1 << 20) + 2 * good.len(), true)] {
        let text = good.repeat(bytes / good.len() + 1);
        fs::write(lab.home.status_index(), &text).expect("written");
        assert_eq!(all(&lab), before);
        assert_eq!(index(&lab) != text, is_anew, "{bytes}");
    }
    assert_eq!((lines(&index(&lab)), index(&lab).len()), (lines(&good), good.len()));
}

#[test]
fn what_was_read_by_another_roster_counts_as_none() {
    let lab = known(lab(), 4);
    let root = lab.home.root_key().display().to_string();
    for args in [&["propose", "--new-publisher"][..], &["sign", "--key", &root], &["publish"]] {
        lab.run(&[&["trust"], args].concat()).good();
    }
    take_objects(&lab);
    assert_eq!(all(&lab)["summary"]["health"]["doubtful"], 4);
    assert!(index(&lab).is_empty(), "{}", index(&lab));
}

#[test]
fn what_is_known_of_devices_files_is_what_they_say_after_every_kind_of_change() {
    let lab = lab();
    let all = || [all(&lab), shown(&lab, &["--group-by", "site"])["groups"].clone()];
    let mill_03 = || lab.read("devices/mill-03.yaml");
    all();
    let before = fs::read(lab.home.fleet_index()).expect("kept");
    let changes: [(&str, &dyn Fn()); 8] = [
        ("nothing", &|| ()),
        ("another label", &|| lab.edit("devices/mill-01.yaml", "graz", "linz")),
        ("a policy", &|| lab.write("devices/mill-03.yaml", mill_03() + "policy: {report: 4h}\n")),
        ("another place", &|| lab.rename("devices/mill-02.yaml", "devices/line 2/mill-02.yaml")),
        ("an id twice", &|| lab.write("devices/again.yaml", mill_03())),
        ("no longer twice", &|| lab.remove("devices/again.yaml")),
        ("a file that may be run", &|| {
            let executable = fs::Permissions::from_mode(0o755);
            fs::set_permissions(lab.path("devices/mill-04.yaml"), executable).expect("set");
        }),
        ("a file that is broken", &|| lab.edit("devices/mill-01.yaml", "labels", "label")),
    ];
    for (what, change) in changes {
        change();
        lab.commit();
        let with_new = all();
        fs::write(lab.home.fleet_index(), &before).expect("written");
        let with_old = all();
        fs::remove_file(lab.home.fleet_index()).expect("removed");
        assert_eq!((&with_new, &with_old), (&all(), &all()), "after {what}");
    }
}

#[test]
fn a_device_file_with_the_same_bytes_is_not_read_again() {
    let lab = lab();
    let before = all(&lab);
    let blob = git(&lab.fleet, &["rev-parse", "HEAD:devices/mill-01.yaml"]);
    lab.remove(&format!(".git/objects/{}/{}", &blob[..2], &blob[2..]));
    assert_eq!(all(&lab), before);
    let good = fs::read_to_string(lab.home.fleet_index()).expect("kept");
    fs::write(lab.home.fleet_index(), good.replace("graz", "linz")).expect("written");
    assert_ne!(all(&lab), before, "what is damaged counts as none");
}
