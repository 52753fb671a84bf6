//! Power cuts and kills at every sync point of this crate.
//!
//! A child process takes a volume through a list of steps and writes down, outside of it, the state after each. After a
//! cut the volume must be in the last state written down or in the one after it: nothing that was reported done is
//! lost, and nothing is half done.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use repo_git::durable::{self, SyncPoint};
use repo_git::repo::Bare;
use repo_git::{CommitId, Expected, FetchLimits, RefError, RefMove, Remote, Repo, TreeLimits, WriteError};
use repo_testkit::faults::chaos_rounds;
use repo_testkit::faults::power::{Cut, Experiment, cut_everywhere};
use repo_testkit::git;

use crate::child;
use crate::support::{Corner, commit, grown, listing, newborn, spec, tree};

/// What can be seen of the volume: refs, files, slots, directories.
type State = BTreeMap<String, String>;

const SLOT: usize = 4096;

struct World<'a> {
    root: &'a Path,
    upstream: &'a Path,
}

type Step = fn(&World<'_>);

/// Each changes one visible thing, and does nothing when it is done already.
const STEPS: [Step; 20] = [
    |w| {
        durable::create_dir_all(&w.root.join("etc/deep"), 0o755).expect("made");
        durable::replace_file(&w.root.join("etc/deep/config"), &[b'1'; 3000], 0o600).expect("written");
    },
    |w| drop(Repo::create(&w.root.join("device.git"), "desired").expect("made")),
    |w| w.give_birth(),
    |w| w.advance("refs/heads/desired", 0, Some(w.commits()[0])),
    |w| w.advance("refs/heads/desired", 0, Some(w.commits()[1])),
    |w| w.advance("refs/heads/status", 0, Some(w.commits()[2])),
    |w| w.advance("refs/heads/heartbeat", 0, Some(w.commits()[3])),
    |w| durable::replace_file(&w.root.join("etc/deep/config"), &[b'2'; 5000], 0o600).expect("written"),
    |w| w.write_slot(0, b'x'),
    |w| w.write_slot(1, b'y'),
    |w| w.advance("refs/syncer/state", 1, Some(w.fetch(0))),
    |w| w.advance("refs/syncer/state", 1, Some(w.fetch(1))),
    |w| {
        let repo = w.repo();
        repo.pack_refs(&repo.lock().expect("locked"), &["refs/heads/desired", "refs/heads/heartbeat"]).expect("packed");
    },
    |w| w.grow_up(),
    |w| w.advance("refs/heads/heartbeat", 0, None),
    |w| {
        let repo = w.repo();
        repo.consolidate(&repo.lock().expect("locked"), 1).expect("consolidated");
    },
    |w| {
        if !w.root.join("built").exists() {
            let temp = w.root.join(".tmp-built");
            fs::create_dir_all(temp.join("sub")).expect("made");
            fs::write(temp.join("a"), "a").and_then(|()| fs::write(temp.join("sub/b"), "b")).expect("written");
            durable::sync_tree(&temp).expect("synced");
            durable::rename(&temp, &w.root.join("built")).expect("renamed");
        }
    },
    |w| {
        durable::remove_dir_all(&w.root.join("doomed")).expect("removed");
    },
    |w| {
        durable::remove_file(&w.root.join("gone")).expect("removed");
    },
    // Only a cut after it can show that a step was not durable, so the last one has nothing to show.
    |w| w.write_slot(0, b'z'),
];

/// The child's part: goes on after the last step written down.
pub(crate) fn scenario(root: &Path, upstream: &Path, progress: &Path) {
    let mut log = fs::File::options().read(true).append(true).create(true).open(progress).expect("opened");
    let mut note = |state: &State| writeln!(log, "{}", serde_json::to_string(state).expect("JSON")).expect("noted");
    let world = World { root, upstream };
    let states = read(progress);
    if states.is_empty() {
        note(&observe(root));
    }
    for step in &STEPS[states.len().saturating_sub(1)..] {
        step(&world);
        note(&observe(root));
    }
}

impl World<'_> {
    fn repo(&self) -> Repo {
        Repo::open(&self.root.join("device.git")).expect("opened")
    }

    /// All commits of the scenario, stored as one batch; the same each time (signing would only take its time).
    fn commits(&self) -> [CommitId; 4] {
        let repo = self.repo();
        let mut batch = repo.batch();
        let mut make = |files: &[(&str, &str)], parents: &[CommitId], message: &str| {
            batch.commit(&spec(&tree(files), parents, message), None).expect("made")
        };
        let first = make(&[("envelope.json", "1")], &[], "one");
        let second = make(&[("envelope.json", "2"), ("deployments/a.yaml", "a")], &[first], "two");
        let status = make(&[("syncer.json", "{}")], &[], "status");
        let heartbeat = make(&[("current-state.json", "{}")], &[], "heartbeat");
        batch.store().expect("stored");
        [first, second, status, heartbeat]
    }

    /// Makes a repository with what it holds.
    fn give_birth(&self) {
        let (pack, branches) = newborn();
        Bare::create_with(&self.root.join("born.git"), "desired", &pack, &branches).expect("made");
    }

    /// Moves both of its branches at once.
    fn grow_up(&self) {
        let (pack, steps) = grown();
        let bare = Bare::create(&self.root.join("born.git"), "desired").expect("there");
        match bare.store_and_move(&pack, &steps) {
            Ok(()) => {}
            Err(WriteError::Move(RefError::Moved { found, .. })) => assert_eq!(found, steps[0].new, "it is done"),
            Err(error) => panic!("{error}"),
        }
    }

    /// Moves a ref to `new`, by compare-and-swap from where it stands, unless it is there.
    fn advance(&self, name: &str, extra_packs: usize, new: Option<CommitId>) {
        let repo = self.repo();
        let found = repo.reference(name).expect("readable");
        if found != new {
            let expected = found.map_or(Expected::Absent, Expected::At);
            repo.move_refs(&[RefMove { name: name.to_owned(), expected, new }]).expect("moved");
        }
        assert!(repo.pack_count() > extra_packs);
    }

    fn write_slot(&self, slot: usize, byte: u8) {
        let file = fs::File::options().write(true).open(self.root.join("slots")).expect("opened");
        durable::write_slot(&file, (slot * SLOT) as u64, &[byte; SLOT]).expect("written");
    }

    /// Fetches the n-th commit of the upstream's history, the first alone and the next on top of it.
    fn fetch(&self, n: usize) -> CommitId {
        let upstream = Repo::open(self.upstream).expect("opened");
        let mut history =
            upstream.history(upstream.tip("desired").expect("readable").expect("there"), None, 2).expect("read");
        history.reverse();
        let remote = Remote::open(&self.upstream.display().to_string()).expect("a remote");
        let haves = &history[..n];
        remote.fetch(&self.repo(), &[history[n]], haves, n == 0, &FetchLimits::default()).expect("fetched");
        history[n]
    }
}

