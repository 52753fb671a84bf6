//! What the fleet asks this device for: once for each number, as far as the site lets it, and answered beside the heartbeat.

use std::fs;

use repo_testkit::git;
use serde_json::{Value, json};

use crate::docker::Real;
use crate::world::World;

/// The fleet asks for this, with the next serial.
fn ask(world: &World, ask: Value) {
    world.hand.forge(|draft| {
        draft.json("envelope.json", |envelope| envelope["policy"]["ask"] = ask);
        draft.seal_envelope();
    });
}

fn on_heartbeat(world: &World, path: &str) -> Option<Value> {
    let bytes = git::show(&world.hand.repository(), "heartbeat", path)?;
    Some(serde_json::from_slice(&bytes).expect("JSON"))
}

/// The highest number that is done with, by the device's word.
fn asked(world: &World) -> Value {
    on_heartbeat(world, "current-state.json").expect("it reports")["asked"].clone()
}

/// The answer to a number, which lies at the device and at its host.
fn answer(world: &World, number: u64) -> Option<Value> {
    let found = on_heartbeat(world, &format!("answers/{number}.json"));
    assert_eq!(found.is_some(), world.home().join(format!("answers/{number}.json")).exists(), "{found:?}");
    found
}

/// Outcome and reason of what is asked for now.
fn said(world: &World, number: u64, what: &str) -> (String, String) {
    ask(world, json!({"number": number, "what": what, "deployment": "greeter"}));
    world.once().good();
    assert_eq!(asked(world), number);
    let answer = answer(world, number).expect("it is answered");
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    assert_eq!((text("what"), text("deployment")), (what.to_owned(), "greeter".to_owned()));
    (text("outcome"), text("reason"))
}

#[test]
fn what_was_given_up_is_tried_again_once_for_each_number() {
    let world = World::failed();
    assert_eq!(asked(&world), 0);
    ask(&world, json!({"number": 3, "what": "retry", "deployment": "greeter"}));
    world.once().good();
    assert_eq!((world.greetings(), asked(&world)), (vec!["servus".to_owned()], json!(3)));
    let first = answer(&world, 3).expect("it is answered");
    assert_eq!((&first["outcome"], &first["logs"]), (&json!("done"), &Value::Null));
    world.assert_idle();

    world.fake.set("fail-up", "no such option");
    world.hand.want("greeter", &world.app, "guten Tag");
    for number in [3, 2] {
        ask(&world, json!({"number": number, "what": "retry"}));
        world.once().ended(1);
        assert_eq!(world.states("greeter"), ["hello failed compose-failed"], "{number}");
    }
    assert_eq!((answer(&world, 3), answer(&world, 2)), (Some(first), None));

    // A crash before the answer was kept: it is answered, and nothing is tried a second time.
    let file = world.home().join("answers/3.json");
    ask(&world, json!({"number": 3, "what": "retry"}));
    fs::remove_file(&file).unwrap();
    world.once().ended(1);
    assert_eq!(answer(&world, 3).expect("it is answered")["outcome"], "done");
    assert_eq!(world.states("greeter"), ["hello failed compose-failed"]);
}

#[test]
fn a_number_that_stands_in_the_first_state_is_old() {
    let world = World::enrolled();
    world.hand.want("greeter", &world.app, "hello");
    // Nothing proves that what was made by hand is fresh.
    ask(&world, json!({"number": 7, "what": "sync"}));
    world.once().ended(1);
    assert_eq!((asked(&world), answer(&world, 7)), (json!(7), None));
    world.assert_quiet();
    ask(&world, json!({"number": 8, "what": "sync"}));
    world.once().ended(1);
    assert_eq!(answer(&world, 8).expect("it is answered")["outcome"], "done");
}

#[test]
fn what_the_site_does_not_let_the_fleet_ask_for_is_refused_with_the_reason_and_one_refusal_stands() {
    let world = World::running();
    let refused = |number, what, words: &str| {
        let (outcome, reason) = said(&world, number, what);
        assert!(outcome == "refused" && reason.contains(words), "{what}: {outcome} {reason}");
    };
    refused(1, "logs", "the site doesn't allow it: `remote: logs`");
    refused(2, "diagnostics", "`remote: diagnostics`");
    refused(3, "reboot", "this syncer doesn't know `reboot`");
    world.settings("remote: {retry: false, sync: false, logs: [other, 'greet?']}\n");
    refused(4, "retry", "`remote: retry`");
    refused(5, "sync", "`remote: sync`");
    refused(6, "logs", "`remote: logs`");
    assert_eq!(fs::read_dir(world.home().join("answers")).unwrap().count(), 1, "no flood of them");
    world.assert_idle();
}

#[test]
fn logs_leave_the_device_only_if_the_site_lists_all_names_under_which_it_has_the_deployment() {
    let world = World::running();
    world.settings("remote: {logs: ['metrics*'], diagnostics: true}\n");
    let ask_renamed = |number: u64, what: &str| {
        world.hand.forge(|draft| {
            let id = world.hand.deployment_id("greeter").to_string();
            draft.json("envelope.json", |envelope| {
                envelope["deployments"][id]["id"] = "metrics-x".into();
                envelope["policy"]["ask"] = json!({"number": number, "what": what, "deployment": "metrics-x"});
            });
            draft.seal_envelope();
        });
        world.syncer(&["once"]);
        answer(&world, number).expect("it is answered")
    };
    for number in 1..=2 {
        let said = ask_renamed(number, "logs");
        assert_eq!(said["outcome"], "refused", "{said}");
    }
    let said = ask_renamed(3, "diagnostics");
    assert_eq!((&said["outcome"], &said["diagnostics"]["logs"]), (&json!("done"), &json!({})), "{said}");
}

