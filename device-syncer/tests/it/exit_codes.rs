//! The table of exit codes in `docs/exit-codes.md`, each situation on a device.

use std::fs;
use std::process::Child;

use crate::world::{World, command, kill, until};

const PAGE: &str = include_str!("../../../docs/exit-codes.md");

/// What brings a situation about; what it starts lives for as long as the commands run.
type Arrange = fn() -> (World, Option<Child>);

const SITUATIONS: &[(&str, Arrange)] = &[
    ("everything runs as wanted", || (World::running(), None)),
    ("a service has only just started", || with_knob("starting-web", "")),
    ("a deployment is new, changed, or no longer wanted", || {
        let world = World::running();
        world.hand.want("greeter", &world.app, "servus");
        world.hand.want("other", &world.app, "hello");
        world.hand.publish();
        (world, None)
    }),
    ("a service was stopped, paused or removed by hand", || {
        let world = World::running();
        world.stop_all();
        (world, None)
    }),
    ("a service ends as soon as it is put back", || with_knob("exit-web", "3")),
    ("a service restarts again and again", || with_knob("restarting-web", "1")),
    ("a service is unhealthy", || with_knob("unhealthy-web", "")),
    ("a deployment failed, or can't run here", || {
        let world = World::running();
        world.hand.want("greeter", &world.app, "servus");
        world.fake.set("fail-up", "no such option");
        world.hand.publish();
        world.once().ended(1);
        (world, None)
    }),
    ("a deployment is suspended with a change that waits", || {
        let world = World::running();
        world.hand.want("greeter", &world.app, "servus");
        world.hand.describe("greeter", |described| described["policy"] = serde_json::json!({"suspended": true}));
        world.hand.publish();
        (world, None)
    }),
    ("the site holds a deployment with a change that waits", || {
        let world = World::running();
        world.hand.want("greeter", &world.app, "servus");
        world.hand.publish();
        world.syncer(&["hold", "greeter", "--by", "j.doe", "--why", "line 2"]).good();
        (world, None)
    }),
    ("the host can't be reached", || {
        let world = World::running();
        fs::rename(world.hand.repository(), world.path("away.git")).unwrap();
        (world, None)
    }),
    ("the host shows a state that isn't believed", || {
        let world = World::running();
        world.hand.forge(|draft| draft.key = None);
        (world, None)
    }),
    ("the operator has published nothing for the device yet", || (World::enrolled(), None)),
    ("docker doesn't answer", || with_knob("unavailable", "")),
    ("another syncer works on the home, where everything runs as wanted", || {
        let world = World::running();
        let before = world.hand.tip("heartbeat");
        let other = command(&world.home(), &["run"]).spawn().unwrap();
        until("it works", || world.hand.tip("heartbeat") != before);
        (world, Some(other))
    }),
    ("`device.yaml` has a mistake", || {
        let world = World::running();
        world.settings("repot: 5m\n");
        (world, None)
    }),
    ("the home was never made", || {
        let world = World::running();
        fs::remove_dir_all(world.home()).unwrap();
        (world, None)
    }),
    ("a newer syncer made the home what it is", || {
        let world = World::running();
        world.lay_out(Some("{\"layout\": 99}"));
        (world, None)
    }),
    ("an option doesn't exist", || (World::running(), None)),
];

fn with_knob(knob: &str, text: &str) -> (World, Option<Child>) {
    let world = World::running();
    world.fake.set(knob, text);
    (world, None)
}

/// The rows of the syncer's table: what it is about, and the exit codes of `plan`, `once` and `status`.
fn rows() -> Vec<(&'static str, Vec<i32>)> {
    let section = PAGE.split("\n## ").find(|section| section.starts_with("`device-syncer`")).expect("its section");
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    let cells = |row: &'static str| row.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>();
    rows.map(|row| {
        let cells = cells(row);
        (cells[0], cells[1..].iter().map(|code| code.parse().expect("a number")).collect())
    })
    .collect()
}

#[test]
fn every_command_ends_with_the_code_that_the_documentation_gives() {
    let named: Vec<_> = SITUATIONS.iter().map(|(situation, _)| *situation).collect();
    let rows = rows();
    assert_eq!(rows.iter().map(|(situation, _)| *situation).collect::<Vec<_>>(), named);
    std::thread::scope(|scope| {
        for ((situation, codes), (_, arrange)) in rows.into_iter().zip(SITUATIONS) {
            scope.spawn(move || {
                let (world, mut running) = arrange();
                let more: &[&str] = if situation.starts_with("an option") { &["--nonsense"] } else { &[] };
                // `status` first, because it changes nothing, then what would be done before it is done.
                for (command, code) in ["status", "plan", "once"].into_iter().zip([codes[2], codes[0], codes[1]]) {
                    let run = world.syncer(&[&[command], more].concat());
                    assert_eq!(run.code, code, "{situation}: {command}: {run:?}");
                    assert!(code == 0 || !(run.stderr + &run.stdout).is_empty(), "{situation}: {command} says why");
                }
                running.iter_mut().for_each(kill);
            });
        }
    });
}
