//! What both sides of an enrolment sum up, what a person may type, and which claims, enrolment files and answers are read.

use repo_model::enrolment::{
    self, Approved, Claim, Code, Confirm, EnrolmentError, EnrolmentFile, Nonce, Pin, Transcript,
};
use repo_model::join::Credentials;
use repo_model::{Digest, json};
use serde_json::{Value, json};

use super::key;

/// The pieces of an exchange, and all that comes of them.
fn sums(claim: &str, offer: &str) -> Value {
    let [device, host]: [Nonce; 2] = [0, 32].map(|first| Nonce::new(std::array::from_fn(|at| first + at as u8)));
    let transcript = Transcript::of((&device, &host), claim.as_bytes(), offer.as_bytes());
    json!({
        "deviceNonce": device, "hostNonce": host, "claim": claim, "offer": offer,
        "commitment": enrolment::commitment(&device, claim.as_bytes()), "transcript": transcript.hex(),
        "code": transcript.code().to_string(), "confirm": transcript.confirm().to_string(),
        "key": key('P'), "tokenMessage": transcript.token_message(&key('P')),
    })
}

fn claim() -> Value {
    json!({
        "layout": 1, "key": key('P'), "account": Digest::of(b"one of 256 random bits"), "version": "0.3.0",
        "serial": "PX-4711", "model": "Panel 12", "mac": "02:00:00:00:00:07", "hostname": "press", "arch": "x86_64",
        "id": "press-07", "replaces": key('T'),
    })
}

