//! Trees that nobody should have made.

use std::io::Write;
use std::process::Stdio;

use repo_git::{CommitId, EntryKind, Repo, TreeError, TreeLimits};

use crate::support::{Corner, commit, set};

/// A commit of a tree that stock Git is told to make without asking questions.
fn odd(corner: &Corner, repo: &Repo, entries: &[u8]) -> CommitId {
    let mut make = corner.command("git");
    make.arg("-C").arg(repo.path()).args(["hash-object", "-t", "tree", "-w", "--stdin", "--literally"]);
    let mut child = make.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("git");
    child.stdin.take().expect("a pipe").write_all(entries).expect("written");
    let output = child.wait_with_output().expect("done");
    let tree = String::from_utf8(output.stdout).expect("an id");
    corner.git(repo.path(), &["commit-tree", "-m", "odd", tree.trim()]).parse().expect("an id")
}

fn entry(mode: &str, name: &[u8], id: &str) -> Vec<u8> {
    let id: Vec<u8> = (0..20).map(|n| u8::from_str_radix(&id[2 * n..2 * n + 2], 16).expect("hex")).collect();
    [mode.as_bytes(), b" ", name, b"\0", &id].concat()
}

#[test]
fn anything_but_plain_files_with_safe_names_is_named_and_refused() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    commit(&repo, "desired", &[("x", "content")]);
    let blob = corner.git(repo.path(), &["rev-parse", "desired:x"]);
    let tree = corner.git(repo.path(), &["rev-parse", "desired^{tree}"]);
    let files = |bytes: &[u8]| repo.files(odd(&corner, &repo, bytes), &TreeLimits::default());

    let cases: [(Vec<u8>, &str); 9] = [
        (entry("120000", b"link", &blob), "`link` is a symbolic link"),
        (entry("160000", b"module", &blob), "`module` is a submodule"),
        (entry("100755", b"run", &blob), "`run` is a executable"),
        (entry("100644", b"..", &blob), "`..` is not an allowed path"),
        (entry("100644", b".git", &blob), "`.git` is not"),
        (entry("40000", b".GIT", &tree), "`.GIT/x` is not"),
        (entry("100644", b"a/b", &blob), "`a/b` is not"),
        (entry("100644", b"\xff\xfe", &blob), "is not an allowed path"),
        (
            [entry("100644", b"x", &blob), entry("40000", b"x", &tree)].concat(),
            "`x/x` is not an allowed path, or is there twice",
        ),
    ];
    for (bytes, words) in cases {
        let error = files(&bytes).expect_err(words).to_string();
        assert!(error.contains(words), "{error} / {words}");
    }
    let run = odd(&corner, &repo, &entry("100755", b"run", &blob));
    assert!(repo.files(run, &TreeLimits { strict: false, ..TreeLimits::default() }).is_ok());
}

#[test]
fn a_listing_keeps_the_odd_entries_apart() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    commit(&repo, "desired", &[("x", "content")]);
    let blob = corner.git(repo.path(), &["rev-parse", "desired:x"]);
    let bytes = [entry("100644", b"a", &blob), entry("120000", b"b", &blob), entry("100644", b"c\xff", &blob)].concat();
    let list = repo.list(odd(&corner, &repo, &bytes), &TreeLimits::default()).expect("listed");
    let seen: Vec<_> = list.iter().map(|e| (e.path.as_str(), e.kind, e.odd_name)).collect();
    assert_eq!(
        seen,
        [("a", EntryKind::File, false), ("b", EntryKind::Symlink, false), ("c\u{fffd}", EntryKind::File, true)]
    );
    assert_eq!(repo.blob(list[0].blob, 100).expect("read"), b"content");
    assert!(repo.blob(list[0].blob, 6).is_err());
}

