//! Many packs into one, beside readers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use repo_git::{Ancestry, CommitId, FetchLimits, Remote, Repo, TreeLimits};

use crate::support::{Corner, commit, listing, set, store, tree};

#[test]
fn many_packs_become_one_that_holds_what_refs_reach() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let first = commit(&repo, "desired", &[("f", "0")]);
    for n in 1..10 {
        commit(&repo, "desired", &[("f", &n.to_string()), ("same", "x")]);
    }
    let dropped = store(&repo, &tree(&[("f", "dropped")]), &[], "unreachable");
    corner.git(repo.path(), &["tag", "-a", "v1", "-m", "tagged", &first.to_string()]);
    corner.git(repo.path(), &["multi-pack-index", "write"]);
    corner.git(repo.path(), &["commit-graph", "write", "--reachable"]);
    let tip = repo.tip("desired").expect("readable").expect("there");
    let lock = repo.lock().expect("locked");
    assert!(!repo.consolidate(&lock, 20).expect("not yet"));
    assert!(repo.consolidate(&lock, 5).expect("consolidated"));
    assert_eq!(repo.pack_count(), 1);
    assert!(!repo.consolidate(&lock, 1).expect("nothing to do"));
    corner.fsck(&repo);
    assert_eq!(repo.history(tip, None, 100).expect("readable").len(), 10);
    assert_eq!(repo.is_ancestor(first, tip).expect("readable"), Ancestry::Yes);
    assert_eq!(repo.resolve(&dropped.to_string()).expect("readable"), None, "unreachable objects go");
    assert_eq!(repo.resolve("v1").expect("readable"), Some(first));
    let reopened = Repo::open(repo.path()).expect("opened");
    assert_eq!(reopened.files(tip, &TreeLimits::default()).expect("read"), tree(&[("f", "9"), ("same", "x")]));
}

#[test]
fn what_went_with_a_pack_is_written_anew_when_it_is_committed_again() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    for elsewhere in [false, true] {
        for text in ["again", "other"] {
            let id = commit(&repo, "desired", &[("f", text)]);
            repo.files(id, &TreeLimits::default()).expect("read, so that its pack is open");
        }
        // Nothing names the first tree any more, by this handle or by another program.
        let last = store(&repo, &tree(&[("f", "last")]), &[], "without history");
        set(&repo, "desired", last);
        let handle = if elsewhere { Repo::open(repo.path()).expect("opened") } else { repo.clone() };
        assert!(handle.consolidate(&handle.lock().expect("locked"), 1).expect("consolidated"));
        let again = commit(&repo, "desired", &[("f", "again")]);
        corner.fsck(&repo);
        let reopened = Repo::open(repo.path()).expect("opened");
        assert_eq!(reopened.files(again, &TreeLimits::default()).expect("read"), tree(&[("f", "again")]));
    }
}

#[test]
fn loose_objects_count_and_a_pack_under_protection_stays() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    for n in 0..6 {
        let name = format!("f{n}");
        std::fs::write(corner.path(&name), &name).expect("written");
        corner.git(repo.path(), &["hash-object", "-w", &corner.path(&name).display().to_string()]);
    }
    commit(&repo, "desired", &[("f", "1")]);
    let pack =
        listing(&repo.path().join("objects/pack")).into_iter().find(|p| p.extension().is_some_and(|e| e == "pack"));
    std::fs::write(pack.expect("a pack").with_extension("keep"), "receive-pack 1 on host").expect("kept");
    commit(&repo, "desired", &[("f", "2")]);
    assert_eq!(repo.pack_count(), 1, "the kept one doesn't count");
    let lock = repo.lock().expect("locked");
    assert!(repo.consolidate(&lock, 5).expect("consolidated"));
    let packs = listing(&repo.path().join("objects/pack"))
        .iter()
        .filter(|p| p.extension().is_some_and(|e| e == "pack"))
        .count();
    assert_eq!(packs, 2, "the kept one and the new one");
    assert!(corner.git(repo.path(), &["count-objects", "-v"]).contains("count: 0"));
    corner.fsck(&repo);
}

