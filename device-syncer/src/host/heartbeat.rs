//! The branch `heartbeat` at the host: one commit without parents, replaced each time.

use repo_git::PushUpdate;
use repo_model::message::Message;
use repo_model::report::{CURRENT_STATE, CurrentState};
use repo_model::{Branch, FileTree, Trailer, json};

use crate::config::Device;
use crate::host::client::{HostClient, Pushed};
use crate::host::refs::RemoteRefs;
use crate::state::store::{Store, StoreError};

/// What the heartbeat says since this process last replaced it.
#[derive(Debug, Default)]
pub struct Heartbeat {
    pushed: Option<CurrentState>,
}

impl Heartbeat {
    /// What it says; `None` before this process said anything.
    pub fn pushed(&self) -> Option<&CurrentState> {
        self.pushed.as_ref()
    }

    /// Lets the next pass replace it, whatever it says.
    pub fn forget(&mut self) {
        self.pushed = None;
    }

    /// Replaces it by this state.
    pub fn push(
        &mut self,
        host: &mut HostClient,
        store: &Store,
        device: &Device,
        refs: &RemoteRefs,
        state: CurrentState,
    ) -> Result<(), StoreError> {
        let message = Message::new(format!("heartbeat (serial {})", state.serial))
            .identity(Branch::Heartbeat, device.join.fleet, &device.join.device)
            .trailer(Trailer::Serial, state.serial);
        let files = FileTree::from([(CURRENT_STATE.to_owned(), json::to_bytes(&state))]);
        let new = store.parentless(&files, &message, state.time.as_second())?;
        let branch = Branch::Heartbeat.to_string();
        let update = PushUpdate { branch, expected: refs.heartbeat, new, force: true };
        if host.push(&store.repo, &update) == Pushed::Done {
            self.pushed = Some(state);
        }
        Ok(())
    }
}
