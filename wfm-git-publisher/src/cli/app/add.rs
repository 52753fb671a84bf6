//! `app add`.

use repo_model::Digest;
use repo_model::text;
use serde_json::{Value, json};

use super::super::{OutputArgs, Place, Progress, RegistryArgs, problems_json};
use crate::error::{Failure, warning};
use crate::fleet::Package;
use crate::operator::app::{AddedApp, Origin, Places, add_app, check_app, get};
use crate::repos::FleetRepo;

/// Brings an application package into the fleet, as it is
///
/// Checks everything in it as `validate` does, then writes it to applications/<APP>/<VERSION>, byte for byte, and commits that.
/// Nothing is deployed by this: a deployment names the version. What a version means is settled: one that is in the fleet with
/// other files is refused, and the same again changes nothing. Files that git or another file system would take for
/// something else (links, .git, .gitattributes, names that differ by case alone) are refused.
///
///   wfm-git-publisher app add vendor/hello
///   wfm-git-publisher app add hello-1.1.0.tar.gz
///   wfm-git-publisher app add hello-1.1.0.tar.gz --dry-run
///
/// From a registry, as Margo has it; and from a Git repository, of which one commit is fetched and nothing checked out or run:
///
///   wfm-git-publisher app add oci://registry.example/apps/hello:1.1.0
///   wfm-git-publisher app add git+https://git.example/hello.git@v1.1.0//packages/hello
///
/// See first what an update changes: wfm-git-publisher app diff hello@1.0.0 hello-1.1.0.tar.gz
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct AddArgs {
    /// A folder with margo.yaml, a .tar.gz of one, oci://HOST/PATH:TAG (or @sha256:…), or git+https://HOST/PATH@REV[//FOLDER]
    #[arg(value_name = "PACKAGE")]
    origin: Origin,

    /// Only check it; nothing is written
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    registry: RegistryArgs,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: &AddArgs) -> Result<u8, Failure> {
    let root = place.work_tree()?;
    let fleet = FleetRepo::open(&root)?;
    let (commit, registries) = (fleet.resolve("HEAD")?, place.registries(&args.registry)?);
    let progress = Progress::start("fetching the package");
    let got = get(&args.origin, &Places { fleet: &fleet, commit, registries: &registries })?;
    drop(progress);
    let (from, revision) = (args.origin.to_string(), got.revision.clone());
    let added = match args.dry_run {
        true => check_app(&root, got)?,
        false => add_app(&root, got, &from)?,
    };
    added.warnings.warnings().for_each(|problem| eprint!("{}", warning(problem)));
    let AddedApp { application, folder, package, was_there, warnings } = &added;
    let (id, version) = application.key();
    let said = match (was_there, args.dry_run) {
        (true, _) => "is in the fleet already",
        (false, true) => "would come into the fleet",
        (false, false) => "is in the fleet now",
    };
    let next = if *was_there || args.dry_run { "" } else { place.next_push()? };
    let text = format!("{id}@{} {said}: {folder} ({})\n{next}", text::line(&version), size(package));
    args.output.print(&text, || {
        json!({
            "application": id,
            "version": version,
            "folder": folder,
            "from": from,
            "revision": revision,
            "files": files_json(package),
            "wasThere": was_there,
            "dryRun": args.dry_run,
            "problems": problems_json(warnings),
        })
    });
    Ok(0)
}

pub(super) fn size(package: &Package) -> String {
    let files = if package.files.len() == 1 { "1 file".to_owned() } else { format!("{} files", package.files.len()) };
    format!("{files}, {} bytes", package.size())
}

pub(super) fn files_json(package: &Package) -> Value {
    let one = |(path, file): (&String, &crate::fleet::PackageFile)| json!({ "path": path, "bytes": file.bytes.len(), "digest": Digest::of(&file.bytes) });
    package.files.iter().map(one).collect()
}
