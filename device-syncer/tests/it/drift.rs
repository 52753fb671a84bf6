//! What fleet and site say of drift: put back, in windows only, or told and left, and what a power cut is.

use repo_testkit::git;
use serde_json::{Value, json};

use crate::world::World;

/// Windows that are closed for ever.
const NEVER: &str = "windows: {zone: Europe/Vienna, apply: {deny: [{start: '0 0 * * *', length: 25h}]}}";

/// The fleet's word on drift of `greeter`.
fn say(world: &World, drift: &str) {
    world.hand.describe("greeter", |envelope| envelope["policy"] = json!({ "drift": drift }));
    world.hand.publish();
}

/// A device on which `greeter` runs, with this word of the fleet.
fn running(drift: &str) -> World {
    let world = World::running();
    say(&world, drift);
    world.once().good();
    world
}

/// A pass that leaves everything as it is, and says why.
fn assert_left(world: &World, code: &str) {
    let before = (world.fake.calls(), world.containers());
    world.once().ended(1);
    assert_eq!((world.fake.calls(), world.containers()), before);
    assert_eq!(world.states("greeter"), [format!("hello pending {code}")]);
    world.assert_quiet();
}

/// A pass that puts back what was stopped.
fn assert_put_back(world: &World) {
    let before = world.containers();
    world.once().good();
    assert_ne!(world.containers(), before, "started again");
    assert_eq!(world.states("greeter"), ["hello installed"]);
    world.assert_idle();
}

#[test]
fn what_is_only_reported_is_left_until_a_person_or_a_newer_set_says_so() {
    let world = running("report");
    world.told();
    world.stop_all();
    assert_left(&world, "drifted");
    assert_eq!(world.told().len(), 1, "told once");
    assert_eq!(world.report()["gates"][0]["code"], "drifted");
    let heartbeat = git::show(&world.hand.repository(), "heartbeat", "current-state.json").expect("one is there");
    let heartbeat: Value = serde_json::from_slice(&heartbeat).unwrap();
    let of = &heartbeat["deployments"][world.hand.deployment_id("greeter").to_string()]["components"]["hello"];
    assert_eq!((&of["state"], &of["drift"]), (&"pending".into(), &"stopped".into()));
    let plan = world.syncer(&["plan"]).ended(1).stdout;
    assert!(plan.contains(". greeter/hello: drifted: it doesn't run as it was applied"), "{plan}");
    let said = world.syncer(&["explain", "greeter"]).good().stdout;
    assert!(said.contains("`device-syncer retry greeter`, or a newer set"), "{said}");

    // A person's word counts once, and not against a hold.
    world.syncer(&["hold", "--by", "j.doe", "--why", "line 2"]).good();
    world.syncer(&["retry", "greeter"]).good();
    assert_left(&world, "held");
    world.syncer(&["release"]).good();
    assert_put_back(&world);
    world.stop_all();
    assert_left(&world, "drifted");
    world.syncer(&["retry"]).good();
    assert_put_back(&world);

    world.stop_all();
    assert_left(&world, "drifted");
    world.hand.want("greeter", &world.app, "servus");
    say(&world, "report");
    world.once().good();
    assert_eq!((world.greetings(), world.states("greeter")), (vec!["servus".into()], vec!["hello installed".into()]));
    world.stop_all();
    assert_left(&world, "drifted");
    say(&world, "heal");
    assert_put_back(&world);
}

#[test]
fn what_is_put_back_in_windows_only_waits_for_them() {
    let world = running("heal-in-window");
    world.stop_all();
    assert_put_back(&world);
    world.settings(&format!("gates: {{{NEVER}}}\n"));
    world.once().good();
    world.stop_all();
    assert_left(&world, "waiting-window");
    let said = world.syncer(&["explain", "greeter"]).good().stdout;
    assert!(said.contains("never, by `gates.windows` of device.yaml as they are now"), "{said}");
    world.settings("");
    assert_put_back(&world);
}

#[test]
fn the_stricter_word_of_fleet_and_site_counts() {
    for (fleet, site, code) in [
        ("heal", "report", "drifted"),
        ("report", "heal", "drifted"),
        ("report", "heal-in-window", "drifted"),
        ("heal", "heal-in-window", "waiting-window"),
        ("some-later-word", "heal", "drifted"),
    ] {
        let world = running(fleet);
        world.settings(&format!("gates: {{{NEVER}, drift: {site}}}\n"));
        world.once().good();
        world.stop_all();
        assert_left(&world, code);
    }
    let world = World::joined();
    world.settings("gates: {drift: never}\n");
    let run = world.once();
    assert!(run.code != 0 && run.stderr.contains("gates.drift: `never` is none of `heal`"), "{run:?}");
}

#[test]
fn a_retry_that_the_fleet_asks_for_puts_back_nothing_that_is_only_reported_or_waits_for_windows() {
    for (drift, code) in [("report", "drifted"), ("heal-in-window", "waiting-window")] {
        let world = running("heal");
        world.settings(&format!("gates: {{{NEVER}, drift: {drift}}}\n"));
        world.once().good();
        world.stop_all();
        assert_left(&world, code);
        for ask in
            [json!({"number": 1, "what": "retry"}), json!({"number": 2, "what": "retry", "deployment": "greeter"})]
        {
            world.hand.forge(|draft| {
                draft.json("envelope.json", |envelope| envelope["policy"]["ask"] = ask.clone());
                draft.seal_envelope();
            });
            world.syncer(&["once"]);
            let answer = format!("answers/{}.json", ask["number"]);
            assert!(git::show(&world.hand.repository(), "heartbeat", &answer).is_some(), "it is answered");
            assert_left(&world, code);
        }
        world.syncer(&["retry"]).good();
        world.syncer(&["once"]);
        assert_eq!(world.states("greeter"), ["hello installed"], "a person's word");
    }
}

#[test]
fn after_a_power_cut_what_ran_comes_back_whatever_is_said_of_drift() {
    for (drift, code) in [("report", "drifted"), ("heal-in-window", "waiting-window")] {
        let world = running(drift);
        world.settings(&format!("gates: {{{NEVER}}}\n"));
        world.stop_all();
        world.reboot("second boot");
        assert_put_back(&world);
        // What was stopped while the device was up stays so over a boot.
        world.stop_all();
        assert_left(&world, code);
        world.reboot("third boot");
        assert_left(&world, code);
    }
}
