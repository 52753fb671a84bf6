//! What is lost, gone, full, killed or there twice.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use repo_testkit::{git, terminate};
use rustix::fs::{Mode, OFlags};

use crate::world::{App, World, command, finish, kill, syncer, text, until};

/// Puts the host out of reach, and back.
struct Away(PathBuf, PathBuf);

impl Away {
    fn take(world: &World) -> Self {
        let (here, away) = (world.hand.repository(), world.path("away.git"));
        fs::rename(&here, &away).expect("moved");
        Self(here, away)
    }

    fn back(self) {
        fs::rename(self.1, self.0).expect("moved");
    }
}

#[test]
fn a_lost_clone_costs_no_mutation_and_no_transition_is_told_twice() {
    let world = World::running();
    let (calls, containers, before) = (world.fake.calls(), world.containers(), world.hand.tip("status"));
    fs::remove_dir_all(world.clone()).unwrap();
    world.once().good();
    assert_eq!((world.fake.calls(), world.containers()), (calls, containers));
    assert_eq!(world.told(), Vec::<String>::new());
    assert_eq!(world.hand.tip("status"), before, "it goes on from the host's `status`");
    world.assert_idle();
    world.assert_cured();
    assert_eq!(world.told().len(), 3);
    world.assert_whole(true);
}

#[test]
fn a_lost_clone_is_lost_while_the_host_is_away_too() {
    let world = World::running();
    let (before, status) = (world.containers(), world.hand.tip("status"));
    fs::remove_dir_all(world.clone()).unwrap();
    let away = Away::take(&world);
    for _ in 0..2 {
        world.once().ended(1).says(&["can't be reached"]);
    }
    assert_eq!(world.containers(), before);
    away.back();
    world.once().good();
    assert_eq!(world.hand.tip("status"), status, "nothing was said meanwhile that the host knows better");
    world.assert_idle();
}

#[test]
fn a_damaged_clone_is_set_aside_and_made_anew() {
    let world = World::running();
    let before = world.containers();
    let packs = fs::read_dir(world.clone().join("objects/pack")).unwrap();
    for pack in packs.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|it| it == "pack"))
    {
        fs::set_permissions(&pack, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&pack, b"rotten").unwrap();
    }
    world.once().good();
    assert_eq!(world.containers(), before);
    assert_eq!((world.told(), world.conditions()), (vec![String::new()], vec!["CloneDamaged SetAside".to_owned()]));
    assert!(world.home().join("repository.damaged").exists());
    world.assert_idle();
}

#[test]
fn the_floor_survives_the_loss_of_the_clone() {
    let world = World::running();
    let first = world.hand.tip("desired");
    world.assert_cured();
    fs::remove_dir_all(world.clone()).unwrap();
    world.hand.move_branch("desired", &first);
    let before = world.containers();
    let run = world.once().ended(1);
    assert!(run.stderr.contains("SerialRollback") && run.stderr.contains("serial 1 is below 2"), "{run:?}");
    assert_eq!(world.containers(), before);
    world.hand.set_serial(2);
    world.assert_cured();
}

#[test]
fn a_lost_floor_is_made_anew_from_the_clone_and_told() {
    let world = World::running();
    let first = world.hand.tip("desired");
    world.assert_cured();
    fs::remove_file(world.home().join("floor")).unwrap();
    world.once().good().says(&["FloorLost"]);
    assert_eq!(world.conditions(), ["SecurityEvent FloorLost"]);
    let second = world.hand.tip("desired");
    world.hand.move_branch("desired", &first);
    let run = world.once().ended(1);
    assert!(run.stderr.contains("serial 1 is below 2"), "{run:?}");
    world.hand.move_branch("desired", &second);
    world.assert_cured();
    assert_eq!(world.conditions(), Vec::<String>::new(), "an event stays until the next adoption");
}

#[test]
fn without_clone_and_floor_the_join_file_is_the_floor() {
    let world = World::running();
    let join = world.home().join("join.json");
    let text = fs::read_to_string(&join).unwrap().replace("\"serial\":0", "\"serial\":5");
    fs::write(&join, text).unwrap();
    fs::remove_dir_all(world.clone()).unwrap();
    fs::remove_file(world.home().join("floor")).unwrap();
    world.once().ended(1).says(&["SerialRollback", "serial 1 is below 5"]);
    assert_eq!(world.greetings(), ["hello"]);
    world.hand.set_serial(5);
    world.assert_cured();
}

