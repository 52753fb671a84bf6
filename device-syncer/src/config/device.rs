//! This device: what it runs with, and who it is. Nothing of it but its settings and its key changes while the program runs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use repo_model::KeyText;
use repo_model::desired::Desired;
use repo_model::join::Join;
use repo_model::report::Condition;
use uuid::Uuid;

use super::from_fleet::{FromFleet, counting};
use super::{Home, Settings};
use crate::decision::conditions;
use crate::decision::device_state::DeviceState;
use crate::decision::message::Identity;

/// How often the host is asked where neither the site nor the fleet says it.
pub const POLL: Duration = Duration::from_secs(15);

/// How often the heartbeat is replaced where neither the site nor the fleet says it.
const REPORT: Duration = Duration::from_secs(300);

/// A device's public key, which copies share: when a new one takes its place, it does so for all of them.
#[derive(Debug, Clone)]
pub struct OwnKey(Arc<Mutex<KeyText>>);

impl OwnKey {
    pub fn new(key: KeyText) -> Self {
        Self(Arc::new(Mutex::new(key)))
    }

    /// The key that signs now; the adoption of a state that lists another one changes it while the program runs.
    pub fn get(&self) -> KeyText {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Another one is in use from now on.
    pub fn set(&self, key: KeyText) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = key;
    }
}

/// What a home says of its device.
#[derive(Clone)]
pub struct Device {
    pub home: Home,
    /// `device.yaml`, completed with defaults and checked.
    pub settings: Settings,
    pub join: Join,
    /// The UUID of this installation; another one for each copy of the home.
    pub instance: Uuid,
    /// The public half of the key that signs `status` and `heartbeat`.
    pub key: OwnKey,
    /// The key under which values of device files enter digests, 32 bytes.
    pub hmac_key: Vec<u8>,
    /// The kernel's id of this boot.
    pub boot_id: String,
}

impl std::fmt::Debug for Device {
    /// Keys and secrets are left out: this may end up in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("device", &self.join.device).finish_non_exhaustive()
    }
}

impl Device {
    /// In whose name it reports.
    pub fn identity(&self) -> Identity {
        Identity { fleet: self.join.fleet, device: self.join.device.clone() }
    }

    /// How often the host is asked: the site's word, else the fleet's.
    pub fn poll_interval(&self, desired: Option<&Desired>) -> Duration {
        let fleet = desired.and_then(|desired| desired.envelope.policy.poll());
        self.settings.poll.or(fleet).unwrap_or(POLL)
    }

    /// How often the heartbeat is replaced: the site's word, else the fleet's.
    pub fn report_interval(&self, desired: &Desired) -> Duration {
        self.settings.report.or(desired.envelope.policy.report()).unwrap_or(REPORT)
    }

    /// What counts of what the fleet says of the site's policy: what the site hands over.
    pub fn from_fleet(&self, desired: Option<&Desired>) -> FromFleet {
        let said = desired.map(|desired| &desired.envelope.policy.site);
        said.map(|said| counting(&self.settings.from_fleet, said)).unwrap_or_default()
    }

    /// Why this device waits, if the tip of `desired` or the state in force doesn't list its key; see
    /// [`conditions::not_listed`].
    pub fn not_listed(
        &self,
        is_listed_by_tip: Option<bool>,
        in_force: Option<&Desired>,
        before: &DeviceState,
    ) -> Option<Condition> {
        let is_listed = in_force.is_none_or(|desired| self.is_listed(desired));
        conditions::not_listed(is_listed_by_tip, is_listed, before, (&self.join.device, &self.key.get()))
    }

    /// Whether the fleet means this device by its key.
    pub fn is_listed(&self, desired: &Desired) -> bool {
        desired.envelope.device.status_keys.contains(&self.key.get())
    }
}
