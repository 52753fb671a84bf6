//! One device on several disks: a new one with a new key, and copies that use one key.

use repo_model::Trailer;
use std::fs;
use std::path::PathBuf;

use repo_testkit::fake_docker::FakeDocker;
use repo_testkit::git;

use crate::resilience::clone_disk;
use crate::world::{World, syncer};

/// The serials on `status`, oldest first, of those commits that have one.
fn serials(world: &World) -> Vec<u64> {
    let format = "--format=%(trailers:key=Serial,valueonly,separator=)";
    let log = git::git(&world.hand.repository(), &["log", "--reverse", format, "status"]);
    log.lines().filter_map(|line| line.parse().ok()).filter(|serial| *serial > 0).collect()
}

fn is_in_status(world: &World, commit: &str) -> bool {
    git::try_git(&world.hand.repository(), &["merge-base", "--is-ancestor", commit, "status"]).status.success()
}

/// Publishes another greeting, with this key as the only one that may report.
fn publish_for(world: &World, key: &str, greeting: &str) {
    fs::write(world.hand.path("var.status_key"), format!("{key}\n")).unwrap();
    world.hand.want("greeter", &world.app, greeting);
    world.hand.publish();
}

/// A device with a history, whose disk is replaced: the home of the old one, and where its `status` stands.
fn replaced(world: &mut World) -> (PathBuf, String) {
    for greeting in ["servus", "griaß di"] {
        world.hand.want("greeter", &world.app, greeting);
        world.hand.publish();
        world.once().good();
    }
    let (old, tip) = (world.home(), world.hand.tip("status"));
    world.move_home(world.path("new-disk"));
    let key = world.key();
    publish_for(world, &key, "from the new disk");
    (old, tip)
}

#[test]
fn a_new_disk_begins_an_epoch_after_what_the_device_said_before_it() {
    let mut world = World::running();
    let (old, before) = replaced(&mut world);
    world.once().good();
    // What the old disk said is the epoch before.
    assert_eq!(world.hand.tip("status-1"), before);
    let first = git::git(
        &world.hand.repository(),
        &["log", "--reverse", "--format=%P;%(trailers:key=Epoch,key=Previous,separator=%x2C)", "status"],
    );
    assert_eq!(first.lines().next(), Some(&*format!(";Epoch: 2,Previous: {before}")));
    assert_eq!(world.conditions(), Vec::<String>::new(), "nobody did anything wrong");
    assert_eq!(world.states("greeter"), ["hello installed"]);
    world.assert_idle();
    let serials = serials(&world);
    assert!(serials.is_sorted() && serials.first() == Some(&4), "{serials:?}");
    // Whoever still has the old key can't go on from what the new disk said.
    let ours = world.hand.tip("status");
    world.hand.status(&old.join("status.key"), "failed");
    let theirs = world.hand.tip("status");
    world.once().good();
    assert!(is_in_status(&world, &ours) && !is_in_status(&world, &theirs));
    assert_eq!(world.conditions(), ["SecurityEvent StatusReplaced"]);
    // Nor does the loss of the new disk's clone lose anything.
    fs::remove_dir_all(world.clone()).unwrap();
    world.once().good();
    assert!(is_in_status(&world, &ours));
    assert_eq!(world.hand.tip("status-1"), before);
}

/// What the old key says isn't the device's word just because it is the old key.
#[test]
fn a_new_disk_replaces_what_its_device_never_said() {
    for stranger in [true, false] {
        let mut world = World::running();
        let (old, before) = replaced(&mut world);
        let key = if stranger { world.hand.stranger() } else { old.join("status.key") };
        let tip = world.hand.tip("desired");
        world.hand.forge_on("status", |draft| {
            draft.parents = vec![before.clone()];
            draft.key = Some(key);
            // The old key may say nothing of a state that doesn't allow it, nor of one that never was.
            if !stranger {
                draft.trailer(Trailer::DesiredCommit, &tip);
            }
        });
        let forged = world.hand.tip("status");
        world.once().good();
        assert!(!is_in_status(&world, &forged), "stranger: {stranger}");
        assert_eq!(world.conditions(), ["SecurityEvent StatusReplaced"]);
    }
}

/// The copy was away with things to tell of an older state.
#[test]
fn status_never_goes_back_to_an_older_state_whoever_uses_the_identity() {
    let world = World::running();
    let copy = clone_disk(&world);
    let copied = FakeDocker::new(world.path("copied-docker"));
    let host = world.hand.repository();
    let away = host.with_extension("away");
    fs::rename(&host, &away).unwrap();
    copied.set("unavailable", "");
    syncer(&copy, &["once"]).ended(1);
    copied.unset("unavailable");
    let lost = world.path("copied-docker").join("state.json");
    let mut state: serde_json::Value = serde_json::from_slice(&fs::read(&lost).unwrap()).unwrap();
    state["containers"] = serde_json::json!({});
    fs::write(&lost, state.to_string()).unwrap();
    syncer(&copy, &["once"]).ended(1);
    let untold = world.history(&copy.join("repository.git"));
    fs::rename(&away, &host).unwrap();
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().good();
    let told = world.hand.tip("status");
    // What the host shows now is refused, so the copy has nothing but the older state to speak of.
    let good = world.hand.tip("desired");
    world.hand.forge(|draft| draft.key = Some(world.hand.stranger()));
    for _ in 0..3 {
        syncer(&copy, &["once"]).ended(1);
    }
    assert_eq!(world.hand.tip("status"), told, "an older state is no news");
    let kept = world.history(&copy.join("repository.git"));
    assert!(kept.len() > untold.len() && kept.len() < untold.len() + 3, "{kept:?}");
    world.hand.move_branch("desired", &good);
    syncer(&copy, &["once"]).good();
    let serials = serials(&world);
    assert!(serials.is_sorted() && serials.last() == Some(&2), "{serials:?}");
    assert!(is_in_status(&world, &told));
    let all = world.history(&host).join("; ");
    for state in untold.iter().flat_map(|states| states.split("; ")).filter(|state| !state.is_empty()) {
        assert!(all.contains(state), "{state} in {all}");
    }
    assert!(all.matches("installing > installed").count() >= 3, "{all}");
}
