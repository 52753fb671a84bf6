//! Repositories that were restored, lost, or written by someone else.

use repo_git::{CommitSpec, Expected, Person, RefMove, Repo, SigningKey, TreeSource};
use repo_model::envelope::MAX_JUMP;
use repo_model::report::{Adopted, SyncerReport};
use repo_model::{Digest, FileTree, Trailer, json};
use repo_testkit::git::git;

use crate::support::{BEGIN, Lab, copy};

/// Publishes until the device has this serial; each commit has another greeting.
fn publish_up_to(lab: &Lab, serial: u64) {
    for number in lab.tip("press-01", "desired").map_or(1, |_| lab.serial("press-01") + 1)..=serial {
        let text = lab.read("deployments/hello.yaml");
        let line = text.lines().find(|line| line.starts_with("  greeting:")).unwrap();
        lab.write("deployments/hello.yaml", text.replacen(line, &format!("  greeting: hello {number}"), 1));
        lab.commit();
        lab.publish_all();
        assert_eq!(lab.serial("press-01"), number);
    }
}

/// What the tip of `desired` would be continued by.
fn continues(lab: &Lab) -> String {
    format!("{} {}", lab.trailer("press-01", Trailer::EnvelopeDigest), lab.serial("press-01"))
}

/// The device says that it adopted something.
fn report(lab: &Lab, device: &str, adopted: Adopted, key: &SigningKey) {
    report_at(lab, device, adopted, key, 0);
}

/// The same at this second by the device's clock.
pub(crate) fn report_at(lab: &Lab, device: &str, adopted: Adopted, key: &SigningKey, time: i64) {
    let commit = adopted.commit.clone();
    let fleet = lab.json(device, "desired", "envelope.json")["fleet"].as_str().unwrap().to_owned();
    let syncer = SyncerReport {
        layout: 1,
        version: "0".to_owned(),
        instance: uuid::Uuid::nil(),
        adopted: Some(adopted.clone()),
        conditions: vec![],
        holds: vec![],
        gates: vec![],
        site: None,
    };
    let tree = FileTree::from([("syncer.json".to_owned(), json::to_bytes(&syncer))]);
    let person = Person::new(device, "device@wfm.invalid");
    let serial = adopted.serial;
    let message = format!(
        "adopted serial {serial}\n\nKind: status\nFleet: {fleet}\nDevice: {device}\nSerial: {serial}\nDesired-Commit: {commit}\n"
    );
    let spec = CommitSpec {
        tree: TreeSource::Files(&tree),
        parents: vec![],
        author: person.clone(),
        committer: person,
        time,
        message,
    };
    let repo = Repo::open(&lab.repo(device)).unwrap();
    let mut batch = repo.batch();
    let id = batch.commit(&spec, Some(key)).unwrap();
    batch.store().unwrap();
    repo.move_refs(&[RefMove { name: "refs/heads/status".into(), expected: Expected::Any, new: Some(id) }]).unwrap();
}

/// What a device that has the tip says.
fn adopted(lab: &Lab) -> Adopted {
    adopted_by(lab, "press-01")
}

pub(crate) fn adopted_by(lab: &Lab, device: &str) -> Adopted {
    Adopted {
        serial: lab.serial(device),
        manifest_version: lab.trailer(device, Trailer::ManifestVersion).parse().unwrap(),
        trust: 1,
        commit: lab.tip(device, "desired").unwrap(),
        envelope: lab.trailer(device, Trailer::EnvelopeDigest).parse().unwrap(),
    }
}

#[test]
fn a_device_repository_restored_three_versions_back_is_continued() {
    let lab = Lab::with(&["press-01"]);
    publish_up_to(&lab, 2);
    let backup = lab.dir().join("backup");
    copy(&lab.repo("press-01"), &backup);
    publish_up_to(&lab, 5);
    let lost = continues(&lab);
    copy(&backup, &lab.repo("press-01"));
    lab.publish_all();
    assert_eq!(lab.serial("press-01"), 6);
    assert_eq!(lab.trailer("press-01", Trailer::Continues), lost);
    assert_eq!(lab.trailer("press-01", Trailer::ManifestVersion), "6", "versions 3 to 5 had other content");
    assert_eq!(lab.trailer("press-01", Trailer::Cause), "a restored repository lagged behind what was published");
    assert!(lab.documents("press-01")["hello"].contains("hello 5"));
    assert_eq!(lab.publish_all().published(), 0, "once is enough");
}

