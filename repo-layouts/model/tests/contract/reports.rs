//! What readers of `status` check, as vectors for other implementations: reports that are good but for one thing, and the
//! words for it.

use repo_model::message::Message;
use repo_model::report::{self, Adopted, Beside, CURRENT_STATE, Link, Named, SYNCER, Status, SyncerReport};
use repo_model::{DeviceId, FileTree, desired};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{COMMIT, branches, deployment, device, fleet, skeleton, time};

const NOW: &str = "2026-11-21T12:05:30Z";

/// A report that is being spoilt.
#[derive(Clone)]
struct Case {
    trailers: Vec<(&'static str, String)>,
    files: FileTree,
    is_known: bool,
}

impl Case {
    fn good(branch: &str) -> Self {
        let trailers = [
            ("Kind", branch.to_owned()),
            ("Fleet", fleet().to_string()),
            ("Device", device().to_string()),
            ("Serial", "7".to_owned()),
        ];
        let named = (branch == "status").then(|| ("Desired-Commit", COMMIT.to_owned()));
        let trailers = trailers.into_iter().chain(named).collect();
        Self { trailers, files: branches()[branch].clone(), is_known: true }
    }

    fn json(mut self, path: &str, change: impl FnOnce(&mut Value)) -> Self {
        let mut value = serde_json::from_slice(&self.files[path]).unwrap();
        change(&mut value);
        self.files.insert(path.to_owned(), format!("{value}\n").into_bytes());
        self
    }

    fn put(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.to_owned(), text.as_bytes().to_vec());
        self
    }

    fn without(mut self, path: &str) -> Self {
        self.files.remove(path).unwrap();
        self
    }

    fn trailer(mut self, key: &'static str, value: &str) -> Self {
        self.trailers.retain(|(name, _)| *name != key);
        self.trailers.push((key, value.to_owned()));
        self
    }

    fn no_trailer(mut self, key: &str) -> Self {
        self.trailers.retain(|(name, _)| *name != key);
        self
    }

    fn again(mut self, key: &'static str, value: &str) -> Self {
        self.trailers.push((key, value.to_owned()));
        self
    }

    fn unknown(self) -> Self {
        Self { is_known: false, ..self }
    }

    fn message(&self) -> String {
        let message =
            self.trailers.iter().fold(Message::new("a report"), |message, (key, value)| message.trailer(key, value));
        message.to_string()
    }

    fn named(&self) -> Option<Named> {
        self.is_known.then(|| Named::of(COMMIT, &desired::read(&skeleton().tree).unwrap()))
    }

