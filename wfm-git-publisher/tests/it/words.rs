//! What an operator can say, each fleet in memory: what is rendered of it, and what is wrong with it.

use std::collections::BTreeMap;

use repo_model::desired::Desired;
use repo_model::envelope::{Lock, ValueSource};
use repo_model::problem::Problems;
use repo_model::value::ParamValue;
use repo_model::{Digest, FileTree};
use wfm_git_publisher::fleet::{self, Content, Fleet, SourceFile};
use wfm_git_publisher::plan::{Change, DevicePlan, Numbers, plan};
use wfm_git_publisher::render::{Facts, Locks, Rendered, render, unresolved};

const SETTINGS: &str = "id: 5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f21\nname: words\ndata: {sites: [graz, linz]}\n";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAGjtmZt";

/// A fleet with one device `a`, these parameters of the package `app`, and these other files over that.
pub(crate) fn files(parameters: &str, others: &[(&str, &str)]) -> Vec<SourceFile> {
    let package = |id: &str, parameters: &str| {
        format!(
            "id: {id}\nmetadata: {{name: App, version: 1.0.0}}\ndeploymentProfiles:\n  - id: only\n    type: compose\n    \
             components: [{{name: c, properties: {{repository: \"oci://registry.example/{id}\", revision: 1.0.0}}}}]\n\
             {parameters}"
        )
    };
    let device = format!("id: a\ndata: {{port: 8080}}\nlabels: {{line: \"1\"}}\nstatusKeys: [{KEY}]\n");
    let mut files = BTreeMap::from([
        ("fleet.yaml", SETTINGS.to_owned()),
        ("devices/a.yaml", device),
        ("applications/app/1.0.0/margo.yaml", package("app", parameters)),
        ("applications/other/1.0.0/margo.yaml", package("other", OTHER)),
        ("deployments/app.yaml", deployment("app", "app", "")),
    ]);
    files.extend(others.iter().map(|(path, text)| (*path, (*text).to_owned())));
    files.into_iter().map(|(path, text)| SourceFile::plain(path, text)).collect()
}

const OTHER: &str = "parameters: {mode: {value: fast, targets: [{pointer: MODE, components: [c]}]}}\n";

/// Three parameters, of which `port` and `text` have rules.
pub(crate) const PARAMETERS: &str = "parameters:
  port: {value: 1, targets: [{pointer: PORT, components: [c]}]}
  text: {value: none, targets: [{pointer: TEXT, components: [c]}]}
  list: {targets: [{pointer: LIST, components: [c]}]}
configuration:
  sections:
    - {name: All, settings: [{parameter: port, name: Port, schema: port}, {parameter: text, name: Text, schema: text}]}
  schema:
    - {name: port, dataType: integer}
    - {name: text, dataType: string}
";

pub(crate) fn deployment(id: &str, application: &str, rest: &str) -> String {
    format!("id: {id}\napplication: {{id: {application}, version: 1.0.0}}\ntargets: [{{matchLabels: {{}}}}]\n{rest}")
}

pub(crate) fn read(files: &[SourceFile]) -> (Fleet, Problems) {
    let reading = fleet::read(files);
    (reading.fleet.unwrap_or_else(|| panic!("{}", reading.problems)), reading.problems)
}

fn on_a(fleet: &Fleet) -> Rendered {
    render(fleet, &fleet.devices[&"a".parse().unwrap()], Facts::default(), &Locks::new())
}

/// What every tag of the fleet means.
pub(crate) fn locks(fleet: &Fleet) -> Locks {
    let lock = Lock { manifest: Digest::of(b"m"), content: Digest::of(b"c") };
    let needed = unresolved(fleet, &|_| Some(Facts::default()), &Locks::new());
    let mut locks: Locks = needed.into_iter().map(|artifact| (artifact, lock)).collect();
    locks.learn(lock.content, repo_artifacts::Images::default());
    locks
}

