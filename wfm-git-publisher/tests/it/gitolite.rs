//! A customer's host: real gitolite 3 over SSH, where the example of a `provision` command makes repositories and rights.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use repo_testkit::git::{self, git};
use repo_testkit::gitolite::Gitolite;
use repo_testkit::ssh_client::SshClient;
use repo_testkit::ssh_key::{keygen, public};

use crate::remote::{assert_same, greet, said, stranger, write};
use crate::support::Lab;

/// A fleet whose devices log in at gitolite with keys of their own.
struct Site {
    lab: Lab,
    host: Gitolite,
}

impl Site {
    fn new(devices: &[&str]) -> Self {
        let site = Self { lab: Lab::with(devices), host: Gitolite::start() };
        devices.iter().for_each(|device| site.give_key(device, &format!("key-of-{device}")));
        site.lab.commit();
        let url = site.host.url("fleet/{device}");
        let config = site.host.admin().config();
        let ssh = format!("ssh -F {}", config.display());
        let provision = [&script(), &site.host.url("gitolite-admin"), "admin", &site.clone(), &ssh];
        let lines = format!(
            "remote:\n  url: {url}\n  sshCommand: [ssh, -F, {}]\n  provision: {}\n",
            config.display(),
            serde_json::json!(provision)
        );
        fs::write(site.lab.home.config(), lines).unwrap();
        site
    }

    /// Writes a new key into the device's file, in the place of what was there.
    fn give_key(&self, device: &str, name: &str) {
        keygen(&self.key(name), "ed25519", "");
        let key = public(&self.key(name));
        let file = format!("devices/{device}.yaml");
        let text = self.lab.read(&file);
        let text = text.split("\nsshKeys:").next().unwrap().trim_end().to_owned();
        self.lab.write(&file, format!("{text}\nsshKeys:\n  - {key}\n"));
    }

    fn clone(&self) -> String {
        self.lab.dir().join("gitolite-admin").to_str().unwrap().to_owned()
    }

    /// The key that was made under this name.
    fn key(&self, name: &str) -> PathBuf {
        self.lab.dir().join(format!("keys-{name}"))
    }

    /// What git says to somebody with this key, in a directory.
    fn git(&self, directory: &Path, key: &str, args: &[&str]) -> Output {
        SshClient::new(self.host.sshd(), &self.key(key)).git(directory).args(args).output().unwrap()
    }

    fn commits(&self) -> usize {
        git(&self.host.repository("gitolite-admin"), &["rev-list", "--count", "master"]).parse().unwrap()
    }

    #[track_caller]
    fn assert_same(&self, device: &str) {
        assert_same(&self.lab, device, &self.host.repository(&format!("fleet/{device}")));
    }
}

