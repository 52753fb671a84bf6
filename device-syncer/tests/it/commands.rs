//! What a person at the device types, and what the program answers.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::world::{World, syncer};

const PROGRAM: &str = env!("CARGO_BIN_EXE_device-syncer");

#[test]
fn plan_prints_what_would_be_done_and_does_nothing() {
    let world = World::enrolled();
    assert_eq!(
        world.syncer(&["plan"]).ended(1).stdout.lines().next().unwrap_or_default().split(':').next(),
        Some("Waiting")
    );
    world.hand.want("greeter", &world.app, "hello");
    world.hand.publish();
    let plan = world.syncer(&["plan"]).ended(3);
    let tip = world.hand.tip("desired");
    assert_eq!(plan.stdout, format!("adopts serial 1 ({tip})\n+ greeter/hello: apply: it is new\n"));
    assert!(world.fake.calls().is_empty());
    assert_eq!(world.syncer(&["plan"]).ended(3).stdout, plan.stdout);
    world.once().good();
    assert_eq!(world.syncer(&["plan"]).good().stdout, "= greeter/hello: keep\n");
    world.hand.want("other", &world.app, "hello");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let plan = world.syncer(&["plan"]).ended(3).stdout;
    assert!(plan.contains("+ greeter/hello: apply: its inputs changed\n+ other/hello: apply: it is new\n"), "{plan}");
    world.once().good();
    world.hand.drop("greeter");
    world.hand.publish();
    let plan = world.syncer(&["plan"]).ended(3).stdout;
    assert!(plan.contains("- greeter/hello: remove (hello-") && plan.contains("= other/hello: keep"), "{plan}");
}

#[test]
fn plan_is_data_too() {
    let world = World::running();
    world.hand.want("other", &world.app, "hello");
    world.hand.drop("greeter");
    world.hand.publish();
    let plan: Value = serde_json::from_str(&world.syncer(&["plan", "--output", "json"]).ended(3).stdout).unwrap();
    assert_eq!(plan["adopts"], 2);
    assert_eq!(plan["conditions"], serde_json::json!([]));
    assert_eq!(plan["removals"][0]["name"], "greeter");
    let component = &plan["deployments"][0]["components"][0];
    assert_eq!((&component["name"], &component["action"]["apply"]["reason"]), (&"hello".into(), &"new".into()));
    assert!(!plan.to_string().contains("GREETING"), "parameters are not part of it");
}

#[test]
fn plan_says_what_the_host_or_docker_keeps_it_from() {
    let world = World::running();
    world.fake.set("unavailable", "");
    world.syncer(&["plan"]).ended(1).says(&["docker can't be used", "hint: is the engine running"]);
    world.fake.unset("unavailable");
    fs::rename(world.hand.repository(), world.path("away.git")).unwrap();
    let plan = world.syncer(&["plan"]).ended(1);
    assert!(
        plan.stdout.contains("Unreachable: HostUnreachable") && plan.stdout.contains("= greeter/hello: keep"),
        "{plan:?}"
    );
}

#[test]
fn status_needs_neither_host_nor_docker() {
    let world = World::joined();
    assert_eq!(world.syncer(&["status"]).good().stdout, "adopted: nothing yet\n");
    let world = World::running();
    world.fake.set("unavailable", "");
    fs::rename(world.hand.repository(), world.path("away.git")).unwrap();
    let status = world.syncer(&["status"]).good().stdout;
    assert!(status.starts_with("adopted: serial 1 ("), "{status}");
    assert!(status.contains("\ngreeter/hello  installed  unknown: docker can't be used: "), "{status}");
    let status: Value = serde_json::from_str(&world.syncer(&["status", "--output", "json"]).good().stdout).unwrap();
    assert_eq!(status["accepted"]["serial"], 1);
    assert_eq!(status["components"][0]["deployment"], "greeter");
    assert_eq!(status["components"][0]["state"], "installed");
    assert_eq!(status["components"][0]["error"], Value::Null);
}

#[test]
fn status_shows_failures_and_conditions() {
    let world = World::running();
    world.hand.want("other", &world.app, "hello");
    world.hand.edit("other", |text| text.replace("type: compose", "type: helm"));
    world.hand.publish();
    world.once().ended(1);
    world.hand.forge(|draft| draft.key = None);
    world.once().ended(1);
    let status = world.syncer(&["status"]).good().stdout;
    assert!(status.contains("\nStalled: SignatureInvalid: "), "{status}");
    let rows = "\ngreeter/hello  installed  healthy\nother/hello    failed     -  capability-missing: ";
    assert!(status.contains(rows), "{status}");
}