/// What the device has once all of the fleet is published.
pub(crate) fn published(fleet: &Fleet, locks: &Locks) -> Desired {
    let device = &fleet.devices[&"a".parse().unwrap()];
    let rendered = render(fleet, device, Facts::default(), locks);
    let target = plan(&rendered, None, &FileTree::new(), &fleet.broken).target;
    let numbers = Numbers { serial: 1, manifest_version: 1 };
    repo_model::desired::read(&target.assemble(fleet.settings.id, &device.id, numbers, &FileTree::new()).tree).unwrap()
}

/// What the one deployment's parameter is on the device, or what is wrong with it.
fn value(parameter: &str, text: &str) -> Result<ParamValue, String> {
    let own = deployment("app", "app", &format!("parameters: {{{parameter}: {text}}}\n"));
    let (fleet, problems) = read(&files(PARAMETERS, &[("deployments/app.yaml", &own)]));
    let rendered = on_a(&fleet);
    let problems = format!("{problems}{}", rendered.problems());
    let deployment = rendered.deployments.values().next().ok_or(problems)?;
    Ok(deployment.document.parameters[parameter].value.clone())
}

#[test]
fn what_says_what_becomes_of_spaces_is_no_part_of_an_expression() {
    for text in
        ["{{ device.data.port }}", "{{- device.data.port }}", "{{device.data.port-}}", "{{+ device.data.port -}}"]
    {
        assert_eq!(value("port", &format!("\"{text}\"")), Ok(ParamValue::Integer(8080)), "{text}");
    }
    assert_eq!(value("port", "\"{{ -device.data.port }}\""), Ok(ParamValue::Integer(-8080)));
    assert_eq!(value("port", "\"{{- -device.data.port -}}\""), Ok(ParamValue::Integer(-8080)));
    let wrong = value("port", "\"{{- device.data.port | nosuch }}\"").unwrap_err();
    assert!(wrong.contains("deployments/app.yaml:4:44: parameters.port: unknown filter"), "{wrong}");
}

#[test]
fn whatever_makes_a_list_is_one_and_lists_have_a_limit() {
    let text = |text: &str| ParamValue::String(text.to_owned());
    for (template, expected) in [
        ("fleet.data.sites[:1]", vec![text("graz")]),
        ("fleet.data.sites + ['wels']", vec![text("graz"), text("linz"), text("wels")]),
        ("fleet.data.sites | reverse", vec![text("linz"), text("graz")]),
        ("range(2)", vec![ParamValue::Integer(0), ParamValue::Integer(1)]),
    ] {
        assert_eq!(value("list", &format!("\"{{{{ {template} }}}}\"")), Ok(ParamValue::Array(expected)), "{template}");
    }
    assert!(matches!(value("list", "\"{{ [1] * 10000 }}\""), Ok(ParamValue::Array(all)) if all.len() == 10_000));
    for (template, expected) in [
        ("[1] * 10001", "more than 10000 items"),
        ("['0123456789'] * 7000", "more than 65536 bytes"),
        ("[fleet.data.sites[:1]]", "a list of lists"),
    ] {
        let wrong = value("list", &format!("\"{{{{ {template} }}}}\"")).unwrap_err();
        assert!(wrong.contains(expected), "{template}: {wrong}");
    }
}

