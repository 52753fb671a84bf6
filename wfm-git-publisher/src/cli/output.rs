//! What commands print: for people, and for programs.

use std::io::Write;

use clap::ValueEnum;
use repo_model::text;
use serde::Serialize;

use crate::operator::API_VERSION;

/// The option of every command that prints.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct OutputArgs {
    /// Prints for people, or for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) output: Output,
}

impl OutputArgs {
    /// Whether a program reads it, which wants one result.
    pub(super) fn is_json(self) -> bool {
        self.output == Output::Json
    }

    /// Prints a result in the one form or in the other.
    pub(super) fn print(self, text: &str, json: impl FnOnce() -> serde_json::Value) {
        match self.output {
            Output::Text => print(text),
            Output::Json => print_json(&json()),
        }
    }
}

/// The form of a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// Tables and sentences, for people
    #[default]
    #[value(alias = "table")]
    Text,
    /// For programs: texts in it are exactly what strangers wrote, so escape them before you show them
    Json,
}

/// Writes to standard output, whatever is quoted in it; a reader that went away is no error.
pub(super) fn print(page: &str) {
    write_out(&text::page(page));
}

/// Prints an object for programs, with its version.
pub(super) fn print_json(result: &impl Serialize) {
    print_format(&Versioned::of(result));
}

/// The same on a line of its own.
pub(super) fn print_json_line(result: &impl Serialize) {
    print_json_text(&(serde_json::to_string(&Versioned::of(result)).unwrap_or_default() + "\n"));
}

/// Prints what has a format of its own.
pub(super) fn print_format(value: &impl Serialize) {
    print_json_text(&(serde_json::to_string_pretty(value).unwrap_or_default() + "\n"));
}

/// An object for programs, with its version.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Versioned<'a, T> {
    api_version: &'static str,
    #[serde(flatten)]
    result: &'a T,
}

impl<'a, T> Versioned<'a, T> {
    fn of(result: &'a T) -> Self {
        Self { api_version: API_VERSION, result }
    }
}

pub(super) fn print_json_text(json: &str) {
    write_out(&text::json(json));
}

pub(super) fn write_out(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
