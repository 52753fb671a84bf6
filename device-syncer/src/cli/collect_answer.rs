//! The hidden command that collects what an answer to the fleet has: in a process of its own, which the syncer bounds.

use std::collections::{BTreeMap, VecDeque};
use std::process::ExitCode;
use std::sync::mpsc::channel;

use repo_model::{json, text};
use serde_json::{Value, json};

use super::diagnostics::{collect, fitting};
use super::{logs, print};
use crate::config::{Home, Settings};
use crate::error::CliError;
use crate::reconcile::answers::CONTENT;
use crate::runtimes::{Lines, Redactor};

/// The newest lines of each container that are looked at.
const TAIL: usize = 2000;

/// Prints what an answer has, as one JSON document of bounded size.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The deployment whose logs are asked for; without it, diagnostics are.
    deployment: Option<String>,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    let collected = match &args.deployment {
        Some(deployment) => json!({"logs": newest(home, deployment)?}),
        None => json!({"diagnostics": diagnostics(home)}),
    };
    print(&collected.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// What `diagnostics` prints, with the logs that may leave the device.
fn diagnostics(home: &Home) -> Value {
    let remote = Settings::read(home).map(|settings| settings.remote).unwrap_or_default();
    let document = fitting(collect(home, &|inputs| remote.gives_logs(inputs.names())));
    harmless(serde_json::from_str(&document).unwrap_or_default(), &logs::redactor(home))
}

/// The same without secrets, and with nothing in its texts that steers a terminal, whoever shows them.
fn harmless(value: Value, redactor: &Redactor) -> Value {
    match value {
        Value::String(text) => Value::String(text::page(&redactor.clean(&text))),
        Value::Array(all) => all.into_iter().map(|value| harmless(value, redactor)).collect(),
        Value::Object(all) => {
            let entries = all.into_iter().map(|(key, value)| (text::line(&key), harmless(value, redactor)));
            json::object(entries).into()
        }
        other => other,
    }
}

/// The newest lines of each component that have room together.
fn newest(home: &Home, deployment: &str) -> Result<BTreeMap<String, VecDeque<String>>, CliError> {
    let components = logs::components(home, deployment, None)?;
    let redactor = logs::redactor(home);
    let mut kept = Newest::default();
    components.iter().for_each(|one| _ = kept.lines.entry(one.name.to_string()).or_default());
    let (sender, lines) = channel();
    let asked = Lines { tail: TAIL, follow: false };
    let threads: Vec<_> = components.into_iter().map(|one| logs::follow(home, one, asked, sender.clone())).collect();
    drop(sender);
    for (component, line) in lines {
        kept.push(component, text::line(&redactor.clean(&line)));
    }
    let ended = threads.into_iter().try_for_each(|one| one.join().unwrap_or(Ok(())));
    ended.map_err(|error| CliError::Input(redactor.clean(&error)))?;
    Ok(kept.lines)
}

/// Lines by component, as many as have room.
#[derive(Default)]
struct Newest {
    lines: BTreeMap<String, VecDeque<String>>,
    bytes: usize,
}

impl Newest {
    /// Adds one; where there is no room for it, the oldest of the component that has the most go.
    fn push(&mut self, component: String, line: String) {
        self.bytes += size(&line);
        self.lines.entry(component).or_default().push_back(line);
        while self.bytes > CONTENT - (4 << 10) {
            let longest = self.lines.values_mut().max_by_key(|lines| lines.len());
            let Some(oldest) = longest.and_then(VecDeque::pop_front) else { return };
            self.bytes -= size(&oldest);
        }
    }
}

/// The bytes of a line in JSON.
fn size(line: &str) -> usize {
    Value::from(line).to_string().len() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_have_room_and_a_component_that_prints_without_end_leaves_the_others_theirs() {
        let mut kept = Newest::default();
        kept.push("quiet".to_owned(), "once".to_owned());
        for number in 0..10_000 {
            kept.push("loud".to_owned(), format!("\"{number}\" {}", "x".repeat(90)));
        }
        assert_eq!(kept.lines["quiet"], ["once"]);
        assert!(kept.lines["loud"].back().unwrap().starts_with("\"9999\""));
        let length = json!({"logs": kept.lines}).to_string().len();
        assert!((CONTENT - (8 << 10)..CONTENT).contains(&length), "{length}");
    }

    #[test]
    fn nothing_in_diagnostics_steers_a_terminal_or_is_a_secret() {
        let (value, redactor) =
            (json!({"a\u{1b}": ["\u{1b}[2J", 1, "two hunter22\nlines"]}), Redactor::new(["hunter22"]));
        assert_eq!(harmless(value, &redactor), json!({"a\\u{1b}": ["\\u{1b}[2J", 1, "two ***\nlines"]}));
    }
}
