//! `doctor`: what on this device, and between it and others, keeps it from working.

mod host;
mod machine;
mod registries;
mod row;
mod runtimes;

use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::show::json;
use super::{OutputArgs, must_be};
use crate::config::Home;
use crate::error::CliError;

use row::Check;
pub(super) use row::{Row, Verdict, table};

/// How long a check may take; all of them begin at once.
const LIMIT: Duration = Duration::from_secs(10);

/// What a request may take, so that the check that makes it can say what came of it.
const REQUEST: Duration = Duration::from_secs(8);

/// Checks clock, host, credentials, runtimes, registries, room and secret files, and says what to do about what is wrong.
///
/// It changes nothing and works with or without a running syncer. All checks begin at once, and none takes longer than 10
/// seconds. Exit code 0 if all is well, 4 if there are warnings, 1 if a check failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  device-syncer doctor\n  \
                        device-syncer doctor --output json | jq '.checks[] | select(.result != \"ok\")'")]
pub(super) struct Args {
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    must_be(home)?;
    let found = Found { checks: examine(home) };
    args.output.print(|| table(&found.checks), || json(&found))?;
    Ok(Verdict::worst(&found.checks).exit_code())
}

/// What was found, for `--output json`.
#[derive(Debug, Serialize)]
struct Found {
    checks: Vec<Row>,
}

/// What finds the rows of a check of the home.
type Find = fn(&Home) -> Vec<Row>;

/// All of them, in the order in which they are shown. What they ask is asked when they are begun.
fn checks(home: &Home) -> Vec<Check> {
    let of_home: [(&str, Find); 8] = [
        ("home", machine::home),
        ("clock", machine::clock),
        ("secrets", machine::secrets),
        ("room", machine::room),
        ("host", host::check),
        ("docker", runtimes::engine),
        ("compose", runtimes::compose),
        ("helm", runtimes::helm),
    ];
    let check = |(name, check): (&str, Find)| -> Check {
        let home = home.clone();
        (name.to_owned(), Box::new(move || check(&home)))
    };
    of_home.into_iter().map(check).chain(registries::checks(home)).collect()
}

/// Makes all checks, side by side. One that doesn't end is left behind: it only asks.
pub(super) fn examine(home: &Home) -> Vec<Row> {
    let until = Instant::now() + LIMIT;
    let begun: Vec<_> = checks(home).into_iter().map(begin).collect();
    begun.into_iter().flat_map(|(name, rows)| rows_of(name, &rows, until)).collect()
}

fn begin((name, check): Check) -> (String, Receiver<Vec<Row>>) {
    let (found, rows) = channel();
    thread::spawn(move || found.send(check()));
    (name, rows)
}

fn rows_of(name: String, rows: &Receiver<Vec<Row>>, until: Instant) -> Vec<Row> {
    let found = rows.recv_timeout(until.saturating_duration_since(Instant::now()));
    found.unwrap_or_else(|_| {
        let text = format!("no answer within {} s", LIMIT.as_secs());
        vec![Row::failed(name, text, "look whether what it asks hangs: the host, the engine, a disk")]
    })
}
