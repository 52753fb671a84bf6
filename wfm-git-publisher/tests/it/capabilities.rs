//! What a device can run decides what it gets: `profile: auto`, sticky once chosen, and the trailer that says why.

use repo_model::Trailer;
use serde_json::{Value, json};

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
    report_of(lab, "press-01", &capabilities("press-01", memory, architecture, types));
}

fn capabilities(device: &str, memory: &str, architecture: &str, types: &[&str]) -> Value {
    json!({"properties": {
        "id": device, "vendor": "v", "modelNumber": "m", "serialNumber": "s", "memory": memory,
        "cpus": [{"cores": 2, "architecture": architecture}], "supportedDeploymentTypes": types,
    }})
}

fn report_of(lab: &Lab, device: &str, capabilities: &Value) {
    let files = [("capabilities.json", capabilities.to_string())];
    Reporter { lab, device }.status_with(device, ("installed", ""), "0.2.0", &files);
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
    assert_eq!(lab.trailer("press-01", Trailer::Cause), "the device's capabilities changed");
    assert_eq!(lab.git("press-01", &["log", "-1", "--format=%an", "desired"]), "wfm-git-publisher");
    report(&lab, "8Gi", "amd64");
    assert_eq!(lab.publish_all().published(), 0, "what it has still fits");
    report(&lab, "8Gi", "arm64");
    assert_eq!(lab.publish_all().published(), 1);
    assert_eq!(profile(&lab), ["large"], "what it had doesn't fit any more");
    assert_eq!(lab.trailer("press-01", Trailer::Cause), "the device's capabilities changed");
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
    let document = &lab.documents("press-01")["app"];
    assert!(document.contains("oci://r.example/small") && !document.contains("large"), "{document}");
}

#[test]
fn the_cause_of_a_commit_is_right_after_a_pass_that_could_not_do_everything() {
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
    assert_eq!(lab.trailer("press-01", Trailer::FleetCommit), broken);
    assert_eq!(lab.trailer("press-01", Trailer::Cause), "the device's capabilities changed");
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
    report(&lab, "4Gi", "amd64");
    lab.publish_all();
    assert_eq!(lab.documents("press-01").len(), 1);
    report(&lab, "2Gi", "amd64");
    let outcome = lab.publish();
    assert!(!outcome.is_complete());
    assert!(outcome.problems.to_string().contains("the profile `large` doesn't fit: it needs 4Gi"), "{outcome:?}");
    assert_eq!(lab.documents("press-01").len(), 1);
}

#[test]
fn what_a_profile_asks_keeps_it_from_a_device_that_reported_nothing() {
    let only_large = &PACKAGE[..PACKAGE.find("  - id: small").unwrap()];
    let rules = only_large.replace(
        "capacityRequirements: {memory: 4Gi}",
        "eligibilityRules: [{labelSelector: {matchExpressions: [{key: line, operator: DoesNotExist}]}}]",
    );
    let old = only_large
        .replace("deviceConstraints: {capacityRequirements: {memory: 4Gi}}", "requiredResources: {memory: 4Gi}");
    for (package, choice) in
        [(PACKAGE, "profile: large\n"), (PACKAGE, "profile: auto\n"), (&rules, "profile: large\n"), (&old, "")]
    {
        let lab = lab();
        lab.write("applications/app/1.0.0/margo.yaml", package);
        lab.edit("deployments/app.yaml", "profile: auto\n", choice);
        lab.commit();
        let outcome = lab.publish_all();
        let said = outcome.problems.to_string();
        assert!(said.contains("on `press-01`: waits until the device reports its capabilities"), "{choice}: {said}");
        assert!(lab.documents("press-01").is_empty(), "{choice}: {package}");
        let plan = lab.run(&["plan"]);
        assert!(plan.err.contains("waits until the device reports"), "{}{}", plan.out, plan.err);
        let why_not = lab.run(&["why-not", "app", "press-01"]);
        assert_eq!(why_not.code, Some(1), "{}", why_not.out);
        assert!(why_not.out.contains("waits until the device reports"), "{}", why_not.out);
        report(&lab, "4Gi", "amd64");
        assert_eq!(lab.publish_all().published(), 1);
        assert_eq!(lab.documents("press-01").len(), 1, "{choice}");
        assert_eq!(lab.trailer("press-01", Trailer::Cause), "the device's capabilities changed");
    }
}

