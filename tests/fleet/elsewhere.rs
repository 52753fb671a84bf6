//! Both programs with a Git host between them that isn't ours: stock `git http-backend` behind lighttpd, over HTTPS.

use std::path::Path;

use repo_git::SigningKey;
use repo_testkit::device::Device;
use repo_testkit::fleet::Fleet;
use repo_testkit::foreign_host::{ForeignHost, Options};
use repo_testkit::git;
use serde_json::{Value, json};

use crate::audit::findings;
use crate::site::Site;

/// A fleet whose only device talks to the host.
fn site(host: &ForeignHost) -> Site {
    host.create("fleet/press-01");
    Site::with(&["press-01"], |fleet: &Fleet, id: &str, root: &Path| {
        let settings =
            format!("remote:\n  url: {}/fleet/{{device}}.git\n  caFile: {}\n", host.url(), host.ca().display());
        std::fs::write(fleet.home().join("publisher.yaml"), settings).expect("written");
        Device::join(fleet, id, root)
    })
}

/// How often it was asked for refs or packs.
fn asked(host: &mut ForeignHost) -> usize {
    host.requests("GET", "/info/refs") + host.requests("POST", "/git-upload-pack")
}

#[test]
fn from_a_commit_to_a_container_and_back_through_a_foreign_host() {
    let mut host = ForeignHost::start(Options::default());
    let site = site(&host);
    let (fleet, device) = (&site.fleet, site.device("press-01"));
    let remote = host.repository("fleet/press-01");
    let out = site.publish();
    assert!(out.ends_with("1 pushed to the remote host"), "{out}");
    device.pass();
    assert!(device.environments()[0].contains("hello from the press"));
    let status = fleet.status("press-01");
    assert_eq!(status["deployments"][0]["state"], "installed", "{status}");
    assert_eq!((&status["adoptedSerial"], &status["doubts"]), (&1.into(), &serde_json::json!([])), "{status}");

    fleet.change("deployments/hello.yaml", "hello from the press", "servus");
    site.publish();
    device.pass();
    assert!(device.environments()[0].contains("servus"));
    // Stock Git reads everything, and finds nothing wrong.
    let url = format!("{}/fleet/press-01.git", host.url());
    let mut clone = host.git(site.dir.path());
    let clone = clone.args(["clone", "--quiet", "--mirror", &url, "mirror.git"]).output().expect("git is installed");
    assert!(clone.status.success(), "{clone:?}");
    let mirror = site.dir.path().join("mirror.git");
    git::git(&mirror, &["fsck", "--strict", "--full"]);
    let signers = format!("gpg.ssh.allowedSignersFile={}", fleet.home().join("allowed_signers").display());
    for branch in ["desired", "bundle", "freshness", "status", "heartbeat"] {
        git::git(&mirror, &["-c", &signers, "verify-commit", branch]);
        assert_eq!(git::tip(&mirror, branch), git::tip(&remote, branch));
    }

    // Nothing changed: the publisher pushes nothing, and what the device reports is asked for by one request.
    let pushes = host.requests("POST", "/git-receive-pack");
    site.publish();
    assert_eq!(host.requests("POST", "/git-receive-pack"), pushes);
    fleet.status("press-01");
    let before = asked(&mut host);
    fleet.status("press-01");
    assert_eq!(asked(&mut host) - before, 1);
}

#[test]
fn a_host_restored_from_an_old_backup_is_put_right_and_the_device_goes_on() {
    let mut host = ForeignHost::start(Options::default());
    let site = site(&host);
    let (fleet, device) = (&site.fleet, site.device("press-01"));
    let remote = host.repository("fleet/press-01");
    site.publish();
    device.pass();
    let backup = site.dir.path().join("backup");
    repo_testkit::copy(&remote, &backup);
    for text in ["one", "two"] {
        fleet.change("deployments/hello.yaml", "hello from the p", &format!("{text} hello from the p"));
        site.publish();
        device.pass();
    }
    let adopted = fleet.status("press-01")["adoptedSerial"].clone();
    host.stop();
    repo_testkit::copy(&backup, &remote);
    host.restart();
    // The device keeps what it has, and says so.
    device.syncer(&["once"]);
    assert!(device.environments()[0].contains("one two hello"));
    site.publish();
    device.pass();
    device.pass();
    let status = fleet.status("press-01");
    assert_eq!((&status["adoptedSerial"], &status["desiredSerial"]), (&adopted, &adopted), "{status}");
    assert_eq!(status["doubts"], serde_json::json!([]), "{status}");
    assert_eq!(git::tip(&remote, "desired"), git::tip(&fleet.repository("press-01"), "desired"));
    git::git(&remote, &["fsck", "--strict", "--full", "--no-dangling"]);
}

