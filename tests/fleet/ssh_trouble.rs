//! What can go wrong between a device and a host over SSH. Whatever it is, what runs keeps running, the reason says what it
//! is, and the device goes on by itself where nobody has to do anything.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use repo_testkit::git;
use repo_testkit::ssh_key::fingerprint;
use repo_testkit::sshd::Options;
use serde_json::{Value, json};

use crate::clocks::with_clock;
use crate::hosted::read;
use crate::ssh_faults::Server;
use crate::ssh_site::{ID, SshSite, refuse_pushes};

/// Settings by which a silent host is noticed within seconds.
const IMPATIENT: &str = "{timeouts: {connect: 3s, answer: 2s, stall: 2s, total: 5s}}";

#[test]
fn a_host_with_another_key_is_not_asked_until_a_person_pins_that() {
    let mut site = SshSite::running(Options::default());
    let before = site.sshd.sessions();
    site.sshd.change_host_keys();
    site.greet("hello from the press", "servus");
    let said = site.unreached("Stalled", "SshHostKeyChanged");
    assert_eq!(site.sshd.sessions(), before, "no key was shown to it");
    assert!(site.runs("hello from the press"), "what runs keeps running");
    let host_key = site.dir.path().join("new_host_key.pub");
    std::fs::write(&host_key, site.sshd.host_key("ed25519")).expect("written");
    let fingerprint = fingerprint(&host_key);
    assert!(said.contains(&fingerprint), "{fingerprint}: {said}");
    site.device.set("host", &format!("{{pin: \"{fingerprint}\"}}"));
    site.device.pass();
    assert!(site.runs("servus"));
    site.assert_reported("installed");
    // What the site pins counts in the place of what the join file says.
    let mut join = read(&site.device.home().join("join.json"));
    join["hostKeys"] = json!([site.sshd.host_key("ed25519")]);
    std::fs::write(site.device.home().join("join.json"), join.to_string()).expect("written");
    site.device.set("host", &format!("{{pin: \"SHA256:{}\"}}", "A".repeat(43)));
    site.unreached("Stalled", "SshHostKeyChanged");
}

#[test]
fn a_key_that_is_refused_is_named_tried_rarely_and_works_once_it_is_allowed() {
    let mut site = SshSite::running(Options::default());
    site.sshd.forget_clients();
    site.greet("hello from the press", "servus");
    let said = site.unreached("Stalled", "SshKeyRefused");
    let key = site.device.home().join("ssh.key");
    assert!(said.contains(&fingerprint(&key)) && said.contains(site.sshd.user()), "{said}");
    assert!(site.runs("hello from the press"), "what runs keeps running");

    let tries = |site: &SshSite| site.sshd.log().lines().filter(|line| line.contains("Connection from")).count();
    let before = tries(&site);
    site.start_device();
    site.until("it is tried", |site| tries(site) > before);
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(tries(&site), before + 1, "it polls each second, and a refused key backs off for a minute at least");
    site.admit_key();
    // A person at the device doesn't wait for it.
    assert!(site.device.syncer(&["retry"]).status.success());
    site.until("it is applied", |site| site.runs("servus"));
    site.until("the trouble is over", |site| site.trouble().is_none());
    site.end_device();
    site.assert_reported("installed");
}

#[test]
fn a_server_that_dies_in_the_middle_of_a_pack_changes_nothing_and_the_next_pass_goes_on() {
    let mut site = SshSite::running(Options::default());
    let desired = |site: &SshSite| git::git(&site.device.clone_dir(), &["rev-parse", "refs/syncer/state"]);
    site.greet("hello from the press", "servus");
    let before = desired(&site);
    // Enough for the refs and the beginning of a pack; where there is more, nothing of it is left.
    let cut = "sh -c \"$SSH_ORIGINAL_COMMAND\" | { head -c 1000; [ \"$(head -c 1 | wc -c)\" = 0 ] || kill -9 0; }";
    site.sshd.set(|options| options.force_command = Some(cut.to_owned()));
    let output = site.device.syncer(&["once"]);
    assert!(!output.status.success());
    assert!(site.trouble().is_some_and(|trouble| trouble.starts_with("Unreachable ")), "{:?}", site.trouble());
    assert_eq!(desired(&site), before);
    assert!(site.runs("hello from the press"), "what runs keeps running");
    site.sshd.set(|options| options.force_command = None);
    site.device.pass();
    assert!(site.runs("servus"));
    site.assert_reported("installed");
}

