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
        "refusedCapabilities": refused_capabilities(),
        "statuses": statuses(),
        "headers": headers(),
        "vendorsKeys": vendors_keys(),
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
            "cpus": [{"cores": 1}, {"cores": 2, "architecture": "amd64"}], "supportedRuntimes": ["oci", "custom"],
            "supportedDeploymentTypes": ["helm", "compose", "custom"], "otelCollector": true, "peripherals": [],
            "interfaces": [{"type": "rs232"}]},
        "labels": {"line": "2", "slots": [1, 2]}, "x-acme-extensions": {"b": 1, "a": [true]},
    });
    let mixed = json!({
        "apiVersion": "device.margo.org/v1alpha1", "kind": "DeviceCapabilitiesManifest",
        "properties": {"id": "press-04", "vendor": "Acme", "modelNumber": "m", "serialNumber": "s", "memory": "8 Gi",
            "cpu": [{"cores": 24, "architecture": "x86_64"}], "supportedRuntimes": ["oci"],
            "supportedDeploymentTypes": ["compose"], "otelCollector": false},
    });
    let gateway = json!({"properties": {"id": "gateway", "vendor": "Acme", "modelNumber": "m", "serialNumber": "s"}});
    let vector = |document: Value| {
        let read = DeviceCapabilities::read("capabilities", document.to_string().as_bytes()).unwrap();
        json!({"document": document, "bytes": text(&read.to_bytes()), "rc3": read.properties_rc3()})
    };
    [pre_draft, rc3, mixed, gateway].map(vector).into()
}

/// One wrong word or number each, with the key that it stands at.
fn refused_capabilities() -> Vec<Value> {
    let cases = [
        ("cpus", json!([{"cores": 1.5}]), "properties.cpus[0].cores"),
        ("cpus", json!([{"cores": 0}]), "properties.cpus[0].cores"),
        ("cpus", json!([{"cores": 1, "architecture": "x86_64"}]), "properties.cpus[0].architecture"),
        ("cpu", json!([{"cores": 1}, {"cores": 1, "architecture": "riscv64"}]), "properties.cpu[1].architecture"),
        ("cpu", json!({"cores": 0.5}), "properties.cpu.cores"),
        ("roles", json!(["Standalone Device", "Cluster Worker"]), "properties.roles[1]"),
        ("peripherals", json!([{"type": "GPU"}]), "properties.peripherals[0].type"),
        ("interfaces", json!([{"type": "usb"}, {"type": "profinet"}]), "properties.interfaces[1].type"),
        ("supportedRuntimes", json!(["docker"]), "properties.supportedRuntimes[0]"),
        ("supportedDeploymentTypes", json!(["helm.v3"]), "properties.supportedDeploymentTypes[0]"),
    ];
    let vector = |(name, value, key): (&str, Value, &str)| {
        let mut properties = json!({"id": "press-04", "vendor": "Acme", "modelNumber": "m", "serialNumber": "s"});
        properties[name] = value;
        let document = json!({ "properties": properties });
        let problems = DeviceCapabilities::read("capabilities", document.to_string().as_bytes()).unwrap_err();
        assert_eq!(problems.errors().map(|problem| problem.key.as_str()).collect::<Vec<_>>(), [key]);
        json!({"document": document, "key": key})
    };
    cases.map(vector).into()
}

