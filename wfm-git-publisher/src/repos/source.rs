//! The fleet repository: read at a commit from its objects, or as it lies in the work tree before a commit.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use repo_git::durable::FileError;
use repo_git::repo::{Changes, Lineage};
use repo_git::{
    Ancestry, Commit, CommitId, Entry, EntryKind, OpenError, PublicKey, ReadError, Repo, TreeError, TreeLimits,
};
use repo_model::branch::HEADS;

use super::StockGit;
use crate::fleet::{
    ALLOWED, MAX_BYTES, PARTS, Package, PackageFile, PackageFileKind, SETTINGS, SIGNERS, SourceFile, is_relevant,
};
use crate::parallel;

/// The largest file that is read; YAML has its own, equal limit.
const MAX_FILE: u64 = 1 << 20;

/// A fleet may be large, but a tree without end is a mistake.
pub(super) const LIMITS: TreeLimits = TreeLimits { files: 200_000, bytes: u64::MAX, depth: 32, strict: false };

/// The most commits that are searched for the one that caused a change.
const MAX_CAUSES: usize = 100;

/// The operators' repository, for reading.
#[derive(Debug)]
pub struct FleetRepo {
    pub(super) repo: Repo,
}

/// The fleet can't be read as a whole.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("cannot open the fleet repository")]
    Open(#[source] OpenError),
    /// The revision can't be looked up.
    #[error("cannot look up revision `{rev}`")]
    Resolve {
        rev: String,
        #[source]
        source: ReadError,
    },
    #[error("there is no revision `{rev}` in the fleet repository")]
    NoSuchRevision { rev: String },
    /// The commit can't be read.
    #[error("cannot read commit {commit} of the fleet repository")]
    Commit {
        commit: CommitId,
        #[source]
        source: ReadError,
    },
    /// The commit's tree can't be listed.
    #[error("cannot list the files of commit {commit}")]
    Tree {
        commit: CommitId,
        #[source]
        source: TreeError,
    },
    #[error("cannot read `{path}`")]
    File {
        path: String,
        #[source]
        source: ReadError,
    },
    /// The work tree can't be read.
    #[error(transparent)]
    WorkTree(#[from] FileError),
}

impl FleetRepo {
    /// Opens the repository that holds `path`.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        Repo::discover(path).map(|repo| Self { repo }).map_err(SourceError::Open)
    }

    /// Opens a bare repository together with the objects of a push that isn't accepted yet.
    pub(crate) fn quarantined(path: &Path, objects: &Path) -> Result<Self, OpenError> {
        Repo::open_with_quarantine(path, objects).map(|repo| Self { repo })
    }

    pub fn git_dir(&self) -> &Path {
        self.repo.path()
    }

    /// Whether this revision is `HEAD`, or the branch that it names, whatever commit either is at.
    pub fn is_head(&self, rev: &str) -> bool {
        let refs = self.repo.advertisement().unwrap_or_default();
        let branch = refs.into_iter().find_map(|one| one.symref.filter(|_| one.name == "HEAD"));
        rev == "HEAD" || branch.is_some_and(|branch| branch == rev || branch.strip_prefix(HEADS) == Some(rev))
    }

    /// The commit that a revision names.
    pub fn resolve(&self, rev: &str) -> Result<CommitId, SourceError> {
        let found = self.repo.resolve(rev).map_err(|source| SourceError::Resolve { rev: rev.to_owned(), source });
        match found {
            Ok(Some(commit)) => Ok(commit),
            // `HEAD~1`, `main@{yesterday}` and the like are left to the operator's own Git.
            Ok(None) | Err(_) if rev.contains(['~', '^', '@', ':']) => self.parse(rev),
            Ok(None) => Err(SourceError::NoSuchRevision { rev: rev.to_owned() }),
            Err(error) => Err(error),
        }
    }

    fn parse(&self, rev: &str) -> Result<CommitId, SourceError> {
        let commit = format!("{rev}^{{commit}}");
        let git = StockGit::new(self.repo.path());
        let output = git.run(&["rev-parse", "--quiet", "--verify", "--end-of-options", &commit]).ok();
        output
            .and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| SourceError::NoSuchRevision { rev: rev.to_owned() })
    }

    /// The fleet's files at a commit, never those of the work tree. One that can't be read is in the list too, with
    /// the reason.
    pub fn files(&self, commit: CommitId) -> Result<Vec<SourceFile>, SourceError> {
        self.files_on(commit, 1)
    }

    /// The same on so many threads.
    pub fn files_on(&self, commit: CommitId, threads: usize) -> Result<Vec<SourceFile>, SourceError> {
        Ok(self.read(&self.entries(commit)?, threads))
    }

    /// What the fleet's files at a commit are, without their bytes.
    pub(crate) fn entries(&self, commit: CommitId) -> Result<Vec<Entry>, SourceError> {
        let mut entries = self.repo.list(commit, &LIMITS).map_err(|source| SourceError::Tree { commit, source })?;
        entries.retain(|entry| is_relevant(&entry.path) || hides_files(entry));
        Ok(entries)
    }

    /// Reads these files on so many threads.
    pub(crate) fn read(&self, entries: &[Entry], threads: usize) -> Vec<SourceFile> {
        // Each thread needs a handle of its own.
        let parts = entries.chunks(entries.len().div_ceil(threads.max(1)).max(1));
        let parts = parts.map(|part| (self.repo.clone(), part)).collect();
        let read = |(repo, part): (Repo, &[Entry])| part.iter().map(|entry| file(&repo, entry)).collect::<Vec<_>>();
        parallel::map(parts, threads, read).concat()
    }

    /// The files of a package as they are committed in this folder, or at the top; `None` if nothing is there. What is no file is
    /// there without bytes.
    pub fn package(&self, commit: CommitId, folder: &str) -> Result<Option<Package>, SourceError> {
        let entries = self.repo.list(commit, &LIMITS).map_err(|source| SourceError::Tree { commit, source })?;
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let mut package = Package::default();
        for entry in entries {
            let Some(path) = entry.path.strip_prefix(&prefix) else { continue };
            let is_file = !entry.odd_name && matches!(entry.kind, EntryKind::File | EntryKind::Executable);
            let file = if is_file {
                let left = MAX_BYTES.saturating_sub(package.size()) as u64;
                let bytes = self.repo.blob(entry.blob, left);
                let bytes = bytes.map_err(|source| SourceError::File { path: entry.path.clone(), source })?;
                PackageFile::new(bytes, if entry.kind == EntryKind::File { 0o644 } else { 0o755 })
            } else {
                PackageFile { kind: PackageFileKind::Odd, bytes: Vec::new() }
            };
            package.files.insert(path.to_owned(), file);
        }
        Ok((!package.files.is_empty()).then_some(package))
    }

    /// The one commit after `published` up to `commit` that can have changed something, if there is exactly one.
    pub fn sole_cause(&self, published: Option<CommitId>, commit: CommitId) -> Option<Commit> {
        let history = self.repo.history(commit, published, MAX_CAUSES).ok()?;
        match history.as_slice() {
            [one] => self.repo.commit(*one).ok(),
            _ => None,
        }
    }

    /// Whether a commit lies behind the one that `HEAD` names: somebody went back to it on purpose.
    pub fn is_old(&self, commit: CommitId) -> bool {
        let head = self.resolve("HEAD").ok().filter(|head| *head != commit);
        head.is_some_and(|head| matches!(self.repo.is_ancestor(commit, head), Ok(Ancestry::Yes)))
    }

    /// Which commits behind this one descend from which.
    pub fn lineage(&self, tip: CommitId) -> Result<Lineage, SourceError> {
        self.repo.lineage(tip).map_err(|source| SourceError::Commit { commit: tip, source })
    }

    pub fn commit(&self, id: CommitId) -> Result<Commit, SourceError> {
        self.repo.commit(id).map_err(|source| SourceError::Commit { commit: id, source })
    }
}

