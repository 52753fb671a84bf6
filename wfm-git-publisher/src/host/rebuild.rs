//! A lost `control.git`, made anew from what the devices' repositories hold: rosters, serials and locks.
//!
//! What was reserved and never published is forgotten, which does no harm: no device can have seen it. What devices
//! adopted beyond the tips comes from their own verified status, as with every restored repository.

use std::fs;

use jiff::Timestamp;
use repo_git::{CommitId, OpenError, Repo, SigningKey, TreeLimits};
use repo_model::desired::{Desired, read};
use repo_model::{FileTree, KeyText};

use super::control::{Control, ControlError, Entry, EntryState};
use super::rosters::{Rosters, key_text};
use super::{CONTROL, DESIRED, Home, HomeError};
use crate::render::{Locks, Resolved, with_published};

impl Control {
    /// Makes the memory anew if it is lost. Only tips that `key` signed are believed.
    pub fn rebuild_if_lost(home: &Home, key: &SigningKey, now: Timestamp) -> Result<(), ControlError> {
        let lost = match Repo::open(&home.control()) {
            // One without a tip was made by an attempt that was cut off.
            Ok(repo) => repo.tip(CONTROL)?.is_none(),
            Err(OpenError::NotARepository { .. }) => true,
            Err(error) => return Err(error.into()),
        };
        if !lost {
            return Ok(());
        }
        let publisher = key_text(key.public());
        let tips: Vec<_> = repositories(home)?.iter().filter_map(|repo| tip(repo, publisher.as_ref())).collect();
        let newest = tips.iter().filter_map(|(files, _)| Rosters::read(files).ok());
        let newest =
            newest.max_by_key(|rosters| rosters.newest.roster.version).ok_or(ControlError::NothingToRebuild)?;
        let mut control = Self::create(home)?;
        control.put_trust(&newest.files);
        let mut locks = Locks::new();
        for (_, desired) in tips.iter().filter(|(_, desired)| desired.envelope.fleet == newest.fleet()) {
            control.put(entry(desired, now));
            locks = with_published(locks, desired);
        }
        for (artifact, lock) in locks.iter() {
            // Which images archives name is found out again.
            control.put_lock(artifact, Resolved { images: None, ..(*lock).into() }, now);
        }
        let subject = format!("rebuilt from {} devices' repositories", tips.len());
        control.commit(Self::message(subject, newest.fleet()), key, now)?;
        Ok(())
    }
}

fn repositories(home: &Home) -> Result<Vec<Repo>, ControlError> {
    let path = home.devices();
    let failed = |source| ControlError::Home(HomeError::Read { path: path.clone(), source });
    let entries: Result<Vec<_>, _> = fs::read_dir(&path).map_err(failed)?.collect();
    let mut paths: Vec<_> = entries.map_err(failed)?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths.iter().filter_map(|path| Repo::open(path).ok()).collect())
}

/// The files and meaning of the tip of `desired`, if this publisher signed it for the repository that it is in.
fn tip(repo: &Repo, publisher: Option<&KeyText>) -> Option<(FileTree, Desired)> {
    let tip: CommitId = repo.tip(DESIRED).ok()??;
    let signer = key_text(repo.commit(tip).ok()?.signer().ok()?)?;
    let files = repo.files(tip, &TreeLimits::default()).ok().filter(|_| Some(&signer) == publisher)?;
    let desired = read(&files).ok()?;
    let name = format!("{}.git", desired.envelope.device.id.repository_name());
    repo.path().ends_with(name).then_some((files, desired))
}

fn entry(desired: &Desired, now: Timestamp) -> Entry {
    Entry {
        device: desired.envelope.device.id.clone(),
        serial: desired.envelope.serial,
        manifest_version: desired.envelope.manifest_version,
        envelope: desired.envelope_digest,
        state: EntryState::Published,
        time: now,
        published: None,
    }
}
