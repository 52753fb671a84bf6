//! What the published history of one device repository must show.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;

use serde_json::Value;

use super::{signed, whole};
use crate::git::{git, objects, refs, try_git};

const PUBLISHED: [&str; 3] = ["desired", "bundle", "freshness"];
const REPORTED: [&str; 2] = ["status", "heartbeat"];

/// One commit of `desired`, oldest first.
struct Commit {
    id: String,
    message: String,
    envelope: Value,
    manifest: Vec<u8>,
}

/// The branches of a repository that were found good, with where each stood: what is behind a name never changes, and
/// hundreds of crash rounds leave one as it was.
static GOOD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Invariants 1, 3, 5, 6 and 7 over a device repository on the host.
pub(super) fn check(host: &Path, broken: &mut Vec<String>) {
    if !whole(host, "the device repository", broken) {
        return;
    }
    let branches = Branches::read(host);
    let (place, before) = (format!("{:?}", branches.tips), broken.len());
    if !branches.has("desired") || GOOD.lock().expect("nobody panics here").contains(&place) {
        return;
    }
    let history = read(host, &branches);
    writers(host, &history, &branches, broken);
    serials(&history, broken);
    if branches.has("status") {
        transitions(host, &history, &branches, broken);
        adopted(host, broken);
    }
    if broken.len() == before {
        GOOD.lock().expect("nobody panics here").insert(place);
    }
}

/// All commits of a repository's branches.
struct Branches {
    tips: BTreeMap<String, String>,
    /// Parents and message of each commit.
    commits: BTreeMap<String, (Vec<String>, String)>,
}

impl Branches {
    fn read(host: &Path) -> Self {
        let heads = refs(host).into_iter();
        let tips = heads.filter_map(|(name, id)| Some((name.strip_prefix("refs/heads/")?.to_owned(), id)));
        let (tips, mut commits): (BTreeMap<_, _>, _) = (tips.collect(), BTreeMap::new());
        if !tips.is_empty() {
            let log = git(host, &["log", "--format=%H %P%n%B%x00", "--branches"]);
            for (line, message) in log.split('\0').filter_map(|commit| commit.trim_start().split_once('\n')) {
                let mut ids = line.split_whitespace().map(str::to_owned);
                let id = ids.next().expect("its own id");
                commits.insert(id, (ids.collect(), message.to_owned()));
            }
        }
        Self { tips, commits }
    }

    fn has(&self, branch: &str) -> bool {
        self.tips.contains_key(branch)
    }

    /// The end of the epoch before the one that a commit of `status` begins.
    fn previous(&self, message: &str) -> Option<&String> {
        let end = message.lines().find_map(|line| line.strip_prefix("Previous: "))?;
        self.commits.get_key_value(end).map(|(id, _)| id)
    }

    /// Ids and messages of a branch by first parents, and across epochs, oldest first.
    fn messages(&self, branch: &str) -> Vec<(String, String)> {
        let (mut messages, mut next) = (Vec::new(), self.tips.get(branch));
        while let Some((id, (parents, message))) = next.and_then(|id| self.commits.get_key_value(id)) {
            messages.push((id.clone(), message.clone()));
            next = parents.first().or_else(|| self.previous(message));
        }
        messages.reverse();
        messages
    }

    /// The ids of all commits of a branch.
    fn all(&self, branch: &str) -> BTreeSet<String> {
        let (mut all, mut open) = (BTreeSet::new(), Vec::from_iter(self.tips.get(branch)));
        while let Some(id) = open.pop() {
            if all.insert(id.clone()) {
                let commit = self.commits.get(id);
                open.extend(commit.iter().flat_map(|(parents, message)| parents.iter().chain(self.previous(message))));
            }
        }
        all
    }
}

