//! Wrong clocks and stolen keys, from the publisher to the device and back, and the drills for both.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use repo_git::repo::{Expected, RefMove, TreeLimits};
use repo_git::{CommitId, CommitSpec, Person, Repo, SigningKey, TreeSource};
use repo_model::desired::{assemble, read};
use repo_model::message::Message;
use repo_model::roster::{Publisher, ROSTER_NAMESPACE, Roster, roster_path, signature_path};
use repo_model::{Digest, FileTree, Trailer, json};
use repo_testkit::{git, program};
use tempfile::TempDir;

use crate::hosted::{Hosted, ID};
use crate::site::registry_name;
use repo_testkit::device::Device;
use repo_testkit::fleet::{DEPLOYMENT, Fleet};
use repo_testkit::text;

/// The furthest that a serial may jump.
const JUMP: u64 = 1_000_000;

fn greet(fleet: &Fleet, greeting: &str) {
    let before = fleet.read(DEPLOYMENT);
    let line = before.lines().find(|line| line.starts_with("  greeting:")).expect("a greeting");
    fleet.change(DEPLOYMENT, line, &format!("  greeting: {greeting}"));
}

/// The publisher, with a clock that is 390 days ahead.
fn ahead(fleet: &Fleet, args: &[&str]) -> Output {
    with_clock(&["-f", "+390d"], &fleet.command(args))
}

