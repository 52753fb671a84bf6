//! How a pass is done.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use jiff::Timestamp;
use repo_model::DeviceId;

use super::locks::Resolve;
use crate::plan::Allowed;
use crate::repos::Remotes;

/// What a pass does with many devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// What they have is compared with what the fleet says.
    Compare,
    /// New commits are written and branches moved.
    Publish,
    /// They are pushed to the other host, or read there.
    Mirror,
}

/// How a pass is done; everything that isn't in Git comes in here.
pub struct Options<'a> {
    /// The time by this machine's clock; commits and proofs of freshness carry it.
    pub now: Timestamp,
    /// Only these devices; all if absent.
    pub devices: Option<BTreeSet<DeviceId>>,
    pub allowed: Allowed,
    /// Asks a registry what a tag means.
    pub resolve: Resolve<'a>,
    /// How many devices are worked on at the same time.
    pub threads: usize,
    /// Set when the device in hand shall be the last one.
    pub stop: &'a AtomicBool,
    /// Told how many of how many devices are done.
    pub progress: &'a (dyn Fn(Work, usize, usize) + Sync),
    /// The host that devices talk to, where it isn't this one.
    pub remotes: Option<&'a Remotes>,
    /// Devices whose tip of `desired` is replaced if nobody of this fleet signed it.
    pub reclaim: BTreeSet<DeviceId>,
}

impl std::fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("now", &self.now).field("devices", &self.devices).finish_non_exhaustive()
    }
}
