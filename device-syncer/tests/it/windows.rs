//! The windows of fleet and site at the device: what comes outside them waits, is told, and goes on inside.

use std::fs;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use repo_testkit::terminate;
use serde_json::{Value, json};

use crate::clocks::Kernel;
use crate::world::{App, World, command, push, until};

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
fn what_failed_for_good_inside_the_windows_is_tried_again_inside_them_only() {
    let world = World::failed();
    windows(&world, &format!("apply: {{deny: {NEVER}}}"));
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed compose-failed"], "it stays so until somebody wants it tried");
    let calls = world.fake.calls();
    let assert_waits = || {
        world.once().ended(1);
        assert_eq!(
            (world.states("greeter"), world.fake.calls()),
            (vec!["hello pending waiting-window".to_owned()], calls.clone())
        );
    };
    world.syncer(&["retry"]).good();
    assert_waits();
    for greeting in ["ciao", "servus"] {
        world.hand.want("greeter", &world.app, greeting);
        world.hand.publish();
        assert_waits();
    }
    windows(&world, "apply: {}");
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
    world.assert_idle();
}

#[test]
fn the_next_windows_are_printed_and_told_with_what_waits_for_them() {
    let world = World::running();
    let said = world.syncer(&["windows"]).good().stdout;
    let nobody = "changes may be made at any time: neither device.yaml (`gates.windows`) nor the fleet has windows\n";
    assert_eq!(said, nobody);
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

/// Publishes what is wanted, with these windows of the fleet's for the whole device.
fn publish(world: &World, windows: &Value) {
    world.hand.forge(|draft| {
        draft.json("envelope.json", |envelope| {
            envelope["requires"] = json!(["windows"]);
            envelope["policy"]["windows"] = windows.clone();
        });
        draft.seal_envelope();
    });
}

/// Windows of the fleet that open this many minutes from now for an hour, and each day again.
fn opens_in(minutes: i64) -> Value {
    let start = (Timestamp::now() + SignedDuration::from_mins(minutes)).to_zoned(jiff::tz::TimeZone::UTC);
    let start = start.strftime("%M %H * * *").to_string();
    json!({"zone": "UTC", "apply": {"allow": [{"start": start, "lengthSeconds": 3600}]}})
}

fn closed_for_ever() -> Value {
    json!({"zone": "UTC", "apply": {"deny": [{"start": "0 0 * * *", "lengthSeconds": 86400}]}})
}

/// A pass that leaves `greeter` as it is, and says why.
fn assert_waits(world: &World, code: &str, words: &str) {
    let before = (world.fake.calls(), world.containers());
    world.once().ended(1);
    assert_eq!((world.fake.calls(), world.containers()), before);
    assert_eq!(world.states("greeter"), [format!("hello pending {code}")]);
    assert!(world.message("greeter").contains(words), "{}", world.message("greeter"));
}

#[test]
fn changes_wait_for_the_fleets_windows_until_the_fleet_opens_them() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "servus");
    publish(&world, &closed_for_ever());
    assert_waits(&world, "waiting-window", "by the fleet's windows none comes within 400 days");
    world.assert_quiet();
    let said = world.syncer(&["explain", "greeter"]).good().stdout;
    assert!(said.contains("never, by the fleet's windows as they are now"), "{said}");
    publish(&world, &json!({"zone": "UTC", "downtime": [{"start": "0 0 * * *", "lengthSeconds": 86400}]}));
    assert_waits(&world, "waiting-downtime", "waits for the end of a downtime");
    publish(&world, &opens_in(600));
    assert_waits(&world, "waiting-window", "waits for a window, until ");
    let said = world.syncer(&["windows"]).good().stdout;
    assert!(said.starts_with("closed for ") && said.contains("by the fleet's windows, by the clock of UTC"), "{said}");
    // A fix that can't wait comes with open windows in one commit.
    publish(&world, &json!({"zone": "UTC"}));
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
    world.assert_idle();
}

/// A pass that puts back what was stopped, with what it was started with before, and says no more of it.
fn assert_put_back_while_it_waits(world: &World, state: &str) {
    let before = world.containers();
    let plan = world.syncer(&["plan"]).ended(3).stdout;
    assert!(plan.contains("(what was applied is put back: "), "{plan}");
    world.once().ended(1);
    assert_ne!(world.containers(), before, "started again");
    assert_eq!((world.greetings(), world.states("greeter")), (vec!["hello".into()], vec![state.into()]));
    world.assert_quiet();
}

