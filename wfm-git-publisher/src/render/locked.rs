//! What components are locked to: by what is known in the whole fleet, and by what a device already has.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::ComponentName;
use repo_model::desired::Desired;
use repo_model::envelope::{ComponentLock, Lock};
use repo_model::margo::{Component, ProfileType};

use super::artifacts::{Artifact, Locks};
use super::images::Named;

/// The locks with those added that a device already has, for where the ledger was lost.
pub fn with_published(mut locks: Locks, desired: &Desired) -> Locks {
    for (id, document) in &desired.deployments {
        let Some(envelope) = desired.envelope.deployments.get(id) else { continue };
        for component in &document.deployment.components {
            let Some(known) = envelope.locks.get(&component.name) else { continue };
            locks.entry(Artifact::of(document.deployment.profile_type, component)).or_insert(known.lock);
            for (name, digest) in &known.images {
                let lock = Lock { manifest: *digest, content: *digest };
                locks.entry(Artifact::image(known.lock.content, name)).or_insert(lock);
            }
        }
    }
    locks
}

/// The locks of a profile's components, and what has none yet.
pub(super) fn lock(
    profile: ProfileType,
    components: &[Component],
    locks: &Locks,
    names: &Named<'_>,
) -> (BTreeMap<ComponentName, ComponentLock>, BTreeSet<Artifact>) {
    let (mut locked, mut unresolved) = (BTreeMap::new(), BTreeSet::new());
    for component in components {
        let artifact = Artifact::of(profile, component);
        let Some(lock) = locks.get(&artifact).copied() else {
            unresolved.insert(artifact);
            continue;
        };
        let mut one = ComponentLock::from(lock);
        match locks.images(lock.content) {
            _ if profile == ProfileType::Helm => {}
            Some(written) => {
                for image in names.of(component, lock.content, written) {
                    match locks.get(&image) {
                        Some(lock) => _ = one.images.insert(image.repository, lock.manifest),
                        None => _ = unresolved.insert(image),
                    }
                }
            }
            None => _ = unresolved.insert(artifact.contents(lock)),
        }
        locked.insert(component.name.clone(), one);
    }
    (locked, unresolved)
}
