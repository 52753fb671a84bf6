//! Who isn't meant: strangers, floods, and whoever wants to get in between.

use repo_git::SigningKey;
use repo_http::{HttpError, Problem, Request};
use repo_model::enrolment::{EnrolmentFile, Kind, Reveal, Start};
use repo_model::{Digest, json};
use repo_testkit::device::Device;
use repo_testkit::faults::scripted_host::{Asked, Host as ScriptedHost, Reply, answer};
use repo_testkit::pki::{Authority, Validity};

use super::{Site, claim, read, said};

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
    let by_token = json::to_bytes(&Start { layout: 1, kind: Kind::Token, commitment: Digest::of(b"") });
    assert_eq!(site.post("/enroll", &by_token), nowhere, "no token counts");
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
pub(super) fn fake(
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
