//! A device whose account ended, or was lost at the host, comes back by its key.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use repo_git::SigningKey;
use repo_http::{Agent, Credential, Request, Settings, Url};
use repo_model::enrolment::{Approved, Claim, Kind};
use repo_model::{DeviceId, Digest, json};
use repo_testkit::copy;
use repo_testkit::device::Device;
use repo_testkit::faults::power::{Cut, Experiment, Point, assert_cut, cut_everywhere};
use serde_json::{Value, json};

use super::{Site, names, read, said};
use crate::hosted::{Hosted, ID};

/// The account's file at the host.
fn at_host(hosted: &Hosted) -> PathBuf {
    hosted.fleet.home().join(format!("accounts/{ID}.json"))
}

/// As one step, which the host notices within half a second.
fn replace(path: &Path, text: &[u8]) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("written");
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).expect("set");
    std::fs::rename(&new, path).expect("renamed");
}

/// Whether the host knows this secret of the device no longer.
fn is_out(hosted: &Hosted, secret: &str) -> bool {
    let authority = std::fs::read_to_string(hosted.fleet.home().join("ca/ca.pem")).expect("an authority");
    let agent = Agent::new(&Settings { authorities: vec![authority], ..Settings::default() }).expect("an agent");
    let credential = Credential::Basic { user: ID.to_owned(), secret: secret.to_owned() };
    let url = Url::parse(&format!("https://{}/account", hosted.address)).expect("a URL");
    agent.answer(&Request { credential: &credential, ..Request::get(&url) }).is_ok_and(|answer| answer.status == 401)
}

fn secret(account: &Value) -> String {
    account["current"]["secret"].as_str().expect("a secret").to_owned()
}

#[test]
fn a_device_whose_account_ended_or_was_lost_comes_back_by_its_key_and_by_nobodys_hand() {
    let mut hosted = Hosted::new();
    hosted.start_host();
    hosted.until("the host answers", |hosted| hosted.device.syncer(&["once"]).status.success());
    let path = at_host(&hosted);
    let mut ended = read(&path);
    ended["secrets"][0]["created"] = "2020-01-01T00:00:00Z".into();
    ended["secrets"][0]["expires"] = "2020-01-31T00:00:00Z".into();
    let mut lives = Vec::new();
    for (what, left) in [("it ended", Some(ended.to_string())), ("it was lost", None)] {
        let before = secret(&hosted.account());
        match left {
            Some(text) => replace(&path, text.as_bytes()),
            None => std::fs::remove_file(&path).expect("removed"),
        }
        hosted.until(what, |hosted| {
            hosted.device.pass();
            secret(&hosted.account()) != before
        });
        let (kept, account) = (hosted.account(), read(&path));
        assert_eq!((&kept["next"], &kept["previous"]["secret"]), (&Value::Null, &json!(before)), "{what}");
        let digest = Digest::of(secret(&kept).as_bytes()).to_string();
        assert_eq!(account["secrets"].as_array().map(Vec::len), Some(1), "{what}: {account}");
        assert_eq!(account["secrets"][0]["sha256"], digest.as_str(), "{what}");
        let moment = |key: &str| account["secrets"][0][key].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
        let life = moment("expires").expect("an end").duration_since(moment("created").expect("a beginning"));
        lives.push(life.as_hours() / 24);
        // It goes on as before, and does this once.
        hosted.device.pass();
        assert_eq!(secret(&hosted.account()), secret(&kept), "{what}");
        assert_eq!(hosted.trouble(), None, "{what}");
    }
    assert_eq!(lives, [30, 90], "as long as a person had chosen, where that is known");
    // Nobody had to be asked, and nothing of it is left lying about.
    assert!(!hosted.fleet.home().join("enroll").exists());
    assert!(hosted.fleet.is_clean());
    let status = hosted.fleet.status(ID);
    assert_eq!((&status["doubts"], &status["conditions"]), (&json!([]), &json!([])), "{status}");
}

#[test]
fn a_device_whose_account_was_revoked_stays_out_and_what_runs_goes_on() {
    let mut hosted = Hosted::new();
    hosted.start_host();
    hosted.until("the host answers", |hosted| hosted.device.syncer(&["once"]).status.success());
    hosted.fleet.run(&["account", "revoke", ID]);
    let known = std::fs::read(at_host(&hosted)).expect("an account");
    hosted.until("it is out", |hosted| !hosted.device.syncer(&["once"]).status.success());
    let told = said(&hosted.device.syncer(&["once"]));
    assert!(told.contains("by its key") && told.contains("revoked"), "{told}");
    assert_eq!(hosted.trouble().as_deref(), Some("Stalled Unauthorized"));
    assert_eq!(std::fs::read(at_host(&hosted)).expect("an account"), known, "it is as the operator left it");
    assert!(hosted.device.environments().iter().any(|one| one.contains("hello")), "what ran still does");
}

