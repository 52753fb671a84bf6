//! Changes go to devices wave by wave: what is published when, what is remembered, and what never goes at once.

#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

mod budget;
mod emergency;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use repo_model::Trailer;
use serde_json::Value;
use wfm_git_publisher::publish::Outcome;

use crate::reports::Reporter;
use crate::support::{BEGIN, Lab, SECOND, after, copy};
use crate::up_to_date::{hide, planned, show};

const DEVICES: [&str; 5] = ["press-01", "press-02", "press-03", "press-04", "press-05"];

/// For how long a device must be well, in seconds, and a little more.
const BAKE: i64 = 62;

pub(crate) const FIRST: &str = "hello from the press";

/// Five devices that run the first version of everything, in a fleet with three waves, of one, three and all devices.
pub(crate) fn lab() -> Lab {
    lab_with(&[("fleet.yaml", "rollout: {waves: [1, 3], bake: 60s}\n")])
}

/// The same with these files, or these lines at the end of files.
fn lab_with(lines: &[(&str, &str)]) -> Lab {
    let lab = Lab::with(&DEVICES);
    for (path, text) in lines {
        let before = if lab.path(path).exists() { lab.read(path) } else { String::new() };
        lab.write(path, before + text);
    }
    for path in ["deployments/hello.yaml", "deployments/second.yaml"].into_iter().filter(|path| lab.path(path).exists())
    {
        lab.edit(path, "matchLabels: {site: graz}", "matchLabels: {}");
    }
    lab.commit();
    let outcome = lab.publish_all();
    assert_eq!(outcome.published(), DEVICES.len(), "what comes to a device that has nothing comes at once");
    assert!(numbers(&lab).is_empty());
    lab
}

/// Changes what `hello` says.
pub(crate) fn change(lab: &Lab, from: &str, to: &str) {
    lab.edit("deployments/hello.yaml", &format!("greeting: {from}"), &format!("greeting: {to}"));
    lab.commit();
}

/// Which devices have a deployment whose document has this in it.
fn have(lab: &Lab, deployment: &str, text: &str) -> Vec<&'static str> {
    let has = |device: &&str| lab.documents(device).get(deployment).is_some_and(|document| document.contains(text));
    DEVICES.into_iter().filter(has).collect()
}

/// The numbers of the rollouts that are remembered.
fn numbers(lab: &Lab) -> BTreeSet<u32> {
    let files = lab.control(&["ls-tree", "-r", "--name-only", "control"]);
    files.lines().filter_map(|path| path.strip_prefix("rollouts/")?.split('/').next()?.parse().ok()).collect()
}

/// What is remembered of a rollout.
fn state(lab: &Lab, number: u32) -> Value {
    serde_json::from_str(&lab.control(&["show", &format!("control:rollouts/{number}/state.json")])).unwrap()
}

/// The deployments of a rollout, and everybody whom it released so far.
fn released(state: &Value) -> (BTreeSet<&str>, BTreeSet<&str>) {
    fn texts(list: &Value) -> impl Iterator<Item = &str> {
        list.as_array().unwrap().iter().map(|one| one.as_str().unwrap())
    }
    let waves = state["waves"].as_array().unwrap().iter();
    (texts(&state["deployments"]).collect(), waves.flat_map(|wave| texts(&wave["devices"])).collect())
}

/// The device says that it adopted the newest state, and that each of its deployments is in this state, or what it lost is
/// removed.
pub(crate) fn reports(lab: &Lab, device: &str, state: &str) {
    let error = match state {
        "failed" => r#","error":{"code":"apply-failed","message":"it did not work"}"#,
        _ => "",
    };
    let reporter = Reporter { lab, device };
    let manifest = lab.json(device, "desired", "manifest.json");
    let ids = manifest["deployments"].as_array().unwrap().iter();
    let documents: Vec<_> = ids
        .map(|one| {
            let id = one["deploymentId"].as_str().unwrap();
            let document = format!(
                r#"{{"deploymentId":"{id}","deviceId":"{device}","status":{{"state":"{state}"{error}}},
                   "components":[{{"name":"hello","state":"{state}"{error}}}]}}"#
            );
            (format!("deployments/{id}.json"), document)
        })
        .collect();
    let documents: Vec<_> = documents.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    reporter.status_of(device, manifest["manifestVersion"].as_u64().unwrap(), &documents);
}

fn all_report(lab: &Lab) {
    DEVICES.iter().for_each(|device| reports(lab, device, "installed"));
}

