//! A clone that is damaged: a bit, a truncated or a missing file, wherever it is, with and without the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use repo_testkit::faults::damage::{Harm, all_harms, flip_object, is_index, is_pack};
use repo_testkit::git;

use crate::world::{Run, World, text};

/// The clone and all that has to go with it. The rest of the home stays: copied keys would be another installation.
struct Backup {
    all: Vec<(PathBuf, PathBuf)>,
    aside: PathBuf,
}

impl Backup {
    fn of(world: &World) -> Self {
        let (backup, home) = (world.path("backup"), world.home());
        fs::create_dir_all(&backup).expect("made");
        let of_home = [world.clone(), home.join("floor"), home.join("device.yaml")];
        let others = [world.fake.dir().to_owned(), world.path("hand")];
        let places = of_home.into_iter().chain(others).enumerate();
        let all: Vec<_> = places.map(|(number, place)| (place, backup.join(number.to_string()))).collect();
        all.iter().for_each(|(place, kept)| copy(place, kept));
        Self { all, aside: aside(world) }
    }

    fn restore(&self) {
        let _ = fs::remove_dir_all(&self.aside);
        self.all.iter().for_each(|(place, kept)| copy(kept, place));
    }
}

fn copy(from: &Path, to: &Path) {
    let _ = if to.is_dir() { fs::remove_dir_all(to) } else { fs::remove_file(to) };
    text(Command::new("cp").arg("-a").arg(from).arg(to).output().expect("cp runs"));
}

fn aside(world: &World) -> PathBuf {
    world.home().join("repository.damaged")
}

/// A device that has adopted, reported and consolidated, so that its clone has history, an older pack and newer ones.
fn grown() -> World {
    let world = World::running();
    world.settings("limits: {packs: 1}\n");
    world.assert_cured();
    world.settings("limits: {packs: 50}\n");
    world.assert_cured();
    // Something that the host doesn't know yet.
    world.assert_idle();
    world
}

/// Neither ends a pass in a way that isn't told.
fn known(run: &Run, what: &str) {
    assert!([0, 1].contains(&run.code) && !run.stderr.contains("panicked"), "{what}: {run:?}");
}

/// Does each of these harms to the same device: first without the host, then with it.
fn survives(which: impl Fn(&Path) -> bool) {
    let world = grown();
    let backup = Backup::of(&world);
    let before = (world.containers(), world.fake.calls());
    let away = world.path("away.git");
    let harms: Vec<_> = all_harms(&world.clone()).into_iter().filter(|(file, _)| which(file)).collect();
    assert!(harms.len() >= 12, "{harms:?}");
    for (file, harm) in harms {
        let what = format!("{} {harm:?}", file.strip_prefix(world.home()).unwrap().display());
        backup.restore();
        harm.does(&file);
        fs::rename(world.hand.repository(), &away).unwrap();
        let run = world.once();
        known(&run, &format!("{what}, without the host"));
        assert_eq!(
            (run.code, world.containers(), world.fake.calls()),
            (1, before.0.clone(), before.1.clone()),
            "{what}"
        );
        let shown = world.syncer(&["status"]);
        known(&shown, &what);
        assert_eq!(shown.stdout.contains("CloneDamaged"), aside(&world).exists(), "{what}: {run:?} {shown:?}");
        fs::rename(&away, world.hand.repository()).unwrap();
        converges(&world, &what);

        backup.restore();
        harm.does(&file);
        let first = world.once();
        known(&first, &what);
        let code = if first.code == 0 { 0 } else { world.once().code };
        assert_eq!((code, world.containers(), world.fake.calls()), (0, before.0.clone(), before.1.clone()), "{what}");
    }
}

