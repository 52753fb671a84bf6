//! Power cuts and kills of the publisher at every sync point: its home, the devices' repositories and the fleet
//! repository lie on the volume.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use repo_testkit::faults::power::{Cut, Experiment, Point, assert_cut, cut_everywhere};
use repo_testkit::git;
use repo_testkit::ssh_key::{keygen, public};
use tempfile::TempDir;

use crate::crash::occurrences;
use crate::site::registry_name;
use repo_testkit::fleet::{DEPLOYMENT, DEVICES, Fleet};
use repo_testkit::{copy, text};

/// What the publisher is to do when it is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// A new fleet and its home.
    Init,
    /// The same with the fleet repository hosted, too.
    InitHosted,
    /// A device comes into the fleet.
    Add,
    /// A device's key comes into the fleet.
    Enroll,
    /// The first publish, of three devices.
    First,
    /// A changed parameter, for one device by an override; its repository has too many packs.
    Change,
    /// Another authority of the host, in its next roster.
    Authority,
    /// That one is used from then on.
    Switch,
    /// A deployment that goes from all devices.
    Remove,
    /// A changed parameter for all devices, which a rollout begins with one of.
    Rollout,
    /// The second wave of it, for the other two.
    Wave,
    /// A proof of freshness that has run out, and nothing else.
    Renew,
    /// A roster with another key for this home is proposed.
    Propose,
    /// It is published; the old key isn't in it.
    Trust,
    /// The same where the publisher's key and its ledger are gone.
    Emergency,
    /// The root key goes to a medium.
    Offline,
}

/// A device that isn't in the new fleet.
const NEW: &str = "press-09";

const ADD: [&str; 7] = ["device", "add", NEW, "--label", "site=graz", "--label", "role=press"];

const EMERGENCY: [&str; 5] = ["trust", "publish", "--emergency", "--since", "2020-01-01T00:00:00Z"];

const PROPOSE: [&str; 3] = ["trust", "propose", "--new-publisher"];

/// Another authority of the host, beside the one of today.
const AUTHORITY: [&str; 3] = ["trust", "propose", "--new-authority"];

/// From now on the fleet has a host of its own.
fn serve(fleet: &Fleet) {
    let settings = "serve:\n  names: [127.0.0.1]\n  listen: 127.0.0.1:0\n";
    std::fs::write(fleet.home().join("publisher.yaml"), settings).expect("written");
    fleet.run(&["trust", "propose", "--only-authority"]);
    std::fs::remove_dir_all(fleet.home().join("trust")).expect("removed");
}

/// An authority's certificate, whose key is the one that lies beside it, as stock OpenSSL sees it.
fn authority(fleet: &Fleet, dir: &str) -> String {
    let dir = fleet.home().join(dir);
    let public = |args: &[&str], file: &str| {
        let mut openssl = std::process::Command::new("openssl");
        text(openssl.args(args).arg("-in").arg(dir.join(file)).output().expect("openssl runs"))
    };
    let certified = public(&["x509", "-noout", "-pubkey"], "ca.pem");
    assert_eq!(certified, public(&["pkey", "-pubout"], "ca.key"), "{dir:?} is no pair");
    certified
}

fn root_key(fleet: &Fleet) -> String {
    fleet.home().join("keys/root").display().to_string()
}

/// The second roster is in force, and this home's key is the one that it brought.
fn check_roster(fleet: &Fleet, when: &str) {
    let said = fleet.run(&["trust", "show", "--output", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&shown["version"], &shown["proposal"]), (&2.into(), &serde_json::Value::Null), "{when}");
    let newest = shown["publishers"].as_array().and_then(|all| all.last()).expect("a publisher");
    assert_eq!(newest["file"], "keys/publisher", "{when}: {shown}");
    let signers = std::fs::read_to_string(fleet.home().join("allowed_signers")).expect("read");
    assert!(signers.contains(newest["key"].as_str().expect("a key")), "{when}: {signers}");
    assert!(!fleet.home().join("trust/2.json").exists(), "{when}: nothing is proposed any more");
    fleet.assert_converges(when);
    assert_eq!(DEVICES.map(|device| fleet.serial(device)), [2, 2, 2], "{when}: each device got the roster");
}

