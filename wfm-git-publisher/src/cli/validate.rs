//! `validate`.

use repo_model::problem::Problems;
use repo_model::text;

use super::Place;
use crate::error::{Failure, USER};
use crate::fleet::{self, Fleet, Reading};
use crate::host::{Control, work_tree};
use crate::operator::fix;
use crate::publish;
use crate::render::{has_charts, problems_of};

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
            super::print(&format!("{}: wrote its id\n", text::line(&file)));
        }
    }
    let files = match &args.rev {
        Some(rev) => {
            let source = place.source()?;
            source.files_on(source.resolve(rev)?, super::threads())?
        }
        None => work_tree(&root)?,
    };
    let Reading { fleet, mut problems } = fleet::read_on(&files, super::threads());
    problems.extend(fleet.iter().flat_map(|fleet| problems_of(fleet, super::threads())));
    problems.extend(fleet.iter().filter(|fleet| has_charts(fleet)).flat_map(|fleet| undeclared(place, fleet)));
    super::print_problems(&problems, "the fleet");
    match fleet {
        Some(fleet) if !problems.has_errors() => {
            let (devices, deployments) = (fleet.devices.len(), fleet.deployments.len());
            super::print(&format!(
                "{}: {devices} devices, {deployments} deployments, all right\n",
                text::line(&fleet.settings.name)
            ));
            Ok(0)
        }
        _ => Ok(USER),
    }
}

/// What is set in charts that they don't know, as far as they were published from here.
fn undeclared(place: &Place, fleet: &Fleet) -> Problems {
    let read = place.home().ok().and_then(|home| Some((Control::read_locks(&home).ok()?.0, home)));
    read.map(|(locks, home)| publish::undeclared(&home, fleet, &locks)).unwrap_or_default()
}
