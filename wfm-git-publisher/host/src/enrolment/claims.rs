//! Enrolments on disk: whether they are open, and one file for each device that waits for a person, or got its answer.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use repo_git::durable::{self, FileError};
use repo_model::enrolment::{Approved, Claim, Code, Kind, TokenProof, Transcript};
use repo_model::{DeviceId, Digest, KeyText, json};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::range::Range;
use crate::accounting::Network;
use crate::lock::lock_dir;

/// The file that opens enrolments by a code; without it they are closed.
pub(super) const OPEN: &str = "open.json";

/// What devices that come by a token are offered.
pub(super) const OFFER: &str = "offer.json";

/// The tokens that count.
pub(super) const TOKENS: &str = "tokens.json";

/// The most bytes of a file in the directory: an offer, as JSON in JSON.
const MAX_FILE: u64 = 1 << 20;

/// The most devices that wait for a person at the same time, and how many of them may be one network's.
const MAX_WAITING: (usize, usize) = (64, 32);

/// The most that wait with a token's word, of all tokens. A token has twice the places that it is for, so that what a thief
/// brings is seen beside what was meant, and takes no other token's places.
const MAX_WITH_TOKEN: usize = 2000;

/// The most new keys that wait for a person as one device's: whoever has its key can make no more of them than a person can read.
const MAX_REKEYS: usize = 4;

/// How long a device waits for a person at most, and one that was rejected may hear of it.
const WAITS: Duration = Duration::from_secs(3600);

/// The same of a device that shall get a new key: nobody stands before it.
const REKEY_WAITS: Duration = Duration::from_secs(7 * 24 * 3600);

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

/// `tokens.json`: the batch tokens of the fleet, as it was published last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    pub layout: u64,
    pub tokens: Vec<Token>,
}

/// What the host has to know of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub name: String,
    /// The public half.
    pub key: KeyText,
    /// How many devices may have it.
    pub count: u32,
    /// How many have it.
    pub used: u32,
    /// It vouches for nobody from then on.
    pub until: Timestamp,
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
    /// The word of a batch token, which was verified; absent where a person reads a code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenProof>,
    /// The device that asks for a new key with its old one, the claim's `replaces`, which was listed then; absent where a device
    /// enrols.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rekeys: Option<DeviceId>,
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
    /// What lets it in.
    pub fn kind(&self) -> Kind {
        match self {
            Self { token: Some(_), .. } => Kind::Token,
            Self { rekeys: Some(_), .. } => Kind::Known,
            _ => Kind::Code,
        }
    }

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
            None if self.rekeys.is_some() => (self.received, REKEY_WAITS),
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

    /// The tokens that count; none if nothing says so.
    pub fn tokens(&self) -> Result<Tokens, ClaimsError> {
        Ok(read(&self.dir.join(TOKENS))?.unwrap_or_default())
    }

    /// Lets other tokens count from now on. Where nothing changes, nothing is written.
    pub fn set_tokens(&self, tokens: &Tokens) -> Result<(), ClaimsError> {
        let path = self.dir.join(TOKENS);
        // One that can't be read is replaced.
        let known = read::<Tokens>(&path).ok().flatten();
        if known.as_ref() == Some(tokens) || known.is_none() && tokens.tokens.is_empty() && !path.exists() {
            return Ok(());
        }
        let _lock = self.lock()?;
        Ok(durable::replace_file(&path, &json::to_bytes(tokens), 0o600).map_err(FileError::write(&path))?)
    }

    /// The exact text of what devices that come by a token are offered.
    pub(super) fn offer(&self) -> Result<Option<String>, ClaimsError> {
        let path = self.dir.join(OFFER);
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            text => Ok(Some(text.map_err(FileError::read(&path))?)),
        }
    }

    /// Offers this from now on.
    pub fn set_offer(&self, offer: &str) -> Result<(), ClaimsError> {
        let _lock = self.lock()?;
        let path = self.dir.join(OFFER);
        Ok(durable::replace_file(&path, offer.as_bytes(), 0o600).map_err(FileError::write(&path))?)
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

    /// Whether one more may wait for a person who reads its code, that comes from there.
    pub(super) fn has_room(&self, from: IpAddr, now: Timestamp) -> Result<bool, ClaimsError> {
        Ok(has_room(&self.list(now)?.0, from))
    }

    /// Keeps one more that waits, with the next number; `None` if there are as many as there may be: with a token, twice as
    /// many as the token has places. What is over goes, and so does what the same key said before by the same token, or as the
    /// same device.
    pub(super) fn add(&self, waiting: Waiting, places: u32, now: Timestamp) -> Result<Option<Waiting>, ClaimsError> {
        let _lock = self.lock()?;
        let key = waiting.claim()?.key;
        let is_again = |one: &Waiting| {
            let by = |one: &Waiting| (one.token.as_ref().map(|token| token.name.clone()), one.rekeys.clone());
            let same = one.verdict.is_none() && one.kind() != Kind::Code && by(one) == by(&waiting);
            same && one.claim().is_ok_and(|claim| claim.key == key)
        };
        let mut known = Vec::new();
        for path in self.files()? {
            match read::<Waiting>(&path) {
                Ok(Some(one)) if one.is_over(now) || is_again(&one) => {
                    durable::remove_file(&path).map_err(FileError::write(&path))?;
                }
                Ok(Some(one)) => known.push(one),
                // What can't be read hides no other.
                Ok(None) | Err(_) => {}
            }
        }
        known.sort_by_key(|one| one.number);
        let has_room = match (&waiting.token, &waiting.rekeys) {
            (Some(token), _) => has_room_with(&known, &token.name, places),
            (None, Some(device)) => has_room_for(&known, device),
            (None, None) => has_room(&known, waiting.address),
        };
        if !has_room {
            return Ok(None);
        }
        let number = known.last().map_or(1, |last| last.number.saturating_add(1));
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

fn has_room_with(known: &[Waiting], name: &str, places: u32) -> bool {
    let undecided = known.iter().filter(|one| one.verdict.is_none());
    let tokens: Vec<_> = undecided.filter_map(|one| one.token.as_ref()).collect();
    let of_token = tokens.iter().filter(|token| token.name == name).count();
    tokens.len() < MAX_WITH_TOKEN && of_token < 2 * places as usize
}

fn has_room_for(known: &[Waiting], device: &DeviceId) -> bool {
    known.iter().filter(|one| one.verdict.is_none() && one.rekeys.as_ref() == Some(device)).count() < MAX_REKEYS
}

fn has_room(known: &[Waiting], from: IpAddr) -> bool {
    let undecided = || known.iter().filter(|one| one.verdict.is_none() && one.kind() == Kind::Code);
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
mod tests;
