//! A publisher's key is gone: what the emergency asks for, what ends with it, and what it says of the key.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::fs;
use std::path::PathBuf;

use jiff::Timestamp;
use repo_git::SigningKey;
use repo_testkit::git::git;
use serde_json::{Value, json};
use wfm_git_host::accounts::{Role, Store};

use crate::support::{BEGIN, Lab, Ran, copy};

const LONG_AGO: &str = "2020-01-01T00:00:00Z";

/// A home as a backup of before has it, and a work tree that is newer.
fn lab() -> Lab {
    let lab = Lab::with(&["press-01", "press-02"]);
    lab.publish_all();
    lab
}

fn emergency(lab: &Lab, since: &str) -> Ran {
    lab.run(&["trust", "publish", "--emergency", "--since", since, "--output", "json"])
}

fn read(ran: Ran) -> Value {
    serde_json::from_str(&ran.good()).unwrap()
}

fn fingerprint(lab: &Lab) -> String {
    let shown = read(lab.run(&["trust", "show", "--output", "json"]));
    shown["publishers"][0]["fingerprint"].as_str().unwrap().to_owned()
}

/// Another key of this home in the place of the only one, signed by the root key that lies beside the fleet.
fn propose(lab: &Lab) {
    let old = fingerprint(lab);
    lab.run(&["trust", "propose", "--new-publisher", "--drop-publisher", &old]).good();
    let root = lab.dir().join("root").display().to_string();
    lab.run(&["trust", "sign", "--key", &root]).good();
}

/// The root key, which is elsewhere.
fn take_root(lab: &Lab) -> PathBuf {
    let root = lab.dir().join("root");
    fs::rename(lab.home.root_key(), &root).unwrap();
    root
}

/// A commit of the old key's upon the tip of `desired`, as a thief makes it, with that date.
fn forge(lab: &Lab, key: &SigningKey, second: i64) -> String {
    use repo_git::repo::{Expected, RefMove};
    use repo_git::{CommitSpec, Person, Repo, TreeSource};
    let repo = Repo::open(&lab.repo("press-01")).unwrap();
    let tip = repo.tip("desired").unwrap().unwrap();
    let files = repo.files(tip, &repo_git::TreeLimits::default()).unwrap();
    let who = Person::new("thief", "thief@example.invalid");
    let message = "not the publisher's\n\nKind: desired\nDevice: press-01\nSerial: 2\n".to_owned();
    let (author, committer) = (who.clone(), who);
    let spec =
        CommitSpec { tree: TreeSource::Files(&files), parents: vec![tip], author, committer, time: second, message };
    let mut batch = repo.batch();
    let commit = batch.commit(&spec, Some(key)).unwrap();
    batch.store().unwrap();
    let step = RefMove { name: "refs/heads/desired".to_owned(), expected: Expected::Any, new: Some(commit) };
    repo.move_refs(&[step]).unwrap();
    commit.to_string()
}

#[test]
fn an_emergency_drops_a_key_takes_a_new_one_and_ends_every_secret() {
    let lab = lab();
    take_root(&lab);
    let (old, root) = (fingerprint(&lab), lab.dir().join("root").display().to_string());
    // Nothing is proposed: there is nothing to end by mistake.
    let (store, now) = (Store::new(lab.home.accounts()), Timestamp::now());
    let press: repo_model::DeviceId = "press-01".parse().unwrap();
    store.issue_for_device(&press, None, false, now).unwrap();
    store.add(&"olga".parse().unwrap(), Role::Operator, None, None, now).unwrap();
    store.add_without_secret(&"anna".parse().unwrap(), Role::Auditor, None).unwrap();
    store.add(&"gone".parse().unwrap(), Role::Auditor, None, None, now).unwrap();
    store.revoke(&"gone".parse().unwrap(), now).unwrap();
    assert_eq!(read(emergency(&lab, LONG_AGO))["ended"], json!([]));
    let secrets = |name: &str| store.read(&name.parse().unwrap()).unwrap().unwrap().secrets.len();
    assert_eq!((secrets("press-01"), secrets("olga")), (1, 1));
    // A roster that keeps the key, or has none for this home, is refused, and so is one that the roots didn't sign.
    for (changes, why) in [
        (&["--new-publisher"][..], "drops no publisher's key"),
        (&["--add-publisher", &Lab::device_key("else").public().to_string(), "--drop-publisher", &old], "no new key"),
    ] {
        lab.run(&[&["trust", "propose", "--anew"], changes].concat()).good();
        lab.run(&["trust", "sign", "--key", &root]).good();
        let said = emergency(&lab, LONG_AGO).failed(1);
        assert!(said.contains(why) && said.contains("hint: propose it anew"), "{said}");
    }
    lab.run(&["trust", "propose", "--anew", "--new-publisher", "--drop-publisher", &old]).good();
    let said = emergency(&lab, LONG_AGO).failed(1);
    assert!(said.contains("can't be published"), "{said}");
    assert_eq!((secrets("press-01"), secrets("olga")), (1, 1), "who is refused ends nothing");
    lab.run(&["trust", "sign", "--key", &root]).good();
    let done = read(emergency(&lab, LONG_AGO));
    assert_eq!((&done["version"], &done["isNew"], &done["allowed"]), (&2.into(), &true.into(), &true.into()));
    assert_eq!(done["ended"], json!(["olga", "press-01"]));
    assert_eq!((secrets("press-01"), secrets("olga")), (0, 0));
    assert!(store.read(&"press-01".parse().unwrap()).unwrap().unwrap().revoked.is_none(), "it may come back");
    assert_ne!(fingerprint(&lab), old);
    assert_eq!(done["unknown"], json!([]), "the ledger knows all that was published");
    let outcome = lab.publish_all();
    assert_eq!(outcome.published(), 2, "everything is issued anew");
    let again = read(emergency(&lab, LONG_AGO));
    assert_eq!((&again["isNew"], &again["ended"], &again["unknown"]), (&false.into(), &json!([]), &json!([])));
}

