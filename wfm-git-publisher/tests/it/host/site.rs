//! Accounts of persons of a site: they push `site` of their devices, and nothing else.

use std::path::PathBuf;
use std::process::Output;

use jiff::{SignedDuration, Timestamp};
use repo_git::SigningKey;
use repo_testkit::git;
use serde_json::{Value, json};
use wfm_git_host::accounts::{Role, Store};

use super::ssh::SshSite;
use super::{DEVICE, Login, OTHER, Report, Site, eventually, said};
use crate::support::Lab;

/// The account of a person whose site has one device.
fn person(site: &Site) -> Login {
    let store = Store::new(site.lab.home.accounts());
    let devices = vec![DEVICE.parse().unwrap()];
    let issued = store.add_for_site(&"j.doe".parse().unwrap(), devices, None, Timestamp::now()).unwrap();
    Login { name: issued.name.to_string(), secret: issued.secret.reveal().to_owned() }
}

/// A person with a clone of their device's repository.
struct Person {
    site: Site,
    login: Login,
    clone: PathBuf,
    key: SigningKey,
}

impl Person {
    fn new() -> Self {
        let site = Site::new();
        let login = person(&site);
        let clone = site.clone(&login, &format!("devices/{DEVICE}.git"), "person");
        Self { site, login, clone, key: SigningKey::generate() }
    }

    fn list(&self, serial: u64) -> Value {
        list(&self.site.lab, serial)
    }

    fn commit(&self, list: &Value, parents: &[&str]) -> String {
        let report = Report { device: DEVICE, kind: "site", parents, signer: Some(&self.key) };
        report.commit_file(&self.site, &self.clone, "site.json", list.to_string().as_bytes())
    }

    fn push(&self, refspec: &str) -> Output {
        let url = self.site.url(&format!("devices/{DEVICE}.git"));
        self.site.run(&self.clone, &self.login, &["push", &url, refspec])
    }

    #[track_caller]
    fn accepted(&self, commit: &str) {
        let pushed = self.push(&format!("+{commit}:refs/heads/site"));
        assert!(pushed.status.success(), "{}", said(&pushed));
        assert_eq!(self.site.lab.tip(DEVICE, "site").as_deref(), Some(commit));
    }

    #[track_caller]
    fn refused(&self, refspec: &str, reason: &str) {
        let before = git::refs(&self.site.lab.repo(DEVICE));
        let pushed = self.push(refspec);
        let text = said(&pushed);
        assert!(!pushed.status.success() && text.contains(reason), "{refspec}: {text}");
        assert_eq!(git::refs(&self.site.lab.repo(DEVICE)), before, "{refspec}");
    }
}

fn list(lab: &Lab, serial: u64) -> Value {
    let fleet = lab.json(DEVICE, "desired", "envelope.json")["fleet"].clone();
    let expires = Timestamp::now() + SignedDuration::from_hours(24);
    json!({"layout": 1, "fleet": fleet, "device": DEVICE, "serial": serial, "expires": expires})
}

#[test]
fn a_person_of_the_site_pushes_site_of_its_devices_and_nothing_else() {
    let person = Person::new();
    let first = person.commit(&person.list(1), &[]);
    person.accepted(&first);
    let second = person.commit(&person.list(2), &[]);
    person.accepted(&second);
    for other in ["desired", "bundle", "freshness", "status", "heartbeat", "main", "site/x"] {
        person.refused(&format!("+{second}:refs/heads/{other}"), "a person of the site may only push refs/heads/site");
    }
    person.refused(":refs/heads/site", "refs/heads/site may not be deleted");
    for elsewhere in [format!("devices/{OTHER}.git"), "fleet.git".to_owned(), "control.git".to_owned()] {
        let found = person.site.get(&format!("/{elsewhere}/info/refs?service=git-upload-pack"), Some(&person.login));
        assert_eq!(found.status, 404, "{elsewhere}");
    }
    assert_eq!(person.site.get("/metrics", Some(&person.login)).status, 404);
    // Nobody else does: not the device itself, nor who reads everything.
    let site = &person.site;
    let url = site.url(&format!("devices/{DEVICE}.git"));
    let refspec = format!("+{first}:refs/heads/site");
    let device = site.run(&person.clone, &site.device(), &["push", &url, &refspec]);
    assert!(said(&device).contains("a device may only push"), "{}", said(&device));
    let olga = site.run(&person.clone, &site.login("olga", Role::Operator, None), &["push", &url, &refspec]);
    assert!(!olga.status.success());
    assert_eq!(site.lab.tip(DEVICE, "site"), Some(second.clone()));
    // What the publisher does leaves it where it is.
    site.lab.edit("deployments/hello.yaml", "greeting:", "greeting: new #");
    site.lab.commit();
    site.lab.publish_all();
    assert_eq!(site.lab.tip(DEVICE, "site"), Some(second));
}

