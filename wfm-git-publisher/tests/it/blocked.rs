//! What can't be published is told by every command, with a code, since when, and what to do; not in a log alone.

use serde_json::Value;

use wfm_git_host::accounts::Role;

use crate::host::Site;
use crate::support::{BEGIN, Lab, Ran, SECOND};

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap()
}

/// What `status` says can't be published for a device.
fn blocked(lab: &Lab, device: &str) -> Vec<Value> {
    let status = lab.run(&["status", device, "--output", "json"]);
    assert_eq!(status.code, Some(0), "{}", status.err);
    json(&status)["devices"][0]["blocked"].as_array().unwrap().clone()
}

#[test]
fn every_command_shows_an_archive_that_can_not_be_fetched_until_it_is_published() {
    let lab = Lab::with(&["press-01"]);
    // Before any publish nobody knows, so it is a difference like others.
    assert_eq!(lab.run(&["plan"]).code, Some(3));
    // No machine is called so.
    lab.run(&["publish"]).failed(1);
    let first = blocked(&lab, "press-01");
    let [one] = first.as_slice() else { panic!("{first:?}") };
    assert_eq!((&one["deployment"], &one["code"]), (&"hello".into(), &"artifact-unavailable".into()));
    assert!(one["message"].as_str().unwrap().contains("oci://registry.example/hello:1.0.0"), "{one}");
    assert!(one["hint"].as_str().unwrap().contains("push it with `app push`"), "{one}");
    let status = lab.run(&["status"]).good();
    let row = status.lines().find(|line| line.contains("artifact-unavailable")).unwrap();
    assert!(row.starts_with("press-01  hello  ") && row.contains("push it with `app push`"), "{status}");

    let plan = lab.run(&["plan"]);
    assert_eq!(plan.code, Some(1), "`publish` can't do it: {}", plan.out);
    assert!(
        plan.out.contains("! hello not published: cannot find out which bytes oci://registry.example/"),
        "{}",
        plan.out
    );
    assert_eq!(json(&lab.run(&["plan", "press-01", "--output", "json"]))["devices"][0]["blocked"][0], *one);
    let why = lab.run(&["why-not", "hello", "press-01"]);
    assert_eq!(why.code, Some(1), "{}", why.out);
    assert!(why.out.contains("not published: ") && why.out.contains("(artifact-unavailable since "), "{}", why.out);

    // The moment stays, whoever looks again.
    lab.run(&["publish"]).failed(1);
    assert_eq!(blocked(&lab, "press-01"), first);
    lab.publish_all();
    assert!(blocked(&lab, "press-01").is_empty());
    assert!(!lab.run(&["status"]).good().contains("Not published"));
    assert_eq!((lab.run(&["plan"]).code, lab.run(&["why-not", "hello", "press-01"]).code), (Some(0), Some(0)));
}

#[test]
fn every_command_shows_a_guard_that_holds_something_back() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.write("deployments/second.yaml", SECOND);
    lab.write("fleet.yaml", lab.read("fleet.yaml") + "guards: {deviceRemovals: 50%, fleetRemovals: 100%}\n");
    lab.commit();
    lab.publish_all();
    lab.take_everything_from_press_01();
    lab.edit("deployments/hello.yaml", "id: hello\n", "id: hello-anew\n");
    lab.commit();
    assert_eq!(lab.run(&["plan"]).code, Some(1), "it is known before anything is tried");
    lab.run(&["publish"]).failed(1);
    let of = |device| {
        blocked(&lab, device).into_iter().map(|one| one["code"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of("press-01"), ["removals-guarded"]);
    assert_eq!(of("packer-01"), ["removals-guarded"]);
    lab.run(&["publish", "--allow-removals"]).failed(1);
    assert_eq!((of("press-01"), of("packer-01")), (vec![], vec!["replacement-guarded".to_owned()]));
    let why = lab.run(&["why-not", "hello", "packer-01"]);
    assert!(why.code == Some(1) && why.out.contains("publish --allow-removals"), "{}", why.out);
    // A publish of one device says nothing of the others.
    lab.run(&["publish", "press-01"]).good();
    assert_eq!(of("packer-01"), ["replacement-guarded"]);
    lab.run(&["publish", "--allow-removals", "--allow-replace"]).good();
    assert!(of("packer-01").is_empty());
    assert_eq!(lab.run(&["plan"]).code, Some(0));
}

#[test]
fn what_is_wrong_in_the_fleet_or_keeps_everything_from_being_published_is_in_status_too() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    lab.edit("deployments/hello.yaml", "hello from the press", "\"{{ device.labels.nowhere }}\"");
    lab.commit();
    assert!(!lab.publish().is_complete());
    let found = blocked(&lab, "press-01");
    assert_eq!((&found[0]["deployment"], &found[0]["code"]), (&"hello".into(), &"fleet-invalid".into()));
    assert!(found[0]["message"].as_str().unwrap().contains("deployments/hello.yaml:22:13"), "{found:?}");
    // Nobody vouches for such a clock.
    assert!(lab.try_publish_at(*BEGIN + 90 * 86_400, false).is_err());
    let status = json(&lab.run(&["status", "--output", "json"]));
    assert_eq!(status["blocked"][0]["code"], "clock-wrong", "{status}");
    assert!(lab.run(&["status"]).good().contains("\n(all)     -           clock-wrong"));
    assert_eq!(blocked(&lab, "press-01").len(), 1, "what was known of a device stays known");
    lab.publish();
    assert_eq!(json(&lab.run(&["status", "--output", "json"]))["blocked"], Value::Array(vec![]));
}