fn script() -> String {
    repo_testkit::root().join("docs/gitolite/provision").to_str().unwrap().to_owned()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn from_the_publisher_through_gitolite_to_stock_git_with_the_devices_key_and_back() {
    let site = Site::new(&["press-01", "packer-01"]);
    let outcome = site.lab.publish_all();
    assert_eq!(outcome.pushed(), 2, "both repositories were made");
    ["press-01", "packer-01"].iter().for_each(|device| site.assert_same(device));

    let url = site.host.url("fleet/press-01");
    let cloned = site.git(site.lab.dir(), "key-of-press-01", &["clone", "-q", "-b", "desired", &url, "device"]);
    assert!(cloned.status.success(), "{}", text(&cloned));
    let device = site.lab.dir().join("device");
    assert!(device.join("envelope.json").exists());
    let own = |args: &[&str]| site.git(&device, "key-of-press-01", args);
    for (branch, may) in
        [("status", true), ("heartbeat", true), ("desired", false), ("bundle", false), ("other", false)]
    {
        git(&device, &["checkout", "-q", "--orphan", &format!("of-{branch}")]);
        git(&device, &["commit", "-q", "--allow-empty", "-m", branch]);
        let pushed = own(&["push", "-f", "origin", &format!("HEAD:refs/heads/{branch}")]);
        assert_eq!(pushed.status.success(), may, "{branch}: {}", text(&pushed));
    }
    // The heartbeat is replaced, and what was reported stays.
    git(&device, &["commit", "-q", "--amend", "--allow-empty", "-m", "another"]);
    assert!(own(&["push", "-f", "origin", "HEAD:refs/heads/heartbeat"]).status.success());
    assert!(!own(&["push", "-f", "origin", "HEAD:refs/heads/status"]).status.success());
    site.assert_same("press-01");
    // Nobody sees another device's repository.
    let other = site.git(site.lab.dir(), "key-of-packer-01", &["ls-remote", &url]);
    assert!(!other.status.success() && text(&other).contains("DENIED"), "{}", text(&other));

    greet(&site.lab, "hello again");
    assert_eq!(site.lab.publish_all().pushed(), 1);
    site.assert_same("press-01");
    let table = site.lab.run(&["status"]).good();
    assert!(table.contains("doubtful"), "what the device pushed isn't signed, and is fetched all the same: {table}");
    assert!(git::tip(&site.lab.repo("press-01"), "status").is_some());
}

#[test]
fn a_fresh_home_adopts_what_gitolite_has_and_a_stranger_there_is_reclaimed() {
    let site = Site::new(&["press-01"]);
    site.lab.publish_all();
    let tip = site.lab.tip("press-01", "desired");
    fs::remove_dir_all(site.lab.repo("press-01")).unwrap();
    assert_eq!(site.lab.publish_all().published(), 0, "what the host has means the same");
    assert_eq!(site.lab.tip("press-01", "desired"), tip);

    let foreign = write(&site.host.repository("fleet/press-01"), "desired", &stranger(), "I am the publisher now");
    greet(&site.lab, "with a stranger around");
    assert!(said(&site.lab.publish(), "press-01").contains(&foreign));
    site.lab.run(&["publish", "--reclaim", "press-01"]).good();
    site.assert_same("press-01");
}

#[test]
fn the_command_runs_when_keys_change_when_a_repository_is_gone_and_when_a_device_leaves_and_else_never() {
    let site = Site::new(&["press-01", "packer-01"]);
    site.lab.publish_all();
    let begin = site.commits();
    site.lab.publish_all();
    assert_eq!(site.commits(), begin, "nothing changed");
    // What earlier passes know of it can be lost: told the same again, the command changes nothing.
    fs::remove_file(site.lab.home.index().join("provisioned")).unwrap();
    site.lab.publish_all();
    assert_eq!(site.commits(), begin);

    let url = site.host.url("fleet/press-01");
    let may = |key: &str| site.git(site.lab.dir(), key, &["ls-remote", &url]).status.success();
    site.give_key("press-01", "new-key");
    site.lab.commit();
    site.lab.publish_all();
    assert_eq!(site.commits(), begin + 1);
    assert!(may("new-key") && !may("key-of-press-01"));

    // The administrator lost it; gitolite makes repositories only when its configuration is compiled.
    fs::remove_dir_all(site.host.repository("fleet/packer-01")).unwrap();
    let text = said(&site.lab.publish(), "packer-01");
    assert!(text.contains("refuses: "), "{text}");

    site.lab.remove("devices/press-01.yaml");
    site.lab.commit();
    site.lab.run(&["publish", "packer-01"]);
    assert!(may("new-key"), "only a whole publish knows who left");
    site.lab.publish();
    assert!(!may("new-key"));
    assert!(site.host.repository("fleet/press-01").exists(), "what the device said stays");
}

#[test]
fn many_at_once_and_another_administrator_don_t_get_into_each_others_way() {
    let devices: Vec<String> = (0..3).map(|number| format!("press-{number:02}")).collect();
    let names: Vec<&str> = devices.iter().map(String::as_str).collect();
    let site = Site::new(&names);
    let admin = site.lab.dir().join("other-administrator");
    let by_admin = |directory: &Path, args: &[&str]| site.host.admin().git(directory).args(args).output().unwrap();
    let cloned = by_admin(site.lab.dir(), &["clone", "-q", &site.host.url("gitolite-admin"), "other-administrator"]);
    assert!(cloned.status.success(), "{}", text(&cloned));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..3 {
                fs::write(admin.join("README"), number.to_string()).unwrap();
                git(&admin, &["add", "README"]);
                git(&admin, &["commit", "-q", "-m", "by hand"]);
                for _ in 0..20 {
                    if by_admin(&admin, &["push", "-q"]).status.success() {
                        break;
                    }
                    by_admin(&admin, &["pull", "-q", "--rebase"]);
                }
            }
        });
        // A second publisher's machine has a clone of its own.
        scope.spawn(|| {
            for device in &names {
                let ran = provision(&site, device, &site.lab.dir().join("second-clone"), &[]);
                assert!(ran.status.success(), "{}", text(&ran));
            }
        });
        site.lab.publish_all();
    });
    names.iter().for_each(|device| site.assert_same(device));
    let log = git(&site.host.repository("gitolite-admin"), &["log", "--format=%s", "master"]);
    assert_eq!(log.matches("by hand").count(), 3, "{log}");
}

