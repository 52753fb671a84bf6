//! When a running syncer looks at the device and asks the host, whatever waits, retries and the path between do; and how
//! much it logs of that. What is counted is compared with other counts, never with a clock.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use repo_testkit::fake_docker::FakeDocker;
use repo_testkit::faults::fault_proxy::{Fault, FaultProxy};
use repo_testkit::faults::listening::Listening;
use repo_testkit::{git, program, terminate};
use serde_json::{Value, json};

use crate::https::{at_home, join, trouble};
use crate::objects::two_components;
use crate::our_host::{OurHost, State};
use crate::windows::another_app;
use crate::world::{App, World, command, finish, kill, push, registry, script, until};

/// Short limits, so that a host that is gone doesn't hold up what is counted.
const SHORT: &str = "host: {timeouts: {connect: 2s, answer: 2s, stall: 1500ms, total: 6s}}\n";

/// A device that waits at a host like ours, behind a proxy that breaks things.
fn behind_a_proxy(state: State) -> (World, OurHost, FaultProxy) {
    let (world, host) = at_home(state);
    let proxy = FaultProxy::start(host.host.address());
    let url = format!("https://{}/devices/press-01.git", proxy.address());
    join(&world, &url, host.host.authority.certificate(), true);
    (world, host, proxy)
}

fn waits() -> State {
    State { wait: Some(Duration::from_secs(300)), ..State::default() }
}

/// A syncer that runs, and its log.
struct Running<'a> {
    world: &'a World,
    child: Child,
}

impl<'a> Running<'a> {
    fn start(world: &'a World) -> Self {
        Self::start_with(world, &[])
    }

    /// With these variables.
    fn start_with(world: &'a World, variables: &[(&str, &str)]) -> Self {
        let log = File::create(world.path("run.log")).unwrap();
        let mut run = command(&world.home(), &["run"]);
        run.env("DEVICE_SYNCER_LOG", "debug").envs(variables.iter().copied()).stderr(log);
        Self { world, child: run.spawn().unwrap() }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.world.path("run.log")).unwrap()
    }

    /// How many passes began.
    fn passes(&self) -> usize {
        self.log().matches("a pass begins").count()
    }

    /// How many turns at the host began.
    fn turns(&self) -> usize {
        self.log().matches("a turn at the host begins").count()
    }

    /// In order, whether each pass that ended before the newest began only looked.
    fn looks(&self) -> Vec<bool> {
        let log = self.log();
        let passes = log.split("a pass begins").skip(1);
        let mut looks: Vec<_> = passes.map(|pass| pass.contains("as the newest pass in full left it")).collect();
        looks.pop();
        looks
    }

    /// The lines that a log shows where nothing is set, without their times.
    fn lines(&self) -> Vec<String> {
        let shown = |line: &&str| [" INFO ", " WARN ", "ERROR "].iter().any(|level| line.contains(level));
        let without_time = |line: &str| line.split_once(' ').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        self.log().lines().filter(shown).map(without_time).collect()
    }

    fn end(self) {
        terminate(&self.child);
        finish(self.child).good();
    }
}

/// As if somebody had removed all of them.
pub(crate) fn lose_containers(world: &World) {
    let state = world.fake.dir().join("state.json");
    let mut json: Value = serde_json::from_slice(&fs::read(&state).unwrap()).unwrap();
    json["containers"] = json!({});
    fs::write(&state, json.to_string()).unwrap();
}

#[test]
fn waits_that_break_off_have_a_back_off_of_their_own_and_polls_and_healing_go_on() {
    let (world, host) = at_home(State { breaks: true, ..waits() });
    world.settings("poll: 1s\nreport: 1h\n");
    let running = Running::start(&world);
    until("it is installed", || world.states("greeter") == ["hello installed"]);
    let (polls, before) = (host.asked("git-upload-pack").len(), host.asked("/wait").len());
    until("it polls", || host.asked("git-upload-pack").len() >= polls + 12);
    let waits = host.asked("/wait").len() - before;
    assert!(waits <= 6, "{waits} waits during 12 polls");
    lose_containers(&world);
    until("it is healed", || world.greetings() == ["hello"]);
    running.end();
}