/// A device that gave two deployments up.
fn given_up() -> World {
    let world = World::running();
    for name in ["greeter", "other"] {
        world.hand.want(name, &world.app, "bad luck");
        world.fake.set("fail-up", "no such option");
        world.hand.publish();
        world.once().ended(1);
        assert_eq!(world.states(name), ["hello failed compose-failed"]);
    }
    world
}

#[test]
fn each_retry_counts_that_was_asked_for_since_the_last_pass() {
    let world = given_up();
    world.syncer(&["retry", "greeter"]).good();
    world.syncer(&["retry", "other"]).good();
    let plan = world.syncer(&["plan"]).ended(3).stdout;
    assert!(plan.contains("+ greeter/hello: apply") && plan.contains("+ other/hello: apply"), "{plan}");
    world.once().good();
    for name in ["greeter", "other"] {
        assert_eq!(world.states(name), ["hello installed"]);
    }
    world.assert_idle();
}

#[test]
fn retry_tries_again_what_was_given_up() {
    let world = given_up();
    let asked = world.syncer(&["retry", "nothing-of-that-name"]).good();
    assert!(asked.stdout.contains("the next pass does it"), "{asked:?}");
    world.once().ended(1).says(&["no deployment of this id is wanted", "nothing-of-that-name"]);
    world.syncer(&["retry", "greeter"]).good();
    let plan = world.syncer(&["plan"]).ended(3).stdout;
    assert!(plan.contains("+ greeter/hello: apply") && plan.contains("! other/hello: compose-failed"), "{plan}");
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello installed"]);
    assert_eq!(world.states("other"), ["hello failed compose-failed"]);
    world.syncer(&["retry"]).good();
    world.once().good();
    assert_eq!(world.states("other"), ["hello installed"]);
    world.assert_idle();
}

#[test]
fn a_person_can_accept_a_history_that_was_rewritten() {
    let world = World::running();
    let first = world.hand.tip("desired");
    world.assert_cured();
    world.hand.move_branch("desired", &first);
    world.hand.want("greeter", &world.app, "rewritten");
    world.hand.publish();
    let tip = world.hand.tip("desired");
    world.assert_refused("history-rewritten", &[&format!("device-syncer accept-history {tip}")]);
    world.syncer(&["accept-history", "0000000000000000000000000000000000000001"]).good();
    world.once().ended(1);
    world.syncer(&["accept-history", &tip]).good();
    world.once().good().says(&["HistoryAccepted"]);
    assert_eq!(world.greetings(), ["rewritten"]);
    assert_eq!(world.conditions(), ["SecurityEvent HistoryAccepted"]);
    world.assert_cured();
    assert!(!world.home().join("request-accept-history").exists());
}

#[test]
fn a_person_can_accept_a_serial_that_fell_and_what_came_after_it() {
    let world = World::running();
    for _ in 0..3 {
        world.assert_cured();
    }
    // A host that lost all its history, and a publisher that lost all its memory.
    let tip = world.hand.forge(|draft| {
        draft.parents.clear();
        draft.renumber(1);
    });
    world.assert_refused("serial-rollback", &["serial 1 is below 4"]);
    world.hand.set_serial(1);
    world.hand.want("greeter", &world.app, "after it");
    world.hand.publish();
    world.syncer(&["accept-history", &tip]).good();
    world.once().good();
    assert_eq!(world.greetings(), ["after it"]);
    assert_eq!(world.report()["adopted"]["serial"], 2);
    world.assert_cured();
}

#[test]
fn accept_history_lifts_no_other_check() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "\"not this\"");
    let tip = world.hand.forge(|draft| {
        draft.parents.clear();
        draft.key = Some(world.hand.stranger());
    });
    world.syncer(&["accept-history", &tip]).good();
    world.assert_refused("signature-invalid", &[&tip]);
    let commit = world.syncer(&["accept-history", "main"]).ended(1);
    assert!(commit.stderr.starts_with("error: "), "{commit:?}");
}

