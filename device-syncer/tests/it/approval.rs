//! A site that wants a person's word for what is changed: it is bound to just what that person saw.

use repo_testkit::terminate;
use serde_json::{Value, json};

use crate::objects::{by_device_file, secretive, two_components};
use crate::world::{Run, World, command, finish, until};

const ALL: &str = "gates: {approval: {for: ['*'], except: ['metrics*']}}\n";

/// What `approve` names a change.
fn change(world: &World, deployment: &str) -> String {
    let said = world.syncer(&["approve", deployment]).good().stdout;
    assert!(said.contains("Nothing is approved yet."), "{said}");
    said.split("--change ").nth(1).unwrap().split(' ').next().unwrap().to_owned()
}

fn say(world: &World, word: &str, deployment: &str, change: &str) -> Run {
    world.syncer(&[word, deployment, "--change", change, "--by", "j.doe", "--why", "line 2 is idle"])
}

#[test]
fn what_a_person_approved_is_applied_and_a_newer_revision_that_is_something_else_waits_again() {
    let world = World::running();
    world.settings(ALL);
    world.once().good();
    world.syncer(&["approve", "greeter"]).ended(1).says(&["nothing of `greeter` is to be changed"]);
    world.told();
    world.hand.want("greeter", &world.app, "servus");
    world.hand.want("metrics-line-2", &world.app, "hello");
    world.hand.publish();
    let running = world.greetings();
    world.once().ended(1);
    assert_eq!(
        (running, world.states("greeter")),
        (vec!["hello".to_owned()], vec!["hello pending waiting-approval".to_owned()])
    );
    assert_eq!(world.states("metrics-line-2"), ["hello installed"]);
    let seen = change(&world, "greeter");
    let message = world.message("greeter");
    assert_eq!(message, format!("change {seen} waits for a person: `device-syncer approve greeter` shows it"));
    world.assert_quiet();
    let plan = world.syncer(&["plan"]).ended(1).stdout;
    assert!(plan.contains(&format!(". greeter/hello: waiting-approval: {message}")), "{plan}");

    // Between the look and the word the fleet wants something else.
    world.hand.want("greeter", &world.app, "ciao");
    world.hand.publish();
    world.once().ended(1);
    say(&world, "approve", "greeter", &seen).ended(1).says(&["look at it by `approve greeter`"]);
    let newer = change(&world, "greeter");
    assert_ne!(seen, newer);
    let said = say(&world, "approve", "greeter", &newer).good().stdout;
    assert!(said.contains("approved by j.doe: line 2 is idle"), "{said}");
    // Between the word and its pass, too.
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1);
    assert!(!world.greetings().contains(&"servus".to_owned()), "{:?}", world.greetings());
    assert_eq!(change(&world, "greeter"), seen, "the same set has the same name");

    // Another revision that comes to the same keeps the word.
    world.hand.want("greeter", &world.app, "ciao");
    world.hand.publish();
    world.once().good();
    assert!(world.greetings().contains(&"ciao".to_owned()), "{:?}", world.greetings());
    world.assert_idle();
    // What was approved and stops is put back without another word.
    world.stop_all();
    world.once().good();
    world.assert_idle();
}

/// The fleet calls the deployment `metrics-x` that this device has as `greeter`.
fn rename(world: &World) {
    world.hand.forge(|draft| {
        let id = world.hand.deployment_id("greeter").to_string();
        draft.json("envelope.json", |envelope| envelope["deployments"][id]["id"] = "metrics-x".into());
        draft.seal_envelope();
    });
}

#[test]
fn what_is_here_under_a_name_that_is_asked_for_needs_a_word_whatever_the_fleet_calls_it_now() {
    let world = World::running();
    world.settings(ALL);
    // The name alone changes nothing, and is one more from then on.
    rename(&world);
    world.syncer(&["once"]);
    world.hand.want("greeter", &world.app, "servus");
    rename(&world);
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello pending waiting-approval"]);
    assert_eq!(world.greetings(), ["hello"]);
    let message = world.message("greeter");
    assert!(message.ends_with("`device-syncer approve metrics-x` shows it (here it is `greeter`)"), "{message}");
    let seen = change(&world, "metrics-x");
    say(&world, "approve", "metrics-x", &seen).good();
    world.syncer(&["once"]);
    assert_eq!(world.greetings(), ["servus"]);

    // Nor does it go under that name.
    world.hand.drop("greeter");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello removing waiting-approval"]);
}

