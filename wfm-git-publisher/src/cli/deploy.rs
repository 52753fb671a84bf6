//! `deploy`.

mod ask;
mod edit;
mod options;
mod proposal;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};

use repo_model::DeploymentName;

use self::ask::Dialog;
use self::options::{AnswerArgs, Said};
use self::proposal::Proposal;
use super::{Place, threads};
use crate::error::Failure;
use crate::fleet::{self, Application, Fleet, Reading, Setting};
use crate::operator::app::{Version, find_app};
use crate::operator::deploy::{DeploymentFile, NewDeployment, Target, questions};
use crate::repos::FleetRepo;

/// Deploys an application of the fleet: asks what its package asks, shows the plan, and writes and commits the file
///
/// On a terminal it asks, section by section, and checks each answer by the package's rule; then for devices by their labels,
/// and says after each answer how many they are. What is given by options isn't asked. Before anything is written, the whole
/// fleet is checked with the new file in it, and it is said which devices get it, which of them can't run it, and what `publish`
/// would do. Then one commit is made, of deployments/<ID>.yaml alone, which is yours to change with an editor from then on.
///
///   wfm-git-publisher deploy hello --name hello-linz --targets site=linz --yes
///   wfm-git-publisher deploy hello@1.0.0 --name one --device press-01 --set interval=10 --yes
///
/// Where nobody can be asked, devices are named by --targets or --device, and --yes is needed. An answer is text as it is, a list
/// (a,b), or what YAML says it is; {valueFrom: {deviceFile: NAME}} is for a secret, and "{{ device.id }}" for a template.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// An application of the fleet; without a version its newest one
    #[arg(required = true, value_name = "APP[@VERSION]")]
    package: Option<Version>,

    /// The deployment's id; by default the application's
    #[arg(long, value_name = "ID")]
    name: Option<DeploymentName>,

    /// The profile by its id, or `auto`; needed where the application has more than one
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,

    #[command(flatten)]
    answers: AnswerArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Edit(edit::Args),
}

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    match (&args.command, &args.package) {
        (Some(Command::Edit(args)), _) => edit::run(place, args),
        (None, Some(package)) => create(place, args, package),
        (None, None) => Err(Failure::new("no application is named").hint("`app list` shows those of the fleet")),
    }
}

fn create(place: &Place, args: &Args, package: &Version) -> Result<u8, Failure> {
    let root = place.work_tree()?;
    let source = FleetRepo::open(&root)?;
    let head = source.resolve("HEAD")?;
    let files = source.files_on(head, threads())?;
    let application = find_app(package, &files)?;
    let id = name(args.name.as_ref(), &application)?;
    let file = DeploymentFile::new(&root, &files, &id)?;
    let before = fleet::read_on(&files, threads());
    let fleet = usable(&before)?;
    let mut said = Said::read(&args.answers, &application)?;
    let mut dialog = dialog(&args.answers);
    let mut profile = args.profile.clone();
    if let Some(dialog) = &mut dialog {
        file.check_clean()?;
        dialog.head(&application)?;
        if profile.is_none() {
            profile = dialog.profile(&application)?;
        }
        let asked = questions(&application, named(profile.as_deref()));
        said.add(dialog.parameters(&application, &asked, &said.parameters, &BTreeMap::new())?);
        if said.targets.is_empty() {
            said.targets = dialog.targets(fleet, None)?.unwrap_or_default();
        }
    }
    if said.targets.is_empty() {
        let failure = Failure::new("no devices are named, and nobody can be asked here");
        return Err(failure.hint("name them with --targets 'site=graz,line in (1,2)' or --device ID"));
    }
    let text = NewDeployment {
        id: &id,
        application: &application,
        profile: profile.as_deref(),
        targets: &said.targets,
        parameters: &said.parameters,
        has_schemas: root.join(".schemas/deployment.json").exists(),
    }
    .to_yaml();
    let (app, version) = application.key();
    let proposal = Proposal {
        place,
        head,
        id: &id,
        application: &application,
        profile: profile.as_deref(),
        file: &file,
        text,
        message: format!("{id}: deploy {app}@{version}"),
        said: &said,
        files: &files,
        before: &before,
    };
    proposal.conclude(&args.answers, dialog.as_mut())
}

/// The fleet, whatever is wrong in parts of it.
fn usable(reading: &Reading) -> Result<&Fleet, Failure> {
    let failure = || Failure::new("the fleet can't be used before it is right").problems(&reading.problems);
    reading.fleet.as_ref().ok_or_else(failure)
}

fn name(wanted: Option<&DeploymentName>, application: &Application) -> Result<DeploymentName, Failure> {
    let id = &application.description.id;
    let own = || id.as_str().parse().ok();
    wanted.cloned().or_else(own).ok_or_else(|| {
        Failure::new(format!("`{id}` can't be the id of a deployment")).hint("give it another one with --name")
    })
}

/// The profile whose parameters count; with `auto` it may be any.
fn named(profile: Option<&str>) -> Option<&str> {
    profile.filter(|id| *id != "auto")
}

/// Whoever can be asked: a person at a terminal who didn't say `--yes`, and wants no JSON.
fn dialog(args: &AnswerArgs) -> Option<Dialog<io::StdinLock<'static>, io::Stdout>> {
    let can_ask = io::stdin().is_terminal() && !args.yes && !args.output.is_json();
    can_ask.then(|| Dialog::new(io::stdin().lock(), io::stdout()))
}

/// The values that an operator gave, by the parameters' names.
type Settings = BTreeMap<String, Setting>;

/// What is asked for in a list of targets.
type Targets = Vec<Target>;
