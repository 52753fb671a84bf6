//! A new device: its file in the fleet repository and its join file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use repo_git::durable::{self, FileError};
use repo_model::DeviceId;
use repo_model::problem::Problems;

use super::join::{JoinError, Reach, write_join};
use crate::fleet::{self, SourceFile};
use crate::repos::{GitError, Home, SourceError, StockGit, work_tree};

/// What `device add` made.
#[derive(Debug)]
pub struct Added {
    /// The device's file in the fleet.
    pub file: String,
    /// Whether the device's file was there before, so that it is left as it is.
    pub was_there: bool,
    /// The path of the join file, for its owner alone: it holds a secret.
    pub join: PathBuf,
}

/// A device can't be added.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    #[error("cannot read the fleet")]
    Source(#[from] SourceError),
    /// The device's new file would be wrong.
    #[error("`{device}` can't be added like this")]
    Device { device: DeviceId, problems: Problems },
    /// Devices of a list can't be added like this.
    #[error("the devices can't be added like this")]
    List(Problems),
    /// The device is there already, with other labels than those asked for.
    #[error("`{device}` is in the fleet already: {file}")]
    Exists { device: DeviceId, file: String },
    /// The device isn't in the fleet.
    #[error("there is no device `{0}` in the fleet")]
    NoDevice(DeviceId),
    /// The file that the device would get is there, and is another one's.
    #[error("`{file}` exists, and is not about `{device}`")]
    Taken { device: DeviceId, file: String },
    /// The file can't be written.
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot commit the device's file")]
    Git(#[from] GitError),
    /// The join file can't be written.
    #[error("cannot write the join file of `{device}`")]
    Join {
        device: DeviceId,
        #[source]
        source: Box<JoinError>,
    },
}

/// Puts a device into the fleet unless it is there, and writes its join file. One that was cut off is completed by the
/// same command.
pub fn add(
    root: &Path,
    home: &Home,
    device: &DeviceId,
    labels: &BTreeMap<String, String>,
    reach: Reach<'_>,
    out: Option<PathBuf>,
) -> Result<Added, AddError> {
    let present = find(root, device)?;
    let file = match &present {
        Some(file) if is_as_written(root, file, device, labels) => {
            commit(root, file, device)?;
            file.clone()
        }
        Some(file) if !labels.is_empty() => {
            return Err(AddError::Exists { device: device.clone(), file: file.clone() });
        }
        Some(file) => file.clone(),
        None => write_file(root, device, labels)?,
    };
    let join = join(home, device, reach, out)?;
    Ok(Added { file, was_there: present.is_some(), join })
}

/// Writes the join file of a device that is in the fleet anew. A secret that was never used ends with that.
pub fn rejoin(
    root: &Path,
    home: &Home,
    device: &DeviceId,
    reach: Reach<'_>,
    out: Option<PathBuf>,
) -> Result<PathBuf, AddError> {
    find(root, device)?.ok_or_else(|| AddError::NoDevice(device.clone()))?;
    join(home, device, reach, out)
}

pub(super) fn join(
    home: &Home,
    device: &DeviceId,
    reach: Reach<'_>,
    out: Option<PathBuf>,
) -> Result<PathBuf, AddError> {
    let joined = write_join(home, device, reach, out);
    joined.map_err(|source| AddError::Join { device: device.clone(), source: Box::new(source) })
}

/// The device's file, if it is in the fleet's work tree.
fn find(root: &Path, device: &DeviceId) -> Result<Option<String>, AddError> {
    let files = work_tree(root)?;
    Ok(fleet::device_files(&files).into_iter().find(|(id, _)| id == device).map(|(_, file)| file))
}

fn write_file(root: &Path, device: &DeviceId, labels: &BTreeMap<String, String>) -> Result<String, AddError> {
    let file = format!("devices/{device}.yaml");
    let text = device_text(device, labels);
    fleet::read_device(&SourceFile::plain(&file, text.as_str()))
        .map_err(|problems| AddError::Device { device: device.clone(), problems })?;
    let path = root.join(&file);
    if path.exists() {
        return Err(AddError::Taken { device: device.clone(), file });
    }
    let failed = FileError::write(&path);
    durable::create_dir_all(path.parent().unwrap_or(root), 0o755).map_err(failed)?;
    durable::replace_file(&path, text.as_bytes(), 0o644).map_err(failed)?;
    commit(root, &file, device)?;
    Ok(file)
}

/// Whether this command wrote the file before, and nobody changed it since.
fn is_as_written(root: &Path, file: &str, device: &DeviceId, labels: &BTreeMap<String, String>) -> bool {
    std::fs::read_to_string(root.join(file)).is_ok_and(|text| text == device_text(device, labels))
}

fn commit(root: &Path, file: &str, device: &DeviceId) -> Result<(), GitError> {
    let git = StockGit::new(root);
    if git.is_dirty(file)? { git.commit(&[file], &format!("{device}: a new device")) } else { Ok(()) }
}

pub(super) fn device_text(device: &DeviceId, labels: &BTreeMap<String, String>) -> String {
    // JSON's strings are YAML's too, and never mean anything else.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut text = format!("id: {}\n", quoted(device.as_str()));
    if !labels.is_empty() {
        text.push_str("labels:\n");
    }
    for (key, value) in labels {
        text.push_str(&format!("  {}: {}\n", quoted(key), quoted(value)));
    }
    text
}