/// The volumes' contents before each deed, made once.
struct Kept {
    dir: TempDir,
}

impl Kept {
    fn new() -> Self {
        Self { dir: TempDir::new().expect("a temporary directory") }
    }

    fn name(&self) -> String {
        registry_name(self.dir.path())
    }

    /// The line that enrols a device.
    fn line(&self, device: &str) -> String {
        let key = self.dir.path().join(format!("{device}.key"));
        if !key.exists() {
            keygen(&key, "ed25519", "");
        }
        public(&key)
    }

    fn prepare(&self, deed: Deed, root: &Path) {
        if deed == Deed::Offline {
            std::fs::create_dir(root.join("stick")).expect("made");
        }
        if [Deed::Init, Deed::InitHosted].contains(&deed) {
            return;
        }
        let (fleet, kept) = (Fleet::at(root), self.dir.path().join(format!("{deed:?}")));
        if !kept.exists() {
            self.make(deed, root);
            copy(&fleet.dir(), &kept.join("fleet"));
            copy(&fleet.home(), &kept.join("fleet.wfm"));
        }
        copy(&kept.join("fleet"), &fleet.dir());
        copy(&kept.join("fleet.wfm"), &fleet.home());
    }

    fn make(&self, deed: Deed, root: &Path) {
        let fleet = Fleet::init(root, &self.name());
        fleet.push_application();
        for device in DEVICES {
            fleet.run(&["device", "add", device]);
            fleet.run(&["device", "enroll", device, &self.line(device)]);
        }
        if deed != Deed::First {
            fleet.run(&["publish"]);
        }
        match deed {
            Deed::Init | Deed::InitHosted | Deed::Add | Deed::First | Deed::Propose | Deed::Offline => {}
            Deed::Authority => serve(&fleet),
            Deed::Switch => {
                serve(&fleet);
                fleet.run(&AUTHORITY);
                fleet.run(&["trust", "sign", "--key", &root_key(&fleet)]);
                fleet.run(&["trust", "publish"]);
            }
            Deed::Trust | Deed::Emergency => {
                let old = fleet.home().join("keys/publisher").display().to_string();
                fleet.run(&[&PROPOSE[..], &["--drop-publisher", &old]].concat());
                fleet.run(&["trust", "sign", "--key", &root_key(&fleet)]);
                if deed == Deed::Emergency {
                    let device = ["account", "add", "press-01", "--role", "device", "--device", "press-01"];
                    fleet.run(&[&device[..], &["--secret-file", &root.join("secret").display().to_string()]].concat());
                    std::fs::remove_file(old).expect("removed");
                    std::fs::remove_dir_all(fleet.control()).expect("removed");
                }
            }
            Deed::Enroll => drop(fleet.run(&ADD)),
            Deed::Change => {
                fleet.change(DEPLOYMENT, "hello from the packer", "servus from the packer");
                add_packs(&fleet.repository("packer-01"), 41);
            }
            Deed::Rollout | Deed::Wave => {
                let settings = fleet.read("fleet.yaml");
                fleet.write("fleet.yaml", &format!("{settings}rollout: {{waves: [1], bake: 1s}}\n"));
                fleet.replace(DEPLOYMENT, "hello from the packer", "servus");
                fleet.change(DEPLOYMENT, "hello from the press", "servus");
                if deed == Deed::Wave {
                    fleet.run(&["publish"]);
                    fleet.write("rollouts/1.yaml", "promoted: true\n");
                    fleet.commit("the rest now");
                }
            }
            Deed::Remove => {
                std::fs::remove_file(fleet.dir().join(DEPLOYMENT)).expect("removed");
                fleet.commit("nothing more is said");
            }
            Deed::Renew => {
                DEVICES.iter().for_each(|device| let_expire(&fleet, device));
                // In the same second the new proof would be the very commit that was there before.
                std::thread::sleep(std::time::Duration::from_millis(1100));
            }
        }
    }

