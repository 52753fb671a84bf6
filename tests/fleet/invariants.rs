//! One test for each invariant of `ARCHITECTURE.md`; that of the third is in `crash`.
//!
//! A mutant in `mutants/` shows of each that it guards its invariant.

use repo_model::Trailer;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use repo_testkit::git;
use repo_testkit::hand::HandMadeDevice;

use crate::draft::Draft;
use crate::end_to_end::say_it_differently;
use crate::hand_made::HandMade;
use crate::site::Site;
use repo_testkit::device::Device;
use repo_testkit::fleet::{DEPLOYMENT, DEVICES, Fleet};

fn publisher_key(fleet: &Fleet) -> Option<PathBuf> {
    Some(fleet.home().join("keys/publisher"))
}

fn device_key(device: &Device) -> Option<PathBuf> {
    Some(device.home().join("status.key"))
}

/// The reasons of the conditions that the device tells on `status`.
fn reasons(fleet: &Fleet, device: &str) -> Vec<String> {
    let report = git::show(&fleet.repository(device), "refs/heads/status", "syncer.json").expect("a report");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let conditions = report["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().filter_map(|one| one["reason"].as_str().map(str::to_owned)).collect()
}

/// Invariant 1.
#[test]
fn each_ref_has_one_writer_and_readers_believe_only_its_signature() {
    let site = Site::new(&["press-01"]);
    let (fleet, device) = (&site.fleet, site.device("press-01"));
    site.publish();
    site.pass();
    let repository = fleet.repository("press-01");
    let stranger = site.dir.path().join("stranger");
    HandMadeDevice::with_key(&stranger);
    // Neither the other side nor a stranger speaks for the device, and nobody's word counts on another branch.
    let heartbeat = Draft::of(&repository, "heartbeat", device_key(device));
    for (branch, key, replayed) in [
        ("status", publisher_key(fleet), None),
        ("status", Some(stranger.join("key")), None),
        ("status", None, None),
        ("heartbeat", publisher_key(fleet), None),
        ("heartbeat", Some(stranger.join("key")), None),
        ("status", device_key(device), Some(heartbeat)),
    ] {
        let genuine = git::tip(&repository, branch).expect("a tip");
        let forged = replayed.unwrap_or_else(|| Draft::of(&repository, branch, key.clone()));
        forged.put(&repository, branch);
        let status = fleet.status("press-01");
        let doubts = status["doubts"].to_string();
        assert!(doubts.contains(&format!("`{branch}` can't be believed")), "{branch} by {key:?}: {status}");
        git::git(&repository, &["update-ref", &format!("refs/heads/{branch}"), &genuine]);
    }
    assert_eq!(fleet.status("press-01")["doubts"], Value::Array(vec![]), "the genuine ones are believed");
    // Nor does a device speak for the publisher.
    let genuine = git::tip(&repository, "desired").expect("a tip");
    let calls = device.calls();
    for key in [device_key(device), Some(stranger.join("key"))].into_iter().flatten() {
        Draft::next(&repository, key, |text| text.replace("hello from", "pwned from")).put(&repository, "desired");
        assert_eq!(device.syncer(&["once"]).status.code(), Some(1));
        let publish = fleet.try_run(&["publish"]);
        let said = String::from_utf8_lossy(&publish.stderr).into_owned();
        assert!(publish.status.code() == Some(1) && said.contains("no publisher of this fleet"), "{said}");
        assert_eq!(device.calls(), calls, "what runs keeps running");
        git::git(&repository, &["update-ref", "refs/heads/desired", &genuine]);
    }
    device.assert_converges(fleet, "with the genuine branches");
    fleet.assert_whole(false, "both sides wrote what is theirs");
}

/// The projects that the stand-in for docker was told to change since `before`.
fn touched(device: &Device, before: &str) -> BTreeSet<String> {
    let calls = device.calls();
    let new = calls.strip_prefix(before).expect("calls are only added");
    // `<verb> <project>/<service> <id>`, or `<verb> network <project>_default`.
    let projects = new.lines().filter_map(|line| line.split(' ').nth(1)?.split_once('/').map(|(project, _)| project));
    projects.map(str::to_owned).collect()
}

/// What a device's plan says: exit code, projects to apply, projects to remove.
fn planned(device: &Device) -> (Option<i32>, BTreeSet<String>, BTreeSet<String>) {
    let output = device.syncer(&["plan", "--output", "json"]);
    let plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let each = |list: &Value, key: &str| list[key].as_array().cloned().unwrap_or_default();
    let components = each(&plan, "deployments").into_iter().flat_map(|deployment| each(&deployment, "components"));
    let is_done = |component: &Value| ["apply", "restore"].iter().any(|verb| component["action"][verb].is_object());
    let applies = components.filter(is_done);
    let project = |one: Value| one["project"].as_str().expect("a project").to_owned();
    (output.status.code(), applies.map(project).collect(), each(&plan, "removals").into_iter().map(project).collect())
}

/// Invariant 2.
#[test]
fn a_plan_is_exactly_what_is_done_and_changes_nothing_itself() {
    let site = Site::new(&DEVICES);
    let fleet = &site.fleet;
    site.publish();
    site.pass();
    let edits: [&dyn Fn(); 3] = [
        &|| fleet.change(DEPLOYMENT, "hello from the packer", "servus from the packer"),
        &|| {
            fleet.change(DEPLOYMENT, "# exclude:\n#   - matchLabels: {role: spare}", "exclude: [{devices: [press-01]}]")
        },
        &|| fleet.change(DEPLOYMENT, "from the press", "from both"),
    ];
    for (number, edit) in edits.iter().enumerate() {
        edit();
        let (refs, files) = (fleet.refs(), fleet.files());
        let output = fleet.try_run(&["plan", "--output", "json"]);
        assert_eq!(output.status.code(), Some(3));
        let plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let devices = plan["devices"].as_array().expect("devices").iter().filter(|one| one["state"] == "changed");
        let planned_devices: BTreeSet<_> =
            devices.map(|one| one["device"].as_str().expect("an id").to_owned()).collect();
        assert_eq!((refs, files), (fleet.refs(), fleet.files()), "edit {number}: a plan changes nothing");
        let before = DEVICES.map(|id| git::tip(&fleet.repository(id), "desired"));
        site.publish();
        let done = DEVICES.iter().zip(before).filter(|(id, tip)| git::tip(&fleet.repository(id), "desired") != *tip);
        assert_eq!(planned_devices, done.map(|(id, _)| (*id).to_owned()).collect(), "edit {number}");
        for device in &site.devices {
            let (calls, marks) = (device.calls(), device.marks());
            let (code, applies, removals) = planned(device);
            assert_eq!(device.marks(), marks, "edit {number}, {}: a plan changes nothing", device.id);
            let differs = planned_devices.contains(&device.id);
            assert_eq!(code, Some(if differs { 3 } else { 0 }), "edit {number}, {}", device.id);
            device.pass();
            let all: BTreeSet<_> = applies.union(&removals).cloned().collect();
            assert_eq!(touched(device, &calls), all, "edit {number}, {}: what was planned is done", device.id);
            assert_eq!(all.is_empty(), !differs, "edit {number}, {}", device.id);
            assert_eq!(planned(device), (Some(0), BTreeSet::new(), BTreeSet::new()), "plan(d, apply(plan)) = ∅");
        }
    }
}

/// Invariant 4.
#[test]
fn all_progress_is_in_the_clone_and_the_floor_survives_its_loss() {
    let site = Site::new(&["press-01"]);
    let (fleet, device) = (&site.fleet, site.device("press-01"));
    let (repository, backup) = (fleet.repository("press-01"), site.dir.path().join("backup"));
    site.publish();
    site.pass();
    let first = git::tip(&repository, "desired").expect("a tip");
    fleet.change(DEPLOYMENT, "hello from the press", "servus from the press");
    site.publish();
    site.pass();
    let second = git::tip(&repository, "desired").expect("a tip");
    device.assert_whole(fleet, true, "with the clone");
    let calls = device.calls();

    std::fs::rename(device.clone_dir(), &backup).expect("moved");
    for branch in ["desired", "freshness", "bundle"] {
        let earlier = if branch == "desired" { first.clone() } else { format!("refs/heads/{branch}") };
        git::git(&repository, &["update-ref", &format!("refs/heads/{branch}"), &earlier]);
    }
    assert_eq!(device.syncer(&["once"]).status.code(), Some(1), "an old state is no news, with or without a clone");
    assert_eq!(device.calls(), calls, "what runs keeps running");
    git::git(&repository, &["update-ref", "refs/heads/desired", &second]);
    device.assert_converges(fleet, "without the clone");
    assert_eq!(device.calls(), calls, "what runs is known to be what is wanted");

    // With its clone and nothing else of what it learned, the device goes on where it was.
    std::fs::remove_dir_all(device.clone_dir()).expect("removed");
    std::fs::rename(&backup, device.clone_dir()).expect("moved");
    device.assert_converges(fleet, "with the old clone");
    assert_eq!(device.calls(), calls, "nothing is done again");
}

/// Invariant 5.
#[test]
fn the_same_meaning_has_no_effect_whatever_the_bytes() {
    let site = Site::new(&DEVICES);
    let fleet = &site.fleet;
    site.publish();
    site.pass();
    let calls = || site.devices.iter().map(Device::calls).collect::<Vec<_>>();
    let tips = || DEVICES.map(|id| git::tip(&fleet.repository(id), "desired"));
    let (before, published) = (calls(), tips());
    say_it_differently(fleet);
    site.publish();
    assert_eq!(tips(), published, "another form of the fleet makes no commit");

    // Documents as another version of the publisher, or of a YAML library, would have written them.
    let key = publisher_key(fleet).expect("a key");
    for id in DEVICES {
        let reformat =
            |text: &str| format!("# written by another hand\n---\n{}", text.replace(": hello\n", ": \"hello\"\n"));
        Draft::next(&fleet.repository(id), key.clone(), reformat).put(&fleet.repository(id), "desired");
    }
    let published = tips();
    site.publish();
    assert_eq!(tips(), published, "the parent's bytes are kept");
    site.pass();
    assert_eq!(calls(), before, "and no device does anything");
    assert_eq!(fleet.status("press-01")["adoptedSerial"], 2, "although it adopted them");
    fleet.assert_settled("in the end");
}

/// Invariant 6.
#[test]
fn a_bad_object_never_blocks_its_neighbours_and_says_why() {
    let site = Site::new(&DEVICES);
    let (fleet, device) = (&site.fleet, site.device("press-01"));
    site.publish();
    site.pass();
    // Two bad files, a deployment that can't run on its device, and a change that must get through.
    fleet.write(
        "deployments/broken.yaml",
        "id: broken\napplication: {id: nothing, version: 9.9.9}\ntargets: [{devices: [press-01]}]\n",
    );
    let line = fleet.read("devices/press-02.yaml").lines().count() + 1;
    fleet.write("devices/press-02.yaml", &(fleet.read("devices/press-02.yaml") + "colour: blue\n"));
    fleet.write(
        "deployments/a-first.yaml",
        "id: a-first\napplication: {id: hello, version: 1.0.0}\ntargets: [{devices: [press-01]}]\n\
         parameters: {token: {valueFrom: {deviceFile: nobody-put-it-there}}}\n",
    );
    fleet.change(DEPLOYMENT, "hello from the", "servus from the");
    let output = fleet.try_run(&["publish"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("deployments/broken.yaml:2:"), "{said}");
    assert!(said.contains(&format!("devices/press-02.yaml:{line}:1")), "{said}");
    assert_eq!(DEVICES.map(|id| fleet.serial(id)), [2, 2, 1], "the good ones are published, the bad one stays");

    let output = device.syncer(&["once"]);
    assert_eq!(output.status.code(), Some(1), "one deployment isn't as wanted");
    let (good, bad): (Vec<Value>, Vec<Value>) = fleet.status("press-01")["deployments"]
        .as_array()
        .expect("rows")
        .iter()
        .cloned()
        .partition(|row| row["deployment"] == "hello");
    assert_eq!((&good[0]["state"], &bad[0]["state"]), (&"installed".into(), &"failed".into()));
    assert!(bad[0]["reason"].to_string().contains("nobody-put-it-there"), "{bad:?}");
    let environments = device.environments();
    assert!(environments.len() == 1 && environments[0].contains("servus from the press"), "{environments:?}");
    site.device("packer-01").pass();
    assert!(site.device("packer-01").environments()[0].contains("servus from the packer"));
}

/// Invariant 7.
#[test]
fn nothing_unverified_runs_and_what_runs_keeps_running() {
    let site = Site::new(&["press-01", "press-02"]);
    let (fleet, device) = (&site.fleet, site.device("press-01"));
    site.publish();
    site.pass();
    fleet.change(DEPLOYMENT, "hello from the press", "servus from the press");
    site.publish();
    site.pass();
    let (repository, key) = (fleet.repository("press-01"), publisher_key(fleet).expect("a key"));
    let genuine = git::tip(&repository, "desired").expect("a tip");
    let pwn = |text: &str| text.replace("servus from", "pwned from");
    let next = || Draft::next(&repository, key.clone(), pwn);
    let other = fleet.repository("press-02");

    let mut tampered = next();
    tampered.files.values_mut().for_each(|bytes| {
        *bytes = String::from_utf8_lossy(bytes).replace("pwned from", "pwn3d from").into_bytes();
    });
    let unsigned = Draft { key: None, ..next() };
    let mut relabelled = next();
    relabelled.set(Trailer::Serial, "7");
    let mut replayed = Draft::of(&repository, &format!("{genuine}^"), Some(key.clone()));
    replayed.parents = vec![genuine.clone()];
    let mut foreign = Draft::next(&other, key.clone(), pwn);
    foreign.parents = vec![genuine.clone()];
    let rewritten = Draft { parents: Vec::new(), ..next() };

    let (calls, environments) = (device.calls(), device.environments());
    for (what, draft, reason) in [
        ("a file with other bytes", tampered, "DigestMismatch"),
        ("nobody's signature", unsigned, "SignatureInvalid"),
        ("a trailer that isn't true", relabelled, "ManifestInvalid"),
        ("an older serial", replayed, "SerialRollback"),
        ("another device's state", foreign, "WrongDevice"),
        ("a rewritten history", rewritten, "HistoryRewritten"),
    ] {
        draft.put(&repository, "desired");
        let output = device.syncer(&["once"]);
        assert_eq!(output.status.code(), Some(1), "{what}");
        assert_eq!(reasons(fleet, "press-01"), [reason], "{what}");
        assert_eq!((device.calls(), device.environments()), (calls.clone(), environments.clone()), "{what}");
        git::git(&repository, &["update-ref", "refs/heads/desired", &genuine]);
    }
    device.assert_converges(fleet, "with the genuine state");
    assert_eq!(device.calls(), calls);
    next().put(&repository, "desired");
    device.pass();
    assert!(
        device.environments()[0].contains("pwned from"),
        "what the publisher's key signs is run: the key is the authority"
    );
}

/// The modules that decide, by the file or directory that holds each.
const CORES: &[&str] = &[
    "repo-layouts/model/src",
    "wfm-git-publisher/src/fleet",
    "wfm-git-publisher/src/coverage.rs",
    "wfm-git-publisher/src/render.rs",
    "wfm-git-publisher/src/render",
    "wfm-git-publisher/src/plan",
    "wfm-git-publisher/src/publish/decide.rs",
    "wfm-git-publisher/src/explain.rs",
    "wfm-git-publisher/src/explain",
    "wfm-git-publisher/src/signature.rs",
    "wfm-git-publisher/src/signature",
    "device-syncer/src/decision",
];

/// What reaches outside: I/O, clock, randomness, environment, processes, output, threads.
const OUTSIDE: &[&str] = &[
    "std::fs",
    "std::env",
    "std::net",
    "std::process",
    "std::thread",
    "std::io::stdin",
    "std::io::stdout",
    "fs::read",
    "fs::write",
    "File::open",
    "env::var",
    "SystemTime",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
    "new_v4",
    "getrandom",
    "Command::new",
    "print!",
    "println!",
    "eprint!",
    "eprintln!",
    "tokio::",
    "repo_git::Repo",
];

/// Logs are output too, but for the one place that says what became new.
const LOGS: &[&str] = &["tracing::"];

fn sources(path: &Path, all: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).expect("listed").flatten() {
            sources(&entry.path(), all);
        }
    } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("tests.rs") {
        all.push(path.to_owned());
    }
}

