//! The helm runtime with real Helm 4 and Helm 3 against a real Kubernetes API; nodes and pods are simulated.
//!
//! What is so is said by `helm get values`, `helm history` and the API, never by the runtime itself.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use device_syncer::artifacts::Cache;
use device_syncer::decision::component::{Component, Kind};
use device_syncer::decision::kubernetes::ObjectPolicy;
use device_syncer::decision::observation::{Condition, Observed};
use device_syncer::runtimes::{Cancel, HelmRuntime, HelmSettings, Runtime, RuntimeError};
use repo_artifacts::Lock;
use repo_model::margo::helm_values::HelmValues;
use repo_model::value::ParamValue;
use repo_model::{DeploymentId, Digest, FleetId};
use repo_testkit::chart;
use repo_testkit::faults::scripted_host::{Host, Reply, answer};
use serde_json::{Value, json};

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
        let prepared = self.runtime.prefetch(&self.component, &|| false)?;
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
    let until = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < until, "it didn't come so far");
        assert!(child.try_wait().unwrap().is_none(), "it ended before");
    }
}

fn a_chart_gets_typed_values_in_its_own_namespace(world: &mut World) {
    world.text("settings.version", "1.10");
    world.text("settings.yes", "yes");
    world.set("settings.count", ParamValue::Integer(30));
    world.set("settings.ratio", ParamValue::Double(30.0));
    world.set("settings.armed", ParamValue::Boolean(false));
    world.text(r"settings.a\.b/c", "dotted");
    world.text("settings.slots[1].name", "second");
    world.set("settings.list", ParamValue::Array(vec![ParamValue::Integer(1), ParamValue::String("1".to_owned())]));
    world.apply().unwrap();
    world.assert_runs();
    let expected = json!({"settings": {
        "version": "1.10", "yes": "yes", "count": 30, "ratio": 30.0, "armed": false, "a.b/c": "dotted",
        "slots": [null, {"name": "second"}], "list": [1, "1"],
    }});
    let values = world.ask(&["get", "values"]);
    let number = |value: &Value| value["settings"]["ratio"].as_f64();
    assert_eq!((number(&values), values["settings"]["ratio"].is_number()), (number(&expected), true));
    let without_ratio = |mut value: Value| {
        value["settings"].as_object_mut().unwrap().remove("ratio");
        value
    };
    assert_eq!(without_ratio(values), without_ratio(expected));
    let settings = world.object("configmap", world.release());
    let settings: Value = serde_json::from_str(settings["data"]["settings.json"].as_str().unwrap()).unwrap();
    assert_eq!((&settings["settings"]["version"], &settings["greeting"]), (&json!("1.10"), &json!("hello")));
    assert_eq!(world.object("namespace", &world.namespace())["status"]["phase"], "Active");
}

fn a_second_apply_touches_no_object(world: &mut World) {
    world.apply().unwrap();
    let versions = |world: &World| {
        let version = |kind| world.object(kind, world.release())["metadata"]["resourceVersion"].clone();
        let generation = world.object("deployment", world.release())["metadata"]["generation"].clone();
        (version("configmap"), generation)
    };
    let before = versions(world);
    world.apply().unwrap();
    world.assert_runs();
    assert_eq!(versions(world), before);
}

