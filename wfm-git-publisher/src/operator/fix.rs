//! Writes the ids that are missing, from the names of the files.

use std::fs;
use std::path::Path;

use repo_git::durable::{self, FileError};
use repo_model::{DeploymentName, DeviceId};

use super::edit;
use crate::fleet;
use crate::repos::{SourceError, work_tree};

/// Missing ids can't be written.
#[derive(Debug, thiserror::Error)]
pub enum FixError {
    #[error("cannot read the fleet")]
    Source(#[from] SourceError),
    /// A file can't be changed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Gives each file of a device or deployment without `id` the one that its name suggests, unless that is taken or not
/// allowed. Returns the changed files; nothing is committed.
pub fn fix(root: &Path) -> Result<Vec<String>, FixError> {
    let files = work_tree(root)?;
    let mut fixed = Vec::new();
    for file in fleet::without_id(&files) {
        let Some(id) = suggested(&file).filter(|id| !fleet::has_id(&files, &file, id)) else { continue };
        let path = root.join(&file);
        let failed = FileError::write(&path);
        let text = fs::read_to_string(&path).map_err(failed)?;
        let Some(text) = edit::set_id(&text, &id) else { continue };
        durable::replace_file(&path, text.as_bytes(), 0o644).map_err(failed)?;
        fixed.push(file);
    }
    Ok(fixed)
}

/// The file's name as an id, if it can be one.
fn suggested(file: &str) -> Option<String> {
    let stem = file.rsplit('/').next()?.strip_suffix(".yaml")?;
    if file.starts_with("devices/") {
        return stem.parse::<DeviceId>().ok().map(String::from);
    }
    stem.to_lowercase().replace(['_', ' ', '.'], "-").parse::<DeploymentName>().ok().map(String::from)
}