#[test]
fn init_can_be_repeated_and_names_what_is_wrong() {
    let world = World::joined();
    let line = world.init(&world.home());
    assert_eq!(line, world.init(&world.home()), "the same key");
    assert!(line.starts_with("ssh-ed25519 ") && line.ends_with(" press-01\n"), "{line}");

    let join = world.hand.path("join.json");
    let json =
        syncer(&world.home(), &["init", "--join", &join.display().to_string(), "--output", "json"]).good().stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json, serde_json::json!({ "apiVersion": "v1", "enrolmentLine": line.trim_end() }));
    let good = fs::read_to_string(&join).unwrap();
    let init = |text: &str| {
        fs::write(&join, text).unwrap();
        syncer(&world.path("another-home"), &["init", "--join", &join.display().to_string()])
    };
    init("{}").ended(1).says(&["is not a join file", "hint: "]);
    init(&good.replace("\"layout\":1", "\"layout\":2")).ended(1).says(&["layout 2", "update it"]);
    init(&good.replace("\\\"threshold\\\":1", "\\\"threshold\\\":9")).ended(1).says(&["trust.sha256"]);
    assert!(!world.path("another-home").exists(), "nothing is begun with a bad join file");
    init(&good).good();
    // As over a session of SSH.
    let other = world.path("other-home").display().to_string();
    let from_input = format!("'{PROGRAM}' --home '{other}' init --join - < '{}'", join.display());
    let output = Command::new("sh").args(["-c", &from_input]).output().unwrap();
    assert!(output.status.success() && output.stdout.starts_with(b"ssh-ed25519 "), "{output:?}");
    init(&good.replace("press-01", "press-02")).ended(1).says(&["belongs to device `press-01` already", "hint: "]);
    let missing = syncer(&world.path("third-home"), &["init", "--join", "/nothing/here.json"]).ended(1);
    assert!(missing.stderr.contains("/nothing/here.json") && missing.stderr.contains("caused by: "), "{missing:?}");
}

#[test]
fn a_newer_join_file_of_the_same_device_moves_it_to_another_host() {
    let world = World::running();
    let moved = world.path("moved.git");
    fs::rename(world.hand.repository(), &moved).unwrap();
    world.once().ended(1).says(&["can't be reached"]);
    let join = world.hand.path("join.json");
    let text = fs::read_to_string(&join).unwrap();
    let text = text.replace(&world.hand.repository().display().to_string(), &moved.display().to_string());
    fs::write(&join, text).unwrap();
    world.init(&world.home());
    world.once().good();
}

#[test]
fn without_a_home_every_command_says_how_to_make_one() {
    let nowhere = tempfile::tempdir().unwrap();
    for args in [&["once"][..], &["run"], &["plan"], &["status"], &["retry"], &["accept-history", &"0".repeat(40)]] {
        let run = syncer(nowhere.path(), args).ended(1);
        assert!(run.stderr.contains("is not a device's home"), "{run:?}");
        assert!(run.stderr.contains("hint: run `device-syncer init --join FILE`"), "{run:?}");
    }
}

#[test]
fn a_mistake_in_the_settings_is_named_with_its_line() {
    let world = World::running();
    world.settings("repot: 5m\n");
    let run = world.once().ended(1);
    for word in ["device.yaml:5:1: repot: ", "hint: "] {
        assert!(run.stderr.contains(word), "{word} in {run:?}");
    }
    assert_eq!(world.greetings(), ["hello"]);
}

#[test]
fn help_teaches_and_completions_know_the_commands() {
    let home = tempfile::tempdir().unwrap();
    let help = syncer(home.path(), &["--help"]).good().stdout;
    for word in ["init", "once", "plan", "accept-history", "Exit code 3", "/var/lib/device-syncer", "opens no port"] {
        assert!(help.contains(word), "{word} in {help}");
    }
    let help = syncer(home.path(), &["accept-history", "--help"]).good().stdout;
    assert!(help.contains("host that lost its history"), "{help}");
    for shell in ["bash", "zsh", "fish"] {
        let script = syncer(home.path(), &["completions", shell]).good().stdout;
        assert!(script.contains("accept-history"), "{shell}");
    }
    assert_eq!(syncer(home.path(), &["oance"]).code, 2);
    let help = syncer(home.path(), &["--help"]).good().stdout;
    let commands = help.split("\nCommands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = commands.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    for name in names.map(|line| line.split(' ').next().unwrap()).filter(|name| *name != "help") {
        let help = syncer(home.path(), &[name, "--help"]).good().stdout;
        let is_example = |line: &&str| line.starts_with("  ") && !line.starts_with("   ") && !line.starts_with("  -");
        let from = |line: &'_ str| line.find("device-syncer ").map(|at| line[at..].to_owned());
        let examples: Vec<_> = help.lines().filter(is_example).filter_map(from).collect();
        assert!(!examples.is_empty(), "{name} has no example: {help}");
        for example in examples {
            // It is understood, whatever is asked for besides.
            let first = example.split(['#', '|', '&', '<', '>', ')']).next().unwrap().trim();
            let line = first.replacen("device-syncer", &format!("'{PROGRAM}'"), 1) + " --help";
            let output = Command::new("sh").args(["-c", &line]).output().unwrap();
            assert!(output.status.success(), "{example}: {output:?}");
        }
    }
}
