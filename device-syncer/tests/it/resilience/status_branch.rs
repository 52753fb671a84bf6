//! `status` at the host: of two writers, of none, or lost.

use super::*;
use crate::world::script;

/// Two disks that pass in turn: each says once more what it saw, and then there is peace.
fn both_come_to_rest(world: &World, copy: &Path) {
    let in_turn = |times| {
        for _ in 0..times {
            syncer(copy, &["once"]);
            world.once();
        }
    };
    in_turn(2);
    let before = world.hand.tip("status");
    in_turn(3);
    assert_eq!(world.hand.tip("status"), before);
}

#[test]
fn one_identity_on_two_disks_is_told_with_both_names_and_nothing_is_lost() {
    let world = World::running();
    let copy = clone_disk(&world);
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    syncer(&copy, &["once"]).good();
    world.once().good().says(&["HistoryForked"]);
    let instances = [world.home(), copy.clone()].map(|home| {
        let text = fs::read_to_string(home.join("instance")).unwrap();
        text.split(' ').next().unwrap().to_owned()
    });
    assert_ne!(instances[0], instances[1]);
    let event = world.report()["conditions"][0]["message"].as_str().unwrap().to_owned();
    assert!(instances.iter().all(|instance| event.contains(instance.as_str())), "{event}");
    let told = world.told();
    assert_eq!(told.iter().filter(|one| one.contains("installing > installed")).count(), 2, "{told:?}");
    both_come_to_rest(&world, &copy);
    world.assert_whole(false);
    // The next adoption begins anew; a fork that is still there is seen again.
    world.hand.want("greeter", &world.app, "again");
    world.hand.publish();
    world.once();
    assert_eq!(world.report()["adopted"]["serial"], 3);
}

#[test]
fn two_disks_under_one_identity_that_see_different_things_do_not_argue_for_ever() {
    let world = World::running();
    let copy = clone_disk(&world);
    let copied = repo_testkit::fake_docker::FakeDocker::new(world.path("copied-docker"));
    copied.set("fail-up", "not here");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    syncer(&copy, &["once"]).ended(1);
    world.once().good();
    both_come_to_rest(&world, &copy);
    let told = world.history(&world.hand.repository()).join("; ");
    assert!(told.contains("installing > failed compose-failed") && told.contains("installing > installed"), "{told}");
}

#[test]
fn a_tip_on_status_that_no_allowed_key_signed_is_replaced_and_told() {
    let world = World::running();
    let ours = world.hand.tip("status");
    for stranger in [None, Some(world.hand.stranger())] {
        world.hand.forge_on("status", |draft| {
            draft.parents = vec![world.hand.tip("status")];
            draft.key = stranger.clone();
            draft.put("syncer.json", "{}");
        });
        let foreign = world.hand.tip("status");
        world.once().good();
        assert_eq!(world.conditions(), ["SecurityEvent StatusReplaced"]);
        let message = world.report()["conditions"].to_string();
        assert!(message.contains(&foreign), "{message}");
        let known = git::try_git(&world.hand.repository(), &["merge-base", "--is-ancestor", &ours, "status"]);
        assert!(known.status.success(), "our own history goes on");
        world.assert_cured();
        assert_eq!(world.conditions(), Vec::<String>::new());
        world.hand.want("greeter", &world.app, "well");
        world.hand.publish();
        world.once().good();
    }
    world.assert_idle();
}

#[test]
fn a_status_commit_made_by_hand_with_the_devices_key_is_gone_on_from() {
    let world = World::running();
    let key = world.path("status.key");
    fs::copy(world.home().join("status.key"), &key).unwrap();
    world.hand.status(&key, "failed");
    let theirs = world.hand.tip("status");
    world.once().good();
    let known = git::try_git(&world.hand.repository(), &["merge-base", "--is-ancestor", &theirs, "status"]);
    assert!(known.status.success(), "nothing that our own key signed is lost");
    assert_eq!(world.conditions(), ["SecurityEvent HistoryForked"]);
    assert_eq!(world.states("greeter"), ["hello installed"]);
    world.assert_quiet();
}

