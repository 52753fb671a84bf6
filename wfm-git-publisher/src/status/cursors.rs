//! Where somebody stands who follows the fleet by questions: kept in the home's index under its digest, the cursor, for the process
//! that answers the next question. Who lost theirs begins anew.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use repo_git::durable;
use repo_model::Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::repos::Home;

/// How long one is kept that nobody asks with.
const KEPT: Duration = Duration::from_secs(600);

/// How many bytes all of them may have, the newest first.
const MOST: u64 = 128 << 20;

/// What is kept under a cursor; `None` if nothing is, any more.
pub(super) fn read<T: DeserializeOwned>(home: &Home, cursor: &Digest) -> Option<T> {
    let bytes = fs::read(path(home, cursor)).ok().filter(|bytes| Digest::of(bytes) == *cursor)?;
    serde_json::from_slice(&bytes).ok()
}

/// Keeps this, and clears away what is too old or too much; its cursor.
pub(super) fn keep(home: &Home, stand: &impl Serialize) -> io::Result<Digest> {
    let bytes = serde_json::to_vec(stand)?;
    let (cursor, now) = (Digest::of(&bytes), SystemTime::now());
    let path = path(home, &cursor);
    durable::create_dir_all(&home.cursors(), 0o700)?;
    match fs::read(&path) {
        Ok(there) if there == bytes => File::open(&path)?.set_modified(now)?,
        _ => durable::replace_file(&path, &bytes, 0o600)?,
    }
    clear(home, now)?;
    Ok(cursor)
}

fn clear(home: &Home, now: SystemTime) -> io::Result<()> {
    let mut all = Vec::new();
    for entry in fs::read_dir(home.cursors())? {
        let entry = entry?;
        // Another process may have cleared it away.
        let Ok(meta) = entry.metadata() else { continue };
        all.push((meta.modified()?, meta.len(), entry.path()));
    }
    all.sort_unstable_by(|a, b| b.cmp(a));
    let mut bytes = 0;
    for (modified, length, path) in all {
        bytes += length;
        if bytes > MOST || now.duration_since(modified).is_ok_and(|age| age > KEPT) {
            durable::remove_file(&path)?;
        }
    }
    Ok(())
}

fn path(home: &Home, cursor: &Digest) -> PathBuf {
    home.cursors().join(cursor.hex())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_under_a_cursor_is_bounded_and_is_just_that_or_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let keep = |stand: &str| keep(&home, &stand).unwrap();
        let read = |cursor: &Digest| read::<String>(&home, cursor);
        let aged = |cursor: &Digest, seconds| {
            let file = File::open(path(&home, cursor)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
            file
        };
        let first = keep("first");
        assert_eq!((read(&first).as_deref(), read(&Digest::of(b"second"))), (Some("first"), None));
        // Whoever stands there as well keeps it for everybody.
        aged(&first, 3600);
        assert_eq!(keep("first"), first);
        keep("second");
        assert_eq!(read(&first).as_deref(), Some("first"));
        aged(&first, 3600);
        let third = keep("third");
        assert_eq!((read(&first), read(&third).as_deref()), (None, Some("third")));
        // The newest have the room.
        aged(&third, 5);
        File::options().write(true).open(path(&home, &third)).unwrap().set_len(MOST).unwrap();
        assert_eq!(read(&third), None, "it isn't what it was");
        let fourth = keep("fourth");
        assert_eq!((path(&home, &third).exists(), read(&fourth).as_deref()), (false, Some("fourth")));
    }
}
