//! `roster.json`: the newest roster that is believed, byte for byte, where that isn't the join file's. It may name another host
//! than the join file does, or another authority of that, so it has to survive the loss of the clone.

use std::fs;
use std::io;

use repo_git::durable;
use repo_model::error_chain;
use repo_model::join::Join;
use repo_model::roster::{RosterError, Trust, roster_path};

use crate::config::Home;

/// The newest one: that of the join file, or the one that is kept. A file that can't be read counts as none: the next adoption of a
/// newer roster writes it anew.
pub fn newest(home: &Home, join: &Join) -> Result<Trust, RosterError> {
    let pinned = Trust::pin(&roster_path(join.trust.version), join.trust.roster.as_bytes(), join.fleet)?;
    let path = home.roster();
    let Ok(bytes) = fs::read(&path) else { return Ok(pinned) };
    match Trust::pin(&path.display().to_string(), &bytes, join.fleet) {
        Ok(kept) if kept.roster.version > pinned.roster.version => Ok(kept),
        Ok(_) => Ok(pinned),
        Err(error) => {
            tracing::warn!(error = error_chain(&error), "the roster that is kept counts as none");
            Ok(pinned)
        }
    }
}

/// Keeps one that is believed, with its exact bytes, if it is newer.
pub fn keep(home: &Home, join: &Join, trust: &Trust, bytes: &[u8]) -> io::Result<()> {
    let is_newer = newest(home, join).is_ok_and(|known| trust.roster.version > known.roster.version);
    if is_newer { durable::replace_file(&home.roster(), bytes, 0o600) } else { Ok(()) }
}
