//! The accepted state, read from the clone.

use repo_git::{CommitId, TreeError};
use repo_model::desired::{self, Desired};

use crate::decision::device_state::{Accepted, DeviceState};
use crate::state::view::View;

/// The accepted state is in the clone and can't be read.
#[derive(Debug, thiserror::Error)]
#[error("the accepted state can't be read")]
pub struct Unreadable(#[source] Box<dyn std::error::Error + Send + Sync>);

/// The state in force, read from the clone again; `None` without one, and where the clone has lost it.
pub fn read(view: &View, device_state: &DeviceState) -> Result<Option<Desired>, Unreadable> {
    let Some(accepted) = &device_state.accepted else { return Ok(None) };
    let commit: CommitId = accepted.commit.parse().map_err(|error: repo_git::InvalidId| Unreadable(error.into()))?;
    let files = match view.repo.files(commit, &Default::default()) {
        Err(TreeError::Missing { path, .. }) if path.is_empty() && !view.holds(commit) => return Ok(None),
        files => files.map_err(|error| Unreadable(error.into()))?,
    };
    desired::read(&files).map(Some).map_err(|error| Unreadable(error.into()))
}

/// Whether the accepted state is this commit, or has it in its history.
pub fn is_in_force(view: &View, commit: CommitId) -> bool {
    let accepted = view.device_state.accepted.as_ref().and_then(Accepted::id);
    accepted.is_some_and(|accepted| view.descends(accepted, commit))
}
