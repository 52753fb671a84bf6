//! `run` follows the fleet repository until it is told to stop.

use repo_model::Trailer;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::support::{Lab, Ran};

pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn start(lab: &Lab, args: &[&str]) -> Self {
        let mut command = lab.command(&[&["run"], args].concat());
        Self(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    /// Asks it to stop; what it said.
    pub(crate) fn stop(mut self) -> Ran {
        let child = self.0.take().unwrap();
        let id = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        Ran::of(child.wait_with_output().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[track_caller]
pub(crate) fn wait_for(what: &str, test: impl Fn() -> bool) {
    assert!(repo_testkit::comes_within(Duration::from_secs(60), test), "{what} took more than a minute");
}

fn published() -> Lab {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    lab
}

#[test]
fn each_new_commit_is_published_and_a_broken_one_ends_nothing() {
    let lab = published();
    let running = Running::start(&lab, &["--log", "json"]);
    // Long before the next poll: the file system tells.
    std::thread::sleep(Duration::from_millis(500));
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    lab.commit();
    wait_for("serial 2", || lab.serial("press-01") == 2);
    let good = lab.read("fleet.yaml");
    lab.write("fleet.yaml", "id: [");
    lab.commit();
    lab.write("fleet.yaml", good.replace("poll: 15s", "poll: 20s"));
    lab.commit();
    wait_for("serial 3", || lab.serial("press-01") == 3);
    let ran = running.stop();
    assert_eq!(ran.code, Some(0));
    for line in ran.err.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    assert!(ran.err.contains("\"message\":\"published\"") && ran.err.contains("stopped"), "{}", ran.err);
}

#[test]
fn a_poll_finds_what_the_file_system_did_not_notify_of() {
    let lab = published();
    repo_git::durable::replace_file(&lab.home.config(), b"poll: 1s\n", 0o600).unwrap();
    let running = Running::start(&lab, &[]);
    std::thread::sleep(Duration::from_millis(500));
    // Not a change of the fleet: a device's repository that was restored.
    let backup = lab.dir().join("backup");
    crate::support::copy(&lab.repo("press-01"), &backup);
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    lab.commit();
    wait_for("serial 2", || lab.serial("press-01") == 2);
    wait_for("the ledger", || lab.ledger("press-01")["state"] == "published");
    crate::support::copy(&backup, &lab.repo("press-01"));
    wait_for("serial 3", || lab.tip("press-01", "desired").is_some() && lab.serial("press-01") == 3);
    assert!(lab.trailer("press-01", Trailer::Continues).ends_with(" 2"));
    assert_eq!(running.stop().code, Some(0));
}