#[test]
fn a_server_that_is_down_is_no_persons_business_and_is_reached_again() {
    let mut site = SshSite::running(Options::default());
    site.sshd.kill();
    site.unreached("Unreachable", "ConnectionRefused");
    assert!(site.runs("hello from the press"));
    site.sshd.restart();
    site.device.pass();
    assert_eq!(site.trouble(), None);
}

#[test]
fn a_session_that_died_unseen_is_opened_again_and_no_change_is_lost() {
    let mut site = SshSite::running(Options::default());
    site.start_device();
    site.greet("hello from the press", "one");
    site.until("it is applied", |site| site.runs("one"));
    // As after a sleep, or when a router forgot the connection: nobody says that it is over.
    site.sshd.freeze();
    site.sshd.restart();
    site.greet("one", "two");
    site.until("it is applied", |site| site.runs("two"));
    site.end_device();
    site.assert_reported("installed");
}

#[test]
fn a_server_that_falls_silent_is_given_up_within_its_limits_and_asked_again() {
    let site = SshSite::running(Options::default());
    site.device.set("host", IMPATIENT);
    site.sshd.freeze();
    let begin = std::time::Instant::now();
    let output = site.device.syncer(&["once"]);
    assert!(!output.status.success() && begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    assert!(site.trouble().is_some_and(|trouble| trouble.starts_with("Unreachable ")), "{:?}", site.trouble());
    site.sshd.thaw();
    site.device.pass();
    assert_eq!(site.trouble(), None);
}

#[test]
fn a_report_that_the_host_refuses_is_kept_and_pushed_when_it_takes_it() {
    let site = SshSite::running(Options::default());
    refuse_pushes(&site.repository());
    site.greet("hello from the press", "servus");
    let output = site.device.syncer(&["once"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(site.runs("servus"), "it is applied all the same");
    std::fs::remove_file(site.repository().join("hooks/pre-receive")).expect("removed");
    site.device.pass();
    site.assert_reported("installed");
}

#[test]
fn a_device_in_1970_believes_a_proof_that_its_signers_key_outlives_though_no_certificate_says_so() {
    let site = SshSite::new(Options::default());
    site.publish();
    // It lay on a shelf for five days: what its join file says of the time is that old.
    let path = site.device.home().join("join.json");
    let mut join = read(&path);
    let issued = Timestamp::now() - SignedDuration::from_hours(5 * 24);
    join["issued"] = issued.to_string().into();
    std::fs::write(&path, join.to_string()).expect("written");
    let once = with_clock(&["1970-01-03 00:00:00"], &site.device.once());
    assert!(once.status.success() && site.runs("hello from the press"), "{once:?}");
    assert_eq!(site.fleet.status(ID)["conditions"].to_string(), "[]");
}

#[test]
fn a_device_changes_from_a_path_to_ssh_and_back_by_join_files() {
    let site = SshSite::running(Options::default());
    let init = |join: &str| {
        let path = site.dir.path().join("join.json");
        std::fs::write(&path, join).expect("written");
        let output = site.device.syncer(&["init", "--join", &path.display().to_string()]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).lines().count()
    };
    let over_ssh = std::fs::read_to_string(site.device.home().join("join.json")).expect("a join file");
    let mut by_path: Value = serde_json::from_str(&over_ssh).expect("JSON");
    by_path["url"] = site.repository().display().to_string().into();
    assert_eq!(init(&by_path.to_string()), 1, "one line: nobody is asked over SSH");
    site.greet("hello from the press", "by path");
    site.device.pass();
    assert!(site.runs("by path"));
    assert_eq!(init(&over_ssh), 2);
    let before = site.sshd.sessions();
    site.greet("by path", "over ssh");
    site.device.pass();
    assert!(site.runs("over ssh") && site.sshd.sessions() > before);
    site.assert_reported("installed");
}
