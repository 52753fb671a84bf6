//! What a device signs although it can't be so: each is a doubt with a word, and nobody else's row changes for it.

use std::collections::BTreeMap;

use repo_model::envelope::MAX_SERIAL;
use repo_model::{Digest, Trailer};
use repo_testkit::git::git;
use serde_json::{Value, json};

use crate::reports::Reporter;
use crate::restore::{adopted_by, report_at};
use crate::support::{BEGIN, Lab, after};

const BAD: &str = "press-01";
const GOOD: &str = "packer-01";

/// What the device will sign: the files of both branches, and the trailers of `status`.
struct Said {
    status: BTreeMap<String, Value>,
    heartbeat: Value,
    trailers: BTreeMap<Trailer, String>,
    /// Where the history goes on from.
    parents: Vec<String>,
}

impl Said {
    fn good(lab: &Lab, device: &Reporter<'_>) -> Self {
        let (id, adopted) = (device.deployment(), adopted_by(lab, device.device));
        let envelope = lab.json(device.device, "desired", "envelope.json");
        let content = envelope["deployments"][&id]["locks"]["hello"]["content"].as_str().unwrap();
        let document = lab.git(device.device, &["show", &format!("desired:deployments/{id}.yaml")]);
        let values = document.lines().filter_map(|line| line.trim().strip_prefix("value: "));
        let [greeting, interval] = values.collect::<Vec<_>>()[..] else { panic!("{document}") };
        // The contract's own words for an input digest.
        let input = format!(
            r#"{{"content":"{content}","name":"hello","params":[["GREETING","string","{greeting}"],["INTERVAL","integer","{interval}"]],"type":"compose","v":1}}"#
        );
        let component = json!({"inputDigest": Digest::of(input.as_bytes()), "state": "installed", "health": "healthy",
            "drift": "none", "attempts": 0});
        let syncer = json!({"layout": 1, "version": "0.2.0", "instance": "8f14e45f-ceea-467f-9a5c-1d2c3b4a5968",
            "adopted": adopted, "conditions": [], "holds": []});
        let document = json!({"deploymentId": id, "deviceId": device.device, "status": {"state": "installed"},
            "components": [{"name": "hello", "state": "installed"}]});
        let trailers = [(Trailer::Serial, adopted.serial.to_string()), (Trailer::DesiredCommit, adopted.commit)];
        Self {
            status: BTreeMap::from([("syncer.json".to_owned(), syncer), (format!("deployments/{id}.json"), document)]),
            heartbeat: json!({"layout": 1, "time": after(60), "serial": adopted.serial,
                "deployments": {id: {"components": {"hello": component}}}}),
            trailers: trailers.into(),
            parents: Vec::new(),
        }
    }

    fn sign(&self, device: &Reporter<'_>) {
        let files: Vec<_> = self.status.iter().map(|(path, value)| (path.as_str(), value.to_string())).collect();
        let trailers: String = self.trailers.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
        device.commit_upon(&self.parents, "status", device.device, &files, &(device.trailers("status") + &trailers));
        let beat = [("current-state.json", self.heartbeat.to_string())];
        device.commit("heartbeat", device.device, &beat, &device.trailers("heartbeat"));
    }

    fn syncer(&mut self) -> &mut Value {
        self.status.get_mut("syncer.json").unwrap()
    }

    fn document(&mut self) -> &mut Value {
        self.status.iter_mut().find(|(path, _)| path.starts_with("deployments/")).unwrap().1
    }

    fn component(&mut self) -> &mut Value {
        let deployments = self.heartbeat["deployments"].as_object_mut().unwrap();
        &mut deployments.values_mut().next().unwrap()["components"]["hello"]
    }
}

/// All devices by their ids, without what changes from second to second.
fn shown(lab: &Lab) -> BTreeMap<String, Value> {
    let text = lab.run(&["status", "--output", "json"]).good();
    let mut all: Value = serde_json::from_str(&text).unwrap();
    let devices = all["devices"].as_array_mut().unwrap().drain(..);
    let timeless = |mut device: Value| {
        device["heartbeatAge"] = Value::Null;
        device["heardAge"] = Value::Null;
        device["deployments"].as_array_mut().unwrap().iter_mut().for_each(|row| row["age"] = Value::Null);
        (device["device"].as_str().unwrap().to_owned(), device)
    };
    devices.map(timeless).collect()
}

