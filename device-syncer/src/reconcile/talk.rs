//! When this device talks to its host: in the windows that fleet and site have for it.

use std::time::Duration;

use jiff::Timestamp;
use repo_model::windows::Spread;

use crate::config::known_zone;
use crate::decision::windows::AllWindows;
use crate::host::refs::Ask;
use crate::reconcile::accept::is_behind;
use crate::reconcile::pass::Syncer;
use crate::reconcile::reconciler::clock_doubt;
use crate::state::accepted;
use crate::state::requests::Requests;

impl Syncer {
    /// What a pass of a running syncer may ask: nothing outside the windows for it, unless a person says `sync-now`.
    pub(super) fn unless_silent(&mut self, ask: Ask) -> Ask {
        let is_wanted = Requests::read(&self.device.home).sync;
        self.silent = self.silent_for().filter(|_| !is_wanted);
        // The pass that finds the request is the one that asks, whatever it began for.
        self.silent.map_or(if is_wanted { Ask::Host } else { ask }, Ask::Later)
    }

    /// How long the host isn't talked to yet; `None` if it may be now.
    fn silent_for(&mut self) -> Option<Duration> {
        let site = self.device.settings.gates.windows.clone();
        if self.fleet_windows.is_none() {
            let view = self.state.view();
            // Without a state that can be read, the host has to be asked for one.
            let desired = accepted::read(&view, &view.device_state).ok().flatten()?;
            self.fleet_windows = Some(AllWindows::new(None, Some(&desired), known_zone));
        }
        let windows = AllWindows { site, ..self.fleet_windows.clone().unwrap_or_default() };
        let (now, spread) = (Timestamp::now(), Spread::of(&self.device.join.device));
        let clock = || clock_doubt(&self.device.settings, is_behind(&self.floor));
        let opens = windows.of_device().silent_until(now, clock, spread)?;
        Duration::try_from(opens.duration_since(now)).ok()
    }
}
