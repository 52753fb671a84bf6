//! What only the fake can be made to do at the right instant.

use std::time::Duration;

use device_syncer::decision::observation::Condition;
use device_syncer::runtimes::{Cancel, Runtime, RuntimeError, Source, command};

use crate::world::World;

#[test]
fn an_up_that_is_ended_halfway_is_completed_by_the_next_apply() {
    let mut world = World::fake();
    let fake = world.fake.clone().unwrap();
    world.app("duo");
    fake.set("hang-up", "");
    let created = || fake.calls().iter().any(|call| call.starts_with("create ") && call.contains("/counter "));
    let error = world.prefetch_and_apply_until(&created).unwrap_err();
    assert!(matches!(error, RuntimeError::Cancelled), "{error}");
    fake.unset("hang-up");
    let found = world.observed().unwrap();
    assert_eq!((found.input_digest, found.condition), (None, Condition::Missing));
    world.prefetch_and_apply().unwrap();
    assert_eq!(world.observed().unwrap().condition, Condition::Running);
    let created = fake.calls().iter().filter(|call| call.starts_with("create ") && call.contains('/')).count();
    assert_eq!(created, 2, "each container was made once: {:?}", fake.calls());
}

#[test]
fn a_command_that_hangs_is_ended_at_the_time_limit() {
    let mut world = World::fake();
    let fake = world.fake.clone().unwrap();
    world.app("duo");
    world.component.timeout = Duration::from_secs(1);
    fake.set("hang-up", "");
    let error = world.prefetch_and_apply().unwrap_err();
    assert_eq!(error.code().as_str(), "health-timeout", "{error}");
    fake.set("hang-down", "");
    let error = world.runtime.remove(&world.component.project, Duration::from_secs(1), &|| false).unwrap_err();
    assert_eq!(error.code().as_str(), "runtime-unavailable", "{error}");
    assert!(error.to_string().contains("took longer than"), "{error}");
}

#[test]
fn what_the_tool_says_about_a_failure_has_no_secrets() {
    let mut world = World::fake();
    let fake = world.fake.clone().unwrap();
    world.app("hello");
    world.parameter("GREETING", "s3cret");
    world.secret("GREETING");
    fake.set("fail-up", "Error: bad greeting s3cret");
    let error = world.prefetch_and_apply().unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("compose-failed", false));
    assert!(error.to_string().contains("bad greeting ***"), "{error}");
    fake.set("fail-up", "Error response from daemon: write /x: no space left on device");
    assert_eq!(world.prefetch_and_apply().unwrap_err().code(), "disk-full");
    world.prefetch_and_apply().unwrap();
}

#[test]
fn an_interrupted_removal_is_half_made_and_completed_by_the_next() {
    let mut world = World::fake();
    let fake = world.fake.clone().unwrap();
    world.app("duo");
    world.prefetch_and_apply().unwrap();
    fake.set("hang-down", "");
    let error = world.runtime.remove(&world.component.project, Duration::from_secs(60), &|| true).unwrap_err();
    assert!(matches!(error, RuntimeError::Cancelled), "{error}");
    assert_eq!(world.observed().unwrap().input_digest, None);
    fake.unset("hang-down");
    world.runtime.remove(&world.component.project, Duration::from_secs(60), &|| false).unwrap();
    assert_eq!(world.runtime.observe().unwrap(), []);
}

#[test]
fn a_project_that_lost_its_document_is_half_made_once_something_of_it_is_gone() {
    let mut world = World::fake();
    world.app("duo");
    world.prefetch_and_apply().unwrap();
    let before = world.identities();
    for damaged in [&b""[..], b"{\"services\""] {
        repo_git::durable::replace_file(&world.project_dir().join("compose.resolved.yaml"), damaged, 0o600).unwrap();
        assert_eq!(world.observed().unwrap().input_digest, Some(world.component.input_digest), "it runs");
        world.ask(&["kill", &before["web"].0]);
        assert_eq!(world.observed().unwrap().input_digest, None);
        let error = world.runtime.restore(&world.component, &Cancel::whatever(&|| false)).unwrap_err();
        assert!(error.to_string().contains("isn't known any more"), "{error}");
        world.prefetch_and_apply().unwrap();
        world.assert_well();
    }
}

#[test]
fn an_idle_look_is_two_calls_and_no_mutation() {
    let mut world = World::fake();
    world.app("duo");
    world.prefetch_and_apply().unwrap();
    let calls = world.fake.as_ref().unwrap().calls();
    for _ in 0..50 {
        world.observed().unwrap();
    }
    world.prefetch_and_apply().unwrap();
    assert_eq!(world.fake.as_ref().unwrap().calls(), calls);
}

#[test]
fn a_device_that_can_have_no_sandbox_runs_applications_and_quotes_nothing_of_what_they_make_compose_say() {
    let mut world = World::fake();
    world.app("hello");
    assert_eq!(world.runtime.is_confined(), Some(true));
    let (old, program) = (world.settings.sandbox.program.clone(), world.path().join("no-sandbox"));
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *' --landlock '*|*' --user '*) exit 124;; esac\nexec {} \"$@\"\n",
        old.display()
    );
    repo_git::durable::replace_file(&program, script.as_bytes(), 0o755).unwrap();
    world.settings.sandbox.program = program;
    world.restart();
    assert_eq!(world.runtime.is_confined(), Some(false));
    world.prefetch_and_apply().unwrap();
    let said = |world: &mut World| {
        world.archive(&[("compose.yaml", "services: {a: {image: 'canary $'}}")]);
        world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap_err().to_string()
    };
    let unquoted = said(&mut world);
    assert!(unquoted.contains("no sandbox") && !unquoted.contains("invalid `$`"), "{unquoted}");
    world.settings.sandbox.program = old;
    world.restart();
    let quoted = said(&mut world);
    assert!(quoted.contains("invalid `$`"), "{quoted}");
}

#[test]
fn a_child_process_holds_the_lock_that_it_inherits() {
    use rustix::fs::{FlockOperation, flock};
    let dir = tempfile::tempdir().unwrap();
    let open = || std::fs::File::options().create(true).append(true).open(dir.path().join("lock")).unwrap();
    let lock = open();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    command::inherit(&lock).unwrap();
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    drop(lock);
    assert!(flock(open(), FlockOperation::NonBlockingLockExclusive).is_err(), "the child still holds it");
    child.kill().unwrap();
    child.wait().unwrap();
    flock(open(), FlockOperation::NonBlockingLockExclusive).unwrap();
}
