//! Trees as plain files, within limits and without surprises.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use gix::ObjectId;
use gix::bstr::BStr;
use gix::objs::tree::{EntryKind as Mode, EntryRef};
use gix::objs::{Kind, TreeRefIter};
use gix::validate::path::component;
use repo_model::FileTree;

use super::error::corrupt;
use super::{ReadError, Repo};
use crate::{BlobId, CommitId, TreeId};

/// Bytes of a path, as Linux has it.
const MAX_PATH: usize = 4096;

/// What a tree may hold to be read whole by [`Repo::files`].
#[derive(Debug, Clone, Copy)]
pub struct TreeLimits {
    /// Files and directories. Their paths have less than 4096 bytes in any case.
    pub files: usize,
    /// Bytes of all files together.
    pub bytes: u64,
    /// Directories on the way to a file.
    pub depth: usize,
    /// Executable files are errors too.
    pub strict: bool,
}

impl Default for TreeLimits {
    fn default() -> Self {
        Self { files: 10_000, bytes: 64 << 20, depth: 16, strict: true }
    }
}

/// What an entry of a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKind {
    /// Mode 100644 (or Git's old 100664).
    File,
    /// Mode 100755.
    Executable,
    /// A symbolic link; the blob is its target.
    Symlink,
    /// Mode 160000: a commit of another repository.
    Submodule,
}

/// One entry of a tree that is not a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The `/`-separated path; bytes that are not UTF-8 are replaced, and [`Entry::odd_name`] is set.
    pub path: String,
    /// The path is not one that a file tree may hold: not UTF-8, a part `.`, `..`, empty or `.git`, or a duplicate.
    pub odd_name: bool,
    pub kind: EntryKind,
    /// Its contents (for a submodule: the other repository's commit, which is not here).
    pub blob: BlobId,
}

/// A tree can't be read as plain files.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The entry is no plain file.
    #[error("`{path}` is a {what}; only plain files are allowed")]
    NotAFile { path: String, what: &'static str },
    /// The entry's name is unsafe, not UTF-8 or there twice.
    #[error("`{path}` is not an allowed path, or is there twice")]
    BadName {
        /// The entry, bytes that are not UTF-8 replaced.
        path: String,
    },
    /// The tree is over a limit.
    #[error("the tree has more than the {limit} {what} allowed (at `{path}`)")]
    TooMuch {
        limit: u64,
        what: &'static str,
        /// The path at which a limit was reached.
        path: String,
    },
    /// An object of the tree is not in the repository.
    #[error("`{path}` is missing from the repository")]
    Missing {
        /// The path whose object is missing (empty: the root).
        path: String,
        #[source]
        source: ReadError,
    },
    /// An object of the tree can't be read.
    #[error("`{path}` can't be read")]
    Read {
        /// The path (empty: the root).
        path: String,
        #[source]
        source: ReadError,
    },
}

impl TreeError {
    /// Whether something is gone or isn't what it was when it was written.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Missing { source, .. } | Self::Read { source, .. } if source.is_damage())
    }
}

impl Repo {
    /// All files of a commit. Anything but plain files with safe names is an error, as is exceeding a limit.
    pub fn files(&self, commit: CommitId, limits: &TreeLimits) -> Result<FileTree, TreeError> {
        self.tree_files(self.root(commit)?, limits)
    }

    /// All files of a tree, as [`Repo::files`].
    pub fn tree_files(&self, tree: TreeId, limits: &TreeLimits) -> Result<FileTree, TreeError> {
        let mut files = FileTree::new();
        let mut left = limits.bytes;
        // Reading one may take far more than its size, if it is a delta: each is read once.
        let mut known: HashMap<BlobId, String> = HashMap::new();
        for entry in self.list_tree(tree, limits)? {
            check_plain(&entry, limits)?;
            let over = || too_much(limits.bytes, "bytes", &entry.path);
            let bytes = match known.get(&entry.blob).and_then(|path| files.get(path)) {
                Some(same) if same.len() as u64 > left => return Err(over()),
                Some(same) => same.clone(),
                None => self.needed(self.blob(entry.blob, left)).map_err(|source| match source {
                    ReadError::TooLarge { .. } => over(),
                    source => unreadable(&entry.path, source),
                })?,
            };
            left -= bytes.len() as u64;
            known.entry(entry.blob).or_insert_with(|| entry.path.clone());
            files.insert(entry.path, bytes);
        }
        Ok(files)
    }

    /// Every entry of a commit without reading the blobs, odd ones included; of `limits` only `files` and `depth` matter.
    pub fn list(&self, commit: CommitId, limits: &TreeLimits) -> Result<Vec<Entry>, TreeError> {
        self.list_tree(self.root(commit)?, limits)
    }

