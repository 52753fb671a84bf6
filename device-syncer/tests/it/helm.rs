//! Charts from the device repository to a real Kubernetes API, by real Helm 4 and Helm 3; compose beside it on the
//! stand-in for docker. What is so is said by helm and the API.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use repo_artifacts::{ChartReference, Lock, Registry, Settings};
use repo_model::ComponentName;
use repo_testkit::chart;
use repo_testkit::cluster::{Cluster, HELM_3, HELM_4};
use serde_json::{Value, json};

use crate::world::{World, command, finish, kill, registry, script, until};

/// A device that runs charts, with a namespace of its own.
pub(crate) struct Charts {
    pub(crate) world: World,
    lock: Lock,
    cluster: Cluster,
}

impl Charts {
    pub(crate) fn new(helm: &str) -> Self {
        let world = World::enrolled();
        let path = format!("syncer-it/charts/{}/web", std::process::id());
        let bytes = chart::pack_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/charts/web"));
        let client = Registry::new(Settings::default());
        chart::push(&registry(), &path, "1.0.0", &bytes, None);
        let reference = ChartReference::oci(&format!("oci://{}/{path}", registry()), "1.0.0").unwrap();
        let lock = client.resolve_chart(&reference).unwrap();
        let cluster = Cluster::new(helm, format!("it-{}", &world.hand.fleet()[..8]));
        let charts = Self { world, lock, cluster };
        charts.settings(charts.cluster.program());
        charts
    }

    fn settings(&self, program: &Path) {
        self.world.settings(&format!("helm: {}\n", self.cluster.settings(program)));
    }

    /// Wants the chart, with these values: pointer and YAML.
    pub(crate) fn want(&self, name: &str, values: &[(&str, &str)]) {
        self.want_from(&registry(), name, values);
    }

    /// The same from this registry.
    fn want_from(&self, at: &str, name: &str, values: &[(&str, &str)]) {
        let (world, lock) = (&self.world, &self.lock);
        world.hand.want(name, &world.app, "replaced");
        let mut parameters = String::new();
        for (index, (pointer, value)) in values.iter().enumerate() {
            let target = format!("{{pointer: '{pointer}', components: [hello]}}");
            parameters += &format!("\n    p{index}: {{value: {value}, targets: [{target}]}}");
        }
        let repository = format!("oci://{at}/syncer-it/charts/{}/web", std::process::id());
        world.hand.edit(name, |document| {
            let head = document.split("spec:").next().unwrap().replace("default", self.cluster.namespace());
            let component = format!("{{name: hello, properties: {{repository: '{repository}', revision: 1.0.0}}}}");
            let parameters = if parameters.is_empty() { "{}" } else { &parameters };
            format!(
                "{head}spec:\n  applicationId: hello\n  deploymentProfile: {{type: helm, components: [{component}]}}\n  \
                 parameters: {parameters}\n"
            )
        });
        world.hand.describe(name, |described| {
            described["locks"]["hello"] = json!({"manifest": lock.manifest, "content": lock.content});
        });
    }

    fn release(&self, name: &str) -> String {
        self.world.hand.deployment_id(name).runtime_name(&"hello".parse::<ComponentName>().unwrap())
    }

    pub(crate) fn history(&self, name: &str) -> Vec<String> {
        self.cluster.history(&self.release(name)).iter().map(ToString::to_string).collect()
    }

    pub(crate) fn values(&self, name: &str) -> Value {
        self.cluster.values(&self.release(name))
    }

    /// The names of the deployments in the namespace, by the API.
    fn deployments(&self) -> Vec<String> {
        self.cluster.objects("deployments")
    }

    /// Puts a script in helm's place; `$helm` is the real one.
    fn wrap(&self, lines: &str) {
        let wrapper = self.world.path("helm-wrapper");
        let knob = self.world.path("knob");
        let head = format!("helm={}\nknob={}", self.cluster.program().display(), knob.display());
        script(&wrapper, &format!("{head}\n{lines}"));
        self.settings(&wrapper);
    }

