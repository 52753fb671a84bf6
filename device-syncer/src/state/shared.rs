//! The state of a device as one value behind one lock. It is changed by short transactions, which wait for no network, no
//! runtime and no child process; their order is the order on `status`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use repo_model::{DeploymentId, FileTree};

use crate::decision::deployment::DesiredDeployment;
use crate::decision::device_state::DeviceState;
use crate::decision::fetched::AllFetched;
use crate::decision::message::{Identity, message};
use crate::decision::status::Report;
use crate::state::rate_limit::RateLimit;
use crate::state::restores::Restores;
use crate::state::retries::Retries;
use crate::state::stability::Stability;
use crate::state::store::{Store, StoreError};
use crate::state::view::View;

/// Called after each commit that moved `status`.
pub type Listener = Box<dyn Fn(&Store) + Send>;

/// What lasts, and what may not be tried yet.
pub struct State {
    /// The clone with the device state in force.
    pub store: Store,
    /// When failed steps may be tried again.
    pub retries: Retries,
    /// How often what was applied had to be restored.
    pub restores: Restores,
    /// For how long deployments have been well, or ill.
    pub stability: Stability,
    /// How often closed gates are told anew.
    pub gates_told: RateLimit,
    /// What is known of what changes need, where that is fetched in windows of its own; `None` before the first pass.
    pub fetched: Option<AllFetched>,
    /// Whether the newest plan has anything to remove that is still there: it may hold a port or a name.
    pub removals_are_left: bool,
    /// Whether gates hold all that is left of them, which nobody at work waits for: it may take months.
    pub removals_are_held: bool,
    /// Deployments in a downtime: what fails of them meanwhile is neither told nor tried again.
    pub down: BTreeSet<DeploymentId>,
    /// Tells this boot from the ones before.
    pub boot_id: String,
    /// Whether this syncer runs for long, so that it knows how the device goes down.
    pub watches: bool,
    identity: Identity,
    listener: Option<Listener>,
    /// What a `status` reports, read once.
    read: (FileTree, Report),
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("store", &self.store).finish_non_exhaustive()
    }
}

impl State {
    /// What the `status` in force reports of all deployments.
    pub fn report(&mut self) -> Report {
        let status = &self.store.device_state.status;
        if self.read.0 != *status {
            self.read = (status.clone(), Report::read(status));
        }
        self.read.1.clone()
    }
}

/// The state, for every thread that works on it.
#[derive(Debug, Clone)]
pub struct Shared(Arc<Mutex<State>>);

impl Shared {
    /// Nothing was tried yet in this process.
    pub fn new(store: Store, identity: Identity, boot_id: String) -> Self {
        let (retries, restores, stability) = (Retries::default(), Restores::default(), Stability::default());
        let (fetched, removals_are_left, listener, read) = (None, false, None, Default::default());
        Self(Arc::new(Mutex::new(State {
            store,
            retries,
            restores,
            stability,
            gates_told: RateLimit::default(),
            fetched,
            removals_are_left,
            removals_are_held: false,
            down: BTreeSet::new(),
            boot_id,
            watches: false,
            identity,
            listener,
            read,
        })))
    }

    /// Takes the lock, for reading or for what isn't a [transaction](Self::begin).
    pub fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked had committed, or had not.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a transaction, which holds the lock until it is dropped.
    pub fn begin(&self) -> Transaction<'_> {
        let mut state = self.lock();
        let next = state.store.device_state.clone();
        let report = state.report();
        Transaction { before: (report.clone(), next.adopted_version()), report, next, state }
    }

    /// What is in force at this moment.
    pub fn view(&self) -> View {
        self.lock().store.view()
    }

    /// Who hears of each commit from now on, first of those that there are; `None`: nobody.
    pub fn listen(&self, listener: Option<Listener>) {
        let mut state = self.lock();
        if let Some(listener) = &listener {
            listener(&state.store);
        }
        state.listener = listener;
    }
}

/// What is tried again of what was given up.
#[derive(Debug)]
pub enum Again {
    /// No deployment of that id is wanted.
    Nothing,
    Of(Box<DesiredDeployment>),
    All,
}

/// A change of the state. Dropped without a commit, it changes nothing but what may not be tried yet.
#[derive(Debug)]
pub struct Transaction<'a> {
    /// Locked for as long as the transaction lives.
    pub state: MutexGuard<'a, State>,
    /// The device state as it will be with the next commit.
    pub next: DeviceState,
    /// The states as they will be with the next commit.
    pub report: Report,
    /// The states, and the version of the accepted manifest, that the documents in `next` were written with.
    before: (Report, u64),
}

impl Transaction<'_> {
    /// The states as they were when it began.
    pub fn report_before(&self) -> &Report {
        &self.before.0
    }

    /// Lets that be tried again, at once, and put back where it drifted: a person at the device wants it.
    pub fn put_back(&mut self, again: &Again) {
        self.try_again(again);
        match again {
            Again::Nothing => {}
            Again::Of(wanted) => self.next.forget_drift(wanted),
            Again::All => self.next.forget_all_drift(),
        }
    }

    /// Lets that be tried again, at once. What drifted goes on waiting as fleet and site say.
    pub fn try_again(&mut self, again: &Again) {
        match again {
            Again::Nothing => return,
            Again::Of(wanted) => self.next.forget_failures(wanted, &self.state.boot_id),
            Again::All => self.next.forget_all_failures(&self.state.boot_id),
        }
        self.state.retries.clear();
        // Somebody may have brought what wasn't here.
        self.state.fetched = Some(AllFetched::new());
        self.state.restores.clear();
    }

    /// Makes durable what became of attempts, if anything did: of a clone that was made anew nothing is said before its report is
    /// made.
    pub fn commit_attempts(&mut self) -> Result<(), StoreError> {
        if self.next.attempts != self.state.store.device_state.attempts {
            self.commit()?;
        }
        Ok(())
    }

    /// Makes the change so far durable, in one commit of `status` if it says anything new. Returns whether it does.
    pub fn commit(&mut self) -> Result<bool, StoreError> {
        let (state, mut next) = (&mut *self.state, self.next.clone());
        let version = next.adopted_version();
        if (&self.report, version) != (&self.before.0, self.before.1) {
            self.report.write(&mut next.status, &state.identity.device, version);
        }
        next.report_images();
        let identity = &state.identity;
        let says = |next: &_, before: &_| message(next, before, identity);
        let says_more = state.store.commit(next, says, Timestamp::now().as_second())?;
        if let Some(listener) = state.listener.as_ref().filter(|_| says_more) {
            listener(&state.store);
        }
        Ok(says_more)
    }
}