#[test]
fn a_tree_over_a_limit_is_refused() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let id = commit(&repo, "desired", &[("a/b/c", "12345"), ("d", "67890")]);
    let fits = TreeLimits { files: 4, bytes: 10, depth: 2, strict: true };
    assert_eq!(repo.files(id, &fits).expect("fits").len(), 2);
    for limits in [TreeLimits { files: 3, ..fits }, TreeLimits { bytes: 9, ..fits }, TreeLimits { depth: 1, ..fits }] {
        assert!(matches!(repo.files(id, &limits), Err(TreeError::TooMuch { .. })), "{limits:?}");
    }
}

#[test]
fn a_name_of_megabytes_that_is_met_a_thousand_times_takes_no_memory() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    commit(&repo, "desired", &[("x", "content")]);
    let blob = corner.git(repo.path(), &["rev-parse", "desired:x"]);
    let long = odd(&corner, &repo, &entry("100644", &[b'n'; 4 << 20], &blob));
    let long = corner.git(repo.path(), &["rev-parse", &format!("{long}^{{tree}}")]);
    let many = (0..1000).map(|n| entry("40000", format!("{n:04}").as_bytes(), &long)).collect::<Vec<_>>().concat();
    let error = repo.list(odd(&corner, &repo, &many), &TreeLimits::default()).expect_err("too long").to_string();
    assert_eq!(error, "the tree has more than the 4096 bytes in a path allowed (at `0000`)");
}

#[test]
fn trees_that_name_each_other_many_times_end_at_the_limit_of_files() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    commit(&repo, "desired", &[("x", "content")]);
    let mut tree = corner.git(repo.path(), &["rev-parse", "desired^{tree}"]);
    let mut last = None;
    for _ in 0..12 {
        let ten = (0..10).map(|n| entry("40000", n.to_string().as_bytes(), &tree)).collect::<Vec<_>>().concat();
        let id = odd(&corner, &repo, &ten);
        tree = corner.git(repo.path(), &["rev-parse", &format!("{id}^{{tree}}")]);
        last = Some(id);
    }
    let bomb = last.expect("made");
    assert!(matches!(repo.files(bomb, &TreeLimits::default()), Err(TreeError::TooMuch { .. })));
    // Also where a crash is cleared away, which looks at everything that a ref names.
    set(&repo, "status", bomb);
    let lock = repo.lock().expect("locked");
    let damaged = repo.recover(&lock).expect("recovered").damaged;
    assert_eq!(damaged.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["refs/heads/status"]);
}

#[test]
fn a_missing_object_is_told_from_a_damaged_one() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let missing = odd(&corner, &repo, &entry("100644", b"gone", &"1".repeat(40)));
    let error = repo.files(missing, &TreeLimits::default()).expect_err("missing");
    assert!(matches!(&error, TreeError::Missing { path, .. } if path == "gone"), "{error:?}");
}

