//! The log of the programs that keep running, on standard error.

use std::env;

use clap::ValueEnum;
use repo_model::text::{self, Harmless};
use tracing::Level;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The form of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Log {
    /// Lines for people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// Logs from now on, as `RUST_LOG` says: levels, each for all or after `target=`, with commas between them.
pub(super) fn start(log: Log) {
    let wanted = env::var("RUST_LOG").unwrap_or_default();
    let (filter, error) = filter(&wanted);
    let logs = tracing_subscriber::fmt().with_max_level(Level::TRACE);
    // An event is one line, whatever strangers wrote in its fields.
    let fields = debug_fn(|writer, field, value| match field.name() {
        "message" => write!(writer, "{}", text::line(&format!("{value:?}"))),
        name => write!(writer, "{name}={}", text::line(&format!("{value:?}"))),
    });
    match log {
        Log::Text => {
            logs.with_writer(std::io::stderr).fmt_fields(fields.delimited(" ")).finish().with(filter).init();
        }
        Log::Json => logs.json().with_writer(|| Harmless(std::io::stderr())).finish().with(filter).init(),
    }
    if let Some(error) = error {
        tracing::warn!(%error, %wanted, "RUST_LOG isn't a filter such as `debug` or `info,access=off`: `info` holds");
    }
}

/// What is logged; `info` where nothing is said, or nothing that can be read.
fn filter(wanted: &str) -> (Targets, Option<ParseError>) {
    let info = Targets::new().with_default(Level::INFO);
    match wanted.parse() {
        _ if wanted.is_empty() => (info, None),
        Ok(filter) => (filter, None),
        Err(error) => (info, Some(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_said_and_info_holds() {
        for (wanted, level, target) in
            [("", Level::INFO, "gix"), ("debug", Level::DEBUG, "gix"), ("info,gix=trace", Level::TRACE, "gix")]
        {
            let (filter, error) = filter(wanted);
            assert!(error.is_none() && filter.would_enable(target, &level), "{wanted}");
        }
        let (off, _) = filter("info,gix=off");
        assert!(!off.would_enable("gix::open", &Level::ERROR) && off.would_enable("other", &Level::INFO));
        for wanted in ["gix=loud", "info,gix=["] {
            let (filter, error) = filter(wanted);
            assert!(error.is_some(), "{wanted}");
            assert!(filter.would_enable("gix", &Level::INFO) && !filter.would_enable("gix", &Level::DEBUG), "{wanted}");
        }
    }
}
