//! Power cuts while accounts change: whoever had a secret has one that is valid, and nobody whose account ended does.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use repo_model::Digest;
use repo_testkit::faults::power::{Cut, Experiment, assert_cut, cut_everywhere};
use serde_json::Value;
use tempfile::TempDir;

use crate::crash::occurrences;
use repo_testkit::copy;
use repo_testkit::fleet::Fleet;

/// What is done when the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// A new secret beside one that is in use.
    Rotate,
    /// The end of an account.
    Revoke,
    /// The first join file over HTTPS: the authority, the account and the file are made.
    Join,
}

const DEVICE: &str = "press-01";

/// A home with one account in use, made once for all cuts.
struct Kept {
    dir: TempDir,
}

impl Kept {
    fn new() -> Self {
        let kept = Self { dir: TempDir::new().expect("a temporary directory") };
        let fleet = Fleet::init(kept.dir.path(), "accounts");
        fleet.run(&["account", "add", "audit", "--role", "auditor", "--secret-file", &file(&fleet, "old")]);
        // In use, as a host notes it.
        let path = fleet.home().join("accounts/audit.json");
        let mut account = read(&path);
        account["secrets"][0]["confirmed"] = account["secrets"][0]["created"].clone();
        std::fs::write(&path, account.to_string()).expect("written");
        std::fs::write(fleet.home().join("publisher.yaml"), "serve: {names: [wfm.example]}\n").expect("written");
        kept
    }

    fn prepare(&self, root: &Path) {
        for part in ["fleet", "fleet.wfm"] {
            copy(&self.dir.path().join(part), &root.join(part));
        }
    }
}

fn file(fleet: &Fleet, name: &str) -> String {
    fleet.home().join(name).display().to_string()
}

fn read(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(std::fs::metadata(path).expect("looked at").mode() & 0o777, 0o600, "{}", path.display());
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn command(deed: Deed, root: &Path) -> Command {
    let fleet = Fleet::at(root);
    match deed {
        Deed::Rotate => fleet.command(&["account", "rotate", "audit", "--secret-file", &file(&fleet, "new")]),
        Deed::Revoke => fleet.command(&["account", "revoke", "audit"]),
        Deed::Join => fleet.command(&["device", "join", DEVICE]),
    }
}

/// The secret in a file, if it is there: whole, or not at all.
fn secret(path: PathBuf) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    assert_eq!(text.trim_end().len(), 43, "a whole secret: {text}");
    Some(text.trim_end().to_owned())
}

/// Whether the account's file has a secret's digest and was not revoked.
fn is_valid(fleet: &Fleet, account: &str, secret: &str) -> bool {
    let account = read(&fleet.home().join(format!("accounts/{account}.json")));
    let digest = Digest::of(secret.as_bytes()).to_string();
    let has = |record: &Value| record["sha256"] == digest.as_str();
    account["revoked"].is_null() && account["secrets"].as_array().expect("a list").iter().any(has)
}

/// What must hold right after a cut.
fn assert_whole(deed: Deed, fleet: &Fleet, when: &str) {
    fleet.run(&["account", "list"]);
    let old = secret(fleet.home().join("old")).expect("it is kept");
    if deed != Deed::Revoke {
        assert!(is_valid(fleet, "audit", &old), "{when}: what was in use stays so until the next one was used");
    }
    if let Some(new) = secret(fleet.home().join("new")) {
        assert!(is_valid(fleet, "audit", &new), "{when}: a secret that somebody has is valid");
    }
    if fleet.join_file(DEVICE).exists() {
        assert_joined(fleet, when);
    }
}

/// A join file that is there is good.
fn assert_joined(fleet: &Fleet, when: &str) {
    let join = read(&fleet.join_file(DEVICE));
    assert_eq!(join["url"], "https://wfm.example:8443/devices/press-01.git", "{when}");
    let secret = join["account"]["secret"].as_str().expect("a secret");
    assert!(is_valid(fleet, DEVICE, secret), "{when}: the secret of the join file is valid");
    let authority = std::fs::read_to_string(fleet.home().join("ca/ca.pem")).expect("an authority");
    assert_eq!(join["ca"], authority.as_str(), "{when}: the device trusts the authority that is there");
}

/// The same command again is all that it takes.
fn assert_done(deed: Deed, fleet: &Fleet, when: &str) {
    let authority = std::fs::read(fleet.home().join("ca/ca.pem")).ok();
    let output = command(deed, fleet.root()).output().expect("the publisher runs");
    assert!(output.status.success(), "{when}: {}", String::from_utf8_lossy(&output.stderr));
    assert_whole(deed, fleet, when);
    match deed {
        Deed::Rotate => assert!(secret(fleet.home().join("new")).is_some(), "{when}"),
        Deed::Revoke => {
            let old = secret(fleet.home().join("old")).expect("it is kept");
            assert!(!is_valid(fleet, "audit", &old), "{when}: what is revoked stays so");
        }
        Deed::Join => {
            assert_joined(fleet, when);
            let now = std::fs::read(fleet.home().join("ca/ca.pem")).ok();
            assert!(authority.is_none() || authority == now, "{when}: an authority is made once");
        }
    }
}

fn cut(kept: &Kept, deed: Deed) -> BTreeSet<String> {
    let check = |root: &Path, when: &str| {
        let fleet = Fleet::at(root);
        assert_whole(deed, &fleet, when);
        assert_done(deed, &fleet, when);
    };
    let experiment = Experiment {
        deed: &format!("{deed:?}"),
        prepare: &|root| kept.prepare(root),
        command: &|root| command(deed, root),
        check: &|root, _, when| check(root, when),
        cut: Cut::Power,
        // Each file of a join counts: its key, its certificate, the account.
        occurrences: occurrences().max(6),
    };
    cut_everywhere(&experiment).expect("the cuts are made")
}

#[test]
fn power_cuts_of_changes_to_accounts_leave_everybody_a_valid_secret_or_none() {
    let kept = Kept::new();
    for deed in [Deed::Rotate, Deed::Revoke, Deed::Join] {
        assert_cut(&cut(&kept, deed), &["file.data", "file.rename", "file.dir"]);
    }
}
