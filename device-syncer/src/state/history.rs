//! What this device reported of its deployments, read from the `status` branch of its clone without the lock.

use std::path::Path;

use jiff::Timestamp;
use repo_git::CommitId;
use repo_git::ReadError;
use repo_git::repo::{OpenError, Repo, TreeLimits};
use repo_model::margo::status::DeploymentStatus;

use crate::decision::device_state::STATUS;
use crate::decision::message;
use crate::decision::transitions::ReportedTransition;

/// What of a document is read for the words of one failure.
const DOCUMENT: u64 = 1 << 20;

/// The history of `status`, as far as the clone has it.
#[derive(Debug)]
pub struct History {
    repo: Repo,
    /// Newest first, as the clone has them.
    pub entries: Vec<Entry>,
}

/// One transition; a commit may report several.
#[derive(Debug, Clone)]
pub struct Entry {
    /// When it was committed, to the second, by the device's clock.
    pub at: Timestamp,
    /// The serial of the desired state in force then; 0 before the first.
    pub serial: u64,
    /// The commit on `status` that reports it.
    pub commit: CommitId,
    pub transition: ReportedTransition,
}

/// The history can't be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error("can't open the clone")]
    Open(#[from] OpenError),
    #[error("can't read the history of `status`")]
    Read(#[from] ReadError),
}

impl History {
    /// Reads the clone at this path, from now back to `since`; `None` where there is no clone yet.
    pub fn read(path: &Path, since: Option<Timestamp>) -> Result<Option<Self>, HistoryError> {
        if !path.exists() {
            return Ok(None);
        }
        let repo = Repo::open(path)?;
        let commits = match repo.reference(STATUS)? {
            Some(tip) => repo.history(tip, None, usize::MAX)?,
            None => Vec::new(),
        };
        let mut entries = Vec::new();
        for id in commits {
            let commit = repo.commit(id)?;
            let at = Timestamp::from_second(commit.commit_time).unwrap_or_default();
            if since.is_some_and(|since| at < since) {
                break;
            }
            let serial = message::serial(&commit.message);
            let transitions =
                message::states(&commit.message).into_iter().filter_map(|state| ReportedTransition::parse(&state));
            entries.extend(transitions.map(|transition| Entry { at, serial, commit: id, transition }));
        }
        Ok(Some(Self { repo, entries }))
    }

    /// The words that went with an entry's code, if it had one.
    pub fn words(&self, entry: &Entry) -> Option<String> {
        entry.transition.code.as_ref()?;
        let path = format!("deployments/{}.json", entry.transition.deployment);
        let document = self.repo.list(entry.commit, &TreeLimits::default()).ok()?;
        let blob = document.into_iter().find(|one| one.path == path)?.blob;
        let document = DeploymentStatus::read(&path, &self.repo.blob(blob, DOCUMENT).ok()?).ok()?;
        let error = match &entry.transition.component {
            Some(name) => document.components.into_iter().find(|one| one.name == *name)?.error,
            None => document.status.error,
        };
        error.map(|error| error.message)
    }
}
