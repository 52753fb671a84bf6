//! A device's file in the fleet: an edit of a few lines of it, as one commit.

use std::fs;
use std::path::Path;

use repo_git::durable::{self, FileError};
use repo_model::DeviceId;
use repo_model::problem::Problems;
use repo_model::yaml::{Limits, parse};

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

/// A device's file as it is in the work tree.
pub(super) struct DeviceFile<'a> {
    root: &'a Path,
    /// Its path in the fleet repository.
    file: String,
    text: String,
    /// What it means now.
    pub(super) before: Device,
    /// All files of the fleet, with it.
    pub(super) files: Vec<SourceFile>,
}

/// What becomes of a device's file.
pub(super) struct Edit<'a> {
    /// The key that changes, or the first of them.
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

/// An edit that can be made.
#[derive(Debug)]
pub(super) struct Planned {
    /// Its path in the fleet repository.
    pub(super) file: String,
    /// The text that it gets; absent where it means that already.
    pub(super) edited: Option<String>,
    /// Whether that stands there, and isn't committed yet.
    is_dirty: bool,
}

impl<'a> DeviceFile<'a> {
    pub(super) fn open(root: &'a Path, device: &DeviceId) -> Result<Self, DeviceFileError> {
        let files = work_tree(root)?;
        let found = fleet::device_files(&files).into_iter().find(|(id, _)| id == device);
        let (_, file) = found.ok_or_else(|| DeviceFileError::NoDevice(device.clone()))?;
        let path = root.join(&file);
        let text = fs::read_to_string(&path).map_err(FileError::read(&path))?;
        let before = read(device, &file, &text)?;
        Ok(Self { root, file, text, before, files })
    }

    /// Whether the edit would change nothing of what it means.
    pub(super) fn means(&self, edit: &Edit<'_>) -> bool {
        (edit.meaning)(self.before.clone()) == self.before
    }

    /// Writes and commits it. The same again completes what was cut off before its commit; other changes of the file are the
    /// operator's.
    pub(super) fn change(self, edit: &Edit<'_>) -> Result<Changed, DeviceFileError> {
        let root = self.root;
        let planned = self.plan(edit)?;
        planned.write(root)?;
        if planned.is_to_be_committed() {
            StockGit::new(root).commit(&[&planned.file], edit.message)?;
        }
        Ok(Changed { file: planned.file, was_there: planned.edited.is_none() })
    }

    /// What the edit comes to; nothing is written.
    pub(super) fn plan(self, edit: &Edit<'_>) -> Result<Planned, DeviceFileError> {
        let was_there = self.means(edit);
        let Self { root, file, text, before, .. } = self;
        let git = StockGit::new(root);
        let is_dirty = git.is_dirty(&file)?;
        if is_dirty && !(was_there && edit.is_all_that_changed(&git, &before.id, &file, &text)?) {
            return Err(DeviceFileError::Dirty { file });
        }
        let edited = if was_there { None } else { Some(edit.made(&file, &text, &before)?) };
        Ok(Planned { file, edited, is_dirty })
    }
}

impl Planned {
    /// Whether the file will differ from the last commit.
    pub(super) fn is_to_be_committed(&self) -> bool {
        self.is_dirty || self.edited.is_some()
    }

    /// Writes it, durably; the commit comes after.
    pub(super) fn write(&self, root: &Path) -> Result<(), FileError> {
        let Some(edited) = &self.edited else { return Ok(()) };
        let path = root.join(&self.file);
        durable::replace_file(&path, edited.as_bytes(), 0o644).map_err(FileError::write(&path))
    }
}

impl Edit<'_> {
    /// The text with the edit, which must mean the same in all else.
    fn made(&self, file: &str, text: &str, before: &Device) -> Result<String, DeviceFileError> {
        let failed = || DeviceFileError::Edit { file: file.to_owned(), key: self.key };
        let edited = (self.text)(text).ok_or_else(failed)?;
        let after = read(&before.id, file, &edited).map_err(|_| failed())?;
        // A policy knows its lines, which may be others by now.
        let after = Device { policy: before.policy.clone(), ..after };
        let is_right = after == (self.meaning)(before.clone()) && policy(&edited) == policy(text);
        if is_right { Ok(edited) } else { Err(failed()) }
    }

    /// Whether the file is the committed one with the edit, and nothing else.
    fn is_all_that_changed(
        &self,
        git: &StockGit,
        device: &DeviceId,
        file: &str,
        text: &str,
    ) -> Result<bool, DeviceFileError> {
        let Ok(committed) = git.run(&["show", &format!("HEAD:{file}")]) else { return Ok(false) };
        let before = read(device, file, &committed)?;
        Ok(self.made(file, &committed, &before).is_ok_and(|edited| edited == text))
    }
}

fn read(device: &DeviceId, file: &str, text: &str) -> Result<Device, DeviceFileError> {
    let read = fleet::read_device(&SourceFile::plain(file, text));
    read.map_err(|problems| DeviceFileError::Device { device: device.clone(), problems })
}

/// The policy in a device's file, as it is written; absent where there is none.
fn policy(text: &str) -> Option<serde_json::Value> {
    parse("", text.as_bytes(), &Limits::FLEET).ok()?.to_json().ok()?.get("policy").cloned()
}
