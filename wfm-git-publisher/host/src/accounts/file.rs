//! One account's file: who may use the host, as what, and with which secrets.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use repo_model::enrolment::Claim;
use repo_model::{DeviceId, Digest, json};
use serde::{Deserialize, Serialize};

use super::moment::whole;
use super::ssh_key::{InvalidSshKey, SshKey};

/// The newest layout of an account's file that this version reads, which it writes where there are `paths`: a program that
/// knows nothing of these doesn't take the account for one without bounds. Else it writes 1.
pub const LAYOUT: u64 = 2;

/// How long a secret lives where nothing else is said: 90 days.
pub const TTL: Duration = Duration::from_secs(90 * 24 * 3600);

/// An account's name: `[a-z0-9][a-z0-9._-]{0,199}`; a device's is the name of its repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AccountName(String);

/// The text is no account's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` can't be an account's name: use up to 200 of a-z, 0-9, `.`, `_`, `-`, beginning with a letter or digit")]
pub struct InvalidName(String);

/// What an account may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads its own repository and writes its `status` and `heartbeat`.
    Device,
    /// A person of a site: reads the repositories of its devices, and writes their `site`.
    Site,
    /// Reads everything.
    Auditor,
    /// Reads everything and pushes to the fleet repository.
    Operator,
}

/// An account as its file has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// 1, or 2 where there are `paths`; a file with a larger number was written by a newer version.
    pub layout: u64,
    /// The file's name without `.json`.
    pub name: AccountName,
    pub role: Role,
    /// The device that it belongs to; exactly for [`Role::Device`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceId>,
    /// The devices of a site, one at least; exactly for [`Role::Site`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceId>,
    /// Patterns of the paths of the fleet repository that an operator's pushes may change; all if there are none. What
    /// they mean is the publisher's business.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The secrets that are valid, the oldest first: one, two while one is renewed, or none if it comes with a certificate or
    /// over SSH.
    pub secrets: Vec<Record>,
    /// The certificate that lets it in over HTTPS in the place of secrets; beside one only until that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certificate>,
    /// The keys that let it in over SSH, in the order in which they came, and those that ended while the fleet lists them.
    #[serde(default, rename = "sshKeys", skip_serializing_if = "Vec::is_empty")]
    pub ssh_keys: Vec<SshKey>,
    /// When it was ended; absent while it is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Timestamp>,
    /// Whether it was ended because its device is retired, which whoever asks with it is told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retired: bool,
}

/// What is kept of one secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub sha256: Digest,
    /// When the secret was made, in whole seconds.
    pub created: Timestamp,
    /// When it ends; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// When it was first used; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Timestamp>,
}

/// What is kept of a certificate: nothing but its key counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// SHA-256 of its `SubjectPublicKeyInfo`, in DER.
    pub sha256: Digest,
    /// When it was added, in whole seconds.
    pub created: Timestamp,
}

/// What a client shows over HTTPS, by the digest that is kept of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// SHA-256 of the secret's text.
    Secret(Digest),
    /// SHA-256 of the certificate's `SubjectPublicKeyInfo`, in DER.
    Certificate(Digest),
}

