//! What a person at the device asks, mostly beside a running syncer: `explain`, `history`, `plan`, `status --watch`,
//! `sync-now`.

use std::io::{BufRead, BufReader};
use std::process::Child;

use repo_testkit::terminate;
use serde_json::Value;

use crate::world::{App, World, command, finish, kill, syncer, until};

/// A syncer at work, which asks its host once an hour; its first pass is over.
fn at_work(world: &World) -> Child {
    let before = world.hand.tip("heartbeat");
    let child = command(&world.home(), &["run"]).spawn().unwrap();
    until("its first pass is over", || world.hand.tip("heartbeat") != before);
    child
}

fn json(world: &World, args: &[&str]) -> Value {
    serde_json::from_str(&world.syncer(&[args, &["--output", "json"]].concat()).good().stdout).unwrap()
}

#[test]
fn plan_tells_beside_a_running_syncer_what_that_does_next() {
    let world = World::running();
    let mut running = at_work(&world);
    let plan = world.syncer(&["plan"]).good().says(&["a syncer is at work here"]);
    assert_eq!(plan.stdout, "= greeter/hello: keep\n");
    world.syncer(&["hold", "--by", "j.doe", "--why", "line 2"]).good();
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.syncer(&["sync-now"]).good();
    until("it waits", || world.states("greeter") == ["hello pending held"]);
    let plan = world.syncer(&["plan"]).ended(1).stdout;
    assert!(plan.contains(". greeter/hello: held: by j.doe since "), "{plan}");
    kill(&mut running);
}

#[test]
fn sync_now_makes_a_running_syncer_ask_its_host_at_once() {
    let world = World::running();
    world.settings("poll: 1h\n");
    world.syncer(&["sync-now"]).ended(1).says(&["no syncer is at work", "device-syncer once"]);
    assert!(!world.home().join("request-sync").exists());
    let mut running = at_work(&world);
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let said = world.syncer(&["sync-now"]).good().stdout;
    assert!(said.contains("asks its host now"), "{said}");
    until("the new state runs", || world.greetings() == ["servus"]);
    assert!(!world.home().join("request-sync").exists());
    terminate(&running);
    assert_eq!(finish_code(&mut running), 0);
}

fn finish_code(child: &mut Child) -> i32 {
    child.wait().unwrap().code().unwrap_or(-1)
}

#[test]
fn explain_says_who_holds_a_deployment_and_what_opens_it() {
    let world = World::running();
    let explained = world.syncer(&["explain", "greeter"]).good().stdout;
    assert!(explained.starts_with("greeter (") && explained.contains("): wanted by serial 1\n"), "{explained}");
    assert!(explained.contains("installed since 2") && explained.contains("; healthy\n"), "{explained}");
    assert!(explained.contains("next:         keep\n") && !explained.contains("waits:"), "{explained}");

    world.syncer(&["hold", "greeter", "--by", "j.doe", "--why", "line 2", "--for", "8h"]).good();
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1);
    let explained = world.syncer(&["explain", "greeter"]).good().stdout;
    assert!(
        explained.contains("waits:        held: by j.doe since ") && explained.contains(": line 2\n"),
        "{explained}"
    );
    assert!(explained.contains("or before with `device-syncer release greeter`\n"), "{explained}");
    let explained = json(&world, &["explain", "greeter"]);
    let waits = &explained["components"][0]["waits"];
    assert_eq!((&waits["code"], &explained["isWanted"]), (&"held".into(), &true.into()));
    assert!(waits["opens"].as_str().is_some_and(|opens| opens.starts_with('2')), "{explained}");

    world.hand.drop("greeter");
    world.hand.publish();
    world.once().ended(1);
    let id = world.hand.deployment_id("greeter").to_string();
    let explained = world.syncer(&["explain", &id]).good().stdout;
    assert!(explained.contains("): not wanted any more\n") && explained.contains("removing since "), "{explained}");
    assert!(explained.contains("next:         remove\n") && explained.contains("waits:        held: "), "{explained}");
    world.syncer(&["explain", "nobody"]).ended(1).says(&["no deployment `nobody` is wanted"]);
}

