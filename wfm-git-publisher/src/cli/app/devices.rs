//! `app devices` and `device apps`.

use jiff::Timestamp;
use repo_model::problem::Problems;
use repo_model::{ApplicationId, DeviceId};
use serde_json::json;

use super::super::{AtRevision, Place, print_problems, table, threads};
use crate::error::Failure;
use crate::explain::{Answer, CanRun, Deployed, can_run};
use crate::fleet::{Application, read_applications};
use crate::operator::app::{AppError, Version};
use crate::publish::known_devices;

/// Shows which devices can run an application, and for each that can't, why not
///
/// By what the devices verifiably report of themselves, and by the same rules as `plan` and `publish`. `runs`: this version
/// is installed there. `yes`: a profile of it fits. `no`: none does, or the device is retired; what it lacks for each profile is
/// named. `unknown`: the device hasn't said what it has. HAS is what is published for it already, and its state.
///
///   wfm-git-publisher app devices hello            (its newest version)
///   wfm-git-publisher app devices hello@1.0.0 --output json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct DevicesArgs {
    /// An application of the fleet, `APP` or `APP@VERSION`
    #[arg(value_name = "APP[@VERSION]")]
    package: Version,

    #[command(flatten)]
    how: AtRevision,
}

/// Shows which applications of the fleet a device can run, and for each that it can't, why not
///
/// Every version in the fleet, by the same rules as `app devices`.
///
///   wfm-git-publisher device apps press-01
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct AppsArgs {
    /// The device, by its id such as `press-01`
    device: DeviceId,

    #[command(flatten)]
    how: AtRevision,
}

pub(in crate::cli) fn run(place: &Place, args: &DevicesArgs) -> Result<u8, Failure> {
    let Version { application, version } = &args.package;
    let of = |one: &Application| one.description.id == *application;
    let all = judged(place, &args.how, None, |all| {
        let ours: Vec<_> = all.iter().filter(|one| of(one)).collect();
        let wanted = ours.iter().rev().find(|one| version.as_ref().is_none_or(|name| one.description.version == *name));
        let missing = || {
            let mut failure = Failure::from(no_package(&args.package, application, all));
            failure.is_missing = true;
            failure
        };
        wanted.map(|one| vec![*one]).ok_or_else(missing)
    })?;
    let head = all.first().map(|one| format!("{}@{}\n", one.application, one.version)).unwrap_or_default();
    let text = head + &rows("DEVICE", &all, |one| one.device.to_string());
    args.how.output.print(&text, || json!({ "devices": all }));
    Ok(0)
}

pub(in crate::cli) fn run_apps(place: &Place, args: &AppsArgs) -> Result<u8, Failure> {
    let all = judged(place, &args.how, Some(&args.device), |all| Ok(all.iter().collect()))?;
    let text = rows("APPLICATION", &all, |one| format!("{}@{}", one.application, one.version));
    args.how.output.print(&text, || json!({ "device": args.device, "applications": all }));
    Ok(0)
}

fn no_package(wanted: &Version, application: &ApplicationId, all: &[Application]) -> AppError {
    let ours = all.iter().filter(|one| one.description.id == *application);
    AppError::NoPackage {
        wanted: wanted.to_string(),
        versions: ours.map(|one| one.description.version.clone()).collect(),
    }
}

/// What each device, or one, is answered for each package that is chosen.
fn judged(
    place: &Place,
    how: &AtRevision,
    only: Option<&DeviceId>,
    choose: impl Fn(&[Application]) -> Result<Vec<&Application>, Failure>,
) -> Result<Vec<CanRun>, Failure> {
    let (home, source) = (place.home()?, place.seen_source(&how.rev)?);
    let commit = source.resolve(&how.rev)?;
    place.note_hosted(&how.rev, commit)?;
    let files = source.files_on(commit, threads())?;
    let (applications, _) = read_applications(&files);
    let chosen = choose(&applications)?;
    let is_asked = |device: &DeviceId| only.is_none_or(|only| device == only);
    let (all, problems) = known_devices(&home, &files, is_asked, Timestamp::now(), threads(), |fleet, known| {
        chosen.iter().map(|one| can_run(fleet, &applications, one, &known)).collect::<Vec<_>>()
    })?;
    print_errors(&problems);
    match only {
        Some(device) if all.is_empty() => {
            let failure = Failure::missing(format!("there is no usable device `{device}` in the fleet"));
            Err(failure.hint("correct the id, or see `validate`"))
        }
        _ => Ok(all.concat()),
    }
}

/// What is wrong in the fleet may hide devices and packages.
fn print_errors(problems: &Problems) {
    print_problems(&Problems(problems.errors().cloned().collect()), "the fleet");
}

/// One row for each answer, and one for each reason more.
fn rows(first: &str, all: &[CanRun], name: impl Fn(&CanRun) -> String) -> String {
    let mut rows = vec![[first, "CAN RUN IT", "PROFILE", "HAS", "WHY NOT"].map(str::to_owned)];
    for one in all {
        let has: Vec<_> = one.deployed.iter().map(has).collect();
        let is_against = matches!(one.answer, Answer::No | Answer::Unknown);
        let against = one.against.iter().filter(|_| is_against);
        let against =
            against.flat_map(|profile| profile.reasons.iter().map(|why| format!("{}: {why}", profile.profile)));
        let mut why = one.reasons.iter().cloned().chain(against);
        let mut row = |name: String, answer: &str, profile: &str, has: String, why: String| {
            rows.push([name, answer.to_owned(), profile.to_owned(), has, why]);
        };
        let profile = one.profile.as_deref().unwrap_or("-");
        let has = if has.is_empty() { "-".to_owned() } else { has.join(", ") };
        row(name(one), one.answer.as_str(), profile, has, why.next().unwrap_or_default());
        why.for_each(|why| row(String::new(), "", "", String::new(), why));
    }
    table(&rows)
}

/// What is there of the application already.
fn has(deployed: &Deployed) -> String {
    let Deployed { deployment, version, state, .. } = deployed;
    let version = version.as_deref().unwrap_or("another version");
    let state = state.map_or_else(|| "not reported".to_owned(), |state| state.to_string());
    format!("{deployment}: {version} ({state})")
}