#[test]
fn a_shared_value_that_does_not_fit_is_wrong_where_it_counts_only() {
    let settings = format!(
        "{SETTINGS}defaults: {{parameters: {{port: any}}}}\ngroups:\n  - {{name: g, when: {{devices: [a]}}, parameters: \
         {{text: 5}}}}\n"
    );
    let own = |rest: &str| {
        let own = deployment("app", "app", rest);
        let (fleet, problems) = read(&files(PARAMETERS, &[("fleet.yaml", &settings), ("deployments/app.yaml", &own)]));
        assert!(problems.is_empty(), "{problems}");
        let rendered = on_a(&fleet);
        (rendered.deployments.len(), rendered.problems().to_string())
    };
    assert_eq!(own("parameters: {port: 1, text: ours}\n"), (1, String::new()));
    let (count, problems) = own("parameters: {port: 1}\n");
    assert!(count == 0 && problems.contains("fleet.yaml:6:") && problems.contains("is an integer"), "{problems}");
    assert!(!problems.contains("is a string"), "{problems}");
    let (count, problems) = own("");
    assert!(count == 0 && problems.contains("fleet.yaml:4:") && problems.contains("is a string"), "{problems}");
}

#[test]
fn a_group_names_applications_that_are_there_and_parameters_that_they_have() {
    let wrong = |group: &str| {
        let settings = format!("{SETTINGS}groups:\n  - {{name: g, when: {{devices: [a]}}, {group}}}\n");
        fleet::read(&files(PARAMETERS, &[("fleet.yaml", &settings)])).problems.to_string()
    };
    assert_eq!(wrong("applications: [app], parameters: {port: 1}"), "");
    assert_eq!(wrong("applications: [app, other], parameters: {mode: slow}"), "");
    for (group, expected) in [
        (
            "applications: [helo], parameters: {mode: a}",
            "fleet.yaml:5:52: groups[0].applications[0]: there is no usable package `helo`",
        ),
        ("applications: []", "fleet.yaml:5:51: groups[0].applications: names no application"),
        ("applications: [app], parameters: {mode: slow}", "no package of `app` has a parameter `mode`"),
        ("parameters: {mood: slow}", "no package in this fleet has a parameter `mood`"),
    ] {
        let problems = wrong(group);
        assert!(problems.contains(expected) && problems.lines().count() == 1, "{group}: {problems}");
    }
}

#[test]
fn everything_that_waits_in_a_circle_is_found_also_where_circles_overlap() {
    let waits = [("a", "[b, d]"), ("b", "[c]"), ("c", "[a]"), ("d", "[c]"), ("e", "[a]"), ("f", "[]")];
    let waits =
        waits.map(|(id, on)| (format!("deployments/{id}.yaml"), deployment(id, "app", &format!("dependsOn: {on}\n"))));
    let others: Vec<_> = waits.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let (fleet, problems) = read(&files(PARAMETERS, &others));
    let broken: Vec<_> = fleet.broken.deployments.iter().map(|id| id.as_str()).collect();
    assert_eq!(broken, ["a", "b", "c", "d"]);
    let told: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(told, ["waits for itself: a → b → c → a", "waits for itself: a → d → c → a"]);
}

#[test]
fn a_deployment_without_any_target_is_doubtful() {
    let own = deployment("app", "app", "").replace("[{matchLabels: {}}]", "[]");
    let (fleet, problems) = read(&files(PARAMETERS, &[("deployments/app.yaml", &own)]));
    assert!(!problems.has_errors() && fleet.deployments.len() == 1);
    assert!(problems.to_string().contains("deployments/app.yaml:3:10: targets: names no device"), "{problems}");
}

#[test]
fn one_status_key_belongs_to_one_device() {
    let other = format!("id: b\nstatusKeys: [{KEY}]\n");
    let (fleet, problems) = read(&files(PARAMETERS, &[("devices/b.yaml", &other)]));
    let expected = format!("devices/b.yaml:1:5: id: has the status key of `a` in devices/a.yaml: {KEY}");
    assert!(problems.to_string().contains(&expected), "{problems}");
    assert!(fleet.devices.is_empty() && fleet.broken.devices.len() == 2, "both are left as they are");
}

