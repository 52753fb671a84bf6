//! `hold` and `release`: a person at the device keeps what runs as it is.

use std::process::ExitCode;

use jiff::{SignedDuration, Timestamp};
use repo_model::{DeploymentId, DeploymentName};
use serde::Serialize;

use super::show::json;
use super::{OutputArgs, must_be};
use crate::config::{Home, parse_duration};
use crate::decision::failure::LINE;
use crate::decision::hold::HoldByPerson;
use crate::error::CliError;
use crate::home;
use crate::state::{hold, loaded};

/// Keeps what runs as it is: nothing is applied, removed or put back until `release`, also over restarts.
///
/// For who works at the machine. No container is stopped, and no commit of the fleet ends it. `status` shows who holds
/// what, why and since when, and so does the report to the fleet, which is signed and stays.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  device-syncer hold --by j.doe --why \"line 2 is cleaned\"\n  device-syncer hold hello --by j.doe --why \"line 2 is cleaned\"\n  device-syncer release"
)]
pub(super) struct HoldArgs {
    /// The operator's id of one deployment; the whole device if left out.
    deployment: Option<String>,
    /// Who says so; shown with the hold, and in the report that the device signs.
    #[arg(long, value_name = "NAME")]
    by: String,
    /// What for; shown in the same places, where it stays in the history.
    #[arg(long, value_name = "TEXT")]
    why: String,
    /// How long, such as 8h or 30m; it ends by itself then. Without this it lasts until `release`.
    #[arg(long = "for", value_name = "DURATION")]
    lasts: Option<String>,
    /// Ends what is at work there: fetching at once; what changes something is asked to end (TERM), and killed after 10
    /// seconds, so that half of it may be left. Waiting for health changes nothing, and goes on. Without this each step
    /// that is at work comes to its end.
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is held, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Held<'a> {
    /// Absent where it is the whole device.
    deployment: Option<&'a DeploymentName>,
    /// Absent where none of that name is known here.
    deployment_id: Option<DeploymentId>,
    by: &'a str,
    why: &'a str,
    since: Timestamp,
    /// Absent where it lasts until `release`.
    until: Option<Timestamp>,
    now: bool,
}

/// What is held no more, for programs.
#[derive(Debug, Serialize)]
struct Released<'a> {
    /// Absent where it is the whole device.
    deployment: Option<&'a DeploymentName>,
}

/// Ends what `hold` with the same deployment began.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  device-syncer release\n  device-syncer release hello")]
pub(super) struct ReleaseArgs {
    /// The operator's id of one deployment; the hold of the whole device if left out.
    deployment: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn hold(home: &Home, args: &HoldArgs) -> Result<ExitCode, CliError> {
    must_be(home)?;
    let clocks = home::clocks(home);
    let now = clocks.now;
    let deployment = args.deployment.as_deref().map(name).transpose()?;
    let id = deployment.as_ref().and_then(|name| id_of(home, name));
    let lasts = args.lasts.as_deref().map(|text| end(text, now)).transpose()?;
    let until = lasts.map(|(until, _)| until);
    let (by, why) = (words("--by", &args.by)?, words("--why", &args.why)?);
    let mut text = "held: what runs goes on, and nothing of it is changed, removed or put back".to_owned();
    text += &until.map_or(".\n".to_owned(), |until| format!(", until {until:.0}.\n"));
    if until.is_some() && !clocks.is_vouched_for {
        text += "Nobody vouches for this device's clock: it lasts that long while the device is up, whatever the clock shows, \
                 and over a restart of the device until `release`.\n";
    }
    if let Some(name) = deployment.as_ref().filter(|_| id.is_none()) {
        text += &format!("No deployment `{name}` is known here; it is held if it comes.\n");
    }
    let of = deployment.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    text += &format!("`device-syncer release{of}` ends it, and `device-syncer status` shows it.\n");
    if args.now {
        text += "What is at work there is ended now by the running syncer; half of it may be left, and what is wanted is \
                 applied again after the release.\n";
    }
    let said = HoldByPerson { deployment, id, by, why, since: now, until, now: args.now };
    hold::add(home, said.clone(), lasts.map(|(_, seconds)| seconds), &clocks)?;
    let HoldByPerson { deployment, id, by, why, since, until, now } = &said;
    let held =
        Held { deployment: deployment.as_ref(), deployment_id: *id, by, why, since: *since, until: *until, now: *now };
    args.output.print(|| text, || json(&held))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn release(home: &Home, args: &ReleaseArgs) -> Result<ExitCode, CliError> {
    must_be(home)?;
    let deployment = args.deployment.as_deref().map(name).transpose()?;
    hold::release(home, deployment.as_ref(), &home::clocks(home))?;
    let text = || "released; the next pass goes on (`device-syncer once`, or the running one)\n".to_owned();
    args.output.print(text, || json(&Released { deployment: deployment.as_ref() }))?;
    Ok(ExitCode::SUCCESS)
}

fn name(text: &str) -> Result<DeploymentName, CliError> {
    text.parse().map_err(|error| CliError::Input(format!("`{text}` is no deployment's id: {error}")))
}

pub(super) fn words(option: &str, text: &str) -> Result<String, CliError> {
    let text = text.trim();
    match text.chars().count() {
        0 => Err(CliError::Input(format!("`{option}` is empty: who reads it on `status` has to know"))),
        count if count > LINE => {
            Err(CliError::Input(format!("`{option}` has {count} characters; {LINE} are the most")))
        }
        _ => Ok(text.to_owned()),
    }
}

/// When that is over, and in how many seconds.
fn end(text: &str, now: Timestamp) -> Result<(Timestamp, u64), CliError> {
    let duration = parse_duration(text).and_then(|duration| SignedDuration::try_from(duration).ok());
    let end = duration
        .filter(|duration| duration.is_positive())
        .and_then(|duration| Some((now.checked_add(duration).ok()?, u64::try_from(duration.as_secs()).ok()?)));
    end.ok_or_else(|| CliError::Input(format!("`--for {text}` is no duration such as 30m, 8h or 48h")))
}

/// Margo's id of a deployment that is wanted or runs here.
fn id_of(home: &Home, name: &DeploymentName) -> Option<DeploymentId> {
    let (device_state, desired) = loaded::peek(&home.repository());
    let wanted = desired.iter().flat_map(|desired| &desired.envelope.deployments);
    let wanted = wanted.filter(|(_, one)| one.id == *name).map(|(id, _)| *id).next();
    let applied = device_state.deployments.iter().filter(|(_, one)| one.inputs.id == *name).map(|(id, _)| *id);
    wanted.or_else(|| applied.into_iter().next())
}