/// A command with another clock, as `faketime` takes it.
pub(crate) fn with_clock(clock: &[&str], command: &Command) -> Output {
    let mut faketime = Command::new("faketime");
    faketime.args(["-m", "--exclude-monotonic"]).args(clock).arg(command.get_program()).args(command.get_args());
    faketime.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
    faketime.output().expect("faketime is installed: ./justw setup stack")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What the device finds in the way, as the publisher shows it.
fn conditions(fleet: &Fleet) -> String {
    fleet.status(ID)["conditions"].to_string()
}

#[test]
fn a_publisher_more_than_a_year_ahead_stops_and_even_what_it_publishes_locks_nobody_out() {
    let mut hosted = Hosted::new();
    hosted.start_host();
    hosted.adopt_first();
    hosted.end(0);
    greet(&hosted.fleet, "ahead");
    let refused = ahead(&hosted.fleet, &["publish"]);
    assert_eq!((refused.status.code(), hosted.fleet.serial(ID)), (Some(1), 1), "{}", said(&refused));
    assert!(said(&refused).contains("clock must be wrong") && said(&refused).contains("--clock-is-right"));
    for looking in ["plan", "status"] {
        let said = said(&ahead(&hosted.fleet, &[looking]));
        assert!(said.contains("the clock says"), "{looking}: {said}");
    }
    // Somebody thinks to know better.
    let published = ahead(&hosted.fleet, &["publish", "--clock-is-right"]);
    assert!(published.status.success(), "{}", said(&published));
    let host = hosted.fleet.serve(&[]);
    let once = hosted.device.syncer(&["once"]);
    assert!(said(&once).contains("ProofRefused") && hosted.runs("ahead"), "{}", said(&once));
    assert!(conditions(&hosted.fleet).contains("ProofRefused"));
    drop(host);
    // The clock is right again, and nobody does anything.
    hosted.start_host();
    hosted.until("all is well", |hosted| hosted.device.syncer(&["once"]).status.success());
    assert_eq!((hosted.trouble(), conditions(&hosted.fleet)), (None, "[]".to_owned()));
    greet(&hosted.fleet, "on time");
    hosted.until("it goes on", |hosted| hosted.device.syncer(&["once"]).status.success() && hosted.runs("on time"));
}

/// A fleet and its device on one machine, which runs what was published first.
fn installed(dir: &TempDir) -> (Fleet, Device) {
    let fleet = Fleet::init(dir.path(), &registry_name(dir.path()));
    fleet.push_application();
    let root = dir.path().join(ID);
    std::fs::create_dir(&root).expect("made");
    let device = Device::join(&fleet, ID, &root);
    fleet.run(&["publish"]);
    device.pass();
    (fleet, device)
}

/// The tip of `desired` again with a serial that is so much higher, by whoever has the publisher's key.
fn jump(fleet: &Fleet) -> CommitId {
    forge(fleet, JUMP, |_| {})
}

/// The same with other rosters, or other signatures of them.
pub(crate) fn forge(fleet: &Fleet, further: u64, change: impl FnOnce(&mut FileTree)) -> CommitId {
    let repo = Repo::open(&fleet.repository(ID)).expect("a repository");
    let tip = repo.tip("desired").expect("read").expect("a tip");
    let files = repo.files(tip, &TreeLimits::default()).expect("a tree");
    let desired = read(&files).expect("a state");
    let mut envelope = desired.envelope;
    (envelope.serial, envelope.manifest_version) = (envelope.serial + further, envelope.manifest_version + further);
    let documents = desired.deployments.into_iter().map(|(id, document)| (id, document.bytes)).collect();
    let mut trust = files.into_iter().filter(|(path, _)| path.starts_with("trust/")).collect();
    change(&mut trust);
    let made = assemble(envelope, &documents, &trust);
    let message = Message::new("not the publisher's")
        .trailer(Trailer::Kind, "desired")
        .trailer(Trailer::Fleet, made.envelope.fleet)
        .trailer(Trailer::Device, &made.envelope.device.id)
        .trailer(Trailer::Serial, made.envelope.serial)
        .trailer(Trailer::EnvelopeDigest, made.envelope_digest);
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
    let key = SigningKey::load(&fleet.home().join("keys/publisher")).expect("the key");
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
    let (fleet, device) = installed(&dir);
    let ours = jump(&fleet);
    device.pass();
    jump(&fleet);
    device.pass();
    assert_eq!(fleet.status(ID)["adoptedSerial"], 1 + 2 * JUMP);
    // What the thief showed the device was never at the publisher's host.
    git::git(&fleet.repository(ID), &["update-ref", "refs/heads/desired", &ours.to_string()]);
    greet(&fleet, "ours again");
    fleet.run(&["publish"]);
    assert_eq!(fleet.serial(ID), 2 + 2 * JUMP);
    device.pass();
    assert!(device.environments().iter().any(|one| one.contains("ours again")));
}

/// Runs the commands of a drill as they stand in their document, in a directory with `my-fleet`, its home and `device`.
pub(crate) fn drill(document: &str, dir: &Path) -> String {
    run_drill(&drill_blocks(document).concat(), dir)
}

/// The commands of a drill, block by block.
pub(crate) fn drill_blocks(document: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/drills").join(document);
    let document = std::fs::read_to_string(path).expect("a drill");
    let blocks = document.split("```sh drill\n").skip(1).map(|rest| rest.split("```").next().expect("an end"));
    blocks.map(str::to_owned).collect()
}

/// Runs some of them; what they say.
pub(crate) fn run_drill(commands: &str, dir: &Path) -> String {
    let programs = program("device-syncer").parent().expect("a directory").to_owned();
    program("wfm-git-publisher");
    let path = std::env::var("PATH").expect("a path");
    let mut bash = Command::new("bash");
    bash.args(["-c", &format!("set -euo pipefail\n{commands}")]).current_dir(dir);
    bash.env("PATH", format!("{}:{path}", programs.display())).env("HOME", dir).env("STICK", dir.join("stick"));
    bash.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").stdin(Stdio::null());
    for who in ["AUTHOR", "COMMITTER"] {
        bash.env(format!("GIT_{who}_NAME"), "Operator").env(format!("GIT_{who}_EMAIL"), "op@example.invalid");
    }
    text(bash.output().expect("bash runs"))
}

/// Gives a fleet and its device the names that drills call them by.
pub(crate) fn lay_out(dir: &Path, fleet: &Fleet, device: &Device) {
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, dir.join(name)).expect("linked");
    link(&fleet.dir(), "my-fleet");
    link(&fleet.home(), "my-fleet.wfm");
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
    greet(&hosted.fleet, "ahead");
    let published = ahead(&hosted.fleet, &["publish", "--clock-is-right"]);
    assert!(published.status.success(), "{}", said(&published));
    let _host = hosted.fleet.serve(&[]);
    hosted.device.syncer(&["once"]);
    raise_floor(&hosted.device.home().join("floor"), "9999-01-01T00:00:00Z");
    lay_out(hosted.dir.path(), &hosted.fleet, &hosted.device);
    drill("wrong-clock.md", hosted.dir.path());
    assert!(hosted.runs("ahead"));
    assert_eq!((hosted.trouble(), conditions(&hosted.fleet)), (None, "[]".to_owned()));
}

