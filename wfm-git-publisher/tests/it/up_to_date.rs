//! A device that nothing changed for isn't opened again, and whatever changes is noticed.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::fs;

use repo_testkit::faults::damage::flip_object;
use repo_testkit::git::git;
use wfm_git_publisher::publish::Done;

use crate::support::{BEGIN, Lab, SECOND, copy};

/// Half of the time that a proof of freshness counts.
const RENEWED: i64 = 12 * 60 * 60;

/// Two devices with everything, and a deployment that only one of them has.
fn up_to_date() -> Lab {
    let lab = Lab::with(&["press-01", "press-02"]);
    let one = SECOND.replace("matchLabels: {site: graz}", "devices: [press-01]");
    lab.write("deployments/second.yaml", one);
    lab.commit();
    lab.publish_all();
    lab
}

/// Makes a device's objects unreadable for whoever opens it.
pub(crate) fn hide(lab: &Lab, device: &str) {
    let packs = lab.repo(device).join("objects/pack");
    fs::rename(&packs, packs.with_extension("hidden")).unwrap();
    fs::create_dir(&packs).unwrap();
}

/// Makes them readable again.
pub(crate) fn show(lab: &Lab, device: &str) {
    let packs = lab.repo(device).join("objects/pack");
    fs::remove_dir(&packs).unwrap();
    fs::rename(packs.with_extension("hidden"), &packs).unwrap();
}

