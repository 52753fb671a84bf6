//! Many devices from one list.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::fs;

use serde_json::Value;

use crate::support::Lab;

fn head(lab: &Lab) -> String {
    repo_testkit::git::git(&lab.fleet, &["rev-parse", "HEAD"])
}

fn status(lab: &Lab) -> String {
    repo_testkit::git::git(&lab.fleet, &["status", "--porcelain"])
}

#[test]
fn many_devices_come_from_one_list_with_one_commit_and_the_same_list_again_completes_it() {
    let lab = Lab::new();
    let list = lab.dir().join("devices.csv");
    let out = lab.dir().join("join");
    let args = ["device", "add", "--from", list.to_str().unwrap(), "--out", out.to_str().unwrap(), "--output", "json"];
    let mut text = "id,site,line\n".to_owned();
    text.extend((10..60).map(|number| format!("press-{number},graz,{number}\n")));
    fs::write(&list, &text).unwrap();
    let before = head(&lab);
    let added: Value = serde_json::from_str(&lab.run(&args).good()).unwrap();
    assert_eq!(added["devices"].as_array().unwrap().len(), 50);
    let count = repo_testkit::git::git(&lab.fleet, &["rev-list", "--count", &format!("{before}..HEAD")]);
    assert_eq!((count.as_str(), status(&lab).as_str()), ("1", ""));
    assert!(lab.read("devices/press-17.yaml").contains("\"line\": \"17\""));
    assert!(out.join("press-59.json").exists());
    lab.run(&["validate"]).good();
    // One that was cut off before its commit, and a longer list.
    let git = |args: &[&str]| repo_testkit::git::git(&lab.fleet, args);
    git(&["reset", "--quiet", "--soft", &before]);
    fs::remove_file(out.join("press-59.json")).unwrap();
    fs::write(&list, format!("{text}line/a,linz,\n")).unwrap();
    let again: Value = serde_json::from_str(&lab.run(&args).good()).unwrap();
    assert_eq!((&again["devices"][0]["wasThere"], &again["devices"][50]["wasThere"]), (&true.into(), &false.into()));
    assert_eq!((git(&["rev-list", "--count", &format!("{before}..HEAD")]).as_str(), status(&lab).as_str()), ("1", ""));
    assert!(out.join("press-59.json").exists());
    // The same as JSON.
    let json = r#"[{"id": "press-17", "labels": {"site": "graz", "line": "17"}},
        {"id": "press-90", "labels": {"site": "linz"}}]"#;
    fs::write(&list, json).unwrap();
    let more: Value = serde_json::from_str(&lab.run(&args).good()).unwrap();
    assert_eq!((&more["devices"][0]["wasThere"], &more["devices"][1]["wasThere"]), (&true.into(), &false.into()));
    assert!(lab.read("devices/press-90.yaml").contains("\"site\": \"linz\"") && out.join("press-90.json").exists());
}

#[test]
fn a_list_with_a_mistake_changes_nothing_and_each_is_told_with_its_place() {
    let lab = Lab::new();
    let list = lab.dir().join("devices.csv");
    let path = list.to_str().unwrap().to_owned();
    let before = head(&lab);
    let fails = |text: &str| {
        fs::write(&list, text).unwrap();
        let said = lab.run(&["device", "add", "--from", &path]).failed(1);
        assert_eq!((head(&lab), status(&lab)), (before.clone(), String::new()), "{text}");
        assert!(!lab.home.device(&"press-10".parse().unwrap()).exists());
        said
    };
    let said = fails("id,site\npress-10,graz\npress-11,not a label\npress-10,linz\n");
    for place in [":3:10: ", "labels.site"] {
        assert!(said.contains(&format!("{path}:3:10")) && said.contains(place), "{said}");
    }
    let said = fails("id,site\npress-10,graz\npress-10,linz\n");
    assert!(said.contains(&format!("{path}:3:1")) && said.contains("stands in line 2, too"), "{said}");
    // Those that are there keep their labels.
    let said = fails("id,site\npress-10,graz\npress-01,linz\n");
    assert!(said.contains(&format!("{path}:3:1")) && said.contains("already, with other labels"), "{said}");
    lab.write("devices/press-10.yaml", "id: other\n");
    repo_testkit::git::git(&lab.fleet, &["add", "--all"]);
    repo_testkit::git::git(
        &lab.fleet,
        &["-c", "user.name=o", "-c", "user.email=o@x", "commit", "--quiet", "--message", "x"],
    );
    fs::write(&list, "id\npress-12\npress-10\n").unwrap();
    let said = lab.run(&["device", "add", "--from", &path]).failed(1);
    assert!(said.contains("is not about `press-10`") && !lab.path("devices/press-12.yaml").exists(), "{said}");
    for args in [&["device", "add"][..], &["device", "add", "press-13", "--from", &path]] {
        lab.run(args).failed(2);
    }
}