fn observe(root: &Path) -> State {
    let mut state = State::new();
    let mut see = |what: &str, value: String| drop(state.insert(what.to_owned(), value));
    see("config", uniform(&fs::read(root.join("etc/deep/config")).unwrap_or_default()));
    let slots = fs::read(root.join("slots")).expect("the slots were synced before");
    see("slot 0", uniform(&slots[..SLOT]));
    see("slot 1", uniform(&slots[SLOT..]));
    let whole = |dir: &str| {
        let read = |file: &str| fs::read_to_string(root.join(dir).join(file)).unwrap_or_default();
        (read("a") + &read("sub/b")) == "ab"
    };
    // A rename is all or nothing; a removal may be half done, which nobody may rely on.
    see(
        "built",
        match (root.join("built").exists(), whole("built")) {
            (false, _) => "absent",
            (true, true) => "whole",
            (true, false) => "torn",
        }
        .to_owned(),
    );
    see("doomed", if whole("doomed") { "whole" } else { "gone" }.to_owned());
    see("gone", root.join("gone").exists().to_string());
    if root.join("born.git").exists() {
        let repo = Repo::open(&root.join("born.git")).expect("opened");
        for (name, id) in repo.references("refs/").expect("readable") {
            repo.files(id, &TreeLimits::default()).expect("whole");
            see(&format!("born {name}"), id.to_string());
        }
        git::git(&root.join("born.git"), &["fsck", "--strict"]);
    }
    if root.join("device.git/HEAD").exists() {
        let repo = Repo::open(&root.join("device.git")).expect("opened");
        see("repository", "there".to_owned());
        repo.references("refs/").expect("readable").into_iter().for_each(|(name, id)| see(&name, id.to_string()));
    }
    state
}

/// Length and byte of contents that are all the same byte.
fn uniform(bytes: &[u8]) -> String {
    let same = bytes.iter().all(|byte| Some(byte) == bytes.first());
    assert!(same, "torn: {bytes:?}");
    format!("{}*{}", bytes.len(), bytes.first().copied().map_or(' ', char::from))
}