fn an_upgrade_sets_its_own_values_and_keeps_few_revisions(world: &mut World) {
    world.text("greeting", "first");
    world.set("replicas", ParamValue::Integer(1));
    world.apply().unwrap();
    world.unset("greeting");
    for tag in ["2", "3", "4"] {
        world.text("image.tag", tag);
        assert_ne!(world.observed().unwrap().input_digest, Some(world.component.input_digest));
        world.apply().unwrap();
        world.assert_runs();
    }
    assert_eq!(world.ask(&["get", "values"]), json!({"image": {"tag": "4"}, "replicas": 1}));
    let container = &world.object("deployment", world.release())["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&container["image"], &container["env"][0]["value"]), (&json!("web:4"), &json!("hello")));
    assert_eq!(world.statuses(), ["superseded", "superseded", "deployed"]);
}

fn a_removal_can_be_repeated_and_leaves_nothing(world: &mut World) {
    world.remove(30).unwrap();
    world.apply().unwrap();
    world.remove(30).unwrap();
    assert_eq!(world.observed(), None);
    assert_eq!(world.objects(), [""; 0]);
    world.remove(30).unwrap();
}

fn a_release_that_is_not_ours_is_never_taken_over(world: &mut World) {
    let chart = fixture("web");
    let namespace = world.namespace();
    for labels in ["a=b", &format!("device-syncer.fleet={},device-syncer.device=another", world.settings.fleet)] {
        let args = ["upgrade", world.release(), chart.to_str().unwrap(), "--install", "--namespace", &namespace];
        assert!(world.helm(&args).args(["--create-namespace", "--labels", labels]).output().unwrap().status.success());
        let before = world.statuses();
        let error = world.apply().unwrap_err();
        assert_eq!((error.code().as_str(), error.is_transient()), ("not-ours", false), "{error}");
        let command = format!("helm uninstall {} --namespace {namespace}", world.release());
        assert!(error.to_string().contains(&command), "{error}");
        world.remove(30).unwrap();
        assert_eq!((world.statuses(), world.observed()), (before, None));
    }
}

fn a_component_that_changes_its_namespace_leaves_the_old_one(world: &mut World) {
    world.apply().unwrap();
    let old = world.namespace();
    world.move_to(&format!("{old}-2"));
    assert_ne!(world.observed().unwrap().input_digest, Some(world.component.input_digest));
    world.apply().unwrap();
    world.assert_runs();
    world.move_to(&old);
    assert_eq!(world.objects(), [""; 0]);
}

fn an_install_that_was_killed_is_made_again(world: &mut World) {
    world.kill_upgrade("post-install", "pending-install");
    assert_eq!(world.observed().unwrap().input_digest, None);
    world.apply().unwrap();
    world.assert_runs();
    assert_eq!(world.statuses(), ["deployed"]);
}

fn an_upgrade_that_was_killed_goes_on_from_the_last_good_revision(world: &mut World) {
    world.apply().unwrap();
    world.kill_upgrade("pre-upgrade", "pending-upgrade");
    assert_eq!(world.observed().unwrap().input_digest, None);
    world.text("greeting", "after");
    world.apply().unwrap();
    world.assert_runs();
    let statuses = world.statuses();
    assert!(!statuses.contains(&"failed".to_owned()), "{statuses:?}");
}

fn a_rollback_that_was_killed_goes_on_from_the_last_good_revision(world: &mut World) {
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

fn a_removal_that_was_killed_is_done_before_the_next_install(world: &mut World) {
    world.set("hooks.post-delete", ParamValue::String("hang".to_owned()));
    world.apply().unwrap();
    let namespace = world.namespace();
    world.kill_at(&["uninstall", world.release(), "--namespace", &namespace], "uninstalling");
    world.apply().unwrap();
    world.assert_runs();
    assert_eq!(world.statuses(), ["deployed"]);
}

fn a_hook_that_fails_is_final(world: &mut World) {
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

fn a_hook_that_hangs_ends_with_the_time_limit(world: &mut World) {
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

fn a_removal_whose_hook_fails_or_hangs_keeps_the_release_and_says_how_to_remove_it(world: &mut World) {
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

fn a_chart_that_cannot_be_rendered_leaves_nothing(world: &mut World) {
    world.chart(chart::pack("web", "1.0.1", &[("templates/bad.yaml", "a: {{ .Values.none.such }}\n")]));
    let error = world.apply().unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("helm-failed", false), "{error}");
    assert!(error.to_string().contains("bad.yaml"), "{error}");
    assert_eq!(world.observed(), None);
    world.chart(chart::archive([("web/values.yaml".to_owned(), "a: b\n")]));
    let error = world.apply().unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("artifact-invalid", false), "{error}");
    assert!(error.to_string().contains("Chart.yaml"), "{error}");
}

fn values_that_break_the_charts_schema_are_final(world: &mut World) {
    world.apply().unwrap();
    world.text("replicas", "two");
    let error = world.apply().unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("helm-failed", false), "{error}");
    assert!(error.to_string().contains("replicas"), "{error}");
    assert_eq!(world.statuses(), ["deployed"], "what runs keeps running");
}

fn pods_that_never_run_end_with_the_time_limit_and_a_good_input_cures_it(world: &mut World) {
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

fn a_cancelled_wait_leaves_a_release_that_the_next_apply_completes(world: &mut World) {
    world.text("nodeSelector.no", "node");
    let began = Instant::now();
    let cancel = || began.elapsed() > Duration::from_secs(2);
    assert!(matches!(world.apply_until(&cancel), Err(RuntimeError::Cancelled)));
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    world.unset("nodeSelector.no");
    world.apply().unwrap();
    world.assert_runs();
}

fn a_hook_that_began_has_longer_to_come_to_its_end(world: &mut World) {
    for (given, seconds) in [(("nodeSelector.no", "node"), 12), (("hooks.pre-upgrade", "hang"), 30)] {
        world.text(given.0, given.1);
        let prepared = world.runtime.prefetch(&world.component, &|| false).unwrap();
        let began = Instant::now();
        let after = |seconds| move || began.elapsed() >= Duration::from_secs(seconds);
        let (changing, once) = (after(12), after(30));
        let cancel = Cancel { waiting: &|| true, changing: &changing, once: &once };
        assert!(matches!(world.runtime.apply(&prepared, &cancel), Err(RuntimeError::Cancelled)));
        let took = began.elapsed().as_secs();
        assert!((seconds..seconds + 17).contains(&took), "{given:?}: {took} s");
        world.unset(given.0);
        world.apply().unwrap();
    }
    world.assert_runs();
}

fn without_waiting_an_apply_returns_at_once(world: &mut World) {
    world.text("nodeSelector.no", "node");
    world.component.wait = false;
    world.apply().unwrap();
    assert_eq!(world.observed().unwrap().input_digest, Some(world.component.input_digest));
}

fn an_api_server_that_is_away_or_refuses_us_is_transient(world: &mut World) {
    let kubeconfig = fs::read_to_string(&world.settings.kubeconfig).unwrap();
    let port = kubeconfig.split("127.0.0.1:").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let token = kubeconfig.split("token: \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    for (from, to) in [(&port, "1"), (&token, "of-nobody")] {
        let good = std::mem::replace(&mut world.settings.kubeconfig, world.dir.path().join("kubeconfig"));
        repo_git::durable::replace_file(&world.settings.kubeconfig, kubeconfig.replace(from, to).as_bytes(), 0o600)
            .unwrap();
        world.restart();
        let errors = [world.runtime.observe().unwrap_err(), world.apply().unwrap_err(), world.remove(5).unwrap_err()];
        for error in errors {
            assert_eq!((error.code().as_str(), error.is_transient()), ("runtime-unavailable", true), "{error}");
        }
        assert_eq!(world.runtime.versions(), None);
        world.settings.kubeconfig = good;
        world.restart();
        world.apply().unwrap();
        world.assert_runs();
    }
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

fn values_are_in_a_file_for_us_alone_and_secrets_are_nowhere_else(world: &mut World) {
    let look = "echo \"$@\" >>$log\nenv >>$log\nfor file in \"$@\"; do case $file in */values/*) \
                stat -c '%a' \"$file\" >>$log; grep -c hunter2hunter2 \"$file\" >>$log;; esac; done";
    let log = wrap(world, look);
    world.text("greeting", "hunter2hunter2");
    let Kind::Helm { secrets, .. } = &mut world.component.kind else { panic!("it is a chart") };
    secrets.push("hunter2hunter2".to_owned());
    world.apply().unwrap();
    let seen = fs::read_to_string(&log).unwrap();
    assert!(!seen.contains("hunter2hunter2") && seen.contains("\n600\n1\n"), "{seen}");
    assert!(!seen.contains("KUBECONFIG=") && !seen.contains("HELM_"), "{seen}");
    assert_eq!(fs::read_dir(&world.settings.values_dir).unwrap().count(), 0);
    world.text("replicas", "hunter2hunter2");
    let error = world.apply().unwrap_err();
    assert!(!error.to_string().contains("hunter2hunter2"), "{error}");
    let left = world.settings.values_dir.join("left.yaml");
    repo_git::durable::replace_file(&left, b"of a killed syncer", 0o600).unwrap();
    world.restart();
    assert_eq!(fs::read_dir(&world.settings.values_dir).unwrap().count(), 1, "helm may read it for another process");
    world.runtime.sweep().unwrap();
    assert_eq!(fs::read_dir(&world.settings.values_dir).unwrap().count(), 0);
    let mode = fs::metadata(&world.settings.values_dir).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

fn a_quiet_look_is_one_call(world: &mut World) {
    let log = wrap(world, "echo $1 >>$log");
    world.apply().unwrap();
    world.assert_runs();
    repo_git::durable::remove_file(&log).unwrap();
    for _ in 0..2 {
        world.runtime.observe().unwrap();
    }
    assert_eq!(fs::read_to_string(&log).unwrap(), "list\nlist\n");
}

fn an_object_that_is_gone_is_seen_and_made_again(world: &mut World) {
    world.apply().unwrap();
    world.assert_runs();
    let (release, namespace) = (world.release().to_owned(), world.namespace());
    assert!(kubectl(&["delete", "configmap", &release, "--namespace", &namespace]).output().unwrap().status.success());
    assert_eq!(world.observed().unwrap().condition, Condition::Running, "it was looked at just now");
    world.restart();
    let found = world.observed().unwrap();
    assert_eq!((found.input_digest, found.condition), (Some(world.component.input_digest), Condition::Missing));
    world.apply().unwrap();
    world.assert_runs();
    assert_eq!(world.object("configmap", &release)["metadata"]["name"], release);
}

fn pods_that_went_away_are_seen(world: &mut World) {
    world.apply().unwrap();
    let (release, namespace) = (world.release().to_owned(), world.namespace());
    let patch = r#"{"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null},
                   "template": {"spec": {"nodeSelector": {"no": "node"}}}}}"#;
    let mut stop = kubectl(&["patch", "deployment", &release, "--namespace", &namespace, "--patch", patch]);
    assert!(stop.output().unwrap().status.success());
    let until = Instant::now() + Duration::from_secs(30);
    let is_told = |world: &mut World| {
        world.restart();
        let found = world.observed().unwrap();
        let text = format!("Deployment {release} has 0 of 1 available");
        (found.condition == Condition::Degraded(text)).then_some(found.input_digest)
    };
    let digest = loop {
        match is_told(world) {
            Some(digest) => break digest,
            None => assert!(Instant::now() < until, "{:?}", world.observed()),
        }
    };
    assert_eq!(digest, Some(world.component.input_digest), "its input is what was applied");
}

#[test]
fn a_chart_of_a_chart_repository_is_verified_by_its_lock_and_asked_for_once() {
    let good = chart::pack_dir(&fixture("web"));
    let (served, asked) = (Arc::new(Mutex::new(good.clone())), Arc::new(AtomicUsize::new(0)));
    let (bytes, count) = (Arc::clone(&served), Arc::clone(&asked));
    let host = Host::start(move |request| {
        count.fetch_add(1, Ordering::Relaxed);
        let index = "entries: {web: [{name: web, version: 1.0.0, urls: [web-1.0.0.tgz]}]}\n";
        Reply::Keep(match request.head.split(' ').nth(1).unwrap_or_default() {
            "/stable/index.yaml" => answer("200 OK", &[], index.as_bytes()),
            "/stable/web-1.0.0.tgz" => answer("200 OK", &[], &bytes.lock().unwrap()),
            _ => answer("404 Not Found", &[], b""),
        })
    });
    let mut world = World::new("MARGO_TEST_HELM4");
    world.settings.registry.extra_roots = vec![host.authority.certificate().as_bytes().to_vec()];
    world.settings.cache_dir = world.dir.path().join("empty");
    world.component.repository = host.url("/stable");
    world.restart();
    *served.lock().unwrap() = chart::pack("web", "1.0.0", &[]);
    let error = world.apply().unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("artifact-digest-changed", false), "{error}");
    *served.lock().unwrap() = good;
    world.apply().unwrap();
    world.assert_runs();
    let before = asked.load(Ordering::Relaxed);
    world.apply().unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), before, "it is in the cache");
    world.component.revision = "9.9.9".to_owned();
    world.component.lock = None;
    let error = world.apply().unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("artifact-unavailable", true), "{error}");
}

