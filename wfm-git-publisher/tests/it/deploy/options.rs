//! By options, where nobody can be asked.

use super::*;
use crate::reports::Reporter;

const ALL: &[&str] = &[
    "deploy",
    "pump",
    "--targets",
    "site=linz,line in (1,2)",
    "--set",
    "interval=10",
    "--set",
    "ports=80, 443",
    "--set",
    "channel={{ device.id }}",
];

#[test]
fn what_is_answered_is_written_as_the_documentation_teaches_and_is_one_commit_of_that_file() {
    let lab = lab();
    lab.write("notes.txt", "mine");
    git(&lab.fleet, &["add", "notes.txt"]);
    let before = count(&lab).parse::<u32>().unwrap();
    let made = json(&lab, &[ALL, &["--yes"]].concat());
    let expected = r#"# yaml-language-server: $schema=../.schemas/deployment.json
# Pump\nid: evil: Pumps\u{1b}[2J\r\ntargets: []

# The identity of this deployment. Renaming the file changes nothing; another id is another deployment.
id: pump

# A package of this repository: applications/pump/1.0.0/margo.yaml
application: {id: pump, version: 1.0.0}

# Every device that any of these selects gets it.
targets:
  - matchLabels: {site: linz}
    matchExpressions: [{key: line, operator: In, values: ["1", "2"]}]

# Values for all of them. What isn't given here has the default of the package.
parameters:
  # Interval: Seconds between\u{2028}two strokes
  interval: 10
  # Mode
  # mode: "slow"
  # Channel (can't be changed once it is installed)
  channel: "{{ device.id }}"
  # Ports
  ports: [80,443]
"#;
    assert_eq!(committed(&lab, FILE), expected);
    assert_eq!((&made["text"], &made["committed"]), (&expected.into(), &true.into()));
    assert_eq!(made["devices"].as_array().unwrap().len(), 2);
    assert_eq!(made["plan"][0]["device"], "press-01");
    assert_eq!(
        (&made["questions"][2]["section"], &made["questions"][2]["immutable"]),
        (&"Network".into(), &true.into())
    );
    assert_eq!(made["questions"][0]["rule"]["maxValue"], 3600);
    assert_eq!(count(&lab).parse::<u32>().unwrap(), before + 1);
    assert_eq!(git(&lab.fleet, &["diff-tree", "-r", "--no-commit-id", "--name-only", "HEAD"]), FILE);
    assert_eq!(git(&lab.fleet, &["log", "-1", "--format=%an %s"]), "Olga pump: deploy pump@1.0.0");
    assert_eq!(crate::catalogue::stands(&lab).1, "A  notes.txt");
    lab.run(&["validate"]).good();
}

#[test]
fn without_a_person_and_without_yes_the_plan_is_shown_and_nothing_is_written() {
    let lab = lab();
    let before = crate::catalogue::stands(&lab);
    let ran = lab.run(ALL);
    assert!(ran.out.starts_with("pump: pump@1.0.0 on 2 devices: press-01, press-02\n"), "{}", ran.out);
    assert!(ran.out.contains("  press-01 isn't known to run it: it hasn't reported its capabilities\n"), "{}", ran.out);
    assert!(ran.out.contains("press-01, press-02: first desired state"), "{}", ran.out);
    let said = ran.failed(1);
    assert!(said.starts_with("warning: deployments/pump.yaml: on `press-01` and `press-02`: waits until"), "{said}");
    assert!(said.ends_with("\nerror: nothing is written\nhint: --yes writes it without asking\n"), "{said}");
    let shown = lab.run(&[ALL, &["--output", "json"]].concat());
    let json: Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!((shown.code, &json["committed"]), (Some(1), &false.into()));
    assert_eq!(crate::catalogue::stands(&lab), before);
    let said = refused(&lab, &["deploy", "pump", "--set", "channel=a", "--yes"]);
    assert!(said.contains("no devices are named") && said.contains("--targets 'site=graz"), "{said}");
}

