//! The fleet's authority, seen by the verifier that devices use.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::fs;
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;

use super::*;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn lab() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca");
    (dir, ca)
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn an_authority_vouches_for_its_names_and_private_networks_only() {
    let (_dir, ca) = lab();
    let own = names(&["wfm.plant.example", "192.0.2.10", "2001:db8::1"]);
    let authority = Authority::ensure(&ca, &own).unwrap();
    let now = Timestamp::now();
    authority.issue(&own, now).unwrap();
    authority
        .issue(&names(&["localhost", "127.0.0.1", "::1", "10.1.2.3", "press.local", "wfm.internal"]), now)
        .unwrap();
    for other in ["example.com", "192.0.2.11", "8.8.8.8", "plant.example", "2001:db8::2"] {
        let error = authority.issue(&names(&[other]), now).unwrap_err();
        assert!(matches!(&error, CaError::NotPermitted { name, .. } if name == other), "{error:?}");
    }
    assert_eq!((mode(&ca), mode(&ca.join("ca.key"))), (0o700, 0o600));
    assert_eq!(mode(&ca.join("server.key")), 0o600);
}

#[test]
fn an_authority_is_made_once_and_its_making_can_be_cut_off() {
    let (_dir, ca) = lab();
    let own = names(&["wfm.plant.example"]);
    let pem = Authority::ensure(&ca, &own).unwrap().pem().to_owned();
    let now = Timestamp::now();
    let key = |authority: Authority| authority.issue(&own, now).unwrap().key.public_key().unwrap().to_vec();
    let pinned = key(Authority::ensure(&ca, &own).unwrap());
    assert_eq!(key(Authority::ensure(&ca, &own).unwrap()), pinned, "a device may pin the host's key");
    // Cut off between the key and the certificate: the same authority, by its key.
    fs::remove_file(ca.join("ca.pem")).unwrap();
    let again = Authority::ensure(&ca, &own).unwrap();
    assert_eq!(key(again), pinned);
    fs::write(ca.join("ca.pem"), pem).unwrap();
    key(Authority::ensure(&ca, &own).unwrap());
    fs::remove_file(ca.join("ca.key")).unwrap();
    assert!(matches!(Authority::ensure(&ca, &own), Err(CaError::NoKey { .. })));
}

#[test]
fn a_device_whose_clock_has_fallen_behind_believes_the_host() {
    let (_dir, ca) = lab();
    let own = names(&["wfm.plant.example"]);
    let authority = Authority::ensure(&ca, &own).unwrap();
    let now = Timestamp::now();
    let issued = authority.issue(&own, now).unwrap();
    let at = |moment: Timestamp| authority.check(&issued.cert[0], &own, moment);
    at("2020-01-02T00:00:00Z".parse().unwrap()).unwrap();
    at(now + jiff::SignedDuration::from_hours(24 * 89)).unwrap();
    assert!(matches!(at(now + jiff::SignedDuration::from_hours(24 * 91)), Err(CaError::NotPermitted { .. })));
}

fn serve(certificate: &Path, key: &Path) -> Settings {
    Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        names: names(&["wfm.plant.example"]),
        url: None,
        certificate: Some(certificate.to_owned()),
        key: Some(key.to_owned()),
        ca_file: None,
        ssh: None,
        limits: Default::default(),
    }
}

fn write_pair(certificate: &Path, key: &Path) -> CertificateDer<'static> {
    let pair = KeyPair::generate().unwrap();
    let made = CertificateParams::new(names(&["wfm.plant.example"])).unwrap().self_signed(&pair).unwrap();
    repo_git::durable::replace_file(key, pair.serialize_pem().as_bytes(), 0o600).unwrap();
    repo_git::durable::replace_file(certificate, made.pem().as_bytes(), 0o644).unwrap();
    made.der().clone()
}

#[test]
fn the_operators_files_are_read_again_and_bad_ones_keep_the_old() {
    let (dir, ca) = lab();
    let (certificate, key) = (dir.path().join("host.pem"), dir.path().join("host.key"));
    let first = write_pair(&certificate, &key);
    let served = Served::open(&ca, &serve(&certificate, &key)).unwrap();
    assert_eq!(served.current().cert, std::slice::from_ref(&first));
    fs::write(&certificate, "nothing").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(served.current().cert, [first]);
    // The file system tells it, and not only a look every five seconds.
    let is_told = || {
        let next = write_pair(&certificate, &key);
        let start = Instant::now();
        while served.current().cert != [next.clone()] && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(served.current().cert, [next], "the new certificate isn't used");
        start.elapsed() < Duration::from_secs(1)
    };
    assert!((0..10).any(|_| is_told()), "each took more than a second");
    // A key of another pair, or one that everybody can read, is refused at the start.
    let other = KeyPair::generate().unwrap();
    repo_git::durable::replace_file(&key, other.serialize_pem().as_bytes(), 0o600).unwrap();
    assert!(matches!(Served::open(&ca, &serve(&certificate, &key)), Err(CaError::Tls(_))));
    repo_git::durable::replace_file(&key, other.serialize_pem().as_bytes(), 0o644).unwrap();
    assert!(matches!(Served::open(&ca, &serve(&certificate, &key)), Err(CaError::Exposed { .. })));
}