#[test]
fn the_keys_of_devices_at_the_host_are_read_and_belong_to_one_device() {
    let ecdsa = format!("ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBB{}", "A".repeat(87));
    let device = |id: &str, keys: &str| format!("id: {id}\nsshKeys: [{keys}]\n");
    let with = |text: &str| read(&files(PARAMETERS, &[("devices/b.yaml", text)]));
    let (fleet, problems) = with(&device("b", &format!("{KEY} b's key, {ecdsa}")));
    assert!(!problems.has_errors(), "{problems}");
    let b = &fleet.devices[&"b".parse().unwrap()];
    assert_eq!(b.ssh_keys.iter().map(|key| key.as_str()).collect::<Vec<_>>(), [KEY, &ecdsa]);
    assert!(!b.is_enrolled(), "another key than the one that signs reports");
    for (keys, expected) in [
        (format!("{KEY}, {KEY} again"), "twice"),
        ("ssh-dss AAAAB3NzaC1kc3M".to_owned(), "must be an Ed25519, ECDSA or RSA key"),
        ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI".to_owned(), "cut off or damaged"),
        (ecdsa.replace("nistp256 ", "nistp384 "), "cut off or damaged"),
        ("'command=\"sh\" ssh-ed25519 AAAA'".to_owned(), "sshKeys[0]"),
    ] {
        let (_, problems) = with(&device("b", &keys));
        assert!(problems.to_string().contains(expected), "{keys}: {problems}");
    }
    let twins = [("devices/b.yaml", &*device("b", &ecdsa)), ("devices/c.yaml", &device("c", &ecdsa))];
    let (_, problems) = read(&files(PARAMETERS, &twins));
    assert!(problems.to_string().contains("has the SSH key of `b` in devices/b.yaml"), "{problems}");
}

const IMMUTABLE: &str = "parameters:
  site: {%targets: [{pointer: SITE, components: [c]}]}
configuration:
  sections: [{name: All, settings: [{parameter: site, name: Site, schema: text, immutable: true}]}]
  schema: [{name: text, dataType: string}]
";

#[test]
fn an_immutable_parameter_that_was_left_out_stays_out() {
    let read = |default: &str, revision: &str, own: &str| {
        let own = deployment("app", "app", own);
        let mut files = files(&IMMUTABLE.replace('%', default), &[("deployments/app.yaml", &own)]);
        for file in files.iter_mut().filter(|file| file.path.starts_with("applications/app")) {
            let Content::Plain(bytes) = &file.content else { continue };
            let text = String::from_utf8_lossy(bytes).replace("revision: 1.0.0", &format!("revision: {revision}"));
            *file = SourceFile::plain(file.path.clone(), text);
        }
        self::read(&files).0
    };
    let installed = read("", "1.0.0", "");
    let locks = locks(&installed);
    let device = &installed.devices[&"a".parse().unwrap()];
    let parent = published(&installed, &locks);
    let then = |fleet: Fleet| {
        let facts = Facts { parent: Some(&parent), ..Facts::default() };
        render(&fleet, &fleet.devices[&device.id], facts, &locks).problems().to_string()
    };
    assert_eq!(then(read("", "1.0.0", "")), "");
    let problem = then(read("", "1.0.0", "parameters: {site: graz}\n"));
    assert!(problem.contains("deployments/app.yaml:4:20: parameters.site: can't change once it is installed: it is nothing, and would be \"graz\""), "{problem}");
    assert_eq!(then(read("value: graz, ", "1.0.0", "")), "", "the package's own word may be about a new parameter");
    assert_eq!(then(read("", "1.1.0", "parameters: {site: graz}\n")), "", "so may one with other components");
}

