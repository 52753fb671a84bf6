//! A device that comes to our own host with a TLS certificate in the place of a secret.

use std::os::unix::fs::PermissionsExt;

use repo_http::ClientCertificate;
use serde_json::{Value, json};

use crate::hosted::{Hosted, ID, read};

/// The account of the device, as the host has it.
fn account(hosted: &Hosted) -> Value {
    read(&hosted.fleet.home().join(format!("accounts/{ID}.json")))
}

/// The digest of the key with which the device comes.
fn pin(hosted: &Hosted) -> String {
    ClientCertificate::in_one(&hosted.device.home().join("tls.pem")).pin().expect("a certificate").to_string()
}

fn is_reported(hosted: &Hosted) -> bool {
    let status = hosted.fleet.status(ID);
    status["deployments"][0]["state"] == "installed" && status["adoptedSerial"] == status["desiredSerial"]
}

/// What the device prints when it joins with the file that is there now.
fn init(hosted: &Hosted) -> String {
    let join = hosted.fleet.join_file(ID).display().to_string();
    let output = hosted.device.syncer(&["init", "--join", &join]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_device_joins_applies_reports_and_waits_by_its_certificate_until_its_account_ends() {
    let mut hosted = Hosted::by_certificate();
    let join = read(&hosted.device.home().join("join.json"));
    assert_eq!((&join["credentials"], &join["account"]), (&json!("certificate"), &Value::Null));
    assert!(!hosted.device.home().join("account.json").exists(), "there is no secret");
    let mode = std::fs::metadata(hosted.device.home().join("tls.pem")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(account(&hosted)["certificate"]["sha256"], pin(&hosted).as_str());
    assert_eq!(account(&hosted)["secrets"], json!([]));
    hosted.start_host();
    hosted.adopt_first();
    hosted.until("it is reported", is_reported);
    assert_eq!(hosted.fleet.status(ID)["doubts"], json!([]));

    // It asks each hour only; what wakes it is the wait.
    hosted.device.set("poll", "1h");
    hosted.start_device();
    for (from, to) in [("hello from the press", "one"), ("one", "two")] {
        hosted.fleet.change("deployments/hello.yaml", from, to);
        hosted.until("the wait ends, and it is applied", |hosted| hosted.runs(to));
    }
    hosted.fleet.run(&["account", "revoke", ID]);
    hosted.until("it is out", |hosted| hosted.trouble().as_deref() == Some("Stalled Unauthorized"));
    assert!(hosted.runs("two"), "what runs keeps running");
}

#[test]
fn a_device_changes_from_a_secret_to_a_certificate_and_back() {
    let mut hosted = Hosted::new();
    hosted.start_host();
    hosted.adopt_first();
    hosted.fleet.run(&["device", "join", ID, "--credentials", "certificate"]);
    let lines = init(&hosted);
    assert!(lines.ends_with(&format!("\n{} {ID} tls\n", pin(&hosted))), "{lines}");
    assert_eq!(init(&hosted), lines, "the same key");
    let enrolled = hosted.fleet.run(&["device", "enroll", ID, &lines]);
    assert!(enrolled.contains("already") && enrolled.contains(&pin(&hosted)), "{enrolled}");
    assert_eq!(account(&hosted)["secrets"], json!([]), "the secret ended");
    hosted.until("it comes with its certificate", |hosted| hosted.device.syncer(&["once"]).status.success());
    let listed = hosted.fleet.run(&["account", "list"]);
    assert!(listed.contains("certificate"), "{listed}");

    // Another key is only taken if somebody says so.
    let foreign = format!("sha256:{} {ID} tls", "0".repeat(64));
    let (status, _) = lines.split_once('\n').expect("two lines");
    let refused = hosted.fleet.try_run(&["device", "enroll", ID, &format!("{status}\n{foreign}\n")]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("another certificate") && said.contains("--replace"), "{said}");

    hosted.fleet.run(&["device", "join", ID]);
    assert_eq!(account(&hosted)["certificate"]["sha256"], pin(&hosted).as_str(), "until the secret was used");
    assert_eq!(init(&hosted).lines().count(), 1);
    hosted.until("it comes with its secret", |hosted| hosted.device.syncer(&["once"]).status.success());
    hosted.until("the certificate ends with that", |hosted| account(hosted)["certificate"] == Value::Null);
}

#[test]
fn without_a_host_of_its_own_a_publisher_takes_no_certificate() {
    let hosted = Hosted::by_certificate();
    let lines = init(&hosted);
    std::fs::write(hosted.fleet.home().join("publisher.yaml"), "poll: 1s\n").expect("written");
    for (args, why) in [
        (vec!["device", "enroll", ID, &lines], "this publisher is no host"),
        (vec!["device", "join", ID, "--credentials", "certificate"], "this publisher is no host"),
    ] {
        let said = String::from_utf8_lossy(&hosted.fleet.try_run(&args).stderr).into_owned();
        assert!(said.contains(why) && said.contains("`serve:`"), "{said}");
    }
}
