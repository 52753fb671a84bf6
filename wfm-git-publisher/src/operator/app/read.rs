//! A package as it is somewhere: in a folder, in an archive, in the fleet.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use repo_artifacts::{Limits, plain_files};
use repo_git::CommitId;
use repo_git::durable::FileError;

use super::error::AppError;
use super::origin::{Origin, Version};
use super::{git, oci};
use crate::fleet::{
    Application, MARGO_YAML, MAX_BYTES, MAX_FILES, Package, PackageFile, SourceFile, read_applications,
};
use crate::repos::{FleetRepo, Registries};

/// A package, and what it is called in messages.
#[derive(Debug, Clone)]
pub struct Got {
    pub package: Package,
    /// What its files are below: a folder or archive, a folder of the fleet, or an address.
    pub from: String,
    /// Of an address, what exactly was there: the digest of a manifest, or a commit.
    pub revision: Option<String>,
    /// What the address says that its version is.
    pub tag: Option<String>,
}

/// Where packages are looked for.
#[derive(Debug)]
pub struct Places<'a> {
    pub fleet: &'a FleetRepo,
    /// The commit of the fleet.
    pub commit: CommitId,
    pub registries: &'a Registries,
}

/// Gets a package from where it is; one of the fleet's as it is at the commit. What is in it isn't judged yet.
pub fn get(origin: &Origin, places: &Places<'_>) -> Result<Got, AppError> {
    let Places { fleet, commit, registries } = *places;
    let plain = |package, from| Ok(Got { package, from, revision: None, tag: None });
    match origin {
        Origin::Path(path) => {
            let from = path.display().to_string();
            let meta = fs::metadata(path).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => AppError::Nothing(from.clone()),
                _ => FileError::read(path)(error).into(),
            })?;
            let package = if meta.is_dir() { folder(path)? } else { archive(path)? };
            plain(package, from)
        }
        Origin::Oci(reference) => {
            let (package, manifest) = oci::pull(reference, registries)?;
            let (revision, tag) = (Some(manifest.to_string()), reference.tag().map(str::to_owned));
            Ok(Got { package, from: reference.to_string(), revision, tag })
        }
        Origin::Git(repository) => {
            let (package, commit) = git::fetch(repository, fleet.git_dir())?;
            Ok(Got { package, from: repository.to_string(), revision: Some(commit.to_string()), tag: None })
        }
        Origin::Fleet(version) => of_fleet(version, fleet, commit),
    }
}

/// A package of the fleet's as it is at the commit.
pub fn of_fleet(version: &Version, fleet: &FleetRepo, commit: CommitId) -> Result<Got, AppError> {
    let folder = find(version, fleet, commit)?.folder();
    let package = fleet.package(commit, &folder)?.unwrap_or_default();
    Ok(Got { package, from: folder, revision: None, tag: None })
}

fn find(version: &Version, fleet: &FleetRepo, commit: CommitId) -> Result<Application, AppError> {
    find_app(version, &fleet.files(commit)?)
}

/// The usable package that is meant, among these files of the fleet; the newest one where no version is named.
pub fn find_app(version: &Version, files: &[SourceFile]) -> Result<Application, AppError> {
    let (mut all, _) = read_applications(files);
    all.retain(|one| one.description.id == version.application);
    let versions = all.iter().map(|one| one.description.version.clone()).collect();
    let is_meant = |one: &Application| version.version.as_ref().is_none_or(|name| one.description.version == *name);
    // They come from the oldest to the newest.
    let found = all.into_iter().rev().find(is_meant);
    found.ok_or_else(|| AppError::NoPackage { wanted: version.to_string(), versions })
}

/// Every file of a folder. Only files and folders may be in it, and no more than a package may have.
pub(super) fn folder(root: &Path) -> Result<Package, AppError> {
    let mut package = Package::default();
    walk(root, "", 0, &mut package)?;
    Ok(package)
}

/// The most folders in each other; deeper ones are refused by their paths.
const MAX_DEPTH: usize = 32;

fn walk(root: &Path, below: &str, depth: usize, package: &mut Package) -> Result<(), AppError> {
    let dir = root.join(below);
    let failed = FileError::read(&dir);
    let shown = |path: &Path| path.display().to_string();
    let too_much = |what, limit| AppError::TooMuch { from: shown(root), what, limit };
    if depth > MAX_DEPTH {
        return Err(too_much("folders in each other", MAX_DEPTH));
    }
    for entry in fs::read_dir(&dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, refused) = (entry.path(), |what| AppError::NotAFile { path: shown(&entry.path()), what });
        let Ok(name) = entry.file_name().into_string() else {
            return Err(refused("name that is not UTF-8"));
        };
        let below = if below.is_empty() { name } else { format!("{below}/{name}") };
        let kind = entry.file_type().map_err(FileError::read(&path))?;
        if kind.is_dir() {
            if below.to_lowercase() == ".git" {
                return Err(refused("Git repository"));
            }
            walk(root, &below, depth + 1, package)?;
        } else if kind.is_file() {
            if package.files.len() == MAX_FILES {
                return Err(too_much("files", MAX_FILES));
            }
            let left = MAX_BYTES.saturating_sub(package.size());
            let (bytes, mode) = read(&path, left)?.ok_or_else(|| too_much("bytes", MAX_BYTES))?;
            package.files.insert(below, PackageFile::new(bytes, mode));
        } else {
            return Err(refused(if kind.is_symlink() { "link" } else { "device, socket or pipe" }));
        }
    }
    Ok(())
}

/// The bytes and permissions of a file, unless it has more than `limit` bytes.
fn read(path: &Path, limit: usize) -> Result<Option<(Vec<u8>, u32)>, AppError> {
    let failed = FileError::read(path);
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok((bytes.len() <= limit).then_some((bytes, mode)))
}

/// The files of an archive, from where its `margo.yaml` is: at its top, or in its only folder.
fn archive(path: &Path) -> Result<Package, AppError> {
    let from = path.display().to_string();
    let gzip = read(path, MAX_BYTES)?;
    let (gzip, _) = gzip.ok_or_else(|| AppError::TooMuch { from: from.clone(), what: "bytes", limit: MAX_BYTES })?;
    unpack(&from, &gzip)
}

/// The same of its bytes.
pub(super) fn unpack(from: &str, gzip: &[u8]) -> Result<Package, AppError> {
    let limits = Limits { entries: 2 * MAX_FILES, bytes: MAX_BYTES, ..Limits::default() };
    let files = plain_files(gzip, &limits).map_err(|source| AppError::Archive { from: from.to_owned(), source })?;
    let top = files.keys().next().and_then(|path| path.split_once('/')).map(|(top, _)| format!("{top}/"));
    let top = top.filter(|top| !files.contains_key(MARGO_YAML) && files.keys().all(|path| path.starts_with(top)));
    let top = top.unwrap_or_default();
    let file = |(path, file): (&String, &repo_artifacts::File)| {
        Some((path.strip_prefix(&top)?.to_owned(), PackageFile::new(file.bytes.to_vec(), file.mode)))
    };
    Ok(Package { files: files.iter().filter_map(file).collect() })
}
