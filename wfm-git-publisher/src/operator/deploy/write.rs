//! A deployment's file comes into the fleet, or is changed there: whole, and as one commit of it alone.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use repo_git::CommitId;
use repo_git::durable::{self, FileError};
use repo_model::DeploymentName;

use crate::fleet::{SourceFile, deployment_file};
use crate::repos::{FleetRepo, GitError, SourceError, StockGit, work_tree};

/// A deployment's file can't be written.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    #[error("cannot read the fleet")]
    Source(#[from] SourceError),
    #[error("`{id}` is in the fleet already: {file}")]
    Exists { id: DeploymentName, file: String },
    #[error("there is no deployment `{0}` in the fleet")]
    NoDeployment(DeploymentName),
    /// Something else lies where the new file would.
    #[error("`{file}` is there, not committed, and not what would be written")]
    Taken { file: String },
    /// Its file has changes that aren't committed.
    #[error("`{file}` has changes that are not committed")]
    Dirty { file: String },
    /// Its file is written in a way that can't be edited.
    #[error("`{file}` can't be edited without changing more than what was asked for")]
    Edit { file: String },
    /// What is written there would be somewhere else.
    #[error("`{path}` is a link, and nothing is written through it")]
    Link { path: String },
    /// Somebody committed meanwhile.
    #[error("the fleet is at another commit than the one that was looked at, and nothing is written")]
    Moved,
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot commit the deployment's file")]
    Git(#[from] GitError),
}

/// A deployment's file in the work tree.
#[derive(Debug)]
pub struct DeploymentFile {
    root: PathBuf,
    /// Its path in the fleet repository.
    pub file: String,
    /// What is committed of it; absent where it is new.
    pub committed: Option<String>,
    /// What lies there now.
    found: Option<String>,
}

impl DeploymentFile {
    /// The place of a new deployment; `files` are those of the last commit.
    pub fn new(root: &Path, files: &[SourceFile], id: &DeploymentName) -> Result<Self, DeployError> {
        let file = format!("deployments/{id}.yaml");
        let elsewhere = || Ok::<_, DeployError>(deployment_file(&work_tree(root)?, id).filter(|other| *other != file));
        if let Some(file) = deployment_file(files, id).map_or_else(elsewhere, |file| Ok(Some(file)))? {
            return Err(DeployError::Exists { id: id.clone(), file });
        }
        let found = read(root, &file)?;
        if found.is_some() && !StockGit::new(root).is_dirty(&file)? {
            return Err(DeployError::Taken { file });
        }
        Ok(Self { root: root.to_owned(), file, committed: None, found })
    }

    /// The file of a deployment that is committed.
    pub fn open(root: &Path, files: &[SourceFile], id: &DeploymentName) -> Result<Self, DeployError> {
        let file = deployment_file(files, id).ok_or_else(|| DeployError::NoDeployment(id.clone()))?;
        let git = StockGit::new(root);
        let found = read(root, &file)?;
        let committed = match git.is_dirty(&file)? {
            true => Some(git.run(&["show", &format!("HEAD:{file}")])?),
            false => found.clone(),
        };
        Ok(Self { root: root.to_owned(), file, committed, found })
    }

    /// Whether nothing lies there but what is committed.
    ///
    /// # Errors
    /// The one that a person should hear before being asked anything.
    pub fn check_clean(&self) -> Result<(), DeployError> {
        let file = self.file.clone();
        match (&self.committed, self.found == self.committed) {
            (_, true) => Ok(()),
            (Some(_), false) => Err(DeployError::Dirty { file }),
            (None, false) => Err(DeployError::Taken { file }),
        }
    }

    /// Whether this text can be written: nothing else lies there that isn't committed.
    pub fn check(&self, text: &str) -> Result<(), DeployError> {
        if self.found.as_deref() == Some(text) { Ok(()) } else { self.check_clean() }
    }

    /// Writes and commits it, if the fleet is still at that commit. The same again completes what was cut off before its commit.
    pub fn write(&self, head: CommitId, text: &str, message: &str) -> Result<(), DeployError> {
        let path = self.root.join(&self.file);
        if FleetRepo::open(&self.root)?.resolve("HEAD")? != head || read(&self.root, &self.file)? != self.found {
            return Err(DeployError::Moved);
        }
        self.check(text)?;
        if self.found.as_deref() != Some(text) {
            let failed = FileError::write(&path);
            durable::create_dir_all(path.parent().unwrap_or(&self.root), 0o755).map_err(failed)?;
            durable::replace_file(&path, text.as_bytes(), 0o644).map_err(failed)?;
        }
        Ok(StockGit::new(&self.root).commit(&[&self.file], message)?)
    }
}

/// What lies at a path of the fleet; nothing above it may be a link.
fn read(root: &Path, file: &str) -> Result<Option<String>, DeployError> {
    if let Some(link) = link_in(root, file) {
        return Err(DeployError::Link { path: link.to_owned() });
    }
    let path = root.join(file);
    match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => Ok(read.map(Some).map_err(FileError::read(&path))?),
    }
}

/// The first part of a path of the fleet that is a link.
pub(in crate::operator) fn link_in<'a>(root: &Path, file: &'a str) -> Option<&'a str> {
    let ends = file.match_indices('/').map(|(end, _)| end).chain([file.len()]);
    ends.map(|end| &file[..end]).find(|part| root.join(part).is_symlink())
}

impl DeployError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Exists { id, .. } => {
                return Some(format!("change it: deploy edit {id}; or give the new one another id with --name"));
            }
            Self::NoDeployment(id) => return Some(format!("make it: deploy APP --name {id}")),
            Self::Taken { .. } => "commit it yourself and use `deploy edit`, or move it away",
            Self::Dirty { .. } => "commit or undo them first",
            Self::Edit { .. } => "change it with an editor, and commit; `validate` checks it",
            Self::Link { .. } => "put a folder with the files themselves there",
            Self::Moved => "say it again",
            Self::Source(_) | Self::File(_) | Self::Git(_) => return None,
        };
        Some(text.to_owned())
    }
}
