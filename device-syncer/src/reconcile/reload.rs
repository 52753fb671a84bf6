//! Reads `device.yaml` again when it changed, between two passes, so that no setting needs a restart but where the log says so.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use repo_git::durable::Stamp;
use repo_model::error_chain;

use crate::config::{Device, Settings};
use crate::reconcile::jobs::Bounds;
use crate::reconcile::pass::DeviceSide;
use crate::runtimes::{DeviceRuntimes, capabilities};

/// How long a file that changed has to stay as it is.
const SETTLE: Duration = Duration::from_millis(200);

/// How many times [`SETTLE`] is waited for at most: a file that changes all the time is read all the same.
const LOOKS: usize = 10;

/// Why the settings can't be read again.
pub type Unusable = Box<dyn Error + Send + Sync>;

/// Makes everything that `device.yaml` says anew, beside the runtimes that were made by what it said before.
pub type Make = fn(&Device, &DeviceRuntimes) -> Result<(Settings, DeviceRuntimes), Unusable>;

/// Follows `device.yaml` and the authorities of registries that it names.
#[derive(Debug)]
pub struct Reload {
    make: Make,
    seen: FilesRead,
}

/// What was read last: the text of `device.yaml`, and the stamps of the authorities that it names. `None` is a file
/// that can't be read.
#[derive(Debug, PartialEq, Eq)]
struct FilesRead {
    text: Option<String>,
    authorities: Vec<Option<Stamp>>,
}

impl FilesRead {
    fn of(device: &Device) -> Self {
        let stamp = |path: &PathBuf| Stamp::of(path);
        let authorities = device.settings.registries.ca.iter().map(stamp).collect();
        Self { text: fs::read_to_string(device.home.config()).ok(), authorities }
    }
}

impl FilesRead {
    /// The same, once a person's editor isn't in the middle of it: half a file may say the opposite of the whole.
    fn once_saved(device: &Device, before: &Self) -> Self {
        let mut found = Self::of(device);
        for _ in 0..LOOKS {
            if found == *before {
                break;
            }
            thread::sleep(SETTLE);
            let last = std::mem::replace(&mut found, Self::of(device));
            if last == found {
                break;
            }
        }
        found
    }
}

impl Reload {
    /// What the device was opened with counts so far.
    pub fn new(device: &Device, make: Make) -> Self {
        Self { make, seen: FilesRead::of(device) }
    }

    /// Puts in force what changed, and returns whether anything did. What can't be used changes nothing, and is logged once.
    pub fn refresh(&mut self, here: &mut DeviceSide) -> bool {
        if !here.reconciler.jobs.is_any() {
            here.reconciler.observer.end_before();
        }
        let found = FilesRead::once_saved(&here.device, &self.seen);
        if found == self.seen {
            return false;
        }
        self.seen = found;
        match (self.make)(&here.device, &here.reconciler.runtimes) {
            Ok((settings, runtimes)) => {
                put_in_force(here, settings, runtimes);
                // It may name others.
                self.seen = FilesRead::of(&here.device);
                true
            }
            Err(error) => {
                let error = error_chain(&*error);
                tracing::error!(error, "device.yaml changed and can't be used: what it said before still counts");
                false
            }
        }
    }
}

fn put_in_force(here: &mut DeviceSide, settings: Settings, runtimes: DeviceRuntimes) {
    here.at_rest = None;
    let DeviceSide { device, reconciler, .. } = here;
    let before = std::mem::replace(&mut device.settings, settings);
    if before.boot_id_file != device.settings.boot_id_file {
        tracing::warn!("device.yaml: `bootIdFile` counts after a restart of this program");
    }
    reconciler.hooks.follow(&device.settings);
    reconciler.jobs.bound(Bounds::new(device.settings.jobs, capabilities::memory().unwrap_or(0)));
    let worked_with = std::mem::replace(&mut reconciler.runtimes, Arc::new(runtimes));
    reconciler.observer.follow_others(&worked_with);
    tracing::info!("device.yaml changed: what it says now counts from here on");
    if reconciler.jobs.is_any() {
        tracing::info!(
            "what is at work goes on by what device.yaml said of docker, helm, registries and policy before"
        );
    }
    if before.policy != device.settings.policy {
        reconciler.jobs.halt_all();
    }
}
