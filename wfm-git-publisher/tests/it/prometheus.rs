//! What is shipped for Prometheus and Grafana, judged by stock promtool and by what the host counts.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use wfm_git_host::accounts::Role;

use crate::host::Site;

const PAGE: &str = include_str!("../../../docs/metrics.md");

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/prometheus").join(name)
}

fn promtool(args: &[&str], file: &Path) -> Output {
    let mut command = Command::new("promtool");
    command.args(args).arg(file.file_name().unwrap()).current_dir(file.parent().unwrap());
    command.output().expect("promtool is installed: ./justw setup stack")
}

fn passes(output: &Output) {
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{said}");
}

/// Every metric of ours that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |one: char| one.is_ascii_alphanumeric() || one == '_';
    let words = text.split(|one: char| !is_part(one)).filter(|word| word.starts_with("wfm_"));
    words.map(|word| word.trim_end_matches("_bucket").to_owned()).collect()
}

/// The expressions of the dashboard.
fn expressions(dashboard: &Value) -> Vec<String> {
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_alert_rules_are_what_promtool_takes_and_fire_where_they_should() {
    passes(&promtool(&["check", "rules"], &shipped("rules.yaml")));
    passes(&promtool(&["test", "rules"], &shipped("rules.test.yaml")));
}

#[test]
fn rules_dashboard_and_page_name_what_the_host_counts() {
    let site = Site::new();
    let auditor = site.login("audit", Role::Auditor, None);
    // What was never counted isn't shown.
    site.get("/metrics", Some(&auditor));
    let shown = site.get("/metrics", Some(&auditor)).text();
    let families = shown.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let counted: BTreeSet<_> = families
        .map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
        .collect();
    assert!(counted.contains("wfm_refused_pushes_total"), "counters have their ending: {shown}");
    let dashboard = std::fs::read_to_string(shipped("dashboard.json")).unwrap();
    let alerts = std::fs::read_to_string(shipped("rules.yaml")).unwrap();
    assert_eq!(named(PAGE), counted);
    for text in [&dashboard, &alerts] {
        assert_eq!(named(text).difference(&counted).collect::<Vec<_>>(), [""; 0]);
    }
    // Prometheus reads each expression of the dashboard.
    let all = expressions(&serde_json::from_str(&dashboard).unwrap());
    assert!(all.len() > 10);
    let recorded: Vec<_> =
        all.iter().map(|expr| json!({ "record": "panel", "expr": expr, "labels": { "of": expr } })).collect();
    let file = site.lab.dir().join("panels.yaml");
    let rules = |rules: Value| json!({ "groups": [{ "name": "panels", "rules": rules }] }).to_string();
    std::fs::write(&file, rules(json!(recorded))).unwrap();
    passes(&promtool(&["check", "rules"], &file));
    std::fs::write(&file, rules(json!([{ "record": "panel", "expr": "sum(" }]))).unwrap();
    assert!(!promtool(&["check", "rules"], &file).status.success(), "it reads them");
}
