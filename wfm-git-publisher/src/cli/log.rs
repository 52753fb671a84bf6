//! The log of the programs that keep running, on standard error.

use std::env;

use clap::ValueEnum;
use repo_model::text::Harmless;
use repo_service::log::{fields, filter};
use tracing::Level;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The form of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Log {
    /// Lines that people read
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
    match log {
        Log::Text => {
            logs.with_writer(std::io::stderr).fmt_fields(fields()).finish().with(filter).init();
        }
        Log::Json => logs.json().with_writer(|| Harmless(std::io::stderr())).finish().with(filter).init(),
    }
    if let Some(error) = error {
        tracing::warn!(%error, %wanted, "RUST_LOG isn't a filter such as `debug` or `info,access=off`: `info` holds");
    }
}