pub(super) fn file(repo: &Repo, entry: &Entry) -> SourceFile {
    // What refuses the file may be cured by a name that is part of the fleet.
    let path = entry.path.clone();
    let read = || repo.blob(entry.blob, MAX_FILE);
    match entry.kind {
        _ if entry.odd_name => SourceFile::refused(path, "has a name that is not UTF-8 or not allowed", None),
        EntryKind::Symlink => SourceFile::refused(path, "is a symbolic link; write the file itself", None),
        EntryKind::Submodule => SourceFile::refused(path, "is a submodule; a fleet is one repository", None),
        EntryKind::Executable => {
            SourceFile::refused(path, "is executable; run `chmod -x` on it and commit that", read().ok())
        }
        EntryKind::File => match read() {
            Ok(bytes) => SourceFile::plain(path, bytes),
            Err(error) => SourceFile::refused(path, format!("can't be read: {error}"), None),
        },
    }
}

/// Whether other files of the fleet could lie below this entry: a link or submodule in the place of a folder.
fn hides_files(entry: &Entry) -> bool {
    let folder = entry.path.split('/').next().unwrap_or_default();
    let odd = entry.odd_name || matches!(entry.kind, EntryKind::Symlink | EntryKind::Submodule);
    // Resources of a package may be links: only its margo.yaml counts.
    odd && (["devices", "deployments", "rollouts", ALLOWED].contains(&folder)
        || ["applications", SETTINGS, SIGNERS].contains(&&*entry.path))
}