fn words(device: &Value) -> Vec<String> {
    let doubts = device["doubts"].as_array().unwrap();
    doubts.iter().map(|doubt| doubt["code"].as_str().unwrap().to_owned()).collect()
}

type Spoil<'a> = Box<dyn Fn(&mut Said) + 'a>;

/// Everything that a device can sign and that can't be so, by its word.
fn bad_things(lab: &Lab) -> Vec<(&'static str, Spoil<'_>)> {
    let first = lab.git(BAD, &["rev-parse", "desired~1"]);
    let other = "11111111-2222-4333-8444-555555555555";
    let parent = |said: &mut Said, serial: u64, instance: &str| {
        let mut syncer = said.syncer().clone();
        syncer["instance"] = instance.into();
        let files = [("syncer.json", syncer.to_string())];
        let device = Reporter { lab, device: BAD };
        let trailers = format!("{}Serial: {serial}\n", device.trailers("status"));
        device.commit_upon(&[], "status", BAD, &files, &trailers);
        said.parents = vec![lab.tip(BAD, "status").unwrap()];
    };
    let ours = "8f14e45f-ceea-467f-9a5c-1d2c3b4a5968";
    vec![
        ("layout-too-new", Box::new(|said| said.syncer()["layout"] = 2.into())),
        ("layout-too-new", Box::new(|said| said.heartbeat["layout"] = 2.into())),
        ("report-invalid", Box::new(|said| said.syncer()["instance"] = "x".repeat(70_000).into())),
        ("report-invalid", Box::new(|said| *said.document() = json!([]))),
        ("report-invalid", Box::new(|said| said.syncer()["adopted"]["serial"] = u64::MAX.into())),
        ("wrong-device", Box::new(|said| said.document()["deviceId"] = GOOD.into())),
        (
            "wrong-device",
            Box::new(|said| {
                let properties = json!({"id": GOOD, "vendor": "v", "modelNumber": "m", "serialNumber": "s"});
                said.status.insert("capabilities.json".to_owned(), json!({ "properties": properties }));
            }),
        ),
        (
            "desired-unknown",
            Box::new(|said| said.trailers.insert(Trailer::DesiredCommit, "0".repeat(40)).map_or((), drop)),
        ),
        ("adopted-mismatch", Box::new(|said| said.syncer()["adopted"]["serial"] = 1_000_001.into())),
        (
            "adopted-mismatch",
            Box::new(|said| {
                said.syncer()["adopted"]["serial"] = MAX_SERIAL.into();
                said.trailers.insert(Trailer::Serial, MAX_SERIAL.to_string());
            }),
        ),
        ("adopted-mismatch", Box::new(|said| said.syncer()["adopted"]["manifestVersion"] = MAX_SERIAL.into())),
        (
            "adopted-mismatch",
            Box::new(|said| said.syncer()["adopted"]["envelope"] = Digest::of(b"other").to_string().into()),
        ),
        ("adopted-mismatch", Box::new(|said| drop(said.trailers.remove(&Trailer::Serial)))),
        ("state-mismatch", Box::new(|said| said.document()["components"][0]["state"] = "failed".into())),
        ("component-missing", Box::new(|said| said.document()["components"] = json!([]))),
        ("component-missing", Box::new(|said| said.status.retain(|path, _| path == "syncer.json"))),
        ("input-mismatch", Box::new(|said| said.component()["inputDigest"] = Digest::of(b"x").to_string().into())),
        ("time-ahead", Box::new(|said| said.heartbeat["time"] = "9999-01-01T00:00:00Z".into())),
        ("went-back", Box::new(|said| said.heartbeat["serial"] = 1.into())),
        ("went-back", Box::new(move |said| parent(said, 9, ours))),
        (
            "went-back",
            Box::new(move |said| {
                parent(said, 2, ours);
                said.trailers.extend([(Trailer::Serial, "1".to_owned()), (Trailer::DesiredCommit, first.clone())]);
            }),
        ),
        ("history-forked", Box::new(move |said| parent(said, 2, other))),
    ]
}

