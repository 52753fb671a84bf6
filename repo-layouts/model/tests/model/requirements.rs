//! What profiles need, and whether a device has it: every operator, unit and limit on both sides of its edge.

use repo_model::margo::{ApplicationDescription, DeviceCapabilities};

/// A profile with these lines of requirements, in YAML's flow style.
fn description(requirements: &str) -> Result<ApplicationDescription, String> {
    let text = format!(
        "id: app\nmetadata: {{name: App, version: 1.0.0}}\ndeploymentProfiles:\n  - id: one\n    type: compose\n    \
         components: [{{name: c, properties: {{repository: \"oci://r.example/c\", revision: 1.0.0}}}}]\n    \
         {requirements}\n"
    );
    ApplicationDescription::read("margo.yaml", text.as_bytes()).map(|(one, _)| one).map_err(|error| error.to_string())
}

fn device() -> DeviceCapabilities {
    let text = r#"{"labels":{"line":"2","size":7,"slots":["a","b"],"armed":true},
        "properties":{"id":"press-04","vendor":"Acme","modelNumber":"m","serialNumber":"s",
        "cpus":[{"cores":2,"architecture":"amd64"},{"cores":1.5,"architecture":"arm64"}],
        "memory":"8Gi","storage":"64 Gi","interfaces":[{"type":"ethernet"}],
        "peripherals":[{"type":"gpu","manufacturer":"NVIDIA"},{"type":"display"}],
        "supportedRuntimes":["oci"],"supportedDeploymentTypes":["compose"]}}"#;
    DeviceCapabilities::read("capabilities.json", text.as_bytes()).unwrap()
}

fn unmet(requirements: &str) -> Vec<String> {
    let description = description(requirements).unwrap_or_else(|error| panic!("{requirements}: {error}"));
    description.profiles[0].unmet(&device())
}

#[test]
fn capacities_are_met_on_one_side_of_their_edge_only() {
    for (good, bad) in [
        ("memory: 8Gi", "memory: 8193Mi"),
        ("memory: 8388608Ki", "memory: 8388609Ki"),
        ("storage: 64Gi", "storage: 65Gi"),
        ("storage: 0Ti", "storage: 1Ti"),
        ("storage: 65536Mi", "storage: 1Pi"),
        ("memory: 1Ki", "memory: 1Ei"),
        ("cpu: {cores: 3.5}", "cpu: {cores: 3.6}"),
        ("cpu: {cores: 2, architectures: [amd64]}", "cpu: {cores: 2.5, architectures: [x86_64]}"),
        ("cpu: {cores: 1.5, architectures: [aarch64, riscv64]}", "cpu: {architectures: [riscv64]}"),
    ] {
        for frame in ["requiredResources: {%}", "deviceConstraints: {capacityRequirements: {%}}"] {
            assert_eq!(unmet(&frame.replace('%', good)), Vec::<String>::new(), "{good}");
            assert_eq!(unmet(&frame.replace('%', bad)).len(), 1, "{bad}");
        }
    }
    assert_eq!(unmet("requiredResources: {memory: 9Gi}"), ["it needs 9Gi of memory, and the device has 8Gi"]);
}

#[test]
fn peripherals_and_interfaces_of_the_pre_draft_are_looked_for() {
    for (good, bad) in [
        ("peripherals: [{type: gpu}]", "peripherals: [{type: camera}]"),
        ("peripherals: [{type: gpu, manufacturer: nvidia}]", "peripherals: [{type: gpu, manufacturer: AMD}]"),
        ("peripherals: [{type: display}]", "peripherals: [{type: display, model: x}]"),
        ("interfaces: [{type: ethernet}]", "interfaces: [{type: bluetooth}]"),
    ] {
        assert_eq!(unmet(&format!("requiredResources: {{{good}}}")), Vec::<String>::new(), "{good}");
        assert_eq!(unmet(&format!("requiredResources: {{{bad}}}")).len(), 1, "{bad}");
    }
}

