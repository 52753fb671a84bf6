//! Damaged repositories, made anew from what of them can be read.

use std::path::Path;

use repo_git::repo::{RenewError, set_aside};
use repo_git::{Ancestry, CommitId, Expected, RefMove, Repo};

use crate::support::{Corner, commit, listing};

/// Turns a bit in the middle of an object.
fn damage(corner: &Corner, repo: &Repo, rev: &str) {
    let id = corner.git(repo.path(), &["rev-parse", rev]);
    for pack in listing(&repo.path().join("objects/pack")).iter().filter(|p| p.extension().is_some_and(|e| e == "pack"))
    {
        let said = corner.git(repo.path(), &["verify-pack", "-v", &pack.display().to_string()]);
        let Some(line) = said.lines().find(|line| line.starts_with(id.trim())) else { continue };
        let words: Vec<usize> = line.split_whitespace().skip(2).filter_map(|word| word.parse().ok()).collect();
        let mut bytes = std::fs::read(pack).expect("read");
        bytes[words[2] + words[1] / 2] ^= 0x10;
        let temp = pack.with_extension("new");
        std::fs::write(&temp, bytes).expect("written");
        std::fs::rename(temp, pack).expect("moved");
        return;
    }
    panic!("{rev} is in no pack");
}

/// Makes it anew with the branch as far back as it can be read; where it stood, and where it stands.
fn renew(path: &Path) -> (CommitId, Option<CommitId>) {
    let old = Repo::open(path).expect("opened");
    let tip = old.tip("desired").expect("readable").expect("there");
    let newest = Repo::renew(path, "desired", |new| -> Result<_, RenewError> {
        let newest = old.copy_readable(new, [tip])?.get(&tip).copied();
        let name = "refs/heads/desired".to_owned();
        new.move_refs(&[RefMove { name, expected: Expected::Absent, new: newest }]).expect("moved");
        Ok(newest)
    });
    (tip, newest.expect("made anew"))
}

#[test]
fn history_ends_before_what_can_not_be_read_and_the_rest_comes_along() {
    let corner = Corner::new();
    for (what, kept, is_tip) in
        [("desired~2", 2, true), ("desired~2^{tree}", 2, true), ("desired~2:f", 2, true), ("desired:f", 4, false)]
    {
        let repo = corner.repo(&format!("{}.git", what.replace(['~', ':', '^', '{', '}'], "-")));
        let all =
            (0..5).map(|n| commit(&repo, "desired", &[("f", &format!("the text of commit {n}")), ("d/same", "x")]));
        let all: Vec<_> = all.collect();
        assert!(repo.damage_below(all.last().copied()).is_none());
        damage(&corner, &repo, what);
        let repo = Repo::open(repo.path()).expect("opened");
        assert!(repo.damage_below(all.last().copied()).is_some_and(|error| error.is_damage()), "{what}");
        assert!(repo.damage().is_some(), "{what}");
        let (tip, newest) = renew(repo.path());
        assert_eq!(newest.is_some_and(|newest| newest == tip), is_tip, "{what}");
        let new = Repo::open(repo.path()).expect("opened");
        corner.fsck(&new);
        let newest = newest.expect("some of it is whole");
        assert_eq!(new.history(newest, None, 10).expect("readable").len(), kept, "{what}");
        assert!(new.damage_below([newest]).is_none() && new.damage().is_none(), "{what}");
        let expected = if is_tip { Ancestry::Unknown } else { Ancestry::Yes };
        assert_eq!(new.is_ancestor(all[0], newest).expect("readable"), expected, "{what}");
        assert!(set_aside(repo.path()).join("HEAD").exists(), "{what}");
    }
}

#[test]
fn a_renewal_that_was_cut_off_between_two_names_is_completed() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let tip = commit(&repo, "desired", &[("f", "1")]);
    let path = repo.path().to_owned();
    std::fs::rename(&path, path.with_extension("new")).expect("moved");
    Repo::finish_renewal(&path).expect("completed");
    assert_eq!(Repo::open(&path).expect("opened").tip("desired").expect("readable"), Some(tip));
    // One that was cut off before means nothing.
    std::fs::create_dir(path.with_extension("new")).expect("made");
    Repo::finish_renewal(&path).expect("nothing to do");
    assert_eq!(renew(&path), (tip, Some(tip)));
    assert!(!path.with_extension("new").exists());
}

#[test]
fn what_every_repository_has_is_written_anew_and_nothing_else() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let tip = commit(&repo, "desired", &[("f", "1")]);
    let path = repo.path().to_owned();
    for (file, text) in [("HEAD", ""), ("HEAD", "ref: refs/heads/desired"), ("config", ""), ("config", "[core")] {
        std::fs::write(path.join(file), text).expect("written");
        Repo::put_right(&path, "desired").expect("put right");
        assert_eq!(Repo::open(&path).expect("opened").tip("desired").expect("readable"), Some(tip), "{file} {text}");
        corner.fsck(&repo);
    }
    let file = path.join("refs/heads/desired");
    std::fs::write(&file, format!("{tip}\u{1a}")).expect("written");
    Repo::put_right(&path, "desired").expect("put right");
    assert_eq!(std::fs::read_to_string(&file).expect("read"), format!("{tip}\n"));
    let own = "[core]\n\tbare = true\n\trepositoryformatversion = 0\n[uploadpack]\n\thideRefs = refs/x\n";
    std::fs::write(path.join("config"), own).expect("written");
    std::fs::remove_file(path.join("HEAD")).expect("removed");
    Repo::put_right(&path, "desired").expect("put right");
    assert_eq!(std::fs::read_to_string(path.join("config")).expect("read"), own, "the administrator's word stays");
    let nowhere = corner.path("nowhere.git");
    Repo::put_right(&nowhere, "desired").expect("nothing to do");
    assert!(!nowhere.exists());
}
