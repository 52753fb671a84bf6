//! One result per object: what one deployment or component can't do is told, and its neighbours run.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use repo_git::{SigningKey, age};
use repo_testkit::{git, program};

use crate::world::{App, World, push, text};

/// Serial 2 wants `greeter`, which can't be, beside `other`, which can.
fn beside(world: &World, app: &App, change: impl FnOnce(&World)) {
    world.hand.want("greeter", app, "servus");
    world.hand.want("other", &world.app, "neighbour");
    change(world);
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("other"), ["hello installed"]);
    let mut greetings = world.greetings();
    greetings.sort();
    assert_eq!(greetings, ["hello", "neighbour"], "what ran before runs on");
    world.assert_quiet();
    world.assert_whole(false);
}

/// The next commit wants `greeter` as before.
fn cured(world: &World) {
    world.hand.drop("other");
    world.assert_cured();
    assert_eq!(world.states("greeter"), ["hello installed"]);
}

/// Packs and pushes an application of this one file.
fn application(world: &World, name: &str, compose: &str) -> App {
    let directory = world.path("application");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("compose.yaml"), compose).unwrap();
    push(&directory, name, "1.0.0")
}

#[test]
fn deployments_that_wait_for_nobody_or_for_each_other_hold_up_no_other() {
    let world = World::enrolled();
    for (name, after) in [("greeter", "third"), ("third", "greeter"), ("ghostly", "ghost"), ("other", "")] {
        world.hand.want(name, &world.app, name);
        if !after.is_empty() {
            world.hand.describe(name, |described| described["policy"] = serde_json::json!({"dependsOn": [after]}));
        }
    }
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.greetings(), ["other"]);
    for name in ["greeter", "third", "ghostly"] {
        assert_eq!(world.states(name), ["hello pending waiting-dependency"], "{name}");
    }
    assert_eq!(world.conditions(), Vec::<String>::new(), "the state as a whole is fine");
    world.assert_quiet();
    world.hand.describe("third", |described| drop(described.as_object_mut().unwrap().remove("policy")));
    world.hand.drop("ghostly");
    world.hand.publish();
    world.once().good();
    assert_eq!(world.greetings().len(), 3);
}

#[test]
fn a_helm_deployment_on_a_device_without_kubernetes() {
    let world = World::running();
    beside(&world, &world.app, |world| {
        world.hand.edit("greeter", |text| text.replace("type: compose", "type: helm"));
    });
    assert_eq!(world.states("greeter"), ["hello failed capability-missing"]);
    cured(&world);
}

#[test]
fn a_deployment_of_a_type_that_only_its_vendors_know() {
    let world = World::running();
    beside(&world, &world.app, |world| {
        world.hand.edit("greeter", |text| text.replace("type: compose", "type: custom"));
    });
    assert_eq!(world.states("greeter"), ["hello failed capability-missing"]);
    assert!(world.message("greeter").contains("no runtime for custom components"), "{}", world.message("greeter"));
    cured(&world);
}

/// The document then asks for a device of line 2.
fn for_line_2(text: &str) -> String {
    let rule = "{labelSelector: {matchExpressions: [{key: line, operator: In, values: ['2']}]}}";
    text.replace(
        "    type: compose\n",
        &format!("    type: compose\n    deviceConstraints: {{eligibilityRules: [{rule}]}}\n"),
    )
}

#[test]
fn a_deployment_that_asks_for_what_the_device_lacks() {
    let world = World::running();
    let settings = world.home().join("device.yaml");
    let plain = fs::read_to_string(&settings).unwrap();
    beside(&world, &world.app, |world| world.hand.edit("greeter", |text| for_line_2(&text)));
    assert_eq!(world.states("greeter"), ["hello failed capability-missing"]);
    let message = world.message("greeter");
    assert!(message.contains("it needs the label `line` In [\"2\"], and the device has none"), "{message}");
    // The site says more of the device, and nobody has to publish anything.
    fs::write(&settings, format!("{plain}\ncapabilities: {{labels: {{line: \"2\"}}}}\n")).unwrap();
    world.once().good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
    assert_eq!(world.greetings().len(), 2);
    // What was judged once and applied stays, and is put back.
    fs::write(&settings, &plain).unwrap();
    world.once().good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
    world.assert_quiet();
    // The pre-draft's words stand in the envelope.
    world.hand.want("greeter", &world.app, "once more");
    world
        .hand
        .describe("greeter", |described| described["requiredResources"] = serde_json::json!({"memory": "9999Gi"}));
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed capability-missing"]);
    assert!(world.message("greeter").contains("it needs 9999Gi of memory, and the device has "));
    cured(&world);
}

