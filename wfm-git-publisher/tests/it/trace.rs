//! `trace`: what became of a commit of the fleet on each device, with stock Git as the witness.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use repo_git::{CommitSpec, Expected, RefMove, Repo, TreeSource};
use repo_testkit::git::git;
use serde_json::{Value, json};

use crate::audit::honest::Honest;
use crate::reports::Reporter;
use crate::support::{BEGIN, Lab, after};
use crate::waves::{self, FIRST, change, reports};

fn traced(lab: &Lab, args: &[&str]) -> Value {
    let text = lab.run(&[&["trace", "--output", "json"], args].concat()).good();
    serde_json::from_str(&text).expect("JSON")
}

/// What became of it on a device.
fn on<'a>(value: &'a Value, device: &str) -> &'a Value {
    value["devices"].as_array().expect("devices").iter().find(|one| one["device"] == device).expect("the device")
}

/// Each device with its state.
fn states(value: &Value) -> Vec<(&str, &str)> {
    let devices = value["devices"].as_array().expect("devices").iter();
    devices.map(|one| (one["device"].as_str().expect("an id"), one["state"].as_str().expect("a word"))).collect()
}

/// The oldest commit of `status` that has this line in its message.
fn oldest(lab: &Lab, device: &str, line: &str) -> Value {
    let found = lab.git(device, &["log", "--reverse", "--format=%H", "--fixed-strings", "--grep", line, "status"]);
    found.lines().next().expect("a commit").into()
}

#[test]
fn a_commit_is_followed_to_the_state_and_to_what_the_device_said_of_it() {
    let honest = Honest::new();
    let lab = &honest.lab;
    let head = traced(lab, &[]);
    let commit = git(&lab.fleet, &["rev-parse", "HEAD"]);
    let author = git(&lab.fleet, &["log", "-1", "--format=%an"]);
    assert_eq!((&head["commit"]["id"], &head["commit"]["author"]), (&commit.as_str().into(), &author.into()));
    let press = on(&head, "press-01");
    let desired = lab.tip("press-01", "desired").expect("a tip");
    assert_eq!(press["state"], "installed", "{press:#}");
    assert_eq!(
        (&press["published"]["serial"], &press["published"]["commit"], &press["published"]["deployments"]),
        (&4.into(), &desired.as_str().into(), &json!(["second"]))
    );
    assert_eq!(press["accepted"]["commit"], oldest(lab, "press-01", &format!("Desired-Commit: {desired}")));
    assert_eq!(press["installed"]["commit"], oldest(lab, "press-01", "/* removing > removed"));
    assert!(press["accepted"]["time"].as_str() < press["installed"]["time"].as_str(), "{press:#}");

    // An older one, which changed nothing for the packer: that got it with the next state it needed, of a later commit.
    let older = traced(lab, &["HEAD~2"]);
    let [second, third] = ["HEAD~2", "HEAD~1"].map(|rev| git(&lab.fleet, &["rev-parse", rev]));
    let (press, packer) = (on(&older, "press-01"), on(&older, "packer-01"));
    assert_eq!(
        (&press["published"]["serial"], &press["published"]["fleetCommit"]),
        (&2.into(), &second.as_str().into())
    );
    assert_eq!(
        (&packer["published"]["serial"], &packer["published"]["fleetCommit"]),
        (&2.into(), &third.as_str().into())
    );
    let accepted = lab.git("press-01", &["rev-parse", "desired~2"]);
    assert_eq!(press["accepted"]["commit"], oldest(lab, "press-01", &format!("Desired-Commit: {accepted}")));
    assert_eq!((&press["state"], &packer["state"]), (&"installed".into(), &"installed".into()));
    let table = lab.run(&["trace", "HEAD~2", "--exit-code"]).good();
    assert!(
        table.contains(&format!(" 2 of {}  ", &third[..12]))
            && table.contains("\n2 devices: 2 installed; 1 not enrolled\n"),
        "{table}"
    );
    lab.run(&["trace", "nowhere"]).failed(1);
}

