//! Enrolments on disk: whether they are open, and one file for each device that waits for a person, or got its answer.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use repo_git::durable::{self, FileError};
use repo_model::enrolment::{Approved, Claim, Code, Transcript};
use repo_model::{Digest, json};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::range::Range;
use crate::accounting::Network;
use crate::lock::lock_dir;

/// The file that opens enrolments; without it they are closed.
const OPEN: &str = "open.json";

/// The most bytes of a file in the directory: an offer, as JSON in JSON.
const MAX_FILE: u64 = 1 << 20;

/// The most devices that wait for a person at the same time, and how many of them may be one network's.
pub(super) const MAX_WAITING: (usize, usize) = (64, 32);

/// How long a device waits for a person at most, and one that was rejected may hear of it.
const WAITS: Duration = Duration::from_secs(3600);

/// How long a device that was approved may fetch its answer.
const FETCHED: Duration = Duration::from_secs(7 * 24 * 3600);

/// `open.json`: enrolments are open, for this long, for these, with this offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    pub layout: u64,
    /// They are closed from then on.
    pub until: Timestamp,
    /// Where devices may come from; everywhere if empty.
    #[serde(default)]
    pub from: Vec<Range>,
    /// The exact text of what this host offers.
    pub offer: String,
}

impl Opening {
    /// Whether somebody from there may enrol now.
    pub fn admits(&self, address: IpAddr, now: Timestamp) -> bool {
        now < self.until && (self.from.is_empty() || self.from.iter().any(|range| range.contains(address)))
    }
}

/// One device that revealed itself, in `<request>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    pub layout: u64,
    /// 128 random bits in hex.
    pub request: String,
    /// By which a person names it.
    pub number: u64,
    pub received: Timestamp,
    /// Where it came from.
    pub address: IpAddr,
    /// The exact text of its claim. Its key was proven for this transcript, and nothing else of it.
    pub claim: String,
    pub transcript: Transcript,
    /// The digest of the roster that was offered to it.
    pub roster: Digest,
    /// What a person said; absent while nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// A person's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// What the device is told, and when that was decided.
    Approved {
        answer: Approved,
        at: Timestamp,
    },
    Rejected {
        at: Timestamp,
    },
}

impl Waiting {
    /// What the device shows.
    pub fn code(&self) -> Code {
        self.transcript.code()
    }

    /// What it says of itself.
    ///
    /// # Errors
    /// Where it can't be read, which it could when it came.
    pub fn claim(&self) -> Result<Claim, ClaimsError> {
        Claim::parse(self.claim.as_bytes()).map_err(|error| ClaimsError::Damaged {
            path: format!("{}.json", self.request).into(),
            problem: error.to_string(),
        })
    }

    /// Whether it counts no longer. A clock that was set back ends none.
    pub fn is_over(&self, now: Timestamp) -> bool {
        let (since, life) = match &self.verdict {
            None => (self.received, WAITS),
            Some(Verdict::Rejected { at }) => (*at, WAITS),
            Some(Verdict::Approved { at, .. }) => (*at, FETCHED),
        };
        now.duration_since(since) > SignedDuration::try_from(life).unwrap_or(SignedDuration::MAX)
    }
}

/// The directory with what waits: the home's `enroll/`. Changed under a lock, one durable step for each change.
#[derive(Debug, Clone)]
pub struct Claims {
    dir: PathBuf,
}

/// What waits can't be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimsError {
    /// The directory or a file can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file isn't what this program writes.
    #[error("`{}` isn't a device that waits to be enrolled: {problem}", path.display())]
    Damaged { path: PathBuf, problem: String },
}

impl Claims {
    /// What waits in this directory, which needn't be there yet.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether and how enrolments are open; they may be over.
    pub fn opening(&self) -> Result<Option<Opening>, ClaimsError> {
        read(&self.dir.join(OPEN))
    }