/// Even if the fleet says just what the restored tip says: the device may have a newer one.
#[test]
fn a_tip_that_lags_is_replaced_even_if_it_means_the_same() {
    let lab = Lab::with(&["press-01"]);
    publish_up_to(&lab, 1);
    let backup = lab.dir().join("backup");
    copy(&lab.repo("press-01"), &backup);
    publish_up_to(&lab, 2);
    lab.edit("deployments/hello.yaml", "hello 2", "hello 1");
    lab.commit();
    lab.publish_all();
    let lost = continues(&lab);
    copy(&backup, &lab.repo("press-01"));
    let plan = lab.run(&["plan"]);
    let expected = "~ published anew: its repository was restored, and doesn't know serial 3";
    assert!(plan.code == Some(3) && plan.out.contains(expected), "{}", plan.out);
    lab.publish_all();
    assert_eq!((lab.serial("press-01"), lab.trailer("press-01", Trailer::Continues)), (4, lost));
    assert_eq!(lab.trailer("press-01", Trailer::ManifestVersion), "4");
    assert_eq!(lab.run(&["plan"]).code, Some(0));
}

#[test]
fn what_the_device_reports_as_adopted_is_continued_before_what_the_ledger_knows() {
    let lab = Lab::with(&["press-01"]);
    publish_up_to(&lab, 2);
    let backup = lab.dir().join("backup");
    copy(&lab.repo("press-01"), &backup);
    publish_up_to(&lab, 4);
    let claim = adopted(&lab);
    publish_up_to(&lab, 5);
    copy(&backup, &lab.repo("press-01"));
    report(&lab, "press-01", claim.clone(), &Lab::device_key("press-01"));
    lab.publish_all();
    let expected = format!("{} 4", claim.envelope);
    assert_eq!((lab.serial("press-01"), lab.trailer("press-01", Trailer::Continues)), (6, expected));
    assert_eq!(lab.publish_all().published(), 0);
}

#[test]
fn a_claim_of_someone_else_is_not_believed() {
    let lab = Lab::with(&["press-01"]);
    publish_up_to(&lab, 2);
    let claim = Adopted { serial: 900, envelope: Digest::of(b"other"), ..adopted(&lab) };
    report(&lab, "press-01", claim, &Lab::device_key("packer-01"));
    assert_eq!(lab.publish_all().published(), 0);
}

/// What is made up can't be told from what was lost; so it is believed, and ever more rarely.
#[test]
fn a_device_that_makes_up_what_it_adopted_is_believed_ever_more_rarely() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    publish_up_to(&lab, 2);
    let commits = || lab.control(&["rev-list", "--count", "control"]).parse::<usize>().unwrap();
    let before = commits();
    // It names a commit that nobody has, so nothing contradicts it.
    let commit = "0".repeat(40);
    let claim = |number: i64| {
        let envelope = Digest::of(&number.to_be_bytes());
        Adopted { envelope, commit: commit.clone(), ..adopted(&lab) }
    };
    let mut published = 0;
    for minute in (0..60).step_by(3) {
        report(&lab, "press-01", claim(minute), &Lab::device_key("press-01"));
        published += lab.publish_at(*BEGIN + minute * 60).published();
    }
    assert!((1..=7).contains(&published), "{published} commits in an hour");
    assert!(commits() - before <= 2 * published, "{} commits of the memory", commits() - before);
    let shown: serde_json::Value =
        serde_json::from_str(&lab.run(&["status", "press-01", "--output", "json"]).good()).unwrap();
    let doubts = shown["devices"][0]["doubts"].to_string();
    assert!(doubts.contains("which was never published here"), "{doubts}");
    assert_eq!(lab.reclaim(&["press-01"]).published(), 1, "on an operator's word");
    // What the fleet says comes as ever, and the truth is believed at once.
    lab.edit("deployments/hello.yaml", "hello 2", "hi");
    lab.commit();
    assert_eq!(lab.publish_at(*BEGIN + 3600).published(), 1);
    report(&lab, "press-01", adopted(&lab), &Lab::device_key("press-01"));
    assert_eq!(lab.publish_at(*BEGIN + 3660).published(), 0);
    // A repository that was restored doesn't know what was made up before, either.
    let lost = continues(&lab);
    lab.git("press-01", &["update-ref", "refs/heads/desired", "desired~2"]);
    assert_eq!(lab.publish_at(*BEGIN + 3 * 86_400).published(), 1);
    assert_eq!(lab.trailer("press-01", Trailer::Continues), lost);
}

