//! Signatures, made here and checked by stock programs, and the other way round.

use std::os::unix::fs::PermissionsExt;

use repo_git::sign::verify;
use repo_git::{KeyError, PublicKey, SignatureError, SigningKey};
use repo_model::enrolment::{
    self, Kind, Nonce, PROOF_NAMESPACE, Reveal, Start, TOKEN_NAMESPACE, TokenProof, Transcript,
};
use repo_model::{Digest, KeyText, json};

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

/// A device that is a shell script can enrol: its proofs are what `ssh-keygen` makes.
#[test]
fn an_enrolment_is_proven_by_what_ssh_keygen_signs_and_by_nothing_that_it_signed_for_another_purpose() {
    let corner = Corner::new();
    let made = |name: &str| -> KeyText {
        let status = corner.command("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", name]).status();
        assert!(status.expect("ssh-keygen is installed").success());
        std::fs::read_to_string(corner.path(&format!("{name}.pub"))).expect("there").parse().expect("a key")
    };
    let signed = |name: &str, namespace: &str, bytes: &[u8]| {
        std::fs::write(corner.path("message"), bytes).expect("written");
        let mut sign = corner.command("ssh-keygen");
        let output =
            sign.args(["-Y", "sign", "-q", "-f", name, "-n", namespace, "message"]).output().expect("ssh-keygen");
        assert!(output.status.success());
        let armored = std::fs::read_to_string(corner.path("message.sig")).expect("signed");
        std::fs::remove_file(corner.path("message.sig")).expect("removed");
        armored
    };
    let signer = |bytes: &[u8], namespace: &str, armored: &str| -> Option<KeyText> {
        verify(namespace, bytes, armored).ok()?.to_string().parse().ok()
    };
    let (device, old, token) = (made("device"), made("old"), made("token"));
    let claim = serde_json::json!({
        "layout": 1, "key": device, "account": Digest::of(b"a secret"), "version": "0.3.0", "replaces": old,
    });
    let claim = String::from_utf8(json::to_bytes(&claim)).expect("text");
    let (nonce, host, offer) = (Nonce::new([7; 32]), Nonce::new([8; 32]), b"the offer");
    let start = Start { layout: 1, kind: Kind::Token, commitment: enrolment::commitment(&nonce, claim.as_bytes()) };
    let transcript = Transcript::of((&nonce, &host), claim.as_bytes(), offer);
    let message = transcript.token_message(&device);
    let good = Reveal {
        nonce,
        claim,
        proof: signed("device", PROOF_NAMESPACE, transcript.as_bytes()),
        replaces_proof: Some(signed("old", PROOF_NAMESPACE, transcript.as_bytes())),
        token: Some(TokenProof {
            name: "graz".to_owned(),
            proof: signed("token", TOKEN_NAMESPACE, message.as_bytes()),
        }),
    };
    let (claim, found) = good.check(&start, &host, offer, &signer).expect("believed");
    assert_eq!((&claim.key, claim.replaces.as_ref(), found), (&device, Some(&old), transcript));
    let proof = good.token.clone().expect("there");
    assert!(proof.proves(&token, &transcript, &device, &signer) && !proof.proves(&token, &transcript, &old, &signer));

    let refused = |proof: String| {
        let error = Reveal { proof, ..good.clone() }.check(&start, &host, offer, &signer).expect_err("refused");
        assert_eq!(error.code(), "proof", "{error}");
    };
    refused(signed("old", PROOF_NAMESPACE, transcript.as_bytes()));
    refused(signed("device", "git", transcript.as_bytes()));
    refused(signed("device", TOKEN_NAMESPACE, transcript.as_bytes()));
    refused(signed("device", PROOF_NAMESPACE, transcript.hex().as_bytes()));
    refused(String::new());
    let posed = TokenProof { proof: signed("token", PROOF_NAMESPACE, message.as_bytes()), ..proof };
    assert!(!posed.proves(&token, &transcript, &device, &signer));
}

/// What `git tag -s` signs, and what stock Git and `ssh-keygen` say of it, is what is read here.
#[test]
fn a_tag_that_stock_git_signed_is_on_the_commit_and_of_the_key_that_git_says() {
    let corner = Corner::new();
    key().save(&corner.path("key")).expect("saved");
    std::fs::write(corner.path("key.pub"), key().public().to_string()).expect("written");
    std::fs::write(corner.path("signers"), format!("anna namespaces=\"git\" {}\n", key().public())).expect("written");
    corner.git(&corner.path(""), &["init", "-q", "work"]);
    let (work, key_path) = (corner.path("work"), corner.path("key").display().to_string());
    corner.git(&work, &["config", "gpg.format", "ssh"]);
    corner.git(&work, &["config", "user.signingKey", &key_path]);
    corner.git(&work, &["config", "gpg.ssh.allowedSignersFile", &corner.path("signers").display().to_string()]);
    corner.git(&work, &["commit", "-q", "--allow-empty", "-m", "first"]);
    corner.git(&work, &["tag", "-s", "-m", "Fine by me\n\nPublished: none", "approve/first"]);
    corner.git(&work, &["tag", "-a", "-m", "unsigned", "approve/unsigned"]);
    corner.git(&work, &["tag", "approve/light"]);
    corner.git(&work, &["tag", "-s", "-m", "of a tag", "approve/tag", "approve/first"]);
    corner.git(&work, &["verify-tag", "approve/first"]);
    let repo = repo_git::Repo::discover(&work).expect("found");
    let refs = repo.tag_refs("refs/tags/approve/").expect("listed");
    let names: Vec<_> = refs.iter().map(|(name, _)| name.strip_prefix("refs/tags/approve/").unwrap()).collect();
    assert_eq!(names, ["first", "light", "tag", "unsigned"]);
    let [first, light, nested, unsigned] = [0, 1, 2, 3].map(|at| repo.tag(refs[at].1).expect("read"));
    let tag = first.expect("a tag");
    assert_eq!(tag.signer().expect("good"), key().public());
    assert_eq!((tag.name.as_str(), Some(tag.commit)), ("approve/first", repo.resolve("HEAD").expect("read")));
    assert_eq!(tag.message, "Fine by me\n\nPublished: none\n");
    assert_eq!((light, nested), (None, None));
    assert!(matches!(unsigned.expect("a tag").signer(), Err(SignatureError::Unsigned)));
    // `ssh-keygen` agrees about what was signed, and about what wasn't.
    for (payload, good) in [(tag.payload.clone(), true), ([&tag.payload[..], b"!"].concat(), false)] {
        std::fs::write(corner.path("sig"), tag.signature.as_deref().unwrap_or_default()).expect("written");
        std::fs::write(corner.path("payload"), payload).expect("written");
        let payload = std::fs::File::open(corner.path("payload")).expect("there");
        let mut check = corner.command("ssh-keygen");
        check.args(["-Y", "verify", "-q", "-f", "signers", "-I", "anna", "-n", "git", "-s", "sig"]).stdin(payload);
        assert_eq!(check.output().expect("ssh-keygen").status.success(), good);
    }
    let mut changed = tag;
    changed.payload[10] ^= 1;
    assert!(matches!(changed.signer(), Err(SignatureError::Mismatch)));
    // One that is too large isn't read.
    let long = "x".repeat(70_000);
    corner.git(&work, &["tag", "-s", "-m", &long, "long"]);
    let refs = repo_git::Repo::discover(&work).expect("found").tag_refs("refs/tags/long").expect("listed");
    assert!(matches!(repo.tag(refs[0].1), Err(repo_git::ReadError::TooLarge { .. })));
}