#[test]
fn while_the_host_is_away_the_device_goes_on_and_tells_later() {
    let world = World::running();
    let away = Away::take(&world);
    let mut state: serde_json::Value =
        serde_json::from_slice(&fs::read(world.fake.dir().join("state.json")).unwrap()).unwrap();
    state["containers"] = serde_json::json!({});
    fs::write(world.fake.dir().join("state.json"), state.to_string()).unwrap();
    world.once().ended(1).says(&["can't be reached"]);
    assert_eq!(world.greetings(), ["hello"], "what was missing runs again");
    let backlog = world.history(&world.clone()).len();
    world.once().ended(1);
    assert_eq!(world.history(&world.clone()).len(), backlog, "being away is no news");
    away.back();
    world.once().good();
    assert_eq!(world.told().len(), 2, "installing, installed");
    world.assert_idle();
}

#[test]
fn while_docker_is_gone_status_says_so_and_then_all_goes_on() {
    let world = World::running();
    world.fake.set("unavailable", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1).says(&["RuntimeUnavailable: docker can't be used"]);
    assert_eq!(world.conditions(), ["RuntimeUnavailable RuntimeUnavailable"]);
    assert_eq!(world.report()["adopted"]["serial"], 2);
    world.assert_quiet();
    let beat = git::show(&world.hand.repository(), "heartbeat", "current-state.json").unwrap();
    assert!(String::from_utf8(beat).unwrap().contains("\"health\":\"unknown\""));
    world.fake.unset("unavailable");
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
    assert_eq!(world.conditions(), Vec::<String>::new());
    world.assert_idle();
}

#[test]
fn what_a_runtime_that_never_answered_shall_run_has_its_word_on_status() {
    let world = World::enrolled();
    world.fake.set("unavailable", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1).says(&["RuntimeUnavailable: docker can't be used"]);
    assert_eq!(world.states("greeter"), ["hello pending runtime-unavailable"]);
    world.fake.unset("unavailable");
    world.once().good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
    world.assert_idle();
}

#[test]
fn docker_that_goes_away_during_an_apply_is_waited_for() {
    let world = World::running();
    world.fake.set("fail-up", "error during connect: unexpected EOF");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello installing runtime-unavailable"]);
    world.once().good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
    world.assert_idle();
}

#[test]
fn what_docker_refuses_is_failed_and_its_neighbour_runs() {
    let world = World::enrolled();
    world.hand.want("greeter", &world.app, "hello");
    world.hand.want("other", &world.app, "hello");
    world.fake.set(&format!("fail-up-{}", world.project("greeter")), "no such option");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed compose-failed"]);
    assert_eq!(world.states("other"), ["hello installed"]);
    let before = world.marks();
    world.once().ended(1);
    assert_eq!(world.marks(), before, "it isn't tried again");
    world.assert_whole(false);
}

#[test]
fn a_registry_that_is_away_holds_what_is_new_and_leaves_what_runs() {
    let world = World::running();
    let calls = world.fake.calls();
    let unknown = format!("sha256:{:064}", 0);
    let app = App {
        repository: "oci://127.0.0.1:1/nothing/here".to_owned(),
        manifest: unknown.clone(),
        content: unknown,
        ..world.app.clone()
    };
    world.hand.want("greeter", &app, "servus");
    world.hand.want("other", &world.app, "hello");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello pending artifact-unavailable"]);
    assert_eq!(world.states("other"), ["hello installed"]);
    assert!(world.fake.calls().starts_with(&calls));
    assert!(world.greetings().iter().all(|greeting| greeting == "hello"));
    world.assert_quiet();
}

