//! What is known of what changes need: whether it was fetched, where fleet or site say when that is done.

use std::collections::BTreeMap;

use jiff::Timestamp;
use repo_model::Digest;

use super::failure::STEADY;

/// What is known of one input. What nobody looked for yet isn't in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// It was fetched ahead, and all of it is here.
    Here,
    /// Some of it isn't on the device: only a fetch, or a person, brings it.
    Missing,
    /// It couldn't be fetched.
    Failed {
        /// Why, in words that stay for a while: they stand on `status`.
        reason: String,
        /// Since when it is said so.
        since: Timestamp,
    },
}

/// What is known of inputs, by their digest. It lasts as long as the process; that something is missing is on `status`, too.
pub type AllFetched = BTreeMap<Digest, Fetched>;

/// What `status` says of something that isn't here, before when it is fetched.
pub const WAITS: &str = "not all that it needs is here, and it waits for a window in which that is fetched";

/// What `status` says of something that waits, before why what it needs can't be fetched meanwhile.
pub const FAILED: &str = "; what it needs isn't here yet: ";

impl Fetched {
    /// It failed for this reason; what is said for less than [`STEADY`] stays.
    pub fn failed(reason: String, before: Option<&Self>, now: Timestamp) -> Self {
        match before {
            Some(said @ Self::Failed { since, .. }) if now.duration_since(*since).unsigned_abs() < STEADY => {
                said.clone()
            }
            _ => Self::Failed { reason, since: now },
        }
    }
}
