//! Devices that are retired for good: their accounts end, and nothing else is done to them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use repo_model::DeviceId;
use wfm_git_host::accounts::Store;

use super::findings::Findings;
use super::outcome::{Done, Outcome};
use crate::fleet::{Fleet, Retired};
use crate::repos::Home;

/// The devices of a pass that are cut off with it: those of which nothing more is published, and those that needn't have
/// heard what was.
pub(super) fn cut_off(fleet: &Fleet, outcome: &Outcome) -> BTreeSet<DeviceId> {
    let is_unheard =
        |id: &DeviceId| fleet.devices.get(id).and_then(|device| device.retired).is_some_and(Retired::is_unheard);
    let is_cut_off = |id: &DeviceId, done: &Done| match done {
        Done::Retired => true,
        Done::Stopped => false,
        _ => is_unheard(id),
    };
    let done = outcome.devices.iter().filter_map(|(id, result)| Some((id, result.as_ref().ok()?)));
    done.filter(|(id, done)| is_cut_off(id, done)).map(|(id, _)| id.clone()).collect()
}

impl Findings {
    /// Notes which devices are retired for good, and which are in service again, and ends the accounts of the former. An
    /// old state, published on purpose, ends none.
    pub(super) fn take_retired(&mut self, home: &Home, is_old: bool, outcome: &mut Outcome, now: Timestamp) {
        let is_in_service = |device: &DeviceId| match outcome.devices.get(device) {
            Some(Ok(done)) => *done != Done::Stopped && !outcome.cut_off.contains(device),
            _ => false,
        };
        self.retired.retain(|device, _| !is_in_service(device));
        if is_old {
            return;
        }
        let store = Store::new(home.accounts());
        for device in outcome.cut_off.clone() {
            match store.retire(&device, now) {
                Ok(_) if self.retired.contains_key(&device) => {}
                Ok(_) => {
                    self.retired.insert(device.clone(), now);
                    outcome.retired.push(device);
                }
                Err(error) => outcome.accounts.push((device, error)),
            }
        }
    }
}
