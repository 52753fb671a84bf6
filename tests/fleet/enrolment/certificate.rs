//! Devices that come with a certificate: by a code, back by their key, and with a new key.

use repo_http::ClientCertificate;
use repo_model::Digest;
use repo_testkit::copy;
use repo_testkit::device::Device;
use serde_json::{Value, json};

use super::rekey::{approve, key, rekey};
use super::rekey_cuts::cut_the_pass;
use super::{Enrolling, Site, read, said};
use crate::hosted::ID;

fn pin(device: &Device) -> Digest {
    ClientCertificate::in_one(&device.home().join("tls.pem")).pin().expect("a certificate")
}

/// The account of the device, as the host has it.
fn account(site: &Site) -> Value {
    read(&site.fleet.home().join(format!("accounts/{ID}.json")))
}

/// A device that came by a code with a certificate, and has what was published.
fn installed(site: &Site) -> Device {
    site.fleet.push_application();
    let device = site.device(ID);
    let mut enrolling = Enrolling::with(&device, &site.file(), &["--credentials", "certificate"]);
    let code = enrolling.says("code");
    site.fleet.run(&["device", "approve", &code, "--id", ID]);
    assert_eq!((enrolling.says("device"), enrolling.ends()), (ID.to_owned(), Some(0)));
    site.fleet.run(&["publish"]);
    device.pass();
    assert!(device.environments()[0].contains("hello from the press"));
    device
}

/// The one thing that lets the device in is its certificate.
fn assert_pinned(site: &Site, device: &Device) {
    let account = account(site);
    assert_eq!(
        (&account["certificate"]["sha256"], &account["secrets"]),
        (&json!(pin(device)), &json!([])),
        "{account}"
    );
}

#[test]
fn a_device_that_enrols_by_a_code_with_a_certificate_has_no_secret_and_comes_back_by_its_key() {
    let site = Site::new().open();
    let device = installed(&site);
    assert_pinned(&site, &device);
    let join = read(&device.home().join("join.json"));
    assert_eq!((&join["credentials"], &join["account"]), (&json!("certificate"), &Value::Null));
    assert!(!device.home().join("account.json").exists());

    // The host lost the account, or forgot the certificate.
    let path = site.fleet.home().join(format!("accounts/{ID}.json"));
    std::fs::remove_file(&path).expect("removed");
    device.pass();
    assert_pinned(&site, &device);
    let own = pin(&device);
    let another = Digest::of(b"another").to_string();
    site.fleet.run(&["account", "add", ID, "--role", "device", "--device", ID, "--certificate", &another]);
    device.pass();
    assert_eq!(pin(&device), own, "it is the same certificate");
    assert_pinned(&site, &device);

    site.fleet.run(&["account", "revoke", ID]);
    let out = device.syncer(&["once"]);
    assert!(!out.status.success() && said(&out).contains("revoked"), "{}", said(&out));
}

#[test]
fn a_new_key_brings_another_certificate_and_the_one_before_lets_nobody_in() {
    let site = Site::new().open();
    let device = installed(&site);
    let (old, old_key) = (pin(&device), key(&device, "status.key"));
    let thief = site.dir.path().join("thief");
    copy(&device.home(), &thief.join("home"));

    assert_eq!(rekey(&device)["state"], "waits");
    assert_pinned(&site, &device);
    device.pass();
    approve(&site);
    // The old certificate is out from here on, and the device asks with the next one; it signs with the old key as yet.
    device.pass();
    assert_ne!(pin(&device), old);
    assert_pinned(&site, &device);
    assert_eq!(key(&device, "status.key").public(), old_key.public());
    site.fleet.change("deployments/hello.yaml", "hello from the press", "by the new ones");
    site.fleet.run(&["publish"]);
    device.pass();
    device.pass();
    assert!(device.environments()[0].contains("by the new ones"));
    assert_ne!(key(&device, "status.key").public(), old_key.public());
    for left in ["tls.pem.next", "status.key.next", "rekey.json"] {
        assert!(!device.home().join(left).exists(), "{left}");
    }
    assert_eq!(site.fleet.status(ID)["doubts"], json!([]));

    let thief = Device::at(ID, &thief);
    let out = thief.syncer(&["once"]);
    assert!(!out.status.success() && said(&out).contains("not-listed"), "{}", said(&out));
    assert_pinned(&site, &device);
}

#[test]
fn power_cuts_while_another_certificate_takes_the_place_of_the_first_leave_a_device_that_comes_with_one() {
    let site = Site::new().open();
    let device = installed(&site);
    rekey(&device);
    approve(&site);
    site.fleet.run(&["publish"]);
    let old = pin(&device);
    cut_the_pass(&site, &device, "another certificate", &|device, when| {
        assert_ne!(pin(device), old, "{when}");
        assert_pinned(&site, device);
    });
}
