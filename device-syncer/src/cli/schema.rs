//! `schema`.

use std::process::ExitCode;

use super::print;
use crate::config::SCHEMA;
use crate::error::CliError;

/// Prints the JSON Schema of device.yaml, by which editors complete and check it.
///
/// `init` puts it beside device.yaml as device.schema.json; after an update:
/// `device-syncer schema > /var/lib/device-syncer/device.schema.json`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run() -> Result<ExitCode, CliError> {
    print(SCHEMA)?;
    Ok(ExitCode::SUCCESS)
}
