//! Repositories of the publisher's home that are damaged: a bit, a truncated or a missing file.
#![allow(clippy::disallowed_methods, reason = "what is damaged need not be durable")]

use repo_model::Trailer;
use std::fs;
use std::path::{Path, PathBuf};

use repo_testkit::faults::damage::{Harm, all_harms, flip_object};
use repo_testkit::git;
use wfm_git_publisher::publish::Outcome;

use crate::remote;
use crate::restore::{adopted_by, report_at};
use crate::support::{BEGIN, Lab, Ran, copy};

/// A fleet of two devices of which one has reported, and that has changed some times.
fn grown() -> Lab {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.publish_all();
    for greeting in ["one", "two"] {
        greet(&lab, greeting);
        lab.publish_all();
    }
    report_at(&lab, "press-01", adopted_by(&lab, "press-01"), &Lab::device_key("press-01"), *BEGIN);
    lab.publish_all();
    lab
}

/// Has every device want something new.
fn greet(lab: &Lab, greeting: &str) {
    let text = lab.read("deployments/hello.yaml");
    let lines = text.lines().map(|line| match line.split_once("greeting: ") {
        Some((before, _)) => format!("{before}greeting: {greeting}\n"),
        None => format!("{line}\n"),
    });
    lab.write("deployments/hello.yaml", lines.collect::<String>());
    lab.commit();
}

fn known(ran: &Ran, what: &str) {
    assert!(matches!(ran.code, Some(0 | 1 | 3)) && !ran.err.contains("panicked"), "{what}: {}{}", ran.out, ran.err);
}

fn warnings(outcome: &Outcome) -> Vec<String> {
    outcome.problems.iter().map(ToString::to_string).filter(|text| text.contains("was damaged")).collect()
}

/// Publishes when proofs of freshness are renewed, which opens every repository.
fn publish_half_a_day_later(lab: &Lab) -> Outcome {
    let outcome = lab.publish_at(*BEGIN + 13 * 3600);
    assert!(outcome.is_complete(), "{outcome:?}");
    outcome
}

fn is_whole(repository: &Path) -> bool {
    git::try_git(repository, &["fsck", "--strict", "--no-dangling"]).status.success()
}

fn short(lab: &Lab, file: &Path) -> String {
    file.strip_prefix(lab.home.root()).unwrap().display().to_string()
}

#[test]
fn a_damaged_ledger_is_rebuilt_with_a_warning_and_nobody_is_published_anew() {
    let lab = grown();
    let backup = lab.dir().join("backup");
    copy(lab.home.root(), &backup);
    let harms = all_harms(&lab.home.control());
    assert!(harms.len() > 40, "{harms:?}");
    let (tips, entry) = ([lab.refs("press-01"), lab.refs("packer-01")], lab.ledger("press-01"));
    let mut rebuilt = 0;
    for (file, harm) in harms {
        let what = format!("{} {harm:?}", short(&lab, &file));
        copy(&backup, lab.home.root());
        harm.does(&file);
        for command in ["plan", "status"] {
            let ran = lab.run(&[command]);
            known(&ran, &what);
            assert!(ran.code != Some(1) || ran.err.contains("hint: `publish` rebuilds it"), "{what}: {}", ran.err);
        }
        let outcome = lab.publish();
        assert!(outcome.is_complete(), "{what}: {outcome:?}");
        let was_set_aside = lab.home.root().join("control.damaged").exists();
        assert_eq!(warnings(&outcome).len(), usize::from(was_set_aside), "{what}: {outcome:?}");
        assert_eq!((outcome.published(), [lab.refs("press-01"), lab.refs("packer-01")]), (0, tips.clone()), "{what}");
        assert_eq!(lab.ledger("press-01")["serial"], entry["serial"], "{what}");
        if was_set_aside {
            rebuilt += 1;
            assert!(is_whole(&lab.home.control()), "{what}");
        }
    }
    assert!(rebuilt > 10, "{rebuilt}");
}

/// What tags meant first, which vendors' keys were seen, and what was reserved stays where it can be read.
#[test]
fn what_can_be_read_of_a_damaged_ledger_outlives_it() {
    let lab = grown();
    let name = |device: &str| {
        let files = lab.control(&["ls-tree", "-r", "--name-only", "control", "ledger/"]);
        files.lines().find(|path| path.contains(device)).unwrap().to_owned()
    };
    let locks = lab.control(&["rev-parse", "control:locks"]);
    let before = lab.ledger("packer-01");
    flip_object(&lab.home.control(), &format!("control:{}", name("press-01")));
    let outcome = lab.publish_with(*BEGIN, &|artifact| panic!("{artifact} is known"));
    assert_eq!(warnings(&outcome).len(), 1, "{outcome:?}");
    assert_eq!((lab.control(&["rev-parse", "control:locks"]), lab.ledger("packer-01")), (locks, before));
    assert_eq!(lab.ledger("press-01")["serial"], 3);
    assert!(warnings(&lab.publish()).is_empty(), "it is told once");
}

#[test]
fn what_somebody_else_signed_is_not_salvaged_as_a_ledger() {
    let lab = grown();
    let planted = lab.control(&["commit-tree", "-m", "planted", "control^{tree}"]);
    lab.control(&["update-ref", "refs/heads/control", &planted]);
    git::git(&lab.home.control(), &["repack", "-adq"]);
    flip_object(&lab.home.control(), "control:trust/1.json");
    let said = lab.run(&["publish"]);
    known(&said, "planted");
    // The devices' own repositories are enough, and nothing else is believed.
    assert_eq!(lab.control(&["log", "--format=%s", "control"]).lines().count(), 1, "{}{}", said.out, said.err);
    assert!(!lab.control(&["ls-tree", "-r", "control"]).contains("planted"));
}

