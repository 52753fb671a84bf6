//! `run`.

use clap::ValueEnum;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::{Place, RegistryArgs};
use crate::config::Config;
use crate::controller::Controller;
use crate::error::Failure;

/// Follows the fleet repository: publishes each new commit, and keeps proofs of freshness fresh
///
/// Notices commits at once where the file system tells, and by polling (10 s, `poll` in publisher.yaml) everywhere.
/// SIGTERM and SIGINT finish the device in hand. A fleet that is broken is told in the log; what can be published is.
///
///   wfm-git-publisher -C my-fleet run
///   wfm-git-publisher -C my-fleet run --log json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The revision to follow
    #[arg(long, default_value = "HEAD")]
    rev: String,

    /// The form of the log, on standard error; RUST_LOG chooses what is in it
    #[arg(long, value_enum, default_value_t)]
    log: Log,

    #[command(flatten)]
    registry: RegistryArgs,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Log {
    /// Lines for people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    start_log(args.log);
    let home = place.home()?;
    home.check()?;
    // A fleet that isn't there is told now, not with every poll.
    place.source()?;
    let controller = Controller {
        fleet: place.root()?,
        rev: args.rev.clone(),
        poll: Config::load(&home.config())?.poll(),
        registries: place.registries(&args.registry)?,
        threads: super::threads(),
        home,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let shutdown = async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
        };
        controller.run(shutdown).await;
        Ok(0)
    })
}

fn start_log(log: Log) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match log {
        Log::Text => builder.init(),
        Log::Json => builder.json().init(),
    }
}
