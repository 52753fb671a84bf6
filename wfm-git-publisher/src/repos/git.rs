//! The operator's own `git`, for commits in the fleet repository.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use repo_git::durable;

/// `git` in one work tree.
#[derive(Debug, Clone)]
pub struct StockGit {
    dir: PathBuf,
}

/// `git` can't be run, or failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// `git` can't be started.
    #[error("cannot run `git`")]
    Spawn(#[source] io::Error),
    /// A commit was made and may not survive a power cut.
    #[error("cannot sync the refs")]
    Sync(#[source] io::Error),
    #[error("`git {arguments}` failed ({status}): {tail}")]
    Failed {
        arguments: String,
        status: std::process::ExitStatus,
        /// The end of its standard error.
        tail: String,
    },
}

/// How much of what `git` wrote to standard error is kept, in characters.
const TAIL: usize = 1000;

impl StockGit {
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Runs `git`; what it printed.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<String, GitError> {
        self.run_with(arguments, "")
    }

    /// Has git's helper for credentials do something (`fill`, `approve`, `reject`) with the one that these lines describe; its lines.
    pub(crate) fn credential(&self, what: &str, lines: &str) -> Result<String, GitError> {
        self.run_with(&["credential", what], &format!("{lines}\n"))
    }

    /// Runs `git` with this on its standard input.
    fn run_with<S: AsRef<OsStr>>(&self, arguments: &[S], input: &str) -> Result<String, GitError> {
        let mut command = Command::new("git");
        // By default a power cut soon after a commit leaves empty objects and refs.
        command.args(["--no-optional-locks", "-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync"]);
        command.arg("-C").arg(&self.dir).args(arguments);
        let output = output(command, input).map_err(GitError::Spawn)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stderr = stderr.trim();
        let cut = stderr.char_indices().rev().nth(TAIL).map_or(0, |(index, _)| index);
        let shown: Vec<_> = arguments.iter().map(|argument| argument.as_ref().to_string_lossy()).collect();
        Err(GitError::Failed { arguments: shown.join(" "), status: output.status, tail: stderr[cut..].to_owned() })
    }

    /// Commits these paths and nothing else, whatever else is staged. Without an identity of the operator's a
    /// stand-in is used, so that the first commit works on a new machine.
    pub fn commit(&self, paths: &[&str], message: &str) -> Result<(), GitError> {
        let add = [&["add", "--"], paths].concat();
        self.run(&add)?;
        self.commit_known(paths, message)
    }

    /// Commits a folder and nothing else, with everything that is in it: also what git is told to ignore.
    pub fn commit_whole(&self, folder: &str, message: &str) -> Result<(), GitError> {
        // Line ends that would be others in a new work tree are no reason to refuse a stranger's file.
        self.run(&["-c", "core.safecrlf=false", "add", "--force", "--", folder])?;
        self.commit_known(&[folder], message)
    }

    /// Takes a folder that is committed out of the work tree, and commits that and nothing else. A second time it completes
    /// what was cut off.
    pub fn remove(&self, folder: &str, message: &str) -> Result<(), GitError> {
        self.run(&["rm", "-r", "--quiet", "--ignore-unmatch", "--", folder])?;
        self.commit_known(&[folder], message)
    }

    /// Which of these files git would commit with other bytes than they have in the work tree: by attributes (line ends,
    /// filters, encodings) or by the operator's settings. Their paths have no quotation marks and line breaks.
    pub fn converted<'a>(&self, paths: &[&'a str]) -> Result<Vec<&'a str>, GitError> {
        let list: String = paths.iter().map(|path| format!("{path}\n")).collect();
        let as_committed = self.run_with(&["hash-object", "--stdin-paths"], &list)?;
        let as_it_is = self.run_with(&["hash-object", "--no-filters", "--stdin-paths"], &list)?;
        let both = paths.iter().zip(as_committed.lines().zip(as_it_is.lines()));
        Ok(both.filter(|(_, (committed, own))| committed != own).map(|(path, _)| *path).collect())
    }

    /// Commits what is added of these paths, and what of them is gone.
    fn commit_known(&self, paths: &[&str], message: &str) -> Result<(), GitError> {
        let identity = match self.run(&["var", "GIT_AUTHOR_IDENT"]) {
            Ok(_) => &[][..],
            Err(GitError::Failed { .. }) => &["-c", "user.name=Operator", "-c", "user.email=operator@wfm.invalid"],
            Err(error) => return Err(error),
        };
        let commit = [identity, &["commit", "--quiet", "--message", message, "--"], paths].concat();
        self.run(&commit)?;
        self.sync().map_err(GitError::Sync)
    }

    /// Git syncs objects and refs if it is asked to, but not the index of such a commit, nor the names of all these.
    fn sync(&self) -> io::Result<()> {
        let git_dir = self.dir.join(".git");
        if git_dir.is_dir() {
            durable::sync_file(&git_dir.join("index"))?;
            durable::sync_tree(&git_dir.join("refs"))?;
        }
        Ok(())
    }

    /// Whether a path differs from what is committed.
    pub fn is_dirty(&self, path: &str) -> Result<bool, GitError> {
        Ok(!self.run(&["status", "--porcelain", "--", path])?.is_empty())
    }

    /// Whether anything in a folder isn't committed, also what git is told to ignore.
    pub fn has_uncommitted(&self, folder: &str) -> Result<bool, GitError> {
        Ok(!self.run(&["status", "--porcelain", "--ignored", "--untracked-files=all", "--", folder])?.is_empty())
    }
}

/// What a command printed that gets this as its standard input.
fn output(mut command: Command, input: &str) -> io::Result<Output> {
    if input.is_empty() {
        return command.stdin(Stdio::null()).output();
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    std::thread::scope(|scope| {
        // It may write before it read everything; what it doesn't read, it doesn't want.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
        child.wait_with_output()
    })
}
