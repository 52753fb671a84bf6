//! `plan`.

use jiff::Timestamp;
use repo_git::CommitId;
use repo_model::problem::Problem;
use repo_model::{DeviceId, error_chain};
use serde_json::{Value, json};

use super::formats::{Format, Found};
use super::{Place, threads};
use crate::coverage::NotCovered;
use crate::error::{DIFFERENCES, Failure, USER};
use crate::fleet::SETTINGS;
use crate::hosting::Proposed;
use crate::plan::{Allowed, Shown, summary, to_json, to_text, to_text_of_each};
use crate::publish::{self, Planned, PublishError, RolloutProgress};
use crate::repos::{Control, CoverageError, Registries};

/// Shows what `publish` would change: per deployment, per parameter, old → new, and on which devices
///
/// The same change on many devices is told once, and what a person has to look at comes first; --each tells it device by device.
///
/// Reads the fleet at a commit, never the work tree, asks no registry and changes nothing. What a rollout holds back is shown
/// apart, as held back; the first lines say what `publish` would decide about rollouts. Exit code 0 if every device has what
/// the fleet says, but for what is held back, 3 if something differs that `publish` would publish, 1 if something can't be published: a
/// problem, a guard, too few who agreed (signers.yaml), or an archive, chart or image that the last publish could not find.
///
///   wfm-git-publisher plan
///   wfm-git-publisher plan press-01 press-02 --rev my-branch
///   wfm-git-publisher plan --each
///   wfm-git-publisher plan --output markdown > comment.md
///   wfm-git-publisher plan --output json | jq '.devices[] | select(.state == "changed")'
///
/// The other forms are for pipelines: docs/pipelines.md.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Only these devices, by id; all of the fleet where none is named
    devices: Vec<DeviceId>,

    /// The commit of the fleet
    #[arg(long, default_value = "HEAD")]
    rev: String,

    /// Tell people of each device by itself, also where the same changes on many; JSON always does
    #[arg(long)]
    each: bool,

    /// Prints for people, for programs, for reviews or for pipelines
    #[arg(long, alias = "format", value_enum, default_value_t)]
    output: Format,
}

pub(super) fn run(place: &Place, args: Args) -> Result<u8, Failure> {
    let rev = args.rev.clone();
    super::with_committed(place, &rev, || run_committed(place, args))
}

/// Tells why nothing can be published, for any device or for some.
pub(super) fn print_refused(planned: &Planned) {
    if let Some(error) = &planned.clock {
        eprint!("{}", Failure::of(error));
    }
    if let Some(error) = &planned.not_covered {
        eprint!("{}", Failure::of(error));
    }
    for (device, error) in &planned.failed {
        eprint!("{}", super::publish::device_failure(device, error));
    }
}

/// Who has to agree to what, for programs; as a text where it is something else that is wrong.
fn not_covered(error: &PublishError) -> Value {
    if let PublishError::NotCovered { source, .. } = error
        && let CoverageError::NotCovered(NotCovered::Missing(missing)) = source.as_ref()
    {
        return json!(missing);
    }
    json!(error_chain(error))
}

fn run_committed(place: &Place, args: Args) -> Result<u8, Failure> {
    let (home, source) = (place.home()?, place.seen_source(&args.rev)?);
    let registries = Registries::new(Default::default());
    let planned = super::with_options(&registries, None, &args.devices, Allowed::default(), |options| {
        publish::plan(&home, &source, &args.rev, &options)
    });
    match planned {
        Ok(planned) => {
            place.note_hosted(&args.rev, planned.commit)?;
            show(place, &args, &planned)
        }
        Err(error) => show_unusable(&args, source.resolve(&args.rev)?, error),
    }
}

/// Shows what `publish` would change if these files were committed.
pub(super) fn run_proposed(place: &Place, mut args: Args, proposed: &Proposed) -> Result<u8, Failure> {
    let (home, source) = (place.home()?, place.seen_source(&args.rev)?);
    let commit = source.resolve(&args.rev)?;
    let files = proposed.over(source.files_on(commit, threads())?);
    args.devices.extend(proposed.devices.iter().cloned());
    let registries = Registries::new(Default::default());
    let planned = super::with_options(&registries, None, &args.devices, Allowed::default(), |options| {
        publish::check(&home, &files, &options)
    });
    match planned {
        Ok(planned) => show(place, &args, &Planned { commit, ..planned }),
        Err(error) => show_unusable(&args, commit, error),
    }
}

/// Tells in each form why the fleet can't be used; what else went wrong is an error.
fn show_unusable(args: &Args, commit: CommitId, error: PublishError) -> Result<u8, Failure> {
    let problems = match &error {
        PublishError::Fleet(problems) => problems.clone(),
        PublishError::OtherFleet { .. } => Problem::error(SETTINGS, error.to_string()).into(),
        _ => return Err(error.into()),
    };
    if args.output == Format::Text {
        return Err(error.into());
    }
    if !args.output.is_log() {
        eprint!("{}", Failure::of(&error));
    }
    let json = || {
        json!({
            "commit": commit,
            "problems": super::problems_json(&problems),
            "blocked": [publish::of_pass(&error)],
            "notCovered": null,
            "devices": [],
            "rollouts": null,
        })
    };
    args.output.print(String::new, json, || Found::of_files("plan", &problems, None, &error.to_string()));
    Ok(USER)
}

fn show(place: &Place, args: &Args, planned: &Planned) -> Result<u8, Failure> {
    let home = place.home()?;
    if !args.output.is_log() {
        super::print_problems(&planned.problems, &format!("the fleet at {}", &planned.commit.to_string()[..12]));
    }
    super::print_unidentified(&planned.unidentified);
    super::remind(&home, &Control::read_rosters(&home)?, Timestamp::now());
    if !args.output.is_log() {
        print_refused(planned);
    }
    let text = || {
        let rollouts = planned.rollouts.as_ref().map(RolloutProgress::to_text).unwrap_or_default();
        let devices = &planned.devices;
        rollouts + &if args.each { to_text_of_each(devices) } else { to_text(devices, &planned.fleet) }
    };
    let json = || {
        json!({
            "commit": planned.commit,
            "problems": super::problems_json(&planned.problems),
            "blocked": planned.refusals_of_all().collect::<Vec<_>>(),
            "notCovered": planned.not_covered.as_ref().map(not_covered),
            "devices": to_json(&planned.devices),
            "rollouts": planned.rollouts.as_ref().map(RolloutProgress::to_json),
        })
    };
    let found = || Found::of_planned("plan", planned, &summary(&planned.devices)).with_changes(planned);
    args.output.print(text, json, found);
    let unknown = super::print_unknown(&args.devices, planned.devices.iter().map(Shown::device));
    match () {
        () if unknown || planned.is_refused() => Ok(USER),
        () if planned.devices.iter().any(Shown::differs) => Ok(DIFFERENCES),
        () => Ok(0),
    }
}
