//! `sync-now`.

use std::process::ExitCode;

use serde::Serialize;

use super::show::json;
use super::{OutputArgs, must_be};
use crate::config::Home;
use crate::error::CliError;
use crate::home;
use crate::state::requests::Requests;

/// Makes the running syncer ask its host at once, also where it waits before it tries again.
///
/// What changes wait for goes on waiting: no window opens for it, and no hold ends. Needs a running syncer; without one,
/// `device-syncer once` makes a pass.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  device-syncer sync-now && device-syncer status --watch")]
pub(super) struct Args {
    #[command(flatten)]
    output: OutputArgs,
}

/// What was asked for, for programs.
#[derive(Debug, Serialize)]
struct Asked {
    /// The running syncer was told.
    asked: bool,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    must_be(home)?;
    if !home::is_at_work(home) {
        let text = "no syncer is at work on this home: `device-syncer once` makes a pass, `systemctl start device-syncer` the service";
        return Err(CliError::Input(text.to_owned()));
    }
    Requests::ask_sync(home).map_err(|source| CliError::Io { doing: "can't leave the request".to_owned(), source })?;
    let text = || "noted: the running syncer asks its host now\n".to_owned();
    args.output.print(text, || json(&Asked { asked: true }))?;
    Ok(ExitCode::SUCCESS)
}
