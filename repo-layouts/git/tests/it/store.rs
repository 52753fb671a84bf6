//! Commits and packs as stock Git and libgit2 read them.

use repo_git::repo::Bare;
use repo_git::{BatchError, OpenError, Person, Repo, TreeLimits, TreeSource};

use crate::support::{Corner, commit, key, newborn, set, spec, store, tree};

#[test]
fn stock_git_and_libgit2_read_what_was_written() {
    let corner = Corner::new();
    let repo = corner.repo("device.git");
    let files =
        tree(&[("envelope.json", "{}\n"), ("a/b/c", "deep"), ("a-b", "x"), ("a.b", "y"), ("a0", "z"), ("ü", "ß")]);
    let first = store(&repo, &files, &[], "Subject\n\nKind: desired\n");
    set(&repo, "desired", first);
    let second = commit(&repo, "desired", &[("envelope.json", "{\"serial\": 2}\n")]);
    corner.fsck(&repo);

    assert_eq!(corner.git(repo.path(), &["rev-parse", "HEAD"]), second.to_string());
    assert_eq!(corner.git(repo.path(), &["show", "HEAD~1:a/b/c"]), "deep");
    assert_eq!(
        corner.git(repo.path(), &["log", "-1", "--format=%an %ae %at %cn %B", "HEAD~1"]),
        "Ada Operator ada@example.com 1700000000 publisher Subject\n\nKind: desired"
    );
    corner.git(&corner.path(""), &["clone", "-q", "device.git", "clone"]);
    assert_eq!(std::fs::read_to_string(corner.path("clone/envelope.json")).expect("checked out"), "{\"serial\": 2}\n");

    let other = git2::Repository::open_bare(repo.path()).expect("libgit2 opens it");
    let seen = other.find_commit(first.to_string().parse().expect("an id")).expect("libgit2 finds it");
    let mut names = Vec::new();
    let walk = |dir: &str, entry: &git2::TreeEntry<'_>| {
        if entry.kind() == Some(git2::ObjectType::Blob) {
            names.push(format!("{dir}{}", entry.name().expect("UTF-8")));
        }
        git2::TreeWalkResult::Ok
    };
    seen.tree().expect("a tree").walk(git2::TreeWalkMode::PreOrder, walk).expect("walked");
    names.sort();
    assert_eq!(names, files.keys().cloned().collect::<Vec<_>>());
    assert_eq!(repo.files(first, &TreeLimits::default()).expect("read back"), files);
}

#[test]
fn a_commit_reads_back_as_it_was_made() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let parent = commit(&repo, "desired", &[("f", "1")]);
    let id = store(&repo, &tree(&[("f", "2")]), &[parent], "Subject\n\nBody\n\nKind: desired");
    let read = repo.commit(id).expect("a commit");
    assert_eq!(
        (read.parents.as_slice(), read.message.as_str()),
        ([parent].as_slice(), "Subject\n\nBody\n\nKind: desired\n")
    );
    assert_eq!((&read.author, read.author_time), (&Person::new("Ada Operator", "ada@example.com"), 1_700_000_000));
    assert_eq!(read.signer().expect("signed"), key().public());
}

#[test]
fn one_batch_is_one_pack_and_nothing_new_is_no_pack() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let files = tree(&[("f", "1")]);
    for expected in [1, 1] {
        let repo = Repo::open(repo.path()).expect("a handle that has read nothing yet");
        let mut batch = repo.batch();
        let first = batch.commit(&spec(&files, &[], "one"), None).expect("made");
        let same = TreeSource::Existing(batch.tree(&files).expect("a tree"));
        let second = repo_git::CommitSpec { tree: same, ..spec(&files, &[first], "two") };
        batch.commit(&second, None).expect("made");
        batch.commit(&spec(&tree(&[]), &[], "empty"), None).expect("made");
        batch.store().expect("stored");
        assert_eq!(repo.pack_count(), expected);
    }
    let objects = corner.git(repo.path(), &["cat-file", "--batch-all-objects", "--batch-check"]);
    assert_eq!(objects.lines().count(), 6, "{objects}");
    corner.fsck(&repo);
}

#[test]
fn what_would_break_a_commit_or_a_tree_is_refused() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    let files = tree(&[("f", "1")]);
    let mut batch = repo.batch();
    for person in [Person::new("a<b", "x"), Person::new("", "x"), Person::new("a\nb", "x"), Person::new("a", " x")] {
        let bad = repo_git::CommitSpec { author: person, ..spec(&files, &[], "m") };
        assert!(matches!(batch.commit(&bad, None), Err(BatchError::Person { .. })));
    }
    assert!(matches!(batch.commit(&spec(&files, &[], "nul\0"), None), Err(BatchError::Message)));
    for path in ["", "/a", "a/", "a//b", "../a", "a/./b", ".git/config", "a/.GIT/x", "git~1"] {
        let bad = tree(&[(path, "x")]);
        assert!(matches!(batch.tree(&bad), Err(BatchError::Path { .. })), "{path:?}");
    }
    assert!(matches!(batch.tree(&tree(&[("a", "x"), ("a/b", "y")])), Err(BatchError::Path { .. })));
}

