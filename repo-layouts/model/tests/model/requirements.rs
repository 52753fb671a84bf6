//! What profiles need, and whether a device has it: every operator, unit and limit on both sides of its edge.

use repo_model::margo::{ApplicationDeployment, ApplicationDescription, DeviceCapabilities, Requirements};

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
        "cpus":[{"cores":2,"architecture":"amd64"},{"cores":1,"architecture":"arm64"}],
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
        ("cpu: {cores: 3}", "cpu: {cores: 3.5}"),
        ("cpu: {cores: 2, architectures: [amd64]}", "cpu: {cores: 2.5, architectures: [x86_64]}"),
        ("cpu: {cores: 0.5, architectures: [aarch64, riscv64]}", "cpu: {architectures: [riscv64]}"),
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
        ("property", "key: /vendor, operator: NotIn, values: [a]", "key: /none, operator: NotIn, values: [a]"),
        ("property", "key: /vendor, operator: In, values: [Acme]", "key: /none, operator: In, values: [a]"),
        (
            "property",
            "key: /supportedDeploymentTypes, operator: In, values: [compose]",
            "key: /supportedDeploymentTypes, operator: In, values: [helm]",
        ),
        (
            "property",
            "key: /supportedDeploymentTypes, operator: NotIn, values: [helm]",
            "key: /supportedDeploymentTypes, operator: NotIn, values: [helm, compose]",
        ),
        // Of a list of objects, and of an object, nothing holds but the operators made for it.
        ("property", "key: /cpus/0/cores, operator: Exists", "key: /cpus/0, operator: Exists"),
        ("property", "key: /none, operator: DoesNotExist", "key: /peripherals, operator: DoesNotExist"),
        ("property", "key: /memory, operator: Exists", "key: /peripherals, operator: Exists"),
        // The keys of the proposal that these rules came from, which had the pre-draft's capabilities before it.
        ("property", "key: /resources/memory, operator: Exists", "key: /resources/none, operator: Exists"),
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
            "key: /peripherals, operator: ContainsAll, itemSelector: {matchExpressions: [{key: /type, operator: In, \
             values: [gpu]}, {key: /manufacturer, operator: In, values: [NVIDIA]}]}",
            // Both hold for some item, but not for the same one.
            "key: /peripherals, operator: ContainsAll, itemSelector: {matchExpressions: [{key: /type, operator: In, \
             values: [display]}, {key: /manufacturer, operator: Exists}]}",
        ),
        (
            "property",
            "key: /peripherals, operator: ContainsAny, itemSelector: {matchExpressions: [{key: /type, operator: In, \
             values: [camera]}, {key: /manufacturer, operator: Exists}]}",
            "key: /peripherals, operator: ContainsAny, itemSelector: {matchExpressions: [{key: /type, operator: In, \
             values: [camera]}, {key: /model, operator: Exists}]}",
        ),
        (
            "property",
            "key: /interfaces, operator: ContainsAny, itemSelector: {matchExpressions: [{key: /type, operator: NotIn, \
             values: [wifi]}]}",
            "key: /supportedRuntimes, operator: ContainsAny, itemSelector: {matchExpressions: [{key: \"\", operator: \
             In, values: [oci]}]}",
        ),
        ("label", "key: slots, operator: In, values: [c, b]", "key: slots, operator: NotIn, values: [c, b]"),
        ("label", "key: slots, operator: NotIn, values: [c]", "key: lines, operator: NotIn, values: [c]"),
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
fn all_of_a_rule_must_hold_and_one_of_the_rules() {
    let property = |vendor: &str| {
        format!("propertySelector: {{matchExpressions: [{{key: /vendor, operator: In, values: [{vendor}]}}]}}")
    };
    let label = |line: &str| {
        format!("labelSelector: {{matchExpressions: [{{key: line, operator: In, values: [\"{line}\"]}}]}}")
    };
    let rules = |rules: &[String]| {
        let rules: Vec<_> = rules.iter().map(|rule| format!("{{{rule}}}")).collect();
        unmet(&format!("deviceConstraints: {{eligibilityRules: [{}]}}", rules.join(", ")))
    };
    let both = |vendor, line| format!("{}, {}", property(vendor), label(line));
    assert!(rules(&[both("Acme", "2")]).is_empty());
    assert_eq!(rules(&[both("Acme", "3")]).len(), 1);
    assert_eq!(rules(&[both("Other", "3")]).len(), 2);
    assert!(rules(&[property("Other"), label("2")]).is_empty());
    assert!(rules(&[label("2"), property("Other")]).is_empty());
    assert_eq!(
        rules(&[both("Other", "3"), label("4")]),
        [
            "none of its 2 rules is met: it needs the property `/vendor` In [\"Other\"], and the device has \"Acme\"; and \
          the label `line` In [\"3\"], and the device has \"2\"; or else the label `line` In [\"4\"], and the device \
          has \"2\""
        ]
    );
}

#[test]
fn requirements_of_both_dialects_must_hold_and_rules_are_asked_where_the_capacity_is_there() {
    let rule = "eligibilityRules: [{labelSelector: {matchExpressions: [{key: none, operator: Exists}]}}]";
    let both = format!(
        "requiredResources: {{memory: 9Gi}}\n    deviceConstraints: {{capacityRequirements: {{storage: 65Gi}}, {rule}}}"
    );
    assert_eq!(
        unmet(&both),
        ["it needs 9Gi of memory, and the device has 8Gi", "it needs 65Gi of storage, and the device has 64 Gi"]
    );
    let enough = both.replace("9Gi", "8Gi").replace("65Gi", "64Gi");
    assert_eq!(unmet(&enough), ["it needs the label `none` Exists, and the device has none"]);
}

