//! Restarts that the fleet asks for, on all devices of a deployment or on some of them.

use repo_testkit::git::git;
use serde_json::{Value, json};

use crate::support::Lab;

const FILE: &str = "deployments/hello.yaml";

/// The number that a device is asked for.
fn asked(lab: &Lab, device: &str) -> Value {
    let envelope = lab.json(device, "desired", "envelope.json");
    let all = envelope["deployments"].as_object().unwrap();
    all.values().find(|one| one["id"] == "hello").unwrap()["policy"]["restart"].clone()
}

#[test]
fn of_the_deployments_restart_and_those_of_overrides_the_highest_counts() {
    let lab = Lab::with(&["press-01", "press-02"]);
    lab.write(
        FILE,
        "id: hello\napplication: {id: hello, version: 1.0.0}\ntargets: [{matchLabels: {}}]\nrestart: 3\noverrides:\n\
         - when: {devices: [press-02]}\n  restart: 5\n- when: {matchLabels: {}}\n  restart: 2\n",
    );
    lab.commit();
    lab.publish_all();
    assert_eq!((asked(&lab, "press-01"), asked(&lab, "press-02")), (json!(3), json!(5)));
    for (device, said) in [
        ("press-01", "restarted once for the number 3  [deployments/hello.yaml:4:10]"),
        ("press-02", "restarted once for the number 5  [deployments/hello.yaml:7:12]"),
    ] {
        let text = lab.run(&["explain", device, "hello"]).good();
        assert!(text.contains(said), "{text}");
    }
    lab.edit(FILE, "restart: 5", "restart: 0");
    let said = lab.run(&["validate"]).failed(1);
    assert!(said.contains("hello.yaml:7:12: overrides[0].restart: must be a whole number from 1"), "{said}");
}

#[test]
fn a_command_raises_the_number_for_one_device_or_for_all_and_nothing_else_of_the_file() {
    let lab = Lab::with(&["press-01", "press-02"]);
    lab.edit(FILE, "site: graz", "");
    lab.commit();
    lab.publish_all();
    let before = lab.read(FILE);
    let restart = |args: &[&str]| lab.run(&[args, &["-m", "it leaks"]].concat());
    let said = restart(&["device", "restart", "press-01", "hello"]).good();
    assert_eq!(said, format!("hello is to be restarted once on press-01: 1 ({FILE})\n"));
    let added = "      interval: 10\n  - when: {devices: [press-01]}\n    restart: 1\n";
    assert_eq!(lab.read(FILE), before.replace("      interval: 10\n", added));
    let message = || git(&lab.fleet, &["log", "-1", "--format=%B"]);
    assert_eq!(message().trim(), "press-01: restart hello (1)\n\nit leaks");
    let plan = lab.run(&["plan", "--output", "json"]).out;
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let changed = |device: &str| {
        let all = plan["devices"].as_array().unwrap();
        all.iter().find(|one| one["device"] == device).unwrap()["state"] == "changed"
    };
    assert!(changed("press-01") && !changed("press-02"), "{plan:#}");
    assert!(lab.run(&["plan"]).out.contains("restart: 1"), "{}", lab.run(&["plan"]).out);
    lab.publish_all();
    assert_eq!((asked(&lab, "press-01"), asked(&lab, "press-02")), (json!(1), Value::Null));
    // What asks all devices asks this one, too.
    let said = restart(&["deployment", "restart", "hello", "--output", "json"]).good();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said, json!({"apiVersion": "v1", "deployment": "hello", "device": null, "file": FILE, "restart": 2}));
    assert_eq!(message().trim(), "restart hello (2)\n\nit leaks");
    lab.publish_all();
    assert_eq!((asked(&lab, "press-01"), asked(&lab, "press-02")), (json!(2), json!(2)));
    restart(&["device", "restart", "press-01", "hello"]).good();
    assert_eq!(lab.read(FILE).matches("press-01").count(), 1, "the same override says the next number");
    lab.publish_all();
    assert_eq!((asked(&lab, "press-01"), asked(&lab, "press-02")), (json!(3), json!(2)));
}

#[test]
fn what_can_not_be_restarted_is_told_and_nothing_is_written() {
    let lab = Lab::with(&["press-01", "press-02"]);
    let profile =
        "    type: helm\n    components: [{name: hello, properties: {repository: \"oci://x/y\", revision: 1.2.3}}]\n";
    lab.write(
        "applications/app/1.0.0/margo.yaml",
        format!("id: app\nmetadata: {{name: App, version: 1.0.0}}\ndeploymentProfiles:\n  - id: chart\n{profile}"),
    );
    lab.write(
        "deployments/app.yaml",
        "id: app\napplication: {id: app, version: 1.0.0}\ntargets: [{devices: [press-01]}]\n",
    );
    lab.write(
        "deployments/flow.yaml",
        "{id: flow, application: {id: hello, version: 1.0.0}, targets: [{devices: [press-01]}]}\n",
    );
    lab.commit();
    let committed = git(&lab.fleet, &["rev-parse", "HEAD"]);
    let refused = |args: &[&str], why: &str| {
        let said = lab.run(&[args, &["-m", "why"]].concat()).failed(1);
        assert!(said.contains(why), "{args:?}: {said}");
        assert_eq!(git(&lab.fleet, &["rev-parse", "HEAD"]), committed);
    };
    refused(&["device", "restart", "press-99", "hello"], "there is no device `press-99` in the fleet");
    refused(&["device", "restart", "press-01", "nothing"], "there is no deployment `nothing` in the fleet");
    refused(&["device", "restart", "press-02", "app"], "hint: `why-not app press-02` says why");
    for args in [&["device", "restart", "press-01", "app"][..], &["deployment", "restart", "app"]] {
        refused(args, "hint: where the chart makes an annotation of its pods from a value");
    }
    refused(&["deployment", "restart", "flow"], "can't be edited without changing more than what was asked for");
    lab.write(FILE, lab.read(FILE) + "# more\n");
    refused(&["deployment", "restart", "hello"], "has changes that are not committed");
    lab.run(&["deployment", "restart", "hello"]).failed(2);
    // An editor can write what the command refuses; then each device tells it.
    lab.edit("deployments/app.yaml", "targets", "overrides: [{when: {devices: [press-01]}, restart: 1}]\ntargets");
    lab.commit();
    let said = lab.run(&["validate"]);
    let said = said.out + &said.err;
    assert!(said.contains("app.yaml:3:52: ") && said.contains("is for compose applications"), "{said}");
}