#[test]
fn a_device_at_rest_is_looked_at_and_each_fourth_pass_is_made_in_full() {
    let (world, _host) = at_home(waits());
    world.settings("poll: 1s\nreport: 1h\n");
    let running = Running::start(&world);
    let has_begun_to_rest = || running.looks().ends_with(&[false, true]);
    until("it rests", has_begun_to_rest);
    let (turns, passes) = (running.turns(), running.looks().len());
    until("it has rested more than once", || running.looks().iter().filter(|is_look| **is_look).count() >= 7);
    let in_full = running.looks()[passes..].iter().filter(|is_look| !**is_look).count();
    let turns = running.turns() - turns;
    assert!(turns <= in_full + 2, "{turns} turns at a host that knows everything, {in_full} passes in full");
    assert!(!running.looks().windows(4).any(|four| four == [true; 4]), "{:?}", running.looks());
    until("it rests again", has_begun_to_rest);
    // Nobody says it, and the next pass sees it: one may have looked already.
    let before = running.looks().len();
    lose_containers(&world);
    until("it is healed", || world.greetings() == ["hello"]);
    let after = running.looks();
    assert!(after[before..].iter().take_while(|is_look| **is_look).count() <= 1, "{after:?}");
    until("it rests once more", has_begun_to_rest);
    world.fake.set("unhealthy-web", "");
    let heartbeat = || git::show(&world.hand.repository(), "heartbeat", "current-state.json").unwrap();
    until("the host is told", || String::from_utf8_lossy(&heartbeat()).contains("degraded"));
    running.end();
}

#[test]
fn a_host_that_wants_to_be_left_alone_or_is_away_delays_no_healing() {
    let (world, host, proxy) = behind_a_proxy(waits());
    world.settings(&format!("poll: 1s\nreport: 1h\n{SHORT}"));
    let running = Running::start(&world);
    until("it waits", || host.state().waiting == 1 && world.states("greeter") == ["hello installed"]);
    proxy.set(Fault::Refuse);
    until("it knows", || trouble(&world).is_some());
    let (passes, connections) = (running.passes(), proxy.counts().connections);
    until("it looks at the device", || running.passes() >= passes + 15);
    assert_eq!(proxy.counts().connections, connections);
    let asked = running.log().matches("ask=Host").count();
    assert!(asked <= 8, "asked {asked} times");
    lose_containers(&world);
    until("it is healed", || world.greetings() == ["hello"]);
    assert_eq!(trouble(&world).as_deref(), Some("Unreachable ConnectionRefused"));
    proxy.set(Fault::None);
    until("it is reached again", || trouble(&world).is_none());
    running.end();
}

/// Also where the host lies: it could as well say nothing.
#[test]
fn a_host_that_says_that_the_device_is_retired_ends_nothing_and_is_left_alone_for_a_day() {
    let (world, host) = at_home(waits());
    world.settings("poll: 1s\nreport: 1h\n");
    let running = Running::start(&world);
    until("it waits", || host.state().waiting == 1 && world.states("greeter") == ["hello installed"]);
    host.state().retired = true;
    world.syncer(&["sync-now"]).good();
    until("it is told", || trouble(&world).as_deref() == Some("Waiting Retired"));
    let heals = |running: &Running<'_>| {
        let (passes, asked) = (running.passes(), host.host.asked().len());
        lose_containers(&world);
        until("it is healed", || world.greetings() == ["hello"]);
        until("it looks at the device", || running.passes() >= passes + 5);
        assert_eq!(host.host.asked().len(), asked, "it asks once a day");
    };
    heals(&running);
    let status = world.syncer(&["status"]).good().stdout;
    assert!(status.contains("Waiting: Retired: the host says that this device is retired"), "{status}");
    running.end();
    // It asks once when it starts, and goes on the same.
    let asked = host.host.asked().len();
    let running = Running::start(&world);
    until("it asked", || host.host.asked().len() > asked);
    until("a pass begins", || running.passes() > 2);
    heals(&running);
    // A person may ask at any time.
    host.state().retired = false;
    world.syncer(&["sync-now"]).good();
    until("it is in service again", || trouble(&world).is_none() && host.state().waiting == 1);
    running.end();
}

#[test]
fn quick_changes_arrive_as_they_are_made() {
    let (world, host) = at_home(waits());
    // Nothing but waits tells of them.
    world.settings("poll: 1h\nreport: 1h\n");
    let first = world.hand.tip("desired");
    let make = |number: usize| {
        let greeting = format!("number {number}");
        world.hand.want("greeter", &world.app, &greeting);
        world.hand.publish();
        (greeting, world.hand.tip("desired"))
    };
    let changes: Vec<_> = (0..12).map(make).collect();
    world.hand.move_branch("desired", &first);
    let running = Running::start(&world);
    until("it waits", || host.state().waiting == 1 && world.states("greeter") == ["hello installed"]);
    for (greeting, tip) in changes {
        world.hand.move_branch("desired", &tip);
        until("it runs", || world.greetings() == [greeting.as_str()]);
    }
    running.end();
}

