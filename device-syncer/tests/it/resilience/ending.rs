//! What ends work that has begun: a request, or a newer revision.

use super::*;

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
    // The end may have come between what was told and the note that it was.
    world.once().good();
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
    // Others come and go meanwhile: to see what runs.
    let ups = || {
        let arguments = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut children = holders(&world.home().join("children.lock"));
        children.retain(|pid| arguments(pid).split('\0').any(|argument| argument == "up"));
        children
    };
    let applying = ups();
    assert_eq!(applying.len(), 1, "{applying:?}");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    until("the newer one is adopted", || fs::read_to_string(&log).unwrap().contains("is outdated, and ends"));
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(ups(), applying, "half of it would be worse");
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
    let log = world.path("run.log");
    let syncer = command(&world.home(), &["run"]).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    until("it applies", || world.states("greeter") == ["hello installing"]);
    let (good, document) =
        (world.hand.tip("desired"), format!("deployments/{}.yaml", world.hand.deployment_id("greeter")));
    for round in 0..3 {
        // Nothing of it is signed by the publisher for a moment, as `forge` has it.
        let tip = world.hand.forge_on("desired", |draft| {
            *draft = world.hand.draft_of(&good);
            draft.parents = vec![good.clone()];
            draft.put(&document, draft.text(&document).replace("servus", &format!("junk {round}")));
            draft.seal();
            draft.key = Some(world.hand.stranger());
        });
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
    let log = fs::read_to_string(&log).unwrap();
    assert!(!log.contains("is outdated, and ends"), "{log}");
}
