//! `events`: what happens in the fleet, the oldest first, and what happens next.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};
use wfm_git_publisher::rollout::Phase;

use crate::audit::honest::Honest;
use crate::device_history::tells;
use crate::support::{BEGIN, Lab, after};
use crate::{rollouts, waves};

fn events(lab: &Lab, args: &[&str]) -> Vec<Value> {
    let text = lab.run(&[&["events", "--output", "json"], args].concat()).good();
    serde_json::from_str::<Value>(&text).expect("JSON")["events"].as_array().expect("events").clone()
}

fn words(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().expect("a word")).collect()
}

#[test]
fn events_of_a_device_are_its_history_and_those_of_the_fleet_are_in_the_order_of_time() {
    let honest = Honest::new();
    let lab = &honest.lab;
    let mut of_one = events(lab, &["press-01", "--since", "1d"]);
    let history = lab.run(&["history", "press-01", "--output", "json", "-n", "1000"]).good();
    let history: Value = serde_json::from_str(&history).expect("JSON");
    let mut expected = history["events"].as_array().expect("events").clone();
    expected.reverse();
    expected.sort_by_key(|event| event["time"].as_str().expect("a moment").to_owned());
    for event in &mut of_one {
        let event = event.as_object_mut().expect("an object");
        assert_eq!(event.remove("device"), Some("press-01".into()));
        assert!(event.remove("message").is_some_and(|message| message.is_string()));
    }
    assert_eq!(of_one, expected);

    rollouts::remember(&lab.home, 12, Phase::Stopped, &["press-01"]);
    let all = events(lab, &[]);
    let times: Vec<_> = all.iter().map(|event| event["time"].as_str().expect("a moment")).collect();
    assert!(times.is_sorted(), "{times:?}");
    let has =
        |word: &str, about: (&str, Value)| all.iter().any(|event| event["event"] == word && event[about.0] == about.1);
    assert!(has("accepted", ("device", "packer-01".into())) && has("published", ("device", "packer-01".into())));
    assert!(has("wave-released", ("rollout", 12.into())) && has("rollout-stopped", ("rollout", 12.into())));
    let of_press = events(lab, &["-l", "role=press"]);
    assert!(!of_press.is_empty() && of_press.iter().all(|event| event["device"] == "press-01"), "{}", of_press.len());
    assert_eq!(events(lab, &["--since", &after(3600)]), [] as [Value; 0]);
    let page = lab.run(&["events"]).good();
    assert!(page.starts_with("WHEN ") && page.contains("  rollout 12: wave 1 released to 1 device\n"), "{page}");
    assert!(page.contains("  hello: installing > installed\n"), "{page}");
    assert!(lab.run(&["events", "press-99"]).failed(1).contains("no device `press-99`"));
}

#[test]
fn each_step_of_a_rollout_is_told_also_that_another_one_came_in_its_place() {
    let (lab, _) = waves::stopped();
    lab.write("rollouts/1.yaml", "resumed: 1\n");
    lab.commit();
    lab.publish_at(*BEGIN + 6);
    waves::change(&lab, "servus", "griass di");
    for round in 0..5 {
        lab.publish_at(*BEGIN + 7 + round * 100);
        (1..=5).for_each(|number| waves::reports(&lab, &format!("press-0{number}"), "installed"));
    }
    let all = events(&lab, &["--since", "2h"]);
    let of = |rollout: u32| {
        let ours: Vec<_> = all.iter().filter(|event| event["rollout"] == rollout).cloned().collect();
        let end = ours.last().map(|event| event["what"]["state"].clone());
        (words(&ours).into_iter().map(str::to_owned).collect::<Vec<_>>(), end)
    };
    let first = ["wave-released", "rollout-stopped", "rollout-resumed", "rollout-ended"].map(str::to_owned);
    assert_eq!(of(1), (first.into(), Some("superseded".into())));
    let second = ["wave-released", "wave-released", "wave-released", "rollout-ended"].map(str::to_owned);
    assert_eq!(of(2), (second.into(), Some("done".into())));
    let page = lab.run(&["events", "--since", "2h"]).good();
    for line in ["rollout 1: stop 1 lifted", "rollout 1: superseded", "rollout 2: done"] {
        assert!(page.contains(&format!("  {line}\n")), "{line}: {page}");
    }
}

#[test]
fn a_cursor_gives_what_came_since_once_whatever_the_devices_clock_says() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    rollouts::remember(&lab.home, 12, Phase::Stopped, &["press-01"]);
    let ask = |args: &[&str]| -> (Value, String) {
        let said = lab.run(&[&["events", "--output", "json"], args].concat()).good();
        let said: Value = serde_json::from_str(&said).expect("JSON");
        (said["events"].clone(), said["cursor"].as_str().expect("a cursor").to_owned())
    };
    let (all, cursor) = ask(&["--since", "2h"]);
    assert!(words(all.as_array().expect("events")).contains(&"rollout-stopped"), "{all}");
    assert_eq!(ask(&["--after", &cursor]), (json!([]), cursor), "it stands where it stood");
    // What comes now is by a clock that is behind.
    let (none, cursor) = ask(&["--since", &after(3600)]);
    assert_eq!(none, json!([]));
    tells(&lab, "press-01", json!([]), json!([]));
    let news = ask(&["--after", &cursor]);
    assert_eq!(words(news.0.as_array().expect("events")), ["accepted", "transition"]);
    assert_eq!(ask(&["--after", &cursor]), news, "whoever didn't hear it asks once more");
    assert_eq!(ask(&["--after", &news.1]), (json!([]), news.1));

    std::fs::remove_dir_all(lab.home.cursors()).expect("removed");
    let said = lab.run(&["events", "--after", &cursor]).failed(1);
    assert!(said.contains("isn't known any more") && said.contains("begin anew, with `--since`"), "{said}");
}

#[test]
fn whoever_follows_sees_what_comes_once_and_what_nobody_believes_as_doubtful() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let mut follow = lab.command(&["events", "--follow", "--since", "1h", "--output", "json"]);
    let mut child = follow.stdout(Stdio::piped()).spawn().expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().expect("a line").expect("text")).expect("JSON");
    let first = next();
    assert_eq!((&first["event"], &first["apiVersion"]), (&"published".into(), &"v1".into()));
    tells(&lab, "press-01", json!([]), json!([]));
    assert_eq!(words(&[next(), next()]), ["accepted", "transition"]);
    let forked = json!([{"type": "SecurityEvent", "reason": "HistoryForked", "message": "another one signs"}]);
    tells(&lab, "press-01", forked.clone(), json!([]));
    let event = next();
    assert_eq!((&event["event"], &event["what"]["type"]), (&"condition".into(), &"SecurityEvent".into()), "{event}");
    assert_eq!(event["commit"], lab.tip("press-01", "status").expect("a tip"));
    tells(&lab, "mallory", json!([]), json!([]));
    let event = next();
    assert_eq!((&event["event"], &event["what"]["code"]), (&"doubtful".into(), &"signature-invalid".into()), "{event}");
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    lab.commit();
    lab.publish_all();
    let event = next();
    assert_eq!((&event["event"], &event["what"]["serial"]), (&"published".into(), &2.into()), "{event}");
    assert_eq!(event["device"], "press-01");
    child.kill().expect("killed");
    child.wait().expect("ended");
}
