//! `plan`.

use std::process::ExitCode;

use super::{OutputArgs, show};
use crate::config::Home;
use crate::error::{CliError, DIFFERENCES, USER};
use crate::home::{self, HomeError};
use crate::reconcile::preview::{Preview, preview, preview_accepted};
use crate::state::loaded;

/// Prints what the next pass would do, and does nothing. Exit code 3 if it would do anything, 1 if it would not, and
/// something isn't as wanted.
///
/// Beside a running syncer the host isn't asked: then it is about the state that was accepted last.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  device-syncer plan\n  device-syncer plan --output json")]
pub(super) struct Args {
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(home: Home, args: &Args) -> Result<ExitCode, CliError> {
    let preview = match home::open(home.clone()) {
        Ok((syncer, _locks)) => preview(&syncer)?,
        Err(HomeError::Busy { .. }) => {
            eprintln!("a syncer is at work here: this is what it does next for the state that it accepted last");
            of_accepted(home)?
        }
        Err(error) => return Err(error.into()),
    };
    args.output.print(|| show::plan(&preview), || show::json(&show::PlanOut::of(&preview)))?;
    Ok(match (preview.plan.is_in_sync(), preview.plan.is_as_wanted() && preview.conditions.is_empty()) {
        (false, _) => ExitCode::from(DIFFERENCES),
        (true, false) => ExitCode::from(USER),
        (true, true) => ExitCode::SUCCESS,
    })
}

/// The plan for the accepted state, beside a syncer that may be at work.
pub(super) fn of_accepted(home: Home) -> Result<Preview, CliError> {
    let (device, reconciler, clock_is_behind) = home::read_only(home)?;
    let accepted = loaded::peek(&device.home.repository());
    Ok(preview_accepted(&device, &reconciler, accepted, clock_is_behind)?)
}
