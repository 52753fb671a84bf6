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
    lab.take_everything_from_press_01();
    lab.commit();
    let plan = lab.run(&["plan", "press-01"]);
    assert!(plan.out.contains("! not published: 2 of its 2 deployments would be removed"), "{}", plan.out);
    assert!(plan.out.contains("publish --allow-removals"), "{}", plan.out);
    let error = lab.run(&["publish"]).failed(1);
    assert!(
        error.contains(
            "device `press-01`: 2 of its 2 deployments would be removed, and the guard is 50 %: `hello`, `second`"
        ),
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
    let refused = "2 of the 4 deployments on all devices would be removed, and the guard is 25 %";
    let plan = lab.run(&["plan"]);
    assert_eq!(plan.out.matches(refused).count(), 1, "{}", plan.out);
    assert!(plan.out.contains("    on packer-01, press-01\n"), "{}", plan.out);
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains(refused), "{error}");
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
    let held = "= hello-anew: held back by a guard (replacement-guarded): add (replaces hello: data not carried)";
    assert!(plan.out.contains(held), "{}", plan.out);
    let markdown = lab.run(&["plan", "press-01", "--format", "markdown"]);
    for row in [
        "| **error** | `deployments/hello.yaml:5:5` | `'hello-anew' not published on press-01: 'hello-anew' would replace",
        "| `= hello-anew: held back by a guard (replacement-guarded): add (replaces hello: data not carried)` | ",
    ] {
        assert!(markdown.out.contains(row), "{row}\n{}", markdown.out);
    }
    assert_eq!(markdown.code, Some(1));
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("`hello-anew` would replace `hello`: its data is not carried"), "{error}");
    assert_eq!(lab.serial("press-01"), 1);
    lab.run(&["publish", "--allow-replace"]).good();
    assert_eq!(lab.documents("press-01").into_keys().collect::<Vec<_>>(), ["hello-anew"]);
}

#[test]
fn what_is_replaced_stays_while_the_other_can_not_be_had() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let package = lab.read("applications/hello/1.0.0/margo.yaml");
    lab.write("applications/hello/1.0.1/margo.yaml", package.replace("1.0.0", "1.0.1"));
    lab.edit("deployments/hello.yaml", "id: hello\n", "id: hello-anew\n");
    lab.edit("deployments/hello.yaml", "version: 1.0.0", "version: 1.0.1");
    lab.commit();
    let outcome = lab.publish_with(*crate::support::BEGIN, &|artifact| Err(format!("{artifact} is away").into()));
    assert!(!outcome.is_complete() && outcome.unresolved.len() == 1, "{outcome:?}");
    assert!(
        matches!(&outcome.devices[&"press-01".parse().unwrap()], Err(error) if error.to_string().contains("replace"))
    );
    // Also where a person allows it: nothing came in its place.
    lab.run(&["publish", "--allow-replace"]).failed(1);
    assert_eq!(lab.documents("press-01").into_keys().collect::<Vec<_>>(), ["hello"]);
    assert_eq!(lab.serial("press-01"), 1);
}

