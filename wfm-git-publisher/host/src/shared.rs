//! What all connections share.

use std::ffi::OsString;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accounting::Accounting;
use crate::accounts::Accounts;
use crate::arrivals::Arrivals;
use crate::ca::Served;
use crate::calls::Calls;
use crate::enrolment::Enrolment;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::process::Gate;
use crate::publisher::Publisher;
use crate::repos::Repos;
use crate::spool::Spools;
use crate::turns::Turns;
use crate::watch::RefWatcher;
use crate::wire::path::Service;

/// The host as its connections know it; clones are the same host.
#[derive(Debug, Clone)]
pub(crate) struct Host(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) publisher: Arc<dyn Publisher>,
    /// Where the publisher's home is, for the hook that judges pushes to the fleet.
    pub(crate) home: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) accounts: Accounts,
    /// What accounts ask about themselves.
    pub(crate) account: axum::Router,
    /// What strangers may ask for.
    pub(crate) enrolment: Arc<Enrolment>,
    pub(crate) repos: Repos,
    /// Notices that branches moved that devices wait for.
    pub(crate) watcher: Arc<RefWatcher>,
    /// Which devices were called to come for a change.
    pub(crate) calls: Mutex<Calls>,
    pub(crate) metrics: Metrics,
    pub(crate) certificate: Arc<Served>,
    pub(crate) accounting: Accounting,
    pub(crate) connections: Arc<Semaphore>,
    pub(crate) requests: Arc<Semaphore>,
    /// Answers to strangers about the rosters, which are made at the same time.
    pub(crate) rosters: Arc<Semaphore>,
    /// Before processes that answer questions about the fleet.
    pub(crate) questions: Gate,
    pub(crate) readers: Gate,
    pub(crate) writers: Gate,
    /// Before connections over SSH of which it isn't known whose they are.
    pub(crate) turns: Turns,
    /// Connections over SSH that this host accepted.
    pub(crate) arrivals: Arrivals,
    /// This program, which answers questions about the fleet as a process of its own.
    pub(crate) program: PathBuf,
    /// Where stock git is found.
    pub(crate) path: OsString,
    /// The directory with the hooks of pushes.
    pub(crate) hooks: PathBuf,
    /// For bodies that don't fit into memory.
    pub(crate) temp: PathBuf,
    pub(crate) spools: Arc<Spools>,
    /// Set when the host shall stop.
    pub(crate) stop: CancellationToken,
    /// Open connections, which a stop waits for.
    pub(crate) serving: TaskTracker,
    /// Pushes, which go on when their connection is gone.
    pub(crate) pushes: TaskTracker,
}

impl Deref for Host {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Host {
    /// The gate before processes of this service.
    pub(crate) fn gate(&self, service: Service) -> &Gate {
        match service {
            Service::UploadPack => &self.readers,
            Service::ReceivePack => &self.writers,
        }
    }
}
