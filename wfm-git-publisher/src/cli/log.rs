//! The log of the programs that keep running, on standard error.

use clap::ValueEnum;
use repo_model::text::{self, Harmless};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::debug_fn;

/// The form of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Log {
    /// Lines for people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

pub(super) fn start(log: Log) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter);
    // An event is one line, whatever strangers wrote in its fields.
    let fields = debug_fn(|writer, field, value| match field.name() {
        "message" => write!(writer, "{}", text::line(&format!("{value:?}"))),
        name => write!(writer, "{name}={}", text::line(&format!("{value:?}"))),
    });
    match log {
        Log::Text => builder.with_writer(std::io::stderr).fmt_fields(fields.delimited(" ")).init(),
        Log::Json => builder.json().with_writer(|| Harmless(std::io::stderr())).init(),
    }
}
