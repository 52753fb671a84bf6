//! A person's word for a new key of a device, which asked for it with the key that it has: the device's file in the fleet, one
//! commit, then its account and its answer.

use std::path::Path;

use jiff::Timestamp;
use repo_git::sign::openssh;
use repo_model::DeviceId;
use repo_model::enrolment::Claim;
use wfm_git_host::Settings;
use wfm_git_host::accounts::{AccountError, AccountName, Credential, Store};
use wfm_git_host::enrolment::{Claims, Verdict, Waiting};

use super::approve_device::{ApproveDeviceError, DeviceApproval, Taken, complete};
use super::device_file::DeviceFile;
use super::enroll::{EnrollError, in_file};
use crate::fleet::{self, SourceFile};
use crate::repos::{Control, Home};

/// What a person says of a new key that waits.
#[derive(Debug, Clone)]
pub struct RekeyWord {
    /// What `device pending` shows.
    pub number: u64,
    /// Whose new key that is: a number may have become another one's since it was shown.
    pub device: DeviceId,
}

/// Puts the new key in the place of the device's old one. The old secret of its account ends with that, and the one that came with
/// the new key counts, for as long as the old one lived. The same again completes what was cut off.
pub fn approve_rekey(
    root: &Path,
    home: &Home,
    serve: &Settings,
    word: &RekeyWord,
    now: Timestamp,
) -> Result<DeviceApproval, ApproveDeviceError> {
    let RekeyWord { number, device } = word;
    let claims = Claims::new(home.enrolments());
    let (listed, _) = claims.list(now)?;
    let waiting = listed.iter().find(|one| one.number == *number && one.rekeys.is_some());
    let waiting = waiting.ok_or(ApproveDeviceError::NoNumber(*number))?.clone();
    if let Some(other) = waiting.rekeys.as_ref().filter(|other| *other != device) {
        return Err(ApproveDeviceError::OtherDevice { number: *number, device: other.clone() });
    }
    let was_there = match &waiting.verdict {
        None => false,
        Some(Verdict::Rejected { .. }) => return Err(ApproveDeviceError::Rejected),
        Some(Verdict::Approved { .. }) => true,
    };
    if !was_there && rivals(&listed, &waiting).next().is_some() {
        let numbers = rivals(&listed, &waiting).map(|one| one.number).chain([*number]);
        return Err(ApproveDeviceError::Several { device: device.clone(), numbers: numbered(numbers) });
    }
    let claim = waiting.claim()?;
    let (ledger, rosters) = Control::read(home)?;
    let (accounts, name) = (Store::new(home.accounts()), AccountName::of(device));
    accounts.check_free(&Credential::from(&claim), &name)?;
    if accounts.read(&name)?.is_some_and(|known| known.revoked.is_some()) {
        return Err(AccountError::Revoked(name).into());
    }
    let old = vouching(root, device, &claim)?;
    let fingerprint = openssh::fingerprint(&claim.key);
    let message = format!(
        "{device}: new key {fingerprint} after {old}\n\nEnrolled: {device} {fingerprint} known\nTranscript: {}\n",
        waiting.transcript.hex()
    );
    let file = in_file(root, device, (&claim.key, None), true, |_| message.clone())?.file;
    let taken = Taken { device, ttl: None, home, serve, ledger: &ledger, rosters: &rosters };
    complete(&claims, waiting, &claim, &taken, now)?;
    Ok(DeviceApproval { file, fingerprint, claim, was_there })
}

/// What else waits as a new key of the same device.
fn rivals<'a>(listed: &'a [Waiting], waiting: &'a Waiting) -> impl Iterator<Item = &'a Waiting> {
    listed.iter().filter(|one| {
        one.verdict.is_none() && one.rekeys.is_some() && one.rekeys == waiting.rekeys && one.number != waiting.number
    })
}

fn numbered(numbers: impl Iterator<Item = u64>) -> String {
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_unstable();
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The fingerprint of the old key, if it is still the device's; or the new one is already, and the approval was cut off.
fn vouching(root: &Path, device: &DeviceId, claim: &Claim) -> Result<String, ApproveDeviceError> {
    let before = DeviceFile::open(root, device).map_err(EnrollError::from)?.before;
    let old = claim
        .replaces
        .as_ref()
        .filter(|old| before.status_keys.contains(old) || before.status_keys.contains(&claim.key));
    let old = old.ok_or(ApproveDeviceError::OldKey { device: device.clone(), file: before.file })?;
    Ok(openssh::fingerprint(old))
}

/// What is to be known of a new key that waits: whose it is, what vouches for it, and what speaks against it.
pub fn rekey_note(files: &[SourceFile], listed: &[Waiting], waiting: &Waiting, claim: &Claim) -> Option<String> {
    let device = waiting.rekeys.as_ref()?;
    let old = claim.replaces.as_ref()?;
    let mut text = format!("new key of {device}, asked for with {}", openssh::fingerprint(old));
    let is_device = |file: &&SourceFile| fleet::read_device(file).is_ok_and(|one| one.id == *device);
    let known = files.iter().find(is_device).and_then(|file| fleet::read_device(file).ok());
    if !known.is_some_and(|known| known.status_keys.contains(old)) {
        text.push_str("; NOT: that isn't its key any more");
    }
    if rivals(listed, waiting).next().is_some() {
        let others = numbered(rivals(listed, waiting).map(|one| one.number));
        text.push_str(&format!("; NOT: another key is asked for, too, with number {others}"));
    }
    Some(text)
}
