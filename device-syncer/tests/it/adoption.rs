//! From a commit on `desired` to containers and a signed history, and back to nothing.

use std::collections::BTreeSet;
use std::fs;

use repo_testkit::git;

use crate::world::{DEVICE, World};

#[test]
fn a_device_repository_made_by_hand_is_adopted_and_each_step_is_told() {
    let world = World::enrolled();
    world.hand.want("greeter", &world.app, "\"hi \\\"there\\\" $x\"");
    world.hand.publish();
    world.once().good();
    assert_eq!(world.greetings(), ["hi \"there\" $x"]);
    assert_eq!(
        world.told(),
        [
            "greeter/* none > pending queued; greeter/hello none > pending queued",
            "greeter/* pending > installing; greeter/hello pending > installing",
            "greeter/* installing > installed; greeter/hello installing > installed",
        ]
    );
    assert_eq!(world.states("greeter"), ["hello installed"]);
    assert_eq!(world.conditions(), Vec::<String>::new());
    world.assert_whole(true);
}

#[test]
fn stock_git_verifies_every_commit_that_the_device_made() {
    let world = World::running();
    let signers = world.hand.allowed_signers(DEVICE, &world.key());
    let config = format!("gpg.ssh.allowedSignersFile={}", signers.display());
    let repository = world.hand.repository();
    let log = git::git(&repository, &["-c", &config, "log", "--format=%H %G? %GS", "status", "heartbeat", "--"]);
    assert_eq!(log.lines().count(), 4);
    for line in log.lines() {
        assert!(line.ends_with(&format!(" G {DEVICE}")), "{line}");
        let commit = line.split(' ').next().unwrap();
        git::git(&repository, &["-c", &config, "verify-commit", commit]);
    }
    let message = git::git(&repository, &["log", "-1", "--format=%B", "status"]);
    let (fleet, desired, id) = (world.hand.fleet(), world.hand.tip("desired"), world.hand.deployment_id("greeter"));
    assert_eq!(
        message.trim_end(),
        format!(
            "hello installed (serial 1)\n\nKind: status\nFleet: {fleet}\nDevice: {DEVICE}\nSerial: 1\nDesired-Commit: \
             {desired}\nState: {id}/* installing > installed\nState: {id}/hello installing > installed"
        )
    );
}

#[test]
fn the_second_pass_does_nothing() {
    let world = World::running();
    world.assert_idle();
    world.assert_idle();
    assert_eq!(world.told(), Vec::<String>::new());
}

#[test]
fn a_heartbeat_writes_nothing_to_the_devices_disk() {
    let world = World::running();
    let packs = || {
        let entries = fs::read_dir(world.clone().join("objects/pack")).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<BTreeSet<_>>()
    };
    let (before, beat) = (packs(), world.hand.tip("heartbeat"));
    world.once().good();
    let after = world.hand.tip("heartbeat");
    assert_ne!(after, beat, "another heartbeat");
    assert_eq!(packs(), before);
    let stored = git::command(&world.clone()).args(["cat-file", "-e", &after]).status().unwrap();
    assert!(!stored.success(), "the clone doesn't have it");
}

#[test]
fn the_heartbeat_says_what_runs_and_is_no_history() {
    let world = World::running();
    world.once().good();
    let repository = world.hand.repository();
    assert_eq!(git::git(&repository, &["rev-list", "--count", "heartbeat"]), "1");
    let bytes = git::show(&repository, "heartbeat", "current-state.json").unwrap();
    let state: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let component = &state["deployments"][world.hand.deployment_id("greeter").to_string()]["components"]["hello"];
    assert_eq!(state["serial"], 1);
    assert_eq!((&component["state"], &component["health"]), (&"installed".into(), &"healthy".into()));
    assert_eq!((&component["drift"], &component["attempts"]), (&"none".into(), &0.into()));
    assert!(component["inputDigest"].as_str().unwrap().starts_with("sha256:"));
}

#[test]
fn a_changed_parameter_is_applied() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
    assert_eq!(
        world.told(),
        [
            "greeter/* installed > pending queued; greeter/hello installed > pending queued",
            "greeter/* pending > installing; greeter/hello pending > installing",
            "greeter/* installing > installed; greeter/hello installing > installed",
        ]
    );
    world.assert_idle();
}