/// Runs the script as the publisher does, with more variables.
fn provision(site: &Site, device: &str, clone: &Path, more: &[(&str, &str)]) -> Output {
    let key = public(&site.key(&format!("key-of-{device}")));
    let key = key.rsplit_once(' ').unwrap().0.to_owned();
    let mut command = Command::new(script());
    command.arg(site.host.url("gitolite-admin")).arg("admin").arg(clone);
    command.arg(format!("ssh -F {}", site.host.admin().config().display()));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", site.lab.dir());
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").stdin(Stdio::null());
    command.env("WFM_REPOSITORY", device).env("WFM_PATH", format!("fleet/{device}.git"));
    command.env("WFM_PRESENT", "1").env("WFM_SSH_KEYS", key).envs(more.iter().copied());
    command.output().unwrap()
}

#[test]
fn nothing_that_is_more_than_a_name_gets_into_gitolites_configuration() {
    let site = Site::new(&["press-01"]);
    let clone = site.lab.dir().join("by-hand");
    for (name, value) in [
        ("WFM_REPOSITORY", "press-01\n    RW+ = @all"),
        ("WFM_REPOSITORY", "../../x"),
        ("WFM_PATH", "gitolite-admin\n    RW+ = @all"),
        ("WFM_PATH", "fleet/../gitolite-admin"),
        ("WFM_PATH", "-x"),
        ("WFM_SSH_KEYS", "command=\"sh\" ssh-ed25519 AAAA"),
        ("WFM_SITE_KEYS", "j.doe command=\"sh\" ssh-ed25519 AAAA"),
        ("WFM_SITE_KEYS", "../admin ssh-ed25519 AAAA"),
        ("WFM_SITE_KEYS", "@all ssh-ed25519 AAAA"),
    ] {
        let ran = provision(&site, "press-01", &clone, &[(name, value)]);
        assert!(!ran.status.success(), "{name}={value}: {}", text(&ran));
    }
    assert_eq!(site.commits(), 1, "nothing was pushed");
}

#[test]
fn a_person_of_a_site_replaces_site_at_gitolite_and_nothing_else_until_the_account_ends() {
    let site = Site::new(&["press-01", "packer-01"]);
    keygen(&site.key("j.doe"), "ed25519", "");
    let key = public(&site.key("j.doe"));
    let account = ["account", "add", "j.doe", "--role", "site", "--device", "press-01", "--ssh-key", &key];
    site.lab.run(&account).good();
    site.lab.publish_all();
    let url = |device: &str| site.host.url(&format!("fleet/{device}"));
    let here = site.lab.dir();
    let as_person = |args: &[&str]| site.git(here, "j.doe", args);
    let cloned = as_person(&["clone", "-q", "-b", "desired", &url("press-01"), "person"]);
    assert!(cloned.status.success(), "{}", text(&cloned));
    assert!(!as_person(&["ls-remote", &url("packer-01")]).status.success(), "another site's");
    let person = here.join("person");
    let own = |args: &[&str]| site.git(&person, "j.doe", args);
    for branch in ["desired", "bundle", "freshness", "status", "heartbeat", "another", "site"] {
        git(&person, &["checkout", "-q", "--orphan", &format!("of-{branch}")]);
        git(&person, &["commit", "-q", "--allow-empty", "-m", branch]);
        let pushed = own(&["push", "-f", "origin", &format!("HEAD:refs/heads/{branch}")]);
        assert_eq!(pushed.status.success(), branch == "site", "{branch}: {}", text(&pushed));
    }
    git(&person, &["commit", "-q", "--amend", "--allow-empty", "-m", "a newer list"]);
    assert!(own(&["push", "-f", "origin", "HEAD:refs/heads/site"]).status.success());
    let device = site.git(here, "key-of-press-01", &["ls-remote", &url("press-01")]);
    assert!(text(&device).contains("refs/heads/site"), "the device reads it: {}", text(&device));
    git(&person, &["commit", "-q", "--amend", "--allow-empty", "-m", "the device's"]);
    let device = site.git(&person, "key-of-press-01", &["push", "-f", "origin", "HEAD:refs/heads/site"]);
    assert!(!device.status.success(), "and doesn't write it: {}", text(&device));
    let commits = site.commits();
    site.lab.publish_all();
    assert_eq!(site.commits(), commits, "nothing changed");
    site.lab.run(&["account", "revoke", "j.doe"]).good();
    site.lab.publish_all();
    assert!(!as_person(&["ls-remote", &url("press-01")]).status.success(), "the account has ended");
    assert_eq!(
        git(&site.host.repository("gitolite-admin"), &["ls-tree", "-r", "--name-only", "master", "keydir/wfm-site"]),
        ""
    );
}