/// Five devices; a change of `hello` is released to the first of them.
fn in_waves() -> (Lab, String) {
    let lab = waves::lab();
    change(&lab, FIRST, "servus");
    assert!(lab.publish_at(*BEGIN).is_complete());
    let has = |lab: &Lab, device: &str| lab.documents(device)["hello"].contains("servus");
    let first = (1..=5).map(|number| format!("press-0{number}")).find(|device| has(&lab, device));
    (lab, first.expect("one device"))
}

#[test]
fn what_a_rollout_holds_back_is_not_there_although_a_newer_state_contains_the_commit() {
    let (lab, first) = in_waves();
    let asked = git(&lab.fleet, &["rev-parse", "HEAD"]);
    let now = traced(&lab, &[&asked]);
    assert_eq!(now["summary"]["states"], json!({"held-back": 4, "published": 1}), "{now:#}");
    assert_eq!((&now["rollouts"][0]["rollout"], &now["rollouts"][0]["heldBack"]), (&1.into(), &4.into()));
    assert_eq!(on(&now, &first)["published"]["waves"], json!([{"rollout": 1, "wave": 1}]));
    let page = lab.run(&["trace", "--exit-code"]);
    assert!(page.out.contains("\nRollout 1 (running): wave 1 with 1 device at "), "{}", page.out);
    assert!(page.out.contains(", 4 devices held back\n"), "{}", page.out);
    // Whoever waits for the same stands in one line.
    assert_eq!(page.out.lines().filter(|line| line.starts_with("held-back")).count(), 2, "{}", page.out);
    let _ = page.failed(1);

    // Settings come to all at once, by a commit that contains the one that is held.
    lab.edit("fleet.yaml", "poll: 15s", "poll: 16s");
    lab.commit();
    assert!(lab.publish_at(*BEGIN).is_complete());
    let then = traced(&lab, &[&asked]);
    assert_eq!(then["summary"]["states"], json!({"held-back": 4, "published": 1}), "{then:#}");
    let settings = traced(&lab, &[]);
    assert_eq!(on(&settings, &first)["published"]["serial"], 3);

    // Once it is released, it came with that state and not with the settings.
    (1..=5).for_each(|number| reports(&lab, &format!("press-0{number}"), "installed"));
    assert!(lab.publish_at(*BEGIN + 62).is_complete());
    let released = traced(&lab, &[&asked]);
    let second: Vec<_> = released["devices"].as_array().expect("devices").iter().collect();
    let second: Vec<_> = second.iter().filter(|one| one["published"]["waves"][0]["wave"] == 2).collect();
    assert_eq!(second.len(), 2, "{released:#}");
    assert!(second.iter().all(|one| one["published"]["serial"] == 3 && one["state"] == "published"), "{released:#}");
    assert_eq!(on(&released, &first)["published"]["serial"], 2);
}

/// Makes the tip of `status` one of this second by the device's clock.
pub(crate) fn said_at(lab: &Lab, device: &str, second: i64) {
    let repo = Repo::open(&lab.repo(device)).expect("a repository");
    let tip = repo.commit(repo.tip("status").expect("readable").expect("a tip")).expect("a commit");
    let (author, committer, tree) = (tip.author.clone(), tip.committer, TreeSource::Existing(tip.tree));
    let spec = CommitSpec { tree, parents: Vec::new(), author, committer, time: second, message: tip.message };
    let mut batch = repo.batch();
    let new = batch.commit(&spec, Some(&Lab::device_key(device))).expect("made");
    batch.store().expect("stored");
    let name = "refs/heads/status".to_owned();
    repo.move_refs(&[RefMove { name, expected: Expected::Any, new: Some(new) }]).expect("moved");
}

