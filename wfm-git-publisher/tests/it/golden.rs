//! Fleets in `fixtures/fleets/<case>/input`, and what is rendered of them: `expected/<device>` and the problems.
//!
//! `MARGO_BLESS=1` writes what is expected anew; look at the difference before you commit it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use repo_model::envelope::Lock;
use repo_model::{Digest, FileTree};
use wfm_git_publisher::fleet::{self, Device, Fleet, SourceFile};
use wfm_git_publisher::plan::{Numbers, plan};
use wfm_git_publisher::render::{
    Capabilities, Documents, Facts, Locks, Rendered, merged, render, render_with, unresolved,
};
use wfm_git_publisher::repos::work_tree;

fn cases() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/fleets");
    let mut cases: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

/// What every tag means here: the digests of its own name.
fn locks(fleet: &Fleet) -> Locks {
    let needed = unresolved(fleet, &|_| Some(Facts::default()), &Locks::new());
    let lock = |text: String| Lock { manifest: Digest::of(text.as_bytes()), content: Digest::of(text.as_bytes()) };
    let mut locks: Locks = needed.into_iter().map(|one| (one.clone(), lock(one.to_string()))).collect();
    for content in locks.values().map(|lock| lock.content).collect::<Vec<_>>() {
        locks.learn(content, repo_artifacts::Images::default());
    }
    locks
}

/// What the device gets: the same whether its documents were written before anything was known of it or not.
fn rendered(fleet: &Fleet, device: &Device, facts: Facts<'_>, locks: &Locks) -> Rendered {
    let rendered = render(fleet, device, facts, locks);
    assert_eq!(render_with(Documents::of(fleet, device), fleet, device, facts, locks), rendered);
    rendered
}

/// Path → bytes of everything that a fleet makes: the problems, and each device's first desired state.
fn made(files: &[SourceFile]) -> FileTree {
    let mut reading = fleet::read(files);
    let mut made = FileTree::new();
    if let Some(fleet) = &reading.fleet {
        let problems = |one| render(fleet, one, Facts::default(), &Locks::new()).problems();
        let rendered: Vec<_> = fleet.devices.values().map(|one| (&one.id, problems(one))).collect();
        reading.problems.extend(merged(rendered.iter().map(|(id, problems)| (*id, problems))));
    }
    if !reading.problems.is_empty() {
        let line = |problem: &repo_model::problem::Problem| {
            let hint = problem.hint.as_ref().map(|hint| format!("    hint: {hint}\n")).unwrap_or_default();
            format!("{:?}: {problem}\n{hint}", problem.severity)
        };
        let text: String = reading.problems.iter().map(line).collect();
        made.insert("problems.txt".to_owned(), text.into_bytes());
    }
    let Some(fleet) = reading.fleet else { return made };
    let locks = locks(&fleet);
    for device in fleet.devices.values() {
        let planned = plan(&rendered(&fleet, device, Facts::default(), &locks), None, &FileTree::new(), &fleet.broken);
        let numbers = Numbers { serial: 1, manifest_version: 1 };
        let assembled = planned.target.assemble(fleet.settings.id, &device.id, numbers, &FileTree::new());
        // What was planned is what is there afterwards: nothing is left to do.
        let parent = repo_model::desired::read(&assembled.tree).unwrap();
        let facts = Facts { parent: Some(&parent), ..Facts::default() };
        let again = plan(&rendered(&fleet, device, facts, &locks), Some(&parent), &FileTree::new(), &fleet.broken);
        assert!(again.is_empty() && !again.target.new_manifest, "{again:?}");
        rendered(&fleet, device, Facts { capabilities: Capabilities::Unreported, ..facts }, &locks);
        let name = device.id.repository_name();
        made.extend(assembled.tree.into_iter().map(|(path, bytes)| (format!("{name}/{path}"), bytes)));
        let bundle = assembled.bundle.into_iter().map(|(path, bytes)| (format!("{name}.{path}"), bytes));
        made.extend(bundle);
    }
    made
}

fn read_tree(dir: &Path) -> FileTree {
    let mut tree = FileTree::new();
    let mut open = vec![dir.to_owned()];
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(&path).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                open.push(entry);
            } else {
                let name = entry.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                tree.insert(name, std::fs::read(&entry).unwrap());
            }
        }
    }
    tree
}

#[allow(clippy::disallowed_methods, reason = "fixtures need no syncing")]
fn bless(dir: &Path, tree: &FileTree) {
    let _ = std::fs::remove_dir_all(dir);
    for (path, bytes) in tree {
        let file = dir.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }
}

#[test]
fn every_fleet_is_rendered_as_expected() {
    assert!(cases().len() >= 4);
    for case in cases() {
        let made = made(&work_tree(&case.join("input")).unwrap());
        let expected = case.join("expected");
        if std::env::var_os("MARGO_BLESS").is_some() {
            bless(&expected, &made);
        }
        let expected = read_tree(&expected);
        let names = |tree: &FileTree| tree.keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(names(&made), names(&expected), "{}", case.display());
        for (path, bytes) in &made {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(text(bytes), text(&expected[path]), "{}: {path}; `just bless` accepts it", case.display());
        }
    }
}

#[test]
fn the_order_of_files_means_nothing() {
    for case in cases() {
        let files = work_tree(&case.join("input")).unwrap();
        let first = made(&files);
        for turn in 1..10 {
            let mut shuffled = files.clone();
            // A cheap shuffle that is the same on every machine.
            shuffled.sort_by_key(|file| Digest::of(format!("{turn}{}", file.path).as_bytes()).hex());
            assert_eq!(made(&shuffled), first, "{}", case.display());
        }
    }
}

#[test]
fn the_bytes_of_a_device_do_not_depend_on_its_neighbours() {
    let case = cases().into_iter().find(|case| case.ends_with("selectors")).unwrap();
    let mut files = work_tree(&case.join("input")).unwrap();
    let all: BTreeMap<_, _> = made(&files);
    files.retain(|file| !file.path.starts_with("devices/spare"));
    let fewer = made(&files);
    assert!(fewer.len() < all.len());
    // Whether any device has some label is about all of them.
    for (path, bytes) in fewer.into_iter().filter(|(path, _)| path != "problems.txt") {
        assert_eq!(bytes, all[&path], "{path}");
    }
}

/// The skeleton that `init` writes from is a fleet itself.
#[test]
fn the_skeleton_is_a_valid_fleet() {
    use wfm_git_publisher::operator::SKELETON;
    let files: Vec<_> = SKELETON.iter().map(|(path, text)| SourceFile::plain(*path, *text)).collect();
    let reading = fleet::read(&files);
    assert!(reading.problems.is_empty(), "{}", reading.problems);
    let fleet = reading.fleet.unwrap();
    assert_eq!((fleet.devices.len(), fleet.deployments.len()), (3, 1));
    let skeleton = read_tree(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../repo-layouts/fleet"));
    let embedded: BTreeSet<_> = SKELETON.iter().map(|(path, _)| (*path).to_owned()).collect();
    assert_eq!(skeleton.keys().cloned().collect::<BTreeSet<_>>(), embedded, "every file of the skeleton is written");
}
