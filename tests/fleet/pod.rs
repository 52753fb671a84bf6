//! The chart by which the syncer of a cell runs as a pod: a real API judges its objects, and the syncer its own settings.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use repo_testkit::cluster::{Cluster, HELM_3, HELM_4};
use repo_testkit::hand::Hand;
use repo_testkit::{root, syncer, text};
use serde_json::Value;
use tempfile::TempDir;

fn chart() -> PathBuf {
    root().join("device-syncer/packaging/chart")
}

/// A namespace of our own, in which Kubernetes lets only pods begin that may do nothing beyond what every pod may.
fn restricted(helm: &str) -> Cluster {
    let cluster = Cluster::new(helm, format!("pod-{}-{}", std::process::id(), helm.to_lowercase().replace('_', "-")));
    let kubectl = |args: &[&str]| text(cluster.kubectl(args).output().expect("kubectl runs"));
    kubectl(&["create", "namespace", cluster.namespace()]);
    kubectl(&["label", "namespace", cluster.namespace(), "pod-security.kubernetes.io/enforce=restricted"]);
    cluster
}

fn install(cluster: &Cluster, values: &[&str]) {
    let set: Vec<_> = values.iter().flat_map(|value| ["--set", value]).collect();
    let chart = chart().display().to_string();
    text(cluster.helm(&[&["install", "press", &chart], &*set].concat()).output().expect("helm runs"));
}

fn object(cluster: &Cluster, name: &str) -> Value {
    let args = ["get", name, "--output", "json", "--namespace", cluster.namespace()];
    serde_json::from_str(&text(cluster.kubectl(args).output().expect("kubectl runs"))).expect("JSON")
}

/// What the API says of a role's binding goes with the namespace only if helm takes it away.
fn uninstall(cluster: &Cluster) {
    text(cluster.helm(&["uninstall", "press"]).output().expect("helm runs"));
}

#[test]
fn the_pod_is_let_in_where_pods_may_do_the_least_and_its_home_outlives_it() {
    for helm in [HELM_4, HELM_3] {
        let cluster = restricted(helm);
        install(&cluster, &[]);
        let end = Instant::now() + Duration::from_secs(60);
        while cluster.objects("pods").is_empty() {
            let events = object(&cluster, "events").to_string();
            assert!(Instant::now() < end && !events.contains("FailedCreate"), "no pod: {events}");
            thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(object(&cluster, "deployment/press")["spec"]["strategy"]["type"], "Recreate");
        uninstall(&cluster);
        assert_eq!(cluster.objects("persistentvolumeclaims"), ["persistentvolumeclaim/press"]);
    }
}

#[test]
fn the_settings_of_the_pod_are_read_by_the_syncer_and_its_kubeconfig_by_kubectl() {
    let cluster = restricted(HELM_4);
    install(&cluster, &["settings.poll=30s", "settings.host.timeouts.total=2m"]);
    let map = object(&cluster, "configmap/press");
    uninstall(&cluster);
    let file = |name: &str| map["data"][name].as_str().expect("a file").to_owned();
    let dir = TempDir::new().expect("a temporary directory");
    let hand = Hand::make(dir.path().join("hand"), "press-01");
    let home = dir.path().join("home");
    let join = hand.path("join.json").display().to_string();
    text(syncer(&home, &["init", "--join", &join]).output().expect("the syncer runs"));
    let status = |settings: String| {
        fs::write(home.join("device.yaml"), settings).expect("written");
        let output = syncer(&home, &["status"]).output().expect("the syncer runs");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(!status(file("device.yaml")).contains("device.yaml"), "{}", status(file("device.yaml")));
    assert!(status(file("device.yaml") + "\npol: 30s\n").contains("device.yaml"), "a wrong key would have been told");
    let kubeconfig = dir.path().join("kubeconfig");
    fs::write(&kubeconfig, file("kubeconfig")).expect("written");
    let program = std::env::var_os("MARGO_TEST_KUBERNETES").expect("MARGO_TEST_KUBERNETES");
    let mut kubectl = Command::new(program);
    kubectl.arg("kubectl").arg("--kubeconfig").arg(&kubeconfig).args(["config", "get-contexts", "--output", "name"]);
    assert_eq!(text(kubectl.output().expect("kubectl runs")), "pod");
}

#[test]
fn secrets_of_the_site_are_where_the_settings_look_for_them() {
    let cluster = restricted(HELM_4);
    install(&cluster, &["secrets.settings=plant", "secrets.deviceFiles=words"]);
    let pod = object(&cluster, "deployment/press")["spec"]["template"]["spec"].take();
    let settings = object(&cluster, "configmap/press")["data"]["device.yaml"].take();
    uninstall(&cluster);
    let list = |value: &Value| value.as_array().expect("a list").clone();
    // In which directory of the container the keys of a Secret are.
    let place = |container: &Value, secret: &str| {
        let has = |volume: &Value| {
            let sources = volume["projected"]["sources"].as_array().cloned().unwrap_or_default();
            volume["secret"]["secretName"] == secret || sources.iter().any(|one| one["secret"]["name"] == secret)
        };
        let volume = list(&pod["volumes"]).into_iter().find(has).expect("a volume with it")["name"].take();
        let is_of = |mount: &Value| mount["name"] == volume && mount["subPath"].is_null();
        let mount = list(&container["volumeMounts"]).into_iter().find(is_of)?;
        Some(mount["mountPath"].as_str().expect("a path").to_owned())
    };
    let syncer = &pod["containers"][0];
    let variables = list(&syncer["env"]);
    let credentials = variables.iter().find(|one| one["name"] == "CREDENTIALS_DIRECTORY").expect("it is set");
    assert_eq!(place(syncer, "plant").as_deref(), credentials["value"].as_str());
    let device_files = format!("deviceFiles: {}", place(syncer, "words").expect("it is mounted"));
    assert!(settings.as_str().expect("settings").lines().any(|line| line == device_files), "{settings}");
    assert_ne!(
        place(syncer, "plant"),
        place(syncer, "words"),
        "no deployment may ask for what the site's settings name"
    );
    let join = &pod["initContainers"][0];
    assert_eq!((place(join, "plant"), place(join, "words")), (None, None), "joining needs none of them");
}

#[test]
fn the_chart_has_the_version_of_the_programs() {
    let chart = fs::read_to_string(chart().join("Chart.yaml")).expect("a chart");
    for line in ["version: ", "appVersion: "].map(|key| format!("\n{key}{}\n", env!("CARGO_PKG_VERSION"))) {
        assert!(chart.contains(&line), "Chart.yaml has no `{}`", line.trim());
    }
}
