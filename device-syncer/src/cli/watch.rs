//! `status --watch`: the status whenever it changes.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;

use super::{Output, OutputArgs, print, show};
use crate::error::CliError;

/// How often the status is read anew.
const INTERVAL: Duration = Duration::from_secs(1);

/// Puts the cursor into the first column of the first row, and clears what is below.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J\u{1b}[3J";

/// Shows the status until the program is ended, or nobody reads it any more.
pub(super) fn run(read: &dyn Fn() -> show::StatusOut, output: OutputArgs) -> Result<ExitCode, CliError> {
    let (is_terminal, mut before) = (io::stdout().is_terminal(), Shown::default());
    loop {
        let status = read();
        let now = Timestamp::now();
        let text = match output.output {
            Output::Json => before.json(&status),
            Output::Text if is_terminal => before.page(&status, now),
            Output::Text => before.changes(status.lines(), now),
        };
        match print(&text) {
            Err(CliError::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            printed => printed?,
        }
        std::thread::sleep(INTERVAL);
    }
}

/// What was shown last.
#[derive(Debug, Default)]
struct Shown {
    text: String,
    lines: BTreeMap<String, String>,
}

impl Shown {
    /// A page in place of the one before; nothing if that is the same.
    fn page(&mut self, status: &show::StatusOut, now: Timestamp) -> String {
        let page = format!("{}\n{}", status.heading(), show::status(status, now));
        if page == self.text {
            return String::new();
        }
        self.text.clone_from(&page);
        format!("{CLEAR}{page}")
    }

    /// One line of JSON; nothing if nothing changed.
    fn json(&mut self, status: &show::StatusOut) -> String {
        let line = show::json_line(status);
        if line == self.text {
            return String::new();
        }
        self.text.clone_from(&line);
        line
    }

    /// A line with its time for each that is new or another one, and for each that is gone.
    fn changes(&mut self, lines: BTreeMap<String, String>, now: Timestamp) -> String {
        let gone =
            self.lines.keys().filter(|what| !lines.contains_key(*what)).map(|what| format!("{now:.0} {what}: gone\n"));
        let new = lines.iter().filter(|(what, text)| self.lines.get(*what) != Some(text));
        let all: String = gone.chain(new.map(|(what, text)| format!("{now:.0} {what}: {text}\n"))).collect();
        self.lines = lines;
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_a_line_and_what_stays_is_not_printed_again() {
        let now: Timestamp = "2026-11-23T15:00:00Z".parse().unwrap();
        let mut shown = Shown::default();
        let mut changes = |lines: &[(&str, &str)]| {
            let lines = lines.iter().map(|(what, text)| ((*what).to_owned(), (*text).to_owned())).collect();
            shown.changes(lines, now)
        };
        assert_eq!(changes(&[("a", "1"), ("b", "1")]), "2026-11-23T15:00:00Z a: 1\n2026-11-23T15:00:00Z b: 1\n");
        assert_eq!(changes(&[("a", "1"), ("b", "1")]), "");
        assert_eq!(changes(&[("b", "2")]), "2026-11-23T15:00:00Z a: gone\n2026-11-23T15:00:00Z b: 2\n");
    }
}
