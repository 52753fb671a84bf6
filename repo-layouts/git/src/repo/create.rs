//! Making a minimal bare repository: seven inodes, and a configuration that keeps stock Git from harming it.
//!
//! A new one is made under another name, and takes its own when all of it is on the disk, with what it holds from the
//! beginning if that is known.

use std::io;
use std::path::{Path, PathBuf};

use gix::refs::FullName;
use repo_model::branch::{HEADS, ref_name};

use super::consolidate::has_extension;
use super::packed::{PACKED_REFS, PackedRefs};
use super::recover::files_below;
use super::{Bare, OpenError, Pack, Repo};
use crate::durable::store::PACK_MODE;
use crate::{CommitId, durable};

/// Stock Git syncs what it writes here, keeps pushes as packs, checks them, and never tidies up on its own.
pub(super) const CONFIG: &[u8] = b"\
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
    pub fn create(path: &Path, head_branch: impl AsRef<str>) -> Result<Self, OpenError> {
        Self::make(path, head_branch.as_ref())?;
        Self::open(path)
    }

    /// Writes anew what a repository that is there lacks of what all of ours have: directories, a `config` that says
    /// that it is bare, and a `HEAD` that names a branch. A ref whose file names a commit and holds something else than
    /// the end of the line behind it, which stock Git doesn't read, keeps the commit. Other refs and objects stay.
    pub fn put_right(path: &Path, head_branch: impl AsRef<str>) -> Result<(), OpenError> {
        let fail = |source| OpenError::Create { path: path.to_owned(), source };
        if !path.exists() {
            return Ok(());
        }
        if !is_complete(path) || !is_bare(path) {
            complete(path, head_branch.as_ref()).map_err(fail)?;
        }
        for (file, id) in untidy_refs(path) {
            durable::replace_file(&file, format!("{id}\n").as_bytes(), 0o644).map_err(fail)?;
        }
        Ok(())
    }

    pub(super) fn make(path: &Path, head_branch: &str) -> Result<(), OpenError> {
        if is_complete(path) {
            return Ok(());
        }
        let made = if path.exists() { complete(path, head_branch) } else { make(path, head_branch, &[]) };
        made.map_err(|source| OpenError::Create { path: path.to_owned(), source })
    }
}

impl Bare {
    /// Makes a bare repository with this pack and these branches in it, all of it at once; `Ok(false)` where something
    /// is already. Durable when it returns.
    pub fn create_with(
        path: &Path,
        head_branch: impl AsRef<str>,
        pack: &Pack,
        branches: &[(&str, CommitId)],
    ) -> Result<bool, OpenError> {
        if path.exists() {
            return Ok(false);
        }
        let fail = |source| OpenError::Create { path: path.to_owned(), source };
        let branches: Vec<_> = branches.iter().map(|(name, tip)| (ref_name(name), *tip)).collect();
        let branches = PackedRefs::default().with(branches.iter().map(|(name, tip)| (name.as_str(), *tip)));
        let branches = [(PACKED_REFS, 0o644, branches.as_slice())];
        let pack = pack.files().map_err(fail)?;
        let pack = pack.iter().map(|(name, bytes)| (name.as_str(), PACK_MODE, &**bytes));
        make(path, head_branch.as_ref(), &pack.chain(branches).collect::<Vec<_>>()).map_err(fail)?;
        Ok(true)
    }
}

fn head_text(branch: &str) -> String {
    format!("ref: {HEADS}{branch}\n")
}

fn make(path: &Path, head_branch: &str, more: &[(&str, u32, &[u8])]) -> io::Result<()> {
    let head = head_text(head_branch);
    let files = [&[("config", 0o644, CONFIG), ("HEAD", 0o644, head.as_bytes())], more].concat();
    durable::create_tree(path, &["objects", "objects/pack", "refs", "refs/heads"], &files)
}

/// Whether everything is there that every repository has, and `HEAD` names a branch.
fn is_complete(path: &Path) -> bool {
    let names_branch = |text: String| {
        let name = text.strip_prefix("ref: ").and_then(|text| text.strip_suffix('\n'));
        name.is_some_and(|name| name.starts_with(HEADS) && FullName::try_from(name).is_ok())
    };
    std::fs::read_to_string(path.join("HEAD")).is_ok_and(names_branch)
        && path.join("config").is_file()
        && ["objects/pack", "refs/heads"].iter().all(|directory| path.join(directory).is_dir())
}

/// Whether `config` can be read, and says so.
fn is_bare(path: &Path) -> bool {
    if std::fs::read(path.join("config")).is_ok_and(|text| text == CONFIG) {
        return true;
    }
    let config = gix::config::File::from_path_no_includes(path.join("config"), gix::config::Source::Local);
    config.is_ok_and(|config| config.boolean("core.bare").is_ok_and(|bare| bare == Some(true)))
}

/// The files of refs that name a commit, and hold something else behind it.
fn untidy_refs(path: &Path) -> Vec<(PathBuf, CommitId)> {
    let mut files = Vec::new();
    if files_below(&path.join("refs"), &mut files).is_err() {
        return Vec::new();
    }
    let untidy = |file: PathBuf| {
        let bytes = std::fs::read(&file).ok().filter(|_| !has_extension(&file, "lock"))?;
        let (id, rest) = bytes.split_at_checked(40)?;
        let id = std::str::from_utf8(id).ok()?.parse().ok()?;
        (!rest.is_empty() && rest != b"\n").then_some((file, id))
    };
    files.into_iter().filter_map(untidy).collect()
}

/// Completes one in place that was there before: `HEAD` comes last, where it is, all the rest is.
fn complete(path: &Path, head_branch: &str) -> io::Result<()> {
    durable::create_dir_all(&path.join("objects/pack"), 0o755)?;
    durable::create_dir_all(&path.join("refs/heads"), 0o755)?;
    if !is_bare(path) {
        durable::replace_file(&path.join("config"), CONFIG, 0o644)?;
    }
    durable::sync_tree(path)?;
    durable::replace_file(&path.join("HEAD"), head_text(head_branch).as_bytes(), 0o644)
}
