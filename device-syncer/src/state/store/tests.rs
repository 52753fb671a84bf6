//! How much room a clone takes, and that what it must keep is kept.

use std::fs;
use std::path::Path;

use repo_git::SigningKey;
use repo_model::{Digest, Trailer};
use tempfile::TempDir;

use super::*;

/// So many changes that their history alone comes to more than is kept.
const CHANGES: u64 = 700;

/// What the clone may take.
const ROOM: u64 = 2 << 20;

/// A clone in which a device with three deployments has told so many changes.
fn device(root: &Path, changes: u64) -> Store {
    let mut store = open(root);
    for change in 0..changes {
        let mut next = store.device_state.clone();
        let digest = |line: &str| Digest::of(format!("{line} of {change}").as_bytes());
        let document =
            |file: &str| (0..40).map(|n| format!("{}\n", digest(&format!("{file} {n}")))).collect::<String>();
        for file in ["syncer.json".to_owned(), format!("deployments/{}.json", change % 3)] {
            next.status.insert(file.clone(), document(&file).into_bytes());
        }
        store.commit(next, |_, _| message(change), i64::try_from(change).unwrap()).unwrap();
        store.consolidate(100, None).unwrap();
    }
    store
}

fn open(root: &Path) -> Store {
    Store::open(&Home::new(root), &"press-01".parse().unwrap(), SigningKey::from_seed(&[7; 32])).unwrap()
}

fn message(change: u64) -> Message {
    Message::new("greeter installed").trailer(Trailer::Kind, "status").trailer(Trailer::Serial, change)
}

fn size(path: &Path) -> u64 {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { size(&path) } else { fs::metadata(&path).unwrap().len() }).sum()
}

#[test]
fn the_clone_is_bounded_however_much_was_told_and_keeps_what_the_host_lacks() {
    let dir = TempDir::new().unwrap();
    let mut store = device(dir.path(), CHANGES);
    let (tip, clone) = (store.status_tip().unwrap(), store.repo.path().to_owned());
    let reported = |store: &Store| store.history(store.status).unwrap().len() as u64;
    // The host is away, or has only the beginning.
    let beginning = *store.history(Some(tip)).unwrap().last().unwrap();
    for host in [None, Some(beginning)] {
        store.consolidate(1, host).unwrap();
        assert_eq!(reported(&store), CHANGES);
        // One pack more.
        let (_, pack) = store.parentless(&FileTree::new(), &FileTree::new(), &message(0), 0).unwrap();
        store.repo.store(&pack).unwrap();
    }
    assert!(size(&clone) > ROOM && store.has_whole_status().unwrap(), "{} bytes", size(&clone));
    store.consolidate(1, Some(tip)).unwrap();
    let kept = reported(&store);
    assert!(size(&clone) < ROOM && (100..CHANGES).contains(&kept), "{} bytes, {kept} commits", size(&clone));
    assert!(!store.has_whole_status().unwrap());
    // It goes on from there, also after a restart; and for a host that has none of it, what is here begins anew.
    let device_state = store.device_state.clone();
    drop(store);
    store = open(dir.path());
    assert_eq!((&store.device_state, store.status_tip()), (&device_state, Some(tip)));
    assert_eq!(store.replant(Onto::Nothing, 1).unwrap().map(|commits| commits as u64), Some(kept));
    assert!(store.has_whole_status().unwrap() && reported(&store) == kept && store.device_state == device_state);
}
