//! Devices' repositories at a host that isn't ours: stock `git http-backend` behind lighttpd, over HTTPS.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use repo_git::{CommitSpec, Expected, Person, RefMove, Repo, SigningKey, TreeSource};
use repo_model::{Digest, FileTree, Trailer};
use repo_testkit::faults::fault_proxy::{Direction, Fault, FaultProxy};
use repo_testkit::faults::power::Volume;
use repo_testkit::foreign_host::{Answer, ForeignHost, Options, Shown};
use repo_testkit::git::{self, git};
use wfm_git_publisher::mirror::{MirrorError, Mirrored};
use wfm_git_publisher::publish::Outcome;
use wfm_git_publisher::repos::Home;

use crate::follow::{Running, wait_for};
use crate::support::{BEGIN, Lab, copy};

pub(crate) const PASSWORD: &str = "s3cret-of-the-publisher";

/// A fleet whose devices' repositories are at another host.
pub(crate) struct Site {
    pub(crate) lab: Lab,
    pub(crate) host: ForeignHost,
}

impl Site {
    pub(crate) fn new(devices: &[&str]) -> Self {
        Self::with(devices, Options::default())
    }

    pub(crate) fn with(devices: &[&str], options: Options) -> Self {
        let site = Self { lab: Lab::with(devices), host: ForeignHost::start(options) };
        for device in devices {
            site.host.create(&format!("fleet/{device}"));
        }
        site.settings(&site.host.url(), "");
        site
    }

    /// Writes `publisher.yaml`; `more` are further lines of `remote`.
    pub(crate) fn settings(&self, url: &str, more: &str) {
        let text =
            format!("remote:\n  url: {url}/fleet/{{device}}.git\n  caFile: {}\n{more}", self.host.ca().display());
        fs::write(self.lab.home.config(), text).unwrap();
    }

    pub(crate) fn remote(&self, device: &str) -> PathBuf {
        self.host.repository(&format!("fleet/{device}"))
    }

    fn remote_tip(&self, device: &str, branch: &str) -> Option<String> {
        git::tip(&self.remote(device), branch)
    }

    /// What the host has is what is here.
    #[track_caller]
    pub(crate) fn assert_same(&self, device: &str) {
        assert_same(&self.lab, device, &self.remote(device));
    }

    pub(crate) fn greet(&self, text: &str) {
        greet(&self.lab, text);
    }
}

/// The repository at a host has what the one here has.
#[track_caller]
pub(crate) fn assert_same(lab: &Lab, device: &str, remote: &Path) {
    for branch in ["desired", "bundle", "freshness"] {
        assert_eq!(git::tip(remote, branch), lab.tip(device, branch), "{device}: {branch}");
    }
    git(remote, &["fsck", "--strict", "--full"]);
}

/// Commits another greeting, which changes what presses get.
pub(crate) fn greet(lab: &Lab, text: &str) {
    let before = lab.read("deployments/hello.yaml");
    let line = before.lines().find(|line| line.starts_with("  greeting:")).unwrap();
    lab.write("deployments/hello.yaml", before.replacen(line, &format!("  greeting: {text}"), 1));
    lab.commit();
}

pub(crate) fn result<'a>(outcome: &'a Outcome, device: &str) -> &'a Result<Mirrored, MirrorError> {
    &outcome.remote[&device.parse().unwrap()]
}

/// An error of one device, with its causes.
#[track_caller]
pub(crate) fn said(outcome: &Outcome, device: &str) -> String {
    let mut next: Option<&dyn std::error::Error> = result(outcome, device).as_ref().err().map(|error| error as _);
    assert!(next.is_some(), "{device}: {outcome:?}");
    let mut text = String::new();
    while let Some(error) = next {
        text += &format!("{error}\n");
        next = error.source();
    }
    text
}

