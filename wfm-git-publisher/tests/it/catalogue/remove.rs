//! What is used stays.

use repo_testkit::git::git;

use super::*;

#[test]
fn a_version_that_nothing_uses_goes_with_one_commit() {
    let lab = Lab::new();
    lab.run(&["app", "add", text(&package(&lab, "vendor", "1.0.0"))]).good();
    lab.write("notes.txt", "mine");
    git(&lab.fleet, &["add", "notes.txt"]);
    let before = git(&lab.fleet, &["rev-parse", "HEAD"]);
    let said = lab.run(&["app", "remove", "counter@1.0.0", "--dry-run"]).good();
    assert!(said.contains("would be removed: applications/counter/1.0.0 (4 files)"), "{said}");
    assert_eq!(git(&lab.fleet, &["rev-parse", "HEAD"]), before);
    // Cut off before the commit.
    git(&lab.fleet, &["rm", "-r", "--quiet", "applications/counter"]);
    assert_eq!(json(&lab, &["app", "remove", "counter@1.0.0"])["files"], 4);
    assert_eq!(git(&lab.fleet, &["log", "-1", "--format=%s"]), "counter: remove version 1.0.0");
    assert!(!lab.path("applications/counter").exists());
    assert_eq!(stands(&lab).1, "A  notes.txt");
    let said = refused(&lab, &["app", "remove", "counter@1.0.0"]);
    assert!(said.contains("there is no package counter@1.0.0 in the fleet"), "{said}");
    lab.run(&["app", "remove", "counter"]).failed(1);
    lab.run(&["app", "remove", "counter@1/.."]).failed(2);
}

#[test]
fn what_a_deployment_or_a_group_needs_stays_and_who_needs_it_is_named() {
    let lab = Lab::new();
    let said = refused(&lab, &["app", "remove", "hello@1.0.0"]);
    assert!(said.contains("hello@1.0.0 is used by `hello` (deployments/hello.yaml)"), "{said}");
    // Of the two, what is committed and what will be, both count.
    lab.run(&["app", "add", text(&package(&lab, "vendor", "1.0.0"))]).good();
    let deployment = "id: counts\napplication: {id: counter, version: 1.0.0}\ntargets: [{matchLabels: {}}]\n";
    lab.write("deployments/counts.yaml", deployment);
    assert!(refused(&lab, &["app", "remove", "counter@1.0.0"]).contains("`counts` (deployments/counts.yaml)"));
    lab.commit();
    lab.remove("deployments/counts.yaml");
    assert!(refused(&lab, &["app", "remove", "counter@1.0.0"]).contains("`counts` (deployments/counts.yaml)"));
    lab.commit();
    // A file that can't be read may name it.
    lab.write("deployments/torn.yaml", "id: torn\napplication: {id: coun");
    assert!(refused(&lab, &["app", "remove", "counter@1.0.0"]).contains("can't be read: deployments/torn.yaml"));
    lab.remove("deployments/torn.yaml");
    let settings = lab.read("fleet.yaml");
    let group =
        "groups:\n- name: all\n  when: {matchLabels: {}}\n  applications: [counter]\n  parameters: {start: 3}\n";
    lab.write("fleet.yaml", format!("{settings}{group}"));
    lab.commit();
    lab.run(&["validate"]).good();
    let said = refused(&lab, &["app", "remove", "counter@1.0.0"]);
    assert!(said.contains("without counter@1.0.0 the fleet would be wrong") && said.contains("fleet.yaml:"), "{said}");
    lab.write("fleet.yaml", settings);
    lab.commit();
    lab.write("applications/counter/1.0.0/mine.txt", "not committed");
    let said = refused(&lab, &["app", "remove", "counter@1.0.0"]);
    assert!(said.contains("has changes that are not committed"), "{said}");
    lab.remove("applications/counter/1.0.0/mine.txt");
    lab.run(&["app", "remove", "counter@1.0.0"]).good();
    lab.run(&["validate"]).good();
}
