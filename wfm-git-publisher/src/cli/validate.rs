//! `validate`.

use repo_model::problem::Problems;
use repo_model::text;

use super::Place;
use crate::error::{Failure, USER};
use crate::fleet::{self, Reading, SourceFile};
use crate::host::{Home, Registries, work_tree};
use crate::operator::fix;
use crate::plan::{Allowed, Shown};
use crate::publish;
use crate::render::problems_of;

/// Checks everything in the fleet, and tells every problem with its file, line and column
///
/// Looks at the work tree, so that mistakes are found before they are committed; with --rev at a commit, as `plan` and
/// `publish` do. With the publisher's home it accepts nothing that `plan` would refuse: values that can't change, what
/// devices can't run, guards. No registry is asked: of archives, charts and images it tells what the last `publish`
/// could not find. Exit code 0 if all is right, 1 if there is any problem.
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
    let Reading { fleet, problems } = fleet::read_on(&files, super::threads());
    let Some(fleet) = fleet else {
        super::print_problems(&problems, "the fleet");
        return Ok(USER);
    };
    let home = place.home()?;
    let good = if home.check_memory().is_ok() {
        is_publishable(&home, &files)?
    } else {
        eprintln!("note: there is no publisher's home here, so what devices have is not looked at");
        let problems = Problems([problems.0, problems_of(&fleet, super::threads()).0].concat());
        super::print_problems(&problems, "the fleet");
        !problems.has_errors()
    };
    if !good {
        return Ok(USER);
    }
    let (devices, deployments) = (fleet.devices.len(), fleet.deployments.len());
    let name = text::line(&fleet.settings.name);
    super::print(&format!("{name}: {devices} devices, {deployments} deployments, all right\n"));
    Ok(0)
}

/// Tells what `plan` would refuse once these files are committed; whether there is nothing of that kind.
fn is_publishable(home: &Home, files: &[SourceFile]) -> Result<bool, Failure> {
    let registries = Registries::new(Default::default());
    let planned = super::with_options(&registries, None, &[], Allowed::default(), |options| {
        publish::check(home, files, &options)
    })?;
    super::print_problems(&planned.problems, "the fleet");
    super::plan::print_refused(&planned);
    for one in planned.devices.iter().flat_map(Shown::blocked).filter(|one| !one.is_told_as_problem()) {
        eprint!("{}", super::blocked_failure(one));
    }
    Ok(!planned.is_refused())
}
