//! The whole history of `status`: what is on the branch, and the epochs before, which are kept as `status-<n>` or in archives.
//!
//! The first commit of an epoch names the last one of the epoch before, and its signature is that of the device's key. So
//! nobody can take an epoch away, put another one in its place or cut its end off unseen.

use std::collections::BTreeMap;

use repo_git::{CommitId, Repo};
use repo_model::branch::{HEADS, epoch_branch, epoch_of};
use repo_model::message::{Epoch, Message};
use repo_model::{Branch, Trailer};

use super::archives::Gone;
use super::checkpoint::Covered;
use super::finding::{
    EPOCH_ARCHIVED, EPOCH_FORKED, EPOCH_MISSING, EPOCH_MOVED, EPOCH_UNSIGNED, FOREIGN_REF, Found, Kind,
};
use super::history::Line;

/// The line of `status` across its epochs.
pub(super) struct Whole<'a> {
    /// The oldest commit first. What a checkpoint covers may be left out.
    pub(super) line: Line<'a>,
    /// The place of each branch's first commit in the line, in its order; the last is that of `status`.
    branches: Vec<(usize, String)>,
    /// Where the epochs ended that are kept, or archived.
    pub(super) kept: BTreeMap<u32, CommitId>,
    pub(super) found: Vec<Found>,
}

impl<'a> Whole<'a> {
    /// Reads it from the tip of `status` back, or to what a checkpoint covers.
    pub(super) fn read(
        (repo, gone): (&'a Repo, &'a Gone),
        tip: Option<CommitId>,
        covered: Option<&Covered>,
    ) -> Option<Self> {
        // What can't be read of them is found with what else lies there.
        let refs = repo.references(HEADS).unwrap_or_default().into_iter();
        let mut kept = gone.ends.clone();
        kept.extend(refs.filter_map(|(name, tip)| Some((epoch_of(&name)?, tip))));
        let mut walk = Walk { repo, gone, kept, found: gone.found.clone(), lines: Vec::new(), oldest: 0 };
        let is_as_covered = walk.compare(covered);
        let known = covered.filter(|_| is_as_covered).and_then(|covered| Some(covered.status.as_ref()?.commit));
        let is_walked = tip.is_some_and(|tip| walk.back(tip, known));
        walk.find_others(covered.filter(|_| is_as_covered && !is_walked));
        let Walk { kept, found, lines, .. } = walk;
        let mut whole: Option<Self> = None;
        for (name, line) in lines.into_iter().rev() {
            let (begin, before) = match whole {
                Some(whole) => (whole.line.commits.len(), Some(whole)),
                None => (0, None),
            };
            let (mut branches, before) =
                before.map_or_else(Default::default, |whole| (whole.branches, Some(whole.line)));
            branches.push((begin, name));
            let line = line.after(before);
            whole = Some(Self { line, branches, kept: BTreeMap::new(), found: Vec::new() });
        }
        let nothing =
            || Self { line: Line::nothing(repo), branches: Vec::new(), kept: BTreeMap::new(), found: Vec::new() };
        (tip.is_some() || !found.is_empty()).then(|| Self { kept, found, ..whole.unwrap_or_else(nothing) })
    }

    /// The branch that a place of the line is on.
    pub(super) fn branch(&self, place: usize) -> &str {
        let at = self.branches.iter().rev().find(|(begin, _)| *begin <= place);
        at.map_or(Branch::Status.as_str(), |(_, name)| name)
    }

    /// Whether a place of the line is on an epoch that ended.
    pub(super) fn has_ended(&self, place: usize) -> bool {
        self.branch(place) != Branch::Status
    }
}

struct Walk<'a> {
    repo: &'a Repo,
    gone: &'a Gone,
    kept: BTreeMap<u32, CommitId>,
    found: Vec<Found>,
    /// Those that were read, the newest first.
    lines: Vec<(String, Line<'a>)>,
    /// The archived one, by its number, that isn't read, nor what was before it; 0 if all is read.
    oldest: u32,
}

impl<'a> Walk<'a> {
    /// Whether the epochs that a checkpoint covers are where they were.
    fn compare(&mut self, covered: Option<&Covered>) -> bool {
        let before = self.found.len();
        for (number, stood) in covered.iter().flat_map(|covered| &covered.epochs) {
            match self.kept.get(number) {
                Some(stands) if stands == stood => {}
                Some(_) => self.find(&EPOCH_MOVED, *number, format!("it stood at {stood}, and nobody may move it")),
                None => self.find(&EPOCH_MISSING, *number, format!("it is gone, and stood at {stood}")),
            }
        }
        self.found.len() == before
    }

