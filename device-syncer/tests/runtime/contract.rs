//! The rules that hold on the fake and on the real engine.

use std::cell::Cell;
use std::time::{Duration, Instant};

use device_syncer::decision::observation::Condition;
use device_syncer::runtimes::{Cancel, Runtime, RuntimeError, Source};

use crate::world::{CHECK, World};

fn sleeper() -> String {
    format!("{{image: margo-test/busybox:1, command: [sleep, '1000'], {CHECK}}}")
}

fn compose(services: &str) -> String {
    format!("services: {{{services}}}")
}

pub(crate) fn nothing_is_ours_before_the_first_apply(world: &mut World) {
    assert_eq!(world.runtime.observe().unwrap(), []);
}

pub(crate) fn an_applied_component_runs_and_a_second_apply_changes_nothing(world: &mut World) {
    world.app("duo");
    world.prefetch_and_apply().unwrap();
    let found = world.observed().unwrap();
    assert_eq!(found.condition, Condition::Running);
    assert_eq!(found.input_digest, Some(world.component.input_digest));
    assert_eq!(found.deployment, Some(world.component.deployment));
    assert_eq!(found.component, Some(world.component.component.clone()));
    let before = world.identities();
    assert_eq!(before.keys().collect::<Vec<_>>(), ["counter", "web"]);
    for _ in 0..3 {
        world.prefetch_and_apply().unwrap();
        world.restart();
    }
    assert_eq!(world.identities(), before);
}

pub(crate) fn a_changed_parameter_of_one_service_leaves_its_neighbour_alone(world: &mut World) {
    world.app("duo");
    world.prefetch_and_apply().unwrap();
    let before = world.identities();
    world.parameter("TITLE", "changed");
    world.prefetch_and_apply().unwrap();
    let after = world.identities();
    assert_eq!(after["counter"], before["counter"]);
    assert_ne!(after["web"].0, before["web"].0);
    assert_eq!(world.observed().unwrap().input_digest, Some(world.component.input_digest));
}

pub(crate) fn a_changed_mounted_file_recreates_the_services_that_mount_it(world: &mut World) {
    let mounting = sleeper().replace("{image", "{volumes: ['./conf:/conf'], image");
    let text = compose(&format!("web: {mounting}, other: {}", sleeper()));
    world.archive(&[("compose.yaml", &text), ("conf/app.conf", "one"), ("README", "one")]);
    world.prefetch_and_apply().unwrap();
    let first = world.identities();
    world.archive(&[("compose.yaml", &text), ("conf/app.conf", "one"), ("README", "two")]);
    world.prefetch_and_apply().unwrap();
    assert_eq!(world.identities(), first, "a file that no service mounts");
    world.archive(&[("compose.yaml", &text), ("conf/app.conf", "two"), ("README", "two")]);
    world.prefetch_and_apply().unwrap();
    let last = world.identities();
    assert_eq!(last["other"], first["other"]);
    assert_ne!(last["web"].0, first["web"].0);
    let file = world.project_dir().join("files/conf/app.conf");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "two");
}

pub(crate) fn a_service_that_is_gone_from_the_archive_is_removed(world: &mut World) {
    world.archive(&[("compose.yaml", &compose(&format!("a: {}, b: {}", sleeper(), sleeper())))]);
    world.prefetch_and_apply().unwrap();
    let before = world.identities();
    world.archive(&[("compose.yaml", &compose(&format!("a: {}", sleeper())))]);
    world.prefetch_and_apply().unwrap();
    let after = world.identities();
    assert_eq!(after.len(), 1);
    assert_eq!(after["a"], before["a"]);
}

pub(crate) fn files_that_are_gone_are_removed_and_others_are_kept(world: &mut World) {
    let text = compose(&format!("a: {}", sleeper()));
    world.archive(&[("compose.yaml", &text), ("conf/old", "1"), ("conf/kept", "1")]);
    world.prefetch_and_apply().unwrap();
    let files = world.project_dir().join("files");
    repo_git::durable::replace_file(&files.join("conf/theirs"), b"data", 0o644).unwrap();
    world.archive(&[("compose.yaml", &text), ("conf/kept", "1"), ("new", "1")]);
    world.prefetch_and_apply().unwrap();
    let there = |path: &str| files.join(path).exists();
    assert!(there("conf/kept") && there("conf/theirs") && there("new") && !there("conf/old"));
}

