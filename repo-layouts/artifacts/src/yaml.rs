//! What is wrong with strangers' YAML, in one line.

use serde_yaml::{DefaultMessageFormatter, Error, MessageFormatter};

/// `<file>:<line>:<column>: <message>`; without a place where the error has none.
///
/// `Display` of the error, which draws the lines around it, would bring 85 kB into the program.
pub(crate) fn problem(file: &str, error: &Error) -> String {
    let error = error.without_snippet();
    let message = DefaultMessageFormatter.format_message(error);
    match error.location() {
        Some(at) => format!("{file}:{}:{}: {message}", at.line(), at.column()),
        None => format!("{file}: {message}"),
    }
}
