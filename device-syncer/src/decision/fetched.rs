//! What is known of what changes need: whether it was fetched, where fleet or site say when that is done.

use std::collections::BTreeMap;

use repo_model::{Digest, ErrorCode};

use super::deployment::DesiredDeployment;
use super::status::Report;

/// What is known of one input. What nobody looked for yet isn't in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// It was fetched ahead, and all of it is here.
    Here,
    /// Some of it isn't here.
    Missing,
    /// It couldn't be fetched, and why.
    Failed(String),
}

/// What is known of inputs, by their digest. It lasts as long as the process; that something is missing is on `status`, too.
pub type AllFetched = BTreeMap<Digest, Fetched>;

/// What `status` says of something that isn't here, before when it is fetched.
pub const WAITS: &str = "not all that it needs is here, and it waits for a window in which that is fetched";

/// What was found missing, as `status` tells: so what waits says so once, however often a syncer begins anew.
pub fn reported(report: &Report, wanted: &[DesiredDeployment]) -> AllFetched {
    let parts = wanted.iter().flat_map(|one| one.components.iter().map(move |part| (one.id, part)));
    let missing = parts.filter_map(|(id, part)| {
        let why = report.get(id, &part.name)?.failure.as_ref()?;
        let is_missing = why.code == ErrorCode::WaitingWindow && why.message.starts_with(WAITS);
        Some((part.input.as_ref().ok().filter(|_| is_missing)?.input_digest, Fetched::Missing))
    });
    missing.collect()
}
