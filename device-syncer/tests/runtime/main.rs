//! The compose runtime against the fake docker and against the real one: the same rules, told once in `contract`.
//!
//! The helm runtime (`helm`) has no fake: its tests run on real Helm 4 and 3 against a real Kubernetes API, and need
//! `MARGO_TEST_HELM4`, `MARGO_TEST_HELM3`, `MARGO_TEST_KUBERNETES` and `MARGO_TEST_KUBECONFIG`.
//!
//! Tests on real Docker are named `docker_…`; they need `DOCKER_HOST`, `DOCKER_CONFIG` and `MARGO_TEST_REGISTRY` and
//! fail without them. They remove what they made, by name, and nothing else.

mod contract;
mod docker_mounts;
mod docker_only;
mod docker_restore;
mod fake_only;
mod helm;
mod world;

use world::World;

/// Every rule of the contract, once on the fake and once on the real engine.
macro_rules! contract {
    ($($name:ident,)*) => {
        mod fake {
            $(#[test] fn $name() { crate::contract::$name(&mut crate::World::fake()); })*
        }
        mod docker_contract {
            $(#[test] fn $name() { crate::contract::$name(&mut crate::World::docker()); })*
        }
    };
}

contract! {
    an_applied_component_runs_and_a_second_apply_changes_nothing,
    nothing_is_ours_before_the_first_apply,
    a_changed_parameter_of_one_service_leaves_its_neighbour_alone,
    a_changed_mounted_file_recreates_the_services_that_mount_it,
    a_service_that_is_gone_from_the_archive_is_removed,
    files_that_are_gone_are_removed_and_others_are_kept,
    a_removal_keeps_volumes_and_the_applications_files,
    a_removal_needs_no_files_and_can_be_repeated,
    a_missing_container_is_seen_and_made_again,
    a_container_that_was_stopped_is_seen_and_started_again,
    an_apply_without_waiting_returns_at_once,
    an_unhealthy_service_times_out_with_its_log_and_without_secrets,
    a_one_shot_job_counts_as_good_when_it_ended_well,
    a_cancelled_wait_leaves_a_half_made_project_that_the_next_apply_completes,
    what_is_outdated_ends_at_once_where_it_waits_and_comes_to_its_end_where_it_changes_something,
    a_foreign_container_is_never_taken_over,
    a_foreign_project_is_never_taken_over,
    a_foreign_network_is_never_taken_over,
    a_foreign_volume_is_never_taken_over,
    a_volume_left_by_a_removal_is_used_again,
    an_image_that_cannot_be_had_changes_nothing,
    a_denied_privilege_changes_nothing,
    an_invalid_parameter_changes_nothing,
    a_refusal_never_says_a_secret,
    a_config_without_its_file_is_refused,
    a_gone_daemon_is_transient,
}
