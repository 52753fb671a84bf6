use super::*;
use crate::testing::id;
use repo_model::DeploymentName;
use repo_model::Digest;
use repo_model::envelope::{Lock, ValueFrom, ValueSource, ValueTarget};
use repo_model::margo::deployment::ApplicationDeployment;

const PARAMETERS: &str = "
    text: {value: \"1.10\", targets: [{pointer: TEXT, components: [x]}]}
    number: {value: 30, targets: [{pointer: ENV.NUMBER, components: [x, y]}]}
    double: {value: 30.0, targets: [{pointer: DOUBLE, components: [x]}]}
    switch: {value: false, targets: [{pointer: SWITCH, components: [y]}]}
";

fn document(profile: &str, repository: &str, parameters: &str) -> Document {
    let component = |name: &str| {
        format!("      - name: {name}\n        properties: {{repository: \"{repository}\", revision: 1.0.0}}\n")
    };
    let text = format!(
        "id: {}\nmetadata: {{name: title, namespace: default, deviceId: press-01}}\nspec:\n  applicationId: app\n  \
             deploymentProfile:\n    type: {profile}\n    components:\n{}{}  parameters: {parameters}\n",
        id("a"),
        component("x"),
        component("y"),
    );
    let (deployment, _) = ApplicationDeployment::read("a.yaml", text.as_bytes()).unwrap();
    Document { deployment, bytes: text.into_bytes() }
}

fn compose(parameters: &str) -> Document {
    document("compose", "oci://registry.invalid/app", parameters)
}

#[test]
fn each_comes_behind_what_it_waits_for() {
    let one = |name: &str, after: &[&str]| DesiredDeployment {
        depends_on: after.iter().map(|name| name.parse().unwrap()).collect(),
        ..crate::testing::wanted(name, &[])
    };
    let ordered = |all: Vec<DesiredDeployment>| {
        let all = in_order(all, |one| &one.name, |one| &one.depends_on);
        all.iter().map(|one| one.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ordered(vec![one("a", &["c"]), one("b", &[]), one("c", &["b"])]), ["b", "c", "a"]);
    assert_eq!(ordered(vec![one("a", &["b"]), one("b", &["a"]), one("c", &[])]), ["c", "a", "b"]);
    assert_eq!(ordered(vec![one("a", &["gone", "b"]), one("b", &["gone"])]), ["b", "a"]);
}

#[test]
fn the_vectors_for_other_implementations_hold_here() {
    let vectors = include_str!("../../../../fixtures/vectors/order.json");
    let vectors: serde_json::Value = serde_json::from_str(vectors).unwrap();
    for case in vectors.as_array().unwrap() {
        let one = |(name, after): (&String, &serde_json::Value)| {
            let after = after.as_array().unwrap().iter().map(|name| name.as_str().unwrap().parse().unwrap());
            DesiredDeployment { depends_on: after.collect(), ..crate::testing::wanted(name, &[]) }
        };
        let all = case["dependsOn"].as_object().unwrap().iter().map(one).collect();
        let mut applied: Vec<DeploymentName> = Vec::new();
        for one in in_order(all, |one| &one.name, |one: &DesiredDeployment| &one.depends_on) {
            // What names something that isn't installed is held back by the actor.
            if one.depends_on.iter().all(|name| applied.contains(name)) {
                applied.push(one.name);
            }
        }
        assert_eq!(serde_json::json!(applied), case["applied"], "{case}");
    }
}

fn envelope(components: &[&str]) -> EnvelopeDeployment {
    let lock = Lock { manifest: Digest::of(b"manifest"), content: Digest::of(b"content") };
    EnvelopeDeployment {
        id: "a".parse().unwrap(),
        policy: Default::default(),
        profile: None,
        required_resources: None,
        locks: components.iter().map(|name| (name.parse().unwrap(), lock.into())).collect(),
        values_from: BTreeMap::new(),
    }
}

fn from_file(file: &str, variable: &str) -> ValueFrom {
    let target = ValueTarget { pointer: variable.to_owned(), components: vec!["x".parse().unwrap()] };
    ValueFrom { source: ValueSource::DeviceFile(file.to_owned()), targets: vec![target] }
}

fn resolve(document: &Document, envelope: &EnvelopeDeployment, secret: &str) -> Vec<DesiredComponent> {
    let read = |name: &str| match name {
        "db-password" => Ok(secret.to_owned()),
        _ => Err(Failure::new(ErrorCode::ParameterInvalid, format!("device file `{name}`: is missing"))),
    };
    let types = [ProfileType::Compose, ProfileType::Helm].into();
    resolve_on(&types, &read, document, envelope)
}

fn resolve_on(
    types: &BTreeSet<ProfileType>,
    read: &dyn Fn(&str) -> Result<String, Failure>,
    document: &Document,
    envelope: &EnvelopeDeployment,
) -> Vec<DesiredComponent> {
    let admission = &Admission::default();
    let decrypt = |text: &str| match text.strip_prefix("encrypted ") {
        Some(clear) => Ok(clear.to_owned()),
        None => Err(Failure::new(ErrorCode::SecretUnreadable, "it is encrypted to other keys")),
    };
    let (decrypt, max_timeout) = (&decrypt, Duration::from_secs(600));
    let values = DeviceValues { types, capabilities: None, read, decrypt, hmac_key: b"key", admission, max_timeout };
    resolve_deployment(id("a"), document, envelope, &values).components
}

#[test]
fn a_timeout_counts_for_no_more_than_the_site_says_and_changes_nothing() {
    let resolved = |timeout: &str| {
        let text = String::from_utf8(compose("{}").bytes).unwrap();
        let text = text.replacen("revision: 1.0.0", &format!("revision: 1.0.0{timeout}"), 1);
        let (deployment, _) = ApplicationDeployment::read("a.yaml", text.as_bytes()).unwrap();
        let found = resolve(&Document { deployment, bytes: text.into_bytes() }, &envelope(&["x", "y"]), "");
        (input(&found[0]).timeout.as_secs(), input(&found[0]).input_digest)
    };
    let (usual, digest) = resolved("");
    assert_eq!(usual, 300);
    for (timeout, seconds) in [(", timeout: 24h", 600), (", timeout: 10m1s", 600), (", timeout: 2m", 120)] {
        assert_eq!(resolved(timeout), (seconds, digest), "{timeout}");
    }
}

fn input(component: &DesiredComponent) -> &component::Component {
    component.input.as_ref().unwrap()
}

fn variables(component: &DesiredComponent) -> (&BTreeMap<String, String>, &BTreeSet<String>) {
    match &input(component).kind {
        Kind::Compose { parameters, secrets } => (parameters, secrets),
        Kind::Helm { .. } => panic!("it is a compose component"),
    }
}

fn code(component: &DesiredComponent) -> &str {
    &component.input.as_ref().unwrap_err().code
}

#[test]
fn each_component_gets_its_own_parameters_as_text() {
    let all = resolve(&compose(PARAMETERS), &envelope(&["x", "y"]), "");
    let get = |at: usize| variables(&all[at]).0.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>();
    assert_eq!(get(0), ["DOUBLE=30.0", "NUMBER=30", "TEXT=1.10"]);
    assert_eq!(get(1), ["NUMBER=30", "SWITCH=false"]);
}

#[test]
fn the_digest_changes_with_what_a_component_gets_and_with_nothing_else() {
    let digests = |parameters: &str, envelope: &EnvelopeDeployment| {
        let all = resolve(&compose(parameters), envelope, "");
        (input(&all[0]).input_digest, input(&all[1]).input_digest)
    };
    let usual = envelope(&["x", "y"]);
    let before = digests(PARAMETERS, &usual);
    let reordered: Vec<_> = PARAMETERS.trim_matches('\n').lines().rev().collect();
    assert_eq!(digests(&format!("\n{}", reordered.join("\n")), &usual), before);
    let text = digests(&PARAMETERS.replace("1.10", "1.1"), &usual);
    assert!(text.0 != before.0 && text.1 == before.1);
    assert_ne!(digests(&PARAMETERS.replace("30.0", "30"), &usual).0, before.0, "30 and 30.0 differ");
    let mut other = usual.clone();
    other.id = "b".parse().unwrap();
    other.locks.get_mut(&"x".parse().unwrap()).unwrap().lock.manifest = Digest::of(b"another manifest");
    assert_eq!(digests(PARAMETERS, &other), before, "neither names nor the manifest's digest count");
    other.locks.get_mut(&"x".parse().unwrap()).unwrap().images.insert("a:1".to_owned(), Digest::of(b"an image"));
    assert_eq!(digests(PARAMETERS, &other), before, "what runs isn't made anew because its images are locked");
    other.locks.get_mut(&"x".parse().unwrap()).unwrap().lock.content = Digest::of(b"another content");
    assert_ne!(digests(PARAMETERS, &other).0, before.0);
}

#[test]
fn a_value_from_a_device_file_is_secret_and_enters_the_digest_under_the_devices_key() {
    let mut envelope = envelope(&["x", "y"]);
    envelope.values_from.insert("password".to_owned(), from_file("db-password", "PASSWORD"));
    let (one, two) = (resolve(&compose("{}"), &envelope, "one"), resolve(&compose("{}"), &envelope, "two"));
    assert_eq!(variables(&one[0]).0["PASSWORD"], "one");
    assert!(variables(&one[0]).1.contains("PASSWORD") && variables(&one[1]).1.is_empty());
    assert_ne!(input(&one[0]).input_digest, input(&two[0]).input_digest);
    assert_eq!(input(&one[1]).input_digest, input(&two[1]).input_digest);
    let plain = compose("\n    password: {value: one, targets: [{pointer: PASSWORD, components: [x]}]}");
    let plain = resolve(&plain, &self::envelope(&["x", "y"]), "");
    assert_ne!(input(&plain[0]).input_digest, input(&one[0]).input_digest);
}

#[test]
fn an_encrypted_value_is_secret_and_what_is_encrypted_anew_is_the_same() {
    let with = |text: &str| {
        let mut envelope = envelope(&["x", "y"]);
        let from = from_file("", "PASSWORD");
        envelope
            .values_from
            .insert("password".to_owned(), ValueFrom { source: ValueSource::Encrypted(text.to_owned()), ..from });
        envelope
    };
    let one = resolve(&compose("{}"), &with("encrypted one"), "");
    assert_eq!(variables(&one[0]).0["PASSWORD"], "one");
    assert!(variables(&one[0]).1.contains("PASSWORD") && variables(&one[1]).1.is_empty());
    let two = resolve(&compose("{}"), &with("encrypted two"), "");
    assert_ne!(input(&one[0]).input_digest, input(&two[0]).input_digest);
    let mut from_a_file = envelope(&["x", "y"]);
    from_a_file.values_from.insert("password".to_owned(), from_file("db-password", "PASSWORD"));
    let same = resolve(&compose("{}"), &from_a_file, "one");
    assert_eq!(input(&one[0]).input_digest, input(&same[0]).input_digest, "where it is from doesn't count");
    let other = resolve(&compose("{}"), &with("to others"), "");
    assert_eq!(code(&other[0]), "secret-unreadable");
    let message = &other[0].input.as_ref().unwrap_err().message;
    assert_eq!(message, "parameter `password`: its encrypted value: it is encrypted to other keys");
    assert!(other[1].input.is_ok());
}

#[test]
fn what_files_of_the_device_hold_changes_what_is_applied_and_not_what_the_fleet_says_of_it() {
    let with = |source: ValueSource, held: &str, plain: &str| {
        let mut envelope = envelope(&["x", "y"]);
        envelope.values_from.insert("password".to_owned(), ValueFrom { source, ..from_file("", "PASSWORD") });
        let document =
            compose(&format!("\n    level: {{value: {plain}, targets: [{{pointer: LEVEL, components: [x]}}]}}"));
        let read = |_: &str| Ok(held.to_owned());
        let x = resolve_on(&[ProfileType::Compose].into(), &read, &document, &envelope).remove(0);
        (input(&x).input_digest, input(&x).fleet_digest)
    };
    let file = |name: &str| ValueSource::DeviceFile(name.to_owned());
    let encrypted = |text: &str| ValueSource::Encrypted(format!("encrypted {text}"));
    let before = with(file("db-password"), "one", "1");
    let renewed = with(file("db-password"), "two", "1");
    assert!(renewed.0 != before.0 && renewed.1 == before.1);
    for (what, other) in [
        ("another parameter", with(file("db-password"), "one", "2")),
        ("another file", with(file("db-password-2"), "one", "1")),
        ("a value of the fleet's in the place of the file", with(encrypted("one"), "one", "1")),
        ("another one of these", with(encrypted("two"), "one", "1")),
    ] {
        assert_ne!(other.1, before.1, "{what}");
    }
    assert_ne!(with(encrypted("one"), "", "1").1, with(encrypted("two"), "", "1").1);
}

#[test]
fn what_this_device_cannot_run_says_why_and_its_neighbour_is_not_concerned() {
    let helm = document("helm", "oci://registry.invalid/app", "{}");
    let on_docker = |helm| resolve_on(&[ProfileType::Compose].into(), &|_| panic!(), helm, &envelope(&["x", "y"]));
    assert_eq!(code(&on_docker(&helm)[0]), "capability-missing");
    let unlocked = resolve(&compose("{}"), &envelope(&["y"]), "");
    assert_eq!(code(&unlocked[0]), "artifact-invalid");
    assert!(unlocked[1].input.is_ok());
    let mut envelope = envelope(&["x", "y"]);
    envelope.values_from.insert("password".to_owned(), from_file("nothing-here", "PASSWORD"));
    let missing = resolve(&compose("{}"), &envelope, "");
    assert_eq!(code(&missing[0]), "parameter-invalid");
    assert!(missing[0].input.as_ref().unwrap_err().message.contains("nothing-here"));
    assert!(missing[1].input.is_ok());
}

#[test]
fn what_a_profile_asks_is_judged_by_what_the_device_reports() {
    let device = r#"{"properties": {"id": "press-01", "vendor": "Acme", "modelNumber": "m", "serialNumber": "s",
            "cpus": [{"cores": 2, "architecture": "amd64"}], "memory": "8Gi"}, "labels": {"line": "2"}}"#;
    let device = DeviceCapabilities::read("capabilities.json", device.as_bytes()).unwrap();
    let judged = |constraints: &str, resources: serde_json::Value, known: bool| {
        let mut document = compose("{}");
        document.deployment.device_constraints = Some(serde_yaml::from_str(constraints).unwrap());
        let mut envelope = envelope(&["x", "y"]);
        envelope.required_resources = Some(resources);
        match requirements(&document, &envelope, known.then_some(&device)) {
            Requirements::Unmet(failure) => format!("{}: {}", failure.code, failure.message),
            other => format!("{other:?}"),
        }
    };
    let rule = |line: &str| {
        format!(
            "eligibilityRules: [{{labelSelector: {{matchExpressions: [{{key: line, operator: In, values: ['{line}']}}]}}}}]"
        )
    };
    let none = serde_json::json!({});
    assert_eq!(judged(&rule("2"), none.clone(), true), "Met");
    assert_eq!(judged(&rule("2"), none.clone(), false), "Unknown");
    assert_eq!(judged("{}", none.clone(), false), "Met", "nothing is asked for");
    assert_eq!(
        judged(&rule("3"), none.clone(), true),
        "capability-missing: it needs the label `line` In [\"3\"], and the device has \"2\""
    );
    let resources = serde_json::json!({"memory": "9Gi"});
    let text = judged(&rule("2"), resources, true);
    assert_eq!(text, "capability-missing: it needs 9Gi of memory, and the device has 8Gi");
    let text = judged("eligibilityRules: [{newSelector: {}}]", none.clone(), true);
    assert!(text.starts_with("capability-missing: what it asks of a device can't be judged here"), "{text}");
    let long = judged(&rule(&"x".repeat(5000)), none, true);
    assert!(long.len() < 1100, "{}", long.len());
}

