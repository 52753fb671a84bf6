//! The client: settings that were understood, and the thread with the kept session.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use repo_http::Timeouts;

use super::host_keys::Expected;
use super::mailbox::{Job, Shared};
use super::pipe::{Failure, Pipe};
use super::wire::Wake;
use super::{Problem, Settings, SettingsError, Url, worker};

/// Asks one host over SSH. Copies share the session, which is opened when it is first used, and closed with the last copy.
#[derive(Debug, Clone)]
pub struct Client(Arc<Handle>);

/// Ends the thread when it is dropped.
#[derive(Debug)]
struct Handle(Arc<Shared>);

impl Client {
    /// A client for the host of this URL. Nothing is contacted yet.
    pub fn new(url: &Url, settings: Settings) -> Result<Self, SettingsError> {
        let expected = Expected::new(&settings.host_keys)?;
        if settings.identities.is_empty() {
            return Err(SettingsError::NoIdentity);
        }
        let wake = Arc::new(Wake::new().map_err(SettingsError::Thread)?);
        let (url, mail, sessions) = (url.clone(), Mutex::default(), AtomicU64::new(0));
        Ok(Self(Arc::new(Handle(Arc::new(Shared { url, settings, expected, wake, mail, sessions })))))
    }

    pub fn timeouts(&self) -> Timeouts {
        self.0.0.settings.timeouts
    }

    /// Sessions that were opened so far.
    pub fn sessions(&self) -> u64 {
        self.0.0.sessions.load(Ordering::Relaxed)
    }

    /// Whether it is a client for the host of this URL.
    pub(super) fn is_for(&self, url: &Url) -> bool {
        let own = &self.0.0.url;
        (own.user(), own.host(), own.port()) == (url.user(), url.host(), url.port())
    }

    /// Ends every conversation that is under way, in whatever thread; the client stays usable.
    pub fn interrupt(&self) {
        let shared = &self.0.0;
        let mut mail = shared.mail();
        mail.interrupts += 1;
        mail.jobs.clear();
        for pipe in mail.pipes.drain(..).filter_map(|pipe| pipe.upgrade()) {
            pipe.fail(Failure { problem: Problem::Cut, source: Some("it was interrupted".to_owned()) });
        }
        shared.wake.ring();
    }

    /// How often everything was to end.
    pub(super) fn interrupts(&self) -> u64 {
        self.0.0.mail().interrupts
    }

    /// Has the host run a command.
    pub(super) fn run(&self, command: String, wants_v2: bool) -> Result<Arc<Pipe>, Failure> {
        let shared = &self.0.0;
        let pipe = Arc::new(Pipe::new(Arc::clone(&shared.wake)));
        let mut mail = shared.mail();
        mail.jobs.push(Job { command, wants_v2, pipe: Arc::clone(&pipe) });
        mail.pipes.retain(|pipe| pipe.strong_count() > 0);
        mail.pipes.push(Arc::downgrade(&pipe));
        if !mail.is_running {
            let theirs = Arc::clone(shared);
            let thread = thread::Builder::new().name("ssh".to_owned()).spawn(move || worker::run(&theirs));
            thread.map_err(|error| Failure { problem: Problem::Network, source: Some(error.to_string()) })?;
            mail.is_running = true;
        }
        shared.wake.ring();
        Ok(pipe)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.mail().stop = true;
        self.0.wake.ring();
    }
}
