//! Which keys may sign what a device pushes: those of its verified `desired`, read again only when that moved.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use repo_git::CommitId;
use repo_model::{DeviceId, FleetId, KeyText};

use super::receive::PushError;
use super::repos::lock;
use crate::host::{Control, DESIRED, DeviceRepo, Home, Rosters};

/// What was verified before.
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

impl Keys {
    /// The device's fleet and the keys that the tip of its `desired` allows; `None` without a `desired` that names any.
    pub(super) fn allowed(
        &self,
        home: &Home,
        device: &DeviceId,
    ) -> Result<Option<(FleetId, BTreeSet<KeyText>)>, PushError> {
        let Some((roster, rosters)) = self.rosters(home)? else { return Ok(None) };
        let Some(repo) = DeviceRepo::open(home, rosters.fleet(), device)? else { return Ok(None) };
        let Some(desired) = repo.tip(DESIRED)? else { return Ok(None) };
        if let Some(known) = lock(&self.devices).get(device)
            && (known.roster, known.desired) == (roster, desired)
        {
            return Ok(Some((rosters.fleet(), known.keys.clone())));
        }
        let tip = repo.desired_at(desired, &rosters.publishers)?;
        let keys: BTreeSet<_> = tip.desired.envelope.device.status_keys.into_iter().collect();
        if keys.is_empty() {
            return Ok(None);
        }
        lock(&self.devices).insert(device.clone(), Verified { roster, desired, keys: keys.clone() });
        Ok(Some((rosters.fleet(), keys)))
    }

    /// The rosters at the tip of the publisher's memory.
    fn rosters(&self, home: &Home) -> Result<Option<(CommitId, Arc<Rosters>)>, PushError> {
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
