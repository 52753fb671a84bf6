//! Holds at the device: what persons and a site's file hold is left as it is, told, and goes on afterwards.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use repo_testkit::terminate;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;

use crate::clocks::once_at;
use crate::world::{World, command, finish, until};

const SAID: [&str; 4] = ["--by", "j.doe", "--why", "line 2 is being set up"];

fn hold(world: &World, args: &[&str]) -> String {
    world.syncer(&[&["hold"], args, &SAID].concat()).good().stdout
}

/// A pass that must change nothing that runs.
fn assert_left_alone(world: &World) {
    let before = (world.fake.calls(), world.containers());
    world.once().ended(1);
    assert_eq!((world.fake.calls(), world.containers()), before);
    world.assert_quiet();
}

#[test]
fn a_hold_lasts_as_long_as_was_said_though_somebody_sets_the_clock() {
    let world = World::running();
    world.settings("clock: {rtc: true}\n");
    let said = hold(&world, &["--for", "8h"]);
    assert!(said.contains(", until 2") && !said.contains("Nobody vouches"), "{said}");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    for time in ["+20 hours", "-20 hours"] {
        once_at(&world, time).ended(1);
        assert_eq!(
            (world.greetings(), world.states("greeter")),
            (vec!["hello".into()], vec!["hello pending held".into()])
        );
    }
    // It was said during a boot whose clock somebody vouched for.
    world.reboot("second boot");
    once_at(&world, "-20 hours").ended(1);
    assert_eq!(world.greetings(), ["hello"]);
    once_at(&world, "+20 hours");
    assert_eq!(world.greetings(), ["servus"]);
}

#[test]
fn what_is_held_is_neither_changed_nor_removed_nor_put_back_until_it_is_released() {
    let world = World::running();
    world.hand.want("other", &world.app, "hello");
    world.hand.publish();
    world.once().good();
    let said = hold(&world, &[]);
    assert!(said.contains("held") && said.contains("`device-syncer release` ends it"), "{said}");
    world.once().good();
    let told = world.report()["gates"][0].clone();
    assert_eq!((&told["code"], &told["by"], &told["text"]), (&"held".into(), &"j.doe".into(), &SAID[3].into()));
    assert_eq!(told.get("deployment"), None, "told, though nothing waits for it");
    world.told();

    world.hand.want("greeter", &world.app, "servus");
    world.hand.drop("other");
    world.hand.publish();
    assert_left_alone(&world);
    assert_eq!(world.states("greeter"), ["hello pending held"]);
    assert_eq!(world.states("other"), ["hello removing held"]);
    let message = world.message("greeter");
    assert!(message.starts_with("by j.doe since 2") && message.ends_with(": line 2 is being set up"), "{message}");
    assert_eq!(world.told().len(), 1, "told once");

    world.stop_all();
    assert_left_alone(&world);
    let plan = world.syncer(&["plan"]).ended(1).stdout;
    assert!(plan.contains(". greeter/hello: held: by j.doe since "), "{plan}");
    assert!(plan.contains(". other/hello: stays for now (hello-") && plan.contains("): held: by j.doe"), "{plan}");
    let plan: Value = serde_json::from_str(&world.syncer(&["plan", "--output", "json"]).ended(1).stdout).unwrap();
    assert_eq!(plan["held"][0]["why"]["code"], "held");
    assert_eq!(plan["held"][0]["name"], "other");
    assert_eq!(plan["deployments"][0]["components"][0]["action"]["wait"]["code"], "held");
    let status = world.syncer(&["status"]).good().stdout;
    assert!(status.contains("\neverything is held by j.doe since 2") && status.contains(" ago)\n"), "{status}");
    let status: Value = serde_json::from_str(&world.syncer(&["status", "--output", "json"]).good().stdout).unwrap();
    assert_eq!((&status["holds"][0]["by"], &status["holds"][0]["deployment"]), (&"j.doe".into(), &Value::Null));

    // Who holds it now is told, though it is held as before.
    world.syncer(&["hold", "--by", "a.roe", "--why", "still"]).good();
    world.once().ended(1);
    assert!(world.message("greeter").starts_with("by a.roe since "), "{}", world.message("greeter"));

    let released = world.syncer(&["release"]).good().stdout;
    assert!(released.starts_with("released"), "{released}");
    world.once().good();
    assert_eq!(world.report().get("gates"), None);
    assert_eq!(world.greetings(), ["servus"]);
    assert_eq!(
        (world.states("greeter"), world.states("other")),
        (vec!["hello installed".to_owned()], vec!["hello removed".to_owned()])
    );
    world.assert_idle();
}

