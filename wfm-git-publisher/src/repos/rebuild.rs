//! A lost or damaged `control.git`, made anew from what of it can be read and from what the devices' repositories hold:
//! rosters, serials and locks.
//!
//! What was reserved and never published is lost, which does no harm: no device can have seen it. What devices
//! adopted beyond the tips comes from their own verified status, as with every restored repository. A home that was made of
//! clones has no ledger as yet, and gets its first one here.

use std::collections::BTreeSet;
use std::fs;

use jiff::Timestamp;
use repo_git::durable::FileError;
use repo_git::repo::set_aside;
use repo_git::{CommitId, Repo, SigningKey, TreeLimits};
use repo_model::desired::{Desired, read};
use repo_model::message::Message;
use repo_model::{DeviceId, FileTree, FleetId, KeyText, Trailer, error_chain};

use super::control::{Control, Covered, Entry, EntryState, remains};
use super::control_error::ControlError;
use super::rosters::{Rosters, key_text};
use super::{CONTROL, DESIRED, Home, HomeError};
use crate::render::{Locks, Resolved, with_published};

impl Control {
    /// Makes the ledger anew: what of a damaged one can be read stays, the rest comes from the devices' repositories. Only
    /// what `key` signed is believed. The damaged one is set aside; returns what to say of that.
    pub(super) fn rebuild(
        home: &Home,
        key: &SigningKey,
        now: Timestamp,
        why: &ControlError,
    ) -> Result<Option<String>, ControlError> {
        let path = home.control();
        let was_there = path.exists();
        let own: BTreeSet<_> = key_text(key.public()).into_iter().collect();
        let tips = make(home, key, now, (&own, None))?;
        Ok(was_there.then(|| {
            let aside = set_aside(&path);
            format!(
                "it was damaged, and was rebuilt from what could be read of it and from {tips} devices' repositories ({}); the \
                 damaged one is `{}`: look at this disk",
                error_chain(why),
                aside.display()
            )
        }))
    }

    /// Makes the first ledger of a home that has none, with these rosters, and signs it with `key`: from what any publisher of
    /// theirs signed in the devices' repositories, which somebody audited before.
    pub fn make_anew(home: &Home, key: &SigningKey, now: Timestamp, rosters: &Rosters) -> Result<(), ControlError> {
        make(home, key, now, (&rosters.publishers, Some(rosters))).map(drop)
    }

    /// The rosters of a home; of one that has no ledger as yet, the newest that a device's repository has.
    pub fn known_rosters(home: &Home) -> Result<Rosters, ControlError> {
        match Self::read_rosters(home) {
            Err(ControlError::Home(HomeError::NoLedger { .. })) => {
                let files = repositories(home)?.into_iter().filter_map(|repo| {
                    let tip = repo.tip(DESIRED).ok()??;
                    repo.files(tip, &TreeLimits::default()).ok()
                });
                let rosters = files.filter_map(|files| Rosters::read(&files).ok());
                rosters.max_by_key(|rosters| rosters.newest.roster.version).ok_or(ControlError::NothingToRebuild)
            }
            read => read,
        }
    }
}

/// Makes the ledger of what is left of it and of what one of these publishers signed in the devices' repositories, and of
/// rosters that may be newer than theirs. Returns how many repositories that were.
fn make(
    home: &Home,
    key: &SigningKey,
    now: Timestamp,
    (publishers, given): (&BTreeSet<KeyText>, Option<&Rosters>),
) -> Result<usize, ControlError> {
    let path = home.control();
    Repo::put_right(&path, CONTROL)?;
    let old = Repo::open(&path).ok();
    let kept = old.as_ref().map(|repo| remains(repo, key_text(key.public()).as_ref())).unwrap_or_default();
    let tips: Vec<_> = repositories(home)?.iter().filter_map(|repo| tip(repo, publishers)).collect();
    // Of equal versions that of a device, which has every signature.
    let files = [&kept].into_iter().chain(tips.iter().map(|tip| &tip.files));
    let rosters = files.filter_map(|files| Rosters::read(files).ok()).chain(given.cloned());
    let newest = rosters.max_by_key(|rosters| rosters.newest.roster.version).ok_or(ControlError::NothingToRebuild)?;
    let tips: Vec<_> = tips.iter().filter(|tip| tip.desired.envelope.fleet == newest.fleet()).collect();
    let covered = tips.iter().filter_map(|tip| tip.fleet_commit).max_by_key(|(time, _)| *time);
    let desired = tips.iter().map(|tip| &tip.desired);
    Repo::renew(&path, CONTROL, |new| {
        let mut control = Control::upon(new.clone(), kept.clone())?;
        control.put_trust(&newest.files);
        if let Some((_, commit)) = covered.filter(|_| control.ledger().covered.is_none()) {
            control.put_covered(Some(Covered { commit, rebuilt: true }));
        }
        let mut locks = Locks::new();
        for one in desired.clone() {
            let known = control.ledger().entry(&one.envelope.device.id).map(|entry| entry.serial);
            if known.is_none_or(|serial| serial < one.envelope.serial) {
                control.put(entry(one, now));
            }
            locks = with_published(locks, one);
        }
        for (artifact, lock) in locks.iter() {
            // Which images archives name is found out again.
            control.put_lock(artifact, Resolved { images: None, ..(*lock).into() }, now);
        }
        let subject = format!("rebuilt from {} devices' repositories", tips.len());
        control.commit(Control::message(subject, newest.fleet()), key, now).map(drop)
    })?;
    Ok(tips.len())
}

/// Who may sign what a device pushes, by its own repository alone, where the ledger can't be read: as its `desired` says
/// that `publisher` signed.
pub(crate) fn keys_without_ledger(
    home: &Home,
    device: &DeviceId,
    publisher: &KeyText,
) -> Option<(FleetId, BTreeSet<KeyText>)> {
    let publisher = BTreeSet::from([publisher.clone()]);
    let Tip { desired, .. } = tip(&Repo::open(&home.device(device)).ok()?, &publisher)?;
    Some((desired.envelope.fleet, desired.envelope.device.status_keys.into_iter().collect()))
}

fn repositories(home: &Home) -> Result<Vec<Repo>, ControlError> {
    let path = home.devices();
    let failed = |source| ControlError::Home(FileError::read(&path)(source).into());
    let entries: Result<Vec<_>, _> = fs::read_dir(&path).map_err(failed)?.collect();
    let mut paths: Vec<_> = entries.map_err(failed)?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths.iter().filter_map(|path| Repo::open(path).ok()).collect())
}

/// The tip of `desired` of a device.
struct Tip {
    files: FileTree,
    desired: Desired,
    /// When it was made, and the newest commit of the fleet that had part in it; absent if none had.
    fleet_commit: Option<(i64, CommitId)>,
}

/// The tip of `desired`, if one of these publishers signed it for the repository that it is in.
fn tip(repo: &Repo, publishers: &BTreeSet<KeyText>) -> Option<Tip> {
    let tip: CommitId = repo.tip(DESIRED).ok()??;
    let commit = repo.commit(tip).ok()?;
    let signer = key_text(commit.signer().ok()?)?;
    let files = repo.files(tip, &TreeLimits::default()).ok().filter(|_| publishers.contains(&signer))?;
    let desired = read(&files).ok()?;
    let name = format!("{}.git", desired.envelope.device.id.repository_name());
    let fleet_commit = Message::parse(&commit.message).get(Trailer::FleetCommit).and_then(|id| id.parse().ok());
    let fleet_commit = fleet_commit.map(|id| (commit.commit_time, id));
    repo.path().ends_with(name).then_some(Tip { files, desired, fleet_commit })
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
