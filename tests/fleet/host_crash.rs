//! Power cuts of the host while a device pushes: what was acknowledged is there, and what wasn't is whole or not there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use repo_testkit::faults::power::{VOLUME_VARIABLE, Volume, kill};
use repo_testkit::ssh_key::{keygen, public};
use repo_testkit::{git, program};
use tempfile::TempDir;

use crate::site::registry_name;
use repo_testkit::fleet::Fleet;
use repo_testkit::host::Host;
use repo_testkit::{copy, text};

const DEVICE: &str = "press-01";

/// A published fleet whose home names a host, kept outside of every volume, with a device's clone and next commits.
struct Kept {
    dir: TempDir,
    secret: String,
    first: String,
    second: String,
    /// After the second, with a file of some megabytes.
    large: String,
}

impl Kept {
    fn new() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let fleet = Fleet::at(dir.path());
        text(fleet.init_command(&registry_name(dir.path())).args(["--host", "127.0.0.1"]).output().expect("run"));
        let config = fleet.home().join("publisher.yaml");
        std::fs::write(&config, "serve:\n  names: [127.0.0.1]\n  listen: 127.0.0.1:0\n").expect("written");
        fleet.push_application();
        let key = dir.path().join("device");
        keygen(&key, "ed25519", "");
        fleet.run(&["device", "add", DEVICE]);
        fleet.run(&["device", "enroll", DEVICE, &public(&key)]);
        fleet.run(&["publish"]);
        let join = std::fs::read(fleet.join_file(DEVICE)).expect("a join file");
        let join: serde_json::Value = serde_json::from_slice(&join).expect("JSON");
        let secret = join["account"]["secret"].as_str().expect("a secret").to_owned();
        let fleet_id = join["fleet"].as_str().expect("a fleet").to_owned();
        let clone = dir.path().join("clone");
        let from = fleet.repository(DEVICE).display().to_string();
        git::git(dir.path(), &["clone", "-q", &from, &clone.display().to_string()]);
        let tree = git::git(&clone, &["rev-parse", "HEAD^{tree}"]);
        let first = commit(&clone, &key, &fleet_id, &tree, None);
        let second = commit(&clone, &key, &fleet_id, &tree, Some(&first));
        let noise = repo_testkit::noise(2_000_000, 0);
        std::fs::write(clone.join("noise"), noise).expect("written");
        git::git(&clone, &["add", "noise"]);
        let tree = git::git(&clone, &["write-tree"]);
        let large = commit(&clone, &key, &fleet_id, &tree, Some(&second));
        Self { dir, secret, first, second, large }
    }

    fn ca(&self) -> PathBuf {
        Fleet::at(self.dir.path()).home().join("ca/ca.pem")
    }

    /// A volume with the publisher's files on it, and `status` at the first commit.
    fn volume(&self) -> (Volume, Fleet) {
        let volume = Volume::new(64).expect("a volume");
        let (kept, fleet) = (Fleet::at(self.dir.path()), Fleet::at(&volume.path()));
        copy(&kept.dir(), &fleet.dir());
        copy(&kept.home(), &fleet.home());
        let host = fleet.serve(&[]);
        text(self.push(&host, &self.first));
        drop(host);
        text(Command::new("sync").arg("-f").arg(volume.path()).output().expect("run"));
        (volume, fleet)
    }

    fn push(&self, host: &Host, commit: &str) -> Output {
        self.push_to(host, &format!("{commit}:refs/heads/status"))
    }

    fn push_to(&self, host: &Host, refspec: &str) -> Output {
        let ca = format!("http.sslCAInfo={}", self.ca().display());
        let account = format!("http.extraHeader=Authorization: Bearer {}", self.secret);
        let url = format!("{}/devices/{DEVICE}.git", host.url);
        let args = ["-c", &ca, "-c", &account, "push", &url, refspec];
        git::try_git(&self.dir.path().join("clone"), &args)
    }

    /// What must hold after a cut: all is whole, `status` stands at one of the two, and the device gets through again.
    fn check(&self, fleet: &Fleet, acknowledged: bool, when: &str) {
        age_locks(&fleet.repository(DEVICE));
        self.check_after_kill(fleet, acknowledged, when);
    }

    fn check_after_kill(&self, fleet: &Fleet, acknowledged: bool, when: &str) {
        let repository = fleet.repository(DEVICE);
        fleet.assert_whole(false, when);
        let tip = git::tip(&repository, "status");
        let expected = [Some(self.first.clone()), Some(self.second.clone())];
        assert!(expected.contains(&tip), "{when}: status is {tip:?}");
        assert!(!acknowledged || tip == expected[1], "{when}: what was acknowledged is lost");
        git::git(&repository, &["fsck", "--strict"]);
        let host = fleet.serve(&[]);
        let mut pushed = self.push(&host, &self.second);
        // A git that outlived its host is given the time to end.
        for _ in 0..60 {
            if pushed.status.success() {
                break;
            }
            std::thread::sleep(Duration::from_secs(1));
            pushed = self.push(&host, &self.second);
        }
        assert!(pushed.status.success(), "{when}: {}", String::from_utf8_lossy(&pushed.stderr));
        assert_eq!(git::tip(&repository, "status"), expected[1], "{when}");
        git::git(&repository, &["fsck", "--strict"]);
    }
}