#[test]
fn a_hold_of_one_deployment_is_that_ones_alone() {
    let world = World::running();
    world.hand.want("other", &world.app, "hello");
    world.hand.publish();
    world.once().good();
    let said = hold(&world, &["third"]);
    assert!(said.contains("No deployment `third` is known here; it is held if it comes."), "{said}");
    let said = hold(&world, &["greeter", "--for", "8h"]);
    assert!(!said.contains("No deployment") && said.contains(", until 2"), "{said}");
    for name in ["greeter", "other", "third"] {
        world.hand.want(name, &world.app, "servus");
    }
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello pending held"]);
    assert_eq!(world.states("third"), ["hello pending held"]);
    assert_eq!(world.states("other"), ["hello installed"]);
    let ends = |name: &str| {
        let (id, report) = (world.hand.deployment_id(name).to_string(), world.report());
        let gate = report["gates"].as_array().unwrap().iter().find(|one| one["deployment"] == id.as_str()).cloned();
        gate.unwrap().get("until").and_then(|until| until.as_str()?.parse::<jiff::Timestamp>().ok())
    };
    let left = ends("greeter").unwrap().duration_since(jiff::Timestamp::now());
    assert!((jiff::SignedDuration::from_hours(7)..jiff::SignedDuration::from_hours(9)).contains(&left), "{left}");
    assert_eq!(ends("third"), None);
    let status = world.syncer(&["status"]).good().stdout;
    assert!(status.contains("\ndeployment greeter is held by j.doe since ") && status.contains(" until "), "{status}");

    world.hand.drop("greeter");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello removing held"]);
    assert_eq!(world.greetings().len(), 2, "what runs of it stays");
    world.syncer(&["release"]).ended(1).says(&["the whole device isn't held by a person", "device-syncer status"]);
    world.syncer(&["release", "greeter"]).good();
    world.syncer(&["release", "third"]).good();
    world.once().good();
    assert_eq!(world.greetings(), ["servus", "servus"]);
    world.assert_idle();
}

#[test]
fn a_running_syncer_goes_on_as_soon_as_a_hold_is_released_or_ends_by_itself() {
    for ends_by_itself in [false, true] {
        let world = World::running();
        hold(&world, if ends_by_itself { &["--for", "8s"] } else { &[] });
        world.hand.want("greeter", &world.app, "servus");
        world.hand.publish();
        // Nothing else would make a pass begin.
        world.settings("poll: 1h\nreport: 1h\n");
        let syncer = command(&world.home(), &["run"]).spawn().unwrap();
        until("it waits", || world.states("greeter") == ["hello pending held"]);
        if !ends_by_itself {
            world.syncer(&["release"]).good();
        }
        until("it goes on", || world.greetings() == ["servus"]);
        terminate(&syncer);
        finish(syncer).good();
    }
}

#[test]
fn what_is_at_work_is_ended_where_a_person_says_so_and_only_there() {
    let world = World::running();
    world.settings("poll: 1h\nreport: 1h\n");
    world.fake.set("hang-up", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.want("other", &world.app, "neighbour");
    world.hand.publish();
    let syncer = command(&world.home(), &["run"]).spawn().unwrap();
    until("both are at work", || ["greeter", "other"].iter().all(|name| world.states(name) == ["hello installing"]));
    // As it was until now: what is at work comes to its end.
    hold(&world, &["greeter"]);
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(world.states("greeter"), ["hello installing"]);
    let said = hold(&world, &["greeter", "--now"]);
    assert!(said.contains("What is at work there is ended now"), "{said}");
    until("it has ended", || world.states("greeter") == ["hello pending held"]);
    assert_eq!(world.states("other"), ["hello installing"]);
    world.fake.unset("hang-up");
    until("its neighbour came to its end", || world.states("other") == ["hello installed"]);
    assert_eq!(world.states("greeter"), ["hello pending held"]);
    let status: Value = serde_json::from_str(&world.syncer(&["status", "--output", "json"]).good().stdout).unwrap();
    assert_eq!(status["holds"][0]["now"], true);
    world.syncer(&["release", "greeter"]).good();
    until("it is made whole", || world.states("greeter") == ["hello installed"]);
    assert!(world.greetings().contains(&"servus".to_owned()));
    terminate(&syncer);
    finish(syncer).good();
}

#[test]
fn a_file_of_the_sites_holds_everything_while_it_is_there_whatever_it_is() {
    let world = World::running();
    let file = world.path("busy");
    world.settings(&format!("gates: {{hold: {}}}\n", file.display()));
    world.once().good();
    fs::write(&file, "line 2 is filling\nmore\n").unwrap();
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    assert_left_alone(&world);
    assert_eq!(world.message("greeter"), format!("the site's file `{}` says: line 2 is filling", file.display()));
    let status = world.syncer(&["status"]).good().stdout;
    assert!(status.contains("\neverything is held the site's file `"), "{status}");
    world.syncer(&["release"]).ended(1).says(&["isn't held by a person"]);

    let link = |target: &Path| std::os::unix::fs::symlink(target, &file).unwrap();
    let kinds: [(&str, &dyn Fn()); 3] = [
        ("a FIFO", &|| mknodat(CWD, &file, FileType::Fifo, Mode::RWXU, 0).unwrap()),
        ("a link", &|| link(&world.home().join("status.key"))),
        ("a link", &|| link(Path::new("/nowhere"))),
    ];
    for (kind, make) in kinds {
        fs::remove_file(&file).unwrap();
        make();
        assert_left_alone(&world);
        assert!(world.message("greeter").ends_with(&format!("it is {kind}, and only a plain file is read")), "{kind}");
    }
    fs::remove_file(&file).unwrap();
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
}

#[test]
fn a_file_of_the_sites_that_comes_is_noticed_at_once_however_seldom_the_host_is_asked() {
    let world = World::running();
    let file = world.path("busy");
    let windows = "windows: {zone: UTC, apply: {deny: [{start: '* * * * *', length: 7d}]}}";
    world.settings(&format!("poll: 24h\ngates: {{hold: {}, {windows}}}\n", file.display()));
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1);
    let syncer = command(&world.home(), &["run"]).spawn().expect("it starts");
    // Until its first passes are over.
    sleep(Duration::from_secs(4));
    let began = Instant::now();
    fs::write(&file, "").unwrap();
    until("it is held", || world.states("greeter") == ["hello pending held"]);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    terminate(&syncer);
    finish(syncer).good();
}