/// What a thief published and took away again is known to the device alone. It is further than anything is lost, so a person
/// has to say that it is true.
#[test]
fn a_device_that_a_stolen_key_pushed_far_ahead_is_gone_on_from() {
    let lab = Lab::with(&["press-01"]);
    publish_up_to(&lab, 2);
    let (far, commit) = (2 + 2 * MAX_JUMP, "0".repeat(40));
    let claim = Adopted { serial: far, manifest_version: far, envelope: Digest::of(b"stolen"), trust: 1, commit };
    report(&lab, "press-01", claim.clone(), &Lab::device_key("press-01"));
    lab.publish_all();
    assert_eq!(lab.serial("press-01"), 2, "a device's word alone leads nobody that far");
    let said = lab.run(&["status"]).good();
    assert!(said.contains("`publish --reclaim` goes on from there"), "{said}");
    assert_eq!(lab.reclaim(&["press-01"]).published(), 1);
    assert_eq!(lab.serial("press-01"), far + 1);
    assert_eq!(lab.trailer("press-01", Trailer::Continues), format!("{} {far}", claim.envelope));
    assert_eq!(lab.publish_all().published(), 0, "once is enough");
}

#[test]
fn a_lost_device_repository_is_made_anew() {
    let lab = Lab::with(&["press-01"]);
    publish_up_to(&lab, 3);
    let lost = continues(&lab);
    repo_git::durable::rename(&lab.repo("press-01"), &lab.dir().join("gone")).unwrap();
    lab.publish_all();
    assert_eq!((lab.serial("press-01"), lab.trailer("press-01", Trailer::Continues)), (4, lost));
    assert_eq!(lab.subjects("press-01").len(), 1);
}

#[test]
fn a_restored_ledger_learns_from_the_tips() {
    let lab = Lab::with(&["press-01"]);
    publish_up_to(&lab, 1);
    let backup = lab.dir().join("backup");
    copy(&lab.home.control(), &backup);
    publish_up_to(&lab, 3);
    copy(&backup, &lab.home.control());
    assert_eq!(lab.publish_all().published(), 0, "the tip has all that is wanted");
    assert_eq!(
        (lab.ledger("press-01")["serial"].as_u64(), &lab.ledger("press-01")["state"]),
        (Some(3), &"published".into())
    );
    publish_up_to(&lab, 4);
    assert!(lab.message("press-01", "desired").get(Trailer::Continues).is_none());
}

#[test]
fn a_home_restored_as_a_whole_continues_what_the_device_reports() {
    let lab = Lab::with(&["press-01"]);
    publish_up_to(&lab, 2);
    let backup = lab.dir().join("backup");
    copy(lab.home.root(), &backup);
    publish_up_to(&lab, 4);
    let (claim, lost) = (adopted(&lab), continues(&lab));
    copy(&backup, lab.home.root());
    report(&lab, "press-01", claim, &Lab::device_key("press-01"));
    lab.publish_all();
    assert_eq!((lab.serial("press-01"), lab.trailer("press-01", Trailer::Continues)), (5, lost));
}