pub(crate) fn a_removal_keeps_volumes_and_the_applications_files(world: &mut World) {
    world.app("duo");
    world.prefetch_and_apply().unwrap();
    let files = world.project_dir().join("files");
    repo_git::durable::replace_file(&files.join("theirs"), b"data", 0o644).unwrap();
    world.runtime.remove(&world.component.project, Duration::from_secs(60), &|| false).unwrap();
    assert_eq!(world.runtime.observe().unwrap(), []);
    assert_eq!((world.left("container"), world.left("network")), (String::new(), String::new()));
    assert_eq!(world.left("volume"), format!("{}_data", world.component.project));
    assert!(files.join("theirs").exists() && !files.join("compose.yaml").exists());
    assert!(!world.project_dir().join("compose.resolved.yaml").exists());
}

pub(crate) fn a_removal_needs_no_files_and_can_be_repeated(world: &mut World) {
    world.app("hello");
    world.prefetch_and_apply().unwrap();
    repo_git::durable::remove_dir_all(&world.project_dir()).unwrap();
    let found = world.observed().expect("labels alone tell that it is ours");
    assert_eq!((found.deployment, found.input_digest), (Some(world.component.deployment), None));
    for _ in 0..2 {
        world.runtime.remove(&world.component.project, Duration::from_secs(60), &|| false).unwrap();
        assert_eq!(world.left("container"), "");
    }
    assert!(!world.project_dir().exists());
}

pub(crate) fn a_missing_container_is_seen_and_made_again(world: &mut World) {
    world.app("duo");
    world.prefetch_and_apply().unwrap();
    let before = world.identities();
    world.ask(&["rm", "--force", &before["web"].0]);
    let found = world.observed().unwrap();
    assert_eq!((found.condition, found.input_digest), (Condition::Missing, Some(world.component.input_digest)));
    world.runtime.restore(&world.component, &Cancel::whatever(&|| false)).unwrap();
    world.assert_well();
    assert_eq!(world.identities()["counter"], before["counter"]);
    world.ask(&["rm", "--force", &world.identities()["web"].0]);
    world.prefetch_and_apply().unwrap();
    assert_eq!(world.observed().unwrap().condition, Condition::Running);
    assert_eq!(world.identities()["counter"], before["counter"]);
}

pub(crate) fn a_container_that_was_stopped_is_seen_and_started_again(world: &mut World) {
    world.app("duo");
    world.prefetch_and_apply().unwrap();
    let before = world.identities();
    world.ask(&["kill", &before["web"].0]);
    let found = world.observed().unwrap();
    assert_eq!(found.condition, Condition::Stopped("service `web` is exited with 137".to_owned()));
    assert_eq!(found.input_digest, Some(world.component.input_digest));
    world.runtime.restore(&world.component, &Cancel::whatever(&|| false)).unwrap();
    world.assert_well();
    let after = world.identities();
    assert_eq!(after["counter"], before["counter"]);
    assert_eq!(after["web"].0, before["web"].0, "it is the same container");
    assert_ne!(after["web"].1, before["web"].1, "and was started again");
}

const NEVER_HEALTHY: &str = "{image: margo-test/busybox:1, environment: {SECRET: '${SECRET}', PLAIN: words}, \
    command: [sh, -c, 'env; sleep 1000'], healthcheck: {test: [CMD, 'false'], interval: 1s, retries: 1}}";

fn never_healthy(world: &mut World) {
    world.archive(&[("compose.yaml", &compose(&format!("web: {NEVER_HEALTHY}, other: {}", sleeper())))]);
    world.parameter("SECRET", "s3cr$t");
    world.secret("SECRET");
    if let Some(fake) = &world.fake {
        fake.set("unhealthy-web", "");
    }
}

pub(crate) fn an_apply_without_waiting_returns_at_once(world: &mut World) {
    never_healthy(world);
    world.component.wait = false;
    world.prefetch_and_apply().unwrap();
    assert_eq!(world.observed().unwrap().input_digest, Some(world.component.input_digest));
}

pub(crate) fn an_unhealthy_service_times_out_with_its_log_and_without_secrets(world: &mut World) {
    never_healthy(world);
    // Long enough for a loaded machine to see it fail its checks.
    world.component.timeout = Duration::from_secs(if world.fake.is_some() { 3 } else { 12 });
    let error = world.prefetch_and_apply().unwrap_err();
    let RuntimeError::HealthTimeout { service, state, log, .. } = &error else { panic!("{error}") };
    assert_eq!((error.code().as_str(), service.as_str(), state.as_str()), ("health-timeout", "web", "unhealthy"));
    assert!(log.contains("PLAIN=words") && log.contains("SECRET=***"), "{log}");
    assert!(!format!("{error:?}").contains("s3cr"), "{error:?}");
    assert_eq!(world.observed().unwrap().input_digest, None, "half made");
}

