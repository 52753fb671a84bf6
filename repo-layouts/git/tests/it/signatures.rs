//! Signatures, made here and checked by stock programs, and the other way round.

use std::os::unix::fs::PermissionsExt;

use repo_git::sign::verify;
use repo_git::{KeyError, PublicKey, SignatureError, SigningKey};

use crate::support::{Corner, commit, key, spec, tree};

#[test]
fn stock_git_shows_our_signatures_as_good() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    commit(&repo, "desired", &[("f", "1")]);
    let signers = corner.path("signers");
    std::fs::write(&signers, format!("publisher@fleet {}\n", key().public())).expect("written");
    corner.git(repo.path(), &["config", "gpg.ssh.allowedSignersFile", &signers.display().to_string()]);
    corner.git(repo.path(), &["verify-commit", "HEAD"]);
    let output = corner.try_git(repo.path(), &["log", "--show-signature", "-1"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("Good \"git\" signature for publisher@fleet with ED25519 key"), "{text}");
    assert!(text.contains(&key().public().fingerprint()), "{text}");
}

#[test]
fn ssh_keygen_makes_the_same_bytes_from_the_same_key() {
    let corner = Corner::new();
    key().save(&corner.path("key")).expect("saved");
    std::fs::write(corner.path("message"), "the roster\n").expect("written");
    let mut sign = corner.command("ssh-keygen");
    let status = sign.args(["-Y", "sign", "-q", "-f", "key", "-n", "wfm-roster", "message"]).status();
    assert!(status.expect("ssh-keygen is installed").success());
    let theirs = std::fs::read_to_string(corner.path("message.sig")).expect("signed");
    let ours = key().sign("wfm-roster", b"the roster\n").expect("signed");
    assert_eq!(ours, theirs);
    assert_eq!(verify("wfm-roster", b"the roster\n", &theirs).expect("good"), key().public());
    let public = corner.command("ssh-keygen").args(["-y", "-f", "key"]).output().expect("ssh-keygen").stdout;
    assert_eq!(String::from_utf8_lossy(&public).trim(), key().public().to_string());
}

#[test]
fn a_key_and_a_commit_of_stock_programs_are_understood() {
    let corner = Corner::new();
    let made =
        corner.command("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "me@work", "-f", "key"]).status();
    assert!(made.expect("ssh-keygen is installed").success());
    let secret = SigningKey::load(&corner.path("key")).expect("loaded");
    let public: PublicKey = std::fs::read_to_string(corner.path("key.pub")).expect("there").parse().expect("parsed");
    assert_eq!(secret.public(), public);

    corner.git(&corner.path(""), &["init", "-q", "work"]);
    let work = corner.path("work");
    let key_path = corner.path("key").display().to_string();
    let signing = ["-c", "gpg.format=ssh", "-c", &format!("user.signingKey={key_path}")];
    corner.git(&work, &[&signing[..], &["commit", "-q", "--allow-empty", "-S", "-m", "signed"]].concat());
    let repo = repo_git::Repo::discover(&work).expect("found");
    let head = repo.resolve("HEAD").expect("readable").expect("there");
    assert_eq!(repo.commit(head).expect("read").signer().expect("good"), public);
}

#[test]
fn a_signature_for_anything_else_is_refused() {
    let signature = key().sign("git", b"bytes").expect("signed");
    assert!(matches!(verify("git", b"other", &signature), Err(SignatureError::Mismatch)));
    assert!(matches!(verify("file", b"bytes", &signature), Err(SignatureError::Namespace { .. })));
    assert!(matches!(verify("git", b"bytes", "-----BEGIN PGP SIGNATURE-----"), Err(SignatureError::Malformed(_))));
    assert!(matches!(verify("git", b"bytes", ""), Err(SignatureError::Malformed(_))));
    let cut = &signature[..signature.len() / 2];
    assert!(matches!(verify("git", b"bytes", cut), Err(SignatureError::Malformed(_))));
}

#[test]
fn a_changed_commit_has_no_signer() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let id = commit(&repo, "desired", &[("f", "1")]);
    let mut read = repo.commit(id).expect("read");
    read.payload[10] ^= 1;
    assert!(matches!(read.signer(), Err(SignatureError::Mismatch)));
    let mut batch = repo.batch();
    let unsigned = batch.commit(&spec(&tree(&[]), &[], "m"), None).expect("made");
    batch.store().expect("stored");
    assert!(matches!(repo.commit(unsigned).expect("read").signer(), Err(SignatureError::Unsigned)));
}

#[test]
fn only_a_private_unencrypted_ed25519_key_is_loaded() {
    let corner = Corner::new();
    let path = corner.path("key");
    key().save(&path).expect("saved");
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("changed");
    let error = SigningKey::load(&path).expect_err("exposed").to_string();
    assert!(error.contains("chmod 600") && error.contains("mode 640"), "{error}");
    let rsa = corner.command("ssh-keygen").args(["-q", "-t", "ecdsa", "-N", "", "-f", "other"]).status();
    assert!(rsa.expect("ssh-keygen").success());
    assert!(matches!(SigningKey::load(&corner.path("other")), Err(KeyError::Algorithm(_) | KeyError::Private { .. })));
    let locked = corner.command("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "secret", "-f", "locked"]).status();
    assert!(locked.expect("ssh-keygen").success());
    assert!(matches!(SigningKey::load(&corner.path("locked")), Err(KeyError::Encrypted { .. })));
    assert!(matches!(SigningKey::load(&corner.path("absent")), Err(KeyError::Io { .. })));
}

#[test]
fn a_secret_is_never_printed_and_a_public_key_reads_back() {
    let key = SigningKey::generate();
    let secret = format!("{key:?}");
    assert!(secret.contains("ssh-ed25519") && !secret.contains("private"), "{secret}");
    let text = key.public().to_string();
    assert_eq!(text.split(' ').count(), 2);
    assert_eq!(format!("{text} a comment\n").parse::<PublicKey>().expect("parsed"), key.public());
    assert_eq!(serde_json::to_string(&key.public()).expect("json"), format!("\"{text}\""));
    assert!("ssh-rsa AAAA".parse::<PublicKey>().is_err());
}
