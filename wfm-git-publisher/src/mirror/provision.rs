//! Repositories and rights at the host, made by the operator's own command when they aren't what they shall be.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use repo_model::{DeviceId, Digest, KeyText};
use wfm_git_host::accounts::{Role, Store};

use super::{Each, Mirror, MirrorError};
use crate::fleet::Fleet;
use crate::repos::{Home, HomeError, ProvisionError, SitePerson};

/// Where it is kept, in the folder of what can be rebuilt: its loss makes the command run once more for each device.
const FILE: &str = "provisioned";

/// What the command was last told about each device, when it did well, and the persons of sites that are known now.
#[derive(Debug, Default)]
pub(crate) struct Provisioned {
    told: Mutex<BTreeMap<DeviceId, Digest>>,
    sites: BTreeMap<DeviceId, Vec<SitePerson>>,
}

/// The persons of each device's site, by their accounts. Where these can't be read nobody is known, and that is told
/// where accounts are shown.
fn sites(home: &Home) -> BTreeMap<DeviceId, Vec<SitePerson>> {
    let listing = Store::new(home.accounts()).list().unwrap_or_default();
    let mut sites = BTreeMap::<_, Vec<_>>::new();
    for account in listing.accounts.into_values() {
        if account.role != Role::Site || account.revoked.is_some() {
            continue;
        }
        let ssh_keys = account.valid_ssh_keys().map(|key| key.key.clone()).collect();
        let person = SitePerson { name: account.name.to_string(), ssh_keys };
        account.devices.into_iter().for_each(|device| sites.entry(device).or_default().push(person.clone()));
    }
    sites
}

impl Provisioned {
    /// What earlier passes left; nothing if that can't be read.
    pub(crate) fn read(home: &Home) -> Self {
        let text = std::fs::read_to_string(home.index().join(FILE)).unwrap_or_default();
        let line =
            |line: &str| line.split_once(' ').and_then(|(id, digest)| Some((id.parse().ok()?, digest.parse().ok()?)));
        Self { told: Mutex::new(text.lines().filter_map(line).collect()), sites: sites(home) }
    }

    fn write(&self, home: &Home) -> Result<(), HomeError> {
        let provisioned = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if *provisioned == *Self::read(home).told.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(());
        }
        let mut text = String::new();
        provisioned.iter().for_each(|(device, digest)| _ = writeln!(text, "{device} {digest}"));
        home.write(&home.index().join(FILE), text.as_bytes(), 0o600)
    }

    fn of(&self, device: &DeviceId) -> Option<Digest> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).get(device).copied()
    }

    fn site_of(&self, device: &DeviceId) -> Vec<SitePerson> {
        self.sites.get(device).cloned().unwrap_or_default()
    }

    fn note(&self, device: &DeviceId, digest: Digest) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(device.clone(), digest);
    }
}

/// When the command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// If it was never told this.
    Changed,
    /// Because the repository isn't there. Once more after a wait that grows, if the command does well and it still isn't.
    Missing,
}

/// What shall be provisioned, and what was.
#[derive(Clone, Copy)]
pub(crate) struct Provisioning<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) provisioned: &'a Provisioned,
}

impl Mirror<'_> {
    /// Lets the command make a device's repository and rights what they shall be. Tells whether it ran.
    pub(super) fn provision(&self, device: &DeviceId, when: When) -> Result<bool, ProvisionError> {
        let Some(Provisioning { fleet, provisioned }) = self.provisioning else { return Ok(false) };
        let known = fleet.devices.get(device);
        // The keys of a device whose file can't be read are unknown, and stay what they are.
        if known.is_none() && fleet.broken.devices.contains(device) {
            return Ok(false);
        }
        let keys: &[KeyText] = known.map_or(&[], |device| &device.ssh_keys);
        let site = if known.is_some() { provisioned.site_of(device) } else { Vec::new() };
        let what = self.remotes.provisioned(self.rosters.fleet(), device, known.is_some(), keys, site);
        if when == When::Changed && provisioned.of(device) == Some(what.digest()) {
            return Ok(false);
        }
        if when == When::Missing && !self.remotes.may_make(device) {
            return Ok(false);
        }
        if !self.remotes.provision(&what)? {
            return Ok(false);
        }
        provisioned.note(device, what.digest());
        Ok(true)
    }

    /// Takes the rights of devices that left the fleet away, once. Gives what failed.
    pub(crate) fn withdraw(&self, gone: &BTreeSet<DeviceId>) -> Each<()> {
        let gone = gone.iter().map(|device| (device.clone(), ())).collect();
        let mut results = self
            .each(gone, |device, ()| self.provision(device, When::Changed).map(drop).map_err(MirrorError::Provision));
        results.retain(|_, result| result.is_err());
        results
    }

    /// Keeps for the next pass what the command was told.
    pub(crate) fn keep_provisioned(&self) -> Result<(), HomeError> {
        self.provisioning.map_or(Ok(()), |provisioning| provisioning.provisioned.write(self.home))
    }
}
