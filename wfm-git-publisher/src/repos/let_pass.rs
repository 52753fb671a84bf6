//! Who let pass what of what guards hold: by which commit of the fleet.

use std::collections::BTreeSet;

use jiff::Timestamp;
use repo_git::{Commit, CommitId};
use repo_model::text;
use serde::Serialize;

use super::source::{FleetRepo, LIMITS, SourceError, changes_of, file};
use crate::fleet::{ALLOWED, Allowance, read_allowance};

/// The most commits between two that were published that are looked at.
const MAX_COMMITS: usize = 1000;

/// What a person let pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LetPass {
    /// When any device got the first state of a commit with it.
    pub published: Timestamp,
    pub commit: CommitId,
    /// Who wrote the commit, as it says.
    pub author: String,
    /// The fingerprint of the key that signed it; absent where its signature proves nothing.
    pub key: Option<String>,
    pub file: String,
    #[serde(flatten)]
    pub allowance: Allowance,
}

impl FleetRepo {
    /// What was let pass by the commits up to `commit`, which was published at this moment after `before`; of the first one that was
    /// published by that one alone. The oldest first.
    pub fn let_pass(
        &self,
        before: Option<CommitId>,
        commit: CommitId,
        published: Timestamp,
    ) -> Result<Vec<LetPass>, SourceError> {
        let most = if before.is_some() { MAX_COMMITS } else { 1 };
        let failed = |source| SourceError::Commit { commit, source };
        let mut history = self.repo.history(commit, before, most).map_err(failed)?;
        history.reverse();
        let mut all = Vec::new();
        for commit in history {
            let commit = self.commit(commit)?;
            let paths = self.allowed_by(&commit)?;
            if paths.is_empty() {
                continue;
            }
            let listed = self.repo.list(commit.id, &LIMITS);
            let listed = listed.map_err(|source| SourceError::Tree { commit: commit.id, source })?;
            for entry in listed.iter().filter(|entry| paths.contains(entry.path.as_bytes())) {
                let Ok(allowance) = read_allowance(&file(&self.repo, entry)) else { continue };
                all.push(LetPass {
                    published,
                    commit: commit.id,
                    author: text::line(&commit.author.name),
                    key: commit.signer().ok().map(|key| key.fingerprint()),
                    file: entry.path.clone(),
                    allowance,
                });
            }
        }
        Ok(all)
    }

    /// The files of `allowed/` that this commit brought, and none of its parents had like this.
    fn allowed_by(&self, commit: &Commit) -> Result<BTreeSet<Vec<u8>>, SourceError> {
        let parents: Vec<_> = commit.parents.iter().copied().map(Some).collect();
        let parents = if parents.is_empty() { vec![None] } else { parents };
        let mut all: Option<BTreeSet<_>> = None;
        for parent in parents {
            let changes = changes_of(&self.repo, parent, commit.id);
            let changes = changes.map_err(|source| SourceError::Tree { commit: commit.id, source })?;
            let is_ours =
                |path: &Vec<u8>| path.strip_prefix(ALLOWED.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"));
            let ours = changes.into_iter().filter(|(path, change)| change.new.is_some() && is_ours(path));
            let ours: BTreeSet<_> = ours.map(|(path, _)| path).collect();
            all = Some(all.map_or(ours.clone(), |all| all.intersection(&ours).cloned().collect()));
        }
        Ok(all.unwrap_or_default())
    }
}
