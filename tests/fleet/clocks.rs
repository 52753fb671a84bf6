//! Wrong clocks and stolen keys, from the publisher to the device and back, and the drills for both.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use repo_git::repo::{Expected, RefMove, TreeLimits};
use repo_git::{CommitId, CommitSpec, Person, Repo, SigningKey, TreeSource};
use repo_model::Digest;
use repo_model::desired::{assemble, read};
use repo_model::message::Message;
use repo_testkit::{git, program};
use tempfile::TempDir;

use crate::device::Device;
use crate::hosted::{Hosted, ID};
use crate::plant::{DEPLOYMENT, Plant};
use crate::site::registry_name;
use crate::stand::text;

/// The furthest that a serial may jump.
const JUMP: u64 = 1_000_000;

/// Commits another greeting.
fn greet(plant: &Plant, greeting: &str) {
    let before = plant.read(DEPLOYMENT);
    let line = before.lines().find(|line| line.starts_with("  greeting:")).expect("a greeting");
    plant.change(DEPLOYMENT, line, &format!("  greeting: {greeting}"));
}

/// The publisher, with a clock that is 400 days ahead.
fn ahead(plant: &Plant, args: &[&str]) -> Output {
    let command = plant.command(args);
    let mut faketime = Command::new("faketime");
    faketime.args(["-m", "--exclude-monotonic", "-f", "+400d"]).arg(command.get_program()).args(command.get_args());
    faketime.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
    faketime.output().expect("faketime is installed: ./justw setup stack")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What the device finds in the way, as the publisher shows it.
fn conditions(plant: &Plant) -> String {
    plant.status(ID)["conditions"].to_string()
}

#[test]
fn a_publisher_more_than_a_year_ahead_stops_and_even_what_it_publishes_locks_nobody_out() {
    let mut hosted = Hosted::new();
    hosted.start_host();
    hosted.adopt_first();
    hosted.end(0);
    greet(&hosted.plant, "ahead");
    let refused = ahead(&hosted.plant, &["publish"]);
    assert_eq!((refused.status.code(), hosted.plant.serial(ID)), (Some(1), 1), "{}", said(&refused));
    assert!(said(&refused).contains("clock must be wrong") && said(&refused).contains("--clock-is-right"));
    for looking in ["plan", "status"] {
        let said = said(&ahead(&hosted.plant, &[looking]));
        assert!(said.contains("the clock says"), "{looking}: {said}");
    }
    // Somebody thinks to know better.
    let published = ahead(&hosted.plant, &["publish", "--clock-is-right"]);
    assert!(published.status.success(), "{}", said(&published));
    let host = hosted.plant.serve(&[]);
    let once = hosted.device.syncer(&["once"]);
    assert!(said(&once).contains("ProofRefused") && hosted.runs("ahead"), "{}", said(&once));
    assert!(conditions(&hosted.plant).contains("ProofRefused"));
    drop(host);
    // The clock is right again, and nobody does anything.
    hosted.start_host();
    hosted.until("all is well", |hosted| hosted.device.syncer(&["once"]).status.success());
    assert_eq!((hosted.trouble(), conditions(&hosted.plant)), (None, "[]".to_owned()));
    greet(&hosted.plant, "on time");
    hosted.until("it goes on", |hosted| hosted.device.syncer(&["once"]).status.success() && hosted.runs("on time"));
}

/// A plant and its device on one machine, which runs what was published first.
fn installed(dir: &TempDir) -> (Plant, Device) {
    let plant = Plant::init(dir.path(), &registry_name(dir.path()));
    plant.push_application();
    let root = dir.path().join(ID);
    std::fs::create_dir(&root).expect("made");
    let device = Device::join(&plant, ID, &root);
    plant.run(&["publish"]);
    device.pass();
    (plant, device)
}

/// The tip of `desired` again with a serial that is so much higher, by whoever has the publisher's key.
fn jump(plant: &Plant) -> CommitId {
    let repo = Repo::open(&plant.device(ID)).expect("a repository");
    let tip = repo.tip("desired").expect("read").expect("a tip");
    let files = repo.files(tip, &TreeLimits::default()).expect("a tree");
    let desired = read(&files).expect("a state");
    let mut envelope = desired.envelope;
    (envelope.serial, envelope.manifest_version) = (envelope.serial + JUMP, envelope.manifest_version + JUMP);
    let documents = desired.deployments.into_iter().map(|(id, document)| (id, document.bytes)).collect();
    let trust = files.into_iter().filter(|(path, _)| path.starts_with("trust/")).collect();
    let made = assemble(envelope, &documents, &trust);
    let message = Message::new("not the publisher's")
        .trailer("Kind", "desired")
        .trailer("Fleet", made.envelope.fleet)
        .trailer("Device", &made.envelope.device.id)
        .trailer("Serial", made.envelope.serial)
        .trailer("Envelope-Digest", made.envelope_digest);
    let who = Person { name: "thief".to_owned(), email: "thief@example.invalid".to_owned() };
    let (tree, time) = (TreeSource::Files(&made.tree), 1_700_000_000);
    let spec = CommitSpec {
        tree,
        parents: vec![tip],
        author: who.clone(),
        committer: who,
        time,
        message: message.to_string(),
    };
    let key = SigningKey::load(&plant.home().join("keys/publisher")).expect("the key");
    let mut batch = repo.batch();
    let commit = batch.commit(&spec, Some(&key)).expect("a commit");
    batch.store().expect("stored");
    let step = RefMove { name: "refs/heads/desired".to_owned(), expected: Expected::Any, new: Some(commit) };
    repo.move_refs(&[step]).expect("moved");
    tip
}

#[test]
fn a_device_that_a_stolen_key_led_two_million_serials_ahead_follows_its_publisher_again() {
    let dir = TempDir::new().expect("a temporary directory");
    let (plant, device) = installed(&dir);
    let ours = jump(&plant);
    device.pass();
    jump(&plant);
    device.pass();
    assert_eq!(plant.status(ID)["adoptedSerial"], 1 + 2 * JUMP);
    // What the thief showed the device was never at the publisher's host.
    git::git(&plant.device(ID), &["update-ref", "refs/heads/desired", &ours.to_string()]);
    greet(&plant, "ours again");
    plant.run(&["publish"]);
    assert_eq!(plant.serial(ID), 2 + 2 * JUMP);
    device.pass();
    assert!(device.environments().iter().any(|one| one.contains("ours again")));
}

/// Runs the commands of a drill as they stand in their document, in a directory with `my-fleet`, its home and `device`.
fn drill(document: &str, dir: &Path) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/drills").join(document);
    let document = std::fs::read_to_string(root).expect("a drill");
    let blocks = document.split("```sh drill\n").skip(1).map(|rest| rest.split("```").next().expect("an end"));
    let programs = program("device-syncer").parent().expect("a directory").to_owned();
    program("wfm-git-publisher");
    let path = std::env::var("PATH").expect("a path");
    let mut bash = Command::new("bash");
    bash.args(["-c", &format!("set -euo pipefail\n{}", blocks.collect::<String>())]).current_dir(dir);
    bash.env("PATH", format!("{}:{path}", programs.display())).env("HOME", dir).env("STICK", dir.join("stick"));
    bash.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").stdin(Stdio::null());
    for who in ["AUTHOR", "COMMITTER"] {
        bash.env(format!("GIT_{who}_NAME"), "Operator").env(format!("GIT_{who}_EMAIL"), "op@example.invalid");
    }
    text(bash.output().expect("bash runs"))
}

