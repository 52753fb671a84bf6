//! State Manifest, status and capabilities: every rule on both sides of its edge.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use repo_model::margo::capabilities::{DeviceCapabilities, Dialect};
use repo_model::margo::status::{ComponentStatus, DeploymentStatus, Status, StatusError};
use repo_model::margo::{ApplicationDeployment, ErrorCode, Header, ReportedCode, State, StateManifest};
use repo_model::{DeploymentId, Digest, json};

use super::{assert_refused, fixture_text};

const MANIFEST: &str = "valid/DesiredStateManifest.json";

#[track_caller]
fn edited(from: &str, to: &str) -> Result<StateManifest, repo_model::problem::Problems> {
    let text = fixture_text(MANIFEST);
    assert!(text.contains(from), "{from}");
    StateManifest::parse(text.replacen(from, to, 1).as_bytes())
}

#[test]
fn each_rule_of_the_manifest_is_held() {
    let digest = "sha256:01ba4719c80b6fe911b091a7c05124b64eeece964e09c058ef8f9805daca546b";
    let entry = fixture_text(MANIFEST);
    let entry = &entry[entry.find("        {").unwrap()..entry.rfind("    ]").unwrap()];
    for (from, to, key, message) in [
        ("101", "0", "manifestVersion", "1 or more"),
        ("101", "-1", "manifestVersion", "out of range"),
        ("101", "1.0", "manifestVersion", "expected an integer"),
        ("101", "\"101\"", "manifestVersion", "expected an integer"),
        ("101", "18446744073709551616", "manifestVersion", "expected an integer"),
        ("\"manifestVersion\": 101,", "", "manifestVersion", "is missing"),
        ("+gzip", "+zstd", "bundle.mediaType", "expected `application"),
        (digest, &digest.to_uppercase(), "bundle.digest", "is not a digest"),
        (digest, &digest.replace("sha256", "sha512"), "bundle.digest", "is not a digest"),
        (digest, &format!("{digest} "), "bundle.digest", "is not a digest"),
        (digest, &digest[..70], "bundle.digest", "is not a digest"),
        ("/bundles/sha256:0", "/bundles/sha256:1", "bundle.url", "expected `/api/v1/bundles/"),
        ("/api/v1/clients/1234/bundles", "/api/v2/bundles", "bundle.url", "expected"),
        ("/clients/1234/bundles", "/clients/12/34/bundles", "bundle.url", "expected"),
        ("/deployments/a3", "/deployments/b3", "deployments[0].url", "expected"),
        ("a3e2f5dc", "a3e2f5d", "deployments[0].deploymentId", "is not a deployment UUID"),
        ("\"bundle\":", "\"bunde\":", "bunde", "unknown key"),
        ("\"manifestVersion\"", "\"x\": 1, \"manifestVersion\"", "x", "unknown key"),
        ("\"manifestVersion\"", "\"manifestVersion\": 7, \"manifestVersion\"", "", "duplicate key"),
        (entry, "", "", "`bundle` must be null"),
        (entry, &format!("{},{entry}", entry.trim_end()), "deployments", "twice"),
    ] {
        assert_refused(edited(from, to), key, message);
    }
    assert_refused(StateManifest::parse(b"[]"), "", "is a list, expected a mapping");
    assert!(edited("/clients/1234/", "/").is_ok());
    assert_eq!(edited("101", "18446744073709551615").unwrap().manifest_version, u64::MAX);
}

