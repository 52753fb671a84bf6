//! Syncers and their children that are there twice, hang, or go down with the device.

use std::collections::BTreeMap;
use std::process::Child;

use serde_json::{Value, json};

use super::*;
use crate::rollback;

/// A syncer in the middle of an update that hangs until `hang-up` is unset.
fn hanging_update(world: &World) -> Child {
    world.fake.set("hang-up", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let syncer = command(&world.home(), &["once"]).spawn().unwrap();
    until("it applies", || world.greetings() == ["servus"]);
    syncer
}

#[test]
fn two_syncers_do_not_work_on_one_home() {
    let world = World::running();
    world.fake.set("hang-up", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let first = command(&world.home(), &["once"]).spawn().unwrap();
    until("it applies", || world.states("greeter") == ["hello installing"]);
    for args in [["once"], ["run"]] {
        let run = world.syncer(&args).ended(1);
        assert!(run.stderr.contains("another device-syncer works on"), "{run:?}");
        assert!(run.stderr.contains("hint: ") && run.stderr.contains(&world.home().display().to_string()), "{run:?}");
    }
    let status = world.syncer(&["status"]).good();
    assert!(status.stdout.contains("greeter/hello  installing"), "{status:?}");
    world.fake.unset("hang-up");
    finish(first).good();
    world.assert_idle();
}

#[test]
fn a_syncer_that_is_to_wait_begins_once_the_other_one_has_ended() {
    let world = World::running();
    let first = hanging_update(&world);
    let mut second = command(&world.home(), &["run", "--wait", "5m"]).spawn().unwrap();
    assert!(!comes_within(Duration::from_secs(4), || second.try_wait().unwrap().is_some()), "it waits");
    world.fake.unset("hang-up");
    finish(first).good();
    world.told();
    world.hand.want("greeter", &world.app, "salut");
    world.hand.publish();
    until("it follows", || world.greetings() == ["salut"]);
    terminate(&second);
    let said = finish(second).good().stderr;
    assert!(said.contains("waiting for another device-syncer on this home to end, 300 s at most"), "{said}");
}

/// As somebody has who looks whether a syncer is at work, and a child that a killed syncer had not started yet.
#[test]
fn who_has_a_homes_lock_for_a_moment_is_waited_for() {
    use rustix::fs::{FlockOperation, flock};
    let world = World::running();
    let lock = fs::File::open(world.home().join("lock")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockShared).unwrap();
    let mut syncer = command(&world.home(), &["once"]).spawn().unwrap();
    assert!(!comes_within(Duration::from_millis(500), || syncer.try_wait().unwrap().is_some()), "it waits");
    drop(lock);
    finish(syncer).good();
}

#[test]
fn a_child_that_outlives_a_killed_syncer_is_waited_for() {
    let world = World::running();
    let mut first = hanging_update(&world);
    until("it has told so", || world.states("greeter") == ["hello installing"]);
    kill(&mut first);
    world.told();
    let log = world.path("second.log");
    let second = command(&world.home(), &["once"]).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    until("it waits", || fs::read_to_string(&log).unwrap().contains("waiting for what a killed syncer left running"));
    let waiting = world.fake.calls();
    world.fake.unset("hang-up");
    finish(second).good();
    assert!(world.fake.calls().starts_with(&waiting));
    assert_eq!(world.told(), ["greeter/* installing > installed; greeter/hello installing > installed"]);
    world.assert_idle();
}

#[test]
fn a_child_that_never_ends_is_ended() {
    let world = World::running();
    let mut first = hanging_update(&world);
    kill(&mut first);
    let left = holders(&world.home().join("children.lock"));
    assert!(!left.is_empty());
    let second = command(&world.home(), &["once"]).spawn().unwrap();
    // The knob is for the child of the first alone: the second's own call comes once that is gone.
    until("the child is ended", || left.iter().all(|pid| !holds(*pid, &world.home().join("children.lock"))));
    world.fake.unset("hang-up");
    let run = finish(second).good();
    assert!(run.stderr.contains("ending what a killed syncer left running"), "{run:?}");
    world.assert_idle();
}

/// What was begun and didn't come back, by project.
fn attempts(world: &World) -> BTreeMap<String, Value> {
    let bytes = git::show(&world.clone(), "refs/syncer/state", "attempt.json");
    bytes.map(|bytes| serde_json::from_slice(&bytes).unwrap()).unwrap_or_default()
}

/// A boot at whose end the device goes down while these are applied, which hang; all of them where there are several.
fn go_down(world: &World, boot: &str, applied: &[&str]) {
    world.reboot(boot);
    let projects: Vec<_> = applied.iter().map(|name| world.project(name)).collect();
    world.fake.set("hang-up", if let [project] = &projects[..] { project } else { "" });
    let mut syncer = command(&world.home(), &["once"]).spawn().unwrap();
    until("it applies", || {
        let attempts = attempts(world);
        let is_open = |project: &String| attempts.get(project).is_some_and(|one| one["bootId"] == boot);
        let children = holders(&world.home().join("children.lock"));
        projects.iter().all(is_open) && children.iter().filter(|pid| **pid != syncer.id()).count() >= projects.len()
    });
    kill(&mut syncer);
    world.fake.unset("hang-up");
    until("its children have ended", || holders(&world.home().join("children.lock")).is_empty());
    // What the power took: nothing says that the apply was complete.
    fs::remove_dir_all(world.home().join("projects")).unwrap();
}

#[test]
fn of_two_that_are_applied_when_the_device_goes_down_only_the_one_that_takes_it_down_alone_is_given_up() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "bomb");
    world.hand.want("other", &world.app, "hello");
    world.hand.publish();
    go_down(&world, "one", &["greeter", "other"]);
    for boot in ["two", "three", "four"] {
        go_down(&world, boot, &["greeter"]);
        let neighbour = attempts(&world).remove(&world.project("other"));
        assert!(neighbour.as_ref().is_none_or(|one| one["lost"] == 0), "boot {boot}: {neighbour:?}");
    }
    world.reboot("five");
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed crash-loop"]);
    assert_eq!(world.states("other"), ["hello installed"]);
}

