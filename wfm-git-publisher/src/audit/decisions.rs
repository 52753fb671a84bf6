//! What `control.git` says that was decided about rollouts, and by whose key.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use repo_git::{CommitId, OpenError, ReadError, Repo};
use repo_model::message::Message;
use repo_model::{Branch, KeyText, Trailer, error_chain};
use serde::Serialize;

use crate::repos::key_text;

/// A decision about a rollout, by the word of who signed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    pub time: Timestamp,
    pub commit: CommitId,
    pub rollout: u32,
    /// In the words of the trailer `Decision`: `start`, `release 2`.
    pub decision: String,
    pub reason: String,
    pub fleet_commit: Option<String>,
    /// Why it isn't believed; absent where it is.
    pub doubt: Option<String>,
}

/// `control.git` can't be read.
#[derive(Debug, thiserror::Error)]
pub enum DecisionsError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("it has no branch `control`")]
    Nothing,
    #[error("cannot read its history")]
    Read(#[from] ReadError),
}

/// All decisions in the `control.git` at `path`, the oldest first. Those are believed that one of these keys signed.
///
/// # Errors
/// It isn't there, or its history can't be read in full.
pub fn decisions(path: &Path, publishers: &BTreeSet<KeyText>) -> Result<Vec<Decided>, DecisionsError> {
    let repo = Repo::open_briefly(path)?;
    let tip = repo.tip(Branch::Control)?.ok_or(DecisionsError::Nothing)?;
    let mut decided = Vec::new();
    for id in repo.history(tip, None, usize::MAX)? {
        let commit = repo.commit(id)?;
        let message = Message::parse(&commit.message);
        let said = |key: Trailer| message.get(key).map(str::to_owned);
        let Some(rollout) = message.get(Trailer::Rollout).and_then(|number| number.parse().ok()) else { continue };
        let doubt = match commit.signer().map(key_text) {
            Ok(Some(key)) if publishers.contains(&key) => None,
            Ok(Some(key)) => Some(format!("it is signed by {key}, which published nothing that is believed")),
            Ok(None) => Some("its key has no text".to_owned()),
            Err(error) => Some(error_chain(&error)),
        };
        decided.push(Decided {
            time: Timestamp::from_second(commit.commit_time).unwrap_or(Timestamp::UNIX_EPOCH),
            commit: id,
            rollout,
            decision: said(Trailer::Decision).unwrap_or_default(),
            reason: said(Trailer::Reason).unwrap_or_default(),
            fleet_commit: said(Trailer::FleetCommit),
            doubt,
        });
    }
    decided.reverse();
    Ok(decided)
}