#[test]
fn two_syncers_do_not_work_on_one_home() {
    let world = World::running();
    world.fake.set("hang-up", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let first = command(&world.home(), &["once"]).spawn().unwrap();
    until("it applies", || world.states("greeter") == ["hello installing"]);
    for args in [["once"], ["run"]] {
        let run = world.syncer(&args).ended(1);
        assert!(run.stderr.contains("another device-syncer works on"), "{run:?}");
        assert!(run.stderr.contains("hint: ") && run.stderr.contains(&world.home().display().to_string()), "{run:?}");
    }
    let status = world.syncer(&["status"]).good();
    assert!(status.stdout.contains("greeter/hello  installing"), "{status:?}");
    world.fake.unset("hang-up");
    finish(first).good();
    world.assert_idle();
}

#[test]
fn a_child_that_outlives_a_killed_syncer_is_waited_for() {
    let world = World::running();
    world.fake.set("hang-up", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let mut first = command(&world.home(), &["once"]).spawn().unwrap();
    until("it applies", || world.greetings() == ["servus"]);
    until("it has told so", || world.states("greeter") == ["hello installing"]);
    kill(&mut first);
    world.told();
    let log = world.path("second.log");
    let second = command(&world.home(), &["once"]).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    until("it waits", || fs::read_to_string(&log).unwrap().contains("waiting for what a killed syncer left running"));
    let waiting = world.fake.calls();
    world.fake.unset("hang-up");
    finish(second).good();
    assert!(world.fake.calls().starts_with(&waiting));
    assert_eq!(world.told(), ["greeter/* installing > installed; greeter/hello installing > installed"]);
    world.assert_idle();
}

#[test]
fn a_child_that_never_ends_is_ended() {
    let world = World::running();
    world.fake.set("hang-up", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let mut first = command(&world.home(), &["once"]).spawn().unwrap();
    until("it applies", || world.greetings() == ["servus"]);
    kill(&mut first);
    let left = holders(&world.home().join("children.lock"));
    assert!(!left.is_empty());
    let second = command(&world.home(), &["once"]).spawn().unwrap();
    // The knob is for the child of the first alone: the second's own call comes once that is gone.
    until("the child is ended", || left.iter().all(|pid| !holds(*pid, &world.home().join("children.lock"))));
    world.fake.unset("hang-up");
    let run = finish(second).good();
    assert!(run.stderr.contains("ending what a killed syncer left running"), "{run:?}");
    world.assert_idle();
}

/// The processes that keep a file open.
fn holders(path: &Path) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|one| one.file_name().to_str()?.parse().ok());
    pids.filter(|pid| holds(*pid, path)).collect()
}

/// Whether a process keeps a file open.
fn holds(pid: u32, path: &Path) -> bool {
    let mut files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.any(|file| fs::read_link(file.path()).is_ok_and(|target| target == path))
}

#[test]
fn an_application_that_takes_the_device_down_is_given_up_after_three_boots() {
    let world = World::running();
    // With two at work, both would be suspects.
    world.settings("jobs: 1\n");
    world.hand.want("greeter", &world.app, "bomb");
    world.hand.want("other", &world.app, "hello");
    world.hand.publish();
    for boot in ["one", "two", "three"] {
        world.reboot(boot);
        world.fake.set("hang-up", "");
        let mut syncer = command(&world.home(), &["once"]).spawn().unwrap();
        until("it applies", || {
            let attempts = git::show(&world.clone(), "refs/syncer/state", "attempt.json").unwrap_or_default();
            String::from_utf8(attempts).unwrap().contains(&format!("\"bootId\":\"{boot}\""))
                && holders(&world.home().join("children.lock")).iter().any(|pid| *pid != syncer.id())
        });
        kill(&mut syncer);
        world.fake.unset("hang-up");
        until("its child has ended", || holders(&world.home().join("children.lock")).is_empty());
        // What the power took: nothing says that the apply was complete.
        fs::remove_dir_all(world.home().join("projects")).unwrap();
    }
    world.reboot("four");
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed crash-loop"]);
    assert_eq!(world.states("other"), ["hello installed"]);
    let told = world.told().join("; ");
    assert_eq!(told.matches("greeter/hello pending > installing").count(), 1, "{told}");
    assert_eq!(told.matches("greeter/hello installing > failed crash-loop").count(), 1, "{told}");
    world.assert_quiet();
    world.hand.want("greeter", &world.app, "harmless");
    world.hand.publish();
    world.once().good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
}

/// A copy of the device's disk: home, and a docker of its own.
pub(crate) fn clone_disk(world: &World) -> PathBuf {
    let (home, docker) = (world.path("copied-home"), world.path("copied-docker"));
    for (from, to) in [(world.home(), &home), (world.fake.dir().to_owned(), &docker)] {
        text(Command::new("cp").arg("-a").arg(from).arg(to).output().unwrap());
    }
    let settings = fs::read_to_string(home.join("device.yaml")).unwrap();
    let settings = settings.replace(&world.fake.host(), &format!("fake://{}", docker.display()));
    fs::write(home.join("device.yaml"), settings).unwrap();
    home
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
    // Each says once more what it saw, and then there is peace.
    for _ in 0..2 {
        syncer(&copy, &["once"]);
        world.once();
    }
    let before = world.hand.tip("status");
    for _ in 0..3 {
        syncer(&copy, &["once"]);
        world.once();
    }
    assert_eq!(world.hand.tip("status"), before);
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
    for _ in 0..2 {
        syncer(&copy, &["once"]);
        world.once();
    }
    let before = world.hand.tip("status");
    for _ in 0..3 {
        syncer(&copy, &["once"]);
        world.once();
    }
    assert_eq!(world.hand.tip("status"), before);
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
fn a_syncer_that_runs_follows_the_repository_and_ends_on_request() {
    let world = World::enrolled();
    world.hand.want("greeter", &world.app, "hello");
    world.hand.publish();
    let syncer = command(&world.home(), &["--log", "json", "run"]).spawn().unwrap();
    until("it is adopted", || world.states("greeter") == ["hello installed"]);
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    until("the change is applied", || {
        world.greetings() == ["servus"] && world.states("greeter") == ["hello installed"]
    });
    terminate(&syncer);
    let run = finish(syncer).good();
    for line in run.stderr.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|_| panic!("a line of JSON: {line}"));
    }
    // It may have ended before it saw the proof of freshness, which comes behind the state.
    world.once().good();
    world.assert_idle();
}

