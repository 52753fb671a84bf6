//! Where the branches of the device's repository stand at the host.

use std::cell::Cell;
use std::time::{Duration, Instant};

use repo_git::{CommitId, Remote, RemoteError};
use repo_model::Branch;
use repo_model::branch::HEADS;

/// How long a look for a newer revision may hold up what is waited for.
const LOOK: Duration = Duration::from_secs(5);

/// What a pass knows of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// It asks.
    Host,
    /// What was known last, because a wait at the host would have ended if that had changed. It asks only if this device
    /// moved something itself.
    IfMoved,
    /// Nothing, because it isn't to ask for so long.
    Later(Duration),
}

/// Where the host's branches stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteRefs {
    /// `desired`; absent before the device is enrolled.
    pub desired: Option<CommitId>,
    /// `freshness`.
    pub freshness: Option<CommitId>,
    /// `status`.
    pub status: Option<CommitId>,
    /// `heartbeat`.
    pub heartbeat: Option<CommitId>,
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
        })
    }
}

/// Looks now and then whether the host has moved on, so that waiting for what is outdated ends.
pub(crate) struct NewerRevision {
    remote: Remote,
    known: Option<CommitId>,
    interval: Duration,
    asked: Cell<Instant>,
    found: Cell<bool>,
}

impl NewerRevision {
    /// Looks for anything but `known`.
    pub(crate) fn new(remote: Remote, known: Option<CommitId>, interval: Duration) -> Self {
        Self {
            remote: remote.with_timeout(LOOK),
            known,
            interval,
            asked: Cell::new(Instant::now()),
            found: Cell::new(false),
        }
    }

    /// Whether there is anything newer; asks the host if it wasn't asked for the interval.
    pub(crate) fn poll_if_due(&self) -> bool {
        if !self.found.get() && self.asked.get().elapsed() >= self.interval {
            let refs = RemoteRefs::poll(&self.remote);
            self.found.set(refs.is_ok_and(|refs| refs.desired.is_some() && refs.desired != self.known));
            self.asked.set(Instant::now());
        }
        self.found.get()
    }

    /// Whether it was there when it was last looked for.
    pub(crate) fn is_known(&self) -> bool {
        self.found.get()
    }
}