/// The examples of Margo's text, *Object Array Item Matching* and *Custom runtimes*.
#[test]
fn the_examples_of_the_specification_mean_what_it_says() {
    let fits = |rule: &str| unmet(&format!("deviceConstraints: {{eligibilityRules: [{rule}]}}")).is_empty();
    let gpu = "{key: /type, operator: In, values: [\"gpu\"]}";
    let nvidia = "{key: /manufacturer, operator: In, values: [\"NVIDIA\"]}";
    let peripherals = |operator: &str, items: &str| {
        format!("{{key: /peripherals, operator: {operator}, itemSelector: {{matchExpressions: [{items}]}}}}")
    };
    let properties = |all: &str| format!("{{propertySelector: {{matchExpressions: [{all}]}}}}");
    assert!(fits(&properties(&peripherals("ContainsAll", &format!("{gpu}, {nvidia}")))));
    assert!(fits(&properties(&peripherals("ContainsAny", "{key: /type, operator: In, values: [\"gpu\", \"nic\"]}"))));
    let vendor = |name: &str| format!("{{key: /vendor, operator: In, values: [\"{name}\"]}}");
    assert!(fits(&properties(&format!("{}, {}", vendor("Acme"), peripherals("ContainsAll", gpu)))));
    assert!(!fits(&properties(&format!("{}, {}", vendor("Vendor Name"), peripherals("ContainsAll", gpu)))));
    let label =
        "labelSelector: {matchExpressions: [{key: example.com/hypervisor, operator: In, values: [\"hyper-v\"]}]}";
    assert!(!fits(&format!("{{propertySelector: {{matchExpressions: [{}]}}, {label}}}", vendor("Acme"))));
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
fn a_word_that_no_device_reports_is_asked_for_in_vain_and_somebody_should_look() {
    for (text, key) in [
        ("requiredResources: {peripherals: [{type: displai}]}", "requiredResources.peripherals[0].type"),
        ("requiredResources: {interfaces: [{type: profinet}]}", "requiredResources.interfaces[0].type"),
        ("deviceConstraints: {capacityRequirements: {cpu: {cores: 1, architectures: [mips]}}}", "architectures[0]"),
    ] {
        let text = format!(
            "id: app\nmetadata: {{name: App, version: 1.0.0}}\ndeploymentProfiles:\n  - id: one\n    type: compose\n    \
             components: [{{name: c, properties: {{repository: \"oci://r.example/c\", revision: 1.0.0}}}}]\n    {text}\n"
        );
        let (read, warnings) = ApplicationDescription::read("margo.yaml", text.as_bytes()).unwrap();
        let said = warnings.to_string();
        assert!(said.contains(key) && said.contains("which no device reports: Margo knows"), "{said}");
        assert_eq!(read.profiles[0].unmet(&device()).len(), 1);
    }
}

/// What an ApplicationDeployment says of a device, and what the envelope adds in the pre-draft's words, is judged as the
/// profile was.
#[test]
fn requirements_mean_the_same_on_the_device() {
    let constraints = "capacityRequirements: {memory: 9Gi}, eligibilityRules: [{labelSelector: {matchExpressions: \
                       [{key: line, operator: In, values: [\"2\"]}]}}]";
    let read = description(&format!("deviceConstraints: {{{constraints}}}\n    requiredResources: {{storage: 65Gi}}"));
    let profile = read.unwrap().profiles.remove(0);
    let text = format!(
        "id: 11111111-2222-4333-8444-555555555555\nmetadata: {{name: n, namespace: n, deviceId: d}}\nspec:\n  \
         applicationId: app\n  deploymentProfile:\n    type: compose\n    components: [{{name: c, properties: {{repository: \
         \"oci://r.example/c\", revision: 1.0.0}}}}]\n    deviceConstraints: {{{constraints}}}\n"
    );
    let (deployment, _) = ApplicationDeployment::read("d.yaml", text.as_bytes()).unwrap();
    let (again, _) = ApplicationDeployment::read("again.yaml", &deployment.to_yaml()).unwrap();
    let resources = Requirements::of_resources(&profile.required_resources.clone().unwrap()).unwrap();
    let there = [resources, again.requirements().unwrap()];
    let unmet: Vec<_> = there.iter().flat_map(|one| one.unmet(&device())).collect();
    assert_eq!((unmet.len(), unmet), (2, profile.unmet(&device())));
    let unknown = text.replace("operator: In", "operator: Like");
    let (deployment, _) = ApplicationDeployment::read("d.yaml", unknown.as_bytes()).unwrap();
    assert!(deployment.requirements().unwrap_err().to_string().contains("is `Like`, expected `In`"));
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
        (rule("key: /a, operator: In, values: [a, 1]"), "only strings, only numbers"),
        (rule("key: /a, operator: In, values: [true, false]"), "only strings, only numbers"),
        (rule("key: /a, operator: In, values: [a], itemSelector: {matchExpressions: []}"), "`ContainsAll` and"),
        (rule("key: /a, operator: Exists, itemSelector: {matchExpressions: []}"), "`ContainsAll` and"),
        (rule("key: /a, operator: ContainsAll"), "needs an `itemSelector`"),
        (rule("key: /a, operator: ContainsAny, itemSelector: {matchExpressions: []}"), "requires nothing"),
        (
            rule(
                "key: /a, operator: ContainsAny, values: [a], itemSelector: {matchExpressions: [{key: /a, operator: \
                 Exists}]}",
            ),
            "says what one item",
        ),
        ("deviceConstraints: {eligibilityRules: []}".to_owned(), "names no rule"),
    ] {
        let error = description(&text).unwrap_err();
        assert!(error.contains(expected) && error.contains("margo.yaml:"), "{text}: {error}");
    }
}