#[test]
fn a_repository_is_made_once_and_completed_when_half_made() {
    let corner = Corner::new();
    let path = corner.path("r.git");
    std::fs::create_dir_all(path.join("objects")).expect("half of it");
    let repo = Repo::create(&path, "control").expect("completed");
    let id = commit(&repo, "control", &[("f", "1")]);
    let again = Repo::create(&path, "other").expect("opened");
    assert_eq!(again.resolve("HEAD").expect("readable"), Some(id));
    assert_eq!(std::fs::read_dir(&path).expect("listed").count(), 4, "HEAD config objects refs");
    corner.git(&path, &["config", "core.fsync"]);
}

#[test]
fn a_repository_is_made_with_what_it_holds_and_nothing_that_is_there_is_touched() {
    let corner = Corner::new();
    let (pack, branches) = newborn();
    let path = corner.path("r.git");
    assert!(Bare::create_with(&path, "desired", &pack, &branches).expect("made"));
    corner.git(&path, &["fsck", "--strict", "--no-dangling"]);
    for (name, id) in branches {
        assert_eq!(corner.git(&path, &["rev-parse", &format!("refs/heads/{name}")]), id.to_string());
    }
    assert_eq!(corner.git(&path, &["show", "HEAD:f"]), "2");
    assert!(!Bare::create_with(&path, "other", &pack, &[]).expect("nothing is done"));
    assert_eq!(corner.git(&path, &["symbolic-ref", "HEAD"]), "refs/heads/desired");
    assert_eq!(std::fs::read_dir(corner.path("")).expect("listed").count(), 2, "`home` and `r.git`");
}

#[test]
fn other_kinds_of_repositories_are_refused_by_name() {
    let corner = Corner::new();
    corner.git(&corner.path(""), &["init", "-q", "--bare", "--object-format=sha256", "sha256.git"]);
    corner.git(&corner.path(""), &["init", "-q", "work"]);
    let reftable = corner.repo("reftable.git");
    corner.git(reftable.path(), &["config", "core.repositoryformatversion", "1"]);
    corner.git(reftable.path(), &["config", "extensions.refStorage", "reftable"]);
    for (name, words) in [("sha256.git", "SHA-1"), ("work/.git", "work tree"), ("reftable.git", "refs in another")] {
        match Repo::open(&corner.path(name)) {
            Err(error @ OpenError::Unsupported { .. }) => assert!(error.to_string().contains(words), "{error}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(matches!(Repo::open(&corner.path("home")), Err(OpenError::NotARepository { .. })));
}

#[test]
fn an_operators_repository_is_found_from_inside() {
    let corner = Corner::new();
    let work = corner.path("fleet");
    corner.git(&corner.path(""), &["init", "-q", "-b", "main", "fleet"]);
    std::fs::create_dir_all(work.join("devices/a")).expect("made");
    let repo = Repo::discover(&work.join("devices/a")).expect("found");
    assert_eq!(repo.resolve("HEAD").expect("readable"), None);
    std::fs::write(work.join("devices/a/x.yaml"), "id: x\n").expect("written");
    corner.git(&work, &["add", "."]);
    corner.git(&work, &["commit", "-q", "-m", "one"]);
    corner.git(&work, &["tag", "-a", "v1", "-m", "tagged"]);
    let id = repo.resolve("HEAD").expect("readable").expect("a commit");
    for rev in ["main", "v1", "refs/tags/v1", &id.to_string()] {
        assert_eq!(repo.resolve(rev).expect("readable"), Some(id), "{rev}");
    }
    assert_eq!(repo.resolve("nothing").expect("readable"), None);
    assert_eq!(repo.resolve(&"1".repeat(40)).expect("readable"), None);
    assert!(repo.resolve("a..b").is_err());
    corner.git(&work, &["worktree", "add", "-q", "../linked", "-b", "side"]);
    let linked = Repo::discover(&corner.path("linked/devices")).expect("found");
    assert_eq!(linked.resolve("HEAD").expect("readable"), Some(id));
}

#[test]
fn handles_can_go_to_other_threads() {
    fn is_send<T: Send>() {}
    is_send::<Repo>();
    is_send::<repo_git::RepoLock>();
    is_send::<repo_git::Remote>();
}
