//! Which keys may sign what a device pushes: those of its verified `desired`, read again only when that moved.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use repo_git::{CommitId, SigningKey};
use repo_model::{Branch, DeviceId, FleetId, KeyText, error_chain};
use wfm_git_host::PolicyError;
use wfm_git_host::judge::DevicePolicy;

use crate::repos::{Control, ControlError, DeviceRepo, DeviceRepoError, Home, Rosters, key_text, keys_without_ledger};

/// Rosters and keys that were verified before, by commit: they needn't be again.
#[derive(Debug, Default)]
pub(super) struct Keys {
    rosters: Mutex<Option<(CommitId, Arc<Rosters>)>>,
    devices: Mutex<HashMap<DeviceId, Verified>>,
}

#[derive(Debug)]
struct Verified {
    roster: CommitId,
    desired: CommitId,
    keys: BTreeSet<KeyText>,
}

impl From<DeviceRepoError> for PolicyError {
    fn from(error: DeviceRepoError) -> Self {
        Self::Unverified(error.into())
    }
}

impl Keys {
    /// What the device may push; `None` without a `desired` that names a key. A tip that can't be verified doesn't keep
    /// the device from saying so: the newest commit that can be is what counts then.
    pub(super) fn policy(&self, home: &Home, device: &DeviceId) -> Result<Option<DevicePolicy>, PolicyError> {
        let policy = |fleet: FleetId, keys| DevicePolicy { fleet, device: device.clone(), keys };
        let (roster, rosters) = match self.rosters(home) {
            Ok(Some(known)) => known,
            Ok(None) => return Ok(None),
            Err(error) if error.is_lost() => {
                let (fleet, keys) = self.without_ledger(home, device, error)?;
                return Ok(Some(policy(fleet, keys)));
            }
            Err(error) => return Err(PolicyError::Unreadable(error.into())),
        };
        let Some(repo) = DeviceRepo::open(home, rosters.fleet(), device)? else { return Ok(None) };
        let Some(desired) = repo.tip(Branch::Desired.as_str())? else { return Ok(None) };
        if let Some(known) = lock(&self.devices).get(device)
            && (known.roster, known.desired) == (roster, desired)
        {
            return Ok(Some(policy(rosters.fleet(), known.keys.clone())));
        }
        let keys = match repo.newest_verified(desired, &rosters.publishers) {
            Ok(tip) => tip.desired.envelope.device.status_keys.into_iter().collect(),
            // A forged history has nothing that could be verified; what was before it still counts.
            Err(error) => match lock(&self.devices).get(device) {
                Some(known) => known.keys.clone(),
                None => return Err(error.into()),
            },
        };
        if keys.is_empty() {
            return Ok(None);
        }
        lock(&self.devices).insert(device.clone(), Verified { roster, desired, keys: keys.clone() });
        Ok(Some(policy(rosters.fleet(), keys)))
    }

    /// The fleet and the device's keys where the ledger can't be read, which keeps no device from reporting: by what was
    /// verified before, else by what this home's publisher signed. The next `publish` rebuilds the ledger.
    fn without_ledger(
        &self,
        home: &Home,
        device: &DeviceId,
        error: ControlError,
    ) -> Result<(FleetId, BTreeSet<KeyText>), PolicyError> {
        tracing::warn!(error = error_chain(&error), "the publisher's ledger can't be read; `publish` rebuilds it");
        let known = lock(&self.rosters).as_ref().map(|(_, rosters)| rosters.fleet());
        if let (Some(fleet), Some(verified)) = (known, lock(&self.devices).get(device)) {
            return Ok((fleet, verified.keys.clone()));
        }
        let publisher = SigningKey::load(&home.publisher_key()).ok().and_then(|key| key_text(key.public()));
        let found = publisher.and_then(|publisher| keys_without_ledger(home, device, &publisher));
        found.ok_or_else(|| PolicyError::Unreadable(error.into()))
    }

    /// All rosters of the fleet; `None` where nothing was published yet.
    pub(super) fn newest_rosters(&self, home: &Home) -> Result<Option<Arc<Rosters>>, ControlError> {
        Ok(self.rosters(home)?.map(|(_, rosters)| rosters))
    }

    /// The rosters at the tip of `control.git`, and that tip.
    fn rosters(&self, home: &Home) -> Result<Option<(CommitId, Arc<Rosters>)>, ControlError> {
        let Some(tip) = Control::tip(home)? else { return Ok(None) };
        if let Some((known, rosters)) = &*lock(&self.rosters)
            && *known == tip
        {
            return Ok(Some((tip, Arc::clone(rosters))));
        }
        let rosters = Arc::new(Control::rosters_at(home, tip)?);
        *lock(&self.rosters) = Some((tip, Arc::clone(&rosters)));
        Ok(Some((tip, rosters)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