#[test]
fn a_path_that_ends_idle_connections_is_learnt() {
    for fault in [Fault::CutIdle(Duration::from_secs(7)), Fault::ForgetIdle(Duration::from_secs(7))] {
        let (world, host, proxy) = behind_a_proxy(waits());
        world.settings("poll: 1h\nreport: 1h\n");
        proxy.set(fault);
        let running = Running::start(&world);
        until("it waits", || host.state().waiting == 1 && world.states("greeter") == ["hello installed"]);
        let waited = |seconds: &str| {
            let asked = host.host.asked();
            let wait = |head: &str| {
                head.contains("/wait?") && head.to_lowercase().contains(&format!("prefer: wait={seconds}\r\n"))
            };
            asked.iter().filter(|asked| wait(&asked.head)).count()
        };
        until("it waits for longer than the path bears", || waited("10") == 1);
        until("it waits for as long as the path bears", || waited("5") >= 4);
        assert_eq!(waited("10"), 1, "{fault:?}");
        assert_eq!(trouble(&world), None, "{fault:?}");
        world.hand.want("greeter", &world.app, "on time");
        world.hand.publish();
        until("it runs", || world.greetings() == ["on time"]);
        running.end();
    }
}

#[test]
fn a_wait_on_a_path_that_is_gone_is_noticed() {
    let (world, host, proxy) = behind_a_proxy(waits());
    world.settings(&format!("poll: 1h\nreport: 1h\n{SHORT}"));
    let running = Running::start(&world);
    until("it waits", || host.state().waiting == 1 && world.states("greeter") == ["hello installed"]);
    proxy.set(Fault::HalfOpen);
    until("it knows", || trouble(&world).is_some());
    running.end();
}

/// Nothing is told or tried while these passes are counted: a few are what began, and the rest would be a circle.
fn assert_rests(running: &Running<'_>) {
    std::thread::sleep(Duration::from_secs(10));
    let passes = running.passes();
    std::thread::sleep(Duration::from_secs(4));
    assert!(running.passes() - passes <= 2, "{} passes more: {}", running.passes() - passes, running.log());
}

#[test]
fn a_retry_that_nothing_can_be_done_about_makes_no_pass_due() {
    let world = World::running();
    let unknown = format!("sha256:{:064}", 0);
    let repository = "oci://127.0.0.1:1/nothing/here".to_owned();
    let away = App { repository, manifest: unknown.clone(), content: unknown, ..world.app.clone() };
    world.hand.want("greeter", &away, "servus");
    world.hand.publish();
    world.settings("poll: 1h\nreport: 1h\n");
    let running = Running::start(&world);
    until("it waits for the registry", || world.states("greeter") == ["hello pending artifact-unavailable"]);
    world.fake.set("unavailable", "");
    until("it misses docker", || world.conditions() == ["RuntimeUnavailable RuntimeUnavailable"]);
    assert_rests(&running);
    running.end();
}

#[test]
fn what_was_killed_again_and_again_and_is_suspended_makes_no_pass_due() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "bomb");
    world.hand.publish();
    for _ in 0..3 {
        world.fake.set("hang-up", "");
        let log = File::create(world.path("once.log")).unwrap();
        let mut syncer = command(&world.home(), &["once"]).stderr(log).spawn().unwrap();
        until("it applies", || fs::read_to_string(world.path("once.log")).unwrap().contains(" applying "));
        kill(&mut syncer);
        world.fake.unset("hang-up");
        // What the kill took: nothing says that the apply was complete.
        until("its child has ended", || fs::remove_dir_all(world.home().join("projects")).is_ok());
    }
    world.hand.describe("greeter", |described| described["policy"]["suspended"] = true.into());
    world.hand.publish();
    world.once();
    assert_eq!(world.states("greeter"), ["hello pending suspended"]);
    world.settings("poll: 1h\nreport: 1h\n");
    let running = Running::start(&world);
    until("it looks", || running.passes() == 1);
    assert_rests(&running);
    running.end();
}

