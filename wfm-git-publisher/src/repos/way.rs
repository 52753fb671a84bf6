//! The way from the commit of the fleet that was covered last to another one, as [`coverage`](crate::coverage) judges it:
//! what each commit changes, who signed it, and who approved it by a signed tag `approve/…`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use repo_git::repo::{Change, Held, Tag};
use repo_git::{Ancestry, CommitId, PublicKey, ReadError};

use super::source::{FleetRepo, LIMITS, SourceError, file};
use crate::coverage::{self, Approval, NotCovered, Step, Way, Written};
use crate::fleet::{SIGNERS, Signers};

/// Below this lie tags that approve the commits that they are on.
pub const APPROVALS: &str = "refs/tags/approve/";

/// The most commits that are judged one by one; of a longer way only its end is.
const MAX_STEPS: usize = 1000;

/// The most signatures on one commit that are checked.
const MAX_SIGNATURES: usize = 100;

/// A commit of the fleet may not be published.
#[derive(Debug, thiserror::Error)]
pub enum CoverageError {
    /// Nothing can be compared with what was covered last.
    #[error("commit {base}, which was covered last, is not in the fleet repository")]
    NoBase {
        base: CommitId,
        #[source]
        source: ReadError,
    },
    /// The fleet repository can't be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Too few agreed to it.
    #[error(transparent)]
    NotCovered(#[from] NotCovered),
}

impl FleetRepo {
    /// Whether those agreed to `commit` who have to, `base` being what was covered last. Besides its own tags, the repository
    /// may have some that are just pushed, by their full names.
    pub fn check_covered(
        &self,
        base: Option<CommitId>,
        commit: CommitId,
        pushed: &[(String, CommitId)],
        now: Timestamp,
    ) -> Result<(), CoverageError> {
        match base {
            Some(base) if base == commit => Ok(()),
            Some(base) => Ok(coverage::judge(&self.way(base, commit, pushed)?, now)?),
            None => match self.written(commit)? {
                Written::Broken(problems) => Err(NotCovered::Broken { commit, problems }.into()),
                _ => Ok(()),
            },
        }
    }

    /// What `signers.yaml` says at a commit.
    pub fn written(&self, commit: CommitId) -> Result<Written, SourceError> {
        let entries = self.repo.list(commit, &LIMITS).map_err(|source| SourceError::Tree { commit, source })?;
        let entry = entries.iter().find(|entry| entry.path == SIGNERS && entry.odd_name);
        let Some(entry) = entry.or_else(|| entries.iter().find(|entry| entry.path == SIGNERS)) else {
            return Ok(Written::Absent);
        };
        Ok(Signers::read(&file(&self.repo, entry)).map_or_else(Written::Broken, Written::Good))
    }

    /// Whether a commit is here.
    pub fn has(&self, commit: CommitId) -> bool {
        self.repo.commit(commit).is_ok()
    }

    fn way(&self, base: CommitId, commit: CommitId, pushed: &[(String, CommitId)]) -> Result<Way, CoverageError> {
        let read = |commit| move |source| SourceError::Commit { commit, source };
        self.repo.commit(base).map_err(|source| CoverageError::NoBase { base, source })?;
        let mut line = self.repo.history(commit, Some(base), MAX_STEPS + 1).map_err(read(commit))?;
        line.reverse();
        let first = line.first().copied().unwrap_or(commit);
        let is_line = line.len() <= MAX_STEPS && self.commit(first)?.parents.first() == Some(&base);
        let goes_on = is_line || self.repo.is_ancestor(base, commit).map_err(read(commit))? == Ancestry::Yes;
        let line = if is_line { line } else { vec![commit] };
        let mut approvals = self.approvals(&line.iter().copied().collect(), pushed)?;
        let (mut steps, mut before) = (Vec::new(), base);
        for commit in line {
            let changes = self.repo.changes(Some(before), commit, &LIMITS);
            let changes = changes.map_err(|source| SourceError::Tree { commit, source })?;
            let is_same = changes.keys().all(|path| !path.starts_with(SIGNERS.as_bytes()));
            steps.push(Step {
                commit,
                signer: self.commit(commit)?.signer().ok(),
                approvals: approvals.remove(&commit).unwrap_or_default(),
                signers: if is_same { None } else { Some(self.written(commit)?) },
                changes: changes.into_iter().map(|(path, change)| (path, told(change))).collect(),
            });
            before = commit;
        }
        Ok(Way { base, signers: self.written(base)?, steps, goes_on })
    }

    /// Who approved each of these commits. A tag counts under the name that was signed and no other: who signed `v12` approved
    /// nothing by that.
    fn approvals(
        &self,
        commits: &BTreeSet<CommitId>,
        pushed: &[(String, CommitId)],
    ) -> Result<BTreeMap<CommitId, BTreeSet<Approval>>, SourceError> {
        let fail = |source| SourceError::Resolve { rev: APPROVALS.to_owned(), source };
        let mut refs: BTreeMap<_, _> = self.repo.tag_refs(APPROVALS).map_err(fail)?.into_iter().collect();
        refs.extend(pushed.iter().filter(|(name, _)| name.starts_with(APPROVALS)).cloned());
        let mut found: BTreeMap<CommitId, BTreeSet<Approval>> = BTreeMap::new();
        let mut checked: BTreeMap<CommitId, usize> = BTreeMap::new();
        for (name, id) in refs {
            let Some(tag) = self.approval(&name, id).filter(|tag| commits.contains(&tag.commit)) else { continue };
            let checked = checked.entry(tag.commit).or_default();
            *checked += 1;
            if let Some(key) = tag.signer().ok().filter(|_| *checked <= MAX_SIGNATURES) {
                found.entry(tag.commit).or_default().insert(Approval { key, published: published(&tag) });
            }
        }
        Ok(found)
    }

    /// The approval of this full name, if there is one.
    pub fn approval_named(&self, name: &str) -> Option<Tag> {
        let refs = self.repo.tag_refs(name).ok()?;
        refs.into_iter().find(|(full, _)| full == name).and_then(|(full, id)| self.approval(&full, id))
    }

    /// The tag that a ref names, if it is an approval of that very name.
    pub fn approval(&self, name: &str, id: CommitId) -> Option<Tag> {
        let tag = self.repo.tag(id).ok().flatten()?;
        (name.starts_with(APPROVALS) && name.strip_prefix("refs/tags/") == Some(&tag.name)).then_some(tag)
    }
}

/// What an approval says that it takes the place of: a line `Published: <commit>` of its message.
fn published(tag: &Tag) -> Option<CommitId> {
    tag.message.lines().find_map(|line| line.strip_prefix("Published: ")?.trim().parse().ok())
}

fn told(Change { old, new }: Change) -> coverage::Change {
    let text = |held: Option<Held>| held.map(|held| held.to_string());
    coverage::Change { old: text(old), new: text(new) }
}

/// The keys that count at a commit.
pub(crate) fn keys_at(written: &Written, now: Timestamp) -> BTreeSet<PublicKey> {
    match written {
        Written::Good(signers) => signers.keys().filter(|key| signers.person(key, now).is_ok()).collect(),
        _ => BTreeSet::new(),
    }
}
