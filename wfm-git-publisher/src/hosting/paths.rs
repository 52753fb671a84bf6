//! What an operator's account may change that is bound to paths of the fleet repository.

use std::collections::{BTreeSet, VecDeque};

use repo_git::repo::Changes;
use repo_git::{CommitId, Repo};
use wfm_git_host::judge::{Move, Rejected};

use crate::fleet::PathPattern;
use crate::repos::changes_of;

/// The most commits that one push may bring.
const MAX_COMMITS: usize = 10_000;

/// The most paths that are told one by one.
const MAX_TOLD: usize = 10;

/// The paths that an account may change.
#[derive(Debug)]
pub(super) struct Bounds {
    account: String,
    paths: Vec<PathPattern>,
}

impl Bounds {
    /// The bounds of an account; `None` if it has none. A pattern that can't be read fits nothing.
    pub(super) fn of(account: &str, paths: &[String]) -> Option<Self> {
        let parsed = paths.iter().filter_map(|path| path.parse().ok()).collect();
        (!paths.is_empty()).then(|| Self { account: account.to_owned(), paths: parsed })
    }

    /// Judges every commit that comes with a push, also one that a later one takes back, and what the push makes of the branch
    /// that gets published. `before` is the repository without what is pushed.
    pub(super) fn check(
        &self,
        (before, repo): (&Repo, &Repo),
        moves: &[Move],
        published: Option<&str>,
    ) -> Result<(), Rejected> {
        let mut seen = BTreeSet::new();
        for step in moves {
            let Some(new) = step.new else { continue };
            let tip = self.commit_of(repo, step, new)?;
            let (mut open, mut come) = (VecDeque::from([tip]), Vec::new());
            while let Some(id) = open.pop_front() {
                if before.commit(id).is_ok() || !seen.insert(id) {
                    continue;
                }
                if seen.len() > MAX_COMMITS {
                    let text = format!("{}: more than {MAX_COMMITS} commits at once; push them in parts", step.name);
                    return Err(Rejected::Rule(text));
                }
                let parents = repo.commit(id).map_err(|source| read(step, source))?.parents;
                open.extend(parents.iter().copied());
                come.push((id, parents));
            }
            // Oldest first: the one that changes something is named, and not the one that takes it back.
            come.iter().rev().try_for_each(|(id, parents)| self.check_commit(repo, step, *id, parents))?;
            if published == Some(&step.name) {
                self.check_whole(repo, step, tip, &come)?;
            }
        }
        Ok(())
    }

    /// The commit that a ref shall name: what nobody can follow to its commits isn't judged, so it isn't taken.
    fn commit_of(&self, repo: &Repo, step: &Move, new: CommitId) -> Result<CommitId, Rejected> {
        match repo.tag(new) {
            Ok(Some(tag)) => Ok(tag.commit),
            _ if repo.commit(new).is_ok() => Ok(new),
            _ => {
                let Self { account, .. } = self;
                let text = format!(
                    "{}: the account {account} is bound to paths, and pushes commits and tags on them",
                    step.name
                );
                Err(Rejected::Rule(text))
            }
        }
    }

    /// A commit by itself: what differs from each of its parents. What a merge takes over from one of them, that one's own commits
    /// changed.
    fn check_commit(&self, repo: &Repo, step: &Move, id: CommitId, parents: &[CommitId]) -> Result<(), Rejected> {
        let mut changed = self.outside(&changes(repo, step, parents.first().copied(), id)?);
        for parent in parents.iter().skip(1) {
            let also = self.outside(&changes(repo, step, Some(*parent), id)?);
            changed.retain(|path| also.contains(path));
        }
        self.refuse(step, &changed, |_| Ok(id))
    }

    /// What becomes of the branch as a whole: a merge may have taken over what others did elsewhere, or thrown it away.
    fn check_whole(
        &self,
        repo: &Repo,
        step: &Move,
        new: CommitId,
        come: &[(CommitId, Vec<CommitId>)],
    ) -> Result<(), Rejected> {
        let changed = self.outside(&changes(repo, step, step.old, new)?);
        self.refuse(step, &changed, |path| {
            // The first that differs there from any commit that it goes on from.
            for (id, parents) in come.iter().rev() {
                for parent in parents {
                    if self.outside(&changes(repo, step, Some(*parent), *id)?).contains(path) {
                        return Ok(*id);
                    }
                }
            }
            Ok(new)
        })
    }

    /// Whether a path lies within them.
    pub(super) fn fit(&self, path: &str) -> bool {
        self.paths.iter().any(|pattern| pattern.fits(path))
    }

    /// What may be changed, for people.
    pub(super) fn shown(&self) -> String {
        let paths = self.paths.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ");
        if paths.is_empty() { "nothing".to_owned() } else { paths }
    }

    /// The changed paths that no pattern fits.
    fn outside(&self, changes: &Changes) -> BTreeSet<String> {
        let paths = changes.keys().map(|path| String::from_utf8_lossy(path).into_owned());
        paths.filter(|path| !self.fit(path)).collect()
    }

    fn refuse(
        &self,
        step: &Move,
        changed: &BTreeSet<String>,
        by: impl Fn(&str) -> Result<CommitId, Rejected>,
    ) -> Result<(), Rejected> {
        if changed.is_empty() {
            return Ok(());
        }
        let mut lines = Vec::new();
        for path in changed.iter().take(MAX_TOLD) {
            lines.push(format!("commit {} changes `{path}`", by(path)?));
        }
        if changed.len() > MAX_TOLD {
            lines.push(format!("and {} more", changed.len() - MAX_TOLD));
        }
        let text = format!(
            "{}: the account {} may change {} and nothing else (its `paths`)\n{}\n  hint: whoever may change all of it \
             pushes this, or take these commits out (git rebase)",
            step.name,
            self.account,
            self.shown(),
            lines.join("\n")
        );
        Err(Rejected::Rule(text))
    }
}

fn changes(repo: &Repo, step: &Move, old: Option<CommitId>, new: CommitId) -> Result<Changes, Rejected> {
    changes_of(repo, old, new).map_err(|error| {
        let text = format!("{}: commit {new}: what it changes can't be told: {error}", step.name);
        Rejected::Rule(text)
    })
}

fn read(step: &Move, source: repo_git::ReadError) -> Rejected {
    Rejected::Read { name: step.name.clone(), source }
}
