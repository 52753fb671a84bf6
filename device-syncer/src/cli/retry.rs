//! `retry`.

use std::process::ExitCode;

use serde::Serialize;

use super::{OutputArgs, request};
use crate::config::Home;
use crate::error::CliError;
use crate::state::requests::Requests;

/// Tries again what was given up, at the next pass.
#[derive(Debug, clap::Args, Serialize)]
#[command(after_help = "Examples:\n  device-syncer retry               # all of them\n  device-syncer retry hello")]
pub(super) struct Args {
    /// The operator's id of one deployment; all of them if left out.
    deployment: Option<String>,
    #[command(flatten)]
    #[serde(skip)]
    output: OutputArgs,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    request(home, args.output, args, |home| Requests::ask_retry(home, args.deployment.as_deref()))
}