/// The ids of all deployments that were ever published for this device.
pub(super) fn published(host: &Path) -> BTreeSet<String> {
    let log = ["log", "--format=", "--name-only", "-m", "--first-parent", "refs/heads/desired"];
    // Without that branch git says nothing.
    let paths = String::from_utf8_lossy(&try_git(host, &log).stdout).into_owned();
    let ids = paths.lines().filter_map(|path| path.strip_prefix("deployments/")?.strip_suffix(".yaml"));
    ids.map(str::to_owned).collect()
}

fn read(host: &Path, branches: &Branches) -> Vec<Commit> {
    let messages = branches.messages("desired");
    let names: Vec<_> =
        messages.iter().flat_map(|(id, _)| ["envelope", "manifest"].map(|file| format!("{id}:{file}.json"))).collect();
    let mut files = objects(host, &names).into_iter();
    let mut next = || files.next().flatten().unwrap_or_default();
    let commits = messages.into_iter().map(|(id, message)| {
        let (envelope, manifest) = (serde_json::from_slice(&next()).unwrap_or_default(), next());
        Commit { id, message, envelope, manifest }
    });
    commits.collect()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// 1: every commit of every branch is signed by the side that writes it, and says so in `Kind`.
fn writers(host: &Path, history: &[Commit], all: &Branches, broken: &mut Vec<String>) {
    let rosters: BTreeSet<_> = history
        .iter()
        .flat_map(|commit| {
            let files = commit.envelope["files"].as_object().into_iter().flatten();
            let rosters = files.filter(|(path, _)| path.starts_with("trust/") && path.ends_with(".json"));
            rosters.map(|(path, _)| format!("{}:{path}", commit.id))
        })
        .collect();
    let rosters = objects(host, &rosters.into_iter().collect::<Vec<_>>());
    let publishers: BTreeSet<_> = rosters.iter().flatten().flat_map(|bytes| signed::keys(bytes)).collect();
    let devices: BTreeSet<_> = history.iter().flat_map(|c| texts(&c.envelope["device"]["statusKeys"])).collect();
    for (branches, writer, keys) in [(&PUBLISHED[..], "publisher", publishers), (&REPORTED[..], "device", devices)] {
        let commits = branches.iter().flat_map(|branch| all.all(branch).into_iter().map(move |id| (*branch, id)));
        signed::check(host, writer, &keys, &commits.collect::<Vec<_>>(), broken);
    }
}

/// 5: serials rise; a commit that means what its parent means exists only for a new roster or after a restore.
/// 7: one `manifestVersion` has one content.
fn serials(history: &[Commit], broken: &mut Vec<String>) {
    for (old, new) in history.iter().zip(history.iter().skip(1)) {
        let number = |commit: &Commit, key: &str| commit.envelope[key].as_u64().unwrap_or(0);
        let (before, serial) = (number(old, "serial"), number(new, "serial"));
        let (old_version, version) = (number(old, "manifestVersion"), number(new, "manifestVersion"));
        if serial <= before || version < old_version {
            broken.push(format!("5: serial {serial}, version {version} come after {before}, {old_version}"));
        }
        if meaning(old) == meaning(new) && !new.message.contains("\nContinues: ") {
            broken.push(format!("5: serial {serial} means what serial {before} means"));
        }
        if version == old_version && old.manifest != new.manifest {
            broken.push(format!("7: manifestVersion {version} has other bytes in serial {serial} than in {before}"));
        }
    }
}

/// Everything of a desired state but its numbers; its files count by their digests.
fn meaning(commit: &Commit) -> Value {
    let mut envelope = commit.envelope.clone();
    if let Some(keys) = envelope.as_object_mut() {
        keys.retain(|key, _| !["serial", "manifestVersion"].contains(&key.as_str()));
        if let Some(files) = keys.get_mut("files").and_then(Value::as_object_mut) {
            files.remove("manifest.json");
        }
    }
    envelope
}

/// 6 and 7: each transition follows from the one before, none is told twice, and each commit names a published state
/// that never goes backwards. With a new key a device is on a new disk, where nothing is at first.
fn transitions(host: &Path, history: &[Commit], branches: &Branches, broken: &mut Vec<String>) {
    let mut states: BTreeMap<String, String> = BTreeMap::new();
    let (mut newest, mut signer) = (0, None);
    let told = branches.messages("status");
    let commits = objects(host, &told.iter().map(|(commit, _)| commit.clone()).collect::<Vec<_>>());
    for ((commit, message), raw) in told.into_iter().zip(commits) {
        let key = raw.as_deref().and_then(key_of);
        if key != signer {
            states.clear();
            signer = key;
        }
        for line in message.lines() {
            if let Some(transition) = line.strip_prefix("State: ") {
                follow(transition, &mut states, broken);
            }
            if let Some(desired) = line.strip_prefix("Desired-Commit: ") {
                match history.iter().position(|known| known.id == desired) {
                    Some(place) if place >= newest => newest = place,
                    Some(_) => broken.push(format!("7: status {commit} goes back to {desired}")),
                    None => broken.push(format!("7: status {commit} names {desired}, which was never published")),
                }
            }
        }
    }
}

/// What tells one commit's key from another's: an SSH signature begins with it.
fn key_of(commit: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(commit);
    let (_, signature) = text.split_once("\ngpgsig -----BEGIN SSH SIGNATURE-----\n ")?;
    signature.lines().next().map(str::to_owned)
}

/// 6: every deployment's status gives the newest manifest that was adopted, and none ever gives an older one than before.
fn adopted(host: &Path, broken: &mut Vec<String>) {
    let changes = ["--raw", "--no-abbrev", "-m", "--root", "--no-renames", "--format=commit %H"];
    let log = git(host, &[&["log", "--first-parent", "--reverse"], &changes[..], &["status"]].concat());
    // `:100644 100644 <old> <new> M\tsyncer.json`
    let change = |line: &str| {
        let (head, path) = line.strip_prefix(':')?.split_once('\t')?;
        Some((head.split(' ').nth(3)?.to_owned(), path.to_owned()))
    };
    let ids: Vec<_> = log.lines().filter_map(change).map(|(id, _)| id).collect();
    let mut blobs = objects(host, &ids).into_iter();
    let (mut newest, mut told) = (None, BTreeMap::<String, u64>::new());
    for commit in log.split("commit ").skip(1) {
        for (_, path) in commit.lines().filter_map(change) {
            let document = blobs.next().flatten().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
            if path == "syncer.json" {
                newest = document.and_then(|document| document["adopted"]["manifestVersion"].as_u64());
            } else if path.starts_with("deployments/") {
                let version = document.map(|document| document["adoptedManifestVersion"].as_u64().unwrap_or(0));
                let before = told.remove(&path);
                if let Some(version) = version {
                    if before > Some(version) {
                        broken.push(format!("6: {path} gives manifest {version} after {before:?} in {commit}"));
                    }
                    told.insert(path, version);
                }
            }
        }
        for (path, version) in told.iter().filter(|(_, version)| newest.is_some_and(|newest| newest != **version)) {
            broken.push(format!("6: {path} gives manifest {version}, and {newest:?} is adopted in {commit}"));
        }
    }
}

fn follow(transition: &str, states: &mut BTreeMap<String, String>, broken: &mut Vec<String>) {
    let words: Vec<_> = transition.split(' ').collect();
    let [what, from, ">", to, ..] = words[..] else {
        broken.push(format!("6: not a transition: {transition}"));
        return;
    };
    let before = states.insert(what.to_owned(), to.to_owned()).unwrap_or_else(|| "none".to_owned());
    // What was removed is forgotten at the next adoption, and may come again from nothing.
    let follows = before == from || (before == "removed" && from == "none");
    if !follows || from == to {
        broken.push(format!("6: {transition}, but it was {before}"));
    }
}
