//! What was read of devices' files in the fleet repository, so that one with the same bytes isn't read again.

use std::sync::Arc;

use repo_git::{CommitId, Entry, EntryKind};
use repo_model::Digest;

use super::lines::{self, Lines};
use crate::fleet::{Device, Fleet, Reading, is_device, read_device, read_with};
use crate::parallel;
use crate::plan::Blocked;
use crate::publish::{program, usable_fleet as usable};
use crate::repos::{FleetRepo, Home, Rosters, SourceError};

/// How many commits back the last fleet is searched for that can be used.
const MAX_BACK: usize = 50;

/// The blob of a device's file, and what it says.
type Read = (String, Device);

/// Reads the fleet at a commit on so many threads. Of the problems only those are told that aren't of devices' files.
pub fn read_fleet(home: &Home, source: &FleetRepo, commit: CommitId, threads: usize) -> Result<Reading, SourceError> {
    let (path, basis) = (home.fleet_index(), Digest::of(program().as_bytes()));
    let text = lines::text(&path);
    let lines = Lines::open(path, basis, &text, threads);
    let entries = parallel::map(source.entries(commit)?, threads, |entry| {
        let known =
            lines.get::<Read>(&entry.path).filter(|(blob, _)| is_kept(&entry) && *blob == entry.blob.to_string());
        known.map_or(Err(entry), |(_, device)| Ok(device))
    });
    let (mut devices, mut unknown) = (Vec::new(), Vec::new());
    entries.into_iter().for_each(|entry| match entry {
        Ok(device) => devices.push(Arc::new(device)),
        Err(entry) => unknown.push(entry),
    });
    let files = source.read(&unknown, threads);
    let anew = parallel::map(unknown.iter().zip(&files).collect(), threads, |(entry, file)| {
        let device = Some(file).filter(|_| is_kept(entry)).and_then(|file| read_device(file).ok());
        let read: Read = (entry.blob.to_string(), device.filter(Device::is_plain)?);
        lines.line(&entry.path, &read)
    });
    lines.keep(&anew.into_iter().flatten().collect::<Vec<_>>());
    Ok(read_with(&files, devices, threads))
}

/// The newest fleet that can be used.
#[derive(Debug)]
pub struct Usable {
    pub fleet: Fleet,
    /// Where it stands.
    pub commit: CommitId,
    /// Why the one that was asked for can't be used; absent where this is that one.
    pub unusable: Option<Blocked>,
}

/// There is no fleet that can be used.
#[derive(Debug, thiserror::Error)]
pub enum UsableError {
    #[error("cannot read the fleet repository")]
    Source(#[from] SourceError),
    /// Neither at the commit that was asked for nor at those before it.
    #[error("{0}, nor could it before")]
    Never(String),
}

/// The fleet at a commit, or where that can't be used the newest one before it that could.
pub fn usable_fleet(
    home: &Home,
    source: &FleetRepo,
    mut commit: CommitId,
    rosters: &Rosters,
    threads: usize,
) -> Result<Usable, UsableError> {
    let mut unusable = None;
    for _ in 0..MAX_BACK {
        match usable(read_fleet(home, source, commit, threads)?, rosters) {
            Ok(fleet) => return Ok(Usable { fleet, commit, unusable }),
            Err(why) => _ = unusable.get_or_insert(*why),
        }
        match source.commit(commit)?.parents.first() {
            Some(parent) => commit = *parent,
            None => break,
        }
    }
    Err(UsableError::Never(unusable.map_or_else(String::new, |why| why.message)))
}

/// Whether it is a device's file, by a name that can be a key.
fn is_kept(entry: &Entry) -> bool {
    let is_file = entry.kind == EntryKind::File && !entry.odd_name;
    is_file && is_device(&entry.path) && !entry.path.contains(char::is_whitespace)
}
