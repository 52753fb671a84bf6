//! Restarts that the fleet, or a person at the device, asks for: once, as gates let them, and told.

use repo_testkit::git;
use serde_json::{Value, json};

use crate::world::World;

/// Windows that are closed for ever.
const NEVER: &str = "windows: {zone: Europe/Vienna, apply: {deny: [{start: '0 0 * * *', length: 25h}]}}";

/// The fleet asks for this restart of `greeter`.
fn ask(world: &World, number: u64) {
    world.hand.describe("greeter", |envelope| envelope["policy"] = json!({ "restart": number }));
    world.hand.publish();
}

/// How often anything was restarted on the stand-in, which never makes anything anew for it.
fn restarts(world: &World) -> usize {
    world.fake.calls().iter().filter(|call| call.starts_with("restart ")).count()
}

/// The number that is at its end, as the host's heartbeat says.
fn done(world: &World) -> Value {
    let heartbeat = git::show(&world.hand.repository(), "heartbeat", "current-state.json").expect("it reports");
    let heartbeat: Value = serde_json::from_slice(&heartbeat).unwrap();
    let deployment = world.hand.deployment_id("greeter").to_string();
    heartbeat["deployments"][deployment]["components"]["hello"]["restart"].clone()
}

const TOLD: [&str; 2] = [
    "greeter/* installed > installing restart-requested; greeter/hello installed > installing restart-requested",
    "greeter/* installing > installed; greeter/hello installing > installed",
];

#[test]
fn a_higher_number_restarts_once_and_the_next_pass_does_nothing() {
    let world = World::running();
    let (before, calls) = (world.containers(), world.fake.calls().len());
    ask(&world, 3);
    let plan = world.syncer(&["plan"]).ended(3).stdout;
    assert!(plan.contains("+ greeter/hello: restart: restart 3 of the fleet\n"), "{plan}");
    let json: Value = serde_json::from_str(&world.syncer(&["plan", "--output", "json"]).ended(3).stdout).unwrap();
    let action = &json["deployments"][0]["components"][0]["action"];
    assert_eq!(*action, json!({"restart": {"cause": {"fleet": 3}}}));
    world.once().good();
    let after = world.containers();
    assert_eq!((restarts(&world), world.fake.calls().len()), (1, calls + 1), "and nothing else");
    assert_eq!(after[0].split(' ').next(), before[0].split(' ').next(), "the same container");
    assert_ne!(after, before, "which was started again");
    assert_eq!(world.told().last_chunk::<2>().unwrap().each_ref(), TOLD.each_ref());
    assert_eq!(done(&world), 3);
    world.assert_idle();
    let history = world.syncer(&["history", "greeter"]).good().stdout;
    assert!(history.contains("restart-requested") && history.contains("restart 3 of the fleet"), "{history}");
    for number in [3, 2, 0] {
        ask(&world, number);
        world.once().good();
        assert_eq!((restarts(&world), done(&world)), (1, json!(3)), "{number}");
    }
}

#[test]
fn what_is_installed_with_a_number_is_not_restarted_for_it() {
    let world = World::enrolled();
    world.hand.want("greeter", &world.app, "hello");
    ask(&world, 3);
    world.once().good();
    world.once().good();
    assert_eq!((restarts(&world), done(&world)), (0, json!(3)));
    world.hand.want("greeter", &world.app, "servus");
    ask(&world, 4);
    world.once().good();
    assert_eq!((world.greetings(), restarts(&world)), (vec!["servus".to_owned()], 1), "after the update");
    assert_eq!(done(&world), 4);
    world.assert_idle();
}

#[test]
fn the_fleets_waits_for_windows_and_holds_and_that_is_told() {
    let world = World::running();
    world.settings(&format!("gates: {{{NEVER}}}\n"));
    ask(&world, 1);
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello pending waiting-window"]);
    assert!(
        world.message("greeter").starts_with("restart 1 of the fleet: waits for a window"),
        "{}",
        world.message("greeter")
    );
    let said = world.syncer(&["explain", "greeter"]).good().stdout;
    assert!(said.contains("restart 1 of the fleet"), "{said}");
    world.syncer(&["hold", "--by", "j.doe", "--why", "line 2"]).good();
    world.settings("");
    world.once().ended(1);
    assert_eq!((world.states("greeter"), restarts(&world)), (vec!["hello pending held".to_owned()], 0));
    assert_eq!(done(&world), Value::Null);
    world.syncer(&["release"]).good();
    world.once().good();
    assert_eq!((world.states("greeter"), restarts(&world)), (vec!["hello installed".to_owned()], 1));
    assert_eq!(done(&world), 1);
    world.assert_idle();
}

#[test]
fn a_restart_that_fails_is_told_and_goes_on_although_the_fleet_takes_it_back() {
    let world = World::running();
    world.fake.set("fail-restart", "driver failed");
    ask(&world, 1);
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello installing compose-failed"]);
    assert!(world.message("greeter").contains("driver failed"), "{}", world.message("greeter"));
    assert_eq!(done(&world), Value::Null, "it isn't at its end");
    world.fake.unset("fail-restart");
    ask(&world, 0);
    world.once().good();
    assert_eq!((world.states("greeter"), restarts(&world)), (vec!["hello installed".to_owned()], 1));
    assert_eq!(done(&world), 1);
    world.assert_idle();
}

#[test]
fn a_person_at_the_device_restarts_at_once_and_not_what_is_held() {
    let world = World::running();
    world.settings(&format!("gates: {{{NEVER}}}\n"));
    world.syncer(&["restart", "nothing"]).ended(1).says(&["no deployment `nothing` is wanted here"]);
    world.syncer(&["restart", "greeter"]).good();
    world.once().good();
    assert_eq!((restarts(&world), done(&world)), (1, Value::Null), "outside of windows, and without a number");
    assert_eq!(world.told().last_chunk::<2>().unwrap().each_ref(), TOLD.each_ref());
    world.assert_idle();
    world.syncer(&["restart", "greeter"]).good();
    world.once().good();
    assert_eq!(restarts(&world), 2, "once for each time that it is asked for");

    world.syncer(&["restart", "greeter"]).good();
    world.syncer(&["hold", "greeter", "--by", "j.doe", "--why", "line 2"]).good();
    world.syncer(&["restart", "greeter"]).ended(1).says(&["while it is held", "`device-syncer release` first"]);
    world.once().good().says(&["not restarted, though a person asked for it"]);
    world.syncer(&["release", "greeter"]).good();
    world.once().good();
    assert_eq!(restarts(&world), 2, "what was refused isn't done later");
    world.assert_idle();
}
