//! `deployment restart`, `device restart`.

mod done;

use std::time::Duration;

use repo_model::envelope::MAX_SERIAL;
use repo_model::margo::ProfileType;
use repo_model::{DeploymentName, DeviceId, text};
use serde_json::json;

use self::done::{Asked, Done};
use super::{OutputArgs, Place, threads, wait};
use crate::error::{Failure, USER};
use crate::fleet::{self, Deployment, Fleet, Profile, counted};
use crate::operator::deploy::{DeployError, DeploymentFile, restarted};
use crate::render::OF_CHART;
use crate::repos::FleetRepo;

/// Restarts what runs of a deployment, once on each of its devices
///
/// Raises `restart` in the deployment's file, comments stay, and commits that. The containers are restarted as they are: nothing is
/// made anew or pulled. Like every change it may come in waves, and waits for windows and holds (docs/gates.md). Charts aren't
/// restarted.
///
/// With --wait it pushes the commit, where the fleet is hosted, waits until each of the devices says that it has done it, and ends
/// with 1 and the names of those that haven't when the time is over.
///
///   wfm-git-publisher deployment restart hello -m "it leaks"
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct DeploymentArgs {
    /// The deployment's id
    id: DeploymentName,

    #[command(flatten)]
    said: SaidArgs,
}

/// Restarts what runs of a deployment on one device, once
///
/// Like `deployment restart`, by an override of the deployment that means this device and says a higher number; what else it gets
/// there stays as it is. A site may let the fleet restart nothing (`remote: {restart: false}` in its device.yaml): then `status`
/// says so, and it is done once the site lets it. With --wait it waits like `deployment restart`.
///
///   wfm-git-publisher device restart press-01 hello -m "the scanner was exchanged"
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct DeviceArgs {
    /// The device, by its id such as `press-01`
    id: DeviceId,

    /// The deployment, by its id such as `hello`
    deployment: DeploymentName,

    #[command(flatten)]
    said: SaidArgs,
}

#[derive(Debug, clap::Args)]
struct SaidArgs {
    /// Why, for whoever reads the history
    #[arg(short = 'm', long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: String,

    /// Wait until it is done, for so long at most, like 2m; for 10m where no time is said
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "10m", value_parser = wait::time)]
    wait: Option<Duration>,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run_deployment(place: &Place, args: &DeploymentArgs) -> Result<u8, Failure> {
    run(place, &args.id, None, &args.said)
}

pub(super) fn run_device(place: &Place, args: &DeviceArgs) -> Result<u8, Failure> {
    run(place, &args.deployment, Some(&args.id), &args.said)
}

fn run(place: &Place, id: &DeploymentName, device: Option<&DeviceId>, args: &SaidArgs) -> Result<u8, Failure> {
    let root = place.work_tree()?;
    let source = FleetRepo::open(&root)?;
    let head = source.resolve("HEAD")?;
    let files = source.files_on(head, threads())?;
    let file = DeploymentFile::open(&root, &files, id)?;
    file.check_clean()?;
    let reading = fleet::read_on(&files, threads());
    let fleet = reading.fleet.as_ref();
    let Some((fleet, deployment)) = fleet.and_then(|fleet| Some((fleet, fleet.deployments.get(id)?))) else {
        let failure = Failure::new(format!("`{}` can't be edited before it is right", file.file));
        return Err(failure.problems(&reading.problems));
    };
    check(fleet, deployment, device)?;
    let asked = Asked { place, fleet, deployment, device };
    // Devices that can't be heard now may be restarted all the same.
    let known = asked.done(true);
    if args.wait.is_some() && matches!(known, Ok(None)) {
        return Err(wait::nowhere());
    }
    let done = known.ok().flatten().map_or(0, |known| known.highest(id));
    let number = deployment.highest_restart().max(done) + 1;
    let old = file.committed.as_deref().unwrap_or_default();
    let edited = restarted(old, device, number)
        .filter(|_| number <= MAX_SERIAL)
        .ok_or_else(|| DeployError::Edit { file: file.file.clone() })?;
    let whose = device.map(|device| format!("{device}: ")).unwrap_or_default();
    file.write(head, &edited, &format!("{whose}restart {id} ({number})\n\n{}", text::line(&args.reason)))?;
    let on = device.map_or_else(|| "each of its devices".to_owned(), ToString::to_string);
    let said = format!("{id} is to be restarted once on {on}: {number} ({})", file.file);
    let mut json = json!({ "deployment": id, "device": device, "file": file.file, "restart": number });
    let Some(time) = args.wait else {
        args.output.print(&format!("{said}\n{}", place.next_push()?), || json);
        return Ok(0);
    };
    place.push()?;
    eprintln!("note: {said}; waiting until that is done");
    let Done { done, left } = asked.wait(number, time)?;
    json["done"] = json!(done);
    json["left"] = json!(left);
    let all = counted(done.len() + left.len());
    let rest = left.iter().map(|one| format!("{}: {}\n", one.device, text::line(&one.why))).collect::<String>();
    args.output.print(&format!("restart {number} of {id} is done on {} of {all}\n{rest}", done.len()), || json);
    Ok(if left.is_empty() { 0 } else { USER })
}

/// Whether there is something that can be restarted.
fn check(fleet: &Fleet, deployment: &Deployment, device: Option<&DeviceId>) -> Result<(), Failure> {
    let is_chart = |profile: &Profile| profile.description.kind == ProfileType::Helm;
    let id = &deployment.id;
    let has_chart = match device {
        None => deployment.versions().flat_map(Deployment::profiles).any(is_chart),
        Some(device) => {
            let found = fleet.device(device).ok_or_else(|| super::device_show::unknown(device))?;
            if !deployment.is_for(found) {
                let failure = Failure::new(format!("`{device}` doesn't get `{id}`"));
                return Err(failure.hint(format!("`why-not {id} {device}` says why")));
            }
            // With `auto` the device may have either; what it has is judged by `plan`.
            deployment.on(found).profiles().all(is_chart)
        }
    };
    if has_chart {
        let failure = Failure::new(format!("`{id}` has a chart, and devices don't restart what a chart made"));
        return Err(failure.hint(OF_CHART));
    }
    Ok(())
}
