//! What real helm makes of the values: the same as of its own `--set`, whose paths pointers are.
#![allow(clippy::disallowed_methods, reason = "test files need no durability")]

use std::path::{Path, PathBuf};
use std::process::Command;

use repo_model::margo::HelmValues;
use repo_model::value::ParamValue;
use serde_json::Value;

/// A chart that says which values it got; another one for each helm.
fn chart(variable: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chart-for-{variable}"));
    std::fs::create_dir_all(dir.join("templates")).unwrap();
    for (file, text) in [
        ("Chart.yaml", "apiVersion: v2\nname: values\nversion: 1.0.0\n"),
        ("values.yaml", "image: {tag: \"1\", name: a}\nhosts: [{name: default}]\nreplicas: 1\n"),
        ("templates/values.yaml", "values: {{ toJson .Values | quote }}\n"),
    ] {
        std::fs::write(dir.join(file), text).unwrap();
    }
    dir
}

/// The values that the chart sees with these arguments of `helm template`.
fn seen(variable: &str, chart: &Path, args: &[String]) -> Value {
    let helm = std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is set: run the tests by `./justw test`"));
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("helm");
    let mut command = Command::new(helm);
    command.env("HOME", &home).args(["template", "values"]).arg(chart).args(args);
    let output = command.output().expect("helm");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("values: ")).unwrap_or_else(|| panic!("{text}"));
    serde_json::from_str(&serde_json::from_str::<String>(line).unwrap()).unwrap()
}

fn same_as_set(variable: &str) {
    let text = |text: &str| ParamValue::String(text.to_owned());
    let chart = chart(variable);
    let cases: &[&[(&str, ParamValue)]] = &[
        &[],
        &[("image.tag", text("1.10")), ("replicas", ParamValue::Integer(3)), ("half", ParamValue::Double(0.5))],
        &[("hosts[1].name", text("b")), ("hosts[0].name", text("a"))],
        &[("hosts[2].name", text("c")), ("matrix[0][2]", ParamValue::Integer(3))],
        &[(r"node\.selector.kubernetes\.io/arch", text("arm64")), (r"a\[0\]", ParamValue::Boolean(true))],
        &[("list", ParamValue::Array(vec![text("-v"), ParamValue::Integer(2)])), ("none", ParamValue::Array(vec![]))],
        &[("s.a", text("010")), ("s.b", text("yes")), ("s.c", text("1e3")), ("s.d", text("null")), ("s.e", text(""))],
        &[("s.a", text(" a: b #c")), ("s.b", text("a\nb\t\"c\"")), ("s.c", text("{{ .Values }}")), ("s.d", text("ä✓"))],
        &[
            ("whole", ParamValue::Double(30.0)),
            ("large", ParamValue::Integer(1 << 53)),
            ("neg", ParamValue::Integer(-1)),
        ],
    ];
    for (number, case) in cases.iter().enumerate() {
        let pairs = case.iter().map(|(pointer, value)| (*pointer, value));
        let file = chart.with_file_name(format!("{variable}-{number}.yaml"));
        std::fs::write(&file, HelmValues::new(pairs.clone()).unwrap().to_yaml()).unwrap();
        let by_file = ["--values".to_owned(), file.display().to_string()];
        let set = pairs.flat_map(|(pointer, value)| {
            ["--set-json".to_owned(), format!("{pointer}={}", serde_json::to_string(value).unwrap())]
        });
        let by_set: Vec<_> = set.collect();
        assert_eq!(seen(variable, &chart, &by_file), seen(variable, &chart, &by_set), "{case:?}");
    }
}

#[test]
fn helm_4_sees_what_set_would_have_set() {
    same_as_set("MARGO_TEST_HELM4");
}

#[test]
fn helm_3_sees_what_set_would_have_set() {
    same_as_set("MARGO_TEST_HELM3");
}