/// Two passes at most, and everything is well again; what was set aside is told.
fn converges(world: &World, what: &str) {
    let first = world.once();
    known(&first, what);
    let second = world.once();
    assert_eq!(second.code, 0, "{what}: {first:?} {second:?}");
    let told = world.conditions();
    assert_eq!(told.iter().any(|one| one == "CloneDamaged SetAside"), aside(world).exists(), "{what}: {told:?}");
    let is_trouble = |one: &&String| one.starts_with("Stalled") || one.starts_with("SecurityEvent");
    assert_eq!(told.iter().find(is_trouble), None, "{what}: {first:?} {second:?}");
    if aside(world).exists() {
        let before = world.marks();
        world.once().good();
        assert_eq!(world.marks(), before, "{what}");
        world.assert_whole(true);
    } else if !is_whole(&world.clone()) {
        // What nobody reads but who fetches or puts the packs together: one pass may find it, the next is well.
        world.settings("limits: {packs: 1}\n");
        world.hand.want("greeter", &world.app, "found by what is fetched");
        world.hand.publish();
        known(&world.once(), what);
        world.assert_cured();
        world.assert_whole(true);
    }
}

fn is_whole(clone: &Path) -> bool {
    git::try_git(clone, &["fsck", "--strict", "--no-dangling"]).status.success()
}

#[test]
fn damaged_objects_of_the_clone_are_told_and_fetched_anew_and_what_runs_is_left_alone() {
    survives(is_pack);
}

#[test]
fn damaged_indices_of_the_clone_are_told_and_what_runs_is_left_alone() {
    survives(is_index);
}

#[test]
fn damaged_refs_and_settings_of_the_clone_are_put_right_and_what_runs_is_left_alone() {
    survives(|file| !is_pack(file) && !is_index(file));
}

#[test]
fn a_clone_without_one_of_its_directories_is_made_anew() {
    let world = World::running();
    let backup = Backup::of(&world);
    let before = (world.containers(), world.fake.calls());
    for directory in ["objects", "objects/pack", "refs", "refs/heads", "refs/syncer"] {
        backup.restore();
        fs::remove_dir_all(world.clone().join(directory)).unwrap();
        world.once().good();
        assert_eq!((world.containers(), world.fake.calls()), before.clone(), "{directory}");
        world.assert_idle();
    }
}

#[test]
fn a_bit_in_what_was_accepted_is_told_without_the_host_and_fetched_anew_with_it() {
    for rev in ["refs/syncer/state^1", "refs/syncer/state^1^{tree}", "refs/syncer/state^1:envelope.json"] {
        let world = World::running();
        let (containers, calls) = (world.containers(), world.fake.calls());
        flip_object(&world.clone(), rev);
        let away = world.path("away.git");
        fs::rename(world.hand.repository(), &away).unwrap();
        world.once().ended(1).says(&["AcceptedLost", "SetAside"]);
        let shown = world.syncer(&["status"]).good().stdout;
        assert!(shown.contains("Stalled: AcceptedLost") && shown.contains("greeter/hello  installed"), "{shown}");
        let plan = world.syncer(&["plan"]).ended(1);
        assert!(plan.stdout.contains("AcceptedLost"), "{plan:?}");
        assert_eq!((world.containers(), world.fake.calls()), (containers.clone(), calls.clone()), "{rev}");
        fs::rename(&away, world.hand.repository()).unwrap();
        world.once().good();
        assert_eq!((world.containers(), world.fake.calls()), (containers, calls), "{rev}");
        assert_eq!(world.conditions(), ["CloneDamaged SetAside"], "{rev}");
        world.assert_idle();
        // What was lost and comes back is nothing newer; what is newer ends the condition.
        world.assert_cured();
        assert_eq!(world.conditions(), Vec::<String>::new());
    }
}

