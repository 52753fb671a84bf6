//! `run`.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::runtime::Builder;
use tracing::warn;

use super::log::{self, Log};
use super::{Place, RegistryArgs, alert, serve};
use crate::config::Config;
use crate::controller::Controller;
use crate::error::Failure;
use crate::operator::reminders;
use crate::repos::Control;

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

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    log::start(args.log);
    let home = place.home()?;
    home.check()?;
    // A fleet that isn't there is told now, not with every poll.
    place.published_source()?;
    let config = Config::load(&home.config())?;
    // A lost ledger is rebuilt by the first pass.
    let rosters = Control::read_rosters(&home).ok();
    for problem in rosters.iter().flat_map(|rosters| reminders(&home, rosters, Timestamp::now())) {
        warn!(hint = problem.hint, "{problem}");
    }
    let service = Arc::new(serve::service_manager());
    let controller = Controller {
        fleet: place.published()?,
        rev: args.rev.clone(),
        poll: config.poll(),
        registries: place.registries(&args.registry)?,
        remotes: place.remotes()?,
        threads: super::threads(),
        home,
        service: service.clone(),
    };
    alert::start(place, &args.rev, config.alerts.clone())?;
    match config.serve {
        None => Builder::new_current_thread().enable_all().build()?.block_on(service.feed_during(async {
            controller.run(serve::shutdown(&service)?).await;
            Ok(0)
        })),
        Some(settings) => serve::runtime()?.block_on(service.feed_during(async {
            let server = serve::bind(controller.home.clone(), &settings).await?;
            tokio::join!(server.run(serve::shutdown(&service)?), controller.run(serve::shutdown(&service)?));
            Ok(0)
        })),
    }
}
