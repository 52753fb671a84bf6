//! A publisher whose clock is wrong publishes nothing, and goes on when it is right again.

use jiff::Timestamp;
use serde_json::Value;
use wfm_git_publisher::host::Control;
use wfm_git_publisher::operator::reminders;
use wfm_git_publisher::publish::{ClockError, PublishError};

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
    for far in [-400 * DAY, -2 * DAY, 31 * DAY, 400 * DAY] {
        let lab = published(&["press-01"]);
        assert!(matches!(refusal(&lab, far), Some(ClockError::Memory { vouching: 0, of: 0, .. })), "{far}");
        report(&lab, "press-01", far);
        assert_eq!(refusal(&lab, far), None, "the device says so, too: {far}");
    }
    let lab = published(&["press-01"]);
    assert_eq!(refusal(&lab, 29 * DAY), None, "a long holiday");
    assert!(lab.try_publish_at(*BEGIN + 400 * DAY, true).unwrap().is_complete(), "a person knows better");
}

#[test]
fn once_the_clock_is_right_again_what_it_wrote_ahead_is_put_right() {
    let lab = published(&["press-01"]);
    lab.try_publish_at(*BEGIN + 400 * DAY, true).unwrap();
    lab.edit("deployments/hello.yaml", "hello from the press", "ahead");
    lab.commit();
    lab.try_publish_at(*BEGIN + 400 * DAY, true).unwrap();
    assert_eq!((proof(&lab)["issued"].clone(), lab.serial("press-01")), (after(400 * DAY).into(), 2));
    assert!(refusal(&lab, 60).is_some(), "which of the two was wrong?");
    report(&lab, "press-01", 30);
    assert!(!lab.is_unchanged_at(*BEGIN + 60));
    assert_eq!(refusal(&lab, 60), None);
    assert_eq!(proof(&lab)["issued"], after(60), "no device believes the proof of the wrong clock");
    let time: Timestamp = lab.ledger("press-01")["time"].as_str().unwrap().parse().unwrap();
    assert_eq!(time.as_second(), *BEGIN + 60);
    assert!(lab.is_unchanged_at(*BEGIN + 61));
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
fn whoever_looks_is_told_of_a_wrong_clock_and_what_to_do() {
    let lab = published(&["press-01"]);
    assert_eq!(lab.run(&["plan"]).code, Some(0));
    lab.try_publish_at(*BEGIN + 400 * DAY, true).unwrap();
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
    let years = (ends(&lab).unwrap() - *BEGIN) / (365 * DAY);
    assert!((4..=5).contains(&years), "{years}");
    let told_at = |second: i64| {
        let rosters = Control::read_locks(&lab.home).unwrap().1;
        let all = reminders(&lab.home, &rosters, Timestamp::from_second(second).unwrap());
        all.iter().any(|problem| problem.message.contains("adopt nothing more"))
    };
    let end = ends(&lab).unwrap();
    assert!(!told_at(end - 91 * DAY) && told_at(end - 89 * DAY));
    for args in [&["plan"][..], &["status"]] {
        let said = lab.run(args).err;
        assert!(said.contains("keys/root") && said.contains("hint: take it off this machine"), "{said}");
    }
    repo_git::durable::rename(&lab.home.root_key(), &lab.dir().join("stick")).unwrap();
    assert!(!lab.run(&["status"]).err.contains("keys/root"));
}
