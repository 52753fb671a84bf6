//! Why a pass, or what belongs to it at the host, couldn't be made.

use repo_git::FetchError;

use crate::host::status::StatusError;
use crate::reconcile::accept::AcceptError;
use crate::state::accepted::Unreadable;
use crate::state::floor::FloorError;
use crate::state::store::StoreError;

/// A pass couldn't be made. What runs keeps running, and the next pass starts from what is durable.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Floor(#[from] FloorError),
    /// What this device reported before can't be fetched into the clone.
    #[error("can't fetch this device's `status`")]
    Status(#[source] FetchError),
    /// The accepted state in the clone can't be read any more.
    #[error(transparent)]
    Accepted(#[from] Unreadable),
}

impl From<StatusError> for PassError {
    fn from(error: StatusError) -> Self {
        match error {
            StatusError::Store(error) => Self::Store(error),
            StatusError::Fetch(error) => Self::Status(error),
        }
    }
}

impl From<AcceptError> for PassError {
    fn from(error: AcceptError) -> Self {
        match error {
            AcceptError::Floor(error) => Self::Floor(error),
            AcceptError::Unreadable(error) => Self::Accepted(error),
        }
    }
}
