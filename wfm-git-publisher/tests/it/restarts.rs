//! Restarts that the fleet asks for, on all devices of a deployment or on some of them.

use std::thread;

use repo_testkit::git::git;
use serde_json::{Value, json};

use crate::reports::Reporter;
use crate::rollouts;
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

/// A heartbeat that says that this restart is done; `asked` as a syncer since 0.3 says it.
pub(crate) fn says(lab: &Lab, device: &str, asked: Option<u64>, restart: u64) {
    let reporter = Reporter { lab, device };
    let hello = json!({"state": "installed", "health": "healthy", "drift": "none", "attempts": 0, "restart": restart});
    let deployments = json!({ reporter.deployment(): {"components": {"hello": hello}} });
    let mut state =
        json!({"layout": 1, "time": "2026-01-01T00:00:00Z", "serial": 1, "deployments": deployments, "asked": asked});
    state.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    reporter.commit("heartbeat", device, &[("current-state.json", state.to_string())], &reporter.trailers("heartbeat"));
}

/// Two devices with the deployment, and as many rows of it.
fn presses() -> Lab {
    let lab = Lab::with(&["press-01", "press-02"]);
    lab.edit(FILE, "site: graz", "");
    lab.commit();
    lab.publish_all();
    lab
}

fn restarted(lab: &Lab, args: &[&str]) -> Value {
    let ran = lab.run(&[args, &["-m", "it leaks", "--output", "json"]].concat());
    serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{args:?}: {}", ran.err))
}

#[test]
fn a_number_that_was_taken_back_is_not_used_again() {
    let lab = presses();
    says(&lab, "press-01", Some(0), 5);
    let shown = lab.run(&["deployment", "show", "hello", "press-01", "--output", "json"]).good();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let devices = shown["devices"].as_array().unwrap();
    assert_eq!((devices.len(), &devices[0]["row"]["restarts"]), (1, &json!({"asked": 0, "done": 5, "highest": 5})));
    assert_eq!(restarted(&lab, &["device", "restart", "press-02", "hello"])["restart"], 1, "it has done none");
    lab.publish_all();
    assert_eq!(restarted(&lab, &["deployment", "restart", "hello"])["restart"], 6);
    lab.publish_all();
    // What was published and taken back since may be under way.
    lab.edit(FILE, "restart: 6\n", "");
    lab.commit();
    assert_eq!(restarted(&lab, &["device", "restart", "press-01", "hello"])["restart"], 7);
    lab.publish_all();
    says(&lab, "press-01", Some(0), 7);
    let shown = lab.run(&["deployment", "show", "hello"]).good();
    assert!(shown.contains("\nRestart: done on 1 of 2 devices\n"), "{shown}");
}

#[test]
fn a_device_that_lies_about_its_number_breaks_nothing() {
    let lab = presses();
    says(&lab, "press-02", Some(0), u64::MAX);
    let said = lab.run(&["deployment", "restart", "hello", "-m", "it leaks"]);
    assert!(said.out.contains("once on each of its devices: 1 ("), "{}{}", said.out, said.err);
    let warning = "warning: press-02 says that it has done restart 18446744073709551615 of hello; that isn't counted\n";
    assert!(said.err.contains(warning), "{}", said.err);
    // The most that a lie can bring, and after it nothing more.
    says(&lab, "press-02", Some(0), (1 << 32) - 1);
    assert_eq!(restarted(&lab, &["deployment", "restart", "hello"])["restart"], 1_u64 << 32);
    says(&lab, "press-02", Some(0), 1 << 33);
    assert_eq!(restarted(&lab, &["deployment", "restart", "hello"])["restart"], (1_u64 << 32) + 1);
    lab.run(&["validate"]).good();
}

#[test]
fn whoever_waits_hears_who_has_not_done_it_and_why() {
    let lab = presses();
    // Nothing is published meanwhile.
    let all = ["deployment", "restart", "hello", "--wait=0s"];
    let left = |said: &Value| {
        let left = said["left"].as_array().unwrap().clone();
        left.into_iter().map(|one| one["why"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(left(&restarted(&lab, &all)), ["not published for it", "not published for it"]);
    // One has done it already by its own word, and one is of a version that never says so.
    thread::scope(|scope| {
        let begun = git(&lab.fleet, &["rev-parse", "HEAD"]);
        let waits = scope.spawn(|| restarted(&lab, &["deployment", "restart", "hello", "--wait=4m"]));
        while git(&lab.fleet, &["rev-parse", "HEAD"]) == begun {
            thread::sleep(std::time::Duration::from_millis(50));
        }
        lab.publish_all();
        says(&lab, "press-01", Some(0), 2);
        says(&lab, "press-02", None, 0);
        let said = waits.join().unwrap();
        assert_eq!((&said["restart"], &said["done"]), (&json!(2), &json!(["press-01"])), "{said}");
        assert_eq!(left(&said), ["doesn't say that it restarts anything; device-syncer does since version 0.3"]);
    });
    // What a rollout may hold back is told with it.
    rollouts::remember(&lab.home, 12, wfm_git_publisher::rollout::Phase::Running, &["press-01", "press-02"]);
    assert_eq!(
        left(&restarted(&lab, &["device", "restart", "press-01", "hello", "--wait=0s"])),
        ["not published for it; rollout 12 is open"]
    );
}