#[test]
fn once_and_run_say_what_is_missing() {
    let world = World::enrolled();
    world.hand.want("greeter", &world.app, "hello");
    world.hand.want("other", &world.app, "hello");
    world.fake.set(&format!("fail-up-{}", world.project("greeter")), "no such option");
    world.hand.publish();
    let missing = "greeter/hello: failed";
    for _ in 0..2 {
        let run = world.once().ended(1).says(&[missing, "compose-failed: "]);
        assert!(run.stderr.contains("no such option") && !run.stderr.contains("other/hello: "), "{run:?}");
    }
    let running = Running::start(&world);
    until("it says so too", || {
        running.lines().iter().any(|line| line.contains("pass good=false") && line.contains(missing))
    });
    running.end();
    world.syncer(&["retry"]).good();
    assert!(!world.once().good().stderr.contains(missing));
}

#[test]
fn what_hangs_holds_back_neither_its_neighbours_nor_the_heartbeat_nor_a_newer_revision() {
    let world = World::enrolled();
    world.settings("poll: 1s\nreport: 1s\n");
    world.hand.want("greeter", &world.app, "hello");
    world.fake.set("hang-up", &world.project("greeter"));
    world.hand.publish();
    let running = Running::start(&world);
    until("it hangs", || world.states("greeter") == ["hello installing"]);
    world.hand.want("other", &world.app, "neighbour");
    world.hand.publish();
    until("its neighbour is installed", || world.states("other") == ["hello installed"]);
    // What has just begun says soon what it comes to; this one doesn't.
    std::thread::sleep(Duration::from_secs(31));
    let heartbeat = || git::show(&world.hand.repository(), "heartbeat", "current-state.json");
    let before = heartbeat();
    until("the heartbeat goes on", || heartbeat() != before);
    assert_eq!(world.states("greeter"), ["hello installing"]);
    world.fake.unset("hang-up");
    until("it is installed in the end", || world.states("greeter") == ["hello installed"]);
    running.end();
}

#[test]
fn a_seventh_waits_until_one_of_six_that_hang_is_given_up_and_the_heartbeat_goes_on() {
    let world = World::enrolled();
    // All six begin at once, and not two each two minutes.
    world.settings("poll: 1s\nreport: 1s\njobs: 6\n");
    let names = ["one", "two", "three", "four", "five", "six"];
    world.fake.set("hang-up", &names.map(|name| world.project(name)).join(" "));
    names.iter().for_each(|name| world.hand.want(name, &world.app, name));
    world.hand.publish();
    let running = Running::start(&world);
    let hangs = |name: &&str| world.states(name) == ["hello installing"];
    until("six hang", || names.iter().all(&hangs));
    world.hand.want("seventh", &world.app, "seventh");
    world.hand.publish();
    until("a newer revision is accepted, and the seventh queued", || {
        world.states("seventh") == ["hello pending queued"]
    });
    let message = world.message("seventh");
    assert!(
        message.starts_with("waits for its turn after ") && names.iter().all(|name| message.contains(name)),
        "{message}"
    );
    // The first one comes when what has just begun might have said what it comes to.
    let heartbeat = || git::show(&world.hand.repository(), "heartbeat", "current-state.json");
    for _ in 0..2 {
        let before = heartbeat();
        until("the heartbeat goes on", || heartbeat() != before);
    }
    assert_eq!(world.states("seventh"), ["hello pending queued"]);
    world.syncer(&["hold", "one", "--now", "--by", "j.doe", "--why", "it hangs"]).good();
    until("the seventh is installed", || world.states("seventh") == ["hello installed"]);
    assert!(names[1..].iter().all(&hangs));
    world.fake.unset("hang-up");
    until("five are installed in the end", || names[1..].iter().all(|name| world.states(name) == ["hello installed"]));
    running.end();
}

/// Two begin at once, and no poll comes: what begins to wait for health lets the next one begin.
#[test]
fn six_that_wait_for_health_hold_back_no_seventh() {
    let world = World::enrolled();
    world.settings("poll: 1h\n");
    world.fake.set("starting-web", "");
    let names = ["one", "two", "three", "four", "five", "six"];
    names.iter().for_each(|name| world.hand.want(name, &world.app, name));
    let hello = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/apps/hello/compose.yaml");
    let (directory, compose) = (world.path("page"), fs::read_to_string(hello).unwrap());
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("compose.yaml"), compose.replace("  web:", "  page:")).unwrap();
    world.hand.want("seventh", &push(&directory, "page", "1.0.0"), "seventh");
    world.hand.publish();
    let running = Running::start(&world);
    let are = |state: &str| names.iter().filter(|name| world.states(name) == [format!("hello {state}")]).count();
    until("the seventh is installed", || world.states("seventh") == ["hello installed"]);
    until("all six wait for health beside each other", || are("installing") == 6);
    world.fake.unset("starting-web");
    until("all are installed in the end", || are("installed") == 6);
    running.end();
}

