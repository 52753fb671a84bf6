//! Which commits descend from which, of all behind one commit.

use std::collections::{HashMap, HashSet};

use super::{ReadError, Repo};
use crate::CommitId;

/// All commits behind one, by all their parents, as far as they are here.
#[derive(Debug, Clone, Default)]
pub struct Lineage {
    children: HashMap<CommitId, Vec<CommitId>>,
}

impl Repo {
    /// Reads every commit behind this one, once.
    pub fn lineage(&self, tip: CommitId) -> Result<Lineage, ReadError> {
        let mut lineage = Lineage::default();
        let (mut open, mut seen) = (vec![tip], HashSet::from([tip]));
        while let Some(id) = open.pop() {
            let commit = match self.commit(id) {
                // Behind a shallow boundary.
                Err(ReadError::Missing { .. }) if id != tip => continue,
                read => read?,
            };
            for parent in commit.parents {
                lineage.children.entry(parent).or_default().push(id);
                if seen.insert(parent) {
                    open.push(parent);
                }
            }
        }
        Ok(lineage)
    }
}

impl Lineage {
    /// This commit and all that descend from it.
    pub fn descendants(&self, commit: CommitId) -> HashSet<CommitId> {
        let (mut open, mut found) = (vec![commit], HashSet::from([commit]));
        while let Some(id) = open.pop() {
            let children = self.children.get(&id).into_iter().flatten();
            open.extend(children.copied().filter(|child| found.insert(*child)));
        }
        found
    }
}
