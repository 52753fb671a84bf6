//! A device that comes back by its key: its account ended while it was away, or the host lost it.

use jiff::Timestamp;
use repo_git::SigningKey;
use repo_model::enrolment::{Claim, Nonce};
use repo_model::{Digest, error_chain};

use super::{AccountError, Keeper, Kept, Secret, read, write};
use crate::host::enrolment::readmit;
use crate::host::verify::key_text;
use crate::state::{random, rekey};

impl Keeper {
    /// The host knows none of the secrets. Returns whether it lets this device in by its key: then there is a new secret in use.
    pub fn come_back(&mut self, now: Timestamp) -> bool {
        self.away.is_over() && {
            let result = self.try_come_back(now);
            self.away.note(&result)
        }
    }

    /// The host knows none of the secrets, and this device asked for a new key. Returns whether a person let it have that: then the
    /// secret that came with it is the one in use.
    pub fn follow_rekey(&mut self, now: Timestamp) -> bool {
        let Some(asked) = rekey::read(&self.home) else { return false };
        let Ok(kept) = read(&self.path) else { return false };
        let (user, secret) = (kept.current.user.clone(), asked.secret);
        let next = Secret { user, secret, since: now, expires: None };
        let Ok(answer) = self.show(&next) else { return false };
        tracing::info!("the host knows the secret that came with the new key; going on with that");
        let current = Secret { expires: answer.expires, ..next };
        self.asked = true;
        write(&self.path, &Kept { current, next: None, previous: Some(kept.current) })
            .inspect_err(|error| tracing::warn!(error = error_chain(error), "can't keep it"))
            .is_ok()
    }

    /// The new secret is on the disk before it is asked for: after a power cut the host knows it, or is asked again.
    fn try_come_back(&mut self, now: Timestamp) -> Result<(), AccountError> {
        let (key, mut kept) = (SigningKey::load(&self.key)?, read(&self.path)?);
        let secret = random::text().map_err(AccountError::Random)?;
        let account = Digest::of(secret.as_bytes());
        let claim = Claim::new(key_text(&key.public()), account, env!("CARGO_PKG_VERSION"));
        let claim = Claim { id: Some(self.device.clone()), ..claim };
        let next = Secret { user: kept.current.user.clone(), secret, since: now, expires: None };
        kept.next = Some(next.clone());
        write(&self.path, &kept)?;
        let nonce = Nonce::new(random::random().map_err(AccountError::Random)?);
        let answer = readmit(&self.agent, &self.url.at_host("enroll"), &key, &claim, nonce)?;
        tracing::info!("the host lets this device in again, by its key");
        kept.next = Some(Secret { user: answer.user, ..next });
        // When it ends isn't known yet.
        self.asked = false;
        self.prove_next(kept)
    }
}