/// What is at work for three seconds counts as what is at work for two minutes.
#[test]
fn more_than_two_are_at_work_once_two_take_long_and_no_poll_is_waited_for() {
    let world = World::enrolled();
    // The memory of this machine may be small.
    world.settings("poll: 1h\n");
    let names = ["one", "two", "three"];
    world.fake.set("hang-up", &names.map(|name| world.project(name)).join(" "));
    names.iter().for_each(|name| world.hand.want(name, &world.app, name));
    world.hand.publish();
    let running = Running::start_with(&world, &[("SYNC_YOUNG", "3")]);
    let are = |state: &str| names.iter().filter(|name| world.states(name) == [format!("hello {state}")]).count();
    until("two hang, and one waits for them", || are("installing") == 2 && are("pending queued") == 1);
    until("the third one begins", || are("installing") == 3);
    world.fake.unset("hang-up");
    until("all are installed in the end", || are("installed") == 3);
    running.end();
}

/// Waits for something that must come soon, and says what took long.
fn soon(what: &str, so: impl Fn() -> bool) {
    let began = Instant::now();
    until(what, so);
    assert!(began.elapsed() < Duration::from_secs(12), "{what}: {:?}", began.elapsed());
}

#[test]
fn a_host_that_falls_silent_delays_neither_healing_nor_what_a_person_says() {
    let (world, _host, proxy) = behind_a_proxy(State::default());
    world.settings("poll: 1s\nreport: 1s\n");
    let running = Running::start(&world);
    until("it is installed", || world.states("greeter") == ["hello installed"]);
    proxy.set(Fault::HalfOpen);
    // A turn at the host is under way, and nobody answers it for longer than all of this takes.
    let turns = || running.log().matches("a turn at the host begins").count();
    let passes = running.passes();
    until("it looks at the device", || running.passes() >= passes + 3);
    let before = turns();
    for _ in 0..2 {
        lose_containers(&world);
        soon("it is healed", || world.greetings() == ["hello"]);
    }
    world.syncer(&["hold", "--by", "j.doe", "--why", "line 2"]).good();
    let passes = running.passes();
    soon("it knows", || running.passes() >= passes + 2);
    lose_containers(&world);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(world.greetings(), [""; 0], "it is held");
    world.syncer(&["release"]).good();
    soon("it is healed again", || world.greetings() == ["hello"]);
    assert!(turns() <= before + 1, "the host is still waited for");
    proxy.set(Fault::Refuse);
    proxy.set(Fault::None);
    until("it is told in the end", || trouble(&world).is_none() && world.report().get("gates").is_none());
    running.end();
}

/// The stand-in for a tool, which first runs these lines of shell; `knob` is a file that is there or not.
fn wrapped(world: &World, name: &str, lines: &str, tool: &str) -> (PathBuf, PathBuf) {
    let (knob, path) = (world.path("knob"), world.path(name));
    script(&path, &format!("knob={}\n{lines}\nexec {tool} \"$@\"", knob.display()));
    (knob, path)
}

/// A device whose docker runs these lines first.
fn with_docker(world: &World, lines: &str) -> PathBuf {
    let (knob, docker) = wrapped(world, "docker.sh", lines, &program("fake-docker").display().to_string());
    let settings = format!("{{program: {}, host: \"{}\"}}", docker.display(), world.fake.host());
    world.settings_of(&world.home(), &settings, "poll: 1s\nreport: 1s\n");
    knob
}

const HANGS: &str = "while [ -e $knob ]; do sleep 0.1; done";

/// The processes of this script.
fn processes(script: &Path) -> usize {
    let lines = fs::read_dir("/proc").unwrap().flatten();
    let lines = lines.filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(&*script.to_string_lossy())).count()
}