/// Invariant 8.
#[test]
fn the_core_knows_no_io_no_clock_and_no_environment() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for core in CORES {
        let mut files = Vec::new();
        sources(&root.join(core), &mut files);
        assert!(!files.is_empty(), "{core} has moved: this test has to follow it");
        for file in files {
            let text = std::fs::read_to_string(&file).expect("a source");
            // Tests may do as they like.
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
            let forbidden = OUTSIDE.iter().chain(if file.ends_with("conditions.rs") { &[][..] } else { LOGS });
            for (number, line) in lines {
                let bad = forbidden.clone().filter(|word| line.contains(**word));
                found.extend(bad.map(|word| format!("{}:{}: {word}", file.display(), number + 1)));
            }
        }
    }
    assert!(found.is_empty(), "the core reaches outside:\n{}", found.join("\n"));
}

/// Invariant 9.
#[test]
fn either_half_can_be_replaced_by_a_script() {
    // A repository that a script made, and our syncer.
    let made = HandMade::new();
    let dir = tempfile::tempdir().expect("a temporary directory");
    made.begin(dir.path());
    made.assert_converges(dir.path(), "a repository made by hand");
    made.greet("two");
    made.assert_converges(dir.path(), "an update made by hand");

    // Our publisher, and a status that a script made with a key of ssh-keygen.
    let site = Site::new(&[]);
    let fleet = &site.fleet;
    let hand = HandMadeDevice::with_key(&site.dir.path().join("hand"));
    fleet.run(&["device", "enroll", "press-01", &hand.line()]);
    site.publish();
    for state in ["installing", "installed", "failed"] {
        hand.status(&fleet.repository("press-01"), state);
        let status = fleet.status("press-01");
        assert_eq!(status["deployments"][0]["state"], state, "{status}");
        assert_eq!(status["adoptedSerial"], 1, "{status}");
        assert_eq!(status["doubts"], Value::Array(vec![]), "{status}");
    }
    fleet.change(DEPLOYMENT, "hello from the press", "servus from the press");
    site.publish();
    assert_eq!(fleet.serial("press-01"), 2, "what the script adopted is known, and continued");
    fleet.assert_settled("with a device made by hand");
}
