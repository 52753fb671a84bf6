//! `once`.

use std::process::ExitCode;

use repo_model::text;

use crate::config::Home;
use crate::error::{CliError, USER};
use crate::home;
use crate::reconcile::outcome::HostAnswer;

/// Makes one pass and ends. Exit code 1 if anything isn't as wanted: a service that restarts again and again or is
/// unhealthy, too.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  device-syncer once || device-syncer status")]
pub(super) struct Args {}

pub(super) fn run(home: Home) -> Result<ExitCode, CliError> {
    let (mut syncer, _locks) = home::open(home)?;
    let outcome = syncer.once()?;
    for problem in outcome.problems.iter().cloned().chain(outcome.not_ready.iter().map(ToString::to_string)) {
        eprintln!("{}", text::lines(&problem));
    }
    if outcome.host == HostAnswer::Unreachable {
        eprintln!("the host can't be reached: {}", syncer.host.url());
    }
    Ok(if outcome.is_up_to_date() { ExitCode::SUCCESS } else { ExitCode::from(USER) })
}