#[test]
fn a_runtime_that_hangs_delays_neither_the_heartbeat_nor_that_a_newer_revision_is_accepted() {
    let world = World::running();
    let hang = with_docker(&world, HANGS);
    let running = Running::start(&world);
    until("it works", || running.log().contains("pass good=true"));
    fs::write(&hang, "").unwrap();
    let heartbeat = || git::show(&world.hand.repository(), "heartbeat", "current-state.json");
    let beats = |what: &str| {
        let before = heartbeat();
        soon(what, || heartbeat() != before);
    };
    beats("the heartbeat goes on");
    std::thread::sleep(Duration::from_secs(6));
    let passes = running.passes();
    beats("it goes on still");
    assert_eq!(running.passes(), passes, "nothing waits for the pass that waits for the answer");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    soon("the newer one is accepted", || running.log().contains("adopted serial=2"));
    assert_eq!(world.conditions(), [""; 0], "it may answer yet");
    world.syncer(&["hold", "--by", "j.doe", "--why", "line 2"]).good();
    soon("the hold is told", || world.report()["gates"].to_string().contains("line 2"));
    world.syncer(&["release"]).good();
    soon("the release is told", || world.report().get("gates").is_none());
    // Its time limit ends the question.
    let began = Instant::now();
    while world.conditions() != ["RuntimeUnavailable RuntimeUnavailable"] {
        assert!(began.elapsed() < Duration::from_secs(180), "{}", running.log());
        beats("and on");
    }
    // The stand-in itself: no shell reads applications' files in the sandbox.
    world.settings("poll: 1s\nreport: 1s\n");
    soon("other settings count", || running.log().contains("device.yaml changed"));
    until("it is applied", || world.greetings() == ["servus"]);
    running.end();
}

#[test]
fn a_runtime_that_hangs_delays_the_end_of_the_program_no_more_and_leaves_no_process() {
    let world = World::running();
    let hang = with_docker(&world, HANGS);
    let running = Running::start(&world);
    until("it works", || running.log().contains("pass good=true"));
    fs::write(&hang, "").unwrap();
    let docker = world.path("docker.sh");
    until("it is asked", || processes(&docker) > 0);
    let began = Instant::now();
    running.end();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(processes(&docker), 0);
}