fn commit(clone: &Path, key: &Path, fleet: &str, tree: &str, parent: Option<&str>) -> String {
    commit_with(clone, key, fleet, (tree, parent), "")
}

/// The same with more trailers.
fn commit_with(clone: &Path, key: &Path, fleet: &str, (tree, parent): (&str, Option<&str>), more: &str) -> String {
    let message = format!("report\n\nKind: status\nFleet: {fleet}\nDevice: {DEVICE}{more}");
    let signing = format!("user.signingkey={}", key.display());
    let mut args = vec!["-c", "gpg.format=ssh", "-c", &signing, "commit-tree", "-S", tree, "-m", &message];
    args.extend(parent.iter().flat_map(|parent| ["-p", parent]));
    git::git(clone, &args)
}

/// Who begins an epoch of `status` at the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begins {
    /// The device, which keeps the end of the one before itself.
    Device,
    /// A device of before epochs, which has another key: the host keeps what the old one said.
    Before,
}

impl Kept {
    fn fleet_id(&self) -> String {
        let join = std::fs::read(Fleet::at(self.dir.path()).join_file(DEVICE)).expect("a join file");
        let join: serde_json::Value = serde_json::from_slice(&join).expect("JSON");
        join["fleet"].as_str().expect("a fleet").to_owned()
    }

    /// What begins an epoch after the first commit, and the pushes that it takes.
    fn epoch(&self, by: Begins) -> (String, Vec<String>) {
        let clone = self.dir.path().join("clone");
        let tree = git::git(&clone, &["rev-parse", &format!("{}^{{tree}}", self.first)]);
        let (key, more, keep) = match by {
            Begins::Device => {
                let more = format!("\nEpoch: 2\nPrevious: {}", self.first);
                ("device", more, Some(format!("{}:refs/heads/status-1", self.first)))
            }
            Begins::Before => ("newer", String::new(), None),
        };
        let key = self.dir.path().join(key);
        if !key.exists() {
            keygen(&key, "ed25519", "");
        }
        let begin = commit_with(&clone, &key, &self.fleet_id(), (&tree, None), &more);
        let replace = format!("+{begin}:refs/heads/status");
        (begin, keep.into_iter().chain([replace]).collect())
    }

