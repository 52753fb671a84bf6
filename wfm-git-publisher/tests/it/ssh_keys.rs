//! Devices over SSH: their join files, both lines of an enrolment, and what ends an SSH key.

#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::fs;

use repo_git::SigningKey;
use repo_model::Digest;
use repo_testkit::git::git;
use serde_json::Value;
use wfm_git_host::accounts::Store;

use crate::support::Lab;

/// A publisher whose host is reached over SSH, too.
fn lab() -> Lab {
    let lab = Lab::new();
    let settings = "serve:\n  names: [localhost]\n  ssh: {listen: \"127.0.0.1:2222\", user: root}\n";
    fs::write(lab.home.root().join("publisher.yaml"), settings).unwrap();
    lab.run(&["device", "add", "press-01", "--over", "ssh"]).good();
    lab
}

fn key(name: &str) -> String {
    SigningKey::from_seed(Digest::of(name.as_bytes()).as_bytes()).public().to_string()
}

/// Both lines, as the device prints them.
fn lines(status: &str, ssh: &str) -> String {
    format!("{} press-01\n{} press-01 ssh\n", key(status), key(ssh))
}

/// The SSH keys by which the account of the device lets in.
fn keys(lab: &Lab) -> Vec<String> {
    let account = Store::new(lab.home.accounts()).read(&"press-01".parse().unwrap()).unwrap().expect("an account");
    account.valid_ssh_keys().map(|key| key.key.to_string()).collect()
}

#[test]
fn a_join_file_over_ssh_has_the_hosts_keys_and_no_secret() {
    let lab = lab();
    let text = fs::read(lab.home.join(&"press-01".parse().unwrap())).unwrap();
    let join: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(join["url"], "ssh://root@localhost:2222/devices/press-01.git");
    let host_key = fs::read_to_string(lab.home.ssh().join("ssh_host_ed25519_key.pub")).unwrap();
    assert_eq!(join["hostKeys"], serde_json::json!([host_key.trim()]));
    assert_eq!((&join["account"], &join["ca"]), (&Value::Null, &Value::Null));
    let account = Store::new(lab.home.accounts()).read(&"press-01".parse().unwrap()).unwrap().expect("an account");
    assert!(account.secrets.is_empty() && account.ssh_keys.is_empty(), "nothing lets it in as yet");

    let said = lab.run(&["device", "join", "press-01", "--over", "ssh", "--at-once"]).failed(1);
    assert!(said.contains("over SSH there is none"), "{said}");
    fs::write(lab.home.root().join("publisher.yaml"), "serve:\n  names: [localhost]\n").unwrap();
    let said = lab.run(&["device", "join", "press-01", "--over", "ssh"]).failed(1);
    assert!(said.contains("isn't reached over SSH") && said.contains("ssh: {listen:"), "{said}");
    let join = lab.run(&["device", "join", "press-01"]).good();
    assert!(join.contains("join file"), "over HTTPS it can join again: {join}");
}

#[test]
fn a_join_file_for_another_host_has_the_keys_that_the_settings_name_and_isnt_written_without() {
    let lab = Lab::new();
    let remote = |lines: &str| fs::write(lab.home.config(), format!("remote:\n{lines}")).unwrap();
    remote("  url: git@git.example:fleet/{device}.git\n");
    let said = lab.run(&["device", "add", "press-01"]).failed(1);
    assert!(said.contains("which SSH keys the host has") && said.contains("hostKeys:"), "{said}");
    remote(&format!("  url: git@git.example:fleet/{{device}}.git\n  hostKeys: [{}]\n", key("host")));
    lab.run(&["device", "add", "press-01"]).good();
    let text = fs::read(lab.home.join(&"press-01".parse().unwrap())).unwrap();
    let join: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(join["url"], "ssh://git@git.example/fleet/press-01.git");
    assert_eq!((&join["hostKeys"], &join["account"]), (&serde_json::json!([key("host")]), &Value::Null));
    let said = lab.run(&["device", "join", "press-01", "--over", "ssh"]).failed(1);
    assert!(said.contains("devices talk to another"), "{said}");
    remote(&format!("  url: ssh://git@git.example/~/{{device}}.git\n  hostKeys: [{}]\n", key("host")));
    let said = lab.run(&["device", "join", "press-01"]).failed(1);
    assert!(said.contains("devices can't be sent to") && said.contains("doesn't begin with `/~`"), "{said}");
}

