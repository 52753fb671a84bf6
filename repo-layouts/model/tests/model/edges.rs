//! Every limit, pattern and enumeration of Margo's documents, on both sides of its edge. What a table beside a type
//! tests already (revisions, time limits, pointers, capacities, digests, operators) isn't repeated.

use repo_model::margo::{ApplicationDeployment, ApplicationDescription, DeploymentStatus, DeviceCapabilities};
use repo_model::problem::Problems;

/// A rule: where it holds, what is put there in the document, and values inside and outside of it.
struct Edge<'a> {
    key: &'a str,
    /// The text of the document that a value replaces.
    place: &'a str,
    good: Vec<String>,
    bad: Vec<String>,
}

fn edge<'a>(key: &'a str, place: &'a str, good: &[&str], bad: &[&str]) -> Edge<'a> {
    let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    Edge { key, place, good: owned(good), bad: owned(bad) }
}

impl Edge<'_> {
    /// The longest text that is allowed, and one that is a character longer.
    fn longest(mut self, characters: usize) -> Self {
        self.good.push("a".repeat(characters));
        self.bad.push("a".repeat(characters + 1));
        self
    }
}

/// Reads the document with each value; a bad one must be refused at its key, with its place where there are places.
fn sweep<T: std::fmt::Debug>(document: &str, read: impl Fn(&[u8]) -> Result<T, Problems>, edges: Vec<Edge<'_>>) {
    read(document.as_bytes()).unwrap_or_else(|problems| panic!("{problems}"));
    for Edge { key, place, good, bad } in edges {
        assert_eq!(document.matches(place).count(), 1, "{place}");
        for value in good {
            let found = read(document.replace(place, &value).as_bytes());
            assert!(found.is_ok(), "{key}: {value} is refused:\n{}", found.unwrap_err());
        }
        for value in bad {
            let problems = read(document.replace(place, &value).as_bytes());
            let problems = problems.expect_err(&format!("{key}: {value} is taken"));
            let problem = problems.errors().find(|problem| problem.key == key);
            let problem = problem.unwrap_or_else(|| panic!("{key}: {value} is refused elsewhere:\n{problems}"));
            assert!(document.starts_with('{') || problem.line.is_some() && problem.column.is_some(), "{problem:?}");
        }
    }
}

