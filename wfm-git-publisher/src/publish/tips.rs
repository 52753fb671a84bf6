//! Where the branches of a device stand that a pass depends on.

use repo_git::CommitId;
use repo_git::repo::branches;
use repo_model::{Branch, DeviceId};

use crate::repos::Home;

/// Where `desired`, `freshness` and `status` of a device stand.
pub(super) type Tips = [Option<CommitId>; 3];

/// The branches of [`Tips`].
pub(super) const BRANCHES: [&str; 3] = [Branch::Desired.as_str(), Branch::Freshness.as_str(), Branch::Status.as_str()];

/// Where a device's heartbeat stands; absent where there is none, or it can't be read.
pub(super) fn heartbeat(home: &Home, device: &DeviceId) -> Option<CommitId> {
    branches(&home.device(device), [Branch::Heartbeat.as_str()]).ok().and_then(|[tip]| tip)
}

/// Reads them; `None` where that can't be read, which is found out again by whoever opens the repository.
pub(super) fn tips(home: &Home, device: &DeviceId) -> Option<Tips> {
    branches(&home.device(device), BRANCHES).ok()
}