#[test]
fn a_host_that_moves_all_the_time_keeps_no_slow_runtime_from_being_observed() {
    let world = World::running();
    // Slower than it is waited for, where something waits.
    let slow = with_docker(&world, "case \"$1\" in ps) [ -e $knob ] && sleep 8;; esac");
    let running = Running::start(&world);
    until("it works", || running.log().contains("pass good=true"));
    fs::write(&slow, "").unwrap();
    lose_containers(&world);
    let (passes, began) = (running.passes(), Instant::now());
    while world.greetings() != ["hello"] {
        assert!(began.elapsed() < Duration::from_secs(90), "{}", running.log());
        world.hand.publish();
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(running.passes() >= passes + 2, "they went on without it: {}", running.log());
    assert!(!running.log().contains("RuntimeUnavailable"), "{}", running.log());
    fs::remove_file(&slow).unwrap();
    running.end();
}

#[test]
fn one_runtime_that_hangs_delays_no_deployment_of_another_one() {
    let world = World::running();
    let (hang, helm) = wrapped(&world, "helm.sh", HANGS, "false");
    fs::write(&hang, "").unwrap();
    let kubeconfig = world.path("kubeconfig");
    fs::write(&kubeconfig, "apiVersion: v1\nkind: Config\n").unwrap();
    let helm_settings =
        format!("helm: {{program: {}, kubeconfig: {}, context: none}}\n", helm.display(), kubeconfig.display());
    world.settings(&format!("poll: 1s\nreport: 1s\n{helm_settings}"));
    let running = Running::start(&world);
    until("it is asked", || processes(&helm) > 0);
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    soon("it is applied", || world.greetings() == ["servus"]);
    // A whole pass later the other one still hasn't answered.
    world.hand.want("greeter", &world.app, "moin");
    world.hand.publish();
    soon("it is applied, too", || world.greetings() == ["moin"]);
    assert!(processes(&helm) > 0 && !running.log().contains("helm can't be used"), "{}", running.log());
    running.end();
}

#[test]
fn an_engine_whose_socket_says_nothing_delays_neither_a_newer_revision_nor_the_end() {
    let world = World::running();
    let silent = Listening::start(|_, _| true);
    let settings =
        format!("{{program: {}, host: \"unix://{}\"}}", program("fake-docker").display(), silent.path().display());
    world.settings_of(&world.home(), &settings, "poll: 1s\nreport: 1s\n");
    let running = Running::start(&world);
    until("it is asked", || !silent.asked().is_empty());
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    soon("the newer one is accepted", || running.log().contains("adopted serial=2"));
    let began = Instant::now();
    running.end();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn what_begins_and_ends_within_a_moment_is_told_together() {
    let (world, _host, _proxy) = behind_a_proxy(waits());
    world.settings("poll: 1h\nreport: 1h\n");
    let running = Running::start(&world);
    until("it is installed", || world.states("greeter") == ["hello installed"]);
    std::thread::sleep(Duration::from_secs(2));
    world.told();
    let turns = || running.log().matches("ask=IfMoved").count();
    // On a machine that is slow at one moment what is done takes longer than it is gathered.
    let is_together = |number: usize| {
        let before = turns();
        let greeting = format!("change {number}");
        world.hand.want("greeter", &world.app, &greeting);
        world.hand.publish();
        until("it is another", || world.greetings() == [greeting.as_str()]);
        until("it is told", || world.states("greeter") == ["hello installed"]);
        std::thread::sleep(Duration::from_secs(2));
        let (turns, told) = (turns() - before, world.told());
        assert!(told.len() >= 3, "{told:#?}");
        turns < told.len()
    };
    assert!((0..5).any(is_together));
    running.end();
}

#[test]
fn what_stays_as_it_is_is_logged_once() {
    let world = World::running();
    world.settings("poll: 1s\nreport: 1h\n");
    world.fake.set("unavailable", "");
    let running = Running::start(&world);
    until("it goes on looking", || running.passes() >= 6);
    let lines = running.lines();
    assert!(lines.iter().any(|line| line.contains("reason=\"RuntimeUnavailable\"")), "{lines:?}");
    assert_eq!(lines.iter().collect::<BTreeSet<_>>().len(), lines.len(), "{lines:#?}");
    world.fake.unset("unavailable");
    until("it is well", || running.log().contains("pass good=true"));
    world.fake.set("unavailable", "");
    let again = || running.lines().iter().filter(|line| line.contains("pass good=false")).count() == 2;
    until("what comes again is news", again);
    running.end();
}

#[test]
fn settings_that_change_count_without_a_restart_and_a_mistake_in_them_changes_nothing() {
    let world = World::running();
    world.settings("poll: 1h\nreport: 1h\n");
    let running = Running::start(&world);
    until("it works", || running.log().contains("pass good=true"));
    world.settings("poll: 1s\nrepot: 1h\n");
    until("the mistake is said", || running.log().contains("can't be used: what it said before still counts"));
    assert!(running.log().contains("repot"), "{}", running.log());
    let passes = running.passes();
    world.settings("poll: 1s\nreport: 1h\n");
    until("it looks each second", || running.passes() >= passes + 4);
    assert!(running.log().contains("device.yaml changed: what it says now counts from here on"));

    // What runs components is made anew, too.
    let other = FakeDocker::new(world.path("other-docker"));
    let docker = format!("{{program: {}, host: \"{}\"}}", program("fake-docker").display(), other.host());
    world.settings_of(&world.home(), &docker, "poll: 1s\nreport: 1h\n");
    until("the other engine has it", || other.calls().iter().any(|call| call.starts_with("start ")));
    running.end();
}

#[test]
fn windows_policy_mirrors_and_jobs_that_change_count_without_a_restart_and_the_log_says_what_needs_one() {
    let world = World::running();
    let settings = |more: &str| world.settings(&format!("poll: 1s\nreport: 1s\n{more}"));
    let wants = |app: &App, greeting: &str| {
        world.hand.want("greeter", app, greeting);
        world.hand.publish();
    };
    let is = |state: &str| until(state, || world.states("greeter") == [format!("hello {state}")]);
    settings("");
    let running = Running::start(&world);
    until("it works", || running.log().contains("pass good=true"));

    settings("gates: {windows: {zone: UTC, apply: {deny: [{start: '0 0 * * *', length: 25h}]}}}\n");
    until("windows count", || running.log().contains("what it says now counts from here on"));
    wants(&world.app, "window");
    is("pending waiting-window");
    settings("");
    until("the window is gone", || world.greetings() == ["window"]);

    settings("policy: {archives: []}\n");
    is("failed policy-denied");
    assert_eq!(world.greetings(), ["window"]);
    settings("");
    is("installed");

    let away = "127.0.0.1:1";
    let elsewhere = another_app(&world);
    wants(&App { repository: elsewhere.repository.replace(&registry(), away), ..elsewhere }, "mirror");
    is("pending artifact-unavailable");
    world.add_mirrors(away, &[&registry()], false);
    until("the mirror has it", || world.greetings() == ["mirror"]);
    is("installed");

    settings("jobs: 1\n");
    world.fake.set("hang-up", &world.project("greeter"));
    wants(&world.app, "hangs");
    is("installing");
    world.hand.want("other", &world.app, "hello");
    world.hand.publish();
    until("it is queued", || world.states("other") == ["hello pending queued"]);
    assert_eq!(world.message("other"), "waits for its turn after `greeter`");
    settings("jobs: 2\n");
    until("there is room for two", || world.states("other") == ["hello installed"]);
    world.fake.unset("hang-up");
    is("installed");

    let file = world.home().join("device.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("/boot-id\n", "/another-boot-id\n")).unwrap();
    until("it says what it can't", || running.log().contains("`bootIdFile` counts after a restart of this program"));
    running.end();
}

#[test]
fn a_stricter_policy_counts_at_once_for_all_that_begins_then_and_what_hangs_goes_on() {
    let world = World::enrolled();
    let settings = |more: &str| world.settings(&format!("poll: 1s\nreport: 1s\n{more}"));
    settings("");
    world.hand.want("greeter", &world.app, "hello");
    two_components(&world);
    world.fake.set("hang-up", &world.project("greeter"));
    world.hand.publish();
    let running = Running::start(&world);
    let hangs = || world.states("greeter").first().is_some_and(|state| state == "hello installing");
    until("it hangs", hangs);

    settings("policy: {images: []}\n");
    until("it is read", || running.log().contains("what it says now counts from here on"));
    world.hand.want("other", &world.app, "hello");
    world.hand.publish();
    until("another one isn't admitted", || world.states("other") == ["hello failed policy-denied"]);
    assert!(world.message("other").contains("isn't among `policy.images`"), "{}", world.message("other"));
    assert!(hangs(), "{:?}", world.states("greeter"));

    world.fake.unset("hang-up");
    let ends = ["hello installed", "second failed policy-denied"];
    until("what hung comes to its end, and its next component begins by the new policy", || {
        world.states("greeter") == ends
    });
    running.end();
}

#[test]
fn a_device_that_is_offline_logs_what_changes_and_not_each_try() {
    let (world, _host, proxy) = behind_a_proxy(waits());
    world.settings(&format!("poll: 1s\nreport: 1h\n{SHORT}"));
    let running = Running::start(&world);
    until("it is installed", || world.states("greeter") == ["hello installed"]);
    proxy.set(Fault::Refuse);
    until("it knows", || trouble(&world).is_some());
    let tries = || running.log().matches("ask=Host").count();
    let before = tries();
    until("it tried again and again", || tries() >= before + 2);
    let about_it = |line: &&String| line.contains("ConnectionRefused");
    let lines = running.lines();
    let said: Vec<_> = lines.iter().filter(about_it).collect();
    assert!(!said.is_empty() && said.len() <= 3, "the failure, and what the pass comes to: {said:#?}");
    let count = lines.len();
    until("it tried once more", || tries() >= before + 3);
    assert_eq!(running.lines().len(), count, "{:#?}", running.lines());
    proxy.set(Fault::None);
    until("it is reached again", || running.log().contains("the host is reached again"));
    running.end();
}

#[test]
fn intervals_that_nobody_can_keep_end_no_syncer_and_make_none_ask_without_end() {
    let world = World::running();
    for seconds in [u64::MAX, 1 << 53, 0] {
        world.hand.forge(|draft| {
            let policy = json!({"pollSeconds": seconds, "reportSeconds": seconds});
            draft.json("envelope.json", |envelope| envelope["policy"] = policy);
            draft.seal_envelope();
        });
        let running = Running::start(&world);
        until("a turn that adopts it", || {
            running.turns() > 0 && world.report()["adopted"]["serial"] == world.hand.serial()
        });
        let before = running.turns();
        std::thread::sleep(Duration::from_secs(3));
        let turns = running.turns() - before;
        assert!(turns <= 8, "{seconds}: {turns} turns in 3 s");
        running.end();
    }
}