#[test]
fn a_file_of_the_device_may_be_the_value_of_a_group_and_of_the_defaults() {
    let settings = |defaults: &str, group: &str| {
        format!(
            "{SETTINGS}defaults: {{parameters: {{text: {defaults}}}}}\ngroups:\n  - {{name: g, when: {{matchLabels: {{line: \
             \"1\"}}}}, parameters: {{{group}}}}}\n"
        )
    };
    let from = |name: &str| format!("{{valueFrom: {{deviceFile: {name}}}}}");
    let text = |settings: String, own: &str| {
        let own = deployment("app", "app", own);
        let (fleet, problems) = read(&files(PARAMETERS, &[("fleet.yaml", &settings), ("deployments/app.yaml", &own)]));
        assert!(problems.is_empty(), "{problems}");
        let rendered = on_a(&fleet);
        assert!(rendered.left.is_empty(), "{}", rendered.problems());
        let one = rendered.deployments.into_values().next().unwrap();
        let literal = one.document.parameters.get("text").map(|one| one.value.text());
        let file = one.envelope.values_from.get("text").map(|from| {
            assert_eq!((from.targets[0].pointer.as_str(), from.targets[0].components.len()), ("TEXT", 1));
            let ValueSource::DeviceFile(name) = &from.source else { panic!("{from:?}") };
            name.clone()
        });
        (literal, file)
    };
    let (literal, file) = (|text: &str| (Some(text.to_owned()), None), |name: &str| (None, Some(name.to_owned())));
    assert_eq!(text(settings(&from("fleet"), ""), ""), file("fleet"));
    assert_eq!(text(settings(&from("fleet"), "text: group"), ""), literal("group"));
    assert_eq!(text(settings("fleet", &format!("text: {}", from("group"))), ""), file("group"));
    assert_eq!(text(settings(&from("fleet"), ""), "parameters: {text: own}\n"), literal("own"));
    assert_eq!(text(settings("fleet", ""), &format!("parameters: {{text: {}}}\n", from("own"))), file("own"));
    let wrong = settings(&from("../secret"), "");
    let problems = fleet::read(&files(PARAMETERS, &[("fleet.yaml", &wrong)])).problems.to_string();
    assert!(problems.contains("fleet.yaml:4:") && problems.contains("is not the bare name of a file"), "{problems}");
}

/// A fleet of the deployments `app`, of the package of that name, and `base`, of another one.
fn pair(app: &str, base: Option<&str>) -> Fleet {
    let app = deployment("app", "app", app);
    let base = base.map(|rest| deployment("base", "other", rest));
    let mut others = vec![("deployments/app.yaml", app.as_str())];
    others.extend(base.iter().map(|text| ("deployments/base.yaml", text.as_str())));
    read(&files(PARAMETERS, &others)).0
}

/// What is planned for the device that has the first of these fleets, when it becomes the second.
fn planned(before: Option<&Fleet>, after: &Fleet, locks: &Locks) -> DevicePlan {
    planned_over(before.map(|before| published(before, &self::locks(before))).as_ref(), after, locks)
}

/// The same for the device that has this.
fn planned_over(parent: Option<&Desired>, after: &Fleet, locks: &Locks) -> DevicePlan {
    let rendered = render(after, &after.devices[&"a".parse().unwrap()], Facts { parent, ..Facts::default() }, locks);
    plan(&rendered, parent, &FileTree::new(), &after.broken)
}

/// What is planned, as `id: what is different`, and what stays.
pub(crate) fn told(plan: &DevicePlan) -> (Vec<String>, Vec<&str>) {
    let tell = |change: &Change| {
        let what: Vec<_> = change.differences.iter().map(|one| one.what.as_str()).collect();
        format!("{} {}: {}", change.kind.as_str(), change.name, what.join(", "))
    };
    let resolved = plan.changes.iter().filter(|change| change.unresolved.is_empty());
    (resolved.map(tell).collect(), plan.kept.iter().map(|name| name.as_str()).collect())
}

/// Parameters that can't be rendered on the device.
const WRONG: &str = "parameters: {port: \"{{ device.data.nosuch }}\"}\n";

