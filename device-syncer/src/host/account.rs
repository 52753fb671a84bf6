//! The device's account on the host: its secret, and the renewal of it without a gap.
//!
//! `account.json` holds the secret in use and, during a renewal, the next one. Each step is one durable replacement of the
//! file: a renewed secret is kept beside the one in use, then shown to the host, and only when the host took it does it
//! become the one in use. The one before is kept as well, for a host that was restored from an old backup. Whatever is
//! cut off between two steps, the host knows at least one of the secrets that are in the file, or the one that came with a new key. Where it knows none, because
//! they ended or it lost them, the device comes back by its key (`known`).

mod away;
mod known;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_git::durable;
use repo_http::{
    Agent, Credential, CredentialError, Credentials, HttpError, Request, SettingsError, Url, read_private,
};
use repo_model::{DeviceId, error_chain, join};
use serde::{Deserialize, Serialize};

use crate::config::Home;
use crate::host::enrolment::ExchangeError;
use crate::state::random;

pub use away::Away;

/// How long nothing is tried again after a renewal that failed.
const PAUSE: Duration = Duration::from_secs(600);

/// How long nothing is renewed again after a renewal, whatever the clock says then.
const RENEWAL_PAUSE: Duration = Duration::from_secs(3600);

/// The longest answer of the host about an account, in bytes.
const MAX_ANSWER: u64 = 64 << 10;

/// `account.json` of the home: the secret that counts, the one that comes, and the one before.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    current: Secret,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<Secret>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Secret {
    user: String,
    secret: String,
    /// When it came, by the join file or a renewal: its life counts from here.
    since: Timestamp,
    /// When it ends; absent if that isn't known, or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
}

impl Secret {
    fn credential(&self) -> Credential {
        Credential::Basic { user: self.user.clone(), secret: self.secret.clone() }
    }

    /// A third of its life is left, or less.
    fn is_due(&self, now: Timestamp) -> bool {
        let Some(expires) = self.expires else { return false };
        let (life, left) = (expires.duration_since(self.since), expires.duration_since(now));
        left.as_secs() < life.as_secs() / 3
    }
}

