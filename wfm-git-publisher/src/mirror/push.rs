//! What is published here, on its way to the other host.

use repo_git::{PushResult, PushUpdate};
use repo_model::{Branch, DeviceId};

use super::{Mirror, MirrorError, Mirrored, RemoteRefs};
use crate::repos::{DESIRED, DeviceRepo};

pub(super) fn push(mirror: &Mirror<'_>, device: &DeviceId, seen: &RemoteRefs) -> Result<Mirrored, MirrorError> {
    let pushed = push_branches(mirror, device, seen)?;
    // Publishing needn't wait for it, and a person is told.
    seen.unprovisioned.clone().map_or(Ok(pushed), |error| Err(MirrorError::Provision(error)))
}

fn push_branches(mirror: &Mirror<'_>, device: &DeviceId, seen: &RemoteRefs) -> Result<Mirrored, MirrorError> {
    let Some(repo) = DeviceRepo::open(mirror.home, mirror.rosters.fleet(), device)? else {
        return Ok(Mirrored::Unchanged);
    };
    // Nobody consolidates the objects away meanwhile.
    let _lock = repo.lock()?;
    let updates = updates(&repo, seen)?;
    if updates.is_empty() {
        return Ok(Mirrored::Unchanged);
    }
    let url = mirror.remotes.url(device);
    let remote = mirror.remotes.repo(device).and_then(|remote| repo.push(&remote, &updates));
    let results = remote.map_err(|source| MirrorError::Remote { url: url.clone(), source })?;
    for (update, result) in updates.iter().zip(results) {
        let branch = update.branch.clone();
        match result {
            PushResult::Done => {}
            PushResult::Stale { text } => return Err(MirrorError::Raced { url, text: format!("{branch}: {text}") }),
            PushResult::Refused { text } => return Err(MirrorError::Refused { url, branch, text }),
        }
    }
    Ok(Mirrored::Pushed(updates.len()))
}

/// The branches that stand elsewhere at the host than here, in the order in which they are moved here.
fn updates(repo: &DeviceRepo, seen: &RemoteRefs) -> Result<Vec<PushUpdate>, MirrorError> {
    let mut updates = Vec::new();
    for branch in [Branch::Bundle.as_str(), DESIRED, Branch::Freshness.as_str()] {
        let expected = seen.branches.get(branch).copied();
        match repo.tip(branch)? {
            Some(new) if expected != Some(new) => {
                let force = branch != DESIRED || seen.reclaim;
                updates.push(PushUpdate { branch: branch.to_owned(), expected, new, force });
            }
            _ => {}
        }
    }

    Ok(updates)
}
