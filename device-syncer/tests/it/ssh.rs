//! Joining over SSH: what `init` makes, prints and refuses. Conversations with real servers are in `tests/fleet`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::world::{World, syncer};

const URL: &str = "ssh://wfm@127.0.0.1:1/devices/press-01.git";
const HOST_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1hcmdvTWFyZ29NYXJnb01hcmdvTWFyZ29NYXJnb00H";

/// The join file at this URL, and with these host keys.
fn join_at(world: &World, url: &str, host_keys: &[&str]) -> String {
    let path = world.hand.path("join.json");
    let mut join: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    (join["url"], join["hostKeys"]) = (url.into(), json!(host_keys));
    let path = world.path("ssh-join.json");
    fs::write(&path, join.to_string()).unwrap();
    path.display().to_string()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn keygen(arguments: &[&str]) -> String {
    let done = Command::new("ssh-keygen").args(arguments).output().expect("ssh-keygen, see .ci/setup");
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn init_over_ssh_makes_a_key_of_its_own_and_prints_a_line_for_it() {
    let world = World::joined();
    let (home, join) = (world.path("over-ssh"), join_at(&world, URL, &[HOST_KEY]));
    let printed = syncer(&home, &["init", "--join", &join]).good().stdout;
    let lines: Vec<_> = printed.lines().collect();
    assert!(lines[0].ends_with(" press-01") && lines[1].ends_with(" press-01 ssh") && lines.len() == 2, "{printed}");
    let key = home.join("ssh.key");
    assert_eq!(mode(&key), 0o600);
    let public = keygen(&["-y", "-f", &key.display().to_string()]);
    assert!(lines[1].starts_with(public.trim_end()), "{printed}");
    assert_ne!(lines[0].split(' ').nth(1), lines[1].split(' ').nth(1), "what asks isn't what signs");
    assert_eq!(syncer(&home, &["init", "--join", &join]).good().stdout, printed, "the same keys");
    let json = syncer(&home, &["init", "--join", &join, "--output", "json"]).good().stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json, json!({ "apiVersion": "v1", "enrolmentLine": lines[0], "sshLine": lines[1] }));

    let fingerprint =
        |path: &Path| keygen(&["-l", "-f", &path.display().to_string()]).split(' ').nth(1).unwrap().to_owned();
    let status = syncer(&home, &["status"]).good().stdout;
    let host_key = world.path("host.pub");
    fs::write(&host_key, HOST_KEY).unwrap();
    let says = format!("host: {URL}, asked with {}; its key: {}", fingerprint(&key), fingerprint(&host_key));
    assert!(status.contains(&says), "{says}\n{status}");
}

#[test]
fn a_key_that_the_site_gives_is_used_instead_and_its_public_file_is_not_believed() {
    let world = World::joined();
    let (home, join) = (world.path("over-ssh"), join_at(&world, URL, &[HOST_KEY]));
    syncer(&home, &["init", "--join", &join]).good();
    fs::remove_file(home.join("ssh.key")).unwrap();
    let given = home.join("given").display().to_string();
    keygen(&["-q", "-t", "ecdsa", "-N", "a passphrase", "-f", &given]);
    let public = fs::read_to_string(format!("{given}.pub")).unwrap();
    // Somebody who can write beside the key would have the operator enrol theirs.
    fs::write(format!("{given}.pub"), HOST_KEY).unwrap();
    let settings = "host: {sshKey: given, sshKeyPassphrase: {file: passphrase}}\n";
    fs::write(home.join("device.yaml"), settings).unwrap();
    let printed = syncer(&home, &["init", "--join", &join]).good().stdout;
    let key = public.split(' ').nth(1).unwrap();
    assert_eq!(printed.lines().nth(1), Some(&*format!("ecdsa-sha2-nistp256 {key} press-01 ssh")));
    assert!(!home.join("ssh.key").exists());

    fs::set_permissions(&given, fs::Permissions::from_mode(0o640)).unwrap();
    syncer(&home, &["init", "--join", &join]).ended(1).says(&["given", "chmod 600"]);
    fs::set_permissions(&given, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&given, "-----BEGIN RSA PRIVATE KEY-----\n").unwrap();
    syncer(&home, &["init", "--join", &join]).ended(1).says(&["given", "OpenSSH's format", "ssh-keygen -p"]);
    fs::write(home.join("device.yaml"), "host: {sshKey: status.key}\n").unwrap();
    syncer(&home, &["init", "--join", &join]).ended(1).says(&["status.key", "signs `status`"]);
}

#[test]
fn a_host_without_a_known_key_is_never_asked() {
    let world = World::joined();
    let home = world.path("over-ssh");
    syncer(&home, &["init", "--join", &join_at(&world, URL, &[])]).good();
    syncer(&home, &["once"]).ended(1).says(&["nothing says which key the host has"]);
    fs::write(home.join("device.yaml"), "host: {pin: \"sha256:".to_owned() + &"0".repeat(64) + "\"}\n").unwrap();
    syncer(&home, &["once"]).ended(1).says(&["host.pin", "SHA256:", "over SSH"]);
}

#[test]
fn a_url_that_a_command_line_could_read_otherwise_makes_no_home() {
    let world = World::joined();
    for url in ["ssh://git:secret@host/a.git", "ssh://git@-oProxyCommand=x/a.git", "ssh://git@host/~/a.git"] {
        let home = world.path("refused");
        syncer(&home, &["init", "--join", &join_at(&world, url, &[HOST_KEY])])
            .ended(1)
            .says(&["`url` in the join file"]);
        assert!(!home.exists(), "nothing is begun with a bad join file");
    }
}
