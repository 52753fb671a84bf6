//! The command that makes devices' repositories at a host elsewhere, and lets devices in.
//!
//! It is told what shall be, never what to change, so it may run as often as it likes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use repo_model::{Branch, DeviceId, Digest, FleetId, KeyText, json};
use serde::Serialize;
use tracing::info;

use crate::config;
use crate::program::{self, ProgramError};

/// The wait until the command runs again for a repository that still isn't there: the first, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));

/// Devices for whose missing repositories the command ran: how often, and when it may run again.
#[derive(Debug, Default)]
pub(super) struct BackOff(Mutex<BTreeMap<DeviceId, (u32, Instant)>>);

impl BackOff {
    /// Whether the command may run now. If so, it counts as run.
    pub(super) fn begin(&self, device: &DeviceId, now: Instant) -> bool {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match runs.get(device) {
            Some((_, again)) if now < *again => return false,
            Some((before, _)) => *before,
            None => 0,
        };
        let wait = AGAIN.0.saturating_mul(1 << before.min(6)).min(AGAIN.1);
        runs.insert(device.clone(), (before + 1, now + wait));
        true
    }

    /// The repository is there: were it gone again, the command would run at once.
    pub(super) fn end(&self, device: &DeviceId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(device);
    }
}

/// What shall be at the host for one device.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Provisioned<'a> {
    pub layout: u64,
    pub fleet: FleetId,
    pub device: &'a DeviceId,
    /// Whether the device is in the fleet. One that left keeps its repository, and nobody but the publisher may use it.
    pub present: bool,
    /// The repository's name at every host.
    pub repository: String,
    /// Where the publisher finds it.
    pub url: String,
    /// The path in that, without a slash in front.
    pub path: String,
    /// The keys by which the device logs in; none where it has none, or left.
    pub ssh_keys: &'a [KeyText],
    /// The persons of the device's site, by the accounts of theirs (role `site`); none of a device that left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub site: Vec<SitePerson>,
    pub rights: Rights,
}

/// A person of a site, who may say in Git what is approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SitePerson {
    /// The account's name.
    pub name: String,
    /// The keys by which the person logs in; none where the account has none.
    pub ssh_keys: Vec<KeyText>,
}

/// Who may move which refs. The publisher, the device and the persons of its site may read everything; nobody else needs to.
#[derive(Debug, Serialize)]
pub struct Rights {
    pub publisher: Vec<Right>,
    pub device: Vec<Right>,
    /// Of each person of the device's site; none where nobody is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub site: Vec<Right>,
}

/// One ref that may be moved.
#[derive(Debug, Serialize)]
pub struct Right {
    #[serde(rename = "ref")]
    pub name: &'static str,
    /// Whether its commits may be replaced by others that don't descend from them.
    pub replace: bool,
}

impl Rights {
    /// What the contract gives to each of them.
    pub fn of_contract(has_site: bool) -> Self {
        let right = |branch: Branch, replace| Right { name: branch.ref_name(), replace };
        // `desired` is replaced only when a person reclaims it from a stranger.
        let publisher = Branch::BY_PUBLISHER.map(|branch| right(branch, true)).into();
        let device = Branch::BY_DEVICE.map(|branch| right(branch, branch == Branch::Heartbeat)).into();
        // A newer list replaces the one before.
        let site = has_site.then(|| right(Branch::Site, true)).into_iter().collect();
        Self { publisher, device, site }
    }
}

/// The command that makes a device's repository didn't do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the `provision` command {0}")]
pub struct ProvisionError(ProgramError);

impl Provisioned<'_> {
    /// Changes with everything that the command is told.
    pub fn digest(&self) -> Digest {
        Digest::of(&json::to_bytes(self))
    }

    fn variables(&self) -> [(&'static str, String); 7] {
        let keys: Vec<&str> = self.ssh_keys.iter().map(KeyText::as_str).collect();
        let persons = self.site.iter().flat_map(|one| one.ssh_keys.iter().map(|key| format!("{} {key}", one.name)));
        [
            ("WFM_DEVICE", self.device.to_string()),
            ("WFM_PRESENT", if self.present { "1" } else { "" }.to_owned()),
            ("WFM_REPOSITORY", self.repository.clone()),
            ("WFM_URL", self.url.clone()),
            ("WFM_PATH", self.path.clone()),
            ("WFM_SSH_KEYS", keys.join("\n")),
            ("WFM_SITE_KEYS", persons.collect::<Vec<_>>().join("\n")),
        ]
    }
}

/// Runs the command for one device and waits for its end. What it says goes into the log.
pub(super) fn run(settings: &config::Provision, what: &Provisioned<'_>) -> Result<(), ProvisionError> {
    let done = program::run(&settings.command, settings.timeout, what.variables(), json::to_bytes(what));
    let said = done.map_err(ProvisionError)?;
    info!(device = %what.device, said, "the `provision` command did its work");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_that_stays_missing_is_made_again_after_longer_and_longer() {
        let (back_off, begin) = (BackOff::default(), Instant::now());
        let (press, other): (DeviceId, DeviceId) = ("press-01".parse().unwrap(), "packer-01".parse().unwrap());
        let runs = |device: &DeviceId, seconds: std::ops::Range<u64>| {
            let moment = |second: &u64| back_off.begin(device, begin + Duration::from_secs(*second));
            seconds.filter(moment).collect::<Vec<_>>()
        };
        // After 1, 2, 4, 8, 16 and 32 minutes, and then each hour.
        assert_eq!(runs(&press, 0..12_000), [0, 60, 180, 420, 900, 1860, 3780, 7380, 10_980]);
        assert_eq!(runs(&other, 12_000..12_001), [12_000], "another one's is its own");
        back_off.end(&press);
        assert_eq!(runs(&press, 12_000..12_001), [12_000], "it was there");
    }
}