    fn find(&mut self, kind: &'static Kind, number: u32, message: String) {
        let (branch, commit) = (Some(epoch_branch(number)), self.kept.get(&number).copied());
        let found = Found { kind, branch, commit, message };
        if !self.found.iter().any(|known| known.kind == kind && known.branch == found.branch) {
            self.found.push(found);
        }
    }

    /// Reads from this tip of `status` back to its very beginning, or to the line with a commit that is known. Returns whether
    /// that is the beginning.
    fn back(&mut self, tip: CommitId, known: Option<CommitId>) -> bool {
        let (mut name, mut tip, mut below) = (Branch::Status.to_string(), tip, u32::MAX);
        loop {
            if let Some(time) = self.gone.unread.get(&below) {
                self.oldest = below;
                let text = format!("archived on {time:.0}, and neither it nor what came before it is read");
                self.find(&EPOCH_ARCHIVED, below, text);
                return true;
            }
            let line = Line::read(self.repo, Branch::Status, tip);
            let (first, is_broken) = (line.commits.first().copied(), line.broken.is_some());
            let has_known = known.is_some_and(|known| line.commits.contains(&known));
            self.lines.push((name.clone(), line));
            let Some(first) = first.filter(|_| !is_broken) else { return true };
            if has_known {
                return false;
            }
            let Some((number, end)) = self.before(&name, first, below) else { return true };
            (name, tip, below) = (epoch_branch(number), end, number);
        }
    }

    /// The epoch before the one that begins with this commit: its number, and where it is kept.
    fn before(&mut self, name: &str, first: CommitId, below: u32) -> Option<(u32, CommitId)> {
        let commit = self.repo.commit(first).ok()?;
        match Epoch::<CommitId>::of(&Message::parse(&commit.message)) {
            Some(Epoch { number, .. }) if number > below => {
                let message = format!("it begins epoch {number}, and is older than epoch {below}");
                self.found.push(Found::at(&EPOCH_FORKED, name, first, message));
                None
            }
            Some(Epoch { number, previous }) => {
                let end = self.kept.get(&(number - 1)).copied();
                match end {
                    None => {
                        let message = format!("`{name}` goes on from {previous}, which is kept nowhere");
                        self.find(&EPOCH_MISSING, number - 1, message);
                    }
                    Some(end) if end != previous => {
                        let message = format!("it stands at {end}, and `{name}` goes on from {previous}");
                        self.find(&EPOCH_MOVED, number - 1, message);
                    }
                    Some(_) => {}
                }
                end.map(|end| (number - 1, end))
            }
            // A host keeps it of a device that knows no epochs, where another key took the place of the old ones.
            None => {
                let ours = commit.signer().ok();
                let is_by_another = |number: u32, end| {
                    if self.gone.unread.contains_key(&number) {
                        return true;
                    }
                    let Ok(commit) = self.repo.commit(end) else { return false };
                    let kind = Message::parse(&commit.message).get(Trailer::Kind) == Some(Branch::Status.as_str());
                    kind && commit.signer().is_ok_and(|signer| Some(signer) != ours)
                };
                let older = self.kept.range(..below).rev().map(|(number, end)| (*number, *end));
                let mut older = older.filter(|(_, end)| !self.is_read(*end));
                let (number, end) = older.next().filter(|(number, end)| is_by_another(*number, *end))?;
                let message = format!("nothing that was signed says that it ends there, and `{name}` came after it");
                self.find(&EPOCH_UNSIGNED, number, message);
                Some((number, end))
            }
        }
    }

    fn is_read(&self, commit: CommitId) -> bool {
        self.lines.iter().any(|(_, line)| line.commits.contains(&commit))
    }

    /// Finds what nothing leads to. An end that was kept and then gone on from is part of what was read.
    fn find_others(&mut self, covered: Option<&Covered>) {
        let is_covered = |number: &u32| covered.is_some_and(|covered| covered.epochs.contains_key(number));
        let is_open = |number: &u32| *number > self.oldest && !self.gone.unread.contains_key(number);
        let others =
            self.kept.iter().filter(|(number, end)| is_open(number) && !is_covered(number) && !self.is_read(**end));
        let others: Vec<_> = others.map(|(number, end)| (*number, *end)).collect();
        for (number, end) in others {
            let first = self.repo.history(end, None, usize::MAX).ok().and_then(|mut line| line.pop());
            let first = first.and_then(|first| self.repo.commit(first).ok());
            let begins = first.and_then(|first| Epoch::<CommitId>::of(&Message::parse(&first.message)));
            match begins {
                Some(epoch) => {
                    let message = format!("it begins epoch {} anew, and nothing goes on from it", epoch.number);
                    self.find(&EPOCH_FORKED, number, message);
                }
                None => self.find(&FOREIGN_REF, number, "no epoch of `status` goes on from it".to_owned()),
            }
        }
    }
}