fn versions_tell_helm_and_kubernetes(world: &mut World) {
    let versions = world.runtime.versions().unwrap();
    let helm = world.settings.program.parent().and_then(Path::file_name).and_then(OsStr::to_str).unwrap();
    assert_eq!(format!("helm-{}", versions["helm"]), helm);
    assert_eq!(versions["kubernetes"], "1.35.4");
}

/// Lets the site say this; `images` are patterns.
fn site(world: &mut World, images: Option<&[&str]>, kubernetes: Option<Value>) {
    let patterns = |all: &[&str]| all.iter().map(|one| (*one).to_owned().try_into().unwrap()).collect();
    let kubernetes = kubernetes.map(|said| serde_json::from_value(said).unwrap());
    world.settings.policy = ObjectPolicy { images: images.map(patterns), kubernetes, ..ObjectPolicy::default() };
    world.restart();
}

/// Gives the component a chart with this one template, and a container that keeps it small.
fn template(world: &mut World, text: &str) {
    world.chart(chart::pack("web", "1.0.0", &[("templates/a.yaml", text)]));
}

/// The reason, without quotes, for which the policy denies it before anything of its deployment is changed.
fn denial(world: &World) -> String {
    let error = world.runtime.prefetch(&world.component, &|| false).unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("policy-denied", false), "{error}");
    error.to_string().replace('`', "")
}

