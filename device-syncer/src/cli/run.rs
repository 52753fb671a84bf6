//! `run`.

use std::process::ExitCode;
use std::sync::Arc;

use repo_service::ServiceManager;

use crate::config::Home;
use crate::error::CliError;
use crate::home;
use crate::reconcile::agent;

/// Follows the repository until SIGTERM or SIGINT.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  device-syncer run --log json       # as a service: docs/service.md")]
pub(super) struct Args {}

pub(super) fn run(home: Home) -> Result<ExitCode, CliError> {
    let (syncer, _locks) = home::open(home)?;
    let failed = |source| CliError::Io { doing: "can't start the loop".to_owned(), source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    tracing::info!(device = %syncer.here.device.join.device, "following");
    let service = Arc::new(ServiceManager::of(|name| std::env::var_os(name)));
    runtime.block_on(service.feed_during(agent::run(syncer, home::reload, service.clone()))).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
