//! What ran well is put back where an update fails for good: by the device alone, and once.

use std::fs;
use std::process::Child;

use repo_testkit::cluster::HELM_4;
use repo_testkit::{git, terminate};
use serde_json::json;

use crate::docker::{CHECK, Real, docker};
use crate::helm::Charts;
use crate::world::{World, command, finish, kill, until};

/// A device on which `greeter` has run well for long enough, with `onFailure: last-good`.
fn with_last_good() -> World {
    let world = World::enrolled();
    world.settings("poll: 1s\n");
    want(&world, "hello", "last-good");
    stabilise(&world);
    world
}

/// Runs what is wanted until it is the last good set; on a slow machine it is before the first command ends.
pub(crate) fn stabilise(world: &World) {
    world.once().good();
    let syncer = run(world);
    until("it is the last good one", || state_file(world, "set.json").is_some());
    stop(syncer);
}

/// Publishes this greeting, and what a failure of it leads to.
fn want(world: &World, greeting: &str, on_failure: &str) {
    world.hand.want("greeter", &world.app, greeting);
    describe(world, on_failure);
    world.hand.publish();
}

fn describe(world: &World, on_failure: &str) {
    describe_for(world, on_failure, 1);
}

/// What is on trial for so many seconds.
fn describe_for(world: &World, on_failure: &str, stabilise: u64) {
    world.hand.describe("greeter", |envelope| {
        envelope["policy"] = json!({"onFailure": on_failure, "stabiliseSeconds": stabilise});
    });
}

fn run(world: &World) -> Child {
    command(&world.home(), &["run"]).spawn().unwrap()
}

fn stop(syncer: Child) {
    terminate(&syncer);
    finish(syncer);
}

/// A file of the last good set in the device state.
fn state_file(world: &World, name: &str) -> Option<Vec<u8>> {
    let path = format!("deployments/{}/last-good/{name}", world.hand.deployment_id("greeter"));
    git::show(&world.clone(), "refs/syncer/state", &path)
}

#[test]
fn what_ran_well_is_put_back_offline_and_across_power_cuts() {
    let world = with_last_good();
    world.fake.set("fail-up", "the port is taken");
    want(&world, "servus", "last-good");
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed compose-failed"]);
    // From here on nobody answers, and the power goes while the old container is made anew.
    let (host, away) = (world.hand.repository(), world.path("away.git"));
    fs::rename(&host, &away).unwrap();
    world.fake.set("hang-up", "");
    let mut syncer = command(&world.home(), &["once"]).spawn().unwrap();
    until("it puts back what was", || world.greetings() == ["hello"]);
    kill(&mut syncer);
    world.fake.unset("hang-up");
    world.reboot("second boot");
    world.once().ended(1);
    assert_eq!(world.greetings(), ["hello"]);
    fs::rename(&away, &host).unwrap();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed rolled-back"]);
    let message = world.message("greeter");
    assert!(
        message.starts_with("what ran before runs instead, because of compose-failed: component `hello`: "),
        "{message}"
    );
    assert!(message.contains("the port is taken"), "{message}");
    // That is how it stays, and it heals.
    world.assert_quiet();
    world.stop_all();
    world.once().ended(1);
    assert_eq!(
        (world.greetings(), world.states("greeter")),
        (vec!["hello".to_owned()], vec!["hello failed rolled-back".to_owned()])
    );
    // Another set is tried, and the one that failed again after it.
    want(&world, "moin", "last-good");
    world.once().good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
    want(&world, "servus", "last-good");
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
    world.assert_idle();
}

#[test]
fn what_failed_and_waits_to_be_put_back_is_told_as_failed() {
    let world = with_last_good();
    let hold = || world.syncer(&["hold", "--by", "j.doe", "--why", "line 2"]).good();
    world.fake.set("fail-up", "the port is taken");
    want(&world, "servus", "last-good");
    world.once().ended(1);
    hold();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed compose-failed"]);
    let message = world.message("greeter");
    assert!(message.contains("the port is taken; what ran before isn't put back yet"), "{message}");
    assert_eq!(world.report()["gates"][0]["code"], "held");
    world.assert_quiet();
    world.syncer(&["release"]).good();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed rolled-back"]);
    // So is what was put back and isn't healed now.
    hold();
    world.stop_all();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed rolled-back"]);
    world.syncer(&["release"]).good();
    world.once().ended(1);
    assert_eq!(
        (world.greetings(), world.states("greeter")),
        (vec!["hello".into()], vec!["hello failed rolled-back".into()])
    );
}

/// A boot at the end of which the device goes down while a syncer watches what was just applied.
pub(crate) fn go_down(world: &World, boot: &str, greeting: &str) {
    world.reboot(boot);
    let mut syncer = run(world);
    until("it watches", || {
        let attempts = git::show(&world.clone(), "refs/syncer/state", "attempt.json").unwrap_or_default();
        let attempts: serde_json::Value = serde_json::from_slice(&attempts).unwrap_or_default();
        let attempt = &attempts[world.project("greeter")];
        attempt["onTrial"] == true && attempt["bootId"] == boot && world.greetings() == [greeting]
    });
    kill(&mut syncer);
}

