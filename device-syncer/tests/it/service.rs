//! What a service manager hears of a syncer that runs: real datagrams, as systemd would get them.

use std::cell::RefCell;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use repo_testkit::service_manager::ServiceManager;
use repo_testkit::terminate;

use crate::rhythm::lose_containers;
use crate::world::{World, command, finish, kill, until};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(60);

fn start(world: &World, manager: &ServiceManager, watchdog: Duration) -> Child {
    let mut syncer = command(&world.home(), &["run"]);
    manager.manages(&mut syncer, watchdog);
    syncer.spawn().unwrap()
}

#[test]
fn a_service_manager_hears_that_it_is_ready_how_it_is_and_that_it_ends() {
    let world = World::running();
    let manager = ServiceManager::at(&world.path("notify"));
    let running = start(&world, &manager, LONG);
    assert_eq!(manager.until("STATUS="), ["READY=1", "STATUS=up to date"]);
    terminate(&running);
    assert!(manager.until("STOPPING").contains(&"STOPPING=1".to_owned()));
    finish(running).good();
}

#[test]
fn what_stands_in_the_way_is_one_line_of_its_status() {
    let world = World::running();
    world.fake.set("fail-up", "no such option\nREADY=0");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let manager = ServiceManager::at(&world.path("notify"));
    let mut running = start(&world, &manager, LONG);
    let said = manager.until("STATUS=");
    let status = said.last().unwrap();
    assert!(status.contains("greeter") && !status.contains('\n'), "{said:?}");
    kill(&mut running);
}

#[test]
fn the_watchdog_is_fed_while_a_pass_lasts_and_while_nothing_is_to_do() {
    let world = World::running();
    world.settings("poll: 1h\n");
    world.fake.set("hang-up", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let manager = ServiceManager::at(&world.path("notify"));
    let running = start(&world, &manager, SHORT);
    until("it applies", || world.greetings() == ["servus"]);
    // More than the socket keeps: what comes in the end was said while the apply lasts.
    manager.hears_it_live(30);
    world.fake.unset("hang-up");
    assert_eq!(manager.until("STATUS=").last().unwrap(), "STATUS=up to date");
    manager.hears_it_live(30);
    terminate(&running);
    manager.until("STOPPING=1");
    finish(running).good();
}

/// Whoever opens it to read waits, until somebody writes into it.
fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A syncer that has been at rest for longer than a pass may take.
fn at_rest(world: &World) -> (ServiceManager, Child) {
    let manager = ServiceManager::at(&world.path("notify"));
    let running = start(world, &manager, 2 * SHORT);
    manager.until("STATUS=up to date");
    manager.hears_it_live(30);
    (manager, running)
}

/// What makes the pass hang is `device.yaml` on a disk that doesn't answer: a pipe that nobody writes into.
#[test]
fn the_watchdog_starves_while_a_pass_hangs_and_is_fed_again_once_it_goes_on() {
    let world = World::running();
    world.settings("poll: 1h\n");
    let (file, saved, pipe) = (world.home().join("device.yaml"), world.path("saved"), world.path("pipe"));
    fs::copy(&file, &saved).unwrap();
    make_pipe(&pipe);
    let (manager, running) = at_rest(&world);

    let writer = File::options().read(true).write(true).open(&pipe).unwrap();
    fs::rename(&pipe, &file).unwrap();
    manager.hears_it_fall_silent(Duration::from_secs(2));

    fs::rename(&saved, &file).unwrap();
    drop(writer);
    manager.hears_it_live(30);
    assert_eq!(world.greetings(), ["hello"]);
    terminate(&running);
    manager.until("STOPPING=1");
    finish(running).good().says(&["no sign of life"]);
}

/// What makes the turn hang is what `set-host` writes, on a disk that doesn't answer.
#[test]
fn the_watchdog_starves_while_a_turn_at_the_host_hangs_though_passes_go_on_and_is_fed_again_once_it_goes_on() {
    let world = World::running();
    world.settings("poll: 1h\nhost: {timeouts: {total: 100ms}}\n");
    let (file, pipe) = (world.home().join("moved.json"), world.path("pipe"));
    make_pipe(&pipe);
    let (manager, running) = at_rest(&world);

    let writer = File::options().read(true).write(true).open(&pipe).unwrap();
    fs::rename(&pipe, &file).unwrap();
    world.syncer(&["sync-now"]).good();
    manager.hears_it_fall_silent(Duration::from_secs(2));
    lose_containers(&world);
    world.syncer(&["retry"]).good();
    until("what is gone is put back meanwhile", || world.greetings() == ["hello"]);
    // A loop that goes on doesn't speak for the other.
    manager.hears_it_fall_silent(SHORT * 5);

    fs::remove_file(&file).unwrap();
    drop(writer);
    manager.hears_it_live(30);
    terminate(&running);
    manager.until("STOPPING=1");
    finish(running).good().says(&["no sign of life"]);
}

#[test]
fn a_syncer_with_a_watchdog_of_its_own_ends_when_a_pass_hangs() {
    let world = World::running();
    world.settings("poll: 1h\n");
    let (file, pipe) = (world.home().join("device.yaml"), world.path("pipe"));
    make_pipe(&pipe);
    let running = RefCell::new(command(&world.home(), &["run", "--watchdog", "600ms"]).spawn().unwrap());
    let has_ended = || running.borrow_mut().try_wait().unwrap().is_some();
    std::thread::sleep(Duration::from_secs(6));
    assert!(!has_ended(), "it is fed while nothing is to do");
    let _writer = File::options().read(true).write(true).open(&pipe).unwrap();
    fs::rename(&pipe, &file).unwrap();
    until("it ends", has_ended);
    let ended = running.into_inner().wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.signal(), Some(rustix::process::Signal::ABORT.as_raw()), "{said}");
    assert!(said.contains("ended by its watchdog"), "{said}");
}

#[test]
fn the_socket_may_be_abstract() {
    let world = World::running();
    let manager = ServiceManager::at_an_abstract_name();
    let running = start(&world, &manager, LONG);
    assert_eq!(manager.until("STATUS="), ["READY=1", "STATUS=up to date"]);
    terminate(&running);
    finish(running).good();
}

#[test]
fn a_home_that_another_syncer_has_is_never_ready() {
    let world = World::running();
    let (first, second) = (ServiceManager::at(&world.path("first")), ServiceManager::at(&world.path("second")));
    let mut running = start(&world, &first, LONG);
    first.until("READY");
    finish(start(&world, &second, LONG)).ended(1).says(&["another device-syncer"]);
    assert!(second.is_silent());
    kill(&mut running);
}
