//! A pack from another host is taken within its limits or refused; a refused one leaves nothing behind.
#![no_main]

use std::cell::RefCell;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use repo_git::remote::fuzz::{pack, sealed};
use repo_git::{FetchLimits, Repo};
use tempfile::TempDir;

const LIMITS: FetchLimits = FetchLimits {
    bytes: 1 << 16,
    objects: 1000,
    object_bytes: 1 << 16,
    resolved_bytes: 1 << 22,
    timeout: std::time::Duration::from_secs(10),
};

thread_local! {
    static REPO: RefCell<Option<(TempDir, Repo)>> = const { RefCell::new(None) };
}

/// In memory: millions of files on a disk would be slow, and wear it out.
fn repository() -> (TempDir, Repo) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory");
    let repo = Repo::create(&dir.path().join("repository.git"), "desired").expect("a repository");
    (dir, repo)
}

fuzz_target!(|bytes: &[u8]| {
    REPO.with_borrow_mut(|slot| {
        let (dir, repo) = slot.get_or_insert_with(repository);
        let before = count(dir.path());
        match pack(repo, &sealed(bytes), &LIMITS) {
            Ok(fetched) => {
                assert!(fetched.bytes <= LIMITS.bytes && fetched.objects <= LIMITS.objects);
                *slot = None; // the next one begins with an empty repository again
            }
            Err(_) => assert_eq!(count(dir.path()), before, "a refused pack left something behind"),
        }
    });
});

fn count(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).expect("a directory").flatten();
    entries.map(|entry| if entry.path().is_dir() { 1 + count(&entry.path()) } else { 1 }).sum()
}
