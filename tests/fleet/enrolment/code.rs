//! A device that shows a code, and the person who reads it.

use std::fs::File;
use std::time::{Duration, Instant};

use repo_http::{Credential, Request};
use repo_model::Digest;
use repo_testkit::device::Device;
use repo_testkit::{comes_within, git};
use serde_json::Value;

use super::{Enrolling, Site, names, read, said};
use crate::clocks::with_clock;

#[test]
fn a_device_that_nobody_knew_is_approved_by_its_code_and_is_what_a_join_file_makes() {
    let site = Site::new();
    let device = site.device("press-07");
    let file = site.file().display().to_string();
    let closed = device.syncer(&["enroll", "--from", &file, "--for", "2s"]);
    assert_eq!(closed.status.code(), Some(1));
    assert!(said(&closed).contains("enroll open --for 8h"), "{}", said(&closed));
    let site = site.open();
    let mut enrolling = site.enroll(&device);
    let code = enrolling.says("code");
    let pending = site.pending();
    let one = &pending["pending"][0];
    assert_eq!((one["number"].as_u64(), one["address"].as_str()), (Some(1), Some("127.0.0.1")));
    assert!(!pending.to_string().contains(&code), "whoever looks at the list compares nothing");
    let waits = "\nwaiting to be enrolled: 1 device (wfm-git-publisher device pending)";
    assert!(site.fleet.run(&["status"]).contains(waits));
    let before = git::git(&site.fleet.dir(), &["rev-parse", "HEAD"]);
    let wrong = site.fleet.try_run(&["device", "approve", "K4TX-9QHM", "--id", "press-07"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(said(&wrong).contains("no device that waits here shows the code K4TX-9QHM"), "{}", said(&wrong));
    assert!(!device.home().join("join.json").exists() && !site.fleet.repository("press-07").exists());
    let typed = code.to_lowercase().replace('-', "");
    let approve = ["device", "approve", &typed, "--id", "press-07", "--label", "site=graz"];
    site.fleet.run(&approve);
    let status: Value = serde_json::from_str(&site.fleet.run(&["status", "--output", "json"])).expect("JSON");
    assert_eq!(status["pending"], 0, "a person said it");
    assert_eq!(enrolling.says("device"), "press-07");
    assert_eq!(enrolling.ends(), Some(0));
    // One commit, which says by what.
    let commits = git::git(&site.fleet.dir(), &["log", "--format=%B", &format!("{before}..HEAD")]);
    let count = git::git(&site.fleet.dir(), &["rev-list", "--count", &format!("{before}..HEAD")]);
    assert_eq!(count, "1");
    assert!(commits.contains("Enrolled: press-07 SHA256:") && commits.contains("Transcript: "), "{commits}");
    assert!(site.fleet.is_clean());
    // Said again, it says the same, and changes nothing.
    let again: Vec<_> = approve.iter().chain(&["--output", "json"]).copied().collect();
    let again: Value = serde_json::from_str(&site.fleet.run(&again)).expect("JSON");
    assert_eq!((&again["wasThere"], &again["file"]), (&true.into(), &"devices/press-07.yaml".into()));
    assert_eq!(git::git(&site.fleet.dir(), &["rev-list", "--count", &format!("{before}..HEAD")]), "1");
    // The host has no secret of it, and the device all that a join makes.
    let secret = read(&device.home().join("account.json"))["current"]["secret"].as_str().expect("a secret").to_owned();
    let account = std::fs::read_to_string(site.fleet.home().join("accounts/press-07.json")).expect("an account");
    assert!(account.contains(&Digest::of(secret.as_bytes()).to_string()) && !account.contains(&secret));
    let joined = site.dir.path().join("other");
    std::fs::create_dir(&joined).expect("made");
    let other = Device::join(&site.fleet, "press-02", &joined);
    assert_eq!(names(&device.home()), names(&other.home()));
    let keys = |device: &Device| {
        let join = read(&device.home().join("join.json"));
        join.as_object().expect("an object").keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(keys(&device), keys(&other));
    // It runs what is published for it, and what it says is believed.
    site.fleet.push_application();
    site.fleet.run(&["publish"]);
    device.pass();
    device.pass();
    let runs = device.environments();
    assert!(runs.iter().any(|environment| environment.contains("hello from the press")), "{runs:?}");
    assert_eq!(site.fleet.status("press-07")["device"], "press-07");
    let taken = device.syncer(&["enroll", "--from", &file]);
    assert!(said(&taken).contains("belongs to device `press-07` already"), "{}", said(&taken));
}

#[test]
fn a_power_cut_of_device_or_host_changes_no_code_that_somebody_may_have_read() {
    let mut site = Site::new().open();
    let device = site.device("press-01");
    let mut enrolling = site.enroll(&device);
    let code = enrolling.says("code");
    let key = std::fs::read(device.home().join("status.key")).expect("a key");
    enrolling.kill();
    if let Some(mut host) = site.host.take() {
        host.kill();
    }
    site.start();
    let mut enrolling = site.enroll(&device);
    assert_eq!(enrolling.says("code"), code);
    enrolling.kill();
    site.fleet.run(&["device", "approve", &code, "--id", "line/press-01"]);
    // A syncer that isn't joined yet does nothing.
    let early = device.syncer(&["once"]);
    assert!(!early.status.success() && said(&early).contains("is not a device's home"), "{}", said(&early));
    let mut enrolling = site.enroll(&device);
    assert_eq!((enrolling.says("code"), enrolling.says("device")), (code, "line/press-01".to_owned()));
    assert_eq!(enrolling.ends(), Some(0));
    assert_eq!(std::fs::read(device.home().join("status.key")).expect("a key"), key);
    // Between the last two steps.
    std::fs::write(device.home().join("enrol.json"), r#"{"layout":1,"file":"","secret":"x"}"#).expect("written");
    let mut enrolling = site.enroll(&device);
    assert_eq!((enrolling.says("device"), enrolling.ends()), ("line/press-01".to_owned(), Some(0)));
    assert!(!device.home().join("enrol.json").exists());
}

#[test]
fn a_device_that_is_rejected_hears_of_it_and_a_word_that_was_said_stays() {
    let site = Site::new().open();
    let (one, two) = (site.device("one"), site.device("two"));
    let mut first = site.enroll(&one);
    let code = first.says("code");
    // Whoever watches sees them come, and what becomes of them.
    let mut watch = Enrolling::of(site.fleet.command(&["device", "pending", "--watch", "--output", "json"]));
    let page = site.dir.path().join("watched");
    let mut on_page = site.fleet.command(&["device", "pending", "--watch"]);
    let mut on_page = on_page.stdout(File::create(&page).expect("made")).spawn().expect("it starts");
    let mut event = || {
        let event = watch.document();
        let is_told = event["fingerprint"].as_str().is_some_and(|key| key.starts_with("SHA256:"));
        assert!(is_told && event["apiVersion"] == "v1", "{event}");
        (event["event"].clone(), event["number"].clone(), event["device"].clone())
    };
    assert_eq!(event(), ("waiting".into(), 1.into(), Value::Null));
    let mut second = site.enroll(&two);
    let kept = second.says("code");
    assert_ne!(code, kept);
    assert_eq!(event(), ("waiting".into(), 2.into(), Value::Null));
    assert!(said(&site.fleet.try_run(&["device", "reject", "7"])).contains("no such device waits"));
    site.fleet.run(&["device", "reject", "1"]);
    assert_eq!(first.ends(), Some(1));
    let late = site.fleet.try_run(&["device", "approve", &code, "--id", "press-01"]);
    assert!(said(&late).contains("was rejected"), "{}", said(&late));
    assert!(!site.fleet.read("devices/press-01.yaml").contains("\nstatusKeys:"));
    site.fleet.run(&["device", "approve", &kept, "--id", "press-01"]);
    assert_eq!((second.says("device"), second.ends()), ("press-01".to_owned(), Some(0)));
    assert_eq!(event(), ("rejected".into(), 1.into(), Value::Null));
    assert_eq!(event(), ("approved".into(), 2.into(), "press-01".into()));
    let watched = || std::fs::read_to_string(&page).expect("text");
    assert!(
        comes_within(Duration::from_secs(60), || watched().contains("\n2 is approved as press-01\n")),
        "{}",
        watched()
    );
    assert!(watched().starts_with("devices may ask ") && watched().contains("\n1 is rejected\n"), "{}", watched());
    on_page.kill().and_then(|()| on_page.wait()).expect("it ends");
    let other = site.fleet.try_run(&["device", "approve", &kept, "--id", "press-02"]);
    assert!(said(&other).contains("was approved as `press-01`"), "{}", said(&other));
    // It asks anew, with another code, and may not have what another device has unless somebody says so.
    let mut again = site.enroll(&one);
    let code = again.says("code");
    let head = git::git(&site.fleet.dir(), &["rev-parse", "HEAD"]);
    let taken = site.fleet.try_run(&["device", "approve", &code, "--id", "press-01"]);
    assert!(
        said(&taken).contains("is enrolled with another key") && said(&taken).contains("device replace press-01 CODE"),
        "{}",
        said(&taken)
    );
    assert_eq!(git::git(&site.fleet.dir(), &["rev-parse", "HEAD"]), head);
    let secret = read(&two.home().join("account.json"))["current"]["secret"].clone();
    let secret = secret.as_str().expect("a secret").to_owned();
    let shown = |secret: &str| {
        let (agent, url) = (site.agent(), site.url("/account"));
        let credential = Credential::Basic { user: "press-01".to_owned(), secret: secret.to_owned() };
        agent.answer(&Request { credential: &credential, ..Request::get(&url) }).expect("an answer").status
    };
    assert_eq!(shown(&secret), 200);
    let stranger = site.fleet.try_run(&["device", "replace", "press-77", &code]);
    assert!(said(&stranger).contains("press-77"), "{}", said(&stranger));
    let replaced = site.fleet.run(&["device", "replace", "press-01", &code]);
    assert!(replaced.contains("press-01 is replaced by SHA256:") && replaced.contains("goes on there"), "{replaced}");
    assert_eq!((again.says("device"), again.ends()), ("press-01".to_owned(), Some(0)));
    let end = Instant::now() + Duration::from_secs(20);
    while shown(&secret) != 401 {
        assert!(Instant::now() < end, "what was there before is still let in");
    }
    // The key of a device that is enrolled is no other device's.
    let copied = site.device("copy");
    std::fs::copy(one.home().join("status.key"), copied.home().join("status.key")).expect("copied");
    let mut copy = site.enroll(&copied);
    let code = copy.says("code");
    assert!(site.pending()["pending"][0]["conflict"].as_str().expect("told").contains("`press-01`"));
    let refused = site.fleet.try_run(&["device", "approve", &code, "--id", "press-09"]);
    assert!(said(&refused).contains("that is the key of `press-01`"), "{}", said(&refused));
}

#[test]
fn a_device_whose_clock_is_wrong_enrols_all_the_same() {
    let site = Site::new().open();
    let device = site.device("press-01");
    let file = site.file().display().to_string();
    let code = std::thread::scope(|scope| {
        let enrolling = scope.spawn(|| {
            let command = device.command(&["enroll", "--from", &file, "--output", "json"]);
            with_clock(&["-f", "1970-01-02 00:00:00"], &command)
        });
        let end = Instant::now() + Duration::from_secs(120);
        let code = loop {
            let kept = std::fs::read(device.home().join("enrol.json")).unwrap_or_default();
            let kept: Value = serde_json::from_slice(&kept).unwrap_or_default();
            if let (Some(code), false) =
                (kept["shown"]["code"].as_str(), site.pending()["pending"] == serde_json::json!([]))
            {
                break code.to_owned();
            }
            assert!(Instant::now() < end && !enrolling.is_finished(), "no code: {kept}");
        };
        site.fleet.run(&["device", "approve", &code, "--id", "press-01"]);
        let output = enrolling.join().expect("it ends");
        assert!(output.status.success(), "{}", said(&output));
        code
    });
    assert!(!code.is_empty() && device.home().join("join.json").exists());
    let issued = read(&device.home().join("join.json"))["issued"].clone();
    assert_eq!(issued, read(&site.file())["issued"], "the floor of time is that of the file, whatever a host says");
}
