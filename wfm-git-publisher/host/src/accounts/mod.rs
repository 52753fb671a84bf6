//! Who may use the host: accounts with secrets that rotate without a gap and end within a second.
//!
//! An account is a file in the home's `accounts/` ([`Account`]), and the files are the truth: [`Store`] changes them,
//! one durable replacement under a lock for each change, from the command line as well as from a running host.
//! [`Accounts`] is the host's view: it holds all of them in memory, finds one by the SHA-256 of the secret that a
//! request shows, and follows the files by file-system events and, where those are missing, by a look every 500 ms. A
//! secret that nobody has is looked for in the files, too, if any came since: an account is good as soon as it is there.
//!
//! A new secret ([`Accounts::renew`], [`Store::rotate`]) is valid beside the old one until it is used for the first
//! time; with that the old one ends. Whatever is cut off in between, one of the two is known to both sides.

mod file;
mod secret;
mod store;
mod table;
mod watch;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;

use jiff::Timestamp;
use repo_git::durable::Stamp;
use repo_model::{DeviceId, Digest, error_chain};
use tokio::sync::watch as channel;
use tracing::warn;

pub use file::{Account, AccountName, InvalidName, LAYOUT, Malformed, Record, Role, TTL};
pub use secret::Secret;
pub use store::{AccountError, Issued, Listing, Store};

use table::Table;
use watch::{Follower, Task};

/// The accounts of a running host. Clones share everything; the files are followed until the last one is dropped.
#[derive(Debug, Clone)]
pub struct Accounts {
    shared: Arc<Shared>,
    follower: Arc<Follower>,
}

/// What the follower works on.
#[derive(Debug)]
struct Shared {
    store: Store,
    table: RwLock<Arc<Table>>,
    /// Held while the files are looked at, so that of two looks the later one is the one that stays. What tells that
    /// nothing came since the last one; `None` where that can't be told.
    looking: Mutex<Option<Stamp>>,
    /// What waits to be confirmed: a device may make many requests before the disk has the first one.
    confirming: Mutex<HashSet<Digest>>,
    generation: channel::Sender<u64>,
}

/// Who a request is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The account.
    pub name: AccountName,
    /// What it may do.
    pub role: Role,
    /// Its device, exactly for [`Role::Device`].
    pub device: Option<DeviceId>,
    /// Which of its secrets was shown.
    secret: Digest,
}

/// Why a request is from nobody. The difference is for the log: every one of them is answered alike.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No credentials were shown.
    #[error("there are no credentials")]
    Missing,
    /// What was shown is neither `Basic` nor `Bearer`.
    #[error("the credentials can't be read")]
    Unreadable,
    /// No valid account has this secret.
    #[error("nobody has this secret")]
    Unknown,
    /// The secret's time is over.
    #[error("the secret of account `{0}` has expired")]
    Expired(AccountName),
    /// The account counts no more.
    #[error("the account `{0}` is revoked")]
    Revoked(AccountName),
}

impl Accounts {
    /// Reads the accounts in this directory, and follows them from now on.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, AccountError> {
        let store = Store::new(dir);
        let table = Table::default().reload(&store, Timestamp::now())?.unwrap_or_default();
        let (generation, _) = channel::channel(0);
        let shared = Arc::new(Shared {
            store,
            table: RwLock::new(Arc::new(table)),
            looking: Mutex::default(),
            confirming: Mutex::default(),
            generation,
        });
        let follower = Arc::new(Follower::start(Arc::downgrade(&shared), shared.store.dir()));
        Ok(Self { shared, follower })
    }

    /// Who shows this `Authorization` header.
    pub fn authenticate(&self, header: Option<&str>) -> Result<Identity, Denied> {
        self.authenticate_at(header, Timestamp::now())
    }

    /// The same at another moment.
    pub fn authenticate_at(&self, header: Option<&str>, now: Timestamp) -> Result<Identity, Denied> {
        let shown = secret::shown(header.ok_or(Denied::Missing)?).ok_or(Denied::Unreadable)?;
        let found = match self.shared.table().find(&shown, now) {
            Err(Denied::Unknown) => {
                self.shared.catch_up(now);
                self.shared.table().find(&shown, now)
            }
            found => found,
        };
        let (identity, needs_confirming) = found?;
        if needs_confirming && self.shared.confirming().insert(identity.secret) {
            // Noted behind the request's back: until that is on the disk, the older secret is valid too.
            self.follower.tell(Task::Confirm(identity.name.clone(), identity.secret));
        }
        Ok(identity)
    }

    /// Whether a request that was let in would be let in now: what a waiting one asks whenever the generation changes.
    pub fn check(&self, identity: &Identity) -> Result<(), Denied> {
        self.shared.table().is_valid(identity, Timestamp::now())
    }

    /// When the secret that was shown ends; never if `None`.
    pub fn expires(&self, identity: &Identity) -> Option<Timestamp> {
        self.shared.table().account(&identity.name)?.record(&identity.secret)?.expires
    }

    /// A new secret for whoever showed a valid one, which stays valid until the new one was used. Writes to the disk.
    pub fn renew(&self, identity: &Identity) -> Result<Issued, AccountError> {
        let now = Timestamp::now();
        let issued = self.shared.store.renew(&identity.name, &identity.secret, now)?;
        self.shared.reload(now);
        Ok(issued)
    }

    /// How often the accounts changed since they were opened.
    pub fn generation(&self) -> u64 {
        *self.shared.generation.borrow()
    }

    /// Tells each change of any account.
    pub fn subscribe(&self) -> channel::Receiver<u64> {
        self.shared.generation.subscribe()
    }
}

impl Shared {
    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn confirming(&self) -> MutexGuard<'_, HashSet<Digest>> {
        self.confirming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes on the disk that a secret was used. If that fails, the next request tries again.
    fn confirm(&self, name: &AccountName, secret: &Digest, now: Timestamp) {
        if let Err(error) = self.store.confirm(name, secret, now) {
            warn!(account = %name, error = error_chain(&error), "its older secret stays valid for now");
        }
        self.reload(now);
        self.confirming().remove(secret);
    }

    fn looking(&self) -> MutexGuard<'_, Option<Stamp>> {
        self.looking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what changed on the disk.
    fn reload(&self, now: Timestamp) {
        self.look(&mut self.looking(), now);
    }

    /// Reads what changed on the disk, if files came, went or were replaced since the last look. A stranger can ask for
    /// this as often as he likes: it costs one look at the directory.
    fn catch_up(&self, now: Timestamp) {
        let mut looking = self.looking();
        if looking.is_none() || *looking != self.store.dir_stamp() {
            self.look(&mut looking, now);
        }
    }

    /// If the directory can't be read, what is known stays, and that is told.
    fn look(&self, looking: &mut Option<Stamp>, now: Timestamp) {
        // Before the files: what comes in between changes it, once it is no longer of this moment.
        let stamp = self.store.dir_stamp();
        *looking = stamp.filter(|stamp| stamp.is_of_another_moment(SystemTime::now()));
        let before = self.table();
        match before.reload(&self.store, now) {
            Ok(None) => {}
            Ok(Some(after)) => {
                let same = before.means_the_same(&after);
                *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(after);
                if !same {
                    self.generation.send_modify(|generation| *generation += 1);
                }
            }
            Err(error) => warn!(error = error_chain(&error), "the accounts stay as they were"),
        }
    }
}

impl Identity {
    fn new(account: &Account, secret: Digest) -> Self {
        Self { name: account.name.clone(), role: account.role, device: account.device.clone(), secret }
    }
}

#[cfg(test)]
mod tests;
