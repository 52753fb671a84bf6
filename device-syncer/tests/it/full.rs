//! Disks without room, on real file systems: `disk-full`, what runs keeps running, and with room all goes on.

use repo_model::Trailer;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use repo_testkit::faults::power;
use repo_testkit::git;

use crate::world::{App, World, push, text};

/// A file system in memory that can be full; gone when dropped.
pub(crate) struct Tmpfs(PathBuf);

impl Tmpfs {
    pub(crate) fn new(path: PathBuf, size: &str) -> Self {
        fs::create_dir_all(&path).unwrap();
        let size = format!("size={size}");
        text(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "syncer-it"]).arg(&path).output().unwrap());
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A device whose home is on a small disk. The volume comes last, so that it is unmounted before its directory goes.
fn on_a_small_disk() -> (World, Tmpfs) {
    let mut world = World::joined();
    let volume = Tmpfs::new(world.path("volume"), "2m");
    settle(&mut world, &volume.0);
    (world, volume)
}

/// Moves the device's home below `disk`, and runs serial 1 there.
fn settle(world: &mut World, disk: &Path) {
    world.move_home(disk.join("home"));
    world.hand.enroll(&world.key());
    world.hand.want("greeter", &world.app, "hello");
    world.hand.publish();
    world.once().good();
}

/// Takes all the room that there is on a small disk. A file system with a journal finds some more after a sync.
fn fill(disk: &Path) -> PathBuf {
    let path = disk.join("ballast");
    let mut ballast = fs::File::create(&path).unwrap();
    loop {
        let mut blocks = 0;
        while ballast.write_all(&[b'x'; 4096]).is_ok() {
            blocks += 1;
        }
        let _ = ballast.sync_all();
        if blocks == 0 {
            return path;
        }
    }
}

/// An application that the device hasn't got in its cache.
fn another(world: &World) -> App {
    let directory = world.path("another");
    fs::create_dir_all(&directory).unwrap();
    let service = "services: {web: {image: margo-test/busybox:1, environment: {GREETING: \"${GREETING}\"}}}\n";
    fs::write(directory.join("compose.yaml"), service).unwrap();
    push(&directory, "another", "1.0.0")
}

#[test]
fn what_was_not_kept_after_the_floor_was_raised_is_adopted_the_next_time() {
    for continues in [false, true] {
        let (world, volume) = on_a_small_disk();
        let first = world.hand.tip("desired");
        world.assert_cured();
        let adopted = world.report()["adopted"].clone();
        world.hand.want("greeter", &world.app, "after the floor");
        if continues {
            world.hand.move_branch("desired", &first);
        }
        world.hand.forge(|draft| {
            let adopted = format!("{} {}", adopted["envelope"].as_str().unwrap(), adopted["serial"]);
            draft.add_trailer(Trailer::Continues, &adopted);
        });
        // Fetched by the plan; then the floor can be raised in place, and nothing else can be written.
        world.syncer(&["plan"]).ended(3);
        let (ballast, floor) = (fill(&volume.0), fs::read(world.home().join("floor")).unwrap());
        world.once().ended(1).says(&["No space left on device", "hint: disk-full"]);
        assert_ne!(fs::read(world.home().join("floor")).unwrap(), floor);
        assert_eq!(world.report()["adopted"], adopted);
        fs::remove_file(ballast).unwrap();
        world.once().good();
        assert_eq!(world.greetings(), ["after the floor"]);
        world.assert_quiet();
    }
}

/// The home has no room for what is new: nothing happens, and with room all of it does.
fn full_home(world: &World, disk: &Path) {
    let before = (world.fake.calls(), world.containers(), world.hand.tip("status"));
    let ballast = fill(disk);
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    for _ in 0..2 {
        let run = world.once().ended(1);
        run.says(&["error: ", "No space left on device", "hint: disk-full: make room"]);
        let status = world.syncer(&["status"]).good().stdout;
        assert!(status.contains("Stalled: DiskFull: ") && status.contains("No space left on device"), "{status}");
    }
    assert_eq!((world.fake.calls(), world.containers(), world.hand.tip("status")), before);
    fs::remove_file(ballast).unwrap();
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
    let status = world.syncer(&["status"]).good().stdout;
    assert!(!status.contains("DiskFull"), "{status}");
    world.assert_idle();
}

