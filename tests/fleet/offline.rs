//! A device that was offline for a long time comes back: in few requests and bytes, and with all that it has to say.

use std::path::Path;

use repo_git::{CommitSpec, Expected, Person, RefMove, Repo, SigningKey, TreeSource};
use repo_model::{Digest, FileTree};
use repo_testkit::fake_docker::FakeDocker;
use repo_testkit::faults::fault_proxy::{Counts, Fault, FaultProxy};
use repo_testkit::git;
use serde_json::Value;

use crate::hosted::{Hosted, ID};
use repo_testkit::copy;
use repo_testkit::device::Device;
use repo_testkit::fleet::{DEPLOYMENT, Fleet};

/// What the fleet says meanwhile.
const REVISIONS: u64 = 1000;

/// What the device has to say meanwhile: docker goes away and comes back, so often.
const OUTAGES: usize = 5;

/// The device comes back with these limits; what passed until all was as wanted, and what it says of itself.
fn come_back(hosted: &Hosted, proxy: &FaultProxy, limits: &str) -> (Counts, Value) {
    let (host, clone) = (hosted.fleet.repository(ID), hosted.device.clone_dir());
    hosted.device.set("limits", limits);
    let unsaid = git::tip(&clone, "status").expect("it has reported");
    let before = proxy.counts();
    hosted.device.pass();
    let after = proxy.counts();
    assert!(hosted.runs(&format!("revision {REVISIONS}")));
    // One push brought everything, each commit on the one before.
    git::git(&host, &["merge-base", "--is-ancestor", &unsaid, "status"]);
    git::git(&host, &["fsck", "--strict", "--full", "--no-dangling"]);
    let outages = git::git(&host, &["log", "--format=%s", "status"]);
    assert_eq!(outages.matches("RuntimeUnavailable: ").count(), OUTAGES, "{outages}");
    let report = git::show(&host, "status", "syncer.json").expect("a report");
    let passed = Counts {
        connections: after.connections - before.connections,
        exchanges: after.exchanges - before.exchanges,
        up: after.up - before.up,
        down: after.down - before.down,
    };
    println!("{limits}: {passed:?}");
    (passed, serde_json::from_slice(&report).expect("JSON"))
}

/// As many revisions as a publisher would make of a policy that changes all day: signed commits, written all at once.
fn publish_many(fleet: &Fleet) {
    let repo = Repo::open(&fleet.repository(ID)).expect("a repository");
    let key = SigningKey::load(&fleet.home().join("keys/publisher")).expect("the publisher's key");
    let file = |path: &str| git::show(&fleet.repository(ID), "desired", path).expect("a file");
    let listed = git::git(&fleet.repository(ID), &["ls-tree", "-r", "--name-only", "desired"]);
    let mut tree: FileTree = listed.lines().map(|path| (path.to_owned(), file(path))).collect();
    let message = git::git(&fleet.repository(ID), &["log", "-1", "--format=%B", "desired"]);
    let mut batch = repo.batch();
    let before = repo.tip("desired").expect("readable").expect("published");
    let mut tip = before;
    for serial in 2..=REVISIONS {
        let mut envelope: Value = serde_json::from_slice(&tree["envelope.json"]).expect("JSON");
        envelope["serial"] = serial.into();
        envelope["policy"]["pollSeconds"] = (10 + serial % 50).into();
        let bytes = format!("{envelope}\n").into_bytes();
        let replace = |line: &str| match line.split_once(": ") {
            Some(("Serial", _)) => format!("Serial: {serial}\n"),
            Some(("Envelope-Digest", _)) => format!("Envelope-Digest: {}\n", Digest::of(&bytes)),
            Some(("Deployment", _)) => String::new(),
            _ => format!("{line}\n"),
        };
        let message = message.lines().map(replace).collect();
        tree.insert("envelope.json".to_owned(), bytes);
        let person = Person::new("publisher", "publisher@example.invalid");
        let (author, time) = (person.clone(), 1_795_262_400);
        let spec =
            CommitSpec { tree: TreeSource::Files(&tree), parents: vec![tip], author, committer: person, time, message };
        tip = batch.commit(&spec, Some(&key)).expect("made");
    }
    batch.store().expect("stored");
    let name = "refs/heads/desired".to_owned();
    repo.move_refs(&[RefMove { name, expected: Expected::At(before), new: Some(tip) }]).expect("moved");
}

/// So often docker goes away and comes back while the host is, and the device has a word for each.
const MANY_OUTAGES: usize = 40;

