//! `app push`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use repo_artifacts::compose::check_variable;
use repo_model::margo::{ApplicationDescription, Component, ProfileType, Source};
use serde_json::json;

use super::super::{OutputArgs, Place, Progress, RegistryArgs};
use crate::error::Failure;
use crate::fleet::MARGO_YAML;
use crate::render::{Artifact, Locks};
use crate::repos::{ArtifactError, Control, pack};

/// The fleet's folder of packages, by application and version.
const APPLICATIONS: &str = "applications";

/// Packs an application's compose files and pushes them to the registry that its margo.yaml names
///
/// For each component of a compose profile the folder compose/<component>/ beside margo.yaml becomes one compose
/// archive, pushed under the component's `repository` and `revision`. The same files always make the same bytes. What
/// was once published under a tag keeps its meaning for ever: raise the version to change it. So it is checked before as
/// devices check it, and what all of them would refuse isn't pushed. Charts are pushed by helm
/// itself: `helm package` and `helm push`. With --all that is done for each version in the fleet's applications/, and nothing is
/// pushed unless all of them are right.
///
///   wfm-git-publisher app push applications/hello/1.0.0
///   wfm-git-publisher app push --all
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct PushArgs {
    /// The folder with margo.yaml; as it is from here, or from the fleet repository
    #[arg(required_unless_present = "all")]
    dir: Option<PathBuf>,

    /// Every version in the fleet's applications/ that has compose files of its own beside margo.yaml
    #[arg(long, conflicts_with = "dir")]
    all: bool,

    #[command(flatten)]
    registry: RegistryArgs,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: &PushArgs) -> Result<u8, Failure> {
    let dirs = match &args.dir {
        Some(dir) if dir.is_dir() => vec![dir.clone()],
        Some(dir) => vec![place.root()?.join(dir)],
        None => versions(&place.root()?)?,
    };
    let locks = place.home().ok().and_then(|home| Control::read(&home).ok()).map(|(ledger, _)| ledger.locks);
    let registries = place.registries(&args.registry)?;
    let mut packed = BTreeMap::new();
    for dir in &dirs {
        pack_version(dir, locks.as_ref(), &mut packed)?;
    }
    if packed.is_empty() {
        let hint = "put each component's compose.yaml into compose/<component>/ beside margo.yaml";
        let place = args.dir.as_ref().map_or_else(|| APPLICATIONS.to_owned(), |dir| dir.display().to_string());
        return Err(Failure::new(format!("there is nothing to push in `{place}`")).hint(hint));
    }
    // Only once everything is right the first tag gets its meaning.
    let (mut text, mut json) = (String::new(), Vec::new());
    let (progress, all) = (Progress::start("pushing archives"), packed.len());
    for (done, (artifact, archive)) in packed.into_iter().enumerate() {
        progress.show("pushing", "archives", done, all);
        let lock = registries.push(&artifact, archive)?;
        text += &format!("{artifact}\n  archive  {}\n  manifest {}\n", lock.content, lock.manifest);
        json.push(json!({ "artifact": artifact.to_string(), "archive": lock.content, "manifest": lock.manifest }));
    }
    drop(progress);
    args.output.print(&text, || json!({ "pushed": json }));
    Ok(0)
}

/// The folders of all versions, in the order of their names.
fn versions(root: &Path) -> Result<Vec<PathBuf>, Failure> {
    let folders = |path: &Path| -> Result<Vec<PathBuf>, Failure> {
        let failed = |error| Failure::new(format!("cannot read `{}`: {error}", path.display()));
        let entries = std::fs::read_dir(path).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        paths.sort();
        Ok(paths)
    };
    let applications = folders(&root.join(APPLICATIONS))?;
    let versions = applications.iter().map(|path| folders(path)).collect::<Result<Vec<_>, _>>()?;
    Ok(versions.into_iter().flatten().filter(|path| path.join(MARGO_YAML).is_file()).collect())
}

/// Packs what a version has here, and nothing that is packed already.
fn pack_version(dir: &Path, locks: Option<&Locks>, packed: &mut BTreeMap<Artifact, Vec<u8>>) -> Result<(), Failure> {
    let description = read(dir)?;
    check_variables(&description).map_err(|failure| failure.about(dir.display().to_string()))?;
    let profiles = description.profiles.iter().filter(|profile| profile.kind == ProfileType::Compose);
    for component in profiles.flat_map(|profile| &profile.components) {
        let Some((artifact, folder)) = source(dir, component) else { continue };
        let (archive, content) = pack(&folder, component.name.as_str()).map_err(refused)?;
        match packed.get(&artifact) {
            Some(other) if *other != archive => {
                let message = format!("{artifact} is in two packages with other files, at last in `{}`", dir.display());
                return Err(Failure::new(message).hint("raise the version and `revision` in one of them"));
            }
            Some(_) => {}
            None => {
                check_lock(&artifact, content, locks)?;
                packed.insert(artifact, archive);
            }
        }
    }
    Ok(())
}

fn read(dir: &Path) -> Result<ApplicationDescription, Failure> {
    let path = dir.join(MARGO_YAML);
    let file = path.display().to_string();
    let bytes = std::fs::read(&path).map_err(|error| Failure::new(format!("cannot read `{file}`: {error}")))?;
    match ApplicationDescription::read(&file, &bytes) {
        Ok((description, _)) => Ok(description),
        Err(problems) => Err(Failure::new(format!("`{file}` can't be used")).problems(&problems)),
    }
}

/// One error with each reason, for whoever corrects the folder.
fn refused(error: ArtifactError) -> Failure {
    match error {
        ArtifactError::Refused { ref reasons, .. } => {
            let failure = reasons.iter().fold(Failure::new(error.to_string()), |all, reason| all.cause(reason.clone()));
            failure.hint("correct it: a tag keeps its meaning for ever, so nothing was pushed")
        }
        error => error.into(),
    }
}

/// Refuses parameters that would set variables which no device sets.
fn check_variables(description: &ApplicationDescription) -> Result<(), Failure> {
    let profiles = description.profiles.iter().filter(|profile| profile.kind == ProfileType::Compose);
    let components: BTreeSet<_> = profiles.flat_map(|one| &one.components).map(|one| &one.name).collect();
    for (name, parameter) in &description.parameters {
        let targets = parameter.targets.iter().filter(|one| one.components.iter().any(|one| components.contains(one)));
        for target in targets {
            if let Err(rule) = check_variable(target.place(ProfileType::Compose)) {
                let message = format!("margo.yaml: parameter `{name}`: `{}`: {rule}", target.pointer);
                return Err(Failure::new(message).hint("choose another variable: every device refuses this one"));
            }
        }
    }
    Ok(())
}

/// Where a component's folder goes, if it has one here.
fn source(dir: &Path, component: &Component) -> Option<(Artifact, PathBuf)> {
    let Source::Oci { .. } = &component.source else { return None };
    let folder = dir.join("compose").join(component.name.as_str());
    folder.is_dir().then(|| (Artifact::of(ProfileType::Compose, component), folder))
}

fn check_lock(artifact: &Artifact, content: repo_model::Digest, locks: Option<&Locks>) -> Result<(), Failure> {
    match locks.and_then(|locks| locks.get(artifact)) {
        Some(lock) if lock.content != content => {
            let message = format!("{artifact} was published with other files ({})", lock.content);
            Err(Failure::new(message).hint("raise the version and `revision` in margo.yaml: a tag keeps its meaning"))
        }
        _ => Ok(()),
    }
}
