//! Who can run what: by what devices verifiably report, rule by rule, and as a publish decides it.

use super::*;
use crate::reports::Reporter;

/// Four enrolled devices and one that isn't, each with something deployed that asks for nothing.
fn lab() -> Lab {
    let lab = Lab::with(&["press-01", "press-02", "packer-01", "spare-01"]);
    lab.run(&["app", "add", text(&package(&lab, "old", "1.0.0"))]).good();
    lab.run(&["app", "add", text(&package(&lab, "new", "1.1.0"))]).good();
    lab.write("devices/waits-01.yaml", "id: waits-01\n");
    lab.write("devices/spare-01.yaml", lab.read("devices/spare-01.yaml") + "labels: {site: graz}\n");
    lab.commit();
    lab.publish_all();
    lab
}

fn report(lab: &Lab, device: &str, memory: &str, types: &[&str]) {
    let capabilities = serde_json::json!({"properties": {
        "id": device, "vendor": "v", "modelNumber": "m", "serialNumber": "s", "memory": memory,
        "cpus": [{"cores": 2, "architecture": "amd64"}], "supportedDeploymentTypes": types,
    }});
    Reporter { lab, device }.status_with(
        device,
        ("installed", ""),
        "0.2.0",
        &[("capabilities.json", capabilities.to_string())],
    );
}

fn answers(lab: &Lab, package: &str) -> Value {
    let mut all = json(lab, &["app", "devices", package])["devices"].take();
    let by_id =
        all.as_array_mut().unwrap().iter_mut().map(|one| (one["device"].as_str().unwrap().to_owned(), one.take()));
    by_id.collect::<serde_json::Map<_, _>>().into()
}

#[test]
fn who_can_run_a_package_is_told_for_each_device_and_why_not() {
    let lab = lab();
    report(&lab, "press-01", "4Gi", &["compose"]);
    report(&lab, "press-02", "1Gi", &["helm"]);
    let found = answers(&lab, "counter@1.0.0");
    assert_eq!((&found["press-01"]["answer"], &found["press-01"]["profile"]), (&"yes".into(), &"small".into()));
    assert_eq!(found["press-02"]["answer"], "no");
    let reasons = found["press-02"]["against"][0]["reasons"].as_array().unwrap();
    assert!(reasons[0].as_str().unwrap().contains("the device runs helm"), "{reasons:?}");
    assert_eq!(reasons[1], "it needs 2Gi of memory, and the device has 1Gi");
    // Nobody who said nothing is taken for one that fits, whatever the profile asks.
    for package in ["counter@1.0.0", "hello@1.0.0"] {
        let found = answers(&lab, package);
        assert_eq!(found["packer-01"]["answer"], "unknown", "{package}");
        assert_eq!(found["packer-01"]["reasons"][0], "it hasn't reported its capabilities");
        assert_eq!(found["waits-01"]["answer"], "unknown");
        assert_eq!(found["waits-01"]["reasons"][0], "it isn't enrolled, and so reported no capabilities");
    }
    lab.edit("devices/press-01.yaml", "id: press-01\n", "id: press-01\nretired: keep-workloads\n");
    lab.commit();
    let found = answers(&lab, "counter@1.0.0");
    assert_eq!(
        (&found["press-01"]["answer"], &found["press-01"]["reasons"][0]),
        (&"no".into(), &"it is retired".into())
    );
    let page = lab.run(&["app", "devices", "counter@1.0.0"]).good();
    let expected = "press-02   no          -        -    small: it is a compose profile, and the device runs helm\n";
    assert!(page.contains(expected) && page.contains("  small: it needs 2Gi of memory"), "{page}");
    // The newest version, unless another is named.
    assert!(lab.run(&["app", "devices", "counter"]).good().starts_with("counter@1.1.0\n"));
    assert!(lab.run(&["app", "devices", "counter@9"]).failed(1).contains("hint: there is 1.0.0, 1.1.0"));
}

#[test]
fn what_a_device_has_already_counts_and_a_publish_agrees() {
    let lab = lab();
    report(&lab, "press-01", "4Gi", &["compose"]);
    report(&lab, "press-02", "1Gi", &["compose"]);
    let answer = |package: &str, device: &str| answers(&lab, package)[device].take();
    let deployed = |version: &str| {
        let deployment = format!(
            "id: counts\napplication: {{id: counter, version: {version}}}\nprofile: auto\ntargets: [{{devices: [press-01, press-02]}}]\n"
        );
        lab.write("deployments/counts.yaml", deployment);
        lab.commit();
        lab.publish();
    };
    deployed("1.0.0");
    // What the answer says is what comes.
    assert!(lab.documents("press-01").contains_key("counts") && !lab.documents("press-02").contains_key("counts"));
    let found = answer("counter@1.0.0", "press-01");
    assert_eq!((&found["answer"], &found["deployed"][0]["deployment"]), (&"yes".into(), &"counts".into()));
    assert_eq!((&found["deployed"][0]["version"], &found["deployed"][0]["state"]), (&"1.0.0".into(), &Value::Null));
    assert_eq!(answer("counter@1.0.0", "press-02")["deployed"], serde_json::json!([]));
    // Once it says that it is installed, it runs; and another version may come.
    let envelope = lab.json("press-01", "desired", "envelope.json");
    let counts =
        envelope["deployments"].as_object().unwrap().iter().find(|(_, one)| one["id"] == "counts").unwrap().0.clone();
    let document = format!(
        r#"{{"deploymentId":"{counts}","deviceId":"press-01","status":{{"state":"installed"}},"components":[{{"name":"counter","state":"installed"}}]}}"#
    );
    let capabilities = r#"{"properties": {"id": "press-01", "vendor": "v", "modelNumber": "m", "serialNumber": "s", "memory": "4Gi",
        "cpus": [{"cores": 2, "architecture": "amd64"}], "supportedDeploymentTypes": ["compose"]}}"#;
    let files =
        [(format!("deployments/{counts}.json"), document), ("capabilities.json".to_owned(), capabilities.to_owned())];
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let version = lab.json("press-01", "desired", "manifest.json")["manifestVersion"].as_u64().unwrap();
    Reporter { lab: &lab, device: "press-01" }.status_of("press-01", version, &files);
    assert_eq!(answer("counter@1.0.0", "press-01")["answer"], "runs");
    let found = answer("counter@1.1.0", "press-01");
    assert_eq!(
        (&found["answer"], &found["deployed"][0]["version"], &found["deployed"][0]["state"]),
        (&"yes".into(), &"1.0.0".into(), &"installed".into())
    );
    // The other way round.
    let page = lab.run(&["device", "apps", "press-01"]).good();
    let lines: Vec<_> = page.lines().collect();
    assert_eq!(lines.len(), 4, "{page}");
    assert!(
        lines[1].starts_with("counter@1.0.0  runs        small") && lines[1].ends_with("counts: 1.0.0 (installed)"),
        "{page}"
    );
    assert!(
        lines[2].starts_with("counter@1.1.0  yes         small") && lines[3].starts_with("hello@1.0.0    yes"),
        "{page}"
    );
    let all = json(&lab, &["device", "apps", "press-02"]);
    assert_eq!((&all["device"], &all["applications"][0]["answer"]), (&"press-02".into(), &"no".into()));
    assert!(lab.run(&["device", "apps", "press-99"]).failed(1).contains("no usable device `press-99`"));
}