#[test]
fn what_runs_is_put_back_for_as_long_as_a_newer_set_waits_and_after_a_power_cut_whatever_is_said_of_drift() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "servus");
    publish(&world, &closed_for_ever());
    assert_waits(&world, "waiting-window", "by the fleet's windows none comes");
    world.stop_all();
    assert_put_back_while_it_waits(&world, "hello pending waiting-window");
    // What is held isn't put back, nor what is only told.
    world.stop_all();
    world.syncer(&["hold", "--by", "j.doe", "--why", "line 2"]).good();
    assert_waits(&world, "held", "line 2");
    world.syncer(&["release"]).good();
    assert_put_back_while_it_waits(&world, "hello pending waiting-window");
    world.settings("gates: {drift: report}\n");
    world.once().ended(1);
    let whole = world.containers();
    world.stop_all();
    world.reboot("second boot");
    assert_put_back_while_it_waits(&world, "hello pending waiting-window");
    assert_ne!(world.containers(), whole);
    world.stop_all();
    assert_waits(&world, "waiting-window", "by the fleet's windows none comes");
    world.settings("");
    // The same of what would go.
    world.hand.drop("greeter");
    publish(&world, &closed_for_ever());
    assert_put_back_while_it_waits(&world, "hello removing waiting-window");
    publish(&world, &json!({"zone": "UTC"}));
    world.once().good();
    assert!(world.containers().is_empty());
}

#[test]
fn the_fleets_windows_and_the_sites_have_to_be_open_both() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "servus");
    let closed = format!("apply: {{deny: {NEVER}}}");
    windows(&world, &closed);
    publish(&world, &json!({"zone": "UTC"}));
    assert_waits(
        &world,
        "waiting-window",
        "by the fleet's windows and `gates.windows` of device.yaml together none comes",
    );
    windows(&world, "apply: {}");
    publish(&world, &closed_for_ever());
    assert_waits(&world, "waiting-window", "together none comes");
    // Each opens each day, and never at the same time.
    let site =
        (Timestamp::now() + SignedDuration::from_hours(2)).to_zoned(jiff::tz::TimeZone::UTC).strftime("%M %H * * *");
    world
        .settings(&format!("gates: {{windows: {{zone: UTC, apply: {{allow: [{{start: '{site}', length: 1h}}]}}}}}}\n"));
    publish(&world, &opens_in(-10));
    assert_waits(&world, "waiting-window", "together none comes");
    let out: Value = serde_json::from_str(&world.syncer(&["windows", "--output", "json"]).good().stdout).unwrap();
    assert_eq!((&out["open"], &out["siteZone"], &out["fleetZone"]), (&false.into(), &"UTC".into(), &"UTC".into()));
    assert_eq!(out["next"], json!([]));
    windows(&world, "apply: {}");
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
}

#[test]
fn a_deployments_own_windows_count_in_the_place_of_the_fleets_and_never_of_the_sites() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "servus");
    world.hand.describe("greeter", |described| described["policy"] = json!({"windows": {"zone": "UTC"}}));
    world.hand.want("other", &world.app, "hello");
    publish(&world, &closed_for_ever());
    world.once().ended(1);
    assert_eq!(world.greetings(), ["servus"]);
    assert_eq!(world.states("other"), ["hello pending waiting-window"]);
    let said = world.syncer(&["windows"]).good().stdout;
    assert!(said.starts_with("closed: no window opens"), "{said}");
    assert!(said.contains("greeter, which has windows of its own: open: changes may be made now"), "{said}");
    world.hand.want("greeter", &world.app, "danke");
    world.hand.describe("greeter", |described| described["policy"] = json!({"windows": {"zone": "UTC"}}));
    windows(&world, &format!("apply: {{deny: {NEVER}}}"));
    publish(&world, &json!({"zone": "UTC"}));
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello pending waiting-window"]);
    // What isn't wanted any more has no windows of its own.
    windows(&world, "apply: {}");
    world.hand.drop("greeter");
    publish(&world, &closed_for_ever());
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello removing waiting-window"]);
}

