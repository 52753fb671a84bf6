//! A person's word for a device that waits: its file in the fleet, one commit, then its repository, its account, its answer.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use repo_git::durable::{self, FileError};
use repo_git::sign::openssh;
use repo_model::enrolment::{Approved, Claim, Code, Kind};
use repo_model::problem::Problems;
use repo_model::{DeviceId, KeyText};
use wfm_git_host::Settings;
use wfm_git_host::accounts::{AccountError, AccountName, Credential, Fate, Store};
use wfm_git_host::enrolment::{Claims, ClaimsError, Verdict, Waiting};

use super::add::device_text;
use super::device_file::DeviceFileError;
use super::enroll::{EnrollError, add_signer, in_file, owner};
use super::join::floor;
use crate::fleet::{self, SourceFile};
use crate::repos::{
    Control, ControlError, DeviceRepo, DeviceRepoError, GitError, Home, Ledger, Rosters, SourceError, StockGit,
    work_tree,
};

/// What a person says of the device that shows a code.
#[derive(Debug, Clone)]
pub struct Word {
    /// What the device shows.
    pub code: Code,
    /// As which device it is taken in.
    pub device: DeviceId,
    /// Of a device that isn't in the fleet yet; of one that is, none or the same.
    pub labels: BTreeMap<String, String>,
    /// How long the device's first secret is valid; `None` for ever.
    pub ttl: Option<Duration>,
    /// Whether it takes the place of a device that is in the fleet, whose other keys end with this, as the secrets of its account
    /// do.
    pub replace: bool,
}

/// A device that was taken in.
#[derive(Debug)]
pub struct DeviceApproval {
    /// The path of the device's file in the fleet repository.
    pub file: String,
    /// The status key's: `SHA256:…`, as `ssh-keygen -l` shows it.
    pub fingerprint: String,
    /// What the device said of itself.
    pub claim: Claim,
    /// Whether it was approved before.
    pub was_there: bool,
}