    fn command(&self, deed: Deed, root: &Path) -> Command {
        let fleet = Fleet::at(root);
        match deed {
            Deed::Init => fleet.init_command(&self.name()),
            Deed::InitHosted => {
                let mut command = fleet.init_command(&self.name());
                command.args(["--host", "wfm.example", "--hosted"]);
                command
            }
            Deed::Add => fleet.command(&ADD),
            Deed::Enroll => fleet.command(&["device", "enroll", NEW, &self.line(NEW)]),
            Deed::First | Deed::Change | Deed::Rollout | Deed::Wave | Deed::Remove | Deed::Renew => {
                fleet.command(&["publish"])
            }
            Deed::Propose => fleet.command(&PROPOSE),
            Deed::Trust => fleet.command(&["trust", "publish"]),
            Deed::Emergency => fleet.command(&EMERGENCY),
            Deed::Authority => fleet.command(&AUTHORITY),
            Deed::Switch => fleet.command(&["trust", "switch"]),
            Deed::Offline => fleet.command(&["trust", "offline", &root.join("stick").display().to_string()]),
        }
    }

    /// Whole at once; done after the same command again, which then has nothing left to do.
    fn check(&self, deed: Deed, root: &Path, point: Option<&Point>, when: &str) {
        let fleet = Fleet::at(root);
        // Between git's rename and our sync of it: git says which of its lock files the operator has to remove.
        if point.is_some_and(|point| point.name == "tree.sync" && point.side == "before") {
            remove_lock(&fleet, when);
        }
        match deed {
            Deed::Init | Deed::InitHosted => self.check_init(deed, &fleet, when),
            Deed::Add | Deed::Enroll => {
                fleet.assert_whole(false, when);
                if deed == Deed::Add {
                    fleet.run(&ADD);
                }
                fleet.run(&["device", "enroll", NEW, &self.line(NEW)]);
                let dirty = git::git(&fleet.dir(), &["status", "--porcelain"]);
                let is_leftover = |line: &str| line.starts_with("?? ") && line.contains("/.tmp-");
                assert!(dirty.lines().all(is_leftover), "{when}: what the commands wrote is committed: {dirty}");
                fleet.assert_converges(when);
                assert!(git::tip(&fleet.repository(NEW), "desired").is_some(), "{when}: {NEW} has its desired state");
                assert!(fleet.join_file(NEW).exists(), "{when}: {NEW} has its join file");
            }
            Deed::First | Deed::Change | Deed::Rollout | Deed::Wave | Deed::Remove | Deed::Renew => {
                fleet.assert_whole(false, when);
                if [Deed::Rollout, Deed::Wave].contains(&deed) {
                    assert_released(&fleet, when);
                    // What was decided is looked at once more.
                    fleet.run(&["publish"]);
                }
                fleet.assert_converges(when);
                assert_done(deed, &fleet, when);
            }
            Deed::Propose | Deed::Trust => {
                fleet.assert_whole(false, when);
                text(self.command(deed, root).output().expect("the publisher runs"));
                if deed == Deed::Propose {
                    fleet.run(&["trust", "sign", "--key", &root_key(&fleet)]);
                    fleet.run(&["trust", "publish"]);
                }
                check_roster(&fleet, when);
            }
            Deed::Emergency => {
                text(self.command(deed, root).output().expect("the publisher runs"));
                let account = std::fs::read_to_string(fleet.home().join("accounts/press-01.json")).expect("read");
                assert!(account.contains("\"secrets\":[]"), "{when}: its secret ended: {account}");
                check_roster(&fleet, when);
            }
            Deed::Authority => {
                let before = authority(&fleet, "ca");
                text(self.command(deed, root).output().expect("the publisher runs"));
                assert_eq!(authority(&fleet, "ca"), before, "{when}: nothing changed so far");
                fleet.run(&["trust", "sign", "--key", &root_key(&fleet)]);
                fleet.run(&["trust", "publish"]);
                fleet.run(&["trust", "switch"]);
                assert_ne!(authority(&fleet, "ca"), before, "{when}");
                fleet.assert_whole(false, when);
            }
            Deed::Switch => {
                // Either of the two with its own key, and the other one beside it.
                let both = ["ca", "ca.next"].map(|dir| authority(&fleet, dir));
                assert_ne!(both[0], both[1], "{when}");
                fleet.run(&["trust", "switch"]);
                assert_eq!(["ca.next", "ca"].map(|dir| authority(&fleet, dir)), both, "{when}: there and back");
            }
            Deed::Offline => {
                fleet.assert_whole(false, when);
                let there = root.join("stick/root");
                assert!(there.exists() || Path::new(&root_key(&fleet)).exists(), "{when}: the root key is somewhere");
                text(self.command(deed, root).output().expect("the publisher runs"));
                assert!(!Path::new(&root_key(&fleet)).exists(), "{when}: the root key isn't here any more");
                fleet.run(&PROPOSE);
                fleet.run(&["trust", "sign", "--key", &there.display().to_string()]);
            }
        }
    }

