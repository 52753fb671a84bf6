//! What an operator can say beyond what runs where, through both programs: suspension, order, and what fits a device.

use repo_model::Trailer;
use std::collections::BTreeMap;
use std::thread;

use serde_json::{Value, json};

use repo_testkit::git;

use crate::site::Site;
use repo_testkit::device::Device;
use repo_testkit::fleet::{DEPLOYMENT, Fleet};

/// State and code of the reason of a deployment, as the publisher tells it.
pub(crate) fn told(fleet: &Fleet, device: &str, deployment: &str) -> (String, String) {
    let status = fleet.status(device);
    let rows = status["deployments"].as_array().expect("rows");
    let row =
        rows.iter().find(|row| row["deployment"] == deployment).unwrap_or_else(|| panic!("{deployment}: {rows:?}"));
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let reason = word(&row["reason"]);
    (word(&row["state"]), reason.split(':').next().unwrap_or_default().to_owned())
}

/// A trailer of the newest `desired` commit.
fn trailer(fleet: &Fleet, device: &str, name: Trailer) -> String {
    let format = format!("--format=%(trailers:key={name},valueonly)");
    git::git(&fleet.repository(device), &["log", "-1", &format, "desired"]).trim().to_owned()
}

/// A deployment of the example on press-01.
fn deployment(fleet: &Fleet, id: &str, more: &str) {
    let text = format!(
        "id: {id}\napplication: {{id: hello, version: 1.0.0}}\ntargets: [{{devices: [press-01]}}]\n\
         parameters: {{greeting: {id}}}\n{more}"
    );
    fleet.write(&format!("deployments/{id}.yaml"), &text);
}

/// The deployments that docker was told to do something for since `before`, in the order of their first call.
fn touched(device: &Device, before: &str, names: &BTreeMap<String, String>) -> Vec<String> {
    let calls = device.calls();
    let new = calls.strip_prefix(before).expect("calls are only added");
    let mut order = Vec::new();
    for project in new.lines().filter_map(|line| line.split(' ').nth(1)?.split_once('/').map(|(project, _)| project)) {
        if !order.contains(&names[project]) {
            order.push(names[project].clone());
        }
    }
    order
}

/// The deployments of a device by the names of their projects.
fn names(device: &Device) -> BTreeMap<String, String> {
    let plan: Value = serde_json::from_slice(&device.syncer(&["plan", "--output", "json"]).stdout).expect("JSON");
    let deployments = plan["deployments"].as_array().expect("deployments").iter();
    let name = |value: &Value| value.as_str().expect("a name").to_owned();
    deployments.map(|one| (name(&one["components"][0]["project"]), name(&one["name"]))).collect()
}

