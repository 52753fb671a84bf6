//! `rollout show`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::{Output, OutputArgs, PAUSE, Place, asked, print, print_json, table, threads, usable_fleet};
use crate::error::{Failure, USER};
use crate::fleet::RolloutWords;
use crate::operator::Answer;
use crate::rollout::Phase;
use crate::status::{RolloutStatus, Usable, rollout, rollout_words};

/// Shows a rollout: its waves, its stops, what it waited for at the last look, and what each device is by what it verifiably says
///
///   wfm-git-publisher rollout show 12
///   wfm-git-publisher rollout show 12 --output json
///
/// With --watch it is shown anew whenever it changes, until it is done or another one came in its place (exit code 0), or
/// it stopped (exit code 1).
///
///   wfm-git-publisher rollout show 12 --watch
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct ShowArgs {
    /// The number of the rollout, as `rollout list` shows it
    number: u32,

    /// Show it whenever it changes, until it ends or stops
    #[arg(long)]
    watch: bool,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: &ShowArgs) -> Result<u8, Failure> {
    let (home, mut before, mut noted) = (place.home()?, None, None);
    loop {
        let source = place.published_source()?;
        let commit = source.resolve("HEAD")?;
        let Usable { fleet, .. } = usable_fleet(&home, &source, commit, noted.replace(commit))?;
        let found = rollout(&home, &fleet, args.number, threads(), Timestamp::now())?;
        let status = found.ok_or_else(|| unknown(args.number))?;
        let shown = Shown { words: rollout_words(&fleet, status.state.rollout), status };
        shown.print(args.output.output, &mut before);
        match shown.end() {
            _ if !args.watch => return Ok(0),
            Some(code) => return Ok(code),
            None => std::thread::sleep(PAUSE),
        }
    }
}

/// Prints what a host answers as `--watch` does, and asks it again until that ends.
pub(in crate::cli) fn watcher(question: &str, form: Output) -> impl FnMut(&Answer) -> Result<asked::Next, Failure> {
    let mut before = None;
    move |answer| {
        let shown: Shown = asked::read(answer)?;
        shown.print(form, &mut before);
        Ok(shown.end().map_or_else(|| asked::Next::Continue(question.to_owned()), asked::Next::Break))
    }
}

/// There is no such rollout.
pub(super) fn unknown(number: u32) -> Failure {
    Failure::missing(format!("there is no rollout {number}")).hint("`rollout list` lists those that are remembered")
}

/// A rollout with what persons said of it.
#[derive(Serialize, Deserialize)]
struct Shown {
    #[serde(flatten)]
    status: RolloutStatus,
    words: RolloutWords,
}

/// What was printed last, by which `--watch` knows whether there is anything new.
#[derive(PartialEq)]
enum Printed {
    Text(String),
    Json(Value),
}

impl Shown {
    /// Prints it, unless just that was printed before.
    fn print(&self, form: Output, before: &mut Option<Printed>) {
        let new = match form {
            Output::Text => Printed::Text(text(self)),
            Output::Json => Printed::Json(json!(self)),
        };
        if before.as_ref() == Some(&new) {
            return;
        }
        match &new {
            Printed::Text(text) => print(text),
            Printed::Json(value) => print_json(value),
        }
        *before = Some(new);
    }

    /// The exit code with which watching it ends; `None` while it runs.
    fn end(&self) -> Option<u8> {
        match self.status.state.state {
            Phase::Done | Phase::Superseded => Some(0),
            Phase::Stopped => Some(USER),
            Phase::Running => None,
        }
    }
}

fn text(Shown { status, words }: &Shown) -> String {
    let state = &status.state;
    let names: Vec<_> = state.deployments.iter().map(ToString::to_string).collect();
    let mut text = format!("Rollout {}: {}\n", state.rollout, state.state.as_str());
    text += &format!("Deployments: {} (fleet commit {})\n", names.join(", "), state.fleet_commit);
    if !state.supersedes.is_empty() {
        let old: Vec<_> = state.supersedes.iter().map(ToString::to_string).collect();
        text += &format!("In the place of: {}\n", old.join(", "));
    }
    if words.paused {
        text += "Paused: nothing more is released\n";
    }
    text += &status.waiting.iter().map(|waits| format!("By the last look it {waits}\n")).collect::<String>();
    for (number, stop) in (1..).zip(&state.stops) {
        let lifted = stop.resumed.map_or_else(|| "not lifted".to_owned(), |at| format!("lifted {at:.0}"));
        text += &format!("Stop {number}: {:.0}, {}; {lifted}\n", stop.at, stop.reason);
    }
    let mut counts = BTreeMap::new();
    for row in status.devices.values() {
        let what = row.state.map_or("not released", |state| state.as_str());
        *counts.entry(what).or_insert(0) += 1;
    }
    if !counts.is_empty() {
        let counts: Vec<_> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        text += &format!("Devices: {}\n", counts.join(", "));
    }
    let shown = status.devices.iter().filter(|(_, row)| row.state.is_some() || status.members == 0);
    let rows = shown.map(|(device, row)| {
        let what = row.state.map_or_else(|| "-".to_owned(), |state| state.to_string());
        let released = row.released.map_or_else(|| "-".to_owned(), |at| format!("{at:.0}"));
        let wave = if row.wave == 0 { "-".to_owned() } else { format!("{} of {}", row.wave, status.last_wave) };
        [device.to_string(), wave, released, what, row.why.clone()]
    });
    let head = ["DEVICE", "WAVE", "RELEASED", "STATE", "WHY"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    if rows.len() > 1 { text + "\n" + &table(&rows) } else { text }
}
