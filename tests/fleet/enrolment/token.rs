//! A batch token: fifty devices with nothing typed at any of them, and whoever stole it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_git::SigningKey;
use repo_http::Request;
use repo_model::enrolment::{EnrolmentFile, Kind, Start};
use repo_model::{Digest, json};
use repo_testkit::device::Device;
use repo_testkit::git;
use serde_json::Value;

use super::strangers::fake;
use super::{Enrolling, Site, read, said};

/// How many devices enrol at the same time: the machine has few cores.
const AT_ONCE: usize = 10;

impl Site {
    /// Makes a token and publishes it; its enrolment file.
    pub(super) fn token(&self, name: &str, more: &[&str]) -> PathBuf {
        let out = self.dir.path().join(format!("{name}.json"));
        let template = format!("{name}-{{serial}}");
        let path = out.display().to_string();
        let create = ["token", "create", name, "--id", &template, "--out", &path, "--label", "site=graz"];
        self.fleet.run(&[&create, more].concat());
        self.fleet.run(&["publish"]);
        out
    }

    fn approve(&self, token: &str) -> (Option<i32>, Value) {
        self.approve_with(token, &[])
    }

    fn approve_with(&self, token: &str, more: &[&str]) -> (Option<i32>, Value) {
        let approve = ["device", "approve", "--token", token, "--output", "json"];
        let output = self.fleet.try_run(&[&approve, more].concat());
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_else(|_| said(&output).into()))
    }

    fn head(&self) -> String {
        git::git(&self.fleet.dir(), &["rev-parse", "HEAD"])
    }

    /// A device's own copy of the file, as an image has it, and its enrolment up to the end of this time.
    pub(super) fn enrolling(&self, device: &Device, file: &Path, serial: &str, time: &str) -> Command {
        let own = device.home().join("../enroll.json");
        if !own.exists() {
            std::fs::copy(file, &own).expect("copied");
        }
        let own = own.display().to_string();
        let mut command = device.command(&["enroll", "--from", &own, "--serial", serial, "--for", time]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// What the claims of a thief's devices say.
pub(super) fn thief(number: u8, serial: &str) -> (SigningKey, String) {
    let key = SigningKey::from_seed(&[number; 32]);
    let claim = serde_json::json!({
        "layout": 1, "key": key.public().to_string(), "account": Digest::of(&[number]), "version": "0", "serial": serial,
    });
    let text = String::from_utf8(json::to_bytes(&claim)).expect("text");
    (key, text)
}

pub(super) fn key_of(file: &Path) -> SigningKey {
    let file = EnrolmentFile::parse(&std::fs::read(file).expect("there")).expect("an enrolment file");
    SigningKey::from_openssh(&file.token.expect("a token").key).expect("a key")
}

pub(super) fn word(word: &str) -> (u16, String) {
    (403, format!("{{\"error\":\"{word}\"}}\n"))
}

#[test]
fn fifty_devices_enrol_by_one_token_within_five_minutes_and_nothing_is_typed_at_any_of_them() {
    let site = Site::new();
    let begin = Instant::now();
    let file = site.token("graz", &["--count", "50", "--for", "1h"]);
    let devices: Vec<_> =
        (1..=50).map(|number| (format!("PX-{number:02}"), site.device(&format!("d{number}")))).collect();
    let all = |time: &str| {
        let outputs = devices.chunks(AT_ONCE).flat_map(|some| {
            let run = |(serial, device): &(String, Device)| {
                site.enrolling(device, &file, serial, time).spawn().expect("it starts")
            };
            let running: Vec<_> = some.iter().map(run).collect();
            running.into_iter().map(|child| child.wait_with_output().expect("it ends")).collect::<Vec<_>>()
        });
        outputs.collect::<Vec<_>>()
    };
    for output in all("1s") {
        assert!(said(&output).contains("nobody approved this device in that time"), "{}", said(&output));
        assert!(String::from_utf8_lossy(&output.stdout).contains("device approve --token graz"));
    }
    let pending = site.pending();
    let ids: Vec<_> = pending["pending"].as_array().expect("a list").iter().map(|one| one["device"].clone()).collect();
    assert_eq!(ids.len(), 50, "{pending}");
    assert!(ids.contains(&"graz-PX-07".into()) && pending.to_string().matches("\"problem\":null").count() == 50);
    let before = site.head();
    let (code, done) = site.approve("graz");
    assert_eq!((code, done["approved"].as_array().map(Vec::len)), (Some(0), Some(50)), "{done}");
    // One commit, which says of each by what; the labels are the token's.
    let range = format!("{before}..HEAD");
    assert_eq!(git::git(&site.fleet.dir(), &["rev-list", "--count", &range]), "1");
    let message = git::git(&site.fleet.dir(), &["log", "--format=%(trailers:key=Enrolled)", &range]);
    assert_eq!(message.matches(" token graz").count(), 50, "{message}");
    let text = site.fleet.read("devices/graz-PX-07.yaml");
    assert!(text.contains("\"site\": \"graz\"") && site.fleet.is_clean(), "{text}");
    assert!(text_is_proven(&site, &text), "stock ssh-keygen verifies what the file says");
    assert!(!text_is_proven(&site, &text.replacen("transcript: \"", "transcript: \"00", 1)));
    for output in all("1m") {
        assert!(output.status.success(), "{}", said(&output));
    }
    assert!(begin.elapsed() < Duration::from_secs(300), "{:?}", begin.elapsed());
    for (serial, device) in &devices {
        assert_eq!(read(&device.home().join("join.json"))["device"], format!("graz-{serial}"));
        let own = std::fs::read(device.home().join("../enroll.json")).expect("there");
        assert_eq!(own, site.offer_of(&file), "the token is gone, and nothing else");
        assert!(!device.home().join("enrol.json").exists());
    }
    // Said again, nothing happens; and what is published for them is theirs.
    assert_eq!(site.approve("graz").0, Some(0));
    site.fleet.push_application();
    site.fleet.run(&["publish"]);
    devices[6].1.pass();
    assert!(!devices[6].1.environments().is_empty());
    // The token is used up.
    let (key, claim) = thief(200, "PX-51");
    let (started, reveal) = site.begin_with(&key, claim, Some(("graz", &key_of(&file))));
    assert_eq!(site.reveal(&started, &reveal), word("token-full"));
}

impl Site {
    /// The same file without its token.
    fn offer_of(&self, file: &Path) -> Vec<u8> {
        EnrolmentFile::parse(&std::fs::read(file).expect("there")).expect("an enrolment file").offer()
    }
}

/// Whether `ssh-keygen` verifies the proof that a device's file has, by the key in the token's.
fn text_is_proven(site: &Site, text: &str) -> bool {
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(key)).expect("there");
        serde_json::from_str::<String>(line.trim()).unwrap_or_else(|_| line.trim().to_owned())
    };
    let dir = site.dir.path();
    let token = site.fleet.read("tokens/graz.yaml");
    let key = token.lines().find_map(|line| line.strip_prefix("key: ")).expect("a key");
    std::fs::write(dir.join("signers"), format!("graz {key}\n")).expect("written");
    std::fs::write(dir.join("proof"), value("proof:")).expect("written");
    std::fs::write(dir.join("message"), format!("{} {}\n", value("transcript:"), value("- "))).expect("written");
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-Y", "verify", "-I", "graz", "-n", "wfm-enrol-token", "-f"]).arg(dir.join("signers"));
    command.arg("-s").arg(dir.join("proof")).stdin(std::fs::File::open(dir.join("message")).expect("there"));
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("ssh-keygen runs").success()
}

