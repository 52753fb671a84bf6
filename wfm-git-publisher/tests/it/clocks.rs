//! A publisher whose clock is wrong publishes nothing, and goes on when it is right again.

use jiff::Timestamp;
use repo_git::{CommitSpec, Expected, Person, RefMove, Repo, SigningKey, TreeSource};
use repo_model::{FileTree, json};
use serde_json::Value;
use wfm_git_publisher::operator::reminders;
use wfm_git_publisher::publish::{ClockError, PublishError};
use wfm_git_publisher::repos::Control;

use crate::restore::{adopted_by, report_at};
use crate::support::{BEGIN, Lab, after};

const DAY: i64 = 24 * 60 * 60;

/// A fleet that was published at the beginning.
fn published(devices: &[&str]) -> Lab {
    let lab = Lab::with(devices);
    lab.publish_all();
    lab
}

/// A device reports that it has the tip, at this second by its own clock.
fn report(lab: &Lab, device: &str, second: i64) {
    report_at(lab, device, adopted_by(lab, device), &Lab::device_key(device), *BEGIN + second);
}

fn refusal(lab: &Lab, second: i64) -> Option<ClockError> {
    let before = (lab.refs("press-01"), lab.control(&["for-each-ref"]));
    match lab.try_publish_at(*BEGIN + second, false) {
        Ok(_) => None,
        Err(PublishError::Clock(error)) => {
            assert_eq!((lab.refs("press-01"), lab.control(&["for-each-ref"])), before, "nothing was written");
            Some(error)
        }
        Err(error) => panic!("{error}"),
    }
}

fn proof(lab: &Lab) -> Value {
    lab.json("press-01", "freshness", "freshness.json")
}

#[test]
fn a_clock_that_is_far_from_what_was_written_and_that_no_device_vouches_for_publishes_nothing() {
    for far in [-390 * DAY, -2 * DAY, 31 * DAY, 390 * DAY] {
        let lab = published(&["press-01"]);
        assert!(matches!(refusal(&lab, far), Some(ClockError::Ledger { vouching: 0, of: 0, .. })), "{far}");
        report(&lab, "press-01", far);
        assert_eq!(refusal(&lab, far), None, "the device says so, too: {far}");
    }
    let lab = published(&["press-01"]);
    assert_eq!(refusal(&lab, 29 * DAY), None, "a long holiday");
    assert!(lab.try_publish_at(*BEGIN + 390 * DAY, true).unwrap().is_complete(), "a person knows better");
}

#[test]
fn once_the_clock_is_right_again_what_it_wrote_ahead_is_put_right() {
    let lab = published(&["press-01"]);
    lab.try_publish_at(*BEGIN + 390 * DAY, true).unwrap();
    lab.edit("deployments/hello.yaml", "hello from the press", "ahead");
    lab.commit();
    lab.try_publish_at(*BEGIN + 390 * DAY, true).unwrap();
    assert_eq!((proof(&lab)["issued"].clone(), lab.serial("press-01")), (after(390 * DAY).into(), 2));
    assert!(refusal(&lab, 60).is_some(), "which of the two was wrong?");
    report(&lab, "press-01", 30);
    assert!(!lab.is_unchanged_at(*BEGIN + 60));
    assert_eq!(refusal(&lab, 60), None);
    assert_eq!(proof(&lab)["issued"], after(60), "no device believes the proof of the wrong clock");
    let time: Timestamp = lab.ledger("press-01")["time"].as_str().unwrap().parse().unwrap();
    assert_eq!(time.as_second(), *BEGIN + 60);
    assert!(lab.is_unchanged_at(*BEGIN + 61));
}

/// Puts a proof in the place of the present one that says something else, signed by the publisher's key.
fn forge_proof(lab: &Lab, change: &dyn Fn(&mut Value)) {
    let mut proof = proof(lab);
    change(&mut proof);
    let repo = Repo::open(&lab.repo("press-01")).unwrap();
    let tree = FileTree::from([("freshness.json".to_owned(), json::to_bytes(&proof))]);
    let person = Person::new("publisher", "publisher@wfm.invalid");
    let spec = CommitSpec {
        tree: TreeSource::Files(&tree),
        parents: vec![],
        author: person.clone(),
        committer: person,
        time: *BEGIN,
        message: lab.git("press-01", &["log", "-1", "--format=%B", "freshness"]),
    };
    let key = SigningKey::load(&lab.home.publisher_key()).unwrap();
    let mut batch = repo.batch();
    let id = batch.commit(&spec, Some(&key)).unwrap();
    batch.store().unwrap();
    let moves = [RefMove { name: "refs/heads/freshness".into(), expected: Expected::Any, new: Some(id) }];
    repo.move_refs(&moves).unwrap();
}