type Change = (&'static str, fn(&mut Value));

const CLAIMS: &[Change] = &[
    ("nothing", |_| ()),
    ("no more than the keys", |claim| {
        claim.as_object_mut().unwrap().retain(|key, _| ["layout", "key", "account", "version"].contains(&key.as_str()));
    }),
    ("a key that nobody knows", |claim| claim["future"] = 1.into()),
    ("layout 2", |claim| claim["layout"] = 2.into()),
    ("layout 0", |claim| claim["layout"] = 0.into()),
    ("no `key`", |claim| drop(claim.as_object_mut().unwrap().remove("key"))),
    ("a key of another type", |claim| claim["key"] = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB".into()),
    ("a key that is cut", |claim| claim["key"] = claim["key"].as_str().unwrap().trim_end_matches('P').into()),
    ("a key of another length inside", |claim| {
        claim["key"] = claim["key"].as_str().unwrap().replace("AAAAIE", "AAAAIQ").into();
    }),
    ("a key that replaces itself", |claim| claim["replaces"] = claim["key"].clone()),
    ("an account that is no digest", |claim| claim["account"] = "secret".into()),
    ("a certificate", |claim| claim["certificate"] = Digest::of(b"a SubjectPublicKeyInfo").to_string().into()),
    ("a certificate that is no digest", |claim| claim["certificate"] = "-----BEGIN CERTIFICATE-----".into()),
    ("an id that is none", |claim| claim["id"] = "../press".into()),
    ("an empty serial", |claim| claim["serial"] = "".into()),
    ("200 characters", |claim| claim["serial"] = "ü".repeat(200).into()),
    ("201 characters", |claim| claim["serial"] = "ü".repeat(201).into()),
    ("control characters", |claim| claim["serial"] = "\u{1b}[2J".into()),
    ("4,096 bytes", |claim| fill(claim, 4096)),
    ("4,097 bytes", |claim| fill(claim, 4097)),
];

const FILES: &[Change] = &[
    ("nothing", |_| ()),
    ("a token", |file| file["token"] = json!({"name": "graz", "key": "the text of a private key"})),
    ("no `ca`", |file| drop(file.as_object_mut().unwrap().remove("ca"))),
    ("no `issued`", |file| drop(file.as_object_mut().unwrap().remove("issued"))),
    ("layout 2", |file| file["layout"] = 2.into()),
    ("a URL with a path", |file| file["url"] = "https://fleet.example:8443/".into()),
    ("a URL with a user", |file| file["url"] = "https://wfm@fleet.example:8443".into()),
    ("a URL without TLS", |file| file["url"] = "http://fleet.example:8443".into()),
    ("a URL over SSH", |file| file["url"] = "ssh://fleet.example".into()),
    ("a URL of IPv6", |file| file["url"] = "https://[2001:db8::1]:8443".into()),
    ("another roster", |file| file["trust"]["roster"] = "{}".into()),
    ("another version", |file| file["trust"]["version"] = 2.into()),
    ("another fleet", |file| file["fleet"] = super::gate::OTHER.into()),
];

const TYPED: &[&str] = &[
    "8539-6SYP",
    "85396SYP",
    "8539-6syp",
    "-8-5-3-9-6-s-y-p-",
    "8539-6SY",
    "8539-6SYPP",
    "8539 6SYP",
    "8539-6SYU",
    "OIL0-1oil",
    "",
    "8539-6SYÜ",
];

const ANSWERED: &[&str] = &[
    "https://fleet.example:8443/devices/press-07.git",
    "https://fleet.example:8443",
    "https://fleet.example:8443.example.org/devices/press-07.git",
    "https://fleet.example/devices/press-07.git",
    "ssh://fleet.example:8443/devices/press-07.git",
];

/// Serial number and MAC address, as devices of a batch say them.
const NAMED: &[(Option<&str>, Option<&str>)] = &[
    (Some("PX-4711"), Some("02:00:00:00:00:0A")),
    (Some(" PX 4711/b\n"), None),
    (Some("../../x"), None),
    (Some("Größe-7"), None),
    (Some("To Be Filled By O.E.M."), Some("02:00:00:00:00:0A")),
    (Some("Default string"), Some("02-00-00-00-00-0a")),
    (Some("System Serial Number"), Some("00:00:00:00:00:00")),
    (Some("0000000000"), None),
    (Some("0000000001"), None),
    (Some("XXXXXXXX"), Some("02:00:00:00:00")),
    (Some("…"), None),
    (Some("7"), None),
    (None, Some("020000000009")),
    (None, None),
];

fn fill(claim: &mut Value, length: usize) {
    claim["future"] = "".into();
    let missing = length - json::to_bytes(claim).len();
    claim["future"] = "x".repeat(missing).into();
}

fn code<T>(read: Result<T, EnrolmentError>) -> Option<&'static str> {
    read.err().map(|error| error.code())
}

fn case((what, change): &Change, base: Value, read: impl Fn(&[u8]) -> Option<&'static str>) -> Value {
    let mut value = base;
    change(&mut value);
    let bytes = json::to_bytes(&value);
    json!({"what": what, "code": read(&bytes), "text": String::from_utf8(bytes).unwrap()})
}

/// `join` is the join file of the vectors, which an enrolment file is the most of.
pub(crate) fn vectors(join: &Value) -> Value {
    let mut file = json!({"url": "https://fleet.example:8443"});
    for key in ["layout", "fleet", "ca", "issued", "trust"] {
        file[key] = join[key].clone();
    }
    let offer = json::to_bytes(&file);
    let read = EnrolmentFile::parse(&offer).unwrap();
    assert_eq!(read.offer(), offer);
    let claim_text = String::from_utf8(json::to_bytes(&claim())).unwrap();
    let pin = Pin::of(read.trust.sha256);
    let pins = [pin.to_string(), pin.to_string().to_lowercase().replace('-', ""), "00000-00000-00000-00000".to_owned()];
    let pins =
        pins.map(|typed| json!({"typed": typed, "code": code(EnrolmentFile::pinned(&offer, typed.parse().unwrap()))}));
    let by_certificate = std::iter::once((ANSWERED[0], Some(Credentials::Certificate)));
    let answers = ANSWERED.iter().map(|url| (*url, None)).chain(by_certificate).map(|(url, credentials)| {
        let floor = repo_model::join::JoinFloor { serial: 0, manifest_version: 0 };
        let approved = Approved {
            device: "press-07".parse().unwrap(),
            url: url.to_owned(),
            user: "press-07".to_owned(),
            credentials,
            floor,
        };
        let joined = read.clone().join(approved, "one of 256 random bits".to_owned());
        let code = joined.as_ref().err().map(EnrolmentError::code);
        json!({"url": url, "credentials": credentials, "code": code, "join": joined.ok()})
    });
    let typed =
        TYPED.iter().map(|text| json!({"typed": text, "code": text.parse::<Code>().ok().map(|code| code.to_string())}));
    let named = NAMED.iter().map(|(serial, mac)| {
        let (name, by) = enrolment::own_name(*serial, *mac, &key('P'));
        json!({"serial": serial, "mac": mac, "key": key('P'), "name": name, "by": format!("{by:?}").to_lowercase()})
    });
    let claims = CLAIMS.iter().map(|one| case(one, claim(), |bytes| code(Claim::parse(bytes))));
    let twice = claim_text.replacen('{', "{\"serial\":\"PX-4712\",", 1);
    let twice = json!({"what": "`serial` twice", "code": code(Claim::parse(twice.as_bytes())), "text": twice});
    json!({
        "sums": [
            sums("{\"layout\":1}\n", "{\"layout\":1,\"x\":2}\n"),
            sums(&claim_text, std::str::from_utf8(&offer).unwrap()),
            // A known device is offered nothing.
            sums(&claim_text, ""),
        ],
        "typed": typed.collect::<Value>(),
        "claims": claims.chain([twice]).collect::<Value>(),
        "files": FILES.iter().map(|one| case(one, file.clone(), |bytes| code(EnrolmentFile::parse(bytes)))).collect::<Value>(),
        "named": named.collect::<Value>(),
        "pins": pins,
        "answers": answers.collect::<Value>(),
    })
}

#[test]
fn the_sums_of_an_enrolment_are_those_that_the_design_names() {
    let sums = sums("{\"layout\":1}\n", "{\"layout\":1,\"x\":2}\n");
    let ends = |key: &str, first: &str, last: &str| {
        let text = sums[key].as_str().unwrap().trim_start_matches("sha256:");
        assert!(text.len() == 64 && text.starts_with(first) && text.ends_with(last), "{key}: {text}");
    };
    ends("commitment", "583942e3", "2b73");
    ends("transcript", "41469367", "f272");
    assert_eq!((&sums["code"], &sums["confirm"]), (&"8539-6SYP".into(), &"0M2Q".into()));
    assert_eq!("om2q".parse::<Confirm>().unwrap().to_string(), "0M2Q");
}