#[test]
fn a_device_file_that_is_missing_or_no_text() {
    let canary = "canary-5f0c";
    let world = World::running();
    let from_file = |world: &World| {
        world.hand.describe("greeter", |described| {
            described["valuesFrom"] = serde_json::json!({
                "secret": {"deviceFile": "db-password", "targets": [{"pointer": "SECRET", "components": ["hello"]}]},
            });
        });
    };
    beside(&world, &world.app, from_file);
    assert_eq!(world.states("greeter"), ["hello failed parameter-invalid"]);
    let path = world.home().join("device-files/db-password");
    assert!(world.message("greeter").contains(&path.display().to_string()), "{}", world.message("greeter"));
    for content in [format!("{canary}\0").into_bytes(), [canary.as_bytes(), &[0xff]].concat()] {
        fs::write(&path, content).unwrap();
        let run = world.once().ended(1);
        assert!(world.message("greeter").contains("db-password") && !world.message("greeter").contains(canary));
        assert!(!run.stderr.contains(canary), "{run:?}");
    }
    // The site puts it right, and nobody has to publish anything.
    fs::write(&path, canary).unwrap();
    world.once().good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
}

#[test]
fn an_archive_that_is_not_the_one_that_was_published() {
    let world = World::running();
    let other = application(&world, "other-bytes", "services: {web: {image: margo-test/busybox:1}}\n");
    beside(&world, &App { content: other.content, ..world.app.clone() }, |_| ());
    assert_eq!(world.states("greeter"), ["hello failed artifact-digest-changed"]);
    cured(&world);
}

#[test]
fn an_archive_that_does_not_exist() {
    let world = World::running();
    beside(
        &world,
        &App { revision: "9.9.9".to_owned(), content: format!("sha256:{:064}", 1), ..world.app.clone() },
        |_| (),
    );
    let state = world.states("greeter").remove(0);
    assert!(state.starts_with("hello pending artifact-") || state.starts_with("hello failed artifact-"), "{state}");
    cured(&world);
}

#[test]
fn an_application_that_wants_more_than_the_site_allows() {
    let world = World::running();
    let greedy = "services: {web: {image: margo-test/busybox:1, privileged: true}}\n";
    let app = application(&world, "greedy", greedy);
    beside(&world, &app, |_| ());
    assert_eq!(world.states("greeter"), ["hello failed policy-denied"]);
    assert!(world.message("greeter").contains("privileged"), "{}", world.message("greeter"));
    // The site allows it, and a person says so.
    world.settings("policy: {privileged: true}\n");
    world.once().ended(1);
    world.syncer(&["retry", "greeter"]).good();
    world.once().good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
}

#[test]
fn a_container_of_that_name_that_is_not_ours() {
    let world = World::enrolled();
    world.hand.want("greeter", &world.app, "servus");
    world.hand.want("other", &world.app, "neighbour");
    world.hand.publish();
    let plan: serde_json::Value =
        serde_json::from_str(&world.syncer(&["plan", "--output", "json"]).ended(3).stdout).unwrap();
    let project = plan["deployments"][0]["components"][0]["project"].as_str().unwrap().to_owned();
    let name = format!("{project}-web-1");
    let mut docker = Command::new(program("fake-docker"));
    docker.env("FAKE_DOCKER_STATE", world.fake.dir());
    text(docker.args(["create", "--name", &name, "margo-test/busybox:1"]).output().unwrap());
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed not-ours"]);
    assert_eq!(world.states("other"), ["hello installed"]);
    assert!(world.message("greeter").contains(&name) && world.message("greeter").contains("docker rm"));
    assert!(world.containers().iter().any(|one| one.contains(&name)), "it is left alone");
}

