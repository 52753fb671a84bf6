//! What a site hands over of its policy to the fleet counts within the site's bound, and nothing else does.

use std::process::Stdio;

use repo_testkit::terminate;
use serde_json::{Value, json};

use crate::world::{App, World, command, finish, push, registry, until};

/// An application that asks for a port on every address.
fn open(world: &World, port: u16) -> App {
    let directory = world.path("open");
    std::fs::create_dir_all(&directory).unwrap();
    let compose = format!(
        "services:\n  web:\n    image: margo-test/busybox:1\n    command: [sleep, infinity]\n    \
         environment: {{GREETING: '${{GREETING:-hello}}'}}\n    ports: ['{port}:{port}']\n"
    );
    std::fs::write(directory.join("compose.yaml"), compose).unwrap();
    push(&directory, &format!("open-{port}-{}", world.hand.fleet()), "1.0.0")
}

/// Publishes what the fleet says of the site's policy.
pub(crate) fn say(world: &World, site: Value) {
    world.hand.forge(|draft| {
        draft.json("envelope.json", |envelope| envelope["policy"]["site"] = site);
        draft.seal_envelope();
    });
}

/// A device on which `greeter` runs, and shall ask for port 8090 from now on.
fn asking() -> World {
    let world = World::running();
    world.hand.want("greeter", &open(&world, 8090), "servus");
    world
}

fn is_denied(world: &World) {
    world.once().ended(1);
    assert_eq!(
        (world.states("greeter"), world.greetings()),
        (vec!["hello failed policy-denied".into()], vec!["hello".into()])
    );
}

#[test]
fn what_the_fleet_says_counts_once_the_site_hands_it_over_and_no_further_than_the_site_says_itself() {
    let world = asking();
    let everything = json!({"ports": "any", "privileged": true, "images": ["**"], "hostPaths": [{"path": "/"}]});
    say(&world, everything);
    is_denied(&world);
    let status = world.syncer(&["status"]).good().stdout;
    assert!(!status.contains("from the fleet"), "{status}");

    world.settings("fromFleet: [ports]\npolicy: {ports: [[8000, 8080]]}\n");
    is_denied(&world);
    let status = world.syncer(&["status"]).good().stdout;
    assert!(status.contains("policy.ports comes from the fleet: [[8000,8080]] of \"any\"\n"), "{status}");

    world.settings("fromFleet: [ports]\npolicy: {ports: [[8000, 8099]]}\n");
    world.syncer(&["retry", "greeter"]).good();
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
    world.assert_idle();
    let status: Value = serde_json::from_str(&world.syncer(&["status", "--output", "json"]).good().stdout).unwrap();
    assert_eq!(status["fromFleet"], json!({"ports": {"said": "any", "counts": [[8000, 8099]]}}));
    let said = world.syncer(&["explain", "greeter"]).good().stdout;
    assert!(said.contains("policy.ports comes from the fleet: [[8000,8099]] of \"any\"\n"), "{said}");
}

#[test]
fn what_was_denied_is_tried_again_when_the_fleet_says_more() {
    let world = asking();
    world.settings("fromFleet: [ports]\n");
    say(&world, json!({"ports": [[80, 80]]}));
    is_denied(&world);
    world.assert_quiet();
    say(&world, json!({"ports": [[80, 80], [8090, 8090]]}));
    world.once().good();
    assert_eq!((world.greetings(), world.states("greeter")), (vec!["servus".into()], vec!["hello installed".into()]));
    world.assert_idle();
    // What is taken back stops nothing that runs.
    say(&world, json!({}));
    world.once().good();
    world.assert_idle();
    world.hand.want("greeter", &open(&world, 8090), "moin");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(
        (world.greetings(), world.states("greeter")),
        (vec!["servus".into()], vec!["hello failed policy-denied".into()])
    );
}

#[test]
fn what_the_site_takes_back_is_judged_anew_beside_what_runs_and_counts_again_when_it_is_handed_over() {
    let world = asking();
    let settings = |more: &str| world.settings(&format!("poll: 1s\nreport: 1s\n{more}"));
    settings("fromFleet: [ports]\n");
    say(&world, json!({"ports": [[8090, 8090]]}));
    let child = command(&world.home(), &["run"]).stderr(Stdio::null()).spawn().unwrap();
    until("it is let do that", || world.greetings() == ["servus"] && world.states("greeter") == ["hello installed"]);
    assert_eq!(world.conditions(), [""; 0]);
    settings("");
    until("it isn't any more", || world.conditions() == ["PolicyViolated NotAdmitted"]);
    assert_eq!((world.greetings(), world.states("greeter")), (vec!["servus".into()], vec!["hello installed".into()]));
    settings("fromFleet: [ports]\n");
    until("it is let do that again", || world.conditions().is_empty());
    terminate(&child);
    finish(child).good();
    assert_eq!(world.greetings(), ["servus"]);
}

#[test]
fn a_mirror_that_the_fleet_names_counts_with_the_state_that_says_it_and_without_a_restart() {
    let (world, away) = (World::running(), "127.0.0.1:1");
    let wants = |port: u16, greeting: &str, site: Value| {
        let app = open(&world, port);
        let app = App { repository: app.repository.replace(&registry(), away), ..app };
        world.hand.want("greeter", &app, greeting);
        say(&world, site);
    };
    let mirrors = json!({"registries": {"mirrors": {away: [registry()]}}});
    let settings = |more: &str| world.settings(&format!("poll: 1s\nreport: 1s\npolicy: {{ports: any}}\n{more}"));
    let is_unavailable =
        || until("it can't be had", || world.states("greeter") == ["hello pending artifact-unavailable"]);
    settings("");
    let child = command(&world.home(), &["run"]).stderr(Stdio::null()).spawn().unwrap();
    wants(8090, "servus", mirrors.clone());
    is_unavailable();
    settings("fromFleet: [registries]\n");
    until("the mirror has it", || world.greetings() == ["servus"] && world.states("greeter") == ["hello installed"]);

    wants(8091, "moin", json!({}));
    is_unavailable();
    assert_eq!(world.greetings(), ["servus"]);
    say(&world, mirrors);
    until("the mirror has that, too", || world.greetings() == ["moin"]);
    terminate(&child);
    finish(child).good();
}

#[test]
fn what_can_not_be_read_of_the_fleets_is_as_if_it_were_not_said() {
    let world = asking();
    world.settings("fromFleet: [ports, external]\n");
    for ports in [json!("all"), json!([[8090]]), json!(null), json!({"any": true})] {
        say(&world, json!({"ports": ports, "external": 7, "more": 1}));
        is_denied(&world);
    }
    let mistakes = [
        ("[privileged]", "root on this machine: write it into `policy` yourself"),
        ("[devices]", "write the most that the fleet may say into `policy.devices`"),
        ("['*']", "is none of `ports`, `external`, `capabilities`, `devices`, `registries`"),
    ];
    world.assert_mistakes(&["once"], |keys| format!("fromFleet: {keys}\n"), &mistakes);
}
