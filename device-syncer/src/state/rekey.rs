//! A new key that shall take the place of this device's: asked for, and kept beside the old one until a state that is accepted lists
//! it.
//!
//! `status.key.next` is there from before the first request until it becomes `status.key` by one rename. Which of the two signs is
//! never guessed: it is the next one once the accepted state lists that, and else the old one. So whenever the power is cut, the
//! device has the key by which it is known.

use std::io;

use repo_git::{Cause, KeyError, SigningKey, durable};
use repo_model::desired::Desired;
use repo_model::envelope::LAYOUT;
use repo_model::{KeyText, error_chain};
use serde::{Deserialize, Serialize};

use super::json_file::{self, FileError};
use super::{installation, random};
use crate::config::Home;

/// `rekey.json`: how far a device came that asked for a new key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rekey {
    pub layout: u64,
    /// The secret of its account that comes with the new key. Only its digest is ever sent.
    pub secret: String,
    /// The host's name for the request that was revealed, or was about to be when the power was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

impl std::fmt::Debug for Rekey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rekey").field("request", &self.request).finish_non_exhaustive()
    }
}

/// A new key can't be made, kept or used.
#[derive(Debug, thiserror::Error)]
pub enum RekeyError {
    #[error("the device's new key can't be used")]
    Key(#[source] Cause),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("can't read `{}`", random::SOURCE)]
    Random(#[source] io::Error),
    #[error("can't put the device's new key in the place of the old one")]
    Settle(#[source] io::Error),
}

impl From<KeyError> for RekeyError {
    fn from(error: KeyError) -> Self {
        Self::Key(error.into())
    }
}

/// How far it came; `None` if nothing was asked, or the file isn't what this program writes: then it is asked anew.
pub fn read(home: &Home) -> Option<Rekey> {
    json_file::read_or_log(&home.rekey(), "what was asked of a new key can't be read; `device-syncer rekey` asks anew")
}

/// Keeps how far it came, in one step that outlives a power cut.
pub fn write(home: &Home, rekey: &Rekey) -> Result<(), FileError> {
    json_file::write(&home.rekey(), rekey)
}

/// Makes what isn't there yet of a new key and its secret, on the disk before it returns.
pub fn begin(home: &Home) -> Result<(Rekey, SigningKey), RekeyError> {
    let _lock = json_file::lock(home)?;
    let path = home.next_key();
    if !path.exists() {
        SigningKey::generate().save(&path)?;
    }
    let next = SigningKey::load(&path)?;
    if let Some(kept) = read(home) {
        return Ok((kept, next));
    }
    let secret = random::text().map_err(RekeyError::Random)?;
    let made = Rekey { layout: LAYOUT, secret, request: None };
    write(home, &made)?;
    Ok((made, next))
}

/// Nothing is asked for any more: a person said no, or the host did. The key stays, because nobody knows whether another request with
/// it was approved.
pub fn end_request(home: &Home) -> Result<(), RekeyError> {
    let _lock = json_file::lock(home)?;
    if let Some(asked) = read(home) {
        write(home, &Rekey { request: None, ..asked })?;
    }
    Ok(())
}

/// The new key, where this state lists it. One that can't be read is none.
pub fn listed(home: &Home, desired: &Desired) -> Option<(SigningKey, KeyText)> {
    let path = home.next_key();
    if !path.exists() {
        return None;
    }
    let next = SigningKey::load(&path).inspect_err(|error| {
        tracing::warn!(error = error_chain(error), "the device's new key can't be used");
    });
    let next = next.ok()?;
    let text = next.public().to_string().parse().ok()?;
    desired.envelope.device.status_keys.contains(&text).then_some((next, text))
}

/// Puts the new key in the place of the old one, which signs nothing any more, and stays beside it until no value is encrypted to
/// it; only once the accepted state lists the new one. The installation stays the one that it is. The same again completes what
/// was cut off.
pub fn settle(home: &Home) -> Result<(), RekeyError> {
    let _lock = json_file::lock(home)?;
    if home.next_key().exists() {
        installation::follow(home)?;
        settle_ssh(home).map_err(RekeyError::Settle)?;
        settle_certificate(home).map_err(RekeyError::Settle)?;
        // Values that are encrypted to it are decrypted with it until they are encrypted to the new one.
        SigningKey::load(&home.key())?.save(&home.old_key())?;
        durable::rename(&home.next_key(), &home.key()).map_err(RekeyError::Settle)?;
        tracing::info!("the device's new key has taken the place of the old one");
    }
    durable::remove_file(&home.rekey()).map_err(RekeyError::Settle)?;
    Ok(())
}

/// Removes what is left of a new key that took the place of the old one already.
pub fn tidy(home: &Home) -> Result<(), RekeyError> {
    if !home.rekey().exists() {
        return Ok(());
    }
    let _lock = json_file::lock(home)?;
    if !home.next_key().exists() {
        durable::remove_file(&home.rekey()).map_err(RekeyError::Settle)?;
    }
    Ok(())
}

/// The key for the host that came with it is the first that is offered from now on. The one before stays behind it: a host that isn't
/// the publisher's may know that one only.
fn settle_ssh(home: &Home) -> io::Result<()> {
    let (own, next) = (home.ssh_key(), home.next_ssh_key());
    if !next.exists() {
        return Ok(());
    }
    if own.exists() {
        durable::replace_file(&home.old_ssh_key(), &std::fs::read(&own)?, 0o600)?;
    }
    durable::rename(&next, &own)
}

/// The certificate that came with it is the one that the host knows: who approved the key let that in first.
fn settle_certificate(home: &Home) -> io::Result<()> {
    let next = home.next_certificate();
    if next.exists() { durable::rename(&next, &home.certificate()) } else { Ok(()) }
}