/// Someone writes a commit on top of a branch, signed by `key`.
pub(crate) fn write(repository: &Path, branch: &str, key: &SigningKey, message: &str) -> String {
    let repo = Repo::open(repository).unwrap();
    let tree = FileTree::from([("file".to_owned(), b"text\n".to_vec())]);
    let person = Person::new("Mallory", "mallory@example.invalid");
    let spec = CommitSpec {
        tree: TreeSource::Files(&tree),
        parents: repo.tip(branch).unwrap().into_iter().collect(),
        author: person.clone(),
        committer: person,
        time: *BEGIN,
        message: message.to_owned(),
    };
    let mut batch = repo.batch();
    let id = batch.commit(&spec, Some(key)).unwrap();
    batch.store().unwrap();
    repo.move_refs(&[RefMove { name: format!("refs/heads/{branch}"), expected: Expected::Any, new: Some(id) }])
        .unwrap();
    id.to_string()
}

pub(crate) fn stranger() -> SigningKey {
    SigningKey::from_seed(Digest::of(b"stranger").as_bytes())
}

#[test]
fn a_fleet_is_pushed_and_stock_git_clones_it() {
    let mut site = Site::new(&["press-01", "packer-01"]);
    let outcome = site.lab.publish_all();
    assert_eq!(result(&outcome, "press-01").as_ref().ok(), Some(&Mirrored::Pushed(3)));
    for device in ["press-01", "packer-01"] {
        site.assert_same(device);
    }
    let url = format!("{}/fleet/press-01.git", site.host.url());
    let clone = site.host.git(site.lab.dir()).args(["clone", "-q", "-b", "desired", &url, "clone"]).output().unwrap();
    assert!(clone.status.success(), "{clone:?}");
    assert!(site.lab.dir().join("clone/envelope.json").exists());

    site.greet("hello again");
    assert_eq!(site.lab.publish_all().pushed(), 1, "the packer has no such deployment");
    site.assert_same("press-01");
    let pushes = site.host.requests("POST", "/git-receive-pack");
    assert_eq!(site.lab.publish_all().pushed(), 0);
    assert_eq!(site.host.requests("POST", "/git-receive-pack"), pushes, "nothing changed, and something was pushed");
    // A replaced proof of freshness is pushed, too.
    assert_eq!(site.lab.publish_at(*BEGIN + 13 * 3600).pushed(), 2);
    site.assert_same("press-01");
}

#[test]
fn what_devices_report_is_fetched_and_judged_as_here() {
    let site = Site::new(&["press-01"]);
    site.lab.publish_all();
    write(&site.remote("press-01"), "status", &stranger(), "x\n\nKind: status\n");
    // Packs are made one meanwhile, and what is fetched then stays.
    site.lab.scatter("press-01");
    let table = site.lab.run(&["status"]).good();
    assert!(table.contains("doubtful: wrong-device: `status` can't be believed"), "{table}");
    assert_eq!(site.lab.tip("press-01", "status"), site.remote_tip("press-01", "status"));
    assert!(site.lab.is_tidy("press-01"));
    git(&site.lab.repo("press-01"), &["fsck", "--strict"]);
    // What was fetched stays, and that the host is silent is a doubt.
    let mut site = site;
    site.host.stop();
    let table = site.lab.run(&["status"]).good();
    assert!(table.contains("can't be believed") && table.contains("refuses connections"), "{table}");
    assert!(!site.lab.run(&["status", "--cached"]).good().contains("refuses"));
}

#[test]
fn the_sites_list_is_taken_over_and_never_written() {
    let site = Site::new(&["press-01"]);
    site.lab.publish_all();
    let message = "site\n\nKind: site\n";
    let list = write(&site.remote("press-01"), "site", &stranger(), message);
    site.greet("servus");
    site.lab.publish_all();
    assert_eq!(site.lab.tip("press-01", "site").as_deref(), Some(&*list), "whose key it is only the device knows");
    site.assert_same("press-01");
    // It stays what it is, there and here, also where the host has lost it.
    git(&site.remote("press-01"), &["update-ref", "-d", "refs/heads/site"]);
    site.greet("ciao");
    site.lab.publish_all();
    assert_eq!((site.remote_tip("press-01", "site"), site.lab.tip("press-01", "site")), (None, Some(list)));
}