fn what_a_site_does_not_admit_of_a_chart_is_told_before_anything_is_made(world: &mut World) {
    let log = wrap(world, "echo \"$@\" >>$log");
    site(world, Some(&["registry.plant.local/**"]), None);
    let reason = denial(world);
    let field = "spec.template.spec.containers[0].image is web, which isn't among policy.images";
    assert!(reason.contains(&format!("Deployment {}: {field}", world.release())), "{reason}");
    assert_eq!(world.observed(), None);
    let there = kubectl(&["get", "namespace", &world.namespace()]).output().unwrap();
    assert!(!there.status.success(), "not even its namespace is made");
    site(world, Some(&["web"]), None);
    world.apply().unwrap();
    world.assert_runs();
    world.text("hooks.pre-upgrade", "ok");
    let reason = denial(world);
    assert!(reason.contains("Job ") && reason.contains("containers[0].image is hook"), "{reason}");
    world.unset("hooks.pre-upgrade");
    world.settings.policy.memory = Some(1 << 30);
    world.restart();
    let reason = denial(world);
    assert!(reason.contains("resources.limits.memory is missing, so it is over policy.ceilings.memory"), "{reason}");
    assert_eq!(world.statuses(), ["deployed"], "what runs keeps running");
    world.settings.policy = ObjectPolicy::default();
    world.restart();
    repo_git::durable::remove_file(&log).unwrap();
    world.text("greeting", "silent");
    world.apply().unwrap();
    let calls = fs::read_to_string(&log).unwrap();
    assert!(
        !calls.contains("--dry-run") && calls.contains("upgrade"),
        "a site that says nothing pays nothing: {calls}"
    );
}