    fn files(&self) -> Value {
        self.files
            .iter()
            .map(|(path, bytes)| (path.clone(), String::from_utf8_lossy(bytes).into()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

/// The vectors of `reports.json`.
pub(crate) fn vectors() -> Value {
    let named = Case::good("status").named();
    json!({
        "fleet": fleet(), "device": device(), "desired": named, "now": NOW,
        "status": statuses(), "heartbeat": heartbeats(), "chain": chains(),
    })
}

fn document() -> String {
    format!("deployments/{}.json", deployment())
}

fn statuses() -> Vec<Value> {
    let (good, path) = (|| Case::good("status"), document());
    let adopted = |key: &'static str, value: Value| good().json(SYNCER, |one| one["adopted"][key] = value);
    let other = "11111111-2222-4333-8444-555555555555";
    let none = json!({"layout": 1, "version": "x", "instance": Uuid::nil()}).to_string();
    let capabilities = |id: &str| {
        let properties = json!({"id": id, "vendor": "v", "modelNumber": "m", "serialNumber": "s"});
        json!({ "properties": properties }).to_string()
    };
    let cases = [
        ("as it should be", good(), &[][..]),
        ("nothing adopted yet", good().put(SYNCER, &none).no_trailer("Desired-Commit").trailer("Serial", "0"), &[]),
        ("keys that nobody knows", good().json(SYNCER, |one| one["more"] = 1.into()), &[]),
        (
            "gates that are closed",
            good().json(SYNCER, |one| {
                let held = json!({"code": "held", "since": NOW, "text": "line 2 is being set up", "by": "j.doe"});
                let waits = json!({"deployment": deployment(), "code": "waiting-window", "since": NOW,
                    "until": "2026-11-28T01:04:12Z", "text": "waits for a window"});
                one["gates"] = json!([held, waits]);
            }),
            &[],
        ),
        ("gates that aren't a list", good().json(SYNCER, |one| one["gates"] = "held".into()), &["report-invalid"]),
        (
            "a gate without its code",
            good().json(SYNCER, |one| one["gates"] = json!([{"text": "x"}])),
            &["report-invalid"],
        ),
        ("of another branch", good().trailer("Kind", "heartbeat"), &["wrong-device"]),
        ("of another device", good().trailer("Device", "press-05"), &["wrong-device"]),
        ("of two devices", good().again("Device", "press-05"), &["wrong-device"]),
        ("without syncer.json", good().without(SYNCER), &["report-invalid"]),
        ("syncer.json is no JSON", good().put(SYNCER, "{"), &["report-invalid"]),
        ("a newer layout", good().json(SYNCER, |one| one["layout"] = 2.into()), &["layout-too-new"]),
        (
            "a newer layout that means something else",
            good().put(SYNCER, r#"{"layout":2,"adopted":7}"#),
            &["layout-too-new"],
        ),
        ("no layout", good().put(SYNCER, "{}"), &["report-invalid"]),
        ("layout 0", good().json(SYNCER, |one| one["layout"] = 0.into()), &["report-invalid"]),
        ("serial 0", adopted("serial", 0.into()).trailer("Serial", "0"), &["report-invalid"]),
        (
            "a serial above all",
            adopted("serial", (1_u64 << 53).into()).trailer("Serial", "9007199254740992"),
            &["report-invalid"],
        ),
        ("adopted a serial that the trailer doesn't give", adopted("serial", 1_000_001.into()), &["adopted-mismatch"]),
        (
            "adopted a serial that the commit doesn't have",
            adopted("serial", 1_000_001.into()).trailer("Serial", "1000001"),
            &["adopted-mismatch"],
        ),
        (
            "adopted another manifest than the commit's",
            adopted("manifestVersion", 9_007_199_254_740_991_u64.into()),
            &["adopted-mismatch"],
        ),
        (
            "adopted another envelope than the commit's",
            adopted("envelope", format!("sha256:{}", "0".repeat(64)).into()),
            &["adopted-mismatch"],
        ),
        ("adopted a roster that the commit doesn't have", adopted("trust", 2.into()), &["adopted-mismatch"]),
        ("adopted another commit than it names", adopted("commit", "1".repeat(40).into()), &["adopted-mismatch"]),
        ("a serial twice", good().again("Serial", "8"), &["adopted-mismatch"]),
        ("adopted nothing, and names a commit", good().put(SYNCER, &none), &["adopted-mismatch"]),
        ("a commit that isn't in the history", good().unknown(), &["desired-unknown"]),
        (
            "a commit that isn't in the history, by another name",
            adopted("serial", 9.into()).unknown(),
            &["desired-unknown", "adopted-mismatch"],
        ),
        ("a deployment's document is no JSON", good().put(&path, "["), &["report-invalid", "component-missing"]),
        (
            "a document at another path",
            good()
                .without(&path)
                .put(&format!("deployments/{other}.json"), &String::from_utf8_lossy(&good().files[&path])),
            &["report-invalid", "component-missing"],
        ),
        (
            "a document of another device",
            good().json(&path, |one| one["deviceId"] = "press-05".into()),
            &["wrong-device", "component-missing"],
        ),
        (
            "a document without a device",
            good().json(&path, |one| drop(one.as_object_mut().unwrap().remove("deviceId"))),
            &[],
        ),
        (
            "a deployment better than its component",
            good().json(&path, |one| one["components"][0]["state"] = "failed".into()),
            &["state-mismatch"],
        ),
        (
            "a deployment worse than its component",
            good().json(&path, |one| one["status"]["state"] = "failed".into()),
            &["state-mismatch"],
        ),
        ("nothing of a component", good().json(&path, |one| one["components"] = json!([])), &["component-missing"]),
        (
            "another component than the commit's",
            good().json(&path, |one| one["components"][0]["name"] = "other".into()),
            &["component-missing"],
        ),
        ("nothing of a deployment", good().without(&path), &["component-missing"]),
        (
            "a deployment that isn't in the commit",
            good().put(
                &format!("deployments/{other}.json"),
                &json!({"deploymentId": other, "status": {"state": "removed"}, "components": []}).to_string(),
            ),
            &[],
        ),
        ("capabilities", good().put("capabilities.json", &capabilities("press-04")), &[]),
        (
            "capabilities of another device",
            good().put("capabilities.json", &capabilities("press-05")),
            &["wrong-device"],
        ),
        ("capabilities that can't be read", good().put("capabilities.json", "{}"), &["report-invalid"]),
        ("images that can't be read", good().put("images.json", "[]"), &["report-invalid"]),
    ];
    cases.into_iter().map(|(name, case, expected)| status(name, &case, expected)).collect()
}

/// What is expected of one `status`: the words, whether nothing of it is believed, and whether `adopted` is.
fn status(name: &str, case: &Case, expected: &[&str]) -> Value {
    let message = Message::parse(&case.message());
    let device: DeviceId = device();
    let read = report::identity("status", fleet(), &device, &message)
        .and_then(|()| Status::read(&device, &message, &case.files, case.named().as_ref()));
    let (doubts, is_believed, adopted) = match &read {
        Ok(status) => (status.doubts.clone(), true, status.adopted().is_some()),
        Err(doubt) => (vec![doubt.clone()], false, false),
    };
    let codes: Vec<_> = doubts.iter().map(|doubt| doubt.code.clone()).collect();
    assert_eq!(codes, expected, "{name}: {doubts:?}");
    json!({"name": name, "message": case.message(), "files": case.files(), "isKnown": case.is_known, "doubts": codes,
        "isBelieved": is_believed, "adopted": adopted})
}

fn heartbeats() -> Vec<Value> {
    let good = || Case::good("heartbeat");
    let component = |key: &'static str, value: Value| {
        let path = format!("/deployments/{}/components/digitron/{key}", deployment());
        good().json(CURRENT_STATE, |one| *one.pointer_mut(&path).unwrap() = value)
    };
    let said = |key: &'static str, value: Value| good().json(CURRENT_STATE, |one| one[key] = value);
    let cases = [
        ("as it should be", good(), &[][..]),
        (
            "an answer at the path of another number",
            good().json("answers/2.json", |one| one["number"] = 3.into()),
            &["report-invalid"],
        ),
        (
            "an answer with words of a newer syncer",
            good().json("answers/2.json", |one| one["outcome"] = "later".into()),
            &[],
        ),
        ("of another branch", good().trailer("Kind", "status"), &["wrong-device"]),
        ("without its file", good().without(CURRENT_STATE), &["report-invalid"]),
        ("a newer layout", said("layout", 2.into()), &["layout-too-new"]),
        ("no time", said("time", "now".into()), &["report-invalid"]),
        ("a day ahead", said("time", "2026-11-22T12:05:30Z".into()), &[]),
        ("more than a day ahead", said("time", "2026-11-22T12:05:31Z".into()), &["time-ahead"]),
        ("of an older state, from before", said("serial", 6.into()), &[]),
        (
            "of an older state, after the newer one",
            said("serial", 6.into()).json(CURRENT_STATE, |one| one["time"] = "2026-11-21T12:05:11Z".into()),
            &["went-back"],
        ),
        (
            "a container that ends again and again",
            good().json(CURRENT_STATE, |one| {
                let component = &mut one["deployments"][deployment().to_string()]["components"]["digitron"];
                (component["health"], component["crashLooping"]) = ("degraded".into(), true.into());
                component["reason"] = "service `web` is restarting after it exited with 1".into();
            }),
            &[],
        ),
        ("a restart that nobody asked for, which is the device's word", component("restart", u64::MAX.into()), &[]),
        ("a restart that is no number", component("restart", "3".into()), &["report-invalid"]),
        // Of the skeleton's component a value stays on the device, so nobody else knows its digest.
        (
            "an input that only the device knows",
            component("inputDigest", format!("sha256:{}", "0".repeat(64)).into()),
            &[],
        ),
    ];
    let of = |(name, case, expected): (&str, Case, &[&str])| heartbeat(name, &case, case.named().unwrap(), expected);
    let mut all: Vec<_> = cases.into_iter().map(of).collect();
    let mut open = good().named().unwrap();
    let id = "00000000-0000-0000-0000-000000000001".parse().unwrap();
    let digest = repo_model::Digest::of(b"an input");
    open.components.insert(id, [("hello".parse().unwrap(), Some(digest))].into());
    let runs = |state: &str, digest: &str| {
        let component =
            json!({"inputDigest": digest, "state": state, "health": "healthy", "drift": "none", "attempts": 0});
        let deployment = json!({"components": {"hello": component}});
        good().json(CURRENT_STATE, |one| one["deployments"][id.to_string()] = deployment)
    };
    let other = repo_model::Digest::of(b"another").to_string();
    for (name, case, expected) in [
        ("the input of the commit", runs("installed", &digest.to_string()), &[][..]),
        ("another input than the commit's", runs("installed", &other), &["input-mismatch"]),
        ("an older input, while it waits", runs("pending", &other), &[]),
    ] {
        all.push(heartbeat(name, &case, open.clone(), expected));
    }
    all
}

/// The tip of `status` was made at 12:05:10 and adopted the skeleton.
fn heartbeat(name: &str, case: &Case, named: Named, expected: &[&str]) -> Value {
    let message = Message::parse(&case.message());
    let syncer: SyncerReport = serde_json::from_slice(&branches()["status"][SYNCER]).unwrap();
    let (made, adopted): (i64, Adopted) = (time("2026-11-21T12:05:10Z").as_second(), syncer.adopted.unwrap());
    let beside = Beside { status: Some((made, &adopted)), named: Some(&named), now: time(NOW) };
    let read = report::identity("heartbeat", fleet(), &device(), &message)
        .and_then(|()| report::heartbeat(&case.files, beside));
    let (doubts, is_believed) = match &read {
        Ok(read) => (read.doubts.clone(), true),
        Err(doubt) => (vec![doubt.clone()], false),
    };
    let codes: Vec<_> = doubts.iter().map(|doubt| doubt.code.clone()).collect();
    assert_eq!(codes, expected, "{name}: {doubts:?}");
    json!({"name": name, "message": case.message(), "files": case.files(), "desired": named, "statusTime": made,
        "statusSerial": adopted.serial, "doubts": codes, "isBelieved": is_believed})
}

/// Serial and installation of each commit, the newest first.
fn chains() -> Vec<Value> {
    let [a, b] = ["8f14e45f-ceea-467f-9a5c-1d2c3b4a5968", "00000000-0000-4000-8000-00000000000b"]
        .map(|id| id.parse::<Uuid>().unwrap());
    let cases = [
        (vec![], &[][..]),
        (vec![(0, a), (0, b)], &[]),
        (vec![(7, a), (7, a), (6, a)], &[]),
        // A new disk; what was told with the key before is over.
        (vec![(7, b), (0, b), (6, a), (5, a)], &[]),
        (vec![(7, b), (7, a), (6, a)], &["history-forked"]),
        (vec![(6, b), (7, a), (6, a)], &["went-back", "history-forked"]),
        (vec![(7, a), (6, a), (7, a)], &["went-back"]),
        (vec![(7, a), (6, b), (7, a), (5, a)], &["went-back", "history-forked"]),
        (vec![(8, a), (7, a), (6, b), (7, a)], &[]),
    ];
    let of = |(links, expected): (Vec<(u64, Uuid)>, &[&str])| {
        let judged: Vec<_> =
            links.iter().map(|(serial, instance)| Link { serial: *serial, instance: Some(*instance) }).collect();
        let codes: Vec<_> = report::chain(&judged).iter().map(|doubt| doubt.code.clone()).collect();
        assert_eq!(codes, expected, "{links:?}");
        json!({"commits": links, "doubts": codes})
    };
    cases.into_iter().map(of).collect()
}