    /// A half-made fleet is never taken for a whole one: it works, or it is refused and made anew.
    fn check_init(&self, deed: Deed, fleet: &Fleet, when: &str) {
        let again = self.command(deed, fleet.root()).output().expect("the publisher runs");
        if !again.status.success() {
            let said = String::from_utf8_lossy(&again.stderr);
            assert_eq!(again.status.code(), Some(1), "{when}: {said}");
            assert!(said.contains("exists"), "{when}: {said}");
            // Either it is complete, or whoever tries to use it is told, and nothing is published.
            let published = fleet.try_run(&["publish"]);
            if !published.status.success() {
                let said = String::from_utf8_lossy(&published.stderr);
                assert_eq!(published.status.code(), Some(1), "{when}: {said}");
                for half in [fleet.dir(), fleet.home()] {
                    let _ = std::fs::remove_dir_all(half);
                }
                text(self.command(deed, fleet.root()).output().expect("the publisher runs"));
            }
        }
        fleet.run(&["validate"]);
        let hosted = fleet.home().join("fleet.git");
        assert_eq!(hosted.is_dir(), deed == Deed::InitHosted, "{when}");
        if deed == Deed::InitHosted {
            let (there, here) = (git::tip(&hosted, "main"), git::tip(&fleet.dir(), "main"));
            assert!(there.is_some() && there == here, "{when}: {there:?} {here:?}");
        }
        fleet.assert_converges(when);
    }
}

/// Removes the lock file that git complains about, as its message says.
pub(crate) fn remove_lock(fleet: &Fleet, when: &str) {
    let mut dirs = vec![fleet.dir().join(".git")];
    while let Some(dir) = dirs.pop() {
        for path in std::fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|ending| ending == "lock") {
                println!("{when}: git left {}", path.display());
                std::fs::remove_file(path).expect("removed");
            }
        }
    }
}

/// Whoever has the change was released before, by a decision that was made once.
fn assert_released(fleet: &Fleet, when: &str) {
    let state = git::show(&fleet.control(), "control", "rollouts/1/state.json").unwrap_or_default();
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap_or_default();
    let waves = state["waves"].as_array().cloned().unwrap_or_default();
    let released: Vec<_> =
        waves.iter().flat_map(|wave| wave["devices"].as_array().cloned().unwrap_or_default()).collect();
    let distinct: BTreeSet<_> = released.iter().map(ToString::to_string).collect();
    assert_eq!(distinct.len(), released.len(), "{when}: each device is released once");
    for device in DEVICES.into_iter().filter(|device| fleet.serial(device) > 1) {
        assert!(released.contains(&device.into()), "{when}: {device} has what nobody released: {state}");
    }
    let log = git::git(&fleet.control(), &["log", "--format=%(trailers:key=Decision,valueonly)", "control"]);
    let mut decisions: Vec<_> = log.lines().filter(|line| !line.is_empty()).collect();
    decisions.sort_unstable();
    let all = decisions.len();
    decisions.dedup();
    assert_eq!(decisions.len(), all, "{when}: each decision is made once: {log}");
}

