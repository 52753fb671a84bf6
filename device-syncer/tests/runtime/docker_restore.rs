//! What was applied and doesn't run is put back, and nothing else runs again; and what crashes again and again is never
//! taken for installed.

use std::time::Duration;

use device_syncer::decision::observation::Condition;
use device_syncer::runtimes::{Cancel, RuntimeError};

use crate::world::{CHECK, IMAGE, World};

/// A migration that leaves a line each time it runs, what waits for it, and what lives in that one's network. The checks
/// are quick: without one, a container has started well only after ten seconds.
const APPLICATION: &str = "services:
  migrate:
    image: margo-test/busybox:1
    command: [sh, -c, 'echo ran >> /data/runs']
    volumes: ['data:/data']
    restart: 'no'
  web:
    image: margo-test/busybox:1
    command: [sh, -c, 'mkdir -p /www; cp /data/runs /www/runs; exec httpd -f -p 8080 -h /www']
    volumes: ['data:/data']
    depends_on: {migrate: {condition: service_completed_successfully}}
    healthcheck: {test: [CMD, wget, -q, -O, /dev/null, 'http://127.0.0.1:8080/runs'], interval: 1s}
    restart: unless-stopped
  proxy:
    image: margo-test/busybox:1
    command: [sleep, '100000']
    network_mode: service:web
    healthcheck: {test: [CMD, sh, -c, 'mkdir /dev/shm/well || exec sleep 1000'], interval: 1s, timeout: 1h}
    restart: always
  other:
    image: margo-test/busybox:1
    command: [sleep, '100000']
    volumes: ['./conf:/conf']
    healthcheck: {test: [CMD, sh, -c, 'mkdir /dev/shm/well || exec sleep 1000'], interval: 1s, timeout: 1h}
    restart: always
volumes: {data: {}}
";

fn applied() -> World {
    applied_as(APPLICATION)
}

fn applied_as(compose: &str) -> World {
    let mut world = World::docker();
    world.archive(&[("compose.yaml", compose), ("conf/a", "a")]);
    world.prefetch_and_apply().unwrap();
    world
}

impl World {
    fn restore(&self) -> Result<(), RuntimeError> {
        self.runtime.restore(&self.component, &Cancel::whatever(&|| false))
    }

    /// What `web` serves to what lives in its network: one line for each run of the migration.
    fn runs(&self) -> String {
        let proxy = &self.identities()["proxy"].0;
        self.ask(&["exec", proxy, "wget", "-q", "-O", "-", "http://127.0.0.1:8080/runs"])
    }
}

#[test]
fn what_was_stopped_by_hand_comes_back_without_its_finished_migration() {
    let world = applied();
    let before = world.identities();
    for stopped in [&["web"][..], &["proxy"], &["other", "proxy", "web"]] {
        let ids: Vec<_> = stopped.iter().map(|name| world.identities()[*name].0.clone()).collect();
        for id in &ids {
            world.ask(&["stop", "-t", "1", id]);
        }
        let found = world.observed().unwrap();
        assert!(matches!(&found.condition, Condition::Stopped(_)), "{stopped:?} {found:?}");
        world.restore().unwrap();
        world.assert_well();
        assert_eq!(world.runs(), "ran\n", "{stopped:?}");
    }
    let after = world.identities();
    assert_eq!(after["migrate"], before["migrate"]);
    assert_eq!((&after["web"].0, &after["other"].0), (&before["web"].0, &before["other"].0), "nothing was made anew");
    world.restore().unwrap();
    assert_eq!(world.identities(), after, "and nothing is touched that runs");
}

#[test]
fn what_was_removed_comes_back_without_its_finished_migration_also_if_that_was_removed_too() {
    let world = applied();
    let before = world.identities();
    for name in ["web", "migrate"] {
        world.ask(&["rm", "--force", &before[name].0]);
    }
    assert_eq!(world.observed().unwrap().condition, Condition::Missing);
    world.restore().unwrap();
    world.assert_well();
    assert_eq!(world.runs(), "ran\n");
    assert_eq!(world.identities()["migrate"].0, "", "it has come to its end");
}