#[test]
fn a_stolen_token_lets_nobody_in_that_a_person_does_not_see_and_no_more_than_it_is_for() {
    let site = Site::new();
    let file = site.token("graz", &["--count", "2", "--for", "1h"]);
    let key = key_of(&file);
    let wait = |number: u8, serial: &str| {
        let (own, claim) = thief(number, serial);
        let (started, reveal) = site.begin_with(&own, claim, Some(("graz", &key)));
        site.reveal(&started, &reveal)
    };
    let waits = (202, "{\"wait\":0}\n".to_owned());
    assert_eq!(wait(1, "px-1"), waits);
    assert_eq!(wait(2, "px-2"), waits);
    assert_eq!(wait(3, "px-3"), waits);
    // More than it is for: nobody is taken in before a person said who isn't meant.
    let head = site.head();
    let (code, why) = site.approve("graz");
    assert_eq!(code, Some(1));
    let why = why.as_str().expect("an error");
    assert!(
        why.contains("3 devices wait with the token `graz`, and it is for 2 more") && why.contains("token revoke"),
        "{why}"
    );
    assert_eq!(site.head(), head);
    assert!(site.fleet.is_clean() && !site.fleet.repository("graz-px-1").exists());
    // The places for those that wait are bounded, too; the same device again has one.
    assert_eq!(wait(4, "px-4"), waits);
    assert_eq!(wait(4, "px-4"), waits);
    assert_eq!(wait(5, "px-5").0, 429);
    site.fleet.run(&["device", "reject", "1"]);
    site.fleet.run(&["device", "reject", "3"]);
    let gone = site.pending();
    let numbers: Vec<_> =
        gone["pending"].as_array().expect("a list").iter().map(|one| one["number"].as_u64()).collect();
    assert_eq!(numbers.len(), 2, "{gone}");
    // Who counted others than those that wait takes in none.
    for expected in ["1", "3"] {
        let (code, why) = site.approve_with("graz", &["--expect", expected]);
        assert!(code == Some(1) && why.as_str().expect("an error").contains("2 new devices would be"), "{why}");
        assert_eq!(site.head(), head);
    }
    let (code, done) = site.approve_with("graz", &["--expect", "2"]);
    assert_eq!((code, done["approved"].as_array().map(Vec::len)), (Some(0), Some(2)), "{done}");
    assert!(site.fleet.repository("graz-px-2").exists());
    // It is used up from the publish on, also where nothing can be published: here the application isn't in its registry.
    assert!(!site.fleet.try_run(&["publish"]).status.success());
    assert_eq!(wait(9, "px-9"), word("token-full"));
}