/// What the deed came to, beyond what always holds.
fn assert_done(deed: Deed, fleet: &Fleet, when: &str) {
    let serials = DEVICES.map(|device| fleet.serial(device));
    let expected: [u64; 3] = match deed {
        Deed::First | Deed::Renew => [1, 1, 1],
        Deed::Change => [2, 1, 1],
        // Which one it is nobody can choose.
        Deed::Rollout => DEVICES.map(|device| fleet.serial(device)),
        _ => [2, 2, 2],
    };
    if deed == Deed::Rollout {
        assert_eq!(serials.iter().sum::<u64>(), 4, "{when}: one device has the change: {serials:?}");
    }
    if [Deed::Rollout, Deed::Wave].contains(&deed) {
        assert_released(fleet, when);
    }
    // A serial whose attempt was cut off and whose envelope changed meanwhile is skipped; here nothing changes.
    assert_eq!(serials, expected, "{when}: each device got what concerns it, with the serial that was reserved");
    for device in DEVICES {
        let proof = git::show(&fleet.repository(device), "freshness", "freshness.json").expect("a proof of freshness");
        let proof: serde_json::Value = serde_json::from_slice(&proof).expect("JSON");
        let tip = git::tip(&fleet.repository(device), "desired").expect("a tip");
        assert_eq!(proof["tip"], tip.as_str(), "{when}: the proof speaks of the tip of {device}");
        assert!(proof["expires"].as_str().is_some_and(|expires| expires > "2026"), "{when}: {proof}");
    }
}

/// Gives a repository this many packs more, as pushes of stock Git do.
fn add_packs(repository: &Path, count: usize) {
    for n in 0..count {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), format!("{n}\n")).expect("written");
        let blob = git::git(repository, &["hash-object", "-w", &file.path().display().to_string()]);
        std::fs::write(file.path(), format!("{blob}\n")).expect("written");
        let input = std::fs::File::open(file.path()).expect("opened");
        let packs = repository.join("objects/pack/pack");
        let mut pack = git::command(repository);
        text(pack.args(["pack-objects", "-q"]).arg(packs).stdin(input).output().expect("git runs"));
    }
    git::git(repository, &["prune-packed", "--quiet"]);
}

/// Replaces a device's proof of freshness by one that has run out, signed as the publisher does.
fn let_expire(fleet: &Fleet, device: &str) {
    let repository = fleet.repository(device);
    let proof = git::show(&repository, "freshness", "freshness.json").expect("a proof of freshness");
    let mut proof: serde_json::Value = serde_json::from_slice(&proof).expect("JSON");
    proof["issued"] = "2020-01-01T00:00:00Z".into();
    proof["expires"] = "2020-01-02T00:00:00Z".into();
    let dir = TempDir::new().expect("a temporary directory");
    let file = dir.path().join("freshness.json");
    std::fs::write(&file, format!("{proof}\n")).expect("written");
    let blob = git::git(&repository, &["hash-object", "-w", &file.display().to_string()]);
    std::fs::write(&file, format!("100644 blob {blob}\tfreshness.json\n")).expect("written");
    let input = std::fs::File::open(&file).expect("opened");
    let tree = text(git::command(&repository).arg("mktree").stdin(input).output().expect("git runs"));
    let message = git::git(&repository, &["log", "-1", "--format=%B", "freshness"]);
    let key = format!("user.signingkey={}", fleet.home().join("keys/publisher").display());
    let sign = ["-c", "gpg.format=ssh", "-c", &key, "commit-tree", "-S", &tree, "-m", message.trim_end()];
    let commit = git::git(&repository, &sign);
    git::git(&repository, &["update-ref", "refs/heads/freshness", &commit]);
}

