//! Values that are encrypted to the device's key: age files in the accepted state. They are decrypted in memory, each time that
//! they are needed.

use std::path::Path;

use repo_git::age::AgeFile;
use repo_git::{SigningKey, durable};
use repo_model::desired::Desired;
use repo_model::envelope::{EnvelopeDeployment, ValueFrom};
use repo_model::{ErrorCode, error_chain};

use super::device_files;
use crate::config::Home;
use crate::decision::failure::Failure;

/// The keys that may decrypt: the device's own, the one that is to take its place, and the one before.
#[derive(Debug)]
pub struct Keys(Vec<SigningKey>);

impl Keys {
    /// Reads them; one that can't be used decrypts nothing.
    pub fn read(home: &Home) -> Self {
        let there = [home.key(), home.next_key(), home.old_key()].into_iter().filter(|path| path.exists());
        Self(there.filter_map(|path| load(&path)).collect())
    }

    /// What an age file holds: UTF-8, one final newline removed. Failures never name it.
    pub fn decrypt(&self, armor: &str) -> Result<String, Failure> {
        let unreadable = |problem: String| Failure::new(ErrorCode::SecretUnreadable, problem);
        let file = AgeFile::parse(armor).map_err(|error| unreadable(error.to_string()))?;
        let Some(key) = self.0.iter().find(|key| file.is_for(&key.public())) else {
            let problem = "it isn't encrypted to this device's key: who operates the fleet has to give it again";
            return Err(unreadable(problem.to_owned()));
        };
        let clear = file.decrypt(key).map_err(|error| unreadable(error.to_string()))?;
        device_files::value(clear.to_vec()).map_err(|problem| unreadable(problem.to_owned()))
    }

    /// Every value that can be decrypted of what these deployments have.
    pub fn values<'a>(&self, deployments: impl IntoIterator<Item = &'a EnvelopeDeployment>) -> Vec<String> {
        let encrypted =
            deployments.into_iter().flat_map(|one| one.values_from.values().filter_map(ValueFrom::encrypted));
        encrypted.filter_map(|armor| self.decrypt(armor).ok()).collect()
    }
}

fn load(path: &Path) -> Option<SigningKey> {
    let key = SigningKey::load(path).inspect_err(|error| {
        tracing::warn!(path = %path.display(), error = error_chain(error), "a key can't be used to decrypt");
    });
    key.ok()
}

/// Removes the key before the device's own, unless a value of this state is encrypted to it.
pub fn forget_old_key(home: &Home, desired: &Desired) {
    let path = home.old_key();
    if !path.exists() {
        return;
    }
    let Some(old) = load(&path) else { return };
    let mut encrypted = desired.envelope.deployments.values().flat_map(|one| one.values_from.values());
    let is_needed = |from: &ValueFrom| {
        let file = from.encrypted().and_then(|armor| AgeFile::parse(armor).ok());
        file.is_some_and(|file| file.is_for(&old.public()))
    };
    if encrypted.any(is_needed) {
        return;
    }
    match durable::remove_file(&path) {
        Ok(_) => tracing::info!("the key before this device's own is gone: nothing is encrypted to it any more"),
        Err(error) => tracing::warn!(error = error_chain(&error), "can't remove the key before this device's own"),
    }
}
