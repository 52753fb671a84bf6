//! The JSON Schemas for editors, checked by a validator that isn't ours against everything that our own reading takes.

use std::path::Path;

use jsonschema::Validator;
use repo_model::margo::ApplicationDescription;
use repo_model::yaml::{Limits, parse};
use serde_json::Value;
use wfm_git_publisher::config::{self, Config};
use wfm_git_publisher::fleet::{self, Content, SourceFile};
use wfm_git_publisher::operator::SKELETON;
use wfm_git_publisher::repos::work_tree;

use crate::support::Lab;

fn schema(kind: &str) -> Validator {
    let path = format!(".schemas/{kind}.json");
    let found = SKELETON.iter().find(|(name, _)| *name == path).map(|(_, text)| *text);
    let schema: Value = serde_json::from_str(found.unwrap_or(config::SCHEMA)).unwrap();
    assert!(jsonschema::meta::is_valid(&schema), "{path} is a schema itself");
    jsonschema::validator_for(&schema).unwrap()
}

fn kind(path: &str) -> &'static str {
    match path.split('/').next().unwrap() {
        "fleet.yaml" => "fleet",
        "devices" => "device",
        "deployments" => "deployment",
        "rollouts" => "rollout",
        "allowed" => "allowed",
        "tokens" => "token",
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
fn what_our_own_reading_takes_of_a_rollout_and_of_what_is_asked_for_the_schemas_take() {
    let policy = "{waves: [1, approve, 10%, {matchLabels: {site: graz}}, {devices: [a]}], bake: 5m, successThreshold: 50%, \
                  maxFailures: 2%, timeout: 1h, offlineAfter: 1h, disruptionBudget: {groupBy: [line], maxUnavailable: 1}}";
    for rule in ["none", "{}", "{maxFailures: 0}", policy] {
        let text = format!("id: 5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f20\nname: a\nrollout: {rule}\n");
        assert!(fleet::read(&[SourceFile::plain("fleet.yaml", text.as_str())]).fleet.is_some(), "{rule}");
        let errors: Vec<_> = schema("fleet").iter_errors(&json(text.as_bytes())).map(|one| one.to_string()).collect();
        assert!(errors.is_empty(), "{rule}: {errors:?}");
    }
    for ask in ["logs, deployment: b", "retry, deployment: b", "retry", "sync", "diagnostics"] {
        let text = format!("id: a\nask: {{number: 1, what: {ask}}}\n");
        assert!(fleet::read_device(&SourceFile::plain("devices/a.yaml", text.as_str())).is_ok(), "{ask}");
        assert!(schema("device").is_valid(&json(text.as_bytes())), "{ask}");
    }
    let text =
        "id: a\napplication: {id: a, version: \"1\"}\ntargets: []\noverrides: [{when: {devices: [b]}, restart: 2}]\n";
    assert!(schema("deployment").is_valid(&json(text.as_bytes())));
    let text = "id: a\npolicy: {site: {registries: {mirrors: {docker.io: [\"[::1]:5000/v/x\", m], \"r:1\": [a]}}}}\n";
    assert!(fleet::read_device(&SourceFile::plain("devices/a.yaml", text)).is_ok());
    assert!(schema("device").is_valid(&json(text.as_bytes())));
    for words in ["{}", "paused: true", "approved: 2\nresumed: 1\npromoted: true", "promoted: [press-07]"] {
        assert!(fleet::read_rollout(&SourceFile::plain("rollouts/1.yaml", words)).is_ok(), "{words}");
        assert!(schema("rollout").is_valid(&json(words.as_bytes())), "{words}");
    }
    let allowed = "reason: moved\ndevices: {line-2/press-01: {serial: 7, deployments: [hello, second]}}\n";
    assert!(fleet::read_allowance(&SourceFile::plain("allowed/1.yaml", allowed)).is_ok());
    assert!(schema("allowed").is_valid(&json(allowed.as_bytes())));
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
        (
            "fleet",
            "id: 5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f20\nname: a\ngroups: [{name: a, when: {devices: [a]}, applications: []}]\n",
        ),
        ("fleet", "id: 5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f20\nname: a\nrollout: all\n"),
        ("fleet", "id: 5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f20\nname: a\nrollout: {waves: [approve]}\n"),
        ("fleet", "id: 5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f20\nname: a\nrollout: {waves: [0%]}\n"),
        ("deployment", "id: a\napplication: {id: a, version: \"1\"}\ntargets: []\nrollout: {bake: 5}\n"),
        (
            "deployment",
            "id: a\napplication: {id: a, version: \"1\"}\ntargets: []\noverrides: [{when: {devices: [b]}, restart: 0}]\n",
        ),
        ("rollout", "paused: 1\n"),
        ("rollout", "promoted: press-07\n"),
        ("rollout", "approve: 1\n"),
        ("allowed", "reason: all of it\n"),
        ("allowed", "devices: {press-01: {serial: 7}}\n"),
        ("allowed", "devices: {press 01: {serial: 7, deployments: [hello]}}\n"),
        ("device", "id: a b\n"),
        ("device", "id: a\nask: {number: 0, what: sync}\n"),
        ("device", "id: a\nask: {number: 1, what: logs}\n"),
        ("device", "id: a\nask: {number: 1, what: sync, deployment: b}\n"),
        ("device", "id: a\npolicy: {site: {registries: {}}}\n"),
        ("device", "id: a\npolicy: {site: {registries: {mirrors: {}, plainHttp: [m.plant.local]}}}\n"),
        ("device", "id: a\npolicy: {site: {registries: {mirrors: {docker.io: []}}}}\n"),
        ("device", "id: a\npolicy: {site: {registries: {mirrors: {docker.io: [a, b, c, d, e]}}}}\n"),
        ("device", "id: a\npolicy: {site: {registries: {mirrors: {docker.io/a: [m.plant.local]}}}}\n"),
        ("device", "id: a\npolicy: {site: {registries: {mirrors: {docker.io: [\"oci://m.plant.local\"]}}}}\n"),
        ("device", "id: a\nlabels: {line: 1}\n"),
        ("device", "id: a\nlabels: {-line: a}\n"),
        ("device", "id: a\nlables: {}\n"),
        ("device", "id: a\nstatusKeys: [ssh-rsa AAAA]\n"),
        ("device", "id: a\nsshKeys: [ssh-dss AAAA]\n"),
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
fn what_a_profile_asks_is_the_same_to_the_schema_and_to_our_own_reading() {
    let schema = schema("application");
    let item = "itemSelector: {matchExpressions: [{key: /type, operator: In, values: [gpu]}]}";
    for (good, expression) in [
        (true, "operator: In, values: [a, b]"),
        (true, "operator: NotIn, values: [1, 2.5]"),
        (true, "operator: In, values: [true]"),
        (false, "operator: In, values: [a, 1]"),
        (false, "operator: In, values: [true, false]"),
        (false, "operator: In, values: []"),
        (false, "operator: In"),
        (false, &format!("operator: In, {item}")),
        (true, "operator: Exists"),
        (false, &format!("operator: Exists, {item}")),
        (true, "operator: Gt, values: [4Gi]"),
        (false, "operator: Gt, values: [1, 2]"),
        (true, &format!("operator: ContainsAll, {item}")),
        (true, &format!("operator: ContainsAny, {item}")),
        (true, "operator: ContainsAny, values: [a]"),
        (false, "operator: ContainsAny"),
        (false, &format!("operator: ContainsAny, values: [a], {item}")),
        (false, "operator: ContainsAll, itemSelector: {matchExpressions: []}"),
    ] {
        for (selector, key) in [("propertySelector", "/a"), ("labelSelector", "a")] {
            let text = format!(
                "id: a\nmetadata: {{name: a, version: \"1\"}}\ndeploymentProfiles:\n  - id: one\n    type: compose\n    \
                 components: [{{name: c, properties: {{repository: \"oci://r.example/c\", revision: 1.0.0}}}}]\n    \
                 deviceConstraints: {{eligibilityRules: [{{{selector}: {{matchExpressions: [{{key: {key}, \
                 {expression}}}]}}}}]}}\n"
            );
            let ours = ApplicationDescription::read("margo.yaml", text.as_bytes());
            assert_eq!(ours.is_ok(), good, "{expression}: {:?}", ours.err());
            assert_eq!(schema.is_valid(&json(text.as_bytes())), good, "{selector}: {expression}");
        }
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

/// The sample without the marks of its comments.
fn sample() -> String {
    let is_setting = |line: &&str| {
        !line.contains("$schema") && line[2..].trim_start().split(' ').next().is_some_and(|word| word.ends_with(':'))
    };
    let lines = config::SAMPLE.lines().filter(|line| line.starts_with("# "));
    lines.filter(is_setting).map(|line| format!("{}\n", &line[2..])).collect()
}

#[test]
fn the_schema_of_the_publishers_settings_takes_and_refuses_what_our_own_reading_does() {
    let validator = schema("publisher");
    let good = sample();
    assert!(good.contains("registries:") && good.contains("serve:") && good.contains("remote:"), "{good}");
    for text in [
        good.as_str(),
        "{}\n",
        "poll: 1h30m\n",
        "serve: {names: [\"2001:db8::1\", 192.0.2.1, a.example], listen: \"[::]:8443\", limits: {queue: 0, processesPerAccount: 1}}\n",
        "remote: {url: \"https://git.example/{device}.git\", secretVariable: TOKEN}\n",
        "remote: {url: \"ssh://git@git.example:2222/{device}.git\", sshCommand: [ssh, -F, a], identityFile: a}\n",
        "remote: {url: \"git@git.example:{device}.git\", sshCommand: ssh, provision: [a, b], provisionTimeout: 5s}\n",
        "remote: {url: \"git@git.example:{device}.git\", deviceUrl: \"ssh://a@b/{device}\", hostKeys: [ssh-rsa AAAAB3]}\n",
    ] {
        Config::parse("publisher.yaml", text.as_bytes()).unwrap();
        let value = json(text.as_bytes());
        let errors: Vec<_> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{text}: {errors:?}");
    }
    assert!(validator.is_valid(&Value::Null), "only comments are good, too");
    for text in [
        "registry: {}\n",
        "poll: 5\n",
        "poll: \"\"\n",
        "registries: {a: {user: me}}\n",
        "registries: {a: {plainHttp: \"yes\"}}\n",
        "serve: {listen: \"0.0.0.0:1\"}\n",
        "serve: {names: []}\n",
        "serve: {names: [\"https://a\"]}\n",
        "serve: {names: [a], listen: here}\n",
        "serve: {names: [a], keyFile: k}\n",
        "serve: {names: [a], caFile: k}\n",
        "serve: {names: [a], url: \"https://me@a\"}\n",
        "serve: {names: [a], limits: {queue: -1}}\n",
        "serve: {names: [a], limits: {connections: 0}}\n",
        "serve: {names: [a], limits: {waitSeconds: 3601}}\n",
        "remote: {url: \"https://git.example/fleet.git\"}\n",
        "remote: {url: \"https://{device}.example/fleet.git\"}\n",
        "remote: {url: \"https://git.example/{device}/{device}.git\"}\n",
        "remote: {url: \"https://git.example/{device}.git\", user: a}\n",
        "remote: {url: \"git@{device}.example:fleet.git\"}\n",
        "remote: {url: \"git@git.example:{device}.git\", deviceUrl: \"ssh://a@b/c\"}\n",
        "remote: {url: \"git@git.example:{device}.git\", sshCommand: []}\n",
        "remote: {url: \"git@git.example:{device}.git\", hostKeys: [here]}\n",
        "remote: {url: \"https://git.example/{device}.git\", secretFile: a, secretVariable: B}\n",
        "remote: {url: \"https://git.example/{device}.git\", connections: 65}\n",
        "remote: {url: \"https://git.example/{device}.git\", timeouts: {total: 5}}\n",
        "remote: {url: \"https://git.example/{device}.git\", timeouts: {all: 5s}}\n",
        "remote: {url: \"https://git.example/{device}.git\", pin: abc}\n",
    ] {
        assert!(Config::parse("publisher.yaml", text.as_bytes()).is_err(), "{text}");
        assert!(!validator.is_valid(&json(text.as_bytes())), "{text}");
    }
}

#[test]
fn the_publishers_settings_name_their_schema_and_the_command_prints_it() {
    let lab = Lab::new();
    let first = std::fs::read_to_string(lab.home.config()).unwrap();
    assert!(first.starts_with("# yaml-language-server: $schema=publisher.schema.json\n"), "{first}");
    let schema = lab.home.config().with_file_name("publisher.schema.json");
    assert_eq!(std::fs::read_to_string(&schema).unwrap(), lab.run(&["schema", "publisher"]).good());
    repo_git::durable::remove_file(&schema).unwrap();
    assert!(lab.run(&["schema", "--write"]).good().contains("publisher.schema.json"));
    assert!(schema.exists());
}