#[test]
fn a_new_deployment_and_a_new_device_with_a_mistake_are_told_until_it_is_mended() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.publish_all();
    lab.write("deployments/lost.yaml", SECOND.replace("id: second", "id: lost").replace("greeting", "greting"));
    lab.write("devices/mill-09.yaml", "id: mill-09\nlabels: {line: 1}\n");
    lab.commit();
    lab.run(&["publish"]).failed(1);
    let of_fleet = || json(&lab.run(&["status", "--output", "json"]))["blocked"].clone();
    let firing = || {
        let listed = json(&lab.run(&["alert", "list", "--output", "json"]));
        let alerts = listed["alerts"].as_array().unwrap().iter();
        alerts.map(|one| one["subject"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let found = of_fleet();
    assert_eq!((found.as_array().unwrap().len(), &found[0]["deployment"]), (1, &"lost".into()), "{found}");
    assert_eq!((&found[0]["device"], &found[0]["code"]), (&Value::Null, &"fleet-invalid".into()));
    assert!(found[0]["message"].as_str().unwrap().starts_with("deployments/lost.yaml:4:23: "), "{found}");
    assert!(found[0]["since"].is_string(), "{found}");
    assert_eq!(blocked(&lab, "mill-09")[0]["code"], "fleet-invalid");
    let status = lab.run(&["status"]).good();
    let row = status.lines().find(|line| line.contains("deployments/lost.yaml:4:23")).expect(&status);
    assert!(row.starts_with("- ") && row.contains(" lost ") && row.contains(" fleet-invalid "), "{row}");
    assert!(!lab.run(&["device", "show", "press-01"]).good().contains("lost"), "it is none of that device's business");
    let [deployment, device] =
        ["fleet/deployments/lost/not-publishable/fleet-invalid", "devices/mill-09/not-publishable/fleet-invalid"];
    assert_eq!(firing(), [device, deployment]);
    // A publish of one device looks at the files, too.
    lab.run(&["publish", "press-01"]).failed(1);
    assert_eq!((of_fleet(), firing()), (found, vec![device.to_owned(), deployment.to_owned()]));

    let site = Site::on(lab, "");
    let auditor = site.login("audit", Role::Auditor, None);
    let text = site.get("/metrics", Some(&auditor)).text();
    assert!(text.contains("\nwfm_blocked{code=\"fleet-invalid\"} 2\n"), "{text}");

    let lab = &site.lab;
    lab.edit("deployments/lost.yaml", "greting", "greeting");
    lab.write("devices/mill-09.yaml", "id: mill-09\nlabels: {line: \"1\"}\n");
    lab.commit();
    lab.publish_all();
    let status = json(&lab.run(&["status", "--output", "json"]));
    assert_eq!(status["blocked"], Value::Array(vec![]));
    let listed = json(&lab.run(&["alert", "list", "--output", "json"]));
    assert_eq!(listed["alerts"], Value::Array(vec![]));
}

#[test]
fn what_a_device_keeps_of_a_deployment_with_a_mistake_is_told_once() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    lab.edit("deployments/hello.yaml", "version: 1.0.0", "version: 9.9.9");
    lab.write("devices/mill.yml", "id: mill-01\n");
    lab.commit();
    lab.run(&["publish"]).failed(1);
    let found = blocked(&lab, "press-01");
    assert_eq!((found.len(), &found[0]["deployment"]), (1, &"hello".into()), "{found:?}");
    let status = json(&lab.run(&["status", "--output", "json"]));
    let all = status["blocked"].as_array().unwrap();
    assert_eq!((all.len(), &all[0]["deployment"]), (1, &Value::Null), "{all:?}");
    assert!(all[0]["message"].as_str().unwrap().starts_with("devices/mill.yml: is not read"), "{all:?}");
}

#[test]
fn what_many_devices_lack_for_one_reason_is_one_line_for_people() {
    let devices: Vec<_> = (1..=12).map(|number| format!("line-{number:02}")).collect();
    let lab = Lab::with(&devices.iter().map(String::as_str).collect::<Vec<_>>());
    lab.edit("deployments/hello.yaml", "site: graz", "");
    lab.commit();
    assert!(!lab.publish_with(*BEGIN, &|_| Err("the registry is away".into())).is_complete());
    let status = lab.run(&["status"]).good();
    let (_, blocked) = status.split_once("\nNot published:\n").expect(&status);
    let rows: Vec<_> = blocked.lines().skip(1).collect();
    let named = devices[..10].join(", ");
    let expected = format!("12 devices: {named} and 2 more  hello       artifact-unavailable  ");
    assert!(rows.len() == 1 && rows[0].starts_with(&expected), "{blocked}");
    let status = json(&lab.run(&["status", "--output", "json"]));
    let all = status["devices"].as_array().unwrap().iter().filter(|one| one["blocked"].as_array().unwrap().len() == 1);
    assert_eq!(all.count(), 12);
    let show = lab.run(&["device", "show", "line-07"]).good();
    assert!(show.contains("\nline-07  hello       artifact-unavailable  "), "{show}");
}

#[test]
fn metrics_count_what_can_not_be_published() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    assert!(!lab.publish_with(*BEGIN - 60, &|_| Err("the registry is away".into())).is_complete());
    let site = Site::on(lab, "");
    let auditor = site.login("audit", Role::Auditor, None);
    let text = site.get("/metrics", Some(&auditor)).text();
    assert!(text.contains("\nwfm_blocked{code=\"artifact-unavailable\"} 2\n"), "{text}");
    assert!(text.contains("\nwfm_blocked{code=\"removals-guarded\"} 0\n"), "{text}");
    let seconds = text.lines().find_map(|line| line.strip_prefix("wfm_blocked_seconds ")).unwrap();
    assert!(seconds.parse::<i64>().unwrap() >= 60, "{text}");
}

