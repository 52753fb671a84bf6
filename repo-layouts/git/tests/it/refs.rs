//! Compare-and-swap of refs, alone and against others.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use repo_git::repo::{Bare, BranchStamps, branches, moved_at, stamped_branches};
use repo_git::{CommitId, Expected, LockError, RefError, RefMove, Repo, WriteError};

use crate::support::{Corner, commit, grown, newborn, set, store, tree};

const NAME: &str = "refs/heads/desired";

fn step(expected: Expected, new: Option<CommitId>) -> [RefMove; 1] {
    [RefMove { name: NAME.to_owned(), expected, new }]
}

#[test]
fn a_ref_moves_only_from_where_it_is_expected() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let one = store(&repo, &tree(&[("f", "1")]), &[], "1");
    let two = store(&repo, &tree(&[("f", "2")]), &[one], "2");
    repo.move_refs(&step(Expected::Absent, Some(one))).expect("made");
    let error = repo.move_refs(&step(Expected::Absent, Some(two))).expect_err("it exists");
    assert!(matches!(error, RefError::Moved { found: Some(found), .. } if found == one));
    assert!(matches!(repo.move_refs(&step(Expected::At(two), None)), Err(RefError::Moved { .. })));
    repo.move_refs(&step(Expected::At(one), Some(two))).expect("moved");
    assert_eq!(corner.git(repo.path(), &["rev-parse", NAME]), two.to_string());
    repo.move_refs(&step(Expected::At(two), None)).expect("deleted");
    assert_eq!(repo.tip("desired").expect("readable"), None);
    for name in ["desired", "refs/heads/a..b", "refs/../x", "HEAD", "refs/heads/x.lock"] {
        let bad = [RefMove { name: name.to_owned(), expected: Expected::Any, new: Some(one) }];
        assert!(matches!(repo.move_refs(&bad), Err(RefError::InvalidName { .. })), "{name}");
    }
}

#[test]
fn nothing_moves_if_one_of_them_can_not() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let one = store(&repo, &tree(&[("f", "1")]), &[], "1");
    let to = |name: &str, expected| RefMove { name: name.to_owned(), expected, new: Some(one) };
    let moves = [
        to("refs/heads/a", Expected::Absent),
        to("refs/heads/b", Expected::At(one)),
        to("refs/heads/c", Expected::Any),
    ];
    assert!(matches!(repo.move_refs(&moves), Err(RefError::Moved { name, .. }) if name == "refs/heads/b"));
    assert_eq!(repo.references("refs/").expect("readable"), []);
}

#[test]
fn of_eight_writers_each_step_has_one_winner() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let start = commit(&repo, "desired", &[("f", "start")]);
    let wins: usize = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|n| {
                scope.spawn({
                    let path = repo.path().to_owned();
                    move || race(&path, n)
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("no panic")).sum()
    });
    let history = repo.history(repo.tip("desired").expect("readable").expect("there"), Some(start), usize::MAX);
    assert_eq!(history.expect("readable").len(), wins, "every win is a commit, and none was lost");
    assert!(wins >= 8, "{wins}");
    corner.fsck(&repo);
}

/// Ten tries to put a commit on top; returns how many succeeded.
fn race(path: &std::path::Path, writer: usize) -> usize {
    let repo = Repo::open(path).expect("opened");
    let attempt = |n: usize| {
        let tip = repo.tip("desired").expect("readable").expect("there");
        let new = store(&repo, &tree(&[("f", &format!("{writer} {n}"))]), &[tip], "race");
        match repo.move_refs(&step(Expected::At(tip), Some(new))) {
            Ok(()) => true,
            Err(RefError::Moved { .. } | RefError::Locked { .. }) => false,
            Err(error) => panic!("{error:?}"),
        }
    };
    (0..10).filter(|n| attempt(*n)).count()
}

#[test]
fn stock_gits_locks_and_packed_refs_are_respected() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let one = commit(&repo, "desired", &[("f", "1")]);
    let two = store(&repo, &tree(&[("f", "2")]), &[one], "2");
    set(&repo, "other", one);
    corner.git(repo.path(), &["pack-refs", "--all"]);
    assert_eq!(repo.tip("desired").expect("readable"), Some(one));
    repo.move_refs(&step(Expected::At(one), Some(two))).expect("moved over the packed one");
    repo.move_refs(&step(Expected::At(two), None)).expect("deleted");
    assert_eq!(repo.tip("desired").expect("readable"), None, "the packed value doesn't come back");
    assert_eq!(repo.tip("other").expect("readable"), Some(one));

    std::fs::write(repo.path().join("refs/heads/desired.lock"), "").expect("locked by another");
    assert!(matches!(repo.move_refs(&step(Expected::Absent, Some(one))), Err(RefError::Locked { .. })));
    assert!(repo.path().join("refs/heads/desired.lock").exists(), "another's lock stays");
}

