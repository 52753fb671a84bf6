//! The floor: the highest serial, `manifestVersion` and trust version ever accepted, kept outside the clone.
//!
//! The file holds two slots of 4 KiB, each `<sha256 of the JSON>\n<JSON>\n` and zeros. A raise overwrites the older
//! slot in place and syncs it, so a power cut leaves the other one whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use repo_git::durable;
use repo_model::Digest;
use repo_model::join::Join;
use serde::{Deserialize, Serialize};

use crate::memory::Accepted;

const SLOT: usize = 4096;

/// What a device never goes below.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Floor {
    /// Rises with every raise; the slot with the higher one counts.
    pub seq: u64,
    /// The highest serial accepted.
    pub serial: u64,
    /// Digest of the envelope of that serial; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope: Option<Digest>,
    /// The highest `manifestVersion` accepted.
    pub manifest_version: u64,
    /// Digest of the manifest of that version; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Digest>,
    /// The highest roster version accepted.
    pub trust: u64,
    /// Digest of that roster.
    pub trust_digest: Digest,
    /// The newest moment that anything verified speaks of.
    pub time: Timestamp,
}

/// Why the floor can't be read or raised.
#[derive(Debug, thiserror::Error)]
pub enum FloorError {
    /// Reading failed.
    #[error("can't read the floor `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Writing failed; what was there still counts.
    #[error("can't raise the floor `{}`", path.display())]
    Raise { path: PathBuf, source: io::Error },
    /// Neither slot is whole.
    #[error("the floor `{}` has no whole slot", path.display())]
    Damaged { path: PathBuf },
}

impl Floor {
    /// The floor that a join file pins.
    pub fn of_join(join: &Join) -> Self {
        Self {
            seq: 0,
            serial: join.floor.serial,
            envelope: None,
            manifest_version: join.floor.manifest_version,
            manifest: None,
            trust: join.trust.version,
            trust_digest: join.trust.sha256,
            time: join.issued.unwrap_or(Timestamp::UNIX_EPOCH),
        }
    }

    /// Never below what a join file says, which may have come after the floor.
    pub fn lift_to_join(&mut self, join: &Join) {
        if join.floor.serial > self.serial {
            (self.serial, self.envelope) = (join.floor.serial, None);
        }
        if join.floor.manifest_version > self.manifest_version {
            (self.manifest_version, self.manifest) = (join.floor.manifest_version, None);
        }
        if join.trust.version > self.trust {
            (self.trust, self.trust_digest) = (join.trust.version, join.trust.sha256);
        }
        self.time = self.time.max(join.issued.unwrap_or(self.time));
    }

    /// Never below what was accepted, which the clone may know better after the floor was lost.
    pub fn lift_to_accepted(&mut self, accepted: &Accepted, roster: &[u8]) {
        if accepted.serial > self.serial || self.envelope.is_none() && accepted.serial == self.serial {
            (self.serial, self.envelope) = (accepted.serial, Some(accepted.envelope));
        }
        if accepted.manifest_version > self.manifest_version {
            (self.manifest_version, self.manifest) = (accepted.manifest_version, None);
        }
        if accepted.trust > self.trust {
            (self.trust, self.trust_digest) = (accepted.trust, Digest::of(roster));
        }
    }

    /// Makes the file with this floor in its first slot.
    pub fn create(&self, path: &Path) -> Result<(), FloorError> {
        let mut bytes = self.slot();
        bytes.resize(2 * SLOT, 0);
        durable::replace_file(path, &bytes, 0o600).map_err(|source| FloorError::Raise { path: path.to_owned(), source })
    }

    /// Reads the newer of the two slots.
    pub fn read(path: &Path) -> Result<Self, FloorError> {
        let read = || -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            File::open(path)?.take(2 * SLOT as u64).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().map_err(|source| FloorError::Read { path: path.to_owned(), source })?;
        let slots = bytes.chunks(SLOT).filter_map(parse_slot);
        slots.max_by_key(|slot| slot.seq).ok_or_else(|| FloorError::Damaged { path: path.to_owned() })
    }

    /// Writes this floor with the next sequence number over the older slot, synced.
    pub fn raise(&mut self, path: &Path) -> Result<(), FloorError> {
        self.seq += 1;
        let write = || -> io::Result<()> {
            let file = OpenOptions::new().write(true).open(path)?;
            durable::write_slot(&file, (self.seq % 2) * SLOT as u64, &self.slot())
        };
        write().map_err(|source| FloorError::Raise { path: path.to_owned(), source })
    }

    fn slot(&self) -> Vec<u8> {
        let json = repo_model::json::canonical(self);
        let mut slot = format!("{}\n", Digest::of(&json)).into_bytes();
        slot.extend(json);
        slot.push(b'\n');
        slot.resize(SLOT, 0);
        slot
    }
}

fn parse_slot(slot: &[u8]) -> Option<Floor> {
    let text = std::str::from_utf8(slot).ok()?.trim_end_matches('\0');
    let (digest, json) = text.split_once('\n')?;
    let json = json.strip_suffix('\n')?;
    (digest.parse() == Ok(Digest::of(json.as_bytes()))).then(|| serde_json::from_str(json).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn floor(serial: u64) -> Floor {
        Floor {
            seq: 0,
            serial,
            envelope: Some(Digest::of(b"e")),
            manifest_version: serial,
            manifest: Some(Digest::of(b"m")),
            trust: 1,
            trust_digest: Digest::of(b"t"),
            time: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "it plays a torn write")]
    fn the_newer_whole_slot_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("floor");
        floor(1).create(&path).unwrap();
        let mut now = Floor::read(&path).unwrap();
        for serial in 2..6 {
            now.serial = serial;
            now.raise(&path).unwrap();
            assert_eq!(Floor::read(&path).unwrap(), now);
        }
        // A torn write of the newest slot leaves the one before.
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[b'x'; 100], (now.seq % 2) * SLOT as u64 + 80).unwrap();
        assert_eq!(Floor::read(&path).unwrap().serial, 4);
        file.write_all_at(&[0; 2 * SLOT], 0).unwrap();
        assert!(matches!(Floor::read(&path), Err(FloorError::Damaged { .. })));
    }

    #[test]
    fn it_is_never_below_what_was_accepted() {
        let accepted = |serial| Accepted {
            commit: "0".repeat(40),
            serial,
            manifest_version: serial,
            envelope: Digest::of(b"accepted"),
            trust: 2,
            since: Timestamp::UNIX_EPOCH,
            fresh_until: None,
            unverified: false,
        };
        let mut higher = floor(5);
        higher.lift_to_accepted(&accepted(4), b"roster");
        assert_eq!((higher.serial, higher.envelope, higher.trust), (5, Some(Digest::of(b"e")), 2));
        let mut lower = floor(5);
        lower.lift_to_accepted(&accepted(6), b"roster");
        assert_eq!((lower.serial, lower.envelope, lower.manifest), (6, Some(Digest::of(b"accepted")), None));
        assert_eq!(lower.trust_digest, Digest::of(b"roster"));
    }
}
