//! What a device can run decides what it gets: `profile: auto`, sticky once chosen, and the trailer that says why.

use serde_json::json;

use crate::reports::Reporter;
use crate::support::{BEGIN, Lab};

/// Two profiles: the first wants 4 GiB, the second anything with a processor.
const PACKAGE: &str = r#"
id: app
metadata: {name: App, version: 1.0.0}
deploymentProfiles:
  - id: large
    type: compose
    deviceConstraints: {capacityRequirements: {memory: 4Gi}}
    components: [{name: large, properties: {repository: "oci://r.example/large", revision: 1.0.0}}]
  - id: small
    type: docker-compose
    requiredResources: {cpu: {cores: 1, architectures: [amd64]}}
    components: [{name: small, properties: {repository: "oci://r.example/small", revision: 1.0.0}}]
"#;

const DEPLOYMENT: &str =
    "id: app\napplication: {id: app, version: 1.0.0}\nprofile: auto\ntargets: [{matchLabels: {}}]\n";

fn lab() -> Lab {
    let lab = Lab::with(&["press-01"]);
    lab.remove("deployments/hello.yaml");
    lab.write("applications/app/1.0.0/margo.yaml", PACKAGE);
    lab.write("deployments/app.yaml", DEPLOYMENT);
    lab.commit();
    lab
}

fn report(lab: &Lab, memory: &str, architecture: &str) {
    report_types(lab, memory, architecture, &["compose"]);
}

fn report_types(lab: &Lab, memory: &str, architecture: &str, types: &[&str]) {
    let capabilities = json!({"properties": {
        "id": "press-01", "vendor": "v", "modelNumber": "m", "serialNumber": "s", "memory": memory,
        "cpus": [{"cores": 2, "architecture": architecture}], "supportedDeploymentTypes": types,
    }});
    let device = Reporter { lab, device: "press-01" };
    let files = [("capabilities.json", capabilities.to_string())];
    device.status_with("press-01", ("installed", ""), "0.2.0", &files);
}