#[test]
fn nothing_begins_shortly_before_the_windows_close() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "servus");
    // Open for some 50 minutes more; each time for 54 at least, as late as a device may begin.
    let with = |last_start: u32| {
        let mut windows = opens_in(-10);
        windows["lastStartSeconds"] = last_start.into();
        windows
    };
    publish(&world, &with(52 * 60));
    assert_waits(&world, "waiting-window", "waits for a window, until ");
    let said = world.syncer(&["windows"]).good().stdout;
    assert!(said.starts_with("closed for ") && said.contains("nothing begins in the last 52m"), "{said}");
    windows(&world, "lastStart: 52m");
    publish(&world, &with(60));
    assert_waits(&world, "waiting-window", "waits for a window, until ");
    windows(&world, "lastStart: 1m");
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
}

/// Windows of the fleet in which the device talks to its host for an hour, in 10 hours.
fn silent() -> Value {
    json!({"zone": "UTC", "talk": opens_in(600)["apply"]})
}

#[test]
fn outside_its_windows_a_running_syncer_says_nothing_to_its_host_and_goes_on_by_itself() {
    let world = World::running();
    publish(&world, &silent());
    // What somebody says at the device counts at any time.
    world.once().good();
    let said = || (world.hand.tip("heartbeat"), world.hand.tip("status"));
    let before = said();
    let mut running = command(&world.home(), &["run"]).spawn().unwrap();
    world.hand.want("greeter", &world.app, "servus");
    publish(&world, &silent());
    for _ in 0..2 {
        world.stop_all();
        until("it is healed", || world.greetings() == ["hello"]);
    }
    assert_eq!(said(), before);
    world.syncer(&["sync-now"]).good();
    until("the new state runs", || world.greetings() == ["servus"]);
    terminate(&running);
    assert!(running.wait().unwrap().success());
}

#[test]
fn in_the_fleets_downtime_a_device_says_nothing_and_heals_and_in_the_sites_own_it_talks() {
    let world = World::running();
    let began = (Timestamp::now() - SignedDuration::from_mins(5)).to_zoned(jiff::tz::TimeZone::UTC);
    let start = began.strftime("%M %H * * *").to_string();
    let down = json!({"zone": "UTC", "downtime": [{"start": start, "lengthSeconds": 36000}]});
    publish(&world, &down);
    // What somebody says at the device counts at any time.
    world.once().good();
    let said = || (world.hand.tip("heartbeat"), world.hand.tip("status"));
    let before = said();
    let mut running = command(&world.home(), &["run"]).spawn().unwrap();
    world.hand.want("greeter", &world.app, "servus");
    publish(&world, &down);
    for _ in 0..2 {
        world.stop_all();
        until("it is healed", || world.greetings() == ["hello"]);
    }
    assert_eq!(said(), before);
    world.syncer(&["sync-now"]).good();
    until("the new state waits", || world.syncer(&["status"]).stdout.contains("waiting-downtime"));
    terminate(&running);
    assert!(running.wait().unwrap().success());

    // The same of the site's, of which its host knows nothing.
    publish(&world, &json!({"zone": "UTC"}));
    world.once().good();
    world.settings(&format!("gates: {{windows: {{zone: UTC, downtime: [{{start: '{start}', length: 10h}}]}}}}\n"));
    let mut running = command(&world.home(), &["run"]).spawn().unwrap();
    world.hand.want("greeter", &world.app, "moin");
    world.hand.publish();
    until("it says what it adopted", || world.report()["adopted"]["serial"] == world.hand.serial());
    terminate(&running);
    assert!(running.wait().unwrap().success());
}

