//! Who may use the host: accounts with secrets that rotate without a gap, a certificate or SSH keys, and an end within a second.
//!
//! An account is a file in the home's `accounts/` ([`Account`]), and the files are the truth: [`Store`] changes them,
//! one durable replacement under a lock for each change, from the command line as well as from a running host.
//! [`Accounts`] is the host's view: it holds all of them in memory, finds one by the SHA-256 of the secret that a
//! request shows, by that of the key of a client's certificate, or by the SSH key that sshd is offered, and follows the
//! files by file-system events and, where those are missing, by a look every 500 ms. What nobody has is looked for in the
//! files, too, if any came since: an account is good as soon as it is there.
//!
//! A new secret ([`Accounts::renew`], [`Store::rotate`]) is valid beside the old one until it is used for the first
//! time; with that the old one ends. Whatever is cut off in between, one of the two is known to both sides.

mod file;
mod identity;
mod moment;
mod secret;
mod shared;
mod ssh_key;
mod store;
mod table;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use repo_model::{Digest, KeyText};
use tokio::sync::watch as channel;

pub use file::{Account, AccountName, Certificate, Credential, InvalidName, LAYOUT, Malformed, Record, Role, TTL};
pub use identity::{Denied, Identity};
pub use secret::Secret;
pub use ssh_key::{Fate, InvalidSshKey, SshKey};
pub use store::{AccountError, Issued, Listing, Store};

use shared::Shared;
use table::Table;
use watch::{AccountWatcher, Task};

/// The accounts of a running host. Clones share everything; the files are followed until the last one is dropped.
#[derive(Debug, Clone)]
pub struct Accounts {
    shared: Arc<Shared>,
    watcher: Arc<AccountWatcher>,
}

impl Accounts {
    /// Reads the accounts in this directory, and follows them from now on.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, AccountError> {
        let store = Store::new(dir);
        let table = Table::default().reload(&store, Timestamp::now())?.unwrap_or_default();
        let shared = Arc::new(Shared::new(store, table));
        let watcher = Arc::new(AccountWatcher::start(Arc::downgrade(&shared), shared.store.dir()));
        Ok(Self { shared, watcher })
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
        if needs_confirming && self.shared.confirming().insert(shown.secret) {
            // Noted behind the request's back: until that is on the disk, the older secret is valid too.
            self.watcher.send(Task::Confirm(identity.name.clone(), shown.secret));
        }
        Ok(identity)
    }

    /// Whose certificate has the key of this digest. That the client has its private half, the handshake has shown.
    pub fn of_certificate(&self, key: &Digest) -> Result<Identity, Denied> {
        match self.shared.table().find_certificate(key) {
            Err(Denied::UnknownCertificate(_)) => {
                self.shared.catch_up(Timestamp::now());
                self.shared.table().find_certificate(key)
            }
            found => found,
        }
    }

    /// Whose SSH key this is. That the client has its private half is for sshd to find out.
    pub fn of_ssh_key(&self, key: &KeyText) -> Result<Identity, Denied> {
        match self.shared.table().find_ssh_key(key) {
            Err(Denied::UnknownKey(_)) => {
                self.shared.catch_up(Timestamp::now());
                self.shared.table().find_ssh_key(key)
            }
            found => found,
        }
    }

    /// Whether a request that was let in would be let in now: what a waiting one asks whenever the generation changes.
    pub fn check(&self, identity: &Identity) -> Result<(), Denied> {
        self.shared.table().is_valid(identity, Timestamp::now())
    }

    /// When the secret that was shown ends; never if `None`.
    pub fn expires(&self, identity: &Identity) -> Option<Timestamp> {
        self.shared.table().account(&identity.name)?.record(identity.secret()?)?.expires
    }

    /// A new secret for whoever showed a valid one, which stays valid until the new one was used. Writes to the disk.
    pub fn renew(&self, identity: &Identity) -> Result<Issued, AccountError> {
        let now = Timestamp::now();
        let Some(secret) = identity.secret() else { return Err(AccountError::NoSecret(identity.name.clone())) };
        let issued = self.shared.store.renew(&identity.name, secret, now)?;
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

#[cfg(test)]
mod tests;
