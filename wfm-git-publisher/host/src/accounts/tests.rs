//! Accounts as a running host sees them, while their files change under it.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use repo_git::durable::{self, TICK};
use repo_model::{DeviceId, KeyText};

use super::*;

struct Lab {
    _dir: tempfile::TempDir,
    store: Store,
}

impl Lab {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { store: Store::new(dir.path().join("accounts")), _dir: dir }
    }

    fn device(&self, device: &str) -> Issued {
        self.store.issue_for_device(&device.parse().unwrap(), Some(TTL), false, Timestamp::now()).unwrap()
    }

    fn open(&self) -> Accounts {
        Accounts::open(self.store.dir()).unwrap()
    }

    fn secrets(&self, name: &str) -> usize {
        self.store.read(&name.parse().unwrap()).unwrap().unwrap().secrets.len()
    }
}

fn bearer(issued: &Issued) -> String {
    format!("Bearer {}", issued.secret.reveal())
}

fn basic(user: &str, issued: &Issued) -> String {
    format!("Basic {}", Base64::encode_string(format!("{user}:{}", issued.secret.reveal()).as_bytes()))
}

/// Waits for what happens in the watcher's thread, and less long than it takes until that looks at everything. What it
/// does within a second may take longer where many tests write at once.
#[track_caller]
fn soon(test: impl Fn() -> bool) {
    let start = Instant::now();
    while !test() {
        assert!(start.elapsed() < Duration::from_secs(8), "it took more than 8 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_secret_lets_its_account_in_and_no_other() {
    let lab = Lab::new();
    let (press, packer) = (lab.device("press-01"), lab.device("line/Packer"));
    let accounts = lab.open();
    let identity = accounts.authenticate(Some(&bearer(&press))).unwrap();
    assert_eq!(identity.name.as_str(), "press-01");
    assert_eq!((identity.role, identity.device.unwrap().as_str()), (Role::Device, "press-01"));
    let identity = accounts.authenticate(Some(&basic(packer.name.as_str(), &packer))).unwrap();
    assert_eq!(identity.device.unwrap().as_str(), "line/Packer");
    assert_eq!(accounts.authenticate(None), Err(Denied::Missing));
    assert_eq!(accounts.authenticate(Some("Negotiate abc")), Err(Denied::Unreadable));
    assert_eq!(accounts.authenticate(Some("Bearer abc")), Err(Denied::Unknown));
    assert_eq!(accounts.authenticate(Some(&basic("press-01", &packer))), Err(Denied::Unknown));
}

#[test]
fn a_renewed_secret_and_the_old_one_are_both_valid_until_the_new_one_was_used() {
    let lab = Lab::new();
    let old = lab.device("press-01");
    let accounts = lab.open();
    let identity = accounts.authenticate(Some(&bearer(&old))).unwrap();
    soon(|| lab.store.read(&old.name).unwrap().unwrap().secrets[0].confirmed.is_some());
    let lost = accounts.renew(&identity).unwrap();
    let new = accounts.renew(&identity).unwrap();
    assert_eq!(lab.secrets("press-01"), 2);
    assert_eq!(accounts.authenticate(Some(&bearer(&lost))), Err(Denied::Unknown));
    accounts.authenticate(Some(&bearer(&old))).unwrap();
    assert_eq!(accounts.check(&identity), Ok(()));
    let renewed = accounts.authenticate(Some(&bearer(&new))).unwrap();
    assert_eq!(accounts.expires(&renewed), new.expires);
    soon(|| lab.secrets("press-01") == 1);
    soon(|| accounts.authenticate(Some(&bearer(&old))) == Err(Denied::Unknown));
    assert_eq!(accounts.check(&identity), Err(Denied::Unknown));
    assert!(matches!(accounts.renew(&identity), Err(AccountError::Replaced(_))));
    accounts.authenticate(Some(&bearer(&new))).unwrap();
}

#[test]
fn an_account_comes_with_a_certificate_or_with_secrets_and_a_secret_takes_its_place_when_it_is_used() {
    let lab = Lab::new();
    let (first, device, key) = (lab.device("press-01"), "press-01".parse().unwrap(), Digest::of(b"a key"));
    let take = || lab.store.take_for_device(&device, Credential::Certificate(key), None, Timestamp::now()).unwrap();
    let accounts = lab.open();
    accounts.authenticate(Some(&bearer(&first))).unwrap();
    take();
    assert_eq!(accounts.of_certificate(&key).unwrap().name, first.name);
    assert_eq!(accounts.authenticate(Some(&bearer(&first))), Err(Denied::Unknown));
    // One that nobody used as yet ends if the certificate is meant after all.
    let unused = lab.device("press-01");
    take();
    assert_eq!(lab.secrets("press-01"), 0);
    soon(|| accounts.authenticate(Some(&bearer(&unused))) == Err(Denied::Unknown));
    let used = lab.device("press-01");
    accounts.of_certificate(&key).unwrap();
    accounts.authenticate(Some(&bearer(&used))).unwrap();
    soon(|| accounts.of_certificate(&key) == Err(Denied::UnknownCertificate(key)));
    take();
    assert_eq!(lab.store.end_all().unwrap(), std::slice::from_ref(&used.name));
    soon(|| accounts.of_certificate(&key) == Err(Denied::UnknownCertificate(key)));
}

#[test]
fn a_revoked_account_is_out_and_whoever_waits_is_told() {
    let lab = Lab::new();
    let (press, packer) = (lab.device("press-01"), lab.device("packer-01"));
    let accounts = lab.open();
    let identity = accounts.authenticate(Some(&bearer(&press))).unwrap();
    soon(|| lab.store.read(&press.name).unwrap().unwrap().secrets[0].confirmed.is_some());
    soon(|| accounts.generation() == 1);
    let told = accounts.subscribe();
    // As the command line does it: in the file, from outside.
    assert!(lab.store.revoke(&press.name, Timestamp::now()).unwrap());
    assert!(!lab.store.revoke(&press.name, Timestamp::now()).unwrap());
    soon(|| told.has_changed().unwrap());
    assert_eq!(accounts.check(&identity), Err(Denied::Revoked(press.name.clone())));
    assert_eq!(accounts.authenticate(Some(&bearer(&press))), Err(Denied::Revoked(press.name.clone())));
    accounts.authenticate(Some(&bearer(&packer))).unwrap();
    // It may be made anew, with another secret.
    assert!(matches!(lab.store.rotate(&press.name, None, false, Timestamp::now()), Err(AccountError::Revoked(_))));
    let again = lab.store.add(&press.name, Role::Device, identity.device, Some(TTL), Timestamp::now()).unwrap();
    soon(|| accounts.authenticate(Some(&bearer(&again))).is_ok());
    assert_eq!(accounts.authenticate(Some(&bearer(&press))), Err(Denied::Unknown));
}

#[test]
fn an_account_is_good_as_soon_as_it_is_there() {
    let lab = Lab::new();
    let accounts = lab.open();
    // What follows the files may be late, or not have begun.
    accounts.watcher.send(Task::Stop);
    for number in 0..10 {
        let issued = lab.device(&format!("press-{number}"));
        assert_eq!(accounts.authenticate(Some("Bearer abc")), Err(Denied::Unknown));
        accounts.authenticate(Some(&bearer(&issued))).unwrap();
        std::thread::sleep(TICK * (number % 3));
    }
    let next = lab.store.rotate(&"press-0".parse().unwrap(), None, true, Timestamp::now()).unwrap();
    accounts.authenticate(Some(&bearer(&next))).unwrap();
}

#[test]
fn a_secret_ends_with_its_time() {
    let lab = Lab::new();
    let name: AccountName = "audit".parse().unwrap();
    let now = Timestamp::now();
    let hour = Some(Duration::from_secs(3600));
    let issued = lab.store.add(&name, Role::Auditor, None, hour, now).unwrap();
    let accounts = lab.open();
    let ends = issued.expires.unwrap();
    let before = ends - Duration::from_secs(1);
    accounts.authenticate_at(Some(&bearer(&issued)), before).unwrap();
    assert_eq!(accounts.authenticate_at(Some(&bearer(&issued)), ends), Err(Denied::Expired(name)));
}

#[test]
fn a_file_that_is_no_account_denies_that_account_only() {
    let lab = Lab::new();
    let (press, packer) = (lab.device("press-01"), lab.device("packer-01"));
    let open = lab.device("press-02");
    fs::set_permissions(lab.store.path(&open.name), fs::Permissions::from_mode(0o644)).unwrap();
    let accounts = lab.open();
    assert_eq!(accounts.authenticate(Some(&bearer(&open))), Err(Denied::Unknown));
    accounts.authenticate(Some(&bearer(&press))).unwrap();
    soon(|| lab.store.read(&press.name).unwrap().unwrap().secrets[0].confirmed.is_some());
    // In place, as an editor may do it.
    let good = fs::read(lab.store.path(&press.name)).unwrap();
    fs::write(lab.store.path(&press.name), "{").unwrap();
    soon(|| accounts.authenticate(Some(&bearer(&press))) == Err(Denied::Unknown));
    accounts.authenticate(Some(&bearer(&packer))).unwrap();
    fs::write(lab.store.path(&press.name), good).unwrap();
    soon(|| accounts.authenticate(Some(&bearer(&press))).is_ok());
    let listing = lab.store.list().unwrap();
    assert_eq!((listing.accounts.len(), listing.broken.len()), (2, 1));
}

#[test]
fn a_secret_in_two_files_is_the_first_ones_only() {
    let lab = Lab::new();
    let press = lab.device("press-01");
    let text = fs::read_to_string(lab.store.path(&press.name)).unwrap();
    let copy = text.replace("press-01", "press-02");
    durable::replace_file(&lab.store.path(&"press-02".parse().unwrap()), copy.as_bytes(), 0o600).unwrap();
    let accounts = lab.open();
    assert_eq!(accounts.authenticate(Some(&bearer(&press))).unwrap().name.as_str(), "press-01");
    assert_eq!(accounts.authenticate(Some(&basic("press-02", &press))), Err(Denied::Unknown));
}

#[test]
fn many_changes_at_once_lose_none() {
    let lab = Lab::new();
    let accounts = lab.open();
    let first = lab.device("press-01");
    soon(|| accounts.authenticate(Some(&bearer(&first))).is_ok());
    soon(|| lab.store.read(&first.name).unwrap().unwrap().secrets[0].confirmed.is_some());
    std::thread::scope(|scope| {
        for number in 0..8 {
            let lab = &lab;
            scope.spawn(move || lab.device(&format!("device-{number}")));
        }
        for _ in 0..8 {
            scope.spawn(|| lab.store.rotate(&first.name, None, false, Timestamp::now()).unwrap());
        }
    });
    assert_eq!(lab.store.list().unwrap().accounts.len(), 9);
    assert_eq!(lab.secrets("press-01"), 2);
    accounts.authenticate(Some(&bearer(&first))).unwrap();
}

fn ssh_key(number: u8) -> SshKey {
    let blob = [&[0, 0, 0, 11][..], b"ssh-ed25519", &[0, 0, 0, 32], &[number; 32]].concat();
    let key = format!("ssh-ed25519 {}", Base64::encode_string(&blob)).parse().unwrap();
    SshKey::new(key, None, Timestamp::now()).unwrap()
}

#[test]
fn an_ssh_key_lets_its_account_in_until_it_is_taken_away() {
    let lab = Lab::new();
    let accounts = lab.open();
    let (press, packer): (DeviceId, DeviceId) = ("press-01".parse().unwrap(), "packer-01".parse().unwrap());
    assert_eq!(accounts.of_ssh_key(&ssh_key(1).key), Err(Denied::UnknownKey(ssh_key(1).fingerprint())));
    // An account that has no secret and never had one.
    assert!(lab.store.add_ssh_key_for_device(&press, ssh_key(1)).unwrap());
    assert!(!lab.store.add_ssh_key_for_device(&press, ssh_key(1)).unwrap());
    assert!(lab.store.add_ssh_key_for_device(&packer, ssh_key(2)).unwrap());
    assert!(lab.store.add_ssh_key_for_device(&press, ssh_key(3)).unwrap());
    let identity = accounts.of_ssh_key(&ssh_key(1).key).unwrap();
    assert_eq!((identity.name.as_str(), identity.role), ("press-01", Role::Device));
    assert_eq!(accounts.of_ssh_key(&ssh_key(2).key).unwrap().name.as_str(), "packer-01");
    assert_eq!(accounts.check(&identity), Ok(()));
    assert_eq!((accounts.expires(&identity), accounts.renew(&identity).is_err()), (None, true));
    let told = accounts.subscribe();
    let end = |one: Fate| {
        let fate = move |key: &SshKey| if key.key == ssh_key(1).key { one } else { Fate::Counts };
        lab.store.judge_ssh_keys(&"press-01".parse().unwrap(), Timestamp::now(), fate).unwrap().len()
    };
    // It may be known as one that ended, or be gone.
    assert_eq!((end(Fate::Ends), end(Fate::Ends), end(Fate::Counts), end(Fate::Goes)), (1, 0, 0, 1));
    assert!(lab.store.add_ssh_key_for_device(&press, ssh_key(1)).unwrap());
    assert_eq!(end(Fate::Ends), 1);
    let others = lab.store.add_ssh_key_for_device(&packer, ssh_key(1));
    assert!(others.is_ok(), "a key that ended is nobody's: {others:?}");
    assert_eq!(
        lab.store
            .judge_ssh_keys(&"packer-01".parse().unwrap(), Timestamp::now(), |key| {
                if key.key == ssh_key(1).key { Fate::Goes } else { Fate::Counts }
            })
            .unwrap()
            .len(),
        1
    );
    soon(|| told.has_changed().unwrap());
    // What was told may still have been a key that came before, and the files are read at any moment of the above:
    // when it had ended for the one and was the other's.
    soon(|| accounts.check(&identity) == Err(Denied::UnknownKey(ssh_key(1).fingerprint())));
    soon(|| accounts.of_ssh_key(&ssh_key(1).key) == Err(Denied::UnknownKey(ssh_key(1).fingerprint())));
    let identity = accounts.of_ssh_key(&ssh_key(3).key).unwrap();
    assert!(lab.store.revoke(&identity.name, Timestamp::now()).unwrap());
    soon(|| accounts.check(&identity) == Err(Denied::Revoked(identity.name.clone())));
    assert_eq!(accounts.of_ssh_key(&ssh_key(3).key), Err(Denied::Revoked(identity.name)));
}

#[test]
fn an_ssh_key_is_one_accounts_only() {
    let lab = Lab::new();
    let (press, packer): (DeviceId, DeviceId) = ("press-01".parse().unwrap(), "packer-01".parse().unwrap());
    lab.store.add_ssh_key_for_device(&press, ssh_key(1)).unwrap();
    let taken = lab.store.add_ssh_key_for_device(&packer, ssh_key(1));
    assert!(matches!(taken, Err(AccountError::KeyTaken { name, .. }) if name.as_str() == "press-01"));
    // As a person may copy a file: the first one keeps it.
    let text = fs::read_to_string(lab.store.path(&"press-01".parse().unwrap())).unwrap();
    let copy = text.replace("press-01", "press-02");
    durable::replace_file(&lab.store.path(&"press-02".parse().unwrap()), copy.as_bytes(), 0o600).unwrap();
    let accounts = lab.open();
    assert_eq!(accounts.of_ssh_key(&ssh_key(1).key).unwrap().name.as_str(), "press-01");
    // With the account that had it first, what keeps the other one out ends.
    lab.store.revoke(&"press-01".parse().unwrap(), Timestamp::now()).unwrap();
    soon(|| accounts.of_ssh_key(&ssh_key(1).key).is_ok_and(|identity| identity.name.as_str() == "press-02"));
}

#[test]
fn keys_of_an_account_are_few() {
    let lab = Lab::new();
    let name: AccountName = "olga".parse().unwrap();
    lab.store.add_without_secret(&name, Role::Operator, None).unwrap();
    let added: Vec<_> = (0..20).map(|number| lab.store.add_ssh_key(&name, ssh_key(number))).collect();
    assert_eq!(added.iter().filter(|added| matches!(added, Ok(true))).count(), 16);
    assert!(matches!(added.last(), Some(Err(AccountError::ManyKeys(_)))));
}

#[test]
fn the_account_of_a_retired_device_lets_nobody_in_and_is_told_apart_from_a_revoked_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().join("accounts"));
    let (device, now) = ("press-01".parse().unwrap(), Timestamp::now());
    assert!(!store.retire(&device, now).unwrap(), "there is none");
    let issued = store.issue_for_device(&device, Some(TTL), false, now).unwrap();
    let key: KeyText = repo_git::SigningKey::from_seed(&[7; 32]).public().to_string().parse().unwrap();
    store.add_ssh_key_for_device(&device, SshKey::new(key.clone(), None, now).unwrap()).unwrap();
    store.revoke(&issued.name, now).unwrap();
    assert!(store.retire(&device, now).unwrap() && !store.retire(&device, now).unwrap());
    let accounts = Accounts::open(store.dir()).unwrap();
    let shown = format!("Bearer {}", issued.secret.reveal());
    let retired = Denied::Retired(issued.name.clone());
    assert_eq!(accounts.authenticate(Some(&shown)).unwrap_err(), retired);
    assert_eq!(accounts.of_ssh_key(&key).unwrap_err(), retired);
    // A new one in its place is as any other.
    store.add(&issued.name, Role::Device, Some(device), None, now).unwrap();
    assert!(!store.read(&issued.name).unwrap().unwrap().retired);
}

#[test]
fn where_every_secret_ends_an_account_that_can_not_be_read_is_told_and_holds_up_no_other() {
    let lab = Lab::new();
    let now = Timestamp::now();
    let add = |name: &str| lab.store.add(&name.parse().unwrap(), Role::Auditor, None, None, now).unwrap();
    ["anna", "broken", "olga"].into_iter().for_each(|name| _ = add(name));
    fs::write(lab.store.path(&"broken".parse().unwrap()), "{").unwrap();
    assert!(matches!(lab.store.end_all(), Err(AccountError::Malformed { .. })));
    assert_eq!((lab.secrets("anna"), lab.secrets("olga")), (0, 0));
    fs::remove_file(lab.store.path(&"broken".parse().unwrap())).unwrap();
    add("nora");
    let ended: Vec<_> = lab.store.end_all().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(ended, ["nora"], "what has ended isn't told again");
}