/// The account can't be kept or renewed. What was kept before still counts.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// `account.json` can't be read, or is open to others.
    #[error("can't read the account")]
    Read(#[from] CredentialError),
    /// The file isn't what this program writes. What is wrong isn't said, because that could repeat a secret.
    #[error("`{}` is not an account", path.display())]
    Damaged { path: PathBuf },
    #[error("can't write `{}`", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The host doesn't answer as it should.
    #[error(transparent)]
    Host(#[from] HttpError),
    /// The host's clock must be wrong.
    #[error("the host's new secret ends at {new}, not after the one in use: the host's clock is wrong")]
    Earlier {
        /// `expires` of the new secret.
        new: Timestamp,
    },
    /// The host doesn't let the device in by its key.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The device's key can't be read.
    #[error(transparent)]
    Key(#[from] repo_git::KeyError),
    /// The certificate can't be used.
    #[error(transparent)]
    Certificate(#[from] SettingsError),
    /// The host lets the device in by a secret instead.
    #[error("the host takes no certificates: it is too old for that")]
    NoCertificates,
    /// There is no new secret.
    #[error("can't read `{}`", random::SOURCE)]
    Random(#[source] io::Error),
    /// The answer is no JSON of ours, or has no new secret where one was asked for.
    #[error("the host's answer about the account can't be understood")]
    Answer,
}

fn read(path: &Path) -> Result<Kept, AccountError> {
    // What serde would say may repeat a secret.
    serde_json::from_slice(&read_private(path)?).map_err(|_| AccountError::Damaged { path: path.to_owned() })
}

fn write(path: &Path, kept: &Kept) -> Result<(), AccountError> {
    let bytes = repo_model::json::to_bytes(kept);
    durable::replace_file(path, &bytes, 0o600).map_err(|source| AccountError::Write { path: path.to_owned(), source })
}

/// Keeps the account of a join file. `before` is that of the one before: the same again changes nothing, because the
/// secret may have been renewed since.
pub fn join(
    path: &Path,
    account: Option<&join::Account>,
    before: Option<&join::Account>,
    now: Timestamp,
) -> Result<(), AccountError> {
    let Some(account) = account.filter(|account| Some(*account) != before || !path.exists()) else { return Ok(()) };
    let join::Account { user, secret } = account.clone();
    write(path, &Kept { current: Secret { user, secret, since: now, expires: None }, next: None, previous: None })
}

/// Who the file says asks, read again each time.
pub fn credentials(path: &Path) -> Credentials {
    let path = path.to_owned();
    Credentials::of(move || match read(&path) {
        Ok(kept) => Ok(kept.current.credential()),
        Err(AccountError::Read(error)) => Err(error),
        Err(_) => Err(CredentialError::Unusable(format!("`{}`", path.display()))),
    })
}

/// When the secret in use ends, as far as the host said.
pub fn expires(path: &Path) -> Result<Option<Timestamp>, AccountError> {
    read(path).map(|kept| kept.current.expires)
}

/// Keeps the account's secret valid.
#[derive(Debug)]
pub struct Keeper {
    home: Home,
    path: PathBuf,
    agent: Agent,
    url: Url,
    /// No renewal is tried before: [`PAUSE`] after one that failed, [`RENEWAL_PAUSE`] after one that went well.
    quiet_until: Option<Instant>,
    /// The host said that the secret in use never ends, or since when it was asked.
    asked: bool,
    /// Whose account it is, and where the key is that the device's state lists.
    device: DeviceId,
    key: PathBuf,
    away: Away,
}

/// What `GET /account` and `POST /account/renew` answer, as far as it matters.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    secret: Option<String>,
    #[serde(default)]
    expires: Option<Timestamp>,
}

impl Keeper {
    /// For the account of this home, which is that device's, at the host of `repository`.
    pub fn new(home: &Home, agent: Agent, repository: &Url, device: DeviceId) -> Self {
        let (path, key, url) = (home.account(), home.key(), repository.at_host("account"));
        let (home, quiet_until, away) = (home.clone(), None, Away::default());
        Self { home, path, agent, url, quiet_until, asked: false, device, key, away }
    }

    /// What asks the host, and where its enrolments are.
    pub fn enrolments(&self) -> (&Agent, Url) {
        (&self.agent, self.url.at_host("enroll"))
    }

    /// Shows the next secret, if there is one, to the host: a renewal that was cut off goes on.
    pub fn prove(&mut self) {
        if let Err(error) = read(&self.path).and_then(|kept| self.prove_next(kept)) {
            tracing::debug!(error = error_chain(&error), "the next secret isn't proven yet");
        }
    }

    /// The host refused the secret in use. Returns whether it takes the one before: then it was restored from a backup
    /// of that time, and that one is in use again.
    pub fn fall_back(&mut self) -> bool {
        let Ok(Kept { current, previous: Some(previous), .. }) = read(&self.path) else { return false };
        let Ok(answer) = self.show(&previous) else { return false };
        tracing::warn!("the host knows the secret before the one in use; going on with that");
        let previous = Secret { expires: answer.expires.or(previous.expires), ..previous };
        let kept = Kept { current: previous, next: Some(current), previous: None };
        self.asked = true;
        write(&self.path, &kept)
            .inspect_err(|error| tracing::warn!(error = error_chain(error), "can't keep it"))
            .is_ok()
    }

    /// Renews the secret in use when a third of its life is left. For hosts that have accounts of our kind.
    pub fn renew_if_due(&mut self, now: Timestamp) {
        if self.quiet_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        match self.try_renew(now) {
            Ok(renewed) => self.quiet_until = renewed.then(|| Instant::now() + RENEWAL_PAUSE),
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "the account's secret can't be renewed now");
                self.quiet_until = Some(Instant::now() + PAUSE);
            }
        }
    }

    /// Whether there is a new one.
    fn try_renew(&mut self, now: Timestamp) -> Result<bool, AccountError> {
        let mut kept = read(&self.path)?;
        if kept.current.expires.is_none() && !self.asked {
            kept.current.expires = self.show(&kept.current)?.expires;
            self.asked = true;
            if kept.current.expires.is_some() {
                write(&self.path, &kept)?;
            }
        }
        if !kept.current.is_due(now) {
            return Ok(false);
        }
        let credential = kept.current.credential();
        let url = self.url.below("renew");
        let request =
            Request { credential: &credential, expects: Some("application/json"), ..Request::post(&url, b"") };
        let Answer { user, secret, expires } = self.ask(&request)?;
        let secret = secret.ok_or(AccountError::Answer)?;
        // Once the host's clock is right again, this one would be over, and the one in use would be gone with its first use.
        if let Some(new) = expires.filter(|new| kept.current.expires.is_some_and(|known| *new <= known)) {
            return Err(AccountError::Earlier { new });
        }
        let user = user.unwrap_or_else(|| kept.current.user.clone());
        kept.next = Some(Secret { user, secret, since: now, expires });
        write(&self.path, &kept)?;
        self.prove_next(kept).map(|()| true)
    }

    /// The next secret becomes the one in use if the host takes it, and is forgotten if the host doesn't know it.
    fn prove_next(&mut self, kept: Kept) -> Result<(), AccountError> {
        let Some(next) = kept.next.clone() else { return Ok(()) };
        let kept = match self.show(&next) {
            Ok(_) => {
                tracing::info!(expires = ?next.expires, "the account has a new secret");
                Kept { current: next, next: None, previous: Some(kept.current) }
            }
            Err(AccountError::Host(error)) if error.status() == Some(401) => {
                tracing::warn!("the host doesn't know the renewed secret; the one in use stays");
                Kept { next: None, ..kept }
            }
            Err(error) => return Err(error),
        };
        write(&self.path, &kept)
    }

    fn show(&self, secret: &Secret) -> Result<Answer, AccountError> {
        let credential = secret.credential();
        self.ask(&Request { credential: &credential, expects: Some("application/json"), ..Request::get(&self.url) })
    }

    fn ask(&self, request: &Request<'_>) -> Result<Answer, AccountError> {
        let bytes = self.agent.send(request)?.body.bytes(MAX_ANSWER)?;
        serde_json::from_slice(&bytes).map_err(|_| AccountError::Answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_secret_is_due_when_a_third_of_its_life_is_left() {
        let mut secret = Secret {
            user: "u".to_owned(),
            secret: "s".to_owned(),
            since: at("2026-01-01T00:00:00Z"),
            expires: Some(at("2026-04-01T00:00:00Z")),
        };
        assert!(!secret.is_due(at("2026-03-01T23:00:00Z")) && secret.is_due(at("2026-03-02T01:00:00Z")));
        assert!(secret.is_due(at("2027-01-01T00:00:00Z")));
        // With a clock that stands still, nothing is renewed again and again.
        secret.since = Timestamp::UNIX_EPOCH;
        assert!(!secret.is_due(Timestamp::UNIX_EPOCH));
        secret.expires = None;
        assert!(!secret.is_due(at("2027-01-01T00:00:00Z")));
    }

    #[test]
    fn joining_again_with_the_same_file_keeps_a_renewed_secret() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("account.json");
        let account = |secret: &str| join::Account { user: "u".to_owned(), secret: secret.to_owned() };
        let (old, new) = (account("first"), account("second"));
        let now = at("2026-01-01T00:00:00Z");
        let secret = || match credentials(&path).get().unwrap() {
            Credential::Basic { secret, .. } => secret,
            _ => panic!("basic"),
        };
        join(&path, Some(&old), None, now).unwrap();
        let mut kept = read(&path).unwrap();
        kept.current.secret = "renewed".to_owned();
        write(&path, &kept).unwrap();
        join(&path, Some(&old), Some(&old), now).unwrap();
        assert_eq!(secret(), "renewed");
        join(&path, Some(&new), Some(&old), now).unwrap();
        assert_eq!(secret(), "second");
    }
}
