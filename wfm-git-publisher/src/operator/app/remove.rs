//! A package leaves the fleet, unless something there needs it.

use std::path::Path;

use repo_git::CommitId;
use repo_model::problem::Problem;
use repo_model::text;

use super::error::AppError;
use crate::fleet::{self, MARGO_YAML, Named, SourceFile, Use};
use crate::repos::{FleetRepo, StockGit, work_tree};

/// A package that isn't in the fleet any more, or wouldn't be.
#[derive(Debug)]
pub struct RemovedApp {
    /// What was its folder in the fleet repository.
    pub folder: String,
    /// How many files of it there were.
    pub files: usize,
}

/// Takes a version of an application out of the fleet, as one commit. What was cut off is completed by the same again.
pub fn remove_app(root: &Path, application: &str, version: &str, dry_run: bool) -> Result<RemovedApp, AppError> {
    let (fleet, git) = (FleetRepo::open(root)?, StockGit::new(root));
    let head = fleet.resolve("HEAD")?;
    let folder = format!("applications/{application}/{version}");
    let package = format!("{application}@{version}");
    let Some(committed) = fleet.package(head, &folder)? else {
        return Err(if root.join(&folder).exists() {
            AppError::Dirty(folder)
        } else {
            none(&fleet, head, application, package)?
        });
    };
    for files in [fleet.files(head)?, work_tree(root)?] {
        check_unused(&files, application, version)?;
        check_unneeded(files, &folder, &package)?;
    }
    if root.join(&folder).exists() && git.has_uncommitted(&folder)? {
        return Err(AppError::Dirty(folder));
    }
    if !dry_run {
        git.remove(&folder, &format!("{application}: remove version {version}"))?;
    }
    Ok(RemovedApp { folder, files: committed.files.len() })
}

/// The error that there is no such version.
fn none(fleet: &FleetRepo, head: CommitId, application: &str, wanted: String) -> Result<AppError, AppError> {
    let (all, _) = fleet::read_applications(&fleet.files(head)?);
    let ours = all.into_iter().filter(|one| one.description.id.as_str() == application);
    Ok(AppError::NoPackage { wanted, versions: ours.map(|one| one.description.version).collect() })
}

/// Whether no deployment names it, as far as that can be told.
fn check_unused(files: &[SourceFile], application: &str, version: &str) -> Result<(), AppError> {
    let uses = fleet::uses(files);
    let package = format!("{application}@{version}");
    let name = |one: &Use| match &one.deployment {
        Some(id) => format!("`{}` ({})", text::line(id), text::line(&one.file)),
        None => text::line(&one.file),
    };
    let users: Vec<_> = uses.iter().filter(|one| one.is_of(application, version)).map(name).collect();
    if !users.is_empty() {
        return Err(AppError::Used { package, users });
    }
    let unknown = uses.into_iter().filter(|one| one.named == Named::Unknown);
    let files: Vec<_> = unknown.map(|one| text::line(&one.file)).collect();
    if files.is_empty() { Ok(()) } else { Err(AppError::Unreadable { package, files }) }
}

/// Whether nothing else would be wrong without it, such as a group of `fleet.yaml` that is about the application.
fn check_unneeded(mut files: Vec<SourceFile>, folder: &str, package: &str) -> Result<(), AppError> {
    let before = fleet::read(&files).problems;
    files.retain(|file| file.path != format!("{folder}/{MARGO_YAML}"));
    let mut after = fleet::read(&files).problems;
    // What a hint lists may be less.
    let is_new = |problem: &Problem| !before.iter().any(|known| known.to_string() == problem.to_string());
    after.0.retain(|problem| is_new(problem));
    match after.has_errors() {
        true => Err(AppError::Needed { package: package.to_owned(), problems: after }),
        false => Ok(()),
    }
}