/// An account's file is not one.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// It is no JSON of this form.
    #[error("it can't be read as an account")]
    Json(#[from] serde_json::Error),
    /// It was written by a newer version.
    #[error("its layout is {0}, and this version knows {LAYOUT}")]
    Layout(u64),
    /// It names another account than the file is called after.
    #[error("it says that it is the account `{0}`")]
    Name(AccountName),
    /// A device is missing, or too many.
    #[error("an account has a `device` exactly if its role is `device`, and `devices` exactly if it is `site`")]
    Device,
    /// Bounds that this version wouldn't keep.
    #[error("only an operator's account has `paths`, and its layout is 2")]
    Paths,
    /// Others than the owner can read it.
    #[error("it has mode {0:o} and is open to others; run chmod 600 on it")]
    Exposed(u32),
    /// It is larger than any account.
    #[error("it has {0} bytes, and an account at most {MAX_BYTES}")]
    Large(u64),
    /// Its secret is another account's, too.
    #[error("one of its secrets is also that of account `{0}`")]
    Shared(AccountName),
    /// Its certificate is another account's, too.
    #[error("its certificate is also that of account `{0}`")]
    SharedCertificate(AccountName),
    /// Its SSH key is another account's, too.
    #[error("its SSH key {fingerprint} is also that of account `{name}`")]
    SharedKey {
        name: AccountName,
        /// As `ssh-keygen -l` shows it.
        fingerprint: String,
    },
    /// One of its SSH keys is none that it could come with.
    #[error("one of its SSH keys can't be used")]
    SshKey(#[from] InvalidSshKey),
}

/// The largest file of an account.
pub(super) const MAX_BYTES: u64 = 64 << 10;

impl Account {
    /// One that nothing lets in as yet; a device's names its device.
    pub(super) fn new(name: AccountName, role: Role, device: Option<DeviceId>) -> Self {
        let (devices, paths, secrets, ssh_keys) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (certificate, revoked, retired) = (None, None, false);
        Self { layout: 1, name, role, device, devices, paths, secrets, certificate, ssh_keys, revoked, retired }
    }

    /// The same of an operator who may change these paths of the fleet repository; all if there are none.
    pub(super) fn of_operator(name: AccountName, paths: Vec<String>) -> Self {
        let mut account = Self::new(name, Role::Operator, None);
        account.bind(paths);
        account
    }

    /// From now on these are the paths that it may change.
    pub(super) fn bind(&mut self, paths: Vec<String>) {
        self.layout = if paths.is_empty() { 1 } else { LAYOUT };
        self.paths = paths;
    }

    /// The same of a person of a site, with its devices.
    pub(super) fn of_site(name: AccountName, devices: Vec<DeviceId>) -> Self {
        Self { devices, ..Self::new(name, Role::Site, None) }
    }

    /// Reads an account's file; `name` is what the file is called.
    pub fn parse(name: &AccountName, bytes: &[u8]) -> Result<Self, Malformed> {
        let account: Self = serde_json::from_slice(bytes)?;
        if account.layout > LAYOUT {
            return Err(Malformed::Layout(account.layout));
        }
        if account.name != *name {
            return Err(Malformed::Name(account.name));
        }
        let fits = account.device.is_some() == (account.role == Role::Device)
            && account.devices.is_empty() == (account.role != Role::Site);
        if !fits {
            return Err(Malformed::Device);
        }
        if !account.paths.is_empty() && (account.role, account.layout) != (Role::Operator, LAYOUT) {
            return Err(Malformed::Paths);
        }
        for key in &account.ssh_keys {
            SshKey::check(&key.key)?;
        }
        Ok(account)
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        json::to_bytes(self)
    }

    /// The record of a secret, if it is one of this account's.
    pub fn record(&self, secret: &Digest) -> Option<&Record> {
        self.secrets.iter().find(|record| record.sha256 == *secret)
    }

    /// Adds a secret beside the one that is in use. Secrets that were never used are dropped: nobody relies on them,
    /// and what was lost on its way must not be valid for ever. The one that `keep` names stays in any case.
    pub fn add_secret(&mut self, secret: Digest, ttl: Option<Duration>, keep: Option<&Digest>, now: Timestamp) {
        let in_use = |record: &Record| match keep {
            Some(digest) => record.sha256 == *digest,
            None => record.confirmed.is_some(),
        };
        self.secrets.retain(in_use);
        let keep_from = self.secrets.len().saturating_sub(1);
        self.secrets.drain(..keep_from);
        self.secrets.push(Record::new(secret, ttl, now));
    }

    /// Notes that a secret was used; all older ones end with that, and a certificate does. Whether anything changed.
    pub fn confirm(&mut self, secret: &Digest, now: Timestamp) -> bool {
        let Some(index) = self.secrets.iter().position(|record| record.sha256 == *secret) else { return false };
        let changed = index > 0 || self.secrets[index].confirmed.is_none() || self.certificate.is_some();
        self.certificate = None;
        self.secrets.drain(..index);
        if let Some(record) = self.secrets.first_mut() {
            record.confirmed.get_or_insert(whole(now));
        }
        changed
    }

    /// Whether this lets it in over HTTPS.
    pub fn has(&self, credential: &Credential) -> bool {
        match credential {
            Credential::Secret(secret) => self.record(secret).is_some(),
            Credential::Certificate(key) => self.certificate.as_ref().is_some_and(|known| known.sha256 == *key),
        }
    }

    /// Whether this lets it in over HTTPS, and nothing of the other kind.
    pub(super) fn has_only(&self, credential: &Credential) -> bool {
        let is_one_of_both = self.certificate.is_none() || self.secrets.is_empty();
        self.has(credential) && is_one_of_both
    }

    /// Lets it in over HTTPS with nothing but this; a secret lives so long.
    pub(super) fn take(&mut self, credential: Credential, ttl: Option<Duration>, now: Timestamp) {
        (self.secrets, self.certificate) = match credential {
            Credential::Secret(secret) => (vec![Record::new(secret, ttl, now)], None),
            Credential::Certificate(sha256) => (Vec::new(), Some(Certificate { sha256, created: whole(now) })),
        };
    }

    /// From now on no secret and no certificate lets it in.
    pub(super) fn end_credentials(&mut self) {
        (self.secrets, self.certificate) = (Vec::new(), None);
    }

    /// The SSH keys that let it in: those that didn't end.
    pub fn valid_ssh_keys(&self) -> impl Iterator<Item = &SshKey> {
        self.ssh_keys.iter().filter(|key| key.ended.is_none())
    }

    /// Lets it in with one more SSH key, also with one that ended; `false` if it had that key, for the same status key.
    pub fn add_ssh_key(&mut self, key: SshKey) -> bool {
        match self.ssh_keys.iter_mut().find(|one| one.key == key.key) {
            Some(known) if known.enrolled_with == key.enrolled_with && known.ended.is_none() => return false,
            Some(known) => *known = key,
            None => self.ssh_keys.push(key),
        }
        true
    }

    /// Ends it: from now on nothing of it counts.
    pub fn revoke(&mut self, now: Timestamp) {
        self.revoked.get_or_insert(whole(now));
    }
}

impl Record {
    /// The record of a new secret.
    pub fn new(sha256: Digest, ttl: Option<Duration>, now: Timestamp) -> Self {
        let created = whole(now);
        let expires = ttl.and_then(|ttl| created.checked_add(SignedDuration::try_from(ttl).ok()?).ok());
        Self { sha256, created, expires, confirmed: None }
    }

    /// How long it lives; `None` for ever.
    pub fn ttl(&self) -> Option<Duration> {
        let life = self.expires?.duration_since(self.created);
        Some(Duration::try_from(life).unwrap_or_default())
    }

    /// Whether it ended by this moment.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| now >= expires)
    }
}

