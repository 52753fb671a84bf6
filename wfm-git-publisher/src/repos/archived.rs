//! The archived epochs of `status` that `control.git` remembers: `epochs/<repository name>/<n>.json`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use jiff::Timestamp;
use repo_git::durable::FileError;
use repo_git::{BundleError, CommitId, Expected, RefMove};
use repo_model::branch::{HEADS, epoch_branch, epoch_of, epoch_ref};
use repo_model::{DeviceId, Digest};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{DeviceRepo, DeviceRepoError};

/// Where they are kept.
pub(super) const EPOCHS: &str = "epochs/";

/// All that are remembered, by device and number.
pub type ArchivedEpochs = BTreeMap<(DeviceId, u32), Archived>;

/// An epoch of a device's `status` that is in a bundle, and may be gone from its repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Archived {
    pub device: DeviceId,
    pub epoch: u32,
    /// The commit with which it ended.
    pub tip: CommitId,
    pub commits: usize,
    /// Of the bundle.
    pub digest: Digest,
    pub bytes: u64,
    /// Where it was written; it may have been taken elsewhere.
    pub file: String,
    pub time: Timestamp,
}

/// Those of a device.
pub fn archived_of<'a>(all: &'a ArchivedEpochs, device: &DeviceId) -> impl Iterator<Item = &'a Archived> {
    all.range((device.clone(), 0)..=(device.clone(), u32::MAX)).map(|(_, one)| one)
}

impl Archived {
    /// By what it is known.
    pub fn key(&self) -> (DeviceId, u32) {
        (self.device.clone(), self.epoch)
    }

    /// Where `control.git` keeps it.
    pub(super) fn path(&self) -> String {
        format!("{EPOCHS}{}/{}.json", self.device.repository_name(), self.epoch)
    }

    /// The name of a bundle's file.
    pub fn file_name(device: &DeviceId, epoch: u32) -> String {
        format!("{}.{}.bundle", device.repository_name(), epoch_branch(epoch))
    }

    /// Digest and size of a file.
    pub fn measure(path: &Path) -> Result<(Digest, u64), FileError> {
        let mut sum = Sha256::new();
        let copied = File::open(path).and_then(|mut file| io::copy(&mut file, &mut sum));
        let bytes = copied.map_err(FileError::read(path))?;
        Ok((Digest::from_bytes(sum.finalize().into()), bytes))
    }
}

impl DeviceRepo {
    /// Where the epochs of `status` ended that are kept here, by number.
    pub fn epochs(&self) -> Result<BTreeMap<u32, CommitId>, DeviceRepoError> {
        let refs = self.repo.references(HEADS)?.into_iter();
        Ok(refs.filter_map(|(name, tip)| Some((epoch_of(&name)?, tip))).collect())
    }

    /// Writes the bundle of an epoch, durably.
    pub fn write_epoch(&self, path: &Path, epoch: u32, end: CommitId) -> Result<(), BundleError> {
        self.repo.write_bundle(path, &epoch_ref(epoch), end)
    }

    /// Takes away what keeps these epochs, each only from where it ended, and what nothing else needs.
    pub fn drop_epochs(&self, epochs: impl IntoIterator<Item = (u32, CommitId)>) -> Result<(), DeviceRepoError> {
        let lock = self.lock()?;
        for (epoch, end) in epochs {
            let gone = RefMove { name: epoch_ref(epoch), expected: Expected::At(end), new: None };
            self.move_ref(&lock, gone)?;
        }
        Ok(self.repo.reclaim(&lock)?)
    }
}
