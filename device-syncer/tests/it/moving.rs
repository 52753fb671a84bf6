//! Another host by hand (`set-host`), and the end of a membership (`leave`).

use std::fs;

use repo_testkit::git;

use crate::world::{World, command, kill, until};

#[test]
fn set_host_moves_a_device_that_keeps_its_identity_until_a_newer_join_file_comes() {
    let world = World::running();
    let key = fs::read(world.home().join("status.key")).unwrap();
    let (moved, containers) = (world.path("moved.git"), world.containers());
    fs::rename(world.hand.repository(), &moved).unwrap();
    world.once().ended(1).says(&["can't be reached"]);
    let said = world.syncer(&["set-host", &moved.display().to_string()]).good().stdout;
    assert!(said.starts_with("serial 1 at `") && said.contains("is believed"), "{said}");
    world.once().good();
    assert_eq!((fs::read(world.home().join("status.key")).unwrap(), world.containers()), (key, containers));
    let status = world.syncer(&["status", "--output", "json"]).good().stdout;
    assert!(status.contains("moved.git"), "{status}");

    world.syncer(&["set-host", "--back"]).ended(1).says(&["isn't followed, and nothing was changed"]);
    fs::rename(&moved, world.hand.repository()).unwrap();
    world.once().ended(1);
    world.syncer(&["set-host", "--back"]).good();
    world.once().good();
    fs::rename(world.hand.repository(), &moved).unwrap();
    world.syncer(&["set-host", &moved.display().to_string()]).good();
    fs::rename(&moved, world.hand.repository()).unwrap();
    world.init(&world.home());
    assert!(!world.home().join("moved.json").exists(), "what the operator says counts");
    world.once().good();
}

#[test]
fn set_host_changes_nothing_where_the_new_host_shows_what_is_not_believed() {
    let world = World::running();
    let set_host = |url: &str| world.syncer(&["set-host", url]).ended(1);
    let nowhere = world.path("nowhere.git");
    set_host(&nowhere.display().to_string()).says(&["HostUnreachable", "nothing was changed"]);
    git::git(&world.path(""), &["init", "--quiet", "--bare", "nowhere.git"]);
    set_host(&nowhere.display().to_string()).says(&["nothing was changed"]);
    let forged = world.path("forged.git");
    let (from, to) = (world.hand.repository().display().to_string(), forged.display().to_string());
    git::git(&world.path(""), &["clone", "--quiet", "--mirror", &from, &to]);
    let tip = world.hand.forge(|draft| draft.key = Some(world.hand.stranger()));
    git::git(&forged, &["fetch", "--quiet", &from, &format!("+{tip}:refs/heads/desired")]);
    set_host(&to).says(&["SignatureInvalid", "nothing was changed"]);
    set_host("ftp://x").says(&["expected `https://"]);
    assert!(!world.home().join("moved.json").exists());

    let before = world.hand.tip("heartbeat");
    let mut running = command(&world.home(), &["run"]).spawn().unwrap();
    until("it works", || world.hand.tip("heartbeat") != before);
    set_host(&to).says(&["another device-syncer works on"]);
    world.syncer(&["leave", "--yes"]).ended(1).says(&["another device-syncer works on"]);
    kill(&mut running);
}

#[test]
fn leave_asks_and_leaves_what_runs_where_nothing_else_is_said() {
    let world = World::running();
    let containers = world.containers();
    world.syncer(&["leave"]).ended(1).says(&["nobody can be asked here"]);
    world.once().good();
    for note in ["hook.json", "approvals.json", "hold.json"] {
        fs::write(world.home().join(note), "{}").unwrap();
    }
    let said = world.syncer(&["leave", "--yes"]).good().stdout;
    for words in ["`press-01` leaves its fleet", "These run on", "- greeter/hello", "out of the fleet"] {
        assert!(said.contains(words), "{words} in {said}");
    }
    assert_eq!(world.containers(), containers);
    let left: Vec<_> =
        fs::read_dir(world.home()).unwrap().map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
    for gone in [
        "status.key",
        "hmac.key",
        "join.json",
        "repository.git",
        "floor",
        "instance",
        "hook.json",
        "approvals.json",
        "hold.json",
    ] {
        assert!(!left.contains(&gone.to_owned()), "{gone} in {left:?}");
    }
    assert!(left.contains(&"device.yaml".to_owned()) && left.contains(&"projects".to_owned()), "{left:?}");
    world.once().ended(1).says(&["is not a device's home"]);
    assert_ne!(world.key(), "", "it can join again, with a key of its own");
}

#[test]
fn leave_removes_what_was_deployed_where_that_is_said_and_not_while_it_is_held() {
    let world = World::running();
    world.syncer(&["hold", "--by", "j.doe", "--why", "line 2"]).good();
    world.syncer(&["leave", "--remove", "--yes"]).ended(1).says(&["while it is held by j.doe"]);
    world.syncer(&["release"]).good();
    world.fake.set("unavailable", "");
    world
        .syncer(&["leave", "--remove", "--yes"])
        .ended(1)
        .says(&["can't be removed, and the device is still a member"]);
    world.fake.unset("unavailable");
    world.once().good();
    let said = world.syncer(&["leave", "--remove", "--yes"]).good().stdout;
    assert!(said.contains("removed: greeter/hello\n"), "{said}");
    assert!(world.containers().is_empty());
    assert!(!world.home().join("join.json").exists());
}