#[test]
fn an_enrolment_puts_the_ssh_key_into_the_fleet_and_into_the_account_and_it_ends_with_the_status_key() {
    let lab = lab();
    let said = lab.run(&["device", "enroll", "press-01", &lines("status", "ssh")]).good();
    assert!(said.contains(", over SSH with SHA256:"), "{said}");
    assert_eq!(keys(&lab), [key("ssh")]);
    let file = lab.read("devices/press-01.yaml");
    assert!(file.contains(&format!("sshKeys:\n  - {}", key("ssh"))), "{file}");
    assert!(git(&lab.fleet, &["log", "-1", "--format=%s"]).contains(", over SSH SHA256:"));
    assert!(lab.run(&["device", "enroll", "press-01", &lines("status", "ssh")]).good().contains("already"));

    // Another key needs a person's word, and so does another pair.
    for other in [lines("status", "other"), lines("other", "ssh")] {
        let said = lab.run(&["device", "enroll", "press-01", &other]).failed(1);
        assert!(said.contains("--replace"), "{said}");
    }
    lab.run(&["device", "enroll", "press-01", &lines("status", "newer"), "--replace"]).good();
    assert_eq!(keys(&lab), [key("newer")]);

    // Without a second line, what came with the old status key ends with it.
    let alone = format!("{} press-01", key("newest"));
    lab.run(&["device", "enroll", "press-01", &alone, "--replace"]).good();
    assert!(!lab.read("devices/press-01.yaml").contains("\nsshKeys:"));
    lab.publish();
    assert_eq!(keys(&lab), [""; 0]);

    let ssh = format!("{} press-01 ssh", key("ssh"));
    lab.run(&["device", "enroll", "press-01", &alone, "--ssh-key", &ssh]).good();
    assert_eq!(keys(&lab), [key("ssh")]);

    // A person who knows that the device still has both says so.
    lab.edit("devices/press-01.yaml", &key("newest"), &key("by-hand"));
    lab.commit();
    lab.publish();
    assert_eq!(keys(&lab), [""; 0]);
    lab.run(&["device", "enroll", "press-01", &lines("by-hand", "ssh")]).good();
    assert_eq!(keys(&lab), [key("ssh")]);
    assert!(lab.publish().problems.is_empty());
}

#[test]
fn publishing_brings_accounts_to_what_the_fleet_lists() {
    let lab = lab();
    lab.run(&["device", "enroll", "press-01", &lines("status", "ssh")]).good();
    lab.publish();
    assert_eq!(keys(&lab), [key("ssh")], "an enrolled key stays");
    // Enrolled elsewhere, by a commit that was pushed here.
    lab.edit("devices/press-01.yaml", &key("ssh"), &key("pushed"));
    let pushed = lab.commit();
    lab.publish();
    assert_eq!(keys(&lab), [key("pushed")]);
    // Another key signs reports: what came with the old one ends, although its line was forgotten.
    lab.edit("devices/press-01.yaml", &key("status"), &key("another"));
    lab.commit();
    for _ in 0..2 {
        let told = lab.publish().problems.to_string();
        assert!(told.contains("came with a status key that isn't listed any more"), "{told}");
        assert_eq!(keys(&lab), [""; 0]);
    }
    // With the old one it counts again, and with another one once its line went and came.
    let swap = |from: &str, to: &str| {
        lab.edit("devices/press-01.yaml", &key(from), &key(to));
        lab.commit();
        assert!(lab.publish().problems.is_empty());
        keys(&lab)
    };
    assert_eq!(swap("another", "status"), [key("pushed")]);
    assert_eq!(swap("pushed", "third"), [key("third")]);
    lab.edit("devices/press-01.yaml", &key("status"), &key("another"));
    assert_eq!(swap("third", "fourth"), [key("fourth")]);
    assert_eq!(swap("fourth", "pushed"), [key("pushed")]);
    let account = Store::new(lab.home.accounts()).read(&"press-01".parse().unwrap()).unwrap().expect("an account");
    let with = account.ssh_keys[0].enrolled_with.as_ref().map(ToString::to_string);
    assert_eq!((keys(&lab), with), (vec![key("pushed")], Some(key("another"))));
    // Without a key that signs reports, nothing lets the device in.
    lab.edit("devices/press-01.yaml", &format!("statusKeys:\n  - {}\n", key("another")), "");
    lab.commit();
    lab.publish();
    assert_eq!(keys(&lab), [""; 0]);
    // An old state, published on purpose, lets nobody in again.
    lab.run(&["publish", "--rev", &pushed]);
    assert_eq!(keys(&lab), [""; 0]);
}

#[test]
fn a_key_that_is_somebodys_already_or_signs_reports_is_no_ssh_key() {
    let lab = lab();
    lab.run(&["device", "enroll", "press-01", &lines("status", "ssh")]).good();
    lab.run(&["device", "add", "press-02", "--over", "ssh"]).good();
    let two = |status: &str, ssh: &str| format!("{} press-02\n{} press-02 ssh", key(status), key(ssh));
    for (status, ssh) in [("status-2", "ssh"), ("ssh", "ssh-2"), ("status-2", "status")] {
        let said = lab.run(&["device", "enroll", "press-02", &two(status, ssh)]).failed(1);
        assert!(said.contains("that is the key of `press-01`"), "{said}");
    }
    let said = lab.run(&["device", "enroll", "press-02", &two("one", "one")]).failed(1);
    assert!(said.contains("both lines have the same key"), "{said}");
    let said = lab.run(&["device", "enroll", "press-02", &(two("a", "b") + "\n" + &two("c", "d"))]).failed(1);
    assert!(said.contains("more than one line of a kind"), "{said}");
    let bad = format!("{} press-02\nssh-dss AAAAB3NzaC1kc3M press-02 ssh", key("status-2"));
    assert!(lab.run(&["device", "enroll", "press-02", &bad]).failed(1).contains("no SSH key that can be used"));
    lab.run(&["device", "enroll", "press-02", &two("status-2", "ssh-2")]).good();
}
