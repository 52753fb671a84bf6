//! A damaged repository, made anew from what of it can still be read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use gix::objs::{Kind, TreeRefIter};
use repo_model::IntoMap;

use super::error::corrupt;
use super::{ConsolidateError, OpenError, ReadError, Repo};
use crate::{CommitId, durable};

/// A damaged repository can't be replaced.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// The new one can't be made.
    #[error(transparent)]
    Create(#[from] OpenError),
    /// What can be read can't be copied.
    #[error(transparent)]
    Copy(#[from] ConsolidateError),
    #[error("cannot set `{}` aside", path.display())]
    Replace {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Where a damaged repository is kept for a person to look at: beside itself, one at most.
pub fn set_aside(path: &Path) -> PathBuf {
    path.with_extension("damaged")
}

impl Repo {
    /// Puts a new bare repository, which `fill` completes, in the place of a damaged one. That is [set
    /// aside](set_aside), in the place of an earlier one. A power cut leaves the damaged one where it is, or the new one,
    /// which [`finish_renewal`](Self::finish_renewal) may have to put there. Under the damaged one's lock, if it has one.
    pub fn renew<T, E: From<RenewError>>(
        path: &Path,
        head_branch: impl AsRef<str>,
        fill: impl FnOnce(&Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let (new, aside) = (new_place(path), set_aside(path));
        let fail = |source| RenewError::Replace { path: path.to_owned(), source };
        durable::remove_dir_all(&new).map_err(fail)?;
        let filled = fill(&Self::create(&new, head_branch).map_err(RenewError::from)?)?;
        if path.exists() {
            durable::remove_dir_all(&aside).map_err(fail)?;
            durable::rename(path, &aside).map_err(fail)?;
        }
        durable::rename(&new, path).map_err(fail)?;
        Ok(filled)
    }

    /// Completes a renewal that a power cut ended between its last two steps.
    pub fn finish_renewal(path: &Path) -> Result<(), RenewError> {
        let new = new_place(path);
        if path.exists() || !new.exists() {
            return Ok(());
        }
        durable::rename(&new, path).map_err(|source| RenewError::Replace { path: path.to_owned(), source })
    }

    /// Why something that these commits reach can't be read; `None` if all of it can be. Reads all of it.
    pub fn damage_below(&self, tips: impl IntoIterator<Item = CommitId>) -> Option<ReadError> {
        let mut survey = match Survey::new(self) {
            Ok(survey) => survey,
            Err(error) => return Some(error),
        };
        tips.into_iter().for_each(|tip| survey.walk(tip));
        survey.damage
    }

    /// Copies what these commits reach into a new repository, as far as it can be read: a commit comes with its tree and
    /// all blobs, or not at all, and history ends before one that doesn't come. Returns for each tip the newest commit of
    /// its line that came.
    pub fn copy_readable(
        &self,
        into: &Self,
        tips: impl IntoIterator<Item = CommitId>,
    ) -> Result<BTreeMap<CommitId, CommitId>, ConsolidateError> {
        // Without knowing where history ended, whatever has a parent that isn't there ends it.
        let mut survey = Survey::new(self).unwrap_or_else(|_| Survey::upon(self, HashSet::new()));
        let tips: Vec<_> = tips.into_iter().collect();
        tips.iter().for_each(|tip| survey.walk(*tip));
        let fail = |source| ConsolidateError::Store { path: into.path.clone(), source };
        let ends = survey.ends();
        if !ends.is_empty() {
            let text: String = ends.iter().map(|id| format!("{id}\n")).collect();
            durable::replace_file(&into.path.join("shallow"), text.as_bytes(), 0o644).map_err(fail)?;
        }
        if !survey.found.is_empty() {
            self.write_pack(&into.pack_dir(), &survey.found)?;
        }
        Ok(tips.into_iter().filter_map(|tip| Some((tip, survey.newest(tip)?))).into_map())
    }
}

fn new_place(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Reads everything that commits reach, and goes on where something can't be read.
struct Survey<'a> {
    repo: &'a Repo,
    shallow: HashSet<ObjectId>,
    /// Commits that were met.
    met: HashSet<ObjectId>,
    /// Commits, trees and blobs that can be read with all that is below them; of commits without their parents.
    sound: HashSet<ObjectId>,
    /// The same, in the order in which they were read.
    found: Vec<ObjectId>,
    /// The parents of all commits that can be read themselves.
    parents: HashMap<CommitId, Vec<CommitId>>,
    /// Why something can't be read; the first of it.
    damage: Option<ReadError>,
}

impl<'a> Survey<'a> {
    fn new(repo: &'a Repo) -> Result<Self, ReadError> {
        Ok(Self::upon(repo, repo.shallow()?))
    }

    fn upon(repo: &'a Repo, shallow: HashSet<ObjectId>) -> Self {
        let (met, sound, found, parents) = Default::default();
        Self { repo, shallow, met, sound, found, parents, damage: None }
    }

    fn walk(&mut self, tip: CommitId) {
        let mut open = vec![tip];
        while let Some(id) = open.pop() {
            if !self.met.insert(id.0) {
                continue;
            }
            if let Err(error) = self.commit(id) {
                self.damage.get_or_insert(error);
            }
            if !self.shallow.contains(&id.0) {
                open.extend(self.parents.get(&id).into_iter().flatten());
            }
        }
    }

    /// The sound commits whose parents aren't all here.
    fn ends(&self) -> Vec<CommitId> {
        let is_end = |(id, parents): &(&CommitId, &Vec<CommitId>)| {
            self.sound.contains(&id.0) && parents.iter().any(|one| !self.sound.contains(&one.0))
        };
        self.parents.iter().filter(is_end).map(|(id, _)| *id).collect()
    }

    /// The newest sound commit of a line.
    fn newest(&self, tip: CommitId) -> Option<CommitId> {
        let mut next = Some(tip);
        while let Some(id) = next.filter(|id| !self.sound.contains(&id.0)) {
            next = self.parents.get(&id)?.first().copied();
        }
        next
    }

    /// Reads a commit with all that is below it.
    fn commit(&mut self, id: CommitId) -> Result<(), ReadError> {
        let commit = self.repo.commit(id)?;
        self.parents.insert(id, commit.parents);
        let mut below = vec![id.0];
        self.below(commit.tree.0, &mut below)?;
        for id in below {
            if self.sound.insert(id) {
                self.found.push(id);
            }
        }
        Ok(())
    }

    /// Adds a tree and all below it that isn't known yet.
    fn below(&self, root: ObjectId, found: &mut Vec<ObjectId>) -> Result<(), ReadError> {
        let (mut open, mut seen) = (vec![(root, Kind::Tree)], HashSet::new());
        while let Some((id, kind)) = open.pop() {
            if self.sound.contains(&id) || !seen.insert(id) {
                continue;
            }
            let data = self.repo.object_of(id, kind)?;
            found.push(id);
            if kind == Kind::Blob {
                continue;
            }
            for entry in TreeRefIter::from_bytes(&data, id.kind()) {
                let entry = entry.map_err(|source| corrupt(id, source))?;
                match entry.mode.kind() {
                    EntryKind::Tree => open.push((entry.oid.to_owned(), Kind::Tree)),
                    EntryKind::Commit => {}
                    _ => open.push((entry.oid.to_owned(), Kind::Blob)),
                }
            }
        }
        Ok(())
    }
}