fn what_a_chart_hides_where_rendering_does_not_show_it_is_judged_too(world: &mut World) {
    site(world, Some(&["web"]), None);
    let pod = |image: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: x}}\nspec: {{containers: [{{name: x, image: {image}}}]}}\n"
        )
    };
    let evil = pod("evil");
    let hook = |event: &str| {
        format!("{}\n", evil.replace("{name: x}", &format!("{{name: x, annotations: {{helm.sh/hook: {event}}}}}")))
    };
    let subchart = ("charts/sub/Chart.yaml", "apiVersion: v2\nname: sub\nversion: 1.0.0\n");
    for files in [
        [("crds/a.yaml", evil.as_str()), subchart],
        [("charts/sub/crds/a.yml", &evil), subchart],
        [("charts/sub/templates/a.yaml", &evil), subchart],
        [("templates/a.yaml", &hook("post-install")), subchart],
        [("templates/a.yaml", &hook("pre-delete,test")), subchart],
        [("templates/a.yaml", &format!("{}---\n{evil}", pod("web"))), subchart],
    ] {
        world.chart(chart::pack("web", "1.0.0", &files));
        let reason = denial(world);
        assert!(reason.contains("Pod x: spec.containers[0].image is evil"), "{files:?}: {reason}");
    }
    // Only `helm test` runs it, and nothing calls that.
    world.chart(chart::pack("web", "1.0.0", &[("templates/a.yaml", &hook("test"))]));
    world.apply().unwrap();
    let twice = "apiVersion: v1\nkind: ConfigMap\nkind: Pod\nmetadata: {name: x}\n";
    template(world, twice);
    let error = world.apply().unwrap_err();
    assert!(["policy-denied", "helm-failed"].contains(&error.code().as_str()), "{error}");
}

