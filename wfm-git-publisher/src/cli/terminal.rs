//! The terminal that somebody reads on.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// How many characters a line has where this goes: as `COLUMNS` says, or the terminal itself. `None` where it is no terminal, or
/// nobody knows.
pub(super) fn width(out: impl IsTerminal + AsFd) -> Option<usize> {
    if !out.is_terminal() {
        return None;
    }
    let said = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).filter(|width| *width > 0);
    said.or_else(|| tcgetwinsize(out).ok().map(|size| size.ws_col.into()).filter(|width| *width > 0))
}
