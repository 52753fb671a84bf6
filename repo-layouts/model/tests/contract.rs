//! The skeletons in `repo-layouts/device/` and the vectors in `fixtures/vectors/` are what this code writes, byte for
//! byte. `MARGO_BLESS=1` writes them anew.
#![allow(clippy::disallowed_methods, reason = "blessing writes fixtures")]

#[path = "contract/documents.rs"]
mod documents;
#[path = "contract/enrolment.rs"]
mod enrolment;
#[path = "contract/epochs.rs"]
mod epochs;
#[path = "contract/gate.rs"]
mod gate;
#[path = "contract/proofs.rs"]
mod proofs;
#[path = "contract/reports.rs"]
mod reports;
#[path = "contract/rosters.rs"]
mod rosters;
#[path = "contract/site.rs"]
mod site;
#[path = "contract/words.rs"]
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use repo_model::ask::{Answer, AskedWord, Outcome, answer_path};
use repo_model::desired::{Assembled, assemble, deployment_path};
use repo_model::envelope::{
    ComponentLock, DevicePolicy, ENVELOPE, Envelope, EnvelopeDeployment, EnvelopeDevice, LAYOUT, Lock, ValueFrom,
    ValueSource, ValueTarget,
};
use repo_model::freshness::{FRESHNESS, Freshness};
use repo_model::join::Join;
use repo_model::margo::manifest::MANIFEST;
use repo_model::margo::status::{ComponentStatus, DeploymentStatus, Status};
use repo_model::margo::{ApplicationDeployment, ApplicationDescription, DeviceCapabilities, State};
use repo_model::message::Message;
use repo_model::report::{
    Adopted, CURRENT_STATE, CurrentComponent, CurrentDeployment, CurrentState, IMAGES, LockedImage, LockedImages,
    SYNCER, SyncerReport,
};
use repo_model::roster::{Publisher, Roster, RosterHost, roster_path};
use repo_model::site::{SITE, SiteList, SiteWord};
use repo_model::value::{Param, ParamValue, input_digest};
use repo_model::{DeploymentId, DeviceId, Digest, FileTree, FleetId, KeyText, bundle, desired, json};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a file with what the code writes, or writes it.
fn golden(path: &Path, bytes: &[u8]) {
    if std::env::var_os("MARGO_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let known = fs::read(path).unwrap_or_default();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&known), text(bytes), "{} differs; `just bless` writes it anew", path.display());
}

fn fleet() -> FleetId {
    "5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f10".parse().unwrap()
}

fn device() -> DeviceId {
    "press-04".parse().unwrap()
}

fn key(last: char) -> KeyText {
    format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1hcmdvTWFyZ29NYXJnb01hcmdvTWFyZ29NYXJnb00{last}").parse().unwrap()
}

fn deployment() -> DeploymentId {
    DeploymentId::derive(fleet(), &"digitron".parse().unwrap(), &device())
}

/// The exact ApplicationDeployment of the skeleton, as the code writes what this says.
fn document() -> Vec<u8> {
    let yaml = format!(
        "id: {}\nmetadata: {{name: digitron, namespace: margo, deviceId: press-04}}\nspec:\n  applicationId: \
         com-northstartida-digitron-orchestrator\n  deploymentProfile:\n    type: compose\n    components:\n    - name: \
         digitron\n      properties: {{repository: 'oci://registry.example.com/compose/digitron', revision: 1.0.9, timeout: \
         5m}}\n  parameters:\n    greeting: {{value: servus, targets: [{{pointer: GREETING, components: [digitron]}}]}}\n    \
         ratio: {{value: 1.5, targets: [{{pointer: RATIO, components: [digitron]}}]}}\n    version: {{value: '1.10', \
         targets: [{{pointer: VERSION, components: [digitron]}}]}}\n",
        deployment()
    );
    ApplicationDeployment::read("skeleton", yaml.as_bytes()).unwrap().0.to_yaml()
}

fn skeleton() -> Assembled {
    let lock = Lock { manifest: Digest::of(b"an OCI manifest"), content: Digest::of(b"a layer") };
    let image = "registry.example.com/digitron:1.10".to_owned();
    let lock = ComponentLock { lock, images: BTreeMap::from([(image, Digest::of(b"an image's manifest"))]) };
    let password = ValueFrom {
        source: ValueSource::DeviceFile("db-password".to_owned()),
        targets: vec![ValueTarget { pointer: "PASSWORD".to_owned(), components: vec!["digitron".parse().unwrap()] }],
    };
    let described = EnvelopeDeployment {
        id: "digitron".parse().unwrap(),
        policy: Default::default(),
        profile: None,
        required_resources: None,
        locks: BTreeMap::from([("digitron".parse().unwrap(), lock)]),
        values_from: BTreeMap::from([("password".to_owned(), password)]),
    };
    let envelope = Envelope {
        layout: LAYOUT,
        fleet: fleet(),
        device: EnvelopeDevice { id: device(), status_keys: vec![key('D')], retired: false },
        serial: 7,
        manifest_version: 5,
        files: BTreeMap::new(),
        policy: DevicePolicy { poll_seconds: Some(15), report_seconds: Some(300), ..DevicePolicy::default() },
        requires: Vec::new(),
        deployments: BTreeMap::from([(deployment(), described)]),
    };
    let roster = Roster {
        version: 1,
        fleet: fleet(),
        issued: None,
        threshold: 1,
        roots: vec![key('R')],
        publishers: vec![Publisher { key: key('P'), not_after: Some("2028-01-01T00:00:00Z".parse().unwrap()) }],
        host: None,
    };
    let trust = FileTree::from([(roster_path(1), json::to_bytes(&roster))]);
    assemble(envelope, &BTreeMap::from([(deployment(), document())]), &trust)
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// What `desired`, `freshness`, `status`, `heartbeat` and `site` hold, for one deployment of one device.
fn branches() -> BTreeMap<&'static str, FileTree> {
    let assembled = skeleton();
    let freshness = Freshness {
        fleet: fleet(),
        device: device(),
        tip: COMMIT.to_owned(),
        envelope_digest: assembled.envelope_digest,
        serial: 7,
        issued: time("2026-11-21T12:00:00Z"),
        expires: time("2026-11-22T12:00:00Z"),
    };
    let syncer = SyncerReport {
        layout: LAYOUT,
        version: "0.1.0".to_owned(),
        instance: "8f14e45f-ceea-467f-9a5c-1d2c3b4a5968".parse().unwrap(),
        adopted: Some(Adopted {
            serial: 7,
            manifest_version: 5,
            trust: 1,
            commit: COMMIT.to_owned(),
            envelope: assembled.envelope_digest,
        }),
        conditions: Vec::new(),
        holds: Vec::new(),
        gates: Vec::new(),
        site: None,
    };
    let status = DeploymentStatus {
        deployment_id: deployment(),
        device_id: Some(device()),
        adopted_manifest_version: Some(5),
        status: Status { state: State::Installed, error: None },
        components: vec![ComponentStatus { name: "digitron".parse().unwrap(), state: State::Installed, error: None }],
        header: Default::default(),
    };
    let image = LockedImage { image: "registry.plant.local/db:***".to_owned(), digest: Digest::of(b"a manifest") };
    let services = BTreeMap::from([("db".to_owned(), image)]);
    let components = BTreeMap::from([("digitron".parse().unwrap(), services)]);
    let images = LockedImages::from([(deployment(), components)]);
    let component = CurrentComponent {
        input_digest: Some(digest_of_component()),
        state: "installed".to_owned(),
        health: "healthy".to_owned(),
        drift: "none".to_owned(),
        reason: None,
        crash_looping: false,
        attempts: 0,
        restart: 3,
    };
    let current = CurrentDeployment { components: BTreeMap::from([("digitron".parse().unwrap(), component)]) };
    let state = CurrentState {
        layout: LAYOUT,
        time: time("2026-11-21T12:05:00Z"),
        serial: 7,
        deployments: BTreeMap::from([(deployment(), current)]),
        asked: Some(2),
    };
    let answer = Answer {
        number: 2,
        what: AskedWord::Logs.to_string(),
        deployment: Some("digitron".parse().unwrap()),
        time: time("2026-11-21T12:04:10Z"),
        outcome: Outcome::Done.to_string(),
        reason: None,
        logs: Some(BTreeMap::from([("digitron".parse().unwrap(), vec!["digitron-1  | ready, as ***".to_owned()])])),
        diagnostics: None,
    };
    BTreeMap::from([
        ("desired", assembled.tree),
        ("freshness", FileTree::from([(FRESHNESS.to_owned(), json::to_bytes(&freshness))])),
        (
            "status",
            FileTree::from([
                (SYNCER.to_owned(), json::to_bytes(&syncer)),
                (IMAGES.to_owned(), json::to_bytes(&images)),
                (format!("deployments/{}.json", deployment()), status.to_bytes()),
            ]),
        ),
        (
            "heartbeat",
            FileTree::from([
                (CURRENT_STATE.to_owned(), json::to_bytes(&state)),
                (answer_path(answer.number), json::to_bytes(&answer)),
            ]),
        ),
        ("site", FileTree::from([(SITE.to_owned(), json::to_bytes(&site_list()))])),
    ])
}

/// The change that installs the skeleton's deployment, as `set` of a list names it.
fn change() -> serde_json::Value {
    serde_json::json!({"deployment": deployment(), "components": {"digitron": digest_of_component()}, "going": []})
}

fn site_list() -> SiteList {
    let word = |set: Digest, why: &str| SiteWord { set, by: "j.doe".to_owned(), why: why.to_owned() };
    SiteList {
        layout: LAYOUT,
        fleet: fleet(),
        device: device(),
        serial: 3,
        expires: time("2026-11-28T12:00:00Z"),
        approvals: vec![word(Digest::of(&json::canonical(&change())), "line 2 is idle")],
        rejected: vec![word(Digest::of(b"another change"), "not before the audit")],
    }
}

fn digest_of_component() -> Digest {
    let double = ParamValue::Double(1.5);
    let text = |value: &str| ParamValue::String(value.to_owned());
    let params = [
        Param::new("GREETING", &text("servus")),
        Param::new("RATIO", &double),
        Param::new("VERSION", &text("1.10")),
        Param { pointer: "PASSWORD".to_owned(), tag: "deviceFile".to_owned(), text: "hmac-sha256:00".to_owned() },
    ];
    input_digest("compose", "digitron", None, Digest::of(b"a layer"), &params)
}

#[test]
fn golden_the_device_skeleton_is_what_the_code_writes() {
    for (branch, files) in branches() {
        for (path, bytes) in files {
            golden(&root().join("repo-layouts/device").join(branch).join(path), &bytes);
        }
    }
}

#[test]
fn a_document_that_is_known_is_not_parsed() {
    let assembled = skeleton();
    let document = desired::read(&assembled.tree).unwrap().deployments[&deployment()].clone();
    let known = ApplicationDeployment { name: "known".to_owned(), ..document.deployment.clone() };
    let same = |id, bytes: &[u8]| (id == deployment() && bytes == document.bytes).then(|| known.clone());
    let read = desired::read_knowing(&assembled.tree, &same).unwrap();
    assert_eq!(
        (&read.deployments[&deployment()].deployment, &read.deployments[&deployment()].bytes),
        (&known, &document.bytes)
    );
    let mut tampered = assembled.tree;
    tampered.get_mut(&deployment_path(deployment())).unwrap().push(b'\n');
    let all = |_, _: &[u8]| Some(known.clone());
    assert_eq!(desired::read_knowing(&tampered, &all).unwrap_err().code, "digest-mismatch");
}

#[test]
fn the_skeleton_is_read_back() {
    let assembled = skeleton();
    let read = desired::read(&assembled.tree).unwrap();
    assert_eq!((read.envelope, read.envelope_digest), (assembled.envelope, assembled.envelope_digest));
    assert_eq!(read.manifest_digest, assembled.manifest_digest);
    let mut tampered = assembled.tree.clone();
    tampered.get_mut(&deployment_path(deployment())).unwrap().push(b'\n');
    assert_eq!(desired::read(&tampered).unwrap_err().code, "digest-mismatch");
    for path in [ENVELOPE, MANIFEST] {
        let mut tampered = assembled.tree.clone();
        tampered.remove(path);
        assert_eq!(desired::read(&tampered).unwrap_err().code, "manifest-invalid");
    }
    let mut tampered = assembled.tree;
    tampered.insert("extra".to_owned(), Vec::new());
    assert_eq!(desired::read(&tampered).unwrap_err().code, "manifest-invalid");
}

#[test]
fn golden_vectors_for_other_implementations() {
    let devices = ["press-04", "Press-04", "line-2/press-04", "a.git", "~", "x_y"];
    let repositories: BTreeMap<_, _> =
        devices.map(|id| (id, id.parse::<DeviceId>().unwrap().repository_name())).into_iter().collect();
    let components = ["digitron", "-edge-", "---", "a-very-long-component-name-that-is-cut-somewhere"];
    let names: BTreeMap<_, _> =
        components.map(|name| (name, deployment().runtime_name(&name.parse().unwrap()))).into_iter().collect();
    let identity = serde_json::json!({
        "fleet": fleet(), "device": device(), "deployment": "digitron", "deploymentId": deployment(),
        "repositories": repositories, "runtimeNames": names,
    });
    let files = FileTree::from([(format!("{}.yaml", deployment()), document())]);
    let bytes = serde_json::json!({
        "inputDigest": {
            "input": {"v": 1, "type": "compose", "name": "digitron", "content": Digest::of(b"a layer"), "params": [
                ["GREETING", "string", "servus"], ["PASSWORD", "deviceFile", "hmac-sha256:00"],
                ["RATIO", "double", "1.5"], ["VERSION", "string", "1.10"]]},
            "digest": digest_of_component(),
        },
        "bundle": {"document": Digest::of(&document()), "tar": Digest::of(&bundle::tar(&files))},
        "message": Message::new("digitron: change (serial 7)").trailer("Kind", "desired").trailer("Serial", 7).to_string(),
    });
    let folder = root().join("fixtures/vectors");
    let documents = documents::vectors();
    let all = [
        ("identity.json", identity),
        ("bytes.json", bytes),
        ("values.json", values()),
        ("documents.json", documents),
        ("gate.json", gate::vectors(&gate_base())),
        ("join.json", join()),
        ("rosters.json", rosters::vectors()),
        ("site.json", site::vectors(&site_list(), &change())),
        ("enrolment.json", enrolment::vectors(&join()["join"])),
    ];
    for (name, value) in all {
        golden(&folder.join(name), (serde_json::to_string_pretty(&value).unwrap() + "\n").as_bytes());
    }
}

/// A join file, one over SSH, the lines that come back, and where `url` may lead: over HTTPS, over SSH, to a path on the same
/// machine, or nowhere.
fn join() -> serde_json::Value {
    let roster = String::from_utf8(branches()["desired"][&roster_path(1)].clone()).unwrap();
    let signature = "-----BEGIN SSH SIGNATURE-----\nthe text of trust/1.json.sig.0\n-----END SSH SIGNATURE-----\n";
    let file = serde_json::json!({
        "layout": LAYOUT, "fleet": fleet(), "device": device(), "url": "https://fleet.example:8443/devices/press-04.git",
        "ca": "-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n",
        "account": {"user": "press-04", "secret": "one of 256 random bits"}, "issued": "2026-11-21T12:00:00Z",
        "trust": {"version": 1, "sha256": Digest::of(roster.as_bytes()), "roster": roster, "signatures": {"0": signature}},
        "floor": {"serial": 7, "manifestVersion": 5},
    });
    let read: Join = json::read(file.to_string().as_bytes()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), file);
    assert_eq!(read.trust.signatures[&0], signature);
    for optional in ["ca", "account", "issued"] {
        let mut less = file.clone();
        less.as_object_mut().unwrap().remove(optional);
        assert!(json::read::<Join>(less.to_string().as_bytes()).is_ok(), "{optional}");
    }
    let mut over_ssh = file.clone();
    over_ssh.as_object_mut().unwrap().retain(|key, _| key != "ca" && key != "account");
    over_ssh["url"] = "ssh://wfm@fleet.example:2222/devices/press-04.git".into();
    over_ssh["hostKeys"] = serde_json::json!([key('H')]);
    let read: Join = json::read(over_ssh.to_string().as_bytes()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), over_ssh);
    let mut by_certificate = file.clone();
    by_certificate.as_object_mut().unwrap().remove("account");
    by_certificate["credentials"] = "certificate".into();
    let read_too: Join = json::read(by_certificate.to_string().as_bytes()).unwrap();
    assert_eq!(serde_json::to_value(&read_too).unwrap(), by_certificate);
    by_certificate["credentials"] = "another".into();
    assert!(json::read::<Join>(by_certificate.to_string().as_bytes()).is_err(), "what nobody knows is no way to come");
    by_certificate["credentials"] = "certificate".into();
    let urls = [
        ("https://fleet.example/devices/press-04.git", "https"),
        ("HTTPS://fleet.example:8443/a/b.git", "https"),
        ("https://[2001:db8::1]:8443/press-04.git", "https"),
        ("https://fleet.example/a%20b.git", "https"),
        ("/srv/git/press-04.git", "path"),
        ("file:///srv/git/press-04.git", "path"),
        ("ssh://git@fleet.example/press-04.git", "ssh"),
        ("SSH://wfm@fleet.example:2222/devices/press-04.git", "ssh"),
        ("ssh://git@[2001:db8::1]:2222/a/b~c,d.git", "ssh"),
        ("https://user@fleet.example/press-04.git", ""),
        ("https://user:secret@fleet.example/press-04.git", ""),
        ("https://fleet.example/press-04.git#x", ""),
        ("https://fleet.example/press 04.git", ""),
        ("https://fleet.example/pr\u{e9}ss.git", ""),
        ("https:///press-04.git", ""),
        ("http://fleet.example/press-04.git", ""),
        ("ssh://fleet.example/press-04.git", ""),
        ("ssh://git:secret@fleet.example/press-04.git", ""),
        ("ssh://-oProxyCommand=x@fleet.example/press-04.git", ""),
        ("ssh://git@-oProxyCommand=x/press-04.git", ""),
        ("ssh://git@fleet.example:0/press-04.git", ""),
        ("ssh://git@[fe80::1%25eth0]/press-04.git", ""),
        ("ssh://git@fleet.example", ""),
        ("ssh://git@fleet.example/~git/press-04.git", ""),
        ("ssh://git@fleet.example/../press-04.git", ""),
        ("ssh://git@fleet.example/press%2d04.git", ""),
        ("ssh://git@fleet.example/press-04.git#x", ""),
        ("ssh://git@fleet.example/press'04.git", ""),
        ("git@fleet.example:press-04.git", ""),
        ("git://fleet.example/press-04.git", ""),
    ];
    let urls = urls.map(|(url, way)| (url, (!way.is_empty()).then_some(way)));
    let lines = [format!("{} {}", key('D'), device()), format!("{} {} ssh", key('S'), device())];
    let certificate_line = format!("{} {} tls", Digest::of(b"a SubjectPublicKeyInfo"), device());
    let by_roster = by_roster(&read);
    serde_json::json!({
        "join": file, "joinOverSsh": over_ssh, "joinByCertificate": by_certificate, "enrolmentLine": lines[0],
        "sshLine": lines[1], "certificateLine": certificate_line, "urls": urls, "byRoster": by_roster,
    })
}