#[test]
fn a_file_of_the_sites_that_comes_and_goes_grows_no_history() {
    let world = World::running();
    let file = world.path("busy");
    world.settings(&format!(
        "poll: 1s\ngates: {{hold: {}, windows: {{zone: UTC, apply: {{deny: [{{start: '* * * * *', length: 7d}}]}}}}}}\n",
        file.display()
    ));
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello pending waiting-window"]);
    world.told();
    let syncer = command(&world.home(), &["run"]).spawn().expect("it starts");
    for code in ["held", "waiting-window", "held"] {
        if code == "held" {
            fs::write(&file, "").unwrap()
        } else {
            fs::remove_file(&file).unwrap()
        }
        until("the first times are told", || world.states("greeter") == [format!("hello pending {code}")]);
    }
    for _ in 0..20 {
        fs::remove_file(&file).unwrap();
        sleep(Duration::from_millis(700));
        fs::write(&file, "").unwrap();
        sleep(Duration::from_millis(700));
    }
    terminate(&syncer);
    finish(syncer).good();
    let told = world.told().len();
    assert!((3..=10).contains(&told), "{told} commits of `status`");
    assert_eq!(world.greetings(), ["hello"]);
}

#[test]
fn what_a_hold_is_told_is_checked_and_what_it_is_told_steers_no_terminal() {
    let world = World::running();
    let long = "x".repeat(201);
    for (args, words) in [
        (&["hold", "--by", " ", "--why", "x"][..], &["`--by` is empty"][..]),
        (&["hold", "--by", "x", "--why", &long], &["`--why` has 201 characters", "200 are the most"]),
        (&["hold", "No Name", "--by", "x", "--why", "x"], &["`No Name` is no deployment's id"]),
        (&["hold", "--by", "x", "--why", "x", "--for", "soon"], &["`--for soon` is no duration such as 30m"]),
        (&["hold", "--by", "x", "--why", "x", "--for", "0s"], &["`--for 0s` is no duration"]),
    ] {
        world.syncer(args).ended(1).says(words);
    }
    world.once().good();
    world.syncer(&["hold", "--by", "\u{1b}[2J\u{202e}", "--why", "a\nadopted: serial 9"]).good();
    world.stop_all();
    world.once().ended(1);
    let said =
        [world.message("greeter"), world.syncer(&["status"]).good().stdout, world.syncer(&["plan"]).ended(1).stdout];
    for text in said {
        assert!(text.contains(r"\u{1b}[2J\u{202e}") && !text.contains('\u{1b}'), "{text}");
        assert!(!text.contains("\nadopted: serial 9"), "{text}");
    }
    // What somebody else wrote there holds everything, and only what ends all of it ends that.
    fs::write(world.home().join("hold.json"), "{}").unwrap();
    world.once().ended(1);
    assert!(world.message("greeter").contains("so everything is held"), "{}", world.message("greeter"));
    world.syncer(&["release", "greeter"]).ended(1).says(&["`device-syncer release` ends all that persons hold"]);
    world.syncer(&["release"]).good();
    world.once().good();
    world.assert_idle();
}
