//! The accounts on disk, one file each: changed under a lock, by one durable replacement.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use repo_git::durable::{self, FileError, Stamp};
use repo_model::{DeviceId, Digest, KeyText};

use super::file::{Account, AccountName, Credential, MAX_BYTES, Malformed, Record, Role, TTL};
use super::secret::Secret;
use super::ssh_key::{Fate, SshKey};
use crate::lock::lock_dir;

const ENDING: &str = "json";

/// The most SSH keys of one account.
const MAX_SSH_KEYS: usize = 16;

/// The directory with the accounts' files.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

/// An account can't be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// The directory or a file can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is no account's.
    #[error("the account's file `{}` can't be used", path.display())]
    Malformed {
        path: PathBuf,
        #[source]
        source: Malformed,
    },
    #[error("there is an account `{0}` already")]
    Exists(AccountName),
    /// The name is taken by something that isn't this device.
    #[error("the account `{name}` isn't that of device `{device}`")]
    Taken {
        name: AccountName,
        /// The device that needs the name.
        device: DeviceId,
    },
    /// No account has this name.
    #[error("there is no account `{0}`")]
    None(AccountName),
    /// Only operators change the fleet repository.
    #[error("the account `{0}` isn't an operator's, and changes nothing of the fleet repository")]
    NoOperator(AccountName),
    /// It was revoked; `account add` makes it anew.
    #[error("the account `{0}` is revoked")]
    Revoked(AccountName),
    /// The SSH key is another account's.
    #[error("the SSH key {fingerprint} is that of account `{name}` already")]
    KeyTaken {
        name: AccountName,
        /// As `ssh-keygen -l` shows it.
        fingerprint: String,
    },
    /// What a device or a person shall come with is another account's.
    #[error("the {what} is that of account `{name}` already")]
    CredentialTaken { what: &'static str, name: AccountName },
    /// It came with a certificate, and there is nothing to renew.
    #[error("account `{0}` comes with a certificate, and has no secret that could be renewed")]
    NoSecret(AccountName),
    /// It has as many SSH keys as an account may have.
    #[error("the account `{0}` has {MAX_SSH_KEYS} SSH keys already, and no more may be added")]
    ManyKeys(AccountName),
    /// The secret that asks for a new one is gone.
    #[error("the secret of account `{0}` was replaced meanwhile")]
    Replaced(AccountName),
    /// The kernel gives no random bytes.
    #[error("cannot make a secret")]
    Random(#[source] getrandom::Error),
}

/// A secret that was just made: the only time that it can be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    pub name: AccountName,
    /// Shown once; its digest is all that stays.
    pub secret: Secret,
    /// When it ends; never if `None`.
    pub expires: Option<Timestamp>,
    /// When the secret was made that nobody used as yet, and that ends with this one.
    pub unused: Option<Timestamp>,
}

/// The accounts' files, and what is wrong with those that aren't accounts.
#[derive(Debug, Default)]
pub struct Listing {
    pub accounts: BTreeMap<AccountName, Account>,
    /// Why each of the other files is no account.
    pub broken: Vec<AccountError>,
}

impl Store {
    /// The accounts in this directory, which needn't be there yet.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The directory with one `<name>.json` for each account.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file of an account, which needn't be there.
    pub fn path(&self, name: &AccountName) -> PathBuf {
        self.dir.join(format!("{name}.{ENDING}"))
    }

    /// Reads all accounts, revoked ones included. A file that is none is listed as broken.
    pub fn list(&self) -> Result<Listing, AccountError> {
        self.list_named(|_| true)
    }

    /// The same for those whose names are meant.
    pub fn list_named(&self, is_meant: impl Fn(&AccountName) -> bool) -> Result<Listing, AccountError> {
        let mut listing = Listing::default();
        for name in self.names()?.into_iter().filter(is_meant) {
            match self.read(&name) {
                Ok(Some(account)) => _ = listing.accounts.insert(name, account),
                Ok(None) => {}
                Err(error) => listing.broken.push(error),
            }
        }
        Ok(listing)
    }