#[test]
fn who_can_not_be_told_from_another_is_named_and_left_while_the_others_are_taken_in() {
    let site = Site::new();
    let serials = site.dir.path().join("serials.txt");
    std::fs::write(&serials, "\u{feff}PX-1\r\nPX-2\r\n\r\nPX-7\n").expect("written");
    let some = site.token("some", &["--count", "9", "--for", "1h", "--serials", &serials.display().to_string()]);
    let file = site.token("graz", &["--count", "9", "--for", "1h"]);
    site.fleet.run(&["device", "add", "graz-PX-1"]);
    let wait = |token: &str, file: &Path, number: u8, serial: &str| {
        let (own, claim) = thief(number, serial);
        let (started, reveal) = site.begin_with(&own, claim, Some((token, &key_of(file))));
        assert_eq!(site.reveal(&started, &reveal).0, 202, "{serial}");
    };
    for (number, serial) in
        [(1, "PX-1"), (2, "PX-2"), (3, "PX-2"), (4, "Default string"), (5, "../../fleet"), (6, "PX-6")]
    {
        wait("graz", &file, number, serial);
    }
    wait("some", &some, 7, "PX-8");
    wait("some", &some, 8, "PX-7");
    let shown = site.fleet.run(&["device", "pending"]);
    assert!(shown.contains("NOT: the fleet has a device of that name: devices/graz-PX-1.yaml"), "{shown}");
    let (code, done) = site.approve("graz");
    assert_eq!(code, Some(1));
    let ids: Vec<_> = done["approved"].as_array().expect("a list").iter().map(|one| one["device"].as_str()).collect();
    assert_eq!(ids.len(), 3, "{done}");
    assert!(ids.contains(&Some("graz-..-..-fleet")) && ids.contains(&Some("graz-PX-6")), "{done}");
    assert!(done["approved"].to_string().contains("named by its key"), "{done}");
    let left = done["left"].to_string();
    assert_eq!(left.matches("would be called the same").count(), 2, "{left}");
    let (code, done) = site.approve("some");
    assert_eq!((code, &done["approved"][0]["device"]), (Some(1), &"some-PX-7".into()), "{done}");
    assert!(done["left"].to_string().contains("isn't one of the token's"), "{done}");
    // Once a person said which is wrong, the other one is taken in.
    site.fleet.run(&["device", "reject", "2"]);
    let (_, done) = site.approve("graz");
    assert_eq!(done["approved"][0]["device"], "graz-PX-2", "{done}");
}

