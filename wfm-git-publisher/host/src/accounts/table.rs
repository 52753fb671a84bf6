//! The accounts in memory: found by the digest of a secret, read again when their files change.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use repo_git::durable::Stamp;
use repo_model::{Digest, error_chain};
use tracing::{info, warn};

use super::file::{Account, AccountName, Malformed};
use super::identity::{Denied, Identity};
use super::secret::Shown;
use super::store::{AccountError, Store};

/// All accounts at one moment. Cheap to look at, made anew when a file changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    files: BTreeMap<AccountName, Known>,
    secrets: HashMap<Digest, Arc<Account>>,
}

/// What is known of one file.
#[derive(Debug, Clone)]
struct Known {
    stamp: Stamp,
    /// Whether a change from now on would change the stamp.
    shows_changes: bool,
    account: Option<Arc<Account>>,
}

impl Table {
    /// Whose secret this is. The digest is the key: how long the look-up takes says nothing about a secret, of which
    /// nobody can choose the digest.
    pub(super) fn find(&self, shown: &Shown, now: Timestamp) -> Result<(Identity, bool), Denied> {
        let account = self.secrets.get(&shown.secret).ok_or(Denied::Unknown)?;
        if shown.user.as_ref().is_some_and(|user| user != account.name.as_str()) {
            return Err(Denied::Unknown);
        }
        self.check(account, &shown.secret, now)?;
        let needs_confirming = account.record(&shown.secret).is_some_and(|record| record.confirmed.is_none());
        Ok((Identity::new(account, shown.secret), needs_confirming))
    }

    /// Whether an identity that was found earlier would be found now.
    pub(super) fn is_valid(&self, identity: &Identity, now: Timestamp) -> Result<(), Denied> {
        let account = self.secrets.get(&identity.secret).ok_or(Denied::Unknown)?;
        if account.name != identity.name || account.role != identity.role || account.device != identity.device {
            return Err(Denied::Unknown);
        }
        self.check(account, &identity.secret, now)
    }

    fn check(&self, account: &Account, secret: &Digest, now: Timestamp) -> Result<(), Denied> {
        match account.record(secret) {
            _ if account.revoked.is_some() => Err(Denied::Revoked(account.name.clone())),
            Some(record) if record.is_expired(now) => Err(Denied::Expired(account.name.clone())),
            Some(_) => Ok(()),
            None => Err(Denied::Unknown),
        }
    }

    /// The account of a name.
    pub(super) fn account(&self, name: &AccountName) -> Option<&Account> {
        self.files.get(name)?.account.as_deref()
    }

    /// The table as the files are now; `None` if none of them changed. A file that is no account denies that account
    /// only, and is reported.
    pub(super) fn reload(&self, store: &Store, now: Timestamp) -> Result<Option<Self>, AccountError> {
        let names = store.names()?;
        let mut files = BTreeMap::new();
        let mut changed = names.len() != self.files.len();
        for name in names {
            let Some(stamp) = store.stamp(&name) else {
                changed |= self.files.contains_key(&name);
                continue;
            };
            let known = match self.files.get(&name) {
                Some(known) if known.stamp == stamp && known.shows_changes => known.clone(),
                before => {
                    let known = Known {
                        stamp,
                        shows_changes: stamp.shows_changes_from(now.as_second()),
                        account: read(store, &name, before),
                    };
                    changed |= before.is_none_or(|before| before.account != known.account);
                    known
                }
            };
            files.insert(name, known);
        }
        let secrets = if changed { secrets(store, &files) } else { self.secrets.clone() };
        let is_new =
            changed || files.iter().any(|(name, known)| !self.files[name].shows_changes && known.shows_changes);
        Ok(is_new.then_some(Self { files, secrets }))
    }

    /// Whether the accounts themselves, and not only what is known about their files, are the same.
    pub(super) fn means_the_same(&self, other: &Self) -> bool {
        self.secrets == other.secrets && self.files.keys().eq(other.files.keys())
    }
}

fn read(store: &Store, name: &AccountName, before: Option<&Known>) -> Option<Arc<Account>> {
    match store.read(name) {
        Ok(Some(account)) => {
            let was_there = before.and_then(|known| known.account.as_ref());
            if account.revoked.is_some() && was_there.is_some_and(|before| before.revoked.is_none()) {
                info!(account = %name, "revoked");
            }
            Some(Arc::new(account))
        }
        Ok(None) => None,
        Err(error) => {
            // Told once, not with every look at a file that was just changed.
            if before.is_none_or(|known| known.account.is_some()) {
                warn!(account = %name, error = error_chain(&error), "this account is denied");
            }
            None
        }
    }
}

fn secrets(store: &Store, files: &BTreeMap<AccountName, Known>) -> HashMap<Digest, Arc<Account>> {
    let mut secrets: HashMap<Digest, Arc<Account>> = HashMap::new();
    for account in files.values().filter_map(|known| known.account.as_ref()) {
        for record in &account.secrets {
            if let Some(other) = secrets.get(&record.sha256) {
                let source = Malformed::Shared(other.name.clone());
                let error = AccountError::Malformed { path: store.path(&account.name), source };
                warn!(account = %account.name, error = error_chain(&error), "this secret is denied to it");
                continue;
            }
            secrets.insert(record.sha256, Arc::clone(account));
        }
    }
    secrets
}