#[test]
fn an_archive_that_nothing_is_made_from_any_more_leaves_the_cache() {
    let world = World::running();
    let cached = || fs::read_dir(world.home().join("cache/sha256")).unwrap().count();
    assert_eq!(cached(), 1);
    let app = application(&world, "second", "services: {web: {image: margo-test/busybox:2}}\n");
    world.hand.want("greeter", &app, "hello");
    world.hand.want("other", &world.app, "hello");
    world.hand.publish();
    world.once().good();
    assert_eq!(cached(), 2);
    world.hand.drop("other");
    world.hand.publish();
    world.once().good();
    assert_eq!(cached(), 1);
    world.assert_idle();
}

#[test]
fn an_archive_that_nothing_is_made_from_any_more_leaves_the_cache_also_beside_one_that_never_succeeds() {
    let world = World::enrolled();
    let cached = || fs::read_dir(world.home().join("cache/sha256")).unwrap().count();
    let bad = application(&world, "bad", "services: {web: {image: margo-test/busybox:1, privileged: true}}\n");
    world.hand.want("bad", &bad, "hello");
    world.hand.want("greeter", &world.app, "hello");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!((world.states("bad"), cached()), (vec!["hello failed policy-denied".to_owned()], 2));
    let second = application(&world, "second", "services: {web: {image: margo-test/busybox:2}}\n");
    world.hand.want("greeter", &second, "hello");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(cached(), 2, "what failed is wanted all the same, and what ran before isn't");
    world.assert_quiet();
}

/// A document with two components, of which the second needs the first.
pub(crate) fn two_components(world: &World) {
    world.hand.edit("greeter", |text| {
        let begin = text.find("      - name: hello").unwrap();
        let end = text.find("  parameters:").unwrap();
        let second = text[begin..end].replace("name: hello", "name: second");
        format!("{}{second}{}", &text[..end], &text[end..])
    });
    world.hand.describe("greeter", |described| described["locks"]["second"] = described["locks"]["hello"].clone());
}

#[test]
fn components_are_applied_in_their_order_and_the_next_is_marked_with_the_one_before() {
    let world = World::enrolled();
    world.hand.want("greeter", &world.app, "hello");
    two_components(&world);
    world.hand.publish();
    world.once().good();
    assert_eq!(
        world.told()[1..],
        [
            "greeter/* pending > installing; greeter/hello pending > installing",
            "greeter/hello installing > installed; greeter/second pending > installing",
            "greeter/* installing > installed; greeter/second installing > installed",
        ]
    );
    world.assert_idle();
    // Without the second one again: it goes, and its neighbour stays as it is.
    let before = world.containers();
    world.hand.want("greeter", &world.app, "hello");
    world.hand.publish();
    world.once().good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
    assert_eq!(world.containers().len(), 1);
    assert!(before.contains(&world.containers()[0]));
    world.assert_idle();
}

#[test]
fn a_component_that_fails_holds_the_one_behind_it() {
    let world = World::enrolled();
    world.hand.want("greeter", &world.app, "hello");
    two_components(&world);
    world.hand.publish();
    world.fake.set("fail-up", "no such option");
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed compose-failed", "second pending waiting-dependency"]);
    world.assert_quiet();
    world.syncer(&["retry"]).good();
    world.once().good();
    assert_eq!(world.states("greeter"), ["hello installed", "second installed"]);
    world.assert_idle();
}

#[test]
fn the_status_lists_every_component_of_the_document_at_every_moment() {
    let world = World::enrolled();
    world.hand.want("greeter", &world.app, "hello");
    two_components(&world);
    world.hand.publish();
    world.once().good();
    let (repository, id) = (world.hand.repository(), world.hand.deployment_id("greeter"));
    for commit in git::git(&repository, &["rev-list", "status"]).lines() {
        let bytes = git::show(&repository, commit, &format!("deployments/{id}.json")).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(document["components"].as_array().unwrap().len(), 2, "{document}");
    }
}

/// Every file below a directory.
fn files(directory: PathBuf) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(path) } else { vec![path] }).collect()
}

/// An application that shows its `SECRET` to whoever looks at its container.
pub(crate) fn secretive(world: &World) -> App {
    application(
        world,
        "secretive",
        "services: {web: {image: margo-test/busybox:1, environment: {GREETING: \"${GREETING}\", SECRET: \"${SECRET}\"}}}\n",
    )
}