    /// Opens them anew, or closes them.
    pub fn open(&self, opening: Option<&Opening>) -> Result<(), ClaimsError> {
        let _lock = self.lock()?;
        let path = self.dir.join(OPEN);
        let failed = FileError::write(&path);
        match opening {
            Some(opening) => durable::replace_file(&path, &json::to_bytes(opening), 0o600).map_err(failed)?,
            None => _ = durable::remove_file(&path).map_err(failed)?,
        }
        Ok(())
    }

    /// Everything that waits or was answered and still counts, by number; and why other files can't be read.
    pub fn list(&self, now: Timestamp) -> Result<(Vec<Waiting>, Vec<ClaimsError>), ClaimsError> {
        let (mut listed, mut broken) = (Vec::new(), Vec::new());
        for path in self.files()? {
            match read::<Waiting>(&path) {
                Ok(Some(waiting)) if !waiting.is_over(now) => listed.push(waiting),
                Ok(_) => {}
                Err(error) => broken.push(error),
            }
        }
        listed.sort_by_key(|waiting| waiting.number);
        Ok((listed, broken))
    }

    /// One that still counts.
    pub fn get(&self, request: &str, now: Timestamp) -> Result<Option<Waiting>, ClaimsError> {
        // Only what is a file's name is looked for.
        if !is_request(request) {
            return Ok(None);
        }
        Ok(read::<Waiting>(&self.path(request))?.filter(|waiting| !waiting.is_over(now)))
    }

    /// Whether one more may wait that comes from there.
    pub(super) fn has_room(&self, from: IpAddr, now: Timestamp) -> Result<bool, ClaimsError> {
        Ok(has_room(&self.list(now)?.0, from))
    }

    /// Keeps one more that waits, with the next number; `None` if there are as many as there may be. What is over goes.
    pub(super) fn add(&self, waiting: Waiting, now: Timestamp) -> Result<Option<Waiting>, ClaimsError> {
        let _lock = self.lock()?;
        let mut known = Vec::new();
        for path in self.files()? {
            match read::<Waiting>(&path) {
                Ok(Some(one)) if one.is_over(now) => {
                    _ = durable::remove_file(&path).map_err(FileError::write(&path))?
                }
                Ok(Some(one)) => known.push(one),
                // What can't be read hides no other.
                Ok(None) | Err(_) => {}
            }
        }
        if !has_room(&known, waiting.address) {
            return Ok(None);
        }
        let number = known.iter().map(|one| one.number).max().unwrap_or_default().saturating_add(1);
        let waiting = Waiting { number, ..waiting };
        self.write(&waiting)?;
        Ok(Some(waiting))
    }

    /// Keeps what a person said of one, unless somebody said something before; returns what counts.
    pub fn decide(&self, waiting: Waiting, verdict: Verdict) -> Result<Verdict, ClaimsError> {
        let _lock = self.lock()?;
        if let Some(Waiting { verdict: Some(known), .. }) = read(&self.path(&waiting.request))? {
            return Ok(known);
        }
        self.write(&Waiting { verdict: Some(verdict.clone()), ..waiting })?;
        Ok(verdict)
    }

    fn write(&self, waiting: &Waiting) -> Result<(), ClaimsError> {
        let path = self.path(&waiting.request);
        Ok(durable::replace_file(&path, &json::to_bytes(waiting), 0o600).map_err(FileError::write(&path))?)
    }

    fn path(&self, request: &str) -> PathBuf {
        self.dir.join(format!("{request}.json"))
    }