#[test]
fn a_full_disk_is_named_and_what_runs_keeps_running() {
    let (world, volume) = on_a_small_disk();
    full_home(&world, &volume.0);
}

#[test]
fn a_full_disk_of_a_file_system_with_a_journal_is_named_too() {
    let mut world = World::joined();
    let volume = power::Volume::new(8).expect("a file system: this needs root");
    settle(&mut world, &volume.path());
    full_home(&world, &volume.path());
}

#[test]
fn a_floor_that_there_is_no_room_for_stops_the_pass_and_nothing_that_runs() {
    let (world, volume) = on_a_small_disk();
    let before = (world.fake.calls(), world.containers());
    fs::remove_file(world.home().join("floor")).unwrap();
    let ballast = fill(&volume.0);
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1).says(&["floor", "No space left on device", "hint: disk-full"]);
    assert_eq!((world.fake.calls(), world.containers()), before);
    fs::remove_file(ballast).unwrap();
    world.once();
    assert_eq!(world.greetings(), ["servus"]);
    assert_eq!(world.states("greeter"), ["hello installed"]);
}

#[test]
fn a_state_that_there_is_no_room_for_is_told_and_leaves_nothing_behind() {
    let (world, volume) = on_a_small_disk();
    let before = (world.fake.calls(), world.containers());
    let noise = repo_testkit::noise(4_000_000, 0);
    let tip = world.hand.forge(|draft| {
        draft.put("noise", noise);
        draft.seal();
    });
    world.assert_refused("disk-full", &[&tip, "no storage space", "cannot store the fetched objects"]);
    assert_eq!((world.fake.calls(), world.containers()), before);
    let used = text(Command::new("du").args(["-sk"]).arg(&volume.0).output().unwrap());
    let used: u64 = used.split_whitespace().next().unwrap().parse().unwrap();
    assert!(used < 1024, "{used} KiB are left of it");
    assert!(git::try_git(&world.clone(), &["cat-file", "-e", &tip]).status.code() != Some(0));
    // The way from the accepted commit leads over it, and the next state alone has room.
    world.assert_cured();
}

/// `what` of the home is a disk of its own without room, and `greeter` changes.
fn full_below(what: &str, state: &str) {
    let world = World::running();
    let app = another(&world);
    let kept = fs::read_dir(world.home().join(what)).unwrap().count();
    let volume = Tmpfs::new(world.path("volume"), "1m");
    let (inside, outside) = (world.home().join(what), volume.0.join("kept"));
    text(Command::new("cp").arg("-a").arg(&inside).arg(&outside).output().unwrap());
    fs::rename(&inside, world.path("set-aside")).unwrap();
    std::os::unix::fs::symlink(&outside, &inside).unwrap();
    assert_eq!(fs::read_dir(&inside).unwrap().count(), kept);
    let ballast = fill(&volume.0);
    let containers = world.containers();
    world.hand.want("greeter", &app, "servus");
    world.hand.publish();
    for _ in 0..2 {
        world.once().ended(1).says(&["disk-full"]);
        assert_eq!(world.states("greeter"), [format!("hello {state} disk-full")]);
        assert!(world.message("greeter").contains(what), "{}", world.message("greeter"));
        assert_eq!(world.containers(), containers, "what runs keeps running");
    }
    assert_eq!(world.report()["adopted"]["serial"], 2);
    // The attempt is made again and noted in the memory; nothing is told again.
    let told = || (world.hand.tip("status"), world.fake.calls(), world.containers());
    let before = told();
    world.once().ended(1);
    assert_eq!(told(), before);
    fs::remove_file(ballast).unwrap();
    world.once().good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
    assert_eq!(world.greetings(), ["servus"]);
    world.assert_idle();
}

#[test]
fn no_room_for_an_archive_is_told_and_waited_for() {
    full_below("cache", "pending");
}

#[test]
fn no_room_for_a_project_is_told_and_waited_for() {
    full_below("projects", "installing");
}