#[test]
fn what_a_site_holds_is_shown_to_the_operator_with_who_says_so() {
    let site = Site::new(&["press-01"]);
    let (fleet, device) = (&site.fleet, site.device("press-01"));
    site.publish();
    site.pass();
    let hold = device.syncer(&["hold", "hello", "--by", "j.doe", "--why", "the press is open", "--for", "8h"]);
    assert!(hold.status.success(), "{hold:?}");
    device.pass();
    let gates = fleet.status("press-01")["gates"].clone();
    assert_eq!((&gates[0]["code"], &gates[0]["by"]), (&"held".into(), &"j.doe".into()), "{gates}");
    let shown = fleet.try_run(&["status"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("hello is held by j.doe since ") && shown.contains(": the press is open"), "{shown}");
    assert!(device.syncer(&["release", "hello"]).status.success());
    device.pass();
    assert_eq!(fleet.status("press-01")["gates"], Value::Array(vec![]));
}

#[test]
fn what_is_suspended_is_left_as_it_is_until_it_is_no_longer() {
    let site = Site::new(&["press-01"]);
    let (fleet, device) = (&site.fleet, site.device("press-01"));
    site.publish();
    site.pass();
    let calls = device.calls();

    for (file, what) in [("devices/press-01.yaml", "the device"), (DEPLOYMENT, "the deployment")] {
        let before = fleet.read(file);
        fleet.write(file, &format!("{before}\nsuspended: true\n"));
        fleet.change(DEPLOYMENT, "greeting: hello from the press", "greeting: servus from the press");
        site.publish();
        let output = device.syncer(&["once"]);
        assert_eq!(device.calls(), calls, "{what} is suspended: {}", String::from_utf8_lossy(&output.stderr));
        assert!(device.environments()[0].contains("hello from the press"), "{what}");
        assert_eq!(told(fleet, "press-01", "hello"), ("pending".to_owned(), "suspended".to_owned()), "{what}");
        assert_eq!(
            fleet.status("press-01")["adoptedSerial"],
            fleet.serial("press-01"),
            "{what}: it knows what it waits with"
        );

        // As it was before: nothing is to be done, whether it is suspended or not.
        fleet.change(DEPLOYMENT, "greeting: servus from the press", "greeting: hello from the press");
        let now = fleet.read(file);
        fleet.write(file, &now.replace("\nsuspended: true\n", ""));
        fleet.commit("go on");
        site.publish();
        device.pass();
        assert_eq!(device.calls(), calls, "{what}");
        assert_eq!(told(fleet, "press-01", "hello").0, "installed", "{what}");
    }
    fleet.change(DEPLOYMENT, "greeting: hello from the press", "greeting: servus from the press");
    site.publish();
    device.assert_converges(fleet, "after it all");
    assert!(device.environments()[0].contains("servus from the press"));
}

const PRESSES: [&str; 2] = ["press-01", "press-02"];

/// Two presses on which the example runs.
fn presses() -> Site {
    let site = Site::new(&PRESSES);
    site.publish();
    site.pass();
    site
}

/// How many containers were restarted on each of them.
fn restarts(site: &Site) -> [usize; 2] {
    PRESSES.map(|id| site.device(id).calls().matches("restart ").count())
}

#[test]
fn a_deployment_is_restarted_on_one_device_or_on_all_and_each_time_once() {
    let site = presses();
    let (fleet, services) = (&site.fleet, site.device("press-01").environments().len());
    let restart = |args: &[&str]| {
        fleet.run(&[args, &["-m", "it leaks"]].concat());
        site.publish();
        // The second one finds that nothing is left to do.
        site.pass();
        site.pass();
    };
    restart(&["device", "restart", "press-01", "hello"]);
    assert_eq!(restarts(&site), [services, 0]);
    let history = fleet.run(&["history", "press-01"]);
    assert!(history.contains("hello: installed > installing (restart-requested)"), "{history}");
    restart(&["deployment", "restart", "hello"]);
    assert_eq!(restarts(&site), [2 * services, services]);
    restart(&["device", "restart", "press-02", "hello"]);
    assert_eq!(restarts(&site), [2 * services, 2 * services]);
    fleet.assert_settled("after restarts");
}

#[test]
fn who_asks_for_a_restart_can_wait_for_it_and_no_number_is_used_again() {
    let site = presses();
    let (fleet, services) = (&site.fleet, site.device("press-01").environments().len());
    // Everything goes on while somebody waits.
    let restart = |args: &[&str]| {
        let output = thread::scope(|scope| {
            let args = [args, &["-m", "it leaks", "--wait=4m", "--output", "json"]].concat();
            let waits = scope.spawn(move || fleet.try_run(&args));
            while !waits.is_finished() {
                site.publish();
                site.pass();
            }
            waits.join().expect("it ends")
        });
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        (output.status.code().expect("it ends"), said)
    };
    site.device("press-02").set("remote", "{restart: false}");
    let (code, said) = restart(&["deployment", "restart", "hello"]);
    assert_eq!((code, &said["restart"], &said["done"]), (1, &json!(1), &json!(["press-01"])), "{said}");
    let (device, why) = (&said["left"][0]["device"], said["left"][0]["why"].as_str().expect("a reason"));
    assert!(device == "press-02" && why.contains("the site doesn't allow it"), "{said}");
    assert_eq!(restarts(&site), [services, 0]);
    site.device("press-02").set("remote", "{restart: true}");
    site.pass();
    let shown: Value =
        serde_json::from_str(&fleet.run(&["deployment", "show", "hello", "--output", "json"])).expect("JSON");
    let devices = shown["devices"].as_array().expect("devices");
    for device in devices.iter().filter(|device| device["membership"] == "enrolled") {
        assert_eq!(device["row"]["restarts"], json!({"asked": 1, "done": 1, "highest": 1}), "{shown}");
    }
    // An operator takes it back.
    fleet.change(DEPLOYMENT, "restart: 1\n", "");
    site.publish();
    site.pass();
    let (code, said) = restart(&["device", "restart", "press-01", "hello"]);
    assert_eq!((code, &said["restart"], &said["left"]), (0, &json!(2), &json!([])), "{said}");
    assert_eq!(restarts(&site), [2 * services, services]);
    fleet.assert_settled("after restarts that were waited for");
}

#[test]
fn what_a_deployment_depends_on_is_there_before_it_and_goes_after_it() {
    let site = Site::new(&["press-01"]);
    let (fleet, device) = (&site.fleet, site.device("press-01"));
    std::fs::remove_file(fleet.dir().join(DEPLOYMENT)).expect("removed");
    // Their names alone would give another order.
    deployment(fleet, "a-reader", "dependsOn: [m-broker]\n");
    deployment(fleet, "m-broker", "dependsOn: [z-storage]\n");
    deployment(fleet, "z-storage", "");
    fleet.commit("three on one device");
    site.publish();
    std::fs::write(device.docker_dir().join("knobs/fail-up"), "no such luck\n").expect("written");
    let output = device.syncer(&["once"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(told(fleet, "press-01", "z-storage"), ("failed".to_owned(), "compose-failed".to_owned()));
    for (waiting, code) in [("m-broker", "dependency-failed"), ("a-reader", "waiting-dependency")] {
        assert_eq!(told(fleet, "press-01", waiting), ("pending".to_owned(), code.to_owned()), "{waiting}");
    }

    assert!(device.syncer(&["retry"]).status.success());
    let names = names(device);
    let before = device.calls();
    device.assert_converges(fleet, "what failed is there");
    assert_eq!(touched(device, &before, &names), ["z-storage", "m-broker", "a-reader"]);

    let before = device.calls();
    for id in ["a-reader", "m-broker", "z-storage"] {
        std::fs::remove_file(fleet.dir().join(format!("deployments/{id}.yaml"))).expect("removed");
    }
    fleet.commit("nothing any more");
    fleet.run(&["publish", "--allow-removals"]);
    device.pass();
    assert_eq!(touched(device, &before, &names), ["a-reader", "m-broker", "z-storage"], "in the other direction");
    assert_eq!(device.environments().len(), 0);
}

/// The package with a profile for devices that label themselves as fast, and one for all others.
fn two_profiles(fleet: &Fleet) {
    let path = "applications/hello/1.0.0/margo.yaml";
    let text = fleet.read(path);
    let (before, profile) = text.split_once("deploymentProfiles:\n").expect("profiles");
    let (profile, after) = profile.split_once("parameters:\n").expect("parameters");
    let fast = profile.replace("id: hello-compose", "id: fast").trim_end().to_owned()
        + "\n    deviceConstraints:\n      eligibilityRules:\n        - labelSelector:\n            matchExpressions:\n              \
           - {key: class, operator: In, values: [fast]}\n";
    fleet.write(path, &format!("{before}deploymentProfiles:\n{fast}{profile}parameters:\n{after}"));
    fleet.replace(
        DEPLOYMENT,
        "application: {id: hello, version: 1.0.0}",
        "application: {id: hello, version: 1.0.0}\nprofile: auto",
    );
    fleet.commit("a profile for fast devices");
}

/// The device says of itself what its configuration says; it looks when it starts.
fn label(device: &Device, class: &str) {
    let path = device.home().join("device.yaml");
    let settings = std::fs::read_to_string(&path).expect("read");
    let settings = settings.lines().filter(|line| !line.starts_with("capabilities:")).collect::<Vec<_>>().join("\n");
    std::fs::write(&path, format!("{settings}\ncapabilities: {{labels: {{class: {class}}}}}\n")).expect("written");
}

fn profile(fleet: &Fleet) -> Value {
    let envelope = git::show(&fleet.repository("press-01"), "desired", "envelope.json").expect("an envelope");
    let envelope: Value = serde_json::from_slice(&envelope).expect("JSON");
    let (_, deployment) = envelope["deployments"].as_object().expect("deployments").iter().next().expect("one");
    deployment["profile"].clone()
}

#[test]
fn what_a_device_can_run_decides_what_it_gets_and_a_change_of_that_alone_is_told_as_the_cause() {
    let site = Site::new(&["press-01"]);
    let (fleet, device) = (&site.fleet, site.device("press-01"));
    two_profiles(fleet);
    label(device, "slow");
    // Nothing is known of it yet, and a profile asks.
    let said = String::from_utf8_lossy(&fleet.try_run(&["publish"]).stderr).into_owned();
    assert!(said.contains("waits until the device reports its capabilities"), "{said}");
    device.pass();
    site.publish();
    device.assert_converges(fleet, "it told what it can run");
    assert_eq!(profile(fleet), "hello-compose");
    let calls = device.calls();

    // What it has stays as long as it fits, whatever else would fit now.
    label(device, "fast");
    device.pass();
    site.publish();
    assert_eq!((profile(fleet), device.calls()), ("hello-compose".into(), calls), "what was chosen stays");

    // A package asks for something that the device has, until it has it no more.
    fleet.replace(DEPLOYMENT, "profile: auto", "profile: fast");
    fleet.commit("the fast one by name");
    site.publish();
    fleet.replace(DEPLOYMENT, "profile: fast", "profile: auto");
    fleet.commit("and then by itself");
    site.publish();
    assert_eq!(profile(fleet), "fast", "what it has fits");
    let serial = fleet.serial("press-01");
    label(device, "slow");
    device.pass();
    site.publish();
    assert_eq!((profile(fleet), fleet.serial("press-01")), ("hello-compose".into(), serial + 1));
    assert_eq!(trailer(fleet, "press-01", Trailer::Cause), "the device's capabilities changed");
    device.assert_converges(fleet, "the other profile");
    let explained = fleet.run(&["explain", "press-01", "hello"]);
    assert!(explained.contains("hello-compose"), "{explained}");
}
