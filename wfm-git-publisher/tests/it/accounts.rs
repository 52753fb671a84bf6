//! Accounts and join files as operators handle them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use repo_model::join::Join;
use serde_json::Value;
use wfm_git_host::accounts::{Accounts, Denied};

use crate::support::Lab;

fn hosted() -> Lab {
    let lab = Lab::new();
    serve(&lab, "");
    lab
}

/// Gives the publisher a host.
fn serve(lab: &Lab, more: &str) {
    let text = format!("serve:\n  names: [wfm.plant.example, 192.0.2.10]\n  listen: 0.0.0.0:8443\n{more}");
    lab.home.write(&lab.home.config(), text.as_bytes(), 0o600).unwrap();
}

fn join(path: &Path) -> Join {
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn bearer(secret: &str) -> String {
    format!("Bearer {}", secret.trim())
}

/// Waits until the disk has it that an account's newest secret was used.
#[track_caller]
fn wait_until_noted(lab: &Lab, account: &str) {
    let file = lab.home.accounts().join(format!("{account}.json"));
    let start = std::time::Instant::now();
    while start.elapsed() < std::time::Duration::from_secs(60) {
        let account: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        if account["secrets"].as_array().unwrap().last().unwrap().get("confirmed").is_some() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("it isn't noted that the secret of {account} was used");
}

#[test]
fn a_join_file_carries_all_that_a_device_needs() {
    let lab = hosted();
    let file = lab.dir().join("press.json");
    let said = lab.run(&["device", "add", "press-01", "--out", file.to_str().unwrap()]).good();
    let join = join(&file);
    assert_eq!(join.url, "https://wfm.plant.example:8443/devices/press-01.git");
    assert_eq!(join.ca.as_deref(), Some(fs::read_to_string(lab.home.ca().join("ca.pem")).unwrap().as_str()));
    let account = join.account.unwrap();
    assert_eq!(account.user, "press-01");
    assert!(!said.contains(&account.secret), "{said}");
    let accounts = Accounts::open(lab.home.accounts()).unwrap();
    let identity = accounts.authenticate(Some(&bearer(&account.secret))).unwrap();
    assert_eq!(identity.device.unwrap().as_str(), "press-01");
    // A public certificate needs no authority; a path needs none of all that.
    serve(&lab, "  url: https://devices.example/\n  certificateFile: /etc/host.pem\n  keyFile: /etc/host.key\n");
    lab.run(&["device", "join", "press-01", "--out", file.to_str().unwrap()]).good();
    let join = self::join(&file);
    assert_eq!((join.url.as_str(), join.ca), ("https://devices.example/devices/press-01.git", None));
    assert!(repo_git::durable::remove_file(&lab.home.config()).unwrap());
    lab.run(&["device", "join", "press-01", "--out", file.to_str().unwrap()]).good();
    let join = self::join(&file);
    assert_eq!(
        (Path::new(&join.url), join.ca, join.account),
        (&*fs::canonicalize(lab.repo("press-01")).unwrap(), None, None)
    );
}

#[test]
fn a_join_file_made_anew_ends_the_one_that_was_lost() {
    let lab = hosted();
    let file = lab.dir().join("press.json");
    let out = file.to_str().unwrap();
    let made = |args: &[&str]| {
        lab.run(&[&["device"], args, &["press-01", "--out", out]].concat()).good();
        bearer(&join(&file).account.unwrap().secret)
    };
    let lost = made(&["add"]);
    let used = made(&["join"]);
    let try_all = |wanted: &[(&str, bool)]| {
        // Opened anew each time: what is tested is on the disk.
        let accounts = Accounts::open(lab.home.accounts()).unwrap();
        for (secret, good) in wanted {
            let found = accounts.authenticate(Some(secret));
            assert!(if *good { found.is_ok() } else { found == Err(Denied::Unknown) }, "{found:?}");
        }
        wait_until_noted(&lab, "press-01");
    };
    try_all(&[(&lost, false), (&used, true)]);
    // The device goes on with what it has until it uses the next one, or is shut out at once.
    let next = made(&["join"]);
    try_all(&[(&used, true), (&next, true)]);
    let leaked = made(&["join"]);
    try_all(&[(&leaked, true)]);
    let last = made(&["join", "--at-once"]);
    try_all(&[(&leaked, false), (&last, true)]);
    let said = lab.run(&["device", "join", "nobody"]).failed(1);
    assert!(said.contains("there is no device `nobody`") && said.contains("hint: add it first"), "{said}");
}

#[test]
fn a_secret_is_shown_once_or_written_for_its_owner() {
    let lab = Lab::new();
    let ran = lab.run(&["account", "add", "audit", "--role", "auditor"]);
    assert!(ran.err.contains("isn't shown again"), "{}", ran.err);
    let shown = ran.good();
    let accounts = Accounts::open(lab.home.accounts()).unwrap();
    assert_eq!(accounts.authenticate(Some(&bearer(&shown))).unwrap().name.as_str(), "audit");
    wait_until_noted(&lab, "audit");
    let file = lab.dir().join("olga.secret");
    let ran = lab.run(&[
        "account",
        "add",
        "olga",
        "--role",
        "operator",
        "--ttl",
        "never",
        "--secret-file",
        file.to_str().unwrap(),
    ]);
    let written = fs::read_to_string(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!((ran.out.as_str(), ran.code), ("", Some(0)));
    let list = lab.run(&["account", "list"]).good();
    let line = |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("olga").contains("operator") && line("olga").contains("never"), "{list}");
    assert!(!list.contains(shown.trim()) && !list.contains(written.trim()), "{list}");
    let said = lab.run(&["account", "rotate", "olga", "--output", "json"]).good();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((said["user"].as_str(), &said["expires"]), (Some("olga"), &Value::Null));
    let made: jiff::Timestamp = said["endedUnused"].as_str().unwrap().parse().unwrap();
    assert!(made <= jiff::Timestamp::now());
    let again = lab.run(&["account", "rotate", "olga", "--at-once"]);
    assert!(!again.err.contains("never used"), "{}", again.err);
    let again = lab.run(&["account", "rotate", "olga"]);
    assert!(again.err.contains("was never used, and has ended"), "{}", again.err);
    assert_eq!(lab.run(&["account", "revoke", "olga"]).good(), "olga is revoked\n");
    assert_eq!(lab.run(&["account", "revoke", "olga"]).good(), "olga was revoked before\n");
    let json: Value = serde_json::from_str(&lab.run(&["account", "list", "--output", "json"]).good()).unwrap();
    let states: Vec<_> =
        json["accounts"].as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["in use", "revoked"]);
    assert!(!json.to_string().contains("sha256"), "{json}");
}

#[test]
fn errors_about_accounts_say_what_to_do() {
    let lab = hosted();
    let failed = |args: &[&str]| lab.run(args).failed(1);
    lab.run(&["device", "add", "press-01"]).good();
    assert!(
        failed(&["account", "add", "press-01", "--role", "auditor"])
            .contains("hint: give it a new secret: account rotate press-01")
    );
    assert!(failed(&["account", "rotate", "nobody"]).contains("hint: see `account list`"));
    lab.run(&["account", "revoke", "press-01"]).good();
    assert!(failed(&["device", "join", "press-01"]).contains("hint: make it anew: account add press-01"));
    lab.run(&["account", "add", "press-01", "--role", "device", "--device", "press-01"]).good();
    lab.run(&["device", "join", "press-01"]).good();
    let said = failed(&["account", "add", "x", "--role", "device", "--device", "press-01"]);
    assert!(said.contains("is called `press-01`"), "{said}");
    lab.run(&["account", "add", "Olga", "--role", "auditor"]).failed(2);
    lab.run(&["account", "add", "press-02", "--role", "auditor"]).good();
    assert!(failed(&["device", "add", "press-02"]).contains("hint: choose another id for the device"));
    // One that can't be read is told, and the others are listed.
    fs::set_permissions(lab.home.accounts().join("press-02.json"), fs::Permissions::from_mode(0o640)).unwrap();
    let ran = lab.run(&["account", "list"]);
    assert!(ran.out.contains("press-01") && !ran.out.contains("press-02"), "{}", ran.out);
    let said = ran.failed(1);
    assert!(said.contains("chmod 600") && said.contains("hint: it is denied until then"), "{said}");
    let config = "serve:\n  names: [elsewhere.example]\n";
    lab.home.write(&lab.home.config(), config.as_bytes(), 0o600).unwrap();
    let said = failed(&["device", "join", "press-01"]);
    assert!(
        said.contains("may not vouch for `elsewhere.example`") && said.contains("hint: remove the home's"),
        "{said}"
    );
}

#[test]
fn a_new_fleet_with_a_host_has_an_authority_and_its_settings() {
    let lab = Lab::new();
    let args = [
        "init",
        "plant",
        "--registry",
        "registry.example",
        "--host",
        "wfm.example",
        "--host",
        "::1",
        "--listen",
        "[::]:9443",
    ];
    lab.run_in(lab.dir(), &args).good();
    let home = lab.dir().join("plant.wfm");
    assert!(home.join("ca/ca.pem").is_file());
    let run = |args: &[&str]| lab.run_in(lab.dir(), &[&["-C", "plant"], args].concat());
    run(&["device", "add", "press-01"]).good();
    assert_eq!(join(&home.join("join/press-01.json")).url, "https://wfm.example:9443/devices/press-01.git");
    let said = lab.run_in(lab.dir(), &["init", "other", "--host", "https://wfm.example"]).failed(2);
    assert!(said.contains("is no host name"), "{said}");
}
