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
    /// The device's fleet and the keys that its `desired` allows; `None` without a `desired` that names any. A tip that
    /// can't be verified doesn't keep the device from saying so: the newest commit that can be is what counts then.
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
