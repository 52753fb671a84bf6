//! What an audit covered, so that the next one judges only what is new.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use repo_git::CommitId;
use repo_git::durable::replace_file;
use repo_model::{DeviceId, Digest, json};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The layout of the file that this program reads and writes.
const LAYOUT: u64 = 1;

/// The content of a checkpoint's file. It belongs to the auditor: whoever can write it decides what isn't looked at again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    layout: u64,
    /// The roster that all of it was judged by.
    pub roster: Digest,
    /// By device.
    pub devices: BTreeMap<DeviceId, Covered>,
}

/// What was judged of one repository, and found good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Covered {
    /// The newest commit of `desired`, which was believed.
    pub desired: CommitId,
    pub serial: u64,
    pub envelope: Digest,
    pub manifest_version: u64,
    pub manifest: Digest,
    /// The newest roster.
    pub roster: u64,
    /// Serials from and to which states were lost with the host.
    #[serde(default)]
    pub lost: Vec<(u64, u64)>,
    #[serde(default)]
    pub status: Option<CoveredStatus>,
    /// Where the epochs of `status` before ended.
    #[serde(default)]
    pub epochs: BTreeMap<u32, CommitId>,
    /// When the proof of freshness was issued.
    #[serde(default)]
    pub freshness: Option<Timestamp>,
    /// The time of the heartbeat.
    #[serde(default)]
    pub heartbeat: Option<Timestamp>,
    /// The serial of the site's list.
    #[serde(default)]
    pub site: Option<u64>,
}

/// What was judged of a device's `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CoveredStatus {
    /// The newest commit.
    pub commit: CommitId,
    /// The newest commit of `desired` that one of it named.
    #[serde(default)]
    pub newest: Option<CommitId>,
    /// The highest serial, and the installations that told of it.
    pub serial: u64,
    pub instances: Vec<Uuid>,
}

/// A checkpoint can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("cannot use the checkpoint `{}`", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("`{}` is no checkpoint; to begin anew, name a file that isn't there", path.display())]
    Parse {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("the checkpoint `{}` has layout {layout}, and this program knows {LAYOUT}: update it", path.display())]
    Layout { path: PathBuf, layout: u64 },
    /// It was made with another trusted start.
    #[error("the checkpoint `{}` was made with the roster {found}, and --roster is {given}", path.display())]
    Roster { path: PathBuf, found: Digest, given: Digest },
}

impl Checkpoint {
    pub fn new(roster: Digest) -> Self {
        Self { layout: LAYOUT, roster, devices: BTreeMap::new() }
    }

    /// Reads one that was made with this roster; an empty one if there is no file yet.
    pub fn read(path: &Path, roster: Digest) -> Result<Self, CheckpointError> {
        #[derive(Deserialize)]
        struct Head {
            layout: u64,
        }
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::new(roster)),
            Err(source) => return Err(CheckpointError::File { path: path.to_owned(), source }),
        };
        let unreadable = |source| CheckpointError::Parse { path: path.to_owned(), source };
        let Head { layout } = json::read(&bytes).map_err(unreadable)?;
        if layout != LAYOUT {
            return Err(CheckpointError::Layout { path: path.to_owned(), layout });
        }
        let read: Self = json::read(&bytes).map_err(unreadable)?;
        if read.roster != roster {
            return Err(CheckpointError::Roster { path: path.to_owned(), found: read.roster, given: roster });
        }
        Ok(read)
    }

    /// Replaces the file, so that a power cut leaves the old one or this.
    pub fn write(&self, path: &Path) -> Result<(), CheckpointError> {
        let path =
            std::path::absolute(path).map_err(|source| CheckpointError::File { path: path.to_owned(), source })?;
        replace_file(&path, &json::to_bytes(self), 0o600).map_err(|source| CheckpointError::File { path, source })
    }
}