/// What newer rosters, and one that is older, make of the host of the join file over SSH.
fn by_roster(join: &Join) -> Vec<serde_json::Value> {
    let host = |host: serde_json::Value| Some(json::read::<RosterHost>(host.to_string().as_bytes()).unwrap());
    let moved =
        serde_json::json!({"url": "ssh://wfm@new.example/devices/{device}.git", "hostKeys": [key('N'), key('H')]});
    let over_https = serde_json::json!({"url": "https://new.example/d/{device}/state.git", "ca": "PEM of two\n"});
    let cases = [
        (1, None),
        (1, host(moved.clone())),
        (2, host(serde_json::json!({"hostKeys": [key('N')]}))),
        (2, host(over_https)),
        (2, host(serde_json::json!({}))),
        (0, host(moved)),
    ];
    let case = |(version, host): (u64, Option<RosterHost>)| {
        let mut after = join.clone();
        after.follow_roster(&Roster {
            version,
            fleet: fleet(),
            issued: None,
            threshold: 1,
            roots: vec![key('R')],
            publishers: Vec::new(),
            host: host.clone(),
        });
        serde_json::json!({
            "version": version, "host": host, "url": after.url, "ca": after.ca, "hostKeys": after.host_keys,
        })
    };
    cases.into_iter().map(case).collect()
}