#[test]
fn a_device_whose_report_was_lost_or_can_not_be_read_keeps_what_it_has() {
    let lab = Lab::with(&["press-01", "press-02"]);
    lab.remove("deployments/hello.yaml");
    let target = "targets: [{pointer: LEVEL, components: [large]}]";
    let package = format!("{PACKAGE}parameters:\n  level: {{value: info, {target}}}\n");
    lab.write("applications/app/1.0.0/margo.yaml", package);
    lab.write("deployments/app.yaml", DEPLOYMENT.replace("profile: auto", "profile: large"));
    lab.commit();
    lab.publish_all();
    let healthy = |lab: &Lab| {
        report(lab, "8Gi", "amd64");
        report_of(lab, "press-02", &capabilities("press-02", "8Gi", "amd64", &["compose"]));
    };
    healthy(&lab);
    lab.publish_all();
    let level = |device: &str| lab.documents(device)["app"].contains("debug");
    lab.git("press-01", &["update-ref", "-d", "refs/heads/status"]);
    lab.write(
        "deployments/app.yaml",
        DEPLOYMENT.replace("profile: auto", "profile: large\nparameters: {level: debug}"),
    );
    lab.commit();
    let outcome = lab.publish_all();
    assert!(outcome.problems.to_string().contains("on `press-01`: waits until the device reports"), "{outcome:?}");
    assert!(!level("press-01") && level("press-02"), "the host lost what the device said");
    healthy(&lab);
    lab.publish_all();
    assert!(level("press-01"));

    // What an earlier syncer said in words that Margo doesn't have.
    let mut odd = capabilities("press-01", "8Gi", "amd64", &["compose"]);
    odd["properties"]["cpus"][0]["cores"] = json!(1.5);
    odd["properties"]["interfaces"] = json!([{"type": "profinet"}]);
    report_of(&lab, "press-01", &odd);
    lab.edit("deployments/app.yaml", "level: debug", "level: trace");
    lab.commit();
    let said = lab.publish_all().problems.to_string();
    assert!(said.contains("on `press-01`: waits until the device reports capabilities that can be read"), "{said}");
    assert!(said.contains("is `profinet`, expected `ethernet` or"), "{said}");
    assert!(level("press-01") && lab.documents("press-02")["app"].contains("trace"));
    let status = lab.run(&["status"]);
    assert!(status.out.contains("press-02") && status.out.contains("profinet"), "{}{}", status.out, status.err);
}

/// A package that some vendors agreed on among themselves, beside what everybody can run.
#[test]
fn a_custom_profile_is_read_and_refused_where_it_is_deployed() {
    let lab = Lab::with(&["press-01"]);
    lab.remove("deployments/hello.yaml");
    let own = "  - id: own\n    type: custom\n    components: [{name: vm, properties: {repository: \"oci://r.example/vm\", \
               revision: 1.0.0}}]\n";
    let with_own = PACKAGE.replace("deploymentProfiles:\n", &format!("apiVersion: v1\ndeploymentProfiles:\n{own}"));
    lab.write("applications/app/1.0.0/margo.yaml", &with_own);
    lab.write("deployments/app.yaml", DEPLOYMENT.replace("profile: auto", "profile: own"));
    let said = lab.run(&["validate"]).failed(1);
    let expected =
        "deployments/app.yaml:3:10: profile: the profile `own` is of type `custom`, which no device of this fleet";
    assert!(said.contains(expected) && said.contains("name one of `large`, `small`, or `auto`"), "{said}");
    assert!(!said.contains("margo.yaml:"), "the package itself is good: {said}");
    lab.write("deployments/app.yaml", DEPLOYMENT);
    lab.commit();
    lab.publish_all();
    report(&lab, "2Gi", "amd64");
    lab.publish_all();
    assert_eq!(profile(&lab), ["small"], "`auto` never means it");
    let only_own = &with_own[..with_own.find("  - id: large").unwrap()];
    lab.write("applications/app/1.0.0/margo.yaml", only_own);
    for (choice, at) in
        [("profile: auto\n", "3:10: profile"), ("", "2:14: application"), ("profile: own\n", "3:10: profile")]
    {
        lab.write("deployments/app.yaml", DEPLOYMENT.replace("profile: auto\n", choice));
        let said = lab.run(&["validate"]).failed(1);
        assert!(
            said.contains(&format!("deployments/app.yaml:{at}: ")) && said.contains("`custom`"),
            "{choice}: {said}"
        );
        assert!(said.contains("add a compose or helm profile"), "{said}");
    }
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
