//! Where the host is and how it is known, as the roster says it: an authority that is replaced, a host that moves, and devices that
//! were away meanwhile.

use std::fs;
use std::process::{Command, Output};

use repo_testkit::device::Device;
use repo_testkit::fleet::{DEPLOYMENT, Fleet};
use repo_testkit::ports::free_port;
use repo_testkit::ssh_key::keygen;
use tempfile::TempDir;

use crate::clocks::{drill, forge, lay_out, with_clock};
use crate::hosted::{Hosted, ID, read};
use crate::site::registry_name;

const UNKNOWN: &str = "Stalled CertificateUnknownAuthority";

/// A fleet at its own host whose device runs what was published first.
fn adopted() -> Hosted {
    let mut hosted = Hosted::new();
    hosted.start_host();
    hosted.adopt_first();
    hosted
}

/// Proposes, signs and publishes the next roster, and brings it to the devices.
fn roster(fleet: &Fleet, changes: &[&str]) {
    fleet.run(&[&["trust", "propose"], changes].concat());
    fleet.run(&["trust", "sign", "--key", &fleet.home().join("keys/root").display().to_string()]);
    fleet.run(&["trust", "publish"]);
    fleet.run(&["publish"]);
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn passes(hosted: &Hosted) {
    hosted.until("a pass finds all as it should be", |hosted| hosted.device.syncer(&["once"]).status.success());
}

fn believes(device: &Device) -> u64 {
    let shown = device.syncer(&["trust", "--output", "json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    shown["version"].as_u64().expect("a version")
}

/// Whether stock curl believes the host by this authority.
fn curl_believes(hosted: &Hosted, authority: &str) -> bool {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--output", "/dev/null", "--cacert"]).arg(hosted.fleet.home().join(authority));
    curl.arg(format!("https://{}/trust?from=0", hosted.address)).status().expect("curl runs").success()
}

fn greet(hosted: &Hosted, greeting: &str) {
    let before = hosted.fleet.read(DEPLOYMENT);
    let line = before.lines().find(|line| line.starts_with("  greeting:")).expect("a greeting");
    hosted.fleet.change(DEPLOYMENT, line, &format!("  greeting: {greeting}"));
    hosted.until(greeting, |hosted| hosted.device.syncer(&["once"]).status.success() && hosted.runs(greeting));
}

/// Another authority takes the place of the host's, in the three steps of the help.
fn replace_authority(hosted: &Hosted) {
    roster(&hosted.fleet, &["--new-authority"]);
    hosted.fleet.run(&["trust", "switch"]);
    hosted.until("the host shows it", |hosted| curl_believes(hosted, "ca/ca.pem"));
    assert!(!curl_believes(hosted, "ca.next/ca.pem"), "which is the one of before by now");
    roster(&hosted.fleet, &["--only-authority"]);
}

#[test]
fn the_hosts_authority_is_replaced_without_a_gap_and_the_one_of_before_is_refused_then() {
    let mut hosted = adopted();
    let refused = hosted.fleet.try_run(&["trust", "switch"]);
    assert!(said(&refused).contains("there is no other authority"), "{}", said(&refused));
    let pin = fs::read(hosted.fleet.home().join("ca/server.key")).expect("a key");
    roster(&hosted.fleet, &["--new-authority"]);
    passes(&hosted);
    assert_eq!(believes(&hosted.device), 2);
    assert!(
        curl_believes(&hosted, "ca/ca.pem") && !curl_believes(&hosted, "ca.next/ca.pem"),
        "nothing has changed so far"
    );
    hosted.fleet.run(&["trust", "switch"]);
    hosted.until("the host shows it", |hosted| curl_believes(hosted, "ca/ca.pem"));
    greet(&hosted, "by either of the two");
    roster(&hosted.fleet, &["--only-authority"]);
    greet(&hosted, "by the new one alone");
    assert_eq!((believes(&hosted.device), hosted.trouble()), (3, None));
    assert_eq!(fs::read(hosted.fleet.home().join("ca/server.key")).expect("a key"), pin, "who pins it notices nothing");
    // There is no way back that devices wouldn't follow.
    let back = hosted.fleet.try_run(&["trust", "switch"]);
    assert!(said(&back).contains("roster 3 doesn't name the authority"), "{}", said(&back));
    // Whoever has the old authority's key is no host of this device's any more.
    hosted.end(0);
    let home = hosted.fleet.home();
    for (from, to) in [("ca", "ca.new"), ("ca.next", "ca")] {
        fs::rename(home.join(from), home.join(to)).expect("renamed");
    }
    hosted.start_host();
    hosted.until("it is refused", |hosted| {
        !hosted.device.syncer(&["once"]).status.success() && hosted.trouble().as_deref() == Some(UNKNOWN)
    });
    assert!(hosted.runs("by the new one alone"), "what runs goes on");
    hosted.fleet.assert_whole(true, "after all that");
}

#[test]
fn the_drill_for_the_hosts_authority() {
    let hosted = adopted();
    let stick = hosted.dir.path().join("stick");
    fs::create_dir(&stick).expect("made");
    lay_out(hosted.dir.path(), &hosted.fleet, &hosted.device);
    hosted.fleet.run(&["trust", "offline", &stick.display().to_string()]);
    drill("host-authority.md", hosted.dir.path());
    hosted.until("the host shows it", |hosted| curl_believes(hosted, "ca/ca.pem"));
    greet(&hosted, "after the drill");
    assert_eq!(believes(&hosted.device), 3);
}

#[test]
fn a_device_that_was_away_while_the_authority_was_replaced_follows_the_rosters_and_keeps_them_without_its_clone() {
    let mut hosted = adopted();
    replace_authority(&hosted);
    assert_eq!(believes(&hosted.device), 1, "it was away");
    greet(&hosted, "back again");
    assert_eq!((believes(&hosted.device), hosted.trouble()), (3, None));
    // The clone is lost, and the floor: what it knows of its host isn't.
    fs::remove_dir_all(hosted.device.home().join("repository.git")).expect("removed");
    passes(&hosted);
    assert_eq!((believes(&hosted.device), hosted.trouble()), (3, None));
    fs::remove_file(hosted.device.home().join("floor")).expect("removed");
    let lost = hosted.device.syncer(&["once"]);
    assert!(said(&lost).contains("FloorLost"), "{}", said(&lost));
    assert_eq!(believes(&hosted.device), 3);
    // Another host at the same address has no rosters that lead to its own authority.
    hosted.end(0);
    fs::rename(hosted.fleet.home().join("ca"), hosted.dir.path().join("ca")).expect("moved");
    hosted.start_host();
    hosted.until("it is refused", |hosted| {
        !hosted.device.syncer(&["once"]).status.success() && hosted.trouble().as_deref() == Some(UNKNOWN)
    });
    assert!(hosted.runs("back again") && believes(&hosted.device) == 3);
}

/// What a year brings: other roots, another key of the publisher's twice, another authority of the host, an account that ended.
fn let_a_year_pass(hosted: &Hosted) {
    let (fleet, new) = (&hosted.fleet, hosted.dir.path().join("root-2"));
    keygen(&new, "ed25519", "");
    let (new, public) = (new.display().to_string(), new.with_extension("pub").display().to_string());
    let [root, publisher] = ["keys/root", "keys/publisher"].map(|name| fleet.home().join(name).display().to_string());
    let next = |changes: &[&str], keys: &[&str]| {
        fleet.run(&[&["trust", "propose"], changes].concat());
        keys.iter().for_each(|key| drop(fleet.run(&["trust", "sign", "--key", key])));
        fleet.run(&["trust", "publish"]);
        fleet.run(&["publish"]);
    };
    let another = ["--new-publisher", "--drop-publisher", &publisher];
    next(&[&another[..], &["--add-root", &public, "--drop-root", &root]].concat(), &[&root, &new]);
    next(&[&another[..], &["--new-authority"]].concat(), &[&new]);
    fleet.run(&["trust", "switch"]);
    hosted.until("the host shows it", |hosted| curl_believes(hosted, "ca/ca.pem"));
    next(&["--only-authority"], &[&new]);
    let path = fleet.home().join(format!("accounts/{ID}.json"));
    let mut account = read(&path);
    account["secrets"][0]["created"] = "2020-01-01T00:00:00Z".into();
    account["secrets"][0]["expires"] = "2020-01-31T00:00:00Z".into();
    repo_git::durable::replace_file(&path, account.to_string().as_bytes(), 0o600).expect("written");
    fleet.change(DEPLOYMENT, "hello from the press", "after a year");
    fleet.run(&["publish"]);
}

#[test]
fn a_device_that_was_a_year_away_comes_back_by_itself_in_1970_too_and_one_in_2099_once_its_clock_is_right() {
    let hosted = adopted();
    let_a_year_pass(&hosted);
    let once = |clock: &str| with_clock(&[clock], &hosted.device.once());
    let ahead = once("2099-01-01 00:00:00");
    assert!(!ahead.status.success(), "{}", said(&ahead));
    assert_eq!(hosted.trouble().as_deref(), Some("Stalled CertificateExpired"), "{}", said(&ahead));
    assert!(hosted.runs("hello from the press"), "what runs goes on");
    let back = once("1970-01-03 00:00:00");
    assert!(back.status.success() && hosted.runs("after a year"), "{}", said(&back));
    assert_eq!((believes(&hosted.device), hosted.trouble()), (4, None));
    greet(&hosted, "on time");
    assert_eq!(hosted.trouble(), None);
    hosted.fleet.assert_whole(true, "after a year");
}

#[test]
fn rosters_from_a_stick_raise_the_floor_and_what_is_not_proven_changes_nothing() {
    let mut hosted = adopted();
    let file = hosted.dir.path().join("rosters.json").display().to_string();
    // The publisher's key is stolen, and the host with it: it keeps the new roster back.
    let thief = fs::read(hosted.fleet.home().join("keys/publisher")).expect("a key");
    let old = hosted.fleet.home().join("keys/publisher").display().to_string();
    hosted.fleet.run(&["trust", "propose", "--new-publisher", "--drop-publisher", &old]);
    hosted.fleet.run(&["trust", "sign", "--key", &hosted.fleet.home().join("keys/root").display().to_string()]);
    hosted.end(0);
    hosted.fleet.run(&["trust", "publish"]);
    hosted.fleet.run(&["trust", "export", "--out", &file]);
    let whole = fs::read_to_string(&file).expect("a file");
    let floor = || fs::read(hosted.device.home().join("floor")).expect("a floor");
    let before = floor();
    for (broken, why) in [
        (whole.replacen("\"version\":2", "\"version\":3", 1), "signed by 0 of the roots"),
        (whole.replace("\\\"threshold\\\":1", "\\\"threshold\\\": 1"), "signed by 0 of the roots"),
        ("{}".to_owned(), "holds no rosters"),
        (" ".repeat((1 << 20) + 1), "more than 1 MiB"),
    ] {
        fs::write(&file, broken).expect("written");
        let refused = hosted.device.syncer(&["trust", &file]);
        assert!(!refused.status.success() && said(&refused).contains(why), "{why}: {}", said(&refused));
        assert_eq!((floor(), believes(&hosted.device)), (before.clone(), 1), "{why}");
    }
    fs::write(&file, &whole).expect("written");
    let told = hosted.device.syncer(&["trust", &file]);
    assert!(told.status.success(), "{}", said(&told));
    assert!(String::from_utf8_lossy(&told.stdout).contains("which counts from now on"));
    assert_eq!(believes(&hosted.device), 2);
    let again = hosted.device.syncer(&["trust", &file]);
    assert!(String::from_utf8_lossy(&again.stdout).contains("has no newer one"), "{}", said(&again));
    // What the thief signs is refused from now on, although the host never showed the new roster.
    fs::write(hosted.fleet.home().join("keys/publisher"), thief).expect("written");
    let newest = read(&hosted.device.home().join("roster.json"));
    assert_eq!(newest["version"], 2);
    forge(&hosted.fleet, 1, |trust| trust.retain(|path, _| path.starts_with("trust/1.json")));
    hosted.running.push(hosted.fleet.command(&["serve"]).spawn().expect("the host starts"));
    hosted.until("it is refused", |hosted| {
        let once = hosted.device.syncer(&["once"]);
        !once.status.success() && said(&once).contains("TrustInvalid")
    });
    assert!(hosted.runs("hello from the press"));
}

#[test]
fn a_host_that_moves_is_followed_by_a_roster_that_names_it() {
    let mut hosted = adopted();
    let (before, port) = (hosted.address, free_port());
    let url = format!("https://127.0.0.1:{port}/devices/{{device}}.git");
    for bad in ["https://127.0.0.1/devices.git", "ftp://127.0.0.1/{device}.git"] {
        let refused = hosted.fleet.try_run(&["trust", "propose", "--host-url", bad]);
        assert!(said(&refused).contains("that is no address of a host"), "{}", said(&refused));
    }
    roster(&hosted.fleet, &["--host-url", &url]);
    passes(&hosted);
    // The device has heard of it while the old host was there, and can't get there yet.
    assert_eq!(believes(&hosted.device), 2);
    let shown = hosted.device.syncer(&["status", "--output", "json"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains(&port.to_string()), "{}", said(&shown));
    hosted.end(0);
    let settings = hosted.fleet.home().join("publisher.yaml");
    let text = fs::read_to_string(&settings).expect("settings");
    fs::write(&settings, text.replace(&before.to_string(), &format!("127.0.0.1:{port}"))).expect("written");
    hosted.start_host();
    greet(&hosted, "at the new place");
    assert_eq!(hosted.trouble(), None);
    // A person at the device has the last word, until the roster names another one.
    let by_hand = format!("https://localhost:{port}/devices/{ID}.git");
    let refused = hosted.device.syncer(&["set-host", &by_hand]);
    assert!(said(&refused).contains("CertificateWrongName"), "{}", said(&refused));
    let here = hosted.fleet.repository(ID).display().to_string();
    assert!(hosted.device.syncer(&["set-host", &here]).status.success());
    hosted.end(1);
    passes(&hosted);
    roster(&hosted.fleet, &["--no-host"]);
    passes(&hosted);
    assert_eq!(believes(&hosted.device), 3);
    let once = hosted.device.syncer(&["once"]);
    assert!(said(&once).contains(&before.to_string()), "the join file counts again: {}", said(&once));
}

#[test]
fn what_a_device_cant_use_of_the_roster_leaves_it_at_the_host_of_its_join_file() {
    let dir = TempDir::new().expect("a temporary directory");
    let fleet = Fleet::init(dir.path(), &registry_name(dir.path()));
    fleet.push_application();
    let root = dir.path().join(ID);
    fs::create_dir(&root).expect("made");
    let device = Device::join(&fleet, ID, &root);
    fleet.run(&["publish"]);
    device.pass();
    roster(&fleet, &["--host-url", "ssh://wfm@host.example/devices/{device}.git"]);
    let before = device.syncer(&["once"]);
    assert!(before.status.success(), "{}", said(&before));
    let after = device.syncer(&["once"]);
    assert!(
        said(&after).contains("going on at the host of the join file") && after.status.success(),
        "{}",
        said(&after)
    );
}