#[test]
fn what_the_old_key_signed_and_no_ledger_knows_is_listed_whatever_its_date() {
    let lab = lab();
    take_root(&lab);
    let key = SigningKey::load(&lab.home.publisher_key()).unwrap();
    let forged = [forge(&lab, &key, *BEGIN + 10), forge(&lab, &key, 1_000_000_000)];
    let stranger = forge(&lab, &SigningKey::from_seed(&[9; 32]), *BEGIN + 20);
    propose(&lab);
    let since = Timestamp::from_second(*BEGIN + 5).unwrap().to_string();
    let unknown = read(emergency(&lab, &since))["unknown"].clone();
    let found: Vec<_> = unknown.as_array().unwrap().iter().map(|one| one["commit"].as_str().unwrap()).collect();
    assert_eq!(found, forged, "and not {stranger}, which no device believes: {unknown}");
    assert_eq!((&unknown[0]["device"], &unknown[0]["adopted"]), (&json!("press-01"), &json!(false)));
    let later = Timestamp::from_second(*BEGIN + 15).unwrap().to_string();
    assert_eq!(read(emergency(&lab, &later))["unknown"], json!([]));
    let text = lab.run(&["trust", "publish", "--emergency", "--since", &since]).good();
    assert!(text.contains("no ledger knows it:\nDEVICE ") && text.contains(&forged[0][..12]), "{text}");
}

/// Clones as an auditor has them, beside a home that is lost.
fn clones(lab: &Lab) -> (PathBuf, String) {
    let (clones, roster) = (lab.dir().join("clones"), lab.dir().join("roster.json"));
    fs::write(&roster, lab.git("press-01", &["show", "desired:trust/1.json"]) + "\n").unwrap();
    fs::create_dir(&clones).unwrap();
    for device in ["press-01", "press-02"] {
        let (from, to) = (lab.repo(device).display().to_string(), clones.join(format!("{device}.git")));
        git(lab.dir(), &["clone", "--quiet", "--mirror", &from, to.to_str().unwrap()]);
    }
    (clones, roster.display().to_string())
}

#[test]
fn a_home_is_made_of_clones_that_the_audit_accepts_and_of_no_others() {
    let lab = lab();
    let root = take_root(&lab);
    let (clones, roster) = clones(&lab);
    let tips = ["press-01", "press-02"].map(|device| lab.tip(device, "desired"));
    let named = clones.display().to_string();
    let restore = ["restore", "--clones", &named, "--roster", &roster];
    let said = lab.run(&restore).failed(1);
    assert!(said.contains("exists, and nothing is restored over it"), "{said}");
    fs::rename(lab.home.root(), lab.dir().join("lost")).unwrap();
    // A branch that nobody of the fleet signed, a roster that isn't the first, a file that isn't whole.
    let odd = clones.join("press-01.git");
    let kept = lab.dir().join("kept.git");
    copy(&odd, &kept);
    git(&odd, &["tag", "v1", "desired"]);
    let said = lab.run(&restore).failed(1);
    assert!(said.contains("foreign-ref") && said.contains("hint: clone them anew"), "{said}");
    fs::remove_dir_all(&odd).unwrap();
    copy(&kept, &odd);
    let other = Lab::with(&["press-01"]);
    other.publish_all();
    let text = other.git("press-01", &["show", "desired:trust/1.json"]) + "\n";
    let foreign = lab.dir().join("other.json");
    fs::write(&foreign, text).unwrap();
    let said = lab.run(&["restore", "--clones", &named, "--roster", foreign.to_str().unwrap()]).failed(1);
    assert!(said.contains("the audit doesn't accept these clones"), "{said}");
    assert!(!lab.home.root().exists());
    // What hooks and settings a clone has is left with it.
    fs::write(odd.join("hooks/post-update"), "#!/bin/sh\n").unwrap();
    let made = read(lab.run(&[&restore[..], &["--output", "json"]].concat()));
    assert_eq!(made["devices"], json!(["press-01", "press-02"]));
    assert_eq!(["press-01", "press-02"].map(|device| lab.tip(device, "desired")), tips);
    assert!(!lab.repo("press-01").join("hooks/post-update").exists());
    // It goes on with the roots alone.
    let said = lab.run(&["publish"]).failed(1);
    assert!(said.contains("keys/publisher"), "{said}");
    let old = fingerprint(&lab);
    lab.run(&["trust", "propose", "--new-publisher", "--drop-publisher", &old]).good();
    lab.run(&["trust", "sign", "--key", root.to_str().unwrap()]).good();
    let done = read(emergency(&lab, LONG_AGO));
    assert_eq!(done["unknown"].as_array().unwrap().len(), 2, "without a ledger, all of it: {done}");
    let outcome = lab.publish_all();
    assert_eq!((outcome.published(), lab.serial("press-01")), (2, 2));
    let signers = format!("gpg.ssh.allowedSignersFile={}", lab.home.allowed_signers().display());
    let log = lab.git("press-01", &["-c", &signers, "log", "--format=%G?", "desired"]);
    assert_eq!(log, "G\nG", "who signed before is named, too");
}