/// A device can't be taken in.
#[derive(Debug, thiserror::Error)]
pub enum ApproveDeviceError {
    /// What waits can't be read or answered.
    #[error("cannot use what waits to be enrolled")]
    Claims(#[from] ClaimsError),
    #[error("there is no token `{0}` in the fleet")]
    NoToken(String),
    /// Somebody has the token who isn't meant to, or it was made for too few.
    #[error("{waiting} devices wait with the token `{token}`, and it is for {places} more")]
    NoPlaces { token: String, waiting: usize, places: usize },
    /// One came, or went, after a person looked.
    #[error("{waiting} new devices would be taken in with the token `{token}`, and {expected} were expected")]
    Unexpected { token: String, waiting: usize, expected: usize },
    #[error("no device that waits here shows the code {0}")]
    NoCode(Code),
    #[error("the device was rejected")]
    Rejected,
    #[error("no new key of a device waits here with the number {0}")]
    NoNumber(u64),
    #[error("number {number} is a new key of `{device}`")]
    OtherDevice { number: u64, device: DeviceId },
    /// Only one of those who ask has the device, and the other has its old key, too.
    #[error("`{device}` asks for several new keys: numbers {numbers}")]
    Several { device: DeviceId, numbers: String },
    /// It got another one since it asked.
    #[error("the key that vouches for the new one isn't that of `{device}` any more: {file}")]
    OldKey { device: DeviceId, file: String },
    #[error("the device that shows this code was approved as `{0}`")]
    Answered(DeviceId),
    /// The device pins a roster that isn't the newest.
    #[error("the fleet's keys changed since this device was offered them")]
    OldRoster,
    /// The device is there already, with other labels.
    #[error("`{device}` is in the fleet already: {file}")]
    Exists { device: DeviceId, file: String },
    /// The device's new file would be wrong.
    #[error("`{device}` can't be added like this")]
    Device { device: DeviceId, problems: Problems },
    /// The file that the device would get is there, and is another one's.
    #[error("`{file}` exists, and is not about `{device}`")]
    Taken { device: DeviceId, file: String },
    #[error("cannot read the fleet")]
    Source(#[from] SourceError),
    /// Its keys can't be put into the fleet.
    #[error("cannot put the device's key into the fleet")]
    Keys(#[from] EnrollError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot commit the device's file")]
    Git(#[from] GitError),
    #[error("cannot use the publisher's ledger")]
    Control(#[from] ControlError),
    #[error("cannot make the repository of the device")]
    Repo(#[from] DeviceRepoError),
    /// Its account can't be made. Its file in the fleet has its key.
    #[error("cannot make the device's account")]
    Account(#[from] AccountError),
}

/// Takes in the device that shows the code. The same again completes what was cut off.
pub fn approve_device(
    root: &Path,
    home: &Home,
    serve: &Settings,
    word: &Word,
    now: Timestamp,
) -> Result<DeviceApproval, ApproveDeviceError> {
    let claims = Claims::new(home.enrolments());
    // Nothing else shows a code.
    let shows = |waiting: &Waiting| waiting.kind() == Kind::Code && waiting.code() == word.code;
    let waiting = claims.list(now)?.0.into_iter().find(shows);
    let waiting = waiting.ok_or(ApproveDeviceError::NoCode(word.code))?;
    let was_there = match &waiting.verdict {
        None => false,
        Some(Verdict::Rejected { .. }) => return Err(ApproveDeviceError::Rejected),
        Some(Verdict::Approved { answer, .. }) if answer.device == word.device => true,
        Some(Verdict::Approved { answer, .. }) => return Err(ApproveDeviceError::Answered(answer.device.clone())),
    };
    let claim = waiting.claim()?;
    let (ledger, rosters) = Control::read(home)?;
    if rosters.newest.digest != waiting.roster {
        return Err(ApproveDeviceError::OldRoster);
    }
    let (accounts, name) = (Store::new(home.accounts()), AccountName::of(&word.device));
    // What can be known before anything is changed is.
    accounts.check_free(&Credential::from(&claim), &name)?;
    match accounts.read(&name)? {
        Some(known) if known.device.as_ref() != Some(&word.device) => {
            return Err(AccountError::Taken { name, device: word.device.clone() }.into());
        }
        Some(known) if known.revoked.is_some() => return Err(AccountError::Revoked(name).into()),
        _ => {}
    }
    let fingerprint = openssh::fingerprint(&claim.key);
    let file = in_fleet(root, word, &claim.key, &message(word, &fingerprint, &waiting))?;
    let taken = Taken { device: &word.device, ttl: Some(word.ttl), home, serve, ledger: &ledger, rosters: &rosters };
    complete(&claims, waiting, &claim, &taken, now)?;
    Ok(DeviceApproval { file, fingerprint, claim, was_there })
}

/// A device that is in the fleet now, and what it takes to give it the rest.
pub(super) struct Taken<'a> {
    pub(super) device: &'a DeviceId,
    /// How long its secret is valid (`Some(None)`: for ever); `None` for as long as the one before.
    pub(super) ttl: Option<Option<Duration>>,
    pub(super) home: &'a Home,
    pub(super) serve: &'a Settings,
    pub(super) ledger: &'a Ledger,
    pub(super) rosters: &'a Rosters,
}

/// Gives a device that is in the fleet its repository and its account, and then its answer.
pub(super) fn complete(
    claims: &Claims,
    waiting: Waiting,
    claim: &Claim,
    Taken { device, ttl, home, serve, ledger, rosters }: &Taken<'_>,
    now: Timestamp,
) -> Result<(), ApproveDeviceError> {
    let (accounts, name) = (Store::new(home.accounts()), AccountName::of(device));
    add_signer(home, device, &claim.key)?;
    let repo = DeviceRepo::create(home, rosters.fleet(), device)?;
    let tip = repo.desired(&rosters.publishers)?;
    accounts.take_for_device(device, claim.into(), *ttl, now)?;
    accounts.judge_ssh_keys(&name, now, |key| match &key.enrolled_with {
        Some(status) if *status != claim.key => Fate::Goes,
        _ => Fate::Counts,
    })?;
    if waiting.verdict.is_some() {
        return Ok(());
    }
    let answer = Approved {
        url: serve.device_url(device),
        user: name.into(),
        credentials: claim.credentials(),
        floor: floor(ledger, device, tip.as_ref()),
        device: (*device).clone(),
    };
    // Two persons may have said something at the same moment.
    match claims.decide(waiting, Verdict::Approved { answer, at: now })? {
        Verdict::Approved { answer, .. } if answer.device == **device => Ok(()),
        Verdict::Approved { answer, .. } => Err(ApproveDeviceError::Answered(answer.device)),
        Verdict::Rejected { .. } => Err(ApproveDeviceError::Rejected),
    }
}

/// What of a claim doesn't fit what the fleet has already, for a person.
pub fn conflict(files: &[SourceFile], claim: &Claim) -> Option<String> {
    if let Some((device, _)) = owner(files, None, &claim.key) {
        return Some(format!("its key is that of `{device}` already"));
    }
    let id = claim.id.as_ref()?;
    let (_, path) = fleet::device_files(files).into_iter().find(|(device, _)| device == id)?;
    let device = files.iter().find(|file| file.path == path).and_then(|file| fleet::read_device(file).ok())?;
    let key = device.status_keys.first()?;
    Some(format!("`{id}` is enrolled with another key, {}", openssh::fingerprint(key)))
}

/// The commit's message: what was decided, by which code, for an auditor.
fn message(word: &Word, fingerprint: &str, waiting: &Waiting) -> String {
    let Word { device, replace, .. } = word;
    let transcript = waiting.transcript.hex();
    let what = if *replace { "replace by" } else { "enroll" };
    format!("{device}: {what} {fingerprint}\n\nEnrolled: {device} {fingerprint} code\nTranscript: {transcript}\n")
}

/// Puts the device with its key into the fleet, as one commit, and returns its file.
fn in_fleet(root: &Path, word: &Word, key: &KeyText, message: &str) -> Result<String, ApproveDeviceError> {
    let Word { device, labels, .. } = word;
    let files = work_tree(root)?;
    let file = format!("devices/{device}.yaml");
    let text = format!("{}statusKeys:\n  - {key}\n", device_text(device, labels));
    let path = root.join(&file);
    let found = fleet::device_files(&files).into_iter().find(|(id, _)| id == device).map(|(_, file)| file);
    let is_as_written = || fs::read_to_string(&path).is_ok_and(|known| known == text);
    match found {
        Some(known) if known == file && is_as_written() => {}
        Some(known) => {
            let read = files.iter().find(|file| file.path == known).map(fleet::read_device);
            let has_labels = read.is_some_and(|read| read.is_ok_and(|read| read.labels == *labels));
            if !labels.is_empty() && !has_labels {
                return Err(ApproveDeviceError::Exists { device: device.clone(), file: known });
            }
            return Ok(in_file(root, device, (key, None), word.replace, |_| message.to_owned())?.file);
        }
        None if word.replace => {
            return Err(EnrollError::File(DeviceFileError::NoDevice(device.clone())).into());
        }
        None => {
            if let Some((owner, file)) = owner(&files, Some(device), key) {
                return Err(EnrollError::Taken { owner, file }.into());
            }
            fleet::read_device(&SourceFile::plain(&file, text.as_str()))
                .map_err(|problems| ApproveDeviceError::Device { device: device.clone(), problems })?;
            if path.exists() {
                return Err(ApproveDeviceError::Taken { device: device.clone(), file });
            }
            let failed = FileError::write(&path);
            durable::create_dir_all(path.parent().unwrap_or(root), 0o755).map_err(failed)?;
            durable::replace_file(&path, text.as_bytes(), 0o644).map_err(failed)?;
        }
    }
    let git = StockGit::new(root);
    if git.is_dirty(&file)? {
        git.commit(&[&file], message)?;
    }
    Ok(file)
}
