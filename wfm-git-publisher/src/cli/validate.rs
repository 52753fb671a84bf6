//! `validate`.

use super::Place;
use crate::error::{Failure, USER};
use crate::fleet;
use crate::host::work_tree;
use crate::operator::fix;

/// Checks everything in the fleet, and tells every problem with its file, line and column
///
/// Looks at the work tree, so that mistakes are found before they are committed; with --rev at a commit, as `plan` and
/// `publish` do. Exit code 1 if there is any problem.
///
///   wfm-git-publisher validate
///   wfm-git-publisher validate --rev HEAD~1
///   wfm-git-publisher validate --fix         writes missing ids, from the names of the files
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// A commit to look at instead of the work tree
    #[arg(long)]
    rev: Option<String>,

    /// Write the ids that are missing; nothing is committed
    #[arg(long, conflicts_with = "rev")]
    fix: bool,
}

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    let root = place.root()?;
    if args.fix {
        for file in fix(&root)? {
            super::print(&format!("{file}: wrote its id\n"));
        }
    }
    let files = match &args.rev {
        Some(rev) => {
            let source = place.source()?;
            source.files(source.resolve(rev)?)?
        }
        None => work_tree(&root)?,
    };
    let reading = fleet::read(&files);
    super::print_problems(&reading.problems, "the fleet");
    match reading.fleet {
        Some(fleet) if !reading.problems.has_errors() => {
            let (devices, deployments) = (fleet.devices.len(), fleet.deployments.len());
            super::print(&format!("{}: {devices} devices, {deployments} deployments, all right\n", fleet.name));
            Ok(0)
        }
        _ => Ok(USER),
    }
}
