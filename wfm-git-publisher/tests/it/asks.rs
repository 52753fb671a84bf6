//! What one device is asked for: written by a command, published, and answered by what the device signed.

use repo_testkit::git::git;
use serde_json::{Value, json};

use crate::reports::Reporter;
use crate::support::Lab;

const DEVICE: &str = "press-01";
const FILE: &str = "devices/press-01.yaml";

#[test]
fn each_command_raises_the_number_in_the_devices_file_and_that_is_published() {
    let lab = Lab::with(&[DEVICE]);
    let before = lab.read(FILE);
    let said = lab.run(&["device", "logs", DEVICE, "hello"]).good();
    let expected = format!(
        "press-01 is asked: 1 (logs hello) ({FILE})\nThe answer: wfm-git-publisher device answers press-01 1\n"
    );
    assert_eq!(said, expected);
    assert_eq!(lab.read(FILE), before.clone() + "ask: {number: 1, what: logs, deployment: \"hello\"}\n");
    assert_eq!(git(&lab.fleet, &["log", "-1", "--format=%s"]), "press-01: ask 1 (logs hello)");
    lab.publish();
    let policy = || lab.json(DEVICE, "desired", "envelope.json")["policy"]["ask"].clone();
    assert_eq!(policy(), json!({"number": 1, "what": "logs", "deployment": "hello"}));
    assert_eq!(lab.json(DEVICE, "desired", "envelope.json")["requires"], Value::Null, "an older device ignores it");
    lab.run(&["device", "retry", DEVICE]).good();
    let plan = lab.run(&["plan"]).out;
    assert!(plan.contains("ask: 1 (logs hello) → 2 (retry)"), "{plan}");
    for (args, ask) in [
        (&["retry", DEVICE, "hello"][..], json!({"number": 3, "what": "retry", "deployment": "hello"})),
        (&["diagnostics", DEVICE], json!({"number": 4, "what": "diagnostics"})),
        (&["sync", DEVICE], json!({"number": 5, "what": "sync"})),
    ] {
        let said = lab.run(&[&["device"], args, &["--output", "json"]].concat()).good();
        let said: Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(said, json!({"apiVersion": "v1", "device": DEVICE, "file": FILE, "ask": ask}));
        lab.publish();
        assert_eq!(policy(), ask);
    }
    let committed = git(&lab.fleet, &["rev-parse", "HEAD"]);
    for (args, why) in [
        (&["logs", DEVICE, "nothing"][..], "there is no deployment `nothing` in the fleet"),
        (&["sync", "press-99"], "there is no device `press-99` in the fleet"),
    ] {
        let said = lab.run(&[&["device"], args].concat()).failed(1);
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(git(&lab.fleet, &["rev-parse", "HEAD"]), committed);
}

#[test]
fn what_can_not_be_asked_is_found_with_its_place() {
    let lab = Lab::new();
    let text = lab.read(FILE);
    let line = text.lines().count() + 1;
    for (ask, key, why) in [
        ("{number: 0, what: sync}", "ask.number", "must be a whole number from 1"),
        ("{number: 1, what: reboot}", "ask.what", "`reboot`"),
        ("{number: 1, what: logs}", "ask", "`logs` needs a `deployment`"),
        ("{number: 1, what: sync, deployment: hello}", "ask.deployment", "`sync` is about the whole device"),
        ("{number: 1, what: sync, soon: true}", "ask.soon", "unknown key"),
        ("{what: sync}", "ask.number", "is missing"),
    ] {
        lab.write(FILE, format!("{text}ask: {ask}\n"));
        let said = lab.run(&["validate"]).failed(1);
        assert!(said.contains(&format!("{FILE}:{line}:")) && said.contains(key) && said.contains(why), "{ask}: {said}");
    }
}

/// A lab whose device says that it is done with this number, and answered 4 and 5, as this key signs it.
fn answered(signer: &str, asked: u64) -> Lab {
    let lab = Lab::with(&[DEVICE]);
    lab.publish();
    let reporter = Reporter { lab: &lab, device: DEVICE };
    let (time, trailers) = ("2026-01-01T00:00:00Z", reporter.trailers("heartbeat"));
    let state = json!({"layout": 1, "time": time, "serial": 1, "deployments": {}, "asked": asked});
    let logs = json!({"number": 4, "what": "logs", "deployment": "hello", "time": time, "outcome": "done",
        "logs": {"web": ["web-1  | \u{1b}[2Jready", "web-1  | two\nlines"]}});
    let refused = json!({"number": 5, "what": "diagnostics", "time": time, "outcome": "refused",
        "reason": "the site doesn't \u{1b}allow it"});
    let files = [
        ("current-state.json", state.to_string()),
        ("answers/4.json", logs.to_string()),
        ("answers/5.json", refused.to_string()),
        ("answers/9.json", "{}".to_owned()),
    ];
    reporter.commit("heartbeat", signer, &files, &trailers);
    lab
}

#[test]
fn answers_are_shown_as_the_device_signed_them_and_steer_no_terminal() {
    let lab = answered(DEVICE, 5);
    let answers = |args: &[&str]| lab.run(&[&["device", "answers", DEVICE], args].concat());
    let all = answers(&[]).good();
    let rows =
        all.lines().map(|line| line.split_whitespace().take(4).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>();
    assert_eq!(
        rows[..4],
        [
            "press-01: done with 5".to_owned(),
            "NUMBER WHAT OUTCOME TIME".to_owned(),
            "4 logs hello done".to_owned(),
            "5 diagnostics refused 2026-01-01T00:00:00Z".to_owned(),
        ]
    );
    assert!(all.contains("doubtful: report-invalid: `answers/9.json` can't be read"), "{all}");
    let one = answers(&["4"]).good();
    assert_eq!(
        one,
        "4 (logs hello): done at 2026-01-01T00:00:00Z\nweb  web-1  | \\u{1b}[2Jready\nweb  web-1  | two\\nlines\n"
    );
    let refused = answers(&["5"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.out.ends_with(": the site doesn't \\u{1b}allow it\n"), "{}", refused.out);
    let json = answers(&["4", "--output", "json"]).good();
    assert!(!json.contains('\u{1b}'), "{json}");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["answers"][0]["logs"]["web"][0], "web-1  | \u{1b}[2Jready", "it means the same");
    assert!(answers(&["6"]).failed(1).contains("press-01 hasn't answered 6 yet"));
    let gone = answers(&["3"]).failed(1);
    assert!(gone.contains("press-01 has no answer 3, though it is done with 5"), "{gone}");
    assert!(gone.contains("answers stand for 24 hours, of refusals only the newest one"), "{gone}");
    assert!(lab.run(&["device", "answers", "press-99"]).failed(1).contains("no device `press-99`"));
    // The next number is above what the device is done with, whatever the file lost.
    assert!(lab.run(&["device", "sync", DEVICE]).good().contains("press-01 is asked: 6 (sync)"));
    let waited = lab.run(&["device", "sync", DEVICE, "--wait=0s"]).failed(1);
    assert!(waited.contains("press-01 hasn't answered 7 yet"), "{waited}");
}

#[test]
fn an_answer_that_another_key_signed_is_none() {
    let lab = answered("a-stranger", 5);
    let all = lab.run(&["device", "answers", DEVICE]).good();
    assert!(all.contains("no answer stands\ndoubtful: signature-invalid: "), "{all}");
    assert!(lab.run(&["device", "answers", DEVICE, "4"]).failed(1).contains("doesn't say that it answers anything"));
}

#[test]
fn a_device_that_lies_about_its_number_breaks_nothing() {
    let lab = answered(DEVICE, u64::MAX);
    let said = lab.run(&["device", "sync", DEVICE]).good();
    assert!(said.contains("press-01 is asked: 9007199254740991 (sync)"), "{said}");
    lab.run(&["validate"]).good();
}
