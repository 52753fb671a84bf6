//! The JSON Schemas for editors, checked by a validator that isn't ours against everything that our own reading takes.

use std::path::Path;

use jsonschema::Validator;
use repo_model::yaml::{Limits, parse};
use serde_json::Value;
use wfm_git_publisher::fleet::{self, Content, SourceFile};
use wfm_git_publisher::host::work_tree;
use wfm_git_publisher::operator::SKELETON;

use crate::support::Lab;

fn schema(kind: &str) -> Validator {
    let path = format!(".schemas/{kind}.json");
    let (_, text) = SKELETON.iter().find(|(name, _)| *name == path).unwrap();
    let schema: Value = serde_json::from_str(text).unwrap();
    assert!(jsonschema::meta::is_valid(&schema), "{path} is a schema itself");
    jsonschema::validator_for(&schema).unwrap()
}

fn kind(path: &str) -> &'static str {
    match path.split('/').next().unwrap() {
        "fleet.yaml" => "fleet",
        "devices" => "device",
        "deployments" => "deployment",
        _ => "application",
    }
}

fn json(bytes: &[u8]) -> Value {
    parse("f", bytes, &Limits::VENDOR).unwrap().to_json().unwrap()
}

#[test]
fn whatever_our_own_reading_takes_the_schemas_take() {
    let fleets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/fleets");
    let mut checked = 0;
    let skeleton = SKELETON.iter().filter(|(path, _)| path.ends_with(".yaml") && !path.contains("compose"));
    let mut all = vec![skeleton.map(|(path, text)| SourceFile::plain(*path, *text)).collect::<Vec<_>>()];
    all.extend(fleets.read_dir().unwrap().map(|case| work_tree(&case.unwrap().path().join("input")).unwrap()));
    for files in all {
        let problems = fleet::read(&files).problems;
        for file in files {
            let Content::Plain(bytes) = &file.content else { continue };
            if problems.errors().any(|problem| problem.file == file.path) {
                continue;
            }
            let value = json(bytes);
            let validator = schema(kind(&file.path));
            let errors: Vec<_> =
                validator.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect();
            assert!(errors.is_empty(), "{}: {errors:?}", file.path);
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked}");
}

#[test]
fn what_is_wrong_is_seen_by_the_schemas_too() {
    for (kind, text) in [
        ("fleet", "id: 5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f20\n"),
        ("fleet", "id: no-uuid\nname: a\n"),
        ("fleet", "id: 5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f20\nname: a\npolicy: {pol: 5s}\n"),
        ("fleet", "id: 5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f20\nname: a\npolicy: {poll: 5}\n"),
        ("fleet", "id: 5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f20\nname: a\nguards: {deviceRemovals: 101%}\n"),
        ("fleet", "id: 5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f20\nname: a\ngroups: [{name: a}]\n"),
        ("device", "id: a b\n"),
        ("device", "id: a\nlabels: {line: 1}\n"),
        ("device", "id: a\nlabels: {-line: a}\n"),
        ("device", "id: a\nlables: {}\n"),
        ("device", "id: a\nstatusKeys: [ssh-rsa AAAA]\n"),
        ("deployment", "id: A\napplication: {id: a, version: \"1\"}\ntargets: []\n"),
        ("deployment", "id: a\napplication: {id: a}\ntargets: []\n"),
        ("deployment", "id: a\napplication: {id: a, version: \"1\"}\n"),
        ("deployment", "id: a\napplication: {id: a, version: \"1\"}\ntargets: [{}]\n"),
        ("deployment", "id: a\napplication: {id: a, version: \"1\"}\ntargets: [{devices: [a], matchLabels: {}}]\n"),
        (
            "deployment",
            "id: a\napplication: {id: a, version: \"1\"}\ntargets: [{matchExpressions: [{key: a, operator: In}]}]\n",
        ),
        (
            "deployment",
            "id: a\napplication: {id: a, version: \"1\"}\ntargets: []\nparameters: {a: {valueFrom: {deviceFile: ../a}}}\n",
        ),
        ("deployment", "id: a\napplication: {id: a, version: \"1\"}\ntargets: []\nparameters: {a: {b: c}}\n"),
        ("application", "id: a\nmetadata: {name: a, version: \"1\"}\ndeploymentProfiles: []\n"),
    ] {
        assert!(!schema(kind).is_valid(&json(text.as_bytes())), "{kind}: {text}");
    }
}

#[test]
fn every_file_of_a_new_fleet_names_its_schema_and_the_command_prints_it() {
    let lab = Lab::new();
    for (path, text) in SKELETON.iter().filter(|(path, _)| path.ends_with(".yaml") && !path.contains("compose")) {
        let first = text.lines().next().unwrap();
        let named = first.strip_prefix("# yaml-language-server: $schema=").unwrap_or_else(|| panic!("{path}: {first}"));
        let file = lab.path(path).parent().unwrap().join(named);
        let printed = lab.run(&["schema", kind(path)]).good();
        assert_eq!(std::fs::read_to_string(file).unwrap(), printed, "{path}");
    }
    lab.remove(".schemas/fleet.json");
    assert!(lab.run(&["schema", "--write"]).good().contains(".schemas/fleet.json"));
    assert!(lab.path(".schemas/fleet.json").exists());
}