#[test]
fn what_takes_the_device_down_again_and_again_before_it_was_good_is_put_back() {
    let world = with_last_good();
    world.hand.want("greeter", &world.app, "servus");
    describe_for(&world, "last-good", 600);
    world.hand.publish();
    for boot in ["one", "two", "three"] {
        go_down(&world, boot, "servus");
    }
    world.reboot("four");
    let plan = world.syncer(&["plan"]).good();
    assert!(plan.stdout.contains("greeter/hello: keep"), "{plan:?}");
    world.once().ended(1);
    assert_eq!(
        (world.greetings(), world.states("greeter")),
        (vec!["hello".into()], vec!["hello failed rolled-back".into()])
    );
    let message = world.message("greeter");
    assert!(message.contains("crash-loop") && message.contains("the device went down 3 times"), "{message}");
    // What ran well before isn't on trial, however often the power goes.
    for boot in ["five", "six", "seven", "eight"] {
        world.reboot(boot);
        let mut syncer = run(&world);
        until("it runs", || world.greetings() == ["hello"]);
        kill(&mut syncer);
    }
    world.reboot("nine");
    world.once().ended(1);
    world.assert_quiet();
    assert_eq!(world.greetings(), ["hello"]);
}

#[test]
fn a_person_can_let_what_failed_be_tried_again() {
    let world = with_last_good();
    world.fake.set("fail-up", "not today");
    want(&world, "servus", "last-good");
    world.once().ended(1);
    world.once().ended(1);
    assert_eq!(
        (world.greetings(), world.states("greeter")),
        (vec!["hello".to_owned()], vec!["hello failed rolled-back".to_owned()])
    );
    let plan = world.syncer(&["plan"]);
    assert!(!plan.stdout.contains("servus"), "{plan:?}");
    world.syncer(&["retry", "greeter"]).good();
    world.once().good();
    assert_eq!(
        (world.greetings(), world.states("greeter")),
        (vec!["servus".to_owned()], vec!["hello installed".to_owned()])
    );
}

#[test]
fn what_is_unhealthy_before_it_was_good_is_put_back_and_a_failure_of_that_is_the_last_word() {
    let world = with_last_good();
    world.hand.want("greeter", &world.app, "servus");
    // Until it is seen to be installed, and unhealthy.
    describe_for(&world, "last-good", 15);
    world.hand.publish();
    let syncer = run(&world);
    until("it is applied", || world.states("greeter") == ["hello installed"] && world.greetings() == ["servus"]);
    world.fake.set("unhealthy-web", "");
    until("it is put back", || world.greetings() == ["hello"]);
    world.fake.unset("unhealthy-web");
    until("it says so", || world.states("greeter") == ["hello failed rolled-back"]);
    let message = world.message("greeter");
    assert!(message.contains("health-timeout: it was unhealthy before it had run well for 15 s"), "{message}");
    stop(syncer);

    let world = with_last_good();
    world.fake.set("fail-up", "not this one");
    want(&world, "servus", "last-good");
    world.once().ended(1);
    world.fake.set("fail-up", "nor that one");
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed rollback-failed"]);
    assert!(world.message("greeter").contains("nor that one"), "{}", world.message("greeter"));
    world.assert_quiet();
}

#[test]
fn where_nothing_ran_well_or_the_fleet_does_not_ask_for_it_what_failed_stays() {
    let world = World::enrolled();
    world.fake.set("fail-up", "never");
    want(&world, "hello", "last-good");
    world.once().ended(1);
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed compose-failed"]);
    assert!(world.message("greeter").ends_with("nothing of it ran well here for long enough before"));
    world.assert_quiet();

    let world = with_last_good();
    world.fake.set("fail-up", "never");
    want(&world, "servus", "hold");
    world.once().ended(1);
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed compose-failed"]);
    assert_eq!(state_file(&world, "set.json"), None, "only what is put back is kept");
}

#[test]
fn what_waits_for_a_deployment_that_failed_says_so() {
    let world = World::running();
    world.hand.want("other", &world.app, "one");
    world.hand.describe("other", |envelope| envelope["policy"] = json!({"dependsOn": ["greeter"]}));
    world.fake.set("fail-up", "never");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1);
    world.once().ended(1);
    assert_eq!(world.states("other"), ["hello pending dependency-failed"]);
    assert_eq!(world.message("other"), "waits for deployment `greeter`, which failed");
    world.assert_quiet();
}