    /// The helms that now change a release of this device.
    fn helms(&self, name: &str) -> usize {
        let release = self.release(name);
        let changes = |line: &str| {
            ["upgrade", "uninstall", "rollback"].iter().any(|verb| line.contains(verb)) && line.contains(&release)
        };
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok());
        lines.filter(|line| changes(line)).count()
    }

    /// A pass that finds nothing to do: no commit, no revision, no call of helm that changes anything.
    fn assert_idle(&self, name: &str) {
        let before = (self.world.marks(), self.history(name));
        self.world.once().good();
        assert_eq!((self.world.marks(), self.history(name)), before);
        self.assert_whole(true);
    }

    /// The invariants, of releases too.
    fn assert_whole(&self, converged: bool) {
        self.world.assert_whole_at(Some(&self.cluster), converged);
    }
}

fn a_chart_is_installed_changed_and_removed(helm: &str) {
    let charts = Charts::new(helm);
    let world = &charts.world;
    charts.want("greeter", &[("greeting", "hello"), ("settings.version", "\"1.10\"")]);
    world.hand.publish();
    world.once().good();
    let told = world.told();
    assert_eq!(told.last().unwrap(), "greeter/* installing > installed; greeter/hello installing > installed");
    assert_eq!(charts.values("greeter"), json!({"greeting": "hello", "settings": {"version": "1.10"}}));
    assert_eq!(charts.history("greeter"), ["1 deployed"]);
    assert_eq!(charts.deployments(), [format!("deployment.apps/{}", charts.release("greeter"))]);
    let capabilities = repo_testkit::git::show(&world.hand.repository(), "status", "capabilities.json").unwrap();
    let capabilities = String::from_utf8(capabilities).unwrap().replace(char::is_whitespace, "");
    assert!(capabilities.contains("[\"compose\",\"helm\"]"), "{capabilities}");
    assert!(capabilities.contains("\"kubernetes\":\"1.35.4\""), "{capabilities}");
    charts.assert_idle("greeter");
    charts.want("greeter", &[("greeting", "servus")]);
    world.hand.publish();
    world.once().good();
    assert_eq!(charts.values("greeter"), json!({"greeting": "servus"}));
    assert_eq!(charts.history("greeter"), ["1 superseded", "2 deployed"]);
    charts.assert_idle("greeter");
    world.told();
    world.hand.drop("greeter");
    world.hand.publish();
    world.once().good();
    let transitions = ["installed > removing", "removing > removed"];
    let told = world.told();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().zip(transitions).all(|(told, words)| told.contains(words)), "{told:?}");
    assert_eq!((charts.deployments(), charts.history("greeter")), (vec![], vec![]));
    charts.assert_idle("greeter");
}

#[test]
fn helm_4_installs_changes_and_removes_a_chart() {
    a_chart_is_installed_changed_and_removed(HELM_4);
}

#[test]
fn helm_3_installs_changes_and_removes_a_chart() {
    a_chart_is_installed_changed_and_removed(HELM_3);
}

#[test]
fn a_chart_and_a_project_live_side_by_side_and_one_that_fails_leaves_the_other() {
    let charts = Charts::new(HELM_4);
    let world = &charts.world;
    charts.want("greeter", &[("replicas", "two")]);
    world.hand.want("other", &world.app, "hello");
    world.hand.want("third", &world.app, "hello");
    world.hand.describe("third", |described| described["policy"] = json!({"dependsOn": ["greeter"]}));
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed helm-failed"]);
    assert!(world.message("greeter").contains("replicas"), "{}", world.message("greeter"));
    assert_eq!(world.states("other"), ["hello installed"]);
    assert_eq!(world.states("third"), ["hello pending dependency-failed"]);
    assert_eq!(world.greetings().len(), 1);
    charts.want("greeter", &[("replicas", "2")]);
    world.hand.publish();
    world.once().good();
    for name in ["greeter", "other", "third"] {
        assert_eq!(world.states(name), ["hello installed"], "{name}");
    }
    let before = world.containers();
    assert_eq!(before.len(), 2);
    charts.assert_idle("greeter");
    world.hand.drop("greeter");
    world.hand.drop("third");
    world.hand.publish();
    world.once().good();
    assert_eq!(charts.deployments().len(), 0);
    assert_eq!(world.containers().len(), 1);
}

