//! Joining with a certificate: what `init` makes, prints and refuses.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use repo_http::ClientCertificate;
use serde_json::{Value, json};

use crate::world::{World, syncer};

/// A join file of a device that comes with what it says.
fn join_with(world: &World, credentials: &str) -> String {
    let mut join: Value = serde_json::from_slice(&fs::read(world.hand.path("join.json")).unwrap()).unwrap();
    (join["url"], join["credentials"]) = ("https://127.0.0.1:1/devices/press-01.git".into(), credentials.into());
    let path = world.path("certificate-join.json");
    fs::write(&path, join.to_string()).unwrap();
    path.display().to_string()
}

/// What OpenSSL prints.
fn openssl(script: &str, file: &Path) -> String {
    let done = Command::new("sh").args(["-c", script, "sh"]).arg(file).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

const PIN: &str =
    "openssl x509 -in \"$1\" -noout -pubkey | openssl pkey -pubin -outform der | sha256sum | cut -d' ' -f1";

#[test]
fn init_makes_a_certificate_of_its_own_and_prints_the_digest_of_its_key() {
    let world = World::joined();
    let (home, join) = (world.path("by-certificate"), join_with(&world, "certificate"));
    let printed = syncer(&home, &["init", "--join", &join]).good().stdout;
    let file = home.join("tls.pem");
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines[1..], [format!("sha256:{} press-01 tls", openssl(PIN, &file))]);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!home.join("account.json").exists());
    assert_eq!(syncer(&home, &["init", "--join", &join]).good().stdout, printed, "the same key");
    let json = syncer(&home, &["init", "--join", &join, "--output", "json"]).good().stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json, json!({ "apiVersion": "v1", "enrolmentLine": lines[0], "certificateLine": lines[1] }));

    // What OpenSSL thinks of it.
    openssl("openssl verify -check_ss_sig -CAfile \"$1\" \"$1\"", &file);
    let text = openssl("openssl x509 -in \"$1\" -noout -text", &file);
    assert!(text.contains("CN = device-syncer") && text.contains("ED25519") && text.contains("9999"), "{text}");
    let own = "test \"$(openssl x509 -in \"$1\" -noout -pubkey)\" = \"$(openssl pkey -in \"$1\" -pubout)\"";
    openssl(own, &file);
}

#[test]
fn a_certificate_that_the_site_gives_is_used_instead() {
    let world = World::joined();
    let (home, join) = (world.path("by-certificate"), join_with(&world, "certificate"));
    syncer(&home, &["init", "--join", &join]).good();
    fs::remove_file(home.join("tls.pem")).unwrap();
    let make = "cd \"$1\" && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x \
                -keyout given.key -out given.pem 2>/dev/null";
    openssl(make, &home);
    fs::write(home.join("device.yaml"), "host: {clientCertificate: {chain: given.pem, key: given.key}}\n").unwrap();
    let printed = syncer(&home, &["init", "--join", &join]).good().stdout;
    assert!(
        printed.ends_with(&format!("\nsha256:{} press-01 tls\n", openssl(PIN, &home.join("given.pem")))),
        "{printed}"
    );
    assert!(!home.join("tls.pem").exists());
    fs::set_permissions(home.join("given.key"), fs::Permissions::from_mode(0o644)).unwrap();
    syncer(&home, &["init", "--join", &join]).ended(1).says(&["given.key", "chmod 600"]);
}

#[test]
fn a_join_file_that_asks_for_what_nobody_knows_makes_no_home() {
    let world = World::joined();
    let (home, join) = (world.path("by-another"), join_with(&world, "passkey"));
    syncer(&home, &["init", "--join", &join]).ended(1).says(&["passkey", "certificate"]);
    assert!(!home.join("join.json").exists());
}

#[test]
fn no_two_devices_have_one_key_and_the_same_bytes_make_the_same() {
    let make = |byte| ClientCertificate::generate(&[byte; 32], "x").unwrap();
    assert_eq!(make(1), make(1));
    assert_ne!(make(1), make(2));
}
