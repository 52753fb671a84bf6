//! Old epochs of `status` in archives: a bundle of stock Git for each, which the ledger notes before the host loses anything.
//!
//! In this order, so that the same again completes what was cut off: the bundles, read back where they lie; one commit of the
//! ledger with their digests; then, device by device, the branches, and at last what only they reached.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use repo_git::durable::{self, FileError};
use repo_git::repo::Scratch;
use repo_git::{BundleError, CommitId, KeyError, OpenError, ReadError, SigningKey};
use repo_model::roster::{RosterError, roster_path};
use repo_model::{DeviceId, Digest, error_chain};

use crate::audit::{Archives, Checkpoint, Level, Options, Place, Start, audit, unbundle};
use crate::parallel;
use crate::publish::{PublishError, check_key};
use crate::repos::{Archived, Control, ControlError, DeviceRepo, DeviceRepoError, Home, HomeError, Ledger, Rosters};

/// How long a publisher that is at work is waited for.
const LOCK_WAIT: Duration = Duration::from_secs(30);

/// Which epochs are archived, and where.
#[derive(Debug)]
pub struct Archiving<'a> {
    /// Those of all devices if there is none.
    pub devices: &'a [DeviceId],
    /// So many of each device that ended last stay at the host. The last one always does: by it the next is counted.
    pub keep: usize,
    pub to: &'a Path,
    pub now: Timestamp,
    pub threads: usize,
}

/// What became of the epochs of a device.
#[derive(Debug)]
pub struct DeviceArchived {
    pub device: DeviceId,
    /// Those that are in archives and no more at the host.
    pub archived: Vec<Archived>,
    /// Why not all of it was done.
    pub error: Option<String>,
}

