//! The forms of `plan` and `validate` for reviews and pipelines, with what strangers wrote in them.

use serde_json::Value;
use xml::reader::{EventReader, XmlEvent};

use crate::remote;
use crate::reports::Reporter;
use crate::support::{Lab, SECOND};

/// What a device says its version is, as JSON has it.
const EVIL: &str = "0.1.9-`|</failure>\\n::error::[all is well](https://evil.example) @olga <b> ##[error] %0A";

/// A fleet in which two files are wrong, and a device is too old for what is new.
fn lab() -> Lab {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.publish_all();
    Reporter { lab: &lab, device: "press-01" }.status_with("press-01", ("installed", ""), EVIL, &[]);
    lab.write("deployments/second.yaml", format!("{SECOND}dependsOn: [hello]\n"));
    lab.write("deployments/third.yaml", SECOND.replace("id: second", "id: third").replace("greeting", "greting"));
    lab.write("devices/50% off, ü.yaml", "id: mill-01\nlabels: {line: 1}\n");
    lab.commit();
    lab
}

fn run(lab: &Lab, command: &str, form: &str) -> String {
    let ran = lab.run(&[command, "--output", form]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(!ran.out.chars().any(|c| c.is_control() && c != '\n'), "{}", ran.out);
    ran.out
}

#[test]
fn sarif_is_what_its_schema_asks_for_and_names_files_and_lines() {
    let lab = lab();
    let schema = std::fs::read_to_string(repo_testkit::root().join("fixtures/sarif/sarif-schema-2.1.0.json")).unwrap();
    // A pattern of it, of languages that nothing of ours names, has a bracket too many.
    let schema: Value = serde_json::from_str(&schema.replace("{2}]?$", "{2}$")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for command in ["validate", "plan"] {
        let log: Value = serde_json::from_str(&run(&lab, command, "sarif")).unwrap();
        let wrong: Vec<_> = validator.iter_errors(&log).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{wrong:?}\n{log:#}");
        let results = log["runs"][0]["results"].as_array().unwrap();
        let place = |uri: &str| {
            let found =
                results.iter().find(|one| one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri);
            found.map(|one| (one["ruleId"].clone(), one["locations"][0]["physicalLocation"]["region"].clone()))
        };
        let at = |line: u32, column: u32| serde_json::json!({ "startLine": line, "startColumn": column });
        assert_eq!(place("deployments/third.yaml"), Some(("fleet-invalid".into(), at(4, 23))), "{log:#}");
        assert_eq!(place("devices/50%25%20off%2C%20%C3%BC.yaml"), Some(("fleet-invalid".into(), at(2, 16))), "{log:#}");
        assert_eq!(place("devices/press-01.yaml"), Some(("syncer-too-old".into(), Value::Null)), "{log:#}");
        let text = results.iter().find(|one| one["ruleId"] == "syncer-too-old").unwrap()["message"]["text"].to_string();
        assert!(
            text.contains("on press-01: its syncer is version 0.1.9-") && !text.contains("[all is well]("),
            "{text}"
        );
    }
    // Where nothing is wrong there is a log all the same, which ends what was found before.
    let log = Lab::new().run(&["validate", "--output", "sarif"]).good();
    let log: Value = serde_json::from_str(&log).unwrap();
    assert!(validator.is_valid(&log) && log["runs"][0]["results"] == serde_json::json!([]), "{log:#}");
}

#[test]
fn format_is_another_word_for_output() {
    let lab = lab();
    for command in ["validate", "plan"] {
        for form in ["text", "json", "markdown", "sarif", "junit", "github"] {
            let of = |option: &str| {
                let ran = lab.run(&[command, option, form]);
                assert_eq!(ran.code, Some(1), "{command} {option} {form}: {}", ran.err);
                ran.out
            };
            assert_eq!(of("--format"), of("--output"), "{command} {form}");
        }
    }
}

#[test]
fn github_gets_one_command_a_line_and_nobody_elses() {
    let lab = lab();
    let out = run(&lab, "validate", "github");
    let commands: Vec<_> = out.lines().collect();
    assert_eq!(
        commands[0],
        "::error file=deployments/third.yaml,line=4,col=23,title=fleet-invalid::parameters.greting: hello has no parameter \
         `greting`%0Ahint: it has `greeting`, `interval`, `token`"
    );
    assert!(
        out.contains("\n::error file=devices/50%25 off%2C ü.yaml,line=2,col=16,title=fleet-invalid::labels.line: "),
        "{out}"
    );
    assert!(
        out.contains("\n::error file=devices/press-01.yaml,title=syncer-too-old::not published on press-01: "),
        "{out}"
    );
    assert!(
        commands.iter().all(|line| ["::error file=", "::warning file=", "::notice title="]
            .iter()
            .any(|begin| line.starts_with(begin))),
        "{out}"
    );
    assert!(!out.contains("%0A ") && out.contains("%250A"), "what a stranger escaped stays so: {out}");
    // The log holds nothing else that a stranger wrote, as a runner looks for commands there, too.
    let ran = lab.run(&["plan", "--output", "github"]);
    assert!(!ran.err.contains("syncer is version") && !ran.err.contains("greting"), "{}", ran.err);
    assert!(ran.out.ends_with("::notice title=wfm-git-publisher plan::2 devices to change, 0 unchanged, 1 not enrolled, 1 left as they are\n"), "{}", ran.out);
}

#[test]
fn junit_has_a_case_for_each_file_and_one_failure_where_something_is_wrong() {
    let lab = lab();
    let text = run(&lab, "validate", "junit");
    let (mut cases, mut failed, mut counted) = (Vec::new(), Vec::new(), None);
    for event in EventReader::from_str(&text) {
        let XmlEvent::StartElement { name, attributes, .. } = event.unwrap_or_else(|error| panic!("{error}: {text}"))
        else {
            continue;
        };
        let value = |key: &str| attributes.iter().find(|one| one.name.local_name == key).map(|one| one.value.clone());
        match name.local_name.as_str() {
            "testsuite" => counted = value("tests").zip(value("failures")),
            "testcase" => cases.push(value("name").unwrap()),
            "failure" => failed.push((cases.last().unwrap().clone(), value("type").unwrap())),
            other => assert!(["testsuites", "system-out"].contains(&other), "{other}: {text}"),
        }
    }
    let files = [
        "deployments/hello.yaml",
        "deployments/second.yaml",
        "deployments/third.yaml",
        "devices/50% off, ü.yaml",
        "devices/packer-01.yaml",
        "devices/press-01.yaml",
        "devices/press-02.yaml",
        "fleet.yaml",
    ];
    assert_eq!(cases, files);
    let failed: Vec<_> = failed.iter().map(|(file, kind)| (file.as_str(), kind.as_str())).collect();
    assert_eq!(failed, [(files[2], "fleet-invalid"), (files[3], "fleet-invalid"), (files[5], "syncer-too-old")]);
    assert_eq!(counted, Some(("8".to_owned(), "3".to_owned())));
}

#[test]
fn markdown_holds_no_strangers_markup() {
    let lab = lab();
    let page = run(&lab, "plan", "markdown");
    assert!(page.starts_with("`2 devices to change, 0 unchanged, 1 not enrolled, 1 left as they are`\n"), "{page}");
    assert!(page.contains("| **error** | `deployments/third.yaml:4:23` | `parameters.greting: hello has no parameter 'greting'`<br>`hint: "), "{page}");
    let row = page.lines().find(|line| line.contains("syncer is version")).unwrap();
    // Three cells, and all of the stranger's in one span of code.
    assert_eq!(row.replace("\\|", "").matches('|').count(), 4, "{row}");
    let outside: String = row.split('`').step_by(2).collect();
    assert_eq!(outside, "| **error** |  | <br> |", "{row}");
}

#[test]
fn a_page_for_a_review_ends_where_it_is_full_and_says_what_it_leaves_out() {
    let lab = Lab::new();
    for number in 0..700 {
        lab.write(
            &format!("devices/d-{number}.yaml"),
            format!("id: d-{number}\nlabels: {{line: {number}, \"{}\": x}}\n", "ü".repeat(60)),
        );
    }
    let ran = lab.run(&["validate", "--output", "markdown"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.len() > 50_000 && ran.out.len() <= 60_000, "{}", ran.out.len());
    let last = ran.out.lines().last().unwrap();
    assert!(
        last.starts_with("… and ") && last.ends_with(" more; `wfm-git-publisher validate` tells them all"),
        "{last}"
    );
}

/// What a page for a review names, with as many stars as it is wrong.
fn named(page: &str) -> usize {
    page.lines().filter(|line| line.starts_with("| **error**")).count()
}

#[test]
fn what_a_plan_names_for_reviews_it_names_for_programs() {
    let lab = lab();
    remote::write(&lab.repo("packer-01"), "desired", &remote::stranger(), "not the publisher's");
    let plan: Value = serde_json::from_str(&run(&lab, "plan", "json")).unwrap();
    let problems: Vec<_> = plan["problems"].as_array().unwrap().iter().collect();
    let errors = problems.iter().filter(|one| one["severity"] == "error");
    let places: Vec<_> = errors.map(|one| (one["file"].as_str().unwrap(), one["line"].as_u64())).collect();
    assert_eq!(places, [("deployments/third.yaml", Some(4)), ("devices/50% off, ü.yaml", Some(2))], "{plan:#}");
    assert!(problems[0]["message"].as_str().unwrap().contains("no parameter `greting`"), "{plan:#}");
    let devices = plan["devices"].as_array().unwrap();
    let of = |device: &str| devices.iter().find(|one| one["device"] == device).unwrap();
    let (failed, old) = (of("packer-01"), of("press-01"));
    assert_eq!((&failed["state"], &failed["blocked"][0]["code"]), (&"failed".into(), &"repository-unusable".into()));
    assert!(!failed["blocked"][0]["message"].as_str().unwrap().is_empty(), "{failed}");
    assert_eq!(old["blocked"][0]["code"], "syncer-too-old");
    assert_eq!(plan["blocked"], serde_json::json!([]));
    assert_eq!(named(&run(&lab, "plan", "markdown")), 4, "the same four");
}

#[test]
fn a_plan_tells_in_each_form_why_the_fleet_can_not_be_used() {
    let lab = lab();
    let good = lab.read("fleet.yaml");
    let line = good.lines().count() + 1;
    lab.write("fleet.yaml", format!("{good}polcy: {{}}\n"));
    lab.commit();
    let text = lab.run(&["plan"]);
    assert!(text.code == Some(1) && text.out.is_empty() && text.err.contains("polcy"), "{}{}", text.out, text.err);
    let plan: Value = serde_json::from_str(&run(&lab, "plan", "json")).unwrap();
    let problem = plan["problems"].as_array().unwrap().iter().find(|one| one["file"] == "fleet.yaml").unwrap();
    assert_eq!((&problem["severity"], &problem["line"]), (&"error".into(), &line.into()), "{plan:#}");
    assert_eq!((&plan["blocked"][0]["code"], &plan["devices"]), (&"fleet-invalid".into(), &serde_json::json!([])));
    let log: Value = serde_json::from_str(&run(&lab, "plan", "sarif")).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    let place = |one: &Value| one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "fleet.yaml";
    assert!(results.iter().any(|one| place(one) && one["ruleId"] == "fleet-invalid"), "{log:#}");
    let page = run(&lab, "plan", "markdown");
    assert!(page.contains(&format!("| **error** | `fleet.yaml:{line}:1` |")), "{page}");
    let suite = run(&lab, "plan", "junit");
    assert!(suite.contains("name=\"fleet.yaml\"") && suite.contains("type=\"fleet-invalid\""), "{suite}");
    let github = lab.run(&["plan", "--output", "github"]);
    let command = format!("::error file=fleet.yaml,line={line},col=1,title=fleet-invalid::polcy: ");
    assert!(github.out.lines().any(|line| line.starts_with(&command)), "{}", github.out);
    assert!(github.code == Some(1) && !github.err.contains("polcy"), "{}", github.err);
    // A fleet that isn't the one of this home can't be used either.
    let id = good.lines().find(|line| line.starts_with("id: ")).unwrap();
    lab.write("fleet.yaml", good.replace(id, "id: 11111111-2222-4333-8444-555555555555"));
    lab.commit();
    let plan: Value = serde_json::from_str(&run(&lab, "plan", "json")).unwrap();
    assert_eq!(plan["problems"][0]["file"], "fleet.yaml", "{plan:#}");
}