#[test]
fn what_a_device_is_asked_for_reaches_it_and_is_answered_through_a_foreign_host() {
    let host = ForeignHost::start(Options::default());
    let site = site(&host);
    let (fleet, device) = (&site.fleet, site.device("press-01"));
    site.publish();
    device.pass();
    let answer = |number: &str, options: &[&str]| {
        let output = fleet.try_run(&[&["device", "answers", "press-01", number], options].concat());
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().expect("it ends"), String::from_utf8(said).expect("text"))
    };
    for (what, number, code, outcome) in [
        ("retry", "1", 0, "1 (retry): done"),
        ("diagnostics", "2", 1, "2 (diagnostics): refused"),
        ("sync", "3", 0, "3 (sync): done"),
    ] {
        fleet.run(&["device", what, "press-01"]);
        site.publish();
        device.pass();
        // What wasn't fetched since isn't known here.
        let (cached, said) = answer(number, &["--cached"]);
        assert!(cached == 1 && said.contains("hasn't answered"), "{what}: {said}");
        let (found, said) = answer(number, &[]);
        assert!(found == code && said.starts_with(outcome), "{what}: {said}");
    }
    assert_eq!(git::git(&host.repository("fleet/press-01"), &["rev-list", "--count", "heartbeat"]), "1");
    assert_eq!(fleet.status("press-01")["doubts"], json!([]));
}

/// The key that a device signs with.
fn key(device: &Device) -> SigningKey {
    SigningKey::load(&device.home().join("status.key")).expect("a key")
}

#[test]
fn a_person_carries_a_new_key_to_another_host_and_by_path_and_the_old_one_counts_no_longer() {
    let (host, by_path) = (ForeignHost::start(Options::default()), Site::new(&["press-01"]));
    let here = by_path.fleet.repository("press-01");
    for (site, remote) in [(site(&host), host.repository("fleet/press-01")), (by_path, here)] {
        let (fleet, device) = (&site.fleet, site.device("press-01"));
        site.publish();
        device.pass();
        let old = key(device);
        let ask = || -> Value {
            let output = device.syncer(&["rekey", "--output", "json"]);
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
        };
        let asked = ask();
        assert_eq!((&asked["state"], &ask()), (&json!("toEnroll"), &asked), "run again it says the same");
        fleet.change("deployments/hello.yaml", "hello from the press", "servus");
        site.publish();
        device.pass();
        assert_eq!(key(device).public(), old.public(), "the old one goes on");
        fleet.run(&["device", "enroll", "press-01", asked["enrolmentLine"].as_str().expect("a line"), "--replace"]);
        site.publish();
        device.pass();
        let new = key(device);
        assert_eq!(asked["fingerprint"], new.public().fingerprint());
        device.pass();
        let status = fleet.status("press-01");
        assert_eq!((&status["doubts"], &status["health"]), (&json!([]), &json!("ready")), "{status}");
        let allowed = format!("gpg.ssh.allowedSignersFile={}", fleet.home().join("allowed_signers").display());
        let repository = fleet.repository("press-01");
        let log = git::git(&repository, &["-c", &allowed, "log", "--reverse", "--format=%G? %GK", "status"]);
        let mut signers: Vec<_> = log.lines().collect();
        signers.dedup();
        assert_eq!(signers, [&old, &new].map(|key| format!("G {}", key.public().fingerprint())));
        assert_eq!(findings(fleet), [""; 0]);

        // Who has the old key, and may push: nobody believes it.
        let old_key = site.dir.path().join("old.key");
        old.save(&old_key).expect("saved");
        let (tip, signing) =
            (git::tip(&remote, "status").expect("a tip"), format!("user.signingkey={}", old_key.display()));
        let (tree, message) = (format!("{tip}^{{tree}}"), git::git(&remote, &["log", "-1", "--format=%B", "status"]));
        let commit =
            ["-c", "gpg.format=ssh", "-c", &signing, "commit-tree", "-S", "-p", &tip, "-m", message.trim(), &tree];
        let forged = git::git(&remote, &commit);
        git::git(&remote, &["update-ref", "refs/heads/status", &forged]);
        let status = fleet.status("press-01");
        assert_eq!(status["health"], "doubtful", "{status}");
    }
}
