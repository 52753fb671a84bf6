//! Secrets of the fleet: `secret set`, `secret rotate`, `secret list`, and what is published of them.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use repo_git::age::AgeFile;
use repo_testkit::git::{git, try_git};
use serde_json::{Value, json};
use wfm_git_publisher::fleet;
use wfm_git_publisher::render::problems_of;
use wfm_git_publisher::repos::FleetRepo;

use crate::reports::Reporter;
use crate::support::{Lab, Ran};

const FILE: &str = "secrets/hello-token/press-01.age";

/// Two devices that need the secret, and one that isn't enrolled.
fn lab() -> Lab {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.edit(
        "deployments/hello.yaml",
        "  # token: {valueFrom: {deviceFile: hello-token}}",
        "  token: {valueFrom: {encrypted: hello-token}}",
    );
    lab.commit();
    lab
}

fn secret(lab: &Lab, args: &[&str], value: &[u8]) -> Ran {
    lab.run_told(&[&["secret"], args].concat(), value)
}

/// What a device reads of the file that is committed for it.
fn read(lab: &Lab, device: &str) -> Option<String> {
    let shown = try_git(&lab.fleet, &["show", &format!("HEAD:secrets/hello-token/{device}.age")]);
    let file = AgeFile::parse(std::str::from_utf8(&shown.stdout).unwrap()).ok()?;
    let clear = file.decrypt(&Lab::device_key(device)).ok()?;
    Some(String::from_utf8(clear.to_vec()).unwrap())
}

fn list(lab: &Lab) -> Value {
    let listed: Value = serde_json::from_str(&lab.run(&["secret", "list", "--output", "json"]).good()).unwrap();
    listed["secrets"][0].clone()
}

fn commits(lab: &Lab) -> String {
    git(&lab.fleet, &["rev-list", "--count", "HEAD"])
}

#[test]
fn a_secret_is_given_to_whoever_needs_it_and_cannot_read_it_and_rotated_for_all() {
    let lab = lab();
    let missing = |device: &str, why: &str| json!({ "device": device, "why": why });
    let listed = list(&lab);
    let unreadable = ["packer-01", "press-01"].map(|device| missing(device, "missing"));
    assert_eq!(listed["unreadable"].as_array().unwrap()[..2], unreadable, "{listed}");
    assert_eq!(listed["unreadable"][2], missing("press-02", "not-enrolled"), "{listed}");
    // Nobody but the devices: not even what lies beside it is committed with it.
    lab.write("secrets/hello-token/clear.txt", "canary-one");
    let said = secret(&lab, &["set", "hello-token"], b"canary-one\n").good();
    assert!(said.contains("press-01 can read it") && said.contains("press-02 isn't enrolled"), "{said}");
    assert_eq!(
        (read(&lab, "press-01"), read(&lab, "packer-01")),
        (Some("canary-one".into()), Some("canary-one".into()))
    );
    assert_eq!(git(&lab.fleet, &["log", "-1", "--format=%s"]), "secret hello-token for 2 devices");
    let all = git(&lab.fleet, &["ls-tree", "-r", "--name-only", "HEAD", "secrets"]);
    assert_eq!(all, "secrets/hello-token/packer-01.age\nsecrets/hello-token/press-01.age");

    // The same again changes nothing for those who can read it, and gives it to who came.
    let (before, kept) = (commits(&lab), lab.read(FILE));
    secret(&lab, &["set", "hello-token"], b"canary-two").good();
    assert_eq!((commits(&lab), lab.read(FILE)), (before, kept));
    lab.run(&["device", "add", "press-02"]).good();
    let line = format!("{} press-02", Lab::device_key("press-02").public());
    lab.run(&["device", "enroll", "press-02", &line]).good();
    let said = secret(&lab, &["set", "hello-token", "--output", "json"], b"canary-one").good();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&said["encrypted"], &said["kept"]),
        (&json!(["press-02"]), &json!(["packer-01", "press-01"])),
        "{said}"
    );
    assert_eq!(list(&lab)["unreadable"], json!([]));
    lab.run(&["publish"]);

    // Another key: what was encrypted to the old one is nothing to the device.
    let line = format!("{} press-01", Lab::device_key("another disk").public());
    lab.run(&["device", "enroll", "press-01", &line, "--replace"]).good();
    assert_eq!(list(&lab)["unreadable"], json!([missing("press-01", "other-key")]));
    let table = lab.run(&["secret", "list"]).good();
    assert!(table.contains("hello-token  2 of 3       press-01 (other-key)"), "{table}");
    let line = format!("{} press-01", Lab::device_key("press-01").public());
    lab.run(&["device", "enroll", "press-01", &line, "--replace"]).good();
    secret(&lab, &["rotate", "hello-token"], b"canary-three").good();
    let now = ["press-01", "press-02", "packer-01"].map(|device| read(&lab, device));
    assert_eq!(now, [(); 3].map(|()| Some("canary-three".to_owned())));
    // For one device alone.
    secret(&lab, &["rotate", "hello-token", "--device", "press-02"], b"canary-four").good();
    assert_eq!(
        (read(&lab, "press-02").unwrap(), read(&lab, "press-01").unwrap()),
        ("canary-four".into(), "canary-three".into())
    );
    std::fs::remove_file(lab.path("secrets/hello-token/clear.txt")).unwrap();
    let objects = try_git(&lab.fleet, &["cat-file", "--batch-all-objects", "--batch"]).stdout;
    assert!(!String::from_utf8_lossy(&objects).contains("canary-"), "a value is in an object");
}

