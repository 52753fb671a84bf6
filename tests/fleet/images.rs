//! The images of a published application stay what they were, whatever becomes of their names.

use std::process::{Command, Stdio};

use repo_testkit::git;
use serde_json::Value;

use crate::site::{Site, registry_name};
use repo_testkit::fleet::{DEPLOYMENT, Fleet};
use repo_testkit::{registry, text};

const COMPOSE: &str = "applications/hello/1.0.0/compose/hello/compose.yaml";
const DEVICE: &str = "press-01";

fn docker(args: &[&str]) -> String {
    text(Command::new("docker").args(args).stdin(Stdio::null()).output().expect("docker runs"))
}

/// Lets a name in the registry mean one of the tests' two images; the digest that it has then.
fn mean(name: &str, image: u8) -> String {
    docker(&["tag", &format!("margo-test/busybox:{image}"), name]);
    docker(&["push", "--quiet", name]);
    let digests = docker(&["image", "inspect", "--format", "{{join .RepoDigests \"\\n\"}}", name]);
    docker(&["image", "rm", name]);
    let repository = name.rsplit_once(':').expect("a tag").0;
    let digest = digests.lines().find_map(|one| one.strip_prefix(&format!("{repository}@")));
    digest.expect("it was pushed").to_owned()
}

/// The images of the only component of a deployment, as they are published for a device.
fn locked(fleet: &Fleet, deployment: &str) -> Value {
    let envelope = git::show(&fleet.repository(DEVICE), "desired", "envelope.json").expect("published");
    let envelope: Value = serde_json::from_slice(&envelope).expect("JSON");
    let mut all = envelope["deployments"].as_object().expect("deployments").values();
    let found = all.find(|one| one["id"] == deployment).unwrap_or_else(|| panic!("{deployment} is published"));
    found["locks"]["hello"]["images"].clone()
}

/// A site whose application runs this image.
fn site(image: &str) -> Site {
    let site = Site::new(&[DEVICE]);
    set_image(&site.fleet, image);
    site
}

/// Nothing is published yet.
fn set_image(fleet: &Fleet, image: &str) {
    let before = fleet.read(COMPOSE);
    let line = before.lines().find(|line| line.trim_start().starts_with("image:")).expect("an image");
    fleet.replace(COMPOSE, line, &format!("    image: \"{image}\""));
    fleet.push_application();
    fleet.commit("another image");
}

#[test]
fn an_image_is_locked_when_it_is_published_and_keeps_its_bytes_though_its_tag_moves() {
    let unique = registry_name(tempfile::tempdir().expect("a directory").path());
    let name = format!("{}/images/{unique}", registry());
    let (one, two) = (mean(&format!("{name}:1"), 1), mean(&format!("{name}:2"), 2));
    let site = site(&format!("{name}:${{INTERVAL:-1}}"));
    let fleet = &site.fleet;
    let greeting = "  greeting: hello from the press\n";
    fleet.replace(DEPLOYMENT, greeting, &format!("  interval: 1\n{greeting}"));
    fleet.commit("the first tag");
    site.publish();
    assert_eq!(locked(fleet, "hello"), serde_json::json!({format!("{name}:1"): one}));
    site.pass();
    let calls = site.device(DEVICE).calls();
    assert!(calls.contains(&format!("pull {name}@{one}")), "{calls}");
    let message = git::git(&fleet.repository(DEVICE), &["log", "--format=%B", "desired"]);
    assert!(!message.contains(&name), "a name may hold parameters: {message}");
    fleet.assert_settled("after the first publish");

    // The tag moves: nothing that is published changes, not even when the memory is lost.
    mean(&format!("{name}:1"), 2);
    fleet.change(DEPLOYMENT, "hello from the press", "servus");
    site.publish();
    assert_eq!(locked(fleet, "hello"), serde_json::json!({format!("{name}:1"): one}));
    std::fs::remove_dir_all(fleet.control()).expect("removed");
    fleet.change(DEPLOYMENT, "servus", "hello again");
    site.publish();
    assert_eq!(locked(fleet, "hello"), serde_json::json!({format!("{name}:1"): one}));

    // Another value is another name, and its meaning is found out then.
    fleet.change(DEPLOYMENT, "interval: 1", "interval: 2");
    site.publish();
    assert_eq!(locked(fleet, "hello"), serde_json::json!({format!("{name}:2"): two}));
    fleet.assert_settled("after the tag moved");
}

#[test]
fn an_image_that_cannot_be_resolved_holds_back_only_its_deployment_unless_the_fleet_leaves_it_to_the_devices() {
    let nowhere = "127.0.0.1:1/nothing/here:1";
    let site = Site::new(&[DEVICE]);
    let fleet = &site.fleet;
    let margo = fleet.read("applications/hello/1.0.0/margo.yaml");
    let margo = margo.replace("1.0.0", "2.0.0");
    fleet.write("applications/hello/2.0.0/margo.yaml", &margo);
    let compose = fleet.read(COMPOSE);
    let line = compose.lines().find(|line| line.trim_start().starts_with("image:")).expect("an image");
    let compose = compose.replace(line, &format!("    image: {nowhere}"));
    fleet.write("applications/hello/2.0.0/compose/hello/compose.yaml", &compose);
    fleet.run(&["app", "push", "applications/hello/2.0.0"]);
    let deployment = format!(
        "id: far\napplication: {{id: hello, version: 2.0.0}}\ntargets: [{{devices: [{DEVICE}]}}]\n\
         parameters: {{greeting: hi}}\n"
    );
    fleet.write("deployments/far.yaml", &deployment);
    fleet.commit("an image that is out of reach");
    let output = fleet.try_run(&["publish"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(nowhere) && said.contains("lockedByDevices"), "{said}");
    assert!(locked(fleet, "hello").is_object(), "its neighbour is published");
    let envelope = git::show(&fleet.repository(DEVICE), "desired", "envelope.json").expect("published");
    assert!(!String::from_utf8_lossy(&envelope).contains("\"far\""));

    fleet.write("fleet.yaml", &(fleet.read("fleet.yaml") + "images: {lockedByDevices: [\"127.0.0.1:1\"]}\n"));
    fleet.commit("the fleet's registry");
    site.publish();
    assert_eq!(locked(fleet, "far"), Value::Null);
    site.pass();
    let told = git::show(&fleet.repository(DEVICE), "status", "images.json").expect("the device says what it locked");
    assert!(String::from_utf8_lossy(&told).contains(nowhere), "{}", String::from_utf8_lossy(&told));
    fleet.assert_settled("after that");
}