/// `apiVersion`, `kind`, and whether a document with them is read.
fn headers() -> Value {
    let versions =
        ["", "v1", "v2", "margo.org/v1-alpha1", "deployment.margo.org/v1alpha1", "device.margo.org/v1alpha1"];
    let old = ["deployment.margo/v1", "device.margo/v1"];
    let with = |version: &str, kind: &str, mut document: Value| {
        for (key, value) in [("apiVersion", version), ("kind", kind)] {
            if !value.is_empty() {
                document[key] = value.into();
            }
        }
        document.to_string()
    };
    let id = "11111111-2222-4333-8444-555555555555";
    let status = json!({"deploymentId": id, "status": {"state": "installed"}, "components": []});
    let device = json!({"properties": {"id": "a", "vendor": "v", "modelNumber": "m", "serialNumber": "s"}});
    let component = json!({"name": "c", "properties": {"repository": "oci://r.example/a", "revision": "1.0.0"}});
    let description = json!({
        "id": "app", "metadata": {"name": "App", "version": "1"},
        "deploymentProfiles": [{"id": "own", "type": "custom", "components": [component]}],
    });
    let is_read = |kind: &str, text: &str| match kind {
        "DeploymentStatusManifest" => DeploymentStatus::read("d", text.as_bytes()).is_ok(),
        "DeviceCapabilitiesManifest" => DeviceCapabilities::read("d", text.as_bytes()).is_ok(),
        _ => ApplicationDescription::read("d", text.as_bytes()).is_ok(),
    };
    let documents = [
        ("DeploymentStatusManifest", status),
        ("DeviceCapabilitiesManifest", device),
        ("ApplicationDescription", description),
    ];
    let of = |(kind, document): &(&str, Value)| {
        let pairs = versions.iter().chain(&old).flat_map(|version| ["", kind, "Other"].map(|kind| (*version, kind)));
        let cases = pairs
            .map(|(version, found)| json!([version, found, is_read(kind, &with(version, found, document.clone()))]));
        ((*kind).to_owned(), cases.collect::<Vec<_>>().into())
    };
    documents.iter().map(of).collect::<serde_json::Map<_, _>>().into()
}

/// Where a document may have `x-acme-extensions`, as a JSON Pointer; ApplicationDeployments are in `gate.json`.
fn vendors_keys() -> Vec<Value> {
    let component = json!({"name": "c", "properties": {"repository": "oci://r.example/a", "revision": "1.0.0"}});
    let description = json!({
        "id": "app", "metadata": {"name": "App", "version": "1", "catalog": {"organization": [{"name": "Acme"}]}},
        "deploymentProfiles": [{"id": "own", "type": "compose", "components": [component],
            "deviceConstraints": {"capacityRequirements": {"memory": "1Gi"}}}],
        "parameters": {"p": {"value": "v", "targets": [{"pointer": "P", "components": ["c"]}]}},
    });
    let device = json!({"properties": {"id": "a", "vendor": "v", "modelNumber": "m", "serialNumber": "s"}});
    let id = "11111111-2222-4333-8444-555555555555";
    let component = json!({"name": "c", "state": "installed"});
    let status = json!({"deploymentId": id, "status": {"state": "installed"}, "components": [component]});
    let cases = [
        ("ApplicationDescription", "", true),
        ("ApplicationDescription", "/metadata", false),
        ("ApplicationDescription", "/deploymentProfiles/0", true),
        ("ApplicationDescription", "/deploymentProfiles/0/components/0", true),
        ("ApplicationDescription", "/deploymentProfiles/0/components/0/properties", false),
        ("ApplicationDescription", "/deploymentProfiles/0/deviceConstraints", true),
        ("ApplicationDescription", "/parameters/p", false),
        ("DeviceCapabilitiesManifest", "", true),
        ("DeviceCapabilitiesManifest", "/properties", false),
        ("DeploymentStatusManifest", "", false),
        ("DeploymentStatusManifest", "/status", false),
        ("DeploymentStatusManifest", "/components/0", false),
    ];
    let vector = |(kind, place, may): (&str, &str, bool)| {
        let mut document = match kind {
            "ApplicationDescription" => description.clone(),
            "DeviceCapabilitiesManifest" => device.clone(),
            _ => status.clone(),
        };
        document.pointer_mut(place).unwrap()["x-acme-extensions"] = json!({"a": [true]});
        let text = document.to_string();
        let is_read = match kind {
            "ApplicationDescription" => ApplicationDescription::read("d", text.as_bytes()).is_ok(),
            "DeviceCapabilitiesManifest" => DeviceCapabilities::read("d", text.as_bytes()).is_ok(),
            _ => DeploymentStatus::read("d", text.as_bytes()).is_ok(),
        };
        assert_eq!(is_read, may, "{kind} {place}");
        json!([kind, place, may])
    };
    cases.map(vector).into()
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
    let mut v1 = rc3.clone();
    v1["apiVersion"] = "v1".into();
    let mut with_kind = v1.clone();
    with_kind["kind"] = "DeploymentStatusManifest".into();
    [pre_draft, rc3, v1, with_kind].map(vector).into()
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
