//! What an unclean stop leaves behind, and what it may have damaged.

use std::path::Path;
use std::time::{Duration, SystemTime};

use repo_git::{Expected, RefMove, Repo};

use crate::support::{Corner, commit, listing, store, tree};

fn age(path: &Path, seconds: u64) {
    let file = std::fs::File::options().write(true).open(path).expect("opened");
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).expect("aged");
}

fn write(repo: &Repo, name: &str) -> std::path::PathBuf {
    let path = repo.path().join(name);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    std::fs::write(&path, "x").expect("written");
    path
}

#[test]
fn leftovers_go_and_what_may_be_alive_stays() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    commit(&repo, "desired", &[("f", "1")]);
    let before = listing(repo.path());
    for name in [".tmp-1-2", ".tmp-3-4/pack-x.pack", "objects/pack/.tmp-5-6"] {
        write(&repo, name);
    }
    // A lock of ours: a second name of a temporary file.
    std::fs::hard_link(repo.path().join(".tmp-1-2"), repo.path().join("refs/heads/desired.lock")).expect("linked");
    for name in ["refs/heads/old.lock", "packed-refs.lock", "objects/pack/tmp_pack_1", "objects/pack/pack-1.pack"] {
        age(&write(&repo, name), 100_000);
    }
    let alive = write(&repo, "refs/heads/alive.lock");
    let lock = repo.lock().expect("locked");
    let recovery = repo.recover(&lock).expect("recovered");
    assert_eq!(recovery.removed.len(), 8, "{:?}", recovery.removed);
    assert!(recovery.damaged.is_empty());
    assert!(alive.exists());
    std::fs::remove_file(alive).expect("removed");
    let mut after = listing(repo.path());
    after.retain(|path| !path.ends_with("writer.lock"));
    assert_eq!(after, before);
    assert!(repo.recover(&lock).expect("recovered").removed.is_empty());
}

#[test]
fn what_a_git_leaves_that_was_killed_under_the_lock_goes_at_once() {
    use std::os::unix::process::CommandExt;
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    commit(&repo, "desired", &[("f", "1")]);
    let before = write(&repo, "refs/heads/before.lock");
    age(&before, 60);
    let lock = repo.lock().expect("locked");
    let mut git = std::process::Command::new("sleep").arg("60").process_group(0).spawn().expect("it runs");
    lock.note_writer(git.id()).expect("noted");
    let left = ["refs/heads/status.lock", "packed-refs.lock", "objects/incoming-x/pack/tmp_pack_1"];
    left.iter().for_each(|name| drop(write(&repo, name)));
    assert!(repo.recover(&lock).expect("recovered").removed.is_empty(), "it is alive");
    git.kill().and_then(|()| git.wait()).expect("ended");
    let removed = repo.recover(&lock).expect("recovered").removed;
    assert!(left.iter().all(|name| !repo.path().join(name).exists()), "{removed:?}");
    assert!(before.exists(), "what was there before it isn't its own");
    // One that ended by itself left nothing: what is there is somebody else's.
    lock.note_writer(git.id()).and_then(|()| lock.forget_writer()).expect("noted");
    let other = write(&repo, "refs/heads/other.lock");
    assert!(repo.recover(&lock).expect("recovered").removed.is_empty() && other.exists());
}

#[test]
fn damage_is_found_and_named_by_ref() {
    let corner = Corner::new();
    for (what, damage) in [
        ("zero-length ref", (|repo: &Repo| truncate(&repo.path().join("refs/heads/desired"), 0)) as fn(&Repo)),
        ("truncated pack", |repo| truncate(&only_pack(repo), 40)),
        ("zero-length pack", |repo| truncate(&only_pack(repo), 0)),
        ("zero-tailed pack", |repo| zero_tail(&only_pack(repo))),
        ("missing pack", |repo| std::fs::remove_file(only_pack(repo)).expect("removed")),
    ] {
        let repo = corner.repo(&format!("{}.git", what.replace(' ', "-")));
        commit(&repo, "desired", &[("f", &"content ".repeat(100)), ("g", "more")]);
        damage(&repo);
        let repo = Repo::open(repo.path()).expect("still opens");
        let lock = repo.lock().expect("locked");
        let damaged = repo.recover(&lock).expect("recovered").damaged;
        assert_eq!(damaged.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["refs/heads/desired"], "{what}");
    }
}

#[test]
fn a_damaged_ref_can_be_put_right() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let good = commit(&repo, "desired", &[("f", "1")]);
    truncate(&repo.path().join("refs/heads/desired"), 0);
    assert!(repo.tip("desired").is_err());
    let step = |expected| [RefMove { name: "refs/heads/desired".to_owned(), expected, new: Some(good) }];
    assert!(repo.move_refs(&step(Expected::At(good))).is_err());
    repo.move_refs(&step(Expected::Any)).expect("moved");
    assert_eq!(repo.tip("desired").expect("readable"), Some(good));
}

#[test]
fn writing_the_same_again_heals_an_empty_loose_object() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let files = tree(&[("f", "healed")]);
    let blob = {
        std::fs::write(corner.path("f"), "healed").expect("written");
        corner.git(repo.path(), &["hash-object", "-w", &corner.path("f").display().to_string()])
    };
    let loose = repo.path().join("objects").join(&blob[..2]).join(&blob[2..]);
    std::fs::remove_file(&loose).expect("removed");
    std::fs::write(&loose, "").expect("emptied");
    let repo = Repo::open(repo.path()).expect("opened");
    let id = store(&repo, &files, &[], "m");
    assert_eq!(Repo::open(repo.path()).expect("opened").files(id, &Default::default()).expect("whole"), files);
}

fn only_pack(repo: &Repo) -> std::path::PathBuf {
    let packs = listing(&repo.path().join("objects/pack"));
    let pack = packs.into_iter().find(|path| path.extension().is_some_and(|e| e == "pack")).expect("a pack");
    let mut permissions = std::fs::metadata(&pack).expect("there").permissions();
    #[allow(clippy::permissions_set_readonly_false, reason = "a file of this test")]
    permissions.set_readonly(false);
    std::fs::set_permissions(&pack, permissions).expect("writable");
    pack
}

fn truncate(path: &Path, length: u64) {
    std::fs::File::options().write(true).open(path).and_then(|file| file.set_len(length)).expect("truncated");
}

fn zero_tail(path: &Path) {
    let length = std::fs::metadata(path).expect("there").len();
    truncate(path, length / 2);
    truncate(path, length);
}