#[test]
fn a_component_that_changes_its_type_ends_before_it_begins_anew() {
    let charts = Charts::new(HELM_4);
    let world = &charts.world;
    world.hand.want("greeter", &world.app, "hello");
    world.hand.publish();
    world.once().good();
    world.told();
    let transitions = [
        "greeter/* installed > pending queued; greeter/hello installed > pending queued",
        "greeter/* pending > removing; greeter/hello pending > removing",
        "greeter/* removing > removed; greeter/hello removing > removed",
        "greeter/* removed > installing; greeter/hello removed > installing",
        "greeter/* installing > installed; greeter/hello installing > installed",
    ];
    charts.want("greeter", &[("greeting", "hello")]);
    world.hand.publish();
    let plan = world.syncer(&["plan"]);
    assert!(plan.stdout.contains("of another type"), "{plan:?}");
    world.once().good();
    assert_eq!((world.containers().len(), charts.history("greeter")), (0, vec!["1 deployed".to_owned()]));
    assert_eq!(told_states(world), transitions);
    charts.assert_idle("greeter");
    world.hand.want("greeter", &world.app, "hello");
    world.hand.publish();
    world.once().good();
    assert_eq!((world.greetings(), charts.history("greeter")), (vec!["hello".to_owned()], vec![]));
    assert_eq!(told_states(world), transitions);
    world.assert_idle();
}

#[test]
fn while_the_api_server_is_away_compose_goes_on_and_nothing_of_helms_is_forgotten() {
    let charts = Charts::new(HELM_4);
    let world = &charts.world;
    charts.want("greeter", &[]);
    world.hand.want("other", &world.app, "hello");
    world.hand.publish();
    world.once().good();
    let kubeconfig = fs::read_to_string(charts.cluster.kubeconfig()).unwrap();
    let server = kubeconfig.split("server: \"").nth(1).unwrap().split('"').next().unwrap();
    let away = world.path("kubeconfig");
    fs::write(&away, kubeconfig.replace(server, "https://127.0.0.1:1")).unwrap();
    let settings = charts.cluster.settings(charts.cluster.program());
    let settings = settings.replace(charts.cluster.kubeconfig(), away.to_str().unwrap());
    world.settings(&format!("helm: {settings}\n"));
    world.hand.drop("greeter");
    world.hand.want("other", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.conditions(), ["RuntimeUnavailable RuntimeUnavailable"]);
    assert_eq!(world.greetings(), ["servus"]);
    assert_eq!((world.states("greeter"), world.states("other")), (installed(), installed()));
    assert_eq!(charts.history("greeter"), ["1 deployed"]);
    world.assert_quiet();
    charts.settings(charts.cluster.program());
    world.once().good();
    assert_eq!((charts.history("greeter"), world.conditions()), (vec![], vec![]));
}

/// What was told of states; a commit may also tell of other things only.
fn told_states(world: &World) -> Vec<String> {
    world.told().into_iter().filter(|said| !said.is_empty()).collect()
}

fn installed() -> Vec<String> {
    vec!["hello installed".to_owned()]
}

