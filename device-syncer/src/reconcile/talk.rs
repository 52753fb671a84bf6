//! When this device talks to its host: in the windows that fleet and site have for it.

use std::time::Duration;

use jiff::Timestamp;
use repo_model::desired::Desired;
use repo_model::windows::Spread;

use crate::config::{Device, known_zone};
use crate::decision::windows::AllWindows;
use crate::host::refs::Ask;
use crate::reconcile::accept::is_behind;
use crate::reconcile::host_side::HostSide;
use crate::reconcile::reconciler::clock_doubt;
use crate::state::floor::Floor;
use crate::state::requests::Requests;

impl HostSide {
    /// What a turn of a running syncer may ask: nothing outside the windows for it, unless a person says `sync-now`.
    pub(super) fn unless_silent(&mut self, ask: Ask, floor: &Floor) -> Ask {
        // The turn that finds the request is the one that asks, whatever it began for.
        if Requests::read(&self.device.home).sync {
            self.silent = None;
            return Ask::Host;
        }
        let view = self.state.view();
        // Without a state that can be read, the host has to be asked for one.
        let desired = self.read_desired(&view).is_ok().then_some(self.desired()).flatten();
        self.silent = desired.and_then(|desired| silent_for(&self.device, desired, floor));
        self.silent.map_or(ask, Ask::Later)
    }
}

/// How long the host isn't talked to yet; `None` if it may be now.
pub(super) fn silent_for(device: &Device, desired: &Desired, floor: &Floor) -> Option<Duration> {
    let windows = AllWindows::new(device.settings.gates.windows.clone(), Some(desired), known_zone);
    let (now, spread) = (Timestamp::now(), Spread::of(&device.join.device));
    let clock = || clock_doubt(&device.settings, is_behind(floor));
    let opens = windows.of_device().silent_until(now, clock, spread)?;
    Duration::try_from(opens.duration_since(now)).ok()
}
