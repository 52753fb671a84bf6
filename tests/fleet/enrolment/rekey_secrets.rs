//! Encrypted values and a new key: what runs goes on with the old key's, until the value is given again.

use std::process::{Command, Stdio};

use repo_testkit::device::Device;
use repo_testkit::fleet::DEPLOYMENT;
use serde_json::{Value, json};

use super::rekey::{approve, installed, key, rekey};
use super::{Site, said};
use crate::hosted::ID;
use crate::secrets::give;

const FILE: &str = "secrets/hello-token/press-01.age";

/// What stock age reads of the fleet's file with a key of the device.
fn stock(site: &Site, device: &Device, name: &str) -> Option<String> {
    let key = device.home().join(name);
    let age = Command::new("age").arg("--decrypt").arg("--identity").arg(key).arg(site.fleet.dir().join(FILE)).output();
    let age = age.expect("age, see .ci/setup");
    age.status.success().then(|| String::from_utf8(age.stdout).expect("text"))
}

fn list(site: &Site) -> Value {
    let listed: Value = serde_json::from_str(&site.fleet.run(&["secret", "list", "--output", "json"])).expect("JSON");
    listed["secrets"][0].clone()
}

/// Publishes, which ends with this code; what was said.
#[track_caller]
fn publish(site: &Site, code: i32) -> String {
    let output = site.fleet.try_run(&["publish"]);
    assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    said(&output)
}

#[test]
fn what_runs_with_a_secret_goes_on_after_a_new_key_and_the_old_one_goes_when_the_value_is_given_again() {
    let site = Site::new().open();
    let (fleet, device) = (&site.fleet, installed(&site));
    let from = |source: &str| format!("token: {{valueFrom: {{{source}: hello-token}}}}");
    fleet.change(DEPLOYMENT, &format!("  # {}", from("deviceFile")), &format!("  {}", from("encrypted")));
    assert!(publish(&site, 1).contains("has no value for the device"));
    give(fleet, &["set", "hello-token"], "canary-of-the-first-day");
    publish(&site, 0);
    device.pass();
    assert!(device.environments()[0].contains("canary-of-the-first-day"), "{:?}", device.environments());
    assert_eq!(stock(&site, &device, "status.key").as_deref(), Some("canary-of-the-first-day"));
    assert!(!device.home().join("status.key.old").exists());

    // The new key can't read it, so the deployment stays as it is, and the old key with it.
    rekey(&device);
    approve(&site);
    let told = publish(&site, 1);
    assert!(told.contains("is encrypted to a key that isn't the device's now"), "{told}");
    assert!(
        list(&site)["unreadable"]
            .as_array()
            .is_some_and(|all| all.contains(&json!({ "device": ID, "why": "other-key" })))
    );
    let before = device.environments();
    device.pass();
    let (old, new) = (key(&device, "status.key.old").public(), key(&device, "status.key").public());
    assert_ne!(old, new);
    device.pass();
    assert_eq!(device.environments(), before, "what runs goes on");
    assert_eq!(stock(&site, &device, "status.key"), None);
    // What an editor and stock age write is as good: the same value, to the new key.
    let value = site.dir.path().join("value");
    std::fs::write(&value, "canary-of-the-first-day").expect("written");
    let mut age = Command::new("age");
    age.args(["--armor", "--recipient", &new.to_string(), "--output"]).arg(fleet.dir().join(FILE)).arg(&value);
    assert!(age.stdout(Stdio::null()).status().expect("age, see .ci/setup").success());
    fleet.commit("given again");
    publish(&site, 0);
    let calls = device.calls().lines().filter(|line| line.starts_with("create ")).count();
    device.pass();
    device.pass();
    assert_eq!(
        device.calls().lines().filter(|line| line.starts_with("create ")).count(),
        calls,
        "it is the same value"
    );
    assert!(!device.home().join("status.key.old").exists(), "nothing is encrypted to the old key any more");

    give(fleet, &["rotate", "hello-token"], "canary-of-the-second-day");
    publish(&site, 0);
    device.pass();
    assert!(device.environments()[0].contains("canary-of-the-second-day"));
}
