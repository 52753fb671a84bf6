//! What both programs log, and how its fields are written: an event is one line, whatever strangers wrote into it.

use repo_model::text;
use tracing::Level;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::debug_fn;

/// What is logged by these words: levels, each for all or after `target=`, with commas between them. `info` where nothing is
/// said, or nothing that can be read; then the error says why.
pub fn filter(wanted: &str) -> (Targets, Option<ParseError>) {
    let info = Targets::new().with_default(Level::INFO);
    match wanted.parse() {
        _ if wanted.is_empty() => (info, None),
        Ok(filter) => (filter, None),
        Err(error) => (info, Some(error)),
    }
}

/// Writes the fields of an event for people.
pub fn fields() -> impl for<'writer> FormatFields<'writer> + 'static {
    let fields = debug_fn(|writer, field, value| match field.name() {
        "message" => write!(writer, "{}", text::line(&format!("{value:?}"))),
        name => write!(writer, "{name}={}", text::line(&format!("{value:?}"))),
    });
    fields.delimited(" ")
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
