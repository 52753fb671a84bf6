//! `deployment`: what is in `deployment_show` and `restart`.

use clap::Subcommand;

use super::{Place, deployment_show, restart};
use crate::error::Failure;

/// The deployments of the fleet
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Show(deployment_show::ShowArgs),
    Restart(restart::DeploymentArgs),
}

pub(super) fn run(place: &Place, command: Command) -> Result<u8, Failure> {
    match command {
        Command::Show(args) => deployment_show::run(place, &args),
        Command::Restart(args) => restart::run_deployment(place, &args),
    }
}