#[test]
fn a_device_talks_to_its_host_where_windows_leave_no_time_for_it_or_are_not_to_be_kept() {
    let never = json!({"deny": [{"start": "0 0 * * *", "lengthSeconds": 86400}]});
    for (windows, clock) in [
        (json!({"zone": "Mars/Base", "talk": never}), "clock: {rtc: true}"),
        (json!({"zone": "UTC", "talk": never}), "clock: {rtc: true}"),
        (silent(), "clock: {rtc: false}"),
    ] {
        let world = World::running();
        let unsynchronised = Kernel::new(&world, false);
        world.settings(&format!("{clock}\n"));
        publish(&world, &windows);
        unsynchronised.syncer(&["once"]);
        let mut running = unsynchronised.command(&["run"]).spawn().unwrap();
        world.hand.want("greeter", &world.app, "servus");
        publish(&world, &json!({"zone": "UTC"}));
        until("it says what it adopted", || world.report()["adopted"]["serial"] == world.hand.serial());
        terminate(&running);
        running.wait().unwrap();
    }
}

#[test]
fn windows_by_a_clock_that_the_device_does_not_know_are_closed_and_it_says_so() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "servus");
    publish(&world, &json!({"zone": "Mars/Base"}));
    assert_waits(&world, "waiting-window", "this device doesn't know the time zone `Mars/Base` of the fleet's windows");
    let said = world.syncer(&["windows"]).good().stdout;
    assert!(said.starts_with("closed: this device doesn't know"), "{said}");
    let said = world.syncer(&["explain", "greeter"]).good().stdout;
    assert!(said.contains("when what the text names is over"), "{said}");
}

#[test]
fn a_mistake_in_the_windows_is_named() {
    let world = World::running();
    let mistakes = [
        ("{zone: Mars/Base}", "gates.windows.zone: `Mars/Base` is no time zone"),
        ("{zone: UTC, apply: {allow: [{start: '0 2 1 * 6', length: 1h}]}}", "day and weekday are both restricted"),
        ("{zone: UTC, downtime: [{start: '0 2 * * 6', length: 8d}]}", "length `8d` isn't from 1m to 7d"),
        ("{apply: {}}", "zone"),
        ("{zone: UTC, lastStart: 25h}", "gates.windows.lastStart: `25h` is no duration from 1s to 24h"),
        ("{zone: UTC, overrun: never}", "gates.windows.overrun: `never` is none of `deployment`, `component`"),
    ];
    world.assert_mistakes(&["once", "windows"], |windows| format!("gates: {{windows: {windows}}}\n"), &mistakes);
}

/// `hello` with another image, as nobody has it here.
pub(crate) fn another_app(world: &World) -> App {
    let hello = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/apps/hello/compose.yaml");
    let (directory, compose) = (world.path("another"), fs::read_to_string(hello).unwrap());
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("compose.yaml"), compose.replace("margo-test/busybox:1", "margo-test/other:1")).unwrap();
    push(&directory, "fetched-apart", "1.0.0")
}

/// Whether the archive of this application, and the image of `another_app`, were fetched.
fn fetched(world: &World, app: &App) -> (bool, bool) {
    let archive = world.home().join("cache/sha256").join(app.content.trim_start_matches("sha256:"));
    (archive.exists(), world.fake.calls().iter().any(|call| call.starts_with("pull margo-test/other")))
}

fn never() -> Value {
    json!({"deny": [{"start": "0 0 * * *", "lengthSeconds": 86400}]})
}