fn is_opened(lab: &Lab, device: &str, second: i64) -> bool {
    let outcome = lab.publish_at(second);
    match &outcome.devices[&device.parse().unwrap()] {
        Ok(Done::Unchanged { .. }) => false,
        // What can't be read is made anew by whoever opens it.
        Ok(Done::Published { .. }) if lab.repo(device).with_extension("damaged").exists() => true,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_device_that_nothing_changed_for_is_not_opened() {
    let lab = up_to_date();
    hide(&lab, "press-02");
    assert!(!is_opened(&lab, "press-02", *BEGIN));
    lab.edit("deployments/second.yaml", "servus", "griaß di");
    lab.commit();
    assert!(!is_opened(&lab, "press-02", *BEGIN));
    assert_eq!(lab.serial("press-01"), 2);
    assert!(!is_opened(&lab, "press-02", *BEGIN + RENEWED - 1));
    assert!(is_opened(&lab, "press-02", *BEGIN + RENEWED), "its proof of freshness is renewed");
}

#[test]
fn whatever_a_device_depends_on_is_noticed() {
    type Change = fn(&Lab);
    let changes: [(&str, Change); 7] = [
        ("a deployment", |lab| lab.edit("deployments/hello.yaml", "hello from the press", "servus")),
        ("its application", |lab| lab.edit("applications/hello/1.0.0/margo.yaml", "timeout: 2m0s", "timeout: 3m0s")),
        ("the fleet", |lab| lab.edit("fleet.yaml", "policy:", "data: {shift: 2}\npolicy:")),
        ("its own file", |lab| lab.edit("devices/press-02.yaml", "statusKeys:", "suspended: true\nstatusKeys:")),
        ("what it reports", |lab| drop(git(&lab.repo("press-02"), &["update-ref", "refs/heads/status", "desired"]))),
        ("the ledger", |lab| {
            // As if the repositories of all devices had been restored, and this one alone is older than the ledger.
            let index = lab.home.up_to_date();
            let text = fs::read_to_string(&index).unwrap();
            fs::write(&index, text.replace("\"serial\":1", "\"serial\":0")).unwrap();
        }),
        ("the program", |lab| {
            let index = lab.home.up_to_date();
            let text = fs::read_to_string(&index).unwrap();
            fs::write(&index, text.replacen("\"program\":\"", "\"program\":\"other ", 1)).unwrap();
        }),
    ];
    let lab = up_to_date();
    let (home, fleet) = (lab.dir().join("home"), lab.dir().join("kept"));
    copy(lab.home.root(), &home);
    copy(&lab.fleet, &fleet);
    for (what, change) in changes {
        change(&lab);
        lab.commit();
        hide(&lab, "press-02");
        assert!(is_opened(&lab, "press-02", *BEGIN), "{what}");
        copy(&home, lab.home.root());
        copy(&fleet, &lab.fleet);
    }
}

#[test]
fn a_pass_that_would_do_nothing_is_known_without_one() {
    let lab = up_to_date();
    assert!(lab.is_unchanged_at(*BEGIN));
    assert!(lab.is_unchanged_at(*BEGIN + RENEWED - 1));
    assert!(!lab.is_unchanged_at(*BEGIN + RENEWED), "proofs of freshness are renewed");
    let control = git(&lab.home.control(), &["rev-parse", "control"]);
    for (what, repository, branch) in [
        ("desired", lab.repo("press-02"), "desired"),
        ("status", lab.repo("press-01"), "status"),
        ("freshness", lab.repo("press-02"), "freshness"),
        ("the ledger", lab.home.control(), "control"),
    ] {
        let name = format!("refs/heads/{branch}");
        let before = git(&repository, &["for-each-ref", "--format=%(objectname)", &name]);
        let other = git(&repository, &["rev-parse", "HEAD"]);
        let tree = format!("{other}^{{tree}}");
        let new = git(&lab.fleet, &["--git-dir", &repository.display().to_string(), "commit-tree", &tree, "-m", what]);
        git(&repository, &["update-ref", &name, &new]);
        assert!(!lab.is_unchanged_at(*BEGIN), "{what} moved");
        match before.as_str() {
            "" => git(&repository, &["update-ref", "-d", &name]),
            before => git(&repository, &["update-ref", &name, before]),
        };
        assert!(lab.is_unchanged_at(*BEGIN), "{what} is back");
    }
    assert_eq!(git(&lab.home.control(), &["rev-parse", "control"]), control);
    lab.commit();
    assert!(!lab.is_unchanged_at(*BEGIN), "another commit of the fleet");
}

#[test]
fn whoever_touches_a_branch_is_noticed_where_branches_are_not_read() {
    type Touch = fn(&Lab, &std::path::Path);
    let touches: [(&str, Touch); 4] = [
        ("press-01", |lab, repo| {
            let bundle = lab.git("press-01", &["rev-parse", "bundle"]) + "\n";
            fs::write(repo.join("refs/heads/desired"), bundle).unwrap()
        }),
        ("press-02", |lab, _| _ = lab.git("press-02", &["update-ref", "-d", "refs/heads/freshness"])),
        ("press-03", |lab, _| _ = lab.git("press-03", &["update-ref", "refs/heads/status", "desired"])),
        ("press-04", |_, repo| fs::remove_file(repo.join("packed-refs")).unwrap()),
    ];
    let lab = Lab::with(&touches.map(|(device, _)| device));
    lab.publish_all();
    let stamped = || fs::read_to_string(lab.home.up_to_date()).unwrap().matches("\"stamps\":\"sha256:").count();
    // What was touched just now could be touched again with the same stamp.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert!(lab.is_unchanged_at(*BEGIN) && stamped() == touches.len());
    for (device, touch) in touches {
        let repo = lab.repo(device);
        let kept = lab.dir().join("kept");
        copy(&repo, &kept);
        touch(&lab, &repo);
        assert!(!lab.is_unchanged_at(*BEGIN), "{device}");
        copy(&kept, &repo);
        assert!(lab.is_unchanged_at(*BEGIN), "{device} is as it was");
    }
}

#[test]
fn every_pass_says_what_is_wrong() {
    let lab = up_to_date();
    lab.write("deployments/broken.yaml", "id: broken\n");
    lab.commit();
    for _ in 0..2 {
        assert!(!lab.publish().problems.is_empty());
        assert!(!lab.is_unchanged_at(*BEGIN));
    }
    lab.remove("deployments/broken.yaml");
    lab.commit();
    lab.publish_all();
    assert!(lab.is_unchanged_at(*BEGIN));
}

#[test]
fn run_makes_no_pass_over_a_fleet_with_a_broken_file_until_something_changes() {
    let lab = up_to_date();
    lab.write("devices/press-02.yaml", "id: press-02\nlabels: 3\n");
    lab.write("devices/press-03.yaml", "id: press-03\n");
    lab.commit();
    assert!(!lab.is_as_left_at(*BEGIN), "another commit of the fleet");
    assert!(!lab.publish().problems.is_empty());
    assert!(lab.is_as_left_at(*BEGIN) && !lab.is_unchanged_at(*BEGIN));
    assert!(!lab.is_as_left_at(*BEGIN + RENEWED), "proofs of freshness are renewed");
    assert!(!lab.is_as_left_at(*BEGIN - RENEWED), "no device believes what is from the future");
    for device in ["press-01", "press-02"] {
        git(&lab.repo(device), &["update-ref", "refs/heads/status", "desired"]);
        assert!(!lab.is_as_left_at(*BEGIN), "{device} reports");
        git(&lab.repo(device), &["update-ref", "-d", "refs/heads/status"]);
        assert!(lab.is_as_left_at(*BEGIN), "{device} is as it was");
    }
    copy(&lab.repo("press-01"), &lab.repo("press-03"));
    assert!(!lab.is_as_left_at(*BEGIN), "a device without a key has a repository");
}

#[test]
fn run_makes_another_pass_where_something_failed() {
    let lab = Lab::with(&["press-01"]);
    let outcome = lab.publish_with(*BEGIN, &|_| Err("the registry is away".into()));
    assert!(!outcome.unresolved.is_empty() && outcome.devices.values().all(Result::is_ok), "{outcome:?}");
    assert!(!lab.is_as_left_at(*BEGIN));
    lab.publish_all();
    assert!(lab.is_as_left_at(*BEGIN));
}

/// What `plan` says, by the very program that published last.
pub(crate) fn planned(lab: &Lab) -> (String, Option<i32>) {
    let ran = lab.run(&["plan", "--output", "json"]);
    (ran.out, ran.code)
}

/// Two devices with everything, as the program itself left them.
fn left_by_the_program() -> Lab {
    let lab = up_to_date();
    let ran = lab.run(&["publish"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    lab
}

#[test]
fn a_plan_of_devices_that_are_up_to_date_says_the_same_as_one_that_opens_them() {
    let lab = left_by_the_program();
    let known = planned(&lab);
    fs::remove_file(lab.home.up_to_date()).unwrap();
    let opened = planned(&lab);
    let unchanged = |text: &str| text.matches("\"state\": \"unchanged\"").count();
    assert_eq!((&known, unchanged(&known.0)), (&opened, 2));
}

type Change = fn(&Lab);

/// Adds a line to a deployment.
fn add(lab: &Lab, line: &str) {
    lab.edit("deployments/second.yaml", "targets:", &format!("{line}\ntargets:"));
}

/// Changes of which the fleet tells what devices had before.
const TOLD: [(&str, Change); 7] = [
    ("a value", |lab| lab.edit("deployments/hello.yaml", "hello from the press", "servus")),
    ("what is said elsewhere, too", |lab| {
        lab.edit("applications/hello/1.0.0/margo.yaml", "value: hello", "value: hallo")
    }),
    ("one that comes", |lab| {
        lab.write("deployments/third.yaml", SECOND.replace("id: second", "id: third"));
    }),
    ("one that goes, as far as a guard lets it", |lab| {
        fs::remove_file(lab.fleet.join("deployments/second.yaml")).unwrap();
    }),
    ("its devices", |lab| lab.edit("deployments/second.yaml", "[press-01]", "[press-02]")),
    ("a restart", |lab| add(lab, "restart: 1")),
    ("several", |lab| {
        lab.edit("deployments/hello.yaml", "hello from the press", "servus");
        lab.edit("deployments/second.yaml", "servus", "griaß di");
    }),
];

/// Others, for which their repositories have to be opened.
const NOT_TOLD: [(&str, Change); 6] = [
    ("the fleet", |lab| lab.edit("fleet.yaml", "policy:", "data: {shift: 2}\npolicy:")),
    ("a device", |lab| lab.edit("devices/press-02.yaml", "statusKeys:", "suspended: true\nstatusKeys:")),
    ("what a device may be too old for", |lab| add(lab, "drift: report")),
    ("that it stays as it is", |lab| add(lab, "suspended: true")),
    ("what it waits for", |lab| add(lab, "dependsOn: [hello]")),
    ("a tag that nobody looked up", |lab| {
        lab.edit("applications/hello/1.0.0/margo.yaml", "revision: 1.0.0", "revision: 1.0.1");
    }),
];

#[test]
fn a_plan_opens_devices_that_were_up_to_date_only_where_the_fleet_does_not_tell_what_they_have() {
    let lab = left_by_the_program();
    let (home, fleet) = (lab.dir().join("home"), lab.dir().join("kept"));
    copy(lab.home.root(), &home);
    copy(&lab.fleet, &fleet);
    let cases = TOLD.map(|case| (case, true)).into_iter().chain(NOT_TOLD.map(|case| (case, false)));
    for ((what, change), is_told) in cases {
        change(&lab);
        lab.commit();
        let known = planned(&lab);
        assert!(known.0.contains("press-02"), "{what}: {known:?}");
        ["press-01", "press-02"].iter().for_each(|device| hide(&lab, device));
        assert_eq!(planned(&lab) == known, is_told, "{what}");
        copy(&home, lab.home.root());
        fs::remove_file(lab.home.up_to_date()).unwrap();
        assert_eq!(planned(&lab), known, "{what}");
        copy(&home, lab.home.root());
        copy(&fleet, &lab.fleet);
    }
}

#[test]
fn what_is_published_upon_a_tip_that_was_not_opened_is_the_same_to_the_byte() {
    let lab = up_to_date();
    let (home, fleet) = (lab.dir().join("home"), lab.dir().join("kept"));
    copy(lab.home.root(), &home);
    copy(&lab.fleet, &fleet);
    let devices = ["press-01", "press-02"];
    let published = |lab: &Lab| {
        let outcome = lab.publish();
        (devices.map(|device| lab.refs(device)), outcome.problems.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    for ((what, change), is_told) in TOLD.map(|case| (case, true)).into_iter().chain(NOT_TOLD.map(|case| (case, false)))
    {
        change(&lab);
        lab.commit();
        let known = published(&lab);
        for device in devices {
            git(&lab.repo(device), &["fsck", "--strict", "--no-dangling"]);
        }
        copy(&home, lab.home.root());
        fs::remove_file(lab.home.up_to_date()).unwrap();
        assert_eq!(published(&lab), known, "{what}");
        // Whoever opens it meets what isn't as it was.
        copy(&home, lab.home.root());
        devices.iter().for_each(|device| flip_object(&lab.repo(device), "desired:envelope.json"));
        assert_eq!(published(&lab) == known, is_told, "{what}");
        copy(&home, lab.home.root());
        copy(&fleet, &lab.fleet);
    }
}
