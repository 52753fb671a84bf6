//! The power is cut at any moment of a change of a device's key: it has the key by which it is known, never none.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use repo_git::sign::openssh::fingerprint;
use repo_model::Digest;
use repo_testkit::device::Device;
use repo_testkit::faults::power::{Cut, Experiment, assert_cut, cut_everywhere};
use repo_testkit::fleet::Fleet;
use repo_testkit::{copy, git};
use serde_json::{Value, json};

use super::rekey::{approve, installed, key, rekey, signers};
use super::{Site, approve_again, read, said};
use crate::audit::findings;
use crate::crash::occurrences;
use crate::hosted::ID;

/// A copied home is another installation; this one shall be the one that it was.
fn stay(home: &Path, instance: &str) {
    let machine = ["/sys/class/dmi/id/product_uuid", "/sys/firmware/devicetree/base/serial-number"];
    let machine = machine.map(|path| std::fs::read(path).unwrap_or_default()).concat();
    let inode = std::fs::metadata(home.join("status.key")).expect("a key").ino().to_le_bytes();
    let place = Digest::of(&[&inode[..], &machine].concat()).hex();
    std::fs::write(home.join("instance"), format!("{instance} {place}")).expect("written");
}

/// Which installation a device is.
fn instance(device: &Device) -> String {
    let text = std::fs::read_to_string(device.home().join("instance")).expect("there");
    text.split(' ').next().expect("a UUID").to_owned()
}

/// Cuts the power everywhere in the pass in which a device gets what comes with its new key. After the next pass nothing is left of
/// the change, it is the same installation, and what `check` looks at is so.
pub(super) fn cut_the_pass(site: &Site, device: &Device, deed: &str, check: &dyn Fn(&Device, &str)) {
    let (template, repository) = (site.dir.path().join(ID), site.fleet.repository(ID));
    let (tip, known) = (git::tip(&repository, "status").expect("it reported"), instance(device));
    let prepare = |root: &Path| {
        copy(&template, &root.join(ID));
        stay(&root.join(ID).join("home"), &known);
        git::git(&repository, &["update-ref", "refs/heads/status", &tip]);
    };
    let check = |root: &Path, _: Option<&_>, when: &str| {
        let device = Device::at(ID, &root.join(ID));
        let output = device.syncer(&["once"]);
        assert!(output.status.success(), "{when}: {}", said(&output));
        let left = ["status.key.next", "tls.pem.next", "rekey.json"].map(|name| device.home().join(name).exists());
        assert_eq!(left, [false; 3], "{when}");
        assert_eq!(instance(&device), known, "{when}: it is the same installation");
        check(&device, when);
    };
    let command = |root: &Path| Device::at(ID, &root.join(ID)).once();
    let (cut, occurrences) = (Cut::Power, occurrences());
    let experiment = Experiment { deed, prepare: &prepare, command: &command, check: &check, cut, occurrences };
    let cut = cut_everywhere(&experiment).expect("the cuts are made");
    assert_cut(&cut, &["file.data", "file.rename", "file.dir", "file.remove", "dir.rename"]);
}

#[test]
fn power_cuts_of_an_adoption_that_changes_the_key_leave_a_device_that_works_with_one_of_them() {
    let site = Site::new().open();
    let device = installed(&site);
    let asked = rekey(&device);
    approve(&site);
    site.fleet.run(&["publish"]);
    let old = fingerprint(&key(&device, "status.key").public().to_string().parse().expect("a key"));
    cut_the_pass(&site, &device, "a new key", &|device, when| {
        let text = key(device, "status.key").public().to_string().parse().expect("a key");
        assert_eq!(fingerprint(&text), asked["fingerprint"].as_str().expect("text"), "{when}");
        // Nobody signed what it may not, whenever the power went.
        assert_eq!(signers(&site, "status"), [old.clone(), fingerprint(&text)], "{when}");
        assert_eq!(findings(&site.fleet), [""; 0], "{when}");
    });
}

#[test]
fn power_cuts_of_asking_for_a_new_key_and_of_a_persons_yes_leave_what_the_same_command_completes() {
    let site = Site::new().open();
    let device = installed(&site);
    let template = site.dir.path().join(ID);
    let old = std::fs::read(device.home().join("status.key")).expect("a key");
    let ask = |root: &Path| Device::at(ID, &root.join(ID)).command(&["rekey", "--output", "json"]);
    let experiment = Experiment {
        deed: "rekey",
        prepare: &|root| {
            copy(&template, &root.join(ID));
            for one in site.pending()["pending"].as_array().expect("a list") {
                site.fleet.run(&["device", "reject", &one["number"].to_string()]);
            }
        },
        command: &ask,
        check: &|root, _, when| {
            let device = Device::at(ID, &root.join(ID));
            let again = ask(root).output().expect("the syncer runs");
            assert!(again.status.success(), "{when}: {}", said(&again));
            let shown: Value = serde_json::from_slice(&again.stdout).expect("JSON");
            let pending = site.pending();
            let all = pending["pending"].as_array().expect("a list");
            assert!(all.iter().all(|one| one["fingerprint"] == shown["fingerprint"]), "{when}: {pending}");
            assert_eq!(all.len(), 1, "{when}: {pending}");
            assert_eq!(std::fs::read(device.home().join("status.key")).expect("a key"), old, "{when}");
        },
        cut: Cut::Power,
        occurrences: occurrences(),
    };
    let cut = cut_everywhere(&experiment).expect("the cuts are made");
    assert_cut(&cut, &["file.data", "file.rename", "file.dir"]);

    for one in site.pending()["pending"].as_array().expect("a list") {
        site.fleet.run(&["device", "reject", &one["number"].to_string()]);
    }
    let asked = rekey(&device);
    let number = site.pending()["pending"][0]["number"].to_string();
    let approve = |root: &Path| Fleet::at(root).command(&["device", "approve", "--number", &number, "--id", ID]);
    let request = read(&device.home().join("rekey.json"))["request"].as_str().expect("a name").to_owned();
    let is_answered =
        |fleet: &Fleet| read(&fleet.home().join(format!("enroll/{request}.json")))["verdict"]["approved"].is_object();
    let experiment = Experiment {
        deed: "a yes to a new key",
        prepare: &|root| site.copy_fleet(root),
        command: &approve,
        check: &|root, _, when| {
            let fleet = Fleet::at(root);
            approve_again(&fleet, || approve(root), &format!("{ID} .* known"), when);
            assert!(is_answered(&fleet), "{when}");
            let file = git::git(&fleet.dir(), &["show", &format!("HEAD:devices/{ID}.yaml")]);
            assert_eq!(file.matches("\n  - ssh-ed25519").count(), 1, "{when}: {file}");
            let account = read(&fleet.home().join(format!("accounts/{ID}.json")));
            assert_eq!(account["secrets"].as_array().map(Vec::len), Some(1), "{when}: {account}");
        },
        cut: Cut::Power,
        occurrences: occurrences().max(12),
    };
    assert_cut(&cut_everywhere(&experiment).expect("the cuts are made"), &["file.data", "file.rename", "file.dir"]);
    assert_eq!(asked["state"], json!("waits"));
}
