//! `app remove`.

use serde_json::json;

use super::super::{OutputArgs, Place};
use crate::error::Failure;
use crate::operator::app::{Version, remove_app};

/// Takes a version of an application out of the fleet
///
/// Removes its folder and commits that, unless a deployment names the version. Nothing changes on any device by this.
///
///   wfm-git-publisher app remove hello@1.1.0 --dry-run
///   wfm-git-publisher app remove hello@1.1.0
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct RemoveArgs {
    /// The version, `APP@VERSION`
    #[arg(value_name = "APP@VERSION")]
    package: Version,

    /// Only say what would be removed; nothing is written
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: &RemoveArgs) -> Result<u8, Failure> {
    let Version { application, version: Some(version) } = &args.package else {
        return Err(Failure::new("no version is named").hint("write it like hello@1.0.0"));
    };
    let removed = remove_app(&place.work_tree()?, application.as_str(), version, args.dry_run)?;
    let said = if args.dry_run { "would be removed" } else { "is removed" };
    let next = if args.dry_run { "" } else { place.next_push()? };
    let text = format!("{} {said}: {} ({} files)\n{next}", args.package, removed.folder, removed.files);
    args.output.print(&text, || {
        json!({
            "application": application,
            "version": version,
            "folder": removed.folder,
            "files": removed.files,
            "dryRun": args.dry_run,
        })
    });
    Ok(0)
}