pub(crate) fn a_one_shot_job_counts_as_good_when_it_ended_well(world: &mut World) {
    let job = |code: u8| format!("{{image: margo-test/busybox:1, command: [sh, -c, 'exit {code}']}}");
    for (code, good) in [(0, true), (3, false)] {
        let bad = if world.fake.is_some() { 3 } else { 6 };
        world.component.timeout = Duration::from_secs(if good { 60 } else { bad });
        world.archive(&[("compose.yaml", &compose(&format!("job: {}, main: {}", job(code), sleeper())))]);
        if let Some(fake) = &world.fake {
            fake.set("exit-job", &code.to_string());
        }
        let result = world.prefetch_and_apply();
        assert_eq!(result.is_ok(), good, "{result:?}");
    }
    assert_eq!(world.observed().unwrap().condition, Condition::Stopped("service `job` is exited with 3".to_owned()));
}

pub(crate) fn a_cancelled_wait_leaves_a_half_made_project_that_the_next_apply_completes(world: &mut World) {
    let slow = "{image: margo-test/busybox:1, command: [sh, -c, 'sleep 2; touch /up; sleep 1000'], \
        healthcheck: {test: [CMD, test, -e, /up], interval: 1s, retries: 100}}";
    world.archive(&[("compose.yaml", &compose(&format!("web: {slow}")))]);
    if let Some(fake) = &world.fake {
        fake.set("starting-web", "");
    }
    let asked = Cell::new(0);
    let soon = || asked.replace(asked.get() + 1) > 2;
    let began = Instant::now();
    let error = world.prefetch_and_apply_until(&soon).unwrap_err();
    assert!(matches!(error, RuntimeError::Cancelled) && error.is_transient(), "{error}");
    assert!(began.elapsed() < Duration::from_secs(30), "long before its time is up");
    let found = world.observed().unwrap();
    assert_eq!((found.input_digest, found.deployment), (None, Some(world.component.deployment)));
    if let Some(fake) = &world.fake {
        fake.unset("starting-web");
    }
    world.prefetch_and_apply().unwrap();
    let found = world.observed().unwrap();
    assert_eq!((found.input_digest, found.condition), (Some(world.component.input_digest), Condition::Running));
}

pub(crate) fn what_is_outdated_ends_at_once_where_it_waits_and_comes_to_its_end_where_it_changes_something(
    world: &mut World,
) {
    let slow = "{image: margo-test/busybox:1, command: [sleep, '1000'], \
        healthcheck: {test: [CMD, 'false'], interval: 1s, start_period: 100s}}";
    world.archive(&[("compose.yaml", &compose(&format!("web: {slow}")))]);
    if let Some(fake) = &world.fake {
        fake.set("starting-web", "");
    }
    let prepared = world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap();
    let (yes, no) = (|| true, || false);
    let cancel = Cancel { waiting: &no, ..Cancel::whatever(&yes) };
    assert!(matches!(world.runtime.apply(&prepared, &cancel), Err(RuntimeError::Cancelled)));
    let is_started = |world: &World| world.observed().unwrap().services["web"].state == "running";
    let cancel = Cancel { waiting: &yes, ..Cancel::whatever(&no) };
    assert!(matches!(world.runtime.apply(&prepared, &cancel), Err(RuntimeError::Cancelled)));
    assert!(is_started(world), "`up` came to its end");
}

/// Applies beside something foreign and expects that nothing of it was touched.
fn refused_as_not_ours(world: &mut World, kind: &'static str, name: &str) {
    let before = (world.left("container"), world.left("network"), world.left("volume"));
    let error = world.prefetch_and_apply().unwrap_err();
    assert_eq!(error.code().as_str(), "not-ours", "{error}");
    assert!(
        error.to_string().contains(&format!("{kind} `{name}`")) && error.to_string().contains("docker "),
        "{error}"
    );
    assert!(!error.is_transient());
    assert_eq!((world.left("container"), world.left("network"), world.left("volume")), before);
    assert!(!world.project_dir().exists(), "nothing was begun");
}

pub(crate) fn a_foreign_container_is_never_taken_over(world: &mut World) {
    world.app("duo");
    let name = format!("{}-web-1", world.component.project);
    world.make("container", &name, &[]);
    refused_as_not_ours(world, "container", &name);
}

pub(crate) fn a_foreign_project_is_never_taken_over(world: &mut World) {
    world.app("duo");
    let project = world.component.project.clone();
    let name = format!("{project}-their-1");
    let label = format!("com.docker.compose.project={project}");
    world.make("container", &name, &[&label, "device-syncer.fleet=another", "com.docker.compose.service=their"]);
    refused_as_not_ours(world, "container", &name);
    let removal = world.runtime.remove(&project, Duration::from_secs(60), &|| false);
    assert_eq!(removal.unwrap_err().code(), "not-ours");
    assert_eq!(world.left("container"), name);
}