#[test]
fn a_host_that_is_down_delays_the_push_and_nothing_else() {
    let mut site = Site::new(&["press-01", "press-02", "packer-01"]);
    site.host.stop();
    site.settings(&site.host.url(), "  connections: 1\n");
    let outcome = site.lab.publish();
    assert_eq!((outcome.published(), outcome.pushed(), outcome.is_complete()), (3, 0, false));
    assert!(said(&outcome, "packer-01").contains("refuses connections"));
    for device in ["press-01", "press-02"] {
        assert!(said(&outcome, device).contains("the host failed for `packer-01`"), "{}", said(&outcome, device));
    }
    let serial = site.lab.serial("press-01");
    let failed = site.lab.run(&["publish"]).failed(1);
    assert!(failed.contains("device `packer-01`") && failed.contains("refuses connections"), "{failed}");
    site.host.restart();
    let out = site.lab.run(&["publish"]).good();
    assert!(out.contains("0 published, 3 unchanged; 3 pushed to the remote host"), "{out}");
    assert_eq!(site.lab.serial("press-01"), serial);
    ["packer-01", "press-01", "press-02"].iter().for_each(|device| site.assert_same(device));
}

#[test]
fn one_device_s_trouble_is_its_own() {
    let site = Site::new(&["press-01", "packer-01"]);
    fs::remove_dir_all(site.remote("press-01")).unwrap();
    let outcome = site.lab.publish();
    assert!(said(&outcome, "press-01").contains("404"), "{}", said(&outcome, "press-01"));
    site.assert_same("packer-01");
    let failed = site.lab.run(&["publish"]).failed(1);
    assert!(failed.contains("hint: make the repository at the host"), "{failed}");
    site.host.create("fleet/press-01");
    site.lab.run(&["publish"]).good();
    site.assert_same("press-01");
}

#[test]
fn every_refusal_of_the_host_is_told_for_what_it_is() {
    let mut site = Site::new(&["press-01"]);
    for (status, body) in [(401, ""), (403, ""), (429, ""), (500, ""), (503, "")] {
        let headers = vec!["Content-Type: text/plain".to_owned(), "WWW-Authenticate: Basic".to_owned()];
        site.host.set(|options| options.answer = Some(Answer { status, headers, body: body.to_owned() }));
        let text = said(&site.lab.publish(), "press-01");
        assert!(text.contains(&status.to_string()), "{status}: {text}");
    }
    let headers = vec!["Content-Type: text/html".to_owned()];
    let portal = Answer { status: 200, headers, body: "<html>Welcome to the hotel</html>".to_owned() };
    site.host.set(|options| options.answer = Some(portal));
    assert!(said(&site.lab.publish(), "press-01").contains("captive portal"));
    let headers = vec!["Location: https://127.0.0.1:9/".to_owned()];
    site.host.set(|options| options.answer = Some(Answer { status: 302, headers, body: String::new() }));
    assert!(said(&site.lab.publish(), "press-01").contains("redirects to"));
    site.host.set(|options| options.answer = None);
    for (certificate, expected) in [
        (Shown::Expired, "expired"),
        (Shown::OtherName, "for another name"),
        (Shown::OtherAuthority, "no authority that is trusted here"),
    ] {
        site.host.set(|options| options.certificate = certificate);
        let text = said(&site.lab.publish(), "press-01");
        assert!(text.contains(expected), "{certificate:?}: {text}");
    }
    site.host.set(|options| options.certificate = Shown::Good);
    site.lab.publish_all();
    site.assert_same("press-01");
}