#[test]
fn a_damaged_device_repository_is_reported_and_rebuilt_and_its_neighbour_notices_nothing() {
    let lab = grown();
    let backup = lab.dir().join("backup");
    copy(lab.home.root(), &backup);
    let harms = all_harms(&lab.repo("press-01"));
    assert!(harms.len() > 40, "{harms:?}");
    let (fleet, mut mended) = (git::git(&lab.fleet, &["rev-parse", "HEAD"]), 0);
    for (file, harm) in harms {
        let what = format!("{} {harm:?}", short(&lab, &file));
        copy(&backup, lab.home.root());
        git::git(&lab.fleet, &["reset", "--quiet", "--hard", &fleet]);
        harm.does(&file);
        for command in ["plan", "status"] {
            known(&lab.run(&[command]), &what);
        }
        greet(&lab, "three");
        let outcome = lab.publish();
        assert!(outcome.is_complete(), "{what}: {outcome:?}");
        let later = publish_half_a_day_later(&lab);
        let aside = lab.repo("press-01").with_extension("damaged");
        let warned = warnings(&outcome).len() + warnings(&later).len();
        assert_eq!(warned, usize::from(aside.exists()), "{what}: {outcome:?} {later:?}");
        mended += usize::from(aside.exists());
        assert!(lab.serial("press-01") >= 4, "{what}");
        assert!(lab.documents("press-01")["hello"].contains("three"), "{what}");
        assert_eq!(lab.serial("packer-01"), 4, "{what}");
        assert_eq!(warnings(&publish_half_a_day_later(&lab)), Vec::<String>::new(), "{what}");
    }
    assert!(mended > 10, "{mended}");
}

#[test]
fn what_the_site_said_outlives_a_damaged_repository() {
    let lab = grown();
    let repository = lab.repo("press-01");
    let list = remote::write(&repository, "site", &remote::stranger(), "site\n\nKind: site\n");
    flip_object(&repository, "status");
    greet(&lab, "three");
    assert!(lab.publish().is_complete());
    publish_half_a_day_later(&lab);
    assert!(repository.with_extension("damaged").exists(), "it was made anew");
    assert_eq!(lab.tip("press-01", "site"), Some(list));
}

#[test]
fn a_bit_in_what_a_device_shall_run_is_shown_and_continued() {
    let lab = grown();
    let lost = format!("{} 3", lab.trailer("press-01", Trailer::EnvelopeDigest));
    flip_object(&lab.repo("press-01"), "desired:envelope.json");
    fs::remove_file(lab.home.up_to_date()).unwrap();
    let plan = lab.run(&["plan"]).failed(1);
    assert!(plan.contains("press-01") && plan.contains("hint: `publish` sets it aside"), "{plan}");
    let shown = lab.run(&["status"]);
    assert!(shown.out.contains("its repository is damaged; `publish` makes it anew"), "{}{}", shown.out, shown.err);
    let outcome = lab.publish_all();
    assert!(warnings(&outcome)[0].contains("which isn't all of `desired`"), "{outcome:?}");
    assert_eq!((lab.serial("press-01"), lab.trailer("press-01", Trailer::Continues)), (4, lost));
    assert_eq!(lab.subjects("press-01").len(), 3, "its history stays as far as it can be read");
    assert!(is_whole(&lab.repo("press-01")));
    assert_eq!(lab.publish_all().published(), 0, "once is enough");
}

#[test]
fn what_a_device_said_is_not_made_up() {
    let lab = grown();
    flip_object(&lab.repo("press-01"), "status");
    greet(&lab, "three");
    lab.publish_all();
    let outcome = publish_half_a_day_later(&lab);
    assert!(warnings(&outcome)[0].contains("which isn't all of `status`"), "{outcome:?}");
    assert_eq!(lab.tip("press-01", "status"), None);
    assert_eq!(lab.serial("press-01"), 4);
}

/// Objects that only who puts packs together reads.
#[test]
fn a_bit_in_a_history_that_nobody_reads_is_found_when_packs_are_put_together() {
    let lab = grown();
    flip_object(&lab.repo("press-01"), "desired~2^{tree}");
    flip_object(&lab.home.control(), "control~1^{tree}");
    let (mut warned, packs) = (Vec::new(), |path: PathBuf| fs::read_dir(path.join("objects/pack")).unwrap().count());
    for number in 0..45 {
        greet(&lab, &format!("number {number}"));
        let outcome = lab.publish_all();
        warned.extend(warnings(&outcome));
    }
    assert_eq!(warned.len(), 2, "{warned:?}");
    for path in [lab.repo("press-01"), lab.home.control()] {
        assert!(is_whole(&path) && packs(path.clone()) < 82, "{}", path.display());
        assert!(path.with_extension("damaged").exists());
    }
    assert_eq!(lab.serial("press-01"), 48);
}

#[test]
fn a_key_file_that_is_cut_off_is_an_error() {
    let lab = grown();
    Harm::Truncated.does(&lab.home.publisher_key());
    let said = lab.run(&["publish"]).failed(1);
    assert!(said.contains("publisher's key"), "{said}");
}