/// A fleet at plain folders, with this script as its command.
fn scripted(device: &str, script: &str) -> (Lab, PathBuf) {
    let lab = Lab::with(&[device]);
    let (program, place) = (lab.dir().join("provision"), lab.dir().join("remote"));
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let lines = format!(
        "remote:\n  url: {}/{{device}}.git\n  provision: {}\n  provisionTimeout: 2s\n",
        place.display(),
        program.display()
    );
    fs::write(lab.home.config(), lines).unwrap();
    (lab, place)
}

#[test]
fn the_command_is_told_everything_twice_and_gets_nothing_else_of_the_environment() {
    let script = "cat >\"$HOME/told.json\"; env >\"$HOME/env\"; echo >>\"$HOME/runs\"; git init -q --bare --template= \"$WFM_URL\"";
    let (lab, place) = scripted("press-01", script);
    let mut command = lab.command(&["publish"]);
    command.env("GIT_SECRET", "s3cret").env("RUST_LOG", "info").output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&fs::read(lab.dir().join("told.json")).unwrap()).unwrap();
    let url = place.join("press-01.git").to_str().unwrap().to_owned();
    assert_eq!(
        (&told["device"], &told["repository"], &told["url"]),
        (&"press-01".into(), &"press-01".into(), &url.as_str().into())
    );
    assert_eq!(
        (&told["layout"], &told["present"], &told["sshKeys"]),
        (&1.into(), &true.into(), &serde_json::json!([]))
    );
    let right = |name: &str, replace| serde_json::json!({"ref": format!("refs/heads/{name}"), "replace": replace});
    let device = serde_json::json!([right("status", false), right("heartbeat", true)]);
    assert_eq!(told["rights"]["device"], device);
    assert_eq!(told["rights"]["publisher"].as_array().unwrap().len(), 3);
    let given = fs::read_to_string(lab.dir().join("env")).unwrap();
    let mut names: Vec<_> = given.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
    names.sort_unstable();
    let expected = [
        "HOME",
        "PATH",
        "WFM_DEVICE",
        "WFM_PATH",
        "WFM_PRESENT",
        "WFM_REPOSITORY",
        "WFM_SITE_KEYS",
        "WFM_SSH_KEYS",
        "WFM_URL",
    ];
    assert_eq!(names, expected);

    // What it was told once it isn't told again, unless the repository is gone.
    let publish = || {
        // The registry of this fleet is nowhere.
        drop(lab.command(&["publish"]).output().unwrap());
        fs::read_to_string(lab.dir().join("runs")).unwrap().lines().count()
    };
    assert_eq!((publish(), publish()), (1, 1));
    fs::remove_dir_all(&place).unwrap();
    assert_eq!((publish(), publish()), (2, 2));
    assert!(place.join("press-01.git").exists());
}

#[test]
fn a_command_that_fails_or_hangs_is_a_finding_of_its_device_and_stops_no_publish_to_what_is_there() {
    let (lab, place) = scripted("press-01", "echo 'no such \x1b[1mcustomer' >&2; exit 3");
    let text = said(&lab.publish(), "press-01");
    assert!(
        text.contains("the `provision` command failed (exit status: 3): no such") && !text.contains('\x1b'),
        "{text}"
    );
    // Somebody made it by hand.
    let repository = place.join("press-01.git");
    fs::create_dir_all(&repository).unwrap();
    git(&repository, &["init", "-q", "--bare", "--template="]);
    let outcome = lab.publish();
    assert!(said(&outcome, "press-01").contains("exit status: 3"));
    assert_same(&lab, "press-01", &repository);
    let table = lab.run(&["status"]).good();
    assert!(table.contains("not-pushed"), "{table}");

    fs::write(lab.dir().join("provision"), "#!/bin/sh\nsleep 600 & sleep 600\n").unwrap();
    let begin = std::time::Instant::now();
    let text = said(&lab.publish(), "press-01");
    assert!(text.contains("took longer than 2 s") && begin.elapsed().as_secs() < 20, "{text}");
    fs::write(lab.dir().join("provision"), "#!/bin/sh\n:\n").unwrap();
    lab.publish_all();
    assert_same(&lab, "press-01", &repository);
}
