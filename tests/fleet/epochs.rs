//! The history of a device across epochs of its `status`: nothing of it is lost, and none of its repositories grows without end.

use std::path::Path;
use std::process::Command;

use repo_model::Trailer;
use repo_testkit::device::{Device, reboot};
use repo_testkit::faults::power::{Cut, Experiment, assert_cut, cut_everywhere};
use repo_testkit::fleet::{DEPLOYMENT, Fleet};
use repo_testkit::foreign_host::{ForeignHost, Options};
use repo_testkit::git;

use crate::audit::findings;
use crate::crash::occurrences;
use crate::hand_made::HandMade;
use crate::hosted::{Hosted, ID};
use crate::site::Site;

/// Which branches the history of `status` is on, the oldest first.
pub(crate) fn branches(repository: &Path) -> Vec<String> {
    let listed = git::git(repository, &["for-each-ref", "--format=%(refname:short)", "refs/heads/status-*"]);
    let mut numbers: Vec<u32> =
        listed.lines().map(|name| name.trim_start_matches("status-").parse().expect("a number")).collect();
    numbers.sort_unstable();
    numbers.iter().map(|number| format!("status-{number}")).chain(["status".to_owned()]).collect()
}

/// Each transition that was told, the oldest first, by stock git.
pub(crate) fn transitions(repository: &Path) -> Vec<String> {
    let format = format!("--format=%(trailers:key={},valueonly)", Trailer::State);
    let log = |branch: &String| git::git(repository, &["log", "--reverse", &format, branch]);
    let all: Vec<_> = branches(repository).iter().map(log).collect();
    all.iter().flat_map(|log| log.lines()).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn count(repository: &Path, branch: &str) -> usize {
    git::git(repository, &["rev-list", "--count", branch]).parse().expect("a number")
}

fn once(device: &Device, commits: usize) {
    let output = device.once().env("SYNC_EPOCH_COMMITS", commits.to_string()).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Publishes and applies so many greetings.
pub(crate) fn greet(site: (&Fleet, &Device), commits: usize, greetings: u32) {
    let (fleet, device) = site;
    for number in 0..greetings {
        let text = fleet.read(DEPLOYMENT);
        let end = text.find(" from the press").expect("a greeting");
        let word = text[..end].rsplit(' ').next().expect("a word");
        fleet.change(DEPLOYMENT, &format!("{word} from the press"), &format!("number-{number} from the press"));
        fleet.run(&["publish"]);
        once(device, commits);
    }
}

/// Neither a transition nor a commit is missing: each component goes on from where it was.
fn assert_whole(repository: &Path, least: usize) {
    let mut states = std::collections::BTreeMap::new();
    let all = transitions(repository);
    assert!(all.len() >= least, "{} transitions", all.len());
    for transition in all {
        let [what, from, _, to] = transition.split(' ').take(4).collect::<Vec<_>>()[..] else { panic!("{transition}") };
        let before = states.insert(what.to_owned(), to.to_owned()).unwrap_or_else(|| "none".to_owned());
        assert_eq!(before, from, "{transition}");
    }
    git::git(repository, &["fsck", "--strict", "--full", "--no-dangling"]);
}

#[test]
fn a_device_that_tells_much_goes_on_in_epochs_at_our_host_and_its_clone_and_each_epoch_stay_small() {
    const COMMITS: usize = 8;
    let hosted = Hosted::new();
    let (fleet, device) = (&hosted.fleet, &hosted.device);
    device.set("limits", "{packs: 1}");
    fleet.run(&["publish"]);
    let host = fleet.serve(&[("SYNC_EPOCH_COMMITS", COMMITS.to_string())]);
    let _ = host;
    once(device, COMMITS);
    greet((fleet, device), COMMITS, 10);
    let repository = fleet.repository(ID);
    let all = branches(&repository);
    assert!(all.len() >= 4, "{all:?}");
    for branch in &all {
        let commits = count(&repository, branch);
        assert!(commits < 2 * COMMITS && (branch == "status" || commits >= COMMITS), "{branch} has {commits}");
    }
    assert_whole(&repository, 30);
    // What the host keeps of epochs that ended, the device doesn't.
    assert!(count(&device.clone_dir(), "status") < 2 * COMMITS);
    let first = git::tip(&repository, "status-1").expect("kept");
    assert!(!git::try_git(&device.clone_dir(), &["cat-file", "-e", &first]).status.success(), "the clone drops it");
    // By everybody who reads it: the audit, the publisher, and stock git with its file of keys.
    assert_eq!(findings(fleet), [""; 0]);
    let status = fleet.status(ID);
    assert_eq!((&status["doubts"], &status["deployments"][0]["state"]), (&serde_json::json!([]), &"installed".into()));
    let signers = format!("gpg.ssh.allowedSignersFile={}", fleet.home().join("allowed_signers").display());
    for branch in &all {
        let signed = git::git(&repository, &["-c", &signers, "log", "--format=%G?", branch]);
        assert!(signed.lines().all(|line| line == "G"), "{branch}: {signed}");
    }
    // A backup has them, too.
    let (archive, restored) = (hosted.dir.path().join("home.tar"), hosted.dir.path().join("restored.wfm"));
    fleet.run(&["backup", &archive.display().to_string()]);
    let mut restore = fleet.command(&["restore", &archive.display().to_string()]);
    repo_testkit::text(restore.arg("--home").arg(&restored).output().expect("it runs"));
    let refs = |repository: &Path| git::refs(repository);
    assert_eq!(refs(&restored.join("devices/press-01.git")), refs(&repository));
}

#[test]
fn epochs_are_kept_at_any_host_and_the_publishers_copy_keeps_them_whatever_that_host_makes_of_them() {
    const COMMITS: usize = 6;
    let host = ForeignHost::start(Options::default());
    host.create("fleet/press-01");
    let site = Site::with(&[ID], |fleet: &Fleet, id: &str, root: &Path| {
        let settings =
            format!("remote:\n  url: {}/fleet/{{device}}.git\n  caFile: {}\n", host.url(), host.ca().display());
        std::fs::write(fleet.home().join("publisher.yaml"), settings).expect("written");
        Device::join(fleet, id, root)
    });
    let (fleet, device, remote) = (&site.fleet, site.device(ID), host.repository("fleet/press-01"));
    site.publish();
    once(device, COMMITS);
    greet((fleet, device), COMMITS, 6);
    let (there, all) = (git::refs(&remote), branches(&remote));
    assert!(all.len() > 2, "{there:?}");
    assert_whole(&remote, 18);
    // The publisher took all of it over.
    fleet.status(ID);
    let here = fleet.repository(ID);
    assert_eq!((branches(&here), findings(fleet)), (all, vec![]));
    // The host takes one away, and moves another: that changes nothing here.
    let kept = git::git(&here, &["for-each-ref", "refs/heads/status-*"]);
    git::git(&remote, &["update-ref", "-d", "refs/heads/status-1"]);
    git::git(&remote, &["update-ref", "refs/heads/status-2", "status"]);
    fleet.status(ID);
    site.publish();
    assert_eq!(git::git(&here, &["for-each-ref", "refs/heads/status-*"]), kept);
    assert_eq!(findings(fleet), [""; 0]);
    // One that takes the end of an epoch away before anybody saw it: the copy knows where it stood.
    let end = git::tip(&remote, "status");
    once(device, 1);
    let all = branches(&remote);
    let newest = &all[all.len() - 2];
    assert_eq!(git::tip(&remote, newest), end);
    git::git(&remote, &["update-ref", "-d", &format!("refs/heads/{newest}")]);
    fleet.status(ID);
    assert_eq!((git::tip(&here, newest), findings(fleet)), (end, vec![]));
}

/// The device is about to end an epoch that its host has all of.
fn prepare(made: &HandMade, root: &Path) {
    if !made.restore(root) {
        made.begin(root);
        // When packs are made one isn't what is cut here.
        let settings = root.join("home/device.yaml");
        let text = std::fs::read_to_string(&settings).expect("settings");
        std::fs::write(settings, text.replace("packs: 2", "packs: 40")).expect("written");
        made.assert_converges(root, "before the epoch ends");
        made.keep(root);
    }
    reboot(root);
}

fn ending(made: &HandMade, root: &Path) -> Command {
    let mut once = made.once(root);
    once.env("SYNC_EPOCH_COMMITS", "2");
    once
}

#[test]
fn power_cuts_while_an_epoch_ends_lose_nothing_of_either() {
    let check = |made: &HandMade, root: &Path, is_cut: bool, when: &str| {
        made.assert_whole(root, false, when);
        let host = made.host();
        let told = transitions(&host);
        assert_eq!(told.len(), 6, "{when}: {told:?}");
        reboot(root);
        made.assert_converges(root, when);
        assert_eq!(transitions(&host), told, "{when}");
        assert!(is_cut || branches(&host) == ["status-1", "status"], "{when}: {:?}", branches(&host));
        let kept = git::git(&host, &["rev-list", "--count", "--branches=status*"]);
        assert!(kept.parse::<usize>().is_ok_and(|commits| commits >= 3), "{when}: {kept}");
        // It ends in the end.
        let output = ending(made, root).output().expect("it runs");
        assert!(output.status.success(), "{when}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(branches(&host).len() >= 2, "{when}");
        assert_eq!(transitions(&host), told, "{when}");
    };
    for cut in [Cut::Power, Cut::Process] {
        let made = HandMade::new();
        let experiment = Experiment {
            deed: "ends an epoch",
            prepare: &|root| prepare(&made, root),
            command: &|root| ending(&made, root),
            check: &|root, point, when| check(&made, root, point.is_some(), when),
            cut,
            occurrences: occurrences(),
        };
        let points = cut_everywhere(&experiment).expect("the cuts are made");
        assert_cut(&points, &["pack.data", "index.rename", "ref.lock", "ref.move"]);
    }
}
