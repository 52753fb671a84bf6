//! The devices' repositories at another host, kept as they are here.
//!
//! What is published is durable here first; the other host gets it afterwards, as often as it takes. Before a pass,
//! `pull` looks where the host's branches stand: what devices reported is fetched, a `desired` that another publisher of
//! this fleet moved on is adopted, and one that nobody of this fleet signed is reported and left alone. After it, `push`
//! moves `bundle`, `desired` and `freshness`, each only from where it was seen. Before all that, a command of the operator's
//! may make the repository and let the device in.

mod error;
mod provision;
mod pull;
mod push;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use repo_git::CommitId;
use repo_model::DeviceId;

use crate::fleet::Fleet;
use crate::parallel;
use crate::repos::{DESIRED, DeviceRepo, Home, ProvisionError, Remotes, Rosters};

pub use error::{Blame, ForeignTip, MirrorError};
pub(crate) use provision::{Provisioned, Provisioning};

/// What a commit says that replaces a tip that nobody of this fleet signed.
pub(crate) const RECLAIMED: &str = "a tip that is not of this fleet's publisher was replaced";

/// What a host has of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteRefs {
    /// Where its branches stand, by their name below `refs/heads/`.
    branches: BTreeMap<String, CommitId>,
    /// Whether the tip of `desired` is someone else's, and is to be replaced.
    pub reclaim: bool,
    /// Whether the commit that replaces it is here already, from a time when it couldn't be pushed.
    pub reclaimed: bool,
    /// Why the command that makes repositories failed, where there is one to work with all the same.
    unprovisioned: Option<ProvisionError>,
}

/// What became of a device's repository at the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mirrored {
    /// It is as it is here.
    Unchanged,
    /// How many branches were moved there.
    Pushed(usize),
}

/// What came of each device.
pub type Each<T> = BTreeMap<DeviceId, Result<T, MirrorError>>;

/// Everything that work with the host needs to know.
pub(crate) struct Mirror<'a> {
    pub(crate) home: &'a Home,
    pub(crate) rosters: &'a Rosters,
    pub(crate) remotes: &'a Remotes,
    /// Devices whose foreign tips are to be replaced.
    pub(crate) reclaim: &'a BTreeSet<DeviceId>,
    /// Whom the command that makes repositories is told about; `None` where it isn't to run.
    pub(crate) provisioning: Option<Provisioning<'a>>,
    /// Set when no other device shall be begun.
    pub(crate) stop: &'a AtomicBool,
    /// Provisioned how many of how many devices are done.
    pub(crate) progress: &'a (dyn Fn(usize, usize) + Sync),
}

impl Mirror<'_> {
    /// Those of the devices that the host has anything of, or is to get anything of. The repository of one that was only
    /// added needn't be there yet.
    pub(crate) fn concerned(&self, fleet: &Fleet, devices: impl Iterator<Item = DeviceId>) -> Vec<DeviceId> {
        let has_desired = |id: &DeviceId| {
            let repo = DeviceRepo::open(self.home, self.rosters.fleet(), id);
            repo.is_ok_and(|repo| repo.is_some_and(|repo| !matches!(repo.tip(DESIRED), Ok(None))))
        };
        let enrolled = |id: &DeviceId| fleet.devices.get(id).is_none_or(|device| device.is_enrolled());
        devices.filter(|id| enrolled(id) || has_desired(id)).collect()
    }

    /// Looks at the host and brings what is newer there.
    pub(crate) fn pull(&self, devices: Vec<DeviceId>) -> Each<RemoteRefs> {
        self.each(devices.into_iter().map(|device| (device, ())).collect(), |device, ()| pull::pull(self, device))
    }

    /// Brings what devices reported, and nothing else; tells a tip of `desired` that nobody of this fleet signed.
    pub(crate) fn reports(&self, devices: Vec<DeviceId>) -> Each<()> {
        self.each(devices.into_iter().map(|device| (device, ())).collect(), |device, ()| pull::reports(self, device))
    }

    /// Brings to the host what it lacks.
    pub(crate) fn push(&self, seen: Vec<(DeviceId, RemoteRefs)>) -> Each<Mirrored> {
        self.each(seen, |device, seen| push::push(self, device, &seen))
    }

    /// The same for each device, some at a time. Once the host itself fails, the others aren't begun. A repository that
    /// keeps silent may be stuck alone; as many of them as there are conversations, and nothing else in between, are the
    /// host.
    fn each<I: Send, T: Send>(
        &self,
        items: Vec<(DeviceId, I)>,
        work: impl Fn(&DeviceId, I) -> Result<T, MirrorError> + Sync,
    ) -> Each<T> {
        let (all, done) = (items.len(), AtomicUsize::new(0));
        let (silent, patience) = (AtomicUsize::new(0), self.remotes.connections().max(2));
        let down: Mutex<Option<DeviceId>> = Mutex::new(None);
        let results = parallel::map(items, self.remotes.connections(), |(device, item)| {
            let before = down.lock().expect("nobody panics with it").clone();
            let result = match before {
                _ if self.stop.load(Ordering::Relaxed) => Err(MirrorError::Stopped),
                Some(first) => Err(MirrorError::HostDown { first }),
                None => work(&device, item),
            };
            let is_down = match result.as_ref().map_err(MirrorError::blame) {
                Err(Blame::Host) => true,
                Err(Blame::Perhaps) => silent.fetch_add(1, Ordering::Relaxed) + 1 >= patience,
                _ => {
                    silent.store(0, Ordering::Relaxed);
                    false
                }
            };
            if is_down {
                down.lock().expect("nobody panics with it").get_or_insert(device.clone());
            }
            (self.progress)(done.fetch_add(1, Ordering::Relaxed) + 1, all);
            (device, result)
        });
        results.into_iter().collect()
    }
}
