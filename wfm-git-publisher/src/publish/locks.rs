//! What tags, versions, addresses and images' names mean: the first resolution wins for the whole fleet, and is
//! remembered for ever.

use std::collections::BTreeSet;
use std::error::Error;

use jiff::Timestamp;
use repo_model::DeviceId;

use crate::fleet::Fleet;
use crate::plan::Allowed;
use crate::render::{
    Artifact, ArtifactKind, Facts, Locks, Resolved, artifacts, images_are_known, unresolved, with_published,
};
use crate::repos::{Charts, Control, Tip};

/// Asks a registry or another host what an artefact is now.
pub type Resolve<'a> = &'a dyn Fn(&Artifact) -> Result<Resolved, Box<dyn Error + Send + Sync>>;

/// What an artefact is couldn't be found out; what needs it is left as it is.
#[derive(Debug, thiserror::Error)]
#[error("cannot find out which bytes {artifact} is")]
pub struct ResolveError {
    pub artifact: Artifact,
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

/// A vendor's key is another one than before, which the vendor's host alone can't prove to be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the key at {location} is {found} now, and was {known} before")]
pub struct NewKey {
    /// The `keyLocation` of the package, from which the key was fetched.
    pub location: String,
    /// The fingerprint of the key that is there now.
    pub found: String,
    /// The one that was found there before.
    pub known: String,
}

fn new_key(artifact: &Artifact, resolved: &Resolved, control: &Control) -> Option<NewKey> {
    let ArtifactKind::SignedArchive(location) = &artifact.kind else { return None };
    let (found, known) = (resolved.signer.clone()?, control.ledger().signers.get(location)?.clone());
    (found != known).then(|| NewKey { location: location.clone(), found, known })
}

/// Whether every artefact in the fleet has a meaning already, so that nothing has to be found out.
pub(super) fn are_known(fleet: &Fleet, locks: &Locks) -> bool {
    fleet.deployments.values().all(|deployment| {
        artifacts(deployment).all(|artifact| locks.contains_key(&artifact))
            && images_are_known(fleet, deployment, locks)
    })
}

/// How the meaning of tags is found out.
pub(super) struct Resolving<'a> {
    pub(super) resolve: Resolve<'a>,
    pub(super) allowed: Allowed,
    pub(super) now: Timestamp,
}

/// Finds out what everything needed is: from what devices already have where the ledger was lost, else from where it
/// lies. Archives come first, because they name images.
pub(super) fn resolve<'a>(
    fleet: &Fleet,
    tips: impl Iterator<Item = &'a Tip>,
    facts: &dyn Fn(&DeviceId) -> Option<Facts<'a>>,
    control: &mut Control,
    charts: &Charts,
    how: Resolving<'_>,
) -> Vec<ResolveError> {
    let mut missing = unresolved(fleet, facts, &control.ledger().locks);
    if missing.is_empty() {
        return Vec::new();
    }
    let published = tips.fold(Locks::new(), |locks, tip| with_published(locks, &tip.desired));
    let (mut failed, mut asked) = (Vec::new(), BTreeSet::new());
    while !missing.is_empty() {
        for artifact in missing {
            asked.insert(artifact.clone());
            let known = published.get(&artifact).map(|lock| Resolved { images: None, ..(*lock).into() });
            match known.map_or_else(|| (how.resolve)(&artifact), Ok) {
                Ok(resolved) => match new_key(&artifact, &resolved, control).filter(|_| !how.allowed.new_keys) {
                    Some(error) => failed.push(ResolveError { artifact, source: error.into() }),
                    None => remember(&artifact, resolved, control, charts, how.now),
                },
                Err(source) => failed.push(ResolveError { artifact, source }),
            }
        }
        missing = unresolved(fleet, facts, &control.ledger().locks);
        missing.retain(|artifact| !asked.contains(artifact));
    }
    failed
}

fn remember(artifact: &Artifact, resolved: Resolved, control: &mut Control, charts: &Charts, now: Timestamp) {
    if let Some(chart) = &resolved.chart {
        charts.put(&resolved.lock, chart);
    }
    match artifact.kind {
        ArtifactKind::Contents { content, .. } => control.put_images(content, resolved.images.unwrap_or_default()),
        _ => control.put_lock(artifact, resolved, now),
    }
}
