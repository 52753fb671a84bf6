//! Pushing with an exact lease: the remote moves a branch only from where the caller believes it stands.

use std::io;

use super::receive_pack::ReceivePack;
use super::{PushError, PushResult, PushUpdate, Remote};
use crate::pack::PackWriter;
use crate::repo::{Ancestry, Pack, Reach, ReadError};
use crate::{CommitId, Repo};

impl Remote {
    /// Moves branches at the remote, in one conversation, each on its own; the results are in the order of `updates`.
    pub fn push(&self, from: &Repo, updates: &[PushUpdate]) -> Result<Vec<PushResult>, PushError> {
        let session = ReceivePack::open(self)?;
        let judge = |update| judge(from, update, session.advertised.tip(update));
        let judged: Vec<Option<PushResult>> = updates.iter().map(judge).collect::<Result<_, _>>()?;
        let open: Vec<&PushUpdate> = updates.iter().zip(&judged).filter(|(_, j)| j.is_none()).map(|(u, _)| u).collect();
        if open.is_empty() {
            return Ok(judged.into_iter().flatten().collect());
        }
        let pack = pack(from, &open, session.advertised.commits())?;
        let report = session.send(self, &open, &pack)?;
        let result = |(update, judged): (&PushUpdate, Option<_>)| judged.unwrap_or_else(|| report.result(update));
        Ok(updates.iter().zip(judged).map(result).collect())
    }

    /// Moves one branch to a commit that a pack brings with all that it needs, and that is stored nowhere here. Nobody can say
    /// what it descends from, so `force` must be set where the branch is there.
    pub fn push_pack(&self, pack: &Pack, update: &PushUpdate) -> Result<PushResult, PushError> {
        let session = ReceivePack::open(self)?;
        if let Some(result) = judge_tip(update, session.advertised.tip(update)) {
            return Ok(result);
        }
        match update.expected {
            Some(old) if !update.force => Ok(refused(update, old)),
            _ => Ok(session.send(self, &[update], pack.bytes())?.result(update)),
        }
    }
}

/// What the tip of the branch says alone; `None` if it stands where it should.
fn judge_tip(update: &PushUpdate, tip: Option<CommitId>) -> Option<PushResult> {
    if tip == Some(update.new) {
        return Some(PushResult::Done);
    }
    let stale = || tip.map_or("the branch doesn't exist".to_owned(), |id| format!("the branch is at {id}"));
    (tip != update.expected).then(|| PushResult::Stale { text: stale() })
}

fn refused(update: &PushUpdate, old: CommitId) -> PushResult {
    PushResult::Refused { text: format!("{} is not known to be a descendant of {old}", update.new) }
}

/// What can be said without asking; `None` if the remote must be asked.
fn judge(from: &Repo, update: &PushUpdate, tip: Option<CommitId>) -> Result<Option<PushResult>, PushError> {
    if let Some(result) = judge_tip(update, tip) {
        return Ok(Some(result));
    }
    match update.expected {
        Some(old) if !update.force && from.is_ancestor(old, update.new)? != Ancestry::Yes => {
            Ok(Some(refused(update, old)))
        }
        _ => Ok(None),
    }
}

/// A pack of what the updates need and the remote's advertised commits don't bring along.
fn pack(from: &Repo, updates: &[&PushUpdate], known: Vec<CommitId>) -> Result<Vec<u8>, PushError> {
    let mut reach = Reach::new(from)?;
    for commit in known {
        match reach.leave_out(commit) {
            // Others' commits needn't be here, nor all of a boundary's tree.
            Ok(()) | Err(ReadError::Missing { .. } | ReadError::Kind { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    updates.iter().try_for_each(|update| reach.add(update.new.0))?;
    let ids = reach.into_found();
    let cannot = |source: io::Error| PushError::Pack(source.into());
    let mut pack = PackWriter::new(Vec::new(), ids.len()).map_err(cannot)?;
    for id in ids {
        let (kind, data) = from.object(id)?;
        pack.add(id, kind, &data).map_err(cannot)?;
    }
    pack.finish().map(|(bytes, _)| bytes).map_err(cannot)
}