#[test]
fn a_syncer_that_is_told_to_end_during_an_apply_lets_it_come_to_its_end() {
    let world = World::running();
    world.fake.set("hang-up", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let mut syncer = command(&world.home(), &["run"]).spawn().unwrap();
    until("it applies", || world.greetings() == ["servus"]);
    terminate(&syncer);
    std::thread::sleep(Duration::from_secs(8));
    assert!(syncer.try_wait().unwrap().is_none(), "half of it would be worse");
    world.fake.unset("hang-up");
    finish(syncer).good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
    world.assert_idle();
}

#[test]
fn a_syncer_that_is_told_to_end_while_it_waits_for_health_ends_at_once() {
    let world = World::running();
    world.fake.set("starting-web", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let syncer = command(&world.home(), &["run"]).spawn().unwrap();
    until("it waits", || world.greetings() == ["servus"]);
    let began = Instant::now();
    terminate(&syncer);
    finish(syncer).good();
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
}

#[test]
fn a_syncer_that_is_told_to_end_during_an_apply_that_hangs_ends_and_the_next_goes_on() {
    let world = World::running();
    world.fake.set("hang-up", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.edit("greeter", |text| text.replace("timeout: 1m", "timeout: 10m"));
    world.hand.publish();
    let syncer = command(&world.home(), &["run"]).spawn().unwrap();
    until("it applies", || world.greetings() == ["servus"]);
    let began = Instant::now();
    terminate(&syncer);
    finish(syncer).good();
    // The service manager gives it 90 seconds.
    assert!((60..85).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert!(holders(&world.home().join("children.lock")).is_empty(), "its child has ended too");
    world.fake.unset("hang-up");
    world.once().good();
    let told = world.told();
    assert_eq!(told.len(), 3, "{told:?}");
    world.assert_idle();
}

#[test]
fn a_newer_revision_ends_the_wait_for_an_older_one() {
    let world = World::running();
    world.fake.set("starting-web", "");
    world.hand.want("greeter", &world.app, "never healthy");
    world.hand.publish();
    let syncer = command(&world.home(), &["run"]).spawn().unwrap();
    until("it waits", || world.greetings() == ["never healthy"]);
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    until("the newer one is applied", || world.greetings() == ["servus"]);
    world.fake.unset("starting-web");
    until("it is well", || world.states("greeter") == ["hello installed"]);
    terminate(&syncer);
    finish(syncer).good();
    world.assert_idle();
}

#[test]
fn what_is_applied_comes_to_its_end_before_a_newer_revision_is() {
    let world = World::running();
    world.fake.set("hang-up", "");
    world.hand.want("greeter", &world.app, "first");
    world.hand.publish();
    let log = world.path("run.log");
    let syncer = command(&world.home(), &["run"]).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    until("it applies", || world.greetings() == ["first"]);
    let children = holders(&world.home().join("children.lock"));
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    until("the newer one is adopted", || fs::read_to_string(&log).unwrap().contains("is outdated, and ends"));
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(holders(&world.home().join("children.lock")), children, "half of it would be worse");
    assert_eq!(world.greetings(), ["first"]);
    world.fake.unset("hang-up");
    until("the newer one is applied", || world.greetings() == ["servus"]);
    until("it is well", || world.states("greeter") == ["hello installed"]);
    terminate(&syncer);
    finish(syncer).good();
    world.assert_idle();
}

#[test]
fn a_tip_that_nobody_vouches_for_ends_nothing_that_is_at_work() {
    let world = World::running();
    world.settings("poll: 1s\n");
    world.fake.set("hang-up", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let syncer = command(&world.home(), &["run"]).spawn().unwrap();
    until("it applies", || world.states("greeter") == ["hello installing"]);
    for round in 0..3 {
        world.hand.want("greeter", &world.app, &format!("junk {round}"));
        let tip = world.hand.forge(|draft| draft.key = Some(world.hand.stranger()));
        let refused = |words: &str| world.report()["conditions"].to_string().contains(words);
        until("it is refused", || refused(&tip[..7]));
    }
    assert_eq!(
        (world.states("greeter"), world.greetings()),
        (vec!["hello installing".to_owned()], vec!["servus".to_owned()])
    );
    world.fake.unset("hang-up");
    until("it is applied to its end", || world.states("greeter") == ["hello installed"]);
    assert_eq!(world.greetings(), ["servus"]);
    terminate(&syncer);
    finish(syncer);
    let calls = world.fake.calls();
    assert!(!calls.iter().any(|call| call.contains("junk")), "{calls:?}");
}

#[test]
fn health_that_never_comes_is_failed_after_three_tries_and_then_left_alone() {
    let world = World::running();
    world.fake.set("unhealthy-web", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.edit("greeter", |text| text.replace("timeout: 1m", "timeout: 2s"));
    world.hand.publish();
    for state in ["installing", "installing", "failed"] {
        world.once().ended(1);
        assert_eq!(world.states("greeter"), [format!("hello {state} health-timeout")]);
    }
    assert!(world.message("greeter").contains("unhealthy"), "{}", world.message("greeter"));
    world.assert_quiet();
    assert_eq!(world.told().len(), 4, "queued, installing, unhealthy, failed");
    world.fake.unset("unhealthy-web");
    world.assert_cured();
}

#[test]
fn packs_and_objects_of_the_clone_stay_bounded() {
    let world = World::running();
    world.settings("limits: {packs: 3}\n");
    for n in 0..6 {
        world.hand.want("greeter", &world.app, &format!("\"{n}\""));
        world.hand.publish();
        world.once().good();
    }
    let count = git::git(&world.clone(), &["count-objects", "-v"]);
    let number = |word: &str| -> usize {
        count.lines().find_map(|line| line.strip_prefix(word)).unwrap().trim().parse().unwrap()
    };
    assert!(number("packs:") <= 4 && number("count:") <= 4, "{count}");
    let kept = git::git(&world.clone(), &["rev-list", "--count", &world.hand.tip("desired")]);
    assert!(kept.parse::<u32>().unwrap() <= 5, "{kept} states are kept of {}", world.hand.serial());
    // What the host believes that this device has, because it had it once, comes again.
    world.hand.want("greeter", &world.app, "\"0\"");
    world.hand.publish();
    world.once().good();
    assert_eq!(world.greetings(), ["0"]);
    world.assert_idle();
}

#[test]
fn a_host_that_takes_no_push_as_yet_holds_nothing_up() {
    let world = World::enrolled();
    world.hand.want("greeter", &world.app, "hello");
    world.hand.publish();
    // Stock Git runs this before it takes a push, and it ends when its pipe was opened and closed.
    let (hook, pipe) = (world.hand.repository().join("hooks/pre-receive"), world.path("pipe"));
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, format!("#!/bin/sh\ncat {} >&2\n", pipe.display())).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
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
