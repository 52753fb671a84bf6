//! The values of a release as a file, for as long as helm reads it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use repo_git::durable;
use repo_model::margo::helm_values::HelmValues;

use crate::runtimes::{RuntimeError, files_failed};

/// A file that nobody else may read; removed when dropped.
pub(super) struct ValuesFile(PathBuf);

impl ValuesFile {
    pub(super) fn write(dir: &Path, release: &str, values: &HelmValues) -> Result<Self, RuntimeError> {
        let path = dir.join(format!("{release}.yaml"));
        let write = || {
            durable::create_dir_all(dir, 0o700)?;
            durable::replace_file(&path, &values.to_yaml(), 0o600)
        };
        write().map_err(files_failed("write", &path))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ValuesFile {
    fn drop(&mut self) {
        if let Err(error) = durable::remove_file(&self.0) {
            tracing::warn!(file = %self.0.display(), %error, "can't remove a release's values");
        }
    }
}

/// Removes what a killed syncer left.
pub(super) fn sweep(dir: &Path) -> Result<(), RuntimeError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(files_failed("list", dir))?,
    };
    for entry in entries {
        let path = entry.map_err(files_failed("list", dir))?.path();
        durable::remove_file(&path).map_err(files_failed("remove", &path))?;
    }
    Ok(())
}
