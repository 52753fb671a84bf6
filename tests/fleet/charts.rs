//! A mixed fleet from the operator's commit to real Helm and a real Kubernetes API: the device with a cluster gets the
//! charts, the one with docker alone the project (on the stand-in for docker).

use std::path::Path;

use repo_model::Digest;
use repo_testkit::cluster::{Cluster, HELM_4};
use repo_testkit::{chart, git};
use serde_json::{Value, json};

use crate::site::{Site, registry_name};
use repo_testkit::device::Device;
use repo_testkit::fleet::{DEPLOYMENT, Fleet};
use repo_testkit::{registry, text};

/// Margo's example of two charts, with charts of ours; and the same as a project.
const APPLICATION: &str = "id: orchestrator
metadata: {name: Orchestrator, version: 1.2.1}
deploymentProfiles:
  - id: cluster
    type: helm
    components:
      - {name: services, properties: {repository: \"CHART\", revision: 1.0.0, timeout: 2m0s}}
      - {name: database, properties: {repository: \"CHART\", revision: 1.0.0}}
  - id: box
    type: compose
    components:
      - {name: hello, properties: {repository: \"ARCHIVE\", revision: 1.0.0}}
parameters:
  greeting:
    value: hello
    targets:
      - {pointer: greeting, components: [services, database]}
      - {pointer: ENV.GREETING, components: [hello]}
  version: {value: \"1.10\", targets: [{pointer: 'settings.site\\.version', components: [services]}]}
  port: {value: 8080, targets: [{pointer: 'settings.ports[0]', components: [services]}]}
  password: {targets: [{pointer: settings.password, components: [database]}]}
";

/// The file of the deployment that brings charts, or an archive where there is no cluster.
pub(crate) const ORCHESTRATOR: &str = "deployments/orchestrator.yaml";

/// Name, status and revision of each release.
pub(crate) fn releases(cluster: &Cluster) -> Vec<String> {
    let text = |one: &Value| {
        let name = one["name"].as_str().expect("a name").rsplit_once('-').expect("a hash").0.to_owned();
        format!("{name} {} {}", one["status"].as_str().expect("a status"), one["revision"].as_str().expect("one"))
    };
    list(cluster, &[]).iter().map(text).collect()
}

pub(crate) fn values(cluster: &Cluster, component: &str) -> Value {
    let all = list(cluster, &["--filter", &format!("^{component}-")]);
    cluster.values(all[0]["name"].as_str().expect("it is there"))
}

fn list(cluster: &Cluster, more: &[&str]) -> Vec<Value> {
    let said = text(cluster.helm(&[&["list", "--output", "json"], more].concat()).output().expect("helm runs"));
    serde_json::from_str(&said).expect("JSON")
}

pub(crate) fn add_helm(device: &Device, cluster: &Cluster) {
    let path = device.home().join("device.yaml");
    let settings = std::fs::read_to_string(&path).expect("settings");
    let helm = format!("helm: {}\n", cluster.settings(cluster.program()));
    std::fs::write(path, settings + &helm).expect("written");
    std::fs::write(device.home().join("device-files/db-password"), "hunter2hunter2\n").expect("written");
}

fn push_chart(path: &str) {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/charts/web");
    chart::push(&registry(), path, "1.0.0", &chart::pack_dir(&web), None);
}

/// Wants charts in the place of the project, on all devices of the site, which have said what they can run. Returns the chart.
pub(crate) fn want_charts(site: &Site, cluster: &Cluster) -> String {
    let (fleet, name) = (&site.fleet, registry_name(site.dir.path()));
    push_chart(&format!("{name}/charts/web"));
    let hello = fleet.read("applications/hello/1.0.0/margo.yaml");
    let archive = hello.split("repository: ").nth(1).expect("a repository").split_whitespace().next().expect("one");
    let chart = format!("oci://{}/{name}/charts/web", registry());
    fleet.write(
        "applications/orchestrator/1.2.1/margo.yaml",
        &APPLICATION.replace("CHART", &chart).replace("ARCHIVE", archive),
    );
    let devices: Vec<_> = site.devices.iter().map(|device| device.id.as_str()).collect();
    let deployment = format!(
        "id: orchestrator\napplication: {{id: orchestrator, version: 1.2.1}}\nprofile: auto\nnamespace: {}\n\
         targets: [{{devices: [{}]}}]\nparameters:\n  greeting: servus\n  password: {{valueFrom: \
         {{deviceFile: db-password}}}}\n",
        cluster.namespace(),
        devices.join(", ")
    );
    fleet.write(ORCHESTRATOR, &deployment);
    std::fs::remove_file(fleet.dir().join(DEPLOYMENT)).expect("removed");
    fleet.commit("the orchestrator in place of hello");
    chart
}

/// The chart is once in the bill of materials, by the digest of the publisher's lock, with both states of each component.
fn assert_in_bill(fleet: &Fleet, chart: &str) {
    let roster = git::show(&fleet.control(), "control", "trust/1.json").expect("a roster");
    let (roster, devices) = (Digest::of(&roster).to_string(), fleet.home().join("devices").display().to_string());
    let bill = fleet.run(&["audit", "sbom", &devices, "--roster", &roster, "--output", "json"]);
    let bill: Value = serde_json::from_str(&bill).expect("JSON");
    let parts = bill["components"].as_array().expect("a list").iter();
    let charts: Vec<_> = parts.filter(|part| part["description"] == "chart").collect();
    let envelope = git::show(&fleet.repository("press-01"), "desired", "envelope.json").expect("an envelope");
    let envelope: Value = serde_json::from_slice(&envelope).expect("JSON");
    let described = envelope["deployments"].as_object().and_then(|all| all.values().next()).expect("a deployment");
    let digest = charts[0]["hashes"][0]["content"].as_str().map(|hex| format!("sha256:{hex}"));
    assert_eq!(
        (charts.len(), &charts[0]["name"], digest.as_deref()),
        (1, &chart.into(), described["locks"]["services"]["content"].as_str())
    );
    let ran = charts[0]["properties"].as_array().expect("a list").iter().filter_map(|one| one["value"].as_str());
    let ran: Vec<_> = ran.filter(|text| text.starts_with("press-01 orchestrator/services ")).collect();
    assert!(ran.len() == 2 && ran.iter().any(|text| text.ends_with("/..")), "{ran:?}");
}

#[test]
fn each_device_of_a_mixed_fleet_gets_what_it_can_run() {
    let site = Site::new(&["packer-01", "press-01"]);
    let (fleet, press, packer) = (&site.fleet, site.device("press-01"), site.device("packer-01"));
    let name = registry_name(site.dir.path());
    let cluster = Cluster::new(HELM_4, format!("fleet-{name}"));
    add_helm(press, &cluster);
    site.publish();
    site.pass();
    let chart = want_charts(&site, &cluster);
    fleet.run(&["publish", "--allow-removals"]);
    site.pass();
    assert_eq!(releases(&cluster), ["database deployed 1", "services deployed 1"]);
    let services = json!({"greeting": "servus", "settings": {"site.version": "1.10", "ports": [8080]}});
    assert_eq!(values(&cluster, "services"), services);
    assert_eq!(values(&cluster, "database"), json!({"greeting": "servus", "settings": {"password": "hunter2hunter2"}}));
    assert_eq!((press.environments().len(), packer.environments().len()), (0, 1));
    assert!(packer.environments()[0].contains("servus"));
    for device in [press, packer] {
        let status = fleet.status(&device.id);
        let mut rows = status["deployments"].as_array().expect("a list").iter();
        let row = rows.find(|row| row["deployment"] == "orchestrator").expect("its row");
        assert_eq!((&row["state"], &row["actual"]), (&json!("installed"), &json!("healthy")), "{status}");
        assert_eq!(status["doubts"], json!([]));
        let said = git::git(&device.clone_dir(), &["log", "--all", "-p", "--format=%B"]);
        assert!(!said.contains("hunter2"), "a secret is in Git");
        device.assert_whole(fleet, true, &device.id);
        device.assert_converges(fleet, &device.id);
    }
    fleet.change(ORCHESTRATOR, "servus", "grüezi");
    site.publish();
    site.pass();
    assert_eq!(releases(&cluster), ["database deployed 2", "services deployed 2"]);
    assert_eq!(values(&cluster, "services")["greeting"], "grüezi");
    assert_in_bill(fleet, &chart);
    std::fs::remove_file(fleet.dir().join(ORCHESTRATOR)).expect("removed");
    fleet.commit("nothing any more");
    fleet.run(&["publish", "--allow-removals"]);
    site.pass();
    assert_eq!((releases(&cluster), packer.environments().len()), (Vec::<String>::new(), 0));
}