    /// The files of all requests.
    fn files(&self) -> Result<Vec<PathBuf>, ClaimsError> {
        let failed = FileError::read(&self.dir);
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            if path.extension().is_some_and(|ending| ending == "json") && stem.is_some_and(is_request) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    fn lock(&self) -> Result<File, ClaimsError> {
        Ok(lock_dir(&self.dir).map_err(FileError::write(&self.dir))?)
    }
}

/// Whether it has the form of a request: 32 hex digits.
fn is_request(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}

fn has_room(known: &[Waiting], from: IpAddr) -> bool {
    let undecided = || known.iter().filter(|one| one.verdict.is_none());
    let network = Network::from(from);
    let of_network = undecided().filter(|one| Network::from(one.address) == network).count();
    undecided().count() < MAX_WAITING.0 && of_network < MAX_WAITING.1
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ClaimsError> {
    let failed = FileError::read(path);
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    let damaged = |problem: String| ClaimsError::Damaged { path: path.to_owned(), problem };
    if bytes.len() as u64 > MAX_FILE {
        return Err(damaged(format!("it has more than {MAX_FILE} bytes")));
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|error| damaged(error.to_string()))
}

#[cfg(test)]
mod tests {
    use repo_model::enrolment::Nonce;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn waiting(index: u8, address: &str, received: i64) -> Waiting {
        let nonce = Nonce::new([index; 32]);
        Waiting {
            layout: 1,
            request: format!("{index:032x}"),
            number: 0,
            received: at(received),
            address: address.parse().unwrap(),
            claim: String::new(),
            transcript: Transcript::of((&nonce, &nonce), b"", b""),
            roster: Digest::of(b""),
            verdict: None,
        }
    }

    #[test]
    fn no_more_wait_than_may_and_no_network_takes_all_places() {
        let dir = tempfile::tempdir().unwrap();
        let claims = Claims::new(dir.path().join("enroll"));
        for index in 0..64 {
            // The other half of the places is the neighbours'.
            let address = if index < 32 { "2001:db8::1".to_owned() } else { format!("192.0.2.{index}") };
            let kept = claims.add(waiting(index, &address, 0), at(0)).unwrap().unwrap();
            assert_eq!(kept.number, u64::from(index) + 1);
            assert_eq!(claims.has_room("2001:db8::ffff".parse().unwrap(), at(0)).unwrap(), index < 31);
        }
        assert_eq!(claims.add(waiting(64, "203.0.113.1", 0), at(0)).unwrap(), None);
        // A word of a person, or an hour, makes room.
        let (listed, broken) = claims.list(at(0)).unwrap();
        assert_eq!((listed.len(), broken.len()), (64, 0));
        claims.decide(listed[40].clone(), Verdict::Rejected { at: at(0) }).unwrap();
        assert!(claims.add(waiting(64, "203.0.113.1", 0), at(0)).unwrap().is_some());
        assert_eq!(claims.add(waiting(65, "203.0.113.1", 3601), at(3601)).unwrap().unwrap().number, 1);
        assert_eq!(claims.files().unwrap().len(), 1, "what is over is gone");
    }

    #[test]
    fn a_damaged_file_is_named_and_hides_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let claims = Claims::new(dir.path().join("enroll"));
        let kept = claims.add(waiting(1, "192.0.2.1", 0), at(0)).unwrap().unwrap();
        let odd = claims.path(&"ab".repeat(16));
        durable::replace_file(&odd, b"{\"layout\":1", 0o600).unwrap();
        let (listed, broken) = claims.list(at(0)).unwrap();
        assert_eq!(listed, [kept]);
        assert!(broken[0].to_string().contains(odd.to_str().unwrap()), "{broken:?}");
        for odd in ["", "../accounts/press-01", &"AB".repeat(16), &"a".repeat(33)] {
            assert_eq!(claims.get(odd, at(0)).unwrap(), None, "{odd}");
        }
    }

    #[test]
    fn it_is_open_for_so_long_and_for_these() {
        let opening = |from: &[&str]| Opening {
            layout: 1,
            until: at(100),
            from: from.iter().map(|range| range.parse().unwrap()).collect(),
            offer: String::new(),
        };
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(opening(&[]).admits(address("192.0.2.1"), at(99)));
        assert!(!opening(&[]).admits(address("192.0.2.1"), at(100)));
        let some = opening(&["10.1.0.0/16", "fd00::/8"]);
        assert!(some.admits(address("10.1.2.3"), at(0)) && some.admits(address("fd00::1"), at(0)));
        assert!(!some.admits(address("10.2.0.1"), at(0)) && !some.admits(address("2001:db8::1"), at(0)));
    }
}