#[test]
fn whatever_a_device_signs_is_its_own_doubt_and_hurts_the_sight_of_no_other() {
    let lab = Lab::with(&[BAD, GOOD]);
    lab.publish_all();
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    lab.edit("deployments/hello.yaml", "hello from the packer", "griaß di");
    lab.commit();
    lab.publish_all();
    let [bad, good] = [BAD, GOOD].map(|device| Reporter { lab: &lab, device });
    for device in [&bad, &good] {
        Said::good(&lab, device).sign(device);
    }
    let before = shown(&lab);
    for device in [BAD, GOOD].map(|device| &before[device]) {
        assert_eq!(device["doubts"], json!([]), "an honest device");
        assert_eq!((&device["adoptedSerial"], &device["deployments"][0]["state"]), (&json!(2), &json!("installed")));
    }
    for (number, (word, spoil)) in bad_things(&lab).into_iter().enumerate() {
        let mut said = Said::good(&lab, &bad);
        // No table has a column that wide.
        let message = "x".repeat(1 << 16);
        said.syncer()["conditions"] = json!([{"type": "Stale", "reason": "Expired", "message": message}]);
        spoil(&mut said);
        said.sign(&bad);
        let after = shown(&lab);
        assert!(words(&after[BAD]).contains(&word.to_owned()), "{number}: {word}: {}", after[BAD]["doubts"]);
        assert_eq!(after[GOOD], before[GOOD], "{number}: {word}");
        let serial = after[BAD]["adoptedSerial"].as_u64();
        assert!(serial.is_none_or(|serial| serial <= 2), "{number}: {word}: {serial:?} is followed");
        let table = lab.run(&["status"]).good();
        assert!(table.contains(&format!("doubtful: {word}: ")), "{number}: {table}");
        assert!(table.lines().any(|line| line.starts_with(GOOD) && line.contains("installed")), "{number}: {table}");
    }
    // Nor does any of it hold up what is published, or lead it anywhere.
    lab.edit("deployments/hello.yaml", "servus", "grüezi");
    lab.edit("deployments/hello.yaml", "griaß di", "hoi");
    lab.commit();
    lab.publish_all();
    assert_eq!((lab.serial(BAD), lab.serial(GOOD)), (3, 3));
}

/// A claim that names nothing that is here can't be checked, so it is followed no further than something can be lost.
#[test]
fn what_was_never_published_is_followed_only_as_far_as_something_can_be_lost() {
    const FAR: u64 = 500_000;
    let lab = Lab::with(&[BAD, GOOD]);
    lab.publish_all();
    let (mut second, mut expected) = (0, 1);
    let claim = |serial: u64, version: u64| {
        let envelope = Digest::of(format!("{serial} {version}").as_bytes());
        let commit = "0".repeat(40);
        repo_model::report::Adopted { serial, manifest_version: version, envelope, commit, trust: 1 }
    };
    for (adopted, is_followed) in [
        (claim(1_000_001, 1), false),
        (claim(MAX_SERIAL, 1), false),
        (claim(2, MAX_SERIAL), false),
        (claim(300_000, 1), true),
        // In all, not each time: else a device could be led anywhere step by step.
        (claim(600_000, 1), false),
        (claim(400_000, 1), true),
    ] {
        report_at(&lab, BAD, adopted.clone(), &Lab::device_key(BAD), *BEGIN);
        lab.edit("deployments/hello.yaml", "greeting: ", "greeting: x");
        lab.commit();
        second += 60;
        let outcome = lab.publish_at(*BEGIN + second);
        assert!(outcome.devices.values().all(Result::is_ok), "{outcome:?}");
        expected = if is_followed { adopted.serial + 1 } else { expected + 1 };
        assert_eq!(lab.serial(BAD), expected, "{adopted:?}");
        assert!(lab.serial(BAD) <= 1 + FAR, "no honest device that has serial 1 refuses this");
        let device = &shown(&lab)[BAD];
        let doubts = device["doubts"].to_string();
        assert_eq!(doubts.contains("which is too far from what was published"), !is_followed, "{doubts}");
    }
    // A person may know that it is true, unless no device gets there.
    report_at(&lab, BAD, claim(3_000_000, 9), &Lab::device_key(BAD), *BEGIN);
    assert_eq!(lab.reclaim(&[BAD]).published(), 1);
    assert_eq!(lab.serial(BAD), 3_000_001);
    report_at(&lab, BAD, claim(MAX_SERIAL, 9), &Lab::device_key(BAD), *BEGIN);
    assert!(lab.reclaim(&[BAD]).devices[&BAD.parse().unwrap()].is_err());
    assert!(lab.publish().devices.values().all(Result::is_ok));
    assert_eq!(git(&lab.repo(BAD), &["fsck", "--no-dangling"]), "");
}
