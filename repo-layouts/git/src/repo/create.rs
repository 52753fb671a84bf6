//! Making a minimal bare repository: seven inodes, and a configuration that keeps stock Git from harming it.

use std::io;
use std::path::Path;

use super::{OpenError, Repo};
use crate::durable;

/// Stock Git syncs what it writes here, keeps pushes as packs, checks them, and never tidies up on its own.
const CONFIG: &[u8] = b"\
[core]
\trepositoryformatversion = 0
\tbare = true
\tfsync = all
\tfsyncMethod = fsync
[gc]
\tauto = 0
[maintenance]
\tauto = false
[receive]
\tautogc = false
\tunpackLimit = 1
[transfer]
\tfsckObjects = true
\tunpackLimit = 1
";

impl Repo {
    /// Makes a bare repository whose `HEAD` is `refs/heads/<head_branch>`, or opens the one that is there. A half-made
    /// one is completed; durable when it returns.
    pub fn create(path: &Path, head_branch: &str) -> Result<Self, OpenError> {
        let head = path.join("HEAD");
        if !head.exists() {
            let made = make(path, &head, head_branch);
            made.map_err(|source| OpenError::Create { path: path.to_owned(), source })?;
        }
        Self::open(path)
    }
}

/// `HEAD` comes last: where it is, all the rest is.
fn make(path: &Path, head: &Path, head_branch: &str) -> io::Result<()> {
    let half_made = path.exists();
    durable::create_dir_all(&path.join("objects/pack"), 0o755)?;
    durable::create_dir_all(&path.join("refs/heads"), 0o755)?;
    durable::replace_file(&path.join("config"), CONFIG, 0o644)?;
    if half_made {
        durable::sync_tree(path)?;
    }
    durable::replace_file(head, format!("ref: refs/heads/{head_branch}\n").as_bytes(), 0o644)
}