#[test]
fn what_went_and_is_wanted_again_needs_a_word_again_although_just_that_was_applied_once() {
    let world = World::running();
    two_components(&world);
    world.hand.publish();
    world.once().good();
    world.hand.want("greeter", &world.app, "hello");
    world.hand.publish();
    world.once().good();
    world.settings(ALL);
    two_components(&world);
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello installed", "second pending waiting-approval"]);
    let seen = change(&world, "greeter");
    say(&world, "approve", "greeter", &seen).good();
    world.once().good();
    world.assert_idle();
}

#[test]
fn what_goes_is_approved_as_well_and_what_is_rejected_waits_and_says_who_rejected_it() {
    let world = World::running();
    world.settings(ALL);
    world.hand.drop("greeter");
    world.hand.publish();
    let containers = world.containers();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello removing waiting-approval"]);
    let said = world.syncer(&["approve", "greeter", "--output", "json"]).good().stdout;
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&said["deployment"], &said["goes"][0], &said["said"]),
        (&"greeter".into(), &"hello".into(), &Value::Null)
    );
    let seen = said["change"].as_str().unwrap().to_owned();
    assert_eq!(seen.len(), 64);

    let rejected = say(&world, "reject", "greeter", &seen).good().stdout;
    assert!(rejected.contains("rejected by j.doe: line 2 is idle; it goes on waiting"), "{rejected}");
    world.once().ended(1);
    let message = world.message("greeter");
    let expected = format!("change {} was rejected by j.doe at 2", &seen[..12]);
    assert!(message.starts_with(&expected) && message.ends_with(": line 2 is idle"), "{message}");
    assert_eq!(world.containers(), containers);
    world.assert_quiet();

    say(&world, "approve", "greeter", &seen[..12]).good();
    world.once().good();
    assert_eq!(world.containers(), [""; 0]);
    assert_eq!(world.states("greeter"), ["hello removed"]);

    // The word for the removal isn't one for what comes back.
    world.hand.want("greeter", &world.app, "hello");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello pending waiting-approval"]);
    say(&world, "approve", "greeter", &change(&world, "greeter")).good();
    world.once().good();
    // Nor is that of before for a second removal.
    world.hand.drop("greeter");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello removing waiting-approval"]);
}

#[test]
fn what_only_a_file_of_the_device_changes_needs_no_word_and_what_the_fleet_changes_beside_it_does() {
    let world = World::enrolled();
    let app = secretive(&world);
    let secret = |value: &str| {
        let containers = world.containers();
        containers.len() == 1 && containers[0].contains(&format!("\"SECRET\":\"{value}\""))
    };
    world.hand.want("greeter", &app, "hello");
    by_device_file(&world, "one");
    world.hand.publish();
    world.once().good();
    world.settings(ALL);
    by_device_file(&world, "two");
    let plan = world.syncer(&["plan"]).ended(3).stdout;
    assert!(plan.contains("+ greeter/hello: apply: its inputs changed"), "{plan}");
    world.once().good();
    assert!(secret("two"), "{:?}", world.containers());
    assert_eq!(world.states("greeter"), ["hello installed"]);
    world.assert_idle();
    // The site's own gates for changes count all the same.
    world.settings(
        "gates: {approval: {for: ['*']}, windows: {zone: UTC, apply: {deny: [{start: '* * * * *', length: 7d}]}}}\n",
    );
    by_device_file(&world, "three");
    world.once().ended(1);
    assert_eq!((secret("two"), world.states("greeter")), (true, vec!["hello pending waiting-window".to_owned()]));
    world.settings(ALL);

    world.hand.want("greeter", &app, "servus");
    by_device_file(&world, "three");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!((secret("two"), world.states("greeter")), (true, vec!["hello pending waiting-approval".to_owned()]));
    say(&world, "approve", "greeter", &change(&world, "greeter")).good();
    // What was approved is what was seen: the file, too, while nothing of it began.
    by_device_file(&world, "four");
    world.once().ended(1);
    assert_eq!((secret("two"), world.states("greeter")), (true, vec!["hello pending waiting-approval".to_owned()]));
    say(&world, "approve", "greeter", &change(&world, "greeter")).good();
    world.once().good();
    assert!(secret("four") && world.greetings() == ["servus"], "{:?}", world.containers());
    by_device_file(&world, "five");
    world.once().good();
    assert!(secret("five"), "{:?}", world.containers());
}

