//! Secret keys are in the home's `keys` and nowhere else.

use std::fs;
use std::path::{Path, PathBuf};

use repo_testkit::git::git;
use serde_json::Value;
use wfm_git_host::accounts::Role;

use crate::host::{Login, Site, eventually};
use crate::support::Lab;

/// Every line of a private key that could give something away.
fn secrets(lab: &Lab) -> Vec<String> {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap();
    let text = read(lab.home.root_key()) + &read(lab.home.publisher_key());
    // The first line is the same in every key, the second holds the public half.
    let lines = text.lines().filter(|line| !line.contains("-----"));
    let lines: Vec<_> = lines.map(str::to_owned).collect();
    lines.chunks(lines.len() / 2).flat_map(|key| key[2..].to_vec()).collect()
}

/// Every byte that lies about: files outside `keys`, and each object of each repository.
fn everything(lab: &Lab) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let mut open = vec![lab.fleet.clone(), lab.home.root().to_owned()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() && entry != lab.home.keys() {
                open.push(entry);
            } else if entry.is_file() {
                all.push((entry.display().to_string(), fs::read(&entry).unwrap()));
            }
        }
    }
    for repo in [lab.fleet.clone(), lab.home.control(), lab.repo("press-01")] {
        all.extend(objects(&repo));
    }
    all
}

fn objects(repo: &Path) -> Vec<(String, Vec<u8>)> {
    let all = git(repo, &["cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)"]);
    let read = |line: &str| {
        let (kind, name) = line.split_once(' ').unwrap();
        let output = repo_testkit::git::try_git(repo, &["cat-file", kind, name]);
        (format!("{} {line}", repo.display()), output.stdout)
    };
    all.lines().map(read).collect()
}

fn leaks(lab: &Lab) -> Vec<String> {
    let secrets = secrets(lab);
    let leaked = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        secrets.iter().any(|secret| text.contains(secret))
    };
    everything(lab).into_iter().filter(|(_, bytes)| leaked(bytes)).map(|(name, _)| name).collect()
}

#[test]
fn no_secret_key_leaves_its_place() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    assert!(secrets(&lab).len() >= 4);
    assert_eq!(leaks(&lab), Vec::<String>::new());
    // The search finds what it looks for.
    let key = fs::read(lab.home.publisher_key()).unwrap();
    lab.write("devices/planted.txt", &key);
    lab.commit();
    assert_eq!(leaks(&lab).len(), 2, "the file and its blob");
}

#[test]
fn only_the_owner_can_read_the_home() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::new();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(lab.home.root()), 0o700);
    for key in [lab.home.root_key(), lab.home.publisher_key()] {
        assert_eq!(mode(&key), 0o600);
    }
    lab.run(&["device", "add", "press-01"]).good();
    assert_eq!(mode(&lab.home.join(&"press-01".parse().unwrap())), 0o600);
    fs::set_permissions(lab.home.publisher_key(), fs::Permissions::from_mode(0o644)).unwrap();
    let said = lab.run(&["publish"]).failed(1);
    assert!(said.contains("chmod 600"), "{said}");
}

#[test]
fn no_secret_of_an_account_or_of_the_host_leaves_its_place() {
    let site = Site::new();
    let file = site.lab.dir().join("join.json");
    let said = site.lab.run(&["device", "join", "press-01", "--out", file.to_str().unwrap()]).good();
    let join: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let secret = |value: &Value| value["secret"].as_str().unwrap().to_owned();
    let device = Login { name: "press-01".to_owned(), secret: secret(&join["account"]) };
    assert!(eventually(|| site.get("/account", Some(&device)).status == 200));
    let auditor = site.login("audit", Role::Auditor, None);
    site.clone(&device, "devices/press-01.git", "a");
    site.clone(&auditor, "control.git", "b");
    let renewed = site.request("POST /account/renew HTTP/1.1", Some(&device), b"");
    let renewed: Value = serde_json::from_str(renewed.text().trim()).unwrap();
    let listed = site.lab.run(&["account", "list", "--output", "json"]).good();
    let mut secrets = vec![device.secret, auditor.secret, secret(&renewed)];
    for key in ["ca.key", "server.key"] {
        let text = fs::read_to_string(site.lab.home.ca().join(key)).unwrap();
        secrets.push(text.lines().nth(1).unwrap().to_owned());
    }
    let (lab, log) = site.stop();
    let said = [("the log", log), ("device join", said), ("account list", listed)];
    let said = said.into_iter().map(|(name, text)| (name.to_owned(), text.into_bytes()));
    let found = |(_, bytes): &(String, Vec<u8>)| {
        let text = String::from_utf8_lossy(bytes);
        secrets.iter().any(|secret| text.contains(secret))
    };
    let mut leaks: Vec<_> = everything(&lab).into_iter().chain(said).filter(found).map(|(name, _)| name).collect();
    leaks.sort();
    // The search finds what it looks for, where it belongs.
    let home = ["ca.key", "server.key"].map(|key| lab.home.ca().join(key).display().to_string());
    assert_eq!(leaks, home);
}
