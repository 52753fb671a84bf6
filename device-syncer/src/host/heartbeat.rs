//! The branch `heartbeat` at the host: one commit without parents, replaced each time. It is never on this device's disk:
//! after a restart it is made anew.

use repo_git::PushUpdate;
use repo_model::message::Message;
use repo_model::report::{CURRENT_STATE, CurrentState};
use repo_model::{Branch, FileTree, Trailer, json};

use crate::config::Device;
use crate::host::client::{HostClient, Pushed};
use crate::host::refs::RemoteRefs;
use crate::state::shared::Shared;
use crate::state::store::StoreError;

/// What the heartbeat says since this process last replaced it.
#[derive(Debug, Default)]
pub struct Heartbeat {
    pushed: Option<CurrentState>,
}

impl Heartbeat {
    /// What the host took last from this process; `None` before that.
    pub fn pushed(&self) -> Option<&CurrentState> {
        self.pushed.as_ref()
    }

    /// Lets the next pass replace it, whatever it says.
    pub fn forget(&mut self) {
        self.pushed = None;
    }

    /// Replaces the branch by one commit with this state; what the host doesn't take is left to a later pass.
    pub fn push(
        &mut self,
        host: &mut HostClient,
        state: &Shared,
        device: &Device,
        refs: &RemoteRefs,
        current: CurrentState,
    ) -> Result<(), StoreError> {
        let message = Message::new(format!("heartbeat (serial {})", current.serial))
            .identity(Branch::Heartbeat, device.join.fleet, &device.join.device)
            .trailer(Trailer::Serial, current.serial);
        let files = FileTree::from([(CURRENT_STATE.to_owned(), json::to_bytes(&current))]);
        let (new, pack) = state.lock().store.parentless(&files, &message, current.time.as_second())?;
        let branch = Branch::Heartbeat.to_string();
        let update = PushUpdate { branch, expected: refs.heartbeat, new, force: true };
        if host.push_pack(&pack, &update) == Pushed::Done {
            self.pushed = Some(current);
        }
        Ok(())
    }
}
