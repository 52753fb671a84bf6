//! The site's windows at the device: what comes outside them waits, is told, and goes on inside.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::world::World;

/// Windows that are closed for ever, and so is a downtime that never ends.
const NEVER: &str = "[{start: '0 0 * * *', length: 25h}]";

fn windows(world: &World, windows: &str) {
    world.settings(&format!("gates: {{windows: {{zone: Europe/Vienna, {windows}}}}}\n"));
}

#[test]
fn what_comes_outside_the_windows_waits_for_them_and_what_runs_is_healed_meanwhile() {
    for (closed, code) in
        [(format!("apply: {{deny: {NEVER}}}"), "waiting-window"), (format!("downtime: {NEVER}"), "waiting-downtime")]
    {
        let world = World::running();
        world.hand.want("other", &world.app, "hello");
        world.hand.publish();
        world.once().good();
        windows(&world, &closed);
        world.once().good();
        world.hand.want("greeter", &world.app, "servus");
        world.hand.drop("other");
        world.hand.publish();
        let before = (world.fake.calls(), world.containers());
        world.once().ended(1);
        assert_eq!((world.fake.calls(), world.containers()), before);
        assert_eq!(world.states("greeter"), [format!("hello pending {code}")]);
        assert_eq!(world.states("other"), [format!("hello removing {code}")]);
        let gates = world.report()["gates"].as_array().expect("a list").clone();
        let told: Vec<_> = gates.iter().map(|one| format!("{} {}", one["deployment"], one["code"])).collect();
        let mut waits = ["greeter", "other"].map(|name| format!("\"{}\" \"{code}\"", world.hand.deployment_id(name)));
        waits.sort();
        assert_eq!(told, waits);
        world.assert_quiet();
        let plan = world.syncer(&["plan"]).ended(1).stdout;
        assert!(plan.contains(&format!(". greeter/hello: {code}: waits for ")), "{plan}");
        let said = world.syncer(&["windows"]).good().stdout;
        assert!(said.starts_with("closed: no window opens within 400 days"), "{said}");
        windows(&world, "apply: {}");
        world.once().good();
        assert_eq!(world.greetings(), ["servus"]);

        // What stops is put back, whatever is closed.
        windows(&world, &closed);
        world.stop_all();
        world.once().good();
        assert_eq!(world.states("greeter"), ["hello installed"]);
        world.assert_idle();
    }
}

#[test]
fn the_next_windows_are_printed_and_told_with_what_waits_for_them() {
    let world = World::running();
    let said = world.syncer(&["windows"]).good().stdout;
    assert_eq!(said, "changes may be made at any time: device.yaml has no `gates.windows`\n");
    // In a while that is far enough away for this test.
    let opens = Timestamp::now() + SignedDuration::from_hours(12);
    let start = opens.to_zoned(jiff::tz::TimeZone::UTC).strftime("%M %H * * *").to_string();
    world.settings(&format!(
        "gates: {{windows: {{zone: UTC, apply: {{allow: [{{start: '{start}', length: 1h}}]}}}}}}\n"
    ));
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1);
    let out: Value = serde_json::from_str(&world.syncer(&["windows", "--output", "json"]).good().stdout).unwrap();
    assert_eq!((&out["zone"], &out["open"]), (&"UTC".into(), &false.into()));
    let next = out["next"].as_array().unwrap();
    assert_eq!(next.len(), 5);
    let from: Timestamp = next[0]["from"].as_str().unwrap().parse().unwrap();
    let late = from.duration_since(opens).as_secs();
    assert!((-60..360).contains(&late), "{late}");
    assert_eq!(world.message("greeter"), format!("waits for a window, until {from:.0}"));
    let text = world.syncer(&["windows"]).good().stdout;
    assert!(text.starts_with("closed for 1") && text.contains("by the clock of UTC"), "{text}");
}

#[test]
fn a_mistake_in_the_windows_is_named() {
    let world = World::running();
    let mistakes = [
        ("{zone: Mars/Base}", "`gates.windows.zone: Mars/Base` is no time zone"),
        ("{zone: UTC, apply: {allow: [{start: '0 2 1 * 6', length: 1h}]}}", "day and weekday are both restricted"),
        ("{zone: UTC, downtime: [{start: '0 2 * * 6', length: 8d}]}", "length `8d` isn't from 1m to 7d"),
        ("{apply: {}}", "zone"),
    ];
    world.assert_mistakes(&["once", "windows"], |windows| format!("gates: {{windows: {windows}}}\n"), &mistakes);
}