#[test]
fn a_device_that_cant_run_it_is_named_with_every_reason() {
    let lab = lab();
    lab.publish_all();
    for (device, memory) in [("press-01", "4Gi"), ("press-02", "1Gi")] {
        let capabilities = serde_json::json!({"properties": {
            "id": device, "vendor": "v", "modelNumber": "m", "serialNumber": "s", "memory": memory,
            "cpus": [{"cores": 2, "architecture": "amd64"}], "supportedDeploymentTypes": ["compose"],
        }});
        let files = [("capabilities.json", capabilities.to_string())];
        Reporter { lab: &lab, device }.status_with(device, ("installed", ""), "0.2.0", &files);
    }
    let ran = lab.run(&[ALL, &["--yes"]].concat());
    let line = "  press-02 can't run it: small: it needs 2Gi of memory, and the device has 1Gi\n";
    assert!(ran.out.contains(line) && !ran.out.contains("press-01 can't"), "{}", ran.out);
    // The profile that is asked for doesn't fit, which `validate` refuses, too; `auto` leaves such a device out.
    let said = ran.failed(1);
    assert!(said.contains("deployments/pump.yaml: on `press-02`: the profile `small` doesn't fit"), "{said}");
    let made = json(&lab, &[ALL, &["--profile", "auto", "--yes"]].concat());
    assert_eq!((&made["devices"][0]["answer"], &made["devices"][1]["answer"]), (&"yes".into(), &"no".into()));
    assert!(committed(&lab, FILE).contains("\nprofile: auto\n"));
    lab.run(&["validate"]).good();
}

#[test]
fn values_come_from_files_too_and_a_device_is_named_by_its_id() {
    let lab = lab();
    lab.write(
        "../values.yaml",
        "interval: 20\nhidden: \"{{ device.id }}\"\nchannel: {valueFrom: {deviceFile: channel}}\n",
    );
    let args = ["deploy", "pump@1.0.0", "--name", "other", "--device", "press-01", "--device", "packer-01"];
    let values = ["--values", "../values.yaml", "--set", "interval=30", "--yes"];
    let ran = lab.run(&[&args[..], &values].concat()).good();
    assert!(ran.ends_with("deployments/other.yaml is committed\n"), "{ran}");
    let text = committed(&lab, "deployments/other.yaml");
    assert!(text.contains("\nid: other\n") && text.contains("\n  - devices: [press-01, packer-01]\n"), "{text}");
    let end =
        "  channel: {valueFrom: {deviceFile: \"channel\"}}\n  # Ports\n  # ports: …\n  hidden: \"{{ device.id }}\"\n";
    assert!(text.contains("\n  interval: 30\n") && text.ends_with(end), "{text}");
    lab.run(&["validate"]).good();
}

#[test]
fn what_was_cut_off_before_its_commit_is_completed_and_somebody_elses_file_is_left_alone() {
    let lab = lab();
    let args = [ALL, &["--yes"]].concat();
    lab.run(&args).good();
    let text = committed(&lab, FILE);
    git(&lab.fleet, &["reset", "--quiet", "--mixed", "HEAD~1"]);
    lab.write(FILE, text.clone() + "# mine\n");
    let said = refused(&lab, &args);
    assert!(said.contains("`deployments/pump.yaml` is there, not committed, and not what would be written"), "{said}");
    lab.write(FILE, &text);
    lab.run(&args).good();
    assert_eq!((committed(&lab, FILE), crate::catalogue::stands(&lab).1), (text, String::new()));
}

#[test]
fn where_the_fleet_is_hosted_or_its_home_is_elsewhere_it_says_so_and_commits_here() {
    let lab = lab();
    git(lab.dir(), &["clone", "--quiet", "--bare", "fleet", &lab.home.hosted_fleet().display().to_string()]);
    let said = lab.run(&[ALL, &["--yes"]].concat()).good();
    assert!(said.ends_with("deployments/pump.yaml is committed\nThen: git push\n"), "{said}");
    let ran = lab.run(&[
        "--home",
        "../none",
        "deploy",
        "pump",
        "--name",
        "b",
        "--targets",
        "*",
        "--set",
        "channel=b",
        "--yes",
    ]);
    assert!(ran.err.contains("there is no publisher's home here"), "{}", ran.err);
    assert!(ran.good().starts_with("b: pump@1.0.0 on 3 devices: "));
}