fn read(progress: &Path) -> Vec<State> {
    let text = fs::read_to_string(progress).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

struct Driver {
    corner: Corner,
    /// What the child does.
    task: &'static str,
    upstream: PathBuf,
    progress: PathBuf,
    /// The states of the uncut run.
    expected: RefCell<Vec<State>>,
}

impl Driver {
    fn new(task: &'static str) -> Self {
        let corner = Corner::new();
        let upstream = corner.repo("upstream.git");
        for n in 0..3 {
            commit(&upstream, "desired", &[("f", &"line\n".repeat(100)), ("g", &n.to_string())]);
        }
        let (upstream, progress) = (upstream.path().to_owned(), corner.path("progress"));
        Self { corner, task, upstream, progress, expected: RefCell::default() }
    }

    fn run(&self, cut: Cut, occurrences: usize) -> BTreeSet<String> {
        let cut = cut_everywhere(&Experiment {
            deed: self.task,
            prepare: &|root| self.prepare(root),
            command: &|root| self.command(root),
            check: &|root, point, when| match point {
                None => *self.expected.borrow_mut() = read(&self.progress),
                Some(_) => self.check(root, when),
            },
            cut,
            occurrences,
        });
        cut.expect("every cut was made")
    }

    fn prepare(&self, root: &Path) {
        let _ = fs::remove_file(&self.progress);
        fs::write(root.join("slots"), [b'0'; 2 * SLOT]).expect("written");
        fs::write(root.join("gone"), "x").expect("written");
        fs::create_dir_all(root.join("doomed/sub")).expect("made");
        fs::write(root.join("doomed/a"), "a")
            .and_then(|()| fs::write(root.join("doomed/sub/b"), "b"))
            .expect("written");
    }

    fn command(&self, root: &Path) -> std::process::Command {
        let mut command = child::command(self.task);
        command.env("CHILD_ROOT", root).env("CHILD_UPSTREAM", &self.upstream).env("CHILD_PROGRESS", &self.progress);
        command
    }

    fn check(&self, root: &Path, point: &str) {
        let expected = self.expected.borrow();
        let done = read(&self.progress).len();
        self.check_repository(root, point);
        let found = observe(root);
        let allowed = [&expected[done.saturating_sub(1)], &expected[done.min(expected.len() - 1)]];
        assert!(allowed.contains(&&found), "{point}: after {done} notes\n{found:#?}\nis neither of\n{allowed:#?}");

        let again = self.command(root).output().expect("started");
        assert!(again.status.success(), "{point}: {}", String::from_utf8_lossy(&again.stderr));
        assert_eq!(observe(root), expected[expected.len() - 1], "{point}: the next run converges");
        self.check_repository(root, point);
    }

    /// Nothing is damaged, stock Git agrees, and no leftover stays.
    fn check_repository(&self, root: &Path, point: &str) {
        if root.join("device.git/HEAD").exists() {
            let repo = Repo::open(&root.join("device.git")).expect("opened");
            let recovery = repo.recover(&repo.lock().expect("locked")).expect("recovered");
            assert!(recovery.damaged.is_empty(), "{point}: {:?}", recovery.damaged);
            self.corner.fsck(&repo);
            let leftover = |path: &PathBuf| {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                name.starts_with(durable::TEMP_PREFIX) || (name.ends_with(".lock") && name != "writer.lock")
            };
            let leftovers: Vec<PathBuf> = listing(repo.path()).into_iter().filter(leftover).collect();
            assert!(leftovers.is_empty(), "{point}: {leftovers:?}");
        }
    }
}

/// How many occurrences of each point are cut: two, or all of them when thousands of rounds are asked for.
fn occurrences() -> usize {
    if chaos_rounds().is_some() { usize::MAX } else { 2 }
}

fn all_names() -> BTreeSet<String> {
    SyncPoint::ALL.iter().map(|point| point.name().to_owned()).collect()
}

#[test]
fn no_power_cut_at_any_sync_point_loses_or_tears_anything() {
    assert_eq!(
        Driver::new("scenario").run(Cut::Power, occurrences()),
        all_names(),
        "every point was cut on both sides"
    );
}

#[test]
fn no_power_cut_loses_or_tears_anything_where_syncs_are_put_together() {
    let cut = Driver::new("scenario in a group").run(Cut::Power, 1);
    assert_eq!(cut, all_names(), "every point was cut on both sides");
}

#[test]
fn no_kill_at_any_sync_point_loses_or_tears_anything() {
    assert_eq!(
        Driver::new("scenario").run(Cut::Process, occurrences()),
        all_names(),
        "one was killed before every point"
    );
}

#[test]
fn the_checks_notice_a_missing_sync() {
    let volume = repo_testkit::faults::power::Volume::new(16).expect("a volume");
    let path = volume.path().join("config");
    durable::replace_file(&path, b"old", 0o600).expect("written");
    fs::write(volume.path().join("temp"), "new")
        .and_then(|()| fs::rename(volume.path().join("temp"), &path))
        .expect("renamed");
    let slot = fs::File::create(volume.path().join("slot")).expect("made");
    slot.write_all_at(b"unsynced", 0).expect("written");
    volume.cut().expect("cut");
    drop(slot);
    volume.reboot().expect("rebooted");
    assert_eq!(fs::read(&path).expect("there"), b"old");
    assert!(!volume.path().join("slot").exists());
}