#[test]
fn a_custom_deployment_is_its_own_failure() {
    let all = resolve(&document("custom", "oci://registry.invalid/app", "{}"), &envelope(&["x", "y"]), "");
    assert_eq!(code(&all[0]), "capability-missing");
    assert!(all[0].input.as_ref().unwrap_err().message.contains("custom"));
}

#[test]
fn a_chart_gets_typed_values_and_its_namespace_counts() {
    let parameters = "
    text: {value: \"1.10\", targets: [{pointer: 'image.tag', components: [x]}]}
    number: {value: 30, targets: [{pointer: 'list[0].n', components: [x]}]}
";
    let mut envelope = envelope(&["x", "y"]);
    envelope.values_from.insert("password".to_owned(), from_file("db-password", "auth.password"));
    let helm = |repository: &str| document("helm", repository, parameters);
    let (oci, https) = (helm("oci://registry.invalid/app"), helm("https://charts.invalid/stable"));
    let all = resolve(&oci, &envelope, "s3cret");
    let Kind::Helm { namespace, values, secrets } = &input(&all[0]).kind else { panic!("{:?}", all[0]) };
    let values: serde_json::Value = serde_yaml::from_slice(&values.to_yaml()).unwrap();
    let expected = serde_json::json!(
        {"image": {"tag": "1.10"}, "list": [{"n": 30}], "auth": {"password": "s3cret"}}
    );
    assert_eq!((namespace.as_str(), values, &secrets[..]), ("default", expected, &["s3cret".to_owned()][..]));
    assert!(!format!("{all:?}").contains("s3cret"));
    let digest = |document: &Document| input(&resolve(document, &envelope, "s3cret")[0]).input_digest;
    let mut elsewhere = oci.clone();
    elsewhere.deployment.namespace = "plant".to_owned();
    assert_ne!(digest(&oci), digest(&elsewhere));
    assert_eq!(digest(&oci), digest(&https), "where the same chart comes from doesn't count");
}

#[test]
fn a_device_file_does_not_replace_a_parameter() {
    let mut envelope = envelope(&["x", "y"]);
    envelope.values_from.insert("password".to_owned(), from_file("db-password", "TEXT"));
    assert_eq!(code(&resolve(&compose(PARAMETERS), &envelope, "s")[0]), "parameter-invalid");
}
