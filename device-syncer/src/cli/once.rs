//! `once`.

use std::process::ExitCode;

use repo_model::text;
use serde::Serialize;

use super::OutputArgs;
use super::show::json;
use crate::config::Home;
use crate::error::{CliError, USER};
use crate::home;
use crate::reconcile::outcome::HostAnswer;

/// Makes one pass and ends. Exit code 1 if anything isn't as wanted: a service that restarts again and again or is
/// unhealthy, too.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  device-syncer once || device-syncer status\n  device-syncer once --output json")]
pub(super) struct Args {
    #[command(flatten)]
    output: OutputArgs,
}

/// What came of a pass, as `once` prints it for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    /// Whether all is as wanted, as the exit code says.
    up_to_date: bool,
    /// Whether the host could be reached.
    host_reached: bool,
    problems: Vec<String>,
    /// What is applied, and isn't ready.
    not_ready: Vec<String>,
}

pub(super) fn run(home: Home, args: &Args) -> Result<ExitCode, CliError> {
    let (mut syncer, _locks) = home::open(home)?;
    let outcome = syncer.once()?;
    for problem in outcome.problems.iter().cloned().chain(outcome.not_ready.iter().map(ToString::to_string)) {
        eprintln!("{}", text::lines(&problem));
    }
    if outcome.host == HostAnswer::Unreachable {
        eprintln!("the host can't be reached: {}", syncer.host.url());
    }
    let up_to_date = outcome.is_up_to_date();
    let shown = || Shown {
        up_to_date,
        host_reached: outcome.host != HostAnswer::Unreachable,
        problems: outcome.problems.clone(),
        not_ready: outcome.not_ready.iter().map(ToString::to_string).collect(),
    };
    args.output.print(String::new, || json(&shown()))?;
    Ok(if up_to_date { ExitCode::SUCCESS } else { ExitCode::from(USER) })
}