#[test]
fn what_is_waited_for_stays_as_long_as_what_waits_for_it() {
    let before = pair("dependsOn: [base]\n", Some(""));
    let after = pair(WRONG, None);
    let plan = planned(Some(&before), &after, &locks(&before));
    assert_eq!(told(&plan), (vec![], vec!["app", "base"]));
    assert_eq!(plan.target.deployments.len(), 2);
    let expected = "deployments/app.yaml:1:5: id: is left as it is and waits for `base`, which stays for that";
    assert!(plan.problems().to_string().contains(expected), "{}", plan.problems());
    let mended = planned(Some(&before), &pair("", None), &locks(&before));
    assert_eq!(told(&mended), (vec!["change app: after".to_owned(), "remove base: ".to_owned()], vec![]));
}

/// As earlier versions of this program could publish it.
#[test]
fn what_waits_for_something_that_was_never_there_holds_nobody_up() {
    let before = pair("dependsOn: [base]\n", Some(""));
    let mut parent = published(&before, &locks(&before));
    let base = |name: &str| name == "base";
    parent.deployments.retain(|id, _| !base(parent.envelope.deployments[id].id.as_str()));
    parent.envelope.deployments.retain(|_, one| !base(one.id.as_str()));
    let plan = planned_over(Some(&parent), &pair(WRONG, None), &locks(&before));
    assert_eq!(told(&plan), (vec![], vec!["app"]));
    assert_eq!(plan.target.deployments.len(), 1);
}

#[test]
fn nothing_comes_before_what_it_waits_for_can_come() {
    let fleet = pair("dependsOn: [base]\n", Some(""));
    let mut known = locks(&fleet);
    known.retain(|artifact, _| !artifact.to_string().contains("/other"));
    let plan = planned(None, &fleet, &known);
    assert!(plan.target.deployments.is_empty(), "{plan:?}");
    assert_eq!((told(&plan), plan.problems().0.len()), ((vec![], vec!["app", "base"]), 0));
    let plan = planned(None, &fleet, &locks(&fleet));
    assert_eq!(plan.target.deployments.len(), 2);
}

#[test]
fn what_is_new_does_not_wait_for_itself_by_what_stays() {
    let before = pair("", Some("dependsOn: [app]\n"));
    let wrong = "parameters: {mode: \"{{ device.data.nosuch }}\"}\n";
    let plan = planned(Some(&before), &pair("dependsOn: [base]\n", Some(wrong)), &locks(&before));
    assert_eq!(told(&plan), (vec![], vec!["app", "base"]));
    let expected = "deployments/app.yaml:4:13: dependsOn[0]: would wait for itself on this device: app → base → app";
    assert!(plan.problems().to_string().contains(expected), "{}", plan.problems());

    // The same, for as long as the registry can't be asked.
    let turned = pair("dependsOn: [base]\n", Some(""));
    let mut known = locks(&turned);
    known.retain(|artifact, _| !artifact.to_string().contains("/other"));
    let plan = planned(Some(&before), &turned, &known);
    assert_eq!((told(&plan), plan.problems().0.len()), ((vec![], vec!["app", "base"]), 0));
    assert!(plan.is_unresolved() && plan.target.deployments.values().any(|one| !one.policy.depends_on.is_empty()));
    let all = ["change app: after".to_owned(), "change base: after".to_owned()];
    assert_eq!(told(&planned(Some(&before), &turned, &locks(&turned))), (all.into(), vec![]));
}

#[test]
fn what_can_not_be_changed_can_be_suspended() {
    let (before, after) = (pair("", None), pair(&format!("{WRONG}suspended: true\n"), None));
    let plan = planned(Some(&before), &after, &locks(&before));
    assert_eq!(told(&plan), (vec!["change app: suspended".to_owned()], vec!["app"]));
    assert!(plan.target.deployments.values().all(|one| one.policy.suspended) && !plan.target.new_manifest);
    let suspended = pair("suspended: true\n", None);
    let plan = planned(Some(&suspended), &pair(WRONG, None), &locks(&before));
    assert!(plan.target.deployments.values().all(|one| !one.policy.suspended), "{plan:?}");
}
