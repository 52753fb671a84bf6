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
use repo_model::clock::SKEW;
use repo_model::join::Join;
use repo_model::roster::Trust;
use serde::{Deserialize, Serialize};

use crate::decision::device_state::Accepted;

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
    /// The newest moment that the join file or a believed proof of freshness speaks of. It counts only while the
    /// device's clock is before the join file; see [`earliest`].
    pub time: Timestamp,
    /// `issued` of the join file that `time` began with; absent in floors that an older syncer made, and where the join
    /// file doesn't say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued: Option<Timestamp>,
}

/// The beginning of 2020, when the certificates of our own hosts begin, in seconds since 1970.
const BEGIN: i64 = 1_577_836_800;

/// A device's clock that is before this is wrong.
pub fn earliest(join: &Join) -> Timestamp {
    join.issued.unwrap_or_else(|| Timestamp::from_second(BEGIN).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Why the floor can't be read or raised.
#[derive(Debug, thiserror::Error)]
pub enum FloorError {
    #[error("can't read the floor `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Writing failed; what was there still counts.
    #[error("can't raise the floor `{}`", path.display())]
    Raise { path: PathBuf, source: io::Error },
    /// The roster that it would be raised to can't be kept.
    #[error("can't keep the roster `{}`", path.display())]
    Roster { path: PathBuf, source: io::Error },
    /// Neither slot is whole. A raise writes one of them, so a power cut alone spoils one at most.
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
            issued: join.issued,
        }
    }

    /// Never below what a join file says, which may have come after the floor. Of the time a new one has the last word:
    /// it comes by a trusted way, and what the floor knew may have been a wrong clock's.
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
        match (self.issued, join.issued) {
            (known, issued) if known == issued => {}
            (Some(_), Some(issued)) => self.time = issued,
            (_, issued) => self.time = self.time.max(issued.unwrap_or(self.time)),
        }
        self.issued = join.issued;
    }

    /// Learns the moment of a proof that is believed; `now` is what time it is by the device. A floor that was raised
    /// too far comes back to it. Whether anything changed.
    pub fn learn_time(&mut self, issued: Timestamp, now: Timestamp) -> bool {
        let was_too_far = self.time.duration_since(now) > SKEW;
        let changed = issued > self.time || was_too_far;
        if changed {
            self.time = issued;
        }
        changed
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

    /// Never below a roster that is believed. Whether that changes anything.
    pub fn lift_to_roster(&mut self, newest: &Trust) -> bool {
        let is_newer = newest.roster.version > self.trust;
        if is_newer {
            (self.trust, self.trust_digest) = (newest.roster.version, newest.digest);
        }
        is_newer
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
        write().map_err(|source| {
            // The next try goes to the same slot: the other one is the last that is whole.
            self.seq -= 1;
            FloorError::Raise { path: path.to_owned(), source }
        })
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
            issued: None,
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
    #[allow(clippy::disallowed_methods, reason = "it reads what is on the disk")]
    fn a_write_that_failed_is_tried_again_in_its_own_slot_and_leaves_the_whole_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("floor");
        floor(1).create(&path).unwrap();
        let mut now = Floor::read(&path).unwrap();
        now.serial = 2;
        now.raise(&path).unwrap();
        let whole = |seq: u64| std::fs::read(&path).unwrap()[(seq as usize % 2) * SLOT..][..SLOT].to_vec();
        let (seq, before) = (now.seq, whole(now.seq));
        now.serial = 3;
        assert!(now.raise(&dir.path().join("elsewhere")).is_err());
        now.raise(&path).unwrap();
        assert_eq!(whole(seq), before, "a power cut then would have left nothing else");
        assert_eq!(Floor::read(&path).unwrap(), now);
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn its_time_begins_anew_with_each_join_file_and_its_numbers_never_do() {
        let roster = "{}";
        let trust = serde_json::json!({"version": 1, "sha256": Digest::of(roster.as_bytes()), "roster": roster});
        let join = |issued: Option<&str>| -> Join {
            let floor = serde_json::json!({"serial": 1, "manifestVersion": 1});
            let fleet = "5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f10";
            let mut join = serde_json::json!({"layout": 1, "fleet": fleet, "device": "press-01", "url": "/x",
                                              "trust": trust, "floor": floor});
            join["issued"] = issued.into();
            serde_json::from_value(join).unwrap()
        };
        let (first, second) = (join(Some("2026-01-01T00:00:00Z")), join(Some("2026-02-01T00:00:00Z")));
        let mut now = Floor { serial: 9, ..Floor::of_join(&first) };
        assert!(now.learn_time(at("9999-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z")));
        now.lift_to_join(&first);
        assert_eq!(now.time, at("9999-01-01T00:00:00Z"), "the same file says nothing new");
        now.lift_to_join(&second);
        assert_eq!((now.time, now.serial), (at("2026-02-01T00:00:00Z"), 9));
        // One that was written by a clock ahead is put right, too.
        now.lift_to_join(&first);
        assert_eq!(now.time, at("2026-01-01T00:00:00Z"));
        // A floor of an older syncer may know more than the join file that it began with.
        let mut old = Floor { time: at("2026-01-20T00:00:00Z"), issued: None, ..now };
        old.lift_to_join(&first);
        assert_eq!((old.time, old.issued), (at("2026-01-20T00:00:00Z"), first.issued));
    }

    #[test]
    fn a_floor_of_time_that_is_too_far_ahead_comes_back() {
        let (mut floor, now) = (floor(1), at("2026-01-02T00:00:00Z"));
        assert!(floor.learn_time(at("2026-01-02T20:00:00Z"), now), "within a day clocks may differ");
        assert!(!floor.learn_time(at("2026-01-01T00:00:00Z"), now), "it doesn't fall for that");
        floor.time = at("2027-02-06T00:00:00Z");
        assert!(floor.learn_time(at("2026-01-01T12:00:00Z"), now));
        assert_eq!(floor.time, at("2026-01-01T12:00:00Z"));
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
            fresh_before: None,
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