#[test]
fn what_was_applied_is_put_back_also_while_what_was_accepted_is_lost_but_for_what_is_suspended_or_held() {
    for (suspended, held) in [(false, false), (true, false), (false, true)] {
        let world = World::running();
        if held {
            world.syncer(&["hold", "greeter", "--by", "j.doe", "--why", "line 2"]).good();
        }
        if suspended {
            world.hand.describe("greeter", |described| described["policy"]["suspended"] = true.into());
            world.hand.publish();
            world.once().good();
        }
        flip_object(&world.clone(), "refs/syncer/state^1");
        let away = world.path("away.git");
        fs::rename(world.hand.repository(), &away).unwrap();
        world.stop_all();
        let starts = || world.fake.calls().iter().filter(|call| call.starts_with("start ")).count();
        let before = starts();
        world.once().ended(1).says(&["AcceptedLost"]);
        assert_eq!(starts() - before, usize::from(!suspended && !held), "{suspended} {held}");
        world.once().ended(1);
        fs::rename(&away, world.hand.repository()).unwrap();
        world.once();
        let expected = match (suspended, held) {
            (true, _) => "hello pending suspended",
            (_, true) => "hello pending held",
            _ => "hello installed",
        };
        assert_eq!(world.states("greeter"), [expected]);
    }
}

#[test]
fn a_bit_in_what_was_accepted_does_not_keep_the_device_from_what_is_newer() {
    let world = World::running();
    flip_object(&world.clone(), "refs/syncer/state^1^{tree}");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
    assert!(world.conditions().is_empty(), "nobody needs to read that any more: {:?}", world.conditions());
    // Who puts the packs together leaves it behind.
    world.settings("limits: {packs: 1}\n");
    world.once().good();
    assert!(world.conditions().is_empty() && is_whole(&world.clone()), "{:?}", world.conditions());
    world.assert_idle();
}

#[test]
fn a_truncated_status_costs_nothing_where_the_state_is_whole() {
    let world = World::running();
    let state = git::git(&world.clone(), &["rev-parse", "refs/syncer/state"]);
    Harm::Truncated.does(&world.clone().join("refs/heads/status"));
    let away = world.path("away.git");
    fs::rename(world.hand.repository(), &away).unwrap();
    world.once().ended(1);
    assert_eq!(git::git(&world.clone(), &["rev-parse", "refs/syncer/state"]), state);
    assert!(!aside(&world).exists());
    fs::rename(&away, world.hand.repository()).unwrap();
    world.assert_idle();
}

#[test]
fn what_could_not_be_told_yet_outlives_a_damaged_clone() {
    let world = World::running();
    let away = world.path("away.git");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.fake.set("fail-up", "no such option");
    // Adopted and told; what follows isn't told yet.
    world.once().ended(1);
    world.told();
    world.fake.set("unavailable", "");
    fs::rename(world.hand.repository(), &away).unwrap();
    world.once().ended(1).says(&["RuntimeUnavailable: docker can't be used"]);
    let untold = git::git(&world.clone(), &["rev-list", "--count", "refs/heads/status"]);
    flip_object(&world.clone(), "refs/syncer/state^1");
    world.once().ended(1).says(&["SetAside"]);
    let kept: u32 = git::git(&world.clone(), &["rev-list", "--count", "refs/heads/status"]).parse().unwrap();
    assert!(kept > untold.parse::<u32>().unwrap(), "its own history is whole");
    fs::rename(&away, world.hand.repository()).unwrap();
    world.fake.unset("unavailable");
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed compose-failed"]);
    let told = git::git(&world.hand.repository(), &["log", "--format=%s", "status"]);
    assert!(told.contains("RuntimeUnavailable"), "{told}");
    assert!(!world.conditions().iter().any(|one| one.contains("fork")), "{:?}", world.conditions());
}

#[test]
fn a_key_that_was_cut_off_is_an_error_and_no_key() {
    let world = World::running();
    let key = world.home().join("hmac.key");
    let whole = fs::read(&key).unwrap();
    for harm in [Harm::Truncated, Harm::Emptied, Harm::Removed] {
        harm.does(&key);
        for command in ["once", "plan", "run"] {
            let run = world.syncer(&[command]).ended(1);
            assert!(run.stderr.contains("hmac.key") && run.stderr.contains("hint: restore the file"), "{run:?}");
        }
        fs::write(&key, &whole).unwrap();
    }
    world.assert_idle();
    // As the hint says.
    fs::remove_file(&key).unwrap();
    world.init(&world.home());
    world.assert_idle();
}