/// What differs between two commits of a fleet, whatever it is; `None` is the empty tree.
pub(crate) fn changes_of(repo: &Repo, old: Option<CommitId>, new: CommitId) -> Result<Changes, TreeError> {
    repo.changes(old, new, &LIMITS)
}

/// Whether one of the operators' keys made the commit's signature.
pub(crate) fn operator(commit: &Commit, operators: &BTreeSet<PublicKey>) -> Option<PublicKey> {
    commit.signer().ok().filter(|key| operators.contains(key))
}

/// The fleet's files as they lie in the work tree, for checks before a commit.
pub fn work_tree(root: &Path) -> Result<Vec<SourceFile>, SourceError> {
    let mut files = Vec::new();
    for part in PARTS {
        walk(root, part, &mut files)?;
    }
    Ok(files)
}

fn walk(root: &Path, relative: &str, files: &mut Vec<SourceFile>) -> Result<(), SourceError> {
    let path = root.join(relative);
    let failed = FileError::read(&path);
    let meta = match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        meta => meta.map_err(failed)?,
    };
    if meta.is_dir() {
        let entries: Result<Vec<_>, _> = fs::read_dir(&path).map_err(failed)?.collect();
        for entry in entries.map_err(failed)? {
            match entry.file_name().to_str() {
                Some(name) => walk(root, &format!("{relative}/{name}"), files)?,
                None => files.push(SourceFile::refused(
                    format!("{relative}/{}", entry.file_name().to_string_lossy()),
                    "has a name that is not UTF-8",
                    None,
                )),
            }
        }
        return Ok(());
    }
    if is_relevant(relative) || meta.is_symlink() && !relative.starts_with("applications/") {
        files.push(read_file(&path, relative, &meta));
    }
    Ok(())
}

fn read_file(path: &Path, relative: &str, meta: &fs::Metadata) -> SourceFile {
    if meta.is_symlink() {
        return SourceFile::refused(relative, "is a symbolic link; write the file itself", None);
    }
    match fs::read(path) {
        Err(error) => SourceFile::refused(relative, format!("can't be read: {error}"), None),
        Ok(bytes) if bytes.len() as u64 > MAX_FILE => {
            SourceFile::refused(relative, format!("has more than {MAX_FILE} bytes"), None)
        }
        Ok(bytes) if meta.permissions().mode() & 0o100 != 0 => {
            SourceFile::refused(relative, "is executable; run `chmod -x` on it", Some(bytes))
        }
        Ok(bytes) => SourceFile::plain(relative, bytes),
    }
}
