//! Margo's documents for other implementations: what is written of what was read, in either dialect, and what it means.

use repo_model::margo::{ApplicationDescription, DeploymentStatus, DeviceCapabilities, HelmValues, ProfileType, State};
use repo_model::value::ParamValue;
use repo_model::yaml::{Field, Strictness};
use serde_json::{Value, json};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The vectors of `documents.json`.
pub(crate) fn vectors() -> Value {
    json!({
        "capabilities": capabilities(),
        "statuses": statuses(),
        "overall": overall(),
        "targets": targets(),
        "helmValues": helm_values(),
    })
}

/// Each with its bytes, and the properties that requirements point into, whatever the dialect.
fn capabilities() -> Vec<Value> {
    let pre_draft = json!({
        "apiVersion": "device.margo.org/v1alpha1", "kind": "DeviceCapabilitiesManifest",
        "properties": {"id": "line-2/press-04", "vendor": "Acme", "modelNumber": "m", "serialNumber": "s",
            "roles": ["Standalone Device"], "resources": {"cpu": {"cores": 4, "architecture": "arm64"}, "memory": "8 Gi",
            "storage": "64Gi", "peripherals": [{"type": "gpu", "manufacturer": "Ä"}], "interfaces": [{"type": "wifi"}]}},
    });
    let rc3 = json!({
        "properties": {"id": "press-04", "vendor": "Acme", "modelNumber": "m", "serialNumber": "s", "memory": "8Gi",
            "cpus": [{"cores": 0.5}, {"cores": 2, "architecture": "amd64"}], "supportedRuntimes": ["oci"],
            "supportedDeploymentTypes": ["helm", "compose"], "otelCollector": false},
        "labels": {"line": "2", "slots": [1, 2]}, "x-acme-extensions": {"b": 1, "a": [true]},
    });
    let gateway = json!({"properties": {"id": "gateway", "vendor": "Acme", "modelNumber": "m", "serialNumber": "s"}});
    let vector = |document: Value| {
        let read = DeviceCapabilities::read("capabilities", document.to_string().as_bytes()).unwrap();
        json!({"document": document, "bytes": text(&read.to_bytes()), "rc3": read.properties_rc3()})
    };
    [pre_draft, rc3, gateway].map(vector).into()
}

/// Each with its bytes; an error without code and message is none.
fn statuses() -> Vec<Value> {
    let id = "11111111-2222-4333-8444-555555555555";
    let none = json!({"code": "", "source": "", "message": ""});
    let failed = json!({"code": "helm-failed", "source": "db", "message": "no room"});
    let pre_draft = json!({
        "apiVersion": "deployment.margo.org/v1alpha1", "kind": "DeploymentStatusManifest", "deploymentId": id,
        "status": {"state": "installing", "error": none},
        "components": [{"name": "db", "state": "installing", "error": none}, {"name": "web", "state": "pending"}],
    });
    let rc3 = json!({
        "deploymentId": id, "deviceId": "press-04", "adoptedManifestVersion": 9_007_199_254_740_991_u64,
        "status": {"state": "failed", "error": {"code": "helm-failed", "source": "plant", "message": "no room"}},
        "components": [{"name": "db", "state": "failed", "error": failed}, {"name": "web", "state": "installed"}],
    });
    let vector = |document: Value| {
        let read = DeploymentStatus::read("status", document.to_string().as_bytes()).unwrap();
        json!({"document": document, "bytes": text(&read.to_bytes())})
    };
    [pre_draft, rc3].map(vector).into()
}

/// Every two states of components, and the deployment's.
fn overall() -> Vec<Value> {
    let all = [State::Installed, State::Removed, State::Pending, State::Installing, State::Removing, State::Failed];
    let pairs = all.iter().flat_map(|a| all.iter().map(move |b| (*a, *b)));
    let overall = |(a, b): (State, State)| json!([a.as_str(), b.as_str(), State::overall([a, b]).as_str()]);
    pairs.map(overall).chain([json!([State::overall([]).as_str()])]).collect()
}

/// An application in both types, and where its values go in each.
fn targets() -> Value {
    let source =
        |name: &str| json!({"name": name, "properties": {"repository": "oci://r.example/a", "revision": "1.0.0"}});
    let description = json!({
        "id": "app", "metadata": {"name": "App", "version": "1"},
        "deploymentProfiles": [
            {"id": "chart", "type": "helm.v3", "components": [source("db"), source("web")]},
            {"id": "box", "type": "docker-compose", "components": [source("all")]},
        ],
        "parameters": {
            "level": {"value": "info", "targets": [{"pointer": "log.level", "components": ["db", "web"]},
                {"pointer": "ENV.LOG_LEVEL", "components": ["all"]}]},
            "port": {"value": 1, "targets": [{"pointer": "PORT", "components": ["all"]}]},
        },
    });
    let (read, _) = ApplicationDescription::read("margo.yaml", description.to_string().as_bytes()).unwrap();
    let of = |kind: ProfileType| {
        let profile = read.profiles.iter().find(|profile| profile.kind == kind).unwrap();
        let places = read.parameters.iter().flat_map(|(name, parameter)| {
            let targets = parameter.targets_in(profile).into_iter();
            targets.map(move |one| json!([name, one.place(kind), one.components])).collect::<Vec<_>>()
        });
        places.collect::<Vec<_>>()
    };
    json!({"description": description, "helm": of(ProfileType::Helm), "compose": of(ProfileType::Compose)})
}

/// Pointers with values, and the chart's values that they make; null where they contradict each other.
fn helm_values() -> Vec<Value> {
    let cases = [
        json!([["a.b", "1.10"], ["a.c", 2], ["d", true]]),
        json!([["hosts[1].name", "b"], ["hosts[0].name", "a"], ["matrix[0][2]", 3]]),
        json!([["a\\.b.c\\[0\\]", "x"], ["list", ["-v", 2]], ["half", 0.5]]),
        json!([["a", "1"], ["a.b", "2"]]),
        json!([["a[0]", "1"], ["a.b", "2"]]),
        json!([["list", []], ["list[0]", "1"]]),
        json!([["a..b", "1"]]),
        json!([]),
    ];
    let read = |value: &Value| {
        let text = value.to_string();
        let read = |field: Field<'_>| ParamValue::read(field);
        repo_model::yaml::read("value", text.as_bytes(), Strictness::Vendor, read).unwrap().0
    };
    let vector = |case: Value| {
        let pairs: Vec<(String, ParamValue)> = case
            .as_array()
            .unwrap()
            .iter()
            .map(|pair| (pair[0].as_str().unwrap().to_owned(), read(&pair[1])))
            .collect();
        let made = HelmValues::new(pairs.iter().map(|(pointer, value)| (pointer.as_str(), value)));
        json!({"parameters": case, "values": made.map(|made| serde_json::to_value(made).unwrap()).ok()})
    };
    cases.map(vector).into()
}
