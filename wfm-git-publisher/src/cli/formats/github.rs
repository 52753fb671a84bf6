//! Workflow commands, by which GitHub Actions marks lines of files.
//!
//! The syntax and its escapes are those of GitHub's toolkit (`packages/core/src/command.ts`).

use std::fmt::Write;

use super::{Finding, Found};

/// A command for each thing that is wrong, errors first because GitHub shows ten of a step, and the outcome at the end.
pub(super) fn commands(found: &Found) -> String {
    let mut text = String::new();
    for finding in &found.findings {
        let level = if finding.is_error() { "error" } else { "warning" };
        let _ = writeln!(text, "::{level} {}::{}", place(finding), data(&finding.text()));
    }
    let title = property(&format!("wfm-git-publisher {}", found.command));
    let _ = writeln!(text, "::notice title={title}::{}", data(&found.summary));
    text
}

fn place(Finding { rule, problem }: &Finding) -> String {
    let line = problem.line.iter().map(|line| format!("line={line},"));
    let column = problem.column.iter().map(|column| format!("col={column},"));
    let place = line.chain(column).collect::<String>();
    format!("file={},{place}title={}", property(&problem.file), property(rule))
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