#[test]
fn every_operator_works_on_properties_and_labels() {
    for (kind, good, bad) in [
        ("property", "key: /vendor, operator: In, values: [Other, Acme]", "key: /vendor, operator: In, values: [acme]"),
        ("property", "key: /vendor, operator: NotIn, values: [Other]", "key: /vendor, operator: NotIn, values: [Acme]"),
        ("property", "key: /none, operator: NotIn, values: [a]", "key: /none, operator: In, values: [a]"),
        ("property", "key: /memory, operator: Exists", "key: /none, operator: Exists"),
        ("property", "key: /none, operator: DoesNotExist", "key: /memory, operator: DoesNotExist"),
        ("property", "key: /memory, operator: Gt, values: [7Gi]", "key: /memory, operator: Gt, values: [8Gi]"),
        ("property", "key: /memory, operator: Lt, values: [8193Mi]", "key: /memory, operator: Lt, values: [8Gi]"),
        (
            "property",
            "key: /cpus/0/cores, operator: Gt, values: [1.5]",
            "key: /cpus/0/cores, operator: Gt, values: [2]",
        ),
        ("property", "key: /cpus/0/cores, operator: Lt, values: [3]", "key: /none, operator: Lt, values: [3]"),
        (
            "property",
            "key: /supportedRuntimes, operator: ContainsAll, values: [oci]",
            "key: /supportedRuntimes, operator: ContainsAll, values: [oci, custom]",
        ),
        (
            "property",
            "key: /supportedRuntimes, operator: ContainsAny, values: [custom, oci]",
            "key: /none, operator: ContainsAny, values: [oci]",
        ),
        (
            "property",
            "key: /peripherals, operator: Exists, itemSelector: {matchExpressions: [{key: /type, operator: In, \
             values: [gpu]}, {key: /manufacturer, operator: In, values: [NVIDIA]}]}",
            // Both hold for some item, but not for the same one.
            "key: /peripherals, operator: Exists, itemSelector: {matchExpressions: [{key: /type, operator: In, \
             values: [display]}, {key: /manufacturer, operator: Exists}]}",
        ),
        (
            "property",
            "key: /peripherals, operator: DoesNotExist, itemSelector: {matchExpressions: [{key: /type, operator: In, \
             values: [camera]}]}",
            "key: /peripherals, operator: DoesNotExist, itemSelector: {matchExpressions: [{key: /type, operator: In, \
             values: [gpu]}]}",
        ),
        ("label", "key: line, operator: In, values: [\"2\"]", "key: line, operator: In, values: [2]"),
        ("label", "key: size, operator: In, values: [7.0]", "key: size, operator: In, values: [\"7\"]"),
        ("label", "key: armed, operator: In, values: [true]", "key: armed, operator: NotIn, values: [true]"),
        ("label", "key: line, operator: Gt, values: [1]", "key: line, operator: Gt, values: [2]"),
        (
            "label",
            "key: slots, operator: ContainsAll, values: [b, a]",
            "key: slots, operator: ContainsAll, values: [c]",
        ),
        ("label", "key: line, operator: Exists", "key: lines, operator: Exists"),
        ("label", "key: lines, operator: DoesNotExist", "key: line, operator: DoesNotExist"),
    ] {
        let rule = |one: &str| {
            format!("deviceConstraints: {{eligibilityRules: [{{{kind}Selector: {{matchExpressions: [{{{one}}}]}}}}]}}")
        };
        assert_eq!(unmet(&rule(good)), Vec::<String>::new(), "{good}");
        assert_eq!(unmet(&rule(bad)).len(), 1, "{bad}");
    }
}

#[test]
fn requirements_of_both_dialects_and_all_rules_must_hold() {
    let two = "requiredResources: {memory: 9Gi}\n    deviceConstraints: {capacityRequirements: {storage: 65Gi}, \
               eligibilityRules: [{propertySelector: {matchExpressions: [{key: /none, operator: Exists}]}, \
               labelSelector: {matchExpressions: [{key: none, operator: Exists}]}}]}";
    assert_eq!(unmet(two).len(), 4, "{:?}", unmet(two));
}

#[test]
fn a_profile_of_a_type_that_the_device_does_not_run_does_not_fit() {
    let mut profile = description("").unwrap().profiles.remove(0);
    assert!(profile.unmet(&device()).is_empty());
    profile.kind = repo_model::margo::ProfileType::Helm;
    assert_eq!(profile.unmet(&device()), ["it is a helm profile, and the device runs compose"]);
    let any = DeviceCapabilities { supported_deployment_types: vec![], ..device() };
    assert!(profile.unmet(&any).is_empty());
}

#[test]
fn a_requirement_that_makes_no_sense_is_refused_where_it_stands() {
    let rule = |one: &str| {
        format!("deviceConstraints: {{eligibilityRules: [{{propertySelector: {{matchExpressions: [{{{one}}}]}}}}]}}")
    };
    for (text, expected) in [
        ("requiredResources: {memory: 5}".to_owned(), "memory"),
        ("requiredResources: {memory: 5GB}".to_owned(), "no capacity"),
        ("requiredResources: {cpu: {cores: 0}}".to_owned(), "above 0"),
        ("requiredResources: {cpu: {architectures: []}}".to_owned(), "names no architecture"),
        ("requiredResources: {gpu: 1}".to_owned(), "unknown key"),
        ("deviceConstraints: {memory: 1Gi}".to_owned(), "unknown key"),
        ("deviceConstraints: {eligibilityRules: [{}]}".to_owned(), "needs `propertySelector`"),
        (rule("key: memory, operator: Exists"), "not a JSON Pointer"),
        (rule("key: /a~2, operator: Exists"), "not a JSON Pointer"),
        (rule("key: /a, operator: Is"), "is `Is`, expected"),
        (rule("key: /a, operator: Exists, values: [a]"), "has no place here"),
        (rule("key: /a, operator: In, values: []"), "names no value"),
        (rule("key: /a, operator: In"), "values: is missing"),
        (rule("key: /a, operator: Gt, values: [1, 2]"), "exactly one"),
        (rule("key: /a, operator: Gt, values: [x]"), "must be a number"),
        (rule("key: /a, operator: In, values: [[1]]"), "must be a string, number or boolean"),
        (rule("key: /a, operator: In, values: [a], itemSelector: {matchExpressions: []}"), "`Exists` and"),
    ] {
        let error = description(&text).unwrap_err();
        assert!(error.contains(expected) && error.contains("margo.yaml:"), "{text}: {error}");
    }
}
