//! The commits that publishing makes, as stock Git shows them.

use std::fs;

use repo_model::{Digest, Trailer};
use repo_testkit::git::git;

use crate::support::{BEGIN, Lab, SECOND, after};

#[test]
fn a_fleet_commit_becomes_one_signed_commit_on_each_device() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    let first = git(&lab.fleet, &["rev-parse", "HEAD"]);
    assert_eq!(lab.publish_all().published(), 2);
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    let second = lab.commit();
    assert_eq!(lab.publish_all().published(), 1, "the packer has its own greeting");

    assert_eq!(lab.subjects("press-01"), ["hello: change greeting (serial 2)", "hello: add (serial 1)"]);
    assert_eq!(lab.subjects("packer-01"), ["hello: add (serial 1)"]);
    assert!(!lab.repo("press-02").exists(), "nothing is published for a device without a key");

    let message = lab.message("press-01", "desired");
    let keys: Vec<_> = message.trailers().iter().map(|(key, _)| key.as_str()).collect();
    let order = "Kind Fleet Device Serial Manifest-Version Manifest-Digest Envelope-Digest Fleet-Commit Operator-Key Deployment";
    assert_eq!(keys.join(" "), order);
    let id = lab.json("press-01", "desired", "manifest.json")["deployments"][0]["deploymentId"].clone();
    assert_eq!(message.get(Trailer::Deployment).unwrap(), format!("change hello {} {second}", id.as_str().unwrap()));
    assert_eq!(message.get(Trailer::FleetCommit), Some(second.as_str()));
    assert_eq!(lab.message("press-01", "desired~1").get(Trailer::FleetCommit), Some(first.as_str()));
    for (key, path) in [(Trailer::EnvelopeDigest, "envelope.json"), (Trailer::ManifestDigest, "manifest.json")] {
        let bytes = format!("{}\n", lab.git("press-01", &["show", &format!("desired:{path}")]));
        assert_eq!(message.get(key).unwrap(), Digest::of(bytes.as_bytes()).to_string());
    }
}

#[test]
fn every_commit_is_signed_and_every_repository_is_sound() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    lab.write("deployments/second.yaml", SECOND);
    lab.commit();
    lab.publish_all();
    let signers = lab.home.allowed_signers();
    let signers = format!("gpg.ssh.allowedSignersFile={}", signers.display());
    for (repo, branches) in
        [(lab.repo("press-01"), &["desired", "bundle", "freshness"][..]), (lab.home.control(), &["control"])]
    {
        git(&repo, &["fsck", "--strict", "--full"]);
        for branch in branches {
            for commit in git(&repo, &["rev-list", branch]).lines() {
                git(&repo, &["-c", &signers, "verify-commit", commit]);
                let message = git(&repo, &["log", "-1", "--format=%B", commit]);
                assert!(message.contains(&format!("\nKind: {branch}\n")), "{message}");
            }
        }
    }
    let subjects = lab.control(&["log", "--format=%s", "control"]);
    assert_eq!(
        subjects,
        "published 1 serial\nreserve 1 serial\npublished 1 serial\nreserve 1 serial\nroster version 1"
    );
    assert_eq!(lab.ledger("press-01")["state"], "published");
}

#[test]
fn the_bundle_is_the_archive_that_the_manifest_names() {
    let lab = Lab::with(&["press-01"]);
    lab.write("deployments/second.yaml", SECOND);
    lab.commit();
    lab.publish_all();
    assert_eq!(lab.git("press-01", &["rev-list", "--count", "bundle"]), "1");
    let archive = repo_testkit::git::show(&lab.repo("press-01"), "bundle", "bundle.tar.gz").unwrap();
    let manifest = lab.json("press-01", "desired", "manifest.json");
    assert_eq!(manifest["bundle"]["digest"], Digest::of(&archive).to_string());
    let file = lab.dir().join("bundle.tar.gz");
    repo_git::durable::replace_file(&file, &archive, 0o600).unwrap();
    let listed = std::process::Command::new("tar").arg("-tzf").arg(&file).output().unwrap();
    let mut names: Vec<_> = String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect();
    let documents = manifest["deployments"].as_array().unwrap().iter();
    let mut expected: Vec<_> = documents.map(|one| format!("{}.yaml", one["deploymentId"].as_str().unwrap())).collect();
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
}