/// Gives a plant and its device the names that drills call them by.
fn lay_out(dir: &Path, plant: &Plant, device: &Device) {
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, dir.join(name)).expect("linked");
    link(&plant.fleet(), "my-fleet");
    link(&plant.home(), "my-fleet.wfm");
    link(&device.home(), "device");
}

/// Writes a floor of time as a syncer did that believed every proof.
fn raise_floor(path: &Path, time: &str) {
    let bytes = std::fs::read(path).expect("a floor");
    let slots = bytes.chunks(4096).filter_map(|slot| {
        let text = String::from_utf8_lossy(slot);
        serde_json::from_str::<serde_json::Value>(text.trim_end_matches('\0').split_once('\n')?.1).ok()
    });
    let mut slot = slots.max_by_key(|slot| slot["seq"].as_u64()).expect("a slot");
    slot["time"] = time.into();
    slot.as_object_mut().expect("an object").remove("issued");
    let json = slot.to_string();
    let mut bytes = format!("{}\n{json}\n", Digest::of(json.as_bytes())).into_bytes();
    bytes.resize(2 * 4096, 0);
    std::fs::write(path, bytes).expect("written");
}

#[test]
fn the_drill_for_a_wrong_clock() {
    let mut hosted = Hosted::new();
    hosted.start_host();
    hosted.adopt_first();
    hosted.end(0);
    greet(&hosted.plant, "ahead");
    let published = ahead(&hosted.plant, &["publish", "--clock-is-right"]);
    assert!(published.status.success(), "{}", said(&published));
    let _host = hosted.plant.serve(&[]);
    hosted.device.syncer(&["once"]);
    raise_floor(&hosted.device.home().join("floor"), "9999-01-01T00:00:00Z");
    lay_out(hosted.dir.path(), &hosted.plant, &hosted.device);
    drill("wrong-clock.md", hosted.dir.path());
    assert!(hosted.runs("ahead"));
    assert_eq!((hosted.trouble(), conditions(&hosted.plant)), (None, "[]".to_owned()));
}

#[test]
fn the_drill_for_the_publishers_key() {
    let dir = TempDir::new().expect("a temporary directory");
    let (plant, device) = installed(&dir);
    lay_out(dir.path(), &plant, &device);
    let root = plant.home().join("keys/root");
    let reminded = |plant: &Plant| said(&plant.try_run(&["status"])).contains("root key");
    assert!(reminded(&plant), "it lies beside the publisher's");
    std::fs::create_dir(dir.path().join("stick")).expect("made");
    std::fs::rename(&root, dir.path().join("stick/root")).expect("moved");
    assert!(!reminded(&plant));
    let old = std::fs::read(plant.home().join("keys/publisher")).expect("a key");
    drill("publisher-key.md", dir.path());
    device.pass();
    let report = git::show(&plant.device(ID), "status", "syncer.json").expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!((report["adopted"]["trust"].as_u64(), report["adopted"]["serial"].as_u64()), (Some(2), Some(2)));
    greet(&plant, "by the new key");
    plant.run(&["publish"]);
    device.pass();
    plant.assert_whole(true, "after the drill");
    // Whoever has the old key is believed no more.
    std::fs::write(plant.home().join("keys/publisher"), old).expect("written");
    jump(&plant);
    assert!(said(&device.syncer(&["once"])).contains("signature-invalid"));
}
