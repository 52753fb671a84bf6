//! A repository for a while.

use std::path::{Path, PathBuf};

use super::{OpenError, Repo};
use crate::durable::Temp;

/// A bare repository that only its owner can enter, and that is gone when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    repo: Repo,
    _directory: Temp,
}

impl Scratch {
    /// Makes one in this directory.
    pub fn within(directory: &Path) -> Result<Self, OpenError> {
        let fail = |source| OpenError::Create { path: directory.to_owned(), source };
        let made = Temp::dir(directory).map_err(fail)?;
        Ok(Self { repo: Repo::create(&made.0.join("repository.git"), "main")?, _directory: made })
    }

    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    /// Where its objects lie, for [`Repo::open_with_quarantine`].
    pub fn objects(&self) -> PathBuf {
        self.repo.path().join("objects")
    }
}