/// What a deployment says of its parameters is the same then.
#[test]
fn a_rotated_secret_is_planned_and_published_by_the_program_that_noted_what_devices_have() {
    for rollout in ["none", "{waves: [1, 1], bake: 60s}"] {
        let lab = lab();
        lab.write("fleet.yaml", format!("{}rollout: {rollout}\n", lab.read("fleet.yaml")));
        lab.commit();
        secret(&lab, &["set", "hello-token"], b"canary").good();
        lab.publish_all();
        assert_eq!(lab.run(&["publish"]).code, Some(0));
        let serials = || ["press-01", "packer-01"].map(|device| lab.serial(device));
        let before = serials();
        secret(&lab, &["rotate", "hello-token"], b"canary of the next day").good();
        let planned = lab.run(&["plan"]);
        assert!(
            planned.code == Some(3) && planned.out.contains("token: encrypted value"),
            "{rollout}: {}",
            planned.out
        );
        assert_eq!(lab.run(&["publish"]).code, Some(0));
        assert_ne!(serials(), before, "{rollout}");
    }
}

#[test]
fn what_can_not_be_given_is_refused_and_never_repeated() {
    let lab = lab();
    let (before, long) = (commits(&lab), vec![b'x'; (64 << 10) + 1]);
    for (args, value, why) in [
        (&["set", "-x"][..], b"canary".as_slice(), ""),
        (&["set", "a/b"], b"canary", "can't be a secret's name"),
        (&["set", "other"], b"canary", "no deployment needs the secret `other`"),
        (&["rotate", "hello-token"], b"canary", "there is no secret `hello-token`"),
        (&["set", "hello-token", "--device", "press-99"], b"canary", "there is no device `press-99`"),
        (&["set", "hello-token"], b"\n", "is empty"),
        (&["set", "hello-token"], b"canary\0", "NUL"),
        (&["set", "hello-token"], b"canary\xff", "is not UTF-8"),
        (&["set", "hello-token"], &long, "more than 64 KiB"),
    ] {
        let ran = secret(&lab, args, value);
        assert!(ran.code != Some(0) && ran.err.contains(why), "{args:?}: {}", ran.err);
        assert!(!ran.err.contains("canary") && !ran.out.contains("canary"), "{args:?}: {}", ran.err);
    }
    assert!(!lab.path("secrets").exists());
    std::os::unix::fs::symlink(lab.dir(), lab.path("secrets")).unwrap();
    let said = secret(&lab, &["set", "hello-token"], b"canary").failed(1);
    assert!(said.contains("`secrets` is a link, and nothing is written through it"), "{said}");
    assert_eq!(commits(&lab), before);
    assert!(!lab.dir().join("hello-token").exists());
}

#[test]
fn a_device_gets_its_own_value_encrypted_and_keeps_what_it_has_where_it_could_not_read_it() {
    let lab = lab();
    // Whoever pushes something else isn't held up by it.
    let source = FleetRepo::open(&lab.fleet).unwrap();
    let read = fleet::read(&source.files(source.resolve("HEAD").unwrap()).unwrap());
    let problems = problems_of(&read.fleet.unwrap(), 1);
    assert!(!problems.has_errors() && problems.to_string().contains("has no value for the device"), "{problems}");
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("the secret `hello-token` has no value for the device"), "{error}");
    assert!(error.contains("`secret set hello-token`"), "{error}");
    secret(&lab, &["set", "hello-token"], b"canary").good();
    let plan = lab.run(&["plan", "--each"]);
    assert!(plan.out.contains("token: encrypted value ") && !plan.out.contains("canary"), "{}{}", plan.out, plan.err);
    lab.publish_all();
    let envelope = lab.json("press-01", "desired", "envelope.json");
    assert_eq!(envelope["requires"], json!(["encrypted-values"]));
    let token = envelope["deployments"].as_object().unwrap().values().next().unwrap()["valuesFrom"]["token"].clone();
    assert_eq!(token, json!({"encrypted": lab.read(FILE), "targets": [{"pointer": "TOKEN", "components": ["hello"]}]}));
    let explained = lab.run(&["explain", "press-01"]).good();
    assert!(explained.contains("secret hello-token"), "{explained}");
    lab.run(&["validate"]).good();
    secret(&lab, &["rotate", "hello-token"], b"canary of the next day").good();
    lab.publish_all();
    let envelope = lab.json("press-01", "desired", "envelope.json");
    assert_eq!(envelope["serial"], 3, "nothing but the secret changed");
    let token = json!({"encrypted": lab.read(FILE), "targets": token["targets"]});

    // A file that nobody can read holds back that deployment on that device, and is told with its path.
    lab.write(FILE, "canary");
    lab.write("deployments/second.yaml", crate::support::SECOND);
    lab.commit();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains(FILE) && error.contains("no armoured age file") && !error.contains("canary"), "{error}");
    let envelope = lab.json("press-01", "desired", "envelope.json");
    let values = envelope["deployments"].as_object().unwrap().values().map(|one| one["valuesFrom"]["token"].clone());
    assert_eq!(values.filter(|one| !one.is_null()).collect::<Vec<_>>(), [token], "what it has stays");
}

#[test]
fn a_syncer_that_is_too_old_to_decrypt_is_left_as_it_is() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let device = Reporter { lab: &lab, device: "press-01" };
    device.status_with("press-01", ("installed", ""), "0.2.0", &[]);
    lab.edit(
        "deployments/hello.yaml",
        "  # token: {valueFrom: {deviceFile: hello-token}}",
        "  token: {valueFrom: {encrypted: hello-token}}",
    );
    lab.commit();
    secret(&lab, &["set", "hello-token"], b"canary").good();
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("its syncer is version 0.2.0, and `encrypted-values` needs 0.3.0"), "{error}");
    device.status_with("press-01", ("installed", ""), "0.3.0", &[]);
    lab.publish_all();
    assert_eq!(lab.json("press-01", "desired", "envelope.json")["requires"], json!(["encrypted-values"]));
}
