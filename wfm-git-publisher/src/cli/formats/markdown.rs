//! Markdown for a review: what is wrong, and each change once.
//!
//! Whatever strangers wrote is in code spans, which hold no markup, no link and no mention of anybody.

use repo_model::text;

use super::{Finding, Found, Row};

/// The most bytes of a page, but for its last line: GitHub refuses a comment of more than 65,536 characters, and others want to
/// add something.
const MAX_BYTES: usize = 59_900;

/// The most details of a change.
const MAX_DETAILS: usize = 20;

/// The outcome first, because a page that is too long ends where it is full, and says what it leaves out.
pub(super) fn page(found: &Found) -> String {
    let mut page = Page { text: format!("{}\n", code(&found.summary)), left_out: 0 };
    page.table("", found.rollouts.iter().map(|line| format!("\n{}\n", code(line))));
    page.table("\n| | Where | What |\n|---|---|---|\n", found.findings.iter().map(finding));
    page.table("\n| Change | Old → new | Devices |\n|---|---|---|\n", found.changes.iter().map(change));
    match page.left_out {
        0 => page.text,
        rows => format!("{}\n… and {rows} more; `wfm-git-publisher {}` tells them all\n", page.text, found.command),
    }
}

struct Page {
    text: String,
    /// How many rows had no place.
    left_out: usize,
}

impl Page {
    fn table(&mut self, head: &str, rows: impl Iterator<Item = String>) {
        let mut head = Some(head);
        for row in rows {
            let begin = head.unwrap_or_default();
            if self.text.len() + begin.len() + row.len() > MAX_BYTES {
                self.left_out += 1;
                continue;
            }
            self.text.push_str(begin);
            self.text.push_str(&row);
            head = None;
        }
    }
}

fn finding(one: &Finding) -> String {
    let place = [one.problem.line, one.problem.column].into_iter().flatten().map(|number| format!(":{number}"));
    let place = format!("{}{}", one.problem.file, place.collect::<String>());
    let level = if one.is_error() { "**error**" } else { "warning" };
    format!("| {level} | {} | {} |\n", code(&place), codes(one.text().lines()))
}

fn change(Row { change, details, devices }: &Row) -> String {
    let mut shown = codes(details.iter().take(MAX_DETAILS).map(String::as_str));
    if details.len() > MAX_DETAILS {
        shown += &format!("<br>and {} more", details.len() - MAX_DETAILS);
    }
    format!("| {} | {shown} | {} |\n", code(change), code(devices))
}

fn codes<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.map(code).collect::<Vec<_>>().join("<br>")
}

/// A code span that stays one whatever is in it, also in a cell of a table.
fn code(text: &str) -> String {
    let cell = text::cell(text).replace('\\', "\\\\").replace('|', "\\|").replace('`', "'");
    if cell.is_empty() { cell } else { format!("`{cell}`") }
}
