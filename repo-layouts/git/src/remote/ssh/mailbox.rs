//! What the client's thread and those who ask share: the settings, what is wanted, and how the thread is woken.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::host_keys::Expected;
use super::pipe::Pipe;
use super::wire::Wake;
use super::{Settings, Url};

/// What the thread and those who ask share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) url: Url,
    pub(super) settings: Settings,
    pub(super) expected: Expected,
    pub(super) wake: Arc<Wake>,
    pub(super) mail: Mutex<Mail>,
    /// Sessions that were opened so far.
    pub(super) sessions: AtomicU64,
}

/// A command for the host to run.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) command: String,
    /// Asks for the newest version of Git's protocol.
    pub(super) wants_v2: bool,
    pub(super) pipe: Arc<Pipe>,
}

/// What the other threads ask of the session's own.
#[derive(Debug, Default)]
pub(super) struct Mail {
    pub(super) jobs: Vec<Job>,
    /// How often everything was to end.
    pub(super) interrupts: u64,
    /// Nobody will ask any more.
    pub(super) stop: bool,
    pub(super) is_running: bool,
    /// All conversations that somebody holds.
    pub(super) pipes: Vec<Weak<Pipe>>,
}

impl Shared {
    pub(super) fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