#[test]
fn what_no_device_would_believe_is_refused_with_the_reason() {
    let person = Person::new();
    let (good, site) = (person.list(1), &person.site);
    let with = |key: &str, value: Value| {
        let mut list = good.clone();
        list[key] = value;
        person.commit(&list, &[])
    };
    let of = |device: &str, kind: &str, signer: Option<&SigningKey>, path: &str| {
        let report = Report { device, kind, parents: &[], signer };
        report.commit_file(site, &person.clone, path, good.to_string().as_bytes())
    };
    let key = Some(&person.key);
    let parent = person.commit(&good, &[]);
    for (commit, reason) in [
        (of(DEVICE, "site", None, "site.json"), "there is no signature"),
        (of(DEVICE, "status", key, "site.json"), "the trailer `Kind` must stand exactly once, as `site`"),
        (of(OTHER, "site", key, "site.json"), "the trailer `Device` must stand exactly once"),
        (of(DEVICE, "site", key, "list.json"), "`site.json` is missing"),
        (person.commit(&good, &[&parent]), "has no parents"),
        (with("device", OTHER.into()), "for another device or fleet"),
        (with("approvals", json!([{"set": "4be1", "by": "x", "why": "y"}])), "`site.json`: "),
        (with("future", "x".repeat(70_000).into()), "more than the 65536 allowed"),
    ] {
        person.refused(&format!("+{commit}:refs/heads/site"), reason);
    }
    person.accepted(&parent);
}

#[test]
fn a_wait_ends_when_the_sites_list_moves_where_that_was_asked_for() {
    let person = Person::new();
    let (site, auditor) = (&person.site, person.site.login("aud", Role::Auditor, None));
    let device = site.device();
    let nothing = "0".repeat(40);
    std::thread::scope(|scope| {
        let wait = |more: String| {
            let path = format!("{}{more}", site.wait_path());
            let (site, device) = (&person.site, &device);
            scope.spawn(move || site.request(&format!("GET {path} HTTP/1.1\r\nPrefer: wait=20"), Some(device), b""))
        };
        let (with, without) = (wait(format!("&site={nothing}")), wait(String::new()));
        assert!(eventually(|| site.waiters(&auditor) == 2));
        let commit = person.commit(&person.list(1), &[]);
        person.accepted(&commit);
        let answer = with.join().unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let json: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(
            (json["site"].as_str(), json["desired"].as_str()),
            (Some(&*commit), site.lab.tip(DEVICE, "desired").as_deref())
        );
        assert_eq!(without.join().unwrap().status, 204, "it knows of no such branch");
    });
}

#[test]
fn over_ssh_a_person_of_the_site_may_do_the_same() {
    let site = SshSite::new();
    let key = site.key("j.doe");
    let line = repo_testkit::ssh_key::public(&key);
    let add = ["account", "add", "j.doe", "--role", "site", "--device", DEVICE, "--ssh-key", &line];
    site.site.lab.run(&add).good();
    site.site.lab.run(&add).good();
    let other = ["account", "add", "j.doe", "--role", "site", "--device", OTHER, "--ssh-key", &line];
    assert!(site.site.lab.run(&other).err.contains("there is an account `j.doe` already"));
    let dir = site.site.lab.dir().to_owned();
    let url = site.url(&format!("devices/{DEVICE}.git"));
    let cloned = site.git(&dir, &key, &["clone", "-q", &url, "person"]);
    assert!(cloned.status.success(), "{}", said(&cloned));
    let (clone, signer) = (dir.join("person"), SigningKey::generate());
    let report = Report { device: DEVICE, kind: "site", parents: &[], signer: Some(&signer) };
    let bytes = list(&site.site.lab, 1).to_string();
    let commit = report.commit_file(&site.site, &clone, "site.json", bytes.as_bytes());
    let pushed = site.git(&clone, &key, &["push", &url, &format!("+{commit}:refs/heads/site")]);
    assert!(pushed.status.success(), "{}", said(&pushed));
    let refused = site.git(&clone, &key, &["push", &url, &format!("+{commit}:refs/heads/status")]);
    assert!(said(&refused).contains("may only push refs/heads/site"), "{}", said(&refused));
    let hidden = site.git(&clone, &key, &["ls-remote", &site.url(&format!("devices/{OTHER}.git"))]);
    assert!(said(&hidden).contains("not-found"), "{}", said(&hidden));
    let (_, advertisement) = site.session(&key, &format!("devices/{DEVICE}.git"));
    assert!(advertisement.contains("wait-site"), "{advertisement}");
}
