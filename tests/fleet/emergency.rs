//! The publisher's key and its machine are gone: the roots and audited clones make good for both, and the key that was stolen is
//! refused from then on.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use repo_testkit::git;

use crate::clocks::{drill, forge};
use crate::hosted::{Hosted, ID};

fn greet(hosted: &Hosted, greeting: &str) {
    hosted.fleet.replace("deployments/hello.yaml", "greeting: ", &format!("greeting: {greeting} # was "));
    hosted.fleet.commit(greeting);
}

fn runs_by_and_by(hosted: &Hosted, greeting: &str) {
    hosted.until(greeting, |hosted| {
        hosted.device.syncer(&["once"]);
        hosted.runs(greeting)
    });
}

#[test]
fn the_drill_for_an_emergency() {
    let mut hosted = Hosted::new();
    let dir = hosted.dir.path().to_owned();
    let (home, at) = (hosted.fleet.home(), |name: &str| dir.join(name).display().to_string());
    fs::create_dir(dir.join("stick")).expect("made");
    hosted.fleet.run(&["trust", "offline", &at("stick")]);
    hosted.start_host();
    hosted.adopt_first();
    hosted.device.pass();
    // What an auditor's machine does each day.
    hosted.fleet.run(&["account", "add", "audit", "--role", "auditor", "--secret-file", &at("secret")]);
    let (url, ca) = (format!("https://{}", hosted.address), home.join("ca/ca.pem").display().to_string());
    let copied = ["audit", "clone", &url, &at("clones"), "--secret-file", &at("secret"), "--ca-file", &ca];
    hosted.until("the account is known", |hosted| hosted.fleet.try_run(&copied).status.success());
    fs::copy(home.join("publisher.yaml"), dir.join("publisher.yaml")).expect("copied");
    // What comes after that is lost with the machine; and a thief with its key leads the device on.
    greet(&hosted, "after the clones");
    runs_by_and_by(&hosted, "after the clones");
    hosted.end(0);
    forge(&hosted.fleet, 1, |_| {});
    hosted.start_host();
    hosted.until("the device believes the thief", |hosted| {
        hosted.device.syncer(&["once"]);
        hosted.fleet.status(ID)["adoptedSerial"] == 3
    });
    hosted.end(1);
    let thief = fs::read(home.join("keys/publisher")).expect("a key");
    let old_authority = fs::read(home.join("ca/ca.pem")).expect("an authority");
    fs::rename(&home, dir.join("stolen")).expect("moved");
    fs::rename(hosted.fleet.dir(), dir.join("my-fleet")).expect("moved");
    for (to, name) in [("my-fleet", hosted.fleet.dir()), ("my-fleet.wfm", home.clone())] {
        symlink(dir.join(to), name).expect("linked");
    }
    let told = drill("emergency.md", &dir);
    assert!(told.contains("a home with the repositories of") && told.contains("this home signs with"), "{told}");
    let line = told.lines().find(|line| line.starts_with(&format!("{ID} "))).unwrap_or_else(|| panic!("{told}"));
    assert!(line.contains(" 1 ") && line.ends_with("yes"), "without a ledger all of it is listed: {told}");
    assert_ne!(fs::read(home.join("ca/ca.pem")).expect("an authority"), old_authority);
    assert!(!home.join("keys/publisher.next").exists());
    // The device comes back by itself: other authority, other key, no account, and a state that is newer than the clones.
    hosted.start_host();
    runs_by_and_by(&hosted, "after the clones");
    greet(&hosted, "from the clean machine");
    runs_by_and_by(&hosted, "from the clean machine");
    hosted.until("and says so", |hosted| {
        hosted.device.syncer(&["once"]);
        let status = hosted.fleet.status(ID);
        status["adoptedSerial"].as_u64() > Some(3) && status["doubts"] == serde_json::json!([])
    });
    let repository = hosted.fleet.repository(ID);
    let continues = git::git(&repository, &["log", "--format=%(trailers:key=Continues)", "desired"]);
    assert!(continues.contains("Continues: "), "{continues}");
    assert_eq!(hosted.trouble(), None);
    // Whoever has the old key is believed no more.
    hosted.end(2);
    let key = fs::read(home.join("keys/publisher")).expect("a key");
    fs::write(home.join("keys/publisher"), thief).expect("written");
    forge(&hosted.fleet, 1, |_| {});
    fs::write(home.join("keys/publisher"), key).expect("written");
    let mut serve = hosted.fleet.command(&["serve"]);
    hosted.running.push(serve.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the host starts"));
    hosted.until("it is refused", |hosted| {
        let once = hosted.device.syncer(&["once"]);
        String::from_utf8_lossy(&once.stderr).contains("SignatureInvalid")
    });
    assert!(hosted.runs("from the clean machine"));
}
