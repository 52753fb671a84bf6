//! What is removed from devices, and what never is.

use repo_model::Trailer;
use wfm_git_publisher::publish::Done;

use crate::support::{BEGIN, Lab, SECOND};

/// Two enrolled devices, each with `hello` and `second`.
fn lab() -> Lab {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.write("deployments/second.yaml", SECOND);
    lab.commit();
    lab.publish_all();
    lab
}

fn names(lab: &Lab, device: &str) -> Vec<String> {
    lab.documents(device).into_keys().collect()
}

#[test]
fn what_is_no_longer_wanted_goes() {
    let lab = lab();
    lab.take_everything_from_press_01();
    lab.commit();
    lab.publish_all();
    assert_eq!(names(&lab, "packer-01"), ["hello"]);
    assert!(names(&lab, "press-01").is_empty());
    assert_eq!(lab.subjects("packer-01")[0], "second: remove (serial 2)");
    assert_eq!(lab.subjects("press-01")[0], "2 deployments change (serial 2)");
    let message = lab.message("press-01", "desired");
    let removed: Vec<_> =
        message.all(Trailer::Deployment).map(|line| line.split(' ').take(2).collect::<Vec<_>>()).collect();
    assert_eq!(removed, [["remove", "hello"], ["remove", "second"]]);
    let manifest = lab.json("press-01", "desired", "manifest.json");
    assert_eq!((&manifest["bundle"], manifest["manifestVersion"].as_u64()), (&serde_json::Value::Null, Some(2)));
    assert_eq!(lab.git("press-01", &["ls-tree", "bundle"]), "", "an empty manifest has an empty bundle");
}

#[test]
fn a_broken_file_removes_nothing_and_stops_no_neighbour() {
    let lab = lab();
    lab.write("deployments/second.yaml", SECOND.replace("servus", "yes"));
    lab.edit("deployments/hello.yaml", "hello from the press", "good morning");
    lab.commit();
    let outcome = lab.publish();
    assert!(!outcome.is_complete());
    assert_eq!(outcome.problems.errors().count(), 1);
    assert!(outcome.problems.to_string().starts_with("deployments/second.yaml:4:24: parameters.greeting"));
    for device in ["press-01", "packer-01"] {
        assert_eq!(names(&lab, device), ["hello", "second"], "{device}");
    }
    assert!(lab.documents("press-01")["hello"].contains("good morning"));
    assert!(lab.documents("press-01")["second"].contains("servus"));
    let plan = lab.run(&["plan"]);
    assert!(plan.out.contains("= second: left as it is"), "{}", plan.out);
    plan.failed(1);
}

#[test]
fn a_package_that_can_not_be_read_removes_nothing() {
    let lab = lab();
    lab.write("applications/hello/1.0.0/margo.yaml", "id: hello\n");
    lab.commit();
    let before = lab.refs("press-01");
    assert!(!lab.publish().is_complete());
    assert_eq!(lab.refs("press-01"), before);
}

#[test]
fn a_file_of_unknown_identity_stops_all_removals_and_nothing_else() {
    let lab = lab();
    lab.remove("deployments/second.yaml");
    lab.write("deployments/riddle.yaml", "id: [\n");
    lab.edit("deployments/hello.yaml", "hello from the press", "good morning");
    lab.commit();
    let outcome = lab.publish();
    assert_eq!(outcome.unidentified, ["deployments/riddle.yaml"]);
    assert_eq!(names(&lab, "press-01"), ["hello", "second"]);
    assert!(lab.documents("press-01")["hello"].contains("good morning"));
    let said = lab.run(&["publish"]).failed(1);
    assert!(said.contains("note: nothing is removed from any device"), "{said}");
    lab.remove("deployments/riddle.yaml");
    lab.commit();
    lab.publish_all();
    assert_eq!(names(&lab, "press-01"), ["hello"]);
}

#[test]
fn a_device_with_a_broken_file_is_left_as_it_is_and_kept_fresh() {
    let lab = lab();
    lab.edit("devices/press-01.yaml", "line: \"1\"", "line: 1");
    lab.remove("deployments/second.yaml");
    lab.commit();
    let tip = lab.tip("press-01", "desired");
    let outcome = lab.publish_at(*BEGIN + 13 * 3600);
    assert!(matches!(outcome.devices[&"press-01".parse().unwrap()], Ok(Done::Renewed { .. })));
    assert_eq!(lab.tip("press-01", "desired"), tip);
    assert_eq!(names(&lab, "packer-01"), ["hello"]);
    assert!(lab.run(&["plan"]).out.contains("press-01: left as it is, because its file is broken"));
}

#[test]
fn a_device_that_left_the_fleet_keeps_what_it_has() {
    let lab = lab();
    lab.remove("devices/press-01.yaml");
    lab.commit();
    let before = lab.refs("press-01");
    lab.publish_all();
    assert_eq!(lab.refs("press-01"), before);
    assert!(lab.run(&["status"]).good().contains("no longer in the fleet"));
}

#[test]
fn an_archive_that_can_not_be_found_holds_up_only_what_needs_it() {
    let lab = lab();
    let package = lab.read("applications/hello/1.0.0/margo.yaml");
    let next = package.replace("version: 1.0.0", "version: 1.1.0").replace("revision: 1.0.0", "revision: 1.1.0");
    lab.write("applications/hello/1.1.0/margo.yaml", next);
    lab.edit("deployments/second.yaml", "1.0.0", "1.1.0");
    lab.edit("deployments/hello.yaml", "hello from the press", "good morning");
    lab.commit();
    let outcome = lab.publish_with(*BEGIN, &|_| Err("the registry is away".into()));
    assert_eq!(outcome.unresolved.len(), 1, "the known tag isn't asked for again");
    assert!(lab.documents("press-01")["hello"].contains("good morning"));
    assert!(lab.documents("press-01")["second"].contains("1.0.0"));
    assert_eq!(lab.subjects("press-01")[0], "hello: change greeting (serial 2)");
    lab.publish_all();
    assert!(lab.documents("press-01")["second"].contains("1.1.0"));
    assert_eq!(lab.trailer("press-01", Trailer::Cause), "rendered anew from the same fleet commit");
}
