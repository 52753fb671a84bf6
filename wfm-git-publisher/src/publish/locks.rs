//! What tags mean: the first resolution wins for the whole fleet, and is remembered for ever.

use std::error::Error;

use jiff::Timestamp;
use repo_model::DeviceId;
use repo_model::envelope::Lock;

use crate::fleet::Fleet;
use crate::host::{Control, Tip};
use crate::render::{Artifact, Facts, Locks, unresolved, with_published};

/// Asks a registry what a tag means now.
pub type Resolve<'a> = &'a dyn Fn(&Artifact) -> Result<Lock, Box<dyn Error + Send + Sync>>;

/// A tag's meaning couldn't be found out; what needs it is left as it is.
#[derive(Debug, thiserror::Error)]
#[error("cannot find out which archive {artifact} is")]
pub struct ResolveError {
    /// The tag.
    pub artifact: Artifact,
    /// Why.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

/// Finds out what every needed tag means: from what devices already have where the memory was lost, else from its
/// registry.
pub(super) fn resolve<'a>(
    fleet: &Fleet,
    tips: impl Iterator<Item = &'a Tip>,
    facts: &dyn Fn(&DeviceId) -> Facts<'a>,
    control: &mut Control,
    (resolve, now): (Resolve<'_>, Timestamp),
) -> Vec<ResolveError> {
    let missing = unresolved(fleet, facts, &control.ledger().locks);
    if missing.is_empty() {
        return Vec::new();
    }
    let published = tips.fold(Locks::new(), |locks, tip| with_published(locks, &tip.desired));
    let mut failed = Vec::new();
    for artifact in missing {
        match published.get(&artifact).map_or_else(|| resolve(&artifact), |lock| Ok(*lock)) {
            Ok(lock) => control.put_lock(&artifact, lock, now),
            Err(source) => failed.push(ResolveError { artifact, source }),
        }
    }
    failed
}
