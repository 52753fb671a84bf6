//! Both programs with SSH between them: stock OpenSSH with plain Git, gitolite, and our own host.

use repo_testkit::git;
use repo_testkit::ssh_key::fingerprint;
use repo_testkit::sshd::Options;

use crate::ssh_site::{ID, SshSite};

#[test]
fn from_a_commit_to_a_container_and_back_through_plain_openssh() {
    let site = SshSite::running(Options::default());
    site.assert_reported("installed");
    let device = std::fs::read_to_string(site.fleet.dir().join(format!("devices/{ID}.yaml"))).expect("its file");
    assert!(device.contains("statusKeys:") && device.contains("sshKeys:"), "{device}");
    site.greet("hello from the press", "servus");
    site.device.pass();
    assert!(site.runs("servus"));
    site.assert_reported("installed");
    for branch in ["desired", "freshness", "status", "heartbeat"] {
        assert!(git::tip(&site.repository(), branch).is_some(), "{branch}");
    }
    git::git(&site.repository(), &["fsck", "--strict", "--full", "--no-dangling"]);

    let status = site.device.syncer(&["status"]);
    let status = String::from_utf8_lossy(&status.stdout);
    let key = fingerprint(&site.device.home().join("ssh.key"));
    assert!(
        status.contains("host: ssh://") && status.contains(&format!("asked with {key}; its key: SHA256:")),
        "{status}"
    );
}

#[test]
fn a_server_that_refuses_the_protocols_version_serves_all_the_same() {
    let site = SshSite::running(Options { accept_env: false, ..Options::default() });
    site.greet("hello from the press", "servus");
    site.device.pass();
    assert!(site.runs("servus"));
    site.assert_reported("installed");
}

#[test]
fn a_device_follows_over_one_session_and_reports() {
    let mut site = SshSite::running(Options::default());
    site.start_device();
    let before = site.sshd.sessions();
    for (from, to) in [("hello from the press", "one"), ("one", "two"), ("two", "three")] {
        site.greet(from, to);
        site.until("it is applied", |site| site.runs(to));
    }
    site.until("it is reported", |site| {
        site.fleet.status(ID)["adoptedSerial"] == site.fleet.status(ID)["desiredSerial"]
    });
    assert!(site.sshd.sessions() <= before + 1, "{}", site.sshd.log());
    site.end_device();
    site.assert_reported("installed");
}