/// How the value of `SECRET` reaches the device.
type Give = fn(&World, &str);

pub(crate) fn by_device_file(world: &World, value: &str) {
    fs::write(world.home().join("device-files/db-password"), format!("{value}\n")).unwrap();
    secret_from(world, serde_json::json!({ "deviceFile": "db-password" }));
}

/// To the device's key, as stock age encrypts it.
fn encrypted(world: &World, value: &str) {
    let mut age = Command::new("age");
    let age = age.args(["--armor", "--recipient", &world.key()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut age = age.spawn().expect("age, see .ci/setup");
    age.stdin.take().unwrap().write_all(format!("{value}\n").as_bytes()).unwrap();
    let armor = String::from_utf8(age.wait_with_output().unwrap().stdout).unwrap();
    secret_from(world, serde_json::json!({ "encrypted": armor }));
}

fn secret_from(world: &World, mut from: serde_json::Value) {
    from["targets"] = serde_json::json!([{"pointer": "SECRET", "components": ["hello"]}]);
    world.hand.describe("greeter", |described| described["valuesFrom"] = serde_json::json!({ "secret": from }));
}

#[test]
fn values_of_device_files_reach_the_container_and_no_git_object() {
    reaches_the_container_and_no_git_object(by_device_file, false);
}

#[test]
fn encrypted_values_reach_the_container_and_no_git_object() {
    reaches_the_container_and_no_git_object(encrypted, true);
}

fn reaches_the_container_and_no_git_object(give: Give, is_in_git: bool) {
    let canary = "canary-91b7e2";
    let world = World::enrolled();
    world.hand.want("greeter", &secretive(&world), "hello");
    give(&world, canary);
    world.hand.publish();
    let run = world.once().good();
    assert!(world.containers()[0].contains(&format!("\"SECRET\":\"{canary}\"")), "{:?}", world.containers());
    assert!(!run.stderr.contains(canary) && !run.stdout.contains(canary));
    for repository in [world.hand.repository(), world.clone()] {
        let all = git::git(&repository, &["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"]);
        let names: Vec<_> = all.lines().map(str::to_owned).collect();
        for (name, object) in names.iter().zip(git::objects(&repository, &names)) {
            let text = String::from_utf8_lossy(&object.unwrap()).into_owned();
            assert!(!text.contains(canary), "{name} in {}", repository.display());
        }
    }
    let known = files(world.home()).into_iter().filter(|path| {
        fs::read(path).is_ok_and(|bytes| bytes.windows(canary.len()).any(|window| window == canary.as_bytes()))
    });
    let known: Vec<_> = known.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    let expected = if is_in_git { 1 } else { 2 };
    assert_eq!(known.len(), expected, "only the device file, if any, and what compose runs: {known:?}");
    let again = |value: &str| {
        give(&world, value);
        if is_in_git {
            world.hand.publish();
        }
        world.once().good();
    };
    // The same value, also encrypted anew, is the same input, and another one isn't.
    let before = world.containers();
    again(canary);
    assert_eq!(world.containers(), before);
    again("changed");
    assert!(world.containers()[0].contains("\"SECRET\":\"changed\""));
    world.assert_idle();
}

#[test]
fn a_value_that_is_encrypted_to_another_key_or_damaged() {
    let world = World::running();
    let other = age::encrypt(&[SigningKey::generate().public()], b"canary").unwrap();
    beside(&world, &world.app, |world| secret_from(world, serde_json::json!({ "encrypted": other })));
    assert_eq!(world.states("greeter"), ["hello failed secret-unreadable"]);
    assert!(
        world.message("greeter").contains("it isn't encrypted to this device's key"),
        "{}",
        world.message("greeter")
    );
    let own = world.key().parse().unwrap();
    for value in [&b"canary\0"[..], b"canary\xff"] {
        let armor = age::encrypt(&[own], value).unwrap();
        secret_from(&world, serde_json::json!({ "encrypted": armor }));
        world.hand.publish();
        let run = world.once().ended(1);
        assert_eq!(world.states("greeter"), ["hello failed secret-unreadable"]);
        assert!(!run.stderr.contains("canary") && !world.message("greeter").contains("canary"), "{run:?}");
    }
    cured(&world);
}
