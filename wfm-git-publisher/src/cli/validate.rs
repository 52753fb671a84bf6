//! `validate`.

use repo_model::problem::Problems;
use repo_model::text;
use serde_json::json;

use super::{OutputArgs, Place};
use crate::config::Config;
use crate::error::{Failure, USER};
use crate::fleet::{self, Reading, SourceFile};
use crate::operator::fix;
use crate::plan::{Allowed, Blocked, Shown};
use crate::publish;
use crate::render::problems_of;
use crate::repos::{Home, Registries, work_tree};

/// Checks everything in the fleet, and tells every problem with its file, line and column
///
/// Looks at the work tree, so that mistakes are found before they are committed; with --rev at a commit, as `plan` and
/// `publish` do. With the publisher's home it accepts nothing that `plan` would refuse: values that can't change, what
/// devices can't run, guards. No registry is asked: of archives, charts and images it tells what the last `publish`
/// could not find. Exit code 0 if all is right, 1 if there is any problem.
///
///   wfm-git-publisher validate
///   wfm-git-publisher validate --rev HEAD~1
///   wfm-git-publisher validate --fix
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// A commit to look at instead of the work tree
    #[arg(long)]
    rev: Option<String>,

    /// Write the ids that are missing; nothing is committed
    #[arg(long, conflicts_with = "rev")]
    fix: bool,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    let root = place.root()?;
    let fixed = if args.fix { fix(&root)? } else { Vec::new() };
    let text = fixed.iter().map(|file| format!("{}: wrote its id\n", text::line(file))).collect::<String>();
    let files = match &args.rev {
        Some(rev) => {
            let source = place.source()?;
            source.files_on(source.resolve(rev)?, super::threads())?
        }
        None => work_tree(&root)?,
    };
    let Checked { problems, blocked, good, summary } = check(place, &files)?;
    args.output.print(
        &(text + &summary),
        || json!({ "valid": good, "fixed": fixed, "problems": super::problems_json(&problems), "blocked": blocked }),
    );
    Ok(if good { 0 } else { USER })
}

/// What is found in a fleet's files.
#[derive(Default)]
struct Checked {
    problems: Problems,
    /// What could not be published although its files are right.
    blocked: Vec<Blocked>,
    good: bool,
    /// One line for people, if all is right.
    summary: String,
}

fn check(place: &Place, files: &[SourceFile]) -> Result<Checked, Failure> {
    let Reading { fleet, problems } = fleet::read_on(files, super::threads());
    let Some(fleet) = fleet else {
        super::print_problems(&problems, "the fleet");
        return Ok(Checked { problems, ..Checked::default() });
    };
    let home = place.home()?;
    if let Some(ssh) = Config::load(&home.config())?.serve.and_then(|serve| serve.ssh) {
        wfm_git_host::ssh::check(&ssh, &home.ssh())?;
    }
    let mut checked = if home.check_ledger().is_ok() {
        check_as_plan(&home, files)?
    } else {
        eprintln!("note: there is no publisher's home here, so what devices have is not looked at");
        let problems = Problems([problems.0, problems_of(&fleet, super::threads()).0].concat());
        super::print_problems(&problems, "the fleet");
        Checked { good: !problems.has_errors(), problems, ..Checked::default() }
    };
    if checked.good {
        let (name, devices, deployments) =
            (text::line(&fleet.settings.name), fleet.devices.len(), fleet.deployments.len());
        checked.summary = format!("{name}: {devices} devices, {deployments} deployments, all right\n");
    }
    Ok(checked)
}

/// Tells what `plan` would refuse once these files are committed.
fn check_as_plan(home: &Home, files: &[SourceFile]) -> Result<Checked, Failure> {
    let registries = Registries::new(Default::default());
    let planned = super::with_options(&registries, None, &[], Allowed::default(), |options| {
        publish::check(home, files, &options)
    })?;
    super::print_problems(&planned.problems, "the fleet");
    super::plan::print_refused(&planned);
    let blocked = planned.devices.iter().flat_map(Shown::blocked).filter(|one| !one.is_shown_as_problem());
    let blocked: Vec<_> = blocked.cloned().collect();
    blocked.iter().for_each(|one| eprint!("{}", super::blocked_failure(one)));
    Ok(Checked { good: !planned.is_refused(), problems: planned.problems, blocked, summary: String::new() })
}