impl From<&Claim> for Credential {
    /// What a device that enrols would come with.
    fn from(claim: &Claim) -> Self {
        claim.certificate.map_or(Self::Secret(claim.account), Self::Certificate)
    }
}

impl Credential {
    /// What it is, as people call it.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Secret(_) => "secret",
            Self::Certificate(_) => "certificate",
        }
    }
}

impl AccountName {
    /// The name of a device's account.
    pub fn of(device: &DeviceId) -> Self {
        Self(device.repository_name())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AccountName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"._-".contains(&c);
        let first = text.bytes().next().is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        if first && text.len() <= 200 && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidName(text.chars().take(220).collect()))
        }
    }
}

impl TryFrom<String> for AccountName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<AccountName> for String {
    fn from(name: AccountName) -> Self {
        name.0
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Role {
    /// All of them, the one that may do least first.
    pub const ALL: [Self; 4] = [Self::Device, Self::Site, Self::Auditor, Self::Operator];

    /// As files and the command line write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Site => "site",
            Self::Auditor => "auditor",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn digest(text: &str) -> Digest {
        Digest::of(text.as_bytes())
    }

    fn account() -> Account {
        let device: DeviceId = "press-01".parse().unwrap();
        let mut account = Account::new(AccountName::of(&device), Role::Device, Some(device));
        account.add_secret(digest("a"), Some(TTL), None, at(100));
        account
    }

    fn secrets(account: &Account) -> Vec<Digest> {
        account.secrets.iter().map(|record| record.sha256).collect()
    }

    #[test]
    fn an_old_secret_ends_when_the_new_one_was_used_and_no_earlier() {
        let mut account = account();
        assert!(account.confirm(&digest("a"), at(101)));
        assert!(!account.confirm(&digest("a"), at(102)));
        account.add_secret(digest("b"), Some(TTL), Some(&digest("a")), at(200));
        assert_eq!(secrets(&account), [digest("a"), digest("b")]);
        // The old one still works, and using it drops nothing.
        assert!(!account.confirm(&digest("a"), at(201)));
        // What was lost on its way is replaced.
        account.add_secret(digest("c"), Some(TTL), Some(&digest("a")), at(202));
        assert_eq!(secrets(&account), [digest("a"), digest("c")]);
        assert!(account.confirm(&digest("c"), at(203)));
        assert_eq!(secrets(&account), [digest("c")]);
    }

    #[test]
    fn a_secret_that_was_never_used_ends_with_the_next_one() {
        let mut account = account();
        account.add_secret(digest("b"), None, None, at(200));
        assert_eq!(secrets(&account), [digest("b")]);
        assert_eq!(account.secrets[0].ttl(), None);
    }

    #[test]
    fn a_file_reads_as_it_was_written_and_unknown_keys_are_ignored() {
        let mut account = account();
        account.confirm(&digest("a"), at(101));
        account.revoke(at(300));
        let text = String::from_utf8(account.to_bytes()).unwrap();
        assert_eq!(Account::parse(&account.name, text.as_bytes()).unwrap(), account);
        let more = text.replacen('{', "{\"note\":\"keep\",", 1);
        assert_eq!(Account::parse(&account.name, more.as_bytes()).unwrap(), account);
        let newer = text.replace("\"layout\":1", "\"layout\":3");
        assert!(matches!(Account::parse(&account.name, newer.as_bytes()), Err(Malformed::Layout(3))));
        let other = Account::parse(&"other".parse().unwrap(), text.as_bytes());
        assert!(matches!(other, Err(Malformed::Name(_))));
        let without = text.replace("\"device\":\"press-01\",", "");
        assert!(matches!(Account::parse(&account.name, without.as_bytes()), Err(Malformed::Device)));
    }

    #[test]
    fn bounds_are_an_operators_and_an_older_program_takes_no_account_with_them() {
        let name: AccountName = "olga".parse().unwrap();
        let mut olga = Account::of_operator(name.clone(), vec!["devices/graz".to_owned()]);
        let text = String::from_utf8(olga.to_bytes()).unwrap();
        assert!(text.contains("\"layout\":2") && text.contains("\"paths\":[\"devices/graz\"]"), "{text}");
        assert_eq!(Account::parse(&name, text.as_bytes()).unwrap(), olga);
        for bad in [text.replace("operator", "auditor"), text.replace("\"layout\":2", "\"layout\":1")] {
            assert!(matches!(Account::parse(&name, bad.as_bytes()), Err(Malformed::Paths)), "{bad}");
        }
        olga.bind(Vec::new());
        let text = String::from_utf8(olga.to_bytes()).unwrap();
        assert!(text.contains("\"layout\":1") && !text.contains("paths"), "{text}");
    }

    #[test]
    fn names_are_file_names_everywhere() {
        for good in ["a", "press-01", "0.9_x"] {
            assert_eq!(good.parse::<AccountName>().unwrap().as_str(), good);
        }
        for bad in ["", ".a", "-a", "A", "a/b", "a b", "a:b", "ä", &"a".repeat(201)] {
            bad.parse::<AccountName>().unwrap_err();
        }
    }
}