#[test]
fn a_guard_holds_what_it_names_byte_for_byte_and_the_rest_goes_on() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.write("deployments/second.yaml", SECOND);
    lab.write("fleet.yaml", lab.read("fleet.yaml") + "guards: {deviceRemovals: 25%, fleetRemovals: 100%}\n");
    lab.commit();
    lab.publish_all();
    let before = lab.documents("press-01");
    // Something goes, something else changes, and a third one comes that waits for nothing of that.
    lab.remove("deployments/second.yaml");
    lab.edit("deployments/hello.yaml", "hello from the press", "grüezi");
    lab.commit();
    let plan: serde_json::Value =
        serde_json::from_str(&lab.run(&["plan", "press-01", "--output", "json"]).out).unwrap();
    let (one, names) = (&plan["devices"][0], |list: &serde_json::Value| list[0]["deployment"].clone());
    assert_eq!((names(&one["deployments"]), names(&one["heldBack"])), ("hello".into(), "second".into()), "{plan:#}");
    assert_eq!(one["heldBack"][0]["guard"], "removals-guarded");
    for _ in 0..2 {
        let error = lab.run(&["publish"]).failed(1);
        assert!(error.contains("would be removed, and the guard is 25 %: `second`"), "{error}");
        let now = lab.documents("press-01");
        assert!(now["hello"].contains("grüezi"), "{now:?}");
        assert_eq!((&now["second"], lab.serial("press-01")), (&before["second"], 2));
    }
    // The fleet's guard likewise, which names what goes.
    lab.edit("fleet.yaml", "deviceRemovals: 25%, fleetRemovals: 100%", "deviceRemovals: 100%, fleetRemovals: 25%");
    lab.edit("deployments/hello.yaml", "grüezi", "servus");
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("the guard is 25 %: `second` on 2 devices"), "{error}");
    let now = lab.documents("press-01");
    assert!(now["hello"].contains("servus") && now["second"] == before["second"], "{now:?}");
    lab.run(&["publish", "--allow-removals"]).good();
    assert_eq!(lab.documents("press-01").into_keys().collect::<Vec<_>>(), ["hello"]);
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
fn a_syncer_that_is_too_old_to_wait_for_another_deployment_is_left_as_it_is() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let device = Reporter { lab: &lab, device: "press-01" };
    device.status_with("press-01", ("installed", ""), "0.1.9", &[]);
    lab.write("deployments/second.yaml", format!("{SECOND}dependsOn: [hello]\n"));
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("its syncer is version 0.1.9, and `depends-on` needs 0.2.0"), "{error}");
    assert!(error.contains("update device-syncer there to 0.2.0 or newer"), "{error}");
    assert_eq!((lab.serial("press-01"), lab.documents("press-01").len()), (1, 1));
    device.status_with("press-01", ("installed", ""), "0.2.0-rc.1", &[]);
    lab.publish_all();
    let envelope = lab.json("press-01", "desired", "envelope.json");
    assert_eq!(envelope["requires"], serde_json::json!(["depends-on"]));
    let policies: Vec<_> = envelope["deployments"].as_object().unwrap().values().map(|one| &one["policy"]).collect();
    assert!(policies.contains(&&serde_json::json!({"dependsOn": ["hello"]})), "{policies:?}");
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

#[test]
fn a_device_whose_id_changed_is_warned_of_as_one_that_begins_anew() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    lab.edit("devices/press-01.yaml", "id: press-01", "id: press-07");
    lab.commit();
    let words = "devices/press-01.yaml: `press-07` has the key that `press-01` had: its repository begins anew, and the \
                 machine stays on that of `press-01`, as it is, until it joins anew";
    let planned = lab.run(&["plan"]);
    assert_eq!(planned.code, Some(3), "{}{}", planned.out, planned.err);
    assert!(planned.err.contains(words) && planned.err.contains("put the id `press-01` back"), "{}", planned.err);
    let published = lab.run(&["publish"]);
    assert!(published.code == Some(0) && published.err.contains(words), "{}{}", published.out, published.err);
    assert_eq!((lab.serial("press-01"), lab.serial("press-07")), (1, 1));
    let again = lab.run(&["plan"]);
    assert!(!again.err.contains("had: its repository"), "it has begun: {}", again.err);
}

#[test]
fn a_syncer_that_is_too_old_to_wait_for_windows_is_left_as_it_is_and_the_nearest_word_counts() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let device = Reporter { lab: &lab, device: "press-01" };
    device.status_with("press-01", ("installed", ""), "0.2.0", &[]);
    let windows =
        |start: &str| format!("{{zone: Europe/Vienna, apply: {{allow: [{{start: \"{start}\", length: 4h}}]}}}}");
    lab.edit("fleet.yaml", "\npolicy:\n", &format!("\npolicy:\n  windows: {}\n", windows("0 2 * * 6")));
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("its syncer is version 0.2.0, and `windows` needs 0.3.0"), "{error}");
    assert_eq!(lab.serial("press-01"), 1);
    device.status_with("press-01", ("installed", ""), "0.3.0", &[]);
    let plan = lab.run(&["plan"]).out;
    assert!(plan.contains("policy windows: Europe/Vienna, in 0 2 * * 6 for 4h"), "{plan}");
    lab.publish_all();
    let envelope = lab.json("press-01", "desired", "envelope.json");
    let written = |start: &str| serde_json::json!({"zone": "Europe/Vienna", "apply": {"allow": [{"start": start, "lengthSeconds": 14400}]}});
    assert_eq!(
        (&envelope["requires"], &envelope["policy"]["windows"]),
        (&serde_json::json!(["windows"]), &written("0 2 * * 6"))
    );

    let file = lab.read("devices/press-01.yaml");
    lab.write("devices/press-01.yaml", format!("{file}policy: {{windows: {}}}\n", windows("0 3 * * 0")));
    let file = lab.read("deployments/hello.yaml");
    lab.write("deployments/hello.yaml", format!("{file}windows: {{zone: UTC}}\n"));
    lab.commit();
    let said = lab.run(&["explain", "press-01"]).good();
    let (own, fleet) = (
        said.find("by the device's policy: Europe/Vienna, in 0 3 * * 0 for 4h  [devices/press-01.yaml:"),
        said.find("over the fleet's policy: Europe/Vienna, in 0 2 * * 6 for 4h  [fleet.yaml:"),
    );
    assert!(own.is_some() && own < fleet, "{said}");
    assert!(said.contains("it has windows of its own: UTC, at any time  [deployments/hello.yaml:"), "{said}");
    lab.publish_all();
    let envelope = lab.json("press-01", "desired", "envelope.json");
    assert_eq!(envelope["policy"]["windows"], written("0 3 * * 0"));
    let policies: Vec<_> = envelope["deployments"].as_object().unwrap().values().map(|one| &one["policy"]).collect();
    assert_eq!(policies, [&serde_json::json!({"windows": {"zone": "UTC"}})]);
}