#[test]
fn a_null_bundle_and_no_deployments_go_together() {
    let empty = r#"{"manifestVersion": 1, "bundle": null, "deployments": []}"#;
    assert!(StateManifest::parse(empty.as_bytes()).unwrap().bundle.is_none());
    let text = fixture_text(MANIFEST);
    let (start, end) = (text.find("{\n        \"mediaType").unwrap(), text.find("    },\n    \"dep").unwrap() + 5);
    let null = format!("{}null{}", &text[..start], &text[end..]);
    assert_refused(StateManifest::parse(null.as_bytes()), "", "`bundle` is null");
    assert_refused(StateManifest::parse(br#"{"manifestVersion": 1, "deployments": []}"#), "bundle", "is missing");
}

#[test]
fn a_manifest_is_built_canonically() {
    let id = |n: u8| DeploymentId::from(uuid(n));
    let documents = BTreeMap::from([(id(2), b"b\n".to_vec()), (id(1), b"a\n".to_vec())]);
    let manifest = StateManifest::new(7, &documents, b"bundle");
    assert_eq!(manifest.deployments[0].deployment_id, id(1));
    let bytes = manifest.to_bytes();
    assert_eq!(bytes, json::to_bytes(&manifest), "the declared order is RFC 8785's");
    assert_eq!(StateManifest::parse(&bytes).unwrap(), manifest);
    let empty = StateManifest::new(1, &BTreeMap::new(), b"");
    assert_eq!(empty.to_bytes(), b"{\"bundle\":null,\"deployments\":[],\"manifestVersion\":1}\n");
    let big = StateManifest { manifest_version: u64::MAX, ..empty };
    assert_eq!(StateManifest::parse(&big.to_bytes()).unwrap(), big);
}

fn uuid(n: u8) -> uuid::Uuid {
    uuid::Uuid::from_bytes([n; 16])
}

#[test]
fn the_overall_state_is_the_most_severe() {
    use State::*;
    let falling = [Failed, Removing, Installing, Pending, Removed, Installed];
    for pair in falling.windows(2) {
        assert_eq!(State::overall([pair[1], pair[0], pair[1]]), pair[0]);
    }
    for state in falling {
        assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
    }
}

fn status() -> DeploymentStatus {
    let error = StatusError {
        code: ErrorCode::WaitingWindow.into(),
        source: Some("web".into()),
        message: "opens 22:00".into(),
    };
    DeploymentStatus {
        deployment_id: uuid(1).into(),
        device_id: Some("press-04".parse().unwrap()),
        adopted_manifest_version: Some(7),
        status: Status { state: State::Pending, error: Some(error.clone()) },
        components: vec![ComponentStatus { name: "web".parse().unwrap(), state: State::Pending, error: Some(error) }],
        header: Header::default(),
    }
}

#[test]
fn a_status_is_written_canonically_and_read_in_both_dialects() {
    let status = status();
    let written = String::from_utf8(status.to_bytes()).unwrap();
    let error = r#""error":{"code":"waiting-window","message":"opens 22:00","source":"web"}"#;
    let expected = format!(
        r#"{{"adoptedManifestVersion":7,"components":[{{{error},"name":"web","state":"pending"}}],"deploymentId":"{}","deviceId":"press-04","status":{{{error},"state":"pending"}}}}"#,
        uuid(1)
    );
    assert_eq!(written, expected + "\n");
    for (version, kind) in [
        (None, false),
        (Some("v1"), false),
        (Some("v1"), true),
        (Some("deployment.margo.org/v1alpha1"), true),
        (Some("deployment.margo.org/v1alpha1"), false),
        (None, true),
    ] {
        let header = Header { api_version: version.map(str::to_owned), kind };
        let status = DeploymentStatus { header, ..status.clone() };
        assert_eq!(DeploymentStatus::read("s.json", &status.to_bytes()).unwrap(), status);
    }
}

#[test]
fn a_wrong_status_is_refused_by_its_field() {
    let text = String::from_utf8(status().to_bytes()).unwrap();
    for (from, to, key, message) in [
        ("\"state\":\"pending\"}]", "\"state\":\"waiting\"}]", "components[0].state", "is `waiting`, expected"),
        ("\"name\":\"web\",", "", "components[0].name", "is missing"),
        ("\"components\"", "\"component\"", "components", "is missing"),
        ("\"deviceId\":\"press-04\"", "\"deviceId\":\"press 04\"", "deviceId", "is not a device id"),
        ("\"adoptedManifestVersion\":7", "\"kind\":\"Other\"", "kind", "is `Other`"),
        (":7", ":9007199254740992", "adoptedManifestVersion", "no device adopts"),
        ("\"adoptedManifestVersion\":7", "\"extra\":7", "extra", "unknown key"),
    ] {
        assert!(text.contains(from), "{from}");
        assert_refused(DeploymentStatus::read("s.json", text.replacen(from, to, 1).as_bytes()), key, message);
    }
    let other = text.replace("waiting-window", "VENDOR-7");
    let read = DeploymentStatus::read("s.json", other.as_bytes()).unwrap();
    assert_eq!(read.status.error.unwrap().code, ReportedCode::Other("VENDOR-7".to_owned()));
}

#[test]
fn capabilities_are_read_in_both_dialects() {
    let rc3 = r#"{"labels":{"line":"2","slots":[1,2]},"properties":{"cpus":[{"architecture":"arm64","cores":4}],
        "id":"site/press-04","interfaces":[{"type":"ethernet"}],"memory":"8Gi","modelNumber":"m","otelCollector":true,
        "peripherals":[{"type":"gpu"}],"serialNumber":"s","storage":"64Gi","supportedDeploymentTypes":["compose"],
        "supportedRuntimes":["oci"],"vendor":"v"},"x-acme-extensions":{"a":[1]}}"#;
    let capabilities = DeviceCapabilities::read("c.json", rc3.as_bytes()).unwrap();
    assert_eq!(capabilities.dialect, Dialect::default());
    let value: serde_json::Value = serde_json::from_str(rc3).unwrap();
    assert_eq!(capabilities.to_bytes(), json::to_bytes(&value), "nothing is lost or added");
    for (from, to, key, message) in [
        ("\"8Gi\"", "\"8GB\"", "properties.memory", "no capacity"),
        ("\"cores\":4", "\"cores\":0", "properties.cpus[0].cores", "above 0"),
        ("\"vendor\":\"v\"", "\"vendor\":5", "properties.vendor", "is an integer, expected a string"),
        ("\"vendor\":\"v\"", "\"vender\":\"v\"", "properties.vendor", "is missing"),
        ("\"line\":\"2\"", "\"line\":{}", "labels.line", "must be a string"),
        ("x-acme-extensions", "x-acme", "x-acme", "unknown key"),
    ] {
        assert_refused(DeviceCapabilities::read("c.json", rc3.replacen(from, to, 1).as_bytes()), key, message);
    }
    assert_eq!(Digest::of(&capabilities.to_bytes()), Digest::of(&capabilities.clone().to_bytes()));
}