#[test]
fn other_bytes_with_the_same_meaning_touch_nothing() {
    let world = World::running();
    let before = (world.fake.calls(), world.containers());
    world.hand.edit("greeter", |text| {
        text.replace("value: hello", "value: \"hello\"")
            .replace("timeout: 1m", "timeout: 2m")
            .replace("  name: greeter", "  name: renamed")
    });
    world.hand.publish();
    world.once().good();
    assert_eq!((world.fake.calls(), world.containers()), before);
    assert_eq!(world.told(), [""], "the adoption is told, and no transition");
    assert_eq!(world.report()["adopted"]["serial"], 2);
    world.assert_idle();
}

#[test]
fn what_is_no_longer_wanted_is_removed_and_told_once() {
    let world = World::running();
    world.hand.drop("greeter");
    world.hand.publish();
    world.once().good();
    assert_eq!(world.containers(), Vec::<String>::new());
    assert_eq!(
        world.told(),
        [
            "greeter/* installed > removing; greeter/hello installed > removing",
            "greeter/* removing > removed; greeter/hello removing > removed",
        ]
    );
    assert_eq!(world.states("greeter"), ["hello removed"]);
    assert_eq!(fs::read_dir(world.home().join("projects")).unwrap().count(), 0);
    world.assert_idle();
    world.hand.want("other", &world.app, "hello");
    world.hand.publish();
    world.once().good();
    assert_eq!(world.states("greeter"), Vec::<String>::new(), "the next adoption forgets it");
    world.assert_idle();
}

#[test]
fn a_deployment_that_comes_back_is_new() {
    let world = World::running();
    world.hand.drop("greeter");
    world.hand.publish();
    world.once().good();
    world.hand.want("greeter", &world.app, "again");
    world.hand.publish();
    world.once().good();
    assert_eq!(world.greetings(), ["again"]);
    assert_eq!(world.states("greeter"), ["hello installed"]);
    world.assert_idle();
}

#[test]
fn deployments_are_independent() {
    let world = World::enrolled();
    for name in ["greeter", "other", "third"] {
        world.hand.want(name, &world.app, name);
    }
    world.hand.publish();
    world.once().good();
    assert_eq!(world.containers().len(), 3);
    let before = world.containers();
    world.hand.want("other", &world.app, "changed");
    world.hand.drop("third");
    world.hand.publish();
    world.once().good();
    let kept: Vec<_> = world.containers().into_iter().filter(|one| before.contains(one)).collect();
    assert_eq!(kept.len(), 1, "greeter's container is the same");
    assert_eq!(world.states("other"), ["hello installed"]);
    assert_eq!(world.states("third"), ["hello removed"]);
    world.assert_idle();
}

#[test]
fn before_it_is_enrolled_a_device_waits_and_tells_later_what_it_had_to_say() {
    let world = World::joined();
    let run = world.once().ended(1);
    assert!(run.stderr.contains("NotEnrolled"), "{run:?}");
    world.once().ended(1);
    let repository = world.hand.repository();
    assert_eq!(git::refs(&repository).len(), 0, "nothing is pushed before a `desired` is believed");
    assert_eq!(world.history(&world.clone()).len(), 1, "it is said once");
    world.hand.enroll(&world.key());
    world.hand.want("greeter", &world.app, "hello");
    world.hand.publish();
    world.once().good();
    let serials =
        git::git(&repository, &["log", "--reverse", "--format=%(trailers:key=Serial,valueonly,separator=)", "status"]);
    assert_eq!(serials.lines().collect::<Vec<_>>(), ["0", "1", "1", "1"]);
    let first = git::git(
        &repository,
        &["log", "--reverse", "--format=%(trailers:key=Desired-Commit,valueonly,separator=)", "status"],
    );
    assert_eq!(first.lines().next(), Some(""), "a commit of the backlog names no desired state");
    world.assert_idle();
}

#[test]
fn an_empty_desired_state_is_one_too() {
    let world = World::enrolled();
    world.hand.publish();
    world.once().good();
    assert_eq!(world.report()["adopted"]["serial"], 1);
    world.assert_idle();
}

/// The manifest versions that the tip of `status` gives: of the syncer, then of each deployment.
fn adopted(world: &World, names: &[&str]) -> Vec<u64> {
    let of_deployment = |name: &&str| {
        let path = format!("deployments/{}.json", world.hand.deployment_id(name));
        let bytes = git::show(&world.hand.repository(), "status", &path).unwrap();
        serde_json::from_slice::<serde_json::Value>(&bytes).unwrap()["adoptedManifestVersion"].as_u64().unwrap()
    };
    let syncer = world.report()["adopted"]["manifestVersion"].as_u64().unwrap();
    std::iter::once(syncer).chain(names.iter().map(of_deployment)).collect()
}

