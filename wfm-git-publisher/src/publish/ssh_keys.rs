//! The SSH keys of devices' accounts follow the fleet: what it lists is let in here, and what it doesn't list ends.

use jiff::Timestamp;
use repo_model::problem::Problem;
use wfm_git_host::accounts::{AccountError, SshKey, Store};

use super::gone;
use crate::fleet::{Device, Fleet};
use crate::repos::Home;

/// Brings the account of each device of the fleet, where it has one on this host, to the keys of its file; a device without a
/// status key has none. Warns of those that can't be changed. A device whose file can't be read keeps its
/// keys, and so does an account whose keys an operator gave it.
pub(super) fn follow(home: &Home, fleet: &Fleet, now: Timestamp) -> Vec<Problem> {
    let store = Store::new(home.accounts());
    let failed = fleet.devices.values().filter_map(|device| {
        let error = bring(&store, home, device, now).err()?;
        let text = format!("its SSH keys on this host aren't those of `{}`: {error}", device.file);
        Some(Problem::error(format!("device `{}`", device.id), text).warning())
    });
    failed.collect()
}

fn bring(store: &Store, home: &Home, device: &Device, now: Timestamp) -> Result<(), AccountError> {
    let Some(name) = gone::account(home, &device.id)? else { return Ok(()) };
    let counts = |key: &SshKey| match &key.enrolled_with {
        Some(status) => device.status_keys.contains(status) && device.ssh_keys.contains(&key.key),
        None => true,
    };
    for ended in store.retain_ssh_keys(&name, counts)? {
        tracing::info!(device = %device.id, key = ended.fingerprint(), "an SSH key of the device ends");
    }
    let Some(status) = device.status_keys.first() else { return Ok(()) };
    let known = store.read(&name)?.map(|account| account.ssh_keys).unwrap_or_default();
    for key in device.ssh_keys.iter().filter(|key| known.iter().all(|known| known.key != **key)) {
        // One that isn't of a kind that sshd shows could let nobody in.
        let Ok(key) = SshKey::new(key.clone(), Some(status.clone()), now) else { continue };
        tracing::info!(device = %device.id, key = key.fingerprint(), "the device has an SSH key");
        store.add_ssh_key(&name, key)?;
    }
    Ok(())
}