/// Whoever made it, with whatever clock: what no device believes isn't kept because it ends at a good time.
#[test]
fn a_proof_whose_times_are_not_now_s_is_replaced() {
    let lab = published(&["press-01"]);
    let cases: [&dyn Fn(&mut Value); 5] = [
        &|proof| proof["issued"] = after(2 * 60 * 60).into(),
        &|proof| proof["issued"] = "9999-01-01T00:00:00Z".into(),
        &|proof| proof["issued"] = after(-2 * DAY).into(),
        &|proof| proof["expires"] = after(2 * DAY).into(),
        &|proof| proof["serial"] = 9.into(),
    ];
    for (number, change) in cases.into_iter().enumerate() {
        forge_proof(&lab, change);
        let now = 60 * (1 + i64::try_from(number).unwrap());
        assert!(!lab.is_unchanged_at(*BEGIN + now), "{number}");
        assert_eq!(refusal(&lab, now), None);
        let proof = proof(&lab);
        assert_eq!((&proof["issued"], &proof["serial"]), (&after(now).into(), &1.into()), "{number}");
        assert!(lab.is_unchanged_at(*BEGIN + now + 1), "{number}");
    }
}

#[test]
fn a_clock_that_most_devices_contradict_publishes_nothing_and_one_device_alone_stops_nobody() {
    let lab = published(&["press-01", "press-02", "packer-01"]);
    report(&lab, "press-01", -5 * DAY);
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    lab.commit();
    assert_eq!(refusal(&lab, 60), None, "it may lie");
    for device in ["press-01", "press-02"] {
        report(&lab, device, -5 * DAY);
    }
    lab.edit("deployments/hello.yaml", "servus", "griaß di");
    lab.commit();
    assert!(matches!(refusal(&lab, 120), Some(ClockError::Devices { against: 2, of: 2, .. })));
    // Two of three are still most of them.
    report(&lab, "packer-01", 0);
    assert!(matches!(refusal(&lab, 120), Some(ClockError::Devices { against: 2, of: 3, .. })));
    report(&lab, "press-02", 0);
    assert_eq!(refusal(&lab, 120), None);
}

#[test]
fn every_command_warns_of_a_wrong_clock_and_says_what_to_do() {
    let lab = published(&["press-01"]);
    assert_eq!(lab.run(&["plan"]).code, Some(0));
    lab.try_publish_at(*BEGIN + 390 * DAY, true).unwrap();
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    lab.commit();
    for (args, code) in [(&["publish"][..], 1), (&["plan"], 1), (&["status"], 0)] {
        let ran = lab.run(args);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.err);
        assert!(ran.err.contains("and this publisher last worked on"), "{args:?}: {}", ran.err);
        assert!(ran.err.contains("publish --clock-is-right"), "{args:?}: {}", ran.err);
    }
    let status: Value = serde_json::from_str(&lab.run(&["status", "--output", "json"]).good()).unwrap();
    assert!(status["clock"].as_str().unwrap().contains("last worked on"), "{status}");
    assert_eq!(lab.serial("press-01"), 1);
}

#[test]
fn a_new_publishers_key_has_an_end_and_the_root_key_is_not_forgotten() {
    let lab = Lab::with(&["press-01"]);
    let ends = |lab: &Lab| {
        let status: Value = serde_json::from_str(&lab.run(&["status", "--output", "json"]).good()).unwrap();
        status["publisherKeyEnds"].as_str().map(|end| end.parse::<Timestamp>().unwrap().as_second())
    };
    let days = (ends(&lab).unwrap() - *BEGIN) / DAY;
    assert!((390..=400).contains(&days), "{days}");
    let told_at = |second: i64| {
        let rosters = Control::read_rosters(&lab.home).unwrap();
        let all = reminders(&lab.home, &rosters, Timestamp::from_second(second).unwrap());
        let told = all.into_iter().find(|problem| problem.message.contains("adopt nothing more"));
        told.inspect(|told| assert!(told.hint.as_ref().is_some_and(|hint| hint.contains("trust propose"))))
    };
    let end = ends(&lab).unwrap();
    assert_eq!(told_at(end - 91 * DAY), None);
    for (left, expected) in [
        (89 * DAY, ": 89 days are left"),
        (29 * DAY, ": only 29 days are left"),
        (6 * DAY, ": only 6 days are left, and devices that are away"),
        (-DAY, ": it has ended"),
    ] {
        let told = told_at(end - left).unwrap().message;
        assert!(told.contains(expected), "{told}");
    }
    for args in [&["plan"][..], &["status"]] {
        let said = lab.run(args).err;
        assert!(said.contains("keys/root") && said.contains("hint: take it off this machine"), "{said}");
    }
    repo_git::durable::rename(&lab.home.root_key(), &lab.dir().join("stick")).unwrap();
    assert!(!lab.run(&["status"]).err.contains("keys/root"));
}