#[test]
fn a_syncer_that_is_too_old_to_ask_a_person_is_left_as_it_is() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let device = Reporter { lab: &lab, device: "press-01" };
    device.status_with("press-01", ("installed", ""), "0.2.0", &[]);
    let file = lab.read("deployments/hello.yaml");
    lab.write("deployments/hello.yaml", format!("{file}approval: everybody\n"));
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("approval: is `everybody`, expected `none` or `site`"), "{error}");
    lab.write("deployments/hello.yaml", &file);
    lab.edit("fleet.yaml", "\npolicy:\n", "\npolicy:\n  approval: site\n");
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("its syncer is version 0.2.0, and `approval` needs 0.3.0"), "{error}");
    device.status_with("press-01", ("installed", ""), "0.3.0", &[]);
    lab.publish_all();
    let envelope = lab.json("press-01", "desired", "envelope.json");
    assert_eq!(
        (&envelope["requires"], &envelope["policy"]["approval"]),
        (&serde_json::json!(["approval"]), &"site".into())
    );
    lab.write("deployments/hello.yaml", format!("{file}approval: none\n"));
    lab.commit();
    let said = lab.run(&["explain", "press-01"]).good();
    assert!(said.contains("by the fleet's policy: site  [fleet.yaml:"), "{said}");
    assert!(said.contains("its own word on approval: none  [deployments/hello.yaml:"), "{said}");
    lab.publish_all();
    let envelope = lab.json("press-01", "desired", "envelope.json");
    let policies: Vec<_> = envelope["deployments"].as_object().unwrap().values().map(|one| &one["policy"]).collect();
    assert_eq!(policies, [&serde_json::json!({"approval": "none"})]);
    lab.edit("fleet.yaml", "  approval: site\n", "");
    lab.commit();
    lab.publish_all();
    assert_eq!(lab.json("press-01", "desired", "envelope.json").get("requires"), None, "nobody is asked");
}

#[test]
fn a_syncer_that_is_too_old_to_leave_drift_alone_is_left_as_it_is() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let device = Reporter { lab: &lab, device: "press-01" };
    device.status_with("press-01", ("installed", ""), "0.2.0", &[]);
    let file = lab.read("deployments/hello.yaml");
    lab.write("deployments/hello.yaml", format!("{file}drift: often\n"));
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("`often` is none of `heal`, `heal-in-window`, `report`"), "{error}");
    lab.write("deployments/hello.yaml", format!("{file}drift: report\n"));
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("its syncer is version 0.2.0, and `drift` needs 0.3.0"), "{error}");
    assert_eq!(lab.serial("press-01"), 1);
    device.status_with("press-01", ("installed", ""), "0.3.0", &[]);
    lab.publish_all();
    let envelope = lab.json("press-01", "desired", "envelope.json");
    assert_eq!(envelope["requires"], serde_json::json!(["drift"]));
    let policies: Vec<_> = envelope["deployments"].as_object().unwrap().values().map(|one| &one["policy"]).collect();
    assert_eq!(policies, [&serde_json::json!({"drift": "report"})]);
    lab.write("deployments/hello.yaml", format!("{file}drift: heal\n"));
    lab.commit();
    lab.publish_all();
    assert_eq!(lab.json("press-01", "desired", "envelope.json").get("requires"), None, "what is so anyway isn't said");
}

