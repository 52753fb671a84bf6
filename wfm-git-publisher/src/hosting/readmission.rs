//! Devices that come back by the key that their state lists: an account of theirs ended, or this host lost it.

use jiff::Timestamp;
use repo_model::enrolment::{Approved, Claim, EnrolmentError};
use repo_model::join::JoinFloor;
use repo_model::{Branch, DeviceId};
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
        let id = claim.id.as_ref().filter(|_| claim.replaces.is_none()).ok_or(EnrolmentError::NotListed)?;
        let (keys, home) = (&self.keys, &self.home);
        let policy = keys.policy(home, id).map_err(failed)?;
        let is_listed = policy.is_some_and(|policy| policy.keys.contains(&claim.key));
        let floor = if is_listed { self.floor(id)? } else { None };
        let floor = floor.ok_or(EnrolmentError::NotListed)?;
        if self.is_replaced(id, claim, floor.serial)? {
            return Err(EnrolmentError::NotListed.into());
        }
        let config = Config::load(&home.config()).map_err(failed)?;
        let url = config.required_serve().map_err(failed)?.device_url(id);
        let (accounts, name) = (Store::new(home.accounts()), AccountName::of(id));
        // An account that was lost says nothing of that.
        let findings = Findings::read(home);
        if findings.retired.contains_key(id) || accounts.read(&name).map_err(failed)?.is_some_and(|one| one.retired) {
            return Err(EnrolmentError::Retired.into());
        }
        if findings.gone.contains_key(id) {
            return Err(EnrolmentError::Revoked.into());
        }
        // What the account's secrets lived before is what a person chose.
        match accounts.take_for_device(id, claim.account, None, Timestamp::now()) {
            Ok(()) => {}
            Err(AccountError::Revoked(_)) => return Err(EnrolmentError::Revoked.into()),
            // Nobody but who has it knows a secret's digest.
            Err(error @ AccountError::SecretTaken(_)) => {
                return Err(EnrolmentError::Malformed(error.to_string()).into());
            }
            Err(error) => return Err(failed(error)),
        }
        Ok(Approved { device: id.clone(), url, user: name.into(), floor })
    }

    /// Whether a person let another key take the place of this one, and nothing was published since that lists it.
    fn is_replaced(&self, device: &DeviceId, claim: &Claim, serial: u64) -> Result<bool, ReadmitError> {
        let (all, _) = Claims::new(self.home.enrolments()).list(Timestamp::now()).map_err(failed)?;
        let is_by_another = |one: &Waiting| one.claim().is_ok_and(|other| other.key != claim.key);
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
