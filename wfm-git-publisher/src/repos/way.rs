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

/// Who agreed to a commit of the fleet, by the signatures that its repository has now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreement {
    pub commit: CommitId,
    /// Every signature on the way since the commit that was published before.
    pub signatures: Vec<Signature>,
    /// Whether those who have to agree did; absent where it isn't known what was published before, or the repository lacks a
    /// commit.
    pub covered: Option<bool>,
    /// Who is missing for what, if it isn't.
    pub missing: Option<String>,
}

/// A signature on a commit of the fleet, or on a tag that approves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub commit: CommitId,
    pub key: PublicKey,
    /// Whose key it is by `signers.yaml` of the commit that was published before; nobody's if absent.
    pub person: Option<String>,
    /// Whether it is on a tag `approve/…`, and not on the commit itself.
    pub is_approval: bool,
}

impl FleetRepo {
    /// Who agreed to `commit`, which was published at this moment after `before`.
    pub fn agreement(
        &self,
        before: Option<CommitId>,
        commit: CommitId,
        at: Timestamp,
    ) -> Result<Agreement, CoverageError> {
        if !self.has(commit) || before.is_some_and(|before| !self.has(before)) {
            return Ok(Agreement { commit, signatures: Vec::new(), covered: None, missing: None });
        }
        let (written, steps) = match before.filter(|before| *before != commit) {
            Some(before) => {
                let way = self.way(before, commit, &[])?;
                (way.signers, way.steps.into_iter().map(|step| (step.commit, step.signer, step.approvals)).collect())
            }
            None => {
                let approvals = self.approvals(&BTreeSet::from([commit]), &[])?.remove(&commit).unwrap_or_default();
                (self.written(commit)?, vec![(commit, self.commit(commit)?.signer().ok(), approvals)])
            }
        };
        let person = |key: &PublicKey| match &written {
            Written::Good(signers) => signers.person(key, at).ok().map(str::to_owned),
            _ => None,
        };
        let mut signatures = Vec::new();
        for (commit, signer, approvals) in steps {
            let own = signer.into_iter().map(|key| (key, false));
            for (key, is_approval) in own.chain(approvals.into_iter().map(|one| (one.key, true))) {
                signatures.push(Signature { commit, key, person: person(&key), is_approval });
            }
        }
        let judged = before.map(|before| self.check_covered(Some(before), commit, &[], at)).transpose();
        let (covered, missing) = match judged {
            Ok(judged) => (judged.map(|()| true), None),
            Err(CoverageError::NotCovered(why)) => (Some(false), Some(why.to_string())),
            Err(error) => return Err(error),
        };
        Ok(Agreement { commit, signatures, covered, missing })
    }

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