/// Whatever `plan` would refuse once it is committed, `validate` refuses before.
#[test]
fn validate_accepts_nothing_that_plan_refuses() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.edit(
        "applications/hello/1.0.0/margo.yaml",
        "          schema: text",
        "          schema: text\n          immutable: true",
    );
    lab.commit();
    lab.publish_all();
    let good = lab.commit();
    let id = lab.read("fleet.yaml").lines().find(|line| line.starts_with("id: ")).unwrap().to_owned();
    type Edit = Box<dyn Fn(&Lab)>;
    let changes: [(&str, &str, Edit); 4] = [
        (
            "a value that can't change",
            "can't change once it is installed",
            Box::new(|lab| {
                lab.edit("deployments/hello.yaml", "greeting: hello from the press", "greeting: servus");
            }),
        ),
        (
            "another fleet",
            "the publisher's home is that of fleet",
            Box::new(move |lab| {
                lab.edit("fleet.yaml", &id, "id: 11111111-2222-4333-8444-555555555555");
            }),
        ),
        (
            "another deployment in its place",
            "would replace `hello`",
            Box::new(|lab| {
                lab.edit("deployments/hello.yaml", "id: hello\n", "id: hello-anew\n");
            }),
        ),
        (
            "too many removals",
            "would be removed, and the guard is",
            Box::new(|lab| {
                lab.write("fleet.yaml", lab.read("fleet.yaml") + "guards: {deviceRemovals: 0%}\n");
                lab.remove("deployments/hello.yaml");
            }),
        ),
    ];
    for (what, words, change) in changes {
        change(&lab);
        let validated = lab.run(&["validate"]);
        let commit = lab.commit();
        let planned = lab.run(&["plan"]);
        assert_eq!((what, planned.code), (what, Some(1)), "{}{}", planned.out, planned.err);
        assert!(validated.failed(1).contains(words), "{what}");
        assert!(lab.run(&["validate", "--rev", &commit]).failed(1).contains(words), "{what}");
        repo_testkit::git::git(&lab.fleet, &["reset", "--quiet", "--hard", &good]);
    }
    lab.run(&["validate"]).good();
    // In a clone without the home the files alone are checked, and that is said.
    repo_testkit::git::git(lab.dir(), &["clone", "--quiet", "fleet", "clone"]);
    let ran = lab.run_in(&lab.dir().join("clone"), &["validate"]);
    assert!(ran.code == Some(0) && ran.err.contains("there is no publisher's home here"), "{}{}", ran.out, ran.err);
}
