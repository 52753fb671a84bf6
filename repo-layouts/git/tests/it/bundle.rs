//! Bundles: ours as stock Git reads them, and stock Git's as we do.

use repo_git::repo::Scratch;
use repo_git::{BundleError, CommitId, FetchLimits, Repo};

use crate::support::{Corner, commit};

const NAME: &str = "refs/heads/status-1";

/// A repository with a line of commits.
fn line(corner: &Corner) -> (Repo, CommitId) {
    let repo = corner.repo("r.git");
    let text: String = (0..200).map(|n| format!("{n}\n")).collect();
    (0..9).for_each(|n| _ = commit(&repo, "status-1", &[("f", &format!("{n}\n{text}")), ("same", "x")]));
    let tip = repo.tip("status-1").expect("readable").expect("there");
    (repo, tip)
}

/// Reads a bundle into an empty repository; how many commits it has.
fn read(corner: &Corner, file: &str) -> Result<(CommitId, usize), BundleError> {
    let scratch = Scratch::within(&corner.path("")).expect("a repository");
    let tip = scratch.repo().fetch_bundle(&corner.path(file), NAME, &FetchLimits::default())?;
    assert!(scratch.repo().damage_below([tip]).is_none());
    Ok((tip, scratch.repo().history(tip, None, 100)?.len()))
}

#[test]
fn stock_git_reads_ours_and_the_same_commit_gives_the_same_bytes() {
    let corner = Corner::new();
    let (repo, tip) = line(&corner);
    for file in ["one", "two"] {
        repo.write_bundle(&corner.path(file), NAME, tip).expect("written");
    }
    let bytes = |file: &str| std::fs::read(corner.path(file)).expect("there");
    assert_eq!(bytes("one"), bytes("two"));
    let file = corner.path("one").display().to_string();
    corner.git(corner.repo("empty.git").path(), &["bundle", "verify", &file]);
    corner.git(&corner.path(""), &["clone", "--quiet", "--bare", &file, "cloned.git"]);
    assert_eq!(corner.git(&corner.path("cloned.git"), &["rev-list", "--count", NAME]), "9");
    corner.fsck(&Repo::open(&corner.path("cloned.git")).expect("opened"));
    assert_eq!(read(&corner, "one").expect("read"), (tip, 9));
}

#[test]
fn stock_gits_is_read_with_its_deltas_and_nothing_that_is_not_whole() {
    let corner = Corner::new();
    let (repo, tip) = line(&corner);
    corner.git(repo.path(), &["repack", "-adq"]);
    let bundle = |file: &str, what: &[&str]| {
        let file = corner.path(file).display().to_string();
        corner.git(repo.path(), &[&["bundle", "create", "--quiet", &file], what].concat());
    };
    bundle("whole", &[NAME]);
    assert_eq!(read(&corner, "whole").expect("read"), (tip, 9));
    bundle("thin", &["status-1~2..status-1"]);
    let error = read(&corner, "thin").expect_err("thin").to_string();
    assert!(error.contains("it needs commits that aren't in it"), "{error}");
    let whole = std::fs::read(corner.path("whole")).expect("there");
    for (name, length) in [("head", 30), ("half", whole.len() / 2), ("end", whole.len() - 1)] {
        std::fs::write(corner.path(name), &whole[..length]).expect("written");
        assert!(read(&corner, name).is_err(), "{name}");
    }
    // What only a deleted ref reached goes, although there is one pack.
    corner.git(repo.path(), &["update-ref", "-d", NAME]);
    let repo = Repo::open(repo.path()).expect("opened");
    let lock = repo.lock().expect("locked");
    assert!(!repo.consolidate(&lock, 5).expect("nothing to do") && repo.commit(tip).is_ok());
    repo.reclaim(&lock).expect("reclaimed");
    assert!(Repo::open(repo.path()).expect("opened").commit(tip).is_err());
}
