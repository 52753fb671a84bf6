//! The helm runtime with real Helm 4 and Helm 3 against a real Kubernetes API; nodes and pods are simulated.
//!
//! What is so is said by `helm get values`, `helm history` and the API, never by the runtime itself.

mod admission;
mod interrupted;
mod release;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use device_syncer::artifacts::Cache;
use device_syncer::decision::component::{Component, Kind};
use device_syncer::decision::kubernetes::ObjectPolicy;
use device_syncer::decision::observation::{Condition, Observed};
use device_syncer::runtimes::{Cancel, HelmRuntime, HelmSettings, Runtime, RuntimeError, Source};
use repo_artifacts::Lock;
use repo_model::margo::helm_values::HelmValues;
use repo_model::value::ParamValue;
use repo_model::{DeploymentId, Digest, FleetId};
use repo_testkit::chart;
use repo_testkit::faults::scripted_host::{Host, Reply, answer};
use serde_json::{Value, json};

use self::admission::*;
use self::interrupted::*;
use self::release::*;
use crate::world::needed;

/// Every rule, once with each line of Helm.
macro_rules! helm {
    ($($name:ident,)*) => {
        mod helm_4 {
            $(#[test] fn $name() { super::$name(&mut super::World::new("MARGO_TEST_HELM4")); })*
        }
        mod helm_3 {
            $(#[test] fn $name() { super::$name(&mut super::World::new("MARGO_TEST_HELM3")); })*
        }
    };
}

helm! {
    a_chart_gets_typed_values_in_its_own_namespace,
    a_second_apply_touches_no_object,
    an_upgrade_sets_its_own_values_and_keeps_few_revisions,
    a_removal_can_be_repeated_and_leaves_nothing,
    a_release_that_is_not_ours_is_never_taken_over,
    a_component_that_changes_its_namespace_leaves_the_old_one,
    an_install_that_was_killed_is_made_again,
    an_upgrade_that_was_killed_goes_on_from_the_last_good_revision,
    a_rollback_that_was_killed_goes_on_from_the_last_good_revision,
    a_removal_that_was_killed_is_done_before_the_next_install,
    a_hook_that_fails_is_final,
    a_hook_that_hangs_ends_with_the_time_limit,
    a_removal_whose_hook_fails_or_hangs_keeps_the_release_and_says_how_to_remove_it,
    a_chart_that_cannot_be_rendered_leaves_nothing,
    values_that_break_the_charts_schema_are_final,
    pods_that_never_run_end_with_the_time_limit_and_a_good_input_cures_it,
    a_cancelled_wait_leaves_a_release_that_the_next_apply_completes,
    a_hook_that_began_has_longer_to_come_to_its_end,
    without_waiting_an_apply_returns_at_once,
    an_api_server_that_is_away_or_refuses_us_is_transient,
    values_are_in_a_file_for_us_alone_and_secrets_are_nowhere_else,
    a_quiet_look_is_one_call,
    an_object_that_is_gone_is_seen_and_made_again,
    pods_that_went_away_are_seen,
    pods_that_crash_again_and_again_are_told,
    versions_tell_helm_and_kubernetes,
    what_a_site_does_not_admit_of_a_chart_is_told_before_anything_is_made,
    what_a_chart_hides_where_rendering_does_not_show_it_is_judged_too,
    a_chart_that_reaches_beyond_its_namespace_is_denied,
    the_namespace_has_to_enforce_what_the_site_wants,
    where_kinds_of_others_lie_is_asked_of_the_cluster,
    a_release_that_was_left_under_way_is_judged_once_it_is_brought_back,
    what_becomes_something_else_when_it_is_applied_is_told_and_goes_on,
    what_runs_is_told_once_the_site_does_not_admit_it_any_more,
}

struct World {
    dir: tempfile::TempDir,
    settings: HelmSettings,
    runtime: HelmRuntime,
    component: Component,
    given: BTreeMap<String, ParamValue>,
}

const CONTEXT: &str = "margo-test";

impl World {
    fn new(helm: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let deployment = DeploymentId::from(uuid::Uuid::new_v4());
        let component = "web".parse().unwrap();
        let settings = HelmSettings {
            program: needed(helm).into(),
            kubeconfig: needed("MARGO_TEST_KUBECONFIG").into(),
            context: CONTEXT.to_owned(),
            history_max: 3,
            path: std::env::var("PATH").unwrap(),
            home: dir.path().join("home"),
            values_dir: dir.path().join("values"),
            cache_dir: dir.path().join("cache"),
            fleet: FleetId::from(uuid::Uuid::new_v4()),
            device: "line-2/press-04".parse().unwrap(),
            policy: ObjectPolicy::default(),
            registry: repo_artifacts::Settings::default(),
        };
        let project = deployment.runtime_name(&component);
        let component = Component {
            deployment,
            deployment_name: "test".parse().unwrap(),
            kind: Kind::Helm { namespace: project.clone(), values: HelmValues::default(), secrets: Vec::new() },
            project,
            component,
            repository: "oci://registry.invalid/web".to_owned(),
            revision: "1.0.0".to_owned(),
            lock: None,
            images: Default::default(),
            input_digest: Digest::of(b"1"),
            fleet_digest: Digest::of(b"1"),
            wait: true,
            timeout: Duration::from_secs(60),
        };
        let runtime = HelmRuntime::new(settings.clone()).unwrap();
        let mut world = Self { dir, settings, runtime, component, given: BTreeMap::new() };
        world.chart(chart::pack_dir(&fixture("web")));
        world
    }

    /// The runtime anew, after a change of `settings`.
    fn restart(&mut self) {
        self.runtime = HelmRuntime::new(self.settings.clone()).unwrap();
    }

    /// Gives the component this chart, already in the cache.
    fn chart(&mut self, chart: Vec<u8>) {
        let content = Cache::new(&self.settings.cache_dir).put(&chart).unwrap();
        self.component.lock = Some(Lock { manifest: content, content });
        self.changed();
    }

    /// Sets a parameter, by its pointer.
    fn set(&mut self, pointer: &str, value: ParamValue) {
        self.given.insert(pointer.to_owned(), value);
        self.changed();
    }

    fn unset(&mut self, pointer: &str) {
        self.given.remove(pointer);
        self.changed();
    }

    fn text(&mut self, pointer: &str, value: &str) {
        self.set(pointer, ParamValue::String(value.to_owned()));
    }

    fn changed(&mut self) {
        let new = HelmValues::new(self.given.iter().map(|(pointer, value)| (pointer.as_str(), value))).unwrap();
        let Kind::Helm { values, namespace, .. } = &mut self.component.kind else { panic!("it is a chart") };
        *values = new;
        let text = format!("{:?} {:?} {namespace}", self.component.lock, self.given);
        self.component.input_digest = Digest::of(text.as_bytes());
    }

    fn namespace(&self) -> String {
        let Kind::Helm { namespace, .. } = &self.component.kind else { panic!("it is a chart") };
        namespace.clone()
    }

    fn move_to(&mut self, new: &str) {
        let Kind::Helm { namespace, .. } = &mut self.component.kind else { panic!("it is a chart") };
        *namespace = new.to_owned();
        self.changed();
    }

    fn release(&self) -> &str {
        &self.component.project
    }

    fn apply(&self) -> Result<(), RuntimeError> {
        self.apply_until(&|| false)
    }

    fn apply_until(&self, cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError> {
        let prepared = self.runtime.prefetch(&self.component, Source::Anywhere, &|| false)?;
        self.runtime.apply(&prepared, &Cancel::whatever(cancel))
    }

    fn remove(&self, seconds: u64) -> Result<(), RuntimeError> {
        self.runtime.remove(self.release(), Duration::from_secs(seconds), &|| false)
    }

    fn observed(&self) -> Option<Observed> {
        let found = self.runtime.observe().unwrap();
        assert!(found.len() <= 1, "{found:?}");
        found.into_iter().next()
    }

    /// The component runs as it shall.
    fn assert_runs(&self) {
        let found = self.observed().expect("it is there");
        assert_eq!(found.input_digest, Some(self.component.input_digest), "{found:?}");
        assert_eq!((found.deployment, &found.condition), (Some(self.component.deployment), &Condition::Running));
        assert_eq!(found.component.as_ref(), Some(&self.component.component));
        assert_eq!(self.statuses().last().unwrap(), "deployed");
        assert_eq!(self.object("deployment", self.release())["status"]["readyReplicas"], 1);
    }

    fn helm(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.settings.program);
        command.args(args).arg("--kubeconfig").arg(needed("MARGO_TEST_KUBECONFIG")).args(["--kube-context", CONTEXT]);
        command.env("HOME", self.dir.path());
        command
    }

    /// What helm itself says of the release, as JSON.
    fn ask(&self, args: &[&str]) -> Value {
        let namespace = self.namespace();
        let mut all = args.to_vec();
        all.extend([self.release(), "--namespace", &namespace, "--output", "json"]);
        json_of(&mut self.helm(&all))
    }

    /// The status of each revision, oldest first.
    fn statuses(&self) -> Vec<String> {
        let history = self.ask(&["history"]);
        history.as_array().unwrap().iter().map(|one| one["status"].as_str().unwrap().to_owned()).collect()
    }

    /// An object, by the API.
    fn object(&self, kind: &str, name: &str) -> Value {
        json_of(&mut kubectl(&["get", kind, name, "--namespace", &self.namespace(), "--output", "json"]))
    }

    /// The names of all objects that charts of these tests make.
    fn objects(&self) -> Vec<String> {
        let namespace = self.namespace();
        let kinds = "deployments,jobs,configmaps,secrets,pods";
        let all = json_of(&mut kubectl(&["get", kinds, "--namespace", &namespace, "--output", "json"]));
        let name = |one: &Value| format!("{} {}", one["kind"].as_str().unwrap(), one["metadata"]["name"]);
        all["items"].as_array().unwrap().iter().map(name).collect()
    }

    /// Starts helm beside the runtime as a killed syncer would have, and kills it once the release has this status.
    fn kill_at(&self, args: &[&str], status: &str) {
        let mut child = self.helm(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until(&mut child, || self.newest_is(status));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn newest_is(&self, status: &str) -> bool {
        let args = ["history", self.release(), "--namespace", &self.namespace(), "--output", "json"];
        let output = self.helm(&args).output().unwrap();
        let history: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        history.as_array().and_then(|all| all.last()).is_some_and(|one| one["status"] == status)
    }

    /// `upgrade --install` of the chart with this hook hanging, labelled as ours, killed when it is under way.
    fn kill_upgrade(&self, hook: &str, status: &str) {
        let (fleet, device) = (self.settings.fleet, Digest::of(self.settings.device.as_str().as_bytes()).hex());
        let labels = format!("device-syncer.fleet={fleet},device-syncer.device={}", &device[..32]);
        let chart = fixture("web");
        let set = format!("hooks.{hook}=hang");
        let namespace = self.namespace();
        let args = ["upgrade", self.release(), chart.to_str().unwrap(), "--install", "--namespace", &namespace];
        let more = ["--create-namespace", "--labels", &labels, "--set", &set];
        self.kill_at(&[&args[..], &more].concat(), status);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let mut gone = kubectl(&["delete", "namespace", self.release(), &format!("{}-2", self.release())]);
        let _ = gone.args(["--ignore-not-found", "--wait=false"]).output();
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/charts").join(name)
}

fn kubectl(args: &[&str]) -> Command {
    let mut command = Command::new(needed("MARGO_TEST_KUBERNETES"));
    command.arg("kubectl").arg(format!("--kubeconfig={}", needed("MARGO_TEST_KUBECONFIG"))).args(args);
    command
}

fn json_of(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn wait_until(child: &mut Child, done: impl Fn() -> bool) {
    let came = repo_testkit::comes_within(Duration::from_secs(60), || {
        let is_done = done();
        assert!(is_done || child.try_wait().unwrap().is_none(), "it ended before");
        is_done
    });
    assert!(came, "it didn't come so far");
}

/// Puts a program in helm's place that calls it, and lets `script` look before.
fn wrap(world: &mut World, script: &str) -> PathBuf {
    let (wrapper, log) = (world.dir.path().join("helm"), world.dir.path().join("log"));
    let text =
        format!("#!/bin/sh\nlog={}\n{script}\nexec {} \"$@\"\n", log.display(), world.settings.program.display());
    repo_git::durable::replace_file(&wrapper, text.as_bytes(), 0o700).unwrap();
    world.settings.program = wrapper;
    world.restart();
    log
}