#[test]
fn a_token_that_has_ended_or_is_not_the_fleets_vouches_for_nobody_and_its_messages_count_once() {
    let site = Site::new();
    let start = json::to_bytes(&Start { layout: 1, kind: Kind::Token, commitment: Digest::of(b"") });
    let nowhere = (404, "Not Found\n".to_owned());
    let out = site.dir.path().join("early.json").display().to_string();
    site.fleet.run(&["token", "create", "early", "--count", "1", "--for", "1h", "--id", "{serial}", "--out", &out]);
    assert_eq!(site.post("/enroll", &start), nowhere, "it counts once it is published");
    let brief = site.token("brief", &["--count", "5", "--for", "1s"]);
    let graz = site.token("graz", &["--count", "5", "--for", "1h"]);
    let (key, brief_key) = (key_of(&graz), key_of(&brief));
    let code = json::to_bytes(&Start { layout: 1, kind: Kind::Code, commitment: Digest::of(b"") });
    assert_eq!(site.post("/enroll", &code), nowhere, "nobody who shows a code is let in");
    let begin = |number: u8, token: &str, by: &SigningKey| {
        let (own, claim) = thief(number, "PX-1");
        site.begin_with(&own, claim, Some((token, by)))
    };
    let until = read_until(&site, "brief");
    while Timestamp::now() < until {
        std::thread::yield_now();
    }
    let (one, reveal) = begin(1, "brief", &brief_key);
    assert_eq!(site.reveal(&one, &reveal), word("token-ended"));
    assert_eq!(site.reveal(&one, &reveal), nowhere, "once");
    // No such token, and another's key: who has none learns of none.
    for (name, by) in [("linz", &key), ("graz", &brief_key)] {
        let (two, reveal) = begin(2, name, by);
        assert_eq!(site.reveal(&two, &reveal), word("token-unknown"), "{name}");
    }
    // What it said of another device, or in another exchange, it didn't say of this one.
    let (three, first) = begin(3, "graz", &key);
    let (four, mut second) = begin(4, "graz", &key);
    second.token.clone_from(&first.token);
    assert_eq!(site.reveal(&four, &second), word("token-unknown"), "another device's");
    let (five, mut again) = begin(3, "graz", &key);
    again.token.clone_from(&first.token);
    assert_eq!(site.reveal(&five, &again), word("token-unknown"), "another exchange's");
    let (six, mut without) = begin(5, "graz", &key);
    without.token = None;
    assert_eq!(site.reveal(&six, &without).0, 400);
    assert_eq!(site.reveal(&three, &first).0, 202);
    assert_eq!(site.reveal(&three, &first), nowhere, "a replay");
    assert_eq!(site.get(&format!("/enroll/{}", three.request)).0, 204);
    // Ended by hand it counts no more, and what waits by it can't be approved.
    site.fleet.run(&["token", "revoke", "graz"]);
    let (seven, reveal) = {
        // Another one still counts.
        site.fleet.run(&["publish"]);
        begin(6, "graz", &key)
    };
    assert_eq!(site.reveal(&seven, &reveal), word("token-unknown"));
    let (code, why) = site.approve("graz");
    assert!(code == Some(1) && why.to_string().contains("there is no token `graz`"), "{why}");
    // A name is used once: what its devices prove, they prove by its key.
    assert!(!site.fleet.dir().join("tokens/graz.yaml").exists() && site.fleet.is_clean());
}