#[test]
fn a_host_that_takes_no_push_as_yet_holds_nothing_up() {
    let world = World::enrolled();
    world.hand.want("greeter", &world.app, "hello");
    world.hand.publish();
    // Stock Git runs this before it takes a push, and it ends when its pipe was opened and closed.
    let (hook, pipe) = (world.hand.repository().join("hooks/pre-receive"), world.path("pipe"));
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    script(&hook, &format!("cat {} >&2", pipe.display()));
    text(Command::new("mkfifo").arg(&pipe).output().unwrap());
    let pass = command(&world.home(), &["once"]).spawn().unwrap();
    until("it runs", || world.greetings() == ["hello"]);
    let opens = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let held = rustix::fs::open(&pipe, opens, Mode::empty()).expect("the first push waits there still");
    assert_eq!(git::tip(&world.hand.repository(), "status"), None);
    fs::remove_file(&hook).unwrap();
    drop(held);
    finish(pass).good();
    assert_eq!(world.told().len(), 3);
    world.assert_idle();
}

#[test]
fn a_host_that_refuses_status_is_tried_less_and_less_often_and_a_person_sees_it() {
    let world = World::running();
    world.settings("poll: 1s\n");
    let (hook, tries) = (world.hand.repository().join("hooks/update"), world.path("tries"));
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let refuse = format!("case $1 in refs/heads/status) echo >>{}; exit 1;; esac", tries.display());
    script(&hook, &refuse);
    let tries = || fs::read(&tries).map_or(0, |tries| tries.len());
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let syncer = command(&world.home(), &["run"]).spawn().unwrap();
    until("it is refused", || world.greetings() == ["servus"] && tries() > 0);
    std::thread::sleep(Duration::from_secs(8));
    assert!(tries() <= 6, "halved until it can't be the size, then after 5, 10, 20 s: {}", tries());
    let status = world.syncer(&["status"]).good().stdout;
    assert!(status.contains("Stalled: StatusRefused: ") && status.contains("hook declined"), "{status}");
    let doctor = world.syncer(&["doctor"]).stdout;
    assert!(doctor.contains("host: status") && doctor.contains("StatusRefused"), "{doctor}");
    fs::remove_file(&hook).unwrap();
    world.syncer(&["sync-now"]).good();
    until("the host knows", || git::tip(&world.hand.repository(), "status") == git::tip(&world.clone(), "status"));
    until("that is seen", || !world.syncer(&["status"]).good().stdout.contains("StatusRefused"));
    terminate(&syncer);
    finish(syncer).good();
}

#[test]
fn a_host_that_lost_status_gets_it_back() {
    let world = World::running();
    let before = world.hand.tip("status");
    fs::remove_dir_all(world.clone()).unwrap();
    world.once().good();
    git::git(&world.hand.repository(), &["update-ref", "-d", "refs/heads/status"]);
    git::git(&world.hand.repository(), &["gc", "-q", "--prune=now"]);
    world.once().good();
    assert_eq!(world.hand.tip("status"), before);
    world.assert_idle();
}

#[test]
fn a_host_that_lost_what_the_device_has_no_longer_either_gets_the_rest_of_status() {
    let world = World::running();
    world.assert_cured();
    // As after thousands of changes: of the history only the newest is kept here.
    let oldest = git::git(&world.clone(), &["rev-parse", "status~2"]);
    fs::write(world.clone().join("shallow"), format!("{oldest}\n")).unwrap();
    world.settings("limits: {packs: 1}\n");
    let (all, lost) = (git::git(&world.hand.repository(), &["rev-list", "--count", "status"]), || {
        git::git(&world.hand.repository(), &["update-ref", "-d", "refs/heads/status"]);
    });
    // The branch alone is gone: what the host still has of its history stays.
    lost();
    world.once().good();
    assert_eq!(git::git(&world.hand.repository(), &["rev-list", "--count", "status"]), all);
    lost();
    git::git(&world.hand.repository(), &["gc", "-q", "--prune=now"]);
    world.once().good();
    assert_eq!(git::git(&world.hand.repository(), &["rev-list", "--count", "status"]), "3");
    assert_eq!(world.states("greeter"), ["hello installed"]);
    git::git(&world.hand.repository(), &["fsck", "--strict", "--full", "--no-dangling"]);
    world.assert_quiet();
    world.assert_cured();
    assert_eq!(git::git(&world.hand.repository(), &["rev-list", "--count", "status"]), "6");
}