#[test]
fn packages_and_images_are_fetched_in_windows_of_their_own_and_changes_made_with_what_is_here() {
    let world = World::running();
    let app = another_app(&world);
    // Nothing is fetched now, and what is here is changed and healed all the same.
    world.hand.want("greeter", &world.app, "servus");
    publish(&world, &json!({"zone": "UTC", "fetch": never()}));
    world.once().good();
    world.stop_all();
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
    // The host is asked, the new state adopted and reported on, and what isn't here waits.
    world.hand.want("other", &app, "hallo");
    let tomorrow = json!({"zone": "UTC", "fetch": opens_in(600)["apply"]});
    publish(&world, &tomorrow);
    world.once().ended(1);
    assert_eq!(world.report()["adopted"]["serial"], world.hand.serial());
    assert_eq!(
        (world.states("other"), fetched(&world, &app)),
        (vec!["hello pending waiting-window".into()], (false, false))
    );
    let words = "not all that it needs is here, and it waits for a window in which that is fetched, until ";
    assert!(world.message("other").starts_with(words), "{}", world.message("other"));
    let gate = &world.report()["gates"][0];
    let id = world.hand.deployment_id("other").to_string();
    assert_eq!((&gate["deployment"], &gate["code"]), (&id.as_str().into(), &"waiting-window".into()));
    let until = gate["until"].as_str().expect("until when");
    assert!(
        gate["since"].is_string() && words.len() > 9 && gate["text"].as_str().unwrap().contains(&until[..16]),
        "{gate}"
    );
    let said = world.syncer(&["explain", "other"]).good().stdout;
    assert!(said.contains("a window in which that is fetched") && said.contains("by itself"), "{said}");
    let said = world.syncer(&["windows"]).good().stdout;
    assert!(said.starts_with("open: ") && said.contains("charts, archives and images are fetched from "), "{said}");
    world.assert_quiet();
    // The site's closed windows stay closed, whatever the fleet says.
    windows(&world, &format!("fetch: {{deny: {NEVER}}}"));
    publish(&world, &json!({"zone": "UTC", "fetch": {}}));
    world.once().ended(1);
    assert_eq!(fetched(&world, &app), (false, false));
    assert!(world.message("other").contains("together none comes within 400 days"), "{}", world.message("other"));
    // Fetched ahead, while no change may be made: the fleet's windows for changes don't open a site's for fetching.
    windows(&world, &format!("apply: {{deny: {NEVER}}}, fetch: {{}}"));
    let plan = world.syncer(&["plan"]).ended(1).stdout;
    assert!(plan.contains("(what it needs is fetched already)"), "{plan}");
    world.once().ended(1);
    assert_eq!((fetched(&world, &app), world.greetings()), ((true, true), vec!["servus".to_owned()]));
    assert_eq!(world.states("other"), ["hello pending waiting-window"]);
    world.assert_quiet();
    // What was fetched is applied when nothing may be fetched, also by a syncer that was begun anew.
    windows(&world, "apply: {}");
    publish(&world, &json!({"zone": "UTC", "fetch": never()}));
    let before = world.fake.calls().len();
    world.once().good();
    assert_eq!(world.states("other"), ["hello installed"]);
    assert!(!world.fake.calls()[before..].iter().any(|call| call.starts_with("pull ")), "{:?}", world.fake.calls());
    world.assert_idle();
}

#[test]
fn a_side_that_says_nothing_of_fetching_has_it_done_with_the_changes() {
    let world = World::running();
    let app = another_app(&world);
    world.hand.want("other", &app, "hallo");
    // The fleet fetches at any time, and the site's windows for changes are for what they need, too.
    windows(&world, &format!("apply: {{deny: {NEVER}}}"));
    publish(&world, &json!({"zone": "UTC", "fetch": {}}));
    world.once().ended(1);
    assert_eq!(fetched(&world, &app), (false, false));
    // By a clock that nobody vouches for nothing is fetched; the fleet, which is heard, and the site can end that.
    world.settings("clock: {rtc: false}\n");
    let unsynchronised = Kernel::new(&world, false);
    unsynchronised.syncer(&["once"]).ended(1);
    assert_eq!(fetched(&world, &app), (false, false));
    assert!(world.message("other").contains("clock is synchronised"), "{}", world.message("other"));
    world.hand.forge(|draft| {
        draft.json("envelope.json", |envelope| {
            envelope["policy"].as_object_mut().unwrap().remove("windows");
            envelope["requires"] = json!([]);
        });
        draft.seal_envelope();
    });
    unsynchronised.syncer(&["once"]).good();
    assert_eq!(fetched(&world, &app), (true, true));
}

#[test]
fn a_running_syncer_fetches_when_the_window_opens_and_not_before() {
    let world = World::running();
    let app = another_app(&world);
    world.hand.want("other", &app, "hallo");
    publish(&world, &json!({"zone": "UTC", "fetch": never()}));
    let mut running = command(&world.home(), &["run"]).spawn().unwrap();
    until("it waits for a window", || world.states("other") == ["hello pending waiting-window"]);
    assert_eq!(fetched(&world, &app), (false, false));
    // A fix that can't wait opens its windows itself: a state is fetched at any time.
    publish(&world, &json!({"zone": "UTC", "fetch": opens_in(-10)["apply"]}));
    until("it is installed", || world.states("other") == ["hello installed"]);
    terminate(&running);
    assert!(running.wait().unwrap().success());
}