#[test]
fn a_foreign_tip_is_told_and_never_overwritten() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    publish_up_to(&lab, 1);
    let key = lab.dir().join("intruder");
    SigningKey::from_seed(&[7; 32]).save(&key).unwrap();
    let signing = format!("user.signingkey={}", key.display());
    let signed = ["-c", "gpg.format=ssh", "-c", &signing, "commit-tree", "-S", "-m", "planted", "desired^{tree}"];
    let unsigned = ["commit-tree", "-m", "planted", "desired^{tree}"];
    lab.edit("deployments/hello.yaml", "hello from the packer", "hi packer");
    lab.edit("deployments/hello.yaml", "hello 1", "hi");
    lab.commit();
    for (turn, (command, expected)) in
        [(&signed[..], "is signed by SHA256:"), (&unsigned, "can't be verified")].iter().enumerate()
    {
        let planted = lab.git("press-01", command);
        lab.git("press-01", &["update-ref", "refs/heads/desired", &planted]);
        let outcome = lab.publish();
        let error = outcome.devices[&"press-01".parse().unwrap()].as_ref().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(lab.tip("press-01", "desired"), Some(planted));
        assert_eq!(lab.serial("packer-01"), 2, "its neighbour gets what is new (turn {turn})");
    }
    let said = lab.run(&["plan"]).failed(1);
    assert!(said.contains("error: device `press-01`: the tip"), "{said}");
}

/// A commit that we signed for another device is no tip of this one.
#[test]
fn another_device_s_commit_is_no_tip() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    publish_up_to(&lab, 1);
    let other = lab.tip("packer-01", "desired").unwrap();
    git(&lab.repo("press-01"), &["fetch", "--quiet", lab.repo("packer-01").to_str().unwrap(), "+desired:desired"]);
    assert!(!lab.publish().is_complete());
    assert_eq!(lab.tip("press-01", "desired"), Some(other));
}

#[test]
fn a_foreign_tip_of_the_ledger_stops_everything() {
    let lab = Lab::with(&["press-01"]);
    publish_up_to(&lab, 1);
    let planted = lab.control(&["commit-tree", "-p", "control", "-m", "planted", "control^{tree}"]);
    lab.control(&["update-ref", "refs/heads/control", &planted]);
    let said = lab.run(&["publish"]).failed(1);
    assert!(said.contains("is not signed by a publisher of this fleet"), "{said}");
}

/// What devices have is enough to know the rosters, the serials and what tags mean.
#[test]
fn a_lost_ledger_is_rebuilt_from_the_devices_repositories() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    publish_up_to(&lab, 3);
    repo_git::durable::rename(&lab.home.control(), &lab.dir().join("gone")).unwrap();
    let said = lab.run(&["plan"]).failed(1);
    assert!(said.contains("hint: `publish` rebuilds it"), "{said}");
    let before = lab.refs("press-01");
    let asked = std::cell::Cell::new(false);
    let outcome = lab.publish_with(*BEGIN, &|_| {
        asked.set(true);
        Err("no registry".into())
    });
    assert!(outcome.is_complete() && !asked.get(), "{outcome:?}");
    assert_eq!(lab.refs("press-01"), before);
    assert_eq!(lab.ledger("press-01")["serial"], 3);
    assert_eq!(lab.control(&["log", "--format=%s", "control"]), "rebuilt from 2 devices' repositories");
    publish_up_to(&lab, 4);
    git(&lab.home.control(), &["fsck", "--strict"]);
}

#[test]
fn a_ledger_is_not_rebuilt_from_what_others_signed() {
    let lab = Lab::with(&["press-01"]);
    publish_up_to(&lab, 1);
    repo_git::durable::rename(&lab.home.control(), &lab.dir().join("gone")).unwrap();
    SigningKey::generate().save(&lab.home.publisher_key()).unwrap();
    let said = lab.run(&["publish"]).failed(1);
    assert!(said.contains("no device's repository has a tip that this publisher signed"), "{said}");
    assert!(!lab.home.control().exists());
}
