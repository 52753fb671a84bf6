//! Devices that left the fleet: their accounts end, and nothing else is done to them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use repo_model::DeviceId;
use wfm_git_host::accounts::{Account, AccountError, AccountName, Store};

use super::findings::{Findings, Gone};
use super::outcome::Outcome;
use crate::fleet::Fleet;
use crate::repos::{Home, Ledger};

/// The devices that something was given out to and that the fleet has no more; `None` while there are files of which it
/// can't be known what they are about.
pub(super) fn find(fleet: &Fleet, ledger: &Ledger) -> Option<BTreeSet<DeviceId>> {
    let is_there = |id: &DeviceId| fleet.devices.contains_key(id) || fleet.broken.devices.contains(id);
    let gone = ledger.devices().filter(|id| !is_there(id)).cloned();
    fleet.broken.unidentified.is_empty().then(|| gone.collect())
}

/// The account of a device on this host, if it has one that still counts.
pub(super) fn account(home: &Home, device: &DeviceId) -> Result<Option<AccountName>, AccountError> {
    let is_its_own = |account: &Account| account.device.as_ref() == Some(device) && account.revoked.is_none();
    let account = Store::new(home.accounts()).read(&AccountName::of(device))?;
    Ok(account.filter(is_its_own).map(|account| account.name))
}

impl Findings {
    /// Notes who left and who came back, and ends the accounts of those that left: once, so that one that is made anew for a
    /// device that comes back isn't ended before its file is there. An old state, published on purpose, ends none.
    pub(super) fn take_gone(&mut self, home: &Home, is_old: bool, outcome: &mut Outcome, now: Timestamp) {
        let Some(gone) = outcome.gone.take() else { return };
        outcome.returned = self.gone.keys().filter(|device| !gone.contains(device)).cloned().collect();
        self.gone.retain(|device, _| gone.contains(device));
        for device in gone {
            // Of one that was retired before there is nothing to tell: nothing of it is lost by that.
            let is_new = !self.gone.contains_key(&device) && !self.retired.contains_key(&device);
            let known = self.gone.entry(device.clone()).or_insert(Gone { since: now, ended_account: None });
            if !is_old && known.ended_account.is_none() {
                let ended = account(home, &device).and_then(|account| {
                    let ended = account.map(|name| Store::new(home.accounts()).revoke(&name, now).map(|_| name));
                    ended.transpose()
                });
                match ended {
                    Ok(name) => known.ended_account = name,
                    Err(error) => outcome.accounts.push((device.clone(), error)),
                }
            }
            if is_new {
                outcome.left.push((device, known.ended_account.clone()));
            }
        }
    }
}
