//! What a person lets pass of what guards hold, as a commit.

use repo_testkit::git::git;
use serde_json::Value;

use crate::support::{Lab, SECOND};

/// Two devices with three deployments each, where no device loses more than half of them at once.
fn lab() -> Lab {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.write("deployments/second.yaml", SECOND);
    lab.write("deployments/third.yaml", SECOND.replace("id: second", "id: third"));
    lab.write("fleet.yaml", lab.read("fleet.yaml") + "guards: {deviceRemovals: 50%, fleetRemovals: 100%}\n");
    lab.commit();
    lab.publish_all();
    lab
}

fn names(lab: &Lab, device: &str) -> Vec<String> {
    lab.documents(device).into_keys().collect()
}

/// What a plan says of a device.
fn planned(lab: &Lab, device: &str) -> Value {
    let plan: Value = serde_json::from_str(&lab.run(&["plan", device, "--output", "json"]).out).unwrap();
    plan["devices"][0].clone()
}

#[test]
fn what_a_person_lets_pass_goes_once_and_nothing_larger_or_later_does() {
    let lab = lab();
    let nothing = lab.run(&["allow", "hello", "-m", "moved"]).failed(1);
    assert!(nothing.contains("no guard holds `hello` back"), "{nothing}");
    lab.take_everything_from_press_01();
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("`wfm-git-publisher allow hello second -m WHY`, which is a commit"), "{error}");
    assert_eq!((names(&lab, "press-01").len(), lab.serial("press-01")), (3, 1));

    // Nobody sees a part of what a guard holds.
    let part = lab.run(&["allow", "hello", "-m", "moved"]).failed(1);
    assert!(part.contains("`second` would go from `press-01`, too"), "{part}");
    let elsewhere = lab.run(&["allow", "hello", "second", "--device", "packer-01", "-m", "moved"]).failed(1);
    assert!(elsewhere.contains("no guard holds `hello` back"), "{elsewhere}");
    let word = ["allow", "hello", "second", "-m", "moved to packer-01"];
    let said = lab.run(&word).good();
    assert!(said.contains("says so now: this passes once\n  press-01, after serial 1: hello, second\n"), "{said}");
    let message = git(&lab.fleet, &["log", "-1", "--format=%B"]);
    assert_eq!(message.trim(), "allow hello, second on press-01\n\nmoved to packer-01");
    assert!(lab.run(&word).good().contains("says so already"));
    let plan = lab.run(&["plan"]);
    assert!(plan.out.contains("- second, let pass by a person\n") && plan.code == Some(3), "{}", plan.out);
    assert_eq!(planned(&lab, "press-01")["deployments"][0]["allowed"], true);

    // The fleet takes more away by then: all of it is held, until that is undone.
    lab.remove("deployments/third.yaml");
    lab.commit();
    let error = lab.run(&["publish", "press-01"]).failed(1);
    assert!(error.contains("3 of its 3 deployments would be removed"), "{error}");
    assert_eq!(names(&lab, "press-01").len(), 3);
    git(&lab.fleet, &["revert", "--no-edit", "HEAD"]);
    lab.run(&["publish"]).good();
    assert_eq!((names(&lab, "press-01"), lab.serial("press-01")), (vec!["third".to_owned()], 2));

    // Back, and away again: that is another state, of which nobody said anything.
    git(&lab.fleet, &["revert", "--no-edit", "HEAD~3"]);
    lab.run(&["publish"]).good();
    assert_eq!((names(&lab, "press-01").len(), lab.serial("press-01")), (3, 3));
    lab.take_everything_from_press_01();
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("2 of its 3 deployments would be removed"), "{error}");
    assert_eq!(planned(&lab, "press-01")["heldBack"][0]["guard"], "removals-guarded");
}

#[test]
fn a_person_lets_one_deployment_take_the_place_of_another_and_no_third_one() {
    let lab = lab();
    lab.edit("deployments/hello.yaml", "id: hello\n", "id: hello-anew\n");
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    assert!(
        error.contains(
            "put the id `hello` back, or if `hello-anew` shall begin anew: `wfm-git-publisher allow hello-anew -m WHY`"
        ),
        "{error}"
    );
    lab.run(&["allow", "hello-anew", "-m", "its data is not needed"]).good();
    lab.edit("deployments/hello.yaml", "id: hello-anew\n", "id: hallo\n");
    lab.commit();
    assert!(lab.run(&["publish"]).failed(1).contains("`hallo` would replace `hello`"));
    lab.edit("deployments/hello.yaml", "id: hallo\n", "id: hello-anew\n");
    lab.commit();
    let plan = lab.run(&["plan"]).out;
    assert!(plan.contains("+ hello-anew (replaces hello: data not carried), let pass by a person"), "{plan}");
    lab.run(&["publish"]).good();
    assert_eq!(names(&lab, "press-01"), ["hello-anew", "second", "third"]);

    // Only what was published counts for an auditor, who reads it in a clone.
    lab.write("../roster.json", lab.git("press-01", &["show", "desired:trust/1.json"]) + "\n");
    let devices = lab.home.devices().display().to_string();
    let report = ["audit", "report", &devices, "--roster", "../roster.json", "--fleet-clone", "."];
    let page = lab.run(&report).good();
    let section = page.split("\n## What guards let pass\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let row = "hello, hello-anew on press-01, after serial 1 | its data is not needed |";
    assert!(section.contains(row) && section.lines().filter(|line| line.starts_with("| 2")).count() == 2, "{section}");
    let json: Value = serde_json::from_str(&lab.run(&[&report[..], &["--output", "json"]].concat()).good()).unwrap();
    let word = &json["letPass"][0];
    assert_eq!(
        (&word["reason"], &word["devices"]["packer-01"]["serial"]),
        (&"its data is not needed".into(), &1.into())
    );
    assert_eq!(word["commit"], git(&lab.fleet, &["rev-parse", "HEAD~2"]).as_str());
}

#[test]
fn what_can_not_be_read_or_was_edited_lets_nothing_pass() {
    let lab = lab();
    lab.take_everything_from_press_01();
    lab.commit();
    let word = ["allow", "hello", "second", "-m", "moved", "--output", "json"];
    let said: Value = serde_json::from_str(&lab.run(&word).good()).unwrap();
    let file = said["file"].as_str().unwrap();
    assert_eq!(said["devices"]["press-01"]["serial"], 1);
    lab.edit(file, "serial: 1", "serial: 2");
    let other = lab.run(&word).failed(1);
    assert!(other.contains("doesn't say any more what it said first"), "{other}");
    lab.edit(file, "serial: 2", "serials: 1");
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains(&format!("{file}:3:")) && error.contains("would be removed"), "{error}");
    assert_eq!(names(&lab, "press-01").len(), 3);
}
