//! Reads a repository for the judges: lines of commits, files of trees, and the states that `status` answers.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use repo_git::{BlobId, Commit, CommitId, EntryKind, ReadError, Repo, TreeError, TreeId, TreeLimits};
use repo_model::desired;
use repo_model::{Branch, FileTree};

use super::desired::Published;
use super::finding::Found;
use super::status::Answers;

/// How many commits of a line are kept once they were read, of about 2 KiB each.
const KEPT: usize = 5000;

/// The first-parent line of a branch, the oldest commit first.
#[derive(Debug)]
pub(super) struct Line<'a> {
    repo: &'a Repo,
    pub(super) commits: Vec<CommitId>,
    /// The newest of them, [`KEPT`] at most.
    kept: HashMap<CommitId, Commit>,
    /// Where it can't be read any further.
    pub(super) broken: Option<Found>,
}

impl<'a> Line<'a> {
    pub(super) fn read(repo: &'a Repo, branch: Branch, tip: CommitId) -> Self {
        let mut line = Self::nothing(repo);
        let mut next = Some(tip);
        while let Some(id) = next {
            next = match repo.commit(id) {
                Ok(commit) => {
                    line.commits.push(id);
                    let parent = commit.parents.first().copied();
                    if line.kept.len() < KEPT {
                        line.kept.insert(id, commit);
                    }
                    parent
                }
                Err(error) => {
                    line.broken = Some(Found::unreadable(branch, id, &error));
                    None
                }
            };
        }
        line.commits.reverse();
        line
    }

    /// A line without commits.
    pub(super) fn nothing(repo: &'a Repo) -> Self {
        Self { repo, commits: Vec::new(), kept: HashMap::new(), broken: None }
    }

    /// The same behind an older one.
    pub(super) fn after(mut self, older: Option<Self>) -> Self {
        let Some(older) = older else { return self };
        self.commits.splice(0..0, older.commits);
        let room = KEPT.saturating_sub(self.kept.len());
        self.kept.extend(older.kept.into_iter().take(room));
        self.broken = self.broken.or(older.broken);
        self
    }

    /// One of its commits, read again where it isn't kept.
    pub(super) fn commit(&self, id: CommitId) -> Result<Cow<'_, Commit>, ReadError> {
        self.kept.get(&id).map_or_else(|| self.repo.commit(id).map(Cow::Owned), |commit| Ok(Cow::Borrowed(commit)))
    }
}

/// Reads the files of one commit after the other. What is as in the tree before isn't read again.
#[derive(Debug)]
pub(super) struct Files<'a> {
    repo: &'a Repo,
    tree: Option<TreeId>,
    blobs: HashMap<String, BlobId>,
    files: FileTree,
}

impl<'a> Files<'a> {
    pub(super) fn new(repo: &'a Repo) -> Self {
        Self { repo, tree: None, blobs: HashMap::new(), files: FileTree::new() }
    }

    pub(super) fn of(&mut self, commit: &Commit) -> Result<&FileTree, TreeError> {
        if self.tree == Some(commit.tree) {
            return Ok(&self.files);
        }
        let limits = TreeLimits::default();
        let entries = self.repo.list_tree(commit.tree, &limits)?;
        self.tree = None;
        let mut before = std::mem::take(&mut self.files);
        let mut left = limits.bytes;
        for entry in &entries {
            let known = before.remove(&entry.path).filter(|_| self.blobs.get(&entry.path) == Some(&entry.blob));
            let bytes = match known {
                Some(bytes) if bytes.len() as u64 <= left => bytes,
                None if entry.kind == EntryKind::File && !entry.odd_name => match self.repo.blob(entry.blob, left) {
                    Ok(bytes) => bytes,
                    Err(_) => return self.whole(commit.tree, &limits),
                },
                _ => return self.whole(commit.tree, &limits),
            };
            left -= bytes.len() as u64;
            self.files.insert(entry.path.clone(), bytes);
        }
        self.blobs = entries.into_iter().map(|entry| (entry.path, entry.blob)).collect();
        self.tree = Some(commit.tree);
        Ok(&self.files)
    }

    /// Says what is wrong with a tree, in the words of whoever reads one.
    fn whole(&mut self, tree: TreeId, limits: &TreeLimits) -> Result<&FileTree, TreeError> {
        self.blobs.clear();
        self.files = self.repo.tree_files(tree, limits)?;
        Ok(&self.files)
    }
}

/// The history of `desired`, as other branches are judged by it.
#[derive(Debug)]
pub(super) struct States<'a> {
    repo: &'a Repo,
    commits: &'a [CommitId],
    places: HashMap<CommitId, usize>,
    /// How many commits, the oldest ones, a checkpoint covers: all of them were believed.
    covered: usize,
    /// The believed ones of the others, by their places.
    believed: BTreeMap<usize, Rc<Published>>,
}

impl<'a> States<'a> {
    pub(super) fn new(repo: &'a Repo, commits: &'a [CommitId], covered: usize) -> Self {
        let places = commits.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        Self { repo, commits, places, covered, believed: BTreeMap::new() }
    }

    /// Adds the next believed commit.
    pub(super) fn add(&mut self, published: Published) {
        if let Some(place) = self.places.get(&published.commit) {
            self.believed.insert(*place, Rc::new(published));
        }
    }

    pub(super) fn place(&self, commit: CommitId) -> Option<usize> {
        self.places.get(&commit).copied()
    }

    pub(super) fn commit(&self, place: usize) -> Option<CommitId> {
        self.commits.get(place).copied()
    }

    /// What a commit is that `status` or `freshness` names.
    pub(super) fn answers(&self, commit: CommitId) -> Answers {
        let Some(place) = self.place(commit) else { return Answers::Unknown };
        let believed = self.believed.get(&place).cloned().or_else(|| self.covered(place));
        believed.map_or(Answers::Refused(place), |published| Answers::Published(place, published))
    }

    /// The newest believed one.
    pub(super) fn newest(&self) -> Option<Rc<Published>> {
        let newest = self.believed.last_key_value().map(|(_, published)| published.clone());
        newest.or_else(|| self.covered(self.covered.checked_sub(1)?))
    }

    /// Those that were judged now and the last that was before, the newest first.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = Rc<Published>> {
        let before = self.covered.checked_sub(1).and_then(|place| self.covered(place));
        self.believed.values().rev().cloned().chain(before)
    }

    /// One that a checkpoint covers: its signature was judged then.
    fn covered(&self, place: usize) -> Option<Rc<Published>> {
        let id = *self.commits.get(place).filter(|_| place < self.covered)?;
        let files = self.repo.files(id, &TreeLimits::default()).ok()?;
        desired::read(&files).ok().map(|desired| Rc::new(Published::of(id, &desired, &files)))
    }
}
