//! `history`: what became of a device, a line for each signed commit.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use serde_json::{Value, json};

use crate::audit::honest::Honest;
use crate::reports::Reporter;
use crate::support::{Lab, after};

fn shown(lab: &Lab, args: &[&str]) -> (Option<i32>, Value) {
    let ran = lab.run(&[&["history", "press-01", "--output", "json"], args].concat());
    (ran.code, serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}", ran.err)))
}

fn events(value: &Value) -> &Vec<Value> {
    value["events"].as_array().expect("events")
}

fn words(value: &Value) -> Vec<&str> {
    events(value).iter().map(|one| one["event"].as_str().expect("a word")).collect()
}

#[test]
fn each_line_is_of_a_commit_which_says_the_same() {
    let honest = Honest::new();
    let lab = &honest.lab;
    let (code, all) = shown(lab, &["-n", "1000"]);
    assert_eq!((code, &all["good"], &all["older"]), (Some(0), &true.into(), &0.into()), "{all:#}");
    // All was published in one second, and the device's clock is ahead of that.
    let mut oldest = words(&all);
    oldest.reverse();
    assert_eq!(oldest[..4], ["published"; 4]);
    assert_eq!(oldest[4..8], ["accepted", "transition", "transition", "transition"]);
    let mut serials = [4, 4];
    for one in events(&all) {
        let (branch, commit) = (one["branch"].as_str().expect("a branch"), one["commit"].as_str().expect("a commit"));
        lab.git("press-01", &["merge-base", "--is-ancestor", commit, branch]);
        let message = lab.message("press-01", commit);
        let what = &one["what"];
        match one["event"].as_str() {
            Some("published") => {
                assert_eq!((&what["serial"], what["subject"].as_str()), (&serials[0].into(), Some(message.subject())));
                serials[0] -= 1;
            }
            Some("accepted") => {
                assert_eq!(what["serial"], serials[1]);
                serials[1] -= 1;
            }
            _ => {
                let step = format!("/* {} > {}", what["from"].as_str().unwrap(), what["to"].as_str().unwrap());
                assert!(message.all("State").any(|state| state.ends_with(&step)), "{message}");
            }
        }
    }
    let page = lab.run(&["history", "press-01", "-n", "3"]).good();
    let older = events(&all).len() - 3;
    assert!(page.ends_with(&format!("\nand {older} older: -n COUNT shows more\n")), "{page}");
    assert!(page.lines().nth(1).is_some_and(|line| line.contains("hello: installing > installed")), "{page}");
    let page = lab.run(&["history", "press-01", "-n", "100"]).good();
    let line = "published hello: add (serial 1); fleet commit ";
    assert!(page.contains(line) && page.contains(", by wfm-git-publisher (unverified)"), "{page}");
    let since = shown(lab, &["--since", &after(3600)]).1;
    assert_eq!(events(&since).len(), 0);
    lab.run(&["history", "press-01", "--since", "yesterday"]).failed(2);
}

/// A status of the device upon the one before, with these conditions and gates.
pub(crate) fn tells(lab: &Lab, signer: &str, conditions: Value, gates: Value) {
    let reporter = Reporter { lab, device: "press-01" };
    let (tip, serial, id) = (lab.tip("press-01", "desired").unwrap(), lab.serial("press-01"), reporter.deployment());
    let syncer = json!({"layout": 1, "version": "0.3.0", "instance": "00000000-0000-0000-0000-000000000001",
        "adopted": crate::restore::adopted_by(lab, "press-01"), "conditions": conditions, "holds": [], "gates": gates});
    let document = json!({"deploymentId": id, "deviceId": "press-01", "adoptedManifestVersion": 1,
        "status": {"state": "installed"}, "components": [{"name": "hello", "state": "installed"}]});
    let before: Vec<_> = lab.tip("press-01", "status").into_iter().collect();
    let states = if before.is_empty() {
        format!("State: {id}/* none > installed\nState: {id}/hello none > installed\n")
    } else {
        String::new()
    };
    let trailers = format!("{}Serial: {serial}\nDesired-Commit: {tip}\n{states}", reporter.trailers("status"));
    let path = format!("deployments/{id}.json");
    let files = [("syncer.json", syncer.to_string()), (path.as_str(), document.to_string())];
    reporter.commit_upon(&before, "status", signer, &files, &trailers);
}

#[test]
fn gates_and_conditions_come_and_go_and_what_is_not_believed_is_not_shown() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let forked = json!([{"type": "SecurityEvent", "reason": "HistoryForked", "message": "another one signs"}]);
    let held = json!([{"code": "held", "since": after(-60), "text": "line 2", "by": "j.doe"}]);
    tells(&lab, "press-01", json!([]), json!([]));
    tells(&lab, "press-01", forked.clone(), held.clone());
    tells(&lab, "press-01", forked.clone(), held);
    tells(&lab, "press-01", json!([]), json!([]));
    let all = shown(&lab, &[]).1;
    let expected =
        ["condition-cleared", "gate-opened", "condition", "gate-closed", "transition", "accepted", "published"];
    assert_eq!(words(&all), expected, "{all:#}");
    let page = lab.run(&["history", "press-01"]).out;
    for line in [
        "  SecurityEvent: HistoryForked: another one signs\n",
        "  SecurityEvent: HistoryForked cleared\n",
        "  everything: held, gate closed by j.doe: line 2\n",
        "  everything: held, gate opened\n",
    ] {
        assert!(page.contains(line), "{line}{page}");
    }
    // A stranger's commit upon it is nobody's word.
    tells(&lab, "mallory", forked, json!([]));
    let (code, with) = shown(&lab, &[]);
    assert_eq!((code, &with["good"], words(&with)), (Some(1), &false.into(), expected.to_vec()));
    let said = lab.run(&["history", "press-01"]).failed(1);
    assert!(said.contains("signature-invalid: "), "{said}");
}