fn profile(lab: &Lab) -> Vec<String> {
    let envelope = lab.json("press-01", "desired", "envelope.json");
    let all = envelope["deployments"].as_object().unwrap().values();
    all.map(|one| one["profile"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_first_profile_that_fits_is_taken_and_kept() {
    let lab = lab();
    let outcome = lab.publish_all();
    assert!(outcome.problems.to_string().contains("on `press-01`: waits until the device reports"), "{outcome:?}");
    assert!(profile(&lab).is_empty(), "nothing is known of the device yet");
    report(&lab, "2Gi", "amd64");
    assert_eq!(lab.publish_all().published(), 1);
    assert_eq!(profile(&lab), ["small"]);
    assert_eq!(lab.trailer("press-01", "Cause"), "the device's capabilities changed");
    assert_eq!(lab.git("press-01", &["log", "-1", "--format=%an", "desired"]), "wfm-git-publisher");
    report(&lab, "8Gi", "amd64");
    assert_eq!(lab.publish_all().published(), 0, "what it has still fits");
    report(&lab, "8Gi", "arm64");
    assert_eq!(lab.publish_all().published(), 1);
    assert_eq!(profile(&lab), ["large"], "what it had doesn't fit any more");
    assert_eq!(lab.trailer("press-01", "Cause"), "the device's capabilities changed");
}

#[test]
fn a_device_whose_capabilities_change_all_the_time_is_followed_ever_more_rarely() {
    let lab = lab();
    lab.publish_all();
    let mut published = 0;
    for minute in (0..60).step_by(3) {
        let (memory, architecture) = if minute % 2 == 0 { ("8Gi", "arm64") } else { ("2Gi", "amd64") };
        report(&lab, memory, architecture);
        published += lab.publish_at(*BEGIN + minute * 60).published();
    }
    assert!((2..=7).contains(&published), "{published} commits in an hour");
    report(&lab, "2Gi", "amd64");
    lab.publish_at(*BEGIN + 30 * 3600);
    assert_eq!(profile(&lab), ["small"], "what it says last counts in the end");
}

#[test]
fn the_cause_is_told_rightly_after_a_pass_that_could_not_do_everything() {
    let lab = lab();
    lab.publish_all();
    report(&lab, "8Gi", "amd64");
    lab.publish_all();
    assert_eq!(profile(&lab), ["large"]);
    // A commit that changes nothing here, and can't be published as a whole.
    lab.write("deployments/broken.yaml", "id: broken\n");
    let broken = lab.commit();
    assert!(!lab.publish().is_complete());
    report(&lab, "2Gi", "amd64");
    assert!(!lab.publish().is_complete());
    assert_eq!(profile(&lab), ["small"]);
    assert_eq!(lab.trailer("press-01", "Fleet-Commit"), broken);
    assert_eq!(lab.trailer("press-01", "Cause"), "the device's capabilities changed");
}

#[test]
fn where_nothing_fits_nothing_comes_and_nothing_goes() {
    let lab = lab();
    lab.publish_all();
    report(&lab, "2Gi", "arm64");
    let outcome = lab.publish_all();
    let problems = outcome.problems.to_string();
    assert!(
        problems.contains("no profile fits (`large`: it needs 4Gi of memory, and the device has 2Gi."),
        "{problems}"
    );
    assert!(problems.contains("it needs a processor of amd64, and the device has arm64"), "{problems}");
    report(&lab, "4Gi", "arm64");
    lab.publish_all();
    assert_eq!(profile(&lab), ["large"]);
    report(&lab, "1Gi", "arm64");
    lab.publish_all();
    assert_eq!(profile(&lab), ["large"], "what a device has is never removed for its capabilities");
}

#[test]
fn a_named_profile_that_does_not_fit_is_an_error_for_that_device() {
    let lab = lab();
    lab.edit("deployments/app.yaml", "profile: auto", "profile: large");
    lab.commit();
    lab.publish_all();
    assert_eq!(lab.documents("press-01").len(), 1, "a device that says nothing is believed to fit");
    report(&lab, "2Gi", "amd64");
    let outcome = lab.publish();
    assert!(!outcome.is_complete());
    assert!(outcome.problems.to_string().contains("the profile `large` doesn't fit: it needs 4Gi"), "{outcome:?}");
    assert_eq!(lab.documents("press-01").len(), 1);
}

#[test]
fn a_device_gets_charts_where_it_says_that_it_runs_helm() {
    let lab = lab();
    let chart =
        "    components: [{name: chart, properties: {repository: \"oci://r.example/chart\", revision: 1.0.0}}]\n";
    let package = PACKAGE
        .replace("deploymentProfiles:\n", &format!("deploymentProfiles:\n  - id: chart\n    type: helm\n{chart}"));
    lab.write("applications/app/1.0.0/margo.yaml", package);
    lab.commit();
    let outcome = lab.publish_all();
    assert!(outcome.problems.to_string().contains("waits until the device reports"), "{outcome:?}");
    assert!(profile(&lab).is_empty(), "a chart asks nothing of a device but helm");
    report_types(&lab, "2Gi", "amd64", &["compose"]);
    lab.publish_all();
    assert_eq!(profile(&lab), ["small"]);
    report_types(&lab, "2Gi", "amd64", &["compose", "helm"]);
    assert_eq!(lab.publish_all().published(), 0, "what it has still fits");
    report_types(&lab, "2Gi", "amd64", &["helm"]);
    lab.publish_all();
    assert_eq!(profile(&lab), ["chart"]);
    assert!(lab.documents("press-01")["app"].contains("type: helm\n"));
    lab.edit("deployments/app.yaml", "profile: auto", "profile: small");
    lab.commit();
    let outcome = lab.publish();
    let said = outcome.problems.to_string();
    assert!(said.contains("`small` doesn't fit: it is a compose profile, and the device runs helm"), "{said}");
}

#[test]
fn what_a_device_lacks_and_what_was_chosen_for_it_is_explained() {
    let lab = lab();
    lab.publish_all();
    let why_not = |code: i32, expected: &[&str]| {
        let ran = lab.run(&["why-not", "app", "press-01"]);
        assert_eq!(ran.code, Some(code), "{}{}", ran.out, ran.err);
        expected.iter().for_each(|one| assert!(ran.out.contains(one), "{one}\n{}", ran.out));
    };
    why_not(1, &["- app (app 1.0.0)", "a target means the device", "waits until the device reports its capabilities"]);
    report(&lab, "2Gi", "arm64");
    why_not(
        1,
        &[
            "deployments/app.yaml:3:10: profile: no profile fits",
            "`large`: it needs 4Gi of memory, and the device has 2Gi",
            "`small`: it needs a processor of amd64, and the device has arm64",
        ],
    );
    report(&lab, "2Gi", "amd64");
    why_not(0, &["+ app (app 1.0.0)", "profile small (by `auto`, kept while it fits)"]);
    lab.publish_all();
    report(&lab, "8Gi", "amd64");
    let text = lab.run(&["explain", "press-01", "app"]).good();
    let place = "profile small (by `auto`, kept while it fits)  [applications/app/1.0.0/margo.yaml:9:5]";
    assert!(text.contains(place), "it has what it had: {text}");
    lab.edit("deployments/app.yaml", "profile: auto", "profile: large");
    lab.commit();
    report(&lab, "2Gi", "amd64");
    why_not(
        1,
        &["- app (app 1.0.0)", "the profile `large` doesn't fit: it needs 4Gi of memory, and the device has 2Gi"],
    );
}
