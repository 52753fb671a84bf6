//! A token whose devices the host takes in by itself: within what the token says, and nothing else.

use std::process::{Child, Stdio};
use std::time::Duration;

use repo_git::SigningKey;
use repo_testkit::fleet::Fleet;
use repo_testkit::host::Host;
use repo_testkit::ports::free_port;
use repo_testkit::{comes_within, git};
use serde_json::json;
use tempfile::TempDir;

use super::token::{key_of, thief, word};
use super::{Site, read, said};
use crate::site::registry_name;

/// A publisher at work, ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A fleet that is hosted where its devices come, without a host at work.
fn hosted() -> Site {
    let dir = TempDir::new().expect("a temporary directory");
    let fleet = Fleet::at(dir.path());
    let mut init = fleet.init_command(&registry_name(dir.path()));
    init.args(["--host", "127.0.0.1", "--listen", &format!("127.0.0.1:{}", free_port()), "--hosted"]);
    repo_testkit::text(init.output().expect("the publisher runs"));
    fleet.push_application();
    let settings = fleet.home().join("publisher.yaml");
    let text = std::fs::read_to_string(&settings).expect("settings");
    std::fs::write(&settings, format!("poll: 1s\n{text}")).expect("written");
    let site = Site { dir, fleet, host: None };
    site.fleet.run(&["enroll", "file", "--out", &site.file().display().to_string()]);
    site
}

/// What is committed in the work tree goes to the hosted fleet, as on the machine itself.
fn push(site: &Site) {
    let bare = site.fleet.home().join("fleet.git").display().to_string();
    git::git(&site.fleet.dir(), &["push", "--quiet", &bare, "HEAD:main"]);
}

fn pull(site: &Site) {
    let bare = site.fleet.home().join("fleet.git").display().to_string();
    git::git(&site.fleet.dir(), &["pull", "--quiet", "--ff-only", &bare, "main"]);
}

fn token(site: &Site, more: &[&str]) -> std::path::PathBuf {
    let out = site.dir.path().join("graz.json");
    let path = out.display().to_string();
    let create = ["token", "create", "graz", "--id", "graz-{serial}", "--out", &path, "--label", "site=graz", "--auto"];
    site.fleet.run(&[&create, more].concat());
    push(site);
    out
}

/// `run`, with what it logs in a file.
fn start(site: &Site) -> Running {
    let log = std::fs::File::create(site.dir.path().join("run.log")).expect("a log");
    let mut command = site.fleet.command(&["run"]);
    Running(command.stdout(Stdio::null()).stderr(log).spawn().expect("the publisher starts"))
}

fn log(site: &Site) -> String {
    std::fs::read_to_string(site.dir.path().join("run.log")).unwrap_or_default()
}

fn until(site: &Site, what: &str, is_so: impl Fn() -> bool) {
    assert!(comes_within(Duration::from_secs(120), is_so), "{what}: {}", log(site));
}

fn heads(site: &Site) -> String {
    git::git(&site.fleet.home().join("fleet.git"), &["rev-parse", "main"])
}

/// A stranger's device with the token, as far as the host's answer.
fn wait(site: &Site, key: &SigningKey, (number, serial): (u8, &str)) -> (u16, String) {
    let (own, claim) = thief(number, serial);
    let (started, reveal) = site.begin_with(&own, claim, Some(("graz", key)));
    site.reveal(&started, &reveal)
}

