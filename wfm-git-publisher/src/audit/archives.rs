//! Epochs of `status` that were archived: the publisher's ledger says which, and their bundles are read where they are at hand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use repo_git::remote::BundleError;
use repo_git::repo::Scratch;
use repo_git::{CommitId, OpenError, Repo};
use repo_model::branch::{epoch_branch, epoch_ref};
use repo_model::roster::RosterError;
use repo_model::{DeviceId, error_chain};

use super::clone::LIMITS;
use super::finding::{ARCHIVE_MISMATCH, Found};
use super::{Start, chain};
use crate::repos::{Archived, ArchivedEpochs, Control, ControlError, HandedOut, archived_of, roster_signer};

/// What was archived, and where bundles may be read.
#[derive(Debug)]
pub struct Archives {
    noted: ArchivedEpochs,
    bundles: Option<Bundles>,
}

#[derive(Debug)]
struct Bundles {
    directory: PathBuf,
    /// Where they are unpacked meanwhile.
    scratch: PathBuf,
}

/// What a `control.git` says of archives can't be believed.
#[derive(Debug, thiserror::Error)]
pub enum ArchivesError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("`control.git` holds no roster with the digest {0}")]
    NoRoster(repo_model::Digest),
    #[error("the rosters of `control.git` can't be followed from the one that is trusted")]
    Roster(#[from] RosterError),
    #[error("the tip of `control.git` isn't signed by a publisher of its newest roster")]
    Foreign,
}

impl Archives {
    /// What a ledger says that is believed.
    pub fn noted(noted: ArchivedEpochs) -> Self {
        Self { noted, bundles: None }
    }

    /// What the `control.git` at a place says, if a publisher signed it whom the rosters lead to from the trusted one.
    ///
    /// # Errors
    /// It can't be read, or not be believed.
    pub fn handed_out(control: &Path, start: &Start) -> Result<Self, ArchivesError> {
        let HandedOut { signer, trust, archived } = Control::handed_out(control)?;
        let pinned = start.trust.clone().or_else(|| start.find(&trust)).ok_or(ArchivesError::NoRoster(start.digest))?;
        let newest = pinned.follow(&trust, &roster_signer)?;
        let is_ours = signer.is_some_and(|key| newest.roster.publishers.iter().any(|one| one.key == key));
        if is_ours { Ok(Self::noted(archived)) } else { Err(ArchivesError::Foreign) }
    }

    /// Reads the bundles in this directory, too; they are unpacked below `scratch`, one device at a time in each thread.
    pub fn with_bundles(self, directory: PathBuf, scratch: PathBuf) -> Self {
        Self { bundles: Some(Bundles { directory, scratch }), ..self }
    }

    /// The archived epochs of a device whose repository doesn't have them.
    pub(super) fn of(&self, repo: &Repo, device: &DeviceId) -> Gone {
        let is_gone = |one: &&Archived| !matches!(repo.reference(&epoch_ref(one.epoch)), Ok(Some(_)));
        let noted: Vec<_> = archived_of(&self.noted, device).filter(is_gone).collect();
        let ends = noted.iter().map(|one| (one.epoch, one.tip)).collect();
        let unread = noted.iter().map(|one| (one.epoch, one.time)).collect();
        let mut gone = Gone { ends, unread, ..Gone::default() };
        if let Some(bundles) = self.bundles.as_ref().filter(|_| !noted.is_empty())
            && let Err(error) = gone.unpack(repo, bundles, &noted)
        {
            gone.found.push(Found::whole(&ARCHIVE_MISMATCH, format!("no archive can be unpacked: {}", chain(&error))));
        }
        gone
    }
}

/// Epochs that are in archives, and no more at the host.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// The last commit of each, by its number, as the ledger has it.
    pub(super) ends: BTreeMap<u32, CommitId>,
    /// Those that aren't read, and when they were archived.
    pub(super) unread: BTreeMap<u32, Timestamp>,
    /// Archives that aren't what the ledger says.
    pub(super) found: Vec<Found>,
    /// The repository with what is in the archives.
    pub(super) repo: Option<Repo>,
    _scratch: Option<Scratch>,
}

impl Gone {
    fn unpack(&mut self, repo: &Repo, bundles: &Bundles, noted: &[&Archived]) -> Result<(), OpenError> {
        let scratch = Scratch::within(&bundles.scratch)?;
        for one in noted {
            let path = bundles.directory.join(Archived::file_name(&one.device, one.epoch));
            if !path.exists() {
                continue;
            }
            match check(&path, one, scratch.repo()) {
                Ok(()) => _ = self.unread.remove(&one.epoch),
                Err(message) => {
                    let branch = Some(epoch_branch(one.epoch));
                    self.found.push(Found { branch, ..Found::whole(&ARCHIVE_MISMATCH, message) });
                }
            }
        }
        self.repo = Some(Repo::open_with_quarantine(repo.path(), &scratch.objects())?);
        self._scratch = Some(scratch);
        Ok(())
    }
}

/// Takes an archive that is the one that is noted; else what is wrong with it.
fn check(path: &Path, noted: &Archived, into: &Repo) -> Result<(), String> {
    let (digest, _) = Archived::measure(path).map_err(|error| error_chain(&error))?;
    if digest != noted.digest {
        return Err(format!("`{}` has the digest {digest}, and the ledger says {}", path.display(), noted.digest));
    }
    let end = unbundle(path, noted.epoch, into).map_err(|error| error_chain(&error))?;
    if end == noted.tip {
        Ok(())
    } else {
        Err(format!("`{}` ends with {end}, and the ledger says {}", path.display(), noted.tip))
    }
}

/// Takes the objects of an epoch's bundle into a repository; returns where it ended.
pub(crate) fn unbundle(path: &Path, epoch: u32, into: &Repo) -> Result<CommitId, BundleError> {
    into.fetch_bundle(path, &epoch_ref(epoch), &LIMITS)
}