#[test]
fn four_answers_are_given_a_day_and_each_stands_for_one() {
    let world = World::running();
    for number in 1..=4 {
        assert_eq!(said(&world, number, "retry").0, "done");
    }
    let (outcome, reason) = said(&world, 5, "retry");
    assert!(
        outcome == "refused" && reason.contains("4 answers were given within 24 hours; ask again after 2"),
        "{reason}"
    );
    let (file, mut old) = (world.home().join("answers/2.json"), answer(&world, 2).unwrap());
    old["time"] = "2026-01-01T00:00:00Z".into();
    fs::write(&file, old.to_string()).unwrap();
    world.once().good();
    assert_eq!(answer(&world, 2), None);
    assert_eq!(said(&world, 6, "retry").0, "done");
    for number in [1, 3, 4, 5, 6] {
        assert!(answer(&world, number).is_some(), "{number}");
    }
}

#[test]
fn a_restart_that_the_site_does_not_let_the_fleet_ask_for_is_told_and_not_done() {
    let world = World::running();
    world.settings("remote: {restart: false}\n");
    let before = world.containers();
    world.hand.describe("greeter", |envelope| envelope["policy"] = json!({ "restart": 1 }));
    world.hand.publish();
    world.once().good();
    assert_eq!(
        (world.containers(), world.conditions()),
        (before.clone(), vec!["RequestRefused NotAllowed".to_owned()])
    );
    assert_eq!(world.states("greeter"), ["hello installed"]);
    let told = world.report()["conditions"][0]["message"].as_str().unwrap().to_owned();
    assert!(told.starts_with("restart 1 of `greeter` isn't done: the site doesn't allow it"), "{told}");
    let done = |world: &World| {
        let deployment = world.hand.deployment_id("greeter").to_string();
        let state = on_heartbeat(world, "current-state.json").expect("it reports");
        state["deployments"][deployment]["components"]["hello"]["restart"].clone()
    };
    world.assert_idle();
    world.syncer(&["restart", "greeter"]).good();
    world.once().good();
    let by_person = world.containers();
    assert_ne!(by_person, before, "a person at the device may");
    assert_eq!(done(&world), Value::Null, "which is none of the fleet's");
    world.settings("");
    world.once().good();
    assert_eq!(world.conditions(), Vec::<String>::new());
    assert_ne!(world.containers(), by_person);
    assert_eq!(done(&world), 1);
}

#[test]
fn logs_leave_the_device_bounded_and_without_secrets_and_diagnostics_have_no_others() {
    let real = Real::enrolled();
    fs::write(real.home().join("device-files/token"), "hunter2hunter2\n").unwrap();
    let bulk = "yes $(printf %090d 0) | head -n 9000; printf 'one \\033[2J\\ntoken hunter2hunter2\\nlast\\n'; sleep infinity & wait";
    real.want(
        "asked",
        &format!(
            "services:\n  web:\n    image: margo-test/busybox:1\n    network_mode: none\n    command: [sh, -c, \"{}\"]\n    \
             healthcheck: {{test: [CMD, 'true'], interval: 1s}}\n    stop_grace_period: 0s\n",
            bulk.replace('\\', "\\\\").replace('$', "$$")
        ),
    );
    real.hand.publish();
    real.once().good();
    let settings = fs::read_to_string(real.home().join("device.yaml")).unwrap();
    let allow =
        |remote: &str| fs::write(real.home().join("device.yaml"), format!("{settings}remote: {remote}\n")).unwrap();
    allow("{logs: ['*']}");
    assert_eq!(said(&real, 1, "logs").0, "done");
    let text = fs::read_to_string(real.home().join("answers/1.json")).unwrap();
    assert!((100_000..=256 << 10).contains(&text.len()), "{}", text.len());
    assert!(!text.contains("hunter2") && !text.contains("\\u001b"), "{}", &text[text.len() - 1000..]);
    let logs = answer(&real, 1).unwrap()["logs"]["hello"].clone();
    let lines: Vec<_> = logs.as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    for (line, end) in lines.iter().rev().zip(["last", "token ***", "one \\u{1b}[2J", "0000"]) {
        assert!(line.starts_with("web-1  | 2") && line.ends_with(end), "{line}");
    }

    allow("{diagnostics: true}");
    let diagnostics = |number: u64| {
        assert_eq!(said(&real, number, "diagnostics").0, "done");
        answer(&real, number).unwrap()["diagnostics"].clone()
    };
    let without = diagnostics(2);
    assert_eq!((&without["status"]["device"], &without["logs"]), (&json!("press-01"), &json!({})));
    allow("{diagnostics: true, logs: [greeter]}");
    let with = diagnostics(3);
    assert!(with["logs"]["greeter/hello"].as_array().unwrap().len() > 10);
    assert!(!with.to_string().contains("hunter2"));
    real.assert_idle();
}