#[test]
fn accounts_certificates_and_pins_are_used_and_no_secret_is_told() {
    let account = Some(("publisher".to_owned(), PASSWORD.to_owned()));
    let mut site = Site::with(&["press-01"], Options { account, ..Options::default() });
    assert!(said(&site.lab.publish(), "press-01").contains("401"));
    let secret = site.lab.dir().join("secret");
    fs::write(&secret, format!("{PASSWORD}\n")).unwrap();
    let lines = format!("  user: publisher\n  secretFile: {}\n", secret.display());
    site.settings(&site.host.url(), &lines);
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(said(&site.lab.publish(), "press-01").contains("chmod 600"));
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    site.lab.publish_all();
    site.assert_same("press-01");

    // A wrong password, with everything told that can be told.
    fs::write(&secret, "wr0ng-secret\n").unwrap();
    let mut command = site.lab.command(&["publish"]);
    let output = command.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "1").output().unwrap();
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(told.contains("401") && !told.contains("wr0ng-secret"), "{told}");
    let from_variable = "  user: publisher\n  secretVariable: GIT_SECRET\n";
    site.settings(&site.host.url(), from_variable);
    let mut command = site.lab.command(&["publish"]);
    assert!(command.env("GIT_SECRET", PASSWORD).status().unwrap().success());

    site.host.set(|options| *options = Options { client_certificate: true, ..Options::default() });
    site.settings(&site.host.url(), "");
    assert!(!said(&site.lab.publish(), "press-01").is_empty());
    let client = site.host.client("publisher");
    let (certificate, key) = (site.lab.dir().join("client.pem"), site.lab.dir().join("client.key"));
    fs::write(&certificate, client.certificate).unwrap();
    fs::write(&key, client.key).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let lines = format!("  certificateFile: {}\n  keyFile: {}\n", certificate.display(), key.display());
    site.settings(&site.host.url(), &lines);
    site.lab.publish_all();

    let pin = |key: &[u8]| format!("{lines}  pin: {}\n", Digest::of(key));
    site.settings(&site.host.url(), &pin(b"another key"));
    assert!(said(&site.lab.publish(), "press-01").contains("not for the pinned key"));
    site.settings(&site.host.url(), &pin(&site.host.public_key()));
    site.lab.publish_all();
}

#[test]
fn a_push_that_breaks_off_anywhere_is_made_up_for() {
    let site = Site::new(&["press-01"]);
    site.lab.publish_all();
    let proxy = FaultProxy::start(site.host.address());
    site.settings(&site.host.url_by(proxy.address()), "");
    site.greet("measured");
    let before = proxy.counts();
    site.lab.publish_all();
    let up = proxy.counts().up - before.up;
    for number in 0..8u64 {
        site.greet(&format!("hello {number}"));
        // Anywhere in what goes up, its very end included; each connection counts for itself.
        proxy.set(if number % 2 == 0 {
            Fault::CutAfter(Direction::Up, up * (number + 1) / 9)
        } else {
            Fault::ResetAfter(Direction::Up, up * (number + 1) / 9)
        });
        let outcome = site.lab.publish();
        assert_eq!(outcome.published(), 1, "it is here whatever the network does");
        proxy.set(Fault::None);
        site.lab.publish_all();
        site.assert_same("press-01");
    }
}

/// On a small file system of its own, which something else fills to the last byte.
#[test]
fn a_host_whose_disk_is_full_says_so_and_keeps_what_it_has() {
    let site = Site::new(&["press-01", "packer-01"]);
    let volume = Volume::new(8).expect("a volume");
    let (remote, moved) = (site.remote("press-01"), volume.path().join("press-01.git"));
    copy(&remote, &moved);
    fs::remove_dir_all(&remote).unwrap();
    std::os::unix::fs::symlink(&moved, &remote).unwrap();
    site.lab.publish_all();
    let before = site.remote_tip("press-01", "desired");
    let filler = volume.path().join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 512]).is_ok() {}
    drop(file);
    site.lab.edit("deployments/hello.yaml", "hello from the packer", "hi packer");
    site.greet("too much");
    let outcome = site.lab.publish();
    let text = said(&outcome, "press-01");
    assert!(text.contains("the host can't unpack it: ") && !text.contains(": ok"), "{text}");
    assert_eq!(site.remote_tip("press-01", "desired"), before);
    assert_eq!(outcome.pushed(), 1, "the packer's disk has room: {outcome:?}");
    site.assert_same("packer-01");
    fs::remove_file(&filler).unwrap();
    site.lab.publish_all();
    site.assert_same("press-01");
}