/// The decisions in the ledger, the oldest first.
fn decisions(lab: &Lab) -> Vec<String> {
    let format = "--format=%(trailers:key=Decision,valueonly,separator=%x2C)";
    let log = lab.control(&["log", "--reverse", format, "control"]);
    log.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[track_caller]
fn publish(lab: &Lab, second: i64) -> Outcome {
    let outcome = lab.publish_at(second);
    assert!(outcome.is_complete(), "{outcome:?}");
    outcome
}

/// Why nothing is published for a device.
fn refused(outcome: &Outcome, device: &str) -> String {
    let result = &outcome.devices[&device.parse().unwrap()];
    result.as_ref().err().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn a_plan_says_the_same_of_a_rollout_whether_devices_are_opened_or_the_fleet_tells_what_they_have() {
    let lab = lab();
    assert_eq!(lab.run(&["publish"]).code, Some(0));
    let home = lab.dir().join("home");
    copy(lab.home.root(), &home);
    change(&lab, FIRST, "servus");
    DEVICES.iter().for_each(|device| hide(&lab, device));
    let told = planned(&lab);
    assert!(told.0.contains("releases wave 1") && told.0.matches("\"heldBack\": [\n").count() == 4, "{told:?}");
    copy(&home, lab.home.root());
    fs::remove_file(lab.home.up_to_date()).unwrap();
    assert_eq!(planned(&lab), told);
}

#[test]
fn what_is_held_back_is_not_opened_to_be_held_back_and_a_plan_says_the_same_as_if_it_were() {
    let lab = lab();
    assert_eq!(lab.run(&["publish"]).code, Some(0));
    change(&lab, FIRST, "servus");
    let plan: Value = serde_json::from_str(&planned(&lab).0).unwrap();
    let is_held = |device: &&str| {
        let mut all = plan["devices"].as_array().unwrap().iter();
        all.any(|one| one["device"] == **device && one["state"] == "unchanged")
    };
    let held: Vec<_> = DEVICES.into_iter().filter(is_held).collect();
    assert_eq!(held.len(), 4, "{plan}");
    held.iter().for_each(|device| hide(&lab, device));
    let published = lab.run(&["publish"]);
    assert_eq!(published.code, Some(0), "{}", published.err);
    let same_if_opened = || {
        let (told, index) = (planned(&lab), fs::read(lab.home.up_to_date()).unwrap());
        held.iter().for_each(|device| show(&lab, device));
        fs::remove_file(lab.home.up_to_date()).unwrap();
        assert_eq!(planned(&lab), told);
        held.iter().for_each(|device| hide(&lab, device));
        fs::write(lab.home.up_to_date(), index).unwrap();
        told.0
    };
    assert_eq!(same_if_opened().matches("\"heldBack\": [\n").count(), 4);
    change(&lab, "servus", "griaß di");
    let next = same_if_opened();
    // One device has what the others never had.
    assert_eq!((next.matches("griaß di").count(), next.matches("servus").count()), (5, 1), "{next}");
    let published = lab.run(&["publish"]);
    assert_eq!(published.code, Some(0), "{}", published.err);
    held.iter().for_each(|device| show(&lab, device));
    assert!(held.iter().all(|device| lab.serial(device) == 1), "the same device is the first one again");
}

#[test]
fn a_change_goes_to_one_device_and_to_others_once_that_is_well() {
    let lab = lab();
    change(&lab, FIRST, "servus");
    let plan = lab.run(&["plan"]);
    assert!(plan.out.contains("rollout: starts 1: hello on 5 devices; waves 1, 3, rest\n"), "{}", plan.out);
    assert!(plan.out.contains("1 device to change, 4 unchanged, 4 held back by rollouts"), "{}", plan.out);
    let _ = plan.failed(3);
    assert!(numbers(&lab).is_empty(), "a plan decides nothing");

    let outcome = publish(&lab, *BEGIN);
    let first = have(&lab, "hello", "servus");
    assert_eq!((first.len(), outcome.published()), (1, 1));
    let message = lab.message(first[0], "desired");
    assert_eq!((message.get(Trailer::Rollout), message.get(Trailer::Cause)), (Some("1 1"), None));
    // What waits is no difference that a script has to do something about.
    let plan = lab.run(&["plan"]);
    assert!(plan.out.contains("= hello: held back: change\n"), "{}", plan.out);
    assert!(plan.out.contains("0 devices to change, 5 unchanged, 4 held back by rollouts"), "{}", plan.good());

    publish(&lab, *BEGIN);
    reports(&lab, first[0], "installed");
    let said = publish(&lab, *BEGIN + BAKE - 4).rollouts.unwrap();
    assert_eq!(have(&lab, "hello", "servus"), first, "it has to be well for a minute");
    assert!(said.decided.is_empty() && said.to_text().contains("1 waits for 1 device"), "{}", said.to_text());
    let said = publish(&lab, *BEGIN + BAKE).rollouts.unwrap();
    assert!(said.to_text().starts_with("rollout: 1 releases wave 2: "), "{}", said.to_text());
    let second = have(&lab, "hello", "servus");
    assert_eq!(second.len(), 3);

    // Another commit that is about nothing of it doesn't disturb it, and what is released names the one that asked for it.
    let asked = state(&lab, 1)["fleetCommit"].as_str().unwrap().to_owned();
    lab.commit();
    all_report(&lab);
    publish(&lab, *BEGIN + 2 * BAKE);
    assert_eq!(have(&lab, "hello", "servus").len(), 5);
    let last = DEVICES.into_iter().find(|device| !second.contains(device)).unwrap();
    let message = lab.message(last, "desired");
    assert!(message.get(Trailer::Deployment).is_some_and(|line| line.ends_with(&asked)), "{message}");
    assert!(
        message.get(Trailer::FleetCommit).is_some_and(|commit| commit != asked)
            && message.get(Trailer::Cause).is_none()
    );
    all_report(&lab);
    let said = publish(&lab, *BEGIN + 3 * BAKE).rollouts.unwrap();
    assert!(said.unfinished.is_empty() && state(&lab, 1)["state"] == "done", "{said:?}");
    assert_eq!(decisions(&lab), ["start", "release 1", "release 2", "release 3", "finish"]);
    assert_eq!(DEVICES.map(|device| lab.serial(device)), [2; 5]);
    assert_eq!(publish(&lab, *BEGIN + 3 * BAKE).rollouts.unwrap().to_text(), "");
    assert!(lab.is_unchanged_at(*BEGIN + 3 * BAKE));
}

#[test]
fn a_plan_says_what_a_rollout_supersedes_and_a_publish_when_to_look_again() {
    let lab = lab();
    change(&lab, FIRST, "servus");
    publish(&lab, *BEGIN);
    let said = publish(&lab, *BEGIN + 1).rollouts.unwrap();
    let first = have(&lab, "hello", "servus")[0];
    let whom = format!("({first}: updating: didn't adopt it yet)");
    let again = format!("rollout: 1 waits for 1 device {whom}; look again at {}\n", after(60));
    assert_eq!((said.to_text(), said.again.map(|again| again.to_string())), (again, Some(after(60))));
    // What only a person ends has no such moment.
    lab.write("rollouts/1.yaml", "paused: true\n");
    lab.commit();
    let said = publish(&lab, *BEGIN + 2).rollouts.unwrap().to_text();
    assert_eq!(said, "rollout: 1 is paused: `rollout pause 1 --end` goes on\n");
    lab.remove("rollouts/1.yaml");
    change(&lab, "servus", "griass di");
    let plan = lab.run(&["plan"]);
    let starts = "rollout: starts 2: hello on 5 devices; waves 1, 3, rest; supersedes 1\n";
    assert!(plan.out.contains(starts), "{}", plan.out);
    assert!(plan.out.contains("rollout: 1 is superseded: "), "{}", plan.out);
    let said = publish(&lab, *BEGIN + 3).rollouts.unwrap().to_text();
    assert!(said.starts_with(starts), "{said}");
    let shown = lab.run(&["rollout", "show", "2"]).good();
    assert!(shown.contains("In the place of: 1\n"), "{shown}");
    assert_eq!(state(&lab, 2)["supersedes"], serde_json::json!([1]));
}

#[test]
fn labels_that_bring_devices_in_and_take_others_out_in_the_middle_go_by_the_waves() {
    let devices: Vec<_> = (1..=12).map(|number| format!("press-{number:02}")).collect();
    let devices: Vec<_> = devices.iter().map(String::as_str).collect();
    let lab = Lab::with(&devices);
    lab.write("fleet.yaml", lab.read("fleet.yaml") + "rollout: {waves: [1, 6], bake: 60s}\n");
    lab.edit("deployments/hello.yaml", "matchLabels: {site: graz}", "matchLabels: {use: press}");
    lab.write("deployments/second.yaml", SECOND.replace("site: graz", ""));
    lab.commit();
    let label = |devices: &[&str], label: &str| {
        lab.run(&[&["device", "label"], devices, &[label]].concat()).good();
    };
    label(&devices[..11], "use=press");
    assert_eq!(lab.publish_all().published(), 12);
    let with = |text: &str| {
        let has = |device: &&&str| lab.documents(device).get("hello").is_some_and(|hello| hello.contains(text));
        devices.iter().filter(has).copied().collect::<Vec<_>>()
    };
    let all = || devices.iter().map(|device| lab.documents(device)).collect::<Vec<_>>();
    change(&lab, FIRST, "servus");
    publish(&lab, *BEGIN);
    let [first] = with("servus")[..] else { panic!("{:?}", with("servus")) };
    let goes = *devices.iter().find(|device| **device != first).unwrap();
    let comes = "press-12";
    // Who comes in and runs something else, and who goes out, wait for the last wave like a change.
    let before = all();
    label(&[comes], "use=press");
    publish(&lab, *BEGIN + 1);
    label(&[goes], "use-");
    publish(&lab, *BEGIN + 2);
    assert_eq!(all(), before);
    assert_eq!(decisions(&lab), ["start", "release 1", "join", "join"]);
    // Whoever went first goes out, too: it proves nothing any more, and another one goes first.
    label(&[first], "use-");
    publish(&lab, *BEGIN + 3);
    let [one, other] = with("servus")[..] else { panic!("{:?}", with("servus")) };
    let second = if one == first { other } else { one };
    assert!([one, other].contains(&first) && ![comes, goes].contains(&second));
    assert_eq!(decisions(&lab)[4..], ["join", "release 1"]);
    for (round, count) in [(1, 7), (2, 10)] {
        with("servus").iter().for_each(|device| reports(&lab, device, "installed"));
        publish(&lab, *BEGIN + 3 + round * BAKE);
        assert_eq!(with("servus").len(), count, "{:?}", decisions(&lab));
        assert_eq!(with("").contains(&goes), round == 1, "what goes is there until the last wave");
    }
    assert!(with("servus").contains(&comes) && !with("").contains(&first) && with(FIRST).is_empty());
    devices.iter().for_each(|device| reports(&lab, device, "installed"));
    publish(&lab, *BEGIN + 3 + 3 * BAKE);
    assert_eq!((decisions(&lab).last().map(String::as_str), numbers(&lab)), (Some("finish"), BTreeSet::from([1])));
}

/// A rollout that one failed device stopped; that one.
pub(crate) fn stopped() -> (Lab, &'static str) {
    let lab = lab();
    change(&lab, FIRST, "servus");
    publish(&lab, *BEGIN);
    let first = have(&lab, "hello", "servus")[0];
    reports(&lab, first, "failed");
    let said = publish(&lab, *BEGIN + 5).rollouts.unwrap();
    assert!(said.is_stopped(), "{said:?}");
    (lab, first)
}

#[test]
fn a_device_that_fails_stops_it_until_a_person_resumes_it() {
    let (lab, first) = stopped();
    let said = lab.run(&["publish", "--wait"]);
    assert!(said.out.contains("1 is stopped: `rollout resume 1`"), "{}", said.out);
    let _ = said.failed(1);
    // It heals by itself, and that changes nothing.
    reports(&lab, first, "installed");
    publish(&lab, *BEGIN + 2 * BAKE);
    assert_eq!((have(&lab, "hello", "servus"), &state(&lab, 1)["state"]), (vec![first], &"stopped".into()));
    lab.write("rollouts/1.yaml", "resumed: 1\n");
    lab.commit();
    publish(&lab, *BEGIN + 3 * BAKE);
    assert_eq!(have(&lab, "hello", "servus").len(), 3);
    assert_eq!(decisions(&lab), ["start", "release 1", "stop 1", "resume 1", "release 2"]);
}

#[test]
fn publish_waits_for_the_end_of_a_rollout_and_two_publishers_take_turns() {
    let lab = lab_with(&[("fleet.yaml", "rollout: {waves: [1], bake: 1s}\n")]);
    change(&lab, FIRST, "servus");
    let mut waiting = lab.command(&["publish", "--wait"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    // Meanwhile others publish, and devices report whatever they have.
    let code = loop {
        all_report(&lab);
        if let Some(status) = waiting.try_wait().unwrap() {
            break status.code();
        }
        lab.run(&["publish"]).good();
    };
    assert_eq!((code, have(&lab, "hello", "servus").len()), (Some(0), 5));
    assert_eq!(decisions(&lab), ["start", "release 1", "release 2", "finish"]);
}

#[test]
fn publish_that_waits_says_for_what_whenever_that_changes() {
    for form in ["text", "json"] {
        let lab = lab_with(&[("fleet.yaml", "rollout: {waves: [1, approve], bake: 1s}\n")]);
        change(&lab, FIRST, "servus");
        let mut command = lab.command(&["publish", "--wait", "--output", form]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        // What is printed for programs is one document at the end.
        let told: Box<dyn std::io::Read> = if form == "json" { Box::new(err) } else { Box::new(out) };
        let mut lines = BufReader::new(told).lines().map(Result::unwrap);
        lines.find(|line| line.starts_with("rollout: 1 waits for 1 device (")).expect("for whom it waits");
        let first = have(&lab, "hello", "servus")[0];
        reports(&lab, first, "installed");
        lines
            .find(|line| line == "rollout: 1 waits for a person: `rollout approve 1` agrees to wave 2")
            .expect("that it waits");
        lab.run(&["rollout", "pause", "1"]).good();
        lines.find(|line| line == "rollout: 1 is paused: `rollout pause 1 --end` goes on").expect("that it is paused");
        lab.run(&["rollout", "promote", "1"]).good();
        lab.run(&["rollout", "pause", "1", "--end"]).good();
        let code = loop {
            all_report(&lab);
            if let Some(status) = child.try_wait().unwrap() {
                break status.code();
            }
        };
        assert_eq!((code, have(&lab, "hello", "servus").len()), (Some(0), 5), "{form}");
    }
}

#[test]
fn what_a_rollout_waits_for_is_said_wherever_it_is_watched_and_approve_agrees_to_just_that() {
    let lab = lab_with(&[("fleet.yaml", "rollout: {waves: [1, 10%, approve], bake: 600s}\n")]);
    change(&lab, FIRST, "servus");
    publish(&lab, *BEGIN);
    let first = have(&lab, "hello", "servus")[0];
    let said = |what: &str| {
        let [list, show, status] =
            [&["rollout", "list"][..], &["rollout", "show", "1"], &["status"]].map(|args| lab.run(args).good());
        assert!(list.contains(&format!("  {what}\n")), "{list}");
        assert!(show.contains(&format!("\nBy the last look it {what}\n")), "{show}");
        assert!(status.contains(&format!("\nrollout 1 {what}\n")), "{status}");
        let json = |args: &[&str]| {
            serde_json::from_str::<Value>(&lab.run(&[args, &["--output", "json"]].concat()).good()).unwrap()
        };
        let shown = json(&["rollout", "show", "1"]);
        assert_eq!(json(&["rollout", "list"])["rollouts"][0]["waiting"], shown["waiting"]);
        assert_eq!(json(&["status"])["rollouts"], serde_json::json!([shown["waiting"]]));
        shown
    };
    let shown =
        said(&format!("waits for 1 device ({first}: updating: is published now); look again at {}", after(600)));
    assert_eq!(
        (&shown["waiting"]["devices"][first], &shown["approval"]),
        (&"updating: is published now".into(), &3.into())
    );
    reports(&lab, first, "installed");
    publish(&lab, *BEGIN + 602);
    // One device is a tenth of five already.
    let shown = said("waits for a person: `rollout approve 1` agrees to wave 3");
    assert_eq!((&shown["waiting"]["again"], &shown["approval"]), (&Value::Null, &3.into()));
    lab.write("rollouts/1.yaml", "approved: 2\n");
    lab.commit();
    publish(&lab, *BEGIN + 602);
    assert_eq!(have(&lab, "hello", "servus"), [first]);
    lab.run(&["rollout", "approve", "1"]).good();
    assert_eq!(lab.read("rollouts/1.yaml"), "approved: 3\n");
    publish(&lab, *BEGIN + 602);
    assert_eq!(have(&lab, "hello", "servus").len(), 5);
    all_report(&lab);
    publish(&lab, *BEGIN + 1204);
    let status: Value = serde_json::from_str(&lab.run(&["status", "--output", "json"]).good()).unwrap();
    assert_eq!((&state(&lab, 1)["state"], &status["rollouts"]), (&"done".into(), &serde_json::json!([])));
}

#[test]
fn what_is_held_back_is_what_it_was_and_rests() {
    let lab = lab();
    let before: BTreeMap<_, _> = DEVICES.into_iter().map(|device| (device, lab.refs(device))).collect();
    change(&lab, FIRST, "servus");
    publish(&lab, *BEGIN);
    let first = have(&lab, "hello", "servus");
    let held: Vec<_> = DEVICES.into_iter().filter(|device| !first.contains(device)).collect();
    for device in &held {
        assert_eq!(lab.refs(device), before[device], "{device}");
    }
    assert!(!lab.is_unchanged_at(*BEGIN), "what was decided is looked at once more");
    publish(&lab, *BEGIN);
    assert!(lab.is_unchanged_at(*BEGIN) && lab.is_as_left_at(*BEGIN));
    assert!(!lab.is_unchanged_at(*BEGIN + BAKE), "by then something may have baked");
    // Whoever waits isn't opened, as nobody is for whom nothing changed.
    let packs = lab.repo(held[0]).join("objects/pack");
    fs::rename(&packs, packs.with_extension("hidden")).unwrap();
    fs::create_dir(&packs).unwrap();
    let words = lab.read("fleet.yaml");
    lab.write("fleet.yaml", words.replace("waves: [1, 3]", "waves: [2, 3]"));
    lab.write("rollouts/1.yaml", "approved: 1\n");
    lab.commit();
    publish(&lab, *BEGIN);
    assert!(
        !lab.repo(held[0]).with_extension("damaged").exists(),
        "neither is the policy, nor a word, a part of what it gets"
    );
    fs::remove_dir(&packs).unwrap();
    fs::rename(packs.with_extension("hidden"), &packs).unwrap();
    // A heartbeat of whom it waits for is looked at; one of another device isn't.
    publish(&lab, *BEGIN);
    let beat = |device: &str| Reporter { lab: &lab, device }.heartbeat(device, &after(0));
    beat(held[0]);
    assert!(lab.is_as_left_at(*BEGIN));
    beat(first[0]);
    assert!(!lab.is_as_left_at(*BEGIN));

    // Whether it is suspended, and the policy, come at once; what is held back stays byte for byte.
    let documents: BTreeMap<_, _> = held.iter().map(|device| (*device, lab.documents(device))).collect();
    let hello = lab.read("deployments/hello.yaml");
    lab.write("deployments/hello.yaml", hello + "suspended: true\n");
    lab.edit("fleet.yaml", "poll: 15s", "poll: 16s");
    lab.commit();
    publish(&lab, *BEGIN);
    for device in &held {
        let envelope = lab.json(device, "desired", "envelope.json");
        let deployment = envelope["deployments"].as_object().unwrap().values().next().unwrap().clone();
        assert_eq!(
            (&deployment["policy"]["suspended"], &envelope["policy"]["pollSeconds"]),
            (&true.into(), &16.into())
        );
        assert_eq!((lab.documents(device), lab.serial(device)), (documents[device].clone(), 2));
        assert!(lab.message(device, "desired").get(Trailer::Rollout).is_none());
    }
}

#[test]
fn what_is_undone_goes_back_at_once_and_no_longer_waits() {
    let lab = lab();
    change(&lab, FIRST, "servus");
    publish(&lab, *BEGIN);
    change(&lab, "servus", FIRST);
    publish(&lab, *BEGIN + 1);
    assert!(have(&lab, "hello", "servus").is_empty());
    let serials: Vec<_> = DEVICES.map(|device| lab.serial(device)).into();
    assert_eq!((serials.iter().filter(|serial| **serial == 1).count(), serials.iter().max()), (4, Some(&3)));
}

/// Offers the next version of the application, and means it for every device.
pub(crate) fn next_version(lab: &Lab, from: &str, to: &str) {
    let package = lab.read(&format!("applications/hello/{from}/margo.yaml"));
    lab.write(&format!("applications/hello/{to}/margo.yaml"), package.replace(from, to));
    lab.edit("deployments/hello.yaml", &format!("version: {from}}}"), &format!("version: {to}}}"));
}

#[test]
fn a_plan_of_a_new_version_says_what_it_starts_although_nobody_asked_yet_what_its_tag_means() {
    let lab = lab();
    let starts = |plan: &str, publish: Outcome| {
        let lines = |text: &str| {
            let lines = text.lines().filter(|line| line.starts_with("rollout: "));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(plan), lines(&publish.rollouts.unwrap().to_text()));
    };
    next_version(&lab, "1.0.0", "1.1.0");
    lab.commit();
    let plan = lab.run(&["plan"]);
    assert!(plan.out.contains("rollout: starts 1: hello on 5 devices; waves 1, 3, rest\n"), "{}", plan.out);
    assert!(plan.out.contains("1 device to change, 4 unchanged, 4 held back by rollouts"), "{}", plan.out);
    assert_eq!(plan.code, Some(3));
    starts(&plan.out, publish(&lab, *BEGIN));
    assert_eq!(have(&lab, "hello", "1.1.0").len(), 1);
    publish(&lab, *BEGIN);
    next_version(&lab, "1.1.0", "1.2.0");
    lab.commit();
    let plan = lab.run(&["plan"]);
    assert!(plan.out.contains("waves 1, 3, rest; supersedes 1\n"), "{}", plan.out);
    assert_eq!(plan.code, Some(3));
    starts(&plan.out, publish(&lab, *BEGIN));
    // What somebody asked for in vain isn't there, and nothing of it comes.
    publish(&lab, *BEGIN);
    next_version(&lab, "1.2.0", "1.3.0");
    lab.commit();
    let gone = lab.publish_with(*BEGIN, &|_| Err("the registry is away".into()));
    assert!(!gone.unresolved.is_empty(), "{gone:?}");
    let plan = lab.run(&["plan"]);
    assert!(!plan.out.contains("starts 3"), "{}", plan.out);
}

#[test]
fn a_change_goes_at_once_to_few_devices_where_nobody_wrote_how_and_with_none() {
    for rollout in ["", "rollout: none\n"] {
        let lab = lab_with(&[("fleet.yaml", rollout)]);
        change(&lab, FIRST, "servus");
        publish(&lab, *BEGIN);
        assert_eq!((have(&lab, "hello", "servus").len(), numbers(&lab).len()), (5, 0), "{rollout:?}");
        assert!(lab.message("press-01", "desired").get(Trailer::Rollout).is_none());
    }
    // A deployment's own word stands above that of the fleet, and one device alone needs no wave.
    let lab = lab_with(&[("fleet.yaml", "rollout: {waves: [1]}\n"), ("deployments/second.yaml", SECOND)]);
    let second = lab.read("deployments/second.yaml");
    lab.write("deployments/second.yaml", second.replace("servus", "griass di") + "rollout: none\n");
    change(&lab, FIRST, "servus");
    publish(&lab, *BEGIN);
    assert_eq!((have(&lab, "second", "griass di").len(), have(&lab, "hello", "servus").len()), (5, 1));
    let lab = lab_with(&[("fleet.yaml", "rollout: {waves: [1]}\n")]);
    let hello = lab.read("deployments/hello.yaml");
    let one = "  - when: {devices: [press-03]}\n    parameters: {greeting: servus}\n";
    lab.write("deployments/hello.yaml", hello.replace("overrides:\n", &format!("overrides:\n{one}")));
    lab.commit();
    publish(&lab, *BEGIN);
    assert_eq!((have(&lab, "hello", "servus"), numbers(&lab).len()), (vec!["press-03"], 0));
}

#[test]
fn where_nobody_wrote_how_a_change_of_many_devices_begins_with_one() {
    let devices: Vec<_> = (1..=11).map(|number| format!("press-{number:02}")).collect();
    let lab = Lab::with(&devices.iter().map(String::as_str).collect::<Vec<_>>());
    lab.edit("deployments/hello.yaml", "matchLabels: {site: graz}", "matchLabels: {}");
    lab.commit();
    assert_eq!((lab.publish_all().published(), numbers(&lab).len()), (11, 0), "nothing ran there");
    let with = |text: &str| devices.iter().filter(|id| lab.documents(id)["hello"].contains(text)).count();
    lab.write("fleet.yaml", lab.read("fleet.yaml") + "rollout: none\n");
    change(&lab, FIRST, "servus");
    publish(&lab, *BEGIN);
    assert_eq!((with("servus"), numbers(&lab).len()), (11, 0));
    lab.edit("fleet.yaml", "rollout: none\n", "");
    change(&lab, "servus", "griass di");
    publish(&lab, *BEGIN + 1);
    assert_eq!((with("griass di"), numbers(&lab)), (1, BTreeSet::from([1])));
}

#[test]
fn a_publish_of_one_device_releases_nothing_that_waits() {
    let lab = lab();
    change(&lab, FIRST, "servus");
    publish(&lab, *BEGIN);
    let first = have(&lab, "hello", "servus");
    for device in DEVICES {
        lab.run(&["publish", device]).good();
    }
    assert_eq!(have(&lab, "hello", "servus"), first);
    // Nor is it a change of one device alone before the rollout began.
    let lab = self::lab();
    change(&lab, FIRST, "servus");
    for device in DEVICES {
        lab.run(&["publish", device]).good();
    }
    assert_eq!((have(&lab, "hello", "servus").len(), numbers(&lab)), (1, BTreeSet::from([1])));
}

#[test]
fn guards_see_the_whole_change_and_are_asked_once() {
    let guards = "guards: {fleetRemovals: 25%}\nrollout: {waves: [1, 4], bake: 60s}\n";
    let lab = lab_with(&[("fleet.yaml", guards), ("deployments/second.yaml", SECOND)]);
    lab.remove("deployments/second.yaml");
    lab.commit();
    // One device alone would pass the guard.
    for device in ["press-01", ""] {
        let said = lab.run(&[&["publish"][..], if device.is_empty() { &[] } else { &["press-01"] }].concat()).failed(1);
        assert!(said.contains("5 of the 10 deployments on all devices would be removed"), "{said}");
    }
    lab.run(&["plan"]).failed(1);
    assert_eq!((have(&lab, "second", "servus").len(), numbers(&lab).len()), (5, 0));
    lab.run(&["publish", "--allow-removals"]).good();
    assert_eq!(have(&lab, "second", "servus").len(), 4);
    assert_eq!(state(&lab, 1)["allowed"], serde_json::json!(["removals"]));
    all_report(&lab);
    // What was let go is let go: three of nine are more than a quarter.
    publish(&lab, *BEGIN + 2 * BAKE);
    assert_eq!(have(&lab, "second", "servus").len(), 1);
    all_report(&lab);
    publish(&lab, *BEGIN + 4 * BAKE);
    assert_eq!((have(&lab, "second", "servus").len(), have(&lab, "hello", FIRST).len()), (0, 5));
}

#[test]
fn a_rollout_begins_with_what_a_person_let_pass_and_asks_nobody_again() {
    let guards = "guards: {fleetRemovals: 25%}\nrollout: {waves: [1, 4], bake: 60s}\n";
    let lab = lab_with(&[("fleet.yaml", guards), ("deployments/second.yaml", SECOND)]);
    lab.remove("deployments/second.yaml");
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("`wfm-git-publisher allow second -m WHY`"), "{error}");
    // Half of them is a quarter of all; what isn't let pass counts by itself.
    lab.run(&["allow", "second", "--device", "press-01", "-m", "given up"]).good();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("4 of the 10 deployments on all devices would be removed"), "{error}");
    lab.run(&["allow", "second", "-m", "given up"]).good();
    lab.run(&["publish"]).good();
    assert_eq!((have(&lab, "second", "servus").len(), numbers(&lab)), (4, BTreeSet::from([1])));
    all_report(&lab);
    publish(&lab, *BEGIN + 2 * BAKE);
    all_report(&lab);
    publish(&lab, *BEGIN + 4 * BAKE);
    assert_eq!((have(&lab, "second", "servus").len(), have(&lab, "hello", FIRST).len()), (0, 5));
}

#[test]
fn what_comes_in_the_place_of_something_comes_with_its_removal() {
    let lab = lab();
    lab.edit("deployments/hello.yaml", "id: hello\n", "id: hallo\n");
    lab.commit();
    assert!(lab.run(&["publish"]).failed(1).contains("`hallo` would replace `hello`"));
    assert!(numbers(&lab).is_empty());
    lab.run(&["publish", "--allow-replace", "--allow-removals"]).good();
    let new = have(&lab, "hallo", "");
    assert_eq!((new.len(), have(&lab, "hello", "").len()), (1, 4));
    all_report(&lab);
    publish(&lab, *BEGIN + 2 * BAKE);
    assert_eq!((have(&lab, "hallo", "").len(), have(&lab, "hello", "").len()), (3, 2), "nobody is asked again");
    assert_eq!(state(&lab, 1)["deployments"], serde_json::json!(["hallo", "hello"]));
}

#[test]
fn a_lost_ledger_or_index_releases_nothing() {
    let lab = lab();
    change(&lab, FIRST, "servus");
    publish(&lab, *BEGIN);
    let first = have(&lab, "hello", "servus");
    fs::remove_file(lab.home.up_to_date()).unwrap();
    publish(&lab, *BEGIN);
    assert_eq!(have(&lab, "hello", "servus"), first);
    fs::remove_dir_all(lab.home.control()).unwrap();
    lab.publish_at(*BEGIN);
    assert_eq!(have(&lab, "hello", "servus").len(), 2, "it begins anew, with one device of those that are left");
    assert_eq!(numbers(&lab), BTreeSet::from([2]), "no word about the old one fits");
    fs::remove_dir_all(lab.home.control()).unwrap();
    fs::remove_file(lab.home.up_to_date()).unwrap();
    lab.publish_at(*BEGIN);
    assert_eq!((have(&lab, "hello", "servus").len(), numbers(&lab)), (3, BTreeSet::from([3])));
}

#[test]
fn a_repository_that_was_lost_or_restored_gets_nothing_while_something_of_it_is_held() {
    let lab = lab();
    let old: BTreeMap<_, _> = DEVICES.into_iter().map(|device| (device, lab.dir().join(device))).collect();
    old.iter().for_each(|(device, path)| copy(&lab.repo(device), path));
    // A state that only devices know by now.
    lab.edit("fleet.yaml", "poll: 15s", "poll: 16s");
    change(&lab, FIRST, "servus");
    publish(&lab, *BEGIN);
    let held: Vec<_> = DEVICES.into_iter().filter(|device| !have(&lab, "hello", "servus").contains(device)).collect();
    fs::remove_dir_all(lab.repo(held[0])).unwrap();
    copy(&old[held[1]], &lab.repo(held[1]));
    let outcome = lab.publish_at(*BEGIN);
    for device in &held[..2] {
        assert!(refused(&outcome, device).contains("`hello` is held back by a rollout"), "{device}: {outcome:?}");
    }
    assert!(!lab.repo(held[0]).exists() && lab.serial(held[1]) == 1 && !outcome.is_complete());
    let status = lab.run(&["status"]);
    assert!(status.out.contains("not-kept"), "{}", status.out);
    lab.run(&["plan"]).failed(1);
    lab.write("rollouts/1.yaml", "promoted: true\n");
    lab.commit();
    publish(&lab, *BEGIN);
    assert_eq!(have(&lab, "hello", "servus").len(), 5);
    assert_eq!([lab.serial(held[0]), lab.serial(held[1]), lab.serial(held[2])], [3; 3]);
}

/// The next number of a sequence that looks like chance and is the same in each run.
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// What each device has of each deployment.
type Held = BTreeMap<&'static str, BTreeMap<String, String>>;

fn documents(lab: &Lab) -> Held {
    let of = |device| if lab.repo(device).exists() { lab.documents(device) } else { BTreeMap::new() };
    DEVICES.into_iter().map(|device| (device, of(device))).collect()
}

/// Whatever is edited, reported and lost: what two devices or more would get comes to those only whom a record released,
/// a rollout begins with one device, and nothing that is held goes.
#[test]
fn nothing_goes_to_many_devices_that_no_record_releases() {
    for mut seed in [0x9e37_79b9_7f4a_7c15_u64, 0xd1b5_4a32_d192_ed03] {
        let lab = lab_with(&[
            ("fleet.yaml", "rollout: {waves: [1, 3], bake: 60s}\n"),
            ("deployments/second.yaml", &SECOND.replace("servus", "word-0")),
        ]);
        change(&lab, FIRST, "word-0");
        let (mut now, mut words) = (*BEGIN, BTreeMap::from([("hello", 0), ("second", 0)]));
        let mut what = String::new();
        for round in 1..=7_u64 {
            let at = |count: usize, number: u64| usize::try_from(number % count as u64).unwrap();
            let device = DEVICES[at(5, next(&mut seed))];
            let deed = next(&mut seed) % 10;
            what += &format!("{deed} {device}; ");
            match deed {
                0..=2 => {
                    let name = ["hello", "second"][at(2, next(&mut seed))];
                    let word = words.get_mut(name).unwrap();
                    let path = format!("deployments/{name}.yaml");
                    lab.edit(&path, &format!("greeting: word-{word}"), &format!("greeting: word-{round}"));
                    *word = round;
                    lab.commit();
                }
                3..=5 => {
                    DEVICES.iter().filter(|one| lab.repo(one).exists()).for_each(|one| reports(&lab, one, "installed"))
                }
                6 if lab.repo(device).exists() => reports(&lab, device, "failed"),
                7 => fs::remove_dir_all(lab.home.control()).unwrap(),
                8 => drop(fs::remove_file(lab.home.up_to_date())),
                9 => fs::remove_dir_all(lab.repo(device)).unwrap_or_default(),
                _ => {}
            }
            now += i64::try_from(next(&mut seed) % 90).unwrap();
            let before = documents(&lab);
            let known = if lab.home.control().exists() { numbers(&lab) } else { BTreeSet::new() };
            let is_finished =
                |number: &u32| ["done", "superseded"].contains(&state(&lab, *number)["state"].as_str().unwrap());
            let finished: BTreeSet<_> = known.iter().copied().filter(is_finished).collect();
            lab.publish_at(now);
            let (after, all) = (documents(&lab), numbers(&lab));
            let states: BTreeMap<_, _> =
                all.difference(&finished).map(|number| (*number, state(&lab, *number))).collect();
            for (name, word) in &words {
                let differs = |device: &&&str| {
                    let document = before[**device].get(*name);
                    document.is_some_and(|document| {
                        !document.contains(&format!("word-{word}\"")) && !document.contains(&format!("word-{word}\n"))
                    })
                };
                let differing = DEVICES.iter().filter(differs).count();
                for device in DEVICES.iter().filter(differs) {
                    let (old, new) = (&before[*device][*name], after[*device].get(*name));
                    assert!(new.is_some(), "{what}: {name} went from {device}");
                    let is_released = states
                        .values()
                        .map(released)
                        .any(|(deployments, devices)| deployments.contains(name) && devices.contains(device));
                    assert!(
                        new == Some(old) || is_released || differing == 1,
                        "{what}: {device} got {name} for nothing"
                    );
                }
            }
            for number in all.difference(&known) {
                let (_, devices) = released(&states[number]);
                assert!(devices.len() <= 1, "{what}: {number} began with {devices:?}");
            }
        }
    }
}