#[test]
fn what_waits_for_a_deployment_that_may_be_put_back_waits_until_it_has_run_well_for_long_enough() {
    let world = with_last_good();
    let want_for_a_day = |greeting: &str| {
        world.hand.want("greeter", &world.app, greeting);
        describe_for(&world, "last-good", 86_400);
    };
    want_for_a_day("servus");
    world.hand.want("other", &world.app, "one");
    world.hand.describe("other", |envelope| envelope["policy"] = json!({"dependsOn": ["greeter"]}));
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello installed"]);
    assert_eq!(world.states("other"), ["hello pending waiting-dependency"]);
    assert_eq!(world.message("other"), "waits for deployment `greeter`, which hasn't run well for long enough yet");
    world.assert_quiet();
    describe(&world, "last-good");
    world.hand.publish();
    let syncer = run(&world);
    until("it runs, too", || world.states("other") == ["hello installed"]);
    stop(syncer);
    // What runs already waits for nothing, and goes on while the other is changed.
    want_for_a_day("moin");
    world.hand.publish();
    world.once().good();
    assert_eq!(world.states("other"), ["hello installed"]);
    world.assert_idle();
}

/// A web server with a volume that runs this command, beside a service that does something to that once before it, if one is
/// given.
fn compose(command: &str, once: Option<&str>) -> String {
    let needs =
        if once.is_some() { "\n    depends_on: {migrate: {condition: service_completed_successfully}}" } else { "" };
    let volume = "volumes: ['data:/data']\n";
    let once =
        once.map(|once| format!("  migrate:\n    image: margo-test/busybox:1\n    command: {once}\n    {volume}"));
    format!(
        "services:\n  server:\n    image: margo-test/busybox:1\n    command: {command}\n    {CHECK}{needs}\n    \
         {volume}{}volumes: {{data: {{}}}}\n",
        once.unwrap_or_default()
    )
}

#[test]
fn on_real_docker_the_old_containers_come_back_and_a_migration_that_began_keeps_the_new_ones() {
    let real = Real::enrolled();
    let want = |version: &str, compose: &str, on_failure: &str| {
        real.want(&format!("duo-{version}"), compose);
        describe(&real, on_failure);
        real.hand.publish();
    };
    real.hand.want("other", &real.app, "neighbour");
    want("good", &compose("[sleep, infinity]", None), "last-good");
    stabilise(&real);
    let before = real.of_service("server");
    let all = real.running();

    want("broken", &compose("[/no/such/program]", None), "last-good");
    real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello failed compose-failed"]);
    real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello failed rolled-back"]);
    let after = real.of_service("server");
    assert!(after.len() == 1 && after != before, "{before:?} {after:?}");
    let is_same = |line: &&String| !after.iter().any(|one| line.starts_with(&one[..64]));
    let (now, all) = (real.running(), all);
    let neighbours: Vec<_> = now.iter().filter(is_same).collect();
    assert!(neighbours.len() == 1 && all.contains(neighbours[0]), "{all:?} {now:?}");
    real.once().ended(1);
    assert_eq!(real.of_service("server"), after, "nothing is done twice");

    let migration = compose("[sleep, infinity]", Some("[sh, -c, 'echo newer >/data/schema; false']"));
    want("migrates", &migration, "last-good");
    real.once().ended(1);
    real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello failed compose-failed"]);
    let message = real.message("greeter");
    assert!(message.contains("`migrate` of `hello` runs only once and has begun"), "{message}");
    want("migrates", &migration, "last-good-anyway");
    real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello failed rolled-back"]);
    assert_eq!(real.of_service("server").len(), 1);
    assert_eq!(real.of_service("migrate"), [""; 0], "what only the new set had is gone");
    let schema = docker(&["exec", &real.of_service("server")[0][..64], "cat", "/data/schema"]);
    assert_eq!(schema, "newer", "volumes are never put back");
}

#[test]
fn a_release_goes_back_to_its_last_good_values_unless_a_hook_of_the_new_one_began() {
    let charts = Charts::new(HELM_4);
    let world = &charts.world;
    let want = |values: &[(&str, &str)], on_failure: &str| {
        charts.want("greeter", values);
        describe(world, on_failure);
        world.hand.publish();
    };
    want(&[("greeting", "hello")], "last-good");
    stabilise(world);
    // Kubernetes refuses this before anything of it is there.
    want(&[("replicas", "two")], "last-good");
    world.once().ended(1);
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed rolled-back"]);
    assert_eq!(charts.values("greeter"), json!({"greeting": "hello"}));
    let history = charts.history("greeter");
    world.once().ended(1);
    assert_eq!(charts.history("greeter"), history, "nothing is done twice");

    want(&[("hooks.pre-upgrade", "fail")], "last-good");
    world.once().ended(1);
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed helm-failed"]);
    let message = world.message("greeter");
    assert!(message.contains("`pre-upgrade` of `hello` runs only once and has begun"), "{message}");
    want(&[("hooks.pre-upgrade", "fail")], "last-good-anyway");
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed rolled-back"]);
    assert_eq!(charts.values("greeter"), json!({"greeting": "hello"}));
}