#[test]
fn what_the_host_s_git_says_of_a_pack_is_told() {
    let site = Site::new(&["press-01"]);
    git(&site.remote("press-01"), &["config", "receive.maxInputSize", "100"]);
    let text = said(&site.lab.publish(), "press-01");
    assert!(text.contains("pack exceeds maximum allowed size"), "{text}");
    git(&site.remote("press-01"), &["config", "--unset", "receive.maxInputSize"]);
    site.lab.publish_all();
    site.assert_same("press-01");
}

#[test]
fn a_host_restored_from_an_old_backup_gets_what_it_lost() {
    let site = Site::new(&["press-01"]);
    site.lab.publish_all();
    let backup = site.lab.dir().join("backup");
    copy(&site.remote("press-01"), &backup);
    for number in 2..5 {
        site.greet(&format!("hello {number}"));
        site.lab.publish_all();
    }
    let tip = site.lab.tip("press-01", "desired");
    copy(&backup, &site.remote("press-01"));
    assert_eq!(site.lab.publish_all().published(), 0);
    assert_eq!(site.lab.tip("press-01", "desired"), tip);
    site.assert_same("press-01");
    // Restored to nothing at all.
    fs::remove_dir_all(site.remote("press-01")).unwrap();
    site.host.create("fleet/press-01");
    site.lab.publish_all();
    site.assert_same("press-01");
}

#[test]
fn a_publisher_that_was_restored_takes_up_what_the_host_has() {
    let site = Site::new(&["press-01"]);
    site.lab.publish_all();
    let backup = site.lab.dir().join("backup");
    copy(site.lab.home.root(), &backup);
    site.greet("after the backup");
    site.lab.publish_all();
    let tip = site.remote_tip("press-01", "desired");
    copy(&backup, site.lab.home.root());
    assert_eq!(site.lab.publish_all().published(), 0, "what the host has means the same");
    assert_eq!(site.lab.tip("press-01", "desired"), tip);
    // Even the whole repository is had again from there.
    fs::remove_dir_all(site.lab.repo("press-01")).unwrap();
    assert_eq!(site.lab.publish_all().published(), 0);
    assert_eq!(site.lab.tip("press-01", "desired"), tip);
    site.assert_same("press-01");
}

#[test]
fn host_and_publisher_restored_to_the_same_day_continue_what_the_device_has() {
    let site = Site::new(&["press-01"]);
    site.lab.publish_all();
    let (home, remote) = (site.lab.dir().join("home-backup"), site.lab.dir().join("remote-backup"));
    copy(site.lab.home.root(), &home);
    copy(&site.remote("press-01"), &remote);
    for number in 2..5 {
        site.greet(&format!("hello {number}"));
        site.lab.publish_all();
    }
    let (envelope, serial) = (site.lab.trailer("press-01", Trailer::EnvelopeDigest), site.lab.serial("press-01"));
    let desired = site.lab.tip("press-01", "desired").unwrap();
    let fleet = site.lab.json("press-01", "desired", "envelope.json")["fleet"].as_str().unwrap().to_owned();
    copy(&home, site.lab.home.root());
    copy(&remote, &site.remote("press-01"));
    // The device, which is offline no more, tells what it has.
    let adopted = format!(
        r#"{{"layout":1,"version":"0","instance":"00000000-0000-0000-0000-000000000000","adopted":{{"serial":{serial},"manifestVersion":{serial},"trust":1,"commit":"{desired}","envelope":"{envelope}"}},"conditions":[],"holds":[]}}"#
    );
    let repo = Repo::open(&site.remote("press-01")).unwrap();
    let tree = FileTree::from([("syncer.json".to_owned(), adopted.into_bytes())]);
    let person = Person::new("press-01", "device@example.invalid");
    let message =
        format!("x\n\nKind: status\nFleet: {fleet}\nDevice: press-01\nSerial: {serial}\nDesired-Commit: {desired}\n");
    let (tree, parents) = (TreeSource::Files(&tree), vec![]);
    let spec = CommitSpec { tree, parents, author: person.clone(), committer: person, time: *BEGIN, message };
    let mut batch = repo.batch();
    let id = batch.commit(&spec, Some(&Lab::device_key("press-01"))).unwrap();
    batch.store().unwrap();
    repo.move_refs(&[RefMove { name: "refs/heads/status".into(), expected: Expected::Any, new: Some(id) }]).unwrap();

    site.lab.publish_all();
    assert_eq!(site.lab.trailer("press-01", Trailer::Continues), format!("{envelope} {serial}"));
    assert_eq!(site.lab.serial("press-01"), serial + 1);
    site.assert_same("press-01");
}