fn a_chart_that_reaches_beyond_its_namespace_is_denied(world: &mut World) {
    let object = |kind: &str, more: &str| {
        format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: {{{{ .Release.Name }}}}{more}}}\n")
    };
    let role =
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: \"{{ .Release.Name }}\"}\n";
    let service = |port: u16| {
        format!("{}spec: {{type: NodePort, ports: [{{port: 80, nodePort: {port}}}]}}\n", object("Service", ""))
    };
    let port = 30000 + u16::from_le_bytes(uuid::Uuid::new_v4().as_bytes()[..2].try_into().unwrap()) % 2000;
    let said = |listed: &[&str]| json!({"nodePorts": [[port, port]], "clusterScoped": listed});
    for (text, expected) in [
        (role.to_owned(), "kind is cluster-scoped, and isn't among policy.kubernetes.clusterScoped"),
        (object("ConfigMap", ", namespace: default"), "metadata.namespace is another one than the release's"),
        (service(port + 1), "spec.ports[0].nodePort isn't within policy.kubernetes.nodePorts"),
        (object("Service", "") + "spec: {type: NodePort, ports: [{port: 80}]}\n", "nodePort is missing"),
    ] {
        site(world, None, Some(said(&[])));
        template(world, &text);
        let reason = denial(world);
        assert!(reason.contains(expected), "{reason}");
    }
    template(world, &service(port));
    world.apply().unwrap();
    site(world, None, Some(said(&["ClusterRole"])));
    template(world, role);
    world.apply().unwrap();
    world.remove(30).unwrap();
}

fn the_namespace_has_to_enforce_what_the_site_wants(world: &mut World) {
    site(world, None, Some(json!({"podSecurity": "baseline"})));
    let namespace = world.namespace();
    let label = |level: &str| format!("kubectl label namespace {namespace} pod-security.kubernetes.io/enforce={level}");
    let reason = denial(world);
    assert!(reason.contains("enforces nothing") && reason.contains(&label("baseline")), "{reason}");
    assert!(kubectl(&["create", "namespace", &namespace]).output().unwrap().status.success());
    assert!(denial(world).contains("enforces nothing"));
    let enforce = |level: &str| {
        let label = format!("pod-security.kubernetes.io/enforce={level}");
        let output = kubectl(&["label", "namespace", &namespace, &label, "--overwrite"]).output().unwrap();
        assert!(output.status.success());
    };
    enforce("privileged");
    assert!(denial(world).contains("enforces privileged"));
    for level in ["baseline", "restricted"] {
        enforce(level);
        world.text("greeting", level);
        world.component.wait = level == "baseline";
        world.apply().unwrap();
    }
    // The cluster itself holds the pods to it.
    enforce("baseline");
    world.component.wait = true;
    template(
        world,
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {hostNetwork: true, containers: [{name: x, image: x}]}\n",
    );
    let error = world.apply().unwrap_err();
    assert!(error.to_string().contains("violates PodSecurity"), "{error}");
}

fn where_kinds_of_others_lie_is_asked_of_the_cluster(world: &mut World) {
    let group = format!("g{}.example", world.component.deployment.to_string().replace('-', ""));
    let definition = |scope: &str, kind: &str, plural: &str| {
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {plural}.{group}}}\nspec:\n  \
             group: {group}\n  scope: {scope}\n  names: {{kind: {kind}, plural: {plural}}}\n  versions: [{{name: v1, served: \
             true, storage: true, schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}]\n"
        )
    };
    let file = world.dir.path().join("crds.yaml");
    let both =
        format!("{}---\n{}", definition("Namespaced", "Recipe", "recipes"), definition("Cluster", "Line", "lines"));
    repo_git::durable::replace_file(&file, both.as_bytes(), 0o600).unwrap();
    let path = file.to_str().unwrap().to_owned();
    assert!(kubectl(&["apply", "--filename", &path]).output().unwrap().status.success());
    let established = ["recipes", "lines"].map(|plural| format!("crd/{plural}.{group}"));
    let waits = ["wait", "--for=condition=Established", &established[0], &established[1], "--timeout=30s"];
    assert!(kubectl(&waits).output().unwrap().status.success());
    site(world, Some(&["web"]), Some(json!({})));
    let object = |kind: &str, image: &str| {
        let pod = format!("spec: {{deep: [{{containers: [{{name: x, image: {image}}}]}}]}}");
        format!("apiVersion: {group}/v1\nkind: {kind}\nmetadata: {{name: x}}\n{pod}\n")
    };
    template(world, &object("Line", "web"));
    let reason = denial(world);
    assert!(reason.contains("Line x: kind isn't known to lie in a namespace"), "{reason}");
    template(world, &object("Recipe", "evil"));
    let reason = denial(world);
    assert!(reason.contains("Recipe x: spec.deep[0].containers[0].image is evil"), "{reason}");
    template(world, &object("Recipe", "web"));
    world.apply().unwrap();
    world.remove(30).unwrap();
    let _ = kubectl(&["delete", "--filename", &path, "--wait=false"]).output();
}

