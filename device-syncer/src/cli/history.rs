//! `history`: what this device told of its deployments, newest first.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use jiff::{SignedDuration, Timestamp};
use repo_model::{DeploymentId, IntoMap, text};
use serde::Serialize;

use super::show::json;
use super::{OutputArgs, must_be};
use crate::config::{Home, parse_duration};
use crate::error::CliError;
use crate::state::history::{Entry, History};
use crate::state::loaded;

/// Prints what became of deployments here, newest first: each change of state that this device told, also what the host
/// doesn't know yet. Needs neither host nor runtime.
///
/// As far back as the clone goes: of what the host has, the device keeps about 1.5 MiB; the host keeps all of it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  device-syncer history                        # the newest 20 changes\n  \
                        device-syncer history hello --since 2d       # of one deployment, of two days\n  \
                        device-syncer history -n 1000 --output json")]
pub(super) struct Args {
    /// The operator's id of one deployment, or its `deploymentId`; all of them if left out.
    deployment: Option<String>,
    /// From a moment on (2026-11-23T06:00:00Z), or for so long back (12h, 2d).
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// The most changes that are printed.
    #[arg(short = 'n', long = "number", value_name = "COUNT", default_value_t = 20)]
    number: usize,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    must_be(home)?;
    let since = args.since.as_deref().map(|text| moment(text, Timestamp::now())).transpose()?;
    let told = Told { changes: transitions(home, args.deployment.as_deref(), since, args.number)? };
    if let Some(asked) = args.deployment.as_ref().filter(|_| told.changes.is_empty() && since.is_none()) {
        return Err(CliError::Input(format!("nothing was told of a deployment `{asked}` here")));
    }
    args.output.print(|| shown(&told.changes), || json(&told))?;
    Ok(ExitCode::SUCCESS)
}

/// The newest changes of all deployments.
pub(super) fn changes(home: &Home, number: usize) -> Result<impl Serialize + use<>, CliError> {
    transitions(home, None, None, number)
}

fn transitions(
    home: &Home,
    deployment: Option<&str>,
    since: Option<Timestamp>,
    number: usize,
) -> Result<Vec<Change>, CliError> {
    let Some(history) = History::read(&home.repository(), since)? else { return Ok(Vec::new()) };
    let names = names(home, &history);
    let is_asked = |entry: &&Entry| {
        let id = entry.transition.deployment;
        let is_named = |asked: &str| *asked == id.to_string() || names.get(&id).is_some_and(|name| name == asked);
        entry.transition.component.is_some() && deployment.is_none_or(is_named)
    };
    let entries = history.entries.iter().filter(is_asked).take(number);
    Ok(entries.map(|entry| Change::of(entry, &history, &names)).collect())
}

/// What a person means by `--since`.
fn moment(text: &str, now: Timestamp) -> Result<Timestamp, CliError> {
    let back = || {
        let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
        let days = days.map(|days| SignedDuration::from_hours(24 * i64::from(days)));
        let duration = || parse_duration(text).and_then(|duration| SignedDuration::try_from(duration).ok());
        now.checked_sub(days.or_else(duration)?).ok()
    };
    let found = text.parse().ok().or_else(back);
    found.ok_or_else(|| {
        CliError::Input(format!(
            "`--since {text}` is neither a moment such as 2026-11-23T06:00:00Z nor a duration such as 12h"
        ))
    })
}

/// The operator's ids, as far as they are known here.
fn names(home: &Home, history: &History) -> BTreeMap<DeploymentId, String> {
    let (device_state, desired) = loaded::peek(&home.repository());
    let all = history.entries.iter().map(|entry| entry.transition.deployment);
    all.map(|id| (id, device_state.name_of(id, desired.as_ref()))).into_map()
}

/// What was told, for `--output json`.
#[derive(Debug, Serialize)]
struct Told {
    changes: Vec<Change>,
}

/// One change of state of a component.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Change {
    /// By the device's clock.
    at: Timestamp,
    /// The operator's id; where that isn't known any more, the `deploymentId`.
    deployment: String,
    deployment_id: String,
    component: String,
    /// `null` where nothing was reported of it before.
    from: Option<String>,
    to: String,
    /// Why, where there is a reason.
    code: Option<String>,
    message: Option<String>,
    /// Of the desired state in force then; 0 before the first.
    serial: u64,
    /// The signed commit on `status`.
    commit: String,
}

impl Change {
    fn of(entry: &Entry, history: &History, names: &BTreeMap<DeploymentId, String>) -> Self {
        let transition = &entry.transition;
        Self {
            at: entry.at,
            deployment: names.get(&transition.deployment).cloned().unwrap_or_default(),
            deployment_id: transition.deployment.to_string(),
            component: transition.component.as_ref().map(ToString::to_string).unwrap_or_default(),
            from: transition.from.map(|state| state.to_string()),
            to: transition.to.to_string(),
            code: transition.code.clone(),
            message: history.words(entry),
            serial: entry.serial,
            commit: entry.commit.to_string(),
        }
    }
}

fn shown(changes: &[Change]) -> String {
    if changes.is_empty() {
        return "nothing was told\n".to_owned();
    }
    let names = |one: &Change| format!("{}/{}", one.deployment, one.component);
    let width = changes.iter().map(|one| names(one).len()).max().unwrap_or(0);
    let mut all = String::new();
    for one in changes {
        let from = one.from.as_deref().unwrap_or("none");
        let why = match (&one.code, &one.message) {
            (Some(code), Some(message)) => text::cell(&format!("{code}: {message}")),
            (Some(code), None) => code.clone(),
            (None, _) => String::new(),
        };
        let line = format!("{:.0}  {:width$}  {from} > {}  {why}", one.at, names(one), one.to);
        let _ = writeln!(all, "{}", line.trim_end());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_a_moment_or_so_long_back() {
        let now: Timestamp = "2026-11-23T15:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("2026-11-23T06:00:00Z", "2026-11-23T06:00:00Z"),
            ("2026-11-23T06:00:00+01:00", "2026-11-23T05:00:00Z"),
            ("12h", "2026-11-23T03:00:00Z"),
            ("2d", "2026-11-21T15:00:00Z"),
        ] {
            assert_eq!(moment(text, now).unwrap(), expected.parse::<Timestamp>().unwrap(), "{text}");
        }
        assert!(moment("yesterday", now).is_err());
    }
}
