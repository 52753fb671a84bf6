//! `status` in epochs, at hosts that let them begin and at others.

use super::*;
use crate::world::{Run, script};

/// An epoch has so many commits.
const COMMITS: &str = "6";

fn once(world: &World) -> Run {
    finish(command(&world.home(), &["once"]).env("SYNC_EPOCH_COMMITS", COMMITS).spawn().unwrap()).good()
}

fn greet(world: &World, greetings: u32) {
    for number in 0..greetings {
        world.hand.want("greeter", &world.app, &format!("greeting {number}"));
        world.hand.publish();
        once(world);
    }
}

/// Branches that keep ends of epochs.
fn kept(world: &World) -> Vec<String> {
    let listed =
        git::git(&world.hand.repository(), &["for-each-ref", "--format=%(refname:short)", "refs/heads/status-*"]);
    listed.lines().map(str::to_owned).collect()
}

/// A program that stock Git asks for each ref that shall move: `$1` is its name, `$2` where it stands, `$3` where it goes.
fn hook(world: &World, text: &str) {
    let path = world.hand.repository().join("hooks/update");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    script(&path, text);
}

#[test]
fn an_epoch_begins_with_all_that_was_reported_and_a_lost_clone_goes_on_in_it() {
    let world = World::running();
    greet(&world, 2);
    assert_eq!(kept(&world), ["status-1"]);
    let (end, begin) =
        (world.hand.tip("status-1"), git::git(&world.hand.repository(), &["rev-list", "--max-parents=0", "status"]));
    let tree = |commit: &str| git::git(&world.hand.repository(), &["rev-parse", &format!("{commit}^{{tree}}")]);
    assert_eq!(tree(&begin), tree(&end));
    let message = git::git(&world.hand.repository(), &["log", "-1", "--format=%B", &begin]);
    assert!(
        message.starts_with("epoch begins (serial ") && message.contains(&format!("Epoch: 2\nPrevious: {end}")),
        "{message}"
    );
    assert!(!message.contains("State: "), "{message}");
    assert_eq!(world.conditions(), Vec::<String>::new());
    world.assert_idle();
    fs::remove_dir_all(world.clone()).unwrap();
    once(&world);
    greet(&world, 1);
    assert_eq!(world.states("greeter"), ["hello installed"]);
    assert_eq!(world.conditions(), Vec::<String>::new());
    assert_eq!(world.hand.tip("status-1"), end);
    world.assert_idle();
}

#[test]
fn a_host_that_keeps_no_epochs_or_lets_none_begin_has_one_and_loses_nothing() {
    for refuses in [
        "case $1 in refs/heads/status-*) exit 1;; esac",
        "test $1 != refs/heads/status || git merge-base --is-ancestor $2 $3",
    ] {
        let world = World::running();
        hook(&world, refuses);
        let told = world.history(&world.hand.repository());
        greet(&world, 4);
        let now = world.history(&world.hand.repository());
        assert_eq!(now[..told.len()], told, "{refuses}");
        let steps = now.iter().filter(|one| one.contains("installing > installed")).count();
        assert_eq!(steps, 5, "{refuses}: {now:?}");
        assert_eq!(world.states("greeter"), ["hello installed"]);
        assert_eq!(world.conditions(), Vec::<String>::new(), "{refuses}");
        let log = git::git(&world.hand.repository(), &["log", "--format=%(trailers:key=Epoch)", "status"]);
        assert_eq!(log.trim(), "", "{refuses}: none began");
        world.assert_whole(false);
    }
}

#[test]
fn another_disk_that_goes_on_before_an_epoch_begins_keeps_its_word() {
    let world = World::running();
    // The end is kept, and the power goes; a copy of the disk goes on meanwhile.
    let copy = clone_disk(&world);
    hook(&world, "test $1 != refs/heads/status");
    once_of(&world);
    assert_eq!(kept(&world), ["status-1"]);
    fs::remove_file(world.hand.repository().join("hooks/update")).unwrap();
    world.hand.want("greeter", &world.app, "by the copy");
    world.hand.publish();
    syncer(&copy, &["once"]).good();
    let theirs = world.hand.tip("status");
    once(&world);
    let all = git::git(&world.hand.repository(), &["rev-list", "--branches=status*"]);
    assert!(all.contains(&theirs), "what the copy told stays");
    assert_eq!(world.states("greeter"), ["hello installed"]);
    world.assert_whole(false);
}

/// A pass that ends an epoch at a host that takes no `status` for now.
fn once_of(world: &World) {
    let run = finish(command(&world.home(), &["once"]).env("SYNC_EPOCH_COMMITS", "1").spawn().unwrap());
    assert!(run.code < 2, "{run:?}");
}
