//! The operator's own `git`, for commits in the fleet repository.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
        let mut command = Command::new("git");
        // By default a power cut soon after a commit leaves empty objects and refs.
        command.args(["--no-optional-locks", "-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync"]);
        command.arg("-C").arg(&self.dir).args(arguments).stdin(Stdio::null());
        let output = command.output().map_err(GitError::Spawn)?;
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
}
