//! When a device was heard here: by this machine's clock, whatever the device's own says.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use repo_git::repo::moved_at;
use repo_model::Branch;

/// When what a device reports came here last, in Unix seconds: with a host elsewhere, when it was fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// Of `status`, and of `heartbeat`; of one that isn't there it means nothing.
    pub status: Option<i64>,
    pub heartbeat: Option<i64>,
}

impl Heard {
    /// By the repository at `path`, which isn't opened.
    pub fn of(path: &Path) -> Self {
        let [status, heartbeat] = moved_at(path, Branch::BY_DEVICE.map(Branch::as_str));
        Self { status, heartbeat }
    }

    /// When anything came; `None` if nothing ever did.
    pub fn last(self) -> Option<i64> {
        self.status.max(self.heartbeat)
    }

    /// How long ago that was. What came later than now, by a clock that was ahead, came now.
    pub fn age(self, now: Timestamp) -> Option<Duration> {
        self.last().map(|heard| Duration::from_secs(u64::try_from(now.as_second().saturating_sub(heard)).unwrap_or(0)))
    }
}
