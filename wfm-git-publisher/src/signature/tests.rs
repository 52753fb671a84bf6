#![allow(clippy::disallowed_methods, reason = "test files need no durability")]

use std::fs;
use std::process::{Command, Stdio};

use repo_model::error_chain;

use super::*;

const BYTES: &[u8] = b"the vendor's archive";

/// GnuPG with a key ring of its own, in which it is always noon of this day.
struct Gpg {
    home: tempfile::TempDir,
    day: &'static str,
}

impl Gpg {
    fn new() -> Self {
        let home = tempfile::Builder::new().prefix("gpg").tempdir().unwrap();
        fs::write(home.path().join("archive"), BYTES).unwrap();
        Self { home, day: "20260102" }
    }

    fn on(mut self, day: &'static str) -> Self {
        self.day = day;
        self
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> String {
        let mut command = Command::new("gpg");
        command.arg("--homedir").arg(self.home.path()).args(["--batch", "--yes", "--quiet", "--passphrase", ""]);
        command.args(["--pinentry-mode", "loopback", "--faked-system-time", &format!("{}T120000!", self.day)]);
        command.args(args).current_dir(self.home.path()).stdin(Stdio::null());
        let output = command.output().expect("gpg is there: run the tests by `./justw test`");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// A new key that lives so long; its fingerprint.
    fn key(&self, algorithm: &str, usage: &str, life: &str) -> String {
        self.run(&["--quick-gen-key", &format!("Vendor {algorithm} {usage} {life}"), algorithm, usage, life]);
        let listed = self.run(&["--list-keys", "--with-colons"]);
        let lines: Vec<_> = listed.lines().filter(|line| line.starts_with("fpr:")).collect();
        lines.last().unwrap().split(':').nth(9).unwrap().to_owned()
    }

    fn sign(&self, key: &str, more: &[&str]) -> Vec<u8> {
        let args = ["--local-user", key, "--armor", "--output", "archive.asc"];
        self.run(&[&args, more, &["--detach-sign", "archive"]].concat());
        fs::read(self.home.path().join("archive.asc")).unwrap()
    }

    fn export(&self, key: &str) -> VendorKey {
        VendorKey::read(self.run(&["--armor", "--export", key]).as_bytes()).unwrap()
    }

    /// Calls the whole key back, with what gpg put aside when it made it.
    fn revoke(&self, key: &str) {
        let file = self.home.path().join("openpgp-revocs.d").join(format!("{key}.rev"));
        let text = fs::read_to_string(file).unwrap().replace(":-----BEGIN", "-----BEGIN");
        fs::write(self.home.path().join("revocation.asc"), text).unwrap();
        self.run(&["--import", "revocation.asc"]);
    }
}

impl Drop for Gpg {
    fn drop(&mut self) {
        // Its agent, which gpg started for this key ring.
        let _ = Command::new("gpgconf").arg("--homedir").arg(self.home.path()).args(["--kill", "all"]).status();
    }
}

fn day(text: &str) -> Timestamp {
    format!("{text}T18:00:00Z").parse().unwrap()
}

fn check(key: &VendorKey, signature: &[u8]) -> Result<String, VendorSignatureError> {
    key.verify(BYTES, signature, day("2026-01-02"))
}

#[test]
fn what_gpg_signs_is_believed_whatever_kind_of_key_it_has() {
    let gpg = Gpg::new();
    for algorithm in ["ed25519", "rsa2048", "nistp256"] {
        let fingerprint = gpg.key(algorithm, "sign", "never");
        let signature = gpg.sign(&fingerprint, &[]);
        assert_eq!(check(&gpg.export(&fingerprint), &signature).unwrap(), fingerprint);
        let other = gpg.export(&fingerprint).verify(b"other bytes", &signature, day("2026-01-02")).unwrap_err();
        assert!(matches!(other, VendorSignatureError::Mismatch(_)), "{other:?}");
    }
    // A key that only certifies, and a subkey that signs for it.
    let fingerprint = gpg.key("ed25519", "cert", "never");
    gpg.run(&["--quick-add-key", &fingerprint, "ed25519", "sign", "never"]);
    let signature = gpg.sign(&fingerprint, &[]);
    assert_eq!(check(&gpg.export(&fingerprint), &signature).unwrap(), fingerprint);
}

#[test]
fn one_good_signature_of_one_of_the_keys_is_enough() {
    let gpg = Gpg::new();
    let (ours, stranger) = (gpg.key("ed25519", "sign", "never"), gpg.key("ed25519", "sign", "1y"));
    let both = gpg.sign(&stranger, &["--local-user", &ours]);
    assert_eq!(check(&gpg.export(&ours), &both).unwrap(), ours);
    let keys = gpg.run(&["--armor", "--export", &ours, &stranger]);
    let keys = VendorKey::read(keys.as_bytes()).unwrap();
    assert_eq!(check(&keys, &gpg.sign(&ours, &[])).unwrap(), ours);
    let error = check(&gpg.export(&ours), &gpg.sign(&stranger, &[])).unwrap_err();
    assert!(
        matches!(&error, VendorSignatureError::OtherKey { found, wanted } if *found == stranger && *wanted == ours)
    );
}

#[test]
fn a_key_that_ended_or_was_called_back_proves_nothing() {
    let gpg = Gpg::new();
    let (short, revoked) = (gpg.key("ed25519", "sign", "30d"), gpg.key("ed25519", "sign", "never"));
    let (by_short, by_revoked) = (gpg.sign(&short, &[]), gpg.sign(&revoked, &[]));
    let key = gpg.export(&short);
    assert!(key.verify(BYTES, &by_short, day("2026-01-31")).is_ok());
    let error = key.verify(BYTES, &by_short, day("2026-02-01")).unwrap_err();
    assert!(matches!(&error, VendorSignatureError::KeyExpired { .. }), "{error:?}");
    assert!(error.to_string().contains("expired at 2026-02-01T12:00:00Z"), "{error}");
    // A longer life is the newest word.
    let gpg = gpg.on("20260110");
    gpg.run(&["--quick-set-expire", &short, "2y"]);
    assert!(gpg.export(&short).verify(BYTES, &by_short, day("2026-02-01")).is_ok());
    assert!(check(&gpg.export(&revoked), &by_revoked).is_ok());
    gpg.revoke(&revoked);
    let error = check(&gpg.export(&revoked), &by_revoked).unwrap_err();
    assert!(matches!(&error, VendorSignatureError::KeyRevoked(key) if *key == revoked), "{error:?}");
}

#[test]
fn a_subkey_signs_only_for_as_long_as_its_owner_lets_it() {
    let gpg = Gpg::new();
    let fingerprint = gpg.key("ed25519", "cert", "never");
    gpg.run(&["--quick-add-key", &fingerprint, "ed25519", "sign", "30d"]);
    let signature = gpg.sign(&fingerprint, &[]);
    assert!(check(&gpg.export(&fingerprint), &signature).is_ok());
    let error = gpg.export(&fingerprint).verify(BYTES, &signature, day("2026-02-02")).unwrap_err();
    assert!(matches!(&error, VendorSignatureError::KeyExpired { key, .. } if *key != fingerprint), "{error:?}");
    gpg.revoke(&fingerprint);
    let error = check(&gpg.export(&fingerprint), &signature).unwrap_err();
    assert!(matches!(&error, VendorSignatureError::KeyRevoked(key) if *key == fingerprint), "{error:?}");
}

#[test]
fn signatures_of_other_kinds_prove_nothing() {
    let gpg = Gpg::new();
    let key = gpg.key("rsa2048", "sign", "never");
    let exported = gpg.export(&key);
    let weak = check(&exported, &gpg.sign(&key, &["--digest-algo", "SHA1"])).unwrap_err();
    assert!(matches!(weak, VendorSignatureError::Weak(_)), "{weak:?}");
    let text = check(&exported, &gpg.sign(&key, &["--textmode"])).unwrap_err();
    assert!(matches!(text, VendorSignatureError::Malformed(_)), "{text:?}");
    let short = gpg.sign(&key, &["--default-sig-expire", "10d"]);
    assert!(exported.verify(BYTES, &short, day("2026-01-11")).is_ok());
    let ended = exported.verify(BYTES, &short, day("2026-01-13")).unwrap_err();
    assert!(matches!(ended, VendorSignatureError::Expired(_)), "{ended:?}");
    for nothing in [&b""[..], b"\xff", b"<html>not found</html>", b"-----BEGIN PGP SIGNATURE-----\n\nAAAA\n"] {
        let error = check(&exported, nothing).unwrap_err();
        assert!(matches!(error, VendorSignatureError::Malformed(_)), "{error:?}");
    }
    let armoured_key = gpg.run(&["--armor", "--export", &key]);
    assert!(check(&exported, armoured_key.as_bytes()).is_err(), "a key is no signature");
}

#[test]
fn what_ssh_keygen_signs_is_believed() {
    let dir = tempfile::tempdir().unwrap();
    let keygen = |args: &[&str]| {
        let mut command = Command::new("ssh-keygen");
        let output = command.args(args).current_dir(dir.path()).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let sign = |key: &str, namespace: &str| {
        fs::write(dir.path().join("archive"), BYTES).unwrap();
        let _ = fs::remove_file(dir.path().join("archive.sig"));
        keygen(&["-q", "-Y", "sign", "-f", key, "-n", namespace, "archive"]);
        fs::read(dir.path().join("archive.sig")).unwrap()
    };
    for key in ["ours", "stranger"] {
        keygen(&["-q", "-t", "ed25519", "-N", "", "-C", "release@vendor.example", "-f", key]);
    }
    keygen(&["-q", "-t", "ecdsa", "-N", "", "-f", "other-kind"]);
    let key = VendorKey::read(&fs::read(dir.path().join("ours.pub")).unwrap()).unwrap();
    assert_eq!(key.suffix(), ".sig");
    let now = day("2026-01-02");
    let signer = key.verify(BYTES, &sign("ours", "file"), now).unwrap();
    assert!(signer.starts_with("SHA256:"), "{signer}");
    let other = key.verify(b"other bytes", &sign("ours", "file"), now).unwrap_err();
    assert!(matches!(&other, VendorSignatureError::Mismatch(key) if *key == signer), "{other:?}");
    let stranger = key.verify(BYTES, &sign("stranger", "file"), now).unwrap_err();
    assert!(matches!(&stranger, VendorSignatureError::OtherKey { wanted, .. } if *wanted == signer), "{stranger:?}");
    let purpose = error_chain(&key.verify(BYTES, &sign("ours", "git"), now).unwrap_err());
    assert!(purpose.contains("for the namespace `git`, not `file`"), "{purpose}");
    let nothing = key.verify(BYTES, b"<html>", now).unwrap_err();
    assert!(matches!(nothing, VendorSignatureError::Malformed(_)), "{nothing:?}");
    let kind = VendorKey::read(&fs::read(dir.path().join("other-kind.pub")).unwrap()).unwrap_err();
    assert!(matches!(kind, VendorKeyError::Ssh(_)), "{kind:?}");
}

#[test]
fn what_is_no_key_says_so() {
    for text in [&b""[..], b"<html>", b"\xff\xfe", b"-----BEGIN PGP SIGNATURE-----\n", b"-----BEGIN PRIVATE KEY-----"] {
        assert!(matches!(VendorKey::read(text), Err(VendorKeyError::Neither)), "{text:?}");
    }
    let cut = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEAAAA\n";
    assert!(matches!(VendorKey::read(cut), Err(VendorKeyError::OpenPgp(_))));
    assert!(matches!(VendorKey::read(b"ssh-ed25519 AAAA"), Err(VendorKeyError::Ssh(_))));
}