const DEPLOYMENT: &str = "\
id: 11111111-2222-4333-8444-555555555555
metadata: {name: the-object, namespace: the-namespace, deviceId: the-device, labels: {line: \"2\"}}
spec:
  applicationId: the-application
  deploymentProfile:
    type: helm
    x-vendor-extensions: {a: 1}
    components:
      - name: one
        properties: {repository: \"oci://registry.example/a\", revision: 1.0.0, wait: true}
      - name: the-component
        properties: {repository: \"https://charts.example/stable\", revision: 2.0.0}
  parameters:
    greeting: {value: the-value, targets: [{pointer: a.b, components: [one]}]}
";

#[test]
fn deployments_hold_on_both_sides_of_every_edge() {
    let component = "spec.deploymentProfile.components[1].name";
    let properties = |key: &str| format!("spec.deploymentProfile.components[1].properties.{key}");
    let repository = properties("repository");
    sweep(
        DEPLOYMENT,
        |bytes| ApplicationDeployment::read("a.yaml", bytes),
        vec![
            edge(
                "id",
                "11111111-2222-4333-8444-555555555555",
                &["00000000-0000-4000-8000-000000000000", "AD9B614E-8912-45F4-A523-372358765DEF"],
                &["\"\"", "11111111-2222-4333-8444-55555555555", "11111111-2222-4333-8444-55555555555g", "[]"],
            ),
            edge("metadata.name", "the-object", &["a", "A b_c"], &["\"\"", "\"a\\u0007\"", "[]"]).longest(253),
            edge(
                "metadata.namespace",
                "the-namespace",
                &["a", "a-1", "\"1\""],
                &["\"\"", "-a", "a-", "A", "a_b", "a.b", "\"a b\""],
            )
            .longest(63),
            edge(
                "metadata.deviceId",
                "the-device",
                &["a", "A.b_c~d-e", "a/b", "a/b/c", "\"gateway/*\"", "a/b/*"],
                &["\"\"", "a/", "/a", "a//b", "a/../b", "a b", "a/*/b", "\"*\"", "a*"],
            )
            .longest(200),
            edge(
                "spec.applicationId",
                "the-application",
                &["a", "\"-\"", "0-a", "a--"],
                &["\"\"", "A", "a_b", "a.b", "a/b", "ä"],
            )
            .longest(200),
            edge(
                "spec.deploymentProfile.type",
                "helm\n",
                &["helm\n", "helm.v3\n"],
                &["Helm\n", "helm.v2\n", "podman\n"],
            ),
            edge(component, "the-component", &["a", "\"-\"", "a-1"], &["\"\"", "A", "a_b", "a.b", "one two"])
                .longest(200),
            edge(
                &repository,
                "https://charts.example/stable",
                &[
                    "https://charts.example",
                    "https://charts.example:8443/a/b",
                    "oci://r.example:5000/a",
                    "oci://r/a/b-c",
                ],
                &[
                    "http://charts.example",
                    "charts.example/a",
                    "https://",
                    "https://u:p@charts.example",
                    "oci://r",
                    "oci://r/A",
                ],
            ),
            edge("spec.parameters.greeting.value", "the-value", &["\"\"", "[]", "[1, a]", "0.5", "true"], &["{}", "~"]),
            edge(
                "spec.deploymentProfile.components[0].properties.wait",
                "wait: true",
                &["wait: \"false\""],
                &["wait: 1", "wait: yes", "wait: \"no\""],
            ),
            edge("spec.parameters.greeting.targets[0].components", "[one]", &["[one, the-component]"], &["[]", "one"]),
            edge(
                "spec.deploymentProfile.x-Vendor-extensions",
                "x-vendor-extensions",
                &["x-v-extensions", "x-a1-b-extensions"],
                &["x-Vendor-extensions"],
            ),
            edge("spec.deploymentProfile.x-extensions", "x-vendor-extensions", &[], &["x-extensions"]),
            edge("spec.deploymentProfile.vendor-extensions", "x-vendor-extensions", &[], &["vendor-extensions"]),
        ],
    );
}

const DESCRIPTION: &str = "\
apiVersion: margo.org/v1-alpha1
kind: ApplicationDescription
metadata: {id: the-application, name: A, version: the-version}
deploymentProfiles:
  - id: one
    type: docker-compose
    components: [{name: one, properties: {repository: \"oci://r.example/a\", revision: 1.0.0}}]
    requiredResources: {cpu: {cores: 1.5, architectures: [the-architecture]}, memory: 1Gi}
parameters:
  greeting: {value: a, targets: [{pointer: ENV.GREETING, components: [one]}]}
configuration:
  sections: [{name: General, settings: [{parameter: greeting, name: Greeting, immutable: false, schema: rule}]}]
  schema:
    - {name: rule, dataType: the-type, allowEmpty: true, minLength: 0, maxLength: 9, minValue: 1, minPrecision: 2,
       multiselect: false, options: [a]}
";

#[test]
fn descriptions_hold_on_both_sides_of_every_edge() {
    let rule = |key: &str| format!("configuration.schema[0].{key}");
    let keys =
        ["dataType", "allowEmpty", "minLength", "maxLength", "minValue", "minPrecision", "multiselect", "options"];
    let [data_type, empty, least, most, value, precision, several, options] = keys.map(rule);
    let profile = |key: &str| format!("deploymentProfiles[0].{key}");
    let (kind, cores) = (profile("type"), profile("requiredResources.cpu.cores"));
    let architectures = profile("requiredResources.cpu.architectures");
    let document = DESCRIPTION.replace("the-type", "string");
    sweep(
        &document,
        |bytes| ApplicationDescription::read("margo.yaml", bytes),
        vec![
            edge(
                "apiVersion",
                "margo.org/v1-alpha1",
                &["margo.org/v1alpha1", "application.margo.org/v1alpha1", "v1"],
                &["margo.org/v1", "v2", "\"\"", "1"],
            ),
            edge("kind", "ApplicationDescription", &[], &["applicationDescription", "ApplicationDeployment"]),
            edge("metadata.id", "the-application", &["a", "\"-0\""], &["A", "a_b", "\"\""]).longest(200),
            edge("metadata.version", "the-version", &["1.2.1", "\"1\""], &["[]", "{}"]),
            edge(&kind, "docker-compose", &["compose", "custom"], &["Compose", "docker", "compose.v2", "Custom"]),
            edge(&cores, "1.5", &["0.1", "1"], &["0", "-1", "two"]),
            edge(&architectures, "[the-architecture]", &["[amd64, arm64]"], &["[]", "amd64"]),
            edge(
                &data_type,
                "dataType: string",
                &[
                    "dataType: integer",
                    "dataType: double",
                    "dataType: boolean",
                    "dataType: \"array[string]\"",
                    "dataType: \"array[integer]\"",
                    "dataType: \"array[double]\"",
                    "dataType: \"array[boolean]\"",
                ],
                &[
                    "dataType: text",
                    "dataType: String",
                    "dataType: \"array[]\"",
                    "dataType: array",
                    "dataType: [string]",
                ],
            ),
            edge(&empty, "allowEmpty: true", &["allowEmpty: false"], &["allowEmpty: \"true\"", "allowEmpty: 1"]),
            edge(&least, "minLength: 0", &["minLength: 5"], &["minLength: -1", "minLength: 0.5", "minLength: a"]),
            edge(&most, "maxLength: 9", &["maxLength: 0"], &["maxLength: -1", "maxLength: \"9\""]),
            edge(&value, "minValue: 1", &["minValue: -0.5", "minValue: 0"], &["minValue: a", "minValue: [1]"]),
            edge(&precision, "minPrecision: 2", &["minPrecision: 0"], &["minPrecision: -1", "minPrecision: 1.5"]),
            edge(&several, "multiselect: false", &["multiselect: true"], &["multiselect: 2"]),
            edge(&options, "[a]}", &["[a, b]}", "[1, 2]}"], &["a}", "{a: b}}"]),
        ],
    );
}

const STATUS: &str = r#"{"deploymentId": "11111111-2222-4333-8444-555555555555", "deviceId": "the-device",
 "adoptedManifestVersion": 7, "status": {"state": "pending"},
 "components": [{"name": "the-component", "state": "failed", "error": {"code": "helm-failed", "message": "m"}}]}"#;

#[test]
fn statuses_hold_on_both_sides_of_every_edge() {
    let states = ["installed", "installing", "pending", "removing", "removed", "failed"];
    let states: Vec<_> = states.iter().map(|state| format!("\"state\": \"{state}\"}}")).collect();
    let states: Vec<_> = states.iter().map(String::as_str).collect();
    sweep(
        STATUS,
        |bytes| DeploymentStatus::read("status.json", bytes),
        vec![
            edge(
                "status.state",
                "\"state\": \"pending\"}",
                &states,
                &["\"state\": \"Pending\"}", "\"state\": \"\"}", "\"state\": 1}"],
            ),
            edge("components[0].state", "\"state\": \"failed\"", &["\"state\": \"removed\""], &["\"state\": \"done\""]),
            edge(
                "adoptedManifestVersion",
                "7",
                &["1", "9007199254740991"],
                &["9007199254740992", "-1", "\"7\"", "1.5"],
            ),
            edge("deviceId", "\"the-device\"", &["\"a/b\""], &["\"a b\"", "\"\"", "null"]),
            edge("components[0].name", "\"the-component\"", &["\"a-1\""], &["\"A\"", "\"\""]),
            // Any code is taken: the list of them grows.
            edge("components[0].error.code", "\"helm-failed\"", &["\"anything else\""], &["7"]),
            edge("components", "[{\"name\"", &[], &["7, \"x-a-extensions\": [{\"name\""]),
        ],
    );
}

const CAPABILITIES: &str = r#"{"properties": {"id": "the-device", "vendor": "v", "modelNumber": "m", "serialNumber": "s",
 "roles": ["Standalone Device"], "cpus": [{"cores": 3, "architecture": "amd64"}], "memory": "8Gi", "interfaces": [{"type": "wifi"}],
 "peripherals": [{"type": "gpu"}], "supportedRuntimes": ["oci"], "otelCollector": true, "supportedDeploymentTypes": ["helm"]}, "labels": {"line": "2"}}"#;

#[test]
fn capabilities_hold_on_both_sides_of_every_edge() {
    sweep(
        CAPABILITIES,
        |bytes| DeviceCapabilities::read("capabilities.json", bytes),
        vec![
            edge("properties.id", "\"the-device\"", &["\"a/b\""], &["\"a b\"", "\"\"", "7"]),
            edge("properties.vendor", "\"v\"", &["\"\""], &["7", "null"]),
            edge(
                "properties.cpus[0].cores",
                "3",
                &["1", "256", "2.0", "4294967295"],
                &["0", "-1", "\"2\"", "0.5", "1.5", "4294967296"],
            ),
            edge(
                "properties.cpus[0].architecture",
                "\"amd64\"",
                &["\"arm64\"", "\"arm\""],
                &["\"x86_64\"", "\"AMD64\"", "\"riscv64\"", "\"\"", "7"],
            ),
            edge(
                "properties.roles[0]",
                "\"Standalone Device\"",
                &["\"Standalone Cluster\"", "\"Cluster Leader\""],
                &["\"standalone device\"", "\"Cluster Worker\""],
            ),
            edge("properties.supportedRuntimes[0]", "\"oci\"", &["\"custom\""], &["\"docker\"", "true"]),
            edge("properties.otelCollector", "true", &["false"], &["\"true\"", "1", "null"]),
            edge(
                "properties.memory",
                "\"8Gi\"",
                &["\"8 Gi\"", "\"0Ki\"", "\"15Ei\""],
                &["\"8GB\"", "\"8\"", "8", "\"16Ei\""],
            ),
            edge(
                "properties.interfaces[0].type",
                "\"wifi\"",
                &["\"ethernet\"", "\"cellular\"", "\"bluetooth\"", "\"usb\"", "\"canbus\"", "\"rs232\""],
                &["7", "\"WiFi\"", "\"profinet\"", "\"rs485\""],
            ),
            edge(
                "properties.peripherals[0].type",
                "\"gpu\"",
                &["\"display\"", "\"camera\"", "\"microphone\"", "\"speaker\""],
                &["null", "[]", "\"GPU\"", "\"nic\""],
            ),
            edge(
                "properties.supportedDeploymentTypes[0]",
                "\"helm\"",
                &["\"custom\"", "\"compose\""],
                &["7", "\"helm.v3\"", "\"docker-compose\""],
            ),
            edge("labels.line", "\"2\"", &["2", "0.5", "true", "[\"a\", 1]", "[]"], &["{}", "null", "[true]", "[[]]"]),
        ],
    );
}

#[test]
fn many_mistakes_are_told_at_once_with_place_key_rule_and_advice() {
    let mut text = DEPLOYMENT.replace("the-namespace", "The_Namespace").replace("the-device", "the device");
    text = text.replace("wait: true", "wait: yes, timeout: 5").replace("revision: 2.0.0", "revision: v2.0.0");
    text = text.replace("labels:", "lables:");
    let problems = ApplicationDeployment::read("deployments/a.yaml", text.as_bytes()).unwrap_err();
    let told: Vec<_> = problems.errors().map(ToString::to_string).collect();
    let component = "spec.deploymentProfile.components";
    for expected in [
        "deployments/a.yaml:2:41: metadata.namespace: must be 1 to 63 lower-case letters, digits and inner dashes"
            .to_owned(),
        "deployments/a.yaml:2:66: metadata.deviceId: `the device` is not a device id".to_owned(),
        "deployments/a.yaml:2:78: metadata.lables: unknown key".to_owned(),
        format!("deployments/a.yaml:10:85: {component}[0].properties.wait: "),
        format!("deployments/a.yaml:10:99: {component}[0].properties.timeout: `5`"),
        format!("deployments/a.yaml:12:77: {component}[1].properties.revision: `v2.0.0` is no revision"),
    ] {
        assert!(told.iter().any(|one| one.starts_with(&expected)), "{expected} in {told:#?}");
    }
    assert_eq!(told.len(), 6, "{told:#?}");
    assert!(problems.errors().filter(|problem| problem.hint.is_some()).count() >= 3, "{problems:?}");
}
