//! The branch `heartbeat` at the host: one commit without parents, replaced each time. It is never on this device's disk:
//! after a restart it is made anew.

use repo_git::{CommitId, PushUpdate};
use repo_model::message::Message;
use repo_model::report::{CURRENT_STATE, CurrentState};
use repo_model::{Branch, FileTree, Trailer, json};

use crate::config::Device;
use crate::host::client::{HostClient, Pushed};
use crate::host::refs::RemoteRefs;
use crate::state::answers::{self, Stamps};
use crate::state::shared::Shared;
use crate::state::store::StoreError;

/// What the heartbeat says since this process last replaced it.
#[derive(Debug, Default)]
pub struct Heartbeat {
    pushed: Option<Said>,
}

/// What the host took last from this process.
#[derive(Debug)]
struct Said {
    commit: CommitId,
    state: CurrentState,
    answers: FileTree,
    /// Of which files these were.
    stamps: Stamps,
}

impl Heartbeat {
    /// What the host took last from this process; `None` before that.
    pub fn pushed(&self) -> Option<&CurrentState> {
        self.pushed.as_ref().map(|said| &said.state)
    }

    /// Whether it says just these answers.
    pub fn has_answers(&self, stamps: &Stamps) -> bool {
        self.pushed.as_ref().is_some_and(|said| said.stamps == *stamps)
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
        (current, stamps): (CurrentState, Stamps),
    ) -> Result<(), StoreError> {
        let message = Message::new(format!("heartbeat (serial {})", current.serial))
            .identity(Branch::Heartbeat, device.join.fleet, &device.join.device)
            .trailer(Trailer::Serial, current.serial);
        let answers = answers::files(&device.home, current.time);
        let mut files = answers.clone();
        files.insert(CURRENT_STATE.to_owned(), json::to_bytes(&current));
        // What the host has of the one that this replaces needn't be brought again.
        let replaced = self.pushed.as_ref().filter(|said| Some(said.commit) == refs.heartbeat);
        let none = FileTree::new();
        let at_host = replaced.map_or(&none, |said| &said.answers);
        let (new, pack) = state.lock().store.parentless(&files, at_host, &message, current.time.as_second())?;
        let branch = Branch::Heartbeat.to_string();
        let update = PushUpdate { branch, expected: refs.heartbeat, new, force: true };
        let is_done = host.push_pack(&pack, &update) == Pushed::Done;
        // Whatever the host lacks, the next one brings all.
        self.pushed = is_done.then_some(Said { commit: new, state: current, answers, stamps });
        Ok(())
    }
}
