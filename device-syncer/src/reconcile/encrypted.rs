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
use crate::decision::device_state::DeviceState;
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

/// Whatever may need its values: what is wanted, and what ran well before and may be put back.
pub fn deployments<'a>(
    desired: Option<&'a Desired>,
    device_state: &'a DeviceState,
) -> impl Iterator<Item = &'a EnvelopeDeployment> {
    let wanted = desired.into_iter().flat_map(|desired| desired.envelope.deployments.values());
    wanted.chain(device_state.good_sets.values().map(|good| &good.inputs.envelope))
}

/// Removes the key before the device's own, unless a value of one of these is encrypted to it.
pub fn forget_old_key<'a>(home: &Home, mut deployments: impl Iterator<Item = &'a EnvelopeDeployment>) {
    let path = home.old_key();
    if !path.exists() {
        return;
    }
    let Some(old) = load(&path) else { return };
    let is_needed = |from: &ValueFrom| {
        let file = from.encrypted().and_then(|armor| AgeFile::parse(armor).ok());
        file.is_some_and(|file| file.is_for(&old.public()))
    };
    if deployments.any(|one| one.values_from.values().any(is_needed)) {
        return;
    }
    match durable::remove_file(&path) {
        Ok(_) => tracing::info!("the key before this device's own is gone: nothing is encrypted to it any more"),
        Err(error) => tracing::warn!(error = error_chain(&error), "can't remove the key before this device's own"),
    }
}

#[cfg(test)]
mod tests {
    use repo_git::age;
    use repo_model::Digest;

    use super::*;
    use crate::decision::sets::{GoodInputs, GoodSet};

    #[test]
    fn the_key_before_stays_for_what_may_be_put_back() {
        let (dir, old) = (tempfile::tempdir().unwrap(), SigningKey::from_seed(&[1; 32]));
        let home = Home::new(dir.path());
        old.save(&home.old_key()).unwrap();
        let armor = age::encrypt(&[old.public()], b"a value").unwrap();
        let envelope = serde_json::json!({"id": "a", "valuesFrom": {"password": {"encrypted": armor, "targets": []}}});
        let inputs = GoodInputs {
            set: Digest::of(b"a set"),
            envelope: serde_json::from_value(envelope).unwrap(),
            images: Default::default(),
            inputs: Default::default(),
        };
        let mut device_state = DeviceState::default();
        let good = GoodSet { document: Vec::new(), inputs };
        device_state.good_sets.insert(crate::testing::id("a"), good);
        forget_old_key(&home, deployments(None, &device_state));
        assert!(home.old_key().exists());
        device_state.good_sets.clear();
        forget_old_key(&home, deployments(None, &device_state));
        assert!(!home.old_key().exists());
    }
}