#[test]
fn a_device_without_docker_runs_charts_alone_and_says_so() {
    let charts = Charts::new(HELM_4);
    let world = &charts.world;
    let helm = charts.cluster.settings(charts.cluster.program());
    world.settings_of(&world.home(), "{use: false}", &format!("helm: {helm}\n"));
    world.fake.set("unavailable", "");
    charts.want("greeter", &[]);
    world.hand.want("other", &world.app, "hello");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!((world.states("greeter"), world.conditions()), (installed(), vec![]));
    assert_eq!(world.states("other"), ["hello failed capability-missing"]);
    let capabilities = repo_testkit::git::show(&world.hand.repository(), "status", "capabilities.json").unwrap();
    let capabilities = String::from_utf8(capabilities).unwrap().replace(char::is_whitespace, "");
    assert!(capabilities.contains("[\"helm\"]") && !capabilities.contains("compose"), "{capabilities}");
    world.hand.drop("other");
    world.hand.publish();
    world.once().good();
    charts.assert_idle("greeter");
}

#[test]
fn a_newer_revision_ends_the_waiting_for_a_release() {
    let charts = Charts::new(HELM_4);
    let world = &charts.world;
    charts.want("greeter", &[("nodeSelector.no", "node")]);
    world.hand.publish();
    let began = Instant::now();
    let first = command(&world.home(), &["once"]).spawn().unwrap();
    until("it is being installed", || charts.history("greeter") == ["1 pending-install"]);
    charts.want("greeter", &[]);
    world.hand.publish();
    finish(first).ended(1);
    assert!(began.elapsed() < Duration::from_secs(200), "it waited for {:?}", began.elapsed());
    world.once().good();
    assert_eq!(world.states("greeter"), installed());
    charts.assert_idle("greeter");
}

#[test]
fn a_chart_that_its_registry_can_not_give_comes_from_a_mirror_and_with_its_digest_or_not_at_all() {
    let charts = Charts::new(HELM_4);
    let (world, away) = (&charts.world, "127.0.0.1:1");
    charts.want_from(away, "greeter", &[]);
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello pending artifact-unavailable"]);
    world.add_mirrors(away, &[&registry()], false);
    let another = json!(repo_model::Digest::of(b"another chart"));
    world.hand.describe("greeter", |described| described["locks"]["hello"]["manifest"] = another);
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(
        (world.states("greeter"), charts.deployments()),
        (vec!["hello pending artifact-unavailable".into()], vec![])
    );
    charts.want_from(away, "greeter", &[]);
    world.hand.publish();
    world.once().good();
    assert_eq!((world.states("greeter"), charts.history("greeter")), (installed(), vec!["1 deployed".to_owned()]));
    charts.assert_idle("greeter");
}

#[test]
fn a_chart_comes_from_a_mirror_that_the_fleet_names_once_the_site_hands_that_over() {
    let charts = Charts::new(HELM_4);
    let (world, away) = (&charts.world, "127.0.0.1:1");
    charts.want_from(away, "greeter", &[]);
    world.hand.publish();
    world.once().ended(1);
    crate::from_fleet::say(world, json!({"registries": {"mirrors": {away: [registry()]}}}));
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello pending artifact-unavailable"]);
    world.add_settings("fromFleet: [registries]\n");
    world.once().good();
    assert_eq!((world.states("greeter"), charts.history("greeter")), (installed(), vec!["1 deployed".to_owned()]));
}

