//! `device label`, and devices that are meant by their labels.

use repo_testkit::git::git;
use serde_json::{Value, json};

use crate::support::Lab;

fn lab() -> Lab {
    Lab::with(&["press-01", "packer-01", "mill-01"])
}

fn commits(lab: &Lab) -> usize {
    git(&lab.fleet, &["rev-list", "--count", "HEAD"]).parse().expect("a number")
}

#[test]
fn labels_of_several_devices_change_in_one_commit_and_the_rest_of_their_files_stays() {
    let lab = lab();
    let (before, press) = (commits(&lab), lab.read("devices/press-01.yaml"));
    lab.run(&["device", "label", "press-01", "mill-01", "ring=canary", "line=7", "--overwrite"]).good();
    assert_eq!(commits(&lab), before + 1);
    let subject = git(&lab.fleet, &["log", "-1", "--format=%s"]);
    assert_eq!(subject, "label 2 devices: line=7 ring=canary");
    let now = lab.read("devices/press-01.yaml");
    let kept = |text: &str| {
        text.lines().filter(|line| line.trim().starts_with(['#', 's'])).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(kept(&now), kept(&press), "{now}");
    assert!(lab.read("devices/mill-01.yaml").contains("\"7\""), "a text, and no number");
    // Lines below a new one move, and mean what they did.
    let packer = lab.read("devices/packer-01.yaml");
    lab.run(&["device", "label", "packer-01", "shift=late"]).good();
    assert_eq!(lab.read("devices/packer-01.yaml"), packer.replace("role: packer\n", "role: packer\n  shift: late\n"));
    lab.run(&["device", "label", "packer-01", "shift-"]).good();
    assert_eq!(lab.read("devices/packer-01.yaml"), packer);
    let before = before + 2;
    // The same again is no commit, and `-` takes one away.
    let again = lab.run(&["device", "label", "press-01", "ring=canary", "--output", "json"]).good();
    let again: Value = serde_json::from_str(&again).expect("JSON");
    assert_eq!(again["devices"][0], json!({"device": "press-01", "file": "devices/press-01.yaml", "wasThere": true}));
    assert_eq!(commits(&lab), before + 1);
    lab.run(&["device", "label", "-l", "ring", "ring-"]).good();
    let listed = |selector: &str| lab.run(&["device", "list", "-l", selector]).good().lines().skip(1).count();
    assert_eq!((listed("ring"), listed("line=7"), listed("line in (7,8),!ring"), listed("*")), (0, 2, 2, 4));
    lab.run(&["validate"]).good();
}

#[test]
fn what_can_not_be_done_for_all_is_done_for_none() {
    let lab = lab();
    lab.run(&["device", "label", "press-01", "shift=late"]).good();
    let (before, mill) = (commits(&lab), lab.read("devices/mill-01.yaml"));
    for (args, why) in [
        (
            &["mill-01", "press-01", "shift=early"][..],
            "`press-01` has the label `shift` already, with another value: `late`",
        ),
        (&["mill-01", "press-99", "shift=early"], "there is no device `press-99` in the fleet"),
        (&["mill-01", "shift=two words"], "these are no labels"),
        (&["mill-01"], "no label is named"),
        (&["shift=early"], "no device is named"),
        (&["-l", "site=nowhere", "shift=early"], "no device has the labels site=nowhere"),
    ] {
        let said = lab.run(&[&["device", "label"], args].concat()).failed(1);
        assert!(said.contains(why), "{args:?}: {said}");
        assert_eq!((commits(&lab), lab.read("devices/mill-01.yaml")), (before, mill.clone()), "{args:?}");
    }
    lab.write("devices/mill-01.yaml", format!("{mill}# not committed\n"));
    let said = lab.run(&["device", "label", "press-01", "mill-01", "shift=early", "--overwrite"]).failed(1);
    assert!(said.contains("`devices/mill-01.yaml` has changes that are not committed"), "{said}");
    assert!(lab.read("devices/press-01.yaml").contains("shift: late"));
}

#[test]
fn the_status_of_those_with_a_label_is_shown_alone() {
    let lab = lab();
    lab.run(&["device", "label", "mill-01", "ring=canary"]).good();
    let shown = lab.run(&["status", "-l", "ring=canary", "--output", "json"]).good();
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let devices: Vec<_> = shown["devices"].as_array().expect("a list").iter().map(|one| &one["device"]).collect();
    assert_eq!((devices, &shown["summary"]["devices"]), (vec![&json!("mill-01")], &json!(1)));
    lab.run(&["status", "-l", "ring in"]).failed(2);
}