pub(crate) fn a_foreign_network_is_never_taken_over(world: &mut World) {
    world.app("duo");
    let name = format!("{}_default", world.component.project);
    let label = format!("com.docker.compose.project={}", world.component.project);
    world.make("network", &name, &[&label]);
    refused_as_not_ours(world, "network", &name);
}

pub(crate) fn a_foreign_volume_is_never_taken_over(world: &mut World) {
    world.app("duo");
    let name = format!("{}_data", world.component.project);
    world.make("volume", &name, &[]);
    refused_as_not_ours(world, "volume", &name);
}

pub(crate) fn a_volume_left_by_a_removal_is_used_again(world: &mut World) {
    world.app("duo");
    world.prefetch_and_apply().unwrap();
    world.runtime.remove(&world.component.project, Duration::from_secs(60), &|| false).unwrap();
    let volume = world.left("volume");
    world.prefetch_and_apply().unwrap();
    assert_eq!(world.left("volume"), volume);
}

pub(crate) fn an_image_that_cannot_be_had_changes_nothing(world: &mut World) {
    world.app("duo");
    world.prefetch_and_apply().unwrap();
    let before = world.identities();
    let image = "127.0.0.1:1/none:1";
    if let Some(fake) = &world.fake {
        fake.set("unpullable", image);
    }
    world.archive(&[("compose.yaml", &compose(&format!("web: {{image: '{image}'}}")))]);
    let error = world.prefetch_and_apply().unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("artifact-unavailable", true), "{error}");
    assert!(error.to_string().contains(image), "{error}");
    assert_eq!(world.identities(), before);
}

pub(crate) fn a_denied_privilege_changes_nothing(world: &mut World) {
    world.archive(&[(
        "compose.yaml",
        &compose("web: {image: margo-test/busybox:1, privileged: true, pid: host, volumes: ['/etc:/etc']}"),
    )]);
    let error = world.prefetch_and_apply().unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("policy-denied", false), "{error}");
    for wish in ["services.web.privileged", "services.web.pid: host", "services.web.volumes: for writing /etc"] {
        assert!(error.to_string().contains(wish), "{error}");
    }
    assert!(!world.project_dir().exists() && world.observed().is_none());
}

pub(crate) fn a_refusal_never_says_a_secret(world: &mut World) {
    world.archive(&[(
        "compose.yaml",
        "services: {web: {image: 'margo-test/${KEY}:1', volumes: ['/srv/${KEY}:/x'], labels: {device-syncer.x: '${KEY}'}}}",
    )]);
    world.parameter("KEY", "hunter2hunter2");
    world.secret("KEY");
    let error = world.prefetch_and_apply().unwrap_err();
    assert_eq!(error.code().as_str(), "policy-denied", "{error}");
    assert!(error.to_string().contains("/srv/***") && error.to_string().contains("image's name"), "{error}");
    assert!(!format!("{error:?} {:?}", world.component).contains("hunter2"), "{error:?}");
}

pub(crate) fn a_config_without_its_file_is_refused(world: &mut World) {
    let text = "services: {web: {image: 'margo-test/busybox:1', configs: [c]}}\nconfigs: {c: {file: ./missing.txt}}";
    world.archive(&[("compose.yaml", text)]);
    let error = world.prefetch_and_apply().unwrap_err();
    assert_eq!(error.code().as_str(), "artifact-invalid", "{error}");
    assert!(error.to_string().contains("missing.txt"), "{error}");
}

pub(crate) fn an_invalid_parameter_changes_nothing(world: &mut World) {
    world.app("duo");
    world.parameter("COMPOSE_PROJECT_NAME", "other");
    let error = world.prefetch_and_apply().unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("parameter-invalid", false), "{error}");
    assert!(world.observed().is_none());
}

pub(crate) fn a_gone_daemon_is_transient(world: &mut World) {
    world.app("hello");
    let prepared = world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap();
    match &world.fake {
        Some(fake) => fake.set("unavailable", ""),
        None => {
            let nowhere = format!("unix://{}", world.path().join("no.sock").display());
            world.settings.environment.insert("DOCKER_HOST".into(), nowhere.into());
            world.restart();
        }
    }
    for error in [
        world.runtime.observe().unwrap_err(),
        world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap_err(),
        world.runtime.apply(&prepared, &Cancel::whatever(&|| false)).unwrap_err(),
        world.runtime.remove(&world.component.project, Duration::from_secs(5), &|| false).unwrap_err(),
    ] {
        assert_eq!((error.code().as_str(), error.is_transient()), ("runtime-unavailable", true), "{error}");
    }
}