#[test]
fn what_was_paused_goes_on() {
    // What is paused fails its health check, which is another matter.
    let world = applied_as(&APPLICATION.replace(
        "    healthcheck: {test: [CMD, sh, -c, 'mkdir /dev/shm/well || exec sleep 1000'], interval: 1s, timeout: 1h}\n",
        "",
    ));
    let before = world.identities();
    world.ask(&["pause", &before["other"].0]);
    let found = world.observed().unwrap();
    assert_eq!(found.condition, Condition::Stopped("service `other` is paused".to_owned()));
    world.restore().unwrap();
    assert_eq!(world.observed().unwrap().condition, Condition::Running);
    assert_eq!(world.identities(), before);
}

#[test]
fn images_that_are_gone_are_fetched_before_anything_starts() {
    let mut world = World::docker();
    // A name of its own, because other tests run the same image.
    let image = format!("margo-test/{}:1", world.component.project);
    world.ask(&["tag", IMAGE, &image]);
    world.will_remove("image", &image);
    let text = format!("services: {{web: {{image: '{image}', command: [sleep, '1000'], {CHECK}}}}}");
    world.archive(&[("compose.yaml", &text)]);
    world.prefetch_and_apply().unwrap();
    let web = world.identities()["web"].0.clone();
    let name = world.ask(&["inspect", "--format", "{{.Config.Image}}", &web]).trim().to_owned();
    assert!(name.starts_with("device-syncer.invalid/"), "{name}");
    world.will_remove("image", &name);
    world.ask(&["rm", "--force", &web]);
    world.ask(&["image", "rm", &name]);
    world.restore().unwrap();
    world.assert_well();
}

#[test]
fn a_link_in_the_place_of_a_mount_is_looked_for_again_before_anything_is_started() {
    let world = applied();
    let other = world.identities()["other"].0.clone();
    world.ask(&["stop", "-t", "1", &other]);
    let conf = world.project_dir().join("files/conf");
    repo_git::durable::remove_dir_all(&conf).unwrap();
    std::os::unix::fs::symlink("/etc", &conf).unwrap();
    let error = world.restore().unwrap_err();
    assert_eq!(error.code().as_str(), "policy-denied", "{error}");
    assert!(error.to_string().contains("./conf"), "{error}");
    assert_eq!(world.ask(&["inspect", "--format", "{{.State.Running}}", &other]), "false\n");
}

/// Runs `command` under `restart`, and gives what an apply came to that may take so long.
fn crashing(restart: &str, command: &str, timeout: Duration) -> (World, Result<(), RuntimeError>) {
    let mut world = World::docker();
    let text = format!(
        "services: {{web: {{image: 'margo-test/busybox:1', network_mode: none, restart: '{restart}', \
         command: [sh, -c, '{command}']}}}}"
    );
    world.archive(&[("compose.yaml", &text)]);
    world.component.timeout = timeout;
    let result = world.prefetch_and_apply();
    (world, result)
}

#[test]
fn what_crashes_again_and_again_is_never_installed() {
    let cases = ["always", "unless-stopped", "on-failure"].into_iter().flat_map(|restart| {
        ["exit 1", "sleep 1; exit 1", "sleep 3; exit 1"].into_iter().map(move |command| (restart, command))
    });
    let more = [("always", "sleep 2"), ("on-failure:2", "sleep 1; exit 1"), ("no", "sleep 2; exit 1")];
    std::thread::scope(|scope| {
        for (restart, command) in cases.chain(more) {
            scope.spawn(move || {
                let (world, result) = crashing(restart, command, Duration::from_secs(14));
                let error = result.unwrap_err();
                assert_eq!(error.code().as_str(), "health-timeout", "{restart} {command}: {error}");
                let found = world.observed().unwrap();
                assert_eq!(found.input_digest, None, "{restart} {command}: {found:?}");
            });
        }
    });
}

#[test]
fn what_stays_up_or_ends_well_is_installed_whatever_it_does_first() {
    std::thread::scope(|scope| {
        for (restart, command) in [
            ("always", "sleep 100000"),
            ("no", "sleep 2"),
            ("on-failure", "sleep 1"),
            // It fails twice before it finds what it needs.
            ("always", "echo >>/n; [ $$(wc -l </n) -ge 3 ] || exit 1; sleep 100000"),
        ] {
            scope.spawn(move || {
                // A loaded machine takes seconds for each start.
                let (world, result) = crashing(restart, command, Duration::from_secs(120));
                assert!(result.is_ok(), "{restart} {command}: {result:?}");
                assert_eq!(world.observed().unwrap().condition, Condition::Running, "{restart} {command}");
            });
        }
    });
}
