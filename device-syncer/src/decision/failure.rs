//! Why something isn't done, in words that may be signed and shown.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

use repo_model::text;
use serde::{Deserialize, Serialize};

/// Why something isn't done: a code of the contract, and words that hold no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A code of the error table.
    pub code: String,
    /// One paragraph for a person, without secrets.
    pub message: String,
}

impl Failure {
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

/// How long words of the site stay as they were first, whatever it says meanwhile: each change of them is a commit for ever.
pub const STEADY: Duration = Duration::from_secs(600);

/// The most characters of a stranger's words that are signed and shown for ever.
const WORDS: usize = 1024;

/// A stranger's words as they may stand in what is signed and shown for ever: the beginning, and nothing in it is hidden.
pub fn shown(words: &str) -> String {
    let begin: String = words.chars().take(WORDS).collect();
    text::page(&begin).chars().take(WORDS).collect()
}

/// The most characters of a line that a person, or a program of the site's, says.
pub const LINE: usize = 200;

/// What a person or a program of the site's says, as one line that may be signed and shown; where it is longer than
/// [`LINE`], its last character says that there was more.
pub fn one_line(words: &str) -> String {
    let line = text::line(words);
    if line.chars().count() <= LINE {
        return line;
    }
    line.chars().take(LINE - 1).chain(['…']).collect()
}

/// Whether the cause of an error is that there is no room on a disk, or none left of a quota.
pub fn is_disk_full(error: &(dyn Error + 'static)) -> bool {
    let is_full = |error: &io::Error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
    error.downcast_ref().is_some_and(is_full) || error.source().is_some_and(is_disk_full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stranger_says_is_short_and_shows_as_what_it_is() {
        assert_eq!(
            shown("a\u{1b}[2Jb\r\u{202e}c\nd\u{2066}é"),
            r"a\u{1b}[2Jb\r\u{202e}c|d\u{2066}é".replace('|', "\n")
        );
        assert_eq!(shown(&"é".repeat(2000)).chars().count(), 1024);
    }
}