#[test]
fn every_deployment_gives_the_newest_manifest_that_was_adopted() {
    let world = World::running();
    world.hand.want("other", &world.app, "neighbour");
    world.hand.publish();
    world.once().good();
    assert_eq!(adopted(&world, &["greeter", "other"]), [2, 2, 2], "though nothing changed for the first");
    world.hand.want("other", &world.app, "changed");
    world.hand.publish();
    world.once().good();
    assert_eq!(adopted(&world, &["greeter", "other"]), [3, 3, 3], "and an update is no way back to an older one");
    world.hand.drop("other");
    world.hand.publish();
    world.once().good();
    assert_eq!(adopted(&world, &["greeter", "other"]), [4, 4, 4], "what is removed too");
    world.assert_idle();
}

/// The keys that `desired` lists from the next publish on.
fn list(world: &World, keys: &[&str]) {
    fs::write(world.hand.path("var.status_key"), keys.iter().map(|key| format!("{key}\n")).collect::<String>())
        .unwrap();
}

/// Where the branches stand that a device writes.
fn told(world: &World) -> [Option<String>; 2] {
    ["status", "heartbeat"].map(|branch| git::tip(&world.hand.repository(), branch))
}

#[test]
fn a_device_that_is_not_listed_adopts_nothing_and_tells_the_host_nothing() {
    let world = World::joined();
    list(&world, &[&world.hand.public("rightful")]);
    world.hand.want("greeter", &world.app, "hello");
    world.hand.publish();
    world.once().ended(1).says(&["Waiting", "NotListed", "device enroll press-01", &world.key()]);
    assert_eq!((world.containers(), told(&world)), (Vec::new(), [None, None]));
    let shown = world.syncer(&["status"]).good().stdout;
    assert!(shown.contains("adopted: nothing yet") && shown.contains("Waiting: NotListed: "), "{shown}");
    let plan = world.syncer(&["plan"]).ended(1).stdout;
    assert!(plan.contains("Waiting: NotListed: ") && !plan.contains("adopts serial"), "{plan}");
    world.assert_quiet();

    list(&world, &[&world.key()]);
    world.hand.publish();
    world.once().good();
    assert_eq!((world.greetings(), world.conditions()), (vec!["hello".to_owned()], Vec::new()));
    assert!(!world.syncer(&["status"]).good().stdout.contains("NotListed"));
    world.assert_idle();
}

#[test]
fn a_device_that_another_one_replaced_heals_what_runs_and_neither_follows_nor_pushes() {
    let world = World::running();
    let before = told(&world);
    list(&world, &[&world.hand.public("rightful")]);
    world.hand.want("greeter", &world.app, "not for this one");
    world.hand.want("other", &world.app, "nor this");
    world.hand.publish();
    world.once().ended(1).says(&["NotListed"]);
    assert_eq!((world.greetings(), told(&world)), (vec!["hello".to_owned()], before.clone()));
    let heal = |why: &str| {
        let path = world.fake.dir().join("state.json");
        let mut state: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        state["containers"] = serde_json::json!({});
        fs::write(path, state.to_string()).unwrap();
        world.once().ended(1);
        assert_eq!((world.greetings(), told(&world)), (vec!["hello".to_owned()], before.clone()), "{why}");
    };
    heal("another device's state isn't followed, and what runs is healed");
    // What it said of itself meanwhile is kept, and what it knew while the host is away.
    let (there, away) = (world.hand.repository(), world.path("away"));
    fs::rename(&there, &away).unwrap();
    fs::create_dir(&there).unwrap();
    world.once().ended(1).says(&["can't be reached"]);
    assert!(world.syncer(&["status"]).good().stdout.contains("Waiting: NotListed: "));
    fs::remove_dir(&there).unwrap();
    fs::rename(&away, &there).unwrap();
    heal("after the host was away");

    list(&world, &[&world.key()]);
    world.hand.drop("other");
    world.hand.publish();
    world.once().good();
    assert_eq!(world.greetings(), ["not for this one"]);
    world.assert_cured();
}