#[test]
fn the_drill_for_the_publishers_key() {
    let dir = TempDir::new().expect("a temporary directory");
    let (fleet, device) = installed(&dir);
    lay_out(dir.path(), &fleet, &device);
    let stick = dir.path().join("stick");
    let reminded = |fleet: &Fleet| said(&fleet.try_run(&["status"])).contains("root key");
    assert!(reminded(&fleet), "it lies beside the publisher's");
    std::fs::create_dir(&stick).expect("made");
    fleet.run(&["trust", "offline", &stick.display().to_string()]);
    assert!(!reminded(&fleet));
    let old = std::fs::read(fleet.home().join("keys/publisher")).expect("a key");
    drill("publisher-key.md", dir.path());
    device.pass();
    assert_eq!(adopted(&fleet), (Some(2), Some(2)));
    greet(&fleet, "by the new key");
    fleet.run(&["publish"]);
    device.pass();
    fleet.assert_whole(true, "after the drill");
    audited(&fleet);
    // Whoever has the old key is believed no more.
    std::fs::write(fleet.home().join("keys/publisher"), old).expect("written");
    jump(&fleet);
    assert!(said(&device.syncer(&["once"])).contains("SignatureInvalid"));
}

/// The roster and the serial that the device says it adopted.
fn adopted(fleet: &Fleet) -> (Option<u64>, Option<u64>) {
    let report = git::show(&fleet.repository(ID), "status", "syncer.json").expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    (report["adopted"]["trust"].as_u64(), report["adopted"]["serial"].as_u64())
}

/// Nothing of the history is wrong, from the first roster on.
fn audited(fleet: &Fleet) {
    let roster = fleet.root().join("first-roster.json");
    let first = git::show(&fleet.repository(ID), "desired", "trust/1.json").expect("a roster");
    std::fs::write(&roster, first).expect("written");
    let devices = fleet.home().join("devices").display().to_string();
    let said = fleet.run(&["audit", &devices, "--roster", &roster.display().to_string(), "--output", "json"]);
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(said["findings"], serde_json::json!([]), "{said}");
}

#[test]
fn the_drill_for_the_root_keys() {
    let dir = TempDir::new().expect("a temporary directory");
    let (fleet, device) = installed(&dir);
    lay_out(dir.path(), &fleet, &device);
    let stick = dir.path().join("stick");
    ["b", "c"].iter().for_each(|name| std::fs::create_dir_all(stick.join(name)).expect("made"));
    drill("root-keys.md", dir.path());
    device.pass();
    assert_eq!(adopted(&fleet), (Some(3), Some(3)));
    greet(&fleet, "with other roots");
    fleet.run(&["publish"]);
    device.pass();
    fleet.assert_whole(true, "after the drill");
    audited(&fleet);
    // The old root signs no roster that is believed, here or there, alone or with one that counts.
    fleet.run(&["trust", "propose", "--not-after", "500"]);
    let old = fleet.try_run(&["trust", "sign", "--key", &stick.join("root").display().to_string()]);
    assert!(said(&old).contains("neither of roster 3 nor of roster 4"), "{}", said(&old));
    let evil = SigningKey::generate();
    forge(&fleet, 1, |trust| {
        let newest: Roster = serde_json::from_slice(&trust[&roster_path(3)]).expect("a roster");
        let key = evil.public().to_string().parse().expect("a key");
        let publishers = vec![newest.publishers[0].clone(), Publisher { key, not_after: None }];
        let bytes = json::to_bytes(&Roster { version: 4, publishers, ..newest });
        for (index, name) in ["b/root", "root"].into_iter().enumerate() {
            let root = SigningKey::load(&stick.join(name)).expect("a key");
            let signature = root.sign(ROSTER_NAMESPACE, &bytes).expect("a signature");
            trust.insert(signature_path(4, index), signature.into_bytes());
        }
        trust.insert(roster_path(4), bytes);
    });
    assert!(said(&device.syncer(&["once"])).contains("TrustInvalid"));
}
