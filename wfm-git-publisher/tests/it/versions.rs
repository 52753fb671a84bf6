//! Another version of a deployment on some devices: the same deployment there, by the other version's rules.

use serde_json::Value;

use crate::support::Lab;

/// `hello` in a second version, which calls `interval` `pause` and takes no number for the greeting.
fn lab() -> Lab {
    let lab = Lab::with(&["press-01", "press-02"]);
    let package = lab.read("applications/hello/1.0.0/margo.yaml");
    let package = package.replace("version: 1.0.0", "version: 1.1.0").replace("revision: 1.0.0", "revision: 1.1.0");
    lab.write("applications/hello/1.1.0/margo.yaml", package.replace("interval", "pause").replace("INTERVAL", "PAUSE"));
    lab.write(
        "deployments/hello.yaml",
        "id: hello\napplication: {id: hello, version: 1.0.0}\ntargets: [{matchLabels: {}}]\nparameters: {greeting: hi, \
         interval: 7}\noverrides:\n",
    );
    lab
}

fn overridden(lab: &Lab, with: &str) {
    lab.write("deployments/hello.yaml", lab.read("deployments/hello.yaml") + with);
    lab.commit();
}

const OTHER: &str = "- when: {devices: [press-02]}\n  application: {version: 1.1.0}\n  parameters: {pause: 9}\n";

#[test]
fn a_device_gets_another_version_of_the_same_deployment_and_keeps_its_identity() {
    let lab = lab();
    lab.write("deployments/hello.yaml", lab.read("deployments/hello.yaml").replace("overrides:\n", ""));
    lab.commit();
    lab.publish_all();
    let ids = |device: &str| {
        let envelope = lab.json(device, "desired", "envelope.json");
        envelope["deployments"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    let (before, one) = (ids("press-02"), lab.serial("press-01"));
    lab.write("deployments/hello.yaml", lab.read("deployments/hello.yaml") + "overrides:\n");
    overridden(&lab, OTHER);
    let plan = lab.run(&["plan"]).code;
    assert_eq!(plan, Some(3), "something is to be published");
    lab.publish_all();
    let [first, second] = ["press-01", "press-02"].map(|device| lab.documents(device)["hello"].clone());
    assert!(first.contains("revision: \"1.0.0\"") && first.contains("INTERVAL"), "{first}");
    assert!(
        second.contains("revision: \"1.1.0\"") && second.contains("PAUSE") && !second.contains("INTERVAL"),
        "{second}"
    );
    assert!([&first, &second].iter().all(|one| one.contains("value: hi")));
    assert_eq!((ids("press-02"), lab.serial("press-01")), (before, one), "the same deployment, and nobody else's");
    let text = lab.run(&["explain", "press-02", "hello"]).good();
    for line in
        ["+ hello (hello 1.1.0)", "overrides[0] gives it version 1.1.0  [deployments/hello.yaml:7:16]", "pause: 9"]
    {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!lab.run(&["explain", "press-01", "hello"]).good().contains("gives it version"));
    assert_eq!(lab.run(&["why-not", "hello", "press-02"]).code, Some(0), "it gets it");
    // A later override counts over an earlier one.
    overridden(&lab, "- when: {matchLabels: {}}\n  application: {version: 1.0.0}\n");
    lab.publish_all();
    assert!(lab.documents("press-02")["hello"].contains("revision: \"1.0.0\""));
}

#[test]
fn a_version_that_an_override_names_is_used_and_does_not_go() {
    let lab = lab();
    overridden(&lab, OTHER);
    let list: Value = serde_json::from_str(&lab.run(&["app", "list", "--output", "json"]).good()).unwrap();
    let used = |version: &str| {
        let all = list["applications"].as_array().unwrap();
        all.iter().find(|one| one["version"] == version).unwrap()["usedBy"].clone()
    };
    assert_eq!((used("1.0.0"), used("1.1.0")), (serde_json::json!(["hello"]), serde_json::json!(["hello"])));
    assert!(lab.run(&["app", "remove", "hello@1.1.0"]).failed(1).contains("is used by `hello`"));
}

#[test]
fn each_value_is_judged_by_the_version_that_it_is_for() {
    for (with, message) in [
        ("- when: {devices: [press-02]}\n  application: {version: 9.0.0}\n", "hello.yaml:7:16: "),
        ("- when: {devices: [press-02]}\n  application: {version: 9.0.0}\n", "there is `1.0.0`, `1.1.0`"),
        ("- when: {devices: [press-02]}\n  application: {id: hello, version: 1.1.0}\n", "application.id: unknown key"),
        ("- when: {devices: [press-02]}\n", "hello.yaml:6:3: "),
        ("- when: {devices: [press-02]}\n", "give it `parameters`, `application: {version: …}` or `restart`"),
        (
            "- when: {devices: [press-02]}\n  application: {version: 1.1.0}\n  parameters: {interval: 9}\n",
            "hello has no parameter `interval`",
        ),
        (
            "- when: {devices: [press-02]}\n  application: {version: 1.1.0}\n  parameters: {pause: soon}\n",
            "hello.yaml:8:23: ",
        ),
        ("- when: {devices: [press-02]}\n  parameters: {nothing: 1}\n", "hello has no parameter `nothing`"),
    ] {
        let lab = lab();
        overridden(&lab, with);
        let said = lab.run(&["validate"]).failed(1);
        assert!(said.contains(message), "{message}\n{said}");
    }
    let lab = lab();
    overridden(&lab, OTHER);
    let said = lab.run(&["validate"]);
    let text = format!("{}{}", said.out, said.err);
    let expected = "counts for nothing on devices with version `1.1.0`: it has no such parameter";
    assert!(said.code == Some(0) && text.contains(expected), "{text}");
}

#[test]
fn a_value_that_another_version_does_not_take_is_wrong_only_on_its_devices() {
    let lab = lab();
    let package = lab.read("applications/hello/1.1.0/margo.yaml");
    lab.write("applications/hello/1.1.0/margo.yaml", package.replace("maxLength: ", "maxLength: 1 # "));
    overridden(&lab, "- when: {devices: [press-02]}\n  application: {version: 1.1.0}\n");
    lab.publish();
    assert!(lab.documents("press-01").contains_key("hello"));
    assert!(!lab.documents("press-02").contains_key("hello"));
    let text = lab.run(&["why-not", "hello", "press-02"]);
    assert!(text.code == Some(1) && text.out.contains("deployments/hello.yaml:4:"), "{}", text.out);
}
