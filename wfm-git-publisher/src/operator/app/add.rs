//! A package comes into the fleet: the same bytes, as one commit, or nothing.

use std::fs;
use std::io;
use std::path::Path;

use repo_git::durable::{self, FileError};
use repo_model::problem::{Problem, Problems};
use repo_model::text;

use super::error::AppError;
use super::read::{Got, folder as read_folder};
use crate::fleet::{Application, MARGO_YAML, Package, PackageFileKind};
use crate::repos::{FleetRepo, StockGit};

/// A package that is in the fleet, or would be.
#[derive(Debug)]
pub struct AddedApp {
    pub application: Application,
    /// Its folder in the fleet repository.
    pub folder: String,
    pub package: Package,
    /// Whether it was committed before, with the same bytes.
    pub was_there: bool,
    /// What is doubtful about it.
    pub warnings: Problems,
}

/// Puts a package into the fleet unless it is there, as one commit that holds exactly its bytes. The same again completes
/// what was cut off.
pub fn add_app(root: &Path, got: Got, origin: &str) -> Result<AddedApp, AppError> {
    let revision = got.revision.as_ref().map(|revision| format!(" ({revision})")).unwrap_or_default();
    let added = check_app(root, got)?;
    if added.was_there {
        return Ok(added);
    }
    let (path, git) = (root.join(&added.folder), StockGit::new(root));
    let is_ours = !path.exists();
    if is_ours {
        write(&path, &added.package)?;
    }
    let files: Vec<_> = added.package.files.keys().map(|path| format!("{}/{path}", added.folder)).collect();
    let converted = git.converted(&files.iter().map(String::as_str).collect::<Vec<_>>())?;
    if !converted.is_empty() {
        let files = converted.into_iter().map(str::to_owned).collect();
        // What an operator put there stays.
        if is_ours {
            durable::remove_dir_all(&path).map_err(FileError::write(&path))?;
        }
        return Err(AppError::Converted { files });
    }
    git.commit_whole(&added.folder, &message(&added.application, &format!("{origin}{revision}")))?;
    let fleet = FleetRepo::open(root)?;
    let committed = fleet.package(fleet.resolve("HEAD")?, &added.folder)?.unwrap_or_default();
    let files = differing(&committed, &added.package);
    if files.is_empty() { Ok(added) } else { Err(AppError::Changed { files }) }
}

/// What [`add_app`] would do, without doing it.
pub fn check_app(root: &Path, got: Got) -> Result<AddedApp, AppError> {
    let Got { package, from, tag, .. } = got;
    let read = package.read(&from);
    let (application, mut warnings) = read.map_err(|problems| AppError::Refused { from: from.clone(), problems })?;
    warnings.extend(tag.filter(|tag| *tag != as_tag(&application.description.version)).map(|tag| {
        let message = format!("is version {}, and its tag is `{tag}`", application.description.version);
        Problem::error(format!("{from}/{MARGO_YAML}"), message).key("metadata.version").warning()
    }));
    let folder = application.folder();
    let fleet = FleetRepo::open(root)?;
    let committed = fleet.package(fleet.resolve("HEAD")?, &folder)?;
    if let Some(committed) = &committed {
        let files = differing(committed, &package);
        if !files.is_empty() {
            let (id, version) = application.key();
            return Err(AppError::Exists { package: format!("{id} {version}"), files });
        }
    }
    check_place(root, &application)?;
    let path = root.join(&folder);
    if committed.is_none() && path.exists() {
        let files = differing(&read_folder(&path)?, &package);
        if !files.is_empty() {
            return Err(AppError::Taken { folder, files });
        }
    }
    Ok(AddedApp { application, folder, package, was_there: committed.is_some(), warnings })
}

/// A version as registries can have it as a tag (Margo, *Application Registry*), which has no `+`.
fn as_tag(version: &str) -> String {
    version.replace('+', "_")
}

/// Whether the package's folder would be where it seems, and not that of another version.
fn check_place(root: &Path, application: &Application) -> Result<(), AppError> {
    let (id, version) = application.key();
    let mut above = root.to_owned();
    for part in ["applications", id.as_str()] {
        above.push(part);
        let meta = match fs::symlink_metadata(&above) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            meta => meta.map_err(FileError::read(&above))?,
        };
        if !meta.is_dir() {
            return Err(AppError::NoFolder(above.display().to_string()));
        }
    }
    for entry in fs::read_dir(&above).map_err(FileError::read(&above))? {
        let name = entry.map_err(FileError::read(&above))?.file_name();
        let other = name.to_string_lossy();
        if other != version.as_str() && other.eq_ignore_ascii_case(&version) {
            return Err(AppError::Alike { version, other: other.into_owned() });
        }
    }
    let folder = above.join(&version);
    match fs::symlink_metadata(&folder) {
        Ok(meta) if !meta.is_dir() => Err(AppError::NoFolder(folder.display().to_string())),
        _ => Ok(()),
    }
}

/// Writes the whole folder at once.
fn write(path: &Path, package: &Package) -> Result<(), AppError> {
    let mut folders: Vec<_> =
        package.files.keys().flat_map(|path| path.match_indices('/').map(|(end, _)| &path[..end])).collect();
    folders.sort_unstable();
    folders.dedup();
    let mode = |kind| if kind == PackageFileKind::Executable { 0o755 } else { 0o644 };
    let files = package.files.iter().map(|(path, file)| (path.as_str(), mode(file.kind), file.bytes.as_slice()));
    let files: Vec<_> = files.collect();
    Ok(durable::create_tree(path, &folders, &files).map_err(FileError::write(path))?)
}

/// The message of the commit; where the package is from is its operator's word.
fn message(application: &Application, origin: &str) -> String {
    let (id, version) = application.key();
    format!("{id}: version {version}\n\nFrom: {}\n", text::line(origin))
}

/// The paths in which two packages differ; of many the first ones.
pub(super) fn differing(one: &Package, other: &Package) -> Vec<String> {
    const SHOWN: usize = 10;
    let all = one.differing(other);
    let mut shown: Vec<_> = all.iter().take(SHOWN).map(|path| text::line(path)).collect();
    if all.len() > SHOWN {
        shown.push(format!("and {} more", all.len() - SHOWN));
    }
    shown
}
