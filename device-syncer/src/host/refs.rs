//! Where the branches of the device's repository stand at the host.

use std::collections::BTreeMap;
use std::time::Duration;

use repo_git::{CommitId, Remote, RemoteError};
use repo_model::branch::{HEADS, epoch_of, ref_name};
use repo_model::{Branch, IntoMap};

/// What a pass knows of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// The pass asks the host.
    Host,
    /// What was known last: a wait at the host would have ended if that had changed, or there is only something to tell. It asks
    /// only if that isn't known, because the host didn't take what this device pushed.
    IfMoved,
    /// Nothing, because it isn't to ask for so long.
    Later(Duration),
}

/// Where the host's `status` stands, as far as this device knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StatusTip {
    /// Nobody asked, or the host didn't take what was pushed: the next pass asks.
    #[default]
    Unknown,
    /// The host has no `status`.
    Absent,
    At(CommitId),
}

impl From<Option<CommitId>> for StatusTip {
    fn from(tip: Option<CommitId>) -> Self {
        tip.map_or(Self::Absent, Self::At)
    }
}

/// Where the host's branches stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteRefs {
    /// `desired`; absent before the device is enrolled.
    pub desired: Option<CommitId>,
    /// `freshness`; absent before the publisher proved any state fresh.
    pub freshness: Option<CommitId>,
    /// `status`; absent before this device pushed any, and after the host lost it.
    pub status: Option<CommitId>,
    /// `heartbeat`; absent in the same cases.
    pub heartbeat: Option<CommitId>,
    /// Where earlier epochs of `status` ended, by their numbers.
    pub epochs: BTreeMap<u32, CommitId>,
    /// `site`; absent where no person of the site says anything from elsewhere.
    pub site: Option<CommitId>,
}

impl RemoteRefs {
    /// Asks the host, in one request.
    pub fn poll(remote: &Remote) -> Result<Self, RemoteError> {
        let mut refs = remote.refs(&[HEADS])?;
        let mut take = |branch: Branch| refs.remove(branch.ref_name());
        Ok(Self {
            desired: take(Branch::Desired),
            freshness: take(Branch::Freshness),
            status: take(Branch::Status),
            heartbeat: take(Branch::Heartbeat),
            site: take(Branch::Site),
            epochs: refs.into_iter().filter_map(|(name, tip)| Some((epoch_of(&name)?, tip))).into_map(),
        })
    }

    /// Takes over where `status` stands, and says whether that is known.
    pub fn take_status(&mut self, tip: StatusTip) -> bool {
        match tip {
            StatusTip::Unknown => return false,
            StatusTip::Absent => self.status = None,
            StatusTip::At(tip) => self.status = Some(tip),
        }
        true
    }

    /// The same after the host took a commit of this device on one of the device's branches.
    pub fn moved(mut self, branch: &str, to: CommitId) -> Self {
        if branch == Branch::Status.as_str() {
            self.status = Some(to);
        } else if branch == Branch::Heartbeat.as_str() {
            self.heartbeat = Some(to);
        } else if let Some(number) = epoch_of(&ref_name(branch)) {
            self.epochs.insert(number, to);
        }
        self
    }
}
