//! What a check found, as a row of the table.

use std::fmt::Write;
use std::process::ExitCode;

use repo_model::text;
use serde::Serialize;

use crate::error::{USER, WARNINGS};

/// How a check came out, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum Verdict {
    Ok,
    Warning,
    Failed,
}

/// What one check came to, as a line of the table and an object of the JSON.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Row {
    pub(in crate::cli) check: String,
    pub(in crate::cli) result: Verdict,
    /// What was found; it may quote what others wrote.
    pub(in crate::cli) found: String,
    /// What to do about it; absent where the check went well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) todo: Option<String>,
}

/// A check that wasn't begun: its name, for when it doesn't end, and what finds its rows.
pub(super) type Check = (String, Box<dyn FnOnce() -> Vec<Row> + Send>);

impl Row {
    pub(super) fn ok(check: impl Into<String>, found: impl Into<String>) -> Self {
        Self { check: check.into(), result: Verdict::Ok, found: found.into(), todo: None }
    }

    pub(super) fn warning(check: impl Into<String>, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { result: Verdict::Warning, todo: Some(todo.into()), ..Self::ok(check, found) }
    }

    pub(super) fn failed(check: impl Into<String>, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { result: Verdict::Failed, ..Self::warning(check, found, todo) }
    }
}

impl Verdict {
    /// The worst of a table; `Ok` of an empty one.
    pub(in crate::cli) fn worst(rows: &[Row]) -> Self {
        rows.iter().map(|row| row.result).max().unwrap_or(Self::Ok)
    }

    pub(in crate::cli) fn exit_code(self) -> ExitCode {
        match self {
            Self::Ok => ExitCode::SUCCESS,
            Self::Warning => ExitCode::from(WARNINGS),
            Self::Failed => ExitCode::from(USER),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// All of them for people; what to do is below what it is about.
pub(in crate::cli) fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.check.chars().count()).max().unwrap_or(0);
    let mut all = String::new();
    for Row { check, result, found, todo } in rows {
        let _ = writeln!(all, "{:width$}  {:7}  {}", text::cell(check), result.word(), text::cell(found));
        if let Some(todo) = todo {
            let _ = writeln!(all, "{:width$}           {}", "", text::cell(todo));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_row_decides_and_what_to_do_stands_below_it() {
        let mut rows = vec![Row::ok("clock", "right")];
        assert_eq!(Verdict::worst(&rows), Verdict::Ok);
        rows.push(Row::warning("room", "little\u{1b}[2J", "make some"));
        assert_eq!(Verdict::worst(&rows), Verdict::Warning);
        rows.push(Row::failed("host", "away", "call somebody"));
        assert_eq!(Verdict::worst(&rows), Verdict::Failed);
        let expected = "clock  ok       right\nroom   warning  little\\u{1b}[2J\n                make some\nhost   failed   away\n                call somebody\n";
        assert_eq!(table(&rows), expected);
    }
}
