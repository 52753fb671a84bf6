//! `validate`.

use repo_model::problem::Problems;
use repo_model::text;
use serde_json::json;

use super::Place;
use super::formats::{Format, Found};
use crate::config::Config;
use crate::error::{Failure, USER};
use crate::fleet::{self, Fleet, Reading, SourceFile};
use crate::operator::{Fix, fix};
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
/// With --fix it first puts right in the fleet's own files what can be meant in one way only: a key or the name of a parameter that is
/// like one that there is, quotes that are missing or too many, `.yml` at the end of a name, an id that is missing. What it wrote is told,
/// and `git diff` shows it.
///
///   wfm-git-publisher validate
///   wfm-git-publisher validate --rev HEAD~1
///   wfm-git-publisher validate --fix
///   wfm-git-publisher validate --output sarif > fleet.sarif
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// A commit to look at instead of the work tree
    #[arg(long)]
    rev: Option<String>,

    /// Put right what can be meant in one way only; nothing is committed
    #[arg(long, conflicts_with = "rev")]
    fix: bool,

    /// Prints for people, for programs, for reviews or for pipelines
    #[arg(long, alias = "format", value_enum, default_value_t)]
    output: Format,
}

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    let root = place.root()?;
    let fixes = if args.fix { fix(&root, super::threads())? } else { Vec::new() };
    let told = |Fix { file, what }: &Fix| format!("{}: {}\n", text::line(file), text::line(what));
    let text = fixes.iter().map(told).collect::<String>();
    let files = match &args.rev {
        Some(rev) => {
            let source = place.source()?;
            source.files_on(source.resolve(rev)?, super::threads())?
        }
        None => work_tree(&root)?,
    };
    let Checked { found, problems, blocked, good, summary } = check(place, &files, args.output)?;
    args.output.print(
        || text + &summary,
        || json!({ "valid": good, "fixed": fixes, "problems": super::problems_json(&problems), "blocked": blocked }),
        || found,
    );
    Ok(if good { 0 } else { USER })
}

/// What is found in a fleet's files.
struct Checked {
    found: Found,
    problems: Problems,
    /// What could not be published although its files are right.
    blocked: Vec<Blocked>,
    good: bool,
    /// One line for people, if all is right.
    summary: String,
}

fn check(place: &Place, files: &[SourceFile], output: Format) -> Result<Checked, Failure> {
    let Reading { fleet, problems } = fleet::read_on(files, super::threads());
    let Some(fleet) = fleet else { return Ok(of_files(problems, None, output)) };
    let home = place.home()?;
    if let Some(ssh) = Config::load(&home.config())?.serve.and_then(|serve| serve.ssh) {
        wfm_git_host::ssh::check(&ssh, &home.ssh())?;
    }
    if home.check_ledger().is_ok() {
        return check_as_plan(&home, files, output);
    }
    eprintln!("note: there is no publisher's home here, so what devices have is not looked at");
    let problems = Problems([problems.0, problems_of(&fleet, super::threads()).0].concat());
    Ok(of_files(problems, Some(&fleet), output))
}

/// What is wrong in the files themselves; without a fleet not even its settings can be read.
fn of_files(problems: Problems, fleet: Option<&Fleet>, output: Format) -> Checked {
    if !output.is_log() {
        super::print_problems(&problems, "the fleet");
    }
    let good = fleet.is_some() && !problems.has_errors();
    let summary = fleet.filter(|_| good).map(all_right).unwrap_or_default();
    let found = Found::of_files("validate", &problems, fleet, &summary);
    Checked { found, problems, blocked: Vec::new(), good, summary }
}

/// Tells what `plan` would refuse once these files are committed.
fn check_as_plan(home: &Home, files: &[SourceFile], output: Format) -> Result<Checked, Failure> {
    let registries = Registries::new(Default::default());
    let planned = super::with_options(&registries, None, &[], Allowed::default(), |options| {
        publish::check(home, files, &options)
    })?;
    let blocked = planned.devices.iter().flat_map(Shown::blocked).filter(|one| !one.is_shown_as_problem());
    let blocked: Vec<_> = blocked.cloned().collect();
    if !output.is_log() {
        super::print_problems(&planned.problems, "the fleet");
        super::plan::print_refused(&planned);
        blocked.iter().for_each(|one| eprint!("{}", super::blocked_failure(one)));
    }
    let good = !planned.is_refused();
    let summary = if good { all_right(&planned.fleet) } else { String::new() };
    let found = Found::of_planned("validate", &planned, &summary);
    Ok(Checked { found, problems: planned.problems, blocked, good, summary })
}

fn all_right(fleet: &Fleet) -> String {
    let (name, devices, deployments) = (text::line(&fleet.settings.name), fleet.devices.len(), fleet.deployments.len());
    format!("{name}: {devices} devices, {deployments} deployments, all right\n")
}