fn cut(kept: &Kept, deed: Deed, cut: Cut, occurrences: usize) -> BTreeSet<String> {
    let experiment = Experiment {
        deed: &format!("{deed:?}"),
        prepare: &|root| kept.prepare(deed, root),
        command: &|root| kept.command(deed, root),
        check: &|root, point, when| kept.check(deed, root, point, when),
        cut,
        occurrences,
    };
    cut_everywhere(&experiment).expect("the cuts are made")
}

/// The points that a pass of the publisher goes through; those of new directories are passed by `init` and `add`.
const PASSED: &[&str] = &[
    "file.data",
    "file.dir",
    "file.rename",
    "index.rename",
    "pack.data",
    "pack.dir",
    "pack.remove",
    "pack.rename",
    "ref.dir",
    "ref.lock",
    "ref.move",
];

#[test]
fn power_cuts_of_a_publish_leave_each_device_its_last_state_or_the_new_one() {
    let kept = Kept::new();
    let once = [Deed::First, Deed::Remove, Deed::Renew].map(|deed| cut(&kept, deed, Cut::Power, occurrences()));
    // First, middle and last: the ledger's reservation, a device's own refs, the ledger's last word.
    let thrice = cut(&kept, Deed::Change, Cut::Power, occurrences().max(3));
    let all: BTreeSet<_> = once.into_iter().flatten().chain(thrice).collect();
    assert_cut(&all, PASSED);
}

#[test]
fn power_cuts_of_a_rollout_release_nobody_without_a_record_and_nobody_twice() {
    let kept = Kept::new();
    // Both decisions of the first look, and the release of the rest with all that follows.
    let mut all = cut(&kept, Deed::Rollout, Cut::Power, occurrences().max(2));
    all.extend(cut(&kept, Deed::Wave, Cut::Power, occurrences()));
    assert_cut(&all, &["pack.data", "ref.move", "file.rename"]);
}

#[test]
fn power_cuts_of_commands_that_change_the_fleet_are_made_good_by_the_same_command() {
    let kept = Kept::new();
    let all =
        [Deed::Init, Deed::InitHosted, Deed::Add, Deed::Enroll].map(|deed| cut(&kept, deed, Cut::Power, occurrences()));
    let all: BTreeSet<_> = all.into_iter().flatten().collect();
    assert_cut(&all, &["dir.create", "dir.parent", "file.data", "file.rename", "file.dir", "ref.move"]);
}

#[test]
fn power_cuts_of_a_new_roster_and_of_a_root_key_that_leaves_are_made_good_by_the_same_command() {
    let kept = Kept::new();
    let all = [Deed::Propose, Deed::Trust, Deed::Offline].map(|deed| cut(&kept, deed, Cut::Power, occurrences()));
    let all: BTreeSet<_> = all.into_iter().flatten().collect();
    assert_cut(&all, &["dir.create", "dir.rename", "file.data", "file.rename", "file.remove", "ref.move"]);
}

#[test]
fn power_cuts_of_an_emergency_are_made_good_by_the_same_command() {
    let all = cut(&Kept::new(), Deed::Emergency, Cut::Power, occurrences());
    assert_cut(&all, &["dir.rename", "file.data", "file.rename", "file.remove", "ref.move"]);
}

#[test]
fn power_cuts_while_the_hosts_authority_is_replaced_leave_the_one_or_the_other() {
    let kept = Kept::new();
    let all = [Deed::Authority, Deed::Switch].map(|deed| cut(&kept, deed, Cut::Power, occurrences()));
    let all: BTreeSet<_> = all.into_iter().flatten().collect();
    assert_cut(&all, &["dir.rename", "dir.rename-parents", "file.data", "file.rename"]);
}

#[test]
fn power_kills_of_the_publisher_at_every_sync_point_leave_no_mix() {
    let kept = Kept::new();
    for deed in [Deed::First, Deed::Change, Deed::Add] {
        cut(&kept, deed, Cut::Process, occurrences());
    }
}
