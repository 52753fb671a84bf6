//! What strangers send, read as data: request paths, pkt-lines, v2 commands, wants, the commands of a push, reports, and
//! the commands of SSH.
//!
//! Pure functions over bytes that allocate no more than they are given. They are what `cargo fuzz` is pointed at.

pub mod commands;
pub mod ls_refs;
pub mod pack_end;
pub mod path;
pub mod pktline;
pub mod report;
pub mod ssh;
pub mod upload;

#[cfg(test)]
mod tests;

use repo_git::CommitId;

/// What was sent is not what the protocol allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The four digits of a length are not that.
    #[error("a pkt-line begins with something else than its length")]
    Length,
    /// The bytes end within a pkt-line or a request.
    #[error("the request ends too early")]
    Short,
    /// There is more of something than is taken.
    #[error("the request has too many {0}")]
    TooMany(&'static str),
    /// A line is not understood.
    #[error("a line of the request is not understood: {0}")]
    Line(&'static str),
}

/// Forty zeros: no such object.
pub const NOTHING: &str = "0000000000000000000000000000000000000000";

/// An object's name in 40 hex digits; `Some(None)` for forty zeros.
pub fn object_name(text: &[u8]) -> Option<Option<CommitId>> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == 40)?;
    if text == NOTHING { Some(None) } else { text.parse().ok().map(Some) }
}
