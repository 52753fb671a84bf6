//! The accounts that requests and the watcher's thread share.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;

use jiff::Timestamp;
use repo_git::durable::Stamp;
use repo_model::{Digest, error_chain};
use tokio::sync::watch as channel;
use tracing::warn;

use super::file::AccountName;
use super::store::Store;
use super::table::Table;

/// What requests and the watcher's thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: Store,
    table: RwLock<Arc<Table>>,
    /// Held while the files are looked at, so that of two looks the later one is the one that stays. What tells that
    /// nothing came since the last one; `None` where that isn't known.
    read_at: Mutex<Option<Stamp>>,
    /// What waits to be confirmed: a device may make many requests before the disk has the first one.
    confirming: Mutex<HashSet<Digest>>,
    pub(super) generation: channel::Sender<u64>,
}

impl Shared {
    pub(super) fn new(store: Store, table: Table) -> Self {
        let (generation, _) = channel::channel(0);
        Self {
            store,
            table: RwLock::new(Arc::new(table)),
            read_at: Mutex::default(),
            confirming: Mutex::default(),
            generation,
        }
    }

    pub(super) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn confirming(&self) -> MutexGuard<'_, HashSet<Digest>> {
        self.confirming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes on the disk that a secret was used. If that fails, the next request tries again.
    pub(super) fn confirm(&self, name: &AccountName, secret: &Digest, now: Timestamp) {
        if let Err(error) = self.store.confirm(name, secret, now) {
            warn!(account = %name, error = error_chain(&error), "its older secret stays valid for now");
        }
        self.reload(now);
        self.confirming().remove(secret);
    }

    fn read_at(&self) -> MutexGuard<'_, Option<Stamp>> {
        self.read_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what changed on the disk.
    pub(super) fn reload(&self, now: Timestamp) {
        self.reread(&mut self.read_at(), now);
    }

    /// Reads what changed on the disk, if files came, went or were replaced since they were last read. A stranger can ask for
    /// this as often as he likes: it costs one question about the directory.
    pub(super) fn catch_up(&self, now: Timestamp) {
        let mut read_at = self.read_at();
        if read_at.is_none() || *read_at != self.store.dir_stamp() {
            self.reread(&mut read_at, now);
        }
    }

    /// If the directory can't be read, what is known stays, and that is reported.
    fn reread(&self, read_at: &mut Option<Stamp>, now: Timestamp) {
        // Before the files: what comes in between changes it, once it is no longer of this moment.
        let stamp = self.store.dir_stamp();
        *read_at = stamp.filter(|stamp| stamp.is_of_another_moment(SystemTime::now()));
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