fn a_kill_during_a_slow_hook_never_leaves_two_helms(helm: &str) {
    let charts = Charts::new(helm);
    let world = &charts.world;
    charts.want("greeter", &[("hooks.pre-install", "hang")]);
    world.hand.publish();
    let mut first = command(&world.home(), &["once"]).spawn().unwrap();
    until("the hook hangs", || charts.history("greeter") == ["1 pending-install"] && charts.helms("greeter") == 1);
    kill(&mut first);
    assert_eq!(charts.helms("greeter"), 1, "helm outlives the syncer");
    charts.want("greeter", &[("greeting", "after")]);
    world.hand.publish();
    world.told();
    let mut second = command(&world.home(), &["once"]).spawn().unwrap();
    let mut most = 0;
    while second.try_wait().unwrap().is_none() {
        most = most.max(charts.helms("greeter"));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(most, 1);
    finish(second).good();
    assert_eq!(charts.history("greeter"), ["1 deployed"]);
    assert_eq!(charts.values("greeter"), json!({"greeting": "after"}));
    let told = told_states(world);
    assert_eq!(told.last().unwrap(), "greeter/* installing > installed; greeter/hello installing > installed");
    charts.assert_idle("greeter");
}

#[test]
fn helm_4_is_never_two_after_a_kill_during_a_slow_hook() {
    a_kill_during_a_slow_hook_never_leaves_two_helms(HELM_4);
}

#[test]
fn helm_3_is_never_two_after_a_kill_during_a_slow_hook() {
    a_kill_during_a_slow_hook_never_leaves_two_helms(HELM_3);
}

#[test]
fn a_kill_between_helms_success_and_the_status_tells_each_transition_once() {
    let charts = Charts::new(HELM_4);
    let world = &charts.world;
    charts.wrap("$helm \"$@\"; code=$?; [ \"$1\" != upgrade ] || [ ! -e $knob ] || kill -9 $PPID; exit $code");
    fs::write(world.path("knob"), "").unwrap();
    charts.want("greeter", &[]);
    world.hand.publish();
    assert_eq!(world.once().code, -1);
    assert_eq!(charts.history("greeter"), ["1 deployed"]);
    let values = world.home().join("helm-values");
    assert_eq!(fs::read_dir(&values).unwrap().count(), 1);
    world.once().good();
    assert_eq!(fs::read_dir(&values).unwrap().count(), 0);
    let told = told_states(world);
    let transitions = [
        "greeter/* none > pending queued; greeter/hello none > pending queued",
        "greeter/* pending > installing; greeter/hello pending > installing",
        "greeter/* installing > installed; greeter/hello installing > installed",
    ];
    assert_eq!(told, transitions);
    assert_eq!(charts.history("greeter"), ["1 deployed"], "it isn't applied again");
    charts.assert_idle("greeter");
}

/// What somebody changes of a release's objects, each in another way.
const EDITS: [&[&str]; 4] = [
    &["scale", "--replicas=3"],
    &["set", "image", "web=other:9"],
    &["set", "env", "GREETING=changed"],
    &["patch", "--type=merge", "--patch={\"data\": {\"settings.json\": \"{}\"}}"],
];

fn what_somebody_changed_of_a_release_is_put_back(helm: &str) {
    let charts = Charts::new(helm);
    let world = &charts.world;
    charts.want("greeter", &[("replicas", "2")]);
    world.hand.publish();
    world.once().good();
    let release = charts.release("greeter");
    let objects = || {
        let names = [format!("deployment/{release}"), format!("configmap/{release}")];
        let namespace = charts.cluster.namespace();
        let args = ["get", &names[0], &names[1], "--namespace", namespace, "--output", "json"];
        let mut get = charts.cluster.kubectl(args);
        let all: Value = serde_json::from_slice(&get.output().unwrap().stdout).unwrap();
        let container = &all["items"][0]["spec"]["template"]["spec"]["containers"][0];
        json!([all["items"][0]["spec"]["replicas"], container["image"], container["env"], all["items"][1]["data"]])
    };
    let before = objects();
    world.told();
    for (number, edit) in (2..).zip(EDITS) {
        let kind = if edit[0] == "patch" { "configmap" } else { "deployment" };
        let (verb, rest) = edit.split_at(if edit[0] == "set" { 2 } else { 1 });
        let mut change = charts.cluster.kubectl(verb);
        change.arg(format!("{kind}/{release}")).args(rest).args(["--namespace", charts.cluster.namespace()]);
        let output = change.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_ne!(objects(), before);
        assert!(world.syncer(&["plan"]).ended(3).stdout.contains("somebody changed it"), "{edit:?}");
        world.once().good();
        assert_eq!(objects(), before, "{edit:?}");
        let history = charts.history("greeter");
        assert_eq!(history.last(), Some(&format!("{number} deployed")), "{edit:?}");
        charts.assert_idle("greeter");
    }
    assert_eq!(world.states("greeter"), ["hello installed"]);
}

#[test]
fn a_release_that_is_held_is_neither_upgraded_nor_put_back_nor_uninstalled_until_it_is_released() {
    let charts = Charts::new(HELM_4);
    let world = &charts.world;
    charts.want("greeter", &[("replicas", "1")]);
    world.hand.publish();
    world.once().good();
    world.syncer(&["hold", "greeter", "--by", "j.doe", "--why", "line 2"]).good();
    let (release, history) = (charts.release("greeter"), charts.history("greeter"));
    let mut delete =
        charts.cluster.kubectl(["delete", "configmap", &release, "--namespace", charts.cluster.namespace()]);
    assert!(delete.output().unwrap().status.success());
    world.once().ended(1);
    assert_eq!(
        (world.states("greeter"), charts.history("greeter")),
        (vec!["hello pending held".to_owned()], history.clone())
    );
    charts.want("greeter", &[("replicas", "2")]);
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(
        (charts.deployments(), charts.history("greeter")),
        (vec![format!("deployment.apps/{release}")], history.clone())
    );
    world.hand.drop("greeter");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!((world.states("greeter"), charts.history("greeter")), (vec!["hello removing held".to_owned()], history));
    world.syncer(&["release", "greeter"]).good();
    world.once().good();
    assert_eq!(charts.deployments(), [""; 0]);
    charts.assert_whole(true);
}

#[test]
fn helm_4_puts_back_what_somebody_changed_of_a_release() {
    what_somebody_changed_of_a_release_is_put_back(HELM_4);
}

#[test]
fn helm_3_puts_back_what_somebody_changed_of_a_release() {
    what_somebody_changed_of_a_release_is_put_back(HELM_3);
}

/// What the fleet says of a deployment's drift in its envelope.
fn ignore(world: &World, name: &str, ignored: &Value) {
    world.hand.describe(name, |described| described["policy"]["driftIgnore"] = ignored.clone());
}

fn what_the_fleet_ignores_of_a_release_is_left_as_it_is(helm: &str) {
    let charts = Charts::new(helm);
    let world = &charts.world;
    charts.want("greeter", &[("replicas", "1")]);
    let (release, namespace) = (charts.release("greeter"), charts.cluster.namespace().to_owned());
    let replicas = json!([{"kind": "Deployment", "name": release, "pointer": "/spec/replicas"}]);
    ignore(world, "greeter", &replicas);
    world.hand.publish();
    world.once().good();
    let kubectl = |args: &[&str]| {
        let output = charts.cluster.kubectl(args).args(["--namespace", &namespace]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let deployment = format!("deployment/{release}");
    let scaled = || kubectl(&["get", &deployment, "--output", "jsonpath={.spec.replicas}"]);
    kubectl(&["scale", "--replicas=3", &deployment]);
    let before = charts.history("greeter");
    assert!(world.syncer(&["plan"]).good().stdout.contains("greeter/hello: keep"));
    world.once().good();
    assert_eq!((scaled(), charts.history("greeter")), ("3".to_owned(), before.clone()), "that is ignored");
    charts.assert_idle("greeter");
    // What isn't ignored is put back, and the whole is what the chart says then.
    kubectl(&["set", "image", &deployment, "web=evil:1"]);
    assert!(world.syncer(&["plan"]).ended(3).stdout.contains("somebody changed it"));
    world.once().good();
    assert_eq!((scaled(), charts.history("greeter").len()), ("1".to_owned(), before.len() + 1));
    // Ignored no more, it counts at once; nobody applies it for being said otherwise.
    kubectl(&["scale", "--replicas=3", &deployment]);
    world.once().good();
    assert_eq!((scaled(), charts.history("greeter").len()), ("3".to_owned(), before.len() + 1));
    ignore(world, "greeter", &json!([{"kind": "ConfigMap", "pointer": ""}]));
    world.hand.publish();
    world.once().good();
    assert_eq!((scaled(), charts.history("greeter").len()), ("1".to_owned(), before.len() + 2));
    // A whole object that is ignored may be gone.
    kubectl(&["delete", "configmap", &release]);
    world.once().good();
    assert_eq!(charts.history("greeter").len(), before.len() + 2);
    assert!(world.syncer(&["status"]).good().stdout.contains("healthy"));
}

#[test]
fn helm_4_leaves_what_the_fleet_ignores_of_a_release() {
    what_the_fleet_ignores_of_a_release_is_left_as_it_is(HELM_4);
}

#[test]
fn helm_3_leaves_what_the_fleet_ignores_of_a_release() {
    what_the_fleet_ignores_of_a_release_is_left_as_it_is(HELM_3);
}

#[test]
fn a_release_of_helm_3_goes_on_with_helm_4() {
    let charts = Charts::new(HELM_3);
    let world = &charts.world;
    charts.want("greeter", &[("replicas", "2"), ("settings.gone", "soon")]);
    world.hand.publish();
    world.once().good();
    let scaled = charts
        .cluster
        .kubectl(["scale", "--replicas=3", "--namespace", charts.cluster.namespace()])
        .arg(format!("deployment/{}", charts.release("greeter")))
        .output();
    assert!(scaled.unwrap().status.success());
    charts.settings(Path::new(&std::env::var(HELM_4).expect("run the tests by `./justw test`")));
    charts.want("greeter", &[("greeting", "servus"), ("replicas", "2")]);
    world.hand.publish();
    world.once().good();
    assert_eq!(charts.values("greeter"), json!({"greeting": "servus", "replicas": 2}));
    assert_eq!(charts.history("greeter"), ["1 superseded", "2 deployed"]);
    charts.assert_idle("greeter");
}

#[test]
fn doctor_asks_the_api_server_and_the_registry_of_a_chart_and_says_what_to_do_where_it_is_away() {
    let charts = Charts::new(HELM_4);
    charts.want("greeter", &[]);
    charts.world.hand.publish();
    charts.world.once().good();
    let row = |check: &str| -> String {
        let all: Value = serde_json::from_str(&charts.world.syncer(&["doctor", "--output", "json"]).stdout).unwrap();
        let found = all["checks"].as_array().unwrap().iter().find(|row| row["check"] == check).cloned();
        found.unwrap_or_else(|| panic!("{check} in {all}")).to_string()
    };
    assert!(row("helm").contains("and the API server answers\",\"result\":\"ok\""), "{}", row("helm"));
    assert!(row(&format!("registry: {}", registry())).contains("\"result\":\"ok\""));
    charts.wrap("case \"$*\" in *'version --template'*) exec echo v3.12.3 ;; esac\nexec $helm \"$@\"");
    let said = row("helm");
    assert!(said.contains("v3.12.3") && said.contains("\"warning\"") && said.contains("Helm 3.13"), "{said}");
    charts.settings(charts.cluster.program());
    let logs = charts.world.syncer(&["logs", "greeter"]).ended(1);
    assert!(logs.stderr.contains("`hello` is a chart: `kubectl logs`"), "{logs:?}");
    let known = std::env::var("MARGO_TEST_KUBECONFIG").unwrap();
    let elsewhere = |line: &str| match line.split_once("server:") {
        Some((indent, _)) => format!("{indent}server: https://127.0.0.1:1\n"),
        None => format!("{line}\n"),
    };
    let text: String = fs::read_to_string(&known).unwrap().lines().map(elsewhere).collect();
    let away = charts.world.path("kubeconfig");
    fs::write(&away, text).unwrap();
    let settings = charts.cluster.settings(charts.cluster.program()).replace(&known, &away.display().to_string());
    charts.world.settings(&format!("helm: {settings}\n"));
    let away = row("helm");
    assert!(away.contains("\"failed\"") && away.contains("helm.kubeconfig"), "{away}");
}