#[test]
fn whoever_is_not_listed_hears_the_same_whatever_is_there_and_changes_nothing() {
    let site = Site::new();
    let root = site.dir.path().join("real");
    std::fs::create_dir(&root).expect("made");
    let device = Device::join(&site.fleet, "press-02", &root);
    site.fleet.push_application();
    site.fleet.run(&["publish"]);
    let own = SigningKey::load(&device.home().join("status.key")).expect("a key");
    let stranger = SigningKey::generate();
    let accounts = site.fleet.home().join("accounts");
    let all =
        || names(&accounts).iter().map(|name| std::fs::read(accounts.join(name)).expect("there")).collect::<Vec<_>>();
    let before = all();
    let claim = |key: &SigningKey, id: Option<&str>| {
        let key = key.public().to_string().parse().expect("a key");
        let id = id.map(|id| id.parse::<DeviceId>().expect("an id"));
        Claim { id, ..Claim::new(key, Digest::of(b"a secret of its own"), "0") }
    };
    let ask = |key: &SigningKey, claim: &Claim| {
        let claim = String::from_utf8(json::to_bytes(claim)).expect("text");
        let (started, reveal) = site.begin_of(Kind::Known, key, claim, None);
        assert_eq!(started.offer, "", "who is known has all that an offer has");
        (site.reveal(&started, &reveal), site.reveal(&started, &reveal))
    };
    // A stranger for a device that is there, that never was published, and that nobody has; and a device for its neighbour.
    let cases = [(&stranger, Some("press-02")), (&stranger, Some("press-01")), (&stranger, Some("nobody"))];
    for (key, id) in cases.into_iter().chain([(&stranger, None), (&own, Some("press-01")), (&own, None)]) {
        let ((status, body), again) = ask(key, &claim(key, id));
        assert_eq!((status, body.trim()), (403, r#"{"error":"not-listed"}"#), "{id:?}");
        assert_eq!(again.0, 404, "it is revealed once");
    }
    // One that says that it is the listed key, and proves another.
    let (refused, _) = ask(&stranger, &claim(&own, Some("press-02")));
    assert_eq!((refused.0, refused.1.trim()), (403, r#"{"error":"proof"}"#));
    // Another's secret is nobody's second one.
    let other = site.fleet.run(&["account", "add", "auditor-1", "--role", "auditor", "--output", "json"]);
    let other: Value = serde_json::from_str(&other).expect("JSON");
    let taken = Digest::of(other["secret"].as_str().expect("a secret").as_bytes());
    let (refused, _) = ask(&own, &Claim { account: taken, ..claim(&own, Some("press-02")) });
    assert_eq!((refused.0, refused.1.trim()), (400, r#"{"error":"malformed"}"#));
    std::fs::remove_file(accounts.join("auditor-1.json")).expect("removed");
    assert_eq!(all(), before);
    // Enrolments by a code are closed all the while, and the device itself is let in.
    let ((status, body), _) = ask(&own, &claim(&own, Some("press-02")));
    let answer: Approved = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {status} {body}"));
    assert_eq!((answer.device.to_string().as_str(), answer.user.as_str()), ("press-02", "press-02"));
    assert_eq!(answer.floor.serial, 1);
    assert_ne!(all(), before);
    // Of one that left the fleet, also where the host lost its account.
    let file = site.fleet.dir().join("devices/press-02.yaml");
    let text = std::fs::read(&file).expect("there");
    std::fs::remove_file(&file).expect("removed");
    site.fleet.commit("press-02 leaves");
    site.fleet.run(&["publish"]);
    std::fs::remove_file(accounts.join("press-02.json")).expect("removed");
    let (refused, _) = ask(&own, &claim(&own, Some("press-02")));
    assert_eq!((refused.0, refused.1.trim()), (403, r#"{"error":"revoked"}"#));
    std::fs::write(&file, text).expect("written");
    site.fleet.commit("press-02 is back");
    site.fleet.run(&["publish"]);
    // A key that another one replaced is a stranger's.
    let next = site.dir.path().join("next");
    std::fs::create_dir(&next).expect("made");
    let newer = Device::at("press-02", &next);
    let join = site.fleet.join_file("press-02").display().to_string();
    let line = newer.syncer(&["init", "--join", &join]);
    let line = String::from_utf8(line.stdout).expect("text");
    site.fleet.run(&["device", "enroll", "press-02", line.trim(), "--replace"]);
    site.fleet.run(&["publish"]);
    let ((status, body), _) = ask(&own, &claim(&own, Some("press-02")));
    assert_eq!((status, body.trim()), (403, r#"{"error":"not-listed"}"#));
}

#[test]
fn power_cuts_of_a_return_leave_a_device_that_comes_back_with_its_next_pass() {
    let mut hosted = Hosted::new();
    hosted.start_host();
    hosted.until("the host answers", |hosted| hosted.device.syncer(&["once"]).status.success());
    let template = hosted.dir.path().join(ID);
    let before = secret(&hosted.account());
    let path = at_host(&hosted);
    let prepare = |root: &Path| {
        _ = std::fs::remove_file(&path);
        copy(&template, &root.join(ID));
        hosted.until("the account is gone", |hosted| is_out(hosted, &before));
    };
    let check = |root: &Path, _: Option<&Point>, when: &str| {
        let device = Device::at(ID, &root.join(ID));
        let output = device.syncer(&["once"]);
        assert!(output.status.success(), "{when}: {}", said(&output));
        let kept = read(&device.home().join("account.json"));
        assert!(kept["next"].is_null(), "{when}");
        assert_ne!(secret(&kept), before, "{when}");
        let digest = Digest::of(secret(&kept).as_bytes()).to_string();
        let account = read(&path);
        assert_eq!(account["secrets"][0]["sha256"], digest.as_str(), "{when}: {account}");
    };
    let command = |root: &Path| Device::at(ID, &root.join(ID)).once();
    let experiment = Experiment {
        deed: "a return",
        prepare: &prepare,
        command: &command,
        check: &check,
        cut: Cut::Power,
        occurrences: 2,
    };
    let cut = cut_everywhere(&experiment).expect("the cuts are made");
    assert_cut(&cut, &["file.data", "file.rename", "file.dir"]);
}
