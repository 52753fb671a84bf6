//! `schema`.

use std::process::ExitCode;

use clap::ValueEnum;

use super::print;
use crate::config::{self, packed};
use crate::error::CliError;

/// Prints the JSON Schema of device.yaml, by which editors complete and check it; or of what commands print for programs.
///
/// `init` puts it beside device.yaml as device.schema.json; after an update:
/// `device-syncer schema > /var/lib/device-syncer/device.schema.json`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  device-syncer schema\n  device-syncer schema output")]
pub(super) struct Args {
    /// What is described.
    #[arg(default_value = "device")]
    kind: Kind,
}

/// What commands print for programs, by the word of the command.
fn output_schema() -> String {
    packed!("output.schema.json")
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// device.yaml.
    Device,
    /// What commands print with --output json.
    Output,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    print(&match args.kind {
        Kind::Device => config::schema(),
        Kind::Output => output_schema(),
    })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;
    use serde_json::{Map, Value};

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn each_command_that_prints_for_programs_is_described_and_no_other() {
        let schema: Map<String, Value> = serde_json::from_str(&output_schema()).unwrap();
        let described: BTreeSet<_> = schema["commands"].as_object().unwrap().keys().map(String::as_str).collect();
        let cli = Cli::command();
        let has_json = |command: &&clap::Command| command.get_arguments().any(|one| one.get_id() == "output");
        let printing = cli.get_subcommands().filter(has_json).map(clap::Command::get_name);
        // It prints nothing else.
        assert_eq!(described, printing.chain(["diagnostics"]).collect());
    }
}
