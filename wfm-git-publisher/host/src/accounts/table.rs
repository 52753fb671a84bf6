//! The accounts in memory: found by the digest of a secret or by an SSH key, read again when their files change.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use jiff::Timestamp;
use repo_git::durable::Stamp;
use repo_git::sign::openssh;
use repo_model::{Digest, KeyText, error_chain};
use tracing::{info, warn};

use super::file::{Account, AccountName, Malformed};
use super::identity::{Denied, Identity, Proof};
use super::secret::Shown;
use super::store::{AccountError, Store};

/// All accounts at one moment. Cheap to look at, made anew when a file changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    files: BTreeMap<AccountName, Known>,
    proofs: Proofs,
}

/// Accounts by what lets them in.
#[derive(Debug, Clone, Default, PartialEq)]
struct Proofs {
    secrets: Index<Digest>,
    certificates: Index<Digest>,
    ssh_keys: Index<KeyText>,
}

/// Accounts by what they show.
type Index<K> = HashMap<K, Arc<Account>>;

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
        let account = self.proofs.secrets.get(&shown.secret).ok_or(Denied::Unknown)?;
        if shown.user.as_ref().is_some_and(|user| user != account.name.as_str()) {
            return Err(Denied::Unknown);
        }
        self.check(account, &shown.secret, now)?;
        let needs_confirming = account.record(&shown.secret).is_some_and(|record| record.confirmed.is_none());
        Ok((Identity::new(account, Proof::Secret(shown.secret)), needs_confirming))
    }

    /// Whose certificate has the key of this digest.
    pub(super) fn find_certificate(&self, key: &Digest) -> Result<Identity, Denied> {
        let account = self.proofs.certificates.get(key).ok_or(Denied::UnknownCertificate(*key))?;
        valid(account, Proof::Certificate(*key))
    }

    /// Whose SSH key this is.
    pub(super) fn find_ssh_key(&self, key: &KeyText) -> Result<Identity, Denied> {
        let account = self.proofs.ssh_keys.get(key).ok_or_else(|| Denied::UnknownKey(openssh::fingerprint(key)))?;
        valid(account, Proof::SshKey(key.clone()))
    }

    /// Whether an identity that was found earlier would be found now.
    pub(super) fn is_valid(&self, identity: &Identity, now: Timestamp) -> Result<(), Denied> {
        let account = match &identity.proof {
            Proof::Secret(secret) => self.proofs.secrets.get(secret).ok_or(Denied::Unknown)?,
            Proof::Certificate(key) => return self.find_certificate(key).and_then(|now| same(&now, identity)),
            Proof::SshKey(key) => return self.find_ssh_key(key).and_then(|now| same(&now, identity)),
        };
        same(&Identity::new(account, identity.proof.clone()), identity)?;
        identity.secret().map_or(Ok(()), |secret| self.check(account, secret, now))
    }

    fn check(&self, account: &Account, secret: &Digest, now: Timestamp) -> Result<(), Denied> {
        match account.record(secret) {
            _ if account.revoked.is_some() => Err(ended(account)),
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
        let proofs = if changed { by_proof(store, &files) } else { self.proofs.clone() };
        let is_new =
            changed || files.iter().any(|(name, known)| !self.files[name].shows_changes && known.shows_changes);
        Ok(is_new.then_some(Self { files, proofs }))
    }

    /// Whether the accounts themselves, and not only what is known about their files, are the same.
    pub(super) fn means_the_same(&self, other: &Self) -> bool {
        self.proofs == other.proofs && self.files.keys().eq(other.files.keys())
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

/// The accounts by what lets them in. What two valid ones have is the first one's, and the other one's is
/// reported.
fn by_proof(store: &Store, files: &BTreeMap<AccountName, Known>) -> Proofs {
    let mut proofs = Proofs::default();
    let accounts = files.values().filter_map(|known| known.account.as_ref());
    for account in accounts {
        for record in &account.secrets {
            let shared = |other: &Account| Malformed::Shared(other.name.clone());
            add(store, &mut proofs.secrets, record.sha256, account, shared);
        }
        if let Some(certificate) = &account.certificate {
            let shared = |other: &Account| Malformed::SharedCertificate(other.name.clone());
            add(store, &mut proofs.certificates, certificate.sha256, account, shared);
        }
        for key in account.valid_ssh_keys() {
            let shared =
                |other: &Account| Malformed::SharedKey { name: other.name.clone(), fingerprint: key.fingerprint() };
            add(store, &mut proofs.ssh_keys, key.key.clone(), account, shared);
        }
    }
    proofs
}

fn add<K: Eq + std::hash::Hash>(
    store: &Store,
    index: &mut Index<K>,
    key: K,
    account: &Arc<Account>,
    shared: impl FnOnce(&Account) -> Malformed,
) {
    match index.entry(key) {
        Entry::Vacant(free) => _ = free.insert(Arc::clone(account)),
        Entry::Occupied(mut ended) if ended.get().revoked.is_some() => _ = ended.insert(Arc::clone(account)),
        Entry::Occupied(_) if account.revoked.is_some() => {}
        Entry::Occupied(other) => {
            let error = AccountError::Malformed { path: store.path(&account.name), source: shared(other.get()) };
            warn!(account = %account.name, error = error_chain(&error), "this is denied to it");
        }
    }
}

/// Who has proven this, unless the account was ended.
fn valid(account: &Account, proof: Proof) -> Result<Identity, Denied> {
    if account.revoked.is_some() { Err(ended(account)) } else { Ok(Identity::new(account, proof)) }
}

/// Why an account that was ended lets nobody in.
fn ended(account: &Account) -> Denied {
    let name = account.name.clone();
    if account.retired { Denied::Retired(name) } else { Denied::Revoked(name) }
}

/// Whether an identity is still the same account's.
fn same(now: &Identity, before: &Identity) -> Result<(), Denied> {
    if now == before { Ok(()) } else { Err(Denied::Unknown) }
}
