//! Devices that wait with a batch token's word: which of them could be taken in, and as what.

use std::collections::BTreeMap;

use jiff::Timestamp;
use repo_git::sign;
use repo_model::enrolment::{Claim, NamedBy};
use repo_model::{DeviceId, Digest, KeyText};
use wfm_git_host::accounts::{AccountName, Credential, Store};
use wfm_git_host::enrolment::{ClaimsError, Waiting};

use crate::fleet::{self, Device, SourceFile, Token};

/// One that waits, as it is seen before anybody decides.
#[derive(Debug)]
pub struct Candidate {
    pub waiting: Waiting,
    pub claim: Claim,
    /// What it would be called; absent where that is no id.
    pub device: Option<DeviceId>,
    /// What a person should look at, although it is taken in.
    pub note: Option<String>,
    /// Why it isn't taken in.
    pub problem: Option<String>,
    /// Its file, where an approval that was cut off wrote it.
    pub(super) known: Option<Device>,
}

/// What devices that wait with a token are judged by.
#[derive(Debug)]
pub struct Batch<'a> {
    /// Absent where the fleet has none of that name.
    pub token: Option<&'a Token>,
    pub files: &'a [SourceFile],
    pub accounts: &'a Store,
    /// The fleet's newest roster.
    pub roster: Digest,
}

impl Batch<'_> {
    /// Judges those that wait with this token.
    ///
    /// # Errors
    /// Where a claim can't be read, which it could when it came.
    pub fn judge(&self, waiting: Vec<Waiting>) -> Result<Vec<Candidate>, ClaimsError> {
        let devices: Vec<_> = self.files.iter().filter_map(|file| fleet::read_device(file).ok()).collect();
        let names: BTreeMap<_, _> =
            fleet::device_files(self.files).into_iter().map(|(id, file)| (name(&id), file)).collect();
        let judged = waiting.into_iter().map(|waiting| self.one(waiting, &devices, &names));
        let mut candidates: Vec<_> = judged.collect::<Result<_, _>>()?;
        let mut same: BTreeMap<(&str, String), u32> = BTreeMap::new();
        let keys = |one: &Candidate| {
            let id = one.device.iter().map(|id| ("would be called the same", name(id)));
            id.chain([
                ("has the same key", one.claim.key.to_string()),
                ("has the same secret", one.claim.account.to_string()),
            ])
            .collect::<Vec<_>>()
        };
        for key in candidates.iter().flat_map(keys) {
            *same.entry(key).or_default() += 1;
        }
        for one in &mut candidates {
            if let Some((what, _)) = keys(one).into_iter().find(|key| same.get(key).is_some_and(|count| *count > 1)) {
                one.problem.get_or_insert_with(|| format!("another one that waits {what}: reject the wrong one"));
            }
        }
        Ok(candidates)
    }

    fn one(
        &self,
        waiting: Waiting,
        devices: &[Device],
        names: &BTreeMap<String, String>,
    ) -> Result<Candidate, ClaimsError> {
        let claim = waiting.claim()?;
        let mut candidate = Candidate { waiting, claim, device: None, note: None, problem: None, known: None };
        candidate.problem = self.judge_one(&mut candidate, devices, names).err();
        Ok(candidate)
    }

    fn judge_one(
        &self,
        Candidate { waiting, claim, device, note, known, .. }: &mut Candidate,
        devices: &[Device],
        names: &BTreeMap<String, String>,
    ) -> Result<(), String> {
        let token = self.token.ok_or("the fleet has no such token")?;
        let vouches = |key| {
            waiting.token.as_ref().is_some_and(|proof| proof.proves(key, &waiting.transcript, &claim.key, &signer))
        };
        if !vouches(&token.key) {
            return Err("the token's key isn't the one that vouches for it".to_owned());
        }
        let (serial, mac) = (claim.serial.as_deref(), claim.mac.as_deref());
        let (id, by) = token.id_of(serial, mac, &claim.key).map_err(|text| format!("`{text}` is no device id"))?;
        *note = match by {
            NamedBy::Serial => None,
            NamedBy::Mac => Some("its serial number is none: named by its MAC address".to_owned()),
            NamedBy::Key => Some("it has neither serial number nor MAC address: named by its key".to_owned()),
        };
        *device = Some(id.clone());
        if waiting.received >= token.until {
            return Err("it came after the token's end".to_owned());
        }
        if !token.admits(serial) {
            return Err("its serial number isn't one of the token's".to_owned());
        }
        if waiting.roster != self.roster {
            return Err("the fleet's keys changed since: it needs a new enrolment file".to_owned());
        }
        let owner =
            devices.iter().find(|one| one.status_keys.contains(&claim.key) || one.ssh_keys.contains(&claim.key));
        match owner {
            Some(owner) if is_cut_off(owner, &id, &token.name, &claim.key) => *known = Some(owner.clone()),
            Some(owner) => return Err(format!("its key is that of `{}` already", owner.id)),
            None => {
                if let Some(file) = names.get(&name(&id)) {
                    return Err(format!("the fleet has a device of that name: {file}"));
                }
            }
        }
        let account = AccountName::of(&id);
        self.accounts.check_free(&Credential::from(&*claim), &account).map_err(|error| error.to_string())?;
        match self.accounts.read(&account) {
            Ok(Some(known)) if known.device.as_ref() != Some(&id) => {
                Err(format!("the account `{account}` is somebody else's"))
            }
            Ok(Some(known)) if known.revoked.is_some() => Err(format!("the account `{account}` was revoked")),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// What two ids can't share: their repository.
fn name(id: &DeviceId) -> String {
    id.repository_name().to_lowercase()
}

/// Whether an approval by this token wrote the device's file before.
fn is_cut_off(device: &Device, id: &DeviceId, token: &str, key: &KeyText) -> bool {
    let by = device.enrolled_by.as_ref().is_some_and(|by| by.token == token);
    by && device.id == *id && device.status_keys == [key.clone()]
}

/// Which key made a signature.
fn signer(bytes: &[u8], namespace: &str, signature: &str) -> Option<KeyText> {
    sign::verify(namespace, bytes, signature).ok()?.to_string().parse().ok()
}

/// Those of all that wait that nobody decided on yet and that came by this token.
pub fn waiting_with(all: Vec<Waiting>, token: &str) -> Vec<Waiting> {
    let is_of = |one: &Waiting| one.verdict.is_none() && one.token.as_ref().is_some_and(|by| by.name == token);
    all.into_iter().filter(is_of).collect()
}

/// Whether the token vouches for somebody now.
pub fn counts(token: &Token, now: Timestamp) -> bool {
    now < token.until
}