#[test]
fn history_ends_where_it_is_told_to_and_goes_on_from_there() {
    let corner = Corner::new();
    let (there, repo) = (corner.repo("there.git"), corner.repo("r.git"));
    let all: Vec<_> = (0..10).map(|n| commit(&there, "desired", &[("f", &n.to_string())])).collect();
    let fetch = |wants: &[CommitId], haves: &[CommitId]| {
        let remote = Remote::open(&there.path().display().to_string()).expect("a path");
        remote.fetch(&repo, wants, haves, false, &FetchLimits::default()).expect("fetched");
        set(&repo, "desired", wants[0]);
    };
    let shallow = || std::fs::read_to_string(repo.path().join("shallow")).expect("boundaries");
    fetch(&all[9..], &[]);
    let lock = repo.lock().expect("locked");
    assert!(!repo.consolidate_to(&lock, 1, || Ok(vec![all[7]])).expect("nothing to do"));
    store(&repo, &tree(&[("f", "more")]), &[], "unreachable");
    assert!(repo.consolidate_to(&lock, 1, || Ok(vec![all[7]])).expect("consolidated"));
    assert_eq!((repo.history(all[9], None, 100).expect("readable").len(), shallow()), (3, format!("{}\n", all[7])));
    assert_eq!(repo.is_ancestor(all[0], all[9]).expect("readable"), Ancestry::Unknown);
    let reopened = Repo::open(repo.path()).expect("opened");
    assert!(reopened.files(all[0], &TreeLimits::default()).is_err(), "it went");
    corner.fsck(&repo);
    // The newest has a tree that went with the history.
    let new = commit(&there, "desired", &[("f", "0")]);
    fetch(&[new], &[all[9]]);
    assert_eq!(repo.files(new, &TreeLimits::default()).expect("read"), tree(&[("f", "0")]));
    assert_eq!(repo.is_ancestor(all[9], new).expect("readable"), Ancestry::Yes);
    assert!(repo.consolidate_to(&lock, 1, || Ok(vec![new])).expect("consolidated"));
    assert_eq!((repo.history(new, None, 100).expect("readable").len(), shallow()), (1, format!("{new}\n")));
    corner.fsck(&repo);
}

#[test]
fn a_history_is_measured_from_its_tip() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let all: Vec<_> = (0..10).map(|n| commit(&repo, "desired", &[("f", &n.to_string().repeat(10_000))])).collect();
    let within = |bytes| repo.history_within(all[9], bytes).expect("readable");
    assert_eq!(within(1 << 20), None);
    assert_eq!(within(0), Some(all[9]));
    // Each commit is its text, a tree and 10,000 bytes.
    assert_eq!(within(35_000), Some(all[7]));
}

#[test]
fn an_empty_repository_and_an_unreadable_one_lose_nothing() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let lock = repo.lock().expect("locked");
    assert!(!repo.consolidate(&lock, 0).expect("empty"));
    let id = commit(&repo, "desired", &[("f", "1")]);
    let orphan = store(&repo, &tree(&[("f", "2")]), &["1".repeat(40).parse().expect("an id")], "its parent is missing");
    set(&repo, "broken", orphan);
    assert!(repo.consolidate(&lock, 1).is_err());
    assert_eq!(repo.pack_count(), 2, "nothing was removed");
    assert_eq!(repo.tip("desired").expect("readable"), Some(id));
}

#[test]
fn readers_notice_nothing() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    commit(&repo, "desired", &[("f", "0")]);
    let (done, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let reader = Repo::open(repo.path()).expect("opened");
            let (done, reads) = (&done, &reads);
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    let tip = reader.tip("desired").expect("readable").expect("there");
                    for id in reader.history(tip, None, 30).expect("readable") {
                        reader.files(id, &TreeLimits::default()).expect("readable");
                        reads.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        let lock = repo.lock().expect("locked");
        let start = std::time::Instant::now();
        let is_enough = |round| round >= 15 && reads.load(Ordering::SeqCst) > 100;
        for round in (0..).take_while(|round| !is_enough(*round) && start.elapsed().as_secs() < 120) {
            for n in 0..4 {
                commit(&repo, "desired", &[("f", &format!("{round} {n}"))]);
            }
            repo.consolidate(&lock, 2).expect("consolidated");
        }
        done.store(true, Ordering::SeqCst);
    });
    assert!(reads.load(Ordering::SeqCst) > 100, "{reads:?}");
    corner.fsck(&repo);
}
