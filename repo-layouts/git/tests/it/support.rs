//! A clean corner of the disk, stock Git in it, and commits with fixed people and times.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use repo_git::repo::{Pack, Prepared};
use repo_git::{
    CommitId, CommitSpec, Expected, FetchError, FetchLimits, Person, PushUpdate, RefMove, Repo, SigningKey, TreeSource,
};
use repo_model::FileTree;
use tempfile::TempDir;

/// A directory with its own HOME.
pub(crate) struct Corner {
    dir: TempDir,
}

impl Corner {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("home")).expect("a home");
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn repo(&self, name: &str) -> Repo {
        Repo::create(&self.path(name), "desired").expect("a repository")
    }

    /// A command without the machine's and the user's Git configuration.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.path("home")).env("PATH", std::env::var_os("PATH").expect("PATH"));
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").current_dir(self.dir.path());
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "Test").env(format!("GIT_{role}_EMAIL"), "test@example.com");
            command.env(format!("GIT_{role}_DATE"), "1700000000 +0000");
        }
        command
    }

    pub(crate) fn try_git(&self, repo: &Path, args: &[&str]) -> Output {
        let mut command = self.command("git");
        command.arg("-C").arg(repo).args(args).stdin(Stdio::null());
        command.output().expect("git is installed")
    }

    /// Stock Git's answer; anything but success fails the test.
    pub(crate) fn git(&self, repo: &Path, args: &[&str]) -> String {
        let output = self.try_git(repo, args);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        assert!(output.status.success(), "git {args:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// `git fsck --strict` finds nothing to say.
    pub(crate) fn fsck(&self, repo: &Repo) {
        let output = self.try_git(repo.path(), &["fsck", "--strict", "--full", "--no-dangling"]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        let notices: Vec<&str> = text.lines().filter(|line| !line.starts_with("notice:")).collect();
        assert!(output.status.success() && notices.is_empty(), "fsck: {notices:?}");
    }
}

pub(crate) fn tree(files: &[(&str, &str)]) -> FileTree {
    files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect()
}

pub(crate) fn spec<'a>(files: &'a FileTree, parents: &[CommitId], message: &str) -> CommitSpec<'a> {
    CommitSpec {
        tree: TreeSource::Files(files),
        parents: parents.to_vec(),
        author: Person::new("Ada Operator", "ada@example.com"),
        committer: Person::new("publisher", "publisher@example.com"),
        time: 1_700_000_000,
        message: message.to_owned(),
    }
}

/// Stores one commit without moving a ref.
pub(crate) fn store(repo: &Repo, files: &FileTree, parents: &[CommitId], message: &str) -> CommitId {
    let mut batch = repo.batch();
    let id = batch.commit(&spec(files, parents, message), Some(&key())).expect("a commit");
    batch.store().expect("stored");
    id
}

/// What a repository is made with: a pack with two commits, and the branches that stand there.
pub(crate) fn newborn() -> (Pack, [(&'static str, CommitId); 2]) {
    branches(["1", "2"])
}

/// The next commits of both branches, and the moves that lead there.
pub(crate) fn grown() -> (Pack, [RefMove; 2]) {
    let ((pack, new), (_, old)) = (branches(["3", "4"]), newborn());
    let step = |at: usize| {
        let ((name, new), (_, old)) = (new[at], old[at]);
        RefMove { name: format!("refs/heads/{name}"), expected: Expected::At(old), new: Some(new) }
    };
    (pack, [step(0), step(1)])
}

fn branches(texts: [&str; 2]) -> (Pack, [(&'static str, CommitId); 2]) {
    let mut prepared = Prepared::default();
    let mut make = |text: &str| prepared.commit(&spec(&tree(&[("f", text)]), &[], "m"), None).expect("made");
    let branches = [("bundle", make(texts[0])), ("desired", make(texts[1]))];
    (prepared.pack().expect("packed"), branches)
}

pub(crate) fn set(repo: &Repo, branch: &str, new: CommitId) {
    let name = format!("refs/heads/{branch}");
    repo.move_refs(&[RefMove { name, expected: Expected::Any, new: Some(new) }]).expect("the ref moves");
}

/// One commit on top of a branch.
pub(crate) fn commit(repo: &Repo, branch: &str, files: &[(&str, &str)]) -> CommitId {
    let parents: Vec<CommitId> = repo.tip(branch).expect("readable").into_iter().collect();
    let id = store(repo, &tree(files), &parents, "A change\n\nKind: desired");
    set(repo, branch, id);
    id
}

pub(crate) fn key() -> SigningKey {
    SigningKey::from_seed(&[7; 32])
}

/// A push of one branch from where it is expected to stand.
pub(crate) fn update(branch: &str, expected: Option<CommitId>, new: CommitId, force: bool) -> PushUpdate {
    PushUpdate { branch: branch.to_owned(), expected, new, force }
}

/// The default limits of a fetch, with time for a slow machine.
pub(crate) fn limits() -> FetchLimits {
    FetchLimits { timeout: Duration::from_secs(300), ..FetchLimits::default() }
}

/// The name of what the remote did to a fetch.
pub(crate) fn reason(error: FetchError) -> &'static str {
    match error {
        FetchError::Remote(error) => error.reason(),
        other => panic!("{other:?}"),
    }
}

/// Everything below a directory, to see that nothing was left behind.
pub(crate) fn listing(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(listing(&path));
        }
        found.push(path);
    }
    found.sort();
    found
}
