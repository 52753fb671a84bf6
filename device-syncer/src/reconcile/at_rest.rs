//! A device at rest: what a pass left with nothing to do and nothing in the way. The passes that follow soon look whether that is
//! still so, and end there. Turns at the host that would have nothing to ask and nothing to tell aren't made meanwhile.
//!
//! Passes look at what the runtimes run, what persons at the device say, what the host has, and the state in force. What else a pass
//! goes by changes with the time, or in files that nobody follows: one is made in full at least once a minute, and each that
//! something waits for is.

use std::time::{Duration, Instant};

use repo_git::CommitId;
use repo_git::durable::Stamp;

use crate::config::Home;
use crate::state::requests;
use crate::state::shared::Shared;

/// How old the newest that was made in full is at most when another one only looks.
const IN_FULL: Duration = Duration::from_secs(60);

/// How many in a row only look: a device that is observed more often is looked at in full more often, too.
const LOOKS: u32 = 3;

/// Since when nothing changed, as far as was looked.
#[derive(Debug)]
pub(super) struct Rest {
    /// The device state in force.
    state: Option<CommitId>,
    /// What persons at the device say, by the stamps of the files in which they do.
    said: Vec<Option<Stamp>>,
    pub(super) since: Instant,
    looks: u32,
}

/// How long the turns at the host, which follow passes in full, wait for one that doesn't come: twice as long as it should take.
pub(super) fn longest(poll: Duration) -> Duration {
    (2 * IN_FULL).min(poll.saturating_mul(2 * (LOOKS + 1)))
}

impl Rest {
    /// It is so from now on, if what begins now changes nothing and leaves nothing to do.
    pub(super) fn begin(state: &Shared, home: &Home) -> Self {
        Self { state: state.lock().store.state_tip(), said: said(home), since: Instant::now(), looks: 0 }
    }

    /// Whether one more may only look.
    pub(super) fn goes_on(&mut self, state: &Shared, home: &Home) -> bool {
        self.looks += 1;
        let is_soon = self.looks <= LOOKS && self.since.elapsed() < IN_FULL;
        let is_same = || {
            let store = &state.lock().store;
            store.state_tip() == self.state && !store.is_suspect()
        };
        is_soon && is_same() && said(home) == self.said
    }
}

fn said(home: &Home) -> Vec<Option<Stamp>> {
    requests::places(home).iter().map(|place| Stamp::of(place)).collect()
}