#[test]
fn a_foreign_tip_is_told_left_alone_and_reclaimed_on_demand() {
    let site = Site::new(&["press-01", "packer-01"]);
    site.lab.publish_all();
    let ours = site.lab.tip("press-01", "desired").unwrap();
    let status = write(&site.remote("press-01"), "status", &stranger(), "not its business");
    let foreign = write(&site.remote("press-01"), "desired", &stranger(), "I am the publisher now");
    site.greet("with a stranger around");
    let outcome = site.lab.publish();
    let text = said(&outcome, "press-01");
    for part in [foreign.as_str(), "I am the publisher now", "Mallory", &stranger().public().fingerprint()] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(site.remote_tip("press-01", "desired"), Some(foreign.clone()));
    let failed = site.lab.run(&["publish"]).failed(1);
    assert!(failed.contains("`publish --reclaim DEVICE` puts it right"), "{failed}");
    let table = site.lab.run(&["status", "press-01"]).good();
    assert!(table.contains("doubtful: unreachable: the tip of `desired` at"), "{table}");

    site.lab.run(&["publish", "--reclaim", "press-01"]).good();
    site.assert_same("press-01");
    assert_ne!(site.remote_tip("press-01", "desired"), Some(foreign));
    assert_eq!(site.remote_tip("press-01", "status"), Some(status));
    let history = site.lab.git("press-01", &["log", "--format=%H", "desired"]);
    assert!(history.contains(&ours) && history.lines().count() == 3, "{history}");
    assert_eq!(
        site.lab.trailer("press-01", Trailer::Cause),
        "a tip that is not of this fleet's publisher was replaced"
    );
    let serial = site.lab.serial("press-01");
    assert_eq!(site.lab.reclaim(&["press-01"]).published(), 0, "there is nothing to reclaim");
    assert_eq!(site.lab.serial("press-01"), serial);
}

#[test]
fn a_foreign_tip_here_is_reclaimed_too() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let ours = lab.tip("press-01", "desired").unwrap();
    write(&lab.repo("press-01"), "desired", &stranger(), "I am the publisher now");
    assert!(!lab.publish().is_complete());
    assert!(lab.reclaim(&["press-01"]).is_complete());
    assert_eq!(lab.git("press-01", &["rev-parse", "desired^"]), ours);
    assert_eq!(lab.serial("press-01"), 2);
    assert_eq!(lab.publish_all().published(), 0);
}

/// The same fleet and keys on another machine.
pub(crate) fn second(lab: &Lab) -> Lab {
    let other = Lab::new();
    copy(&lab.fleet, &other.fleet);
    copy(lab.home.root(), other.home.root());
    assert_eq!(other.home.root(), Home::beside(&other.fleet).root());
    other
}

