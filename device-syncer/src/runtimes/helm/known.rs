//! What the syncer remembers of releases for as long as it lives.

use std::collections::BTreeMap;
use std::time::Instant;

use repo_model::envelope::IgnoredDrift;

use super::release::{Listed, Release};
use crate::decision::observation::Condition;

/// What `helm list` doesn't say, by what it says.
pub(super) type Known = BTreeMap<Listed, KnownRelease>;

/// What was observed of a revision, and when.
#[derive(Debug, Clone)]
pub(super) struct KnownRelease {
    /// Never changes while `helm list` says the same.
    pub(super) release: Release,
    pub(super) condition: Condition,
    /// What of it the site's policy doesn't admit.
    pub(super) violation: Option<String>,
    /// What was ignored of its objects.
    pub(super) ignored: Vec<IgnoredDrift>,
    pub(super) when: Instant,
}

/// How often each change of each release was undone since the syncer began.
pub(super) type Healed = BTreeMap<(String, String), u32>;