    /// Reads one; `None` if there is no such file.
    pub fn read(&self, name: &AccountName) -> Result<Option<Account>, AccountError> {
        let path = self.path(name);
        let failed = FileError::read(&path);
        let malformed = |source| AccountError::Malformed { path: path.clone(), source };
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed)?,
        };
        let meta = file.metadata().map_err(failed)?;
        let mode = meta.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(malformed(Malformed::Exposed(mode)));
        }
        if meta.len() > MAX_BYTES {
            return Err(malformed(Malformed::Large(meta.len())));
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        Account::parse(name, &bytes).map(Some).map_err(malformed)
    }

    /// Makes an account with its first secret, also in the place of a revoked one; `ttl` `None` is for ever.
    pub fn add(
        &self,
        name: &AccountName,
        role: Role,
        device: Option<DeviceId>,
        ttl: Option<Duration>,
        now: Timestamp,
    ) -> Result<Issued, AccountError> {
        self.add_account(Account::new(name.clone(), role, device), ttl, now)
    }

    /// The same for a person of the site that has these devices, one at least.
    pub fn add_for_site(
        &self,
        name: &AccountName,
        devices: Vec<DeviceId>,
        ttl: Option<Duration>,
        now: Timestamp,
    ) -> Result<Issued, AccountError> {
        self.add_account(Account::of_site(name.clone(), devices), ttl, now)
    }

    /// The same for an operator who may change these paths of the fleet repository; all if there are none.
    pub fn add_operator(
        &self,
        name: &AccountName,
        paths: Vec<String>,
        ttl: Option<Duration>,
        now: Timestamp,
    ) -> Result<Issued, AccountError> {
        self.add_account(Account::of_operator(name.clone(), paths), ttl, now)
    }

    fn add_account(&self, mut account: Account, ttl: Option<Duration>, now: Timestamp) -> Result<Issued, AccountError> {
        let _lock = self.lock()?;
        if self.read(&account.name)?.is_some_and(|account| account.revoked.is_none()) {
            return Err(AccountError::Exists(account.name));
        }
        self.issue(&mut account, ttl, None, now)
    }

    /// Gives a device's account a new secret, and makes the account if there is none. A secret that is in use stays
    /// valid until the new one was used, or ends `at_once`; one that never was used ends now.
    pub fn issue_for_device(
        &self,
        device: &DeviceId,
        ttl: Option<Duration>,
        at_once: bool,
        now: Timestamp,
    ) -> Result<Issued, AccountError> {
        let _lock = self.lock()?;
        let mut account = self.of_device(device)?;
        if at_once {
            account.end_credentials();
        }
        self.issue(&mut account, ttl, None, now)
    }

    /// Lets a device in with what it made itself and of which only the digest is known here; makes the account if there is
    /// none. A secret lives as long as the last one unless `ttl` says otherwise; what let it in over HTTPS before ends. The
    /// same again changes nothing.
    pub fn take_for_device(
        &self,
        device: &DeviceId,
        credential: Credential,
        ttl: Option<Option<Duration>>,
        now: Timestamp,
    ) -> Result<(), AccountError> {
        let _lock = self.lock()?;
        self.take(self.of_device(device)?, credential, ttl, now)
    }

    /// Lets an account in with the certificate that has this key, in the place of what let it in over HTTPS before.
    pub fn take_certificate(&self, name: &AccountName, key: Digest, now: Timestamp) -> Result<(), AccountError> {
        let _lock = self.lock()?;
        self.take(still_valid(self.existing(name)?)?, Credential::Certificate(key), None, now)
    }

    fn take(
        &self,
        mut account: Account,
        credential: Credential,
        ttl: Option<Option<Duration>>,
        now: Timestamp,
    ) -> Result<(), AccountError> {
        self.check_free(&credential, &account.name)?;
        if account.has_only(&credential) {
            return Ok(());
        }
        let last = account.secrets.last().map_or(Some(TTL), Record::ttl);
        account.take(credential, ttl.unwrap_or(last), now);
        self.write(&account)
    }

    /// Refuses what another account than this one has; revoked ones count, too.
    pub fn check_free(&self, credential: &Credential, own: &AccountName) -> Result<(), AccountError> {
        let has = |name: &AccountName| self.read(name).ok().flatten().is_some_and(|one| one.has(credential));
        match self.names()?.into_iter().find(|name| name != own && has(name)) {
            Some(name) => Err(AccountError::CredentialTaken { what: credential.what(), name }),
            None => Ok(()),
        }
    }

    /// Gives an account a new secret, which lives as long as the last one unless `ttl` says otherwise. The one in use
    /// stays valid until the new one was used, or ends `at_once`.
    pub fn rotate(
        &self,
        name: &AccountName,
        ttl: Option<Option<Duration>>,
        at_once: bool,
        now: Timestamp,
    ) -> Result<Issued, AccountError> {
        let _lock = self.lock()?;
        let mut account = still_valid(self.existing(name)?)?;
        let last = account.secrets.last().map_or(Some(TTL), Record::ttl);
        let ttl = ttl.unwrap_or(last);
        if at_once {
            account.end_credentials();
        }
        self.issue(&mut account, ttl, None, now)
    }

    /// Gives an account a new secret that lives as long as the one by which it is asked for, which stays valid until the
    /// new one was used.
    pub fn renew(&self, name: &AccountName, used: &Digest, now: Timestamp) -> Result<Issued, AccountError> {
        let _lock = self.lock()?;
        let mut account = still_valid(self.existing(name)?)?;
        let Some(ttl) = account.record(used).map(Record::ttl) else {
            return Err(AccountError::Replaced(name.clone()));
        };
        self.issue(&mut account, ttl, Some(used), now)
    }

    /// Notes that a secret was used, which ends the older ones.
    pub fn confirm(&self, name: &AccountName, used: &Digest, now: Timestamp) -> Result<(), AccountError> {
        let _lock = self.lock()?;
        let mut account = self.existing(name)?;
        if account.confirm(used, now) { self.write(&account) } else { Ok(()) }
    }

    /// Ends an account; `false` if it was revoked before.
    pub fn revoke(&self, name: &AccountName, now: Timestamp) -> Result<bool, AccountError> {
        let _lock = self.lock()?;
        let mut account = self.existing(name)?;
        let was_valid = account.revoked.is_none();
        account.revoke(now);
        if was_valid {
            self.write(&account)?;
        }
        Ok(was_valid)
    }

    /// Ends a device's account because the device is retired; whoever asks with it is told that. `false` if it was so
    /// before, or there is no such account.
    pub fn retire(&self, device: &DeviceId, now: Timestamp) -> Result<bool, AccountError> {
        let name = AccountName::of(device);
        let is_to_end = |account: &Account| account.device.as_ref() == Some(device) && !account.retired;
        // Looked at first without the lock: mostly nothing changes.
        if !self.read(&name)?.as_ref().is_some_and(is_to_end) {
            return Ok(false);
        }
        let _lock = self.lock()?;
        let Some(mut account) = self.read(&name)?.filter(is_to_end) else { return Ok(false) };
        account.revoke(now);
        account.retired = true;
        self.write(&account)?;
        Ok(true)
    }

    /// Ends every secret and certificate, and every SSH key of people; nobody is revoked. Devices come back by the key that the fleet lists, and
    /// people get another secret. Returns whose that were.
    ///
    /// # Errors
    /// The first account that can't be read or written; all others are ended nevertheless.
    pub fn end_all(&self) -> Result<Vec<AccountName>, AccountError> {
        let _lock = self.lock()?;
        let (mut ended, mut failed) = (Vec::new(), None);
        for name in self.names()? {
            match self.end(&name) {
                Ok(true) => ended.push(name),
                Ok(false) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(ended), Err)
    }

    fn end(&self, name: &AccountName) -> Result<bool, AccountError> {
        let Some(mut account) = self.read(name)?.filter(|account| account.revoked.is_none()) else { return Ok(false) };
        let before = account.clone();
        account.end_credentials();
        // A device's key ends with the line of the fleet that lists it.
        if account.role != Role::Device {
            account.ssh_keys.clear();
        }
        if account != before {
            self.write(&account)?;
        }
        Ok(account != before)
    }

    /// Makes an account without a secret: it comes with a certificate or SSH keys, which are added. Also in the place of a revoked one.
    pub fn add_without_secret(
        &self,
        name: &AccountName,
        role: Role,
        device: Option<DeviceId>,
    ) -> Result<(), AccountError> {
        self.write_new(&Account::new(name.clone(), role, device))
    }

    /// The same for a person of the site that has these devices, one at least.
    pub fn add_for_site_without_secret(&self, name: &AccountName, devices: Vec<DeviceId>) -> Result<(), AccountError> {
        self.write_new(&Account::of_site(name.clone(), devices))
    }

    /// The same for an operator who may change these paths of the fleet repository; all if there are none.
    pub fn add_operator_without_secret(&self, name: &AccountName, paths: Vec<String>) -> Result<(), AccountError> {
        self.write_new(&Account::of_operator(name.clone(), paths))
    }

    /// From now on these are the paths that an operator may change; all if there are none.
    pub fn bind(&self, name: &AccountName, paths: Vec<String>) -> Result<(), AccountError> {
        let _lock = self.lock()?;
        let mut account = still_valid(self.existing(name)?)?;
        if account.role != Role::Operator {
            return Err(AccountError::NoOperator(name.clone()));
        }
        account.bind(paths);
        self.write(&account)
    }

    fn write_new(&self, account: &Account) -> Result<(), AccountError> {
        let _lock = self.lock()?;
        match self.read(&account.name)? {
            Some(account) if account.revoked.is_none() => Err(AccountError::Exists(account.name)),
            _ => self.write(account),
        }
    }

    /// Makes a device's account without a secret, if there is none or it was revoked; `false` if there is a valid one.
    pub fn ensure_for_device(&self, device: &DeviceId) -> Result<bool, AccountError> {
        let _lock = self.lock()?;
        let name = AccountName::of(device);
        match self.read(&name)? {
            Some(account) if account.device.as_ref() != Some(device) => {
                return Err(AccountError::Taken { name, device: device.clone() });
            }
            Some(account) if account.revoked.is_none() => return Ok(false),
            _ => {}
        }
        self.write(&Account::new(name, Role::Device, Some(device.clone())))?;
        Ok(true)
    }

    /// Lets an account in with one more SSH key; `false` if it had that key already. A key belongs to one account only.
    pub fn add_ssh_key(&self, name: &AccountName, key: SshKey) -> Result<bool, AccountError> {
        let _lock = self.lock()?;
        let account = still_valid(self.existing(name)?)?;
        self.add_key_to(account, key)
    }

    /// The same for a device's account, which is made without a secret if there is none.
    pub fn add_ssh_key_for_device(&self, device: &DeviceId, key: SshKey) -> Result<bool, AccountError> {
        let _lock = self.lock()?;
        let account = self.of_device(device)?;
        self.add_key_to(account, key)
    }

    /// Brings each SSH key of an account to its fate, and returns those that counted until now. No account is as good as
    /// one without keys.
    pub fn judge_ssh_keys(
        &self,
        name: &AccountName,
        now: Timestamp,
        fate: impl Fn(&SshKey) -> Fate,
    ) -> Result<Vec<SshKey>, AccountError> {
        let judged = |account: Account| {
            let keys = account.ssh_keys.iter().cloned().filter_map(|key| {
                let fate = fate(&key);
                key.with(fate, now)
            });
            let keys: Vec<_> = keys.collect();
            (keys != account.ssh_keys).then_some((keys, account))
        };
        // Looked at first without the lock: mostly nothing changes.
        if self.read(name)?.and_then(judged).is_none() {
            return Ok(Vec::new());
        }
        let _lock = self.lock()?;
        let Some((keys, mut account)) = self.read(name)?.and_then(judged) else { return Ok(Vec::new()) };
        let before = std::mem::replace(&mut account.ssh_keys, keys);
        self.write(&account)?;
        let counted = before.into_iter().filter(|key| key.ended.is_none());
        Ok(counted.filter(|key| account.valid_ssh_keys().all(|valid| valid.key != key.key)).collect())
    }

    /// Which account has this SSH key; revoked ones are passed over.
    pub fn owner_of_ssh_key(&self, key: &KeyText) -> Result<Option<AccountName>, AccountError> {
        let has = |account: &Account| account.revoked.is_none() && account.valid_ssh_keys().any(|one| one.key == *key);
        for name in self.names()? {
            // One that can't be read lets nobody in.
            if self.read(&name).ok().flatten().is_some_and(|account| has(&account)) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// The names of all files that could be accounts.
    pub(super) fn names(&self) -> Result<Vec<AccountName>, AccountError> {
        let failed = FileError::read(&self.dir);
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            if path.extension().is_some_and(|ending| ending == ENDING)
                && let Some(name) = stem.and_then(|stem| stem.parse().ok())
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// What tells whether an account's file was changed.
    pub(super) fn stamp(&self, name: &AccountName) -> Option<Stamp> {
        Stamp::of(&self.path(name))
    }

    /// What tells whether files came, went or were replaced.
    pub(super) fn dir_stamp(&self) -> Option<Stamp> {
        Stamp::of(&self.dir)
    }

    /// The account of a device, which is a new one if it has none.
    fn of_device(&self, device: &DeviceId) -> Result<Account, AccountError> {
        let name = AccountName::of(device);
        match self.read(&name)? {
            Some(account) if account.device.as_ref() != Some(device) => {
                Err(AccountError::Taken { name, device: device.clone() })
            }
            Some(account) => still_valid(account),
            None => Ok(Account::new(name, Role::Device, Some(device.clone()))),
        }
    }

    fn add_key_to(&self, mut account: Account, key: SshKey) -> Result<bool, AccountError> {
        match self.owner_of_ssh_key(&key.key)? {
            Some(name) if name != account.name => {
                return Err(AccountError::KeyTaken { name, fingerprint: key.fingerprint() });
            }
            _ => {}
        }
        if !account.add_ssh_key(key) {
            return Ok(false);
        }
        if account.ssh_keys.len() > MAX_SSH_KEYS {
            return Err(AccountError::ManyKeys(account.name));
        }
        self.write(&account)?;
        Ok(true)
    }

    fn existing(&self, name: &AccountName) -> Result<Account, AccountError> {
        self.read(name)?.ok_or_else(|| AccountError::None(name.clone()))
    }

    /// A new secret, on the disk before anybody sees it.
    fn issue(
        &self,
        account: &mut Account,
        ttl: Option<Duration>,
        keep: Option<&Digest>,
        now: Timestamp,
    ) -> Result<Issued, AccountError> {
        let secret = Secret::generate().map_err(AccountError::Random)?;
        let ends_unused = |record: &&Record| record.confirmed.is_none() && Some(&record.sha256) != keep;
        let unused = account.secrets.iter().find(ends_unused).map(|record| record.created);
        account.add_secret(secret.digest(), ttl, keep, now);
        self.write(account)?;
        let expires = account.secrets.last().and_then(|record| record.expires);
        Ok(Issued { name: account.name.clone(), secret, expires, unused })
    }

    fn write(&self, account: &Account) -> Result<(), AccountError> {
        let path = self.path(&account.name);
        Ok(durable::replace_file(&path, &account.to_bytes(), 0o600).map_err(FileError::write(&path))?)
    }

    fn lock(&self) -> Result<File, AccountError> {
        Ok(lock_dir(&self.dir).map_err(FileError::write(&self.dir))?)
    }
}

fn still_valid(account: Account) -> Result<Account, AccountError> {
    match account.revoked {
        Some(_) => Err(AccountError::Revoked(account.name)),
        None => Ok(account),
    }
}