#[test]
fn explain_says_what_failed_last_and_when_it_is_tried_again() {
    let world = World::running();
    world.fake.set("fail-up", "no such option");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1);
    let explained = world.syncer(&["explain", "greeter"]).good().stdout;
    assert!(explained.contains("last failure: 2") && explained.contains(" compose-failed: "), "{explained}");
    assert!(explained.contains("tried again:  when its inputs change, or after `device-syncer retry`"), "{explained}");
    world.syncer(&["retry"]).good();
    world.fake.unset("fail-up");
    world.once().good();
    // One that is tried again by itself: its archive isn't there yet.
    let unknown = format!("sha256:{:064}", 0);
    let repository = "oci://127.0.0.1:1/nothing/here".to_owned();
    let app = App { repository, manifest: unknown.clone(), content: unknown, ..world.app.clone() };
    world.hand.want("other", &app, "hello");
    world.hand.publish();
    let mut running = at_work(&world);
    let retries = || json(&world, &["explain", "other"])["components"][0]["retry"]["failures"].as_u64();
    until("it was tried again", || retries().is_some_and(|failures| failures > 1));
    let explained = world.syncer(&["explain", "other"]).good().stdout;
    assert!(explained.contains("tried again:  ") && explained.contains(" failures in a row\n"), "{explained}");
    kill(&mut running);
}

#[test]
fn history_shows_each_change_of_state_newest_first_without_host_and_runtime() {
    let world = World::running();
    world.hand.want("other", &world.app, "hello");
    world.hand.publish();
    world.once().good();
    world.fake.set("fail-up", "no such option");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1);
    world.fake.set("unavailable", "");
    std::fs::rename(world.hand.repository(), world.path("away.git")).unwrap();
    let history = world.syncer(&["history", "greeter"]).good().stdout;
    let lines: Vec<_> = history.lines().collect();
    assert!(lines[0].contains("  greeter/hello  installing > failed  compose-failed: "), "{history}");
    assert!(lines.last().unwrap().contains("  greeter/hello  none > "), "{history}");
    assert!(!history.contains("other/hello"), "{history}");
    let all = json(&world, &["history", "-n", "100"]);
    let newest = &all["changes"][0];
    assert_eq!((&newest["to"], &newest["code"]), (&"failed".into(), &"compose-failed".into()), "{all}");
    assert!(newest["message"].as_str().unwrap().contains("no such option"), "{all}");
    assert_eq!(newest["commit"].as_str().unwrap().len(), 40);
    assert_eq!(json(&world, &["history", "-n", "1"])["changes"].as_array().unwrap().len(), 1);
    assert_eq!(world.syncer(&["history", "--since", "2100-01-01T00:00:00Z"]).good().stdout, "nothing was told\n");
    world.syncer(&["history", "--since", "lately"]).ended(1).says(&["--since lately"]);
    world.syncer(&["history", "nobody"]).ended(1).says(&["nothing was told of a deployment `nobody`"]);
}

#[test]
fn status_watch_writes_a_line_for_each_change_and_ends_when_nobody_reads() {
    let world = World::running();
    let mut watching = command(&world.home(), &["status", "--watch"]).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut next = |words: &str| lines.by_ref().find(|line| line.contains(words)).expect("it goes on");
    let device = next(" device: press-01 at ");
    assert!(device.ends_with(&format!("device-syncer {}: healthy", env!("CARGO_PKG_VERSION"))), "{device}");
    next(" greeter/hello: installed  healthy");
    world.stop_all();
    let stopped = next(" greeter/hello: installed  degraded");
    assert!(stopped.starts_with('2'), "{stopped}");
    world.once().good();
    assert!(next(" greeter/hello: ").ends_with("installed  healthy"));
    drop(lines);
    world.stop_all();
    assert_eq!(finish(watching).code, 0, "nobody reads it any more");
}

#[test]
fn without_a_home_every_question_says_how_to_make_one() {
    let nowhere = tempfile::tempdir().unwrap();
    for args in [&["explain", "a"][..], &["history"], &["sync-now"], &["status", "--watch"]] {
        syncer(nowhere.path(), args).ended(1).says(&["is not a device's home", "hint: run `device-syncer init"]);
    }
}