fn gate_base() -> gate::Base {
    let mut branches = branches();
    gate::Base {
        tree: branches.remove("desired").unwrap(),
        freshness: branches.remove("freshness").unwrap(),
        fleet: fleet(),
        device: device(),
        publisher: key('P'),
        commit: COMMIT.to_owned(),
    }
}

#[test]
fn golden_vectors_of_what_readers_of_status_check() {
    let text = serde_json::to_string_pretty(&reports::vectors()).unwrap() + "\n";
    golden(&root().join("fixtures/vectors/reports.json"), text.as_bytes());
}

/// Doubles with the text that enters digests, and what profiles ask of one device with the answer.
fn values() -> serde_json::Value {
    let doubles =
        ["1.0", "-0.5", "0.1", "1e-4", "9.9e-5", "1.5e-7", "1e15", "1e16", "1e20", "1.7976931348623157e308", "5e-324"];
    let doubles: BTreeMap<_, _> =
        doubles.map(|text| (text, ParamValue::Double(text.parse().unwrap()).text())).into_iter().collect();
    let device = serde_json::json!({
        "labels": {"line": "2", "size": 7, "slots": ["a", "b"]},
        "properties": {"id": "press-04", "vendor": "Acme", "modelNumber": "m", "serialNumber": "s", "memory": "8Gi",
            "cpus": [{"cores": 2, "architecture": "amd64"}], "supportedRuntimes": ["oci"],
            "peripherals": [{"type": "gpu", "manufacturer": "NVIDIA"}, {"type": "display"}]},
    });
    let capabilities = DeviceCapabilities::read("device", device.to_string().as_bytes()).unwrap();
    let (property, label) = ("propertySelector", "labelSelector");
    let asked = |selector: &str, key: &str, operator: &str, values: serde_json::Value| serde_json::json!({selector: {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}});
    let exists = |selector: &str, key: &str, operator: &str| serde_json::json!({selector: {"matchExpressions": [{"key": key, "operator": operator}]}});
    let item = |operator: &str, items: &[(&str, &str)]| {
        let items: Vec<_> = items
            .iter()
            .map(|(key, value)| serde_json::json!({"key": key, "operator": "In", "values": [value]}))
            .collect();
        serde_json::json!({property: {"matchExpressions": [
            {"key": "/peripherals", "operator": operator, "itemSelector": {"matchExpressions": items}}]}})
    };
    let together = |mut one: serde_json::Value, other: serde_json::Value| {
        one.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        one
    };
    let vendor = |name: &str| asked(property, "/vendor", "In", serde_json::json!([name]));
    let line = |name: &str| asked(label, "line", "In", serde_json::json!([name]));
    let rules = [
        vec![vendor("Acme")],
        vec![asked(property, "/vendor", "NotIn", serde_json::json!(["Acme"]))],
        vec![asked(property, "/none", "NotIn", serde_json::json!(["a"]))],
        vec![asked(property, "/supportedRuntimes", "In", serde_json::json!(["custom", "oci"]))],
        vec![asked(property, "/supportedRuntimes", "NotIn", serde_json::json!(["custom", "oci"]))],
        vec![asked(property, "/cpus/0/cores", "Gt", serde_json::json!([1.5]))],
        vec![asked(property, "/memory", "Gt", serde_json::json!(["8191Mi"]))],
        vec![asked(property, "/memory", "Lt", serde_json::json!(["8Gi"]))],
        vec![exists(property, "/peripherals", "Exists")],
        vec![item("ContainsAll", &[("/type", "gpu"), ("/manufacturer", "NVIDIA")])],
        vec![item("ContainsAll", &[("/type", "display"), ("/manufacturer", "NVIDIA")])],
        vec![item("ContainsAny", &[("/type", "camera"), ("/manufacturer", "NVIDIA")])],
        vec![item("ContainsAny", &[("/type", "camera"), ("/manufacturer", "AMD")])],
        vec![asked(label, "line", "Gt", serde_json::json!([1]))],
        vec![asked(label, "line", "In", serde_json::json!([2]))],
        vec![asked(label, "slots", "In", serde_json::json!(["b", "c"]))],
        vec![exists(label, "none", "DoesNotExist")],
        vec![exists(label, "line", "Exists")],
        vec![vendor("Other"), line("2")],
        vec![together(vendor("Acme"), line("2"))],
        vec![together(vendor("Acme"), line("3")), vendor("Other")],
    ];
    let fits = rules.map(|rules| {
        let text = serde_json::json!({
            "id": "a", "metadata": {"name": "a", "version": "1"},
            "deploymentProfiles": [{"id": "a", "type": "compose", "deviceConstraints": {"eligibilityRules": rules},
                "components": [{"name": "a", "properties": {"repository": "oci://a.example/a", "revision": "1.0.0"}}]}],
        });
        let (description, _) = ApplicationDescription::read("a", text.to_string().as_bytes()).unwrap();
        serde_json::json!({"eligibilityRules": rules, "fits": description.profiles[0].unmet(&capabilities).is_empty()})
    });
    serde_json::json!({"doubles": doubles, "device": device, "eligibility": fits})
}

/// A second implementation, in another language and written from the contract alone, comes to the same.
#[test]
fn another_implementation_comes_to_the_same_vectors() {
    let mut check = std::process::Command::new("python3");
    let output = check.arg(root().join("fixtures/vectors/check.py")).output().expect("python3, see .ci/setup");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("all right"), "{said}");
}

/// The same of what it would doubt.
#[test]
fn another_implementation_has_the_same_doubts() {
    let mut check = std::process::Command::new("python3");
    let output = check.arg(root().join("fixtures/vectors/reports.py")).output().expect("python3, see .ci/setup");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("all right"), "{said}");
}