/// The forms of published examples: a list and a mapping under `cpu`, with and without `resources` and header.
#[test]
fn processors_are_read_as_a_list_and_as_a_mapping_and_written_back_so() {
    let identity = r#""id":"a","modelNumber":"m""#;
    let header = r#""apiVersion":"device.margo.org/v1alpha1","kind":"DeviceCapabilitiesManifest","#;
    let one = r#"{"architecture":"x86_64","cores":24}"#;
    for (resources, count) in [
        (format!(r#""cpu":[{one},{{"cores":2}}],{identity},"peripherals":[]"#), 2),
        (format!(r#""cpu":[{one}],{identity}"#), 1),
        (format!(r#""cpu":{one},{identity}"#), 1),
        (format!(r#"{identity},"resources":{{"cpu":[{one}],"interfaces":[]}}"#), 1),
        (format!(r#"{identity},"resources":{{"cpu":{one}}}"#), 1),
        (format!(r#""cpus":[{{"architecture":"arm","cores":24}}],{identity}"#), 1),
    ] {
        for header in ["", header] {
            let text = format!("{{{header}\"properties\":{{{resources},\"serialNumber\":\"s\",\"vendor\":\"v\"}}}}\n");
            let read =
                DeviceCapabilities::read("c.json", text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((read.cpus.len(), read.cpus[0].cores), (count, 24), "{text}");
            assert_eq!(String::from_utf8(read.to_bytes()).unwrap(), text);
            let rc3 = read.properties_rc3();
            assert_eq!(rc3["cpus"].as_array().unwrap().len(), count, "{text}");
            assert!(rc3.get("peripherals").is_none() && rc3.get("interfaces").is_none(), "{text}");
        }
    }
    let both = r#"{"properties":{"id":"a","vendor":"v","modelNumber":"m","serialNumber":"s","cpu":[],"cpus":[]}}"#;
    assert_refused(DeviceCapabilities::read("c.json", both.as_bytes()), "properties.cpus", "stands beside `cpu`");
}

#[test]
fn a_word_that_margo_has_not_is_refused_with_those_it_has_and_its_place() {
    let text = "{\"properties\": {\"id\": \"a\", \"vendor\": \"v\", \"modelNumber\": \"m\", \"serialNumber\": \"s\",\n\
                \"peripherals\": [{\"type\": \"plc\"}]}}";
    let error = DeviceCapabilities::read("capabilities.json", text.as_bytes()).unwrap_err().to_string();
    let expected = "capabilities.json:2:26: properties.peripherals[0].type: is `plc`, expected `gpu` or `display` or \
                    `camera` or `microphone` or `speaker`";
    assert_eq!(error, expected);
}

#[test]
fn documents_of_2024_are_refused_with_their_revision_and_what_they_lack() {
    let status =
        r#"{"apiVersion": "deployment.margo/v1", "kind": "DeploymentStatus", "deploymentId": "x", "status": {}}"#;
    let problem =
        assert_refused(DeploymentStatus::read("s.json", status.as_bytes()), "apiVersion", "Margo's 2024 text");
    assert!(problem.message.contains("neither `adoptedManifestVersion` nor `error.source`"), "{problem}");
    assert!(problem.hint.as_deref().unwrap().contains("1.0.0-rc.3"), "{problem:?}");
    assert_eq!((problem.line, problem.column), (NonZeroU32::new(1), NonZeroU32::new(16)));
    let device =
        r#"{"apiVersion": "device.margo/v1", "kind": "DeviceCapability", "properties": {"id": "a", "roles": []}}"#;
    assert_refused(DeviceCapabilities::read("c.json", device.as_bytes()), "apiVersion", "Margo's 2024 text");
    let deployment = "apiVersion: margo.org/v1-alpha1\nkind: ApplicationDeployment\nmetadata:\n  id: \
                      0f83e682-a35b-4533-ae93-ff3810095f31\n  applicationId: com-a\nspec: {}\n";
    for version in ["margo.org/v1-alpha1", "margo.deployment/v1"] {
        let text = deployment.replace("margo.org/v1-alpha1", version);
        let read = ApplicationDeployment::read("d.yaml", text.as_bytes());
        let problem = assert_refused(read, "apiVersion", "neither `id` and `spec.applicationId`");
        assert_eq!(problem.line, NonZeroU32::new(1), "{problem}");
    }
}