fn a_release_that_was_left_under_way_is_judged_once_it_is_brought_back(world: &mut World) {
    world.apply().unwrap();
    world.kill_upgrade("pre-upgrade", "pending-upgrade");
    site(world, Some(&["other"]), None);
    world.text("greeting", "after");
    let prepared = world.runtime.prefetch(&world.component, &|| false).unwrap();
    let error = world.runtime.apply(&prepared, &Cancel::whatever(&|| false)).unwrap_err();
    assert_eq!(error.code().as_str(), "policy-denied", "{error}");
    assert_eq!(world.statuses().last().unwrap(), "deployed", "it is brought back, and goes on");
    site(world, Some(&["web"]), None);
    world.apply().unwrap();
    world.assert_runs();
}

fn what_becomes_something_else_when_it_is_applied_is_told_and_goes_on(world: &mut World) {
    site(world, Some(&["web"]), None);
    let namespace = world.namespace();
    assert!(kubectl(&["create", "namespace", &namespace]).output().unwrap().status.success());
    let image = r#"{{ if lookup "v1" "ConfigMap" .Release.Namespace "flag" }}evil{{ else }}web{{ end }}"#;
    let pod = format!("spec: {{containers: [{{name: x, image: {image}}}]}}");
    template(world, &format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: x}}\n{pod}\n"));
    let prepared = world.runtime.prefetch(&world.component, &|| false).unwrap();
    assert!(kubectl(&["create", "configmap", "flag", "--namespace", &namespace]).output().unwrap().status.success());
    let denied = |error: RuntimeError, words: &str| {
        assert_eq!((error.code().as_str(), error.is_transient()), ("policy-denied", false), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    denied(
        world.runtime.apply(&prepared, &Cancel::whatever(&|| false)).unwrap_err(),
        "image` is evil, which isn't among",
    );
    assert_eq!(
        (world.statuses(), world.object("pod", "x")["spec"]["containers"][0]["image"].clone()),
        (vec!["deployed".to_owned()], json!("evil"))
    );
    let found = world.observed().unwrap();
    assert!(found.violation.unwrap().contains("image` is evil"));
    assert_eq!((found.input_digest, found.condition), (Some(world.component.input_digest), Condition::Running));
    // A cluster that reads the manifest otherwise than this program: only the objects as they live show it.
    world.remove(30).unwrap();
    world.chart(chart::pack_dir(&fixture("web")));
    let helm = world.settings.program.display().to_string();
    let other =
        format!("if [ $1 = status ]; then {helm} \"$@\" | sed 's/\"image\": *\"web/\"image\":\"evil/g'; exit; fi");
    wrap(world, &other);
    denied(world.apply().unwrap_err(), "image` is evil, which isn't among");
}

fn what_runs_is_told_once_the_site_does_not_admit_it_any_more(world: &mut World) {
    world.apply().unwrap();
    assert_eq!(world.observed().unwrap().violation, None);
    site(world, Some(&["other"]), Some(json!({})));
    let found = world.observed().unwrap();
    assert!(found.violation.unwrap().contains("image` is web, which isn't among"));
    assert_eq!(found.condition, Condition::Running);
    world.assert_runs();
    site(world, Some(&["web"]), Some(json!({})));
    assert_eq!(world.observed().unwrap().violation, None);
}
