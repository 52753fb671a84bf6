//! Keeps repositories bounded: many packs become one, and what no ref reaches any more goes.

use std::path::Path;

use repo_git::{Repo, RepoLock};
use repo_model::error_chain;

/// Packs in a repository before they are made one.
pub(crate) const MAX_PACKS: usize = 40;

/// Consolidates a repository that is locked, if it has more packs than `max_packs`. A failure is only logged: the next push
/// tries again.
pub(crate) fn tidy(name: &str, repo: &Repo, lock: &RepoLock, max_packs: usize) {
    match repo.consolidate(lock, max_packs) {
        Ok(true) => tracing::debug!(repository = name, "its packs are one now"),
        Ok(false) => {}
        Err(error) => tracing::warn!(repository = name, error = error_chain(&error), "its packs can't be made one"),
    }
}

/// How many bytes the objects of a repository take.
pub(crate) fn size(repository: &Path) -> u64 {
    below(&repository.join("objects"))
}

fn below(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => below(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}
