//! Devices that nobody knows enrol by a code: both programs over real TLS, and whoever wants to get in between.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Output, Stdio};
use std::time::{Duration, Instant};

use repo_git::SigningKey;
use repo_http::{Agent, Credential, HttpError, Method, Problem, Request, Settings, Url};
use repo_model::enrolment::{
    Claim, EnrolmentFile, Kind, Nonce, PROOF_NAMESPACE, Reveal, Start, Started, Transcript, commitment,
};
use repo_model::{Digest, json};
use repo_testkit::device::{Device, fake_docker, reboot};
use repo_testkit::faults::power::{Cut, Experiment, assert_cut, cut_everywhere};
use repo_testkit::faults::scripted_host::{Asked, Host as ScriptedHost, Reply, answer};
use repo_testkit::fleet::Fleet;
use repo_testkit::host::Host;
use repo_testkit::pki::{Authority, Validity};
use repo_testkit::ports::free_port;
use repo_testkit::{copy, git, registry};
use serde_json::Value;
use tempfile::TempDir;

use crate::clocks::with_clock;
use crate::crash::occurrences;
use crate::publish_crash::remove_lock;
use crate::site::registry_name;

/// A fleet whose host runs, and the file by which devices find it.
struct Site {
    dir: TempDir,
    fleet: Fleet,
    host: Option<Host>,
}

impl Site {
    fn new() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let fleet = Fleet::init(dir.path(), &registry_name(dir.path()));
        let settings = format!("serve:\n  names: [127.0.0.1]\n  listen: 127.0.0.1:{}\n", free_port());
        std::fs::write(fleet.home().join("publisher.yaml"), settings).expect("written");
        let mut site = Self { dir, fleet, host: None };
        site.start();
        site.fleet.run(&["enroll", "file", "--out", &site.file().display().to_string()]);
        site
    }

    fn start(&mut self) {
        self.host = Some(self.fleet.serve(&[]));
    }

    fn open(self) -> Self {
        self.fleet.run(&["enroll", "open", "--for", "1h"]);
        self
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("enroll.json")
    }

    fn offer(&self) -> EnrolmentFile {
        EnrolmentFile::parse(&std::fs::read(self.file()).expect("there")).expect("an enrolment file")
    }

    /// A device that knows nothing of the fleet yet.
    fn device(&self, name: &str) -> Device {
        let root = self.dir.path().join(name);
        let device = Device::at(name, &root);
        std::fs::create_dir_all(device.home()).expect("made");
        let docker = fake_docker(&root.join("docker"));
        let boot = root.join("boot-id").display().to_string();
        let registries = format!("registries: {{plainHttp: [\"{}\"]}}", registry());
        let text = format!("docker: {docker}\n{registries}\nbootIdFile: {boot}\npoll: 1s\n");
        std::fs::write(device.home().join("device.yaml"), text).expect("written");
        reboot(&root);
        device
    }

    fn enroll(&self, device: &Device) -> Enrolling {
        Enrolling::start(device, &self.file())
    }

    fn pending(&self) -> Value {
        let listed = self.fleet.run(&["device", "pending", "--output", "json"]);
        serde_json::from_str(&listed).expect("JSON")
    }

    fn agent(&self) -> Agent {
        let authorities = self.offer().ca.into_iter().collect();
        Agent::new(&Settings { authorities, ..Settings::default() }).expect("an agent")
    }

    fn url(&self, path: &str) -> Url {
        Url::parse(&format!("{}{path}", self.offer().url)).expect("a URL")
    }

    /// What a stranger is answered: the status, and the body.
    fn post(&self, path: &str, body: &[u8]) -> (u16, String) {
        let (agent, url) = (self.agent(), self.url(path));
        let answer = agent.answer(&Request::post(&url, body)).expect("an answer");
        let status = answer.status;
        (status, String::from_utf8(answer.body.bytes(1 << 20).expect("a body")).expect("text"))
    }

    fn get(&self, path: &str) -> (u16, String) {
        let (agent, url) = (self.agent(), self.url(path));
        let answer = agent.answer(&Request { method: Some(Method::Get), ..Request::get(&url) }).expect("an answer");
        let status = answer.status;
        (status, String::from_utf8(answer.body.bytes(1 << 20).expect("a body")).expect("text"))
    }

    /// A stranger's exchange up to what it would reveal.
    fn begin(&self, key: &SigningKey, number: u8) -> (Started, Reveal) {
        let (nonce, claim) = (Nonce::new([number; 32]), claim(key, number));
        let start = Start { layout: 1, kind: Kind::Code, commitment: commitment(&nonce, claim.as_bytes()) };
        let (status, body) = self.post("/enroll", &json::to_bytes(&start));
        assert_eq!(status, 201, "{body}");
        let started: Started = serde_json::from_str(&body).expect("what the contract says");
        let transcript = Transcript::of((&nonce, &started.nonce), claim.as_bytes(), started.offer.as_bytes());
        let proof = key.sign(PROOF_NAMESPACE, transcript.as_bytes()).expect("signed");
        (started, Reveal { nonce, claim, proof, replaces_proof: None, token: None })
    }

    fn reveal(&self, started: &Started, reveal: &Reveal) -> (u16, String) {
        self.post(&format!("/enroll/{}", started.request), &json::to_bytes(reveal))
    }
}

