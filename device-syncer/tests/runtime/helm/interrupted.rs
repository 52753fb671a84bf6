//! What was killed, cancelled, failed or took too long.

use std::time::Instant;

use super::*;

pub(super) fn an_install_that_was_killed_is_made_again(world: &mut World) {
    world.kill_upgrade("post-install", "pending-install");
    assert_eq!(world.observed().unwrap().input_digest, None);
    world.apply().unwrap();
    world.assert_runs();
    assert_eq!(world.statuses(), ["deployed"]);
}

pub(super) fn an_upgrade_that_was_killed_goes_on_from_the_last_good_revision(world: &mut World) {
    world.apply().unwrap();
    world.kill_upgrade("pre-upgrade", "pending-upgrade");
    assert_eq!(world.observed().unwrap().input_digest, None);
    world.text("greeting", "after");
    world.apply().unwrap();
    world.assert_runs();
    let statuses = world.statuses();
    assert!(!statuses.contains(&"failed".to_owned()), "{statuses:?}");
}

pub(super) fn a_rollback_that_was_killed_goes_on_from_the_last_good_revision(world: &mut World) {
    world.set("hooks.pre-rollback", ParamValue::String("hang".to_owned()));
    world.apply().unwrap();
    world.text("greeting", "second");
    world.apply().unwrap();
    let namespace = world.namespace();
    world.kill_at(&["rollback", world.release(), "1", "--namespace", &namespace], "pending-rollback");
    assert_eq!(world.observed().unwrap().input_digest, None);
    world.apply().unwrap();
    world.assert_runs();
}

pub(super) fn a_removal_that_was_killed_is_done_before_the_next_install(world: &mut World) {
    world.set("hooks.post-delete", ParamValue::String("hang".to_owned()));
    world.apply().unwrap();
    let namespace = world.namespace();
    world.kill_at(&["uninstall", world.release(), "--namespace", &namespace], "uninstalling");
    world.apply().unwrap();
    world.assert_runs();
    assert_eq!(world.statuses(), ["deployed"]);
}

pub(super) fn a_hook_that_fails_is_final(world: &mut World) {
    world.text("hooks.post-install", "fail");
    let error = world.apply().unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("helm-failed", false), "{error}");
    assert!(error.to_string().contains("post-install"), "{error}");
    assert_eq!(world.observed().unwrap().input_digest, None);
    world.text("hooks.post-install", "ok");
    world.text("hooks.post-upgrade", "ok");
    world.apply().unwrap();
    world.assert_runs();
}

pub(super) fn a_hook_that_hangs_ends_with_the_time_limit(world: &mut World) {
    world.text("hooks.pre-install", "hang");
    world.component.timeout = Duration::from_secs(3);
    let began = Instant::now();
    let error = world.apply().unwrap_err();
    assert_eq!(error.code().as_str(), "health-timeout", "{error}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    world.unset("hooks.pre-install");
    world.component.timeout = Duration::from_secs(60);
    world.apply().unwrap();
    world.assert_runs();
}

pub(super) fn a_removal_whose_hook_fails_or_hangs_keeps_the_release_and_says_how_to_remove_it(world: &mut World) {
    for how in ["fail", "hang"] {
        world.text("hooks.pre-delete", how);
        world.apply().unwrap();
        let error = world.remove(3).unwrap_err();
        assert_eq!((error.code().as_str(), error.is_transient()), ("removal-failed", true), "{error}");
        let command = format!("helm uninstall {} --namespace {} --no-hooks", world.release(), world.namespace());
        assert!(error.to_string().contains(&command), "{error}");
        assert_eq!(world.object("deployment", world.release())["status"]["readyReplicas"], 1);
    }
    world.text("hooks.pre-delete", "ok");
    world.apply().unwrap();
    world.remove(30).unwrap();
    assert_eq!(world.observed(), None);
}

pub(super) fn pods_that_never_run_end_with_the_time_limit_and_a_good_input_cures_it(world: &mut World) {
    world.text("nodeSelector.no", "node");
    world.component.timeout = Duration::from_secs(3);
    for _ in 0..2 {
        let error = world.apply().unwrap_err();
        assert_eq!(error.code().as_str(), "health-timeout", "{error}");
        assert!(error.is_health_timeout(), "{error}");
    }
    assert_eq!(world.observed().unwrap().input_digest, None);
    world.unset("nodeSelector.no");
    world.component.timeout = Duration::from_secs(60);
    world.apply().unwrap();
    world.assert_runs();
}

pub(super) fn a_cancelled_wait_leaves_a_release_that_the_next_apply_completes(world: &mut World) {
    world.text("nodeSelector.no", "node");
    let began = Instant::now();
    let cancel = || began.elapsed() > Duration::from_secs(2);
    assert!(matches!(world.apply_until(&cancel), Err(RuntimeError::Cancelled)));
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    world.unset("nodeSelector.no");
    world.apply().unwrap();
    world.assert_runs();
}

pub(super) fn a_hook_that_began_has_longer_to_come_to_its_end(world: &mut World) {
    for (given, seconds) in [(("nodeSelector.no", "node"), 12), (("hooks.pre-upgrade", "hang"), 30)] {
        world.text(given.0, given.1);
        let prepared = world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap();
        let began = Instant::now();
        let after = |seconds| move || began.elapsed() >= Duration::from_secs(seconds);
        let (changing, once) = (after(12), after(30));
        let cancel = Cancel { changing: &changing, once: &once, ..Cancel::whatever(&|| true) };
        assert!(matches!(world.runtime.apply(&prepared, &cancel), Err(RuntimeError::Cancelled)));
        let took = began.elapsed().as_secs();
        assert!((seconds..seconds + 17).contains(&took), "{given:?}: {took} s");
        world.unset(given.0);
        world.apply().unwrap();
    }
    world.assert_runs();
}
