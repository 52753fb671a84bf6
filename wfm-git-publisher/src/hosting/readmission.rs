//! Devices that come back by the key that their state lists: an account of theirs ended, or this host lost it.

use jiff::Timestamp;
use repo_model::enrolment::{Approved, Claim, EnrolmentError};
use repo_model::join::JoinFloor;
use repo_model::{Branch, DeviceId, KeyText};
use wfm_git_host::accounts::{AccountError, AccountName, Store};
use wfm_git_host::enrolment::{Claims, Verdict, Waiting};
use wfm_git_host::{ReadmitError, Reason};

use super::HostedHome;
use crate::config::Config;
use crate::publish::Findings;
use crate::repos::DeviceRepo;

impl HostedHome {
    /// Gives the device whose key this is an account with the secret that it made. One that was revoked, or is of a device that
    /// left the fleet or was retired, stays so; whoever isn't listed learns nothing of whether the device is there.
    pub(super) fn let_in_again(&self, claim: &Claim) -> Result<Approved, ReadmitError> {
        let (id, floor) = self.known(claim, &claim.key)?;
        let (accounts, name) = (Store::new(self.home.accounts()), AccountName::of(id));
        let config = Config::load(&self.home.config()).map_err(failed)?;
        let url = config.required_serve().map_err(failed)?.device_url(id);
        // What the account's secrets lived before is what a person chose.
        match accounts.take_for_device(id, claim.into(), None, Timestamp::now()) {
            Ok(()) => {}
            Err(AccountError::Revoked(_)) => return Err(EnrolmentError::Revoked.into()),
            // Nobody but who has it knows a secret's digest; a certificate is its owner's alone, and tells no more than that.
            Err(error @ AccountError::CredentialTaken { .. }) => {
                return Err(EnrolmentError::Malformed(error.to_string()).into());
            }
            Err(error) => return Err(failed(error)),
        }
        Ok(Approved { device: id.clone(), url, user: name.into(), credentials: claim.credentials(), floor })
    }

    /// The device that asks for a new key, by the one that it has.
    pub(super) fn known_by_old_key(&self, claim: &Claim) -> Result<DeviceId, ReadmitError> {
        let old = claim.replaces.as_ref().ok_or(EnrolmentError::NotListed)?;
        let (id, _) = self.known(claim, old)?;
        let account = Store::new(self.home.accounts()).read(&AccountName::of(id)).map_err(failed)?;
        if account.is_some_and(|one| one.revoked.is_some()) {
            return Err(EnrolmentError::Revoked.into());
        }
        Ok(id.clone())
    }

    /// The device that the claim names, and what was published for it last, if that lists this key of its. One that was retired or
    /// left the fleet stays so.
    fn known<'a>(&self, claim: &'a Claim, key: &KeyText) -> Result<(&'a DeviceId, JoinFloor), ReadmitError> {
        let id = claim.id.as_ref().ok_or(EnrolmentError::NotListed)?;
        let policy = self.keys.policy(&self.home, id).map_err(failed)?;
        let is_listed = policy.is_some_and(|policy| policy.keys.contains(key));
        let floor = if is_listed { self.floor(id)? } else { None };
        let floor = floor.ok_or(EnrolmentError::NotListed)?;
        if self.is_replaced(id, key, floor.serial)? {
            return Err(EnrolmentError::NotListed.into());
        }
        let account = Store::new(self.home.accounts()).read(&AccountName::of(id)).map_err(failed)?;
        // An account that was lost says nothing of that.
        let findings = Findings::read(&self.home);
        if findings.retired.contains_key(id) || account.is_some_and(|one| one.retired) {
            return Err(EnrolmentError::Retired.into());
        }
        if findings.gone.contains_key(id) {
            return Err(EnrolmentError::Revoked.into());
        }
        Ok((id, floor))
    }

    /// Whether a person let another key take the place of this one, and nothing was published since that lists it.
    fn is_replaced(&self, device: &DeviceId, key: &KeyText, serial: u64) -> Result<bool, ReadmitError> {
        let (all, _) = Claims::new(self.home.enrolments()).list(Timestamp::now()).map_err(failed)?;
        let is_by_another = |one: &Waiting| one.claim().is_ok_and(|other| other.key != *key);
        let is_newer = |one: &Waiting| match &one.verdict {
            Some(Verdict::Approved { answer, .. }) => answer.device == *device && answer.floor.serial >= serial,
            _ => false,
        };
        Ok(all.iter().any(|one| is_newer(one) && is_by_another(one)))
    }

    /// What was published for a device last, as far as it can be verified.
    fn floor(&self, device: &DeviceId) -> Result<Option<JoinFloor>, ReadmitError> {
        let Some(rosters) = self.keys.newest_rosters(&self.home).map_err(failed)? else { return Ok(None) };
        let Some(repo) = DeviceRepo::open(&self.home, rosters.fleet(), device).map_err(failed)? else {
            return Ok(None);
        };
        let Some(tip) = repo.tip(Branch::Desired.as_str()).map_err(failed)? else { return Ok(None) };
        let envelope = repo.newest_verified(tip, &rosters.publishers).map_err(failed)?.desired.envelope;
        Ok(Some(JoinFloor { serial: envelope.serial, manifest_version: envelope.manifest_version }))
    }
}

fn failed(error: impl Into<Reason>) -> ReadmitError {
    ReadmitError::Failed(error.into())
}
