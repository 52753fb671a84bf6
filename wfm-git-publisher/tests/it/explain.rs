//! `explain` and `why-not`: the file, line and rule behind what a device gets.

use serde_json::Value;

use crate::support::Lab;

fn lab() -> Lab {
    let lab = Lab::with(&["press-01"]);
    lab.write(
        "fleet.yaml",
        lab.read("fleet.yaml")
            + "defaults:\n  parameters: {interval: 7}\n\
               groups: [{name: graz, when: {matchLabels: {site: graz}}, parameters: {interval: 8}}]\n",
    );
    lab.edit("deployments/hello.yaml", "hello from the press", "\"hello from {{ device.id }}\"");
    lab.write("devices/spare-01.yaml", "id: spare-01\nlabels: {site: linz}\n");
    lab.commit();
    lab
}

#[test]
fn each_value_has_a_file_a_line_and_a_rule() {
    let lab = lab();
    let text = lab.run(&["explain", "press-01", "hello"]).good();
    for line in [
        "press-01 (devices/press-01.yaml)",
        "  + hello (hello 1.0.0)",
        "a target means the device  [deployments/hello.yaml:12:5]",
        "profile hello-compose (named)  [applications/hello/1.0.0/margo.yaml:18:5]",
        "greeting: \"hello from press-01\" → GREETING in hello",
        "by the deployment's parameters: template hello from {{ device.id }}  [deployments/hello.yaml:22:13]",
        "interval: 8 → INTERVAL in hello",
        "by the fleet's group `graz`: 8",
        "over the fleet's defaults: 7",
        "over the package's default: 5  [applications/hello/1.0.0/margo.yaml:",
        "token: left out → TOKEN in hello",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let json = lab.run(&["explain", "press-01", "hello", "interval", "--output", "json"]).good();
    let json: Value = serde_json::from_str(&json).unwrap();
    let parameters = json["deployments"][0]["parameters"].as_array().unwrap();
    assert_eq!(parameters.len(), 1);
    assert_eq!(parameters[0]["said"][0]["rule"], "the fleet's group `graz`");
    assert_eq!(parameters[0]["said"][0]["place"]["file"], "fleet.yaml");
    assert!(parameters[0]["said"][0]["place"]["line"].as_u64().unwrap() > 1);
}

#[test]
fn the_reason_against_is_named() {
    let lab = lab();
    let ran = lab.run(&["why-not", "hello", "spare-01"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("- hello (hello 1.0.0)"), "{}", ran.out);
    assert!(
        ran.out.contains("no target: its label `site` is `linz`, not `graz`  [deployments/hello.yaml:12:5]"),
        "{}",
        ran.out
    );
    assert_eq!(lab.run(&["why-not", "hello", "press-01"]).code, Some(0), "it gets it");
    lab.edit("deployments/hello.yaml", "{{ device.id }}", "{{ device.labels.line }}");
    lab.edit(
        "deployments/hello.yaml",
        "# exclude:\n#   - matchLabels: {role: spare}",
        "exclude:\n  - devices: [press-02]",
    );
    lab.edit("devices/press-01.yaml", "  line: \"1\"", "  # line: \"1\"");
    lab.commit();
    let ran = lab.run(&["why-not", "hello", "press-02"]);
    assert!(ran.out.contains("`exclude` takes the device out again  [deployments/hello.yaml:18:5]"), "{}", ran.out);
    let ran = lab.run(&["why-not", "hello", "press-01"]);
    assert!(ran.out.contains("there is no `device.labels.line` here"), "{}", ran.out);
    for (args, message) in [
        (["why-not", "nothing", "press-01"], "no usable deployment in the fleet is of `nothing`"),
        (["why-not", "hello", "nobody"], "there is no usable device `nobody`"),
        (["explain", "press-01", "nothing"], "no usable deployment of this id"),
    ] {
        let error = lab.run(&args).failed(1);
        assert!(error.contains(message), "{error}");
    }
}