#[test]
fn what_differs_between_two_commits_is_what_stock_git_says() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let before = commit(&repo, "desired", &[("a/b/c", "1"), ("a/b/d", "1"), ("a/x", "1"), ("same/f", "1"), ("z", "1")]);
    let after = commit(
        &repo,
        "desired",
        &[("a/b/c", "2"), ("a/b/e/f", "1"), ("a/b/d", "1"), ("a/x/y", "1"), ("same/f", "1"), ("z", "1")],
    );
    let limits = TreeLimits::default();
    let names = |old, new| -> Vec<String> {
        let changes = repo.changes(old, new, &limits).expect("compared");
        changes.into_keys().map(|path| String::from_utf8(path).expect("text")).collect()
    };
    let witness =
        corner.git(repo.path(), &["diff", "--no-renames", "--name-only", &before.to_string(), &after.to_string()]);
    assert_eq!(names(Some(before), after), witness.lines().collect::<Vec<_>>());
    assert_eq!(names(Some(before), after), ["a/b/c", "a/b/e/f", "a/x", "a/x/y"]);
    assert_eq!(names(Some(before), before), Vec::<String>::new());
    assert_eq!(names(None, before), ["a/b/c", "a/b/d", "a/x", "same/f", "z"]);
    // A mode is a change, a link has no blob, and two names that look alike are two.
    let blob = corner.git(repo.path(), &["rev-parse", "desired:z"]);
    let plain = odd(&corner, &repo, &[entry("100644", b"run", &blob), entry("100644", b"\xff", &blob)].concat());
    let other = odd(&corner, &repo, &[entry("120000", b"run", &blob), entry("100644", b"\xfe", &blob)].concat());
    let changes = repo.changes(Some(plain), other, &limits).expect("compared");
    assert_eq!(changes.keys().map(Vec::as_slice).collect::<Vec<_>>(), [&b"run"[..], b"\xfe", b"\xff"]);
    let run = changes[&b"run"[..]];
    assert_eq!(
        (run.old.map(|held| held.blob().is_some()), run.new.map(|held| held.blob().is_some())),
        (Some(true), Some(false))
    );
    // A name that is there twice could hide one of them; and what is too much isn't compared.
    let twice = odd(&corner, &repo, &[entry("100644", b"z", &blob), entry("100755", b"z", &blob)].concat());
    assert!(matches!(repo.changes(Some(before), twice, &limits), Err(TreeError::BadName { .. })));
    for small in [TreeLimits { files: 2, ..limits }, TreeLimits { depth: 1, ..limits }] {
        assert!(matches!(repo.changes(Some(before), after, &small), Err(TreeError::TooMuch { .. })));
    }
}

#[test]
fn what_is_upon_a_tree_leaves_everything_else_as_it_is() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    commit(&repo, "desired", &[("a.txt", "a"), ("devices/press.yaml", "press"), ("z", "z")]);
    let blob = corner.git(repo.path(), &["rev-parse", "desired:z"]);
    let below = corner.git(repo.path(), &["rev-parse", "desired:devices"]);
    let head = corner.git(repo.path(), &["rev-parse", "desired"]);
    let entries = [
        entry("40000", b"devices", &below),
        entry("160000", b"module", &head),
        entry("120000", b"link", &blob),
        entry("100755", b"run", &blob),
        entry("100644", b"z", &blob),
    ];
    let base = repo.commit(odd(&corner, &repo, &sorted(entries).concat())).expect("a commit").tree;
    let files = [("devices/enrolled/graz-1.yaml", "one"), ("devices/enrolled/graz-2.yaml", "two"), ("z", "other")];
    let files = files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).into();
    let mut batch = repo.batch();
    let tree = batch.tree_upon(base, &files).expect("a tree");
    batch.store().expect("stored");
    let listed = corner.git(repo.path(), &["ls-tree", "-r", &tree.to_string()]);
    let modes: Vec<_> = listed.lines().map(|line| (line[..6].to_owned(), line.split_once('\t').unwrap().1)).collect();
    let expected = [
        ("100644", "devices/enrolled/graz-1.yaml"),
        ("100644", "devices/enrolled/graz-2.yaml"),
        ("100644", "devices/press.yaml"),
        ("120000", "link"),
        ("160000", "module"),
        ("100755", "run"),
        ("100644", "z"),
    ];
    assert_eq!(modes, expected.map(|(mode, path)| (mode.to_owned(), path)));
    assert_eq!(corner.git(repo.path(), &["cat-file", "-p", &format!("{tree}:z")]), "other");
    corner.git(repo.path(), &["fsck", "--strict", "--no-dangling"]);
    let bad = [("devices/../x".to_owned(), Vec::new())].into();
    assert!(repo.batch().tree_upon(base, &bad).is_err());
}

/// Entries as Git wants them, by their names.
fn sorted<const N: usize>(mut entries: [Vec<u8>; N]) -> [Vec<u8>; N] {
    entries.sort_by_key(|entry| entry.iter().skip_while(|byte| **byte != b' ').copied().collect::<Vec<_>>());
    entries
}
