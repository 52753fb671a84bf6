//! The terminal that somebody reads on.

use std::io::IsTerminal;
use std::num::NonZeroU16;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use rustix::termios::tcgetwinsize;

/// How many characters a line has where somebody reads what a host answers, as they say it.
static ELSEWHERE: OnceLock<NonZeroU16> = OnceLock::new();

/// Whatever is printed is read elsewhere, in lines of this width.
pub(super) fn is_elsewhere(width: NonZeroU16) {
    let _ = ELSEWHERE.set(width);
}

/// How many characters a line has where this goes: as whoever asked says, or `COLUMNS`, or the terminal itself. `None` where it is no
/// terminal, or nobody knows.
pub(super) fn width(out: impl IsTerminal + AsFd) -> Option<NonZeroU16> {
    if let Some(width) = ELSEWHERE.get() {
        return Some(*width);
    }
    if !out.is_terminal() {
        return None;
    }
    let said = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    said.or_else(|| tcgetwinsize(out).ok().and_then(|size| NonZeroU16::new(size.ws_col)))
}