#[test]
fn freshness_names_the_tip_and_is_renewed_at_half_its_life() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let tip = lab.tip("press-01", "desired").unwrap();
    let fresh = |lab: &Lab| lab.json("press-01", "freshness", "freshness.json");
    assert_eq!(fresh(&lab)["tip"], tip.as_str());
    assert_eq!(fresh(&lab)["issued"], after(0));
    assert_eq!(fresh(&lab)["expires"], after(24 * 3600));
    let before = lab.refs("press-01");
    lab.publish_at(*BEGIN + 12 * 3600 - 1);
    assert_eq!(lab.refs("press-01"), before);
    lab.publish_at(*BEGIN + 12 * 3600);
    assert_eq!(fresh(&lab)["expires"], after(36 * 3600));
    assert_eq!(lab.tip("press-01", "desired").unwrap(), tip, "a renewal is not a desired commit");
    assert_eq!(lab.git("press-01", &["rev-list", "--count", "freshness"]), "1");
}

#[test]
fn the_operator_is_the_author_if_one_verified_commit_alone_is_the_cause() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let operator = Lab::device_key("an operator");
    let key = lab.dir().join("operator");
    operator.save(&key).unwrap();
    let line = format!("# who may\n\n{} olga\n", operator.public());
    repo_git::durable::replace_file(&lab.home.operators(), line.as_bytes(), 0o600).unwrap();
    let signed = |greeting: &str, before: &str| {
        lab.edit("deployments/hello.yaml", before, greeting);
        let signing = format!("user.signingkey={}", key.display());
        let args = ["-c", "gpg.format=ssh", "-c", &signing, "commit", "--quiet", "-S", "-am", "a change"];
        git(&lab.fleet, &args);
    };
    let author = || lab.git("press-01", &["log", "-1", "--format=%an", "desired"]);
    assert_eq!(
        (author(), lab.trailer("press-01", Trailer::OperatorKey)),
        ("wfm-git-publisher".into(), "unverified".into())
    );

    signed("one", "hello from the press");
    lab.publish_all();
    assert_eq!(author(), "test", "the author of the operator's commit");
    assert_eq!(lab.trailer("press-01", Trailer::OperatorKey), operator.public().fingerprint());

    signed("two", "one");
    signed("three", "two");
    lab.publish_all();
    assert_eq!(author(), "wfm-git-publisher", "two commits may be the cause");
    assert_eq!(lab.trailer("press-01", Trailer::OperatorKey), operator.public().fingerprint());

    lab.write("deployments/broken.yaml", "id: broken\n");
    lab.commit();
    assert!(!lab.publish().is_complete());
    lab.remove("deployments/broken.yaml");
    signed("four", "three");
    lab.publish_all();
    assert_eq!(
        author(),
        "test",
        "the device had everything of the commit before, although that couldn't be all published"
    );

    lab.edit("deployments/hello.yaml", "four", "five");
    lab.commit();
    lab.publish_all();
    assert_eq!(
        (author(), lab.trailer("press-01", Trailer::OperatorKey)),
        ("wfm-git-publisher".into(), "unverified".into())
    );
}

#[test]
fn no_value_of_a_parameter_is_in_the_text_of_a_commit() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    lab.edit("deployments/hello.yaml", "hello from the press", "\"canary-7f3a\\nKind: desired\"");
    lab.commit();
    lab.publish_all();
    let text = lab.git("press-01", &["log", "--all", "--format=%B"]) + &lab.control(&["log", "--format=%B"]);
    assert!(!text.contains("canary-7f3a"), "{text}");
    assert!(lab.documents("press-01")["hello"].contains("canary-7f3a"), "the search would find it");
}

#[test]
fn publishing_needs_no_root_key() {
    let lab = Lab::with(&["press-01"]);
    #[allow(clippy::disallowed_methods, reason = "a test takes the key away")]
    fs::remove_file(lab.home.root_key()).unwrap();
    assert_eq!(lab.publish_all().published(), 1);
}