#[test]
fn devices_of_a_token_that_says_so_are_in_the_fleet_without_a_person_and_run_what_it_says() {
    let site = hosted();
    let file = token(&site, &["--count", "2", "--for", "1h"]);
    let run = start(&site);
    until(&site, "the host listens", || log(&site).contains("listening"));
    let device = site.device("d1");
    until(&site, "it is taken in", || {
        site.enrolling(&device, &file, "PX-1", "2s").output().expect("runs").status.success()
    });
    assert_eq!(read(&device.home().join("join.json"))["device"], "graz-PX-1");
    pull(&site);
    let text = site.fleet.read("devices/enrolled/graz-PX-1.yaml");
    assert!(text.contains("\"site\": \"graz\"") && text.contains("enrolledBy:"), "{text}");
    let made = git::git(&site.fleet.dir(), &["log", "-1", "--format=%s%n%(trailers:key=Enrolled,valueonly)"]);
    assert!(
        made.contains("without a person") && made.contains("graz-PX-1 SHA256:") && made.contains("token graz"),
        "{made}"
    );
    let changed = git::git(&site.fleet.dir(), &["show", "--name-status", "--format=", "HEAD"]);
    assert_eq!(changed, "A\tdevices/enrolled/graz-PX-1.yaml", "nothing else is touched");
    until(&site, "it runs", || {
        device.syncer(&["once"]);
        !device.environments().is_empty()
    });
    git::git(&site.fleet.home().join("fleet.git"), &["fsck", "--strict"]);
    assert!(log(&site).contains("taken in by its token, without a person"));
    drop(run);
}

#[test]
fn more_than_it_is_for_the_same_twice_and_what_signers_want_is_left_to_a_person() {
    let site = hosted();
    let key = key_of(&token(&site, &["--count", "2", "--for", "1h"]));
    site.fleet.run(&["publish"]);
    let serve = |site: &Site| -> Host { site.fleet.serve(&[]) };
    let waits = (202, "{\"wait\":0}\n".to_owned());
    let host = serve(&site);
    for (number, serial) in [(1, "px-1"), (2, "px-2"), (3, "px-3")] {
        assert_eq!(wait(&site, &key, (number, serial)), waits);
    }
    drop(host);
    let before = heads(&site);
    let run = start(&site);
    until(&site, "it says why", || log(&site).contains("3 wait, and it is for 2 more"));
    assert_eq!(heads(&site), before);
    // One of them goes, and there is room.
    site.fleet.run(&["device", "reject", "3"]);
    until(&site, "the two are taken in", || site.pending()["pending"] == json!([]));
    drop(run);
    assert_ne!(heads(&site), before);
    let after = heads(&site);
    let files =
        git::git(&site.fleet.home().join("fleet.git"), &["ls-tree", "-r", "--name-only", "main", "devices/enrolled"]);
    assert_eq!(files, "devices/enrolled/graz-px-1.yaml\ndevices/enrolled/graz-px-2.yaml");
    // It is used up, whoever has it.
    let host = serve(&site);
    site.fleet.try_run(&["publish"]);
    assert_eq!(wait(&site, &key, (9, "px-9")), word("token-full"));
    drop(host);
    assert_eq!(heads(&site), after);
    // Where somebody has to agree to such files, the host agrees to nothing.
    pull(&site);
    let anna = site.dir.path().join("anna");
    let key_of_anna = SigningKey::from_seed(&[77; 32]);
    key_of_anna.save(&anna).expect("saved");
    std::fs::write(anna.with_extension("pub"), key_of_anna.public().to_string()).expect("written");
    site.fleet.replace("tokens/graz.yaml", "count: 2", "count: 4");
    site.fleet.commit("more of them");
    site.fleet.run(&["signers", "init", "--name", "anna", "--key", &anna.display().to_string()]);
    push(&site);
    site.fleet.try_run(&["publish"]);
    let host = serve(&site);
    assert_eq!(wait(&site, &key, (4, "px-4")), waits);
    drop(host);
    let before = heads(&site);
    let run = start(&site);
    until(&site, "it says why", || log(&site).contains("signers.yaml wants somebody to agree"));
    drop(run);
    assert_eq!(heads(&site), before);
    // And only a fleet that is hosted here has such tokens.
    let other = Site::new();
    let out = other.dir.path().join("x.json").display().to_string();
    let create = ["token", "create", "x", "--id", "x-{serial}", "--count", "1", "--for", "1h", "--auto", "--out", &out];
    let refused = other.fleet.try_run(&create);
    assert!(!refused.status.success() && said(&refused).contains("hosts no fleet repository"), "{}", said(&refused));
}
