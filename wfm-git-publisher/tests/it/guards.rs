//! What a person has to allow, and what a device is too old for.

use crate::reports::Reporter;
use crate::support::{Lab, SECOND};

#[test]
fn more_removals_than_the_guard_need_a_flag() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.write("deployments/second.yaml", SECOND);
    lab.write("fleet.yaml", lab.read("fleet.yaml") + "guards: {deviceRemovals: 50%, fleetRemovals: 75%}\n");
    lab.commit();
    lab.publish_all();
    lab.remove("deployments/second.yaml");
    lab.edit(
        "deployments/hello.yaml",
        "# exclude:\n#   - matchLabels: {role: spare}",
        "exclude:\n  - devices: [press-01]",
    );
    lab.commit();
    let plan = lab.run(&["plan", "press-01"]);
    assert!(plan.out.contains("! not published: 2 of its 2 deployments would be removed"), "{}", plan.out);
    assert!(plan.out.contains("publish --allow-removals"), "{}", plan.out);
    let error = lab.run(&["publish"]).failed(1);
    assert!(
        error.contains("device `press-01`: 2 of its 2 deployments would be removed, and the guard is 50 %"),
        "{error}"
    );
    assert_eq!((lab.documents("press-01").len(), lab.documents("packer-01").len()), (2, 1), "its neighbour goes on");
    lab.run(&["publish", "--allow-removals"]).good();
    assert_eq!(lab.documents("press-01").len(), 0);
}

#[test]
fn a_fleet_that_would_lose_too_much_keeps_it_and_gets_what_is_new() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.write("deployments/second.yaml", SECOND);
    lab.write("fleet.yaml", lab.read("fleet.yaml") + "guards: {deviceRemovals: 100%, fleetRemovals: 25%}\n");
    lab.commit();
    lab.publish_all();
    lab.write("deployments/second.yaml", SECOND.replace("{matchLabels: {site: graz}}", "{devices: [press-01]}"));
    lab.edit("deployments/hello.yaml", "- matchLabels: {site: graz}", "- devices: [packer-01]");
    lab.edit("deployments/hello.yaml", "hello from the packer", "good morning");
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("2 of the 4 deployments on all devices would be removed, and the guard is 25 %"), "{error}");
    assert_eq!((lab.documents("press-01").len(), lab.documents("packer-01").len()), (2, 2));
    lab.run(&["publish", "--allow-removals"]).good();
    assert_eq!((lab.documents("press-01").len(), lab.documents("packer-01").len()), (1, 1));
}

#[test]
fn another_id_is_a_replacement_and_needs_a_flag() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    lab.edit("deployments/hello.yaml", "id: hello\n", "id: hello-anew\n");
    lab.commit();
    let plan = lab.run(&["plan", "press-01"]);
    assert!(plan.out.contains("+ hello-anew (replaces hello: data not carried)"), "{}", plan.out);
    let markdown = lab.run(&["plan", "press-01", "--format", "markdown"]);
    assert!(
        markdown.out.contains("| `press-01` | add | `hello-anew` | replaces hello: data not carried; "),
        "{}",
        markdown.out
    );
    assert!(
        markdown.out.contains("| `press-01` | **not published** | `guard` | 'hello-anew' would replace"),
        "{}",
        markdown.out
    );
    assert_eq!(markdown.code, Some(3));
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("`hello-anew` would replace `hello`: its data is not carried"), "{error}");
    assert_eq!(lab.serial("press-01"), 1);
    lab.run(&["publish", "--allow-replace"]).good();
    assert_eq!(lab.documents("press-01").into_keys().collect::<Vec<_>>(), ["hello-anew"]);
}

#[test]
fn a_syncer_that_is_too_old_for_a_feature_is_left_as_it_is() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let device = Reporter { lab: &lab, device: "press-01" };
    device.status_with("press-01", ("installed", ""), "0.1.9", &[]);
    let file = lab.read("devices/press-01.yaml");
    lab.write("devices/press-01.yaml", file + "suspended: true\n");
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("its syncer is version 0.1.9, and `suspended` needs 0.2.0"), "{error}");
    assert_eq!(lab.serial("press-01"), 1);
    device.status_with("press-01", ("installed", ""), "0.2.0", &[]);
    lab.publish_all();
    let envelope = lab.json("press-01", "desired", "envelope.json");
    assert_eq!(
        (&envelope["requires"], &envelope["policy"]["suspended"]),
        (&serde_json::json!(["suspended"]), &true.into())
    );
}

#[test]
fn an_immutable_value_does_not_change_on_a_device_that_has_it() {
    let lab = Lab::with(&["press-01"]);
    lab.edit(
        "applications/hello/1.0.0/margo.yaml",
        "          schema: text",
        "          schema: text\n          immutable: true",
    );
    lab.commit();
    lab.publish_all();
    lab.edit("deployments/hello.yaml", "greeting: hello from the press", "greeting: servus");
    lab.edit("deployments/hello.yaml", "      interval: 10", "      interval: 11");
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    let place = "deployments/hello.yaml:22:13: parameters.greeting: on `press-01`: can't change once it is installed";
    assert!(error.contains(place), "{error}");
    assert!(error.contains("it is \"hello from the press\", and would be \"servus\""), "{error}");
    assert!(lab.documents("press-01")["hello"].contains("hello from the press"));
}