#[test]
fn whoever_was_not_heard_or_is_not_believed_is_never_counted_as_done() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.publish_all();
    assert_eq!(
        states(&traced(&lab, &[])),
        [("packer-01", "published"), ("press-01", "published"), ("press-02", "not-enrolled"),]
    );
    // A stranger's word is none.
    Reporter { lab: &lab, device: "press-01" }.status("mallory", "installed", "");
    let press = on(&traced(&lab, &[]), "press-01").clone();
    assert_eq!((&press["state"], &press["health"]), (&"published".into(), &"doubtful".into()), "{press:#}");
    assert!(press["why"].as_str().is_some_and(|why| why.contains("signature-invalid")), "{press:#}");
    lab.run(&["trace", "--device", "press-01", "--exit-code"]).failed(1);
    // It counts once it is heard.
    reports(&lab, "press-01", "installed");
    Reporter { lab: &lab, device: "press-01" }.heartbeat("press-01", &after(-60));
    lab.run(&["trace", "--device", "press-01", "--exit-code"]).good();
    lab.run(&["trace", "--exit-code"]).failed(1);
    // One that said so two hours ago, and nothing since, has it and isn't fine.
    said_at(&lab, "press-01", *BEGIN - 7200);
    lab.was_heard("press-01", 7200);
    lab.git("press-01", &["update-ref", "-d", "refs/heads/heartbeat"]);
    let silent = lab.run(&["trace", "--device", "press-01", "--exit-code"]);
    assert!(
        silent.out.contains("\n1 device: 1 installed; 1 installed, but not heard or doubtful now\n"),
        "{}",
        silent.out
    );
    let _ = silent.failed(1);
    reports(&lab, "packer-01", "failed");
    let all = traced(&lab, &["--failed"]);
    assert_eq!(states(&all), [("packer-01", "failed")]);
    assert!(all["devices"][0]["why"].as_str().is_some_and(|why| why.starts_with("hello: apply-failed")), "{all:#}");
    assert_eq!(all["summary"]["states"], json!({"failed": 1, "installed": 1}));
}

#[test]
fn what_is_not_published_says_why_and_what_is_taken_back_is_not_there() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.publish_all();
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    let asked = lab.commit();
    let state = |device: &str| on(&traced(&lab, &[&asked]), device)["state"].clone();
    assert_eq!((state("press-01"), state("packer-01")), ("pending".into(), "pending".into()));
    lab.publish_all();
    assert_eq!((state("press-01"), state("packer-01")), ("published".into(), "unchanged".into()));
    let page = lab.run(&["trace"]).good();
    assert!(page.contains("\n1 device: 1 published; 1 unchanged by it; 1 not enrolled\n"), "{page}");
    // Somebody goes back.
    lab.run(&["publish", "--rev", "HEAD~1"]).good();
    assert_eq!((state("press-01"), state("packer-01")), ("pending".into(), "pending".into()));
    // A guard refuses what comes next.
    lab.edit("deployments/hello.yaml", "id: hello\n", "id: hello-anew\n");
    lab.commit();
    assert!(!lab.publish().is_complete());
    let press = on(&traced(&lab, &[]), "press-01").clone();
    assert_eq!(press["state"], "not-publishable", "{press:#}");
    assert!(press["why"].as_str().is_some_and(|why| why.contains("hello-anew")), "{press:#}");
}

#[test]
fn it_is_said_who_agreed_where_somebody_has_to() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    assert_eq!(traced(&lab, &[])["agreement"], Value::Null);
    let anna = lab.dir().join("anna");
    let key = Lab::device_key("anna");
    key.save(&anna).expect("saved");
    std::fs::write(anna.with_extension("pub"), key.public().to_string()).expect("written");
    let anna = anna.display().to_string();
    lab.run(&["signers", "init", "--name", "anna", "--key", &anna]).good();
    lab.publish_all();
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    let commit = lab.commit();
    assert_eq!(traced(&lab, &[])["agreement"]["covered"], false);
    lab.run(&["approve", "--key", &anna]).good();
    for is_published in [false, true] {
        if is_published {
            lab.publish_all();
        }
        let agreement = traced(&lab, &[])["agreement"].clone();
        assert_eq!((&agreement["covered"], &agreement["signatures"][0]["person"]), (&true.into(), &"anna".into()));
        let page = lab.run(&["trace"]).good();
        assert!(page.contains(&format!("\nAgreed: yes; anna approved {}\n", &commit[..12])), "{page}");
    }
}