    /// Cuts the power at one point of the last of these pushes, and looks at what is left.
    fn cut_epoch(&self, by: Begins, (begin, pushes): (&str, &[String]), (variable, cut): (&str, String)) {
        let when = format!("{by:?}, {cut}");
        let (volume, fleet) = self.volume();
        if by == Begins::Before {
            fleet.run(&["device", "enroll", DEVICE, &public(&self.dir.path().join("newer")), "--replace"]);
            fleet.run(&["publish"]);
        }
        let short = ("SYNC_EPOCH_COMMITS", "10".to_owned());
        let (last, first) = pushes.split_last().expect("a push");
        let host = fleet.serve(std::slice::from_ref(&short));
        first.iter().for_each(|refspec| _ = text(self.push_to(&host, refspec)));
        drop(host);
        text(Command::new("sync").arg("-f").arg(volume.path()).output().expect("run"));
        let environment = [
            short.clone(),
            (variable, cut),
            ("SYNC_CUT_COMMAND", program("power-cut").display().to_string()),
            (VOLUME_VARIABLE, volume.path().display().to_string()),
        ];
        let host = fleet.serve(&environment);
        let pushed = self.push_to(&host, last);
        drop(host);
        assert!(std::fs::write(volume.path().join("alive"), "").is_err(), "{when} was not reached");
        volume.reboot().expect("rebooted");
        let repository = fleet.repository(DEVICE);
        age_locks(&repository);
        fleet.assert_whole(false, &when);
        let (status, kept) = (git::tip(&repository, "status"), git::tip(&repository, "status-1"));
        if last.contains("status-1") {
            assert!(!pushed.status.success() || kept.as_ref() == Some(&self.first), "{when}: {kept:?}");
        } else {
            let is_begun = status.as_deref() == Some(begin);
            assert!(is_begun || status.as_ref() == Some(&self.first), "{when}: {status:?}");
            assert!(is_begun || !pushed.status.success(), "{when}: what was acknowledged is lost");
            assert!(!is_begun || kept.as_ref() == Some(&self.first), "{when}: what was said before is lost");
        }
        let host = fleet.serve(std::slice::from_ref(&short));
        for refspec in first.iter().chain([last]) {
            // What is there already is all right.
            let done = self.push_to(&host, refspec);
            assert!(done.status.success(), "{when}: {}", String::from_utf8_lossy(&done.stderr));
        }
        if !last.contains("status-1") {
            assert_eq!(git::tip(&repository, "status").as_deref(), Some(begin), "{when}");
        }
        assert_eq!(git::tip(&repository, "status-1"), Some(self.first.clone()), "{when}");
        git::git(&repository, &["fsck", "--strict", "--no-dangling"]);
    }
}

#[test]
fn power_cuts_while_an_epoch_is_kept_or_begins_leave_the_old_status_or_the_new_one_and_lose_nothing() {
    let kept = Kept::new();
    let sides = |point: &str, occurrences: usize| -> Vec<String> {
        (1..=occurrences).flat_map(|n| ["before", "after"].map(|side| format!("{point}:{side}:{n}"))).collect()
    };
    let (begin, pushes) = kept.epoch(Begins::Device);
    // The push that keeps the end, and the one that replaces what was kept.
    for count in [1, 2] {
        for cut in sides("ref.dir", 3) {
            kept.cut_epoch(Begins::Device, (&begin, &pushes[..count]), ("SYNC_CUT", cut));
        }
        for cut in sides("pack.dir", 1) {
            kept.cut_epoch(Begins::Device, (&begin, &pushes[..count]), ("SYNC_HOOK_CUT", cut));
        }
    }
    // The host keeps the end by itself before it takes the other one.
    let (begin, pushes) = kept.epoch(Begins::Before);
    for cut in ["ref.lock", "ref.move"].iter().flat_map(|point| sides(point, 1)).chain(sides("ref.dir", 4)) {
        kept.cut_epoch(Begins::Before, (&begin, &pushes), ("SYNC_CUT", cut));
    }
}

/// After a real power cut every lock file is older than the machine's uptime; here the machine goes on.
fn age_locks(repository: &Path) {
    let mut find = Command::new("find");
    let age = ["-name", "*.lock", "-o", "-name", "tmp_*", "-o", "-name", "incoming-*"];
    let touch = ["-exec", "touch", "-h", "-d", "1 hour ago", "{}", "+"];
    let found = find.arg(repository).arg("(").args(age).arg(")").args(touch).output();
    text(found.expect("find runs"));
}