#[test]
fn a_syncer_that_is_too_old_to_ignore_drift_is_left_as_it_is() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let device = Reporter { lab: &lab, device: "press-01" };
    device.status_with("press-01", ("installed", ""), "0.2.0", &[]);
    let file = lab.read("deployments/hello.yaml");
    let ignored = "driftIgnore: [{kind: Deployment, name: web, pointer: /spec/replicas}]\n";
    lab.write("deployments/hello.yaml", format!("{file}{ignored}"));
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("its syncer is version 0.2.0, and `drift-ignore` needs 0.3.0"), "{error}");
    device.status_with("press-01", ("installed", ""), "0.3.0", &[]);
    // The nearest list counts, as a whole.
    lab.edit("fleet.yaml", "policy:\n", "policy:\n  driftIgnore: [{kind: Secret, pointer: \"\"}]\n");
    lab.commit();
    lab.publish_all();
    let envelope = lab.json("press-01", "desired", "envelope.json");
    assert_eq!(envelope["requires"], serde_json::json!(["drift-ignore"]));
    let policies = |envelope: &serde_json::Value| -> Vec<_> {
        envelope["deployments"].as_object().unwrap().values().map(|one| one["policy"]["driftIgnore"].clone()).collect()
    };
    let own = serde_json::json!([{"kind": "Deployment", "name": "web", "pointer": "/spec/replicas"}]);
    assert_eq!(policies(&envelope), [own]);
    let explained = lab.run(&["explain", "press-01"]).out;
    assert!(
        explained.contains("Deployment web: /spec/replicas") && explained.contains("Secret: all of it"),
        "{explained}"
    );
    lab.write("deployments/hello.yaml", file);
    lab.commit();
    assert!(lab.run(&["plan"]).out.contains("drift ignored"));
    lab.publish_all();
    let envelope = lab.json("press-01", "desired", "envelope.json");
    assert_eq!(policies(&envelope), [serde_json::json!([{"kind": "Secret", "pointer": ""}])]);
}

#[test]
fn what_the_fleet_says_for_all_changes_nothing_where_deployments_say_so_already() {
    let lab = Lab::with(&["press-01"]);
    let file = lab.read("deployments/hello.yaml");
    lab.write("deployments/hello.yaml", format!("{file}onFailure: last-good\nstabilise: 2m\ndrift: report\n"));
    lab.commit();
    lab.publish_all();
    let policy = "policy:\n  onFailure: last-good\n  stabilise: 2m\n  drift: report\n";
    lab.edit("fleet.yaml", "policy:\n", policy);
    lab.write("deployments/hello.yaml", file);
    lab.commit();
    assert_eq!(lab.run(&["plan"]).code, Some(0));
    lab.publish_all();
    assert_eq!(lab.serial("press-01"), 1);
    lab.edit("fleet.yaml", "onFailure: last-good", "onFailure: hold");
    lab.commit();
    let planned = lab.run(&["plan"]);
    assert!(planned.code == Some(3) && planned.out.contains("on failure"), "{}{}", planned.out, planned.err);
    lab.publish_all();
    assert_eq!(lab.serial("press-01"), 2);
}

#[test]
fn a_restart_is_shown_by_the_plan_and_goes_to_devices_of_any_version() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    Reporter { lab: &lab, device: "press-01" }.status_with("press-01", ("installed", ""), "0.2.0", &[]);
    let file = lab.read("deployments/hello.yaml");
    for (number, words) in [("0", "must be a whole number from 1"), ("soon", "expected an integer")] {
        lab.write("deployments/hello.yaml", format!("{file}restart: {number}\n"));
        lab.commit();
        let error = lab.run(&["publish"]).failed(1);
        assert!(error.contains("restart: ") && error.contains(words), "{error}");
    }
    lab.write("deployments/hello.yaml", format!("{file}restart: 3\n"));
    lab.commit();
    let planned = lab.run(&["plan"]);
    assert!(planned.code == Some(3) && planned.out.contains("restart: 3"), "{}{}", planned.out, planned.err);
    lab.publish_all();
    let envelope = lab.json("press-01", "desired", "envelope.json");
    let policies: Vec<_> = envelope["deployments"].as_object().unwrap().values().map(|one| &one["policy"]).collect();
    assert_eq!((envelope.get("requires"), policies), (None, vec![&serde_json::json!({"restart": 3})]));
    lab.edit("deployments/hello.yaml", "restart: 3", "restart: 4");
    lab.commit();
    let planned = lab.run(&["plan"]);
    assert!(planned.out.contains("restart: 3 → 4"), "{}", planned.out);
    let explained = lab.run(&["explain", "press-01", "hello"]).good();
    let words = "what runs of it is restarted once for the number 4  [deployments/hello.yaml:";
    assert!(explained.contains(words), "{explained}");
}