fn read_until(site: &Site, token: &str) -> Timestamp {
    let listed: Value = serde_json::from_str(&site.fleet.run(&["token", "list", "--output", "json"])).expect("JSON");
    let found = listed["tokens"].as_array().expect("a list").iter().find(|one| one["token"] == token).expect("listed");
    found["until"].as_str().expect("a time").parse().expect("a time")
}

#[test]
fn a_flood_of_codes_stops_no_device_that_has_a_token() {
    let site = Site::new().open();
    let file = site.token("graz", &["--count", "2", "--for", "1h"]);
    let start = json::to_bytes(&Start { layout: 1, kind: Kind::Code, commitment: Digest::of(b"") });
    let (agent, url) = (site.agent(), site.url("/enroll"));
    let flood = || agent.answer(&Request::post(&url, &start)).expect("an answer").status;
    assert!((0..300).any(|_| flood() == 429), "codes have to wait");
    let is_over = AtomicBool::new(false);
    // From the same address, for as long as the device needs.
    let late = std::thread::scope(|scope| {
        let flooding = scope.spawn(|| {
            let mut late = 0;
            while !is_over.load(Ordering::Relaxed) {
                late += u32::from(flood() == 429);
            }
            late
        });
        let device = site.device("one");
        let own = device.home().join("../own.json");
        std::fs::copy(&file, &own).expect("copied");
        let mut enrolling = Enrolling::start(&device, &own);
        assert_eq!(enrolling.says("token"), "graz");
        assert_eq!(site.approve("graz").0, Some(0));
        let id = enrolling.says("device");
        assert!(id.starts_with("graz-"), "{id}");
        assert_eq!(enrolling.ends(), Some(0));
        is_over.store(true, Ordering::Relaxed);
        flooding.join().expect("it ends")
    });
    assert!(late > 10, "{late}");
}

#[test]
fn who_has_the_token_can_not_be_the_devices_host() {
    let site = Site::new();
    let file = site.token("graz", &["--count", "2", "--for", "1h"]);
    let good = EnrolmentFile::parse(&std::fs::read(&file).expect("there")).expect("an enrolment file");
    let other = Site::new().open();
    let device = site.device("one");
    // The thief's own host, in the place of the one that the file names: nothing is even asked of it.
    let mut led_away = good.clone();
    led_away.url = other.offer().url;
    let path = site.dir.path().join("led-away.json");
    std::fs::write(&path, json::to_bytes(&led_away)).expect("written");
    let output = device.syncer(&["enroll", "--from", &path.display().to_string(), "--for", "1m"]);
    assert!(said(&output).contains("certificate that is not believed"), "{}", said(&output));
    // One that the device believes, and that offers other keys: nothing is revealed to it.
    let bad = other.offer();
    let (host, mut file) = fake(&good, move |offer| (offer.trust, offer.fleet) = (bad.trust.clone(), bad.fleet));
    file.token = good.token.clone();
    std::fs::write(&path, json::to_bytes(&file)).expect("written");
    let output = device.syncer(&["enroll", "--from", &path.display().to_string(), "--for", "1m"]);
    assert!(said(&output).contains("is pinned"), "{}", said(&output));
    let asked = host.asked();
    assert_eq!(asked.len(), 1);
    let private = good.token.expect("a token").key;
    assert!(
        asked.iter().all(|asked| !String::from_utf8_lossy(&asked.body).contains(private.lines().nth(1).expect("text")))
    );
    assert!(!device.home().join("join.json").exists());
    let mut wrong = file;
    wrong.token.as_mut().expect("a token").key = "x".to_owned();
    std::fs::write(&path, json::to_bytes(&wrong)).expect("written");
    let output = device.syncer(&["enroll", "--from", &path.display().to_string()]);
    assert!(said(&output).contains("the key of its token can't be read"), "{}", said(&output));
}