#[test]
fn power_cut_right_after_ok_loses_nothing() {
    let kept = Kept::new();
    let (volume, fleet) = kept.volume();
    let host = fleet.serve(&[]);
    text(kept.push(&host, &kept.second));
    volume.cut().expect("cut");
    drop(host);
    volume.reboot().expect("rebooted");
    kept.check(&fleet, true, "right after ok");
}

#[test]
fn power_cuts_while_a_push_is_received_leave_the_old_status_or_the_new_one() {
    let kept = Kept::new();
    // The `update` hook syncs the packs before a ref moves; the host the refs before it answers.
    let points = [("SYNC_HOOK_CUT", "pack.dir", 2), ("SYNC_CUT", "ref.dir", 3)];
    for (variable, point, occurrences) in points {
        for cut in (1..=occurrences).flat_map(|n| ["before", "after"].map(|side| format!("{point}:{side}:{n}"))) {
            let (volume, fleet) = kept.volume();
            let environment = [
                (variable, cut.clone()),
                ("SYNC_CUT_COMMAND", program("power-cut").display().to_string()),
                (VOLUME_VARIABLE, volume.path().display().to_string()),
            ];
            let host = fleet.serve(&environment);
            let pushed = kept.push(&host, &kept.second);
            drop(host);
            assert!(std::fs::write(volume.path().join("alive"), "").is_err(), "{cut} was not reached");
            volume.reboot().expect("rebooted");
            kept.check(&fleet, pushed.status.success(), &cut);
        }
    }
}

#[test]
fn kills_of_the_host_at_any_moment_of_a_push_leave_the_old_status_or_the_new_one() {
    let kept = Kept::new();
    let dir = TempDir::new().expect("a temporary directory");
    let fleet = Fleet::at(dir.path());
    let restore = || {
        let from = Fleet::at(kept.dir.path());
        copy(&from.dir(), &fleet.dir());
        copy(&from.home(), &fleet.home());
    };
    restore();
    let host = fleet.serve(&[]);
    let start = Instant::now();
    text(kept.push(&host, &kept.first));
    let whole = start.elapsed();
    drop(host);
    let rounds = 12;
    for round in 0..rounds {
        restore();
        let host = fleet.serve(&[]);
        text(kept.push(&host, &kept.first));
        let pushed = std::thread::scope(|scope| {
            let pushing = scope.spawn(|| kept.push(&host, &kept.second));
            std::thread::sleep(whole * round / rounds);
            kill(host.child.id()).expect("killed");
            pushing.join().expect("the push ended")
        });
        drop(host);
        kept.check_after_kill(&fleet, pushed.status.success(), &format!("killed after {round} of {rounds} parts"));
    }
}

#[test]
fn power_volume_without_room_refuses_pushes_and_takes_them_again_when_there_is_room() {
    let kept = Kept::new();
    let (volume, fleet) = kept.volume();
    let host = fleet.serve(&[]);
    let filler = volume.path().join("filler");
    fill(&filler);
    let pushed = kept.push(&host, &kept.second);
    let said = String::from_utf8_lossy(&pushed.stderr);
    assert!(!pushed.status.success() && said.contains("remote rejected"), "{said}");
    // One that doesn't even fit into memory on its way.
    let pushed = kept.push(&host, &kept.large);
    assert!(!pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
    let repository = fleet.repository(DEVICE);
    assert_eq!(git::tip(&repository, "status"), Some(kept.first.clone()));
    git::git(&repository, &["fsck", "--strict"]);
    std::fs::remove_file(filler).expect("removed");
    text(kept.push(&host, &kept.second));
    assert_eq!(git::tip(&repository, "status"), Some(kept.second.clone()));
    text(kept.push(&host, &kept.large));
    assert_eq!(git::tip(&repository, "status"), Some(kept.large.clone()));
    git::git(&repository, &["fsck", "--strict"]);
}

/// Writes until there is no room for a single byte.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).expect("created");
    for size in [1 << 20, 1 << 10, 1] {
        let block = vec![1; size];
        while file.write_all(&block).is_ok() {}
    }
    let _ = file.sync_all();
}