/// Nothing is archived.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("cannot use the publisher's home")]
    Home(#[from] HomeError),
    #[error("cannot use the publisher's ledger")]
    Control(#[from] ControlError),
    #[error("cannot use the publisher's key")]
    Key(#[from] KeyError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error("the first roster can't be used")]
    Roster(#[from] RosterError),
    #[error("nothing was ever published for a device `{0}`")]
    NoDevice(DeviceId),
    #[error(transparent)]
    File(#[from] FileError),
}

/// The epochs of a device stay where they are.
#[derive(Debug, thiserror::Error)]
enum EpochError {
    #[error("an audit finds something wrong in its repository, so nothing of it leaves the host: {0}")]
    Doubt(String),
    #[error("`{}` has the digest {found}, and the ledger has {noted} of it: name the directory of before", file.display())]
    Differs { file: PathBuf, noted: Digest, found: Digest },
    #[error("`{}` isn't this epoch, which ended with {end}: move it away", file.display())]
    Other { file: PathBuf, end: CommitId },
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error("cannot read back what was archived")]
    Open(#[from] OpenError),
    #[error("cannot read back what was archived")]
    Read(#[from] ReadError),
    #[error(transparent)]
    Repo(#[from] DeviceRepoError),
    #[error(transparent)]
    File(#[from] FileError),
}

/// Archives old epochs. One device's trouble holds up no other one; of a device without anything to archive nothing is said.
/// `progress` is told how many devices' are written of how many.
pub fn archive(
    home: &Home,
    what: &Archiving<'_>,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<DeviceArchived>, ArchiveError> {
    home.check_ledger()?;
    let _lock = home.lock(LOCK_WAIT)?;
    let (mut control, rosters) = Control::open(home)?;
    let key = SigningKey::load(&home.publisher_key())?;
    check_key(&key, &rosters, what.now)?;
    let devices = devices(control.ledger(), what.devices)?;
    let written = write_all(home, &rosters, control.ledger(), what, devices, progress)?;
    let new = written.iter().filter_map(|(_, archived)| archived.as_ref().ok()).flatten();
    let new: Vec<_> = new.filter(|one| control.ledger().archived.get(&one.key()) != Some(*one)).cloned().collect();
    if !new.is_empty() {
        let message = Control::message(format!("archive {} epochs of status", new.len()), rosters.fleet());
        new.into_iter().for_each(|one| control.put_archived(one));
        control.commit(message, &key, what.now)?;
    }
    let done = written.into_iter().filter_map(|(device, archived)| {
        let mut noted = control.ledger().archived_of(&device).peekable();
        let dropped = archived.and_then(|archived| {
            if noted.peek().is_some()
                && let Some(repo) = DeviceRepo::open(home, rosters.fleet(), &device)?
            {
                drop_epochs(&repo, &archived, noted)?;
            }
            Ok(archived)
        });
        match dropped {
            Ok(archived) if archived.is_empty() => None,
            Ok(archived) => Some(DeviceArchived { device, archived, error: None }),
            Err(error) => Some(DeviceArchived { device, archived: Vec::new(), error: Some(error_chain(&error)) }),
        }
    });
    Ok(done.collect())
}

/// The devices that are asked for, or all that anything was ever published for.
fn devices(ledger: &Ledger, asked: &[DeviceId]) -> Result<Vec<DeviceId>, ArchiveError> {
    match asked.iter().find(|device| ledger.entry(device).is_none()) {
        Some(unknown) => Err(ArchiveError::NoDevice(unknown.clone())),
        None if asked.is_empty() => Ok(ledger.devices().cloned().collect()),
        None => Ok(asked.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect()),
    }
}

/// Writes the bundles of all these devices, or finds those that are there.
fn write_all(
    home: &Home,
    rosters: &Rosters,
    ledger: &Ledger,
    what: &Archiving<'_>,
    devices: Vec<DeviceId>,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Written>, ArchiveError> {
    durable::create_dir_all(what.to, 0o700).map_err(FileError::write(what.to))?;
    let to = &std::fs::canonicalize(what.to).map_err(FileError::read(what.to))?;
    let scratch = to.join(format!("{}archive", durable::TEMP_PREFIX));
    durable::remove_dir_all(&scratch).map_err(FileError::write(&scratch))?;
    durable::create_dir_all(&scratch, 0o700).map_err(FileError::write(&scratch))?;
    let path = roster_path(1);
    let start = Start::of(&path, rosters.files.get(&path).map_or(&[][..], Vec::as_slice))?;
    let archives = Archives::noted(ledger.archived.clone());
    let writer = Writer { home, rosters, ledger, what, to, scratch: &scratch, start: &start, archives: &archives };
    let (all, done) = (devices.len(), AtomicUsize::new(0));
    let written = parallel::map(devices, what.threads, |device| {
        let archived = writer.device(&device);
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, all);
        (device, archived)
    });
    durable::remove_dir_all(&scratch).map_err(FileError::write(&scratch))?;
    Ok(written)
}

/// What of a device is in archives.
type Written = (DeviceId, Result<Vec<Archived>, EpochError>);

struct Writer<'a> {
    home: &'a Home,
    rosters: &'a Rosters,
    ledger: &'a Ledger,
    what: &'a Archiving<'a>,
    /// The directory of the archives, without links on the way.
    to: &'a Path,
    /// Where bundles are made and read back, beside the others.
    scratch: &'a Path,
    start: &'a Start,
    archives: &'a Archives,
}

impl Writer<'_> {
    fn device(&self, device: &DeviceId) -> Result<Vec<Archived>, EpochError> {
        let Some(repo) = DeviceRepo::open(self.home, self.rosters.fleet(), device)? else { return Ok(Vec::new()) };
        let mut old = repo.epochs()?;
        (0..self.what.keep.max(1)).for_each(|_| _ = old.pop_last());
        if !old.is_empty() {
            self.audit(device)?;
        }
        old.into_iter().map(|(epoch, end)| self.epoch(&repo, device, (epoch, end))).collect()
    }

    /// Finds nothing wrong in its repository, or says what.
    fn audit(&self, device: &DeviceId) -> Result<(), EpochError> {
        let before = Checkpoint::new(self.start.digest);
        let Writer { start, archives, .. } = *self;
        let archives = Some(archives);
        let options =
            Options { start, before: &before, archives, now: self.what.now, threads: 1, keeps_records: false };
        let place = Place { path: self.home.device(device), is_found: false };
        let mut findings = audit(vec![place], options, &|_, _| ()).findings.into_iter();
        match findings.find(|one| one.found.kind.level == Level::Error) {
            Some(one) => Err(EpochError::Doubt(format!("{}: {}", one.found.kind.code, one.found.message))),
            None => Ok(()),
        }
    }

    /// Writes the bundle of an epoch, unless it is there, and reads it back.
    fn epoch(
        &self,
        repo: &DeviceRepo,
        device: &DeviceId,
        (epoch, end): (u32, CommitId),
    ) -> Result<Archived, EpochError> {
        let name = Archived::file_name(device, epoch);
        let (file, new) = (self.to.join(&name), self.scratch.join(&name));
        let is_there = file.exists();
        if !is_there {
            repo.write_epoch(&new, epoch, end)?;
        }
        let written = if is_there { &file } else { &new };
        let commits = self.read_back(written, (epoch, end))?;
        let (digest, bytes) = Archived::measure(written)?;
        let noted = self.ledger.archived.get(&(device.clone(), epoch));
        if let Some(noted) = noted.map(|noted| noted.digest).filter(|noted| *noted != digest) {
            return Err(EpochError::Differs { file, noted, found: digest });
        }
        if !is_there {
            durable::rename(&new, &file).map_err(FileError::write(&file))?;
        }
        let noted = noted.cloned();
        let file = file.to_string_lossy().into_owned();
        let (device, time) = (device.clone(), self.what.now);
        Ok(noted.unwrap_or(Archived { device, epoch, tip: end, commits, digest, bytes, file, time }))
    }

    /// Reads all of a bundle, by itself; how many commits it has.
    fn read_back(&self, file: &Path, (epoch, end): (u32, CommitId)) -> Result<usize, EpochError> {
        let scratch = Scratch::within(self.scratch)?;
        if unbundle(file, epoch, scratch.repo())? != end {
            return Err(EpochError::Other { file: file.to_owned(), end });
        }
        match scratch.repo().damage_below([end]) {
            Some(damage) => Err(damage.into()),
            None => Ok(scratch.repo().history(end, None, usize::MAX)?.len()),
        }
    }
}

/// Takes what is archived and noted away from the host, and what a run that was cut off left of others.
fn drop_epochs<'a>(
    repo: &DeviceRepo,
    archived: &[Archived],
    mut noted: impl Iterator<Item = &'a Archived>,
) -> Result<(), EpochError> {
    let kept = repo.epochs()?;
    let is_left = noted.any(|one| !kept.contains_key(&one.epoch) && repo.has(one.tip));
    if is_left || !archived.is_empty() {
        repo.drop_epochs(archived.iter().map(|one| (one.epoch, one.tip)))?;
    }
    Ok(())
}