/// A device behind a proxy that has all of that to tell, and hasn't begun to.
fn with_much_to_tell(limits: &str) -> (Hosted, FaultProxy, Vec<String>) {
    let (mut hosted, proxy) = Hosted::behind_a_proxy(limits);
    hosted.start_host();
    hosted.adopt_first();
    proxy.set(Fault::Refuse);
    let docker = FakeDocker::new(hosted.device.docker_dir());
    for _ in 0..MANY_OUTAGES {
        docker.set("unavailable", "");
        hosted.device.syncer(&["once"]);
        docker.unset("unavailable");
        hosted.device.syncer(&["once"]);
    }
    let words = said(&hosted.device.clone_dir());
    assert!(words.len() > 2 * MANY_OUTAGES, "{words:?}");
    (hosted, proxy, words)
}

/// What `status` says in a repository, oldest first.
fn said(repository: &Path) -> Vec<String> {
    git::git(repository, &["log", "--reverse", "--format=%H %s", "status"]).lines().map(str::to_owned).collect()
}

/// The device runs until the host knows all of this; what it logged.
fn until_all_is_told(hosted: &mut Hosted, words: &[String]) -> String {
    hosted.device.set("poll", "1s");
    let device = hosted.start_device();
    let host = hosted.fleet.repository(ID);
    hosted.until("the host knows everything", |hosted| {
        let there = git::tip(&host, "status");
        there.is_some() && there == git::tip(&hosted.device.clone_dir(), "status")
    });
    hosted.end(device);
    let there = said(&host);
    assert!(there.starts_with(words), "each once, in order: {words:?}, {there:?}");
    git::git(&host, &["fsck", "--strict", "--full", "--no-dangling"]);
    std::fs::read_to_string(hosted.dir.path().join("device.log")).expect("a log")
}

#[test]
fn a_device_with_more_to_tell_than_its_host_takes_at_once_tells_it_in_parts() {
    let (mut hosted, proxy, words) = with_much_to_tell("  limits: {pushObjects: 40}\n");
    proxy.set(Fault::None);
    let log = until_all_is_told(&mut hosted, &words);
    let refused = log.matches("the host didn't take the push").count();
    assert!((1..=4).contains(&refused), "it finds out how much the host takes, and keeps to that: {log}");
    assert_eq!(hosted.trouble(), None);
}

#[test]
fn a_device_at_a_slow_link_tells_in_parts_what_takes_longer_than_one_request_may() {
    let (mut hosted, proxy, words) = with_much_to_tell("");
    hosted.device.set("host", "{timeouts: {total: 2s}}");
    proxy.set(Fault::Throttle(12_000));
    let log = until_all_is_told(&mut hosted, &words);
    assert!(log.contains("TotalTimeout"), "{log}");
}

#[test]
fn a_device_offline_through_1000_revisions_gets_there_and_tells_all_in_few_requests_and_bytes() {
    let (mut hosted, proxy) = Hosted::behind_a_proxy("");
    hosted.start_host();
    hosted.adopt_first();
    hosted.end(0);
    proxy.set(Fault::Refuse);

    let docker = FakeDocker::new(hosted.device.docker_dir());
    for _ in 0..OUTAGES {
        docker.set("unavailable", "");
        assert!(!hosted.device.syncer(&["once"]).status.success());
        docker.unset("unavailable");
        assert!(!hosted.device.syncer(&["once"]).status.success());
    }
    publish_many(&hosted.fleet);
    // The real publisher builds on them, and believes each.
    hosted.fleet.change(DEPLOYMENT, "hello from the press", &format!("revision {REVISIONS}"));
    hosted.start_host();
    hosted.until("it is published", |hosted| hosted.fleet.serial(ID) == REVISIONS + 1);

    // Once with all the history, and, from the same beginning, with limits that allow the tip alone.
    let (root, kept) = (hosted.dir.path().join(ID), hosted.dir.path().join("kept"));
    copy(&root, &kept);
    let host = hosted.fleet.repository(ID);
    let said = ["status", "heartbeat"].map(|branch| (branch, git::tip(&host, branch).expect("it has reported")));
    proxy.set(Fault::None);
    let (all, report) = come_back(&hosted, &proxy, "{packs: 4}");
    assert!(!report["conditions"].to_string().contains("AncestryUnverified"), "{report}");
    assert!(all.connections <= 2 && all.exchanges <= 20 && all.down < 1 << 20, "{all:?}");

    for (branch, tip) in &said {
        git::git(&host, &["update-ref", &format!("refs/heads/{branch}"), tip]);
    }
    copy(&kept, &root);
    hosted.device = Device::at(ID, &root);
    // On a fast link all would be on its way already when the beginning of the pack says how much it is.
    proxy.set(Fault::Throttle(100_000));
    let (tip_alone, report) = come_back(&hosted, &proxy, "{packObjects: 500, packs: 4}");
    assert!(report["conditions"].to_string().contains("AncestryUnverified"), "{report}");
    assert!(tip_alone.connections <= 3 && tip_alone.exchanges <= 25 && tip_alone.down < 128 << 10, "{tip_alone:?}");
    hosted.device.assert_whole(&hosted.fleet, true, "in the end");
}
