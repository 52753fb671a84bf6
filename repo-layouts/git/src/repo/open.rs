//! Opening what is there, without the user's configuration, and refusing what this program cannot keep safe.

use std::path::Path;
use std::sync::Arc;

use super::create::CONFIG;
use super::{OpenError, Repo};
use crate::Cause;

impl Repo {
    /// Opens the bare repository at `path`. No configuration but its own is read.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_bare(path, false)
    }

    /// The same for a short time, in a fraction of the memory: for thousands of them one after the other.
    pub fn open_briefly(path: &Path) -> Result<Self, OpenError> {
        Self::open_bare(path, true)
    }

    fn open_bare(path: &Path, briefly: bool) -> Result<Self, OpenError> {
        let repo = Self::open_git_dir(path, briefly)?;
        if repo.git.git_dir() != repo.git.common_dir() {
            return Err(repo.unsupported("is a linked work tree"));
        }
        if !repo.git.is_bare() {
            return Err(repo.unsupported("has a work tree"));
        }
        Ok(repo)
    }

    /// Opens the bare repository at `path` together with the objects of a push that stock Git keeps in quarantine
    /// (`GIT_OBJECT_DIRECTORY` of its `pre-receive` hook), for reading.
    pub fn open_with_quarantine(path: &Path, objects: &Path) -> Result<Self, OpenError> {
        let mut repo = Self::open(path)?;
        let fail =
            |source: std::io::Error| OpenError::NotARepository { path: objects.to_owned(), source: source.into() };
        let store = gix::odb::at(objects, gix::hash::Kind::Sha1).map_err(fail)?;
        repo.quarantine = Some(gix::odb::memory::Proxy::from(store));
        Ok(repo)
    }

    /// Finds the repository that holds `path`, as `git` does: an operator's ordinary one, for reading.
    pub fn discover(path: &Path) -> Result<Self, OpenError> {
        match gix::discover::upwards(path) {
            Ok((found, _trust)) => Self::open_git_dir(&found.into_repository_and_work_tree_directories().0, false),
            Err(source) => Err(OpenError::NotARepository { path: path.to_owned(), source: source.into() }),
        }
    }

    pub(super) fn open_git_dir(path: &Path, briefly: bool) -> Result<Self, OpenError> {
        let not_found = |source: Cause| OpenError::NotARepository { path: path.to_owned(), source };
        let path = std::path::absolute(path).map_err(|error| not_found(error.into()))?;
        check_format(&path)?;
        let git = gix::open_opts(&path, options(briefly)).map_err(|error| not_found(error.into()))?;
        Ok(Self { path, git, quarantine: None, met: Arc::default() })
    }

    fn unsupported(&self, what: &'static str) -> OpenError {
        OpenError::Unsupported { path: self.path.clone(), what }
    }
}

/// gix 0.90 opens a repository with reftables and then finds no refs, so the extensions are read here first. A missing
/// configuration is left to gix.
fn check_format(path: &Path) -> Result<(), OpenError> {
    let unsupported = |what| Err(OpenError::Unsupported { path: path.to_owned(), what });
    // Most are as they were made.
    if std::fs::read(path.join("config")).is_ok_and(|text| text == CONFIG) {
        return Ok(());
    }
    let source = gix::config::Source::Local;
    let Ok(config) = gix::config::File::from_path_no_includes(path.join("config"), source) else { return Ok(()) };
    let is =
        |key: &str, usual: &str| config.string(key).is_none_or(|value| value.eq_ignore_ascii_case(usual.as_bytes()));
    if !is("extensions.refStorage", "files") {
        unsupported("keeps its refs in another format than files")
    } else if !is("extensions.objectFormat", "sha1") {
        unsupported("names its objects by another hash than SHA-1")
    } else if config.string("extensions.partialClone").is_some() {
        unsupported("is a partial clone")
    } else {
        Ok(())
    }
}

/// No configuration of user or machine, no environment, whoever owns the files. Room for many packs in a long life, which
/// is more than what is looked at for a moment needs.
fn options(briefly: bool) -> gix::open::Options {
    let minimum = if briefly { 32 } else { 256 };
    let slots = gix::odb::store::init::Slots::AsNeededByDiskState { multiplier: 4.0, minimum };
    gix::open::Options::isolated().open_path_as_is(true).with(gix::sec::Trust::Full).object_store_slots(slots)
}
