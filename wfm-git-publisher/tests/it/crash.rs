//! A pass that was cut off anywhere is completed by the next one.

use repo_model::Trailer;
use std::fs;

use repo_testkit::git::git;

use crate::support::{Lab, copy};

/// A change to publish.
fn change(lab: &Lab) {
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    lab.commit();
}

#[test]
fn a_reserved_serial_is_used_again_for_the_same_envelope() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let before = lab.dir().join("before");
    copy(&lab.repo("press-01"), &before);
    change(&lab);
    lab.publish_all();
    let digest = lab.trailer("press-01", Trailer::EnvelopeDigest);
    // As it was after the reservation, and before anything was written to the device's repository.
    copy(&before, &lab.repo("press-01"));
    lab.control(&["update-ref", "refs/heads/control", "control~1"]);
    assert_eq!(lab.ledger("press-01")["state"], "reserved");
    lab.publish_all();
    assert_eq!((lab.serial("press-01"), lab.trailer("press-01", Trailer::EnvelopeDigest)), (2, digest));
    assert!(lab.message("press-01", "desired").get(Trailer::Continues).is_none());
    assert_eq!(lab.ledger("press-01")["state"], "published");
    assert_eq!(lab.publish_all().published(), 0);
}

#[test]
fn a_reserved_serial_is_never_used_for_another_envelope() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let before = lab.dir().join("before");
    copy(&lab.repo("press-01"), &before);
    change(&lab);
    lab.publish_all();
    copy(&before, &lab.repo("press-01"));
    lab.control(&["update-ref", "refs/heads/control", "control~1"]);
    lab.edit("deployments/hello.yaml", "servus", "something else");
    lab.commit();
    lab.publish_all();
    assert_eq!((lab.serial("press-01"), lab.trailer("press-01", Trailer::ManifestVersion)), (3, "3".to_owned()));
    assert!(lab.message("press-01", "desired").get(Trailer::Continues).is_none(), "nothing that went out was lost");
}

#[test]
fn a_pass_cut_off_after_the_first_branch_moved_is_completed() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let (desired, freshness) = (lab.tip("press-01", "desired"), lab.tip("press-01", "freshness"));
    change(&lab);
    lab.publish_all();
    // `bundle` moved, `desired` and `freshness` didn't.
    lab.git("press-01", &["update-ref", "refs/heads/desired", &desired.unwrap()]);
    lab.git("press-01", &["update-ref", "refs/heads/freshness", &freshness.unwrap()]);
    lab.control(&["update-ref", "refs/heads/control", "control~1"]);
    lab.publish_all();
    assert_eq!(lab.subjects("press-01"), ["hello: change greeting (serial 2)", "hello: add (serial 1)"]);
    assert_eq!(lab.json("press-01", "freshness", "freshness.json")["serial"], 2);
}

#[test]
fn a_pass_cut_off_before_its_end_is_remembered() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let freshness = lab.tip("press-01", "freshness").unwrap();
    change(&lab);
    lab.publish_all();
    // `desired` moved; nothing after it happened.
    lab.git("press-01", &["update-ref", "refs/heads/freshness", &freshness]);
    lab.control(&["update-ref", "refs/heads/control", "control~1"]);
    let desired = lab.tip("press-01", "desired");
    assert_eq!(lab.publish_all().published(), 0);
    assert_eq!(lab.tip("press-01", "desired"), desired);
    assert_eq!(lab.json("press-01", "freshness", "freshness.json")["serial"], 2);
    assert_eq!(lab.ledger("press-01")["state"], "published");
    assert_eq!(lab.control(&["log", "-1", "--format=%s", "control"]), "remember what is published");
}

#[test]
fn what_a_killed_process_left_behind_is_no_obstacle() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    change(&lab);
    let objects = lab.repo("press-01").join("objects/pack/.tmp-1-1");
    repo_git::durable::replace_file(&objects, b"half a pack", 0o600).unwrap();
    for lock in ["refs/heads/desired.lock", "refs/heads/bundle.lock"] {
        let lock = lab.repo("press-01").join(lock);
        repo_git::durable::replace_file(&lock, b"", 0o600).unwrap();
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
        fs::File::options().write(true).open(&lock).unwrap().set_modified(old).unwrap();
    }
    lab.publish_all();
    assert_eq!(lab.serial("press-01"), 2);
}

#[test]
fn two_publishers_at_once_make_one_commit() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.publish_all();
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    lab.edit("deployments/hello.yaml", "hello from the packer", "servus too");
    lab.commit();
    let mut both: Vec<_> = (0..4)
        .map(|_| {
            let mut command = lab.command(&["publish"]);
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in both.drain(..) {
        crate::support::Ran::of(child.wait_with_output().unwrap()).good();
    }
    assert_eq!((lab.serial("press-01"), lab.serial("packer-01")), (2, 2));
    git(&lab.home.control(), &["fsck", "--strict"]);
    assert_eq!(lab.control(&["log", "--format=%s", "-2", "control"]), "published 2 serials\nreserve 2 serials");
}

#[test]
fn a_half_made_repository_is_completed() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    let half = lab.repo("press-01");
    repo_git::durable::remove_dir_all(&half).unwrap();
    repo_git::durable::create_dir_all(&half.join("objects"), 0o755).unwrap();
    assert_eq!(lab.run(&["plan"]).code, Some(3));
    lab.publish_all();
    assert_eq!(lab.serial("press-01"), 1);
    // The memory likewise, if there is something to learn from.
    repo_git::durable::remove_dir_all(&lab.home.control()).unwrap();
    repo_git::durable::create_dir_all(&lab.home.control().join("refs"), 0o755).unwrap();
    lab.publish_all();
    assert_eq!(lab.ledger("packer-01")["serial"], 1);
}