    /// Every entry of a tree, as [`Repo::list`].
    pub fn list_tree(&self, tree: TreeId, limits: &TreeLimits) -> Result<Vec<Entry>, TreeError> {
        let mut walk =
            Walk { repo: self, limits, met: 0, read: HashMap::new(), entries: Vec::new(), skips_damage: false };
        walk.descend(tree.0, "", 0, false)?;
        Ok(walk.entries)
    }

    /// Every entry of a commit that can be listed although the rest can't be.
    pub fn list_readable(&self, commit: CommitId, limits: &TreeLimits) -> Vec<Entry> {
        let Ok(root) = self.root(commit) else { return Vec::new() };
        let mut walk =
            Walk { repo: self, limits, met: 0, read: HashMap::new(), entries: Vec::new(), skips_damage: true };
        // Whatever ends it, what was met before is there.
        let _ = walk.descend(root.0, "", 0, false);
        walk.entries
    }

    fn root(&self, commit: CommitId) -> Result<TreeId, TreeError> {
        self.commit(commit).map(|commit| commit.tree).map_err(|source| unreadable("", source))
    }
}

/// One walk down a tree, entries in the tree's own order.
struct Walk<'a> {
    repo: &'a Repo,
    limits: &'a TreeLimits,
    met: usize,
    /// Each tree is read once, however often it is met.
    read: HashMap<ObjectId, Rc<[u8]>>,
    entries: Vec<Entry>,
    /// A directory that can't be read is left out.
    skips_damage: bool,
}

impl Walk<'_> {
    fn descend(&mut self, tree: ObjectId, path: &str, depth: usize, odd: bool) -> Result<(), TreeError> {
        if depth > self.limits.depth {
            return Err(too_much(self.limits.depth as u64, "nested directories", path));
        }
        let data = self.tree(tree).map_err(|source| unreadable(path, source))?;
        let mut names = HashSet::new();
        for entry in TreeRefIter::from_bytes(&data, tree.kind()) {
            let entry = entry.map_err(|source| unreadable(path, corrupt(tree, source)))?;
            if path.len() + entry.filename.len() >= MAX_PATH {
                return Err(too_much(MAX_PATH as u64, "bytes in a path", path));
            }
            let odd = odd || !is_safe_name(entry.filename) || !names.insert(entry.filename);
            let name = entry.filename.to_string();
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            self.meet(&entry, path, depth, odd)?;
        }
        Ok(())
    }

    fn tree(&mut self, id: ObjectId) -> Result<Rc<[u8]>, ReadError> {
        if let Some(known) = self.read.get(&id) {
            return Ok(Rc::clone(known));
        }
        let data: Rc<[u8]> = self.repo.needed(self.repo.object_of(id, Kind::Tree))?.into();
        self.read.insert(id, Rc::clone(&data));
        Ok(data)
    }

    fn meet(&mut self, entry: &EntryRef<'_>, path: String, depth: usize, odd_name: bool) -> Result<(), TreeError> {
        self.met += 1;
        if self.met > self.limits.files {
            return Err(too_much(self.limits.files as u64, "files and directories", &path));
        }
        let kind = match entry.mode.kind() {
            Mode::Tree => {
                return match self.descend(entry.oid.to_owned(), &path, depth + 1, odd_name) {
                    Err(error) if self.skips_damage && error.is_damage() => Ok(()),
                    result => result,
                };
            }
            Mode::Blob => EntryKind::File,
            Mode::BlobExecutable => EntryKind::Executable,
            Mode::Link => EntryKind::Symlink,
            Mode::Commit => EntryKind::Submodule,
        };
        self.entries.push(Entry { path, odd_name, kind, blob: BlobId(entry.oid.to_owned()) });
        Ok(())
    }
}

fn check_plain(entry: &Entry, limits: &TreeLimits) -> Result<(), TreeError> {
    let what = match entry.kind {
        EntryKind::Symlink => "symbolic link",
        EntryKind::Submodule => "submodule",
        EntryKind::Executable if limits.strict => "executable",
        _ if entry.odd_name => return Err(TreeError::BadName { path: entry.path.clone() }),
        _ => return Ok(()),
    };
    Err(TreeError::NotAFile { path: entry.path.clone(), what })
}

/// Whether a name may stand in a path: what Git itself refuses to check out on any system is unsafe here too.
pub(super) fn is_safe_name(name: &BStr) -> bool {
    let options = component::Options { protect_windows: false, protect_hfs: true, protect_ntfs: true };
    std::str::from_utf8(name).is_ok_and(|text| !text.contains(['/', '\0']))
        && gix::validate::path::component(name, None, options).is_ok()
}

pub(super) fn unreadable(path: &str, source: ReadError) -> TreeError {
    let path = path.to_owned();
    match source {
        ReadError::Missing { .. } => TreeError::Missing { path, source },
        source => TreeError::Read { path, source },
    }
}

pub(super) fn too_much(limit: u64, what: &'static str, path: &str) -> TreeError {
    TreeError::TooMuch { limit, what, path: path.to_owned() }
}
