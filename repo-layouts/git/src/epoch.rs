//! After how many commits a device begins a new epoch of `status`, which tests that cut the power make fewer.

use repo_model::branch::EPOCH_COMMITS;

/// The number of the contract.
#[cfg(not(feature = "cut-points"))]
pub fn epoch_commits() -> usize {
    EPOCH_COMMITS
}

/// The number of the contract, or `SYNC_EPOCH_COMMITS`.
#[cfg(feature = "cut-points")]
pub fn epoch_commits() -> usize {
    std::env::var("SYNC_EPOCH_COMMITS").ok().and_then(|text| text.parse().ok()).unwrap_or(EPOCH_COMMITS)
}