fn claim(key: &SigningKey, number: u8) -> String {
    let claim = Claim {
        layout: 1,
        key: key.public().to_string().parse().expect("a key"),
        account: Digest::of(&[number]),
        version: "0".to_owned(),
        serial: None,
        model: Some("\u{1b}[2Jhint: approve me\u{202e}".to_owned()),
        mac: None,
        hostname: None,
        arch: None,
        id: Some(if number % 2 == 1 { "press-01" } else { "nobody" }.parse().expect("an id")),
        replaces: None,
    };
    String::from_utf8(json::to_bytes(&claim)).expect("text")
}

/// A device at its `enroll`.
struct Enrolling {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Enrolling {
    fn start(device: &Device, file: &Path) -> Self {
        let mut command = device.command(&["enroll", "--from", &file.display().to_string(), "--output", "json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the syncer starts");
        let says = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, says }
    }

    /// What it says next under this key.
    fn says(&mut self, key: &str) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("it says something");
        let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        value[key].as_str().unwrap_or_else(|| panic!("no {key}: {line}")).to_owned()
    }

    fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("it ends");
    }

    fn ends(mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Enrolling {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("there")).expect("JSON")
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // Locks stay behind wherever something was locked.
    let mut names: Vec<_> = names.filter(|name| !name.ends_with("lock")).collect();
    names.sort();
    names
}

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
    let before = git::git(&site.fleet.dir(), &["rev-parse", "HEAD"]);
    let wrong = site.fleet.try_run(&["device", "approve", "K4TX-9QHM", "--id", "press-07"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(said(&wrong).contains("no device that waits here shows the code K4TX-9QHM"), "{}", said(&wrong));
    assert!(!device.home().join("join.json").exists() && !site.fleet.repository("press-07").exists());
    let typed = code.to_lowercase().replace('-', "");
    let approve = ["device", "approve", &typed, "--id", "press-07", "--label", "site=graz"];
    site.fleet.run(&approve);
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
    let mut second = site.enroll(&two);
    let kept = second.says("code");
    assert_ne!(code, kept);
    assert!(said(&site.fleet.try_run(&["device", "reject", "7"])).contains("no such device waits"));
    site.fleet.run(&["device", "reject", "1"]);
    assert_eq!(first.ends(), Some(1));
    let late = site.fleet.try_run(&["device", "approve", &code, "--id", "press-01"]);
    assert!(said(&late).contains("was rejected"), "{}", said(&late));
    assert!(!site.fleet.read("devices/press-01.yaml").contains("\nstatusKeys:"));
    site.fleet.run(&["device", "approve", &kept, "--id", "press-01"]);
    assert_eq!((second.says("device"), second.ends()), ("press-01".to_owned(), Some(0)));
    let other = site.fleet.try_run(&["device", "approve", &kept, "--id", "press-02"]);
    assert!(said(&other).contains("was approved as `press-01`"), "{}", said(&other));
    // It asks anew, with another code, and may not have what another device has unless somebody says so.
    let mut again = site.enroll(&one);
    let code = again.says("code");
    let head = git::git(&site.fleet.dir(), &["rev-parse", "HEAD"]);
    let taken = site.fleet.try_run(&["device", "approve", &code, "--id", "press-01"]);
    assert!(
        said(&taken).contains("is enrolled with another key") && said(&taken).contains("--replace"),
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
    site.fleet.run(&["device", "approve", &code, "--id", "press-01", "--replace"]);
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
fn strangers_learn_nothing_and_are_believed_nothing() {
    let site = Site::new();
    let key = SigningKey::from_seed(&[7; 32]);
    let start = json::to_bytes(&Start { layout: 1, kind: Kind::Code, commitment: Digest::of(b"") });
    let nowhere = (404, "Not Found\n".to_owned());
    let unknown = format!("/enroll/{}", "ab".repeat(16));
    for (path, body) in [("/enroll", &start[..]), ("/enroll", b"x"), (unknown.as_str(), b"{}")] {
        assert_eq!(site.post(path, body), nowhere, "closed: {path}");
    }
    assert_eq!(site.get(&unknown), nowhere);
    site.fleet.run(&["enroll", "open", "--for", "1h", "--from", "192.0.2.0/24"]);
    assert_eq!(site.post("/enroll", &start), nowhere, "not from here");
    let site = site.open();
    for kind in [Kind::Token, Kind::Known] {
        let start = json::to_bytes(&Start { layout: 1, kind, commitment: Digest::of(b"") });
        assert_eq!(site.post("/enroll", &start), nowhere);
    }
    let word = |word: &str| format!("{{\"error\":\"{word}\"}}\n");
    for odd in [&b""[..], b"{}", b"[", br#"{"layout":2,"kind":"code","commitment":"sha256:00"}"#, b"\xff\xfe"] {
        assert_eq!(site.post("/enroll", odd), (400, word("malformed")), "{odd:?}");
    }
    assert_eq!(site.post("/enroll", &vec![b' '; 2_000]).0, 413);
    assert_eq!(site.get("/enroll").0, 405);
    for odd in ["/enroll/", "/enroll/x", "/enroll/../accounts", "/enroll/open"] {
        assert_eq!(site.get(odd).0, 404, "{odd}");
    }
    // What wasn't committed to, isn't signed, or was signed for another exchange; each ends its request.
    let (one, revealed) = site.begin(&key, 1);
    let other = Reveal { claim: claim(&key, 9), ..revealed.clone() };
    assert_eq!(site.reveal(&one, &other), (403, word("commitment")));
    assert_eq!(site.reveal(&one, &revealed), nowhere, "it is over");
    let (two, mut reveal) = site.begin(&key, 1);
    reveal.proof.clone_from(&revealed.proof);
    assert_eq!(site.reveal(&two, &reveal), (403, word("proof")), "a replay");
    let (three, reveal) = site.begin(&SigningKey::from_seed(&[8; 32]), 2);
    let (four, own) = site.begin(&key, 2);
    assert_eq!(site.reveal(&four, &reveal).0, 403, "another's");
    assert_eq!(site.reveal(&four, &own), nowhere);
    let long = Reveal { claim: " ".repeat(40_000), ..own };
    // It is refused before it is read; who goes on sending may not hear why.
    let (agent, url) = (site.agent(), site.url(&format!("/enroll/{}", three.request)));
    let refused = agent.answer(&Request::post(&url, &json::to_bytes(&long))).map(|answer| answer.status);
    assert!(matches!(refused, Ok(413) | Err(HttpError { problem: Problem::Cut, .. })), "{refused:?}");
    assert_eq!(site.reveal(&three, &reveal), (202, "{\"wait\":0}\n".to_owned()), "nothing of it was looked at");
    assert_eq!(site.reveal(&three, &reveal), nowhere, "once");
    assert_eq!(site.get(&format!("/enroll/{}", three.request)), (204, String::new()));
    // What it claims to be is shown, and does nothing to a terminal.
    let listed = site.fleet.run(&["device", "pending"]);
    assert!(
        listed.contains("\\u{1b}[2Jhint") && !listed.contains('\u{1b}') && !listed.contains('\u{202e}'),
        "{listed}"
    );
    // Known to the fleet or not, it is answered the same.
    assert!(site.fleet.dir().join("devices/press-01.yaml").exists());
    let (five, reveal) = site.begin(&key, 3);
    assert_eq!(site.reveal(&five, &reveal), (202, "{\"wait\":0}\n".to_owned()));
    // Closed again, who waits already may still hear.
    site.fleet.run(&["enroll", "close"]);
    assert_eq!(site.post("/enroll", &start), nowhere);
    assert_eq!(site.get(&format!("/enroll/{}", five.request)).0, 204);
}

#[test]
fn a_flood_of_strangers_is_held_off_and_takes_nothing_of_the_devices() {
    let site = Site::new().open();
    let joined = site.dir.path().join("joined");
    std::fs::create_dir(&joined).expect("made");
    let device = Device::join(&site.fleet, "press-01", &joined);
    site.fleet.push_application();
    site.fleet.run(&["publish"]);
    let start = json::to_bytes(&Start { layout: 1, kind: Kind::Code, commitment: Digest::of(b"") });
    let (agent, url) = (site.agent(), site.url("/enroll"));
    let mut statuses = std::collections::BTreeMap::<u16, u32>::new();
    let mut waits = Vec::new();
    for _ in 0..300 {
        let answer = agent.answer(&Request::post(&url, &start)).expect("an answer");
        *statuses.entry(answer.status).or_default() += 1;
        waits.extend(answer.header("retry-after").map(|after| after.parse::<u64>().expect("seconds")));
    }
    let (begun, late) = (statuses[&201], statuses[&429]);
    assert_eq!(begun + late, 300, "{statuses:?}");
    assert!((30..120).contains(&begun) && waits.len() == late as usize, "{statuses:?}");
    assert!(waits.iter().all(|after| (1..=60).contains(after)));
    // The devices of the same network go on.
    device.pass();
    assert!(device.environments().iter().any(|environment| environment.contains("hello from the press")));
    assert!(
        std::fs::read_dir(site.fleet.home().join("enroll")).expect("there").flatten().count() <= 2,
        "nothing is kept"
    );
}

/// What is changed of an offer.
type Change = Box<dyn Fn(&mut EnrolmentFile) + Send + Sync>;

/// A host that answers the first message with what `offer` makes of an offer that names itself.
fn fake(
    good: &EnrolmentFile,
    offer: impl Fn(&mut EnrolmentFile) + Send + Sync + 'static,
) -> (ScriptedHost, EnrolmentFile) {
    let authority = Authority::new("test authority");
    let identity = authority.server(&["127.0.0.1"], Validity::Now);
    let mut file = good.clone();
    file.ca = Some(authority.certificate().to_owned());
    let own = file.clone();
    let host = ScriptedHost::with(authority, identity, false, move |asked: &Asked| {
        let mut offered = own.clone();
        let name = asked.head.lines().find_map(|line| line.to_lowercase().strip_prefix("host: ").map(str::to_owned));
        offered.url = format!("https://{}", name.expect("a name"));
        offer(&mut offered);
        let offer = String::from_utf8(offered.offer()).expect("text");
        let started = serde_json::json!({
            "request": "ab".repeat(16), "nonce": "00".repeat(32), "offer": offer, "revealSeconds": 60,
        });
        let status = if asked.head.starts_with("POST /enroll ") { "201 Created" } else { "403 Forbidden" };
        Reply::Keep(answer(status, &["Content-Type: application/json"], started.to_string().as_bytes()))
    });
    file.url = host.url("");
    (host, file)
}

#[test]
fn who_stands_between_device_and_host_learns_and_gets_nothing() {
    let (site, other) = (Site::new().open(), Site::new().open());
    // Another host in the place of this one, as DNS would have it: nothing is even asked of it.
    let mut offer = site.offer();
    offer.url = other.offer().url;
    let file = site.dir.path().join("led-away.json");
    std::fs::write(&file, offer.offer()).expect("written");
    let device = site.device("press-01");
    let led_away = device.syncer(&["enroll", "--from", &file.display().to_string(), "--for", "1m"]);
    assert_eq!(led_away.status.code(), Some(1));
    assert!(said(&led_away).contains("certificate that is not believed"), "{}", said(&led_away));
    assert_eq!(other.pending()["pending"], serde_json::json!([]));
    // A host that the device believes, and that offers another fleet's keys, or another address or authority.
    let (good, bad) = (site.offer(), other.offer());
    let offers: [(&str, usize, Change); 4] = [
        ("is pinned", 1, Box::new(move |offer| (offer.trust, offer.fleet) = (bad.trust.clone(), bad.fleet))),
        ("than the enrolment file names", 1, Box::new(|offer| offer.url = "https://192.0.2.1".to_owned())),
        ("than the enrolment file names", 1, Box::new(|offer| offer.ca = None)),
        // One that is as the file says may be asked; when it was written is no matter.
        ("nobody approved", 2, Box::new(|offer| offer.issued = "2099-01-01T00:00:00Z".parse().expect("a time"))),
    ];
    for (why, requests, offer) in offers {
        let (host, file) = fake(&good, offer);
        let path = site.dir.path().join("fake.json");
        std::fs::write(&path, file.offer()).expect("written");
        let refused = device.syncer(&["enroll", "--from", &path.display().to_string(), "--for", "3s"]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(said(&refused).contains(why), "{why}: {}", said(&refused));
        let asked = host.asked();
        assert_eq!(asked.len(), requests, "{why}: what was revealed to it");
        let secret = read(&device.home().join("enrol.json"))["secret"].as_str().expect("a secret").to_owned();
        assert!(asked.iter().all(|asked| !String::from_utf8_lossy(&asked.body).contains(&secret)));
    }
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

#[test]
fn the_power_cut_at_any_moment_of_an_approval_or_a_joining_leaves_what_the_same_command_completes() {
    let site = Site::new().open();
    let device = site.device("press-07");
    let mut enrolling = site.enroll(&device);
    let code = enrolling.says("code");
    enrolling.kill();
    let approve = |root: &Path| {
        let label = ["device", "approve", &code, "--id", "press-07", "--label", "site=graz"];
        Fleet::at(root).command(&label)
    };
    let secret = read(&device.home().join("enrol.json"))["secret"].as_str().expect("a secret").to_owned();
    let request = read(&device.home().join("enrol.json"))["shown"]["request"].as_str().expect("a name").to_owned();
    let digest = Digest::of(secret.as_bytes()).to_string();
    let has_all = |fleet: &Fleet, when: &str| {
        let account = std::fs::read_to_string(fleet.home().join("accounts/press-07.json")).unwrap_or_default();
        assert!(account.contains(&digest), "{when}: {account}");
        let file = git::git(&fleet.dir(), &["show", "HEAD:devices/press-07.yaml"]);
        assert!(file.contains("statusKeys:"), "{when}: {file}");
        assert!(fleet.repository("press-07").is_dir(), "{when}");
    };
    let is_answered =
        |fleet: &Fleet| read(&fleet.home().join(format!("enroll/{request}.json")))["verdict"]["approved"].is_object();
    let experiment = Experiment {
        deed: "approve",
        prepare: &|root| {
            for part in ["fleet", "fleet.wfm"] {
                copy(&site.dir.path().join(part), &root.join(part));
            }
        },
        command: &approve,
        check: &|root, _, when| {
            let fleet = Fleet::at(root);
            if is_answered(&fleet) {
                has_all(&fleet, when);
            }
            let mut again = approve(root).output().expect("the publisher runs");
            // Between git's rename and our sync of it: git says which of its lock files the operator has to remove.
            if said(&again).contains(".lock") {
                remove_lock(&fleet, when);
                again = approve(root).output().expect("the publisher runs");
            }
            assert!(again.status.success(), "{when}: {}", said(&again));
            has_all(&fleet, when);
            assert!(is_answered(&fleet), "{when}");
            // What a cut write left beside its target is nobody's.
            let left = git::git(&fleet.dir(), &["status", "--porcelain", "--untracked-files=no"]);
            assert_eq!(left, "", "{when}");
            let commits = git::git(&fleet.dir(), &["log", "--format=%s", "--grep=^Enrolled: press-07 "]);
            assert_eq!(commits.lines().count(), 1, "{when}: {commits}");
        },
        cut: Cut::Power,
        // So many that one comes between any two of the files that it writes.
        occurrences: occurrences().max(12),
    };
    assert_cut(&cut_everywhere(&experiment).expect("the cuts are made"), &["file.data", "file.rename", "file.dir"]);
    assert!(approve(site.dir.path()).status().expect("the publisher runs").success());
    let key = std::fs::read(device.home().join("status.key")).expect("a key");
    let file = site.file().display().to_string();
    let joining = |root: &Path| Device::at("press-07", root).command(&["enroll", "--from", &file]);
    let experiment = Experiment {
        deed: "join",
        prepare: &|root| copy(&device.home(), &root.join("home")),
        command: &joining,
        check: &|root, _, when| {
            let again = joining(root).output().expect("the syncer runs");
            let home = root.join("home");
            // One that was done is told that it is.
            let is_done = said(&again).contains("belongs to device `press-07` already");
            assert!(again.status.success() || is_done, "{when}: {}", said(&again));
            assert_eq!(std::fs::read(home.join("status.key")).expect("a key"), key, "{when}");
            assert_eq!(read(&home.join("account.json"))["current"]["secret"], secret.as_str(), "{when}");
            assert_eq!(read(&home.join("join.json"))["device"], "press-07", "{when}");
            assert!(home.join("floor").exists() && !home.join("enrol.json").exists(), "{when}");
        },
        cut: Cut::Power,
        occurrences: occurrences(),
    };
    let points = ["file.data", "file.rename", "file.dir", "file.remove"];
    assert_cut(&cut_everywhere(&experiment).expect("the cuts are made"), &points);
}
