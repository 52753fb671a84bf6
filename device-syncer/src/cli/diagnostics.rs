//! `diagnostics`: everything that somebody elsewhere needs to know, in one document of bounded size, without secrets.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use repo_git::durable;
use repo_model::{IntoMap, text};
use serde::Serialize;
use serde_json::Value;

use super::doctor::{Row, examine};
use super::show::{PlanOut, StatusOut};
use super::{history, logs, must_be, plan, print, status};
use crate::config::Home;
use crate::decision::device_state::{AppliedComponent, Inputs};
use crate::error::CliError;
use crate::runtimes::Lines;
use crate::state::loaded;

/// The most bytes of the document.
const MOST: usize = 256 << 10;

/// The newest lines of each component; halved until the document fits.
const TAIL: usize = 200;

/// How many changes of its history.
const CHANGES: usize = 100;

/// How long the lines of one component may take.
const LOGS: Duration = Duration::from_secs(10);

/// Prints all that somebody elsewhere needs to help, as one JSON document of 256 KiB at most: what `doctor`, `status`, `plan`
/// and `history` say, and the last lines of each component.
///
/// No parameter, key or account is in it, and values of device files and encrypted ones are `***` in what containers print. What an
/// application itself prints may still be confidential: read it before you send it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  device-syncer diagnostics --out press-01.json\n  device-syncer diagnostics | jq .doctor"
)]
pub(super) struct Args {
    /// Writes it into a file that only its owner can read, instead of printing it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
pub(super) struct Diagnostics {
    made: Timestamp,
    version: &'static str,
    doctor: Vec<Row>,
    status: StatusOut,
    /// For the state that was accepted last, or why there is none.
    plan: Value,
    /// Transitions as `history` has them, newest first.
    history: Value,
    /// By `deployment/component`; what can't be had says why.
    logs: BTreeMap<String, Vec<String>>,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    must_be(home)?;
    let document = fitting(collect(home, &|_| true));
    match &args.out {
        None => print(&document)?,
        Some(path) => {
            let failed = |source| CliError::Io { doing: format!("can't write `{}`", path.display()), source };
            durable::replace_file(path, document.as_bytes(), 0o600).map_err(failed)?;
            print(&format!("written: {} KiB in `{}`\n", document.len().div_ceil(1024), path.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All of it, with the logs of these deployments.
pub(super) fn collect(home: &Home, has_logs: &dyn Fn(&Inputs) -> bool) -> Diagnostics {
    let plan = match plan::of_accepted(home.clone()) {
        Ok(preview) => serde_json::to_value(PlanOut::of(&preview)).unwrap_or_default(),
        Err(error) => Value::String(error.render()),
    };
    let history = match history::changes(home, CHANGES) {
        Ok(changes) => serde_json::to_value(changes).unwrap_or_default(),
        Err(error) => Value::String(error.render()),
    };
    let (made, version, status) = (Timestamp::now(), env!("CARGO_PKG_VERSION"), status::read(home).0);
    Diagnostics { made, version, doctor: examine(home), status, plan, history, logs: all_logs(home, has_logs) }
}

/// The last lines of what was applied of these deployments.
fn all_logs(home: &Home, has_logs: &dyn Fn(&Inputs) -> bool) -> BTreeMap<String, Vec<String>> {
    let (device_state, _) = loaded::peek(&home.repository());
    let redactor = logs::redactor(home);
    let meant = device_state.deployments.into_values().filter(|one| has_logs(&one.inputs));
    let all = meant.flat_map(|one| {
        let name = one.inputs.id;
        one.inputs.components.into_iter().map(move |component| (format!("{name}/{}", component.name), component))
    });
    all.map(|(name, component)| {
        let lines = tail(home, component).iter().map(|line| text::line(&redactor.clean(line))).collect();
        (name, lines)
    })
    .into_map()
}

/// The last lines of one component, or why they can't be had.
fn tail(home: &Home, component: AppliedComponent) -> Vec<String> {
    let (home, (sender, lines)) = (home.clone(), std::sync::mpsc::channel());
    // One that hangs is left behind.
    std::thread::spawn(move || {
        let mut found = Vec::new();
        let asked = Lines { tail: TAIL, follow: false };
        let result = logs::of(&home, &component, &asked, &mut |line| {
            found.push(line.to_owned());
            true
        });
        found.extend(result.err());
        sender.send(found)
    });
    lines.recv_timeout(LOGS).unwrap_or_else(|_| vec!["docker doesn't answer".to_owned()])
}

/// The document in as many bytes as it may have: the oldest lines go first, then history and plan.
pub(super) fn fitting(mut all: Diagnostics) -> String {
    loop {
        let document = super::show::json(&all);
        let longest = all.logs.values().map(Vec::len).max().unwrap_or(0);
        match document.len() {
            ..=MOST => return document,
            _ if longest > 1 => all.logs.values_mut().for_each(|lines| _ = lines.drain(..lines.len().div_ceil(2))),
            _ if !all.history.is_null() => all.history = Value::Null,
            _ if !all.plan.is_null() => all.plan = Value::Null,
            _ if !all.logs.is_empty() => all.logs.clear(),
            _ => return document,
        }
    }
}
