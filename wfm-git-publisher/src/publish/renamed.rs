//! Devices that begin anew with the key of one that is no longer in the fleet: most likely somebody changed an id.

use std::collections::BTreeMap;

use repo_model::problem::{Problem, Problems};
use repo_model::{DeviceId, KeyText};

use super::known::KnownDevice;
use super::pass::Pass;
use crate::fleet::Device;
use crate::repos::Ledger;

/// Warns of each of these devices, which have nothing yet, whose key was another one's.
pub(super) fn warnings(pass: &Pass<'_>, ledger: &Ledger, new: &[&Device]) -> Problems {
    let new: Vec<_> = new.iter().filter(|device| device.is_enrolled()).collect();
    if new.is_empty() {
        return Problems::default();
    }
    let known = |id: &DeviceId| pass.fleet.devices.contains_key(id) || pass.fleet.broken.devices.contains(id);
    let mut owners: BTreeMap<KeyText, &DeviceId> = BTreeMap::new();
    for id in ledger.devices().filter(|id| !known(id)) {
        let tip = KnownDevice::read(pass, id, None).ok().and_then(|known| known.tip);
        let keys = tip.into_iter().flat_map(|tip| tip.desired.envelope.device.status_keys);
        owners.extend(keys.map(|key| (key, id)));
    }
    let mut problems = Problems::default();
    for device in new {
        let Some(old) = device.status_keys.iter().find_map(|key| owners.get(key)) else { continue };
        let text = format!(
            "`{}` has the key that `{old}` had: its repository begins anew, and the machine stays on that of `{old}`, \
             as it is, until it joins anew",
            device.id
        );
        let hint = format!("put the id `{old}` back, or let the machine join as `{}`: `device join`", device.id);
        problems.push(Problem::error(&device.file, text).warning().hint(hint));
    }
    problems
}
