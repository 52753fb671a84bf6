//! The SSH keys of devices' accounts follow the fleet: what it lists is let in here, and what it doesn't list ends.

use jiff::Timestamp;
use repo_model::KeyText;
use repo_model::problem::Problem;
use wfm_git_host::accounts::{AccountError, Fate, SshKey, Store};

use super::gone;
use crate::fleet::{Device, Fleet};
use crate::repos::Home;

/// Brings the account of each device of the fleet, where it has one on this host, to the keys of its file. An SSH key ends
/// with the status key that it came with, also while the file lists it: whoever has the old disk isn't let in. Warns of
/// such keys, and of accounts that can't be changed. A device whose file can't be read keeps its keys, and so does an
/// account whose keys an operator gave it.
pub(super) fn follow(home: &Home, fleet: &Fleet, now: Timestamp) -> Vec<Problem> {
    let store = Store::new(home.accounts());
    let problems = fleet.devices.values().flat_map(|device| {
        bring(&store, home, device, now).unwrap_or_else(|error| {
            let text = format!("its SSH keys on this host aren't those of `{}`: {error}", device.file);
            vec![Problem::error(format!("device `{}`", device.id), text).warning()]
        })
    });
    problems.collect()
}

/// Gives what a person has to be told.
fn bring(store: &Store, home: &Home, device: &Device, now: Timestamp) -> Result<Vec<Problem>, AccountError> {
    let Some(name) = gone::account(home, &device.id)? else { return Ok(Vec::new()) };
    for ended in store.judge_ssh_keys(&name, now, |key| fate(device, key))? {
        tracing::info!(device = %device.id, key = ended.fingerprint(), "an SSH key of the device ends");
    }
    let Some(status) = device.status_keys.first() else { return Ok(Vec::new()) };
    let known = store.read(&name)?.map(|account| account.ssh_keys).unwrap_or_default();
    let find = |key: &KeyText| known.iter().find(|known| known.key == *key);
    let mut problems = Vec::new();
    for key in &device.ssh_keys {
        match find(key) {
            Some(known) if known.ended.is_some() => problems.push(of_another_status_key(device, known)),
            Some(_) => {}
            None => {
                // One that isn't of a kind that sshd shows could let nobody in.
                let Ok(key) = SshKey::new(key.clone(), Some(status.clone()), now) else { continue };
                tracing::info!(device = %device.id, key = key.fingerprint(), "the device has an SSH key");
                store.add_ssh_key(&name, key)?;
            }
        }
    }
    Ok(problems)
}

fn fate(device: &Device, key: &SshKey) -> Fate {
    match &key.enrolled_with {
        Some(_) if !device.ssh_keys.contains(&key.key) => Fate::Goes,
        Some(status) if !device.status_keys.contains(status) => Fate::Ends,
        _ => Fate::Counts,
    }
}

fn of_another_status_key(device: &Device, key: &SshKey) -> Problem {
    let text = format!(
        "the SSH key {} came with a status key that isn't listed any more, and lets nobody in",
        key.fingerprint()
    );
    let hint = format!(
        "take it out of `sshKeys`; or, if the device still has it, enrol both keys that it prints: \
         wfm-git-publisher device enroll {} -",
        device.id
    );
    Problem::error(&device.file, text).hint(hint).warning()
}
