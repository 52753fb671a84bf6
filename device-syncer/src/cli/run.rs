//! `run`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use repo_service::ServiceManager;

use crate::config::{Home, parse_duration};
use crate::error::CliError;
use crate::home;
use crate::reconcile::agent;

/// How long a thread that has nothing to do is kept: just until the next pass, where these come at their usual pace.
const KEEP: Duration = Duration::from_secs(20);

/// Follows the repository until SIGTERM or SIGINT.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  device-syncer run --log json       # as a service: docs/service.md")]
pub(super) struct Args {
    /// Where another syncer works on this home, waits for that one to end, for as long as this at most: the pod in whose
    /// place this one comes may still have its last step in hand. Without it that is an error at once
    #[arg(long, value_name = "TIME", value_parser = time)]
    wait: Option<Duration>,
    /// Where nobody else has a watchdog, as in a pod: without a sign of life of its own work for so long it ends, so that
    /// whoever started it starts it anew. systemd has one of its own (`WatchdogSec`), which counts before this
    #[arg(long, value_name = "TIME", value_parser = time)]
    watchdog: Option<Duration>,
}

fn time(text: &str) -> Result<Duration, &'static str> {
    parse_duration(text).ok_or("expected a time like 30s or 2m")
}

pub(super) fn run(home: Home, args: &Args) -> Result<ExitCode, CliError> {
    if let Some(patience) = args.wait {
        home::wait_for_another(&home, patience);
    }
    let (syncer, _locks) = home::open(home)?;
    let failed = |source| CliError::Io { doing: "can't start the loop".to_owned(), source };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().thread_keep_alive(KEEP).build().map_err(failed)?;
    tracing::info!(device = %syncer.here.device.join.device, "following");
    let service = Arc::new(ServiceManager::of(|name| std::env::var_os(name)).or_watchdog(args.watchdog));
    runtime.block_on(service.feed_during(agent::run(syncer, home::reload, service.clone()))).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
