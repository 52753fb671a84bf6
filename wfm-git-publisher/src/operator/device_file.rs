//! A device's file in the fleet: an edit of a few lines of it, as one commit.

use std::fs;
use std::path::Path;

use repo_git::durable::{self, FileError};
use repo_model::DeviceId;
use repo_model::problem::Problems;

use crate::fleet::{self, Device, SourceFile};
use crate::repos::{GitError, SourceError, StockGit, work_tree};

/// A device's file can't be changed.
#[derive(Debug, thiserror::Error)]
pub enum DeviceFileError {
    #[error("cannot read the fleet")]
    Source(#[from] SourceError),
    #[error("there is no device `{0}` in the fleet")]
    NoDevice(DeviceId),
    #[error("the file of `{device}` can't be read")]
    Device { device: DeviceId, problems: Problems },
    /// Its file has changes that aren't committed.
    #[error("`{file}` has changes that are not committed")]
    Dirty { file: String },
    /// Its file is written in a way that can't be edited.
    #[error("`{file}` can't be edited without changing more than `{key}`")]
    Edit { file: String, key: &'static str },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot commit the device's file")]
    Git(#[from] GitError),
}

/// What becomes of a device's file.
pub(super) struct Edit<'a> {
    pub(super) device: &'a DeviceId,
    /// The key that changes.
    pub(super) key: &'static str,
    /// The text with it; `None` if it can't be edited.
    pub(super) text: &'a dyn Fn(&str) -> Option<String>,
    /// What the text means then.
    pub(super) meaning: &'a dyn Fn(Device) -> Device,
    /// The commit's message.
    pub(super) message: &'a str,
}

/// A device's file as it is in the fleet now.
#[derive(Debug)]
pub(super) struct Changed {
    /// Its path in the fleet repository.
    pub(super) file: String,
    /// Whether it meant that already.
    pub(super) was_there: bool,
}

impl Edit<'_> {
    /// Writes and commits it. The same again completes what was cut off before its commit; other changes of the file are the
    /// operator's.
    pub(super) fn make(&self, root: &Path) -> Result<Changed, DeviceFileError> {
        let files = work_tree(root)?;
        let found = fleet::device_files(&files).into_iter().find(|(id, _)| id == self.device);
        let (_, file) = found.ok_or_else(|| DeviceFileError::NoDevice(self.device.clone()))?;
        let path = root.join(&file);
        let text = fs::read_to_string(&path).map_err(FileError::read(&path))?;
        let before = self.read(&file, &text)?;
        let git = StockGit::new(root);
        let (is_dirty, was_there) = (git.is_dirty(&file)?, (self.meaning)(before.clone()) == before);
        if is_dirty && !(was_there && self.is_all_that_changed(&git, &file, &text)?) {
            return Err(DeviceFileError::Dirty { file });
        }
        if !was_there {
            let edited = self.edited(&file, &text, &before)?;
            durable::replace_file(&path, edited.as_bytes(), 0o644).map_err(FileError::write(&path))?;
        }
        if is_dirty || !was_there {
            git.commit(&[&file], self.message)?;
        }
        Ok(Changed { file, was_there })
    }

    fn read(&self, file: &str, text: &str) -> Result<Device, DeviceFileError> {
        let read = fleet::read_device(&SourceFile::plain(file, text));
        read.map_err(|problems| DeviceFileError::Device { device: self.device.clone(), problems })
    }

    /// The text with the edit, which must mean the same in all else.
    fn edited(&self, file: &str, text: &str, before: &Device) -> Result<String, DeviceFileError> {
        let failed = || DeviceFileError::Edit { file: file.to_owned(), key: self.key };
        let edited = (self.text)(text).ok_or_else(failed)?;
        let after = self.read(file, &edited).map_err(|_| failed())?;
        if after == (self.meaning)(before.clone()) { Ok(edited) } else { Err(failed()) }
    }

    /// Whether the file is the committed one with the edit, and nothing else.
    fn is_all_that_changed(&self, git: &StockGit, file: &str, text: &str) -> Result<bool, DeviceFileError> {
        let Ok(committed) = git.run(&["show", &format!("HEAD:{file}")]) else { return Ok(false) };
        let before = self.read(file, &committed)?;
        Ok(self.edited(file, &committed, &before).is_ok_and(|edited| edited == text))
    }
}
