//! A host, runtime or registry that is away, refuses, or never gets well.

use super::*;

#[test]
fn while_the_host_is_away_the_device_goes_on_and_tells_later() {
    let world = World::running();
    let away = Away::take(&world);
    let mut state: serde_json::Value =
        serde_json::from_slice(&fs::read(world.fake.dir().join("state.json")).unwrap()).unwrap();
    state["containers"] = serde_json::json!({});
    fs::write(world.fake.dir().join("state.json"), state.to_string()).unwrap();
    world.once().ended(1).says(&["can't be reached"]);
    assert_eq!(world.greetings(), ["hello"], "what was missing runs again");
    let backlog = world.history(&world.clone()).len();
    world.once().ended(1);
    assert_eq!(world.history(&world.clone()).len(), backlog, "being away is no news");
    away.back();
    world.once().good();
    assert_eq!(world.told().len(), 2, "installing, installed");
    world.assert_idle();
}

#[test]
fn while_docker_is_gone_status_says_so_and_then_all_goes_on() {
    let world = World::running();
    world.fake.set("unavailable", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1).says(&["RuntimeUnavailable: docker can't be used"]);
    assert_eq!(world.conditions(), ["RuntimeUnavailable RuntimeUnavailable"]);
    assert_eq!(world.report()["adopted"]["serial"], 2);
    world.assert_quiet();
    let beat = git::show(&world.hand.repository(), "heartbeat", "current-state.json").unwrap();
    assert!(String::from_utf8(beat).unwrap().contains("\"health\":\"unknown\""));
    world.fake.unset("unavailable");
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
    assert_eq!(world.conditions(), Vec::<String>::new());
    world.assert_idle();
}

#[test]
fn what_a_runtime_that_never_answered_shall_run_has_its_word_on_status() {
    let world = World::enrolled();
    world.fake.set("unavailable", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1).says(&["RuntimeUnavailable: docker can't be used"]);
    assert_eq!(world.states("greeter"), ["hello pending runtime-unavailable"]);
    world.fake.unset("unavailable");
    world.once().good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
    world.assert_idle();
}

#[test]
fn docker_that_goes_away_during_an_apply_is_waited_for() {
    let world = World::running();
    world.fake.set("fail-up", "error during connect: unexpected EOF");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello installing runtime-unavailable"]);
    world.once().good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
    world.assert_idle();
}

#[test]
fn what_docker_refuses_is_failed_and_its_neighbour_runs() {
    let world = World::enrolled();
    world.hand.want("greeter", &world.app, "hello");
    world.hand.want("other", &world.app, "hello");
    world.fake.set(&format!("fail-up-{}", world.project("greeter")), "no such option");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed compose-failed"]);
    assert_eq!(world.states("other"), ["hello installed"]);
    let before = world.marks();
    world.once().ended(1);
    assert_eq!(world.marks(), before, "it isn't tried again");
    world.assert_whole(false);
}

#[test]
fn a_registry_that_is_away_holds_what_is_new_and_leaves_what_runs() {
    let world = World::running();
    let calls = world.fake.calls();
    let unknown = format!("sha256:{:064}", 0);
    let app = App {
        repository: "oci://127.0.0.1:1/nothing/here".to_owned(),
        manifest: unknown.clone(),
        content: unknown,
        ..world.app.clone()
    };
    world.hand.want("greeter", &app, "servus");
    world.hand.want("other", &world.app, "hello");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello pending artifact-unavailable"]);
    assert_eq!(world.states("other"), ["hello installed"]);
    assert!(world.fake.calls().starts_with(&calls));
    assert!(world.greetings().iter().all(|greeting| greeting == "hello"));
    world.assert_quiet();
    let before = world.containers();
    world.stop_all();
    world.once().ended(1);
    assert_ne!(world.containers(), before, "started again");
    assert!(world.greetings().iter().all(|greeting| greeting == "hello"));
    assert_eq!(world.states("greeter"), ["hello pending artifact-unavailable"]);
    world.assert_quiet();
}

#[test]
fn health_that_never_comes_is_failed_after_three_tries_and_then_left_alone() {
    let world = World::running();
    world.fake.set("unhealthy-web", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.edit("greeter", |text| text.replace("timeout: 1m", "timeout: 2s"));
    world.hand.publish();
    for state in ["installing", "installing", "failed"] {
        world.once().ended(1);
        assert_eq!(world.states("greeter"), [format!("hello {state} health-timeout")]);
    }
    assert!(world.message("greeter").contains("unhealthy"), "{}", world.message("greeter"));
    world.assert_quiet();
    assert_eq!(world.told().len(), 4, "queued, installing, unhealthy, failed");
    world.fake.unset("unhealthy-web");
    world.assert_cured();
}