#[test]
fn a_running_syncer_goes_on_as_soon_as_a_person_said_so() {
    let world = World::running();
    // Nothing else would make a pass begin.
    world.settings(&format!("{ALL}poll: 1h\nreport: 1h\n"));
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let syncer = command(&world.home(), &["run"]).spawn().expect("it starts");
    until("it waits", || world.states("greeter") == ["hello pending waiting-approval"]);
    say(&world, "approve", "greeter", &change(&world, "greeter")).good();
    until("what was approved is applied", || world.greetings() == ["servus"]);
    terminate(&syncer);
    finish(syncer).good();
}

#[test]
fn a_mistake_around_an_approval_is_named() {
    let world = World::running();
    world.syncer(&["approve"]).ended(2);
    world.syncer(&["approve", "greeter", "--removals"]).ended(2);
    world.syncer(&["approve", "greeter", "--change", "00000000"]).ended(2);
    world.syncer(&["approve", "greeter"]).ended(1).says(&[
        "neither `gates.approval` of device.yaml nor the fleet (`approval: site`) asks anybody about `greeter`",
    ]);
    world.syncer(&["approve", "nobody"]).ended(1).says(&["no deployment `nobody` is wanted or goes here"]);
    let mistakes = [
        ("{for: []}", "gates.approval.for: names no deployment"),
        ("{for: ['']}", "an empty pattern means nothing"),
        ("{except: ['*']}", "for"),
        ("{for: ['*'], unless: []}", "unless"),
    ];
    world.assert_mistakes(&["once"], |approval| format!("gates: {{approval: {approval}}}\n"), &mistakes);
    world.settings(ALL);
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1);
    let seen = change(&world, "greeter");
    for (change, by, words) in [
        (&seen[..4], "j.doe", "and not "),
        ("00000000", "j.doe", "and not 00000000"),
        (seen.as_str(), " ", "`--by` is empty"),
    ] {
        let args = ["approve", "greeter", "--change", change, "--by", by, "--why", "x"];
        world.syncer(&args).ended(1).says(&[words]);
    }
    std::fs::write(world.home().join("approvals.json"), "{").expect("written");
    world.once().ended(1);
    let seen = change(&world, "greeter");
    assert!(
        world.message("greeter").starts_with("nothing counts as approved, because `"),
        "{}",
        world.message("greeter")
    );
    say(&world, "approve", "greeter", &seen).good();
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
}

/// Publishes what is wanted, with this word of the fleet's on approval for the whole device.
fn publish(world: &World, word: &str) {
    world.hand.forge(|draft| {
        draft.json("envelope.json", |envelope| {
            envelope["requires"] = json!(["approval"]);
            envelope["policy"]["approval"] = word.into();
        });
        draft.seal_envelope();
    });
}

#[test]
fn the_fleet_can_have_a_person_at_the_site_asked_whatever_the_site_does() {
    for (site, fleet) in
        [("", "site"), ("gates: {approval: {for: ['*'], except: ['greeter']}}\n", "site"), ("", "some-later-word")]
    {
        let world = World::running();
        world.settings(site);
        world.hand.want("greeter", &world.app, "servus");
        publish(&world, fleet);
        world.once().ended(1);
        assert_eq!(world.states("greeter"), ["hello pending waiting-approval"]);
        world.assert_quiet();
        let seen = change(&world, "greeter");
        say(&world, "approve", "greeter", &seen).good();
        world.once().good();
        assert_eq!(world.greetings(), ["servus"]);
        // What goes is asked for as well.
        world.hand.drop("greeter");
        publish(&world, fleet);
        world.once().ended(1);
        assert_eq!(world.states("greeter"), ["hello removing waiting-approval"]);
    }
}

#[test]
fn a_deployments_own_word_on_approval_counts_before_the_fleets_and_never_before_the_sites() {
    let world = World::running();
    let none =
        |world: &World| world.hand.describe("greeter", |described| described["policy"] = json!({"approval": "none"}));
    world.hand.want("greeter", &world.app, "servus");
    none(&world);
    world.hand.want("other", &world.app, "hello");
    publish(&world, "site");
    world.once().ended(1);
    assert_eq!(
        (world.states("greeter"), world.states("other")),
        (vec!["hello installed".into()], vec!["hello pending waiting-approval".into()])
    );
    world.hand.describe("other", |described| described["policy"] = json!({"approval": "site"}));
    publish(&world, "none");
    world.once().ended(1);
    assert_eq!(world.states("other"), ["hello pending waiting-approval"]);
    world.settings(ALL);
    world.hand.want("greeter", &world.app, "danke");
    none(&world);
    world.hand.drop("other");
    publish(&world, "none");
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello pending waiting-approval"]);
}
