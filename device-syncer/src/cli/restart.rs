//! `restart`.

use std::process::ExitCode;

use jiff::Timestamp;
use repo_model::desired::Desired;
use repo_model::margo::ProfileType;
use repo_model::{DeploymentId, DeploymentName};
use serde::Serialize;

use super::{OutputArgs, must_be, print_noted};
use crate::config::{Home, Settings};
use crate::decision::device_state::DeviceState;
use crate::decision::hold::Hold;
use crate::error::CliError;
use crate::home::{self, HomeError};
use crate::state::hold::Holds;
use crate::state::{loaded, restart_requests};

/// Restarts the running containers of a deployment as they are, at the next pass.
///
/// Nothing is made anew or pulled, and what came to its end, such as a migration, isn't run again. It waits for no window and
/// no approval, but is refused while the site holds the deployment; and it isn't done any more 15 minutes later. Charts aren't
/// restarted.
#[derive(Debug, clap::Args, Serialize)]
#[command(
    after_help = "Examples:\n  device-syncer restart hello\n  device-syncer history hello      # once it was done"
)]
pub(super) struct Args {
    /// The operator's id of the deployment.
    deployment: DeploymentName,
    #[command(flatten)]
    #[serde(skip)]
    output: OutputArgs,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    must_be(home)?;
    let (name, now) = (&args.deployment, Timestamp::now());
    let (device_state, desired) = loaded::peek(&home.repository());
    let id = wanted(desired.as_ref(), name).ok_or_else(|| {
        CliError::Input(format!("no deployment `{name}` is wanted here: `device-syncer status` shows those that are"))
    })?;
    if !has_compose(&device_state, id) {
        let text = "nothing of it runs by compose here, and charts aren't restarted: a person with `kubectl` can \
                    (`kubectl rollout restart`), or the operator changes a value of it";
        return Err(CliError::Input(format!("`{name}` can't be restarted: {text}")));
    }
    let file = Settings::read(home).map_err(HomeError::from)?.gates.hold;
    if let Some(hold) = held(Holds::default().read(home, file.as_deref(), &home::clocks(home)), id, name) {
        let text =
            format!("`{name}` isn't restarted while it is held ({}): `device-syncer release` first", hold.message());
        return Err(CliError::Input(text));
    }
    restart_requests::note(home, name.clone(), now)?;
    print_noted(args.output, args)
}

fn wanted(desired: Option<&Desired>, name: &DeploymentName) -> Option<DeploymentId> {
    let mut wanted = desired?.envelope.deployments.iter();
    wanted.find(|(_, one)| one.id == *name).map(|(id, _)| *id)
}

fn has_compose(device_state: &DeviceState, id: DeploymentId) -> bool {
    let applied = device_state.deployments.get(&id);
    applied.is_some_and(|applied| applied.inputs.components.iter().any(|one| one.kind == ProfileType::Compose))
}

fn held(holds: Vec<Hold>, id: DeploymentId, name: &DeploymentName) -> Option<Hold> {
    holds.into_iter().find(|hold| hold.is_of(Some(id), Some(name)))
}