/// A repository that was made with its branches, and where they stand.
fn bare(corner: &Corner) -> (PathBuf, Bare, [(&'static str, CommitId); 2]) {
    let ((pack, born), path) = (newborn(), corner.path("r.git"));
    assert!(Bare::create_with(&path, "desired", &pack, &born).expect("made"));
    let bare = Bare::create(&path, "desired").expect("there");
    (path, bare, born)
}

#[test]
fn refs_without_files_of_their_own_move_together_in_packed_refs() {
    let corner = Corner::new();
    let (path, bare, born) = bare(&corner);
    let (next, steps) = grown();
    let file = |name: &str| path.join("refs/heads").join(name).exists();
    let stand = || ["bundle", "desired"].map(|name| corner.git(&path, &["rev-parse", name]));
    let new = steps.each_ref().map(|step| step.new.expect("a commit").to_string());
    corner.git(&path, &["tag", "-a", "-m", "v1", "v1", "desired"]);
    corner.git(&path, &["pack-refs", "--all"]);

    // One that can't move holds back both, and nothing is stored.
    let bad = [steps[0].clone(), RefMove { expected: Expected::Absent, ..steps[1].clone() }];
    let error = bare.store_and_move(&next, &bad).expect_err("it stands somewhere");
    assert!(matches!(error, WriteError::Move(RefError::Moved { name, .. }) if name == NAME));
    for lock in ["refs/heads/desired.lock", "packed-refs.lock"] {
        fs::write(path.join(lock), "").expect("locked by another");
        let error = bare.store_and_move(&next, &steps).expect_err("it is locked");
        assert!(matches!(error, WriteError::Move(RefError::Locked { lock: found, .. }) if found.ends_with(lock)));
        fs::remove_file(path.join(lock)).expect("unlocked");
    }
    assert_eq!((stand(), Bare::count_packs(&path)), (born.map(|(_, id)| id.to_string()), Some(1)));

    bare.store_and_move(&next, &steps).expect("moved");
    assert_eq!(stand(), new);
    assert!(!file("bundle") && !file("desired"), "none got a file");
    assert_eq!(branches(&path, ["bundle", "desired"]).expect("readable"), steps.each_ref().map(|step| step.new));
    corner.git(&path, &["fsck", "--strict", "--no-dangling"]);
    assert_eq!(corner.git(&path, &["rev-parse", "v1^{commit}"]), born[1].1.to_string(), "the tag is where it was");
}

#[test]
fn a_ref_with_a_file_of_its_own_moves_there_until_it_is_packed_again() {
    let corner = Corner::new();
    let (path, bare, born) = bare(&corner);
    let (next, steps) = grown();
    let repo = Repo::open(&path).expect("opened");
    let stand = || branches(&path, ["bundle", "desired"]).expect("readable");
    let (old, new) = (born.map(|(_, id)| Some(id)), steps.each_ref().map(|step| step.new));
    // Somebody moves it by hand, which gives it a file.
    corner.git(&path, &["update-ref", NAME, &born[0].1.to_string()]);
    assert_eq!(stand(), [old[0], old[0]]);
    assert!(matches!(bare.store_and_move(&next, &steps), Err(WriteError::Move(RefError::Moved { .. }))));
    corner.git(&path, &["update-ref", NAME, &born[1].1.to_string()]);
    bare.store_and_move(&next, &steps).expect("moved");
    assert_eq!(stand(), new);
    let names = steps.each_ref().map(|step| step.name.clone());
    repo.pack_refs(&repo.lock().expect("locked"), &names).expect("packed");
    assert!(names.iter().all(|name| !path.join(name).exists()), "none has a file");
    assert_eq!(stand(), new);
    assert_eq!(corner.git(&path, &["rev-parse", "desired"]), new[1].expect("a commit").to_string());

    // One that names another ref is left as it is.
    corner.git(&path, &["symbolic-ref", "refs/heads/other", NAME]);
    repo.pack_refs(&repo.lock().expect("locked"), &["refs/heads/other"]).expect("nothing is done");
    assert_eq!(corner.git(&path, &["symbolic-ref", "refs/heads/other"]), NAME);

    // As an old Git wrote it: that is left to Git.
    let text = fs::read_to_string(path.join("packed-refs")).expect("there");
    let (_, refs) = text.split_once('\n').expect("a header");
    fs::write(path.join("packed-refs"), refs).expect("written");
    assert_eq!(stand(), new);
    let back = steps.each_ref().map(|step| RefMove {
        expected: step.new.map_or(Expected::Absent, Expected::At),
        new: match step.expected {
            Expected::At(id) => Some(id),
            _ => None,
        },
        ..step.clone()
    });
    bare.store_and_move(&newborn().0, &back).expect("moved");
    assert_eq!(stand(), old);
    assert_eq!(fs::read_to_string(path.join("packed-refs")).expect("there"), refs, "it is as it was");
    corner.git(&path, &["fsck", "--strict", "--no-dangling"]);
}

#[test]
fn the_writers_lock_is_exclusive_and_given_up_when_dropped() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let other = Repo::open(repo.path()).expect("opened");
    let lock = repo.lock().expect("locked");
    assert!(matches!(other.try_lock(Duration::from_millis(30)), Err(LockError::Busy { .. })));
    let waiting = std::thread::spawn(move || other.lock().map(drop));
    std::thread::sleep(Duration::from_millis(30));
    drop(lock);
    waiting.join().expect("no panic").expect("locked after the first let go");
    // A child does not inherit it.
    let lock = repo.lock().expect("locked");
    let mut child = corner.command("sleep").arg("5").spawn().expect("spawned");
    drop(lock);
    repo.try_lock(Duration::ZERO).expect("free although the child lives");
    child.kill().and_then(|()| child.wait()).expect("killed");
}

#[test]
fn every_touch_of_a_branch_gives_another_stamp() {
    let corner = Corner::new();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64;
    let repo = corner.repo("r.git");
    let one = commit(&repo, "desired", &[("f", "1")]);
    let two = store(&repo, &tree(&[("f", "2")]), &[], "2");
    let names = ["desired", "status"];
    let look = |now| stamped_branches(repo.path(), names, now).expect("readable");
    assert_eq!(look(now), ([Some(one), None], None), "what was touched just now could be touched again");
    let file = repo.path().join(NAME);
    let git = |args: &[&str]| drop(corner.git(repo.path(), args));
    let in_place = || fs::write(&file, format!("{two}\n")).expect("written");
    let touches: [(&str, &dyn Fn(), _); 6] = [
        ("it moves", &|| set(&repo, "desired", two), [Some(two), None]),
        ("it moves back", &|| set(&repo, "desired", one), [Some(one), None]),
        ("it is overwritten in place", &in_place, [Some(two), None]),
        ("another one comes", &|| git(&["branch", "status", "desired"]), [Some(two), Some(two)]),
        ("both are packed", &|| git(&["pack-refs", "--all"]), [Some(two), Some(two)]),
        ("one goes from the pack", &|| git(&["update-ref", "-d", "refs/heads/status"]), [Some(two), None]),
    ];
    for (what, touch, tips) in touches {
        let (_, before) = look(now + 100);
        assert_eq!(before, Some(BranchStamps::of(repo.path(), names)), "before {what}");
        // Longer than the clock that stamps files stands still.
        std::thread::sleep(Duration::from_millis(20));
        touch();
        let (found, after) = look(now + 100);
        assert_eq!(found, tips, "{what}");
        assert!(after.is_some() && after != before, "{what}");
    }
    git(&["symbolic-ref", "refs/heads/status", "refs/heads/desired"]);
    assert_eq!(look(now + 100), ([Some(two), Some(two)], None), "what a symbolic ref names moves without it");
}

#[test]
fn a_branch_moved_when_its_file_was_written_and_one_without_a_file_before_packed_refs_was() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let one = commit(&repo, "status", &[("f", "1")]);
    let written = |file: &str, second: u64| {
        let file = fs::File::options().write(true).open(repo.path().join(file)).expect("there");
        file.set_modified(UNIX_EPOCH + Duration::from_secs(second)).expect("set");
    };
    let moved = || moved_at(repo.path(), ["status", "heartbeat"]);
    written("refs/heads/status", 1000);
    assert_eq!(moved()[0], Some(1000));
    set(&repo, "heartbeat", one);
    written("refs/heads/heartbeat", 2000);
    assert_eq!(moved(), [Some(1000), Some(2000)]);
    corner.git(repo.path(), &["pack-refs", "--all"]);
    written("packed-refs", 3000);
    assert_eq!(moved(), [Some(3000); 2]);
    // Whatever is written into `packed-refs` later, what lies in it came before what has a file.
    set(&repo, "status", store(&repo, &tree(&[("f", "2")]), &[], "2"));
    written("refs/heads/status", 4000);
    written("packed-refs", 5000);
    assert_eq!(moved(), [Some(4000); 2]);
}

#[test]
fn a_lineage_knows_what_descends_from_what_across_merges() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let file = tree(&[("f", "1")]);
    let first = store(&repo, &file, &[], "first");
    let [left, right] = ["left", "right"].map(|name| store(&repo, &file, &[first], name));
    let merge = store(&repo, &file, &[left, right], "merge");
    let other = store(&repo, &file, &[left], "not behind the tip");
    let lineage = repo.lineage(merge).expect("readable");
    assert_eq!(lineage.descendants(first), [first, left, right, merge].into());
    assert_eq!(lineage.descendants(right), [right, merge].into());
    assert_eq!(lineage.descendants(other), [other].into());
}