#[test]
fn an_application_that_takes_the_device_down_soon_after_it_was_applied_is_given_up_after_three_boots() {
    let world = World::running();
    world.settings("poll: 1s\n");
    world.hand.want("greeter", &world.app, "bomb");
    world.hand.publish();
    for boot in ["one", "two", "three"] {
        rollback::go_down(&world, boot, "bomb");
    }
    world.reboot("four");
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed crash-loop"]);
    assert!(world.message("greeter").contains("the device went down 3 times"), "{}", world.message("greeter"));
    assert_eq!(world.greetings(), [""; 0], "the engine would start it at each boot");
    world.assert_quiet();
    // A person's word begins anew.
    world.syncer(&["retry", "greeter"]).good();
    rollback::go_down(&world, "five", "bomb");
    world.reboot("six");
    world.once().good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
}

#[test]
fn a_device_whose_power_is_cut_once_it_has_stayed_up_or_that_is_switched_off_gives_nothing_up() {
    let world = World::running();
    world.settings("poll: 1s\n");
    let want = |greeting: &str, seconds: u32| {
        world.hand.want("greeter", &world.app, greeting);
        world.hand.describe("greeter", |envelope| envelope["policy"] = json!({"stabiliseSeconds": seconds}));
        world.hand.publish();
    };
    want("hourly", 600);
    for boot in ["one", "two", "three", "four"] {
        world.reboot(boot);
        let syncer = command(&world.home(), &["run"]).spawn().unwrap();
        until("it runs", || world.greetings() == ["hourly"] && world.states("greeter") == ["hello installed"]);
        repo_testkit::terminate(&syncer);
        finish(syncer);
    }
    world.once().good();
    want("daily", 4);
    rollback::go_down(&world, "five", "daily");
    for boot in ["six", "seven", "eight"] {
        world.reboot(boot);
        let mut syncer = command(&world.home(), &["run"]).spawn().unwrap();
        until("it has stayed up", || attempts(&world).is_empty());
        kill(&mut syncer);
    }
    world.reboot("nine");
    world.once().good();
    assert_eq!(
        (world.states("greeter"), world.greetings()),
        (vec!["hello installed".to_owned()], vec!["daily".to_owned()])
    );
}

#[test]
fn an_application_that_takes_the_device_down_is_given_up_after_three_boots() {
    let world = World::running();
    // With two at work, both would be suspects.
    world.settings("jobs: 1\n");
    world.hand.want("greeter", &world.app, "bomb");
    world.hand.want("other", &world.app, "hello");
    world.hand.publish();
    for boot in ["one", "two", "three"] {
        go_down(&world, boot, &["greeter"]);
    }
    world.reboot("four");
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed crash-loop"]);
    assert_eq!(world.states("other"), ["hello installed"]);
    // The engine would start it at each boot, before the syncer.
    assert_eq!(world.greetings(), ["hello"]);
    let told = world.told().join("; ");
    assert_eq!(told.matches("greeter/hello pending > installing").count(), 1, "{told}");
    assert_eq!(told.matches("greeter/hello installing > failed crash-loop").count(), 1, "{told}");
    world.assert_quiet();
    world.hand.want("greeter", &world.app, "harmless");
    world.hand.publish();
    world.once().good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
}
