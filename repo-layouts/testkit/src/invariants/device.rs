//! What a device's home must show, and what its runtime was told.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{World, history, whole};
use crate::git::{git, show, tip, try_git};

/// Invariants 3, 4, 6 and 7 over a device's home.
pub(super) fn check(home: &Path, world: &World<'_>, broken: &mut Vec<String>) {
    let clone = home.join("repository.git");
    whole(&clone, "the clone", broken);
    if !clone.join("HEAD").exists() {
        return;
    }
    let state = try_git(&clone, &["rev-parse", "-q", "--verify", "refs/syncer/state"]);
    if !state.status.success() {
        return;
    }
    let accepted: Option<Value> =
        show(&clone, "refs/syncer/state", "accepted.json").and_then(|bytes| serde_json::from_slice(&bytes).ok());
    floor(home, accepted.as_ref(), broken);
    parents(&clone, accepted.as_ref(), broken);
    if let Some(runtime) = world.runtime {
        effects(runtime, world, broken);
    }
    if world.converged {
        told(&clone, accepted.as_ref(), broken);
        at_host(&clone, world, broken);
        values(home, broken);
    }
}

/// 4: the floor is never below what is accepted.
fn floor(home: &Path, accepted: Option<&Value>, broken: &mut Vec<String>) {
    let bytes = fs::read(home.join("floor")).unwrap_or_default();
    let serials = bytes.chunks(4096).filter_map(|slot| {
        let json = slot.split(|byte| *byte == b'\n').nth(1)?;
        serde_json::from_slice::<Value>(json).ok()?["serial"].as_u64()
    });
    let floor = serials.max();
    let serial = accepted.and_then(|accepted| accepted["serial"].as_u64()).unwrap_or(0);
    if floor.is_none_or(|floor| floor < serial) {
        broken.push(format!("4: the floor is {floor:?}, and serial {serial} is accepted"));
    }
}

/// 4: the state's parents keep what it needs.
fn parents(clone: &Path, accepted: Option<&Value>, broken: &mut Vec<String>) {
    let parents = git(clone, &["log", "-1", "--format=%P", "refs/syncer/state"]);
    let parents: Vec<_> = parents.split_whitespace().collect();
    let commit = accepted.and_then(|accepted| accepted["commit"].as_str());
    if commit.is_some() && parents.first().copied() != commit {
        broken.push(format!("4: the accepted commit {commit:?} isn't a parent of the state: {parents:?}"));
    }
}

/// 7: nothing runs that no published state asked for.
fn effects(runtime: &Path, world: &World<'_>, broken: &mut Vec<String>) {
    let Some(host) = world.host else { return };
    let known = history::published(host);
    let state: Value =
        fs::read(runtime.join("state.json")).ok().and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default();
    for (id, container) in state["containers"].as_object().into_iter().flatten() {
        let label = container["labels"]["device-syncer.deployment"].as_str();
        if label.is_some_and(|label| !known.contains(label)) {
            broken.push(format!("7: container {id} belongs to {label:?}, which was never published"));
        }
    }
}

/// 6: every deployment of the accepted state has its word on `status`, with one entry for each component.
fn told(clone: &Path, accepted: Option<&Value>, broken: &mut Vec<String>) {
    let Some(commit) = accepted.and_then(|accepted| accepted["commit"].as_str()) else { return };
    let names = git(clone, &["ls-tree", "-r", "--name-only", commit]);
    for id in names.lines().filter_map(|path| path.strip_prefix("deployments/")?.strip_suffix(".yaml")) {
        let document = show(clone, "refs/heads/status", &format!("deployments/{id}.json"));
        let document: Value = document.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        if document["components"].as_array().is_none_or(Vec::is_empty) {
            broken.push(format!("6: deployment {id} has no word on `status`"));
        }
    }
}

/// 3: once converged, the host knows everything that the device has to say.
fn at_host(clone: &Path, world: &World<'_>, broken: &mut Vec<String>) {
    let Some(host) = world.host else { return };
    let (ours, theirs) = (tip(clone, "status"), tip(host, "status"));
    if ours != theirs {
        broken.push(format!("3: `status` is {ours:?} on the device and {theirs:?} on the host"));
    }
}

/// 3: what helm was given to read is gone once it has read it.
fn values(home: &Path, broken: &mut Vec<String>) {
    let left: Vec<_> = fs::read_dir(home.join("helm-values")).into_iter().flatten().flatten().collect();
    if !left.is_empty() {
        broken.push(format!("3: values of releases are left: {left:?}"));
    }
}
