//! The accepted state, read from the clone.

use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// How long a state counts as it was read: what is in a commit never changes, but the clone may be damaged.
const AGAIN: Duration = Duration::from_secs(600);

/// The accepted state as it was read last.
#[derive(Debug, Default)]
pub struct LastRead(Option<(String, Instant, Arc<Desired>)>);

impl LastRead {
    /// The state in force: as it was read last, for a while, and while the clone has it; else read again.
    pub fn read(&mut self, view: &View, device_state: &DeviceState) -> Result<Option<Arc<Desired>>, Unreadable> {
        let accepted = device_state.accepted.as_ref();
        let is_good = |(commit, read, _): &(String, Instant, _)| {
            let is_it = accepted.is_some_and(|accepted| accepted.commit == *commit);
            is_it && read.elapsed() < AGAIN && accepted.and_then(Accepted::id).is_some_and(|id| view.holds(id))
        };
        if let Some((_, _, desired)) = self.0.as_ref().filter(|known| is_good(known)) {
            return Ok(Some(Arc::clone(desired)));
        }
        self.0 = None;
        let desired = read(view, device_state)?.map(Arc::new);
        self.0 =
            accepted.zip(desired.clone()).map(|(accepted, desired)| (accepted.commit.clone(), Instant::now(), desired));
        Ok(desired)
    }
}

/// Whether the accepted state is this commit, or has it in its history.
pub fn is_in_force(view: &View, commit: CommitId) -> bool {
    let accepted = view.device_state.accepted.as_ref().and_then(Accepted::id);
    accepted.is_some_and(|accepted| view.descends(accepted, commit))
}
