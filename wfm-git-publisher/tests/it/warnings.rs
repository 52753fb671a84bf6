//! What is right by the rules and most likely a mistake is a warning.

use crate::support::Lab;

#[test]
fn labels_that_no_device_has_are_a_warning_with_those_that_there_are() {
    let lab = Lab::new();
    assert_eq!(lab.run(&["validate"]).err, "", "the example itself is beyond doubt");
    lab.edit("deployments/hello.yaml", "- matchLabels: {site: graz}", "- matchLabels: {site: gratz}");
    let ran = lab.run(&["validate"]);
    assert_eq!(ran.code, Some(0));
    let words = "warning: deployments/hello.yaml:12:5: targets[0]: fits no device\n\
                 hint: no device has the label `site: gratz`; there is `graz`\n";
    assert!(ran.err.contains(words), "{}", ran.err);
    // Whatever a device that can't be read has, it may be that.
    lab.edit("devices/press-01.yaml", "line: \"1\"", "line: 1");
    assert!(!lab.run(&["validate"]).err.contains("fits no device"));
}

#[test]
fn a_value_that_looks_like_a_secret_is_a_warning_that_does_not_repeat_it() {
    let lab = Lab::new();
    lab.edit(
        "deployments/hello.yaml",
        "greeting: hello from the press",
        "token: hunter2\n  greeting: hello from the press",
    );
    let ran = lab.run(&["validate"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(
        ran.err.contains("warning: deployments/hello.yaml:22:10: parameters.token: looks like a secret"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("valueFrom: {deviceFile: NAME}") && !ran.err.contains("hunter2"), "{}", ran.err);
    lab.edit("deployments/hello.yaml", "token: hunter2", "token: {valueFrom: {deviceFile: hello-token}}");
    lab.edit("deployments/hello.yaml", "hello from the press", "https://olga:hunter2@plant.example/");
    let ran = lab.run(&["validate"]);
    assert!(
        ran.err.contains("parameters.greeting: looks like a secret") && !ran.err.contains("hunter2"),
        "{}",
        ran.err
    );
}