#[test]
fn of_two_publishers_each_builds_on_the_other() {
    let site = Site::new(&["press-01"]);
    site.lab.publish_all();
    let other = second(&site.lab);
    for number in 0..3 {
        let text = format!("hello {number}");
        site.greet(&text);
        site.lab.publish_all();
        copy(&site.lab.fleet, &other.fleet);
        let outcome = other.publish_all();
        assert_eq!((outcome.published(), outcome.pushed()), (0, 0), "it means the same");
        other.write("deployments/hello.yaml", other.read("deployments/hello.yaml").replace(&text, "servus"));
        other.commit();
        assert_eq!(other.publish_all().published(), 1);
        assert_eq!(site.remote_tip("press-01", "desired"), other.tip("press-01", "desired"));
    }
    let serials = git(&site.remote("press-01"), &["log", "--format=%(trailers:key=Serial,valueonly)", "desired"]);
    let serials: Vec<u64> = serials.split_whitespace().map(|text| text.parse().unwrap()).collect();
    assert_eq!(serials, (1..=7).rev().collect::<Vec<_>>());
}

#[test]
fn of_two_publishers_at_once_exactly_one_wins_and_nothing_is_lost() {
    let site = Site::new(&["press-01", "packer-01"]);
    site.lab.publish_all();
    let other = second(&site.lab);
    for round in 0..6 {
        for (lab, who) in [(&site.lab, "one"), (&other, "other")] {
            let before = lab.read("deployments/hello.yaml");
            let line = before.lines().find(|line| line.starts_with("  greeting:")).unwrap();
            lab.write("deployments/hello.yaml", before.replacen(line, &format!("  greeting: {who} {round}"), 1));
            lab.commit();
        }
        std::thread::scope(|scope| {
            let both = [&site.lab, &other].map(|lab| scope.spawn(|| lab.publish()));
            for outcome in both.map(|thread| thread.join().unwrap()) {
                // Whoever was slower has built on the other, or says that it must look again.
                for (device, result) in &outcome.remote {
                    assert!(matches!(result, Ok(_) | Err(MirrorError::Raced { .. })), "{device}: {result:?}");
                }
            }
        });
        let remote = site.remote("press-01");
        // Every commit that any of them ever pushed is still in the history.
        let serials = git(&remote, &["log", "--format=%(trailers:key=Serial,valueonly)", "desired"]);
        let serials: Vec<u64> = serials.split_whitespace().map(|text| text.parse().unwrap()).collect();
        assert!(serials.is_sorted_by(|a, b| a > b), "{serials:?}");
        assert!(serials.len() > round + 1, "{serials:?}");
    }
    // In the end the last word counts, and both agree.
    copy(&site.lab.fleet, &other.fleet);
    site.lab.publish_all();
    assert_eq!(other.publish_all().published(), 0);
    for device in ["press-01", "packer-01"] {
        site.assert_same(device);
    }
    assert_eq!(other.tip("press-01", "desired"), site.lab.tip("press-01", "desired"));
}

#[test]
fn run_pushes_as_soon_as_the_host_is_back() {
    let mut site = Site::new(&["press-01"]);
    site.lab.publish_all();
    let config = fs::read_to_string(site.lab.home.config()).unwrap();
    fs::write(site.lab.home.config(), format!("poll: 1s\n{config}")).unwrap();
    site.host.stop();
    let running = Running::start(&site.lab, &[]);
    site.greet("while the host is away");
    wait_for("serial 2", || site.lab.tip("press-01", "desired").is_some() && site.lab.serial("press-01") == 2);
    site.host.restart();
    wait_for("the push", || site.remote_tip("press-01", "desired") == site.lab.tip("press-01", "desired"));
    wait_for("the proof", || site.remote_tip("press-01", "freshness") == site.lab.tip("press-01", "freshness"));
    let ran = running.stop();
    assert_eq!(ran.code, Some(0));
    assert!(ran.err.contains("refuses connections") && ran.err.contains("pushed to the remote host"), "{}", ran.err);
}

#[test]
fn join_files_name_the_host_and_its_authority() {
    let site = Site::new(&["press-01"]);
    site.lab.run(&["device", "add", "press-01"]).good();
    let join: serde_json::Value =
        serde_json::from_slice(&fs::read(site.lab.home.join(&"press-01".parse().unwrap())).unwrap()).unwrap();
    assert_eq!(join["url"], format!("{}/fleet/press-01.git", site.host.url()));
    assert_eq!(join["ca"], fs::read_to_string(site.host.ca()).unwrap());
}
