//! `accept-history`.

use std::process::ExitCode;

use repo_git::{CommitId, InvalidId};
use serde::Serialize;

use super::{OutputArgs, request};
use crate::config::Home;
use crate::error::CliError;
use crate::state::requests::Requests;

/// Accepts a `desired` commit although its history was rewritten or its serial fell, at the next pass.
///
/// For a host that lost its history and says nothing of it. Check with the operator that REV is right: `status`
/// shows which commit is refused.
#[derive(Debug, clap::Args, Serialize)]
#[command(after_help = "Examples:\n  device-syncer accept-history 6a0c4e1bd2f36a0c4e1bd2f36a0c4e1bd2f36a0c")]
pub(super) struct Args {
    /// The commit, 40 hex digits.
    rev: String,
    #[command(flatten)]
    #[serde(skip)]
    output: OutputArgs,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    let commit: CommitId = args.rev.parse().map_err(|error: InvalidId| CliError::Input(error.to_string()))?;
    request(home, args.output, args, |home| Requests::ask_accept_history(home, commit))
}
