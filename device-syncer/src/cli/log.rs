//! The log: one event a line on standard error. What was said lately isn't said again, but counted.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::{env, fmt, io};

use clap::ValueEnum;
use jiff::{SignedDuration, Timestamp};
use repo_model::text::Harmless;
use repo_service::log::{fields, filter};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::reconcile::agent::OUTCOME;

/// The form of the log on standard error: `--log`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum LogForm {
    Text,
    Json,
}

/// How long a line isn't written again.
const LATELY: SignedDuration = SignedDuration::from_hours(1);

/// How many of the last lines a new one is compared with.
const LINES: usize = 200;

/// Logs from now on, as `DEVICE_SYNCER_LOG` says: levels, each for all or after `target=`, with commas between them.
pub(super) fn start(form: LogForm) {
    let wanted = env::var("DEVICE_SYNCER_LOG").unwrap_or_default();
    let (filter, error) = filter(&wanted);
    let logs = tracing_subscriber::fmt().with_max_level(Level::TRACE).without_time();
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    match form {
        LogForm::Text => {
            let logs = logs.with_writer(io::stderr).fmt_fields(fields());
            let logs = logs.map_event_format(|format| Sparing::new(format.with_ansi(is_terminal), form));
            logs.finish().with(filter).init();
        }
        LogForm::Json => {
            let logs = logs.json().map_event_format(|format| Sparing::new(format, form));
            logs.with_writer(|| Harmless(io::stderr())).finish().with(filter).init();
        }
    }
    if let Some(error) = error {
        tracing::warn!(%error, %wanted, "DEVICE_SYNCER_LOG isn't a filter such as `debug` or `info,gix=off`: `info` holds");
    }
}

/// Puts the time before lines, and leaves out those that were written lately. What is for debugging is all written.
struct Sparing<F> {
    format: F,
    form: LogForm,
    lately: Mutex<Lately>,
}

impl<F> Sparing<F> {
    fn new(format: F, form: LogForm) -> Self {
        Self { format, form, lately: Mutex::default() }
    }
}

impl<S, N, F> FormatEvent<S, N> for Sparing<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let (mut line, level, now) = (String::new(), *event.metadata().level(), Timestamp::now());
        self.format.format_event(context, Writer::new(&mut line), event)?;
        let line = line.trim_end_matches('\n').to_owned();
        if level > Level::INFO {
            return write_line(self.form, &mut out, now, &line, None);
        }
        let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        let due = match event.metadata().name() {
            OUTCOME => lately.changed(line),
            _ => lately.line(line, now),
        };
        due.iter().try_for_each(|(line, more)| write_line(self.form, &mut out, now, line, *more))
    }
}

fn write_line(form: LogForm, out: &mut Writer<'_>, now: Timestamp, line: &str, more: Option<More>) -> fmt::Result {
    match form {
        LogForm::Text => {
            write!(out, "{now:.6} {line}")?;
            if let Some(More { times, since }) = more {
                write!(out, " … {times} times more since {since:.0}")?;
            }
        }
        LogForm::Json => {
            let inside = line.strip_prefix('{').and_then(|line| line.strip_suffix('}')).unwrap_or_default();
            write!(out, "{{\"timestamp\":\"{now:.6}\",{inside}")?;
            if let Some(More { times, since }) = more {
                write!(out, ",\"timesMore\":{times},\"since\":\"{since:.0}\"")?;
            }
            write!(out, "}}")?;
        }
    }
    writeln!(out)
}

/// How often a line wasn't written, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct More {
    times: u64,
    since: Timestamp,
}

/// The lines that were written lately, oldest first.
#[derive(Debug, Default)]
struct Lately(VecDeque<WrittenLine>);

#[derive(Debug)]
struct WrittenLine {
    line: String,
    written: Timestamp,
    times_more: u64,
}

impl WrittenLine {
    fn more(&self) -> Option<More> {
        (self.times_more > 0).then_some(More { times: self.times_more, since: self.written })
    }
}

/// Lines that are due, with how often each wasn't written before.
type Due = Vec<(String, Option<More>)>;

impl Lately {
    /// What is written for a line that may have been written lately.
    fn line(&mut self, line: String, now: Timestamp) -> Due {
        let mut due = Vec::new();
        if let Some(place) = self.0.iter().position(|before| before.line == line) {
            if now.duration_since(self.0[place].written).abs() < LATELY {
                self.0[place].times_more += 1;
                return due;
            }
            due.push((line.clone(), self.0.remove(place).and_then(|before| before.more())));
        } else {
            self.forget((self.0.len() + 1).saturating_sub(LINES), &mut due);
            due.push((line.clone(), None));
        }
        self.0.push_back(WrittenLine { line, written: now, times_more: 0 });
        due
    }

    /// What is written for an outcome, after which everything is worth saying again.
    fn changed(&mut self, line: String) -> Due {
        let mut due = Vec::new();
        self.forget(self.0.len(), &mut due);
        due.push((line, None));
        due
    }

    /// Forgets the oldest lines; those that weren't written again are due, with their number.
    fn forget(&mut self, lines: usize, due: &mut Due) {
        due.extend(self.0.drain(..lines).filter_map(|before| before.more().map(|more| (before.line, Some(more)))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    /// What is written of these events, each with its minute; `+` marks an outcome.
    fn written(events: &[(i64, &str)]) -> Vec<String> {
        let mut lately = Lately::default();
        let written = |(minute, line): &(i64, &str)| match line.strip_prefix('+') {
            Some(line) => lately.changed(line.to_owned()),
            None => lately.line((*line).to_owned(), at(*minute)),
        };
        let due = events.iter().flat_map(written);
        due.map(|(line, more)| match more {
            Some(More { times, since }) => format!("{line} {times} since {}", since.as_second() / 60),
            None => line,
        })
        .collect()
    }

    #[test]
    fn the_same_line_is_written_once_an_hour_and_counted() {
        let events: Vec<_> = (0..130).map(|minute| (minute, "no engine")).collect();
        assert_eq!(written(&events), ["no engine", "no engine 59 since 0", "no engine 59 since 60"]);
        assert_eq!(written(&[(100, "failed"), (0, "failed")]), ["failed", "failed"], "the clock was put back");
    }

    #[test]
    fn what_comes_again_after_another_outcome_is_written_again() {
        let events = [(0, "failed"), (1, "failed"), (2, "+all is well"), (3, "failed"), (4, "+all is well")];
        assert_eq!(written(&events), ["failed", "failed 1 since 0", "all is well", "failed", "all is well"]);
    }

    #[test]
    fn what_comes_in_turns_is_written_once() {
        let turns: Vec<_> = (0..10).flat_map(|minute| [(minute, "applying"), (minute, "failed")]).collect();
        assert_eq!(written(&turns), ["applying", "failed"]);
    }

    #[test]
    fn lines_that_are_all_others_take_no_more_memory_than_some() {
        let mut lately = Lately::default();
        let mut write = |line: usize| lately.line(line.to_string(), at(0));
        for line in 0..10 * LINES {
            assert_eq!(write(line), [(line.to_string(), None)]);
        }
        assert_eq!(write(10 * LINES - 1), []);
        assert_eq!(lately.0.len(), LINES);
    }
}
